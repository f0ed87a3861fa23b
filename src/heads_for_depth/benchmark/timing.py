"""Timing side by side: arms that take turns, windows that all processes of a machine share, medians."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TypeVar

T = TypeVar("T")
Tick = Callable[[str], None]
"""Called when a step of the benchmark is done, with what was measured."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Window:
    """A stretch of `time.monotonic`, whose clock all processes of a machine share."""

    begin: float
    seconds: float


def soon(warm_up_seconds: float, seconds: float) -> Window:
    """A window that opens after a warm-up."""
    return Window(begin=time.monotonic() + warm_up_seconds, seconds=seconds)


def images_per_second(steps: Iterator[int], window: Window) -> float:
    """Train until the window opens, then count images until it closes; a step in progress is finished and counted.

    `steps` trains a little whenever it is advanced and says how many images that took.
    """
    next(steps)
    while time.monotonic() < window.begin:
        next(steps)
    started, images = time.monotonic(), 0
    while images == 0 or time.monotonic() < started + window.seconds:
        images += next(steps)
    return images / (time.monotonic() - started)


def alternate(arms: Mapping[str, Callable[[], T]], rounds: int, after_round: Callable[[], None]) -> dict[str, list[T]]:
    """Every arm once per round, A B A B …; a first round, in which processes and caches warm up, is discarded."""
    measured: dict[str, list[T]] = {name: [] for name in arms}
    for number in range(rounds + 1):
        for name, measure in arms.items():
            value = measure()
            if number:
                measured[name].append(value)
        after_round()
    return measured


def seconds_per_call(function: Callable[[], object], at_least: float) -> float:
    """Mean wall-clock seconds of a call, over as many calls as fill `at_least` seconds."""
    started, calls = time.perf_counter(), 0
    while calls == 0 or time.perf_counter() < started + at_least:
        function()
        calls += 1
    return (time.perf_counter() - started) / calls


def with_median(values: Sequence[float]) -> dict[str, object]:
    """Raw values and their median, as a record holds them."""
    return {"values": list(values), "median": median(values)}
