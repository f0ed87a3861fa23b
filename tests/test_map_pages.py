"""What the pages on the map, the edge, the cause and the premises say, from made-up records: arithmetic by hand."""

import math
import re
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from heads_for_depth import paths
from heads_for_depth.claims import load_rows
from heads_for_depth.experiments import DECLARATIONS
from heads_for_depth.experiments.cause_grid import DEEP
from heads_for_depth.figures import cause as cause_figures
from heads_for_depth.figures import depth_heads as figures
from heads_for_depth.figures.premises import kappa_by_epoch
from heads_for_depth.figures.style import WIDTH_INCHES
from heads_for_depth.findings import map_data as data
from heads_for_depth.findings.cause import (
    arm_findings,
    cause_decision,
    comparisons,
    kappa_correlations,
    plain_cell,
    rate_findings,
)
from heads_for_depth.findings.cause_data import arm_lines, rate_lines, scatter_points
from heads_for_depth.findings.edge import edge_findings
from heads_for_depth.findings.exchange import exchanges
from heads_for_depth.findings.map_cells import map_cells
from heads_for_depth.findings.map_verdicts import reshape_findings
from heads_for_depth.findings.premises import PremiseLine, TrainingPath
from heads_for_depth.findings.premises_data import paths_data, premises_data
from heads_for_depth.provenance import first_commit_with
from heads_for_depth.tables import cause as cause_tables
from heads_for_depth.tables import depth_heads as tables
from heads_for_depth.tables import depth_heads_values as values
from heads_for_depth.tables import premises as premise_tables
from heads_for_depth.tables.declarations import declaration
from made_up_records import PROVENANCE
from test_map import around, cause_records, cell_records, falling, losses, plain_records

NOTHING = map_cells([], "cpu", "map")


def texts(figure: Figure) -> list[str]:
    return [text.get_text() for text in figure.findobj(Text) if text.get_text() and text.get_visible()]


def drawn(figure: Figure) -> Figure:
    """Rendered once, so that every layout error shows; no text may lie outside of the canvas."""
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    width, height = canvas.get_width_height()
    ticks = {id(tick) for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)
             for tick in axis.get_ticklabels(which="both")}  # fmt: skip
    for text in figure.findobj(Text):
        if text.get_text() and text.get_visible() and id(text) not in ticks:  # a tick beyond the limits has a text too
            box = text.get_window_extent()
            assert box.x0 > -2, text.get_text()
            assert box.x1 < width + 2, text.get_text()
            assert box.y1 < height + 2, text.get_text()
    assert figure.get_figwidth() == pytest.approx(WIDTH_INCHES)
    return figure


@pytest.fixture(scope="module")
def mapped() -> Any:
    records = [
        one
        for depth in (3, 6)
        for heads in (1, 2, 4, 8, 16, 32, 64)
        for one in cell_records(
            depth,
            heads,
            around(80.0 + depth / 2 + math.log2(heads) / 4),
            loss=0.6 - depth / 50 - math.log2(heads) / 100,
        )
    ]
    return map_cells(records, "cpu", "map")


# The map.


def test_the_heat_map_writes_every_value_and_its_seeds_and_hatches_what_is_missing(mapped: Any):
    figure = drawn(figures.heat_map(data.heat_map(mapped, "accuracy"), "test accuracy (%)", 1))
    words = texts(figure)
    assert words.count("n 8") == 14
    assert {"81.5", "83.0", "84.5"} <= set(words)
    hatched = [patch for patch in figure.axes[0].patches if patch.get_hatch()]
    assert len(hatched) == 5 * 7
    assert "test accuracy (%)" in words
    assert any(word.endswith("k") for word in words)


def test_a_cell_says_how_many_of_its_runs_failed_also_where_none_is_left():
    runs = cell_records(6, 8, around(84.0)) + cell_records(3, 8, around(83.0))
    records = [run | {"status": "diverged", "metrics": {}} if i in {0, *range(8, 16)} else run
               for i, run in enumerate(runs)]  # fmt: skip
    words = texts(drawn(figures.heat_map(data.heat_map(map_cells(records, "cpu", "map"), "accuracy"), "x", 1)))
    assert "n 7, 1 failed" in words
    assert "8 failed" in words


