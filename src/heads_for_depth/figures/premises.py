"""κ of the reduced models epoch by epoch."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from heads_for_depth.figures.conditioning import gaps
from heads_for_depth.figures.style import COLOURS, LINES, MARKERS, MUTED, WIDTH_INCHES, nothing_recorded, styled
from heads_for_depth.findings.premises import TrainingPath

CELLS = (("before", "before"), ("before", "after"), ("after", "before"), ("after", "after"))
LABELS = ("baseline", "more heads", "less depth", "reshape")


@styled
def kappa_by_epoch(paths: Sequence[TrainingPath], name: str = "concatenated") -> Figure:
    """One panel per row, one line per cell of its 2 × 2; an infinite κ interrupts a line."""
    if not paths:
        return nothing_recorded()
    rows = list(dict.fromkeys(path.title for path in paths))
    lines = (len(rows) + 1) // 2
    figure = Figure(figsize=(WIDTH_INCHES, 1.1 + 1.85 * lines))
    grid = figure.subplots(lines, 2, squeeze=False)
    for axes, title in zip(grid.flat, rows, strict=False):
        for path in paths:
            if path.title == title and name in path.kappa:
                _line(axes, path, name)
        axes.set_title(title.replace(" (our own row)", ", ours"), loc="left")
        axes.set_yscale("log")
    for axes in grid.flat[len(rows) :]:
        axes.set_visible(False)
    for axes in grid[-1]:
        axes.set_xlabel("epoch")
    figure.supylabel("condition number κ", fontsize=11)
    handles = [
        grid.flat[0].plot([], [], color=COLOURS[i], marker=MARKERS[i], linestyle=LINES[i], markersize=4)[0]
        for i in range(len(CELLS))
    ]
    figure.legend(handles, LABELS, loc="outside upper left", ncols=2, labelcolor=MUTED)
    return figure


def _line(axes: Axes, path: TrainingPath, name: str) -> None:
    place = CELLS.index((path.depth_arm, path.heads_arm))
    values = gaps(path.kappa[name])
    axes.plot(range(len(values)), values, color=COLOURS[place], marker=MARKERS[place], linestyle=LINES[place],
              markersize=4)  # fmt: skip
    axes.set_xticks(range(len(values)))
