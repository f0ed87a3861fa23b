"""Figures: every number drawn where it belongs, gaps and infinities visible, text that a phone can show."""

import io
from collections.abc import Callable, Sequence
from math import inf

import matplotlib as mpl
import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.collections import PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from heads_for_depth.figures.conditioning import kappa_against_heads, kappa_through_training
from heads_for_depth.figures.style import COLOURS, LINES, MARKERS, ORANGE, STYLE, VERMILLION, WIDTH_INCHES
from heads_for_depth.figures.vision import differences_against_margin, learning_curves
from heads_for_depth.findings.conditioning_data import KappaPanel, TrainedPanel
from heads_for_depth.findings.vision_data import CurvePanel, IntervalLine

PHONE_PIXELS = 358
"""Width of the text column on a phone of 390 CSS pixels."""
SMALLEST_POINTS = 9

COMPARISONS = ("reshape against baseline", "more heads at the old depth", "less depth with the old heads")
INTERVALS = [
    IntervalLine(label="XCiT-M", differences=[(0.2, -0.3, 0.7), (1.0, 0.8, 1.2), (-1.0, -1.25, -0.75)]),
    IntervalLine(label="ViT-B (our own row)", differences=[None, (0.1, -0.4, 0.6), (0.0, -inf, inf)]),
]
NOTHING = [IntervalLine(label=label, differences=[None, None, None]) for label in ("XCiT-M", "ViT-B (our own row)")]
CURVES = [
    CurvePanel(
        title="XCiT-M", arms=[("baseline", [[50.0, 60.0, 65.0], [51.0, 61.0, 66.0]]), ("reshape", [[40.0, 55.0]])]
    ),
    CurvePanel(title="TNT-B", arms=[("baseline", []), ("reshape", [])]),
    CurvePanel(title="ViT-B (our own row)", arms=[("baseline", [[70.0]]), ("reshape", [[71.0]])]),
]
TRAINED = [
    TrainedPanel(title="XCiT-M", cells=[("depth 6, heads 1", 6e3, 2e4), ("depth 3, heads 2", 2e3, 5e3)]),
    TrainedPanel(title="DaViT-B", cells=[("depth 12, heads 1", inf, 1e7), ("depth 8, heads 2", 1e8, inf)]),
]


def panel(median: Sequence[float], title: str = "XCiT-M", **facts: Sequence[float | None]) -> KappaPanel:
    heads = [2**power for power in range(len(median))]
    ends = {"lowest": [kappa / 2 for kappa in median], "highest": [kappa * 2 for kappa in median]}
    numbers = ends | {"gaussian": [3.0] * len(median)} | facts
    return KappaPanel(title=title, heads=heads, median=median, used=(4, 8), **numbers)  # type: ignore[arg-type]


PANELS = [
    panel([2e5, 500.0, 80.0, 60.0, 50.0]),
    panel([inf, 500.0, inf, 60.0], "DaViT-L", gaussian=[None, None, 4.0, 3.0]),
    panel([300.0, 250.0, 220.0, 210.0], "ViT-B, ours"),
]
FIGURES: dict[str, Callable[[], Figure]] = {
    "differences": lambda: differences_against_margin(INTERVALS, COMPARISONS, 0.5),
    "curves": lambda: learning_curves(CURVES, "validation accuracy (%)"),
    "kappa": lambda: kappa_against_heads(PANELS),
    "training": lambda: kappa_through_training(TRAINED),
    "nothing measured": lambda: differences_against_margin(NOTHING, COMPARISONS, 0.5),
    "no curves": lambda: learning_curves([], "validation accuracy (%)"),
    "no kappa": lambda: kappa_against_heads([]),
    "no training": lambda: kappa_through_training([]),
}  # fmt: skip


def drawn(figure: Figure) -> Figure:
    """Laid out and rendered, with the reader's own settings."""
    FigureCanvasAgg(figure).draw()
    return figure


def points(line: Line2D) -> tuple[list[float], list[float]]:
    x, y = (np.asarray(values, dtype=float).tolist() for values in line.get_data())
    return x, y


def lines_with_data(axes: Axes) -> list[Line2D]:
    return [line for line in axes.get_lines() if points(line)[0]]


def legend_texts(figure: Figure) -> list[str]:
    return [text.get_text() for legend in figure.legends for text in legend.get_texts()]


def written(figure: Figure) -> list[Text]:
    return [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]


# --- every figure ---


@pytest.fixture(params=FIGURES, scope="module")
def make(request: pytest.FixtureRequest) -> Callable[[], Figure]:
    return FIGURES[request.param]


def test_no_text_is_below_nine_points_on_a_phone(make: Callable[[], Figure]) -> None:
    figure = drawn(make())
    scale = min(1.0, PHONE_PIXELS / (96 * figure.get_tightbbox().width))
    shown = {text.get_text(): float(text.get_fontsize()) * scale for text in written(figure)}
    assert {text: size for text, size in shown.items() if size < SMALLEST_POINTS} == {}


