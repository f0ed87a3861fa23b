"""Training images per second of the whole machine: the engine against the plain loop, shape by shape."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from heads_for_depth.benchmark.engine import Attention, Machine, engine_window, together
from heads_for_depth.benchmark.peak import gemm_flops_per_second
from heads_for_depth.benchmark.plain_loop import plain_window
from heads_for_depth.benchmark.reading import ENGINE, ENGINE_SDPA, PLAIN
from heads_for_depth.benchmark.settings import Settings, Subject
from heads_for_depth.benchmark.timing import Tick, alternate, soon, with_median
from heads_for_depth.flops import training_flops

Sample = dict[str, Any]
"""What one arm showed in one round: images per second of the whole machine, and what is known of its processes."""


def steps(machine: Machine, settings: Settings) -> int:
    """How often `measure` ticks."""
    return 1 + len(settings.subjects) * (settings.repeats + 1)


def measure(machine: Machine, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Every shape in turn, its arms in alternation; and the machine's peak in large matrix products."""
    peak = gemm_flops_per_second(settings.gemm_sizes)
    tick("matrix products")
    shapes = [_shape(subject, machine, settings, tick) for subject in settings.subjects]
    return {
        "window_seconds": settings.window_seconds,
        "threads": machine.threads,
        "workers": machine.engine.count,
        "gemm_flops_per_second": peak,
        "shapes": shapes,
    }


def _shape(subject: Subject, machine: Machine, settings: Settings, tick: Tick) -> dict[str, Any]:
    arms = _arms(subject, machine, settings)
    samples = alternate(arms, settings.repeats, partial(tick, subject.title))
    return {
        "title": subject.title,
        "shape": subject.shape.as_dict(),
        "flops_per_image": training_flops(subject.shape),
        "arms": {name: _summary(found) for name, found in samples.items()},
    }


def _summary(samples: list[Sample]) -> dict[str, Any]:
    values = {key: [sample[key] for sample in samples] for key in samples[0]}
    values |= {"attention": samples[-1]["attention"]} if "attention" in values else {}
    return values | {"images_per_second": with_median(values["images_per_second"])}


def _arms(subject: Subject, machine: Machine, settings: Settings) -> dict[str, Callable[[], Sample]]:
    """The plain loop without and with loader processes; the engine with its own attention and with torch's."""
    arms: dict[str, Callable[[], Sample]] = {
        PLAIN[0]: partial(plain_speed, subject, 0, machine, settings),
        PLAIN[1]: partial(plain_speed, subject, machine.engine.count, machine, settings),
        ENGINE: partial(_engine_speed, subject, "automatic", machine, settings),
        ENGINE_SDPA: partial(_engine_speed, subject, "sdpa", machine, settings),
    }
    return arms


def plain_speed(subject: Subject, loader_processes: int, machine: Machine, settings: Settings) -> Sample:
    """One window of the plain loop."""
    window = soon(settings.warm_up_seconds, settings.window_seconds)
    sample: Sample
    (sample,) = together(machine.plain, 1, plain_window, subject.shape, loader_processes, machine.threads, window)
    return sample


def _engine_speed(subject: Subject, attention: Attention, machine: Machine, settings: Settings) -> Sample:
    """One window of all workers at once."""
    window = soon(settings.warm_up_seconds, settings.window_seconds)
    samples = together(machine.engine, machine.engine.count, engine_window, subject.shape, attention, 1, window)
    return {
        "images_per_second": sum(sample["images_per_second"] for sample in samples),
        "core_share": min(sample["core_share"] for sample in samples),
        "peak_resident_bytes": max(sample["peak_resident_bytes"] for sample in samples),
        "attention": samples[0]["attention"],
    }
