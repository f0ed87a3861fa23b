"""From records to findings: differences against scipy, what counts towards n, which layers a median takes."""

from collections.abc import Callable, Iterable
from dataclasses import replace
from math import inf, sqrt
from pathlib import Path
from statistics import stdev

import pytest
from scipy import stats

from heads_for_depth import records
from heads_for_depth.conditioning.layers import by_kind, upper_median
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import ARMS, VISION_ROWS, Arm, PlannedRun
from heads_for_depth.findings import machine
from heads_for_depth.findings.conditioning import HeadSweep, fold_change, head_sweeps
from heads_for_depth.findings.conditioning_data import kappa_panels, points_data, trained_data, trained_panels
from heads_for_depth.findings.machine import Beside, run_self_check, self_check_runs
from heads_for_depth.findings.vision import Cell, RowFinding, collect_cells, vision_findings
from heads_for_depth.findings.vision_data import (
    SHOWN,
    curve_panels,
    curves_data,
    effects_data,
    interval_lines,
    last_epoch_gain,
    runs_data,
    sampling_error,
    seed_spread,
)
from heads_for_depth.records import Record
from made_up_records import arm, failed, layer, measured, planned, record, table, three_objects, trained

DEEP_FEW, DEEP_MANY = (85.0, 85.3, 85.7), (86.1, 86.15, 86.3)
SHALLOW_FEW, SHALLOW_MANY = (83.2, 83.9, 84.1), (84.0, 85.1, 85.9, 86.2)
"""Accuracies of the four cells of a row: depth before or after, heads before or after."""
WOBBLE = (-0.04, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.04)
"""Eight seeds around a level."""


def square(row: str = "xcit-m") -> list[Record]:
    return [
        *arm(row, "before", "before", DEEP_FEW),
        *arm(row, "before", "after", DEEP_MANY),
        *arm(row, "after", "before", SHALLOW_FEW),
        *arm(row, "after", "after", SHALLOW_MANY),
    ]


def level(points: float, n: int = 8) -> list[float]:
    return [points + w for w in WOBBLE[:n]]


def pair(row: str, baseline: Iterable[float], reshape: Iterable[float]) -> list[Record]:
    return [*arm(row, "before", "before", [*baseline]), *arm(row, "after", "after", [*reshape])]


def found(runs: Iterable[Record], row: str = "xcit-m") -> RowFinding:
    return next(f for f in vision_findings(runs, "cpu") if f.row.name == row)


def cell_of(runs: Iterable[Record], row: str = "xcit-m", depth: Arm = "before", heads: Arm = "before") -> Cell:
    return collect_cells(runs, "cpu")[row, depth, heads]


# --- cells ---


def test_a_cell_holds_its_finished_runs_in_the_order_of_their_seeds() -> None:
    first = trained(planned("xcit-m", "after", "before", 2), 0.81, loss=0.5, curve=[(1.5, 0.25), (1.25, 0.5)])
    second = trained(planned("xcit-m", "after", "before", 0), 0.83, loss=0.4, curve=[(1.0, 0.75)])
    cell = cell_of([first, second], depth="after")
    assert cell.seeds == (0, 2)
    assert cell.accuracy == pytest.approx((83.0, 81.0))
    assert cell.loss == (0.4, 0.5)
    assert cell.curves == (((1.0, 75.0),), ((1.5, 25.0), (1.25, 50.0)))
    assert (cell.train_seconds, cell.learning_rate, cell.failed) == (180.0, 0.002, 0)
    assert cell.mean_accuracy == pytest.approx(82.0)
    assert (cell.shape.depth, cell.shape.d_model, cell.key) == ((3,), (64,), ("xcit-m", "after", "before"))


def test_every_planned_cell_is_there_and_one_without_runs_is_empty() -> None:
    cells = collect_cells(square(), "cpu")
    assert set(cells) == {(row.name, depth, heads) for row in VISION_ROWS for depth in ARMS for heads in ARMS}
    empty = cells["tnt-b", "before", "after"]
    assert (empty.seeds, empty.accuracy, empty.curves, empty.kappa) == ((), (), (), {})
    assert (empty.mean_accuracy, empty.learning_rate, empty.failed, empty.train_seconds) == (None, None, 0, 0)


