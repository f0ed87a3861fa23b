"""The vision findings as plain, unrounded data: what the figures take and what their CSV files hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

import pandas as pd

from heads_for_depth.findings.vision import EFFECTS, Cell, RowFinding
from heads_for_depth.statistics import Difference, pooled_sd, test_set_sampling_error

SHOWN = ("reshape", "more heads, deep", "less depth, few heads")
"""Effects that the forest plot shows."""


@dataclass(frozen=True, kw_only=True, slots=True)
class IntervalLine:
    """One row of the forest plot; percentage points."""

    label: str
    differences: Sequence[tuple[float, float, float] | None]
    """Per comparison (difference, lower end, upper end), or None where there is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CurvePanel:
    """Learning curves of one row: per arm its runs, one value per epoch."""

    title: str
    arms: Sequence[tuple[str, Sequence[Sequence[float]]]]


def interval_lines(findings: Sequence[RowFinding]) -> list[IntervalLine]:
    """The effects of SHOWN with two-sided 95 % Welch intervals."""
    return [IntervalLine(label=f.row.title, differences=[_ends(f.effects[name]) for name in SHOWN]) for f in findings]


def _ends(difference: Difference | None) -> tuple[float, float, float] | None:
    if difference is None:
        return None
    interval = difference.interval(0.95)
    return difference.difference, interval.lower, interval.upper


def effects_data(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """One line per row and effect: difference, interval, n."""
    return pd.DataFrame(
        [
            {"row": f.row.name, "effect": name, "difference_points": ends[0], "lower": ends[1], "upper": ends[2]}
            | {"confidence": 0.95, "method": "welch", "n_from": d.baseline_n, "n_to": d.reshape_n}
            for f in findings
            for name in EFFECTS
            if (d := f.effects[name]) is not None and (ends := _ends(d)) is not None
        ],
        columns=["row", "effect", "difference_points", "lower", "upper", "confidence", "method", "n_from", "n_to"],
    )


def curve_panels(findings: Sequence[RowFinding]) -> list[CurvePanel]:
    """Validation accuracy per epoch, baseline and reshape."""
    return [
        CurvePanel(
            title=f.row.title,
            arms=[("baseline", _accuracy_curves(f.baseline)), ("reshape", _accuracy_curves(f.reshape))],
        )
        for f in findings
    ]


def _accuracy_curves(cell: Cell) -> list[list[float]]:
    return [[accuracy for _, accuracy in curve] for curve in cell.curves]


def curves_data(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """One line per row, cell, seed and epoch: training loss and validation accuracy."""
    return pd.DataFrame(
        [
            {"row": f.row.name, "depth_arm": depth, "heads_arm": heads, "seed": seed, "epoch": epoch + 1}
            | {"train_loss_nats": loss, "validation_accuracy_percent": accuracy}
            for f in findings
            for (depth, heads), cell in f.cells.items()
            for seed, curve in zip(cell.seeds, cell.curves, strict=True)
            for epoch, (loss, accuracy) in enumerate(curve)
        ]
    )


def runs_data(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """One line per finished run: shape, test accuracy and loss."""
    return pd.DataFrame(
        [
            {"row": f.row.name, "depth_arm": depth, "heads_arm": heads, "seed": seed}
            | {"depth": "-".join(map(str, cell.shape.depth)), "heads": "-".join(map(str, cell.shape.heads))}
            | {"parameters": cell.parameters, "test_accuracy_percent": accuracy, "test_loss_nats": loss}
            for f in findings
            for (depth, heads), cell in f.cells.items()
            for seed, accuracy, loss in zip(cell.seeds, cell.accuracy, cell.loss, strict=True)
        ]
    )


def last_epoch_gain(findings: Sequence[RowFinding]) -> float | None:
    """Median over runs of the validation accuracy gained in the last epoch, in points; None below two epochs."""
    gains = [
        curve[-1][1] - curve[-2][1]
        for f in findings
        for cell in f.cells.values()
        for curve in cell.curves
        if len(curve) > 1
    ]
    return median(gains) if gains else None


def seed_spread(findings: Sequence[RowFinding]) -> float | None:
    """Standard deviation of test accuracy between seeds of one cell, pooled over cells, in points."""
    arms = [cell.accuracy for f in findings for cell in f.cells.values() if len(cell.accuracy) > 1]
    return pooled_sd(arms).standard_deviation if arms else None


def sampling_error(findings: Sequence[RowFinding], test_images: int) -> float | None:
    """Binomial standard error in points of the mean accuracy of all runs."""
    values = [accuracy for f in findings for cell in f.cells.values() for accuracy in cell.accuracy]
    return test_set_sampling_error(fmean(values), test_images) if values else None
