"""How far a repeated run may be from its record, and when it may not be at all."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from heads_for_depth import paths, records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import TUNING
from heads_for_depth.records import Record
from heads_for_depth.statistics import pooled_sd

TOLERANCE = (
    "Same processor model, thread count, torch and attention kernel: every number of metrics and κ identical. "
    "Otherwise: parameters and status equal; κ at initialization within a relative 1e-4 (1e-12·κ where that is more) "
    "and one step of the sixth digit; final accuracy and loss within 3·√2 seed standard deviations, for rounding "
    "differs between machines and training amplifies it to at most the size of another seed's difference."
)
SEED_DEVIATIONS = 3 * math.sqrt(2)
"""Three standard deviations of the difference of two seeds, in standard deviations of one."""
KAPPA_ROUNDING = 1e-4
"""Relative, up to KAPPA_FLAT; beyond, it grows with κ."""
KAPPA_FLAT = 1e8
RECORDED_DIGITS = 6
"""Significant digits of a κ in a record."""
METRICS = ("accuracy", "loss")
SPLITS = ("test", "validation")
FINAL = tuple(f"{split}_{metric}" for split in SPLITS for metric in METRICS)
NOISE_EXPERIMENT = "vision_rows"
"""Where the seed noise of an experiment without repeated seeds is taken from."""
DEFAULT_ATTENTION = "sdpa"
"""The attention kernel of a record that names none."""

Margins = Mapping[str, float]
"""Metric, such as `test_loss`, to the largest difference that seed noise allows, in the record's unit."""


def final_metrics(metrics: Mapping[str, Any]) -> list[str]:
    """Accuracy and loss of the split that a run ends on: `test` where it was touched, else `validation`."""
    for split in SPLITS:
        names = [f"{split}_{metric}" for metric in METRICS if f"{split}_{metric}" in metrics]
        if names:
            return names
    return []


def same_arithmetic(here: Record, recorded: Record) -> bool:
    """Whether two runs must agree bit for bit: on a CPU, all that decides the order of sums is equal."""
    ours, theirs = (_arithmetic(record["provenance"]) for record in (here, recorded))
    return ours == theirs and ours["device"] == "cpu"


def _arithmetic(provenance: Mapping[str, object]) -> dict[str, object]:
    machine, versions = (provenance.get(name) or {} for name in ("machine", "versions"))
    assert isinstance(machine, dict)
    assert isinstance(versions, dict)
    return {
        "device": provenance.get("device"),
        "processor": machine.get("processor"),
        "threads": provenance.get("threads"),
        "torch": versions.get("torch"),
        "attention": attention_of(provenance),
    }


def attention_of(provenance: Mapping[str, object]) -> str:
    """The attention kernel that a record was made with."""
    return str(provenance.get("attention", DEFAULT_ATTENTION))


def kappa_margin(kappa: float) -> float:
    """Relative tolerance of a condition number; 1 or more allows anything."""
    if math.isinf(kappa):
        return 1.0
    step = 10.0 ** (math.floor(math.log10(kappa)) - RECORDED_DIGITS + 1) / kappa if kappa > 0 else 0.0
    return KAPPA_ROUNDING * max(1.0, kappa / KAPPA_FLAT) + step


def kappa_difference(one: float, other: float) -> float:
    """Relative difference of two condition numbers, 0 to 1; 1 where one of them alone is infinite."""
    return 0.0 if one == other else 1.0 - min(one, other) / max(one, other)


def seed_noise(results: Path, record: Record) -> Margins:
    """Tolerance per metric for runs like this one: 3·√2 times its standard deviation between seeds, pooled over cells.

    Taken from the last epoch of the record's own experiment. Where that has no repeated seeds, from the table that its
    tuning serves, else from the vision rows, else from the committed vision rows of `cpu`, after as many epochs as the
    record's run has: seeds differ more early in training. The validation split stands for both splits there.
    """
    profile, experiment = record["profile"], record["experiment"]
    if own := _spread(records.load(results, profile, experiment), _last):
        return own
    epochs = record["plan"]["recipe"]["epochs"] if record["plan"]["recipe"] else 1
    tables = {tuning: table for table, tuning in reversed(TUNING.items())}  # the first table that a tuning serves
    names = dict.fromkeys((tables.get(experiment, NOISE_EXPERIMENT), NOISE_EXPERIMENT))
    places = [(results, profile, name) for name in names]
    for place in [*places, (paths.RESULTS, "cpu", NOISE_EXPERIMENT)]:
        if found := _spread(records.load(*place), lambda one: _after(one, epochs)):
            return found
    return {}


def margin_of(margins: Margins, metric: str) -> float:
    """The tolerance of a metric, or BadInput where no records tell how much it scatters between seeds."""
    if metric not in margins:
        raise BadInput("metric", metric, "no records of two seeds of one cell tell how much it scatters between seeds")
    return margins[metric]


def _last(record: Record) -> dict[str, float]:
    return {name: value for name, value in record["metrics"].items() if name in FINAL}


def _after(record: Record, epochs: int) -> dict[str, float]:
    """Validation metrics after so many epochs, or after the last if there are fewer, under the names of both splits."""
    done = record["metrics"]["epochs"][:epochs][-1]
    found = {metric: done.get(f"validation_{metric}") for metric in METRICS}
    return {f"{split}_{metric}": value for split in SPLITS for metric, value in found.items() if value is not None}


def _spread(found: Iterable[Record], values: Callable[[Record], Mapping[str, float]]) -> dict[str, float]:
    """Metric -> tolerance, from the cells that have several finished seeds; empty where there are none."""
    cells: dict[str, list[Mapping[str, float]]] = {}
    for record in found:
        if record["status"] == "ok":
            cells.setdefault(json.dumps(record["plan"] | {"seed": None}, sort_keys=True), []).append(values(record))
    repeated = [cell for cell in cells.values() if len(cell) > 1]
    arms = {
        name: [[run[name] for run in cell] for cell in repeated if all(name in run for run in cell)] for name in FINAL
    }
    return {name: SEED_DEVIATIONS * pooled_sd(arm).standard_deviation for name, arm in arms.items() if arm}
