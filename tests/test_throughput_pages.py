"""What the pages on time and parallelism say, from made-up measurements: every cell against arithmetic by hand."""

from dataclasses import fields, replace
from fractions import Fraction
from pathlib import Path
from typing import Any, no_type_check

import numpy as np
import pandas as pd
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text

from heads_for_depth.errors import BadInput
from heads_for_depth.figures import throughput as figures
from heads_for_depth.figures.parallelism import predicted_steps
from heads_for_depth.figures.style import WIDTH_INCHES
from heads_for_depth.findings import parallelism as shared
from heads_for_depth.findings.throughput import heads_panels, saving_panels
from heads_for_depth.parallelism import Assumptions, Layout, Prediction
from heads_for_depth.records import SCHEMA, asks_to_measure, write
from heads_for_depth.tables import parallelism as parallel_tables
from heads_for_depth.tables import parallelism_values, throughput, throughput_sources, throughput_values
from heads_for_depth.throughput.reading import Line, Quantity, Timing

BOX = "Box, 2 cores"


def timing(batch: int, *values: float) -> Timing:
    return Timing(batch=batch, values=values, median=sorted(values)[len(values) // 2])


def line(
    subject: str, times: tuple[float, float, float], parameters: int, series: str = "xcit-m", **facts: Any
) -> Line:
    names: tuple[Quantity, ...] = ("latency", "forward", "training")
    batches = (1, 8, 4)
    timings = {
        name: timing(batch, 0.9 * one, one, 1.1 * one) for name, batch, one in zip(names, batches, times, strict=True)
    }
    numbers: dict[str, Any] = {
        "series": series, "title": {"xcit-m": "XCiT-M", "tnt-b": "TNT-B"}.get(series, "ViT-B"), "kind": "row",
        "subject": subject, "reference": "before", "status": "ok", "parameters": parameters,
        "flops": {"forward": parameters * 200, "training": parameters * 600}, "assumption": "", "machine": BOX,
        "hardware": "box-2-cores", "device": "cpu", "precision": "fp32", "compiled": False, "busy": False,
        "turns": "one run", "heads": 8,
        "head_dim": 64, "timings": timings, "memory": {"forward": 10 * parameters, "training": 40 * parameters},
    }  # fmt: skip
    return Line(**numbers | facts)


BEFORE = line("before", (0.4, 0.2, 1.0), 100_000_000)
AFTER = line("after", (0.2, 0.15, 0.6), 60_000_000)
RECOUNTS = line("recounting", (0.3, 0.18, 0.8), 70_000_000)
PAIR = [BEFORE, AFTER, RECOUNTS]
OTHER = [
    line("before", (0.5, 0.4, 2.0), 50_000_000, "tnt-b"),
    line("after", (0.45, 0.36, 1.2), 40_000_000, "tnt-b", assumption="heads after the reshape doubled"),
]
HEADS = [
    line(f"heads-{heads}", (t, t, t), 80_000_000, "heads-vit-b", kind="heads", reference="heads-12", heads=heads,
         head_dim=768 // heads)
    for heads, t in ((12, 1.0), (1, 0.8), (24, 1.1), (48, 1.2), (96, 1.5), (768, 6.0))
]  # fmt: skip


def cells(table: pd.DataFrame, row: int | str) -> list[str]:
    """The cells of one line."""
    return [str(value) for value in table.loc[row].to_numpy()]


# --- tables ---


def test_a_reshape_stands_beside_its_baseline_with_the_spread_over_rounds() -> None:
    table = throughput.savings(PAIR).set_index("reshape")
    stated = table.loc["XCiT-M"]
    assert stated["parameters"] == "40 %"
    assert stated["latency"] == "50 % [50, 50]"
    assert stated["training"] == "40 % [40, 40]"
    assert table.loc["XCiT-M ‡", "parameters"] == "30 %"


def test_the_spread_is_that_of_the_ratios_within_rounds() -> None:
    uneven = replace(AFTER, timings=AFTER.timings | {"latency": timing(1, 0.18, 0.2, 0.33)})
    table = throughput.savings([BEFORE, uneven])
    assert table.loc[0, "latency"] == "50 % [25, 50]"


def test_a_reshape_that_takes_longer_saves_less_than_nothing() -> None:
    slower = replace(AFTER, timings=AFTER.timings | {"latency": timing(1, 0.45, 0.5, 0.55)})
    assert throughput.savings([BEFORE, slower]).loc[0, "latency"] == "−25 % [−25, −25]"


def test_memory_and_operations_are_shares_of_the_baselines() -> None:
    table = throughput.other_savings(PAIR)
    assert cells(table, 0) == ["XCiT-M", "40 %", "40 %", "40 %", "40 %"]
    unknown = replace(AFTER, memory={"forward": None, "training": None})
    assert throughput.other_savings([BEFORE, unknown]).loc[0, "memory, forward"] == "not measured"


def test_a_shape_without_memory_reads_so_in_every_column() -> None:
    starved = replace(AFTER, status="out_of_memory", timings=dict.fromkeys(AFTER.timings))
    assert cells(throughput.speeds([BEFORE, starved]), 1)[1:] == ["out of memory"] * 3
    assert cells(throughput.savings([BEFORE, starved]), 0)[2:] == ["out of memory"] * 3
    assert throughput_sources.measurements([BEFORE, starved]).loc[0, "out of memory"] == "1"


def test_speeds_are_per_image_and_name_their_batch() -> None:
    table = throughput.speeds([BEFORE])
    assert cells(table, 0) == ["XCiT-M, before", "400 [360, 440]", "5.0 [4.5, 5.6]", "1.0 [0.9, 1.1]"]


def test_sizes_hold_operations_and_what_of_them_is_achieved_per_second() -> None:
    table = throughput.sizes([BEFORE])
    assert cells(table, 0) == ["XCiT-M, before", "100.0", "20.0", "100", "1,000", "4,000"]


def test_an_assumed_shape_carries_a_mark_and_says_what_is_assumed() -> None:
    assert throughput.savings(OTHER).loc[0, "reshape"] == "TNT-B †"
    assert cells(throughput_sources.assumptions(OTHER), 0) == ["TNT-B, after †", "heads after the reshape doubled"]


def test_heads_are_multiples_of_the_published_count_in_ascending_order() -> None:
    table = throughput.heads(HEADS, "heads-vit-b")
    assert table["heads"].tolist() == ["1", "12 *", "24", "48", "96", "768"]
    assert table["head_dim"].tolist() == ["768", "64", "32", "16", "8", "1"]
    assert table["latency"].tolist() == ["0.80", "1", "1.10", "1.20", "1.50", "6.00"]


def test_published_speeds_stand_as_printed_beside_a_gpu_of_ours() -> None:
    table = throughput_sources.literature([]).set_index("baseline")
    assert table.loc["XCiT-M", "RTX 3090, forward"] == "825.94"
    assert table.loc["DaViT-B", "RTX 3090, training"] == "not in timm's files"
    assert set(table["our GPU, forward"]) == {"not measured"}
    ours = replace(BEFORE, device="cuda", precision="bf16", timings=BEFORE.timings | {"forward": timing(64, 0.001)})
    in_fp32 = replace(ours, precision="fp32", timings=BEFORE.timings)
    assert (
        throughput_sources.literature([ours, in_fp32]).set_index("baseline").loc["XCiT-M", "our GPU, forward"]
        == "1,000"
    )


def test_nothing_measured_is_one_line_that_says_so() -> None:
    for table in (throughput.savings([]), throughput.speeds([]), throughput.heads([], "heads-vit-b")):
        assert table.to_numpy().tolist() == [["not measured"]]


def test_a_terminal_gets_one_set_of_tables_per_machine_and_mode() -> None:
    told = throughput.report([*PAIR, *(replace(one, machine="Other") for one in HEADS)])
    assert told.index("Box, 2 cores, fp32, eager") < told.index("Other, fp32, eager")
    assert told.count("reshape") == 1


# --- sentences ---


def test_the_answer_counts_where_time_falls_by_less_than_parameters() -> None:
    told = throughput_values.answer([*PAIR, *OTHER])
    assert told.startswith("2 reshapes save 20 % to 40 % of the parameters. They save ")
    assert (
        "They save 10 % to 50 % of the latency of one image or text (median 30 %), which is less than of the " in told
    )
    assert "parameters in 1 of 2; " in told
    assert (
        "40 % to 40 % of the time of a training step (median 40 %), which is less than of the parameters in 0" in told
    )
    assert "Less means by more than 2 points." in told
    assert told.endswith("observations, without an interval over machines.")


def test_a_quantity_that_no_shape_had_memory_for_is_said_to_be_unmeasured() -> None:
    starved = [replace(one, timings={**one.timings, "training": None}) for one in PAIR]
    assert "of the time of a training step nothing that could be measured" in throughput_values.answer(starved)


def test_other_machines_and_modes_have_a_table_of_their_own() -> None:
    gpu = [replace(one, machine="GPU", device="cuda", precision="bf16") for one in PAIR[:2]]
    table = throughput_sources.elsewhere([*PAIR, *gpu], PAIR)
    assert cells(table, 0)[:4] == ["GPU", "bf16, eager", "XCiT-M", "50 % [50, 50]"]
    assert len(table) == 1


def test_a_gpu_alone_is_what_the_page_is_about() -> None:
    gpu = [replace(one, machine="GPU", device="cuda") for one in PAIR]
    assert throughput_values.shown(gpu) == gpu


def test_the_shape_that_recounts_has_a_sentence_of_its_own_and_is_not_counted_as_stated() -> None:
    told = throughput_values.recounting([*PAIR, *OTHER])
    assert told == "In the shapes that recount, XCiT-M saves 30 % of its parameters and 20 % of a training step's time."


def test_heads_alone_are_told_at_twice_the_published_count_and_at_most() -> None:
    told = throughput_values.heads_alone(HEADS, "heads-vit-b")
    assert "with 24 heads latency is 1.10 and a training step 1.10 times as long" in told
    assert "with 768 heads latency is 6.00" in told
    assert told.endswith("the first count whose training step takes a quarter longer is 96 (head_dim 8).")


def test_the_page_is_about_the_machine_that_measured_most_and_about_float32_and_eager() -> None:
    few = [replace(BEFORE, machine="Small")]
    other_mode = [replace(one, compiled=True) for one in PAIR]
    assert throughput_values.shown([*few, *other_mode, *PAIR]) == PAIR
    assert throughput_values.beside([*few, *other_mode, *PAIR], "fp32, compiled") == other_mode


def test_compiled_models_are_told_as_multiples_of_the_eager_speed() -> None:
    faster = [
        replace(one, compiled=True, timings=one.timings | {"training": timing(4, one.timings["training"].median / 2)})  # type: ignore[union-attr]
        for one in PAIR
    ]
    told = throughput_values.glued([*PAIR, *faster])["throughput.compiled"]
    assert "of the 3 shapes measured runs at 2.00 to 2.00 times the speed of the eager one" in told
    assert "have not been measured" in throughput_values.glued(PAIR)["throughput.compiled"]


def test_models_compiled_on_another_machine_are_shown_with_its_name_and_without_a_speed_over_eager() -> None:
    elsewhere = [replace(one, compiled=True, machine="Other box, 4 cores") for one in PAIR]
    fewer = [replace(BEFORE, compiled=True, machine="Third box")]
    assert throughput_values.beside([*PAIR, *fewer, *elsewhere], "fp32, compiled") == elsewhere
    told = throughput_values.glued([*PAIR, *elsewhere])["throughput.compiled"]
    assert "measured on another machine (Other box, 4 cores)" in told
    assert "of a training step's time the reshapes save 40 % to 40 % there, of the latency 50 % to 50 %" in told
    assert "times the speed" not in told
    both = [*PAIR, *elsewhere, *(replace(one, compiled=True) for one in PAIR)]
    assert {line.machine for line in throughput_values.beside(both, "fp32, compiled")} == {BOX}


def test_every_sentence_is_there_when_nothing_was_measured() -> None:
    assert all(throughput_values.glued([]).values())
    assert all(parallelism_values.glued(shared.pairs()[:1], PREDICTED, []).values())


def test_a_busy_machine_is_said_to_have_been_busy() -> None:
    told = throughput_values.glued([BEFORE, replace(AFTER, busy=True)])["throughput.busy"]
    assert told == "Something else ran on the machine when 1 of 2 measurements began."


# --- parallelism ---


def prediction(seconds: float, speed_up: float, tensor: int = 1, stages: int = 1) -> Prediction:
    layout = Layout(tensor_degree=tensor, pipeline_stages=stages)
    return Prediction(layout=layout, predicted_seconds=seconds, speed_up=speed_up)


PREDICTED = [
    shared.Predicted(
        name="XCiT-M",
        before={1: prediction(0.2, 1.0), 8: prediction(0.05, 4.0, 4, 2), 64: None},
        after={1: prediction(0.1, 1.0), 8: prediction(0.04, 2.5, 8, 1), 64: prediction(0.03, 3.3, 8, 8)},
    )
]
MEASURED = [
    shared.Measured(name="vit-own, before", degree=degree, relative_difference=difference, all_reduces=24,
                    dtype="float32", device="cpu", batch=4,
                    two_a_layer=degree != 4, bytes=2_400_000, seconds=0.5, all_reduce_share=share,
                    oversubscribed=degree > 2, machine="Box")
    for degree, difference, share in ((1, 0.0, None), (2, 3e-7, 0.25), (4, 5e-7, 0.5))
]  # fmt: skip


def test_ceilings_stand_before_and_after_with_the_direction_of_their_product() -> None:
    table = parallel_tables.ceilings(shared.pairs()).set_index("row")
    assert cells(table, "XCiT-M") == ["8 → 16", "24 → 12", "192", "unchanged"]
    assert cells(table, "XCiT-L") == ["16 → 24", "24 → 12", "384 → 288", "lowered"]
    assert table.loc["TNT-B", "ceiling"] == "raised"


def test_a_direction_is_a_word() -> None:
    words = [parallel_tables.direction(Fraction(*parts)) for parts in ((1, 1), (4, 3), (3, 4))]
    assert words == ["unchanged", "raised", "lowered"]


def test_predicted_steps_are_milliseconds_and_gaps_where_there_is_no_layout() -> None:
    table = parallel_tables.predictions(PREDICTED, (1, 8, 64))
    assert cells(table, 0) == ["XCiT-M", "200 → 100", "50 → 40", "— → 30"]
    assert cells(parallel_tables.layouts(PREDICTED, 8), 0) == ["XCiT-M", "4 × 2", "8 × 1", "4.0 → 2.5"]
    assert parallel_tables.layouts(PREDICTED, 64).loc[0, "before"] == "no such layout"


def test_what_was_measured_has_a_line_per_degree_and_marks_processes_that_share_a_core() -> None:
    table = parallel_tables.measured(MEASURED)
    assert table["seconds"].tolist() == ["0.500", "0.500", "0.500 ‡"]
    assert table["all-reduce"].tolist() == ["—", "25 %", "50 %"]
    assert table["MB"].tolist() == ["2.4"] * 3
    assert "machine" not in table
    two = [*MEASURED, replace(MEASURED[0], machine="Intel(R) Other Processor")]
    assert set(parallel_tables.measured(two)["machine"]) == {"Box", "Intel Other"}
    assert table["difference"].tolist() == ["0", "3.0e−7", "5.0e−7"]


def test_the_sentences_on_parallelism_count_what_the_tables_show() -> None:
    told = parallelism_values.glued(shared.pairs(), PREDICTED, MEASURED)
    assert "differ from those of one process by at most 5.0e−7 of the largest logit" in told["parallelism.measured"]
    assert "1 of 2 measurements made exactly two all-reduces a layer" in told["parallelism.measured"]
    assert "0.50 to 0.50 of the baseline's time on one GPU and 0.80 to 0.80 on 8" in told["parallelism.predicted"]
    assert "in 1 of 1 rows the reshape's lead is smaller on 8." in told["parallelism.predicted"]
    nowhere = [replace(PREDICTED[0], name="A", after=PREDICTED[0].after | {8: None}), *PREDICTED]
    assert parallelism_values.steps(nowhere, 8) == parallelism_values.steps(PREDICTED, 8)
    assert parallelism_values.steps(nowhere[:1], 8) == "No row has a layout of exactly 8 GPUs before and after."
    assert "Exactly 64 GPUs can share one copy of 0 of the 1 baselines and of 1 of the" in told["parallelism.layouts"]
    assert "the largest tensor degree is raised in 8" in told["parallelism.answer"]


def test_a_record_of_a_degree_is_read_back(tmp_path: Path) -> None:
    record = {
        "schema": SCHEMA, "run_id": "vit-own.after.degree-2.float32.cpu.box", "experiment": "tensor_parallel",
        "profile": "cpu", "status": "ok", "parameters": 5,
        "plan": {"row": "vit-own", "arm": "after", "degree": 2, "batch": 4, "reduced": False, "shape": {"depth": [6]}},
        "metrics": {"relative_difference": 2e-7, "all_reduces": 12, "bytes": 100, "communication_share": 0.1,
                    "oversubscribed": False, "other_collectives": 0, "dtype": "float32", "device": "cpu"},
        "kappa": {}, "seconds": {"total": 3.0, "forward_seconds": {"values": [1.0], "median": 1.0}},
        "provenance": {"machine": {"processor": "Box"}},
    }  # fmt: skip
    write(record, tmp_path)
    (found,) = shared.measured(tmp_path, ["cpu", "gpu"])
    assert (found.name, found.degree, found.seconds, found.all_reduce_share) == ("ViT-B, after", 2, 1.0, 0.1)
    assert found.two_a_layer


def test_the_assumptions_are_written_in_the_units_of_data_sheets() -> None:
    table = parallel_tables.assumptions(Assumptions()).set_index("assumption")["value"]
    assert table["peak of one GPU (TFLOP/s)"] == "312"
    assert table["latency of one collective (µs)"] == "20"


def test_a_notebook_measures_where_there_is_nothing_or_where_it_is_told_to(tmp_path: Path) -> None:
    assert asks_to_measure("where none", tmp_path, "cpu", "tensor_parallel")
    assert not asks_to_measure("never", tmp_path, "cpu", "tensor_parallel")
    test_a_record_of_a_degree_is_read_back(tmp_path)
    assert not asks_to_measure("where none", tmp_path, "cpu", "tensor_parallel")
    assert asks_to_measure("where none", tmp_path, "gpu", "tensor_parallel")
    assert asks_to_measure("here", tmp_path, "cpu", "tensor_parallel")
    with pytest.raises(BadInput, match="measure is 'sometimes': use one of where none, here, never"):
        asks_to_measure("sometimes", tmp_path, "cpu", "tensor_parallel")


@pytest.mark.parametrize(
    ("field", "value", "says"),
    [
        ("gpus_per_node", "abc", "must be a whole number"), ("batch", 2.5, "must be a whole number"),
        ("micro_batches", True, "must be a whole number"), ("node_bandwidth", float("inf"), "must be a finite number"),
        ("utilisation", "half", "must be a finite number"),
    ],
)  # fmt: skip
def test_an_assumption_of_another_type_is_refused(field: str, value: Any, says: str) -> None:
    with pytest.raises(BadInput, match=says):
        _unchecked(**{field: value})


@no_type_check
def _unchecked(**values: Any) -> Assumptions:
    made = object.__new__(Assumptions)
    for field in fields(Assumptions):
        object.__setattr__(made, field.name, values.get(field.name, field.default))
    made.__post_init__()
    return made


# --- figures ---


def drawn(figure: Figure) -> Figure:
    FigureCanvasAgg(figure).draw()
    return figure


FIGURES = {
    "savings": lambda: figures.savings(saving_panels([*PAIR, *OTHER])),
    "heads": lambda: figures.heads_alone(heads_panels(HEADS)),
    "predicted": lambda: predicted_steps(PREDICTED),
    "no savings": lambda: figures.savings(saving_panels([])),
    "no heads": lambda: figures.heads_alone(heads_panels([])),
}


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_is_as_wide_as_a_phone_shows_and_its_text_stays_readable(name: str) -> None:
    figure = drawn(FIGURES[name]())
    assert figure.get_figwidth() == WIDTH_INCHES
    texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
    assert texts
    assert min(float(text.get_fontsize()) for text in texts) >= 9


def test_every_reshape_is_a_point_and_the_line_of_equality_is_drawn() -> None:
    figure = drawn(FIGURES["savings"]())
    first = figure.axes[0]
    singles = [line.get_xydata()[0].tolist() for line in first.lines if len(line.get_xydata()) == 1]  # type: ignore[arg-type, index, union-attr]
    assert sorted(map(tuple, np.round(singles, 6).tolist())) == [(20.0, 10.0), (30.0, 25.0), (40.0, 50.0)]
    assert any(np.array_equal(line.get_xydata(), [[0, 0], [100, 100]]) for line in first.lines)


def test_labels_of_points_do_not_overlap() -> None:
    many = [line("before", (1.0, 1.0, 1.0), 100)]
    lines = [*many, *(line("after", (0.5 + i / 1000, 0.5, 0.5), 60, "xcit-m", machine=f"m{i}") for i in range(8))]
    lines += [replace(many[0], machine=f"m{i}") for i in range(8)]
    figure = drawn(figures.savings(saving_panels(lines)))
    for axes in figure.axes:
        heights = sorted(text.get_position()[1] for text in axes.texts)
        low, high = axes.get_ylim()
        assert min(np.diff(heights)) > 0.08 * (high - low)
        assert low < heights[0]
        assert heights[-1] < high


def test_the_published_head_count_is_one_on_every_line_and_marked() -> None:
    figure = drawn(FIGURES["heads"]())
    (axes,) = figure.axes
    long = [line for line in axes.lines if len(line.get_xdata()) == len(HEADS)]  # type: ignore[arg-type]
    assert len(long) == 3
    for one in long:
        points = dict(zip(*map(np.ndarray.tolist, map(np.asarray, one.get_data())), strict=True))
        assert points[12] == 1.0
        assert points[768] == 6.0
    assert any(list(line.get_xdata()) == [12, 12] for line in axes.lines)  # type: ignore[arg-type]


def test_a_prediction_is_drawn_where_a_layout_exists_and_relative_to_the_baseline_on_one_gpu() -> None:
    figure = drawn(FIGURES["predicted"]())
    lines = [np.asarray(line.get_xydata()).tolist() for line in figure.axes[0].lines if line.get_marker() in ("o", "s")]
    assert lines[0] == [[1, 1.0], [8, 4.0]]
    assert lines[1] == [[1, 2.0], [8, 5.0], [64, pytest.approx(0.2 / 0.03)]]
