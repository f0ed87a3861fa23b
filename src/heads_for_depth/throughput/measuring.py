"""Measure one series in this process: all its subjects in alternation, one quantity after the other."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from heads_for_depth.throughput.modes import Mode, Settings
from heads_for_depth.throughput.subjects import Series, Subject
from heads_for_depth.throughput.timing import Clock, Seconds, clock_of, seconds_per_call, summary, take_turns
from heads_for_depth.throughput.workload import Call, Workload
from heads_for_depth.training.runs import is_out_of_memory

Quantities = dict[str, Any]
"""Of one subject: `forward` by batch size and `training`, each seconds per call or None where memory ran out."""


def measure(
    series: Series, mode: Mode, settings: Settings, threads: int, clock: Clock | None = None
) -> dict[str, Quantities | None]:
    """Seconds by subject; None for a subject that did not fit into memory even once. `threads` are torch's."""
    torch.set_num_threads(threads)
    read = clock or clock_of(mode.device)
    sample = partial(seconds_per_call, threads=threads, at_least=settings.seconds, clock=read)
    rounds = settings.rounds if series.kind == "row" else settings.heads_rounds
    loads = {subject.name: _workload(subject, mode) for subject in series.subjects}
    found = {name: _parameters(load) for name, load in loads.items()}
    for batch in forward_batches(series, settings):
        seconds = take_turns(_calls(loads, "forward", batch), rounds, sample)
        _note(found, "forward", str(batch), seconds)
    batch = training_batch(series, settings)
    _note(found, "training", str(batch), take_turns(_calls(loads, "training_step", batch), rounds, sample))
    return {name: quantities if quantities and _any_fits(quantities) else None for name, quantities in found.items()}


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


def _calls(loads: dict[str, Workload | None], what: str, batch: int) -> dict[str, Call]:
    """The calls by subject; inputs are made when a call is first made, so that a batch too large is one that failed."""
    return {name: _lazily(partial(getattr(load, what), batch)) for name, load in loads.items() if load is not None}


def _lazily(make: Callable[[], Call]) -> Call:
    made: list[Call] = []

    def call() -> None:
        if not made:
            made.append(make())
        made[0]()

    return call


def _note(found: dict[str, Quantities | None], what: str, batch: str, seconds: dict[str, Seconds]) -> None:
    for name, values in seconds.items():
        quantities = found[name]
        assert quantities is not None, "what has calls has been built"
        quantities[what][batch] = summary(values)


def _any_fits(quantities: Quantities) -> bool:
    return any(seconds is not None for what in ("forward", "training") for seconds in quantities[what].values())
