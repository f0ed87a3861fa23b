"""Every row's ceilings and predictions before and after, and what was measured on processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from heads_for_depth.errors import BadInput
from heads_for_depth.parallelism import (
    GPU_COUNTS,
    Assumptions,
    CeilingChange,
    Prediction,
    ceiling_change,
    speed_up,
)
from heads_for_depth.parallelism.recording import EXPERIMENT
from heads_for_depth.records import Record, load
from heads_for_depth.recount import Countable
from heads_for_depth.throughput.subjects import series_of, short_title


@dataclass(frozen=True, kw_only=True, slots=True)
class Pair:
    """A row at full size."""

    name: str
    before: Countable
    after: Countable
    tokens: int | None

    @property
    def ceilings(self) -> CeilingChange:
        """How far each end can be taken apart."""
        return ceiling_change(self.before, self.after)


@dataclass(frozen=True, kw_only=True, slots=True)
class Predicted:
    """Predictions of a training step, by number of GPUs; None where one copy cannot use exactly so many."""

    name: str
    before: dict[int, Prediction | None]
    after: dict[int, Prediction | None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Measured:
    """One model shared out over so many processes."""

    name: str
    degree: int
    dtype: str
    device: str
    batch: int
    two_a_layer: bool
    """Whether a forward pass made two all-reduces a layer and communicated nothing else."""
    relative_difference: float
    """Largest difference of a logit from those of one process, over the largest logit."""
    all_reduces: int
    bytes: int
    """Payload of one process in one forward pass."""
    seconds: float
    all_reduce_share: float | None
    """Share of the seconds that as many all-reduces of this size take by themselves."""
    oversubscribed: bool
    machine: str


def pairs() -> list[Pair]:
    """The rows whose ends are both known or assumed, as they are stated."""
    found = []
    for series in series_of("cpu"):
        ends = {subject.name: subject for subject in series.subjects}
        if series.kind == "row" and "after" in ends:
            before, after = ends["before"], ends["after"]
            tokens = before.tokens or None
            found.append(Pair(name=short_title(series.title), before=before.shape, after=after.shape, tokens=tokens))
    return found


def predicted(rows: Sequence[Pair], assumptions: Assumptions, counts: Sequence[int] = GPU_COUNTS) -> list[Predicted]:
    """What the cost model predicts for one copy of each model, without data replicas."""
    return [
        Predicted(
            name=row.name,
            before=speed_up(row.before, assumptions, counts=counts, tokens=row.tokens),
            after=speed_up(row.after, assumptions, counts=counts, tokens=row.tokens),
        )
        for row in rows
    ]


def predicted_data(found: Sequence[Predicted]) -> pd.DataFrame:
    """One line per row, end and number of GPUs, unrounded."""
    lines = [
        {"row": one.name, "end": end, "gpus": gpus}
        | {
            "tensor_degree": prediction.layout.tensor_degree if prediction else None,
            "pipeline_stages": prediction.layout.pipeline_stages if prediction else None,
            "predicted_seconds": prediction.predicted_seconds if prediction else None,
            "predicted_speed_up": prediction.speed_up if prediction else None,
        }
        for one in found
        for end, values in (("before", one.before), ("after", one.after))
        for gpus, prediction in values.items()
    ]
    return pd.DataFrame(lines).astype({"tensor_degree": "Int64", "pipeline_stages": "Int64"})


def measured(results: Path, profiles: Sequence[str]) -> list[Measured]:
    """Every degree that was measured at full size, or reduced where that is all there is, by shape and degree."""
    recorded = [record for profile in profiles for record in load(results, profile, EXPERIMENT)]
    full = [record for record in recorded if not record["plan"].get("reduced")]
    found = [_measured(record) for record in full or recorded]
    return sorted(found, key=lambda one: (one.machine, one.name, one.degree))


def _titles() -> dict[str, str]:
    return {series.name: short_title(series.title) for series in series_of("cpu")}


def _two_a_layer(record: Record) -> bool:
    metrics, depth = record["metrics"], sum(record["plan"]["shape"]["depth"])
    expected = 2 * depth if record["plan"]["degree"] > 1 else 0
    return bool(metrics["all_reduces"] == expected and metrics["other_collectives"] == 0)


def _measured(record: Record) -> Measured:
    """The numbers of one record. Raises BadInput where it is no measurement of a degree."""
    try:
        return _read(record)
    except (AttributeError, IndexError, KeyError, TypeError) as error:
        remedy = "holds no measurement of a tensor-parallel degree; remove it and measure again"
        raise BadInput("record", record.get("run_id"), remedy) from error


def _read(record: Record) -> Measured:
    metrics, seconds, provenance = record["metrics"], record["seconds"], record["provenance"]
    forward = seconds["forward_seconds"]["median"]
    return Measured(
        name=f"{_titles()[record['plan']['row']]}, {record['plan']['arm']}",
        degree=record["plan"]["degree"],
        dtype=metrics["dtype"],
        device=metrics["device"],
        batch=record["plan"]["batch"],
        two_a_layer=_two_a_layer(record),
        relative_difference=metrics["relative_difference"],
        all_reduces=metrics["all_reduces"],
        bytes=metrics["bytes"],
        seconds=forward,
        all_reduce_share=metrics["communication_share"],
        oversubscribed=metrics["oversubscribed"],
        machine=provenance["machine"]["processor"],
    )
