"""How a model is run: device, precision, eager or compiled; and for how long it is timed."""

from __future__ import annotations

import shutil
import sys
from dataclasses import dataclass, replace
from typing import Any, get_args

from heads_for_depth.errors import BadInput
from heads_for_depth.precision import Precision, check_precision
from heads_for_depth.provenance import check_device, device_name, machine, machine_slug, slug

EAGER, COMPILED = "eager", "compiled"


@dataclass(frozen=True, kw_only=True, slots=True)
class Mode:
    """One way of running every model."""

    device: str = "cpu"
    precision: Precision = "fp32"
    """fp32, or bf16 by autocast over float32 weights."""
    compiled: bool = False

    @property
    def words(self) -> str:
        """The part of a run id that names the mode."""
        return f"{self.precision}.{COMPILED if self.compiled else EAGER}"

    @property
    def hardware(self) -> str:
        """The part of a run id that names what computes."""
        return machine_slug(machine()) if self.device == "cpu" else slug(device_name(self.device))


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Batch sizes and durations."""

    rounds: int
    """Rounds of alternation that count; one more comes first and is discarded."""
    heads_rounds: int
    """The same where only heads change."""
    batch_sizes: tuple[int, ...]
    """Images or texts per forward pass, of which the best is the throughput; 1 is the latency."""
    training_batch: int
    heads_batch: int
    """Batch of forward and training step where only heads change."""
    seconds: float
    """Shortest duration of a sample: a call is repeated until it is filled."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        names = ("rounds", "heads_rounds", "training_batch", "heads_batch", "seconds")
        return {name: getattr(self, name) for name in names} | {"batch_sizes": list(self.batch_sizes)}


SETTINGS = {
    "smoke": Settings(rounds=2, heads_rounds=1, batch_sizes=(1, 2), training_batch=2, heads_batch=2, seconds=0.001),
    "cpu": Settings(rounds=5, heads_rounds=3, batch_sizes=(1, 2, 8), training_batch=4, heads_batch=4, seconds=0.2),
    "gpu": Settings(
        rounds=5, heads_rounds=3, batch_sizes=(1, 16, 64, 256), training_batch=64, heads_batch=64, seconds=0.05
    ),
}
COMPILED_ON_CPU = {"rounds": 3, "batch_sizes": (1,)}
"""A batch size is compiled for by itself, which on two cores takes longer than it is then timed."""


def settings_of(profile: str, mode: Mode) -> Settings:
    """Batch sizes and durations of a profile in a mode, or BadInput with the profiles that measure."""
    if profile not in SETTINGS:
        raise BadInput("profile", profile, f"throughput is measured with {', '.join(SETTINGS)}")
    settings = SETTINGS[profile]
    shorter = mode.compiled and profile == "cpu"
    return replace(settings, **COMPILED_ON_CPU) if shorter else settings  # type: ignore[arg-type]


def modes_of(profile: str, device: str) -> tuple[Mode, ...]:
    """The modes of a profile: float32 on a CPU, bf16 too on a GPU; eager and compiled."""
    precisions = get_args(Precision) if device == "cuda" else ("fp32",)
    compiled = (False,) if profile == "smoke" else (False, True)
    return tuple(Mode(device=device, precision=p, compiled=c) for c in compiled for p in precisions)


def possible_modes(profile: str, device: str) -> tuple[Mode, ...]:
    """The modes of a profile that this machine can run; for the others a word on stderr."""
    possible = []
    for mode in modes_of(profile, device):
        try:
            check_mode(mode)
        except BadInput as error:
            print(f"{mode.words} is left out: {error}", file=sys.stderr)
        else:
            possible.append(mode)
    return tuple(possible)


def check_mode(mode: Mode) -> None:
    """Raise BadInput where this machine cannot run it."""
    check_device(mode.device)
    check_precision(mode.precision, mode.device)
    if mode.compiled and mode.device == "cpu" and not any(map(shutil.which, ("g++", "clang++", "c++"))):
        raise BadInput("mode", COMPILED, "torch.compile needs a C++ compiler here, install g++ or use --mode eager")
