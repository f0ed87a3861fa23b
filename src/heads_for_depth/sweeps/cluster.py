"""Sweeps on the workers of a running Dask scheduler: other machines, or one GPU per worker.

Workers send their records back and share no file system with the sweep: one process writes, as on one machine, so that
locking, refusing duplicates and atomic writing stay in one place. The price is that runs have no checkpoints there; a
run whose worker is lost starts again on another one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError
from contextlib import AbstractContextManager, contextmanager
from typing import Any

from heads_for_depth import provenance
from heads_for_depth.errors import BadInput
from heads_for_depth.sweeps.workers import Workers, WorkersGone

PATIENCE_SECONDS = 10
"""How long a scheduler may take to answer, and to show its first worker."""
AHEAD = 2
"""Runs handed out per worker: one in progress and one waiting, so that no worker is idle between two."""

_CONTINUE = "finished runs are recorded, the same command continues"


def on_cluster(scheduler: str, device: str = "cpu") -> Callable[[int], AbstractContextManager[Workers]]:
    """What opens the workers of the scheduler at this address, such as tcp://10.0.0.1:8786.

    Raises BadInput where `distributed` is not installed.
    """
    try:
        import distributed
    except ImportError as error:
        remedy = "needs Dask, install it with pip install 'heads-for-depth[cluster]'"
        raise BadInput("executor", "dask", remedy) from error
    return lambda jobs: _opened(distributed, scheduler, device)


@contextmanager
def _opened(distributed: Any, scheduler: str, device: str) -> Iterator[Workers]:
    """The scheduler's workers, checked; what is still running when the block is left is finished and thrown away."""
    client = _connect(distributed, scheduler)
    try:
        _check_workers(client, scheduler, device)
        yield Workers(pool=client.get_executor(), count=AHEAD * len(client.nthreads()))
    except distributed.KilledWorker as error:
        raise WorkersGone(f"{error.task} ended several workers of {scheduler}, {_CONTINUE}") from error
    except CancelledError as error:
        raise WorkersGone(f"the scheduler {scheduler} is gone, {_CONTINUE}") from error
    finally:
        client.close(timeout=PATIENCE_SECONDS)


def _connect(distributed: Any, scheduler: str) -> Any:
    try:
        return distributed.Client(scheduler, timeout=PATIENCE_SECONDS, set_as_default=False)
    except (OSError, ValueError) as error:
        remedy = "cannot be reached; start one with `dask scheduler` and give the address that it prints"
        raise BadInput("scheduler", scheduler, remedy) from error


def _check_workers(client: Any, scheduler: str, device: str) -> None:
    """Raise BadInput unless there is a worker, and every worker has one thread, this source and the device."""
    try:
        client.wait_for_workers(1, timeout=PATIENCE_SECONDS)
    except TimeoutError as error:
        remedy = f"has no workers; start some with `dask worker {scheduler} --nthreads 1`"
        raise BadInput("scheduler", scheduler, remedy) from error
    for address, threads in client.nthreads().items():
        if threads != 1:
            raise BadInput("worker", address, f"has {threads} threads, start it with --nthreads 1")
    here = _here()
    for address, there in client.run(provenance.commit).items():
        if there != here:
            raise BadInput("worker", address, f"runs commit {there} and the sweep {here}, use one source on both")
    client.run(provenance.check_device, device)


def _here() -> str:
    return provenance.commit()
