"""A group of processes that computes one job together: started here, or found already started by torchrun."""

from __future__ import annotations

import atexit
import multiprocessing
import os
import pickle
import signal
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import distributed
from torch.distributed import FileStore, Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.rendezvous import rendezvous
from torch.multiprocessing.spawn import ProcessContext, ProcessException, start_processes

from heads_for_depth.errors import BadInput

TORCHRUN = ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets in every process beside WORLD_SIZE."""
GRACE_SECONDS = 3.0
"""How long the others may take to end by themselves once one has failed."""
RESULT, REFUSAL = "result.pickle", "refusal.pickle"

T = TypeVar("T")


class ProcessesFailed(RuntimeError):
    """A process of the group failed, was killed or took too long; all others have been ended."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Member:
    """This process in its group."""

    rank: int
    world_size: int
    device: torch.device

    def mesh(self, degree: int) -> DeviceMesh | None:
        """The first `degree` processes as a mesh; None in the others. Every process of the group must call this."""
        mesh = DeviceMesh(self.device.type, list(range(degree)))
        return mesh if self.rank < degree else None


def meet(mesh: DeviceMesh) -> None:
    """Go on once every process of the mesh has come here."""
    distributed.all_reduce(torch.zeros(1), group=mesh.get_group())


def speaks() -> bool:
    """Whether this process prints and writes: alone, or the first of those that torchrun started."""
    return os.environ.get("RANK", "0") == "0"


def run_job(
    processes: int,
    job: Callable[..., T],
    *arguments: Any,
    device: str = "cpu",
    timeout_seconds: float = 600.0,
) -> T:
    """What `job(member, *arguments)` returns in the first of a group of processes, each with one thread.

    Under torchrun (WORLD_SIZE is set) its processes are the group, at least `processes` of them, and all get the
    result. Otherwise that many are started on this machine, more than it has cores if need be, and talk over its
    loopback interface; `job`, `arguments` and the result must be picklable. They end with this process.

    Raises BadInput where processes or GPUs are missing and what `job` refuses, ProcessesFailed where a process fails,
    is killed, or has not ended after `timeout_seconds`.
    """
    if processes < 1:
        raise BadInput("processes", processes, "must be at least 1")
    if "WORLD_SIZE" in os.environ:
        return _run_in_world(processes, job, arguments, device, timeout_seconds)
    _check_gpus(device, processes)
    with tempfile.TemporaryDirectory(prefix="heads-for-depth-") as folder:
        launch = _Launch(Path(folder), processes, job, arguments, device, timeout_seconds)
        _wait(start_processes(_work, (launch,), processes, join=False, daemon=True), launch)
        result: T = pickle.loads((launch.folder / RESULT).read_bytes())
    return result


@dataclass(frozen=True, slots=True)
class _Launch:
    """What every started process is told."""

    folder: Path
    processes: int
    job: Callable[..., Any]
    arguments: tuple[Any, ...]
    device: str
    timeout_seconds: float


def _work(rank: int, launch: _Launch) -> None:
    """The life of a started process."""
    _end_with_parent()
    _use_loopback()
    try:
        store = FileStore(str(launch.folder / "store"), launch.processes)
        member = _join(store, rank, rank, launch.processes, launch.device, launch.timeout_seconds)
        result = launch.job(member, *launch.arguments)
    except BadInput as refusal:
        _write(launch.folder / REFUSAL, refusal, rank)
        raise
    if rank == 0:
        _write(launch.folder / RESULT, result, rank)
    distributed.barrier()
    distributed.destroy_process_group()


def _write(path: Path, value: Any, rank: int) -> None:
    own = path.with_suffix(f".{rank}")
    own.write_bytes(pickle.dumps(value))
    own.replace(path)


def _end_with_parent() -> None:
    """End this process as soon as the one that started it is gone, whatever it is waiting for."""
    parent = multiprocessing.parent_process()

    def watch() -> None:
        if parent is not None:
            parent.join()
            os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def _use_loopback() -> None:
    """Let gloo talk over this machine's own interface, unless the user chose one."""
    known = {name for _, name in socket.if_nameindex()}
    for name in ("lo", "lo0"):
        if name in known:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", name)


