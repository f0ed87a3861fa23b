"""Measure one series in this process: all its subjects in alternation, one quantity after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from heads_for_depth.throughput.modes import Mode, Settings
from heads_for_depth.throughput.subjects import Series, Subject
from heads_for_depth.throughput.timing import Clock, clock_of, seconds_per_call, summary, take_turns
from heads_for_depth.throughput.workload import Call, Workload
from heads_for_depth.training.runs import is_out_of_memory

Quantities = dict[str, Any]
"""Of one subject: `forward` by batch size and `training`, each seconds per call or None where memory ran out."""


def measure(
    series: Series, mode: Mode, settings: Settings, threads: int, clock: Clock | None = None
) -> dict[str, Quantities | None]:
    """Seconds by subject; None for a subject that did not fit into memory even once. `threads` are torch's."""
    prepare(mode, threads)
    read = clock or clock_of(mode.device)
    sample = partial(seconds_per_call, threads=threads, at_least=settings.seconds, clock=read)
    rounds = settings.rounds if series.kind == "row" else settings.heads_rounds
    loads = {subject.name: _workload(subject, mode) for subject in series.subjects}
    found = {name: _parameters(load) for name, load in loads.items()}

    def turns(what: str, batch: int) -> None:
        calls = {n: _lazily(partial(getattr(load, what), batch)) for n, load in loads.items() if load is not None}
        seconds = take_turns(calls, rounds, sample, after=partial(_release, loads))
        for name, values in seconds.items():
            _of(found, name)["training" if what == "training_step" else what][str(batch)] = summary(values)

    for batch in forward_batches(series, settings):
        turns("forward", batch)
    turns("training_step", training_batch(series, settings))
    return {name: quantities if quantities and _any_fits(quantities) else None for name, quantities in found.items()}


def _of(found: dict[str, Quantities | None], name: str) -> Quantities:
    quantities = found[name]
    assert quantities is not None, "what takes turns has been built"
    return quantities


def _release(loads: dict[str, Workload | None], name: str) -> None:
    """Let one model go of gradients and optimizer state, so that the others have room; its next turn begins untimed."""
    load = loads[name]
    if load is not None:
        load.release()


def prepare(mode: Mode, threads: int) -> None:
    """Threads of this process, and no TF32: float32 on a GPU is to mean float32."""
    torch.set_num_threads(threads)
    if mode.device == "cuda":
        torch.backends.cuda.matmul.allow_tf32 = False
        torch.backends.cudnn.allow_tf32 = False


def forward_batches(series: Series, settings: Settings) -> tuple[int, ...]:
    """Batch sizes of the forward pass: all for a row, one image and one batch where only heads change."""
    return settings.batch_sizes if series.kind == "row" else (1, settings.heads_batch)


def training_batch(series: Series, settings: Settings) -> int:
    """Batch size of the training step."""
    return settings.training_batch if series.kind == "row" else settings.heads_batch


def _workload(subject: Subject, mode: Mode) -> Workload | None:
    try:
        return Workload(subject, mode)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def _parameters(load: Workload | None) -> Quantities | None:
    return None if load is None else {"parameters": load.parameters, "forward": {}, "training": {}}


def _lazily(make: Callable[[], Call]) -> Call:
    made: list[Call] = []

    def call() -> None:
        if not made:
            made.append(make())
        made[0]()

    return call


def _any_fits(quantities: Quantities) -> bool:
    return any(seconds is not None for what in ("forward", "training") for seconds in quantities[what].values())
