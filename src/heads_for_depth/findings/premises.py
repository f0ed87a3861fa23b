"""Question 2: the premises of Theorem 3.2 row by row, and κ of the reduced models through training."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from heads_for_depth.conditioning.layers import is_main, layer_rows, main_median, upper_median
from heads_for_depth.experiments import ARMS, VISION_ROWS, Arm
from heads_for_depth.findings.declared import declared
from heads_for_depth.records import Record

SIDES = ("before", "after", "after-wide")
"""Run-id part of a shape: published, reshaped, and the reshape's heads at the published head_dim."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PremiseLine:
    """One full-scale shape under one input; medians over the layers of the row's main attention."""

    row: str
    side: str
    inputs: str
    tokens: int
    """N: tokens, of a window in DaViT."""
    width: int
    """D = h·head_dim."""
    heads: int
    """Of the first layer counted."""
    gaussian: float | None
    """Predicted κ; None where D does not exceed N."""
    kappa: float
    head_correlation: float | None
    """Mean RV coefficient between heads; None for one head."""
    head_correlation_independent: float | None
    isotropy: float
    """1 where the entries are independent and normal."""


def premise_lines(records: Iterable[Record]) -> list[PremiseLine]:
    """The finished records of experiment `premises`, in the order of rows, sides and inputs.

    Raises BadInput for a record that was made under another declaration.
    """
    lines = [_line(record) for record in declared(records, "premises") if record["status"] == "ok"]
    names = [row.name for row in VISION_ROWS]
    return sorted(lines, key=lambda line: (line.inputs != "noise", _place(names, line.row), SIDES.index(line.side)))


def _place(names: Sequence[str], name: str) -> int:
    return names.index(name) if name in names else len(names)


def _line(record: Record) -> PremiseLine:
    family = record["plan"]["shape"]["family"]
    layers = [r for r in layer_rows(record["kappa"]["initial"]) if r["object"] == "concatenated" and is_main(r, family)]
    premises = [row for row in layer_rows(record["premises"]["initial"]) if is_main(row, family)]
    row, side, _ = record["run_id"].split(".")
    correlated = [p for p in premises if p["head_correlation"] is not None]
    return PremiseLine(
        row=row,
        side=side,
        inputs=record["plan"]["inputs"],
        tokens=layers[0]["rows"],
        width=layers[0]["columns"],
        heads=layers[0]["heads"],
        gaussian=layers[0]["gaussian"],
        kappa=upper_median([float(layer["condition_number"]) for layer in layers]),
        head_correlation=median(p["head_correlation"] for p in correlated) if correlated else None,
        head_correlation_independent=correlated[0]["head_correlation_independent"] if correlated else None,
        isotropy=median(p["isotropy"] for p in premises),
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingPath:
    """One cell of a reduced vision row through training; medians over layers, then over runs."""

    row: str
    title: str
    depth_arm: Arm
    heads_arm: Arm
    depth: int
    """Blocks, over all stages."""
    heads: int
    """Of the first stage."""
    kappa: Mapping[str, Sequence[float]]
    """Object -> κ before training and after every epoch; an object that was not measured is left out."""
    effective_rank: Sequence[float]
    """Of the concatenated heads, at the same times."""
    numerical_rank: Sequence[float]
    head_correlation: Sequence[float | None]
    isotropy: Sequence[float]
    n: int
    failed: int
    """Runs that diverged or ran out of memory; of them nothing is shown."""


OBJECTS = ("concatenated", "projected", "head", "jacobian")


def training_paths(records: Iterable[Record]) -> list[TrainingPath]:
    """The finished records of experiment `conditioning_training`, by row and cell in the order declared.

    Raises BadInput for a record that was made under another declaration.
    """
    found: dict[tuple[str, str, str], list[Record]] = {}
    for record in declared(records, "conditioning_training"):
        plan = record["plan"]
        found.setdefault((plan["row"], plan["depth_arm"], plan["heads_arm"]), []).append(record)
    keys = [(row, depth, heads) for row in VISION_ROWS for depth in ARMS for heads in ARMS]
    return [
        _path(row.title, depth, heads, found[row.name, depth, heads])
        for row, depth, heads in keys
        if any(record["status"] == "ok" for record in found.get((row.name, depth, heads), ()))
    ]


def times_of(record: Record) -> list[str]:
    """Names of the times at which κ was measured, in order."""
    epochs = sorted((name for name in record["kappa"] if name.startswith("epoch-")), key=lambda name: int(name[6:]))
    return ["initial", *epochs, "final"]


def _path(title: str, depth_arm: Arm, heads_arm: Arm, every: Sequence[Record]) -> TrainingPath:
    records = [record for record in every if record["status"] == "ok"]
    plan, times = records[0]["plan"], times_of(records[0])
    family = plan["shape"]["family"]
    kappas = {name: [_over_runs(records, time, family, name) for time in times] for name in OBJECTS}
    return TrainingPath(
        row=plan["row"],
        title=title,
        depth_arm=depth_arm,
        heads_arm=heads_arm,
        depth=sum(plan["shape"]["depth"]),
        heads=plan["shape"]["heads"][0],
        kappa={name: [v for v in values if v is not None] for name, values in kappas.items() if None not in values},
        effective_rank=[_layers(records, time, family, "effective_rank") for time in times],
        numerical_rank=[_layers(records, time, family, "numerical_rank") for time in times],
        head_correlation=[_premise(records, time, family, "head_correlation") for time in times],
        isotropy=[_premise(records, time, family, "isotropy") or 0.0 for time in times],
        n=len(records),
        failed=len(every) - len(records),
    )


def _over_runs(records: Sequence[Record], time: str, family: str, name: str) -> float | None:
    """Upper median over the runs that have the object; None where none has."""
    values = [main_median(record["kappa"][time], family, name) for record in records]
    present = [value for value in values if value is not None]
    return upper_median(present) if present else None


def _layers(records: Sequence[Record], time: str, family: str, column: str) -> float:
    """Median over layers, then over runs."""
    return median(
        median(
            row[column]
            for row in layer_rows(record["kappa"][time])
            if row["object"] == "concatenated" and is_main(row, family, "channels")
        )
        for record in records
    )


def _premise(records: Sequence[Record], time: str, family: str, column: str) -> float | None:
    """Median over layers, then over runs; None where no layer has a value, as with a single head."""
    by_run: list[list[float | None]] = [
        [r[column] for r in layer_rows(record["premises"][time]) if is_main(r, family, "channels")]
        for record in records
    ]
    medians = [median(values) for run in by_run if (values := [value for value in run if value is not None])]
    return median(medians) if medians else None
