"""One planned run -> one record: train a shape from scratch, or measure κ of a shape at initialization."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heads_for_depth import provenance
from heads_for_depth.conditioning import measure
from heads_for_depth.datasets import Split, as_input, augment, epoch_order, fashion_mnist
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun
from heads_for_depth.models import build
from heads_for_depth.recipes import Recipe
from heads_for_depth.records import SCHEMA, Record

KAPPA_INPUTS = 16
"""Validation images on which κ of a trained model is measured."""


class Diverged(Exception):
    """The training loss is no longer finite."""


def execute(run: PlannedRun, device: str = "cpu") -> Record:
    """Carry out one planned run. A diverged or memory-starved run is a record too, with its status."""
    record = _blank(run, device)
    started = time.perf_counter()
    try:
        work = _train if run.kind == "train" else _measure_initial
        work(run, device, record)
    except Diverged:
        record["status"] = "diverged"
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        record["status"] = "out_of_memory"
    record["seconds"]["total"] = round(time.perf_counter() - started, 3)
    return record


def _is_out_of_memory(error: Exception) -> bool:
    """Whether memory ran out; torch's allocator on the CPU has no exception class of its own."""
    return isinstance(error, (MemoryError, torch.OutOfMemoryError)) or "DefaultCPUAllocator" in str(error)


def _blank(run: PlannedRun, device: str) -> Record:
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
    """The untrained model of a run on the CPU. Equal seeds give bit-equal weights where the shapes agree."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(run.seed)
        model = build(run.shape)
    counted = sum(p.numel() for p in model.parameters())
    if counted != run.parameters:
        raise BadInput("parameters", counted, f"the plan of {run.run_id} says {run.parameters}")
    return model


def _measure_initial(run: PlannedRun, device: str, record: Record) -> None:
    model = initial_model(run).to(device)
    record["kappa"]["initial"] = measure(model, _kappa_inputs(run).to(device))


def _kappa_inputs(run: PlannedRun) -> Tensor:
    """Normal pixels from the seed of the run, or the first validation images."""
    shape = run.shape
    if run.inputs == "noise":
        generator = torch.Generator().manual_seed(run.seed)
        return torch.randn(run.input_count, shape.in_chans, shape.image_size, shape.image_size, generator=generator)
    images = fashion_mnist()["validation"].images[: run.input_count]
    return as_input(images, shape.image_size, shape.in_chans)


def _train(run: PlannedRun, device: str, record: Record) -> None:
    recipe, splits = _complete(run), fashion_mnist()
    loop = _Loop(initial_model(run).to(device), run, recipe, device)
    train = splits["train"].first(recipe.train_images)
    validation = splits["validation"].first(min(len(splits["validation"]), recipe.evaluation_images))
    tabled = run.experiment == "vision_rows"
    if tabled:
        record["kappa"]["initial"] = _kappa(loop, validation)
    epochs: list[dict[str, float]] = []
    record["metrics"]["epochs"] = epochs
    for epoch in range(recipe.epochs):
        epochs.append(loop.epoch(train, epoch) | loop.evaluate(validation, "validation"))
    record["metrics"] |= {key: epochs[-1][key] for key in ("validation_loss", "validation_accuracy")}
    record["seconds"]["train"] = round(sum(epoch["seconds"] for epoch in epochs), 3)
    if tabled:
        record["kappa"]["final"] = _kappa(loop, validation)
        record["metrics"] |= loop.evaluate(splits["test"].first(recipe.evaluation_images), "test")


def _complete(run: PlannedRun) -> Recipe:
    if run.recipe is None or run.recipe.learning_rate is None:
        raise BadInput("learning_rate", None, f"{run.run_id} needs its tuning runs first")
    return run.recipe


def _kappa(loop: _Loop, validation: Split) -> dict[str, Any]:
    """κ on validation images; the Jacobians, which cost the most, for the first seed only."""
    return measure(loop.model, loop.inputs(validation.images[:KAPPA_INPUTS]), jacobians=loop.run.seed == 0)


@dataclass(slots=True)
class _Loop:
    """Model and optimizer of one run, and what one epoch does to them."""

    model: nn.Module
    run: PlannedRun
    recipe: Recipe
    device: str
    optimizer: torch.optim.Optimizer
    step: int

    def __init__(self, model: nn.Module, run: PlannedRun, recipe: Recipe, device: str) -> None:
        self.model, self.run, self.recipe, self.device, self.step = model, run, recipe, device, 0
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, recipe.weight_decay), lr=0.0, betas=recipe.betas, fused=True
        )

    def inputs(self, images: Tensor) -> Tensor:
        """Network input of these images on the device of the run."""
        return as_input(images, self.run.shape.image_size, self.run.shape.in_chans).to(self.device)

    def epoch(self, train: Split, epoch: int) -> dict[str, float]:
        """One pass over the training images; mean training loss and seconds."""
        started, total = time.perf_counter(), 0.0
        self.model.train()
        losses = [self._optimize(*batch) for batch in self._batches(train, epoch)]
        total = float(torch.stack(losses).mean())
        if not math.isfinite(total):
            raise Diverged
        return {"train_loss": total, "seconds": round(time.perf_counter() - started, 3)}

    def _batches(self, train: Split, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order, generator = epoch_order(len(train), self.run.seed, epoch)
        size = self.recipe.batch_size
        for start in range(0, len(order) - size + 1, size):
            index = order[start : start + size]
            yield self.inputs(augment(train.images[index], generator)), train.labels[index].to(self.device)

    def _optimize(self, inputs: Tensor, labels: Tensor) -> Tensor:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate(self.recipe, self.step)
        self.step += 1
        self.optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(self.model(inputs), labels)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
        self.optimizer.step()
        return loss.detach()

    @torch.no_grad()
    def evaluate(self, split: Split, name: str, batch: int = 500) -> dict[str, float]:
        """Mean loss in nats and accuracy in [0, 1] over a split, under keys `<name>_loss`, `<name>_accuracy`."""
        self.model.eval()
        loss, correct = 0.0, 0
        for start in range(0, len(split), batch):
            labels = split.labels[start : start + batch].to(self.device)
            logits = self.model(self.inputs(split.images[start : start + batch]))
            loss += float(functional.cross_entropy(logits, labels, reduction="sum"))
            correct += int((logits.argmax(dim=1) == labels).sum())
        if not math.isfinite(loss):
            raise Diverged
        return {f"{name}_loss": loss / len(split), f"{name}_accuracy": correct / len(split)}


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices and kernels only, not for biases, norms, tokens, positions, temperatures or scales."""
    skip: Callable[[], set[str]] = getattr(model, "no_weight_decay", set)
    listed = skip()
    decayed = {name for name, p in model.named_parameters() if p.dim() >= 2 and p.shape[0] > 1 and name not in listed}
    decayed = {name for name in decayed if not name.endswith("temperature")}
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in model.named_parameters() if name in decayed], "weight_decay": weight_decay},
        {"params": [p for name, p in model.named_parameters() if name not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up over the first steps, then a cosine that ends at zero after the last; `step` counts from 0."""
    peak = recipe.learning_rate or 0.0
    warmup = max(1, round(recipe.warmup_fraction * recipe.steps))
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, recipe.steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
