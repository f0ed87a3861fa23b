"""The runs of the depth × heads map and of the experiments that extend it, by cell."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from statistics import fmean
from typing import Any

from heads_for_depth.conditioning.layers import main_median
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun, plan
from heads_for_depth.experiments.map_grid import VERDICT_SEEDS
from heads_for_depth.findings.declared import declared
from heads_for_depth.flops import forward_flops
from heads_for_depth.records import Record
from heads_for_depth.shapes import Shape

CellKey = tuple[str, int, int]
"""(row, depth, heads)."""
TIMES = ("initial", "middle", "final")


@dataclass(frozen=True, kw_only=True, slots=True)
class MapRun:
    """One finished run."""

    seed: int
    accuracy: float
    """Test accuracy in percentage points."""
    loss: float
    """Test loss in nats."""
    curve: tuple[tuple[float, float], ...]
    """Per epoch: training loss in nats, validation accuracy in points."""
    kappa: Mapping[str, float]
    """Time -> κ of the concatenated heads, median over layers."""
    seconds: float
    """Core-seconds of training."""

    @property
    def train_loss(self) -> float:
        """Mean training loss of the last epoch, in nats."""
        return self.curve[-1][0]


@dataclass(frozen=True, kw_only=True, slots=True)
class MapCell:
    """All runs of one planned cell, also where there are none yet."""

    row: str
    shape: Shape
    intervention: str
    parameters: int
    runs: tuple[MapRun, ...]
    failed: int
    """Runs that diverged or ran out of memory."""
    learning_rate: float | None
    """Peak learning rate that the tuning runs chose."""

    @property
    def depth(self) -> int:
        """Blocks."""
        return self.shape.depth[0]

    @property
    def heads(self) -> int:
        """Attention heads."""
        return self.shape.heads[0]

    @property
    def flops(self) -> int:
        """Operations of one forward pass of one image."""
        return _flops(self.shape)

    @property
    def accuracy(self) -> tuple[float, ...]:
        """Test accuracy in points, one value per finished seed."""
        return tuple(run.accuracy for run in self.runs)

    @property
    def loss(self) -> tuple[float, ...]:
        """Test loss in nats, one value per finished seed."""
        return tuple(run.loss for run in self.runs)

    def mean(self, name: str) -> float | None:
        """Mean over seeds of a quantity of `MapRun`; None without runs."""
        return fmean(getattr(run, name) for run in self.runs) if self.runs else None

    def kappas(self, time: str) -> tuple[float, ...]:
        """κ at that time, one value per finished seed."""
        return tuple(run.kappa[time] for run in self.runs if time in run.kappa)


@cache
def _flops(shape: Shape) -> int:
    return forward_flops(shape, 0)


def map_cells(records: Iterable[Record], profile: str, experiment: str) -> dict[CellKey, MapCell]:
    """The records of `map`, `edge` or `cause` by cell; every planned cell is there, an empty one without runs.

    Raises BadInput for a record that is not of a declared run (seed, shape, recipe, intervention), or that was made
    under another declaration.
    """
    planned = {run.run_id: run for run in plan(profile, experiment, VERDICT_SEEDS)}
    cells: dict[CellKey, PlannedRun] = {}
    for run in planned.values():
        cells.setdefault(_key(run), run)
    found: dict[CellKey, list[Record]] = {key: [] for key in cells}
    for record in declared(records, experiment):
        run_id = record["run_id"]
        if run_id not in planned or not _same_run(record, planned[run_id]):
            raise BadInput("record", run_id, "is of no planned run; it comes from another version of the grid")
        found[_key(planned[run_id])].append(record)
    return {key: _cell(cells[key], runs) for key, runs in found.items()}


def _same_run(record: Record, run: PlannedRun) -> bool:
    """Whether a record's plan is the planned one, the learning rate that tuning chose left out."""
    plans = [dict(record["plan"]), run.as_dict()]
    for one in plans:
        one["recipe"] = dict(one["recipe"]) | ({"learning_rate": None} if run.tuned_by else {})
    return plans[0] == plans[1]


def _key(run: PlannedRun) -> CellKey:
    return run.row, run.shape.depth[0], run.shape.heads[0]


def _cell(run: PlannedRun, records: list[Record]) -> MapCell:
    finished = sorted((r for r in records if r["status"] == "ok"), key=lambda r: int(r["plan"]["seed"]))
    rates = {r["plan"]["recipe"]["learning_rate"] for r in records}
    return MapCell(
        row=run.row,
        shape=run.shape,
        intervention=run.intervention,
        parameters=run.parameters,
        runs=tuple(_run(record, run.shape.family) for record in finished),
        failed=len(records) - len(finished),
        learning_rate=rates.pop() if len(rates) == 1 else None,
    )


def _run(record: Record, family: str) -> MapRun:
    metrics = record["metrics"]
    return MapRun(
        seed=record["plan"]["seed"],
        accuracy=100 * metrics["test_accuracy"],
        loss=metrics["test_loss"],
        curve=tuple((epoch["train_loss"], 100 * epoch["validation_accuracy"]) for epoch in metrics["epochs"]),
        kappa=_kappas(record["kappa"], family),
        seconds=record["seconds"]["train_cpu"],
    )


def _kappas(kappa: Mapping[str, Any], family: str) -> dict[str, float]:
    medians = {time: main_median(table, family) for time, table in kappa.items()}
    return {time: value for time, value in medians.items() if value is not None}
