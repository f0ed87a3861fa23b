"""Where more heads stop paying: every head count of a sweep against the best smaller one.

The rule is the declaration of experiment `edge`. A head count holds, breaks or is undetermined; the edge is the largest
that holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from heads_for_depth.errors import BadInput
from heads_for_depth.statistics import Array, welch_difference

Arms = Mapping[int, Sequence[float]]
"""Head count -> test accuracy in points, one value per finished seed."""
CONFIDENCE = 0.95


class HeadCount(StrEnum):
    """What a head count is against the best smaller one."""

    HOLDS = "holds"
    BREAKS = "breaks"
    UNDETERMINED = "undetermined"


class Beyond(StrEnum):
    """What lies beyond the edge of a sweep."""

    NONE = "none within the range"
    BREAKS = "breaks beyond"
    TOO_FEW_RUNS = "too few runs beyond"
    UNDETERMINED = "undetermined beyond"


@dataclass(frozen=True, kw_only=True, slots=True)
class Edge:
    """The edge of one sweep over head counts."""

    heads: int
    """The largest head count that holds, or the smallest of the sweep if none does."""
    lower: int
    upper: int
    """Ends of the 95 % percentile interval over resampled seeds."""
    counts: Mapping[int, HeadCount]
    """Every head count that could be compared, ascending; the smallest has nothing to be compared with."""
    planned: tuple[int, ...]
    """Every head count of the sweep, also those without two finished seeds."""

    @property
    def any_holds(self) -> bool:
        """Whether a head count is shown to hold; if none is, the edge is the smallest, which has no smaller one."""
        return HeadCount.HOLDS in self.counts.values()

    @property
    def recorded_to(self) -> int:
        """The largest head count that could be compared."""
        return max(self.counts)

    @property
    def holds_to_the_end(self) -> bool:
        """Whether the largest head count of the sweep was compared and holds."""
        return self.heads == max(self.planned)

    @property
    def breaks(self) -> bool:
        """Whether every head count beyond the edge, to the end of the sweep, breaks."""
        beyond = [heads for heads in self.planned if heads > self.heads]
        return bool(beyond) and all(self.counts.get(heads) is HeadCount.BREAKS for heads in beyond)

    @property
    def beyond(self) -> Beyond:
        """How the sweep reads, by the declared words and whether it is recorded to its end."""
        if self.holds_to_the_end:
            return Beyond.NONE
        if self.breaks:
            return Beyond.BREAKS
        return Beyond.TOO_FEW_RUNS if self.recorded_to < max(self.planned) else Beyond.UNDETERMINED


def find_edge(
    arms: Arms, margin: float, generator: np.random.Generator, *, diverged: Sequence[int] = (), resamples: int = 999
) -> Edge | None:
    """The edge of a sweep at a margin in points, or None where fewer than two head counts can be told anything of.

    That takes two finished seeds, or a run that diverged: `diverged` lists the head counts that have one. Raises
    BadInput for a margin below zero.
    """
    if not margin >= 0:
        raise BadInput("margin", margin, "give a margin in points that is not negative")
    known = [heads for heads in sorted(arms) if len(arms[heads]) > 1 or heads in diverged]
    usable = {heads: np.asarray(arms[heads], dtype=np.float64) for heads in known}
    if len(usable) < 2:
        return None
    counts = _judged(usable, margin, diverged)
    drawn = [_edge_of(_judged(_resampled(usable, generator), margin, diverged), min(usable)) for _ in range(resamples)]
    tail = (1 - CONFIDENCE) / 2
    lower, upper = (int(np.quantile(drawn, share, method="nearest")) for share in (tail, 1 - tail))
    return Edge(
        heads=_edge_of(counts, min(usable)), lower=lower, upper=upper, counts=counts,
        planned=tuple(sorted(arms)),
    )  # fmt: skip


def _resampled(arms: Mapping[int, Array], generator: np.random.Generator) -> dict[int, Array]:
    return {heads: generator.choice(values, len(values)) if len(values) else values for heads, values in arms.items()}


def _judged(arms: Mapping[int, Array], margin: float, diverged: Sequence[int]) -> dict[int, HeadCount]:
    """Every head count but the smallest; one of which a run diverged breaks and is no best smaller one."""
    counts = list(arms)
    judged = {}
    for place, heads in enumerate(counts[1:], start=1):
        smaller = [count for count in counts[:place] if count not in diverged]
        judged[heads] = _judge(arms, heads, smaller, margin, heads in diverged)
    return judged


def _judge(arms: Mapping[int, Array], heads: int, smaller: Sequence[int], margin: float, diverged: bool) -> HeadCount:
    if diverged:
        return HeadCount.BREAKS
    if not smaller:
        return HeadCount.UNDETERMINED
    best = max(smaller, key=lambda count: float(arms[count].mean()))
    difference = welch_difference(arms[best], arms[heads])
    if difference.lower_bound(CONFIDENCE) > -margin:
        return HeadCount.HOLDS
    return HeadCount.BREAKS if difference.upper_bound(CONFIDENCE) < -margin else HeadCount.UNDETERMINED


def _edge_of(counts: Mapping[int, HeadCount], smallest: int) -> int:
    return max((heads for heads, state in counts.items() if state is HeadCount.HOLDS), default=smallest)
