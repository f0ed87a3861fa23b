"""One planned run -> one record: train a shape from scratch, or measure κ of a shape at initialization."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from heads_for_depth import provenance
from heads_for_depth.attention_lanes import use_lanes
from heads_for_depth.conditioning import kappa_table, observe, premise_table
from heads_for_depth.datasets import Split, as_input, fashion_mnist
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import TUNING, PlannedRun
from heads_for_depth.interventions import intervene
from heads_for_depth.models import build
from heads_for_depth.recipes import Recipe
from heads_for_depth.records import SCHEMA, Record
from heads_for_depth.training import checkpoints
from heads_for_depth.training.loop import Diverged, TrainingLoop

KAPPA_INPUTS = 16
"""Validation images on which κ of a trained model is measured."""


Attention = Literal["auto", "sdpa"]
"""How a CPU computes attention while it trains: small heads in lanes where that is ready, or torch's own throughout."""


def execute(
    run: PlannedRun, device: str = "cpu", checkpoint_folder: Path | None = None, attention: Attention = "auto"
) -> Record:
    """Carry out one planned run. A diverged or memory-starved run is a record too, with its status.

    The record says which attention was used. With a checkpoint folder, training is saved there at the end of every
    epoch, and an interrupted run continues from its last one, to the same bits. Raises BadInput where the run cannot be
    carried out as planned.
    """
    record = blank_record(run, device)
    started = time.perf_counter()
    with failures_as_status(record):
        if run.kind == "train":
            _train(run, device, record, checkpoint_folder, attention)
        else:
            _measure_initial(run, device, record)
    spent_before = record["seconds"].pop("before", 0.0)
    record["seconds"]["total"] = round(spent_before + time.perf_counter() - started, 3)
    return record


@contextmanager
def failures_as_status(*together: Record) -> Iterator[None]:
    """Turn divergence and exhausted memory into the status of the records; let everything else through."""
    try:
        yield
    except Diverged:
        status = "diverged"
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        status = "out_of_memory"
    else:
        return
    for record in together:
        record["status"] = status


def is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; torch's allocator on the CPU has no exception class of its own."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)


def blank_record(run: PlannedRun, device: str) -> Record:
    """What a record says before anything is measured."""
    return {
        "schema": SCHEMA,
        "run_id": run.run_id,
        "experiment": run.experiment,
        "profile": run.profile,
        "status": "ok",
        "plan": run.as_dict(),
        "parameters": run.parameters,
        "metrics": {},
        "kappa": {},
        "seconds": {},
        "provenance": provenance.stamp(device),
    }


def initial_model(run: PlannedRun) -> nn.Module:
    """The untrained model of a run on the CPU: on one machine equal seeds give bit-equal weights for equal shapes."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = intervene(build(run.shape), run.intervention)
    counted = sum(p.numel() for p in model.parameters())
    if counted != run.parameters:
        raise BadInput("parameters", counted, f"the plan of {run.run_id} says {run.parameters}")
    return model


def _measure_initial(run: PlannedRun, device: str, record: Record) -> None:
    model = initial_model(run).to(device)
    _note(record, "initial", model, _kappa_inputs(run).to(device), run)


def _note(
    record: Record, when: str, model: nn.Module, inputs: Tensor, run: PlannedRun, jacobians: bool = False
) -> None:
    """κ of a model as it is now, and the premises of the theorem where the run asks for them."""
    seen = observe(model, inputs)
    record["kappa"][when] = kappa_table(seen, jacobians)
    if run.premises:
        record.setdefault("premises", {})[when] = premise_table(seen)


def _kappa_inputs(run: PlannedRun) -> Tensor:
    """Normal pixels from the seed of the run, or the first validation images."""
    shape = run.shape
    if run.inputs == "noise":
        generator = torch.Generator().manual_seed(run.seed)
        return torch.randn(run.input_count, shape.in_chans, shape.image_size, shape.image_size, generator=generator)
    images = fashion_mnist()["validation"].images[: run.input_count]
    return as_input(images, shape.image_size, shape.in_chans)


def _train(run: PlannedRun, device: str, record: Record, folder: Path | None, attention: Attention) -> None:
    recipe = complete_recipe(run)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        loop = TrainingLoop(initial_model(run).to(device), run.shape, recipe, run.seed, device)
        train, validation, test = splits_of(recipe)
        record["provenance"] |= _choose_attention(loop, train, attention)
        if not _continue(loop, record, folder) and is_tabled(run):
            note_kappa(record, "initial", loop, validation, run)
        _train_epochs(loop, record, folder, (train, validation), run)
        if is_tabled(run):
            note_kappa(record, "final", loop, validation, run)
            record["metrics"] |= loop.evaluate(test, "test")


def _choose_attention(loop: TrainingLoop, train: Split, attention: Attention) -> dict[str, Any]:
    """Switch what can run in lanes, unless torch's own attention is asked for; what the record says of it."""
    if attention == "sdpa" or loop.device != "cpu":
        return {"attention": "sdpa"}
    chosen = use_lanes(loop.model, loop.inputs(train.images[:1]))
    return {"attention": chosen.kernel, "attention_layers": chosen.as_dict()}