def test_a_price_above_every_finite_upper_end_stays_below_what_is_not_reached():
    target = {2: [0.649, 0.65, 0.651], 4: [0.099, 0.1, 0.101]}
    found = exchanges(map_cells(losses(8, falling(0.9)) + losses(12, target), "cpu", "map"), "tokens-17")
    dear = replace(found[0], doublings_per_layer=4.5, lower=3.2, upper=math.inf)
    axes = drawn(figures.exchange_rates([dear, found[1]])).axes[0]
    drawn_marks = [line for line in axes.lines if line.get_marker() not in ("None", "") and np.size(line.get_ydata())]
    marks = {float(np.atleast_1d(line.get_ydata())[0]) for line in drawn_marks}
    assert sorted(marks) == [4.5, pytest.approx(4.5 * 1.15)]


def test_a_whole_map_has_contours_and_a_partial_one_has_none(mapped: Any):
    depths, heads = (1, 2), (1, 2, 4)
    whole = data.HeatMap(
        depths=depths, heads=heads, values=[[80.0, 81.0, 82.0], [82.0, 83.0, 84.0]], seeds=[[3] * 3] * 2,
        failed=[[0] * 3] * 2, parameters=[10_000, 20_000],
    )  # fmt: skip
    points = []
    for grid in (whole, data.heat_map(mapped, "accuracy")):
        axes = drawn(figures.heat_map(grid, "x", 1)).axes[0]
        points.append(sum(np.size(path.vertices) for lines in axes.collections for path in lines.get_paths()))
    assert points[0] > 0
    assert points[1] == 0  # the recorded rows, depth 3 and 6, have no recorded neighbour


@pytest.mark.parametrize("cells", ["mapped", "nothing"])
def test_every_figure_of_the_map_draws_from_whatever_there_is(cells: str, mapped: Any):
    found = mapped if cells == "mapped" else NOTHING
    edges = edge_findings(found, map_cells([], "cpu", "edge"))
    for figure in (
        figures.heat_map(data.heat_map(found, "kappa.middle"), "κ", 1, contours=False),
        figures.exchange_rates(exchanges(found, "tokens-17")),
        figures.accuracy_against_cost(data.cost_points(found)),
        figures.training_losses(data.loss_curves(found, 8)),
        figures.sweeps_over_heads(data.sweep_lines(edges), tables.SHORT_TITLES),
        cause_figures.kappa_against_loss({"κ": scatter_points(found, "middle")}),
        cause_figures.learning_rates([]),
        cause_figures.interventions([]),
    ):
        drawn(figure)


def test_a_cell_of_the_map_is_a_line_of_the_table(mapped: Any):
    frame = tables.cells(mapped, ["tokens-17"])
    assert len(frame) == 14
    assert set(frame["sweep"]) == {"17 tokens"}
    line = frame[(frame["depth"] == "3") & (frame["heads"] == "8")].iloc[0].to_dict()
    assert line["head_dim"] == "8"
    assert line["test accuracy"] == "82.25 ± 0.12"  # standard deviation of SPREAD by hand: sqrt(0.105 / 7) is 0.122
    assert line["test loss"] == "0.5100"
    assert (line["κ start"], line["κ middle"], line["κ end"]) == ("40", "30", "20")
    assert (line["n"], line["failed"], line["learning rate"], line["seconds"]) == ("8", "0", "0.002", "10")
    assert tables.cells(NOTHING, ["tokens-17"]).to_dict("records") == [{"sweep": "not measured"}]


