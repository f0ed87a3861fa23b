"""Figures of the depth × heads map: heat maps, exchange rate, cost, training curves, and the edge."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf, log2, log10, nan
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle
from matplotlib.patheffects import withStroke
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from heads_for_depth.figures.style import (
    COLOURS,
    HAIRLINE,
    INK,
    LINES,
    MARKERS,
    MUTED,
    WIDTH_INCHES,
    nothing_recorded,
    styled,
)
from heads_for_depth.findings.exchange import Exchange
from heads_for_depth.findings.map_data import CostPoint, HeatMap, LossCurve, SweepLine

COLOUR_MAP = "cividis"
"""Even in lightness and the same to every colour vision."""
SECONDS = [step * 10**power for power in range(-2, 6) for step in (1, 2, 5)]
"""Where an axis of seconds has its ticks."""
LABEL_STEP = 0.17
"""Least distance of two labels on that axis, in powers of ten."""
DARK_SHARE = 0.55
"""Share of the range below which a cell is dark enough for white digits."""


@styled
def heat_map(grid: HeatMap, label: str, digits: int, contours: bool = True) -> Figure:
    """One cell per shape with its value and number of seeds; contours join equal values; missing cells are hatched.

    Where four neighbouring cells are not all recorded, contours have a gap.
    """
    if not any(map(any, (*grid.seeds, *grid.failed))):
        return nothing_recorded()
    figure = Figure(figsize=(WIDTH_INCHES, 1.3 + 0.5 * len(grid.depths)))
    axes = figure.subplots()
    values = np.array([[nan if value is None else value for value in line] for line in grid.values], dtype=float)
    finite = values[np.isfinite(values)]
    low, high = (float(finite.min()), float(finite.max())) if len(finite) else (0.0, 1.0)
    axes.imshow(values, cmap=COLOUR_MAP, vmin=low, vmax=high, aspect="auto", origin="lower")
    for row, line in enumerate(grid.values):
        for column, value in enumerate(line):
            _heat_cell(axes, column, row, value, _seeds(grid, row, column), digits, (low, high))
    if contours and min(values.shape) > 1 and high > low:
        axes.contour(np.ma.masked_invalid(values), levels=6, colors="white", linewidths=1.0, linestyles="--")
    axes.set_xticks(range(len(grid.heads)), [str(heads) for heads in grid.heads])
    axes.set_yticks(range(len(grid.depths)), [str(depth) for depth in grid.depths])
    axes.set_xlabel("heads")
    axes.set_ylabel("depth")
    axes.grid(visible=False)
    _parameter_axis(axes, grid)
    axes.set_title(label, loc="left")
    return figure


def _parameter_axis(axes: Axes, grid: HeatMap) -> None:
    """Parameters do not depend on heads, so a line of equal parameters is a row of the map."""
    right = axes.twinx()
    right.set_ylim(axes.get_ylim())
    right.set_yticks(range(len(grid.depths)), [f"{count / 1000:,.0f}k" for count in grid.parameters])
    right.set_ylabel("parameters")
    right.grid(visible=False)
    right.spines["right"].set_visible(False)
    right.tick_params(axis="y", length=0)


def _heat_cell(
    axes: Axes, column: int, row: int, value: float | None, seeds: str, digits: int, ends: tuple[float, float]
) -> None:
    if value is None:
        box = Rectangle((column - 0.5, row - 0.5), 1, 1, facecolor="white", edgecolor=HAIRLINE, hatch="////")
        axes.add_patch(box)
        axes.text(column, row, seeds, fontsize=7, ha="center", va="center", color=INK)
        return
    share = (value - ends[0]) / (ends[1] - ends[0]) if ends[1] > ends[0] else 1.0
    colour = "white" if share < DARK_SHARE else "black"
    text = "inf" if isinf(value) else f"{value:.{digits}f}"
    behind = [withStroke(linewidth=2.5, foreground=mpl.colormaps[COLOUR_MAP](min(1.0, max(0.0, share))))]
    look: dict[str, Any] = {"ha": "center", "va": "center", "color": colour, "path_effects": behind, "zorder": 5}
    axes.text(column, row + 0.12, text, fontsize=9.5, **look)
    axes.text(column, row - 0.28, seeds, fontsize=7, **look)


def _seeds(grid: HeatMap, row: int, column: int) -> str:
    """What a cell says of its runs: nothing where there are none."""
    finished, failed = grid.seeds[row][column], grid.failed[row][column]
    words = [f"n {finished}"] if finished else []
    return ", ".join([*words, f"{failed} failed"] if failed else words)


@styled
def exchange_rates(found: Sequence[Exchange]) -> Figure:
    """Doublings of heads per layer given up, one mark per step in depth; open marks: bounds and what is not reached."""
    if not found:
        return nothing_recorded()
    figure = Figure(figsize=(WIDTH_INCHES, 4.2))
    axes = figure.subplots()
    steps = list(dict.fromkeys((one.depth, one.shallower) for one in found))
    drawn = (number for one in found for number in (one.doublings_per_layer, one.lower, one.upper))
    top = max([1.0, *(number for number in drawn if not isinf(number))]) * 1.15
    for index, step in enumerate(steps):
        ours = [one for one in found if (one.depth, one.shallower) == step]
        _exchange_line(axes, ours, index, len(steps), top)
    axes.axhline(0, color=INK, linewidth=0.9)
    axes.axhline(top, color=HAIRLINE, linewidth=0.9)
    axes.text(0.0, 1.0, "not reached", transform=axes.transAxes, va="bottom", color=MUTED, fontsize=9)
    counts = sorted({one.heads for one in found})
    axes.set_xticks([log2(heads) for heads in counts], [str(heads) for heads in counts])
    axes.set_xlabel("heads of the deeper shape")
    axes.set_ylabel("doublings of heads per layer")
    handles = [
        axes.plot([], [], color=COLOURS[i % len(COLOURS)], marker=MARKERS[i % len(MARKERS)], linestyle="none")[0]
        for i in range(len(steps))
    ]
    labels = [f"{depth} → {shallower}" for depth, shallower in steps]
    figure.legend(handles, labels, title="depth", loc="outside upper left", ncols=3, labelcolor=MUTED)
    return figure


def _exchange_line(axes: Axes, found: Sequence[Exchange], index: int, count: int, top: float) -> None:
    colour, marker = COLOURS[index % len(COLOURS)], MARKERS[index % len(MARKERS)]
    for one in found:
        place = log2(one.heads) + (index - (count - 1) / 2) * 0.1
        axes.plot([place, place], [min(one.lower, top), min(one.upper, top)], color=colour, linewidth=1.3)
        height = one.doublings_per_layer if one.reached else top
        face = colour if one.reached and not one.at_most else "white"
        axes.plot(place, height, marker=marker, color=colour, markerfacecolor=face, markersize=5, clip_on=False)


@styled
def accuracy_against_cost(points: Sequence[CostPoint]) -> Figure:
    """Mean test accuracy over core-seconds of training; the front joins what nothing cheaper reaches."""
    if not points:
        return nothing_recorded()
    figure = Figure(figsize=(WIDTH_INCHES, 3.8))
    axes = figure.subplots()
    depths = sorted({point.depth for point in points})
    shades = mpl.colormaps[COLOUR_MAP](np.linspace(0, 0.9, max(1, len(depths))))
    for index, depth in enumerate(depths):
        ours = [point for point in points if point.depth == depth]
        marker = (*MARKERS, "X")[index % (len(MARKERS) + 1)]
        axes.plot([p.seconds for p in ours], [p.accuracy for p in ours], marker=marker, color=tuple(shades[index]),
                  linestyle="none", markersize=5, label=str(depth))  # fmt: skip
    front = [point for point in points if point.on_front]
    axes.plot([p.seconds for p in front], [p.accuracy for p in front], color=INK, linewidth=0.9, zorder=0)
    for point in _apart(front):
        axes.annotate(f"{point.depth}·{point.heads}", (point.seconds, point.accuracy), xytext=(-3, 4),
                      textcoords="offset points", ha="right", fontsize=8, color=MUTED)  # fmt: skip
    axes.set_xscale("log")
    low, high = axes.get_xlim()
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in SECONDS if low <= tick <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("core-seconds of training")
    axes.set_ylabel("test accuracy (%)")
    figure.legend(
        title="depth", loc="outside upper left", ncols=7, labelcolor=MUTED, columnspacing=0.8, handletextpad=0.1
    )
    return figure


def _apart(front: Sequence[CostPoint]) -> list[CostPoint]:
    """The points of the front whose labels do not run into each other: each is half as dear again as the last."""
    chosen: list[CostPoint] = []
    for point in front:
        if not chosen or log10(point.seconds / chosen[-1].seconds) > LABEL_STEP:
            chosen.append(point)
    return chosen


@styled
def training_losses(panels: Mapping[str, Sequence[LossCurve]]) -> Figure:
    """Mean training loss per epoch, one line per depth; one panel per budget."""
    if not any(panels.values()):
        return nothing_recorded()
    figure = Figure(figsize=(WIDTH_INCHES, 1.0 + 2.1 * len(panels)))
    grid = figure.subplots(len(panels), 1, squeeze=False)[:, 0]
    depths = sorted({curve.depth for curves in panels.values() for curve in curves})
    shades = mpl.colormaps[COLOUR_MAP](np.linspace(0, 0.9, len(depths)))
    looks = {
        depth: {"color": tuple(shade), "linestyle": LINES[i % len(LINES)], "marker": (*MARKERS, "X")[i % 7]}
        for i, (depth, shade) in enumerate(zip(depths, shades, strict=True))
    }
    for axes, (title, curves) in zip(grid, panels.items(), strict=False):
        for curve in curves:
            axes.plot(range(1, len(curve.losses) + 1), curve.losses, markersize=4, **looks[curve.depth])
        axes.set_title(title if curves else f"{title}: not recorded yet", loc="left")
        axes.set_ylabel("training loss (nats)")
    grid[-1].set_xlabel("epoch")
    handles = [grid[0].plot([], [], markersize=4, **look)[0] for look in looks.values()]
    figure.legend(handles, [str(d) for d in depths], title="depth", loc="outside upper left", ncols=4, labelcolor=MUTED)
    return figure


@styled
def sweeps_over_heads(panels: Mapping[str, Sequence[SweepLine]], titles: Mapping[str, str]) -> Figure:
    """Mean accuracy with the range of seeds against heads, one panel per sweep; a ring marks an edge within it."""
    if not any(line.heads for lines in panels.values() for line in lines):
        return nothing_recorded()
    rows = (len(panels) + 1) // 2
    figure = Figure(figsize=(WIDTH_INCHES, 0.9 + 2.0 * rows))
    grid = figure.subplots(rows, 2, squeeze=False, sharey=True)
    for axes, (name, lines) in zip(grid.flat, panels.items(), strict=False):
        for index, line in enumerate(lines):
            _sweep_line(axes, line, index)
        axes.set_title(titles[name], loc="left", fontsize=9.5)
        if not any(line.heads for line in lines):
            axes.text(0.5, 0.5, "not recorded yet", transform=axes.transAxes, ha="center", color=MUTED, fontsize=9)
        axes.set_xscale("log", base=2)
        axes.set_xlim(0.8, 80)
        axes.set_xticks([1, 4, 16, 64], ["1", "4", "16", "64"])
        axes.minorticks_off()
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("heads")
    figure.supylabel("test accuracy (%)", fontsize=11)
    depths = list(dict.fromkeys(line.depth for lines in panels.values() for line in lines))
    handles = [
        grid.flat[0].plot([], [], color=COLOURS[i], marker=MARKERS[i], linestyle=LINES[i], markersize=4)[0]
        for i in range(len(depths))
    ]
    figure.legend(handles, [f"depth {depth}" for depth in depths], loc="outside upper left", ncols=3, labelcolor=MUTED)
    return figure


def _sweep_line(axes: Axes, line: SweepLine, index: int) -> None:
    colour = COLOURS[index]
    axes.fill_between(line.heads, line.lowest, line.highest, color=colour, alpha=0.18, linewidth=0)
    axes.plot(line.heads, line.mean, color=colour, marker=MARKERS[index], linestyle=LINES[index], markersize=4)
    if line.edge is not None:
        place = list(line.heads).index(line.edge)
        axes.plot(line.edge, line.mean[place], marker="o", markersize=12, markerfacecolor="none", color=INK)
