"""The recount: what was published beside what the stated shape counts."""

from typing import Any

import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import ScalarFormatter

from heads_for_depth.figures.style import BLUE, INK, VERMILLION, WIDTH_INCHES, styled

LINE_INCHES = 0.34
"""Height of one line of the figure."""
TICKS = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 50, 100, 200, 500, 1000, 2000, 5000)
RING: dict[str, Any] = {
    "marker": "o",
    "markersize": 10,
    "markerfacecolor": "none",
    "markeredgecolor": INK,
    "linestyle": "none",
}
AGREES: dict[str, Any] = {"marker": "o", "markersize": 5, "color": BLUE, "linestyle": "none"}
DIFFERS: dict[str, Any] = {"marker": "D", "markersize": 5, "color": VERMILLION, "linestyle": "none"}


@styled
def published_against_counted(sides: pd.DataFrame) -> Figure:
    """A line per side: ring = published, filled mark = counted in the stated shape, bar = what lies between.

    Columns: label, published and counted (millions), prints (whether the count rounds to the published number), remark
    (written beside a line that does not print). Logarithmic, so that equal lengths are equal ratios. First side on top.
    """
    figure = Figure(figsize=(WIDTH_INCHES, 1.5 + LINE_INCHES * len(sides)))
    axes = figure.subplots()
    axes.set_xscale("log")
    for place, (_, side) in enumerate(sides.iterrows()):
        _dumbbell(axes, place, side)
    axes.set_yticks(range(len(sides)), list(sides["label"]))
    axes.set_ylim(len(sides) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    _label_millions(
        axes, float(sides[["published", "counted"]].min().min()), float(sides[["published", "counted"]].max().max())
    )
    _legend(figure, axes)
    return figure


def _dumbbell(axes: Axes, place: int, side: "pd.Series[Any]") -> None:
    mark = AGREES if side["prints"] else DIFFERS
    axes.plot([side["published"], side["counted"]], [place, place], color=mark["color"], linewidth=2)
    axes.plot(side["counted"], place, **mark)
    axes.plot(side["published"], place, **RING)
    if not side["prints"]:
        right = max(side["published"], side["counted"])
        axes.annotate(side["remark"], (right, place), xytext=(9, 0), textcoords="offset points", va="center")


def _label_millions(axes: Axes, low: float, high: float) -> None:
    low, high = low / 1.15, high * 1.25
    axes.set_xlim(low, high)
    axes.set_xticks([tick for tick in TICKS if low <= tick <= high])
    axes.xaxis.set_major_formatter(ScalarFormatter())
    axes.minorticks_off()
    axes.set_xlabel("parameters (millions)")


def _legend(figure: Figure, axes: Axes) -> None:
    handles = [axes.plot([], [], **mark)[0] for mark in (RING, AGREES, DIFFERS)]
    labels = ["published", "counted, prints it", "counted, does not"]
    figure.legend(handles, labels, loc="outside upper left", ncols=2, columnspacing=1, handletextpad=0.4)
