"""The self-check: this machine beside the committed smoke records."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from heads_for_depth.findings.machine import KAPPA_TOLERANCE, LOSS_TOLERANCE, Beside
from heads_for_depth.tables.formatting import change
from heads_for_depth.tables.vision import NONE, kappa

ABSENT = "–"
"""That kind of run has no such number, here or there."""


def beside(lines: Sequence[Beside]) -> pd.DataFrame:
    """One line per run: ours → yours."""
    return pd.DataFrame([_line(line) for line in lines])


def _line(line: Beside) -> dict[str, str]:
    verdict = "identical" if line.identical else "agrees" if line.agrees else "differs"
    return {
        "experiment": line.experiment,
        "run": line.run_id,
        "loss": _pair(line.loss_ours, line.loss_yours, "{:.4f}"),
        "accuracy (%)": _pair(_percent(line.accuracy_ours), _percent(line.accuracy_yours), "{:.1f}"),
        "κ at start": _kappas(line),
        "seconds": f"{line.seconds_ours:.1f} → {line.seconds_yours:.1f}",
        "result": verdict,
    }


def _kappas(line: Beside) -> str:
    both = (line.kappa_ours, line.kappa_yours)
    return ABSENT if both == (None, None) else change(*map(kappa, both))


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _pair(ours: float | None, yours: float | None, form: str) -> str:
    if ours is None and yours is None:
        return ABSENT
    return change(*(NONE if value is None else form.format(value) for value in (ours, yours)))


def glued(lines: Sequence[Beside]) -> dict[str, str]:
    """Counts and tolerances for the prose, and how fast this machine was."""
    ours, yours = (sum(getattr(line, name) for line in lines) for name in ("seconds_ours", "seconds_yours"))
    return {
        "machine.runs": str(len(lines)),
        "machine.agree": str(sum(line.agrees for line in lines)),
        "machine.identical": str(sum(line.identical for line in lines)),
        "machine.loss_tolerance": f"{LOSS_TOLERANCE:g}",
        "machine.kappa_tolerance": f"{100 * KAPPA_TOLERANCE:g} %",
        "machine.speed": f"{ours / yours:.2f}",
    }
