"""Tables: every cell against arithmetic by hand, and what is missing written as missing."""

from collections.abc import Iterable
from dataclasses import replace
from math import inf, nan, sqrt
from typing import Any

import pandas as pd
import pytest
from scipy import stats

from heads_for_depth.claims import Claim, Printed
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import Arm, plan
from heads_for_depth.findings.cause import cause_decision
from heads_for_depth.findings.conditioning import HeadSweep, Setting, head_sweeps
from heads_for_depth.findings.machine import Beside
from heads_for_depth.findings.vision import RowFinding, vision_findings
from heads_for_depth.recipes import Budget, Recipe, budget
from heads_for_depth.records import Record
from heads_for_depth.recount import RowRecount, SideRecount
from heads_for_depth.recount.stated import Side, StatedSide
from heads_for_depth.shapes import Shape
from heads_for_depth.statistics import welch_difference
from heads_for_depth.tables import conditioning, formatting, machine, provenance, verdicts, vision, vision_values
from made_up_records import PROVENANCE, arm, failed, measured, planned, record, three_objects, trained

WOBBLE = (-0.04, -0.03, -0.02, -0.01, 0.01, 0.02, 0.03, 0.04)
"""Eight seeds around a level."""
CLAIM = Claim(
    row="xcit-m", family="xcit", title="XCiT-M", status="clean", depth_before=(24,), depth_after=(12,),
    heads_before=(8,), heads_after=(16,), d_model=(512,), mlp_width_before=(2048,), mlp_width_after=(2048,),
    score_before=Printed(text="81.4"), score_after=Printed(text="81.7"),
    params_before_m=Printed(text="84.4"), params_after_m=Printed(text="59.0"),
)  # fmt: skip


def pair(row: str, baseline: Iterable[float], reshape: Iterable[float], **numbers: float) -> list[Record]:
    both = [*arm(row, "before", "before", [*baseline], **numbers)]
    return [*both, *arm(row, "after", "after", [*reshape], **numbers)]


def level(points: float, n: int = 8) -> list[float]:
    return [points + w for w in WOBBLE[:n]]


def findings_of(runs: Iterable[Record]) -> list[RowFinding]:
    return vision_findings(runs, "cpu")


def line_of(frame: pd.DataFrame, row: str = "XCiT-M") -> dict[str, str]:
    lines = frame[frame["row"] == row].to_dict("records")
    assert len(lines) == 1, f"one line for {row}"
    return {str(name): value for name, value in lines[0].items()}


def vit_parameters(shape: Shape) -> int:
    """Patches, class token, positions, blocks (two norms, qkv, projection, MLP), last norm, classifier."""
    d, mlp, tokens = shape.d_model[0], shape.mlp_width[0], (shape.image_size // shape.patch_size) ** 2 + 1
    block = 4 * d + (3 * d * d + 3 * d) + (d * d + d) + (d * mlp + mlp) + (mlp * d + d)
    ends = shape.in_chans * shape.patch_size**2 * d + d + d + tokens * d + 2 * d + d * shape.classes + shape.classes
    return ends + shape.depth[0] * block


# --- how numbers are written ---


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (None, "not measured"),
        (inf, "inf"),
        (1.0, "1"),
        (3.14159, "3.14"),
        (12.34, "12.3"),
        (99.94, "99.9"),
        (123.4, "123"),
        (1234.6, "1,235"),
        (9999.0, "9,999"),
        (10_000.0, "1.0e4"),
        (12_345.0, "1.2e4"),
        (9.87e12, "9.9e12"),
        (1e100, "1.0e100"),
    ],
)
def test_a_condition_number_is_written_short(value: float | None, written: str) -> None:
    assert vision.kappa(value) == written


def test_a_difference_is_written_with_its_signs_and_its_interval() -> None:
    # means 85 and 86; variances 2 and 2 over 2 runs each: standard error √2, 2 degrees of freedom, t = 4.3027
    reach = 4.302653 * sqrt(2)
    assert (
        vision.with_interval(welch_difference((84.0, 86.0), (85.0, 87.0)))
        == f"+1.00 [−{reach - 1:.2f}, +{1 + reach:.2f}]"
    )
    assert (
        vision.with_interval(welch_difference((85.0, 87.0), (84.0, 86.0)), 1)
        == f"−1.0 [−{1 + reach:.1f}, +{reach - 1:.1f}]"
    )
    assert vision.with_interval(None) == "not measured"


def test_seeds_without_spread_have_an_unbounded_interval() -> None:
    assert vision.with_interval(welch_difference((10.0, 10.0), (10.0, 10.0))) == "0.00 [−inf, +inf]"


