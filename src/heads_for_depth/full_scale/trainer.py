"""Model, moving average, optimizer and schedule of one run, and what an epoch does to them."""

from __future__ import annotations

import math
import sys
import time
import warnings
from typing import Any

import torch
from timm.layers import DropPath  # type: ignore[attr-defined]
from timm.optim import create_optimizer_v2  # type: ignore[attr-defined]
from timm.scheduler import CosineLRScheduler  # type: ignore[attr-defined]
from timm.utils import ModelEmaV3, distribute_bn  # type: ignore[attr-defined]
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from heads_for_depth.full_scale.jobs import Job
from heads_for_depth.full_scale.loaders import (
    mixing,
    order_seed,
    restore_streams,
    seed_streams,
    stream_states,
    train_loader,
    validation_loader,
    validation_share,
)
from heads_for_depth.full_scale.processes import Processes
from heads_for_depth.training import Diverged, initial_model, parameter_groups


class Trainer:
    """One run in this process. Weights, their average and the optimizer are equal in all processes after each step."""

    def __init__(self, job: Job, processes: Processes) -> None:
        self.job, self.processes, self.updates = job, processes, 0
        self.device = torch.device(job.device)
        if job.device == "cuda":
            self.device = torch.device("cuda", processes.local_rank)
            torch.cuda.set_device(self.device)
        self.train, self.validation = train_loader(job, self.device), validation_loader(job, self.device)
        self.model = with_stochastic_depth(initial_model(job.run), job.recipe.stochastic_depth).to(self.device)
        self.average = ModelEmaV3(self.model, decay=job.recipe.ema_decay, use_warmup=True)
        self.optimizer = _optimizer(self.model, job)
        self.schedule = _schedule(self.optimizer, job, len(self.train))
        self.mix = mixing(job)
        # Depthwise kernels come back from the backward pass in another layout, which costs a copy and nothing else.
        warnings.filterwarnings("ignore", "Grad strides do not match bucket view strides")
        self.parallel = DistributedDataParallel(self.model)
        seed_streams(job.run.seed, processes.rank)

    def epoch(self, epoch: int) -> dict[str, float]:
        """One pass over the training images, then both validations; raises Diverged where a loss is not finite."""
        started = time.perf_counter()
        self.parallel.train()
        self.train.sampler.set_epoch(order_seed(self.job.run.seed, epoch))
        quiet = None if self.processes.first else True  # None: where stderr is no terminal
        batches = tqdm(self.train, unit="step", file=sys.stderr, leave=False, disable=quiet)
        losses = [self._step(*self.mix(images, labels)) for images, labels in batches]
        loss = float(self.processes.total(torch.stack(losses).mean())) / self.processes.world_size
        if not math.isfinite(loss):
            raise Diverged
        for model in (self.model, self.average.module):  # running statistics: those of all processes
            distribute_bn(model, self.processes.world_size, reduce=True)
        result = {"train_loss": loss, "learning_rate": float(self.optimizer.param_groups[0]["lr"])}
        result |= self.evaluate(self.model, "validation") | self.evaluate(self.average.module, "ema_validation")
        return result | {"seconds": round(time.perf_counter() - started, 3)}

    def _step(self, images: Tensor, targets: Tensor) -> Tensor:
        self.optimizer.zero_grad(set_to_none=True)
        with self._precision():
            loss = functional.cross_entropy(self.parallel(images), targets)
        loss.backward()
        nn.utils.clip_grad_norm_(self.model.parameters(), self.job.recipe.clip_norm)
        self.optimizer.step()
        self.updates += 1
        self.average.update(self.model, step=self.updates)
        self.schedule.step_update(self.updates)
        return loss.detach()

    def _precision(self) -> torch.autocast:
        return torch.autocast(self.device.type, torch.bfloat16, enabled=self.job.recipe.precision == "bf16")

    @torch.no_grad()
    def evaluate(self, model: nn.Module, name: str) -> dict[str, float]:
        """Mean loss in nats and top-1 in [0, 1] over `val`, each image once: `<name>_loss`, `<name>_accuracy`."""
        model.eval()
        images_in_all, processes = self.job.data.validation_images, self.processes
        left = validation_share(images_in_all, processes.rank, processes.world_size)
        sums = torch.zeros(2, dtype=torch.float64, device=self.device)
        for images, labels in self.validation:
            with self._precision():
                logits = model(images)
            logits, labels = logits[:left].float(), labels[:left]
            left -= len(labels)
            sums[0] += functional.cross_entropy(logits, labels, reduction="sum")
            sums[1] += (logits.argmax(dim=1) == labels).sum()
        loss, accuracy = (processes.total(sums) / images_in_all).tolist()
        if not math.isfinite(loss):
            raise Diverged
        return {f"{name}_loss": loss, f"{name}_accuracy": accuracy}

    def state(self) -> dict[str, Any]:
        """Everything that the next epoch depends on; `restore` reads it back."""
        return {
            "model": self.model.state_dict(),
            "average": self.average.module.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "updates": self.updates,
            "streams": self.processes.gather(stream_states(self.device)),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Continue from what `state` gave, with the same number of processes."""
        self.model.load_state_dict(state["model"])
        self.average.module.load_state_dict(state["average"])
        self.optimizer.load_state_dict(state["optimizer"])
        self.updates = state["updates"]
        self.schedule.step_update(self.updates)
        restore_streams(state["streams"][self.processes.rank], self.device)


def with_stochastic_depth(model: nn.Module, rate: float) -> nn.Module:
    """Let every residual branch be skipped at this rate, in place: timm's blocks hold a place for it."""
    for name, module in list(model.named_modules()):
        if name.rpartition(".")[2].startswith("drop_path") and isinstance(module, nn.Identity):
            model.set_submodule(name, DropPath(rate))
    return model


def _optimizer(model: nn.Module, job: Job) -> torch.optim.Optimizer:
    """The same parameters decay as in the runs at reduced scale."""
    recipe = job.recipe
    return create_optimizer_v2(
        model, opt=recipe.optimizer, lr=recipe.learning_rate, betas=recipe.betas, weight_decay=recipe.weight_decay,
        param_group_fn=lambda module: parameter_groups(module, recipe.weight_decay),
    )  # fmt: skip


def _schedule(optimizer: torch.optim.Optimizer, job: Job, steps_per_epoch: int) -> CosineLRScheduler:
    """Counted in steps: linear warm-up, then a cosine over the whole run."""
    recipe, steps = job.recipe, job.recipe.epochs * steps_per_epoch
    return CosineLRScheduler(
        optimizer, t_initial=steps, lr_min=recipe.last_learning_rate, warmup_t=round(recipe.warmup_fraction * steps),
        warmup_lr_init=recipe.first_learning_rate, t_in_epochs=False,
    )  # fmt: skip
