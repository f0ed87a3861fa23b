"""What a reader may change about an execution of the report."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path

from heads_for_depth.errors import BadInput
from heads_for_depth.paths import RESULTS, ROOT
from heads_for_depth.recipes import PROFILES

DEVICES = ("cpu", "cuda")
DEFAULT_RESULTS = RESULTS.relative_to(ROOT).as_posix()


@dataclass(frozen=True, kw_only=True, slots=True)
class ReportParameters:
    """The four parameters that every notebook has, checked: papermill itself enforces neither names nor types."""

    profile: str = "cpu"
    """Sizes and budgets of the training runs: smoke, cpu, gpu or full."""
    device: str = "cpu"
    """Where training and measurements run: cpu or cuda."""
    seeds: int | None = None
    """Seeds per cell, at least 1; None takes the number that the profile declares."""
    results: str = DEFAULT_RESULTS
    """Folder of the run records; a relative path counts from the root of the repository."""

    def __post_init__(self) -> None:
        _check(self.as_values())

    @classmethod
    def from_values(cls, values: Mapping[str, object]) -> ReportParameters:
        """Build from untyped names and values, such as those of a notebook; refuses names that do not exist."""
        known = {field.name for field in fields(cls)}
        for name, value in values.items():
            if name not in known:
                raise BadInput(f"parameter {name}", value, f"the parameters are {', '.join(sorted(known))}")
        _check(values)
        return cls(**values)  # type: ignore[arg-type]

    @property
    def results_folder(self) -> Path:
        """The folder of the records as an absolute path."""
        return ROOT / self.results

    def as_values(self) -> dict[str, str | int | None]:
        """Names and values as papermill injects them."""
        return {field.name: getattr(self, field.name) for field in fields(self)}


def _check(values: Mapping[str, object]) -> None:
    """Raise BadInput for the first value that has the wrong type or cannot be used; absent names are not looked at."""
    checks = {"profile": _check_profile, "device": _check_device, "seeds": _check_seeds, "results": _check_results}
    for name, value in values.items():
        checks[name](value)


def _check_profile(profile: object) -> None:
    _check_choice("profile", profile, PROFILES)


def _check_device(device: object) -> None:
    _check_choice("device", device, DEVICES)
    if device == "cuda":
        _check_cuda()


def _check_choice(field: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise BadInput(field, value, f"choose one of {', '.join(choices)}")


def _check_seeds(seeds: object) -> None:
    if seeds is None:
        return
    if isinstance(seeds, bool) or not isinstance(seeds, int) or seeds < 1:
        raise BadInput("seeds", seeds, "give a whole number of at least 1, or leave it out for the profile's own")


def _check_results(results: object) -> None:
    if not isinstance(results, str) or not results:
        raise BadInput("results", results, "give the path of a folder for the run records")
    folder = ROOT / results
    existing = next(path for path in (folder, *folder.parents) if path.exists())
    if not existing.is_dir():
        raise BadInput("results", results, f"{existing.name} is a file: give the path of a folder")
    if not os.access(existing, os.W_OK):
        raise BadInput("results", results, "the folder cannot be written to: choose another or change its permissions")


def _check_cuda() -> None:
    import torch  # slow to import and needed for this question alone

    if not torch.cuda.is_available():
        raise BadInput("device", "cuda", "torch sees no CUDA device here: use cpu, or a machine with an NVIDIA GPU")