@pytest.mark.parametrize("status", ["diverged", "out_of_memory"])
def test_a_failed_run_is_counted_and_has_no_accuracy(status: str) -> None:
    cell = cell_of([*arm("xcit-m", "before", "before", (85.0, 86.0)), failed("xcit-m", "before", "before", 2, status)])
    assert (cell.failed, cell.seeds) == (1, (0, 1))


def test_runs_of_one_cell_at_two_learning_rates_have_none_in_common() -> None:
    runs = list(arm("xcit-m", "before", "before", (85.0, 86.0)))
    runs[1]["plan"]["recipe"]["learning_rate"] = 0.004
    assert cell_of(runs).learning_rate is None


def test_a_record_of_a_shape_that_is_not_planned_is_refused() -> None:
    run = planned("xcit-m", "before", "before")
    foreign = trained(replace(run, shape=replace(run.shape, depth=(5,))), 0.85)
    with pytest.raises(
        BadInput, match=r"^record is 'xcit-m\.depth-before\.heads-before\.seed-0': is of no planned cell"
    ):
        collect_cells([foreign], "cpu")


def test_a_record_of_an_unknown_row_is_refused() -> None:
    foreign = trained(replace(planned("xcit-m", "before", "before"), row="xcit-s", run_id="xcit-s.seed-0"), 0.85)
    with pytest.raises(BadInput, match=r"^record is 'xcit-s\.seed-0': is of no planned cell.* another version"):
        vision_findings([foreign], "cpu")


# --- κ of a cell ---


def with_kappa(seed: int, *layers: dict[str, object], row: str = "tnt-b") -> Record:
    tables = {"initial": table(layer(1.0)), "final": table(*layers)}
    return trained(planned(row, "before", "before", seed), 0.85, kappa=tables)


def test_the_median_over_layers_takes_the_concatenated_heads_and_leaves_out_what_is_inside_a_patch() -> None:
    inner = [layer(1e6 + i, f"blocks.{i}.attn_in", kind="inner") for i in range(3)]
    outer = [layer(kappa, f"blocks.{i}.attn_out") for i, kappa in enumerate((30.0, 10.0, 20.0))]
    others = [layer(5e5, object="projected"), layer(5e5, object="head"), layer(5e5, object="jacobian")]
    assert cell_of([with_kappa(0, *inner, *others, *outer)], "tnt-b").kappa == {"initial": 1.0, "final": 20.0}


def test_a_reduced_davit_is_read_in_the_channel_attention_of_its_third_stage() -> None:
    third = [layer(kappa, f"stages.2.blocks.{i}.1.attn", kind="channels") for i, kappa in enumerate((8.0, 6.0, 7.0))]
    others = [
        layer(inf, "stages.2.blocks.0.0.attn", kind="window"),
        layer(1e6, "stages.1.blocks.0.1.attn", kind="channels"),
        layer(1e6, "stages.3.blocks.0.1.attn", kind="channels"),
        layer(1e6, "stages.2.blocks.0.1.attn", kind="channels", object="projected"),
    ]
    tables = {"initial": table(*third), "final": table(*others, *third)}
    run = trained(planned("davit-b", "before", "before"), 0.85, kappa=tables)
    assert cell_of([run], "davit-b").kappa == {"initial": 7.0, "final": 7.0}


@pytest.mark.parametrize(
    ("layers", "expected"), [((4.0, inf), inf), ((inf, 4.0, 2.0), 4.0), ((inf, inf, 4.0), inf), ((2.0, 8.0), 8.0)]
)
def test_an_infinite_layer_stays_infinite_in_the_median(layers: tuple[float, ...], expected: float) -> None:
    assert cell_of([with_kappa(0, *map(layer, layers))], "tnt-b").kappa["final"] == expected


def test_the_median_over_runs_keeps_infinity_too() -> None:
    runs = [with_kappa(seed, layer(kappa)) for seed, kappa in enumerate((20.0, inf, 10.0))]
    assert cell_of(runs, "tnt-b").kappa["final"] == 20.0
    assert cell_of(runs[:2], "tnt-b").kappa["final"] == inf


