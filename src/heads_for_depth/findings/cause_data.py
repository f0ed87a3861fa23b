"""The causal test as plain, unrounded data: what the figures take and what their CSV files hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import exp, isfinite
from statistics import fmean

import pandas as pd

from heads_for_depth.experiments.cause_grid import PLAIN_SHAPES, RATE_ROW
from heads_for_depth.experiments.map_grid import MAP_ROW
from heads_for_depth.findings.cause import ArmFinding
from heads_for_depth.findings.map_cells import CellKey, MapCell

Ends = tuple[float, float, float]
"""(middle, lower, upper)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmLine:
    """One arm of the forest plot."""

    label: str
    kappa_ratio: Ends | None
    """κ with the change over κ without, after the middle epoch."""
    accuracy: Ends | None
    """Difference in test accuracy against the same shape without the change, in points."""
    read: bool
    """Whether the accuracy may be read: κ moved as intended, or the arm is a control."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RateLine:
    """Test accuracy against the peak learning rate of one shape."""

    label: str
    rates: Sequence[float]
    mean: Sequence[float]
    lowest: Sequence[float]
    highest: Sequence[float]
    n: int
    """Seeds of the rate that has the fewest."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ScatterPoint:
    """One run of the map: κ against test loss."""

    depth: int
    heads: int
    kappa: float
    loss: float


def arm_lines(findings: Sequence[ArmFinding], titles: Mapping[CellKey, str]) -> list[ArmLine]:
    """Every arm that has runs, under its title."""
    return [
        ArmLine(
            label=titles[f.cell.row, f.cell.depth, f.cell.heads],
            kappa_ratio=_kappa_ends(f),
            accuracy=_accuracy_ends(f),
            read=f.moved is not False,
        )
        for f in findings
        if f.cell.runs
    ]


def _kappa_ends(finding: ArmFinding) -> Ends | None:
    middle = finding.log_kappa.get("middle")
    if middle is None:
        return None
    ends = middle.interval(0.95)
    return exp(middle.difference), _exp(ends.lower), _exp(ends.upper)


def _exp(logarithm: float) -> float:
    return exp(min(max(logarithm, -100.0), 100.0))


def _accuracy_ends(finding: ArmFinding) -> Ends | None:
    if finding.accuracy is None:
        return None
    ends = finding.accuracy.interval(0.95)
    return finding.accuracy.difference, ends.lower, ends.upper


def rate_lines(arms: Mapping[CellKey, MapCell]) -> list[RateLine]:
    """The sweep of learning rates, one line per shape."""
    names = {shape: name for name, shape in PLAIN_SHAPES.items()}
    shapes: dict[tuple[int, int], list[tuple[float, MapCell]]] = {}
    for (row, depth, heads), cell in arms.items():
        if row.startswith(RATE_ROW) and cell.runs:
            shapes.setdefault((depth, heads), []).append((float(row.removeprefix(RATE_ROW)), cell))
    return [
        RateLine(
            label=f"{names.get(shape, 'small')}: depth {shape[0]}, heads {shape[1]}",
            rates=[rate for rate, _ in found],
            mean=[fmean(cell.accuracy) for _, cell in found],
            lowest=[min(cell.accuracy) for _, cell in found],
            highest=[max(cell.accuracy) for _, cell in found],
            n=min(len(cell.runs) for _, cell in found),
        )
        for shape, pairs in shapes.items()
        for found in [sorted(pairs, key=lambda pair: pair[0])]
    ]


def scatter_points(mapped: Mapping[CellKey, MapCell], time: str) -> list[ScatterPoint]:
    """Every run of the map at its own budget with a finite κ at that time."""
    return [
        ScatterPoint(depth=cell.depth, heads=cell.heads, kappa=run.kappa[time], loss=run.loss)
        for key, cell in mapped.items()
        if key[0] == MAP_ROW
        for run in cell.runs
        if isfinite(run.kappa.get(time, float("inf")))
    ]


def scatter_data(panels: Mapping[str, Sequence[ScatterPoint]]) -> pd.DataFrame:
    """One line per panel and run."""
    columns = ["when", "depth", "heads", "kappa", "test_loss_nats"]
    rows = [(when, p.depth, p.heads, p.kappa, p.loss) for when, points in panels.items() for p in points]
    return pd.DataFrame(rows, columns=columns)
