"""The map and its edge as plain, unrounded data: what the figures take and what their CSV files hold."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log10
from statistics import fmean

import pandas as pd

from heads_for_depth.conditioning.layers import upper_median
from heads_for_depth.experiments.map_grid import MAP_ROW, TWICE_ROW
from heads_for_depth.findings.edge import EdgeFinding
from heads_for_depth.findings.exchange import Exchange
from heads_for_depth.findings.map_cells import CellKey, MapCell

Cells = Mapping[CellKey, MapCell]


@dataclass(frozen=True, kw_only=True, slots=True)
class HeatMap:
    """One quantity over depth (rows, ascending) and heads (columns, ascending), in its own unit; None where nothing is
    recorded."""

    depths: Sequence[int]
    heads: Sequence[int]
    values: Sequence[Sequence[float | None]]
    seeds: Sequence[Sequence[int]]
    failed: Sequence[Sequence[int]]
    """Runs of a cell that diverged or ran out of memory."""
    parameters: Sequence[int]
    """Per depth; they do not depend on heads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CostPoint:
    """One cell: what a training run costs and what it reaches."""

    depth: int
    heads: int
    seconds: float
    """Core-seconds of training, mean over seeds."""
    accuracy: float
    """Points, mean over seeds."""
    on_front: bool
    """Whether no other cell is both cheaper and at least as accurate."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LossCurve:
    """Mean training loss per epoch of one cell."""

    depth: int
    heads: int
    losses: Sequence[float]
    n: int


@dataclass(frozen=True, kw_only=True, slots=True)
class SweepLine:
    """Accuracy against heads of one sweep at one depth."""

    depth: int
    heads: Sequence[int]
    mean: Sequence[float]
    lowest: Sequence[float]
    highest: Sequence[float]
    edge: int | None
    """Head count of the edge, where every larger one breaks."""
    n: int
    """Seeds of the cell that has the fewest among those with runs."""


def heat_map(cells: Cells, quantity: str) -> HeatMap:
    """Accuracy, loss or train_loss (means over seeds), or log10 of κ `kappa.<time>` (upper median over seeds)."""
    ours = {(depth, heads): cell for (row, depth, heads), cell in cells.items() if row == MAP_ROW}
    depths, heads = sorted({depth for depth, _ in ours}), sorted({count for _, count in ours})
    grid = [[ours.get((depth, count)) for count in heads] for depth in depths]
    return HeatMap(
        depths=depths,
        heads=heads,
        values=[[None if cell is None else _value(cell, quantity) for cell in line] for line in grid],
        seeds=[[0 if cell is None else len(cell.runs) for cell in line] for line in grid],
        failed=[[0 if cell is None else cell.failed for cell in line] for line in grid],
        parameters=[next(cell.parameters for cell in line if cell) for line in grid],
    )


def _value(cell: MapCell, quantity: str) -> float | None:
    name, _, time = quantity.partition(".")
    if name != "kappa":
        return cell.mean(name)
    kappas = cell.kappas(time)
    return log10(upper_median(kappas)) if kappas else None


def cost_points(cells: Cells) -> list[CostPoint]:
    """Every cell of the map with runs, the cheapest first."""
    ours = [cell for (row, *_), cell in cells.items() if row == MAP_ROW and cell.runs]
    costs = [(fmean(run.seconds for run in cell.runs), fmean(cell.accuracy), cell.depth, cell.heads) for cell in ours]
    best, points = float("-inf"), []
    for seconds, accuracy, depth, heads in sorted(costs, key=lambda cost: (cost[0], -cost[1])):
        points.append(CostPoint(depth=depth, heads=heads, seconds=seconds, accuracy=accuracy, on_front=accuracy > best))
        best = max(best, accuracy)
    return points


def loss_curves(cells: Cells, heads: int) -> dict[str, list[LossCurve]]:
    """Training loss per epoch at one head count, at the map's budget and at twice, shallow depths first."""
    titles = {MAP_ROW: "the map's budget", TWICE_ROW: "twice the budget"}
    return {title: _curves(cells, row, heads) for row, title in titles.items()}


def _curves(cells: Cells, row: str, heads: int) -> list[LossCurve]:
    ours = [cell for key, cell in cells.items() if key[0] == row and key[2] == heads and cell.runs]
    return [_curve(cell) for cell in sorted(ours, key=lambda cell: cell.depth)]


def _curve(cell: MapCell) -> LossCurve:
    by_epoch = zip(*([loss for loss, _ in run.curve] for run in cell.runs), strict=True)
    return LossCurve(depth=cell.depth, heads=cell.heads, losses=[fmean(e) for e in by_epoch], n=len(cell.runs))


def sweep_lines(findings: Iterable[EdgeFinding]) -> dict[str, list[SweepLine]]:
    """Per sweep its depths; head counts without runs are left out."""
    lines: dict[str, list[SweepLine]] = {}
    for finding in findings:
        lines.setdefault(finding.row, []).append(_sweep_line(finding))
    return lines


def _sweep_line(finding: EdgeFinding) -> SweepLine:
    run = {heads: cell.accuracy for heads, cell in finding.cells.items() if cell.runs}
    edge = finding.edge
    return SweepLine(
        depth=finding.depth,
        heads=list(run),
        n=min(map(len, run.values()), default=0),
        mean=[fmean(values) for values in run.values()],
        lowest=[min(values) for values in run.values()],
        highest=[max(values) for values in run.values()],
        edge=edge.heads if edge is not None and edge.breaks else None,
    )


def runs_data(*collections: Cells) -> pd.DataFrame:
    """One line per finished run of every cell."""
    return pd.DataFrame(
        [
            {"row": cell.row, "depth": cell.depth, "heads": cell.heads, "head_dim": cell.shape.head_dims[0]}
            | {"mlp_width": cell.shape.mlp_width[0], "intervention": cell.intervention, "seed": run.seed}
            | {"parameters": cell.parameters, "flops_forward": cell.flops, "learning_rate": cell.learning_rate}
            | {"test_accuracy_percent": run.accuracy, "test_loss_nats": run.loss, "train_loss_nats": run.train_loss}
            | {f"kappa_{time}": kappa for time, kappa in run.kappa.items()}
            | {"train_core_seconds": run.seconds}
            for cells in collections
            for cell in cells.values()
            for run in cell.runs
        ],
        columns=None if any(cell.runs for cells in collections for cell in cells.values()) else ["row"],
    )


def exchange_data(found: Sequence[Exchange]) -> pd.DataFrame:
    """One line per cell: doublings of heads per layer given up, with the interval."""
    columns = ["depth", "heads", "shallower_depth", "doublings_per_layer", "lower", "upper", "n", "is_bound"]
    return pd.DataFrame(
        [
            (one.depth, one.heads, one.shallower, one.doublings_per_layer, one.lower, one.upper, one.n, one.at_most)
            for one in found
        ],
        columns=columns,
    )
