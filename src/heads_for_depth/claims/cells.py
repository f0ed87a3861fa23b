"""The text of one cell -> its value; a ValueError says what would be right."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

FAMILIES = ("vit", "deit", "xcit", "tnt", "davit", "volo", "swin", "crammed-bert", "gpt2", "nystromformer")
STAGED_FAMILIES = ("davit", "volo", "swin")
"""Families whose depth, heads and widths have one entry per stage."""
STATUSES = ("clean", "language", "confounded", "user")
"""Of the record: `clean` rows state that d_model and MLP width stay; `confounded` rows shrink the MLP as well."""

MOST_BLOCKS = 1_000
DIGITS = re.compile(r"[0-9]{1,7}")
STAGES = re.compile(r"[0-9]{1,7}(,[0-9]{1,7})*")
DECIMAL = re.compile(r"[0-9]{1,9}(\.[0-9]{1,9})?")


@dataclass(frozen=True, kw_only=True, slots=True)
class Printed:
    """A number as it is printed: `59.0` has one decimal and stands for everything that rounds to it."""

    text: str

    @property
    def value(self) -> float:
        """The printed value."""
        return float(self.text)

    @property
    def unit(self) -> Decimal:
        """The value of the last printed digit: 0.1 for `59.0`, 1 for `119`."""
        return Decimal(1).scaleb(int(Decimal(self.text).as_tuple().exponent))

    def prints(self, exact: Decimal) -> bool:
        """Whether an exact value rounds to this text; a tie may round either way."""
        return abs(exact - Decimal(self.text)) <= self.unit / 2

    def truncates(self, exact: Decimal) -> bool:
        """Whether an exact value gives this text when its further digits are cut off instead of rounded."""
        return Decimal(self.text) <= exact < Decimal(self.text) + self.unit


def text_of(text: str) -> str:
    return text


def choice_of(choices: Sequence[str], default: str | None = None) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text in choices:
            return text
        if text == "" and default is not None:
            return default
        raise ValueError(f"use one of {', '.join(choices)}")

    return parse


def whole_of(text: str) -> int | None:
    if text == "":
        return None
    if not DIGITS.fullmatch(text) or int(text) < 1:
        raise ValueError("give a whole number from 1 to 9999999, or leave the cell empty")
    return int(text)


def stages_of(text: str) -> tuple[int, ...] | None:
    if text == "":
        return None
    numbers = tuple(map(int, text.split(","))) if STAGES.fullmatch(text) else ()
    if not numbers or min(numbers) < 1:
        raise ValueError('give a whole number from 1, or one per stage such as "1,1,9,1", or leave the cell empty')
    return numbers


def blocks_of(text: str) -> tuple[int, ...] | None:
    numbers = stages_of(text)
    if numbers is not None and max(numbers) > MOST_BLOCKS:
        raise ValueError(f"give at most {MOST_BLOCKS} blocks per stage")
    return numbers


def printed_of(text: str) -> Printed | None:
    if text == "":
        return None
    if not DECIMAL.fullmatch(text) or float(text) == 0:
        raise ValueError("give a positive number as printed, such as 59.0, without a unit, or leave the cell empty")
    return Printed(text=text)
