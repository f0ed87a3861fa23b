"""One job carried out: from nothing or from its checkpoint, to its record."""

from __future__ import annotations

import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.full_scale import checkpoints
from heads_for_depth.full_scale.checkpoints import State
from heads_for_depth.full_scale.jobs import Job
from heads_for_depth.full_scale.processes import Processes
from heads_for_depth.full_scale.trainer import Trainer
from heads_for_depth.records import Record
from heads_for_depth.training.runs import blank_record, failures_as_status

FINAL = ("validation_loss", "validation_accuracy", "ema_validation_loss", "ema_validation_accuracy")
"""Of the last epoch, repeated as the result of the run: no epoch is chosen by its validation accuracy."""


class OutOfMemory(Exception):
    """Memory ran out; the other processes may be waiting for this one in a collective call."""


@dataclass(kw_only=True, slots=True)
class Progress:
    """How far a run is; it lives on in the checkpoint."""

    epochs: list[dict[str, float]] = field(default_factory=list)
    resumed_after: list[int] = field(default_factory=list)
    """Finished epochs at each start from a checkpoint."""
    seconds_before: float = 0.0
    """Of earlier starts, up to their last checkpoint."""
    started: float = field(default_factory=time.perf_counter)

    @property
    def seconds(self) -> float:
        """Of all starts together, without the epochs that were lost."""
        return round(self.seconds_before + time.perf_counter() - self.started, 3)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for the checkpoint."""
        return {"epochs": self.epochs, "resumed_after": self.resumed_after, "seconds_before": self.seconds}


def execute(job: Job, processes: Processes) -> Record:
    """Train to the end and write the record; a run that diverges or runs out of memory has a record too.

    Every process must call this. Raises BadInput, in all of them, where the run has a record already, is being trained
    by others, cannot be written, or has a checkpoint of another run; OutOfMemory once the record is written.
    """
    record, progress = blank_record(job.run, job.device), Progress()
    with ExitStack() as held:
        processes.agree(lambda: _check_places(job, held) if processes.first else None)
        with failures_as_status(record):
            _train(job, processes, progress)
        _fill(record, job, progress)
        if record["status"] == "out_of_memory":
            _write_alone(record, job, processes)
            raise OutOfMemory
        processes.agree(lambda: _write(record, job, processes))
    return record


def _check_places(job: Job, held: ExitStack) -> None:
    if job.record.exists():
        raise BadInput("run", job.run.run_id, f"has a record already at {job.record}, which is never overwritten")
    records.check_writable(job.record.parent)
    held.enter_context(checkpoints.hold(job))


def _train(job: Job, processes: Processes, progress: Progress) -> None:
    """All epochs that are still to be trained, with a checkpoint after each."""
    saved = processes.agree(lambda: checkpoints.load(job))
    _check_shared(job, processes, saved)
    trainer = Trainer(job, processes)
    if saved is not None:
        _resume(job, processes, progress, trainer, saved)
    for epoch in range(len(progress.epochs), job.recipe.epochs):
        progress.epochs.append(trainer.epoch(epoch))
        _save(job, processes, progress, trainer)
        processes.say(_line(progress.epochs, job.recipe.epochs))


def _check_shared(job: Job, processes: Processes, saved: State | None) -> None:
    found = processes.gather(len(saved["progress"]["epochs"]) if saved else 0)
    if len(set(found)) > 1:
        raise BadInput("checkpoints", str(job.checkpoints), "is not one folder for all machines, they must share it")


def _resume(job: Job, processes: Processes, progress: Progress, trainer: Trainer, saved: State) -> None:
    trainer.restore(saved["trainer"])
    for name, value in saved["progress"].items():
        setattr(progress, name, value)
    progress.resumed_after.append(len(progress.epochs))
    processes.say(f"{job.run.run_id} continues after epoch {len(progress.epochs)} of {job.recipe.epochs}")


def _save(job: Job, processes: Processes, progress: Progress, trainer: Trainer) -> None:
    state = {"trainer": trainer.state(), "progress": progress.as_dict()}
    processes.agree(lambda: checkpoints.save(job, state) if processes.first else None)


def _fill(record: Record, job: Job, progress: Progress) -> None:
    record["plan"] = job.plan() | {"resumed_after_epochs": progress.resumed_after}
    record["metrics"]["epochs"] = progress.epochs
    if record["status"] == "ok":
        record["metrics"] |= {name: progress.epochs[-1][name] for name in FINAL}
    seconds = sum(epoch["seconds"] for epoch in progress.epochs)
    record["seconds"] |= {"train": round(seconds, 3), "total": progress.seconds}
    record["provenance"]["data"] = job.data.digest


def _write(record: Record, job: Job, processes: Processes) -> None:
    if processes.first:
        records.write(record, job.results)


def _write_alone(record: Record, job: Job, processes: Processes) -> None:
    """Write without a word between the processes, for one of them may wait for ever."""
    try:
        _write(record, job, processes)
    except BadInput as refusal:
        processes.say(str(refusal))
    processes.after_first()


def _line(epochs: list[dict[str, float]], of: int) -> str:
    last = epochs[-1]
    top1, average = (100 * last[f"{name}validation_accuracy"] for name in ("", "ema_"))
    return (
        f"epoch {len(epochs)} of {of}: training loss {last['train_loss']:.4f}, "
        f"top-1 {top1:.2f} %, of the average {average:.2f} %, {last['seconds']:.0f} s"
    )
