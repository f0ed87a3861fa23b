"""Training: repeatable to the bit, equal to a loop written out by hand, and honest about failures."""

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from heads_for_depth import records
from heads_for_depth.attention_lanes import availability
from heads_for_depth.conditioning import measure
from heads_for_depth.datasets import as_input, augment, epoch_order, fashion_mnist
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import VISION_ROWS, PlannedRun, reduced_shape
from heads_for_depth.models import build, count_parameters
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Shape
from heads_for_depth.training import (
    Diverged,
    TrainingLoop,
    execute,
    initial_model,
    learning_rate,
    loop,
    parameter_groups,
    runs,
)
from repeated_records import without_clocks


def with_recipe(run: PlannedRun, **changes: Any) -> PlannedRun:
    assert run.recipe is not None
    return replace(run, recipe=replace(run.recipe, **changes))


def with_shape(run: PlannedRun, **changes: Any) -> PlannedRun:
    shape = replace(run.shape, **changes)
    return replace(run, shape=shape, parameters=count_parameters(shape))


@pytest.fixture
def tuning_run(tiny_run: PlannedRun) -> PlannedRun:
    """The same training without test images and without κ."""
    return replace(tiny_run, experiment="vision_tuning", run_id="tiny.rate-0.004")


@pytest.fixture
def trained(monkeypatch: pytest.MonkeyPatch) -> list[nn.Module]:
    """Collects the models that are built, which training changes in place."""
    models: list[nn.Module] = []

    def keep(shape: Shape) -> nn.Module:
        models.append(build(shape))
        return models[-1]

    monkeypatch.setattr(runs, "build", keep)
    return models


def test_one_run_twice_is_one_record_but_for_the_clock(tiny_run: PlannedRun):
    torch.manual_seed(1)
    first = execute(tiny_run)
    torch.manual_seed(2)
    state = torch.get_rng_state()
    second = execute(tiny_run)
    assert without_clocks(first) == without_clocks(second)
    assert torch.equal(torch.get_rng_state(), state)
    assert first["status"] == "ok"
    assert first["seconds"]["total"] >= first["seconds"]["train"] > 0


def test_another_seed_is_another_result(tuning_run: PlannedRun):
    first, second = execute(tuning_run), execute(replace(tuning_run, seed=4))
    assert first["metrics"]["epochs"][0]["train_loss"] != second["metrics"]["epochs"][0]["train_loss"]


def test_a_run_that_enters_the_table_records_what_the_table_needs(tiny_run: PlannedRun, tmp_path):
    record = execute(tiny_run)
    assert records.read(records.write(record, tmp_path)) == record
    assert record["parameters"] == count_parameters(tiny_run.shape)
    assert record["plan"] == json.loads(json.dumps(tiny_run.as_dict()))
    assert len(record["metrics"]["epochs"]) == 2
    last = record["metrics"]["epochs"][-1]
    for name in ("validation_loss", "validation_accuracy"):
        assert record["metrics"][name] == last[name]
    assert 0 <= record["metrics"]["test_accuracy"] <= 1
    assert record["metrics"]["test_accuracy"] * 200 == pytest.approx(round(record["metrics"]["test_accuracy"] * 200))
    assert set(record["kappa"]) == {"initial", "final"}


def test_a_tuning_run_sees_no_test_image_and_a_table_run_sees_them_once_at_the_end(
    tiny_run: PlannedRun, tuning_run: PlannedRun, monkeypatch: pytest.MonkeyPatch
):
    evaluated: list[str] = []
    original = TrainingLoop.evaluate

    def spy(self: Any, split: Any, name: str, batch: int = 500) -> dict[str, float]:
        evaluated.append(name)
        expected = fashion_mnist()[name]
        assert torch.equal(split.labels, expected.labels[: len(split)])
        return original(self, split, name, batch)

    monkeypatch.setattr(TrainingLoop, "evaluate", spy)
    tuned = execute(tuning_run)
    assert evaluated == ["validation", "validation"]
    assert not [key for key in tuned["metrics"] if "test" in key]
    assert tuned["kappa"] == {}
    evaluated.clear()
    execute(tiny_run)
    assert evaluated == ["validation", "validation", "test"]