def test_a_figure_stays_within_its_width(make: Callable[[], Figure]) -> None:
    box = drawn(make()).get_tightbbox()
    assert box.width <= WIDTH_INCHES + 0.05


def test_the_same_data_give_the_same_bytes(make: Callable[[], Figure]) -> None:
    files = []
    for _ in range(2):
        buffer = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "figure"}):
            make().savefig(buffer, format="svg", metadata={"Date": None})
        files.append(buffer.getvalue())
    assert files[0] == files[1]


def test_a_figure_ignores_the_readers_settings_and_leaves_them_alone(make: Callable[[], Figure]) -> None:
    with mpl.rc_context({"font.size": 5.0, "axes.titlesize": 4.0, "axes.spines.top": True}):
        before = dict(mpl.rcParams)
        figure = make()
        assert dict(mpl.rcParams) == before
    assert {text.get_fontsize() for text in written(figure)} <= {STYLE["font.size"]}
    assert not any(axes.spines["top"].get_visible() for axes in figure.axes)


# --- differences ---


def interval_axes(lines: Sequence[IntervalLine] = INTERVALS, margin: float = 0.5) -> Axes:
    (axes,) = differences_against_margin(lines, COMPARISONS, margin).axes
    return axes


def test_every_interval_has_a_bar_between_its_ends_and_a_mark_at_its_middle() -> None:
    lines = lines_with_data(interval_axes())
    bars = [points(line) for line in lines if line.get_marker() in ("None", None, "") and line.get_linestyle() == "-"]
    bars = [(x, y) for x, y in bars if x[0] != x[1]]
    assert [x for x, _ in bars] == [[-0.3, 0.7], [0.8, 1.2], [-1.25, -0.75], [-0.4, 0.6], [-inf, inf]]
    marks = [line for line in lines if line.get_linestyle() == "None"]
    assert [points(line)[0][0] for line in marks] == [0.2, 1.0, -1.0, 0.1, 0.0]
    assert [(line.get_marker(), line.get_color()) for line in marks[:3]] == list(zip(MARKERS, COLOURS, strict=True))[:3]
    assert [points(line)[1][0] for line in marks] == [y[0] for _, y in bars]


def test_the_intervals_of_a_row_stand_around_its_label() -> None:
    axes = interval_axes()
    assert [label.get_text() for label in axes.get_yticklabels()] == ["XCiT-M", "ViT-B (our own row)"]
    marks = [points(line)[1][0] for line in lines_with_data(axes) if line.get_linestyle() == "None"]
    assert marks[:3] == pytest.approx([-0.24, 0.0, 0.24])
    assert marks[3:] == pytest.approx([1.0, 1.24])
    lower, upper = axes.get_ylim()
    assert lower > upper, "the first row is on top"


@pytest.mark.parametrize("margin", [0.5, 0.3])
def test_the_margin_is_a_dashed_line_at_minus_delta_and_zero_a_solid_one(margin: float) -> None:
    axes = interval_axes(margin=margin)
    upright = {points(line)[0][0]: line for line in lines_with_data(axes) if points(line)[1] == [0, 1]}
    assert set(upright) == {-margin, 0}
    assert (upright[-margin].get_linestyle(), upright[0].get_linestyle()) == ("--", "-")
    assert upright[-margin].get_color() == VERMILLION
    assert f"−δ = −{margin:g}" in [text.get_text().strip() for text in axes.texts]


def test_an_effect_that_was_not_measured_says_so_in_its_place() -> None:
    said = [text for text in interval_axes().texts if "not measured" in text.get_text()]
    assert [text.get_position()[1] for text in said] == pytest.approx([1 - 0.24])


def test_the_comparisons_are_named_in_the_legend() -> None:
    assert legend_texts(FIGURES["differences"]()) == list(COMPARISONS)


# --- learning curves ---


def test_every_run_is_a_line_from_its_first_epoch_in_the_style_of_its_arm() -> None:
    first, second, third, fourth = learning_curves(CURVES, "validation accuracy (%)").axes
    curves = lines_with_data(first)
    assert [points(line) for line in curves] == [
        ([1, 2, 3], [50, 60, 65]), ([1, 2, 3], [51, 61, 66]), ([1, 2], [40, 55]),
    ]  # fmt: skip
    styles = [(line.get_linestyle(), line.get_marker(), line.get_color()) for line in curves]
    assert styles == [(LINES[index], MARKERS[index], COLOURS[index]) for index in (0, 0, 1)]
    assert (len(lines_with_data(second)), len(lines_with_data(third))) == (0, 2)
    assert [axes.get_title(loc="left") for axes in (first, second, third)] == [p.title for p in CURVES]
    assert not fourth.get_visible()


def test_curves_are_labelled_with_what_they_show() -> None:
    figure = learning_curves(CURVES, "validation accuracy (%)")
    assert legend_texts(figure) == ["baseline", "reshape"]
    assert figure.get_supylabel() == "validation accuracy (%)"
    assert list(figure.axes[0].get_xticks()) == [1, 2, 3]


# --- κ against head count ---


