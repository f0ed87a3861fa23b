"""How numbers are written: digits, signs, units, and gaps."""

from collections.abc import Sequence
from math import isfinite

MISSING = "not in the record"
"""A number of the literature that the record does not hold."""
NONE = "—"
"""A number of ours that cannot be computed from what the record holds."""
MINUS = "−"


def millions(count: int | None, decimals: int = 2) -> str:
    """Parameters in millions, without a unit."""
    return NONE if count is None else f"{count / 1e6:.{decimals}f}"


def percent(share: float | None, decimals: int = 1) -> str:
    """A share between 0 and 1 as a percentage."""
    return NONE if share is None else f"{share * 100:.{decimals}f} %"


def signed_percent(share: float | None, decimals: int = 1) -> str:
    """A relative difference with its sign; what rounds to zero has none."""
    return NONE if share is None else f"{signed(share * 100, decimals)} %"


def signed(number: float, decimals: int = 1) -> str:
    """A difference with its sign; what rounds to zero has none."""
    digits = f"{abs(number):.{decimals}f}"
    if float(digits) == 0:
        return digits
    return ("+" if number > 0 else MINUS) + digits


def whole(number: int) -> str:
    """A count with thousands separated."""
    return f"{number:,}"


def two_digits(number: float) -> str:
    """A positive number with two significant digits, written out."""
    if not isfinite(number):
        return "not defined"
    return f"{number:.2g}" if number < 10 else f"{number:.0f}"


def in_powers_of_ten(number: float, decimals: int = 1) -> str:
    """A number as 4.4e−3 or 2.5e5; nothing in it breaks over lines."""
    if number == 0:
        return "0"
    digits, _, power = f"{number:.{decimals}e}".partition("e")
    return f"{digits}e{MINUS if int(power) < 0 else ''}{abs(int(power))}"


def stages(numbers: tuple[int, ...] | None) -> str:
    """One number, or one per stage."""
    return MISSING if numbers is None else ", ".join(map(str, numbers))


def change(before: str, after: str) -> str:
    """A change from one written value to another; one text where they agree."""
    return before if before == after else f"{before} → {after}"


def span(numbers: Sequence[int]) -> str:
    """One number, or the smallest and the largest."""
    low, high = min(numbers), max(numbers)
    return str(low) if low == high else f"{low} to {high}"