def test_reshapes_are_shown_with_their_verdict_and_both_harder_numbers():
    records = [
        one
        for depth, heads, mean in (
            (6, 8, 85.0),
            (3, 16, 85.0),
            (3, 32, 82.0),
            (6, 16, 86.0),
            (6, 32, 86.0),
            (3, 8, 80.0),
        )
        for one in cell_records(depth, heads, around(mean))
    ]
    found = reshape_findings(map_cells(records, "cpu", "map"))
    first, second = tables.reshapes(found).to_dict("records")
    assert first["reshape"] == "depth 6 → 3, heads 8 → 16"
    assert (first["verdict"], second["verdict"]) == ("reproduced at reduced scale", "not reproduced at reduced scale")
    assert first["difference [95 %]"] == "0.00 [−0.13, +0.13]"  # sqrt(2 · 0.015 / 8) · t(14) is 0.0612 · 2.145
    assert second["against depth 6 with as many heads"].startswith("−4.00 [")
    assert first["less depth alone"].startswith("−5.00 [")
    sentence = values.answer(found)
    assert "From depth 6 with 8 heads to depth 3 with 16: 0.00 [−0.13, +0.13] points" in sentence
    assert "n = 8 per arm" in sentence
    assert values.answer([]) == "The map of this profile has none of the reshapes that carry a verdict."
    nothing, one = (reshape_findings(map_cells(some, "cpu", "map")) for some in ([], records[::8]))
    assert values.answer(nothing) == values.answer(one)
    assert values.answer(one) == "The reshapes that carry a verdict do not have two finished runs per arm yet."


def test_a_reshape_with_diverged_runs_keeps_its_verdict_and_the_numbers_of_both_arms():
    plain = [one for depth, heads in ((6, 8), (3, 32)) for one in cell_records(depth, heads, around(85.0))]

    def reshape(finished: int) -> str:
        runs = cell_records(3, 16, around(85.0))
        diverged = [run | {"status": "diverged", "metrics": {}} for run in runs[finished:]]
        return values.answer(reshape_findings(map_cells([*plain, *runs[:finished], *diverged], "cpu", "map")))

    assert "n = 8 and 6), which reads “inconclusive” (2 runs of the reshape diverged)" in reshape(6)
    assert "with 16: no difference is measured, which reads “not reproduced at reduced scale” (8 runs" in reshape(0)


def test_exchange_rates_are_written_with_intervals_and_what_is_not_reached_says_so():
    target = {2: [0.649, 0.65, 0.651], 4: [0.099, 0.1, 0.101], 8: [0.949, 0.95, 0.951], 64: [0.849, 0.85, 0.851]}
    found = exchanges(map_cells(losses(8, falling(0.9)) + losses(12, target), "cpu", "map"), "tokens-17")
    rates = [line["doublings per layer [95 %]"] for line in tables.exchange(found).to_dict("records")]
    assert rates[0].startswith("+0.38 [+0.3")
    assert rates[1] == "not reached"
    assert rates[2].startswith("at most −0.75 [")
    assert rates[3].startswith("−1.37 [")
    sentence = values.exchange(found)
    assert sentence.startswith(
        "Of 4 cells, the next smaller depth reaches the same test loss with more heads in 1, with no more heads in 2, "
        "and at no head count in 1; the median is at most −0.19 doublings per layer given up (observation, n = 3;"
    )  # (−0.75 + 0.375) / 2, the bounds and what is not reached included
    assert "12 → 8" in texts(drawn(figures.exchange_rates(found)))


@pytest.mark.parametrize(
    ("levels", "reading", "words"),
    [
        ((80, 84, 84, 82, 82, 82, 82), "breaks beyond", "every larger one is shown to be worse"),
        ((80, 84, 84, 84, 84, 84, 84), "none within the range", "the most of the sweep"),
        ((80, 84, 84, 83.55, 83.55, 83.55, 83.55), "undetermined beyond", "the seeds do not decide"),
        ((80, 84, 84), "too few runs beyond 4", "beyond 4 fewer than two runs are finished"),
        ((80, 79.55, 79.55, 79.55, 79.55, 79.55, 79.55), "undetermined beyond", "no head count is shown to hold"),
    ],
)
def test_a_sweep_is_read_in_words(levels: tuple[float, ...], reading: str, words: str):
    records = [
        one for heads, mean in zip((1, 2, 4, 8, 16, 32, 64), levels, strict=False)
        for one in cell_records(6, heads, around(mean))
    ]  # fmt: skip
    found = edge_findings(map_cells(records, "cpu", "map"), map_cells([], "cpu", "edge"))
    line = tables.edges(found).to_dict("records")[0]
    complete = len(levels) == 7
    assert line["reads"] == (reading if complete else f"{reading} (observation)")
    assert words in values.edge(found)
    assert ("an observation" in values.edge(found)) is not complete


