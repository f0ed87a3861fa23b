"""The depth × heads map, its edge and the causal test: what is declared, and what is read from records."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean
from typing import Any

import numpy as np
import pytest

from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import DECLARATIONS, EXPERIMENTS, TUNING, PlannedRun, plan
from heads_for_depth.experiments.cause_grid import DEEP, LOWERING, RESHAPE, SHALLOW, cause_arms, equal_mlp_width
from heads_for_depth.experiments.declaration import FIXED
from heads_for_depth.experiments.edge_grid import SWEEP_HEADS
from heads_for_depth.experiments.map_grid import vit
from heads_for_depth.findings.cause import (
    arm_findings,
    cause_decision,
    comparisons,
    control_findings,
    kappa_correlations,
    rate_findings,
)
from heads_for_depth.findings.cause_data import arm_lines, rate_lines, scatter_points
from heads_for_depth.findings.edge import across_sweeps, edge_findings
from heads_for_depth.findings.exchange import doublings, exchanges
from heads_for_depth.findings.map_cells import map_cells
from heads_for_depth.findings.map_data import cost_points, heat_map, loss_curves, runs_data, sweep_lines
from heads_for_depth.findings.map_verdicts import reshape_findings
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import budget
from heads_for_depth.records import Record
from heads_for_depth.statistics import welch_difference
from heads_for_depth.tables.depth_heads_values import across
from heads_for_depth.verdicts import ACCURACY_MARGIN, CauseArm, CauseVerdict, Edge, decide_cause, find_edge
from heads_for_depth.verification.retraining import declared_run
from made_up_records import layer, record, table

DEPTHS, HEADS = (1, 2, 3, 4, 6, 8, 12), (1, 2, 4, 8, 16, 32, 64)
NEW = ("map", "edge", "cause", "conditioning_training", "premises")


# What is declared.


@pytest.fixture(scope="module")
def planned() -> dict[str, list[PlannedRun]]:
    """Experiment -> its runs at the declared seeds."""
    return {name: plan("cpu", name, 8) for name in NEW}


def test_the_map_is_the_whole_grid_with_three_seeds_and_eight_where_a_verdict_is_drawn(planned: Any):
    own = [run for run in planned["map"] if run.row == "tokens-17"]
    counts = Counter((run.shape.depth[0], run.shape.heads[0]) for run in own)
    assert counts == {(depth, heads): 8 if depth in (3, 6) else 3 for depth in DEPTHS for heads in HEADS}
    assert {(run.shape.d_model, run.shape.mlp_width, run.shape.patch_size) for run in own} == {((64,), (256,), 7)}
    twice = [run for run in planned["map"] if run.row == "tokens-17-twice"]
    assert Counter((r.shape.depth[0], r.shape.heads[0]) for r in twice) == {(d, h): 3 for d in DEPTHS for h in (8, 32)}
    epochs = budget("cpu").map.recipe.epochs
    assert {run.recipe.epochs for run in own} == {epochs}
    assert {run.recipe.epochs for run in twice} == {2 * epochs}
    assert len(own) + len(twice) == len(planned["map"])


def test_no_seed_beyond_the_declared_ones_can_be_planned():
    for name in ("map", "edge", "cause"):
        assert plan("cpu", name, 20) == plan("cpu", name, 8)
        assert {run.seed for run in plan("cpu", name, 8)} == set(range(8))


def test_a_seed_is_complete_before_the_next_begins(planned: Any):
    for name in ("map", "edge", "conditioning_training"):
        seeds = [run.seed for run in planned[name]]
        assert seeds == sorted(seeds)
        assert set(seeds) == set(range(8))
    first = [(run.shape.depth[0], run.row) for run in planned["map"]][:14]
    assert first == [(6, "tokens-17")] * 7 + [(3, "tokens-17")] * 7


def test_the_sweeps_of_the_edge_separate_temperature_rank_and_length(planned: Any):
    by_row: dict[str, list[PlannedRun]] = {}
    for run in planned["edge"]:
        by_row.setdefault(run.row, []).append(run)
    for row, heads in (
        ("tokens-50", HEADS),
        ("tokens-17-fixed-temperature", HEADS[:-1]),
        ("tokens-17-fixed-head-dim", (1, 2, 4, 16, 32)),
    ):
        counts = Counter((run.shape.depth[0], run.shape.heads[0]) for run in by_row[row])
        assert counts == {(depth, count): 8 for depth in (3, 6) for count in heads}
    assert {run.intervention for run in by_row["tokens-17-fixed-temperature"]} == {"fixed-temperature"}
    assert {run.shape.head_dims for run in by_row["tokens-17-fixed-head-dim"]} == {(8,)}
    assert {run.shape.patch_size for run in by_row["tokens-50"]} == {4}
    assert {run.intervention for row in by_row if row != "tokens-17-fixed-temperature" for run in by_row[row]} == {
        "none"
    }


def test_the_arms_of_the_causal_test_are_those_declared(planned: Any):
    arms = Counter((run.row, run.shape.depth[0], run.shape.heads[0]) for run in planned["cause"])
    expected = {(name, *shape): 8 for name in LOWERING for shape in (DEEP, SHALLOW)}
    expected |= {("ill-conditioned-init", *RESHAPE): 8, ("wide-mlp", *SHALLOW): 8}
    expected |= {("res-post-norm", *shape): 8 for shape in (DEEP, SHALLOW, RESHAPE)}
    rates = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
    expected |= {(f"rate-{rate:g}", *shape): 3 for rate in rates for shape in (DEEP, SHALLOW, RESHAPE)}
    assert arms == expected
    for run in planned["cause"]:
        if run.row.startswith("rate-"):
            assert f"rate-{run.recipe.learning_rate:g}" == run.row
            assert run.tuned_by == ()


def test_the_wider_mlp_has_the_parameters_of_the_deep_shape_to_within_one_unit_of_width():
    deep, wide = (count_parameters(vit(*DEEP)), count_parameters(vit(*SHALLOW, mlp_width=equal_mlp_width())))
    one_unit = SHALLOW[0] * (2 * 64 + 1)
    assert abs(deep - wide) <= one_unit / 2


def test_every_tabled_run_carries_the_digest_of_its_declaration_and_is_tuned_by_its_own_cell(planned: Any):
    for name, runs in planned.items():
        assert {run.declaration for run in runs} == {DECLARATIONS[name].digest}
        assert all(run.as_dict()["declaration"] == DECLARATIONS[name].digest for run in runs)
    for name in ("map", "edge", "cause"):
        tuning = {run.run_id: run for run in plan("cpu", TUNING[name], 1)}
        for run in planned[name]:
            for run_id in run.tuned_by:
                assert tuning[run_id].declaration == DECLARATIONS[name].digest
                assert (tuning[run_id].shape, tuning[run_id].intervention) == (run.shape, run.intervention)
            recipes = [tuning[run_id].recipe for run_id in run.tuned_by]
            rates = [recipe.learning_rate for recipe in recipes if recipe]
            assert rates in ([], list(budget("cpu").map.learning_rates))


def test_a_declaration_changes_its_digest_with_any_word():
    one = DECLARATIONS["map"]
    fields = ("hypothesis", "rule", "grid", "budget", "expected")
    changed = [replace(one, **{name: getattr(one, name) + "."}) for name in fields]
    assert len({one.digest, *(other.digest for other in changed)}) == 6


@pytest.mark.parametrize("name", NEW)
def test_a_declaration_is_the_one_that_was_fixed(name: str):
    """A change of its words, or of a budget that they name, must fail here: its records would no longer be its own."""
    assert DECLARATIONS[name].digest == FIXED[name]


def test_a_declaration_names_the_budget_and_the_grid_that_the_code_plans():
    for name, profile in (("map", "cpu"), ("edge", "gpu"), ("cause", "cpu")):
        recipe, words = budget(profile).map.recipe, DECLARATIONS[name].budget
        assert f"{recipe.epochs} epochs of {recipe.train_images:,} images in batches of {recipe.batch_size}" in words
        assert all(f"{rate:g}" in words for rate in budget(profile).map.learning_rates)
    for name in ("map", "edge", "cause"):
        assert f"{ACCURACY_MARGIN:g} points" in DECLARATIONS[name].rule
    assert ", ".join(map(str, DEPTHS)) in DECLARATIONS["map"].grid
    assert "8 seeds at depths 3 and 6, 3 elsewhere" in DECLARATIONS["map"].grid


def test_every_experiment_has_runs_of_its_own_and_ids_are_unique():
    for name in EXPERIMENTS:
        runs = plan("cpu", name, 2)
        assert {run.experiment for run in runs} == {name}
        assert len({run.run_id for run in runs}) == len(runs) > 0


def test_premises_cover_every_row_before_after_and_at_fixed_head_dim(planned: Any):
    ids = {run.run_id for run in planned["premises"]}
    rows = ("xcit-m", "tnt-b", "davit-b", "xcit-l", "davit-l", "vit-own")
    sides = ("before", "after", "after-wide")
    expected = {f"{row}.{side}.{source}" for row in rows for side in sides for source in ("noise", "images")}
    assert ids == expected | {"vit-l.before.noise", "vit-l.before.images"}
    wide = next(run for run in planned["premises"] if run.run_id == "vit-own.after-wide.noise")
    assert (wide.shape.heads, wide.shape.head_dims, wide.shape.depth) == ((24,), (64,), (6,))


# Records made up by hand.


def map_record(run: PlannedRun, accuracy: float, **numbers: Any) -> Record:
    """A finished run: test accuracy in points, loss, κ before, in the middle and after."""
    given: dict[str, Any] = {
        "loss": 0.5,
        "kappa": (40.0, 30.0, 20.0),
        "curve": ((1.0, 0.6), (0.75, 0.7)),
        "seconds": 10.0,
    } | numbers
    epochs = [{"train_loss": a, "validation_accuracy": b} for a, b in given["curve"]]
    times = dict(zip(("initial", "middle", "final"), given["kappa"], strict=True))
    rate = run.recipe.learning_rate if run.recipe and not run.tuned_by else 0.002
    recipe = run.recipe.with_learning_rate(rate).as_dict() if run.recipe and rate else None
    return record(
        run, plan=run.as_dict() | {"recipe": recipe},
        kappa={time: table(layer(kappa)) for time, kappa in times.items()},
        metrics={"test_accuracy": accuracy / 100, "test_loss": given["loss"], "epochs": epochs},
        seconds={"train_cpu": given["seconds"], "train": 1.0, "total": 12.0},
    )  # fmt: skip


def runs_of(experiment: str, row: str, depth: int, heads: int) -> Iterator[PlannedRun]:
    """The planned runs of one cell, seed by seed."""
    for run in plan("cpu", experiment, 8):
        if (run.row, run.shape.depth[0], run.shape.heads[0]) == (row, depth, heads):
            yield run


def cell_records(
    depth: int, heads: int, accuracies: Sequence[float], experiment: str = "map", row: str = "tokens-17", **numbers: Any
) -> list[Record]:
    runs = list(runs_of(experiment, row, depth, heads))[: len(accuracies)]
    assert len(runs) == len(accuracies)
    return [map_record(run, points, **numbers) for run, points in zip(runs, accuracies, strict=True)]


def test_cells_hold_their_runs_and_those_without_any_are_there_too():
    records = cell_records(6, 8, [80.0, 82.0], kappa=(math.inf, 9.0, 3.0), seconds=7.0)
    cells = map_cells(records, "cpu", "map")
    assert len(cells) == 7 * 7 + 2 * 7
    cell = cells["tokens-17", 6, 8]
    assert (cell.accuracy, cell.loss, cell.failed) == ((80.0, 82.0), (0.5, 0.5), 0)
    assert (cell.kappas("initial"), cell.kappas("middle")) == ((math.inf,) * 2, (9.0, 9.0))
    assert (cell.mean("accuracy"), cell.mean("train_loss"), cell.mean("seconds")) == (81.0, 0.75, 7.0)
    assert cells["tokens-17", 1, 1].mean("accuracy") is None
    assert cell.parameters == count_parameters(vit(6, 8)) == cells["tokens-17", 6, 64].parameters


def test_a_failed_run_counts_and_has_no_numbers():
    (run,) = list(runs_of("map", "tokens-17", 6, 8))[:1]
    cells = map_cells([record(run, status="diverged", metrics={"epochs": []})], "cpu", "map")
    assert (cells["tokens-17", 6, 8].failed, cells["tokens-17", 6, 8].runs) == (1, ())


def test_a_record_of_another_grid_or_declaration_is_refused():
    (good,) = cell_records(6, 8, [80.0])
    unknown = good | {"run_id": "tokens-17.depth-5.heads-8.seed-0"}
    longer = good | {"plan": good["plan"] | {"recipe": good["plan"]["recipe"] | {"epochs": 9}}}
    changed = good | {"plan": good["plan"] | {"intervention": "head-norm"}}
    for record_ in (unknown, longer, changed):
        with pytest.raises(BadInput, match=rf"^record is '{record_['run_id']}': is of no planned run"):
            map_cells([record_], "cpu", "map")
    other = good | {"plan": good["plan"] | {"declaration": "0123456789ab"}}
    with pytest.raises(BadInput, match=r"declaration is '0123456789ab': .*seed-0 was made under another declaration"):
        map_cells([other], "cpu", "map")


def test_a_record_is_repeated_only_while_its_declaration_stands():
    (good,) = cell_records(6, 8, [80.0])
    grid = {run.run_id: run for run in plan("cpu", "map", 8)}
    recipe = good["plan"]["recipe"]
    assert declared_run(good, grid).recipe == replace(budget("cpu").map.recipe, learning_rate=recipe["learning_rate"])
    plain = good["plan"]
    others = (
        {name: value for name, value in plain.items() if name != "declaration"},
        plain | {"declaration": "0123456789ab"},
        plain | {"intervention": "head-norm"},
        {name: value for name, value in plain.items() if name != "premises"},
    )
    for changed in others:
        with pytest.raises(BadInput, match="its plan is not declared any more"):
            declared_run(good | {"plan": changed}, grid)


# The exchange rate.


@pytest.mark.parametrize(
    ("goal", "heads", "expected"),
    [
        (0.5, 2, 1.0),  # reached at 4 heads exactly: one doubling
        (0.55, 2, 0.5),  # halfway between 2 and 4 heads, on the logarithm
        (0.45, 1, 2.5),  # halfway between 4 and 8
        (0.7, 4, -2.0),  # fewer heads do: 1 head has it already
        (0.65, 4, -1.5),
        (0.3, 1, math.inf),
    ],
)
def test_doublings_are_interpolated_in_the_logarithm_of_the_heads(goal: float, heads: int, expected: float):
    reference = {1: 0.7, 2: 0.6, 4: 0.5, 8: 0.4}
    assert doublings(goal, reference, heads) == pytest.approx(expected)


def test_the_first_crossing_counts_where_the_loss_rises_again():
    assert doublings(0.5, {1: 0.6, 2: 0.5, 4: 0.6, 8: 0.4}, 1) == 1.0


def losses(depth: int, by_heads: Mapping[int, Sequence[float]]) -> list[Record]:
    return [
        one
        for heads, values in by_heads.items()
        for value, run in zip(values, runs_of("map", "tokens-17", depth, heads), strict=False)
        for one in [map_record(run, 80.0, loss=value)]
    ]


def falling(first: float) -> dict[int, list[float]]:
    """Three seeds at every head count of the map, the loss falling by a tenth from doubling to doubling."""
    return {heads: [first - step / 10 + e for e in (-0.001, 0.0, 0.001)] for step, heads in enumerate(HEADS)}


def test_an_exchange_rate_is_per_layer_and_against_the_next_depth_of_the_grid():
    records = losses(8, falling(0.9)) + losses(12, {2: [0.649, 0.65, 0.651], 4: [0.099, 0.1, 0.101]})
    two, four = exchanges(map_cells(records, "cpu", "map"), "tokens-17")
    assert (two.depth, two.shallower, two.heads, two.n) == (12, 8, 2, 3)
    assert two.doublings_per_layer == pytest.approx(1.5 / 4)
    assert two.lower < two.doublings_per_layer < two.upper < two.lower + 0.02
    assert (two.reached, two.at_most, four.reached) == (True, False, False)
    assert math.isinf(four.lower)


def test_depths_that_are_no_neighbours_and_cells_without_the_declared_seeds_give_no_rate():
    apart = losses(6, falling(0.9)) + losses(12, falling(0.8))
    assert exchanges(map_cells(apart, "cpu", "map"), "tokens-17") == []
    few = {heads: values[:2] for heads, values in falling(0.9).items()}
    for shallow, deep in ((few, falling(0.8)), (falling(0.9), few)):
        records = losses(8, shallow) + losses(12, deep)
        assert exchanges(map_cells(records, "cpu", "map"), "tokens-17") == []
    holed = {heads: values for heads, values in falling(0.9).items() if heads != 16}
    assert exchanges(map_cells(losses(8, holed) + losses(12, falling(0.8)), "cpu", "map"), "tokens-17") == []


def test_the_interval_of_a_rate_is_as_wide_as_the_noise_of_the_means_makes_it():
    generator = np.random.default_rng(1)
    noisy = {heads: list(0.9 - step / 10 + 0.02 * generator.normal(size=3)) for step, heads in enumerate(HEADS)}
    target = {8: list(0.65 + 0.02 * generator.normal(size=3))}
    (one,) = exchanges(map_cells(losses(8, noisy) + losses(12, target), "cpu", "map"), "tokens-17")
    # between two counts the loss falls by 0.1: a standard error of 0.02·√(2/3) is 0.16 doublings, over four layers
    assert 0.08 < one.upper - one.lower < 0.30


# The edge.

SPREAD = (-0.2, -0.1, -0.05, 0.0, 0.0, 0.05, 0.1, 0.2)


def around(mean: float) -> list[float]:
    return [mean + step for step in SPREAD]


def edge_of(arms: dict[int, list[float]], **options: Any) -> Edge:
    found = find_edge(arms, 0.5, np.random.default_rng(0), **options)
    assert found is not None
    return found


def test_the_edge_is_the_largest_count_that_holds_the_best_smaller_one():
    found = edge_of({1: around(80.0), 2: around(84.0), 4: around(83.8), 8: around(82.0)})
    assert (found.heads, found.lower, found.upper) == (4, 4, 4)
    assert dict(found.counts) == {2: "holds", 4: "holds", 8: "breaks"}
    assert (found.breaks, found.holds_to_the_end) == (True, False)


def test_it_is_compared_with_the_best_smaller_count_and_not_with_the_neighbour():
    found = edge_of({1: around(84.0), 2: around(83.7), 4: around(83.4), 8: around(83.1)})  # each 0.3 below the last
    assert dict(found.counts) == {2: "holds", 4: "undetermined", 8: "breaks"}
    assert (found.heads, found.breaks) == (2, False)


def test_a_flat_sweep_that_the_seeds_leave_open_does_not_break():
    wide = {heads: [80.0, 82.0, 84.0, 86.0] for heads in (1, 2, 4)}
    found = edge_of(wide)
    assert set(found.counts.values()) == {"undetermined"}
    assert (found.heads, found.breaks, found.holds_to_the_end) == (1, False, False)


def test_a_count_that_holds_again_beyond_a_dip_is_the_edge():
    found = edge_of({1: around(84.0), 2: around(80.0), 4: around(84.5)})
    assert (found.heads, found.holds_to_the_end, found.breaks) == (4, True, False)


def test_where_nothing_holds_the_edge_is_the_smallest_count():
    found = edge_of({1: around(84.0), 2: around(80.0)})
    assert (found.heads, found.breaks) == (1, True)


def test_a_count_of_which_a_run_diverged_breaks_and_is_no_best_smaller_one():
    arms = {1: around(80.0), 2: around(84.0), 4: around(80.0)}
    assert dict(edge_of(arms).counts) == {2: "holds", 4: "breaks"}
    assert dict(edge_of(arms, diverged=[2]).counts) == {2: "breaks", 4: "holds"}
    assert edge_of(arms, diverged=[1]).counts[2] == "undetermined"  # nothing smaller is left


@pytest.mark.parametrize("finished", [[], [80.0]])
def test_a_count_whose_runs_all_diverged_breaks_like_one_with_a_single_diverged_run(finished: list[float]):
    found = edge_of({1: around(80.0), 2: around(84.0), 4: finished}, diverged=[4])
    assert dict(found.counts) == {2: "holds", 4: "breaks"}
    assert (found.heads, found.lower, found.upper, found.breaks) == (2, 2, 2, True)
    smallest = edge_of({1: finished, 2: around(84.0), 4: around(84.0)}, diverged=[1])
    assert dict(smallest.counts) == {2: "undetermined", 4: "holds"}


def test_counts_that_are_not_recorded_yet_are_no_end_of_the_sweep():
    found = edge_of({1: around(80.0), 2: around(84.0), 4: [], 8: [84.0]})
    assert (found.heads, found.recorded_to, found.planned) == (2, 2, (1, 2, 4, 8))
    assert not found.holds_to_the_end
    assert not found.breaks


def test_the_interval_of_the_edge_is_wide_where_seeds_leave_it_open():
    wide = [83.0, 83.4, 83.8, 84.0, 84.0, 84.2, 84.6, 85.0]
    found = edge_of({1: around(84.0), 2: around(84.0), 4: wide})
    assert (found.lower, found.upper) == (2, 4)
    assert find_edge({1: [1.0], 2: [1.0, 2.0]}, 0.5, np.random.default_rng(0)) is None
    with pytest.raises(BadInput, match=r"margin is -1\.0"):
        find_edge({1: [1.0, 2.0], 2: [1.0, 2.0]}, -1.0, np.random.default_rng(0))


def test_a_sweep_is_decided_only_where_every_cell_has_the_declared_seeds():
    seeds = dict.fromkeys(HEADS, 8)
    for missing, decided in ((None, True), (64, False)):
        counts = seeds if missing is None else seeds | {missing: 7}
        records = [one for heads, n in counts.items() for one in cell_records(6, heads, around(84.0)[:n])]
        found = edge_findings(map_cells(records, "cpu", "map"), map_cells([], "cpu", "edge"))
        own = next(one for one in found if (one.row, one.depth) == ("tokens-17", 6))
        assert (own.decided, own.tokens, own.head_dim) == (decided, 17, 1)


def test_the_sweep_at_fixed_head_dim_takes_eight_heads_from_the_map():
    mapped = map_cells(cell_records(3, 8, [81.0, 82.0]), "cpu", "map")
    swept = map_cells(cell_records(3, 16, [83.0, 84.0], "edge", "tokens-17-fixed-head-dim"), "cpu", "edge")
    found = {(one.row, one.depth): one for one in edge_findings(mapped, swept)}
    one = found["tokens-17-fixed-head-dim", 3]
    assert list(one.cells) == [1, 2, 4, 8, 16, 32]
    assert one.cells[8].accuracy == (81.0, 82.0)
    assert one.head_dim == 8
    assert found["tokens-50", 6].tokens == 50
    assert {row for row, _ in found} == {"tokens-17", *SWEEP_HEADS}


def test_the_other_sweeps_are_read_against_the_maps_own_at_one_depth():
    level = {1: 82.0, 2: 84.0, 4: 84.0, 8: 84.0, 16: 83.9, 32: 82.0, 64: 81.0}
    cooled = {heads: 84.0 if heads == 32 else mean for heads, mean in level.items() if heads != 64}
    long = level | {16: 82.0}
    own = [one for heads, mean in level.items() for one in cell_records(6, heads, around(mean))]
    other = [
        one
        for row, means in (("tokens-17-fixed-temperature", cooled), ("tokens-50", long))
        for heads, mean in means.items()
        for one in cell_records(6, heads, around(mean), "edge", row)
    ]
    found = edge_findings(map_cells(own, "cpu", "map"), map_cells(other, "cpu", "edge"))
    temperature, tokens = across_sweeps(found)  # fixed head_dim has the map's cell at 8 heads only
    assert temperature.sweep.row == "tokens-17-fixed-temperature"
    assert (temperature.own_breaks, temperature.untested, temperature.taken_away) == ((32, 64), (64,), (32,))
    assert (tokens.sweep.row, tokens.breaks_only_here, tokens.taken_away) == ("tokens-50", (16,), ())
    assert temperature.decided
    assert tokens.decided
    assert across([temperature, tokens]) == (
        "17 tokens, fixed temperature 8, depth 6: of the head counts that break with 17 tokens (32, 64 heads), 32 "
        "heads hold here (64 heads not measured here), which speaks for the sharpness of attention (n = 8 in the cell "
        "with the fewest). 50 tokens, depth 6: of the head counts that hold with 17 tokens, 16 heads break with 50, "
        "which speaks for head_dim against the length of the sequence (n = 8 in the cell with the fewest)."
    )
    assert across([]).startswith("No other sweep has head counts yet")


def test_a_break_that_the_other_sweep_cannot_show_is_not_read_as_one_that_stays():
    level = dict.fromkeys(HEADS, 84.0)
    rows = {"tokens-17-fixed-temperature": level, "tokens-50": level}
    for own, words in (
        (level | {64: 80.0}, "the head counts that break with 17 tokens (64 heads) are not measured here (n"),
        (level | {32: 80.0}, "of the head counts that break with 17 tokens (32 heads), 32 heads hold here, which"),
        (level, "no head count is shown to break with 17 tokens, so that there is no break to take away (n"),
    ):
        mapped = [one for heads, mean in own.items() for one in cell_records(3, heads, around(mean))]
        swept = [
            one
            for row, means in rows.items()
            for heads in SWEEP_HEADS[row]
            for one in cell_records(3, heads, around(means[heads]), "edge", row)
        ]
        found = edge_findings(map_cells(mapped, "cpu", "map"), map_cells(swept, "cpu", "edge"))
        said = across(across_sweeps(found))
        assert words in said
        assert (
            "50 tokens, depth 3: of the head counts that hold with 17 tokens, none is shown to break with 50 (n" in said
        )


# The map's verdicts and its data.


def test_the_reshapes_are_judged_by_the_declared_rule():
    good, same = around(85.0), around(85.0)
    records = [
        one
        for depth, heads, values in (
            (6, 8, good), (3, 16, same), (3, 32, around(82.0)), (6, 16, around(86.0)), (6, 32, around(86.0)),
            (3, 8, around(80.0)),
        )
        for one in cell_records(depth, heads, values)
    ]  # fmt: skip
    holds, falls = reshape_findings(map_cells(records, "cpu", "map"))
    assert str(holds.verdict.verdict) == "reproduced at reduced scale"
    assert str(falls.verdict.verdict) == "not reproduced at reduced scale"
    assert falls.difference is not None
    assert falls.difference.difference == pytest.approx(-3.0)
    assert holds.as_many_heads is not None
    assert holds.as_many_heads.difference == pytest.approx(-1.0)
    assert holds.same_heads is not None
    assert holds.same_heads.difference == pytest.approx(-5.0)
    seven = [one for one in records if one["plan"]["seed"] < 7]
    assert {str(f.verdict.verdict) for f in reshape_findings(map_cells(seven, "cpu", "map"))} == {"inconclusive"}
    assert reshape_findings(map_cells([], "smoke", "map")) == []


def test_a_heat_map_has_every_planned_cell_and_marks_what_is_missing():
    records = cell_records(6, 8, [80.0, 82.0], kappa=(1.0, 100.0, 1.0)) + cell_records(1, 64, [70.0])
    cells = map_cells(records, "cpu", "map")
    grid = heat_map(cells, "accuracy")
    assert (list(grid.depths), list(grid.heads)) == (list(DEPTHS), list(HEADS))
    assert grid.values[4][3] == 81.0
    assert (grid.seeds[4][3], grid.seeds[0][6], grid.seeds[0][0]) == (2, 1, 0)
    assert grid.values[0][0] is None
    assert grid.parameters == sorted(grid.parameters)
    assert heat_map(cells, "kappa.middle").values[4][3] == pytest.approx(2.0)


def test_the_front_holds_what_nothing_cheaper_reaches():
    records = (
        cell_records(1, 1, [70.0], seconds=1.0)
        + cell_records(2, 1, [75.0], seconds=3.0)
        + cell_records(1, 8, [74.0], seconds=4.0)
        + cell_records(6, 8, [80.0], seconds=9.0)
    )
    points = cost_points(map_cells(records, "cpu", "map"))
    assert [(p.depth, p.heads, p.on_front) for p in points] == [
        (1, 1, True), (2, 1, True), (1, 8, False), (6, 8, True),
    ]  # fmt: skip


def test_training_losses_are_means_over_seeds_at_both_budgets():
    curves = (((1.0, 0.5), (0.8, 0.6)), ((0.6, 0.5), (0.4, 0.6)))
    runs = list(runs_of("map", "tokens-17", 6, 8))
    records = [map_record(run, 80.0, curve=curve) for run, curve in zip(runs, curves, strict=False)]
    records += cell_records(2, 8, [79.0], row="tokens-17-twice", curve=((0.9, 0.5), (0.7, 0.6), (0.5, 0.6)))
    panels = loss_curves(map_cells(records, "cpu", "map"), 8)
    own, twice = panels.values()
    assert [(c.depth, c.n) for c in (*own, *twice)] == [(6, 2), (2, 1)]
    assert list(own[0].losses) == pytest.approx([0.8, 0.6])
    assert list(twice[0].losses) == pytest.approx([0.9, 0.7, 0.5])


def test_sweep_lines_carry_the_range_of_seeds_and_an_edge_within_the_range():
    levels = {1: 80.0, 2: 84.0, 4: 84.0, 8: 82.0, 16: 82.0, 32: 82.0, 64: 82.0}
    records = [one for heads, mean in levels.items() for one in cell_records(6, heads, around(mean))]
    lines = sweep_lines(edge_findings(map_cells(records, "cpu", "map"), map_cells([], "cpu", "edge")))
    line = next(line for line in lines["tokens-17"] if line.depth == 6)
    assert (list(line.heads), line.edge) == (list(HEADS), 4)
    assert (line.mean[0], line.lowest[0], line.highest[0]) == pytest.approx((80.0, 79.8, 80.2))
    assert line.n == 8


def test_the_data_behind_the_figures_has_a_line_per_run():
    frame = runs_data(map_cells(cell_records(6, 8, [80.0, 82.0]), "cpu", "map"))
    assert list(frame["test_accuracy_percent"]) == [80.0, 82.0]
    assert list(frame["kappa_middle"]) == [30.0, 30.0]
    assert runs_data(map_cells([], "cpu", "map")).empty


# The causal test.


def arm(accuracy: float, kappa: float, *, n: int = 8, diverged: int = 0) -> CauseArm:
    logs = [math.log(kappa) + step for step in SPREAD]
    return CauseArm(accuracy=around(accuracy)[:n], log_kappa=logs[:n], diverged=diverged)


DEEP_ARM, SHALLOW_ARM, RESHAPE_ARM = arm(85.0, 100.0), arm(83.0, 100.0), arm(85.0, 30.0)


def decided(*lowered: CauseArm, **plain: CauseArm) -> CauseVerdict:
    given = {"deep": DEEP_ARM, "shallow": SHALLOW_ARM, "reshape": RESHAPE_ARM} | plain
    return decide_cause(
        deep=given["deep"], shallow=given["shallow"], reshape=given["reshape"], declared_n=8, margin=0.5,
        lowered={f"change {place}": one for place, one in enumerate(lowered)},
    ).verdict  # fmt: skip


def test_conditioning_suffices_where_every_intervention_that_counts_replaces_the_depth():
    suffices, open_ = CauseVerdict.SUFFICES, CauseVerdict.INCONCLUSIVE
    assert decided(arm(85.0, 10.0)) is suffices
    assert decided(arm(85.0, 10.0), arm(84.9, 30.0)) is suffices
    assert decided(arm(85.0, 10.0), arm(83.0, 90.0)) is suffices  # the second did not go as far as the heads
    assert decided(arm(85.0, 10.0), arm(83.0, 10.0)) is open_  # they do not agree
    assert (
        decided(arm(85.0, 10.0), reshape=arm(86.0, 30.0)) is suffices
    )  # also below the reshape: the first line counts


def test_conditioning_does_not_suffice_where_every_intervention_that_counts_stays_below_the_heads():
    does_not, open_ = CauseVerdict.DOES_NOT_SUFFICE, CauseVerdict.INCONCLUSIVE
    assert decided(arm(83.0, 10.0)) is does_not
    assert decided(arm(83.0, 10.0), arm(84.0, 5.0)) is does_not
    assert decided(arm(83.0, 60.0)) is open_  # κ lower, but not as far as the heads lower it
    assert decided(arm(83.0, 300.0)) is open_
    assert decided(arm(83.0, 30.0 * math.exp(-1e-9))) is does_not
    assert decided(arm(84.4, 10.0), deep=arm(86.0, 100.0), reshape=arm(84.4, 30.0)) is open_


@pytest.mark.parametrize(
    "plain",
    [
        {"deep": arm(83.0, 100.0)},  # no depth to replace
        {"reshape": arm(83.0, 30.0)},  # heads gain nothing
        {"reshape": arm(85.0, 100.0)},  # heads do not lower κ
        {"deep": arm(85.0, 100.0, n=7)},
        {"shallow": arm(83.0, 100.0, n=7)},
        {"reshape": arm(85.0, 30.0, n=7)},
        {"reshape": arm(85.0, 30.0, diverged=1)},
    ],
)
@pytest.mark.parametrize("lowered", [arm(85.0, 10.0), arm(83.0, 10.0)])
def test_without_an_effect_to_explain_or_with_seeds_missing_the_question_stays_open(
    lowered: CauseArm, plain: dict[str, CauseArm]
):
    assert decided(lowered) is not CauseVerdict.INCONCLUSIVE
    assert decided(lowered, **plain) is CauseVerdict.INCONCLUSIVE


def test_an_intervention_with_seeds_missing_or_diverged_leaves_the_question_open():
    for one in (arm(85.0, 10.0, n=7), arm(85.0, 10.0, diverged=1), arm(83.0, 300.0, n=7)):
        assert decided(arm(85.0, 10.0), one) is CauseVerdict.INCONCLUSIVE
    assert decided() is CauseVerdict.INCONCLUSIVE


def test_the_p_values_are_adjusted_over_the_interventions_that_count():
    named = {"a": arm(84.8, 10.0), "b": arm(84.7, 10.0), "c": arm(83.0, 90.0)}
    found = decide_cause(
        deep=DEEP_ARM, shallow=SHALLOW_ARM, reshape=RESHAPE_ARM, lowered=named, declared_n=8, margin=0.5
    )
    assert found.counted == ("a", "b") == tuple(found.holds_p) == tuple(found.gains_p) == tuple(found.short_p)
    raw = {n: welch_difference(DEEP_ARM.accuracy, named[n].accuracy).p_above(-0.5) for n in found.counted}
    assert found.holds_p["a"] == pytest.approx(2 * raw["a"])
    assert found.holds_p["b"] == pytest.approx(max(2 * raw["a"], raw["b"]))
    assert found.short_p["a"] == pytest.approx(welch_difference(named["a"].accuracy, RESHAPE_ARM.accuracy).p_above(0.0))


def cause_records(shift: float, kappa: float) -> list[Record]:
    """The three plain arms in the map, and the spectral shift on the shallow shape."""
    spread_kappa = [(40.0, kappa * (1 + step), 20.0) for step in SPREAD]
    runs = runs_of("cause", "spectral-shift", *SHALLOW)
    return [map_record(run, points, kappa=k) for run, points, k in zip(runs, around(shift), spread_kappa, strict=True)]


def plain_records() -> list[Record]:
    levels = {DEEP: (85.0, 30.0), SHALLOW: (83.0, 30.0), RESHAPE: (85.0, 10.0)}
    return [
        map_record(run, points, kappa=(40.0, kappa * (1 + step), 20.0))
        for shape, (mean, kappa) in levels.items()
        for run, points, step in zip(runs_of("map", "tokens-17", *shape), around(mean), SPREAD, strict=True)
    ]


def test_an_arm_stands_against_its_own_shape_without_the_change():
    mapped = map_cells(plain_records(), "cpu", "map")
    arms = map_cells(cause_records(84.0, kappa=3.0), "cpu", "cause")
    findings = {(f.cell.row, f.cell.depth): f for f in arm_findings(arms, mapped)}
    assert set(findings) == {(arm.row, arm.depth) for arm in cause_arms()}
    shift = findings["spectral-shift", 3]
    assert shift.accuracy is not None
    assert shift.accuracy.difference == pytest.approx(1.0)
    assert shift.log_kappa["middle"].difference == pytest.approx(math.log(0.1))
    assert "initial" in shift.log_kappa
    assert (shift.moved, shift.intended) == (True, "lower")
    assert findings["wide-mlp", 3].moved is None
    assert findings["orthogonal-init", 3].accuracy is None
    titles = {(f.cell.row, f.cell.depth, f.cell.heads): f.cell.row for f in findings.values()}
    (line,) = arm_lines(list(findings.values()), titles)
    assert line.kappa_ratio is not None
    assert line.kappa_ratio[0] == pytest.approx(0.1)
    assert line.read


def test_an_infinite_kappa_counts_as_the_declared_number_and_an_unmeasured_arm_is_not_read():
    mapped = map_cells(plain_records(), "cpu", "map")
    runs = list(runs_of("cause", "spectral-shift", *SHALLOW))
    records = [map_record(run, 84.0, kappa=(40.0, math.inf, 20.0)) for run in runs]
    findings = arm_findings(map_cells(records, "cpu", "cause"), mapped)
    shift = next(f for f in findings if (f.cell.row, f.cell.depth) == ("spectral-shift", 3))
    assert shift.log_kappa["middle"].difference == pytest.approx(math.log(1e16 / 30.0), abs=0.05)
    assert shift.moved is False
    (alone,) = [f for f in arm_findings(map_cells(records[:1], "cpu", "cause"), mapped) if f.cell.runs]
    assert (alone.moved, alone.log_kappa) == (False, {})
    assert [line.read for line in arm_lines([alone], {("spectral-shift", 3, 8): "x"})] == [False]


def test_a_change_that_raises_kappa_by_mistake_is_not_read():
    mapped = map_cells(plain_records(), "cpu", "map")
    findings = arm_findings(map_cells(cause_records(84.0, kappa=90.0), "cpu", "cause"), mapped)
    assert next(f for f in findings if f.cell.row == "spectral-shift" and f.cell.depth == 3).moved is False


def test_missing_interventions_leave_the_verdict_open():
    mapped = map_cells(plain_records(), "cpu", "map")
    decision = cause_decision(map_cells(cause_records(85.0, kappa=3.0), "cpu", "cause"), mapped)
    assert decision.verdict is CauseVerdict.INCONCLUSIVE  # two of the three lowering arms have no runs
    assert cause_decision({}, {}).verdict is CauseVerdict.INCONCLUSIVE


def test_all_three_interventions_at_the_declared_seeds_decide():
    mapped = map_cells(plain_records(), "cpu", "map")
    records = []
    for name in LOWERING:
        runs = runs_of("cause", name, *SHALLOW)
        records += [map_record(r, p, kappa=(40.0, 3.0 * (1 + s), 20.0))
                    for r, p, s in zip(runs, around(83.0), SPREAD, strict=True)]  # fmt: skip
    decision = cause_decision(map_cells(records, "cpu", "cause"), mapped)
    assert decision.verdict is CauseVerdict.DOES_NOT_SUFFICE
    assert decision.counted == LOWERING
    compared = {one.cell.row: one.against for one in comparisons(map_cells(records, "cpu", "cause"), mapped)}
    assert list(compared) == ["tokens-17", *LOWERING]
    against = compared["head-norm"]
    assert {name: round(d.difference, 9) for name, d in against.items() if d} == {
        "deep": -2.0, "shallow": 0.0, "reshape": -2.0,
    }  # fmt: skip
    assert compared["tokens-17"]["reshape"] is None


def test_correlations_over_the_map_find_what_was_put_in():
    generator = np.random.default_rng(0)
    records = []
    for depth in DEPTHS:
        for heads in HEADS:
            for run, _ in zip(runs_of("map", "tokens-17", depth, heads), range(3), strict=False):
                loss = 1.0 - 0.03 * depth + 0.001 * generator.normal()
                kappa = 50.0 / heads * math.exp(0.3 * generator.normal())
                records.append(map_record(run, 80.0, loss=loss, kappa=(kappa, 1000 * loss, 1.0)))
    found = {(one.time, one.given): one.correlation for one in kappa_correlations(map_cells(records, "cpu", "map"))}
    assert len(found) == 6
    for given in ("depth, heads and parameters", "the cell"):
        initial, middle = found["initial", given], found["middle", given]
        assert initial is not None
        assert middle is not None
        assert initial.interval.lower < 0 < initial.interval.upper
        assert middle.interval.lower > 0.9
        assert (initial.runs, initial.clusters, initial.blocks) == (147, 49, 3)
    assert [one.correlation for one in kappa_correlations(map_cells(records[:2], "cpu", "map"))] == [None] * 6


def test_the_wider_mlp_stands_against_the_deep_shape_and_the_norms_after_among_themselves():
    mapped = map_cells(plain_records(), "cpu", "map")
    records = [
        one
        for row, shape, mean in (
            ("wide-mlp", SHALLOW, 84.0), ("res-post-norm", DEEP, 82.0), ("res-post-norm", RESHAPE, 81.0),
        )
        for one in cell_records(*shape, around(mean), "cause", row)
    ]  # fmt: skip
    found = {
        (f.cell.row, (f.cell.depth, f.cell.heads), f.other.row, (f.other.depth, f.other.heads)): f.accuracy
        for f in control_findings(map_cells(records, "cpu", "cause"), mapped)
    }
    expected = {
        ("wide-mlp", SHALLOW, "tokens-17", DEEP): -1.0,
        ("wide-mlp", SHALLOW, "tokens-17", RESHAPE): -1.0,
        ("res-post-norm", SHALLOW, "res-post-norm", DEEP): None,
        ("res-post-norm", RESHAPE, "res-post-norm", DEEP): -1.0,
        ("res-post-norm", RESHAPE, "res-post-norm", SHALLOW): None,
    }
    assert {key: value and pytest.approx(value.difference) for key, value in found.items()} == expected


def test_at_every_learning_rate_the_shapes_stand_against_the_deep_one():
    levels = {DEEP: 85.0, SHALLOW: 83.0, RESHAPE: 85.5}
    records = [
        one
        for shape, mean in levels.items()
        for one in cell_records(*shape, [mean - 0.1, mean, mean + 0.1], "cause", "rate-0.0005")
    ]
    smallest, *others = rate_findings(map_cells(records, "cpu", "cause"))
    assert [one.learning_rate for one in (smallest, *others)] == [5e-4, 1e-3, 2e-3, 4e-3, 8e-3]
    assert smallest.shallow is not None
    assert smallest.reshape is not None
    assert smallest.shallow.difference == pytest.approx(-2.0)
    assert smallest.reshape.difference == pytest.approx(0.5)
    assert {(one.shallow, one.reshape) for one in others} == {(None, None)}


def test_rates_and_scatter_hold_the_runs():
    records = [
        one
        for rate, mean in (("rate-0.001", 80.0), ("rate-0.0005", 78.0))
        for one in cell_records(6, 8, [mean, mean + 1], "cause", rate)
    ]
    (line,) = rate_lines(map_cells(records, "cpu", "cause"))
    assert (list(line.rates), list(line.mean), list(line.highest)) == ([5e-4, 1e-3], [78.5, 80.5], [79.0, 81.0])
    assert line.label == "deep: depth 6, heads 8"
    infinite = cell_records(6, 8, [80.0], kappa=(math.inf, 9.0, 1.0))
    cells = map_cells(infinite, "cpu", "map")
    assert scatter_points(cells, "initial") == []
    assert [(p.kappa, p.depth) for p in scatter_points(cells, "middle")] == [(9.0, 6)]
    assert fmean(cells["tokens-17", 6, 8].accuracy) == 80.0
