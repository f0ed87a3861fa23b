"""Run what is planned and not yet recorded, on any `concurrent.futures` executor."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path

from tqdm import tqdm

from heads_for_depth import records
from heads_for_depth.experiments import TUNING, PlannedRun
from heads_for_depth.records import Record
from heads_for_depth.sweeps.lock import only_sweep
from heads_for_depth.sweeps.planning import missing, tuned
from heads_for_depth.sweeps.workers import Workers, WorkersGone, processes
from heads_for_depth.training import Attention, checkpoints
from heads_for_depth.training.jobs import Job, as_jobs, execute_job
from heads_for_depth.whole_files import remove_half_written

CHECKPOINTS = ".checkpoints"
"""Folder beside the records in which interrupted runs lie."""
Settings = tuple[str, Path | None, Attention]
"""(device, checkpoint folder, attention) of every job of a sweep."""
OpenWorkers = Callable[[int], AbstractContextManager[Workers]]
"""Opens workers for so many jobs; closing them ends what they are doing."""


class SweepFailed(RuntimeError):
    """Workers are gone for good, so the sweep stopped; what had finished is recorded."""


def run_all(
    planned: Sequence[PlannedRun],
    results: Path,
    workers: int | None = None,
    device: str = "cpu",
    open_workers: OpenWorkers | None = None,
    attention: Attention = "auto",
) -> int:
    """Run everything planned that has no record yet; returns how many runs were added.

    Tuning runs come first, since the others take their learning rate from them. One record is written as each run
    ends, by this process alone. On worker processes of this machine a run in progress is saved at the end of every
    epoch; the same call continues it. `open_workers` carries the runs out elsewhere (see `cluster`), without
    checkpoints. Raises SweepFailed where a worker is killed, BadInput where another sweep writes to `results` or a
    tuning record is missing.
    """
    records.check_writable(results)
    folder = results / CHECKPOINTS if open_workers is None else None
    opened = open_workers or (lambda jobs: processes(workers, jobs))
    added = 0
    with only_sweep(results):
        remove_half_written(results)
        waiting = missing(planned, results)  # reads every record before the first run, so that a bad one stops it here
        for tuning in (True, False):
            todo = [run for run in waiting if (run.experiment in TUNING.values()) is tuning]
            jobs = as_jobs([tuned(run, results) for run in todo], device)
            settings = (device, folder, attention)
            added += _run_phase(jobs, results, opened, settings) if jobs else 0
    return added


def _run_phase(jobs: Sequence[Job], results: Path, opened: OpenWorkers, settings: Settings) -> int:
    try:
        with opened(len(jobs)) as workers:
            return drain(workers, jobs, results, settings)
    except WorkersGone as error:
        raise SweepFailed(str(error)) from error


def drain(workers: Workers, jobs: Sequence[Job], results: Path, settings: Settings = ("cpu", None, "auto")) -> int:
    """Feed the jobs to the workers, as many at a time as they take, and write each record as it arrives."""
    _, folder, _ = settings

    def submit(count: int) -> set[Future[list[Record]]]:
        return {workers.pool.submit(execute_job, job, *settings) for job in islice(waiting, count)}

    waiting, added = iter(jobs), 0
    running = submit(workers.count)
    with tqdm(total=sum(map(len, jobs)), unit="run", file=sys.stderr, dynamic_ncols=True) as bar:
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for record in _results(done):
                records.write(record, results)
                if folder is not None:
                    checkpoints.discard(folder, record)
                added += 1
                bar.set_postfix_str(record["run_id"])
                bar.update()
            running |= submit(len(done))
    return added


def _results(done: Iterable[Future[list[Record]]]) -> Iterator[Record]:
    """What finished comes first, so that a failure beside it loses nothing."""
    for future in sorted(done, key=lambda future: future.exception() is not None):
        yield from future.result()