@pytest.mark.parametrize(
    ("values", "written"),
    [((), "not measured"), ((84.0,), "84.00"), ((84.0, 86.0), "85.00 ± 1.41"), ((84.0, 85.0, 86.0), "85.00 ± 1.00")],
)
def test_a_mean_over_seeds_has_their_standard_deviation(values: tuple[float, ...], written: str) -> None:
    assert vision.mean_and_spread(values) == written


@pytest.mark.parametrize(
    ("number", "decimals", "written"),
    [(0.31, 1, "+0.3"), (-0.31, 1, "−0.3"), (-0.04, 1, "0.0"), (0.04, 1, "0.0"), (0.04, 2, "+0.04"), (-12.0, 0, "−12")],
)
def test_a_signed_number_that_rounds_to_zero_has_no_sign(number: float, decimals: int, written: str) -> None:
    assert formatting.signed(number, decimals) == written


def test_numbers_are_written_with_their_unit_and_gaps_as_gaps() -> None:
    assert (formatting.millions(84_400_123), formatting.millions(84_400_123, 4)) == ("84.40", "84.4001")
    assert (formatting.percent(0.3009), formatting.signed_percent(-0.3009)) == ("30.1 %", "−30.1 %")
    assert (formatting.signed_percent(0.0004), formatting.whole(1_234_567)) == ("0.0 %", "1,234,567")
    assert {formatting.millions(None), formatting.percent(None), formatting.signed_percent(None)} == {"—"}
    assert (formatting.stages((1, 1, 9, 1)), formatting.stages(None)) == ("1, 1, 9, 1", "not in the record")
    assert (formatting.change("8", "16"), formatting.change("8", "8")) == ("8 → 16", "8")


@pytest.mark.parametrize(
    ("number", "written"), [(0.0123, "0.012"), (1.26, "1.3"), (12.6, "13"), (1260.0, "1260"), (inf, "not defined"),
                            (nan, "not defined")],
)  # fmt: skip
def test_two_digits_are_written_out(number: float, written: str) -> None:
    assert formatting.two_digits(number) == written


# --- vision rows ---


def test_a_row_stands_beside_its_claim() -> None:
    runs = pair("xcit-m", (84.0, 86.0), (85.0, 87.0), start=1234.0, end=12.0)
    line = line_of(vision.against_the_claim(findings_of(runs), {"xcit-m": CLAIM}))
    reach = 4.302653 * sqrt(2)
    assert line["published Top-1"] == "81.4 → 81.7 (+0.3)"
    assert line["ours, test accuracy"] == "85.00 → 86.00"
    assert line["difference [95 %]"] == f"+1.00 [−{reach - 1:.2f}, +{1 + reach:.2f}]"
    assert (line["n"], line["verdict"]) == ("2", "inconclusive")
    assert line["parameters, published"] == "−30.1 %"  # 59.0 / 84.4 = 0.69905
    assert (line["κ start"], line["κ end"]) == ("1,234", "12")


def test_the_saving_of_our_own_row_is_that_of_three_blocks_of_six() -> None:
    findings = findings_of(pair("vit-own", level(85), level(88)))
    before, after = (vit_parameters(planned("vit-own", end, end).shape) for end in ("before", "after"))
    line = line_of(vision.against_the_claim(findings, {}), "ViT-B (our own row)")
    assert line["parameters, ours"] == f"−{100 * (1 - after / before):.1f} %"
    assert (line["published Top-1"], line["parameters, published"]) == ("our own row", "our own row")
    assert (line["n"], line["verdict"]) == ("8", "reproduced at reduced scale")
    cells = vision.cells(findings)
    parameters = cells[cells["row"] == "ViT-B (our own row)"]["parameters"]
    assert list(parameters) == [f"{count:,}" for count in (before, before, after, after)]


def test_a_claim_without_numbers_reads_not_in_the_record() -> None:
    bare = replace(CLAIM, score_after=None, params_before_m=None)
    assert vision.published_change(bare) == "not in the record"
    assert vision.published_saving(bare) == "not in the record"
    assert vision.published_change(replace(CLAIM, score_after=Printed(text="81.4"))) == "81.4 → 81.4 (0.0)"


def test_a_row_without_runs_reads_not_measured() -> None:
    line = line_of(vision.against_the_claim(findings_of([]), {"tnt-b": CLAIM}), "TNT-B")
    measured_columns = ("ours, test accuracy", "difference [95 %]", "κ start", "κ end")
    assert {line[name] for name in measured_columns} == {"not measured"}
    assert (line["n"], line["verdict"]) == ("0", "inconclusive")


