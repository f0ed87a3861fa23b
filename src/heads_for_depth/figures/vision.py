"""Figures of the vision rows."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heads_for_depth.figures.style import COLOURS, INK, LINES, MARKERS, MUTED, VERMILLION, WIDTH_INCHES, styled
from heads_for_depth.findings.vision_data import CurvePanel, IntervalLine


@styled
def differences_against_margin(lines: Sequence[IntervalLine], comparisons: Sequence[str], margin: float) -> Figure:
    """A forest plot: one group of intervals per row, the margin −δ as a dashed line, zero as a solid one."""
    figure = Figure(figsize=(WIDTH_INCHES, 1.9 + 0.27 * len(comparisons) * len(lines)))
    axes = figure.subplots()
    for place, line in enumerate(lines):
        for index, difference in enumerate(line.differences):
            _interval(axes, place + (index - (len(comparisons) - 1) / 2) * 0.24, difference, index)
    axes.axvline(0, color=INK, linewidth=0.9)
    axes.axvline(-margin, color=VERMILLION, linewidth=1.2, linestyle="--")
    axes.text(-margin, -0.62, f"−δ = −{margin:g} ", color=VERMILLION, ha="right", va="center")
    axes.set_ylim(len(lines) - 0.5, -0.85)
    axes.set_yticks(range(len(lines)), [line.label for line in lines])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.set_xlabel("difference in test accuracy (points)")
    handles = [
        axes.plot([], [], marker=MARKERS[index], color=COLOURS[index], linestyle="-")[0]
        for index in range(len(comparisons))
    ]
    figure.legend(handles, comparisons, loc="outside upper left", ncols=1, labelcolor=MUTED)
    return figure


def _interval(axes: Axes, place: float, difference: tuple[float, float, float] | None, index: int) -> None:
    if difference is None:
        axes.text(0, place, " not measured", color=MUTED, va="center")
        return
    middle, lower, upper = difference
    axes.plot([lower, upper], [place, place], color=COLOURS[index], linewidth=1.6, solid_capstyle="butt")
    axes.plot(middle, place, marker=MARKERS[index], color=COLOURS[index], markersize=6, linestyle="none")


@styled
def learning_curves(panels: Sequence[CurvePanel], label: str) -> Figure:
    """Validation accuracy per epoch, one thin line per seed; baseline solid, reshape dashed."""
    rows = max(1, (len(panels) + 1) // 2)
    figure = Figure(figsize=(WIDTH_INCHES, 0.9 + 1.75 * rows))
    grid = figure.subplots(rows, 2, sharex=True, squeeze=False)
    for axes, panel in zip(grid.flat, panels, strict=False):
        for index, (_, runs) in enumerate(panel.arms):
            for run in runs:
                axes.plot(range(1, len(run) + 1), run, color=COLOURS[index], linestyle=LINES[index], linewidth=1.1,
                          marker=MARKERS[index], markersize=3.5)  # fmt: skip
        axes.set_title(panel.title, loc="left")
    for axes in grid.flat[len(panels) :]:
        axes.set_visible(False)
    longest = max((len(run) for panel in panels for _, runs in panel.arms for run in runs), default=1)
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
        axes.set_xticks(range(1, longest + 1))
    figure.supylabel(label, fontsize=11)
    names = [name for name, _ in panels[0].arms] if panels else []
    handles = [
        grid.flat[0].plot([], [], color=COLOURS[i], linestyle=LINES[i], marker=MARKERS[i], markersize=4)[0]
        for i in range(len(names))
    ]
    figure.legend(handles, names, loc="outside upper left", ncols=2, labelcolor=MUTED)
    return figure
