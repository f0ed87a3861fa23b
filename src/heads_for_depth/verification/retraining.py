"""A random sample of records, and their runs carried out once more in a temporary folder."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import EXPERIMENTS, OPTIONS, TUNING_SEED, PlannedRun, plan
from heads_for_depth.provenance import check_device
from heads_for_depth.recipes import Recipe, budget
from heads_for_depth.records import Record
from heads_for_depth.shapes import Shape
from heads_for_depth.sweeps import SweepFailed, run_all
from heads_for_depth.training.runs import Attention
from heads_for_depth.verification.tolerance import DEFAULT_ATTENTION, attention_of

Key = tuple[str, str]
"""(experiment, run id)."""


class NoWorker(RuntimeError):
    """A worker process is gone, so nothing could be compared."""


def find_records(results: Path, profile: str, experiment: str | None = None) -> list[Record]:
    """Every record of a profile, by experiment and run id.

    Raises BadInput for a missing folder, an unknown profile or experiment, no records, and an unreadable record.
    """
    budget(profile)
    if experiment is not None and experiment not in EXPERIMENTS:
        raise BadInput("experiment", experiment, f"use one of {', '.join(EXPERIMENTS)}")
    if not results.is_dir():
        raise BadInput("results", str(results), "is no folder, give the one that holds the run records")
    chosen = EXPERIMENTS if experiment is None else (experiment,)
    found = [record for name in chosen for record in records.load(results, profile, name)]
    if not found:
        raise BadInput("results", str(results), f"holds no records of profile {profile}, run `heads-for-depth run`")
    return found


def draw(found: Sequence[Record], count: int, seed: int) -> list[Record]:
    """`count` different records at random, in their own order; the same ones for the same seed."""
    if not 1 <= count <= len(found):
        raise BadInput("sample", count, f"there are {len(found)} records, give a number from 1 to that")
    chosen = np.random.default_rng(seed).choice(len(found), size=count, replace=False)
    return [found[place] for place in sorted(chosen)]


def recorded_seconds(sample: Sequence[Record], workers: int) -> float:
    """What the runs took where they were made, spread over workers, but no less than the longest of them."""
    seconds = [float(record["seconds"]["total"]) for record in sample]
    return max(sum(seconds) / workers, *seconds)


def retrain(sample: Sequence[Record], workers: int | None = None) -> dict[Key, Record]:
    """Carry the runs of these records out once more, in a temporary folder, as their records say they were.

    Raises BadInput, before anything is trained, where a record's plan is no longer declared or its device is not there;
    NoWorker where a worker process is killed.
    """
    grids = {experiment: _grid(sample, experiment) for experiment in {record["experiment"] for record in sample}}
    runs = [(_settings(record), declared_run(record, grids[record["experiment"]])) for record in sample]
    with tempfile.TemporaryDirectory() as folder:
        for settings in dict.fromkeys(settings for settings, _ in runs):
            alike = [run for how, run in runs if how == settings]
            _carry_out(alike, settings, Path(folder), workers)
        made = [records.read(_path(run, Path(folder))) for _, run in runs]
    return {(record["experiment"], record["run_id"]): record for record in made}


def _path(run: PlannedRun, results: Path) -> Path:
    return records.path_of(results, run.profile, run.experiment, run.run_id)


Settings = tuple[str, str]
"""(device, attention kernel). A sweep always gives a run on a CPU one thread."""


def _settings(record: Record) -> Settings:
    """How a record says it was carried out, checked to be possible here."""
    provenance = record["provenance"]
    return check_device(provenance.get("device", "cpu")), attention_of(provenance)


def _carry_out(runs: Sequence[PlannedRun], settings: Settings, folder: Path, workers: int | None) -> None:
    """Run a sweep with a record's settings. This is the one place that hands an attention kernel on.

    Lanes cannot be forced: where they are not ready, torch's own attention is used, and the tolerance is the wider one.
    """
    device, attention = settings
    chosen: Attention = "sdpa" if attention == DEFAULT_ATTENTION else "auto"
    try:
        run_all(runs, folder, workers, device, attention=chosen)
    except SweepFailed as failure:
        remedy = "a worker process was killed, perhaps because memory ran out; with --workers 1 it needs the least"
        raise NoWorker(remedy) from failure


def _grid(sample: Sequence[Record], experiment: str) -> dict[str, PlannedRun]:
    """The declared runs of one experiment by run id, with as many seeds as the sample has."""
    profile = sample[0]["profile"]
    seeds = [record["plan"]["seed"] for record in sample if record["plan"]["seed"] < TUNING_SEED]
    enough = max([budget(profile).seeds, *(seed + 1 for seed in seeds)])
    return {run.run_id: run for run in plan(profile, experiment, enough)}


def declared_run(record: Record, grid: Mapping[str, PlannedRun]) -> PlannedRun:
    """The planned run of a record, with the learning rate that its tuning chose.

    Raises BadInput where the record's plan is not the one that is declared under its name now.
    """
    declared = grid.get(record["run_id"])
    if declared is None or not _is_declared(record["plan"], declared):
        commit = record["provenance"].get("commit", "unknown")
        remedy = f"its plan is not declared any more, check out the commit that made it ({commit}) to repeat it"
        raise BadInput("record", f"{record['experiment']}/{record['run_id']}", remedy)
    return replace(declared, recipe=_recipe(record["plan"]), tuned_by=())


def _is_declared(recorded: Mapping[str, Any], declared: PlannedRun) -> bool:
    """Whether a record's plan is the declared one, at a learning rate that tuning could choose."""
    if not _known(recorded["shape"], Shape) or not _known(recorded["recipe"] or {}, Recipe):
        return False
    recipe = _recipe(recorded)
    rates = budget(declared.profile).learning_rates_of(declared.experiment)
    if recipe is not None and declared.tuned_by and recipe.learning_rate in rates:
        recipe = replace(recipe, learning_rate=None)
    plain = declared.as_dict()
    others = {name: value for name, value in recorded.items() if name not in ("shape", "recipe")}
    same = Shape.from_dict(recorded["shape"]) == declared.shape and recipe == declared.recipe
    options = {name: plain[name] for name in OPTIONS if name in plain}
    return (
        same and all(plain.get(name) == value for name, value in others.items()) and options.items() <= others.items()
    )


def _known(values: Mapping[str, Any], kind: type[Shape] | type[Recipe]) -> bool:
    return set(values) <= {field.name for field in fields(kind)}


def _recipe(recorded: Mapping[str, Any]) -> Recipe | None:
    values = recorded["recipe"]
    return None if values is None else Recipe(**(values | {"betas": tuple(values["betas"])}))
