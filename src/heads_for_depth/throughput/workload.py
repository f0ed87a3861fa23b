"""A model with something to do: forward passes and training steps of any batch size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from heads_for_depth.language_models import build_language
from heads_for_depth.models import build
from heads_for_depth.precision import cast
from heads_for_depth.recount import LanguageShape
from heads_for_depth.throughput.modes import Mode
from heads_for_depth.throughput.subjects import Subject

Call = Callable[[], None]
SEED = 0
RECOMPILE_LIMIT = 1_000
"""More than all shapes of a series, times all batch sizes, forward and in training: they share their code."""


class Workload:
    """One subject, built on its device from a fixed seed."""

    def __init__(self, subject: Subject, mode: Mode) -> None:
        self.subject, self.mode = subject, mode
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            self.model = _build(subject).to(mode.device)
        self.run: Any = _compiled(self.model) if mode.compiled else self.model
        self.optimizer: torch.optim.Optimizer | None = None

    @property
    def parameters(self) -> int:
        """Learned parameters of the model as it is built here."""
        return sum(parameter.numel() for parameter in self.model.parameters())

    def forward(self, batch: int) -> Call:
        """A call that computes the logits of one batch in evaluation mode, without gradients.

        With one item a GPU is waited for within the call: that is latency, and not how fast calls can be queued.
        """
        inputs = self.inputs(batch)
        wait = batch == 1 and self.mode.device == "cuda"
        self.model.eval()

        def call() -> None:
            with torch.inference_mode(), cast(self.mode.precision, self.mode.device):
                self.run(inputs)
            if wait:
                torch.cuda.synchronize()

        return call

    def training_step(self, batch: int) -> Call:
        """A call that does forward pass, backward pass and one step of AdamW, the loss over all tokens of a text."""
        inputs, targets = self.inputs(batch), self.targets(batch)
        self.model.train()

        def call() -> None:
            if self.optimizer is None:
                self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-4)
            with cast(self.mode.precision, self.mode.device):
                logits = self.logits(inputs)
                loss = functional.cross_entropy(logits.flatten(0, -2), targets.flatten())
            loss.backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=True)

        return call

    def release(self) -> None:
        """Let go of gradients and optimizer state; the next training step makes them anew."""
        self.optimizer = None
        self.model.zero_grad(set_to_none=True)
        if self.mode.device == "cuda":
            torch.cuda.empty_cache()

    def logits(self, inputs: Tensor) -> Tensor:
        """What the model says of a batch: images × classes, or texts × tokens × vocabulary."""
        outputs = self.run(inputs)
        logits: Tensor = getattr(outputs, "logits", outputs)
        return logits

    def inputs(self, batch: int) -> Tensor:
        """Normal pixels or random words, the same for every batch of this size."""
        generator, shape = torch.Generator().manual_seed(SEED), self.subject.shape
        if isinstance(shape, LanguageShape):
            words = torch.randint(shape.vocab_size, (batch, self.subject.tokens), generator=generator)
            return words.to(self.mode.device)
        size = (batch, shape.in_chans, shape.image_size, shape.image_size)
        return torch.randn(size, generator=generator).to(self.mode.device)

    def targets(self, batch: int) -> Tensor:
        """Random classes, or the words themselves."""
        shape = self.subject.shape
        if isinstance(shape, LanguageShape):
            return self.inputs(batch)
        generator = torch.Generator().manual_seed(SEED)
        return torch.randint(shape.classes, (batch,), generator=generator).to(self.mode.device)


def _compiled(model: nn.Module) -> Any:
    """The model through torch.compile, once per batch size; torch would stop compiling, silently, after a few."""
    torch._dynamo.config.recompile_limit = RECOMPILE_LIMIT
    torch._dynamo.config.accumulated_recompile_limit = RECOMPILE_LIMIT
    torch._dynamo.config.fail_on_recompile_limit_hit = True
    return torch.compile(model, dynamic=False)


def _build(subject: Subject) -> nn.Module:
    if isinstance(subject.shape, LanguageShape):
        return build_language(subject.shape, tokens=subject.tokens)
    return build(subject.shape)


def input_bytes(subject: Subject, batch: int) -> int:
    """What one batch of inputs takes by itself."""
    shape = subject.shape
    if isinstance(shape, LanguageShape):
        return 8 * batch * subject.tokens
    return 4 * batch * shape.in_chans * shape.image_size**2
