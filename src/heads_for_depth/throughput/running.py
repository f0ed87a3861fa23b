"""Measure what has no record yet on this machine, each series in a process of its own, and write one record a shape."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from tqdm import tqdm

from heads_for_depth import provenance
from heads_for_depth.benchmark.running import load_at_start
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import EXPERIMENTS
from heads_for_depth.flops import forward_flops, training_flops
from heads_for_depth.records import SCHEMA, Record, asks_to_measure, check_writable, recorded_ids, write
from heads_for_depth.recount import LanguageShape, Variant, exact_count
from heads_for_depth.sweeps.workers import available_cores
from heads_for_depth.throughput import measuring, memory
from heads_for_depth.throughput.isolation import in_own_process
from heads_for_depth.throughput.modes import Mode, Settings, check_mode, possible_modes, settings_of
from heads_for_depth.throughput.subjects import Series, Subject, series_of, thinned
from heads_for_depth.throughput.workload import input_bytes

EXPERIMENT = "throughput"
assert EXPERIMENT not in EXPERIMENTS, "it is no sweep: what is timed must run alone"


def measure_when(when: str, profile: str, device: str, results: Path) -> int:
    """Measure what a notebook asks for and this machine has not, and say how many series that were.

    See `records.asks_to_measure` for `when`. The profile `full` has no throughput of its own.
    """
    if profile == "full" or not asks_to_measure(when, results, profile, EXPERIMENT):
        return 0
    return measure_missing(series_of(profile), possible_modes(profile, device), profile, results)


def run_id(series: Series, subject: Subject, mode: Mode) -> str:
    """Name of a record; it carries the machine, so that another one's stands beside it."""
    return f"{series.name}.{subject.name}.{mode.words}.{mode.hardware}"


def missing(all_series: Sequence[Series], mode: Mode, profile: str, results: Path) -> list[Series]:
    """The series of which this machine has not measured every subject in this mode."""
    recorded = recorded_ids(results, profile, EXPERIMENT)
    buildable = [series for series in all_series if _can_build(series)]
    wanted = list(map(thinned, buildable)) if mode.compiled else buildable
    return [s for s in wanted if any(run_id(s, subject, mode) not in recorded for subject in s.subjects)]


def _can_build(series: Series) -> bool:
    """False, with a word on stderr, for models of text where transformers is not installed."""
    text = any(isinstance(subject.shape, LanguageShape) for subject in series.subjects)
    if text and find_spec("transformers") is None:
        print(f"{series.name} is left out: it needs a package, pip install transformers", file=sys.stderr)
        return False
    return True


def measure_missing(all_series: Sequence[Series], modes: Sequence[Mode], profile: str, results: Path) -> int:
    """Measure every series that lacks a record in these modes, with a progress bar on stderr; how many there were.

    A shape that does not fit into memory becomes a record of that status, and the next series follows. Raises BadInput
    where a mode cannot run here, the folder cannot be written to, or a batch is larger than memory by itself.
    """
    for mode in modes:
        check_mode(mode)
        check_batches(all_series, settings_of(profile, mode), mode.device)
    check_writable(results)
    todo = [(series, mode) for mode in modes for series in missing(all_series, mode, profile, results)]
    bar = tqdm(todo, unit="series", file=sys.stderr, dynamic_ncols=True, disable=not todo)
    for series, mode in bar:
        bar.set_postfix_str(f"{series.name}, {mode.words}")
        recorded = recorded_ids(results, profile, EXPERIMENT)
        for record in measure_series(series, mode, settings_of(profile, mode), profile):
            if record["run_id"] not in recorded:  # half a series may be there, written before a kill
                write(record, results)
    return len(todo)


def check_batches(all_series: Sequence[Series], settings: Settings, device: str) -> None:
    """Raise BadInput where one batch of inputs alone is larger than the memory of the device."""
    most = memory.memory_of(device)
    for subject in (subject for series in all_series for subject in series.subjects):
        for batch in (*settings.batch_sizes, settings.training_batch, settings.heads_batch):
            size = input_bytes(subject, batch)
            if size > most:
                needs = f"its inputs alone take {size / 2**30:.0f} GiB, the device has {most / 2**30:.0f}"
                raise BadInput("batch size", batch, f"{needs}; give a smaller one")