def test_a_cell_counts_its_failed_runs_and_shows_its_spread() -> None:
    runs = [*arm("davit-b", "after", "before", (84.0, 86.0), loss=0.4567), failed("davit-b", "after", "before", 2)]
    frame = vision.cells(findings_of(runs))
    assert len(frame) == 6 * 4
    line = frame[(frame["row"] == "DaViT-B") & (frame["depth"] == "1, 1, 5, 1")].iloc[0].to_dict()
    shape = {"depth": "1, 1, 5, 1", "heads": "1, 2, 4, 8", "head_dim": "16"}
    assert {name: line[name] for name in shape} == shape
    numbers = {"test accuracy": "85.00 ± 1.41", "test loss": "0.457", "n": "3", "failed": "1", "learning rate": "0.002"}
    assert {name: line[name] for name in numbers} == numbers


def test_an_empty_cell_has_no_learning_rate_and_a_cell_with_two_is_mixed() -> None:
    runs = list(arm("xcit-m", "before", "before", (85.0, 86.0)))
    runs[1]["plan"]["recipe"]["learning_rate"] = 0.004
    rates = list(vision.cells(findings_of(runs))["learning rate"])
    assert rates[0] == "mixed"
    assert set(rates[1:]) == {"not measured"}


def test_the_steps_of_the_square_stand_under_their_titles() -> None:
    runs = [
        *arm("xcit-m", "before", "before", (85.0, 85.2)),
        *arm("xcit-m", "before", "after", (86.0, 86.2)),
        *arm("xcit-m", "after", "before", (83.0, 83.2)),
        *arm("xcit-m", "after", "after", (84.5, 84.7)),
    ]
    line = line_of(vision.effects(findings_of(runs)))
    middles = {name: text.split(" [")[0] for name, text in line.items()}
    assert middles == {
        "row": "XCiT-M",
        "reshape against baseline": "−0.50",
        "reshape against the deep shape with more heads": "−1.50",
        "more heads at the old depth": "+1.00",
        "more heads at the new depth": "+1.50",
        "less depth with the old heads": "−2.00",
        "n": "2",
    }
    assert vision.shown_effects() == [
        "reshape against baseline",
        "more heads at the old depth",
        "less depth with the old heads",
    ]


def test_the_tests_behind_a_verdict_are_written_out() -> None:
    baseline, reshape = level(85), [84.9 + w for w in WOBBLE]
    line = line_of(vision.tests(findings_of(pair("xcit-m", baseline, reshape))))
    error = sqrt(2 * sum(w * w for w in WOBBLE) / 7 / 8)
    lower = -0.1 - float(stats.t.ppf(0.95, 14)) * error
    smallest = 0.1 + float(stats.t.ppf(1 - 0.05 / 6, 14)) * error
    assert line["one-sided lower end"] == f"−{-lower:.2f}"
    assert line["smallest δ that holds"] == f"{smallest:.2f}"
    assert (line["p, not worse by δ"], line["p, worse by δ"]) == ("< 0.001", "1.000")
    assert line["paired [95 %]"] == "−0.10 [−inf, +inf]"
    assert line["reason"].startswith("the reshape holds the baseline's level")


def test_a_row_without_tests_says_so() -> None:
    line = line_of(vision.tests(findings_of([])))
    assert line.pop("reason") == "n = 0 of the declared 8"
    assert line.pop("row") == "XCiT-M"
    assert set(line.values()) == {"not measured"}


def test_shapes_stand_beside_their_reductions() -> None:
    frame = vision.shapes(findings_of([]))
    xcit = line_of(frame)
    assert (xcit["published depth"], xcit["ours"]) == ("24 → 12", "6 → 3")
    assert (xcit["published heads"], xcit["ours "]) == ("8 → 16", "1 → 2")
    assert (xcit["d_model"], xcit["head_dim published"], xcit["head_dim ours"]) == ("512 → 64", "64 → 32", "64 → 32")
    assert xcit["parameters (M)"].startswith("84.4 ⇒ ")
    davit = line_of(frame, "DaViT-B")
    assert davit["published heads"] == "4, 8, 16, 32 → 8, 16, 32, 64 (doubling assumed)"
    own = line_of(frame, "ViT-B (our own row)")["parameters (M)"]
    assert own == f"86.6 ⇒ {vit_parameters(planned('vit-own', 'before', 'before').shape) / 1e6:.2f}"


