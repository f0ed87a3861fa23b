"""What the throughput figures draw: what reshapes save, and what heads cost, as plain numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from heads_for_depth.throughput.reading import QUANTITIES, Comparison, Line, Quantity, comparisons
from heads_for_depth.throughput.subjects import RECOUNTING, short_title

TITLES: dict[Quantity, str] = {
    "latency": "latency of one item",
    "forward": "time per item, best batch",
    "training": "time of a training step",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Saving:
    """One reshape in one panel; shares, not percent."""

    label: str
    parameters: float
    time: float
    lowest: float
    highest: float
    recounting: bool
    """Whether it is the shape that has the published parameters where the stated one has not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Multiples:
    """A quantity by head count, as multiples of that of the published count."""

    label: str
    heads: tuple[int, ...]
    median: tuple[float, ...]


def saving_panels(lines: Sequence[Line]) -> dict[str, list[Saving]]:
    """Per quantity, every reshape that could be timed."""
    found = comparisons(lines)
    return {title: [s for one in found if (s := _saving(one, quantity))] for quantity, title in TITLES.items()}


def _saving(one: Comparison, quantity: Quantity) -> Saving | None:
    ratio = one.time(quantity)
    if ratio is None:
        return None
    return Saving(
        label=short_title(one.line.title),
        parameters=one.parameters_saved,
        time=1 - ratio.median,
        lowest=1 - ratio.highest,
        highest=1 - ratio.lowest,
        recounting=one.line.subject == RECOUNTING,
    )


def heads_panels(lines: Sequence[Line]) -> dict[str, tuple[int, list[Multiples]]]:
    """Per model, its published head count and every quantity over heads."""
    panels: dict[str, tuple[int, list[Multiples]]] = {}
    found = comparisons(lines, "heads")
    for series in dict.fromkeys(one.line.series for one in found):
        ours = [one for one in found if one.line.series == series]
        multiples = [_multiples(ours, quantity) for quantity in QUANTITIES]
        panels[ours[0].line.title] = ours[0].reference.heads, multiples
    return panels


def _multiples(found: Sequence[Comparison], quantity: Quantity) -> Multiples:
    points = {one.line.heads: ratio.median for one in found if (ratio := one.time(quantity)) is not None}
    points[found[0].reference.heads] = 1.0
    heads = tuple(sorted(points))
    return Multiples(label=TITLES[quantity], heads=heads, median=tuple(points[count] for count in heads))
