"""How two quantities go together over many runs once others are held fixed: partial rank correlations."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from heads_for_depth.errors import BadInput
from heads_for_depth.statistics.arms import Array, Interval, Seeds, check_confidence, checked_arm

NO_VARIATION = 1e-9
"""Residuals whose spread is a smaller part of their ranks' are rounding: what is held fixed explains them wholly."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Correlation:
    """A rank correlation, −1 to 1, with its interval; NaN where one of the two does not vary."""

    value: float
    interval: Interval
    runs: int
    clusters: int
    """Groups that the bootstrap resamples whole."""
    blocks: int
    """Blocks that cross the groups, resampled whole beside them."""


def partial_rank_correlation(x: Seeds, y: Seeds, given: Sequence[Seeds] = ()) -> float:
    """Spearman's correlation of x and y given other quantities: Pearson's of what is left of the ranks.

    Every quantity is ranked (ties share their mean rank) and regressed linearly on the ranks of `given`, which may
    depend on one another. NaN where nothing is left of x or y.
    """
    first, second = (rankdata(checked_arm(values, name)) for name, values in (("x", x), ("y", y)))
    fixed = [rankdata(checked_arm(values, f"given {place}")) for place, values in enumerate(given, start=1)]
    if {len(first)} != {len(values) for values in (second, *fixed)}:
        raise BadInput("y", f"{len(second)} values", f"give one value per run, {len(first)} of every quantity")
    design = np.column_stack([np.ones_like(first), *fixed])
    return _pearson(_residuals(first, design), _residuals(second, design), len(first))


def within_groups_rank_correlation(x: Seeds, y: Seeds, groups: Sequence[Hashable]) -> float:
    """Spearman's correlation within groups: ranks over all runs, each group's mean rank taken off.

    NaN where no group has runs that differ.
    """
    first, second = (rankdata(checked_arm(values, name)) for name, values in (("x", x), ("y", y)))
    index = _numbered(groups)
    return _pearson(_centred(first, index), _centred(second, index), len(first))


def _centred(ranks: Array, index: NDArray[np.int_]) -> Array:
    """Ranks with the mean of their group taken off."""
    return ranks - (np.bincount(index, ranks) / np.bincount(index))[index]


def _residuals(ranks: Array, design: Array) -> Array:
    return ranks - design @ np.linalg.lstsq(design, ranks, rcond=None)[0]


def _pearson(x: Array, y: Array, runs: int) -> float:
    lengths = float(np.linalg.norm(x)), float(np.linalg.norm(y))
    if min(lengths) <= NO_VARIATION * runs**1.5:
        return float("nan")
    return float(np.clip(x @ y / (lengths[0] * lengths[1]), -1.0, 1.0))


def clustered_correlation(
    x: Seeds,
    y: Seeds,
    groups: Sequence[Hashable],
    blocks: Sequence[Hashable],
    generator: np.random.Generator,
    *,
    given: Sequence[Seeds] | None = None,
    confidence: float = 0.95,
    resamples: int = 999,
) -> Correlation:
    """A rank correlation with a percentile bootstrap interval that resamples groups and the blocks that cross them.

    `given` holds other quantities fixed; without it the correlation is the one within groups. Runs of one group share
    their design and runs of one block, such as a seed, their random numbers, so both are drawn whole, and a run counts
    as often as its group times its block (Owen 2007, the pigeonhole bootstrap). Unbounded below three groups or blocks.
    """
    check_confidence(confidence)
    columns = [np.asarray(values, dtype=np.float64) for values in (x, y, *(given or ()))]
    group, block = _numbered(groups), _numbered(blocks)
    sizes = int(group.max()) + 1, int(block.max()) + 1
    members = [np.flatnonzero(group == place) for place in range(sizes[0])]

    def correlation(chosen: NDArray[np.int_], times: NDArray[np.int_]) -> float:
        drawn = [np.repeat(members[place], times[block[members[place]]]) for place in chosen]
        return _correlation_of(columns, drawn, within=given is None)

    found = []
    for _ in range(resamples if min(sizes) > 2 else 0):
        chosen, times = (generator.integers(size, size=size) for size in sizes)
        found.append(correlation(chosen, np.bincount(times, minlength=sizes[1])))
    return Correlation(
        value=correlation(np.arange(sizes[0]), np.ones(sizes[1], dtype=np.int_)),
        interval=_percentiles(np.array(found), confidence),
        runs=len(columns[0]), clusters=sizes[0], blocks=sizes[1],
    )  # fmt: skip


def _correlation_of(columns: Sequence[Array], drawn: Sequence[NDArray[np.int_]], *, within: bool) -> float:
    """The correlation over the drawn runs, one array of places per drawn group; NaN where none was drawn."""
    labels = [place for place, index in enumerate(drawn) for _ in index]
    if not labels:
        return float("nan")
    one, other, *fixed = (column[np.concatenate(drawn)] for column in columns)
    if within:
        return within_groups_rank_correlation(one, other, labels)
    return partial_rank_correlation(one, other, fixed)


def _numbered(names: Sequence[Hashable]) -> NDArray[np.int_]:
    """0, 1, 2, … in the order of first appearance."""
    places = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return np.array([places[name] for name in names])


def _percentiles(values: Array, confidence: float) -> Interval:
    finite = values[np.isfinite(values)]
    if len(finite) == 0:
        return Interval(lower=-1.0, upper=1.0, confidence=confidence)
    lower, upper = np.quantile(finite, [(1 - confidence) / 2, (1 + confidence) / 2])
    return Interval(lower=float(lower), upper=float(upper), confidence=confidence)
