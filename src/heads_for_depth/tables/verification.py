"""Re-trained runs beside their records, one line each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from heads_for_depth.provenance import without_marks
from heads_for_depth.tables.formatting import NONE, in_powers_of_ten
from heads_for_depth.verification import Verified
from heads_for_depth.verification.repetitions import QUANTITIES, Repetition

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


def repeated(found: Sequence[Repetition]) -> pd.DataFrame:
    """One line per pair of machines and kind of run: how many were repeated, and the largest differences seen."""
    groups: dict[tuple[str, str, str], list[Mapping[str, Any]]] = {}
    for one in found:
        for run in one["runs"]:
            place = short(one["provenance"]["machine"]["processor"]), short(run["recorded_on"])
            groups.setdefault((*place, run["experiment"]), []).append(run)
    lines = [_repeated(*place, runs) for place, runs in sorted(groups.items())]
    return pd.DataFrame(lines or [{"repeated on": "nothing repeated yet"}])


def _repeated(here: str, there: str, experiment: str, runs: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    largest = {
        name: max((run["largest_difference"].get(name, 0.0) for run in runs), default=0.0) for name in QUANTITIES
    }
    present = {name for run in runs for name in run["largest_difference"]}
    return {
        "repeated on": here,
        "recorded on": there,
        "experiment": f"`{experiment}`",
        "runs (identical)": f"{len(runs)} ({sum(run['outcome'] == 'identical' for run in runs)})",
        "accuracy (points)": f"{100 * largest['accuracy']:.2f}" if "accuracy" in present else NONE,
        "loss (nats)": f"{largest['loss']:.3f}" if "loss" in present else NONE,
        "κ (relative)": in_powers_of_ten(max(largest["kappa"], largest["large_kappa"])) if present & KAPPAS else NONE,
    }


KAPPAS = {"kappa", "large_kappa"}


def short(processor: str) -> str:
    """A processor's name without trade marks and without the word itself."""
    return without_marks(processor).replace(" Processor", "").strip()