def test_glued_values_count_the_verdicts_of_the_published_rows() -> None:
    runs = [
        *pair("xcit-m", level(85), level(86)),
        *pair("tnt-b", level(85), level(83)),
        *pair("vit-own", level(85), level(86)),
        failed("xcit-l", "before", "before", 0),
    ]
    values = vision_values.glued(findings_of(runs), BUDGET)
    names = ("reproduced_at_reduced_scale", "not_reproduced_at_reduced_scale", "inconclusive", "not_testable_here")
    counts = {name: values[f"vision.count.{name}"] for name in names}
    assert list(counts.values()) == ["1", "1", "3", "0"]
    assert (values["vision.rows"], values["vision.runs"], values["vision.n"]) == ("5", "49", "0 to 8")
    assert values["vision.core_hours"] == f"{48 * 90 / 3600:.2f}"
    assert values["vision.last_epoch_gain"] == "10.00"
    assert values["vision.pooled_sd"] == f"{sqrt(sum(w * w for w in WOBBLE) / 7):.2f}"
    # mean accuracy 85: the six arms lie at 85, 86, 85, 83, 85, 86
    assert values["vision.sampling_error"] == f"{sqrt(85 * 15 / 2_000):.2f}"
    assert values["vision.xcit-m.difference"].startswith("+1.00 [")
    assert (values["vision.xcit-m.n"], values["vision.xcit-l.difference"]) == ("8", "not measured")
    assert values["vision.tnt-b.verdict"] == "not reproduced at reduced scale"
    assert values["vision.vit-own.accuracy_after"].startswith("86.00 ± 0.0")


def test_the_answer_counts_verdicts_and_says_when_too_few_seeds_leave_it_open() -> None:
    few = pair("xcit-m", level(85)[:3], level(86)[:3])
    answer = vision_values.glued(findings_of(few), BUDGET)["vision.answer"]
    assert answer == (
        "0 of 5 published rows read “reproduced at reduced scale”, 0 “not reproduced at reduced scale”, 5 "
        "“inconclusive”. A verdict needs 8 seeds in both arms; 6 of 6 rows, our own among them, have fewer, so the "
        "question is open there."
    )
    rows = ("xcit-m", "tnt-b", "davit-b", "xcit-l", "davit-l", "vit-own")
    full = [one for row in rows for one in pair(row, level(85), level(85))]
    answer = vision_values.glued(findings_of(full), BUDGET)["vision.answer"]
    assert answer.startswith("5 of 5 published rows read “reproduced at reduced scale”")
    assert "open" not in answer


def test_glued_values_of_no_runs_read_not_measured() -> None:
    values = vision_values.glued(findings_of([]), BUDGET)
    names = ("sampling_error", "pooled_sd", "last_epoch_gain", "xcit-m.difference", "xcit-m.accuracy_before")
    assert {values[f"vision.{name}"] for name in names} == {"not measured"}
    assert (values["vision.core_hours"], values["vision.runs"], values["vision.n"]) == ("0.00", "0", "0")


BUDGET = Budget(
    recipe=Recipe(train_images=24_050, epochs=3, batch_size=64, learning_rate=None, evaluation_images=2_000),
    tuning=Recipe(train_images=1_500, epochs=2, batch_size=64, learning_rate=None),
    learning_rates=(5e-4, 2e-3),
    seeds=3,
    declared_seeds=8,
    map=budget("smoke").map,
)


def test_the_protocol_is_written_from_the_budget() -> None:
    values = vision_values.protocol(BUDGET)
    assert values["protocol.steps"] == "1,125"  # 375 whole batches of 64 in 24,050 images, three times
    assert (values["protocol.train_images"], values["protocol.tuning_images"]) == ("24,050", "3,000")
    assert (values["protocol.learning_rates"], values["protocol.test_images"]) == ("0.0005, 0.002", "2,000")
    assert (values["protocol.seeds"], values["protocol.declared_seeds"]) == ("3", "8")
    assert (values["protocol.margin_accuracy"], values["protocol.margin_loss"]) == ("0.5", "0.02")


# --- condition numbers ---


def vit_sweep(*heads_and_kappas: tuple[int, float], **facts: float | None) -> dict[Setting, HeadSweep]:
    size: dict[str, Any] = {"rows": 197, "columns": 768, "gaussian": 3.06, "effective_rank": 120.4} | facts
    return head_sweeps(measured("vit-own", heads, *three_objects(value, **size)) for heads, value in heads_and_kappas)


def movement_of(sweeps: dict[Setting, HeadSweep]) -> dict[str, str]:
    return line_of(conditioning.movement(sweeps, "fixed-d-model", "noise"), "ViT-B (our own row)")