def test_recorded_accuracy_and_loss_are_those_of_the_trained_model(tiny_run: PlannedRun, trained: list[nn.Module]):
    """Recomputed one image at a time, in float64."""
    record = execute(tiny_run)
    model = trained[0].double().eval()
    test = fashion_mnist()["test"]
    losses, hits = [], 0
    with torch.no_grad():
        for image, label in zip(test.images[:200], test.labels[:200], strict=True):
            logits = model(as_input(image[None], 28, 1).double())[0]
            losses.append(float(logits.logsumexp(0) - logits[label]))
            hits += int(logits.argmax()) == int(label)
    assert record["metrics"]["test_accuracy"] == hits / 200
    assert record["metrics"]["test_loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def losses_by_hand(run: PlannedRun) -> list[float]:
    """Mean training loss per epoch of AdamW written out: warm-up, cosine, clipping, decoupled decay of matrices."""
    assert run.recipe is not None
    torch.manual_seed(run.seed)
    model, train = build(run.shape), fashion_mnist()["train"]
    named = dict(model.named_parameters())
    first, second = ({name: torch.zeros_like(p) for name, p in named.items()} for _ in range(2))
    step, means = 0, []
    for epoch in range(2):
        order, generator = epoch_order(256, run.seed, epoch)
        losses = []
        for index in order.split(64):
            inputs = as_input(augment(train.images[index], generator), 28, 1)
            loss = functional.cross_entropy(model(inputs), train.labels[index])
            gradients = dict(zip(named, torch.autograd.grad(loss, list(named.values())), strict=True))
            norm = math.sqrt(sum(float(g.square().sum()) for g in gradients.values()))
            rate = 4e-3 if step == 0 else 4e-3 * (1 + math.cos(math.pi * (step - 1) / 7)) / 2
            step += 1
            for name, p in named.items():
                g = gradients[name] * min(1.0, run.recipe.clip_norm / norm)
                first[name] = 0.9 * first[name] + 0.1 * g
                second[name] = 0.98 * second[name] + 0.02 * g.square()
                decay = 0.05 if p.dim() > 1 and name not in ("cls_token", "pos_embed") else 0.0
                denominator = (second[name] / (1 - 0.98**step)).sqrt() + 1e-8
                p.data.sub_(rate * (decay * p.data + first[name] / (1 - 0.9**step) / denominator))
            losses.append(float(loss.detach()))
        means.append(sum(losses) / len(losses))
    return means


@pytest.mark.parametrize("clip_norm", [1.0, 0.2])
def test_the_training_losses_agree_with_a_loop_written_out_by_hand(tuning_run: PlannedRun, clip_norm: float):
    run = with_recipe(tuning_run, clip_norm=clip_norm, learning_rate=4e-3)
    recorded = [epoch["train_loss"] for epoch in execute(run)["metrics"]["epochs"]]
    assert recorded == pytest.approx(losses_by_hand(run), rel=2e-5)


def test_the_loss_falls_on_few_images(tuning_run: PlannedRun):
    record = execute(with_recipe(with_shape(tuning_run, d_model=(32,)), epochs=24, batch_size=16))
    losses = [epoch["train_loss"] for epoch in record["metrics"]["epochs"]]
    assert losses[0] < math.log(10) + 0.1
    assert losses[-1] < 0.7 * losses[0]
    assert record["metrics"]["validation_accuracy"] > 0.3


# Seeds and pairs


def test_shapes_of_one_seed_see_the_same_images_in_the_same_order(
    tuning_run: PlannedRun, monkeypatch: pytest.MonkeyPatch
):
    seen: list[Tensor] = []

    def spy(images: Tensor, generator: torch.Generator) -> Tensor:
        seen.append(augment(images, generator))
        return seen[-1]

    monkeypatch.setattr(loop, "augment", spy)
    streams = []
    deeper = with_shape(tuning_run, depth=(3,), heads=(8,))
    other_family = with_shape(tuning_run, family="tnt", inner_d_model=8, inner_heads=2, depth=(1,))
    for run in (tuning_run, deeper, other_family, replace(tuning_run, seed=4)):
        seen.clear()
        execute(run)
        streams.append(torch.stack(seen))
    assert torch.equal(streams[0], streams[1])
    assert torch.equal(streams[0], streams[2])
    assert not torch.equal(streams[0], streams[3])
    assert not torch.equal(streams[0][:4], streams[0][4:])


@pytest.mark.parametrize("row", VISION_ROWS, ids=lambda row: row.name)
def test_cells_of_equal_depth_start_from_bit_equal_weights(row, tiny_run: PlannedRun):
    """All but XCiT's temperatures, of which there is one per head."""
    few, many = (
        initial_model(replace(tiny_run, shape=shape, parameters=count_parameters(shape))).state_dict()
        for shape in (reduced_shape(row, "after", heads) for heads in ("before", "after"))
    )
    assert list(few) == list(many)
    shared = [name for name in few if not name.endswith("temperature")]
    assert (len(shared) < len(few)) == (row.before.family == "xcit")
    assert all(torch.equal(few[name], many[name]) for name in shared)


def test_initial_weights_follow_the_seed_alone(tiny_run: PlannedRun):
    torch.manual_seed(11)
    first = initial_model(tiny_run).state_dict()
    torch.manual_seed(12)
    again = initial_model(tiny_run).state_dict()
    other = initial_model(replace(tiny_run, seed=4)).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["blocks.0.attn.qkv.weight"], other["blocks.0.attn.qkv.weight"])