@pytest.mark.parametrize(
    ("values", "expected"), [([3.0], 3.0), ([5.0, 1.0, 3.0], 3.0), ([4.0, 1.0, 2.0, 3.0], 3.0), ([inf, 1.0], inf)]
)
def test_the_upper_median_is_one_of_its_values(values: list[float], expected: float) -> None:
    assert upper_median(values) == expected


def test_layers_are_grouped_by_kind_object_and_size() -> None:
    windows = [layer(kappa, "w", kind="window", rows=16, gaussian=3.5) for kappa in (6.0, inf, 4.0)]
    wider = layer(2.0, "w", kind="window", rows=16, columns=192)
    more_heads = layer(8.0, object="head", heads=8)
    groups = by_kind(table(*windows, wider, layer(9.0, kind="channels"), layer(8.0, object="head"), more_heads))
    assert [g["heads"] for g in groups] == [4, 4, 4, 4, 8]
    assert [(g["kind"], g["object"], g["rows"], g["columns"], g["layers"]) for g in groups[:4]] == [
        ("window", "concatenated", 16, 96, 3), ("window", "concatenated", 16, 192, 1),
        ("channels", "concatenated", 17, 96, 1), ("tokens", "head", 17, 96, 1),
    ]  # fmt: skip
    assert {key: groups[0][key] for key in ("median", "lowest", "highest", "gaussian")} == {
        "median": 6.0, "lowest": 4.0, "highest": "inf", "gaussian": 3.5,
    }  # fmt: skip


# --- differences and verdicts ---


@pytest.mark.parametrize(
    ("effect", "start", "end"),
    [
        ("reshape", DEEP_FEW, SHALLOW_MANY),
        ("against more heads", DEEP_MANY, SHALLOW_MANY),
        ("more heads, deep", DEEP_FEW, DEEP_MANY),
        ("more heads, shallow", SHALLOW_FEW, SHALLOW_MANY),
        ("less depth, few heads", DEEP_FEW, SHALLOW_FEW),
    ],
)
def test_every_effect_of_the_square_is_the_welch_difference_of_its_two_cells(
    effect: str, start: tuple[float, ...], end: tuple[float, ...]
) -> None:
    difference = found(square()).effects[effect]
    assert difference is not None
    assert difference.difference == pytest.approx(sum(end) / len(end) - sum(start) / len(start))
    interval = difference.interval(0.95)
    reference = stats.ttest_ind(end, start, equal_var=False).confidence_interval(0.95)
    assert (interval.lower, interval.upper) == pytest.approx((reference.low, reference.high))


def test_the_paired_difference_takes_the_seeds_that_both_arms_finished() -> None:
    runs = pair("xcit-m", (85.0, 85.4, 85.1, 86.0), (84.0, 85.5, 85.3, 85.2))
    unfinished = ("xcit-m.depth-after.heads-after.seed-0", "xcit-m.depth-before.heads-before.seed-3")
    kept = [run for run in runs if run["run_id"] not in unfinished]
    paired = found(kept).paired
    assert paired is not None
    assert paired.difference == pytest.approx(((85.5 - 85.4) + (85.3 - 85.1)) / 2)
    assert paired.reshape_n == 2
    interval = paired.interval(0.95)
    reference = stats.ttest_rel((85.5, 85.3), (85.4, 85.1)).confidence_interval(0.95)
    assert (interval.lower, interval.upper) == pytest.approx((reference.low, reference.high))


def test_arms_with_fewer_than_two_runs_have_no_difference() -> None:
    one = found(pair("xcit-m", (85.0,), (84.0, 85.0)))
    assert one.paired is None
    assert set(one.effects.values()) == {None}


def test_a_row_reads_its_baseline_and_reshape_from_the_ends_of_the_square() -> None:
    finding = found(square())
    assert finding.baseline.accuracy == pytest.approx(DEEP_FEW)
    assert finding.reshape.accuracy == pytest.approx(SHALLOW_MANY)
    assert finding.verdict.row == "xcit-m"