def _join(store: Store, rank: int, local_rank: int, world_size: int, device: str, timeout_seconds: float) -> Member:
    torch.set_num_threads(1)
    place = torch.device("cuda", local_rank) if device == "cuda" else torch.device(device)
    if device == "cuda":
        torch.cuda.set_device(place)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    patience = timedelta(seconds=timeout_seconds)
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size, timeout=patience)
    return Member(rank=rank, world_size=world_size, device=place)


def _wait(context: ProcessContext, launch: _Launch) -> None:
    """Return once all have ended well; else end all that are left and say what happened."""
    deadline = time.monotonic() + launch.timeout_seconds
    try:
        while not context.join(timeout=max(0.0, deadline - time.monotonic()), grace_period=GRACE_SECONDS):
            if time.monotonic() >= deadline:
                limit = f"{launch.timeout_seconds:g} seconds"
                raise ProcessesFailed(f"{launch.processes} processes had not ended after {limit}")
    except ProcessException as error:
        refusal = launch.folder / REFUSAL
        if refusal.exists():
            raise pickle.loads(refusal.read_bytes()) from error
        raise ProcessesFailed(_reason(context, error)) from error
    finally:
        for process in context.processes:
            if process.is_alive():
                process.kill()
            process.join()


def _reason(context: ProcessContext, error: ProcessException) -> str:
    """Which process failed and why; one that was killed is the cause of what the others complain of."""
    codes = [process.exitcode or 0 for process in context.processes]
    killed = [rank for rank, code in enumerate(codes) if code < 0 and -code != signal.SIGTERM]
    if killed:
        rank = killed[0]
        return f"process {rank} of {len(codes)} was killed by {signal.Signals(-codes[rank]).name}"
    return f"process {error.error_index} of {len(codes)} failed: {error.msg.strip().splitlines()[-1]}"


def _run_in_world(
    degree: int, job: Callable[..., T], arguments: tuple[Any, ...], device: str, timeout_seconds: float
) -> T:
    """The job in the processes that torchrun started; all of them get the first one's result."""
    member = _world(degree, device, timeout_seconds)
    results = [job(member, *arguments)]
    distributed.broadcast_object_list(results, src=0)
    return results[0]


def _world(degree: int, device: str, timeout_seconds: float) -> Member:
    """Join the group once; later jobs of this process find it joined."""
    given = os.environ["WORLD_SIZE"]
    world_size = _number("WORLD_SIZE")
    if world_size < degree:
        remedy = f"degree {degree} needs at least {degree} processes, start them with torchrun --nproc-per-node"
        raise BadInput("processes", world_size, f"{remedy} {degree}")
    missing = [name for name in TORCHRUN if name not in os.environ]
    if missing:
        raise BadInput("WORLD_SIZE", given, f"several processes need torchrun, which also sets {', '.join(missing)}")
    rank, local_rank = _number("RANK"), _number("LOCAL_RANK")
    _check_gpus(device, local_rank + 1)
    if distributed.is_initialized():
        place = torch.device("cuda", local_rank) if device == "cuda" else torch.device(device)
        return Member(rank=rank, world_size=world_size, device=place)
    store, _, _ = next(rendezvous("env://"))
    member = _join(store, rank, local_rank, world_size, device, timeout_seconds)
    atexit.register(distributed.destroy_process_group)
    return member


def _number(variable: str) -> int:
    """A whole number that torchrun sets."""
    given = os.environ[variable]
    if not (given.isascii() and given.isdecimal() and len(given) <= 9):
        raise BadInput(variable, given, "must be a whole number, as torchrun sets it")
    return int(given)


def _check_gpus(device: str, processes: int) -> None:
    if device == "cuda" and torch.cuda.device_count() < processes:
        remedy = f"this machine has {torch.cuda.device_count()}, and each of {processes} processes needs its own"
        raise BadInput("GPUs", processes, remedy)


def physical_cores(info: Path = Path("/proc/cpuinfo")) -> int:
    """Cores of this machine that this process may use, two hardware threads of one core counted once."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    sections = info.read_text("utf-8").split("\n\n") if info.is_file() else []
    cores = {_core(section) for section in sections} - {()}
    return min(usable, len(cores)) if cores else usable


def _core(section: str) -> tuple[str, ...]:
    """Socket and core of one hardware thread; empty where the system does not say."""
    lines = [line.split(":", 1) for line in section.splitlines() if ":" in line]
    values = {name.strip(): value.strip() for name, value in lines}
    known = [name for name in ("physical id", "core id") if name in values]
    return tuple(values[name] for name in known) if len(known) == 2 else ()