def _train_epochs(
    loop: TrainingLoop, record: Record, folder: Path | None, splits: tuple[Split, Split], run: PlannedRun
) -> None:
    """The epochs that are left, a checkpoint after each but the last."""
    train, validation = splits
    started = time.perf_counter() - record["seconds"].get("before", 0.0)
    epochs: list[dict[str, float]] = record["metrics"].setdefault("epochs", [])
    for epoch in range(len(epochs), loop.recipe.epochs):
        epochs.append(loop.epoch(train, epoch) | loop.evaluate(validation, "validation"))
        if (when := kappa_time(run, loop.recipe, epoch + 1)) is not None:
            note_kappa(record, when, loop, validation, run)
        if folder is not None and epoch + 1 < loop.recipe.epochs:
            spent = {"before": round(time.perf_counter() - started, 3)}
            checkpoints.save(folder, record | {"seconds": record["seconds"] | spent}, loop.state())
    note_epochs(record)


def _continue(loop: TrainingLoop, record: Record, folder: Path | None) -> bool:
    """Take over what an interrupted run left behind; False where there is nothing."""
    found = checkpoints.load(folder, record) if folder is not None else None
    if found is None:
        return False
    interrupted, state = found
    loop.restore(state)
    record.update(
        {name: interrupted[name] for name in ("metrics", "kappa", "premises", "seconds") if name in interrupted}
    )
    record["seconds"]["resumed"] = record["seconds"].get("resumed", 0) + 1
    return True


def note_epochs(record: Record) -> None:
    """Validation metrics after the last epoch, and the seconds of all epochs together."""
    epochs = record["metrics"]["epochs"]
    record["metrics"] |= {key: epochs[-1][key] for key in ("validation_loss", "validation_accuracy")}
    for name, key in (("train", "seconds"), ("train_cpu", "cpu_seconds")):
        record["seconds"][name] = round(sum(epoch[key] for epoch in epochs), 3)


def splits_of(recipe: Recipe) -> tuple[Split, Split, Split]:
    """Training, validation and test images of a recipe's budget."""
    splits = fashion_mnist()
    validation = splits["validation"].first(min(len(splits["validation"]), recipe.evaluation_images))
    return splits["train"].first(recipe.train_images), validation, splits["test"].first(recipe.evaluation_images)


def is_tabled(run: PlannedRun) -> bool:
    """Whether a training run enters a table, so that the test split is touched and κ measured; tuning runs do not."""
    return run.experiment in TUNING


def complete_recipe(run: PlannedRun) -> Recipe:
    """The run's recipe, or BadInput where its learning rate is not chosen yet."""
    if run.recipe is None or run.recipe.learning_rate is None:
        raise BadInput("learning_rate", None, f"{run.run_id} needs its tuning runs first")
    return run.recipe


def kappa_time(run: PlannedRun, recipe: Recipe, done: int) -> str | None:
    """Name under which κ is noted after so many epochs, or None; the last epoch is noted as `final` by itself."""
    if done >= recipe.epochs or not is_tabled(run):
        return None
    if run.kappa_times == "middle" and done == (recipe.epochs + 1) // 2:
        return "middle"
    return f"epoch-{done}" if run.kappa_times == "epochs" else None


def note_kappa(record: Record, when: str, loop: TrainingLoop, validation: Split, run: PlannedRun) -> None:
    """κ on validation images; the Jacobians, which cost the most, for the first seed only.

    A spectral shift is a constant to the gradient, so that a Jacobian would lack its part; it is left out there.
    """
    inputs = loop.inputs(validation.images[:KAPPA_INPUTS])
    exact = run.intervention != "spectral-shift"
    _note(record, when, loop.model, inputs, run, jacobians=exact and loop.seed == 0)