def test_no_verdict_is_drawn_at_seven_runs_and_it_is_at_eight() -> None:
    for n in (2, 7):
        verdict = found(pair("xcit-m", level(85, n), level(88, n))).verdict
        assert (verdict.verdict, verdict.reason, verdict.n) == ("inconclusive", f"n = {n} of the declared 8", n)
    assert found(pair("xcit-m", level(85), level(88))).verdict.verdict == "reproduced at reduced scale"


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (0.0, "reproduced at reduced scale"),
        (-0.4, "reproduced at reduced scale"),
        (-0.5, "inconclusive"),
        (-0.6, "not reproduced at reduced scale"),
        (-2.0, "not reproduced at reduced scale"),
    ],
)
def test_the_verdict_turns_at_half_a_point(difference: float, expected: str) -> None:
    # the standard error of two such arms is 0.0146, so a tenth of a point is far even for Holm over six rows
    assert found(pair("tnt-b", level(85), level(85 + difference)), "tnt-b").verdict.verdict == expected


def test_all_rows_enter_the_family_of_holm() -> None:
    # p = 0.02 alone: twice that for the second of two rows, six times that for one of six
    bound = stats.t.ppf(0.98, 14) * sqrt(2) * stdev(WOBBLE) / sqrt(8)
    alone = found(pair("xcit-m", level(85), level(84.5 + bound))).verdict
    assert alone.adjusted_p_non_inferior == pytest.approx(6 * 0.02, rel=1e-3)
    assert alone.verdict == "inconclusive"


def test_a_diverged_run_counts_towards_n_and_stands_in_the_way_of_reproduced() -> None:
    runs = [*pair("xcit-m", level(85), level(88, 7)), failed("xcit-m", "after", "after", 7)]
    verdict = found(runs).verdict
    assert verdict.n == 8
    assert verdict.verdict == "inconclusive"
    assert verdict.reason.startswith("1 of 8 reshape runs diverged")


def test_a_diverged_baseline_run_counts_on_its_own_side() -> None:
    runs = [*pair("xcit-m", level(85, 7), level(85)), failed("xcit-m", "before", "before", 7)]
    assert found(runs).verdict.reason.startswith("1 of 8 baseline runs diverged")


# --- the same as plain data ---


def test_interval_lines_hold_the_shown_effects_with_their_ends_and_gaps() -> None:
    lines = interval_lines(vision_findings(square(), "cpu"))
    assert [line.label for line in lines] == [row.title for row in VISION_ROWS]
    assert lines[1].differences == [None, None, None]
    assert SHOWN == ("reshape", "more heads, deep", "less depth, few heads")
    ends = [(SHALLOW_MANY, DEEP_FEW), (DEEP_MANY, DEEP_FEW), (SHALLOW_FEW, DEEP_FEW)]
    for difference, (end, start) in zip(lines[0].differences, ends, strict=True):
        reference = stats.ttest_ind(end, start, equal_var=False).confidence_interval(0.95)
        middle = sum(end) / len(end) - sum(start) / len(start)
        assert difference == pytest.approx((middle, reference.low, reference.high))


def test_effects_data_has_a_line_per_measured_effect() -> None:
    frame = effects_data(vision_findings(square(), "cpu"))
    assert set(frame["row"]) == {"xcit-m"}
    line = frame.set_index("effect").loc["reshape"]
    reference = stats.ttest_ind(SHALLOW_MANY, DEEP_FEW, equal_var=False).confidence_interval(0.95)
    assert (line["lower"], line["upper"]) == pytest.approx((reference.low, reference.high))
    assert (line["n_from"], line["n_to"], line["confidence"], line["method"]) == (3, 4, 0.95, "welch")
    assert len(effects_data(vision_findings([], "cpu")).columns) == 9


