"""What one worker carries out at a time: one run on a CPU, all seeds of a shape on a GPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from heads_for_depth.experiments import PlannedRun
from heads_for_depth.records import Record
from heads_for_depth.training.runs import Attention, execute
from heads_for_depth.training.seed_batches import execute_seeds

Job = tuple[PlannedRun, ...]
"""Runs that one worker carries out together; they differ in their seed only."""
SEEDS_AT_ONCE = 8


def as_jobs(runs: Sequence[PlannedRun], device: str) -> list[Job]:
    """Runs as jobs, in the order of their first runs.

    On a GPU these models are bound by the number of kernels launched, which does not grow with the seeds that share
    them. On a CPU sharing was measured to bring nothing, so a job is one run there.
    """
    if device == "cpu":
        return [(run,) for run in runs]
    alike: dict[tuple[object, ...], list[PlannedRun]] = {}
    for run in runs:
        key = (run.kind, replace(run, seed=0, run_id="")) if run.kind == "train" else (run.kind, run.run_id)
        alike.setdefault(key, []).append(run)
    return [
        tuple(group[start : start + SEEDS_AT_ONCE])
        for group in alike.values()
        for start in range(0, len(group), SEEDS_AT_ONCE)
    ]


def set_precision(device: str) -> None:
    """What the bits depend on: one thread on a CPU; on a GPU float32 throughout, since torch's convolutions round their
    inputs to TF32 by default, which for models this small buys no time."""
    if device == "cpu":
        torch.set_num_threads(1)
    else:
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False


def execute_job(
    job: Job, device: str = "cpu", checkpoint_folder: Path | None = None, attention: Attention = "auto"
) -> list[Record]:
    """The records of a job, in its order."""
    set_precision(device)
    if len(job) == 1:
        return [execute(job[0], device, checkpoint_folder, attention)]
    return execute_seeds(job, device)
