"""Seconds per call through torch's benchmark timer, several calls taking turns."""

from __future__ import annotations

import logging
import timeit
from collections.abc import Callable, Mapping
from statistics import median
from typing import Any

import torch

from heads_for_depth.training.runs import is_out_of_memory

Clock = Callable[[], float]
Seconds = list[float] | None
"""Seconds per call, one number per round; None where memory ran out."""


def clock_of(device: str, synchronize: Callable[[], object] | None = None, now: Clock = timeit.default_timer) -> Clock:
    """A clock in seconds that waits until the device has done all it was asked to before it is read."""
    wait = synchronize or (torch.cuda.synchronize if device == "cuda" else None)

    def read() -> float:
        if wait is not None:
            wait()
        return now()

    return read


def seconds_per_call(call: Callable[[], object], threads: int, at_least: float, clock: Clock) -> float:
    """Median seconds of a call, over as many as fill `at_least` seconds, after calls to warm up that do not count."""
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # which the timer imports, warns of no CUDA
    from torch.utils.benchmark import Timer

    timer = Timer(stmt="call()", globals={"call": call}, num_threads=threads, timer=clock)
    return float(timer.blocked_autorange(min_run_time=at_least).median)


def take_turns(
    calls: Mapping[str, Callable[[], object]],
    rounds: int,
    sample: Callable[[Callable[[], object]], float],
    after: Callable[[str], object] = str,
) -> dict[str, Seconds]:
    """Sample every call once per round, A B A B …; the first round warms up and is discarded.

    `after` is told whose sample has been taken, to let go of what it holds. A call for which memory runs out is not
    made again, and the others go on.
    """
    seconds: dict[str, Seconds] = {name: [] for name in calls}
    for number in range(rounds + 1):
        for name, call in calls.items():
            values = seconds[name]
            if values is None:
                continue
            measured = _unless_out_of_memory(call, sample)
            after(name)
            if measured is None:
                seconds[name] = None
            elif number:
                values.append(measured)
    return seconds


def _unless_out_of_memory(call: Callable[[], object], sample: Callable[[Callable[[], object]], float]) -> float | None:
    try:
        return sample(call)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def summary(seconds: Seconds) -> dict[str, Any] | None:
    """Raw seconds, their median and their extremes, as a record holds them."""
    if not seconds:
        return None
    return {"values": seconds, "median": median(seconds), "lowest": min(seconds), "highest": max(seconds)}
