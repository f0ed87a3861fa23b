"""Records with numbers chosen by a test, in the form that a run writes."""

from collections.abc import Iterator, Sequence
from functools import cache
from math import inf
from typing import Any

from heads_for_depth.conditioning.attention import COLUMNS
from heads_for_depth.experiments import Arm, PlannedRun, Source, plan, vision_row
from heads_for_depth.records import SCHEMA, Record
from heads_for_depth.shapes import Regime, scaled_heads, with_heads

SEEDS = 8
PROVENANCE: dict[str, Any] = {
    "commit": "0123456789abcdef0123456789abcdef01234567",
    "date": "2026-03-01T23:59:00+00:00",
    "machine": {"processor": "Model A", "cores": 2, "memory_bytes": 8 * 2**30, "system": "Linux x86_64"},
    "device": "cpu",
    "device_name": "Model A",
    "threads": 1,
    "versions": {"python": "3.11.7", "torch": "2.14.1"},
}


@cache
def _planned(profile: str) -> dict[tuple[str, str | None, str | None, int], PlannedRun]:
    runs = plan(profile, "vision_rows", SEEDS)
    return {(run.row, run.depth_arm, run.heads_arm, run.seed): run for run in runs}


def planned(row: str, depth: Arm, heads: Arm, seed: int = 0, profile: str = "cpu") -> PlannedRun:
    """The run of the 2 × 2 of that row and seed."""
    return _planned(profile)[row, depth, heads, seed]


def layer(kappa: float, site: str = "blocks.0.attn", **facts: Any) -> dict[str, Any]:
    """One line of a κ table: by default the concatenated heads of a token attention."""
    known: dict[str, Any] = {"kind": "tokens", "heads": 4, "object": "concatenated", "gaussian": None}
    known |= {"rows": 17, "columns": 96, "matrices": 1, "rank_deficient": 0.0, "effective_rank": 9.0} | facts
    known |= {"site": site, "condition_number": "inf" if kappa == inf else kappa}
    return {name: known.get(name, 0.0) for name in COLUMNS}


def table(*layers: dict[str, Any]) -> dict[str, Any]:
    """A κ table as a record holds it."""
    return {"columns": list(COLUMNS), "rows": [list(line.values()) for line in layers]}


def record(run: PlannedRun, **parts: Any) -> Record:
    """A record of a planned run; its parts take the place of the made-up ones."""
    recipe = run.recipe and run.recipe.with_learning_rate(0.002)
    plan_part = run.as_dict() | {"recipe": recipe.as_dict() if recipe else None}
    made_up: Record = {"schema": SCHEMA, "run_id": run.run_id, "experiment": run.experiment, "profile": run.profile}
    made_up |= {"status": "ok", "plan": plan_part, "parameters": run.parameters, "metrics": {}, "kappa": {}}
    return made_up | {"seconds": {"train": 90.0, "total": 100.0}, "provenance": PROVENANCE} | parts


def trained(
    run: PlannedRun,
    accuracy: float,
    *,
    loss: float = 0.5,
    curve: Sequence[tuple[float, float]] = ((1.0, 0.6), (0.75, 0.7)),
    start: float = 40.0,
    end: float = 20.0,
    **parts: Any,
) -> Record:
    """A finished training run: test accuracy and the curve's (training loss, validation accuracy) as shares of 1."""
    epochs = [{"train_loss": train_loss, "validation_accuracy": share} for train_loss, share in curve]
    metrics = {"test_accuracy": accuracy, "test_loss": loss, "epochs": epochs}
    davit = {"site": "stages.2.blocks.0.1.attn", "kind": "channels"} if run.shape.family == "davit" else {}
    kappa = {"initial": table(layer(start, **davit)), "final": table(layer(end, **davit))}
    return record(run, **{"metrics": metrics, "kappa": kappa} | parts)


def arm(row: str, depth: Arm, heads: Arm, points: Sequence[float], **numbers: Any) -> Iterator[Record]:
    """One finished run per accuracy (percentage points), seeds from 0."""
    for seed, accuracy in enumerate(points):
        yield trained(planned(row, depth, heads, seed), accuracy / 100, **numbers)


def failed(row: str, depth: Arm, heads: Arm, seed: int, status: str = "diverged") -> Record:
    """A run that ended without test metrics."""
    return record(planned(row, depth, heads, seed), status=status, metrics={"epochs": []})


def measured(
    row: str,
    heads: int,
    *layers: dict[str, Any],
    regime: Regime = "fixed-d-model",
    inputs: Source = "noise",
    **parts: Any,
) -> Record:
    """κ at initialization of the row's published shape with that many heads in its first stage."""
    before = vision_row(row).before
    run = PlannedRun(
        experiment="conditioning", run_id=f"{row}.{regime}.{inputs}.heads-{heads}", kind="kappa", profile="cpu",
        row=row, shape=with_heads(before, scaled_heads(before, heads), regime), parameters=1, seed=0,
        regime=regime, inputs=inputs, input_count=2,
    )  # fmt: skip
    return record(run, **{"kappa": {"initial": table(*layers)}} | parts)


def three_objects(concatenated: float, projected: float = 7.0, head: float = 3.0, **facts: Any) -> list[dict[str, Any]]:
    """One layer's three lines of a κ table."""
    named = {"concatenated": concatenated, "projected": projected, "head": head}
    return [layer(kappa, **facts | {"object": name}) for name, kappa in named.items()]
