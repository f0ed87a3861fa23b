"""The figure of what the engine gains."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, NullLocator, ScalarFormatter

from heads_for_depth.benchmark.reading import Ratio, TrainingLine
from heads_for_depth.figures.style import COLOURS, INK, MARKERS, MUTED, WIDTH_INCHES, styled

TICKS = (0.25, 0.5, 1, 2, 4, 8, 16)
SERIES = ("engine / plain loop", "engine / with torch's attention")


@styled
def speed_ups(lines: Sequence[TrainingLine]) -> Figure:
    """One group per shape: both ratios with their extremes over the rounds, on a logarithmic axis with a line at 1."""
    figure = Figure(figsize=(WIDTH_INCHES, 1.9 + 0.5 * max(1, len(lines))))
    axes = figure.subplots()
    axes.set_xscale("log")
    for place, line in enumerate(lines):
        for index, ratio in enumerate((line.speed_up, line.kernel_speed_up)):
            _interval(axes, place + (index - 0.5) * 0.3, ratio, index)
    axes.axvline(1, color=INK, linewidth=0.9)
    axes.set_ylim(max(1, len(lines)) - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [line.title.replace(", ", "\n", 1) for line in lines])
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    _label_ratios(axes, lines)
    if not lines:
        axes.text(1, 0, " no benchmark record", color=MUTED, va="center")
    handles = [axes.plot([], [], marker=MARKERS[i], color=COLOURS[i], linestyle="-")[0] for i in range(len(SERIES))]
    figure.legend(handles, SERIES, loc="outside upper left", ncols=1, labelcolor=MUTED)
    return figure


def _interval(axes: Axes, place: float, ratio: Ratio, index: int) -> None:
    axes.plot([ratio.lowest, ratio.highest], [place, place], color=COLOURS[index], linewidth=1.6)
    axes.plot(ratio.median, place, marker=MARKERS[index], color=COLOURS[index], markersize=6, linestyle="none")


def _label_ratios(axes: Axes, lines: Sequence[TrainingLine]) -> None:
    """Powers of two that enclose all ratios, and 1 always."""
    ends = [end for line in lines for r in (line.speed_up, line.kernel_speed_up) for end in (r.lowest, r.highest)]
    low, high = min([*ends, 0.9]) / 1.1, max([*ends, 2.0]) * 1.1
    axes.set_xlim(low, high)
    axes.xaxis.set_major_locator(FixedLocator([tick for tick in TICKS if low <= tick <= high]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.set_xlabel("ratio of images per second")
