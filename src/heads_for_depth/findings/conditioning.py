"""Question 2: κ per head count of the full-scale shapes at initialization, by row, regime and network input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from heads_for_depth.conditioning.layers import is_main, layer_rows, upper_median
from heads_for_depth.experiments import VisionRow, vision_row
from heads_for_depth.records import Record

Setting = tuple[str, str, str]
"""(row, regime, inputs)."""
OBJECTS = ("concatenated", "projected", "head")


@dataclass(frozen=True, kw_only=True, slots=True)
class Point:
    """κ of one object at one head count: the median over the layers of the row's main attention, and their range."""

    heads: int
    """Of the first stage."""
    rows: int
    """N: tokens (of a window, in DaViT)."""
    columns: int
    """Width of the object: h·head_dim, d_model, or head_dim."""
    condition_number: float
    lowest: float
    """Smallest median of a layer."""
    highest: float
    rank_deficient: float
    """Largest share of rank-deficient matrices in a layer."""
    effective_rank: float
    gaussian: float | None
    """Prediction for independent normal entries; None where the width does not exceed N."""


@dataclass(frozen=True, kw_only=True, slots=True)
class HeadSweep:
    """One row in one setting: κ against head count, per object."""

    row: VisionRow
    regime: str
    inputs: str
    points: Mapping[str, Sequence[Point]]
    """Object -> points, heads ascending."""

    def at(self, name: str, heads: int) -> Point | None:
        """The point of an object at a head count of the first stage."""
        return next((point for point in self.points[name] if point.heads == heads), None)


def head_sweeps(records: Iterable[Record]) -> dict[Setting, HeadSweep]:
    """The records of experiment `conditioning`, by setting. A failed run has no point.

    Raises BadInput for a record of an unknown row.
    """
    by_setting: dict[Setting, list[Record]] = {}
    for record in records:
        plan = record["plan"]
        if record["status"] == "ok":
            by_setting.setdefault((plan["row"], plan["regime"], plan["inputs"]), []).append(record)
    return {setting: _sweep(vision_row(setting[0]), setting, found) for setting, found in by_setting.items()}


def _sweep(row: VisionRow, setting: Setting, records: Sequence[Record]) -> HeadSweep:
    ordered = sorted(records, key=lambda record: int(record["plan"]["shape"]["heads"][0]))
    points = {name: [_point(row, record, name) for record in ordered] for name in OBJECTS}
    return HeadSweep(row=row, regime=setting[1], inputs=setting[2], points=points)


def _point(row: VisionRow, record: Record, name: str) -> Point:
    layers = [
        layer
        for layer in layer_rows(record["kappa"]["initial"])
        if layer["object"] == name and is_main(layer, row.before.family)
    ]
    values = [float(layer["condition_number"]) for layer in layers]
    return Point(
        heads=record["plan"]["shape"]["heads"][0],
        rows=layers[0]["rows"],
        columns=layers[0]["columns"],
        condition_number=upper_median(values),
        lowest=min(values),
        highest=max(values),
        rank_deficient=max(layer["rank_deficient"] for layer in layers),
        effective_rank=median(layer["effective_rank"] for layer in layers),
        gaussian=layers[0]["gaussian"],
    )


def fold_change(before: float, after: float) -> float | None:
    """κ after over κ before; None where either is infinite."""
    return None if math.isinf(before) or math.isinf(after) else after / before
