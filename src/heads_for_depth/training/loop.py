"""Model and optimizer of one run, what one epoch does to them, and their state as plain tensors."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heads_for_depth.datasets import Split, as_input, augment, epoch_order
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Shape
from heads_for_depth.training.schedule import learning_rate, parameter_groups


class Diverged(Exception):
    """The training loss is no longer finite."""


@dataclass(slots=True)
class TrainingLoop:
    """Everything that changes while one seed of one shape is trained; `step` counts optimizer steps from 0."""

    model: nn.Module
    shape: Shape
    recipe: Recipe
    seed: int
    device: str
    optimizer: torch.optim.Optimizer
    step: int

    def __init__(self, model: nn.Module, shape: Shape, recipe: Recipe, seed: int, device: str = "cpu") -> None:
        self.model, self.shape, self.recipe, self.seed, self.device, self.step = model, shape, recipe, seed, device, 0
        self.optimizer = torch.optim.AdamW(
            parameter_groups(model, recipe.weight_decay), lr=0.0, betas=recipe.betas, fused=True
        )

    def inputs(self, images: Tensor) -> Tensor:
        """Network input of these images on the device of the run."""
        return as_input(images.to(self.device), self.shape.image_size, self.shape.in_chans)

    def epoch(self, train: Split, epoch: int) -> dict[str, float]:
        """One pass over the training images; mean training loss in nats, wall-clock and processor seconds."""
        started, started_cpu = time.perf_counter(), time.process_time()
        self.model.train()
        losses = [self._optimize(*batch) for batch in self._batches(train, epoch)]
        total = float(torch.stack(losses).mean())
        if not math.isfinite(total):
            raise Diverged
        seconds, cpu_seconds = time.perf_counter() - started, time.process_time() - started_cpu
        return {"train_loss": total, "seconds": round(seconds, 3), "cpu_seconds": round(cpu_seconds, 3)}

    def _batches(self, train: Split, epoch: int) -> Iterator[tuple[Tensor, Tensor]]:
        order, generator = epoch_order(len(train), self.seed, epoch)
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

    def state(self) -> dict[str, Any]:
        """Model with its buffers, optimizer, position in the schedule and the global random state.

        Order and augmentation of an epoch follow from the seed and the epoch's number, so they need no state.
        """
        return {
            "model": self.model.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "step": self.step,
            "random": torch.get_rng_state(),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from a state of the same shape and recipe."""
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.step = state["step"]
        torch.set_rng_state(state["random"])
