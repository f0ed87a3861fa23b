"""How many doublings of heads buy one layer: read off the map along lines of equal test loss, as declared for `map`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf, isinf, log2, sqrt

import numpy as np

from heads_for_depth.experiments.map_grid import DEPTHS, HEADS, OTHER_SEEDS
from heads_for_depth.findings.map_cells import CellKey, MapCell
from heads_for_depth.statistics import Array

RESAMPLES = 999
CONFIDENCE = 0.95
SEED = 527
"""Of the bootstrap, so that a report built twice says the same."""
Cell = tuple[int, int]
"""(depth, heads)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Exchange:
    """From one cell to the next smaller depth at equal test loss."""

    depth: int
    heads: int
    shallower: int
    """The next smaller depth of the grid."""
    doublings_per_layer: float
    """Doublings of heads per layer given up; infinite where the shallower depth does not reach the loss."""
    lower: float
    upper: float
    """Ends of the 95 % percentile interval; infinite as above."""
    n: int
    """Seeds of the cell that has the fewest."""
    at_most: bool
    """Whether the shallower depth has the loss at its smallest head count already, so that the number is a bound."""

    @property
    def reached(self) -> bool:
        """Whether the shallower depth reaches the loss within the head counts of the map."""
        return not isinf(self.doublings_per_layer)


def exchanges(cells: Mapping[CellKey, MapCell], row: str) -> list[Exchange]:
    """Every cell with the declared seeds against the next smaller depth, where all its head counts have them too."""
    losses = {
        (depth, heads): np.array(cell.loss)
        for (name, depth, heads), cell in cells.items()
        if name == row and len(cell.runs) >= OTHER_SEEDS
    }
    if not losses:
        return []
    means = {cell: float(values.mean()) for cell, values in losses.items()}
    drawn = _resampled_means(losses)
    return [
        _exchange((depth, heads), shallower, means, drawn, losses)
        for shallower, depth in pairwise(DEPTHS)
        if all((shallower, heads) in losses for heads in HEADS)
        for heads in HEADS
        if (depth, heads) in losses
    ]


def _resampled_means(losses: Mapping[Cell, Array]) -> dict[Cell, Array]:
    """Per cell RESAMPLES means: its own plus the mean of as many residuals as it has seeds, pooled over all cells.

    A residual is scaled by √(n/(n−1)), so that the pool has the variance of a seed.
    """
    generator = np.random.default_rng(SEED)
    pool = np.concatenate([(v - v.mean()) * sqrt(len(v) / (len(v) - 1)) for v in losses.values()])
    return {
        cell: v.mean() + generator.choice(pool, size=(RESAMPLES, len(v))).mean(axis=1) for cell, v in losses.items()
    }


def _exchange(
    cell: Cell, shallower: int, means: Mapping[Cell, float], drawn: Mapping[Cell, Array], losses: Mapping[Cell, Array]
) -> Exchange:
    depth, heads = cell
    reference = {count: means[shallower, count] for count in HEADS}
    again = [
        doublings(float(drawn[cell][i]), {count: float(drawn[shallower, count][i]) for count in HEADS}, heads)
        for i in range(RESAMPLES)
    ]
    tail = (1 - CONFIDENCE) / 2
    lower, upper = (float(np.quantile(again, share, method="nearest")) for share in (tail, 1 - tail))
    layers = depth - shallower
    return Exchange(
        depth=depth,
        heads=heads,
        shallower=shallower,
        doublings_per_layer=doublings(means[cell], reference, heads) / layers,
        lower=lower / layers,
        upper=upper / layers,
        n=min(len(losses[cell]), *(len(losses[shallower, count]) for count in HEADS)),
        at_most=reference[min(HEADS)] <= means[cell],
    )


def doublings(goal: float, reference: Mapping[int, float], heads: int) -> float:
    """Doublings from `heads` to where the reference first has the goal's loss, in nats; negative is fewer heads.

    Going from few heads to many, linear in the logarithm of the head count between neighbours; infinite where the loss
    is never reached. Where the smallest head count has it already, the doublings to that count.
    """
    before: tuple[float, float] | None = None
    for count in sorted(reference):
        place, loss = log2(count), reference[count]
        if loss <= goal:
            if before is None:
                return place - log2(heads)
            share = (before[1] - goal) / (before[1] - loss)
            return before[0] + share * (place - before[0]) - log2(heads)
        before = place, loss
    return inf
