"""The state of a run at the end of an epoch: written whole, refused where it is of another run."""

from __future__ import annotations

import fcntl
import os
import pickle
from pathlib import Path
from typing import Any, TextIO

import torch

from heads_for_depth import __version__
from heads_for_depth.errors import BadInput
from heads_for_depth.full_scale.jobs import Job
from heads_for_depth.provenance import versions

FORMAT = 1
"""Of the file; another one is refused."""
State = dict[str, Any]
AWAY = "move it away, or name another folder with --checkpoints"


def identity(job: Job) -> dict[str, dict[str, Any]]:
    """What must be equal where a run continues."""
    computing = {name: number for name, number in versions().items() if name in ("torch", "timm")}
    return {
        "version": {"checkpoint format": FORMAT, "heads-for-depth": __version__} | computing,
        "shape": job.run.shape.as_dict(),
        "recipe": job.recipe.as_dict(),
        "run": {"run id": job.run.run_id, "seed": job.run.seed, "processes": job.world_size, "data": job.data.digest},
    }


def save(job: Job, state: State) -> None:
    """Replace the checkpoint by this state: at every moment the file is the old one or the new one, whole."""
    partial = job.checkpoint.with_suffix(".writing")
    try:
        with partial.open("wb") as file:
            torch.save({"identity": identity(job), **state}, file)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(job.checkpoint)
    except OSError as error:
        raise BadInput("checkpoint", str(job.checkpoint), f"cannot be written ({error.strerror})") from error


def load(job: Job) -> State | None:
    """The state to continue from, on the CPU, or None where there is none.

    Raises BadInput where the file is no checkpoint, or of another version, shape, recipe or run.
    """
    path = job.checkpoint
    if not path.is_file():
        return None
    try:
        saved = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, RuntimeError, pickle.UnpicklingError, EOFError) as error:
        raise BadInput("checkpoint", str(path), f"is truncated or no checkpoint; {AWAY}") from error
    if not isinstance(saved, dict) or "identity" not in saved:
        raise BadInput("checkpoint", str(path), f"is no checkpoint of a full-scale run; {AWAY}")
    found = saved.pop("identity")
    for name, own in identity(job).items():
        _compare(path, name, found.get(name, {}), own)
    return saved


def _compare(path: Path, name: str, found: dict[str, Any], own: dict[str, Any]) -> None:
    for key in own:
        if found.get(key) != own[key]:
            difference = f"{key} is {found.get(key)} there and {own[key]} here"
            raise BadInput("checkpoint", str(path), f"is of another {name} ({difference}); {AWAY}")


def hold(job: Job) -> TextIO:
    """Keep other launches of this run away while the file is open. A killed process leaves no lock behind.

    Raises BadInput where another process holds it, or the folder of the checkpoints cannot be written to.
    """
    try:
        job.checkpoints.mkdir(parents=True, exist_ok=True)
        file = job.checkpoint.with_suffix(".lock").open("w", encoding="utf8")
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as error:
        file.close()
        raise BadInput("run", job.run.run_id, "is being trained by another process, wait for it or stop it") from error
    except OSError as error:
        remedy = f"cannot be written to or locked ({error.strerror}), choose another folder"
        raise BadInput("checkpoints", str(job.checkpoints), remedy) from error
    return file