def test_curves_are_kept_per_run_and_told_apart_by_arm() -> None:
    runs = [
        *arm("tnt-b", "before", "before", (85.0,), curve=[(2.0, 0.25), (1.5, 0.5)]),
        *arm("tnt-b", "after", "after", (85.0, 86.0), curve=[(2.5, 0.125), (1.0, 0.375)]),
    ]
    findings = vision_findings(runs, "cpu")
    panel = curve_panels(findings)[1]
    assert (panel.title, panel.arms) == (
        "TNT-B", [("baseline", [[25.0, 50.0]]), ("reshape", [[12.5, 37.5], [12.5, 37.5]])],
    )  # fmt: skip
    data = curves_data(findings)
    assert data.iloc[0].to_dict() == {
        "row": "tnt-b", "depth_arm": "before", "heads_arm": "before", "seed": 0, "epoch": 1,
        "train_loss_nats": 2.0, "validation_accuracy_percent": 25.0,
    }  # fmt: skip
    assert [tuple(line) for line in data[["seed", "epoch", "validation_accuracy_percent"]].to_numpy()] == [
        (0, 1, 25.0), (0, 2, 50.0), (0, 1, 12.5), (0, 2, 37.5), (1, 1, 12.5), (1, 2, 37.5),
    ]  # fmt: skip


def test_runs_data_has_a_line_per_finished_run() -> None:
    runs = [*arm("davit-b", "after", "before", (85.0, 86.0), loss=0.25), failed("davit-b", "after", "before", 2)]
    data = runs_data(vision_findings(runs, "cpu"))
    assert len(data) == 2
    line = data.iloc[1].to_dict()
    assert (line["row"], line["depth_arm"], line["heads_arm"], line["seed"]) == ("davit-b", "after", "before", 1)
    assert (line["depth"], line["heads"]) == ("1-1-5-1", "1-2-4-8")
    assert (line["test_accuracy_percent"], line["test_loss_nats"]) == (pytest.approx(86.0), 0.25)


def test_the_gain_of_the_last_epoch_is_a_median_over_runs_in_points() -> None:
    curves = ([0.5, 0.6, 0.61], [0.5, 0.55], [0.5, 0.75, 0.78])
    runs = [
        trained(planned("vit-own", "before", "before", seed), 0.8, curve=[(1.0, share) for share in curve])
        for seed, curve in enumerate(curves)
    ]
    assert last_epoch_gain(vision_findings(runs, "cpu")) == pytest.approx(3.0)


def test_one_epoch_has_no_gain_and_no_runs_have_no_spread() -> None:
    one = list(arm("vit-own", "before", "before", (85.0,), curve=[(1.0, 0.5)]))
    assert last_epoch_gain(vision_findings(one, "cpu")) is None
    assert seed_spread(vision_findings(one, "cpu")) is None
    assert sampling_error(vision_findings([], "cpu"), 10_000) is None


def test_the_spread_between_seeds_is_pooled_over_cells() -> None:
    # squares around each mean: 2 · 0.5² and 2 · 1², over 1 + 2 degrees of freedom
    runs = pair("vit-own", (85.0, 86.0), (80.0, 81.0, 82.0))
    assert seed_spread(vision_findings(runs, "cpu")) == pytest.approx(sqrt((0.5 + 2.0) / 3))


def test_the_sampling_error_is_binomial_at_the_mean_accuracy() -> None:
    runs = pair("vit-own", (80.0,), (84.0,))
    assert sampling_error(vision_findings(runs, "cpu"), 10_000) == pytest.approx(100 * sqrt(0.82 * 0.18 / 10_000))


# --- κ against head count ---


def sweep_of(runs: Iterable[Record], row: str, regime: str = "fixed-d-model", inputs: str = "noise") -> HeadSweep:
    return head_sweeps(runs)[row, regime, inputs]


def test_points_ascend_by_head_count_and_are_found_by_it() -> None:
    sweep = sweep_of([measured("vit-own", heads, *three_objects(100.0 / heads)) for heads in (12, 2, 1, 24)], "vit-own")
    assert [point.heads for point in sweep.points["concatenated"]] == [1, 2, 12, 24]
    at_two = sweep.at("concatenated", 2)
    assert at_two is not None
    assert at_two.condition_number == 50.0
    assert sweep.at("concatenated", 3) is None
    assert (sweep.row.name, sweep.regime, sweep.inputs) == ("vit-own", "fixed-d-model", "noise")


