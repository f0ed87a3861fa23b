"""Several seeds of one shape trained as one: every parameter has a leading axis of seeds, every kernel serves all.

The arithmetic of one seed is that of `TrainingLoop` up to the order of sums: same initial weights, order of images,
augmentation, clipping per seed, schedule. On CUDA one optimizer step is captured once as a graph and replayed.
"""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state, vmap
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel

from heads_for_depth.datasets import Split, as_input, draw_moves, epoch_order, moved
from heads_for_depth.experiments import PlannedRun
from heads_for_depth.recipes import Recipe
from heads_for_depth.records import Record
from heads_for_depth.training.loop import TrainingLoop
from heads_for_depth.training.runs import (
    blank_record,
    complete_recipe,
    failures_as_status,
    initial_model,
    is_tabled,
    kappa_time,
    note_epochs,
    note_kappa,
    splits_of,
)
from heads_for_depth.training.schedule import decayed_names, learning_rate

WARM_UP_STEPS = 3
"""Steps on a side stream before a CUDA graph is captured; their effect is undone."""


def execute_seeds(runs: Sequence[PlannedRun], device: str) -> list[Record]:
    """Train runs that differ in their seed only, together; one record each.

    A seed whose loss is no longer finite is recorded as diverged and does not touch the others. Where memory runs out,
    all of them are recorded so. Seconds are the shared ones divided by the number of seeds.
    """
    found = [blank_record(run, device) for run in runs]
    started = time.perf_counter()
    with failures_as_status(*found):
        _train(runs, device, found)
    share = (time.perf_counter() - started) / len(runs)
    for record in found:
        record["seconds"] |= {"total": round(share, 3), "seeds_at_once": len(runs)}
    return found


def _train(runs: Sequence[PlannedRun], device: str, found: Sequence[Record]) -> None:
    recipe = complete_recipe(runs[0])
    train, validation, test = splits_of(recipe)
    batch = SeedBatch([initial_model(run).to(device) for run in runs], runs, recipe, device)
    if is_tabled(runs[0]):
        _note_kappa(batch, validation, found, "initial")
    for epoch in range(recipe.epochs):
        losses, clocks = batch.epoch(train, epoch)
        for record, loss, measured in zip(found, losses, batch.evaluate(validation, "validation"), strict=True):
            line = {"train_loss": loss} | clocks | measured
            record["metrics"].setdefault("epochs", []).append(line)
        if (when := kappa_time(runs[0], recipe, epoch + 1)) is not None:
            _note_kappa(batch, validation, found, when)
    tested = batch.evaluate(test, "test") if is_tabled(runs[0]) else [{}] * len(runs)
    for record, measured in zip(found, tested, strict=True):
        _close(record, measured)
    if is_tabled(runs[0]):
        _note_kappa(batch, validation, found, "final")


def _close(record: Record, test: dict[str, float]) -> None:
    """Final metrics, or the status `diverged` with the epochs up to where a number was still finite."""
    epochs = record["metrics"]["epochs"]
    finite = [epoch for epoch in epochs if _finite([epoch])]
    if len(finite) < len(epochs) or not all(math.isfinite(value) for value in test.values()):
        record["status"] = "diverged"
        record["metrics"]["epochs"] = finite
        return
    record["metrics"] |= test
    note_epochs(record)


def _finite(epochs: Sequence[Mapping[str, float]]) -> bool:
    return all(math.isfinite(value) for epoch in epochs for value in epoch.values())


def _note_kappa(batch: SeedBatch, validation: Split, found: Sequence[Record], when: str) -> None:
    for loop, record, run in zip(batch.loops(), found, batch.runs, strict=True):
        if record["status"] == "ok" and _finite(record["metrics"].get("epochs", [])):
            note_kappa(record, when, loop, validation, run)


