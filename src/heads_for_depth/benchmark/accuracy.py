"""Does the faster loop reach the same accuracy? Both train a few seeds to the end, and both are timed."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from heads_for_depth.benchmark.engine import Machine, train_with_engine
from heads_for_depth.benchmark.plain_loop import train_plainly
from heads_for_depth.benchmark.settings import Settings
from heads_for_depth.benchmark.throughput import plain_speed
from heads_for_depth.benchmark.timing import Tick, alternate

Trained = list[dict[str, float]]
"""One seed each: `accuracy` on validation images, in [0, 1], and `seconds`."""


def steps(machine: Machine, settings: Settings) -> int:
    """How often `measure` ticks."""
    return 1 + settings.seeds


def measure(machine: Machine, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Groups of as many seeds as there are workers: first the plain loop one by one, then the engine all at once."""
    processes = _faster_loader(machine, settings)
    tick("loader processes")
    plain, engine, seconds = [], [], {"plain": 0.0, "engine": 0.0}
    for first in range(0, settings.seeds, machine.engine.count):
        seeds = range(first, min(first + machine.engine.count, settings.seeds))
        started = time.perf_counter()
        plain += _plainly(machine, settings, seeds, processes)
        changed = time.perf_counter()
        engine += _with_engine(machine, settings, seeds)
        seconds["plain"] += changed - started
        seconds["engine"] += time.perf_counter() - changed
        for seed in seeds:
            tick(f"both loops, seed {seed}")
    return {
        "title": settings.trained.title,
        "shape": settings.trained.shape.as_dict(),
        "recipe": settings.recipe.as_dict(),
        "loader_processes": processes,
        "workers": machine.engine.count,
        "plain": plain,
        "engine": engine,
        "seconds": seconds,
    }


def _faster_loader(machine: Machine, settings: Settings) -> int:
    """0 or one loader process per core, whichever trained faster in one window after a first one to warm up."""
    choices = {str(count): partial(_speed, count, machine, settings) for count in (0, machine.engine.count)}
    speeds = alternate(choices, 1, lambda: None)
    return int(max(speeds, key=lambda count: speeds[count][0]))


def _speed(loader_processes: int, machine: Machine, settings: Settings) -> float:
    return float(plain_speed(settings.trained, loader_processes, machine, settings)["images_per_second"])


def _plainly(machine: Machine, settings: Settings, seeds: Sequence[int], processes: int) -> Trained:
    fixed = (settings.trained.shape, settings.recipe)
    arguments = [(*fixed, seed, processes, machine.threads) for seed in seeds]
    return [machine.plain.pool.submit(train_plainly, *some).result() for some in arguments]


def _with_engine(machine: Machine, settings: Settings, seeds: Sequence[int]) -> Trained:
    fixed = (settings.trained.shape, settings.recipe)
    futures = [machine.engine.pool.submit(train_with_engine, *fixed, seed, "automatic") for seed in seeds]
    return [future.result() for future in futures]
