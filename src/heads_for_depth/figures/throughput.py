"""Time saved beside parameters saved, and what heads cost at unchanged depth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from heads_for_depth.figures.style import (
    BLUE,
    COLOURS,
    HAIRLINE,
    INK,
    LINES,
    MARKERS,
    MUTED,
    VERMILLION,
    WIDTH_INCHES,
    styled,
)
from heads_for_depth.findings.throughput import Multiples, Saving

PANEL_INCHES = 2.7
LABEL_GAP = 0.085
"""Smallest distance between two labels, as a share of a panel's height."""
LABELS_AT = 58
"""Percent of parameters saved at which the labels begin; no reshape saves as many."""
TICKS = (0.25, 0.5, 0.75, 1, 1.25, 1.5, 2, 3, 4, 6, 8, 16, 32)


@styled
def savings(panels: Mapping[str, Sequence[Saving]]) -> Figure:
    """One panel per quantity: time saved over parameters saved, with the line on which they are equal."""
    count = max(1, len(panels))
    figure = Figure(figsize=(WIDTH_INCHES, 0.8 + PANEL_INCHES * count))
    all_axes = figure.subplots(count, 1, squeeze=False, sharex=True)[:, 0]
    for axes, (title, points) in zip(all_axes, panels.items(), strict=True):
        _savings_panel(axes, title, points)
    all_axes[-1].set_xlabel("parameters saved (%)")
    marks = [all_axes[0].plot([], [], **_mark(recounting))[0] for recounting in (False, True)]
    figure.legend(marks, ["as stated", "as it recounts"], loc="outside upper left", ncols=2, labelcolor=MUTED)
    return figure


def _savings_panel(axes: Axes, title: str, points: Sequence[Saving]) -> None:
    low = 100 * min([0.2, *(point.lowest for point in points)]) - 4
    high = 100 * max([0.6, *(point.highest for point in points)]) + 2
    axes.plot([0, 100], [0, 100], color=INK, linewidth=0.9)
    left = min([20.0, *(100 * point.parameters - 4 for point in points)])
    axes.set_xlim(left, LABELS_AT + 20)
    axes.set_ylim(low, high)
    axes.set_xticks([tick for tick in range(-100, LABELS_AT, 10) if tick >= left])
    axes.set_title(f"{title} saved (%)", loc="left")
    for point in points:
        x = 100 * point.parameters
        axes.plot([x, x], [100 * point.lowest, 100 * point.highest], color=HAIRLINE, linewidth=2.4, zorder=1)
        axes.plot(x, 100 * point.time, **_mark(point.recounting))
    for point, y in zip(*_spread(points, low, high), strict=True):
        ends = (100 * point.parameters + 0.8, LABELS_AT - 0.5), (100 * point.time, y)
        axes.plot(*ends, color=MUTED, linewidth=0.5, zorder=0)
        axes.text(LABELS_AT, y, point.label, va="center", fontsize=9)


def _mark(recounting: bool) -> dict[str, Any]:
    """How a point is drawn."""
    shape = {"marker": "D", "color": VERMILLION} if recounting else {"marker": "o", "color": BLUE}
    return {"linestyle": "none", "markersize": 5, **shape}


def _spread(points: Sequence[Saving], low: float, high: float) -> tuple[list[Saving], list[float]]:
    """The points from bottom to top, and heights for their labels that keep apart and inside."""
    ordered = sorted(points, key=lambda point: point.time)
    gap = LABEL_GAP * (high - low)
    heights: list[float] = []
    for point in ordered:
        heights.append(max(100 * point.time, heights[-1] + gap if heights else low + gap / 2))
    ceiling = high - gap / 2
    for place in range(len(heights) - 1, -1, -1):
        heights[place] = min(heights[place], ceiling)
        ceiling = heights[place] - gap
    return ordered, heights


@styled
def heads_alone(panels: Mapping[str, tuple[int, Sequence[Multiples]]]) -> Figure:
    """One panel per model: multiples of the published head count's time over heads, both axes logarithmic."""
    count = max(1, len(panels))
    figure = Figure(figsize=(WIDTH_INCHES, 0.9 + PANEL_INCHES * count))
    all_axes = figure.subplots(count, 1, squeeze=False)[:, 0]
    for axes, (title, (published, series)) in zip(all_axes, panels.items(), strict=False):
        _heads_panel(axes, title, published, series)
    all_axes[-1].set_xlabel("heads, at unchanged depth and d_model")
    labels = [one.label for _, series in list(panels.values())[:1] for one in series]
    handles = [all_axes[0].plot([], [], **_line(place))[0] for place in range(len(labels))]
    figure.legend(handles, labels, loc="outside upper left", ncols=2, labelcolor=MUTED)
    return figure


def _heads_panel(axes: Axes, title: str, published: int, series: Sequence[Multiples]) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    axes.axhline(1, color=INK, linewidth=0.9)
    axes.axvline(published, color=MUTED, linewidth=0.9, linestyle=":")
    for place, one in enumerate(series):
        axes.plot(one.heads, one.median, **_line(place))
    values = [value for one in series for value in one.median] or [1.0]
    low, high = min(values) / 1.15, max(values) * 1.15
    axes.set_ylim(min(low, 0.8), max(high, 1.25))
    axes.yaxis.set_major_locator(FixedLocator([tick for tick in TICKS if low / 1.1 <= tick <= high * 1.1]))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_title(f"{title}: multiple of the time at {published} heads", loc="left")


def _line(place: int) -> dict[str, Any]:
    return {"color": COLOURS[place], "marker": MARKERS[place], "linestyle": LINES[place], "markersize": 4}
