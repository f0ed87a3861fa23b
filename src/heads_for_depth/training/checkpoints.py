"""Training state at the ends of epochs: written whole or not at all, and read only by the run that wrote it."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import torch

from heads_for_depth.errors import BadInput
from heads_for_depth.records import Record
from heads_for_depth.whole_files import written_beside

FORMAT = "heads-for-depth/checkpoint/1"
State = dict[str, Any]
IDENTITY = ("run_id", "experiment", "profile", "plan", "parameters")
ORIGIN = ("commit", "device", "threads", "attention", "versions")
"""Fields of a record's provenance in which a resumed run must equal the interrupted one, or the bits may differ."""


def path_of(folder: Path, record: Record) -> Path:
    """Where the checkpoint of a run lies, beside the records in a hidden folder."""
    return folder / record["profile"] / record["experiment"] / f"{record['run_id']}.pt"


def save(folder: Path, record: Record, state: State) -> None:
    """Replace the checkpoint of a run by this state and by what its record holds so far.

    Raises BadInput where the folder cannot be written to; the former checkpoint stays.
    """
    path = path_of(folder, record)
    buffer = io.BytesIO()
    torch.save({"format": FORMAT, "record": record, "state": state}, buffer)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with written_beside(path.parent, buffer.getvalue()) as file:
            file.replace(path)
    except OSError as error:
        raise BadInput("checkpoints", str(folder), f"cannot be written to ({error.strerror}), free it") from error


def load(folder: Path, record: Record) -> tuple[Record, State] | None:
    """The record so far and the state of the interrupted run that this fresh record continues, or None.

    Raises BadInput where the file is damaged or comes from another shape, recipe or version.
    """
    path = path_of(folder, record)
    if not path.is_file():
        return None
    try:
        found = torch.load(path, weights_only=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError) as error:
        raise BadInput("checkpoint", str(path), "cannot be read, remove it to start the run again") from error
    if not isinstance(found, dict) or found.get("format") != FORMAT:
        raise BadInput("checkpoint", str(path), f"is not in format {FORMAT}, remove it to start the run again")
    _check_same_run(path, found["record"], record)
    return found["record"], found["state"]


def discard(folder: Path, record: Record) -> None:
    """Remove the checkpoint of a run whose record is written, if there is one."""
    path_of(folder, record).unlink(missing_ok=True)


def _check_same_run(path: Path, interrupted: Record, fresh: Record) -> None:
    pairs = {name: (interrupted[name], fresh[name]) for name in IDENTITY}
    pairs |= {name: (interrupted["provenance"].get(name), fresh["provenance"].get(name)) for name in ORIGIN}
    for name, (then, now) in pairs.items():
        if then != now:
            remedy = f"is from another {name} ({_shown(then, now)}), remove it to start the run again"
            raise BadInput("checkpoint", str(path), remedy)


def _shown(then: Any, now: Any) -> str:
    """The first entry in which two values differ, `then` and `now`."""
    if isinstance(then, dict) and isinstance(now, dict):
        for key in sorted(then.keys() | now.keys()):
            if then.get(key) != now.get(key):
                return f"{key} {_shown(then.get(key), now.get(key))}"
    return f"{then} then, {now} now"