def test_the_movement_of_kappa_is_written_over_the_heads_of_the_row() -> None:
    sweeps = vit_sweep((1, 2000.0), (2, 500.0), (12, 80.0), (24, 60.0), (768, 40.0))
    assert movement_of(sweeps) == {
        "row": "ViT-B (our own row)",
        "N × D": "197 × 768",
        "Gaussian": "3.06",
        "heads": "12 → 24",
        "κ": "80 → 60",
        "× in the row's range": "0.75",
        "κ at 1 head": "2,000",
        "× from 1 to 2": "0.25",
        "× from 1 to most": "0.02",
    }
    assert conditioning.range_ratio(sweeps["vit-own", "fixed-d-model", "noise"]) == "0.75"


def test_a_width_that_grows_with_the_heads_is_written_as_a_range() -> None:
    runs = [
        measured("vit-own", heads, *three_objects(9.0, rows=197, columns=64 * heads), regime="fixed-head-dim")
        for heads in (1, 24)
    ]
    frame = conditioning.movement(head_sweeps(runs), "fixed-head-dim", "noise")
    assert line_of(frame, "ViT-B (our own row)")["N × D"] == "197 × 64–1536"


def test_head_counts_that_were_not_measured_are_said_and_not_replaced() -> None:
    line = movement_of(vit_sweep((2, 500.0), (12, 80.0), gaussian=None))
    assert {
        line[name] for name in ("κ", "× in the row's range", "κ at 1 head", "× from 1 to 2", "× from 1 to most")
    } == {"not measured"}
    assert line["Gaussian"] == "—"
    assert movement_of(vit_sweep((2, 500.0)))["Gaussian"] == "not measured"


def test_an_infinite_kappa_is_written_as_such_and_has_no_factor() -> None:
    line = movement_of(vit_sweep((1, inf), (2, 4e15), (12, inf), (24, 60.0), (768, 1e12)))
    assert (line["κ"], line["κ at 1 head"]) == ("inf → 60", "inf")
    assert (line["× in the row's range"], line["× from 1 to 2"], line["× from 1 to most"]) == ("not finite",) * 3


def test_a_factor_below_a_hundredth_is_written_as_a_power_of_ten() -> None:
    assert movement_of(vit_sweep((1, 1e6), (2, 500.0)))["× from 1 to 2"] == "5.0e−4"


def test_only_rows_with_records_in_the_setting_have_a_line() -> None:
    sweeps = vit_sweep((1, 5.0))
    assert conditioning.movement(sweeps, "fixed-d-model", "images").empty
    assert conditioning.range_ratio(None) == "not measured"


def test_three_objects_stand_beside_the_effective_rank() -> None:
    frame = conditioning.objects(vit_sweep((12, 80.0), (24, 60.0)))
    assert frame.to_dict("records") == [
        {
            "row": "ViT-B (our own row)",
            "heads": "12",
            "concatenated": "80",
            "projected": "7",
            "head": "3",
            "effective rank": "120",
            "of": "197",
        }
    ]
    assert conditioning.objects(vit_sweep((24, 60.0))).empty


def test_kappa_before_and_after_training_has_a_line_per_cell() -> None:
    runs = [
        trained(planned("tnt-b", "before", "after", seed), 0.85, start=1000.0, end=end)
        for seed, end in enumerate((10.0, 30.0, inf))
    ]
    frame = conditioning.trained(findings_of(runs))
    assert len(frame) == 6 * 4
    line = frame[(frame["row"] == "TNT-B") & (frame["n"] == "3")].iloc[0].to_dict()
    assert line == {"row": "TNT-B", "depth": "3", "heads": "8", "κ start": "1,000", "κ end": "30", "n": "3"}
    assert set(frame[frame["row"] == "XCiT-L"]["κ end"]) == {"not measured"}


def test_glued_values_name_the_row_the_regime_and_the_input() -> None:
    ends = {"start": 50.0, "end": 5.0}
    runs = [
        *arm("xcit-l", "before", "before", (85.0,), **ends),
        *arm("xcit-l", "after", "after", (85.0,), **ends | {"end": inf}),
    ]
    sweeps = vit_sweep((1, 2000.0), (2, 500.0), (12, 80.0), (24, 60.0))
    values = conditioning.glued(sweeps, findings_of(runs))
    key = "kappa.vit-own.fixed-d-model.noise"
    assert {name: values[f"{key}.{name}"] for name in ("range", "ratio", "one_to_two", "gaussian")} == {
        "range": "80 → 60", "ratio": "0.75", "one_to_two": "0.25", "gaussian": "3.06",
    }  # fmt: skip
    assert (values["kappa.xcit-l.trained.initial"], values["kappa.xcit-l.trained.final"]) == ("50", "5 → inf")
    assert values["kappa.xcit-m.trained.final"] == "not measured"
    unmeasured = ("tnt-b.fixed-d-model.noise", "vit-own.fixed-head-dim.noise", "vit-own.fixed-d-model.images")
    assert {values[f"kappa.{setting}.{name}"] for setting in unmeasured for name in ("range", "ratio", "gaussian")} == {
        "not measured"
    }


