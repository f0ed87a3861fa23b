"""Re-trained runs beside their records, one line each."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pandas as pd

from heads_for_depth.verification import Verified

COLUMNS = ("experiment", "run", "number", "here", "recorded", "difference", "tolerance", "result")


def verified(lines: Sequence[Verified]) -> pd.DataFrame:
    """One line per run with the number that takes the largest share of its tolerance."""
    return pd.DataFrame([_line(line) for line in lines], columns=list(COLUMNS))


def _line(line: Verified) -> dict[str, str]:
    check = line.telling
    return {
        "experiment": line.experiment,
        "run": line.run_id,
        "number": check.quantity.removeprefix("metrics."),
        "here": _value(check.here),
        "recorded": _value(check.recorded),
        "difference": _size(check.difference),
        "tolerance": _size(check.tolerance),
        "result": line.outcome,
    }


def _value(value: int | float | str | None) -> str:
    if value is None:
        return "none"
    return f"{value:.6g}" if isinstance(value, float) else str(value)


def _size(number: float) -> str:
    return "inf" if math.isinf(number) else f"{number:.2g}"


def tally(lines: Sequence[Verified]) -> str:
    """How many runs are identical, agree and differ, as a sentence."""
    counts = {word: sum(line.outcome == word for line in lines) for word in ("identical", "agrees", "differs")}
    exact = sum(line.same_arithmetic for line in lines)
    return (
        f"{counts['identical']} identical, {counts['agrees']} within tolerance, {counts['differs']} differ; "
        f"{exact} of {len(lines)} had to be identical"
    )