class SeedBatch:
    """Stacked parameters, buffers and optimizer state of several seeds of one shape."""

    def __init__(self, models: Sequence[nn.Module], runs: Sequence[PlannedRun], recipe: Recipe, device: str) -> None:
        self.models, self.runs, self.recipe, self.device, self.step = list(models), runs, recipe, device, 0
        self.parameters, self.buffers = stack_module_state(self.models)
        self.skeleton = copy.deepcopy(self.models[0]).to("meta")
        self.rate = torch.zeros((), device=device)
        decayed = decayed_names(self.models[0])
        groups = [
            {"params": [p for name, p in self.parameters.items() if (name in decayed) is is_decayed],
             "weight_decay": recipe.weight_decay if is_decayed else 0.0}
            for is_decayed in (True, False)
        ]  # fmt: skip
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]], lr=self.rate, betas=recipe.betas, fused=True,
            capturable=device == "cuda",
        )  # fmt: skip
        self.graph: _Graph | None = None
        self.replayed = device == "cuda" and runs[0].intervention != "spectral-shift"  # its SVD cannot be captured

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits (seeds, batch, classes) of inputs (seeds, batch, channels, height, width)."""

        def one(parameters: dict[str, Tensor], buffers: dict[str, Tensor], x: Tensor) -> Any:
            return functional_call(self.skeleton, (parameters, buffers), (x,))

        with sdpa_kernel(SDPBackend.MATH):  # the fused kernels have no rule for a leading axis on every device
            return vmap(one, randomness="different")(self.parameters, self.buffers, inputs)

    def optimize(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """One optimizer step of every seed on its own batch at the present rate; the losses (seeds,)."""
        logits = self.forward(inputs)
        losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        means = losses.unflatten(0, labels.shape).mean(dim=1)
        self.optimizer.zero_grad(set_to_none=False)
        means.sum().backward()
        self._clip()
        self.optimizer.step()
        return means.detach()

    @torch.no_grad()
    def _clip(self) -> None:
        """Scale the gradients of every seed to a norm of at most `clip_norm`, as `clip_grad_norm_` does for one."""
        gradients = [p.grad for p in self.parameters.values() if p.grad is not None]
        norms = torch.stack([g.flatten(1).norm(dim=1) for g in gradients]).norm(dim=0)
        factors = (self.recipe.clip_norm / (norms + 1e-6)).clamp(max=1.0)
        for gradient in gradients:
            gradient.mul_(factors.view(-1, *[1] * (gradient.dim() - 1)))

    def epoch(self, train: Split, epoch: int) -> tuple[list[float], dict[str, float]]:
        """One pass of every seed over its own order of the images; mean losses, and a seed's share of the seconds."""
        started, started_cpu = time.perf_counter(), time.process_time()
        self.skeleton.train()
        losses = []
        for inputs, labels in self._batches(train, epoch):
            self.rate.fill_(learning_rate(self.recipe, self.step))
            self.step += 1
            losses.append(self._replay(inputs, labels) if self.replayed else self.optimize(inputs, labels))
        means = torch.stack(losses).mean(dim=0).tolist()
        spent = {"seconds": time.perf_counter() - started, "cpu_seconds": time.process_time() - started_cpu}
        return means, {name: round(seconds / len(self.runs), 3) for name, seconds in spent.items()}

    def _replay(self, inputs: Tensor, labels: Tensor) -> Tensor:
        if self.graph is None:
            self.graph = _Graph(self, inputs, labels)
        return self.graph.replay(inputs, labels)

    def _batches(self, train: Split, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        """Inputs (seeds, batch, …) and labels (seeds, batch), every seed in the order of `TrainingLoop`."""
        images, labels = train.images.to(self.device), train.labels.to(self.device)
        size, shape = self.recipe.batch_size, self.runs[0].shape
        streams = [epoch_order(len(train), run.seed, epoch) for run in self.runs]
        for start in range(0, len(train) - size + 1, size):
            drawn = [(order[start : start + size], *draw_moves(size, generator)) for order, generator in streams]
            index, offsets, flip = (torch.cat(column).to(self.device) for column in zip(*drawn, strict=True))
            inputs = as_input(moved(images[index], offsets, flip), shape.image_size, shape.in_chans)
            yield inputs.unflatten(0, (len(streams), size)), labels[index].unflatten(0, (len(streams), size))

    def loops(self) -> Iterator[TrainingLoop]:
        """Every seed as a model of its own, with the present weights."""
        for number, (model, run) in enumerate(zip(self.models, self.runs, strict=True)):
            state = {name: value[number] for name, value in (self.parameters | self.buffers).items()}
            model.load_state_dict(state, strict=False)
            yield TrainingLoop(model, run.shape, self.recipe, run.seed, self.device)

    def evaluate(self, split: Split, name: str, batch: int = 500) -> list[dict[str, float]]:
        """Loss in nats and accuracy of every seed over a split; not a number where it is not finite."""
        self.skeleton.eval()
        loss = torch.zeros(len(self.runs), device=self.device)
        correct = torch.zeros_like(loss)
        with torch.no_grad():
            for start in range(0, len(split), batch):
                labels = split.labels[start : start + batch].to(self.device)
                images = split.images[start : start + batch].to(self.device)
                inputs = as_input(images, self.runs[0].shape.image_size, self.runs[0].shape.in_chans)
                logits = self.forward(inputs.expand(len(self.runs), *inputs.shape))
                each = functional.cross_entropy(
                    logits.flatten(0, 1), labels.repeat(len(self.runs)), reduction="none"
                ).unflatten(0, (len(self.runs), -1))
                loss += each.sum(dim=1)
                correct += (logits.argmax(dim=-1) == labels).sum(dim=1)
        means, shares = (loss / len(split)).tolist(), (correct / len(split)).tolist()
        return [{f"{name}_loss": mean, f"{name}_accuracy": share} for mean, share in zip(means, shares, strict=True)]


class _Graph:
    """One optimizer step of a batch of seeds as a CUDA graph."""

    def __init__(self, batch: SeedBatch, inputs: Tensor, labels: Tensor) -> None:
        self.inputs, self.labels = inputs.clone(), labels.clone()
        before = {name: value.detach().clone() for name, value in (batch.parameters | batch.buffers).items()}
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(WARM_UP_STEPS):
                batch.optimize(self.inputs, self.labels)
        torch.cuda.current_stream().wait_stream(stream)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.losses = batch.optimize(self.inputs, self.labels)
        with torch.no_grad():
            for name, value in (batch.parameters | batch.buffers).items():
                value.copy_(before[name])
            for state in batch.optimizer.state.values():
                for value in state.values():
                    value.zero_()

    def replay(self, inputs: Tensor, labels: Tensor) -> Tensor:
        """The losses of one step on these batches."""
        self.inputs.copy_(inputs)
        self.labels.copy_(labels)
        self.graph.replay()
        return self.losses.clone()
