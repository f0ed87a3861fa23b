"""Question 11: a small fresh re-run on this machine beside the committed smoke records."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from heads_for_depth import records
from heads_for_depth.conditioning.layers import layer_rows, upper_median
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun, plan
from heads_for_depth.records import Record
from heads_for_depth.sweeps import run_all

SELF_CHECK_ROWS = ("vit-own", "xcit-m")
SELF_CHECK_EXPERIMENTS = ("vision_tuning", "vision_rows", "conditioning")
LOSS_TOLERANCE = 0.01
"""Nats of test loss. The same code on another processor adds in another order; smoke runs are a few steps long."""
KAPPA_TOLERANCE = 0.01
"""Relative, for κ at initialization, which is a float64 forward pass."""
LAST_PLACES = 1e-9
"""Nats of loss below which two runs count as the same to the last places."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Beside:
    """One smoke run here and in the committed records; None where that kind of run has no such number."""

    experiment: str
    run_id: str
    loss_ours: float | None
    loss_yours: float | None
    accuracy_ours: float | None
    accuracy_yours: float | None
    kappa_ours: float | None
    """Median over layers at initialization, concatenated heads."""
    kappa_yours: float | None
    seconds_ours: float
    seconds_yours: float

    @property
    def agrees(self) -> bool:
        """Within the stated tolerances."""
        return _close(self.loss_ours, self.loss_yours, LOSS_TOLERANCE) and _close_ratio(
            self.kappa_ours, self.kappa_yours
        )

    @property
    def identical(self) -> bool:
        """The same to the last places."""
        same_loss = _close(self.loss_ours, self.loss_yours, LAST_PLACES)
        return same_loss and self.kappa_ours == self.kappa_yours


def self_check_runs() -> list[PlannedRun]:
    """A few smoke runs of every kind, with the tuning runs that they rest on; under two minutes on two cores."""
    ends = (("before", "before"), ("after", "after"))
    chosen = [run for name in SELF_CHECK_EXPERIMENTS for run in plan("smoke", name) if run.row in SELF_CHECK_ROWS]
    return [run for run in chosen if run.kind == "kappa" or (run.depth_arm, run.heads_arm) in ends]


def run_self_check(committed: Path, device: str) -> list[Beside]:
    """Train the self-check afresh in a temporary folder and set it beside the committed smoke records.

    Raises BadInput where a committed record is missing, before anything is trained.
    """
    runs = self_check_runs()
    ours = [_committed(run, committed) for run in runs]
    with tempfile.TemporaryDirectory() as folder:
        run_all(runs, Path(folder), device=device)
        yours = [records.read(_path(run, Path(folder))) for run in runs]
    return [_beside(*pair) for pair in zip(ours, yours, strict=True)]


def _path(run: PlannedRun, results: Path) -> Path:
    return records.path_of(results, run.profile, run.experiment, run.run_id)


def _committed(run: PlannedRun, results: Path) -> Record:
    path = _path(run, results)
    if not path.is_file():
        raise BadInput("smoke record", str(path), "is missing, restore data/results/smoke from the repository")
    return records.read(path)


def _beside(ours: Record, yours: Record) -> Beside:
    return Beside(
        experiment=ours["experiment"],
        run_id=ours["run_id"],
        loss_ours=_metric(ours, "loss"),
        loss_yours=_metric(yours, "loss"),
        accuracy_ours=_metric(ours, "accuracy"),
        accuracy_yours=_metric(yours, "accuracy"),
        kappa_ours=_kappa(ours),
        kappa_yours=_kappa(yours),
        seconds_ours=ours["seconds"]["total"],
        seconds_yours=yours["seconds"]["total"],
    )


def _metric(record: Record, name: str) -> float | None:
    """The test metric where the run has one, else the validation metric."""
    metrics: dict[str, Any] = record["metrics"]
    value = metrics.get(f"test_{name}", metrics.get(f"validation_{name}"))
    return None if value is None else float(value)


def _kappa(record: Record) -> float | None:
    if "initial" not in record["kappa"]:
        return None
    layers = layer_rows(record["kappa"]["initial"])
    return upper_median([float(row["condition_number"]) for row in layers if row["object"] == "concatenated"])


def _close(ours: float | None, yours: float | None, tolerance: float) -> bool:
    if ours is None or yours is None:
        return ours is yours
    return abs(ours - yours) <= tolerance


def _close_ratio(ours: float | None, yours: float | None) -> bool:
    if ours is None or yours is None or ours == yours:
        return (ours is None) == (yours is None)
    return abs(yours / ours - 1) <= KAPPA_TOLERANCE


def all_agree(lines: Sequence[Beside]) -> bool:
    """Whether every run of the self-check agrees within tolerance."""
    return all(line.agrees for line in lines)
