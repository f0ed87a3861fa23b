"""Worker processes on this machine, one thread each, and what a pool of workers looks like to a sweep."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator
from concurrent.futures import BrokenExecutor, Executor, ProcessPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import connection
from multiprocessing.sharedctypes import Synchronized
from typing import Any

import torch

from heads_for_depth.attention_lanes import availability


class WorkersGone(BrokenExecutor):
    """Workers were lost for good; the message says which and how to go on."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Workers:
    """Where runs are carried out."""

    pool: Executor
    count: int
    """Runs that are in progress at once."""


KILLED = (
    "a worker process was killed, perhaps because memory ran out; finished runs are recorded, "
    "the same command continues, with --workers 1 it needs the least memory"
)


def available_cores() -> list[int]:
    """The cores that this process may use."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


@contextmanager
def processes(count: int | None, jobs: int) -> Iterator[Workers]:
    """A pool of `count` processes (default: one per core), but of no more than there are jobs.

    More workers than cores take turns. Whatever ends the block early ends the workers
    at once, and so does the end of this process.
    """
    availability()  # compiled here at most once, and not by every worker at the same time
    cores = available_cores()
    wanted = min(count or len(cores), jobs)
    context = multiprocessing.get_context("spawn")
    watched, held = context.Pipe(duplex=False)
    places = (context.Value("i", 0), cores if wanted == len(cores) else [])
    pool = ProcessPoolExecutor(wanted, mp_context=context, initializer=start_worker, initargs=(watched, *places))
    try:
        yield Workers(pool=pool, count=wanted)
        pool.shutdown()
    except BrokenExecutor as error:
        raise WorkersGone(KILLED) from error
    finally:
        held.close()
        pool.shutdown(wait=False, cancel_futures=True)


def start_worker(watched: connection.Connection, started: Synchronized[int], cores: list[int]) -> None:
    """Set a worker process up; it ends when the other end of `watched` is closed, by its parent or by its death.

    One thread: faster, robust on a busy machine, and the bits do not depend on the number of cores. Ctrl-C is for the
    parent to act on. Workers that fill the machine get a core each: a scheduler was seen to keep two on one.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    torch.set_num_threads(1)
    threading.Thread(target=end_with, args=(watched,), daemon=True).start()
    if cores and hasattr(os, "sched_setaffinity"):
        with started.get_lock():
            os.sched_setaffinity(0, {cores[started.value % len(cores)]})
            started.value += 1


def end_with(watched: Any) -> None:
    """End this process when the other end of `watched` is closed, or the process that it stands for ends."""
    connection.wait([watched])
    os._exit(1)
