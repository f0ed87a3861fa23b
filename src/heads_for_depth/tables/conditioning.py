"""Tables of the condition numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import pandas as pd

from heads_for_depth.experiments import VISION_ROWS, VisionRow
from heads_for_depth.findings.conditioning import OBJECTS, HeadSweep, Point, Setting, fold_change
from heads_for_depth.findings.vision import RowFinding
from heads_for_depth.tables.formatting import NONE as NO_NUMBER
from heads_for_depth.tables.formatting import change, in_powers_of_ten, stages
from heads_for_depth.tables.vision import NONE, kappa

FOLD = "× in the row's range"
SETTINGS = (("fixed-d-model", "noise"), ("fixed-head-dim", "noise"), ("fixed-d-model", "images"))
"""(regime, network input) of every head sweep."""
PRACTICE: tuple[str, str] = ("fixed-d-model", "noise")
"""The regime of the practice, and the network input without structure of its own."""


def movement(sweeps: Mapping[Setting, HeadSweep], regime: str, inputs: str) -> pd.DataFrame:
    """How far κ of the concatenated heads moves: over the row's own heads, and from one head to two and to the most."""
    lines = [_movement_line(row, sweeps.get((row.name, regime, inputs))) for row in VISION_ROWS]
    return pd.DataFrame([line for line in lines if line])


def _movement_line(row: VisionRow, sweep: HeadSweep | None) -> dict[str, str] | None:
    if sweep is None:
        return None
    points = sweep.points["concatenated"]
    before, after = (sweep.at("concatenated", heads) for heads in (row.before.heads[0], row.heads_after[0]))
    one, two, last = sweep.at("concatenated", 1), sweep.at("concatenated", 2), points[-1]
    return {
        "row": row.title,
        "N × D": _size(points[0], last),
        "Gaussian": _gaussian(before),
        "heads": change(str(row.before.heads[0]), str(row.heads_after[0])),
        "κ": NONE if not (before and after) else change(*(kappa(p.condition_number) for p in (before, after))),
        FOLD: _fold(before, after),
        "κ at 1 head": NONE if one is None else kappa(one.condition_number),
        "× from 1 to 2": _fold(one, two),
        "× from 1 to most": _fold(one, last),
    }


def _size(first: Point, last: Point) -> str:
    """N × D, D from the fewest heads to the most where it grows with them."""
    return f"{first.rows} × {first.columns}" + ("" if first.columns == last.columns else f"–{last.columns}")


def _gaussian(point: Point | None) -> str:
    """The prediction at a point; there is none where D does not exceed N."""
    if point is None:
        return NONE
    return NO_NUMBER if point.gaussian is None else kappa(point.gaussian)


def range_ratio(sweep: HeadSweep | None) -> str:
    """κ at the reshape's heads over κ at the published heads."""
    if sweep is None:
        return NONE
    return _fold(*(sweep.at("concatenated", heads[0]) for heads in (sweep.row.before.heads, sweep.row.heads_after)))


def _fold(before: Point | None, after: Point | None) -> str:
    if before is None or after is None:
        return NONE
    ratio = fold_change(before.condition_number, after.condition_number)
    return "not finite" if ratio is None else f"{ratio:.2f}" if ratio >= 0.01 else in_powers_of_ten(ratio)


def objects(sweeps: Mapping[Setting, HeadSweep]) -> pd.DataFrame:
    """κ of the three objects at the published head count, and effective rank, in the practice's setting."""
    lines = [_objects_line(row, sweeps.get((row.name, *PRACTICE))) for row in VISION_ROWS]
    return pd.DataFrame([line for line in lines if line])


def _objects_line(row: VisionRow, sweep: HeadSweep | None) -> dict[str, str] | None:
    if sweep is None:
        return None
    points = {name: sweep.at(name, row.before.heads[0]) for name in OBJECTS}
    concatenated = points["concatenated"]
    if concatenated is None:
        return None
    return (
        {"row": row.title, "heads": stages(row.before.heads)}
        | {name: NONE if point is None else kappa(point.condition_number) for name, point in points.items()}
        | {"effective rank": f"{concatenated.effective_rank:.0f}"}
        | {"of": str(min(concatenated.rows, concatenated.columns))}
    )


def trained(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """κ of the concatenated heads at reduced scale, before and after training, all four cells of every row."""
    return pd.DataFrame(
        [
            {
                "row": f.row.title,
                "depth": stages(cell.shape.depth),
                "heads": stages(cell.shape.heads),
                "κ start": kappa(cell.kappa.get("initial")),
                "κ end": kappa(cell.kappa.get("final")),
                "n": str(len(cell.accuracy)),
            }
            for f in findings
            for cell in f.cells.values()
        ]
    )


def glued(sweeps: Mapping[Setting, HeadSweep], findings: Sequence[RowFinding]) -> dict[str, str]:
    """Values that chapters quote: κ before, after, their ratio, and the ratio from one head to two."""
    values: dict[str, str] = {}
    for row, (regime, inputs) in product(VISION_ROWS, SETTINGS):
        line = _movement_line(row, sweeps.get((row.name, regime, inputs))) or {}
        for key, column in (("range", "κ"), ("ratio", FOLD), ("one_to_two", "× from 1 to 2"), ("gaussian", "Gaussian")):
            values[f"kappa.{row.name}.{regime}.{inputs}.{key}"] = line.get(column, NONE)
    for f in findings:
        for time in ("initial", "final"):
            kappas = (kappa(cell.kappa.get(time)) for cell in (f.baseline, f.reshape))
            values[f"kappa.{f.row.name}.trained.{time}"] = change(*kappas)
    return values