def test_edges_are_written_against_head_dim_and_tokens():
    levels = {1: 80.0, 2: 84.0, 4: 84.0, 8: 82.0, 16: 82.0, 32: 82.0, 64: 82.0}
    for seeds in (8, 3):
        records = [one for heads, mean in levels.items() for one in cell_records(6, heads, around(mean)[:seeds])]
        found = edge_findings(map_cells(records, "cpu", "map"), map_cells([], "cpu", "edge"))
        line = tables.edges(found).to_dict("records")[0]
        assert line["sweep"] == "17 tokens"
        assert (line["largest heads that hold"], line["head_dim"], line["head_dim / tokens"]) == ("4", "16", "0.94")
        assert line["n"] == str(seeds)
        assert line["reads"].endswith("(observation)") == (seeds == 3)
    assert "is 4 (head_dim 16; 95 % interval 4 to 4)" in values.edge(found)
    empty = edge_findings(NOTHING, map_cells([], "cpu", "edge"))
    assert {line["reads"] for line in tables.edges(empty).to_dict("records")} == {"not measured"}


def test_coverage_counts_cells_and_seeds(mapped: Any):
    assert values.coverage(mapped) == (
        "The map: n = 8 seeds per cell, 14 of 49 cells recorded; at twice the epochs: none of 14 cells recorded yet; "
        "0 runs failed."
    )
    assert values.coverage(NOTHING).startswith("The map: none of 49 cells recorded yet; at twice")
    assert "50 tokens: none of 14 cells recorded yet." in values.edge_coverage(map_cells([], "cpu", "edge"))
    some = map_cells(cell_records(6, 8, [80.0]) + cell_records(6, 4, [80.0, 81.0]), "cpu", "map")
    assert tables.seeds_in_words(some.values()) == "n = 1 to 2 seeds per cell, 2 of 63 cells recorded"


def test_every_sentence_carries_an_interval_and_n_or_is_an_observation(mapped: Any):
    edges = edge_findings(mapped, map_cells([], "cpu", "edge"))
    traded = exchanges(map_cells(losses(8, falling(0.9)) + losses(12, falling(0.85)), "cpu", "map"), "tokens-17")
    said = values.glued(mapped, map_cells([], "cpu", "edge"), reshape_findings(mapped), traded, edges)
    plain = map_cells(plain_records(), "cpu", "map")
    arms = map_cells(cause_records(84.0, kappa=3.0), "cpu", "cause")
    said |= cause_tables.glued(
        arm_findings(arms, plain), cause_decision(arms, plain), kappa_correlations(mapped), comparisons(arms, plain)
    )
    said |= premise_tables.glued(LINES, [path("before", "before", (5.0,)), path("before", "after", (4.0,))])
    claims = ("map.answer", "map.exchange", "map.edge", "cause.moved", "cause.gains", "cause.evidence",
              "premises.prediction", "premises.hold", "training.kappa")  # fmt: skip
    for key in claims:
        for sentence in re.split(r"(?<=\D)\. ", said[key]):
            assert re.search(r"\[[^]]+\]|interval|observation", sentence), (key, sentence)
            assert re.search(r"n = \d", sentence), (key, sentence)


# The cause.


