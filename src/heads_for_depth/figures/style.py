"""The one style sheet of all figures.

A figure is as wide as a phone's column shows it without shrinking its text much, so 11 points stay above 9 there.
Colours are of Okabe and Ito's set, which readers with any colour vision tell apart; a marker or a line style always
says the same as the colour.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec

import matplotlib as mpl
from matplotlib.figure import Figure

P = ParamSpec("P")

WIDTH_INCHES = 4.4
"""422 CSS pixels; a phone of 390 pixels shows about 358 of them."""

INK = "#1d2125"
MUTED = "#5a636b"
HAIRLINE = "#d5dade"
BLUE = "#0072b2"
VERMILLION = "#d55e00"
GREEN = "#009e73"
PURPLE = "#cc79a7"
ORANGE = "#e69f00"
SKY = "#56b4e9"
COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, ORANGE, SKY)
MARKERS = ("o", "s", "^", "D", "v", "P")
LINES = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1, 1, 1)))

STYLE: Any = {
    "font.size": 11,
    "axes.labelsize": 11,
    "axes.titlesize": 11,
    "xtick.labelsize": 11,
    "ytick.labelsize": 11,
    "legend.fontsize": 11,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": MUTED,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": HAIRLINE,
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.6,
    "lines.markersize": 6,
    "legend.frameon": False,
    "figure.facecolor": "white",
    "figure.constrained_layout.use": True,
}


def nothing_recorded() -> Figure:
    """What stands in the place of a figure until its first run is recorded."""
    figure = Figure(figsize=(WIDTH_INCHES, 0.6))
    figure.text(0.0, 0.5, "No run of this figure is recorded yet.", va="center", color=MUTED)
    return figure


def styled(function: Callable[P, Figure]) -> Callable[P, Figure]:
    """Draw a figure in this style, whatever the caller's settings are, and leave those as they were."""

    @wraps(function)
    def draw(*args: P.args, **kwargs: P.kwargs) -> Figure:
        with mpl.rc_context(STYLE):
            return function(*args, **kwargs)

    return draw
