"""The κ findings as plain, unrounded data: what the figures take and what their CSV files hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from heads_for_depth.experiments import VISION_ROWS
from heads_for_depth.findings.conditioning import HeadSweep, Setting
from heads_for_depth.findings.vision import RowFinding


@dataclass(frozen=True, kw_only=True, slots=True)
class KappaPanel:
    """κ against head count for one row; every sequence has one entry per head count, infinities included."""

    title: str
    heads: Sequence[int]
    median: Sequence[float]
    lowest: Sequence[float]
    highest: Sequence[float]
    gaussian: Sequence[float | None]
    used: tuple[int, int]
    """Heads before and after in the row's reshape."""


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainedPanel:
    """κ at the start and at the end of training, per cell of one row."""

    title: str
    cells: Sequence[tuple[str, float, float]]
    """(cell label, κ at the start, κ at the end), medians over layers and runs."""


def kappa_panels(
    sweeps: Mapping[Setting, HeadSweep], regime: str, inputs: str, name: str = "concatenated"
) -> list[KappaPanel]:
    """One panel per row that has records in this setting."""
    chosen = [sweeps[row.name, regime, inputs] for row in VISION_ROWS if (row.name, regime, inputs) in sweeps]
    return [_panel(sweep, name) for sweep in chosen]


def _panel(sweep: HeadSweep, name: str) -> KappaPanel:
    points = sweep.points[name]
    return KappaPanel(
        title=sweep.row.title.replace(" (our own row)", ", ours"),
        heads=[point.heads for point in points],
        median=[point.condition_number for point in points],
        lowest=[point.lowest for point in points],
        highest=[point.highest for point in points],
        gaussian=[point.gaussian for point in points],
        used=(sweep.row.before.heads[0], sweep.row.heads_after[0]),
    )


def trained_panels(findings: Sequence[RowFinding]) -> list[TrainedPanel]:
    """The four cells of every row that has finished runs."""
    panels = []
    for f in findings:
        cells = [
            (f"depth {sum(cell.shape.depth)}, heads {cell.shape.heads[0]}", cell.kappa["initial"], cell.kappa["final"])
            for cell in f.cells.values()
            if "final" in cell.kappa
        ]
        if cells:
            panels.append(TrainedPanel(title=f.row.title, cells=cells))
    return panels


def points_data(sweeps: Mapping[Setting, HeadSweep]) -> pd.DataFrame:
    """Every point of every sweep: the data behind the figures."""
    return pd.DataFrame(
        [
            {"row": row, "regime": regime, "inputs": inputs, "object": name, "heads": point.heads}
            | {"rows_N": point.rows, "columns_D": point.columns, "condition_number": point.condition_number}
            | {"lowest_layer": point.lowest, "highest_layer": point.highest}
            | {"rank_deficient_share": point.rank_deficient, "effective_rank": point.effective_rank}
            | {"gaussian_prediction": point.gaussian}
            for (row, regime, inputs), sweep in sweeps.items()
            for name, points in sweep.points.items()
            for point in points
        ]
    )


def trained_data(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """κ of the concatenated heads at the start and the end of training, per cell."""
    return pd.DataFrame(
        [
            {"row": panel.title, "cell": label, "kappa_start": start, "kappa_end": end}
            for panel in trained_panels(findings)
            for label, start, end in panel.cells
        ]
    )