def test_settings_and_rows_are_kept_apart_and_a_failed_run_has_no_point() -> None:
    runs = [
        measured("vit-own", 12, *three_objects(10.0)),
        measured("vit-own", 12, *three_objects(20.0), regime="fixed-head-dim"),
        measured("vit-own", 12, *three_objects(30.0), inputs="images"),
        measured("tnt-b", 10, *three_objects(40.0)),
        measured("vit-own", 24, status="out_of_memory", kappa={}),
    ]
    sweeps = head_sweeps(runs)
    assert {key: [p.condition_number for p in sweep.points["concatenated"]] for key, sweep in sweeps.items()} == {
        ("vit-own", "fixed-d-model", "noise"): [10.0],
        ("vit-own", "fixed-head-dim", "noise"): [20.0],
        ("vit-own", "fixed-d-model", "images"): [30.0],
        ("tnt-b", "fixed-d-model", "noise"): [40.0],
    }


def test_a_point_is_a_median_over_layers_with_their_range() -> None:
    layers = [
        layer(30.0, "blocks.0.attn", gaussian=3.1, rank_deficient=0.0, effective_rank=5.0, rows=197, columns=768),
        layer(90.0, "blocks.1.attn", gaussian=3.1, rank_deficient=0.5, effective_rank=9.0, rows=197, columns=768),
        layer(10.0, "blocks.2.attn", gaussian=3.1, rank_deficient=0.25, effective_rank=6.0, rows=197, columns=768),
    ]
    point = sweep_of(
        [measured("vit-own", 12, *layers, layer(7.0, object="projected"), layer(3.0, object="head"))], "vit-own"
    ).points["concatenated"][0]
    assert (point.condition_number, point.lowest, point.highest) == (30.0, 10.0, 90.0)
    assert (point.rows, point.columns, point.gaussian) == (197, 768, 3.1)
    assert (point.rank_deficient, point.effective_rank) == (0.5, 6.0)


def test_an_infinite_layer_of_a_point_stays_infinite() -> None:
    layers = [*three_objects(inf), *three_objects(5.0, site="blocks.1.attn")]
    point = sweep_of([measured("vit-own", 12, *layers)], "vit-own").points["concatenated"][0]
    assert (point.condition_number, point.lowest, point.highest) == (inf, 5.0, inf)


def test_each_object_has_its_own_points() -> None:
    points = sweep_of([measured("vit-own", 12, *three_objects(5.0, 6.0, 7.0))], "vit-own").points
    assert {name: [p.condition_number for p in some] for name, some in points.items()} == {
        "concatenated": [5.0], "projected": [6.0], "head": [7.0],
    }  # fmt: skip


def test_davit_is_read_in_the_windows_of_its_third_stage() -> None:
    layers = [
        *three_objects(1e3, site="stages.1.blocks.0.0.attn", kind="window"),
        *three_objects(50.0, site="stages.2.blocks.0.0.attn", kind="window"),
        *three_objects(2e3, site="stages.2.blocks.0.1.attn", kind="channels"),
        *three_objects(70.0, site="stages.2.blocks.8.0.attn", kind="window"),
        *three_objects(60.0, site="stages.2.blocks.1.0.attn", kind="window"),
        *three_objects(4e3, site="stages.3.blocks.0.0.attn", kind="window"),
    ]
    point = sweep_of([measured("davit-b", 4, *layers)], "davit-b").points["concatenated"][0]
    assert (point.condition_number, point.lowest, point.highest) == (60.0, 50.0, 70.0)


def test_tnt_is_read_in_its_patch_tokens_and_xcit_in_its_channels() -> None:
    tnt = [
        *three_objects(1e5, site="blocks.0.attn_in", kind="inner"),
        *three_objects(20.0, site="blocks.0.attn_out"),
    ]
    assert sweep_of([measured("tnt-b", 10, *tnt)], "tnt-b").points["concatenated"][0].highest == 20.0
    xcit = three_objects(30.0, kind="channels")
    assert sweep_of([measured("xcit-m", 8, *xcit)], "xcit-m").points["concatenated"][0].condition_number == 30.0


def test_a_condition_number_of_an_unknown_row_is_refused_with_the_rows_there_are() -> None:
    foreign = measured("vit-own", 12, *three_objects(5.0))
    foreign["plan"]["row"] = "vit-huge"
    with pytest.raises(BadInput, match=r"^row is 'vit-huge': use one of xcit-m, tnt-b"):
        head_sweeps([foreign])


