"""The map's two reshapes against the deep shape, by the declared rule, and beside the harder baselines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from heads_for_depth.experiments.cause_grid import DEEP
from heads_for_depth.experiments.map_grid import MAP_ROW, VERDICT_SEEDS
from heads_for_depth.findings.map_cells import CellKey, MapCell
from heads_for_depth.statistics import Difference, welch_if_repeated
from heads_for_depth.verdicts import ACCURACY_MARGIN, VISION_METHOD, Comparison, Rule, Verdict, decide

RESHAPES = ((3, 16), (3, 32))
"""(depth, heads) of the two reshapes of DEEP: half the depth, two and four times the heads."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ReshapeFinding:
    """One reshape of the map."""

    baseline: MapCell
    reshape: MapCell
    verdict: Verdict
    difference: Difference | None
    """Reshape minus baseline in points; None where an arm has fewer than two finished runs."""
    as_many_heads: Difference | None
    """Reshape minus the deep shape with as many heads."""
    same_heads: Difference | None
    """Less depth alone: the shallow shape with the baseline's heads minus the baseline."""


def reshape_findings(cells: Mapping[CellKey, MapCell]) -> list[ReshapeFinding]:
    """Both reshapes; none where the profile's map lacks their depths."""
    if any((MAP_ROW, *shape) not in cells for shape in (DEEP, *RESHAPES)):
        return []
    baseline = cells[MAP_ROW, *DEEP]
    pairs = [cells[MAP_ROW, *shape] for shape in RESHAPES]
    rule = Rule(declared_n=VERDICT_SEEDS, margin=ACCURACY_MARGIN, higher_is_better=True, method=VISION_METHOD)
    verdicts = decide([_comparison(baseline, reshape) for reshape in pairs], rule)
    return [
        ReshapeFinding(
            baseline=baseline,
            reshape=reshape,
            verdict=verdict,
            difference=welch(baseline, reshape),
            as_many_heads=welch(cells[MAP_ROW, baseline.depth, reshape.heads], reshape),
            same_heads=welch(baseline, cells[MAP_ROW, reshape.depth, baseline.heads]),
        )
        for reshape, verdict in zip(pairs, verdicts, strict=True)
    ]


def _comparison(baseline: MapCell, reshape: MapCell) -> Comparison:
    return Comparison(
        row=f"depth {reshape.depth}, heads {reshape.heads}",
        baseline=baseline.accuracy,
        reshape=reshape.accuracy,
        baseline_diverged=baseline.failed,
        reshape_diverged=reshape.failed,
    )


def welch(start: MapCell, end: MapCell) -> Difference | None:
    """Difference in test accuracy, in points; None where an arm has fewer than two finished runs."""
    return welch_if_repeated(start.accuracy, end.accuracy)
