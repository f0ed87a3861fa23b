"""Figures of the condition numbers."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, isinf, nan
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heads_for_depth.figures.style import (
    BLUE,
    COLOURS,
    INK,
    LINES,
    MARKERS,
    MUTED,
    ORANGE,
    VERMILLION,
    WIDTH_INCHES,
    styled,
)
from heads_for_depth.findings.conditioning_data import KappaPanel, TrainedPanel

INFINITE: dict[str, Any] = {
    "marker": "^",
    "markersize": 6,
    "markerfacecolor": "white",
    "markeredgecolor": BLUE,
    "linestyle": "none",
}
"""A head count whose median κ is infinite, at the upper edge."""


@styled
def kappa_against_heads(panels: Sequence[KappaPanel]) -> Figure:
    """Median over layers with the range of layers, the Gaussian prediction, and the row's own heads as a band."""
    rows = max(1, (len(panels) + 1) // 2)
    figure = Figure(figsize=(WIDTH_INCHES, 1.3 + 1.95 * rows))
    grid = figure.subplots(rows, 2, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        _kappa_panel(axes, panel)
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("heads")
    figure.supylabel("condition number κ", fontsize=11)
    _kappa_legend(figure, grid.flat[0], any(isinf(kappa) for panel in panels for kappa in panel.median))
    return figure


def _kappa_legend(figure: Figure, first: Axes, any_infinite: bool) -> None:
    measured = first.plot([], [], color=BLUE, marker="o", markersize=4)[0]
    predicted = first.plot([], [], color=VERMILLION, linestyle="--")[0]
    band = first.fill_between([], [], color=ORANGE, alpha=0.35, linewidth=0)
    handles: list[Any] = [measured, predicted, band]
    labels = ["measured: median and range of layers", "Gaussian prediction", "heads before to after in LIT-527"]
    if any_infinite:
        handles.append(first.plot([], [], **INFINITE)[0])
        labels.append("measured: infinite")
    figure.legend(handles, labels, loc="outside upper left", labelcolor=MUTED)


def _kappa_panel(axes: Axes, panel: KappaPanel) -> None:
    axes.axvspan(*panel.used, color=ORANGE, alpha=0.35, linewidth=0)
    lowest, middle, highest = (gaps(ends) for ends in (panel.lowest, panel.median, panel.highest))
    axes.fill_between(panel.heads, lowest, highest, color=BLUE, alpha=0.2, linewidth=0)
    axes.plot(panel.heads, middle, color=BLUE, marker="o", markersize=4)
    infinite = [heads for heads, kappa in zip(panel.heads, panel.median, strict=True) if isinf(kappa)]
    if infinite:
        axes.plot(infinite, [1.0] * len(infinite), **INFINITE, transform=axes.get_xaxis_transform(), clip_on=False)
    predicted = [(h, g) for h, g in zip(panel.heads, panel.gaussian, strict=True) if g is not None]
    if predicted:
        axes.plot(*zip(*predicted, strict=True), color=VERMILLION, linestyle="--")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    axes.set_title(panel.title, loc="left")
    ticks = [h for h in (1, 4, 16, 64, 256) if h <= max(panel.heads)]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()


def gaps(values: Sequence[float]) -> list[float]:
    """The values with a gap for every infinity, which interrupts a line."""
    return [nan if isinf(value) else value for value in values]


@styled
def kappa_through_training(panels: Sequence[TrainedPanel]) -> Figure:
    """One arrow per cell from κ at initialization to κ after training."""
    figure = Figure(figsize=(WIDTH_INCHES, 1.0 + 0.27 * sum(len(panel.cells) + 1 for panel in panels)))
    axes = figure.subplots()
    axes.set_xscale("log")
    place, ticks, labels = 0.0, [], []
    for panel in panels:
        axes.text(0.0, place, panel.title, transform=axes.get_yaxis_transform(), va="center", color=INK, weight="bold")
        for index, (label, start, end) in enumerate(panel.cells):
            place += 1
            _arrow(axes, place, start, end, index)
            ticks.append(place)
            labels.append(label)
        place += 1
    axes.set_yticks(ticks, labels)
    axes.set_ylim(place - 0.3, -0.7)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("condition number κ (ring: start, filled: end)")
    return figure


def _arrow(axes: Axes, place: float, start: float, end: float, index: int) -> None:
    if inf in (start, end):
        axes.text(
            1.0, place, "rank-deficient", transform=axes.get_yaxis_transform(), ha="right", va="center", color=MUTED
        )
        return
    colour = COLOURS[index % len(COLOURS)]
    axes.plot([start, end], [place, place], color=colour, linestyle=LINES[0], linewidth=1.4)
    axes.plot(start, place, marker=MARKERS[0], markersize=7, markerfacecolor="white", markeredgecolor=colour)
    axes.plot(end, place, marker=MARKERS[0], markersize=6, color=colour)
