"""Predicted speed on many GPUs, before and after."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from heads_for_depth.figures.style import BLUE, MUTED, VERMILLION, WIDTH_INCHES, styled
from heads_for_depth.findings.parallelism import Predicted

COLUMNS = 2
PANEL_INCHES = 1.75
ENDS = (("before", BLUE, "o", "-"), ("after", VERMILLION, "s", "--"))
"""Name, colour, marker and line of each end."""


@styled
def predicted_steps(found: Sequence[Predicted]) -> Figure:
    """One panel per row: predicted steps per second over the number of GPUs, relative to the baseline on one GPU."""
    rows = max(1, -(-len(found) // COLUMNS))
    figure = Figure(figsize=(WIDTH_INCHES, 0.9 + PANEL_INCHES * rows))
    panels = list(figure.subplots(rows, COLUMNS, squeeze=False, sharex=True, sharey=True).flat)
    for axes, one in zip(panels, found, strict=False):
        _panel(axes, one)
    for axes in panels[len(found) :]:
        axes.set_visible(False)
    figure.supxlabel("GPUs that share one copy of the model", fontsize=11)
    figure.supylabel("predicted speed, baseline on one GPU = 1", fontsize=11)
    handles = [figure.axes[0].plot([], [], color=c, marker=m, linestyle=line)[0] for _, c, m, line in ENDS]
    handles.append(figure.axes[0].plot([], [], color=MUTED, linewidth=0.9)[0])
    figure.legend(handles, ["before", "after", "ideal"], loc="outside upper left", ncols=3, labelcolor=MUTED)
    return figure


def _panel(axes: Axes, one: Predicted) -> None:
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    alone = one.before[1]
    assert alone is not None, "one GPU holds one copy"
    counts = list(one.before)
    axes.plot(counts, counts, color=MUTED, linewidth=0.9)
    ends: list[tuple[int, float]] = [(1, 1.0)]
    for (_, colour, marker, line), values in zip(ENDS, (one.before, one.after), strict=True):
        points = [(gpus, alone.predicted_seconds / p.predicted_seconds) for gpus, p in values.items() if p is not None]
        ends += points
        axes.plot(*zip(*points, strict=True), color=colour, marker=marker, linestyle=line, markersize=4)
    axes.set_title(one.name, loc="left", fontsize=10)
    axes.set_ylim(0.8, max(20, *(y for _, y in ends)))
    for axis, ticks in ((axes.xaxis, (1, 4, 16, 64)), (axes.yaxis, (1, 2, 4, 8, 16))):
        axis.set_major_locator(FixedLocator(ticks))
        axis.set_minor_locator(NullLocator())
        axis.set_major_formatter(ScalarFormatter())
