"""The declared grids: complete 2 × 2 cells, published ratios, counted parameters, stable names."""

import dataclasses
import json
from collections import Counter
from fractions import Fraction
from typing import Any

import pytest

from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import (
    ARMS,
    EXPERIMENTS,
    TUNING_SEED,
    VISION_ROWS,
    PlannedRun,
    VisionRow,
    estimated_seconds,
    head_counts,
    plan,
    planned_now,
    reduced_shape,
    vision_cells,
    vision_row,
)
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import BUDGETS, budget
from heads_for_depth.records import path_of
from heads_for_depth.shapes import Shape, with_heads

PUBLISHED = {
    "xcit-m": ((24,), (12,), 8, 16, 2048),
    "tnt-b": ((12,), (8,), 10, 16, 2560),
    "xcit-l": ((24,), (12,), 16, 24, 3072),
    "davit-b": ((1, 1, 9, 1), (1, 1, 5, 1), 4, None, None),
    "davit-l": ((1, 1, 9, 1), (1, 1, 5, 1), 6, None, None),
}
"""Row -> depth before and after, heads of the first stage before and after, MLP width: LIT-527's table of shapes."""

FULL_SCALE_MILLIONS = {"xcit-m": 84.4, "tnt-b": 65.4, "davit-b": 88.0, "xcit-l": 189.1, "davit-l": 196.8}
"""Parameters of the published baselines, in millions, as LIT-527 prints them."""


@pytest.fixture(scope="module")
def cpu_plan() -> list[PlannedRun]:
    return plan("cpu")


@pytest.fixture(scope="module")
def vision_runs(cpu_plan: list[PlannedRun]) -> list[PlannedRun]:
    return [run for run in cpu_plan if run.experiment == "vision_rows"]


