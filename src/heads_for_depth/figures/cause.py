"""Figures of the causal test: what the interventions did, learning rates, κ against loss."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heads_for_depth.figures.style import (
    BLUE,
    COLOURS,
    INK,
    LINES,
    MARKERS,
    MUTED,
    WIDTH_INCHES,
    nothing_recorded,
    styled,
)
from heads_for_depth.findings.cause_data import ArmLine, Ends, RateLine, ScatterPoint

COLOUR_MAP = "cividis"


@styled
def interventions(lines: Sequence[ArmLine]) -> Figure:
    """Two forests side by side: the ratio of κ on a logarithmic axis, and the difference in accuracy.

    An arm whose κ did not move as intended is drawn open, since its accuracy is not read.
    """
    if not lines:
        return nothing_recorded()
    figure = Figure(figsize=(WIDTH_INCHES, 1.5 + 0.36 * max(2, len(lines))))
    left, right = figure.subplots(1, 2, sharey=True)
    for place, line in enumerate(lines):
        _interval(left, place, line.kappa_ratio, filled=line.read)
        _interval(right, place, line.accuracy, filled=line.read)
    left.set_xscale("log")
    left.axvline(1, color=INK, linewidth=0.9)
    right.axvline(0, color=INK, linewidth=0.9)
    left.set_yticks(range(len(lines)), [line.label for line in lines], fontsize=9)
    left.set_ylim(len(lines) - 0.5, -0.5)
    for axes, title in ((left, "ratio of κ"), (right, "points")):
        axes.tick_params(axis="y", length=0)
        axes.grid(visible=False, axis="y")
        axes.set_title(title, loc="left", fontsize=9.5)
    marks = [right.plot([], [], marker="o", color=BLUE, markerfacecolor=face, linestyle="none")[0]
             for face in (BLUE, "white")]  # fmt: skip
    figure.legend(marks, ["read", "κ not moved as intended"], loc="outside upper left", ncols=2, labelcolor=MUTED)
    return figure


def _interval(axes: Axes, place: int, ends: Ends | None, *, filled: bool) -> None:
    if ends is None:
        axes.text(0.5, place, "not measured", transform=axes.get_yaxis_transform(), color=MUTED, va="center",
                  ha="center", fontsize=8)  # fmt: skip
        return
    middle, lower, upper = ends
    axes.plot([lower, upper], [place, place], color=BLUE, linewidth=1.5)
    axes.plot(middle, place, marker="o", color=BLUE, markerfacecolor=BLUE if filled else "white", linestyle="none")


@styled
def learning_rates(lines: Sequence[RateLine]) -> Figure:
    """Mean test accuracy with the range of seeds against the peak learning rate, one line per shape."""
    if not lines:
        return nothing_recorded()
    figure = Figure(figsize=(WIDTH_INCHES, 3.4))
    axes = figure.subplots()
    for index, line in enumerate(lines):
        colour = COLOURS[index]
        axes.fill_between(line.rates, line.lowest, line.highest, color=colour, alpha=0.18, linewidth=0)
        axes.plot(line.rates, line.mean, color=colour, marker=MARKERS[index], linestyle=LINES[index], label=line.label)
    axes.set_xscale("log")
    rates = sorted({rate for line in lines for rate in line.rates})
    axes.set_xticks(rates, [f"{rate:g}" for rate in rates], rotation=30)
    axes.minorticks_off()
    axes.set_xlabel("peak learning rate")
    axes.set_ylabel("test accuracy (%)")
    figure.legend(loc="outside upper left", labelcolor=MUTED)
    return figure


@styled
def kappa_against_loss(panels: Mapping[str, Sequence[ScatterPoint]]) -> Figure:
    """Every run of the map: κ on a logarithmic axis against final test loss, coloured and marked by depth."""
    if not any(panels.values()):
        return nothing_recorded()
    figure = Figure(figsize=(WIDTH_INCHES, 1.0 + 2.4 * len(panels)))
    grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    depths = sorted({point.depth for points in panels.values() for point in points})
    shades = mpl.colormaps[COLOUR_MAP](np.linspace(0, 0.9, max(1, len(depths))))
    marks = (*MARKERS, "X")
    for axes, (title, points) in zip(grid, panels.items(), strict=False):
        for index, depth in enumerate(depths):
            ours = [point for point in points if point.depth == depth]
            axes.plot([p.kappa for p in ours], [p.loss for p in ours], marker=marks[index % len(marks)],
                      color=tuple(shades[index]), linestyle="none", markersize=4, alpha=0.8)  # fmt: skip
        axes.set_xscale("log")
        axes.set_title(title if points else f"{title}: not recorded yet", loc="left")
        axes.set_ylabel("test loss (nats)")
    grid[-1].set_xlabel("condition number κ, concatenated heads")
    handles = [
        grid[0].plot([], [], marker=marks[i % len(marks)], color=tuple(shades[i]), linestyle="none")[0]
        for i in range(len(depths))
    ]
    figure.legend(handles, [str(depth) for depth in depths], title="depth", loc="outside upper left", ncols=7,
                  labelcolor=MUTED, columnspacing=0.8, handletextpad=0.1)  # fmt: skip
    return figure