@pytest.mark.parametrize(
    ("before", "after", "expected"), [(8.0, 2.0, 0.25), (2.0, 3.0, 1.5), (inf, 3.0, None), (3.0, inf, None)]
)
def test_a_fold_change_is_after_over_before_where_both_are_finite(
    before: float, after: float, expected: float | None
) -> None:
    assert fold_change(before, after) == expected


def test_panels_come_in_the_order_of_the_rows_with_the_heads_of_the_reshape() -> None:
    gaussian = {"gaussian": 2.5}
    runs = [
        measured("vit-own", 12, *three_objects(inf)),
        measured("xcit-m", 16, *three_objects(9.0, kind="channels")),
        measured("xcit-m", 8, *three_objects(12.0, kind="channels", **gaussian)),
        measured("tnt-b", 10, *three_objects(20.0), inputs="images"),
    ]
    panels = kappa_panels(head_sweeps(runs), "fixed-d-model", "noise")
    assert [(panel.title, panel.used) for panel in panels] == [("XCiT-M", (8, 16)), ("ViT-B, ours", (12, 24))]
    assert (panels[0].heads, panels[0].median, panels[0].gaussian) == ([8, 16], [12.0, 9.0], [2.5, None])
    assert (panels[1].median, panels[1].lowest, panels[1].highest) == ([inf], [inf], [inf])
    assert kappa_panels(head_sweeps(runs), "fixed-d-model", "noise", "head")[0].median == [3.0, 3.0]


def test_points_data_holds_every_object_of_every_point() -> None:
    runs = [measured("vit-own", heads, *three_objects(100.0 / heads)) for heads in (1, 12)]
    data = points_data(head_sweeps(runs))
    assert len(data) == 2 * 3
    lines = data[data["object"] == "concatenated"]
    assert list(lines["heads"]) == [1, 12]
    assert list(lines["condition_number"]) == pytest.approx([100.0, 100 / 12])
    assert set(data["regime"]) == {"fixed-d-model"}
    assert set(zip(data["rows_N"], data["columns_D"], strict=True)) == {(17, 96)}


def test_panels_through_training_hold_the_cells_that_finished() -> None:
    runs = [*pair("davit-b", (85.0,), (85.0,)), failed("davit-b", "before", "after", 0)]
    findings = vision_findings(runs, "cpu")
    (panel,) = trained_panels(findings)
    assert panel.title == "DaViT-B"
    assert panel.cells == [("depth 12, heads 1", 40.0, 20.0), ("depth 8, heads 2", 40.0, 20.0)]
    assert trained_data(findings).to_dict("records")[1] == {
        "row": "DaViT-B", "cell": "depth 8, heads 2", "kappa_start": 40.0, "kappa_end": 20.0,
    }  # fmt: skip


# --- the self-check ---


def beside(**numbers: float | None) -> Beside:
    same: dict[str, float | None] = {"loss": 1.5, "accuracy": 0.5, "kappa": 40.0, "seconds": 2.0}
    both = {f"{name}_{side}": value for name, value in same.items() for side in ("ours", "yours")} | numbers
    return Beside(experiment="vision_rows", run_id="run", **both)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("numbers", "agrees", "identical"),
    [
        ({}, True, True),
        ({"seconds_yours": 99.0}, True, True),
        ({"loss_yours": 1.5 + 1e-12}, True, True),
        ({"loss_yours": 1.5 + 1e-6}, True, False),
        ({"loss_yours": 1.4901}, True, False),
        ({"loss_yours": 1.4899}, False, False),
        ({"loss_yours": 1.5101}, False, False),
        ({"loss_yours": None}, False, False),
        ({"loss_ours": None, "loss_yours": None}, True, True),
        ({"kappa_yours": 40.39}, True, False),
        ({"kappa_yours": 40.41}, False, False),
        ({"kappa_yours": 39.59}, False, False),
        ({"kappa_yours": inf}, False, False),
        ({"kappa_ours": inf}, False, False),
        ({"kappa_ours": inf, "kappa_yours": inf}, True, True),
        ({"kappa_ours": None}, False, False),
        ({"kappa_ours": None, "kappa_yours": None}, True, True),
    ],
)
def test_two_runs_agree_within_the_stated_tolerances(
    numbers: dict[str, float | None], agrees: bool, identical: bool
) -> None:
    line = beside(**numbers)
    assert (line.agrees, line.identical) == (agrees, identical)
    assert machine.all_agree([beside(), line]) is agrees