def test_the_table_of_kappa_shows_the_ratio_and_whether_it_moved():
    plain = map_cells(plain_records(), "cpu", "map")
    findings = arm_findings(map_cells(cause_records(84.0, kappa=3.0), "cpu", "cause"), plain)
    line = cause_tables.moved_kappa(findings).to_dict("records")[0]
    assert line["arm"] == "shallow, spectral shift"
    assert (line["meant to"], line["moved as intended"], line["n"]) == ("lower", "yes", "8")
    assert line["κ ×, middle"].startswith("0.1 [0.0")
    assert line["κ ×, start"] == "1 [0, inf]"  # no spread at all says nothing
    accuracy = cause_tables.accuracies(findings, plain_cell(plain, DEEP)).to_dict("records")[0]
    assert accuracy["against the same shape without [95 %]"].startswith("+1.00 [+0.8")
    assert accuracy["parameters against deep"].startswith("−")
    arms = map_cells(cause_records(84.0, kappa=3.0), "cpu", "cause")
    against = comparisons(arms, plain)
    said = cause_tables.glued(findings, cause_decision(arms, plain), kappa_correlations(plain), against)
    assert said["cause.moved"].startswith("shallow, spectral shift: κ × 0.1 [")
    assert "(n = 8), as intended" in said["cause.moved"]
    assert said["cause.gains"].startswith("shallow, spectral shift: +1.00 [")
    assert said["cause.verdict"] == "inconclusive"
    assert said["cause.reason"] == "An arm that is compared lacks declared seeds."
    assert cause_decision({}, plain).reason == "No run of an intervention on the shallow shape is recorded."
    first, second, *_ = cause_tables.compared(against, cause_decision(arms, plain)).to_dict("records")
    assert (first["arm"], second["arm"]) == ("reshape", "shallow, spectral shift")
    assert (first["against reshape [95 %]"], second["p, not worse than deep by δ"]) == ("not measured", "—")
    assert (first["read"], second["read"]) == ("yes", "yes")
    assert second["against deep [95 %]"].startswith("−1.00 [")


def test_an_intervention_that_did_not_move_kappa_gains_nothing_in_words():
    plain = map_cells(plain_records(), "cpu", "map")
    findings = arm_findings(map_cells(cause_records(84.0, kappa=90.0), "cpu", "cause"), plain)
    said = cause_tables.glued(findings, cause_decision({}, plain), [], [])
    assert "not as intended" in said["cause.moved"]
    assert said["cause.gains"] == "No intervention moved κ as intended."
    assert cause_tables.glued([], cause_decision({}, plain), [], [])["cause.gains"] == cause_tables.NOT_YET
    assert cause_tables.accuracies(findings, None).to_dict("records")[0]["read"] == "no, κ not moved as intended"
    against = comparisons(map_cells(cause_records(84.0, kappa=90.0), "cpu", "cause"), plain)
    assert (
        "spectral shift" not in cause_tables.glued(findings, cause_decision({}, plain), [], against)["cause.evidence"]
    )
    assert cause_tables.compared(against, cause_decision({}, plain)).iloc[1]["read"] == "no, κ not moved as intended"
    single = arm_findings(map_cells(cause_records(84.0, kappa=90.0)[:1], "cpu", "cause"), plain)
    assert cause_tables.accuracies(single, None).to_dict("records")[0]["read"] == "not known yet"
    titles = {(f.cell.row, f.cell.depth, f.cell.heads): cause_tables.arm_title(f.cell) for f in findings}
    figure = drawn(cause_figures.interventions(arm_lines(findings, titles)))
    faces = {
        line.get_markerfacecolor()
        for line in figure.axes[1].lines
        if line.get_marker() == "o" and np.size(line.get_xdata())
    }
    assert faces == {"white"}
    assert "shallow, spectral shift" in texts(figure)


def test_a_caption_names_the_plain_shapes_that_are_declared():
    said = cause_tables.plain_shapes_in_words()
    assert said == "Deep: depth 6, heads 8; shallow: depth 3, heads 8; reshape: depth 3, heads 32"


