"""Run the parts of the benchmark one after the other, and put what they measured into one record."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tqdm import tqdm

from heads_for_depth import provenance
from heads_for_depth.benchmark import accuracy, notebook, profile, spectra, throughput, workers
from heads_for_depth.benchmark.engine import Machine, open_machine
from heads_for_depth.benchmark.files import SCHEMA, Benchmark
from heads_for_depth.benchmark.settings import Settings
from heads_for_depth.benchmark.timing import Tick

IDLE_LOAD = 0.25
"""Share of the cores in use up to which a machine counts as idle."""


_BUSY = (
    "something else was running, which slows a loop of several threads far more than single-thread workers, so do not "
    "quote these ratios"
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """One question of the benchmark."""

    measure: Callable[[Machine, Settings, Tick], dict[str, Any]]
    steps: Callable[[Machine, Settings], int]
    """How often `measure` calls its tick."""


PARTS = {
    "training": Part(measure=throughput.measure, steps=throughput.steps),
    "profile": Part(measure=profile.measure, steps=profile.steps),
    "accuracy": Part(measure=accuracy.measure, steps=accuracy.steps),
    "workers": Part(measure=workers.measure, steps=workers.steps),
    "spectra": Part(measure=spectra.measure, steps=spectra.steps),
    "notebook": Part(measure=notebook.measure, steps=notebook.steps),
}


def run(settings: Settings, names: Sequence[str]) -> Benchmark:
    """Measure these parts, with a progress bar on stderr; nothing is written."""
    load, measured, seconds = load_at_start(), {}, {}
    if load["busy"]:
        print(f"Warning: {load['words']}; it may also take many times as long.", file=sys.stderr)
    with open_machine() as machine, _progress(machine, settings, names) as bar:

        def tick(what: str) -> None:
            bar.set_postfix_str(what)
            bar.update()

        for name in names:
            started = time.perf_counter()
            measured[name] = PARTS[name].measure(machine, settings, tick)
            seconds[name] = round(time.perf_counter() - started, 3)
    return {
        "schema": SCHEMA,
        "quick": settings.quick,
        "repeats": settings.repeats,
        "load": load,
        "seconds": seconds,
        "parts": measured,
        "provenance": provenance.stamp("cpu"),
    }


def _progress(machine: Machine, settings: Settings, names: Sequence[str]) -> tqdm:
    total = sum(PARTS[name].steps(machine, settings) for name in names)
    return tqdm(total=total, unit="step", file=sys.stderr, dynamic_ncols=True)


def load_at_start() -> dict[str, Any]:
    """How many cores others used just before the benchmark, and what that means in words."""
    average, cores = cores_in_use(), os.cpu_count() or 1
    busy = average > IDLE_LOAD * cores
    told = f"{average:.1f} of {cores} cores were in use when the benchmark began"
    words = f"{told}: {_BUSY}" if busy else f"{told}: the machine was idle"
    return {"average": average, "cores": cores, "busy": busy, "words": words}


def cores_in_use(seconds: float = 1.0) -> float:
    """Cores that ran something during the next second; where the system does not count, its average over a minute."""
    counters = Path("/proc/stat")
    if not counters.is_file():
        return os.getloadavg()[0]
    before = _busy_and_all(counters)
    time.sleep(seconds)
    busy, everything = (now - then for now, then in zip(_busy_and_all(counters), before, strict=True))
    return (os.cpu_count() or 1) * busy / everything if everything else 0.0


def _busy_and_all(counters: Path) -> tuple[int, int]:
    """Ticks of all cores since the start of the system, without and with those spent idle or waiting for a disk."""
    ticks = [int(word) for word in counters.read_text().splitlines()[0].split()[1:]]
    idle = ticks[3] + ticks[4]
    return sum(ticks) - idle, sum(ticks)