def test_a_shape_that_is_not_what_the_plan_says_does_not_train(tiny_run: PlannedRun):
    wrong = replace(tiny_run, parameters=tiny_run.parameters + 1)
    with pytest.raises(BadInput) as refusal:
        execute(wrong)
    assert str(refusal.value) == "parameters is 5738: the plan of tiny.seed-3 says 5739"


def test_a_run_that_was_not_tuned_is_refused(tiny_run: PlannedRun):
    with pytest.raises(BadInput, match=r"learning_rate is None: tiny.seed-3 needs its tuning runs first"):
        execute(with_recipe(tiny_run, learning_rate=None))


def test_more_images_than_there_are_is_refused(tiny_run: PlannedRun):
    with pytest.raises(BadInput, match="images is 55001: the split has 55000"):
        execute(with_recipe(tiny_run, train_images=55_001))


# κ in a record


def test_kappa_before_training_is_that_of_the_initial_model_on_validation_images(tiny_run: PlannedRun):
    record = execute(tiny_run)
    inputs = as_input(fashion_mnist()["validation"].images[:16], 28, 1)
    assert record["kappa"]["initial"] == measure(initial_model(tiny_run), inputs)
    assert record["kappa"]["final"] != record["kappa"]["initial"]


def test_kappa_after_training_is_that_of_the_trained_model(tiny_run: PlannedRun, trained: list[nn.Module]):
    record = execute(tiny_run)
    inputs = as_input(fashion_mnist()["validation"].images[:16], 28, 1)
    assert record["kappa"]["final"] == measure(trained[0], inputs)


def test_jacobians_are_measured_for_the_first_seed_only(tiny_run: PlannedRun):
    small = with_recipe(with_shape(tiny_run, d_model=(8,), depth=(1,)), epochs=1, train_images=64)
    objects = {
        seed: {row[3] for row in execute(replace(small, seed=seed))["kappa"]["final"]["rows"]} for seed in (0, 1)
    }
    assert objects[0] == {"concatenated", "projected", "head", "jacobian"}
    assert objects[1] == {"concatenated", "projected", "head"}


