"""Seeds trained together: each is what it would have been alone, up to rounding, and none touches another."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from heads_for_depth import records
from heads_for_depth.datasets import augment, draw_moves, fashion_mnist, moved
from heads_for_depth.experiments import VISION_ROWS, PlannedRun, reduced_shape
from heads_for_depth.interventions import INTERVENTIONS
from heads_for_depth.models import build, count_parameters
from heads_for_depth.shapes import Shape
from heads_for_depth.training import execute, runs
from heads_for_depth.training.jobs import SEEDS_AT_ONCE, as_jobs, execute_job
from heads_for_depth.training.seed_batches import execute_seeds

ROUNDING = 2e-5
"""Nats of loss, after a few steps in float32 whose sums come in another order."""


def seeds_of(run: PlannedRun, count: int) -> list[PlannedRun]:
    return [replace(run, run_id=f"tiny.seed-{seed}", seed=seed) for seed in range(count)]


def of_family(run: PlannedRun, family: str) -> PlannedRun:
    row = next(row for row in VISION_ROWS if row.before.family == family)
    shape = reduced_shape(row, "after", "after")
    assert run.recipe is not None
    recipe = replace(run.recipe, train_images=128, epochs=1, evaluation_images=100)
    return replace(run, shape=shape, parameters=count_parameters(shape), recipe=recipe, experiment="vision_tuning")


@pytest.mark.parametrize("family", ["vit", "xcit", "tnt", "davit"])
def test_every_seed_of_a_batch_ends_where_it_ends_alone(tiny_run: PlannedRun, family: str):
    together = seeds_of(of_family(tiny_run, family), 3)
    for batched, run in zip(execute_seeds(together, "cpu"), together, strict=True):
        alone = execute(run)
        assert batched["plan"] == alone["plan"]
        assert set(batched["metrics"]) == set(alone["metrics"])
        for key in ("train_loss", "validation_loss"):
            ends = [record["metrics"]["epochs"][0][key] for record in (batched, alone)]
            assert ends[0] == pytest.approx(ends[1], abs=ROUNDING)


def test_a_tabled_run_has_the_test_metrics_and_the_condition_numbers_of_the_run_alone(tiny_run: PlannedRun):
    together = seeds_of(tiny_run, 2)
    for batched, run in zip(execute_seeds(together, "cpu"), together, strict=True):
        alone = execute(run)
        assert batched["metrics"]["test_loss"] == pytest.approx(alone["metrics"]["test_loss"], abs=ROUNDING)
        assert batched["kappa"]["initial"] == alone["kappa"]["initial"]
        columns = alone["kappa"]["final"]["columns"]
        for ours, theirs in zip(batched["kappa"]["final"]["rows"], alone["kappa"]["final"]["rows"], strict=True):
            first, second = (dict(zip(columns, row, strict=True)) for row in (ours, theirs))
            assert (first["site"], first["object"]) == (second["site"], second["object"])
            assert first["condition_number"] == pytest.approx(second["condition_number"], rel=0.05)


@pytest.mark.parametrize("intervention", [name for name in INTERVENTIONS if name != "none"])
def test_seeds_with_an_intervention_end_where_each_ends_alone(tiny_run: PlannedRun, intervention: str):
    assert tiny_run.recipe is not None
    recipe = replace(tiny_run.recipe, epochs=3, train_images=64)
    run = replace(tiny_run, intervention=intervention, recipe=recipe, kappa_times="middle", premises=True)
    for batched, one in zip(execute_seeds(seeds_of(run, 2), "cpu"), seeds_of(run, 2), strict=True):
        alone = execute(one)
        assert batched["metrics"]["test_loss"] == pytest.approx(alone["metrics"]["test_loss"], abs=10 * ROUNDING)
        assert list(batched["kappa"]) == list(batched["premises"]) == ["initial", "middle", "final"]
        assert batched["kappa"]["initial"] == alone["kappa"]["initial"]
        has_jacobian = one.seed == 0 and intervention != "spectral-shift"
        objects = {row[3] for row in batched["kappa"]["final"]["rows"]}
        assert ("jacobian" in objects) is has_jacobian


def test_clipping_is_per_seed(tiny_run: PlannedRun):
    """At a tight clip a joint norm would shrink every step by the root of the number of seeds."""
    assert tiny_run.recipe is not None
    clipped = replace(tiny_run, recipe=replace(tiny_run.recipe, clip_norm=0.05), experiment="vision_tuning")
    together = seeds_of(clipped, 3)
    for batched, run in zip(execute_seeds(together, "cpu"), together, strict=True):
        ends = [record["metrics"]["validation_loss"] for record in (batched, execute(run))]
        assert ends[0] == pytest.approx(ends[1], abs=ROUNDING)


def test_a_seed_that_diverges_is_recorded_so_and_leaves_the_others_alone(
    tiny_run: PlannedRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    built: list[Shape] = []

    def second_is_poisoned(shape: Shape) -> nn.Module:
        model = build(shape)
        built.append(shape)
        if len(built) == 2:
            model.get_parameter("blocks.0.mlp.fc1.weight").data[0, 0] = math.nan
        return model

    together = seeds_of(replace(tiny_run, experiment="vision_tuning"), 3)
    alone = [execute(run) for run in together]
    monkeypatch.setattr(runs, "build", second_is_poisoned)
    found = execute_seeds(together, "cpu")
    assert [record["status"] for record in found] == ["ok", "diverged", "ok"]
    assert found[1]["metrics"]["epochs"] == []
    for number in (0, 2):
        ends = [record["metrics"]["validation_loss"] for record in (found[number], alone[number])]
        assert ends[0] == pytest.approx(ends[1], abs=ROUNDING)
    for record in found:
        records.write(record, tmp_path)


def test_drawing_then_moving_is_what_augmentation_does():
    images = fashion_mnist()["train"].images[:50]
    drawn = draw_moves(50, torch.Generator().manual_seed(5))
    assert torch.equal(moved(images, *drawn), augment(images, torch.Generator().manual_seed(5)))
    offsets, flip = drawn
    assert offsets.min() == 0
    assert offsets.max() == 4
    assert 0 < flip.sum() < 50


# What a worker carries out at a time


def test_on_a_cpu_a_job_is_one_run_and_on_a_gpu_the_seeds_of_one_shape_and_rate(tiny_run: PlannedRun):
    many = seeds_of(tiny_run, SEEDS_AT_ONCE + 1)
    assert tiny_run.recipe is not None
    other_rate = [replace(run, recipe=tiny_run.recipe.with_learning_rate(1e-3)) for run in many[:2]]
    kappa = [replace(run, kind="kappa") for run in many[:2]]
    planned = [many[0], other_rate[0], kappa[0], *many[1:], other_rate[1], kappa[1]]
    assert as_jobs(planned, "cpu") == [(run,) for run in planned]
    assert as_jobs(planned, "cuda") == [
        tuple(many[:SEEDS_AT_ONCE]), (many[-1],), tuple(other_rate), (kappa[0],), (kappa[1],)
    ]  # fmt: skip


@pytest.mark.parametrize("count", [1, 2])
def test_a_job_returns_one_record_per_run_in_its_order(tiny_run: PlannedRun, count: int):
    job = tuple(seeds_of(replace(tiny_run, experiment="vision_tuning"), count))
    assert [record["run_id"] for record in execute_job(job)] == [run.run_id for run in job]


@pytest.mark.cuda
def test_seeds_replayed_as_a_cuda_graph_end_where_they_end_alone_on_the_gpu(tiny_run: PlannedRun):
    together = seeds_of(replace(tiny_run, experiment="vision_tuning"), 3)
    for batched, run in zip(execute_seeds(together, "cuda"), together, strict=True):
        ends = [record["metrics"]["validation_loss"] for record in (batched, execute(run, "cuda"))]
        assert ends[0] == pytest.approx(ends[1], abs=1e-3)