def vit_parameters(shape: Shape) -> int:
    """Patch embedding, class token, positions, blocks (two norms, qkv, projection, MLP), final norm, classifier."""
    d, inner, mlp = shape.d_model[0], shape.inner_widths[0], shape.mlp_width[0]
    tokens = (shape.image_size // shape.patch_size) ** 2 + 1
    attention = (d * 3 * inner + 3 * inner) + (inner * d + d)
    block = 2 * (2 * d) + attention + (d * mlp + mlp) + (mlp * d + d)
    embedding = shape.in_chans * shape.patch_size**2 * d + d
    return embedding + d + tokens * d + shape.depth[0] * block + 2 * d + (d * shape.classes + shape.classes)


def ratios(numbers: tuple[int, ...], others: tuple[int, ...]) -> list[Fraction]:
    """Exact ratios, stage by stage."""
    return [Fraction(a, b) for a, b in zip(numbers, others, strict=True)]


def test_the_rows_are_those_that_were_published_and_one_of_our_own():
    for row in VISION_ROWS:
        if row.published:
            depth, depth_after, heads, heads_after, mlp_width = PUBLISHED[row.name]
            assert (row.before.depth, row.depth_after, row.before.heads[0]) == (depth, depth_after, heads)
            assert row.heads_published == (heads_after is not None)
            assert heads_after in (None, row.heads_after[0])
            assert mlp_width in (None, row.before.mlp_width[0])
    assert {row.name for row in VISION_ROWS if row.published} == set(PUBLISHED)
    assert [row.name for row in VISION_ROWS if not row.published] == ["vit-own"]


@pytest.mark.parametrize("name", sorted(FULL_SCALE_MILLIONS))
def test_the_full_scale_baselines_have_the_published_parameters(name: str):
    assert count_parameters(vision_row(name).before) / 1e6 == pytest.approx(FULL_SCALE_MILLIONS[name], rel=0.01)


def test_the_reshape_keeps_widths_and_changes_depth_and_heads():
    for row in VISION_ROWS:
        assert (row.after.d_model, row.after.mlp_width) == (row.before.d_model, row.before.mlp_width)
        assert (row.after.depth, row.after.heads) == (row.depth_after, row.heads_after)
        assert row.after.inner_widths == row.after.d_model


def test_every_row_is_a_complete_two_by_two():
    cells = Counter((row.name, depth, heads) for row, depth, heads, _ in vision_cells())
    assert cells == Counter({(row.name, depth, heads): 1 for row in VISION_ROWS for depth in ARMS for heads in ARMS})


@pytest.mark.parametrize("reduction", ["keep-head-dim", "keep-heads"])
@pytest.mark.parametrize("row", VISION_ROWS, ids=lambda row: row.name)
def test_a_reduced_row_keeps_the_published_ratios(row: VisionRow, reduction: str):
    before = reduced_shape(row, "before", "before", reduction)  # type: ignore[arg-type]
    after = reduced_shape(row, "after", "after", reduction)  # type: ignore[arg-type]
    for now, then in ((before, row.before), (after, row.after)):
        assert ratios(now.mlp_width, now.d_model) == ratios(then.mlp_width, then.d_model) == [4] * len(now.d_model)
        assert ratios(now.d_model, then.d_model) == [ratios(now.d_model, then.d_model)[0]] * len(now.d_model)
        assert ratios(now.heads, then.heads) == [ratios(now.heads, then.heads)[0]] * len(now.heads)
    assert ratios(after.heads, before.heads) == ratios(row.heads_after, row.before.heads)
    assert Fraction(max(after.depth), max(before.depth)) == Fraction(max(row.depth_after), max(row.before.depth))
    if reduction == "keep-heads":
        assert (before.heads, after.heads) == (row.before.heads, row.heads_after)


@pytest.mark.parametrize(
    ("name", "depths", "heads"),
    [
        ("xcit-m", ((6,), (3,)), (1, 2)),
        ("tnt-b", ((3,), (2,)), (5, 8)),
        ("davit-b", ((1, 1, 9, 1), (1, 1, 5, 1)), (1, 2)),
        ("xcit-l", ((6,), (3,)), (2, 3)),
        ("davit-l", ((1, 1, 9, 1), (1, 1, 5, 1)), (1, 2)),
        ("vit-own", ((6,), (3,)), (2, 4)),
    ],
)
def test_reduced_depths_and_heads_are_those_worked_out_by_hand(
    name: str, depths: tuple[tuple[int, ...], tuple[int, ...]], heads: tuple[int, int]
):
    """Widths are an eighth; of the pairs that divide it, the one with head_dim nearest to the published one."""
    shapes = [reduced_shape(vision_row(name), arm, arm) for arm in ARMS]
    assert tuple(shape.depth for shape in shapes) == depths
    assert tuple(shape.heads[0] for shape in shapes) == heads
    assert [8 * d for d in shapes[0].d_model] == list(vision_row(name).before.d_model)


def test_the_cells_of_a_row_differ_in_nothing_but_depth_and_heads():
    for row in VISION_ROWS:
        shapes = [reduced_shape(row, depth, heads) for depth in ARMS for heads in ARMS]
        bare = {dataclasses.replace(s, depth=shapes[0].depth, heads=shapes[0].heads) for s in shapes}
        assert len(bare) == 1
        assert len({(s.depth, s.heads) for s in shapes}) == 4
        assert [s.depth for s in shapes] == [shapes[0].depth] * 2 + [shapes[2].depth] * 2
        assert [s.heads for s in shapes] == [shapes[0].heads, shapes[1].heads] * 2


def test_head_counts_change_no_parameter_at_fixed_width_except_one_temperature_per_head_in_xcit():
    for row in VISION_ROWS:
        for depth in ARMS:
            few, many = (reduced_shape(row, depth, heads) for heads in ARMS)
            temperatures = few.depth[0] * (many.heads[0] - few.heads[0]) if row.before.family == "xcit" else 0
            assert count_parameters(many) - count_parameters(few) == temperatures


def test_every_planned_run_carries_the_count_of_its_model(cpu_plan: list[PlannedRun]):
    for run in cpu_plan:
        assert run.parameters == count_parameters(run.shape)


def test_every_planned_vit_has_the_parameters_of_the_hand_formula(cpu_plan: list[PlannedRun]):
    runs = [run for run in cpu_plan if run.shape.family == "vit"]
    assert {run.experiment for run in runs} == {run.experiment for run in cpu_plan}
    assert {run.regime for run in runs} == {"fixed-d-model", "fixed-head-dim"}
    assert [run.parameters for run in runs] == [vit_parameters(run.shape) for run in runs]


def test_every_cell_has_the_same_seeds_and_they_are_not_the_tuning_seed(vision_runs: list[PlannedRun]):
    seeds: dict[tuple[str, str | None, str | None], list[int]] = {}
    for run in vision_runs:
        seeds.setdefault((run.row, run.depth_arm, run.heads_arm), []).append(run.seed)
    assert len(seeds) == 4 * len(VISION_ROWS)
    assert all(found == list(range(8)) for found in seeds.values())
    assert TUNING_SEED not in {run.seed for run in vision_runs}


def test_a_partial_sweep_is_balanced_because_seeds_come_one_after_the_other(vision_runs: list[PlannedRun]):
    assert [run.seed for run in vision_runs] == sorted(run.seed for run in vision_runs)


def test_every_cell_is_tuned_by_its_own_shape_on_the_same_grid_of_rates(
    cpu_plan: list[PlannedRun], vision_runs: list[PlannedRun]
):
    tuning = {run.run_id: run for run in cpu_plan if run.experiment == "vision_tuning"}
    for run in vision_runs:
        chosen_from = [tuning[run_id] for run_id in run.tuned_by]
        assert {one.shape for one in chosen_from} == {run.shape}
        assert [one.recipe.learning_rate for one in chosen_from if one.recipe] == list(budget("cpu").learning_rates)
        assert run.recipe is not None
        assert run.recipe.learning_rate is None
    assert set(tuning) == {run_id for run in vision_runs for run_id in run.tuned_by}


def test_more_seeds_only_add_runs(vision_runs: list[PlannedRun]):
    topped_up = plan("cpu", "vision_rows", seeds=10)
    assert topped_up[: len(vision_runs)] == vision_runs
    assert len(topped_up) == 10 * 4 * len(VISION_ROWS)


def test_run_ids_are_unique_and_fit_to_be_file_names(cpu_plan: list[PlannedRun], tmp_path):
    places = [path_of(tmp_path, run.profile, run.experiment, run.run_id) for run in cpu_plan]
    assert len({str(place).lower() for place in places}) == len(cpu_plan)


def test_one_experiment_is_the_plan_without_the_others(cpu_plan: list[PlannedRun]):
    assert [run for name in EXPERIMENTS for run in plan("cpu", name)] == cpu_plan


def test_conditioning_visits_every_head_count_in_both_regimes(cpu_plan: list[PlannedRun]):
    runs = [run for run in cpu_plan if run.experiment == "conditioning" and run.row == "vit-own"]
    heads = {
        (regime, inputs): [r.shape.heads[0] for r in runs if (r.regime, r.inputs) == (regime, inputs)]
        for regime in ("fixed-d-model", "fixed-head-dim") for inputs in ("noise", "images")
    }  # fmt: skip
    assert heads["fixed-d-model", "noise"] == [h for h in range(1, 769) if 768 % h == 0]
    assert heads["fixed-head-dim", "noise"] == [1, 2, 3, 4, 6, 8, 12, 16, 24]
    assert heads["fixed-d-model", "images"] == [1, 2, 3, 4, 6, 8, 12, 16, 24]


def test_conditioning_reaches_both_ends_of_every_row(cpu_plan: list[PlannedRun]):
    for row in VISION_ROWS:
        for regime in ("fixed-d-model", "fixed-head-dim"):
            place = ("conditioning", row.name, regime)
            found = {run.shape.heads for run in cpu_plan if (run.experiment, run.row, run.regime) == place}
            assert {row.before.heads, row.heads_after} <= found


def test_the_regimes_keep_what_they_are_named_after(cpu_plan: list[PlannedRun]):
    for run in cpu_plan:
        if run.experiment == "conditioning":
            published = vision_row(run.row).before
            kept = run.shape.head_dims if run.regime == "fixed-head-dim" else run.shape.inner_widths
            assert kept == (published.head_dims if run.regime == "fixed-head-dim" else published.d_model)


def test_head_counts_of_a_staged_family_keep_the_proportions_of_the_stages():
    shape = vision_row("davit-b").before
    assert head_counts(shape, all_divisors=True) == [1, 2, 4, 8, 16, 32, 64, 128]
    assert head_counts(shape, all_divisors=False) == [1, 2, 4, 8]
    assert head_counts(with_heads(shape, (8, 8, 16, 32)), all_divisors=False) == [1, 2, 4, 8, 16]


def test_a_smoke_plan_is_small_and_covers_every_experiment():
    """48 and 24: six rows, four cells, two rates and one seed; of the second reduction and through training one row.

    The map has two depths and two head counts, two of these cells once more at twice the epochs; the edge three sweeps
    of two head counts; the cause six arms and two learning rates; the premises three shapes.
    """
    assert Counter(run.experiment for run in plan("smoke")) == {
        "vision_tuning": 48, "vision_rows": 24, "vision_tuning_keep_heads": 8, "vision_rows_keep_heads": 4,
        "conditioning": 6, "premises": 3, "conditioning_training": 4, "map_tuning": 4, "map": 6, "edge_tuning": 6,
        "edge": 6, "cause_tuning": 6, "cause": 8,
    }  # fmt: skip


def test_the_second_reduction_keeps_the_published_heads_and_differs_from_the_first_in_nothing_else():
    first, second = (plan("gpu", name) for name in ("vision_rows", "vision_rows_keep_heads"))
    assert [run.run_id for run in first] == [run.run_id for run in second]
    for ours, theirs in zip(first, second, strict=True):
        row = vision_row(theirs.row)
        assert theirs.shape.heads == (row.before.heads if theirs.heads_arm == "before" else row.heads_after)
        assert dataclasses.replace(theirs.shape, heads=ours.shape.heads) == ours.shape
        assert theirs.recipe == ours.recipe
        assert max(theirs.shape.head_dims) <= 8
    assert {run.reduction for run in second} == {"keep-heads"}


@pytest.fixture
def without_second_reduction(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cpu profile, planning no seed of the second reduction."""
    monkeypatch.setitem(BUDGETS, "cpu", dataclasses.replace(BUDGETS["cpu"], keep_heads_seeds=0))


@pytest.mark.usefixtures("without_second_reduction")
def test_a_table_that_plans_no_seeds_plans_no_tuning_and_a_given_number_of_seeds_plans_both():
    assert plan("cpu", "vision_rows_keep_heads") == []
    assert plan("cpu", "vision_tuning_keep_heads") == []
    assert len(plan("cpu", "vision_rows_keep_heads", 2)) == 48
    assert len(plan("cpu", "vision_tuning_keep_heads", 2)) == 72


@pytest.mark.usefixtures("without_second_reduction")
def test_a_number_of_seeds_tops_up_what_a_profile_plans_now_and_starts_nothing_else():
    topped = plan("cpu", None, 5)
    assert {run.experiment for run in topped} == {run.experiment for run in plan("cpu")}
    assert "vision_rows_keep_heads" not in {run.experiment for run in topped}
    assert {run.seed for run in topped if run.experiment == "vision_rows"} == set(range(5))
    assert planned_now("cpu", ("vision_tuning_keep_heads", "vision_rows_keep_heads"), 5) == []
    assert planned_now("smoke", ("map_tuning", "map"), 2) == plan("smoke", "map_tuning", 2) + plan("smoke", "map", 2)
    with pytest.raises(BadInput, match="seeds is 0: must be at least 1"):
        planned_now("cpu", ("map",), 0)


def test_a_plan_is_plain_data_and_the_shape_reads_back(cpu_plan: list[PlannedRun]):
    for run in cpu_plan[:: len(cpu_plan) // 20]:
        values = json.loads(json.dumps(run.as_dict(), allow_nan=False))
        assert Shape.from_dict(values["shape"]) == run.shape
        assert (values["row"], values["seed"], values["kind"]) == (run.row, run.seed, run.kind)


def test_the_estimate_grows_with_depth_images_and_inputs(tiny_run: PlannedRun):
    assert tiny_run.recipe is not None
    deeper = dataclasses.replace(tiny_run, shape=dataclasses.replace(tiny_run.shape, depth=(4,)))
    longer = dataclasses.replace(tiny_run, recipe=dataclasses.replace(tiny_run.recipe, epochs=9))
    measured = dataclasses.replace(tiny_run, kind="kappa", input_count=4)
    assert 0 < estimated_seconds(tiny_run) < estimated_seconds(deeper)
    assert estimated_seconds(tiny_run) < estimated_seconds(longer)
    assert estimated_seconds(measured) < estimated_seconds(dataclasses.replace(measured, input_count=8))


def test_the_cpu_plan_is_a_matter_of_hours_on_two_cores(cpu_plan: list[PlannedRun]):
    assert 0.5 < sum(map(estimated_seconds, cpu_plan)) / 3600 / 2 < 18  # the rows about 6, the map and the rest 9 more


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("tiny",), "profile is 'tiny': use one of smoke, cpu, gpu, full"),
        (("full",), "profile is 'full': use one of smoke, cpu, gpu"),
        (
            ("smoke", "language"),
            "experiment is 'language': use one of vision_tuning, vision_rows, vision_tuning_keep_heads, "
            "vision_rows_keep_heads, conditioning_training, map_tuning, map, edge_tuning, edge, cause_tuning, cause, "
            "conditioning, premises",
        ),
        (("smoke", "vision_rows", 0), "seeds is 0: must be at least 1"),
        (("smoke", None, -2), "seeds is -2: must be at least 1"),
    ],
)
def test_what_cannot_be_planned_is_refused(arguments: tuple[Any, ...], sentence: str):
    with pytest.raises(BadInput) as refusal:
        plan(*arguments)
    assert str(refusal.value) == sentence


def test_an_unknown_row_and_an_indivisible_depth_are_refused():
    with pytest.raises(BadInput, match="row is 'xcit-s': use one of xcit-m, tnt-b, davit-b, xcit-l, davit-l, vit-own"):
        vision_row("xcit-s")
    odd = dataclasses.replace(vision_row("xcit-m"), depth_after=(11,))
    with pytest.raises(BadInput, match=r"depth is \(11,\): cannot be divided by 4 in xcit"):
        reduced_shape(odd, "after", "before")