# --- this machine ---


def beside(**numbers: float | None) -> Beside:
    same: dict[str, float | None] = {"loss": 1.5, "accuracy": 0.5, "kappa": 40.0, "seconds": 2.0}
    both = {f"{name}_{side}": value for name, value in same.items() for side in ("ours", "yours")} | numbers
    return Beside(experiment="vision_rows", run_id="run", **both)  # type: ignore[arg-type]


def test_two_runs_that_print_alike_are_written_once() -> None:
    assert machine.beside([beside()]).to_dict("records") == [
        {
            "experiment": "vision_rows",
            "run": "run",
            "loss": "1.5000",
            "accuracy (%)": "50.0",
            "κ at start": "40",
            "seconds": "2.0 → 2.0",
            "result": "identical",
        }
    ]


@pytest.mark.parametrize(
    ("numbers", "cells"),
    [
        ({"loss_yours": 1.504}, {"loss": "1.5000 → 1.5040", "result": "agrees"}),
        ({"kappa_yours": 40.3}, {"κ at start": "40 → 40.3", "result": "agrees"}),
        ({"accuracy_yours": 0.75, "loss_yours": 2.0}, {"accuracy (%)": "50.0 → 75.0", "result": "differs"}),
        ({"loss_ours": None, "loss_yours": None}, {"loss": "–", "result": "identical"}),
        ({"kappa_ours": None, "kappa_yours": None}, {"κ at start": "–", "result": "identical"}),
        ({"loss_yours": None}, {"loss": "1.5000 → not measured", "result": "differs"}),
        ({"kappa_yours": None}, {"κ at start": "40 → not measured", "result": "differs"}),
        ({"kappa_ours": inf}, {"κ at start": "inf → 40", "result": "differs"}),
    ],
)
def test_what_differs_or_is_missing_is_written_on_its_side(
    numbers: dict[str, float | None], cells: dict[str, str]
) -> None:
    line = machine.beside([beside(**numbers)]).iloc[0].to_dict()
    assert {name: line[name] for name in cells} == cells


def test_the_self_check_is_counted_for_the_text() -> None:
    lines = [beside(), beside(loss_yours=1.501), beside(loss_yours=9.0, seconds_ours=6.0, seconds_yours=1.0)]
    assert machine.glued(lines) == {
        "machine.runs": "3",
        "machine.agree": "2",
        "machine.identical": "1",
        "machine.loss_tolerance": "0.01",
        "machine.kappa_tolerance": "1 %",
        "machine.speed": "2.00",  # 2 + 2 + 6 core-seconds there, 2 + 2 + 1 here
    }


# --- where the records came from ---


def stamped(seed: int, seconds: float = 1800.0, status: str = "ok", **facts: object) -> Record:
    run = planned("xcit-m", "before", "before", seed)
    return record(run, status=status, seconds={"total": seconds}, provenance=PROVENANCE | facts)


def test_an_experiment_is_summed_up_in_runs_hours_dates_and_commits() -> None:
    found = [
        stamped(0, date="2026-03-02T01:00:00+00:00"),
        stamped(1, commit="f" * 40 + "+changes"),
        stamped(2, 720.0, "out_of_memory"),
    ]
    frame = provenance.experiments({"vision_rows": found, "conditioning": []})
    assert frame.to_dict("records") == [
        {
            "experiment": "vision_rows",
            "runs": "3",
            "ended": "2 ok, 1 out of memory",
            "core-hours": "1.20",
            "dates": "2026-03-01 to 2026-03-02",
            "commits": "`0123456789`, `ffffffffff` with local changes",
        }
    ]
    one_day = provenance.experiments({"vision_rows": found[1:]})
    assert one_day["dates"].item() == "2026-03-01"


def test_environments_are_told_apart_by_what_is_printed() -> None:
    larger = PROVENANCE["machine"] | {"memory_bytes": 8 * 2**30 + 4096}
    found = [
        stamped(0),
        stamped(1, machine=larger),
        stamped(2, versions={"python": "3.11.7", "torch": "2.14.2"}),
        stamped(3, device="cuda", device_name="Accelerator X"),
    ]
    frame = provenance.environments({"vision_rows": found[:2], "conditioning": found[2:]})
    assert list(frame["runs"]) == ["2", "1", "1"]
    assert frame.iloc[0].to_dict() == {
        "processor": "Model A",
        "cores": "2",
        "memory": "8 GiB",
        "system": "Linux x86_64",
        "device": "cpu",
        "threads per run": "1",
        "versions": "python 3.11.7, torch 2.14.1",
        "runs": "2",
    }
    assert list(frame["device"]) == ["cpu", "cpu", "cuda, Accelerator X"]