def kappa_axes(number: int = 0, panels: Sequence[KappaPanel] = PANELS) -> Axes:
    return kappa_against_heads(panels).axes[number]


def measured_line(axes: Axes) -> Line2D:
    (line,) = [line for line in lines_with_data(axes) if line.get_marker() == "o"]
    return line


def test_the_median_is_drawn_against_the_heads_with_the_range_of_layers() -> None:
    axes = kappa_axes()
    assert points(measured_line(axes)) == ([1, 2, 4, 8, 16], [2e5, 500, 80, 60, 50])
    areas = [area for area in axes.collections if isinstance(area, PolyCollection) and len(area.get_paths())]
    (layers,) = areas
    corners = {(x, y) for x, y in np.asarray(layers.get_paths()[0].vertices)}
    assert {(1.0, 1e5), (1.0, 4e5), (16.0, 25.0), (16.0, 100.0)} <= corners
    assert (axes.get_xscale(), axes.get_yscale(), axes.get_title(loc="left")) == ("log", "log", "XCiT-M")


def test_the_heads_of_the_reshape_are_a_band() -> None:
    (band,) = kappa_axes().patches
    assert isinstance(band, Rectangle)
    assert (band.get_x(), band.get_x() + band.get_width()) == (4, 8)
    assert to_hex(band.get_facecolor()) == ORANGE


def test_the_gaussian_prediction_is_dashed_and_only_where_there_is_one() -> None:
    (line,) = [line for line in lines_with_data(kappa_axes(1)) if line.get_linestyle() == "--"]
    assert points(line) == ([4, 8], [4, 3])
    none = panel([5.0, 4.0], gaussian=[None, None])
    assert [line for line in lines_with_data(kappa_axes(0, [none])) if line.get_linestyle() == "--"] == []


def test_an_infinite_kappa_interrupts_the_line_and_is_marked_at_the_upper_edge() -> None:
    axes = kappa_axes(1)
    heads, kappas = points(measured_line(axes))
    assert heads == [1, 2, 4, 8]
    assert np.isnan(kappas).tolist() == [True, False, True, False]
    (mark,) = [line for line in lines_with_data(axes) if line.get_marker() == "^"]
    assert points(mark) == ([1, 4], [1, 1])
    assert mark.get_transform() == axes.get_xaxis_transform()
    assert "measured: infinite" in legend_texts(kappa_against_heads(PANELS))


def test_the_legend_speaks_of_infinity_only_where_there_is_one() -> None:
    assert legend_texts(kappa_against_heads(PANELS[:1])) == [
        "measured: median and range of layers", "Gaussian prediction", "heads before to after in LIT-527",
    ]  # fmt: skip
    all_infinite = drawn(kappa_against_heads([panel([inf, inf])]))
    assert "measured: infinite" in legend_texts(all_infinite)


def test_an_odd_number_of_panels_leaves_the_last_place_empty() -> None:
    assert [axes.get_visible() for axes in kappa_against_heads(PANELS).axes] == [True, True, True, False]


def test_every_panel_of_kappa_has_a_number_on_its_axis() -> None:
    for axes in drawn(kappa_against_heads(PANELS)).axes[:3]:
        low, high = axes.get_ylim()
        labelled = [label for label in axes.get_yticklabels(which="both") if label.get_text()]
        assert [label for label in labelled if low <= label.get_position()[1] <= high], axes.get_title(loc="left")


# --- κ through training ---


def test_a_cell_goes_from_a_ring_at_the_start_to_a_dot_at_the_end() -> None:
    (axes,) = kappa_through_training(TRAINED).axes
    bars = [points(line) for line in lines_with_data(axes) if len(points(line)[0]) == 2]
    assert bars == [([6e3, 2e4], [1, 1]), ([2e3, 5e3], [2, 2])]
    ends = [line for line in lines_with_data(axes) if len(points(line)[0]) == 1]
    assert [(points(line)[0][0], line.get_markerfacecolor() == "white") for line in ends] == [
        (6e3, True), (2e4, False), (2e3, True), (5e3, False),
    ]  # fmt: skip


def test_a_cell_that_is_infinite_at_either_end_is_written_and_not_drawn() -> None:
    (axes,) = kappa_through_training(TRAINED).axes
    said = [text.get_position()[1] for text in axes.texts if text.get_text() == "rank-deficient"]
    assert said == [4, 5]
    assert [label.get_text() for label in axes.get_yticklabels()] == [
        "depth 6, heads 1", "depth 3, heads 2", "depth 12, heads 1", "depth 8, heads 2",
    ]  # fmt: skip
    assert list(axes.get_yticks()) == [1, 2, 4, 5]


def test_each_row_has_its_title_above_its_cells() -> None:
    (axes,) = kappa_through_training(TRAINED).axes
    titles = {text.get_text(): text.get_position()[1] for text in axes.texts if text.get_fontweight() == "bold"}
    assert titles == {"XCiT-M": 0, "DaViT-B": 3}
    bottom, top = axes.get_ylim()
    assert top < 0 < 5 < bottom, "the first row is on top and all cells are inside"