@pytest.mark.parametrize("inputs", ["noise", "images"])
def test_a_kappa_run_measures_the_initial_model_and_trains_nothing(tiny_run: PlannedRun, inputs: Any):
    run = replace(tiny_run, experiment="conditioning", kind="kappa", recipe=None, inputs=inputs, input_count=3)
    record = execute(run)
    images = as_input(fashion_mnist()["validation"].images[:3], 28, 1)
    noise = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(3))
    assert record["kappa"] == {"initial": measure(initial_model(run), images if inputs == "images" else noise)}
    assert record["metrics"] == {}
    assert record["status"] == "ok"
    assert without_clocks(execute(run)) == without_clocks(record)


# Failures


def test_a_learning_rate_of_a_million_ends_as_a_diverged_record(tiny_run: PlannedRun, tmp_path):
    record = execute(with_recipe(tiny_run, learning_rate=1e6, epochs=5))
    assert record["status"] == "diverged"
    assert record["plan"]["recipe"]["learning_rate"] == 1e6
    assert "test_accuracy" not in record["metrics"]
    assert records.read(records.write(record, tmp_path)) == record


@pytest.mark.parametrize("number", [math.nan, math.inf])
def test_a_weight_that_is_not_finite_ends_as_a_diverged_record(
    tuning_run: PlannedRun, monkeypatch: pytest.MonkeyPatch, number: float, tmp_path
):
    def poisoned(shape: Shape) -> nn.Module:
        model = build(shape)
        with torch.no_grad():
            model.get_parameter("blocks.0.mlp.fc1.weight")[0, 0] = number
        return model

    monkeypatch.setattr(runs, "build", poisoned)
    record = execute(tuning_run)
    assert record["status"] == "diverged"
    assert record["metrics"]["epochs"] == []
    records.write(record, tmp_path)


def test_a_loss_that_is_not_finite_is_noticed_in_training_and_in_evaluation(
    tuning_run: PlannedRun, monkeypatch: pytest.MonkeyPatch
):
    optimize, epoch = TrainingLoop._optimize, TrainingLoop.epoch

    def loss_overflows(self: Any, inputs: Tensor, labels: Tensor) -> Tensor:
        return optimize(self, inputs, labels) + math.inf

    def model_overflows(self: Any, train: Any, number: int) -> dict[str, float]:
        losses = epoch(self, train, number)
        self.model.get_parameter("head.bias").data[0] = math.nan
        return losses

    for name, broken in (("_optimize", loss_overflows), ("epoch", model_overflows)):
        with monkeypatch.context() as patch:
            patch.setattr(TrainingLoop, name, broken)
            assert execute(with_recipe(tuning_run, epochs=1))["status"] == "diverged"


def test_an_epoch_before_the_divergence_is_kept(tuning_run: PlannedRun, monkeypatch: pytest.MonkeyPatch):
    original = TrainingLoop.epoch

    def second_epoch_diverges(self: Any, train: Any, epoch: int) -> dict[str, float]:
        if epoch == 1:
            raise Diverged
        return original(self, train, epoch)

    monkeypatch.setattr(TrainingLoop, "epoch", second_epoch_diverges)
    record = execute(tuning_run)
    assert record["status"] == "diverged"
    assert [set(epoch) >= {"train_loss", "validation_loss"} for epoch in record["metrics"]["epochs"]] == [True]


def fails_with(action: Callable[[], object]) -> Callable[[Shape], nn.Module]:
    def fail(shape: Shape) -> nn.Module:
        action()
        return build(shape)

    return fail


def cuda_runs_out() -> None:
    raise torch.OutOfMemoryError


def test_running_out_of_memory_is_a_record(tuning_run: PlannedRun, monkeypatch: pytest.MonkeyPatch, tmp_path):
    """On a CPU, where torch raises a plain RuntimeError, and on a GPU."""
    for number, action in enumerate((lambda: torch.empty(10**15), cuda_runs_out)):
        monkeypatch.setattr(runs, "build", fails_with(action))
        record = execute(replace(tuning_run, run_id=f"run-{number}"))
        assert record["status"] == "out_of_memory"
        records.write(record, tmp_path)


