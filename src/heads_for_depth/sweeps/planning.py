"""What is planned and not yet recorded, and the learning rate that the tuning runs choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import TUNING, PlannedRun


@dataclass(frozen=True, kw_only=True, slots=True)
class Progress:
    """How far one experiment is."""

    experiment: str
    planned: int
    recorded: int
    failed: int
    """Recorded with a status other than `ok`; they count as recorded too."""

    @property
    def missing(self) -> int:
        """Planned runs without a record."""
        return self.planned - self.recorded


def missing(planned: Sequence[PlannedRun], results: Path) -> list[PlannedRun]:
    """The planned runs that have no record yet, in plan order."""
    places = {(run.profile, run.experiment) for run in planned}
    done = {place: records.recorded_ids(results, *place) for place in places}
    return [run for run in planned if run.run_id not in done[run.profile, run.experiment]]


def progress(planned: Sequence[PlannedRun], results: Path) -> list[Progress]:
    """Planned, recorded and failed runs per experiment."""
    rows = []
    for experiment in dict.fromkeys(run.experiment for run in planned):
        runs = {run.run_id: run.profile for run in planned if run.experiment == experiment}
        profile = next(iter(runs.values()))
        found = [r for r in records.load(results, profile, experiment) if r["run_id"] in runs]
        failed = sum(r["status"] != "ok" for r in found)
        rows.append(Progress(experiment=experiment, planned=len(runs), recorded=len(found), failed=failed))
    return rows


def tuned(run: PlannedRun, results: Path) -> PlannedRun:
    """The run with the learning rate of the best tuning run: highest validation accuracy, the smaller rate on a tie.

    Raises BadInput where a tuning record is missing, or where all of them failed.
    """
    if not run.tuned_by or run.recipe is None:
        return run
    best: tuple[float, float] | None = None
    for run_id in run.tuned_by:
        path = records.path_of(results, run.profile, TUNING[run.experiment], run_id)
        if not path.is_file():
            raise BadInput("tuning record", str(path), f"is missing; run the experiment {TUNING[run.experiment]} first")
        record = records.read(path)
        if record["status"] == "ok":
            score = (record["metrics"]["validation_accuracy"], -record["plan"]["recipe"]["learning_rate"])
            best = max(best, score) if best else score
    if best is None:
        raise BadInput("tuning records", run.tuned_by[0], "every learning rate of this cell failed")
    return replace(run, recipe=run.recipe.with_learning_rate(-best[1]))