def test_provenance_is_counted_for_the_text() -> None:
    found = {"vision_rows": [stamped(0), stamped(1, 5400.0, "diverged")], "conditioning": [stamped(2, 0.0)]}
    assert provenance.glued(found, "cpu") == {
        "provenance.profile": "cpu",
        "provenance.runs": "3",
        "provenance.failed": "1",
        "provenance.train_hours": "2.0",
        "provenance.machine": "Model A, 2 cores",
        "provenance.date": "2026-03-01",
        "provenance.commits": "0123456789",
    }


def test_two_machines_are_both_named() -> None:
    other = PROVENANCE["machine"] | {"processor": "Model B", "cores": 16}
    values = provenance.glued({"vision_rows": [stamped(0), stamped(1, machine=other)]}, "cpu")
    assert values["provenance.machine"] == "Model A, Model B, 2 or 16 cores"


def test_no_records_at_all_are_refused_with_the_command_that_makes_them() -> None:
    with pytest.raises(
        BadInput, match=r"^records is 'gpu': there are none yet, run `heads-for-depth run --profile gpu`"
    ):
        provenance.glued({"vision_rows": []}, "gpu")


# --- the first page ---


def side(name: Side, published: str | None, count: int | None) -> SideRecount:
    stated = StatedSide(side=name, shape=None)
    return SideRecount(stated=stated, published=None if published is None else Printed(text=published), count=count)


def recount(row: str, title: str, after: int | None) -> RowRecount:
    claim = replace(CLAIM, row=row, title=title)
    return RowRecount(claim=claim, before=side("before", "84.4", 84_400_000), after=side("after", "59.0", after))


RECOUNTS = {
    "xcit-m": recount("xcit-m", "XCiT-M", 46_000_000),
    "tnt-b": recount("tnt-b", "TNT-B", 59_049_000),
    "xcit-l": recount("xcit-l", "XCiT-L", 59_100_000),
}
SWEEPS = head_sweeps(
    measured("xcit-m", heads, *three_objects(value, kind="channels")) for heads, value in ((8, 50.0), (16, 40.0))
)


def first_page() -> list[RowFinding]:
    return findings_of([*pair("xcit-m", level(85), level(85)), *pair("tnt-b", (85.0, 86.0), (84.0, 85.0))])


def second_page() -> list[RowFinding]:
    return second_reduction({"before": level(85), "after": level(80)})


def test_the_first_table_has_a_line_for_every_published_row() -> None:
    frame = verdicts.verdicts(first_page(), second_page(), RECOUNTS, SWEEPS)
    assert list(frame["row"]) == ["XCiT-M", "TNT-B", "XCiT-L"]
    assert list(frame["its stated shape"]) == ["contradicts its stated shape", "recounts", "within 1 %"]
    assert list(frame["κ, after / before"]) == ["0.80", "not measured", "not measured"]
    assert list(frame["n"]) == ["8", "0 to 2", "0"]
    assert list(frame["verdict"]) == ["reproduced at reduced scale", "inconclusive", "inconclusive"]
    assert list(frame["second reduction"]) == ["not reproduced at reduced scale", "inconclusive", "inconclusive"]
    assert frame["LIT-527: Top-1"][0] == "81.4 → 81.7 (+0.3)"
    assert frame["LIT-527: parameters"][0] == "−30.1 %"
    assert frame["our difference [95 %]"][2] == "not measured"


def test_a_profile_without_the_second_reduction_of_a_row_says_so() -> None:
    frame = verdicts.verdicts(first_page(), [], RECOUNTS, SWEEPS)
    assert list(frame["second reduction"]) == ["not planned"] * 3
    assert list(frame["n"]) == ["8", "2", "0"]
    outcomes = verdicts.ledger(first_page(), [], RECOUNTS, SWEEPS, cause_decision({}, {}))["outcome"]
    assert outcomes[2] == "1 of 3 reproduced at reduced scale, 2 of 3 inconclusive"