def test_any_other_error_is_an_error_and_not_a_record(tuning_run: PlannedRun, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(runs, "build", fails_with(lambda: torch.zeros(2) @ torch.zeros(3)))
    with pytest.raises(RuntimeError, match="size"):
        execute(tuning_run)


# Schedule and decay

HUNDRED_STEPS = Recipe(train_images=1_000, epochs=10, batch_size=100, learning_rate=2.0)


@pytest.mark.parametrize(
    ("step", "expected"),
    [(0, 0.2), (4, 1.0), (9, 2.0), (10, 2.0), (40, 1.5), (55, 1.0), (70, 0.5), (99, 1 - math.cos(math.pi / 90))],
)
def test_the_schedule_at_hand_computed_steps(step: int, expected: float):
    """Ten steps of warm-up, then ninety of a cosine: 60, 90, 120 degrees are a third, a half, two thirds of it."""
    assert HUNDRED_STEPS.steps == 100
    assert learning_rate(HUNDRED_STEPS, step) == pytest.approx(expected)


def test_the_schedule_rises_then_falls_and_scales_with_its_peak():
    rates = [learning_rate(HUNDRED_STEPS, step) for step in range(100)]
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert max(rates) == 2.0
    halved = [learning_rate(HUNDRED_STEPS.with_learning_rate(1.0), step) for step in range(100)]
    assert halved == pytest.approx([rate / 2 for rate in rates])


def decayed_names(shape: Shape) -> set[str]:
    """Names of the parameters that decay, after checking that every parameter is in exactly one group."""
    model = build(shape)
    groups = parameter_groups(model, 0.05)
    names = {id(p): name for name, p in model.named_parameters()}
    assert sorted(id(p) for group in groups for p in group["params"]) == sorted(names)
    assert {group["weight_decay"] for group in groups} == {0.05, 0.0}
    return {names[id(p)] for group in groups if group["weight_decay"] for p in group["params"]}


def test_matrices_and_kernels_of_a_vit_decay_and_nothing_else(tiny_shape: Shape):
    blocks = [f"blocks.{i}.{name}.weight" for i in range(2) for name in ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")]
    assert decayed_names(tiny_shape) == {"patch_embed.proj.weight", "head.weight", *blocks}


@pytest.mark.parametrize("row", VISION_ROWS, ids=lambda row: row.name)
def test_no_bias_norm_token_position_temperature_or_scale_decays(row):
    names = decayed_names(reduced_shape(row, "after", "after"))
    endings = ("bias", "temperature", "gamma1", "gamma2", "gamma3", "cls_token", "pos_embed", "patch_pos", "pixel_pos")
    assert not [name for name in names if name.endswith(endings)]
    assert not [name for name in names if any(part.startswith("norm") for part in name.split("."))]
    assert [name for name in names if "qk" in name]


# The attention kernel


def small_heads(run: PlannedRun) -> PlannedRun:
    return with_shape(replace(run, experiment="vision_tuning"), heads=(8,))


def test_a_record_says_which_attention_it_was_trained_with_and_both_end_alike(tiny_run: PlannedRun):
    lanes, torchs = execute(small_heads(tiny_run)), execute(small_heads(tiny_run), attention="sdpa")
    assert lanes["provenance"]["attention"] == "lanes"
    assert lanes["provenance"]["attention_layers"] == {"kernel": "lanes", "sites": 2, "of": 2}
    assert torchs["provenance"]["attention"] == "sdpa"
    ends = [record["metrics"]["validation_loss"] for record in (lanes, torchs)]
    assert ends[0] == pytest.approx(ends[1], abs=1e-4)


def test_without_the_kernel_training_uses_torchs_attention_and_the_record_says_why(
    tiny_run: PlannedRun, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HEADS_FOR_DEPTH_ATTENTION", "sdpa")
    availability.cache_clear()
    record = execute(small_heads(tiny_run))
    monkeypatch.undo()
    availability.cache_clear()
    assert record["provenance"]["attention"] == "sdpa"
    assert record["provenance"]["attention_layers"]["reason"] == "HEADS_FOR_DEPTH_ATTENTION is sdpa"
    assert (
        without_clocks(record)["metrics"] == without_clocks(execute(small_heads(tiny_run), attention="sdpa"))["metrics"]
    )
