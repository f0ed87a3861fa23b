"""Question 3: the cells of the vision rows, their differences, and the verdict of every row."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean
from typing import Any

from heads_for_depth.conditioning.layers import main_median, upper_median
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import ARMS, VISION_ROWS, Arm, PlannedRun, VisionRow, plan
from heads_for_depth.recipes import budget
from heads_for_depth.records import Record
from heads_for_depth.shapes import Shape
from heads_for_depth.statistics import Difference, paired_difference, welch_if_repeated
from heads_for_depth.verdicts import ACCURACY_MARGIN, VISION_METHOD, Comparison, Rule, Verdict, decide

CellKey = tuple[str, Arm, Arm]
"""(row, arm that gives the depth, arm that gives the heads)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Cell:
    """All runs of one shape: depth from one arm, heads from the other."""

    key: CellKey
    shape: Shape
    parameters: int
    seeds: tuple[int, ...]
    """Seeds of the finished runs, ascending; the values below are in their order."""
    accuracy: tuple[float, ...]
    """Test accuracy in percentage points."""
    loss: tuple[float, ...]
    """Test loss in nats."""
    failed: int
    """Runs that diverged or ran out of memory; they count towards n."""
    learning_rate: float | None
    """Peak learning rate that the tuning runs chose."""
    curves: tuple[tuple[tuple[float, float], ...], ...]
    """Per finished run and epoch: (training loss in nats, validation accuracy in points)."""
    kappa: Mapping[str, float]
    """Median over layers and runs of κ of the concatenated heads, by time: `initial`, `final`."""
    train_seconds: float
    """Core-seconds of training, all finished runs together."""

    @property
    def mean_accuracy(self) -> float | None:
        """Mean test accuracy in points."""
        return fmean(self.accuracy) if self.accuracy else None


@dataclass(frozen=True, kw_only=True, slots=True)
class RowFinding:
    """One row: its four cells, the differences between them, and the verdict on the reshape."""

    row: VisionRow
    cells: Mapping[tuple[Arm, Arm], Cell]
    verdict: Verdict
    effects: Mapping[str, Difference | None]
    """Welch differences in points, by name of EFFECTS; None where an arm has fewer than two runs."""
    paired: Difference | None
    """Reshape minus baseline within seeds."""

    @property
    def baseline(self) -> Cell:
        """Depth and heads as before."""
        return self.cells["before", "before"]

    @property
    def reshape(self) -> Cell:
        """Depth and heads as after."""
        return self.cells["after", "after"]


EFFECTS: dict[str, tuple[tuple[Arm, Arm], tuple[Arm, Arm]]] = {
    "reshape": (("before", "before"), ("after", "after")),
    "against more heads": (("before", "after"), ("after", "after")),
    "more heads, deep": (("before", "before"), ("before", "after")),
    "more heads, shallow": (("after", "before"), ("after", "after")),
    "less depth, few heads": (("before", "before"), ("after", "before")),
}
"""Name -> (from, to), each (depth arm, heads arm)."""


def vision_findings(records: Iterable[Record], profile: str, experiment: str = "vision_rows") -> list[RowFinding]:
    """Every row with its verdict by the declared rule: Welch, 0.5 points, Holm over the rows, the declared n.

    The records of one experiment: one reduction, one table.
    """
    cells = collect_cells(records, profile, experiment)
    rule = Rule(
        declared_n=budget(profile).declared_seeds,
        margin=ACCURACY_MARGIN,
        higher_is_better=True,
        method=VISION_METHOD,
    )
    rows = [row for row in VISION_ROWS if (row.name, "before", "before") in cells]
    verdicts = decide([_comparison(row, cells) for row in rows], rule)
    return [_finding(row, cells, verdict) for row, verdict in zip(rows, verdicts, strict=True)]


