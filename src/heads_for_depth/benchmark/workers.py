"""How many worker processes train fastest on this machine, and whether one with all threads would be faster."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

from heads_for_depth.benchmark.engine import Machine, engine_window, open_machine, together
from heads_for_depth.benchmark.reading import ALL_THREADS
from heads_for_depth.benchmark.settings import Settings, Subject, full
from heads_for_depth.benchmark.timing import Tick, Window, alternate, soon

AS_FAST = 0.97
"""Fewer workers that reach this share of the highest throughput are preferred: each costs its own memory."""


def steps(machine: Machine, settings: Settings) -> int:
    """How often `measure` ticks."""
    return settings.repeats + 1


def measure(machine: Machine, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Images per second of the whole machine, by number of workers, in alternation."""
    subject = settings.subjects[0]
    window = partial(soon, settings.warm_up_seconds, settings.window_seconds)
    values = measured_workers(machine, subject, window, settings.repeats, partial(tick, "number of workers"))
    medians = {name: median(found) for name, found in values.items()}
    return {"title": subject.title, "images_per_second": values, "medians": medians, "recommended": best_of(medians)}


def measured_workers(
    machine: Machine, subject: Subject, window: Callable[[], Window], rounds: int, after_round: Callable[[], None]
) -> dict[str, list[float]]:
    """Number of single-thread workers (or ALL_THREADS) -> images per second of the machine in every round."""

    def speed(count: int) -> float:
        samples = together(machine.engine, count, engine_window, subject.shape, "automatic", 1, window())
        return sum(sample["images_per_second"] for sample in samples)

    def speed_of_one_with_all_threads() -> float:
        threads = machine.engine.count
        (sample,) = together(machine.plain, 1, engine_window, subject.shape, "automatic", threads, window())
        return float(sample["images_per_second"])

    arms = {str(count): partial(speed, count) for count in worker_counts(machine.engine.count)}
    return alternate(arms | {ALL_THREADS: speed_of_one_with_all_threads}, rounds, after_round)


def worker_counts(cores: int) -> list[int]:
    """Powers of two below the number of cores, and the number of cores itself."""
    return [2**power for power in range(cores.bit_length()) if 2**power < cores] + [cores]


def best_of(medians: dict[str, float]) -> int:
    """The smallest number of single-thread workers that is as fast as any; the sweep has no worker with more."""
    speeds = {int(name): speed for name, speed in medians.items() if name != ALL_THREADS}
    return min(count for count, speed in speeds.items() if speed >= AS_FAST * max(speeds.values()))


def recommended_workers(rounds: int = 2) -> int:
    """Measure on this machine how many workers a sweep should have; some ten seconds, most of them imports."""
    settings = full(rounds)
    window = partial(soon, settings.warm_up_seconds, settings.window_seconds)
    with open_machine() as machine:
        values = measured_workers(machine, settings.subjects[0], window, rounds, lambda: None)
    return best_of({name: median(found) for name, found in values.items()})