def test_the_self_check_covers_every_kind_of_run_with_the_tuning_runs_it_rests_on() -> None:
    runs = self_check_runs()
    assert {run.experiment for run in runs} == {"vision_tuning", "vision_rows", "conditioning"}
    assert {run.profile for run in runs} == {"smoke"}
    rested_on = {name for run in runs for name in run.tuned_by}
    assert rested_on == {run.run_id for run in runs if run.experiment == "vision_tuning"}


@pytest.fixture
def two_runs(monkeypatch: pytest.MonkeyPatch) -> list[PlannedRun]:
    """A training run and a κ measurement, in place of the whole self-check."""
    train = planned("vit-own", "before", "before", profile="smoke")
    kappa = replace(train, experiment="conditioning", run_id="vit-own.heads-12", kind="kappa", recipe=None, tuned_by=())
    monkeypatch.setattr(machine, "self_check_runs", lambda: [train, kappa])
    return [train, kappa]


def self_check_records(runs: list[PlannedRun], loss: float, kappa: float) -> list[Record]:
    initial = table(layer(kappa), layer(1e9, object="projected"))
    total = {"total": 3.0, "train": 2.0}
    return [trained(runs[0], 0.25, loss=loss, start=kappa, seconds=total), record(runs[1], kappa={"initial": initial})]


def fake_sweep(made: list[Record]) -> Callable[..., int]:
    def run_all(runs: list[PlannedRun], results: Path, device: str) -> int:
        assert ([run.run_id for run in runs], device) == ([r["run_id"] for r in made], "cpu")
        return len([records.write(one, results) for one in made])

    return run_all


def test_the_self_check_sets_fresh_runs_beside_the_committed_ones(
    two_runs: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for committed in self_check_records(two_runs, loss=2.0, kappa=40.0):
        records.write(committed, tmp_path)
    monkeypatch.setattr(machine, "run_all", fake_sweep(self_check_records(two_runs, loss=2.005, kappa=41.0)))
    train, kappa = run_self_check(tmp_path, "cpu")
    assert (train.loss_ours, train.loss_yours, train.accuracy_ours, train.accuracy_yours) == (2.0, 2.005, 0.25, 0.25)
    assert (train.kappa_ours, train.kappa_yours, train.seconds_ours) == (40.0, 41.0, 3.0)
    assert (kappa.experiment, kappa.run_id) == ("conditioning", "vit-own.heads-12")
    assert (kappa.loss_ours, kappa.accuracy_yours, kappa.kappa_ours, kappa.kappa_yours) == (None, None, 40.0, 41.0)


def test_a_tuning_run_is_compared_by_its_validation_metrics(
    two_runs: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics = {"validation_loss": 1.25, "validation_accuracy": 0.5, "epochs": []}
    tuning = record(replace(two_runs[0], experiment="vision_tuning", run_id="rate-0.001", tuned_by=()), metrics=metrics)
    monkeypatch.setattr(machine, "self_check_runs", lambda: [replace(two_runs[0], experiment="vision_tuning",
                                                                     run_id="rate-0.001", tuned_by=())])  # fmt: skip
    monkeypatch.setattr(machine, "run_all", fake_sweep([tuning]))
    records.write(tuning, tmp_path)
    (line,) = run_self_check(tmp_path, "cpu")
    assert (line.loss_ours, line.accuracy_yours, line.kappa_ours, line.kappa_yours) == (1.25, 0.5, None, None)
    assert line.identical


def test_a_missing_committed_record_is_said_before_anything_is_trained(
    two_runs: list[PlannedRun], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    records.write(self_check_records(two_runs, 2.0, 40.0)[0], tmp_path)
    trainings: list[object] = []
    monkeypatch.setattr(machine, "run_all", lambda *args, **kwargs: trainings.append(args))
    with pytest.raises(BadInput, match=r"^smoke record is .*heads-12\.json': is missing, restore data/results/smoke"):
        run_self_check(tmp_path, "cpu")
    assert trainings == []