def collect_cells(records: Iterable[Record], profile: str, experiment: str = "vision_rows") -> dict[CellKey, Cell]:
    """The records of one experiment by cell; every planned cell is there, an empty one without runs."""
    planned = {_key(run): run for run in plan(profile, experiment, 1)}
    found: dict[CellKey, list[Record]] = {key: [] for key in planned}
    for record in records:
        key = (record["plan"]["row"], record["plan"]["depth_arm"], record["plan"]["heads_arm"])
        if key not in found or record["plan"]["shape"] != planned[key].shape.as_dict():
            raise BadInput(
                "record", record["run_id"], "is of no planned cell; it comes from another version of the grid"
            )
        found[key].append(record)
    return {key: _cell(key, planned[key], runs) for key, runs in found.items()}


def _key(run: PlannedRun) -> CellKey:
    assert run.depth_arm, "a run of the 2 × 2 takes its depth from an arm"
    assert run.heads_arm, "a run of the 2 × 2 takes its heads from an arm"
    return run.row, run.depth_arm, run.heads_arm


def _cell(key: CellKey, run: PlannedRun, records: list[Record]) -> Cell:
    finished = sorted((r for r in records if r["status"] == "ok"), key=lambda r: int(r["plan"]["seed"]))
    rates = {r["plan"]["recipe"]["learning_rate"] for r in records}
    kappas = {
        time: [_layer_median(r["kappa"][time], run.shape.family) for r in finished] for time in ("initial", "final")
    }
    return Cell(
        key=key,
        shape=run.shape,
        parameters=run.parameters,
        seeds=tuple(r["plan"]["seed"] for r in finished),
        accuracy=tuple(100 * r["metrics"]["test_accuracy"] for r in finished),
        loss=tuple(r["metrics"]["test_loss"] for r in finished),
        failed=len(records) - len(finished),
        learning_rate=rates.pop() if len(rates) == 1 else None,
        curves=tuple(_curve(r) for r in finished),
        kappa={time: upper_median(values) for time, values in kappas.items() if values},
        train_seconds=sum((r["seconds"]["train"] for r in finished), 0.0),
    )


def _curve(record: Record) -> tuple[tuple[float, float], ...]:
    epochs = record["metrics"]["epochs"]
    return tuple((epoch["train_loss"], 100 * epoch["validation_accuracy"]) for epoch in epochs)


def _layer_median(kappa: Mapping[str, Any], family: str) -> float:
    found = main_median(kappa, family)
    assert found is not None, f"a {family} has attention"
    return found


def _comparison(row: VisionRow, cells: Mapping[CellKey, Cell]) -> Comparison:
    baseline, reshape = (cells[row.name, arm, arm] for arm in ARMS)
    return Comparison(
        row=row.name,
        baseline=baseline.accuracy,
        reshape=reshape.accuracy,
        baseline_diverged=baseline.failed,
        reshape_diverged=reshape.failed,
    )


def _finding(row: VisionRow, cells: Mapping[CellKey, Cell], verdict: Verdict) -> RowFinding:
    own = {(depth, heads): cells[row.name, depth, heads] for depth in ARMS for heads in ARMS}
    effects = {name: _welch(own[start], own[end]) for name, (start, end) in EFFECTS.items()}
    return RowFinding(row=row, cells=own, verdict=verdict, effects=effects, paired=_paired(own))


def _welch(start: Cell, end: Cell) -> Difference | None:
    return welch_if_repeated(start.accuracy, end.accuracy)


def _paired(cells: Mapping[tuple[Arm, Arm], Cell]) -> Difference | None:
    """Over the seeds that both arms finished."""
    baseline, reshape = cells["before", "before"], cells["after", "after"]
    common = sorted(set(baseline.seeds) & set(reshape.seeds))
    if len(common) < 2:
        return None
    before, after = (dict(zip(cell.seeds, cell.accuracy, strict=True)) for cell in (baseline, reshape))
    return paired_difference([before[seed] for seed in common], [after[seed] for seed in common])