def test_the_table_of_the_readme_is_a_markdown_table_with_its_hardware() -> None:
    lines = verdicts.readme(
        verdicts.verdicts(first_page(), second_page(), RECOUNTS, SWEEPS), "Model A, 2 cores", "2026-03-01"
    ).split("\n")
    tabled = [line for line in lines if line.startswith("|")]
    assert len(tabled) == 2 + 3
    assert {line.count("|") for line in tabled} == {9}
    assert tabled[1] == "|" + " --- |" * 8
    assert tabled[4].startswith(
        "| XCiT-L | inconclusive | not measured | inconclusive | 0 | 81.4 → 81.7 (+0.3) | −30.1 % |"
    )
    assert lines[len(tabled)] == ""
    assert lines[-1].endswith("Trained on Model A, 2 cores, 2026-03-01.")


def test_the_ledger_tallies_recounts_factors_and_verdicts() -> None:
    outcomes = verdicts.ledger(first_page(), second_page(), RECOUNTS, SWEEPS, cause_decision({}, {}))["outcome"]
    assert list(outcomes) == [
        "1 of 3 contradicts its stated shape, 1 of 3 recounts, 1 of 3 within 1 %",
        "κ changes by a factor of 0.80, not measured, not measured",
        "1 of 3 reproduced at reduced scale, 2 of 3 inconclusive; with the published head counts 1 of 3 not reproduced "
        "at reduced scale, 2 of 3 inconclusive",
        "not tested yet",
        "inconclusive: No run of an intervention on the shallow shape is recorded.",
    ]


@pytest.mark.parametrize(
    ("number", "written"),
    [(0.0, "0"), (4.4e-3, "4.4e−3"), (9.96e-11, "1.0e−10"), (1.0, "1.0e0"), (25_000.0, "2.5e4"), (3e10, "3.0e10")],
)
def test_powers_of_ten_are_written_without_a_place_to_break(number: float, written: str) -> None:
    assert formatting.in_powers_of_ten(number) == written


# The second reduction


def second_reduction(accuracies: dict[Arm, list[float]]) -> list[RowFinding]:
    """Findings of XCiT-M with published heads; one accuracy per seed and arm."""
    runs = {
        (run.depth_arm, run.seed): run
        for run in plan("cpu", "vision_rows_keep_heads", 8)
        if run.row == "xcit-m" and run.depth_arm == run.heads_arm
    }
    records = [
        trained(runs[name, seed], value / 100)
        for name, values in accuracies.items()
        for seed, value in enumerate(values)
    ]
    return vision_findings(records, "cpu", "vision_rows_keep_heads")


def test_one_step_of_the_two_by_two_is_told_row_by_row_with_its_interval() -> None:
    runs = [*pair("xcit-m", (80.0, 82.0), (81.0, 83.0)), *pair("tnt-b", (70.0, 71.0), (74.0, 75.0))]
    said = vision_values.glued(findings_of(runs), budget("cpu"))
    assert said["vision.depth_alone"].endswith("by an amount that is not measured yet.")  # the other cells are missing
    second = second_reduction({"before": [70.0, 71.0], "after": [74.0, 75.0]})
    told = vision_values.by_row(second, "reshape", "The reshape changes")
    assert told.startswith("The reshape changes test accuracy by +4.00 [")
    assert told.endswith("] (XCiT-M) points (two-sided 95 % Welch, n = 2 per arm).")


def test_the_second_reduction_stands_beside_the_first_with_its_own_heads_and_numbers() -> None:
    first = findings_of(pair("xcit-m", [80.0, 82.0], [81.0, 83.0]))
    second = second_reduction({"before": [70.0, 71.0], "after": [74.0, 75.0]})
    line = line_of(vision.reductions(first, second))
    assert line["heads kept: head_dim"] == "8 → 4"
    assert line["head_dim kept: head_dim"] == "64 → 32"
    assert line["heads kept: difference [95 %]"].startswith("+4.00 [")
    assert line["head_dim kept: difference [95 %]"].startswith("+1.00 [")
    assert (line["heads kept: n"], line["head_dim kept: n"]) == ("2", "2")
    assert line["verdict"] == "inconclusive"


def test_a_second_reduction_without_runs_reads_not_measured_and_counts_nothing() -> None:
    second = second_reduction({})
    assert line_of(vision.reductions(findings_of([]), second))["heads kept: difference [95 %]"] == "not measured"
    values = vision_values.glued_second(second)
    assert (values["vision.second.n"], values["vision.second.runs"]) == ("0", "0")
    assert values["vision.second.answer"].startswith("0 of 5 published rows read “reproduced at reduced scale”, 0 ")


def test_records_of_one_reduction_are_refused_in_the_table_of_the_other() -> None:
    with pytest.raises(BadInput, match=r"is of no planned cell; it comes from another version of the grid"):
        vision_findings(pair("xcit-m", [80.0], [81.0]), "cpu", "vision_rows_keep_heads")