def test_learning_rates_are_one_line_per_rate_and_one_column_per_shape():
    records = [
        one
        for shape, mean in ((DEEP, 80.0), ((3, 32), 79.0))
        for row in ("rate-0.001", "rate-0.0005")
        for one in cell_records(*shape, [mean, mean + 1], "cause", row)
    ]
    arms = map_cells(records, "cpu", "cause")
    lines = cause_tables.rates(rate_findings(arms)).to_dict("records")
    assert [line["learning rate"] for line in lines] == ["0.0005", "0.001", "0.002", "0.004", "0.008"]
    assert lines[0]["deep"] == "80.50 ± 0.71"
    assert (lines[0]["shallow"], lines[0]["n"]) == ("not measured", "0")
    assert lines[0]["shallow − deep [95 %]"] == "not measured"
    assert lines[0]["reshape − deep [95 %]"].startswith("−1.00 [")
    assert "deep: depth 6, heads 8" in texts(drawn(cause_figures.learning_rates(rate_lines(arms))))


def test_correlations_are_written_with_their_interval_and_runs(mapped: Any):
    frame = cause_tables.correlations(kappa_correlations(mapped))
    assert list(frame["given"]) == ["the cell", "depth, heads and parameters", "nothing"] * 2
    assert set(frame["rank correlation with test loss [95 %]"]) == {"not measured"}  # κ is one number in these records
    assert set(frame["runs"]) == {"112"}


# Declarations.


def test_a_declaration_stands_beside_the_commit_that_fixed_it_and_those_of_its_records():
    (one,) = cell_records(6, 8, [80.0])
    lines = declaration(DECLARATIONS["map"], [one]).set_index("declared")["before the first run"]
    assert lines["hypothesis"] == DECLARATIONS["map"].hypothesis
    assert DECLARATIONS["map"].digest in lines["fixed by"]
    assert lines["records"].startswith("1, 1 of them with this digest; made from commit 0123456789")
    assert PROVENANCE["date"][:10] in lines["records"]
    assert declaration(DECLARATIONS["map"], []).set_index("declared")["before the first run"]["records"] == "none yet"
    stale = one | {"plan": one["plan"] | {"declaration": "x"}}
    words = declaration(DECLARATIONS["map"], [one, stale]).set_index("declared")["before the first run"]["records"]
    assert words.startswith("2, 1 of them with this digest")
    dirty = one | {"provenance": one["provenance"] | {"commit": "89abcdef0123+changes"}}
    assert "89abcdef01 with local changes" in str(declaration(DECLARATIONS["map"], [dirty]).iloc[-1, 1])