def measure_series(series: Series, mode: Mode, settings: Settings, profile: str) -> list[Record]:
    """The records of all subjects of a series, measured in alternation; nothing is written."""
    started, load = time.perf_counter(), load_at_start()
    found = _together_or_alone(series, mode, settings)
    peaks = {s.name: _peaks(series, s, mode, settings, found[s.name]) for s in series.subjects}
    seconds = round(time.perf_counter() - started, 3)
    origin = {"seconds": {"total": seconds}, "provenance": stamp(mode) | {"load": load["words"], "busy": load["busy"]}}
    return [
        _measured(_planned(series, subject, mode, settings, profile), found[subject.name], peaks[subject.name]) | origin
        for subject in series.subjects
    ]


def stamp(mode: Mode) -> dict[str, Any]:
    """Where the numbers come from; the measuring process uses every core it may."""
    return provenance.stamp(mode.device, "transformers") | {"threads": threads()}


def threads() -> int:
    """Threads with which a model is timed."""
    return len(available_cores())


def _together_or_alone(series: Series, mode: Mode, settings: Settings) -> dict[str, measuring.Quantities | None]:
    """All subjects in one process; by itself what had no room there, which is then compared with nothing."""
    measure = partial(measuring.measure, mode=mode, settings=settings, threads=threads())
    together = in_own_process(measure, series) or {}
    found = {name: quantities and quantities | {"took_turns": True} for name, quantities in together.items()}
    for subject in series.subjects:
        if found.get(subject.name) is None:
            alone = in_own_process(measure, replace(series, subjects=(subject,))) or {}
            quantities = alone.get(subject.name)
            found[subject.name] = quantities and quantities | {"took_turns": len(series.subjects) == 1}
    return found


def _peaks(
    series: Series, subject: Subject, mode: Mode, settings: Settings, quantities: measuring.Quantities | None
) -> dict[str, Any] | None:
    """Peak memory of the batches that fitted; on a CPU not of a compiled model, as the compiler's would count too."""
    if quantities is None or (mode.compiled and mode.device == "cpu"):
        return None
    fitting = tuple(int(batch) for batch, seconds in quantities["forward"].items() if seconds is not None)
    training = measuring.training_batch(series, settings)
    asked = training if quantities["training"][str(training)] is not None else None
    return in_own_process(memory.peaks, subject, mode, threads(), fitting, asked)


def _planned(series: Series, subject: Subject, mode: Mode, settings: Settings, profile: str) -> Record:
    plan = {
        "series": series.name, "title": series.title, "kind": series.kind, "subject": subject.name,
        "reference": series.reference, "shape": subject.shape.as_dict(), "tokens": subject.tokens,
        "assumption": subject.assumption, "device": mode.device, "precision": mode.precision,
        "compiled": mode.compiled, "settings": settings.as_dict(),
    }  # fmt: skip
    return {
        "schema": SCHEMA, "run_id": run_id(series, subject, mode), "experiment": EXPERIMENT, "profile": profile,
        "status": "ok", "plan": plan, "parameters": exact_count(Variant(shape=subject.shape)),
        "metrics": {"flops": flops_of(subject)}, "kappa": {},
    }  # fmt: skip


def _measured(planned: Record, quantities: measuring.Quantities | None, peaks: dict[str, Any] | None) -> Record:
    """The record with what was measured, or with the status that says why nothing was."""
    if quantities is None:
        return planned | {"status": "out_of_memory"}
    return planned | {"metrics": planned["metrics"] | quantities | {"peak_memory_bytes": peaks}}


def flops_of(subject: Subject) -> dict[str, int]:
    """Operations of one image or text."""
    arguments = (subject.shape, subject.tokens)
    return {"forward": forward_flops(*arguments), "training": training_flops(*arguments)}
