"""Run what is planned and not yet recorded, in worker processes of one thread each."""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import sys
import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, Executor, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from multiprocessing import connection
from pathlib import Path

import torch
from tqdm import tqdm

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun
from heads_for_depth.records import Record
from heads_for_depth.training import execute


class SweepFailed(RuntimeError):
    """A worker process is gone, so the sweep stopped; what had finished is recorded."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far one experiment is."""

    experiment: str
    planned: int
    recorded: int
    failed: int
    """Recorded with a status other than `ok`; they count as recorded too."""

    @property
    def missing(self) -> int:
        """Planned runs without a record."""
        return self.planned - self.recorded


def missing(planned: Sequence[PlannedRun], results: Path) -> list[PlannedRun]:
    """The planned runs that have no record yet, in plan order."""
    places = {(run.profile, run.experiment) for run in planned}
    done = {place: records.recorded_ids(results, *place) for place in places}
    return [run for run in planned if run.run_id not in done[run.profile, run.experiment]]


def progress(planned: Sequence[PlannedRun], results: Path) -> list[Progress]:
    """Planned, recorded and failed runs per experiment."""
    rows = []
    for experiment in dict.fromkeys(run.experiment for run in planned):
        runs = {run.run_id: run.profile for run in planned if run.experiment == experiment}
        profile = next(iter(runs.values()))
        found = [r for r in records.load(results, profile, experiment) if r["run_id"] in runs]
        failed = sum(r["status"] != "ok" for r in found)
        rows.append(Progress(experiment=experiment, planned=len(runs), recorded=len(found), failed=failed))
    return rows


def tuned(run: PlannedRun, results: Path) -> PlannedRun:
    """The run with the learning rate of the best tuning run: highest validation accuracy, the smaller rate on a tie.

    Raises BadInput where a tuning record is missing, or where all of them failed.
    """
    if not run.tuned_by or run.recipe is None:
        return run
    best: tuple[float, float] | None = None
    for run_id in run.tuned_by:
        path = records.path_of(results, run.profile, "vision_tuning", run_id)
        if not path.is_file():
            raise BadInput("tuning record", str(path), "is missing; run the experiment vision_tuning first")
        record = records.read(path)
        if record["status"] == "ok":
            score = (record["metrics"]["validation_accuracy"], -record["plan"]["recipe"]["learning_rate"])
            best = max(best, score) if best else score
    if best is None:
        raise BadInput("tuning records", run.tuned_by[0], "every learning rate of this cell failed")
    return replace(run, recipe=run.recipe.with_learning_rate(-best[1]))


def run_all(planned: Sequence[PlannedRun], results: Path, workers: int | None = None, device: str = "cpu") -> int:
    """Run everything planned that has no record yet; returns how many runs were added.

    Tuning runs come first, since the others take their learning rate from them. One record is written as each run
    ends, so an interruption loses the running runs and nothing else; the same call continues. Raises SweepFailed where
    a worker process is killed, BadInput where another sweep writes to `results` or a tuning record is missing.
    """
    records.check_writable(results)
    added = 0
    with _only_sweep(results):
        for phase in (False, True):
            todo = missing([run for run in planned if bool(run.tuned_by) is phase], results)
            added += _run_phase([tuned(run, results) for run in todo], results, workers, device) if todo else 0
    return added


_WORKER_GONE = (
    "a worker process was killed, perhaps because memory ran out; finished runs are recorded, "
    "the same command continues, with --workers 1 it needs the least memory"
)


def _run_phase(todo: Sequence[PlannedRun], results: Path, workers: int | None, device: str) -> int:
    count = min(workers or os.cpu_count() or 1, len(todo))
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(count, mp_context=context, initializer=_start_worker) as pool:
        try:
            return drain(pool, todo, results, device, ahead=count)
        except BrokenExecutor as error:
            raise SweepFailed(_WORKER_GONE) from error
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def drain(pool: Executor, todo: Sequence[PlannedRun], results: Path, device: str, ahead: int) -> int:
    """Feed the runs to any executor, `ahead` at a time, and write each record as it arrives."""
    waiting = iter(todo)
    running = {_submit(pool, run, device) for run in islice(waiting, ahead)}
    added = 0
    with tqdm(total=len(todo), unit="run", file=sys.stderr, dynamic_ncols=True) as bar:
        while running:
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for record in _results(done):
                records.write(record, results)
                added += 1
                bar.set_postfix_str(record["run_id"])
                bar.update()
            running |= {_submit(pool, run, device) for run in islice(waiting, len(done))}
    return added


def _submit(pool: Executor, run: PlannedRun, device: str) -> Future[Record]:
    return pool.submit(execute, run, device)


def _results(done: Iterable[Future[Record]]) -> Iterator[Record]:
    """What finished comes first, so that a failure beside it loses nothing."""
    for future in sorted(done, key=lambda future: future.exception() is not None):
        yield future.result()


def _start_worker() -> None:
    """One thread per worker: faster, robust on a busy machine, and the bits do not depend on the number of cores."""
    torch.set_num_threads(1)
    parent = multiprocessing.parent_process()
    if parent is not None:
        threading.Thread(target=_die_with, args=(parent.sentinel,), daemon=True).start()


def _die_with(sentinel: int) -> None:
    connection.wait([sentinel])
    os._exit(1)


@contextmanager
def _only_sweep(results: Path) -> Iterator[None]:
    """Hold the results folder. The lock belongs to the process: a killed sweep leaves none behind."""
    with (results / ".sweep.lock").open("w", encoding="utf8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise BadInput("results", str(results), "another sweep is writing there, wait for it or stop it") from error
        yield