def test_the_commit_that_fixed_a_declaration_is_the_first_that_holds_its_digest(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    file = tmp_path / "digests.py"
    assert first_commit_with("abc123", file) is None  # outside git no commit is claimed

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()

    git("init", "-q")
    for text in ("nothing", "abc123", "abc123 and more"):
        file.write_text(text)
        git("add", ".")
        git("commit", "-q", "-m", text)
    second = git("rev-parse", "--short", "HEAD~1")
    found = first_commit_with("abc123", file)
    assert found is not None
    assert found.split(" of ")[0] == second
    assert first_commit_with("never", file) is None


# Premises.


def premise(row: str, side: str, inputs: str = "noise", **facts: Any) -> PremiseLine:
    given: dict[str, Any] = {
        "tokens": 196, "width": 512, "heads": 8, "gaussian": 4.24, "kappa": 30.0, "head_correlation": 0.5,
        "head_correlation_independent": 0.25, "isotropy": 0.02,
    }  # fmt: skip
    return PremiseLine(row=row, side=side, inputs=inputs, **given | facts)


LINES = [
    premise("xcit-m", "before"),
    premise("xcit-m", "after", kappa=10.0, heads=16, head_correlation=0.2),
    premise("vit-own", "before", tokens=197, width=768, gaussian=None),
    premise("vit-own", "after", tokens=197, width=768, gaussian=None, kappa=31.0),
    premise("vit-l", "before", tokens=197, width=1024, gaussian=2.56, head_correlation=None),
    premise("xcit-m", "before", "images", isotropy=0.9),
]


def test_the_theorem_table_has_every_published_row_and_says_what_the_record_lacks():
    lines = {line["row"]: line for line in premise_tables.theorem(LINES, load_rows()).to_dict("records")}
    assert {claim.title for claim in load_rows()} < set(lines)
    xcit = lines["XCiT-M"]
    assert (xcit["N"], xcit["D"], xcit["D/N"]) == ("196", "512", "2.6")
    assert (xcit["predicted κ"], xcit["measured κ"]) == ("4.24 → 4.24", "30 → 10")
    assert lines["ViT-B (our own row)"]["measured κ"] == "30 → 31"
    assert lines["DeiT-B"]["measured κ"] == "30 → not in the record"
    assert lines["ViT-L"]["predicted κ"] == "2.56 → not in the record"
    assert lines["GPT-2"]["N"] == "not measured"


def test_premises_are_shown_beside_what_independent_entries_would_give():
    first, second, *_ = premise_tables.premises(LINES, "noise").to_dict("records")
    assert (first["correlation between heads"], first["if independent"], first["isotropy"]) == ("0.50", "0.25", "0.02")
    assert (second["shape"], second["heads"], second["N × D"]) == ("after", "16", "196 × 512")
    said = premise_tables.glued(LINES, [])
    assert said["premises.prediction"].startswith("In 1 of the 1 rows that have a prediction it is the same number")
    assert "lower after the reshape in 1 of 2" in said["premises.prediction"]
    assert said["premises.hold"].startswith("Heads are more alike than independent ones in 4 of 5 shapes and inputs")
    assert "between 0.02 and 0.90" in said["premises.hold"]
    assert said["training.kappa"] == "κ through training is not recorded yet."
    assert "not measured yet" in premise_tables.glued([], [])["premises.hold"]
    assert len(premises_data(LINES)) == 6


def path(depth_arm: Any, heads_arm: Any, kappa: tuple[float, ...], **facts: Any) -> TrainingPath:
    given: dict[str, Any] = {
        "row": "xcit-m", "title": "XCiT-M", "depth": 6, "heads": 1, "effective_rank": [9.0, 8.5, 8.04],
        "numerical_rank": [17.0] * 3, "head_correlation": [None] * 3, "isotropy": [0.5, 0.3, 0.25], "n": 2, "failed": 0,
        "kappa": {"concatenated": kappa, "projected": kappa, "head": kappa},
    }  # fmt: skip
    if "jacobian" in facts:
        given["kappa"] = {"concatenated": kappa, "jacobian": facts.pop("jacobian")}
    return TrainingPath(depth_arm=depth_arm, heads_arm=heads_arm, **given | facts)


def test_paths_through_training_show_both_ends_of_four_objects():
    paths = [
        path("before", "before", (50.0, 40.0, 30.0)),
        path("before", "after", (20.0, math.inf, 35.0), heads=2, jacobian=(200.0, 300.0, 4e5)),
    ]  # fmt: skip
    first, second = premise_tables.through_training(paths).to_dict("records")
    assert (first["concatenated"], first["jacobian"], first["effective rank"]) == (
        "50 → 30",
        "not measured",
        "9.0 → 8.0",
    )
    assert (second["jacobian"], second["numerical rank"], second["isotropy"]) == ("200 → 4.0e5", "17", "0.50 → 0.25")
    said = premise_tables.glued([], paths)["training.kappa"]
    assert said.startswith("At the same depth, the heads after the reshape have the lower κ in 1 of 1 pairs of cells "
                           "before training and in 0 after it (observation, n = 2 per cell)")  # fmt: skip
    ratios = premise_tables.head_ratios(paths).to_dict("records")
    assert ratios == [
        {"row": "XCiT-M", "depth": "6", "heads": "1 → 2", "κ ×, start": "0.40", "κ ×, end": "1.17", "n": "2"}
    ]
    figure = drawn(kappa_by_epoch(paths))
    assert "XCiT-M" in texts(figure)
    ys = [line.get_ydata() for line in figure.axes[0].lines if np.size(line.get_xdata()) == 3]
    assert [list(np.isnan(np.asarray(y, dtype=float))) for y in ys] == [[False] * 3, [False, True, False]]
    assert len(paths_data(paths)) == 9 + 6 + 2 * 4 * 3
    drawn(kappa_by_epoch([]))
