"""The processes that torchrun started, and how they agree on what is wrong."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import TypeVar

import torch
from torch import Tensor, distributed
from torch.distributed import HashStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from heads_for_depth.errors import BadInput

TORCHRUN = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
"""What torchrun sets in the environment of every process."""
SEVERAL = ("WORLD_SIZE", "SLURM_STEP_NUM_TASKS")
"""What tells, without torchrun, that this process is one of several."""
PATIENCE = timedelta(seconds=60)
"""How long a process whose memory ran out waits for the first one to have written the record."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True, slots=True)
class Processes:
    """This process among all of a run. One process alone is a group of one, so that there is one way for all."""

    rank: int
    local_rank: int
    """Its number on its own machine: which GPU it takes."""
    world_size: int
    store: Store

    @property
    def first(self) -> bool:
        """Whether this one writes, and speaks for all."""
        return self.rank == 0

    def say(self, sentence: str) -> None:
        """Print one line to stderr, once for all processes."""
        if self.first:
            print(f"full_scale: {sentence}", file=sys.stderr, flush=True)

    def gather(self, value: T) -> list[T]:
        """The values of all processes, by rank; none goes on before all are here."""
        values = [value] * self.world_size
        distributed.all_gather_object(values, value)
        return values

    def agree(self, check: Callable[[], T]) -> T:
        """Carry out a check in every process; what one refuses is raised in all, so that none waits for another."""
        result: T | None = None
        refusal: BadInput | None = None
        try:
            result = check()
        except BadInput as error:
            refusal = error
        refusals = [refused for refused in self.gather(refusal) if refused is not None]
        if refusals:
            raise refusals[0]
        return result  # type: ignore[return-value]

    def total(self, numbers: Tensor) -> Tensor:
        """Sums over all processes, in place."""
        distributed.all_reduce(numbers)
        return numbers

    def after_first(self) -> None:
        """Go on once the first process has come here, though the group may be beyond use."""
        if self.first:
            self.store.set("first", "here")
        else:
            self.store.wait(["first"], PATIENCE)

    def leave(self) -> None:
        """Leave in good order: torchrun ends all processes once one has failed, so none goes before all have spoken."""
        self.gather(None)
        distributed.destroy_process_group()

    def abandon(self, code: int) -> int:
        """Leave while others may wait in a collective call: end this process at once, unless it is alone."""
        if self.world_size > 1:
            sys.stderr.flush()
            os._exit(code)
        distributed.destroy_process_group()
        return code


def join() -> Processes:
    """Join the processes of this run.

    Raises BadInput where this is one of several that torchrun did not start: each would train alone.
    """
    missing = [name for name in TORCHRUN if name not in os.environ]
    for name in SEVERAL if missing else ():
        if os.environ.get(name, "1") != "1":
            remedy = f"several processes need torchrun, which also sets {', '.join(missing)}"
            raise BadInput(name, os.environ[name], remedy)
    store: Store
    if missing:
        store, rank, world_size, local_rank = HashStore(), 0, 1, 0
    else:
        store, rank, world_size = next(rendezvous("env://"))
        local_rank = int(os.environ["LOCAL_RANK"])
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    distributed.init_process_group(backend, store=store, rank=rank, world_size=world_size)
    return Processes(rank=rank, local_rank=local_rank, world_size=world_size, store=store)
