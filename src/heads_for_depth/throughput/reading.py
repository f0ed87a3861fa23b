"""Throughput records as plain numbers: one line per shape, mode and machine, and each shape against its reference."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from heads_for_depth.benchmark.reading import Ratio, ratio
from heads_for_depth.errors import BadInput
from heads_for_depth.provenance import without_marks
from heads_for_depth.records import Record, load
from heads_for_depth.throughput.running import EXPERIMENT
from heads_for_depth.throughput.subjects import series_of

Quantity = Literal["latency", "forward", "training"]
QUANTITIES: tuple[Quantity, ...] = ("latency", "forward", "training")
"""One image at a time; per image at the best batch; per image of a training step."""
PROFILES = ("cpu", "gpu")
"""Profiles whose records are shown together: each measures another device."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Timing:
    """Seconds per image or text, one number per round of alternation."""

    batch: int
    values: tuple[float, ...]
    median: float

    @property
    def per_second(self) -> float:
        """Images or texts per second."""
        return 1 / self.median


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One shape on one machine in one mode."""

    series: str
    title: str
    kind: str
    subject: str
    reference: str
    status: str
    parameters: int
    flops: dict[str, int]
    """Operations of one image or text, `forward` and `training`."""
    assumption: str
    machine: str
    """Processor and cores, or the GPU's name."""
    hardware: str
    """The same as it stands in run ids."""
    device: str
    precision: str
    compiled: bool
    busy: bool
    """Whether something else ran when the measurement began."""
    turns: str
    """Which shapes took turns with one another: those with the same text."""
    heads: int
    head_dim: int
    timings: dict[Quantity, Timing | None]
    """None where memory ran out at every batch size."""
    memory: dict[str, int | None]
    """Peak bytes: `forward` of one image, `training` step of its batch; None where it was not measured."""

    @property
    def mode(self) -> str:
        """Precision, and eager or compiled."""
        return f"{self.precision}, {'compiled' if self.compiled else 'eager'}"

    def flops_per_second(self, quantity: Quantity) -> float | None:
        """Achieved operations per second."""
        timing = self.timings[quantity]
        work = self.flops["training" if quantity == "training" else "forward"]
        return None if timing is None else work / timing.median


def lines(results: Path, profiles: Iterable[str] = PROFILES) -> list[Line]:
    """Every shape measured, by machine and mode, and there in the order of the rows and of their shapes."""
    found = [line_of(record) for profile in profiles for record in load(results, profile, EXPERIMENT)]
    return sorted(found, key=lambda line: (line.machine, line.mode, *_order(line)))


@cache
def _places() -> dict[tuple[str, str], tuple[int, int]]:
    """Series and subject -> where they stand among all."""
    every = enumerate(series_of("cpu"))
    return {(s.name, subject.name): (row, place) for row, s in every for place, subject in enumerate(s.subjects)}


def _order(line: Line) -> tuple[int, int, str, str]:
    """As declared; what is not declared, such as smoke shapes, last and by name."""
    return (*_places().get((line.series, line.subject), (len(_places()), 0)), line.series, line.subject)


def line_of(record: Record) -> Line:
    """The numbers of one record. Raises BadInput where it is no measurement of throughput."""
    try:
        return _line(record)
    except (AttributeError, IndexError, KeyError, TypeError, ZeroDivisionError) as error:
        run_id = record.get("run_id")
        raise BadInput("record", run_id, "holds no measurement of throughput; remove it and measure again") from error


def _line(record: Record) -> Line:
    plan, metrics, provenance = record["plan"], record["metrics"], record["provenance"]
    names = ("series", "title", "kind", "subject", "reference", "assumption", "device", "precision", "compiled")
    heads, d_model = plan["shape"]["heads"][0], plan["shape"]["d_model"][0]
    head_dim = plan["shape"].get("head_dim")
    return Line(
        **{name: plan[name] for name in names},
        status=record["status"],
        parameters=record["parameters"],
        flops=metrics["flops"],
        machine=_machine(provenance),
        hardware=record["run_id"].rsplit(".", 1)[1],
        busy=provenance["busy"],
        turns=provenance["date"] if metrics.get("took_turns", True) else record["run_id"],
        heads=heads,
        head_dim=head_dim[0] if head_dim else d_model // heads,
        timings={quantity: _timing(metrics, quantity) for quantity in QUANTITIES},
        memory=_memory(metrics),
    )


def _machine(provenance: dict[str, Any]) -> str:
    if provenance["device"] != "cpu":
        return str(provenance["device_name"])
    machine = provenance["machine"]
    return f"{without_marks(machine['processor'])}, {machine['cores']} cores"


def _timing(metrics: dict[str, Any], quantity: Quantity) -> Timing | None:
    measured = metrics.get("training" if quantity == "training" else "forward", {})
    fitting = {int(batch): seconds for batch, seconds in measured.items() if seconds is not None}
    if quantity == "latency":
        fitting = {batch: seconds for batch, seconds in fitting.items() if batch == 1}
    if not fitting:
        return None
    batch = min(fitting, key=lambda size: float(fitting[size]["median"]) / size)
    seconds = fitting[batch]
    per_image = tuple(value / batch for value in seconds["values"])
    return Timing(batch=batch, values=per_image, median=seconds["median"] / batch)


def _memory(metrics: dict[str, Any]) -> dict[str, int | None]:
    peaks = metrics.get("peak_memory_bytes") or {}
    return {"forward": peaks.get("forward", {}).get("1"), "training": peaks.get("training")}


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One shape against the reference of its series, on the same machine and in the same mode."""

    line: Line
    reference: Line

    @property
    def parameters_saved(self) -> float:
        """Share of the reference's parameters that this shape has not."""
        return 1 - self.line.parameters / self.reference.parameters

    @property
    def flops_saved(self) -> float:
        """Share of the reference's operations of a forward pass."""
        return 1 - self.line.flops["forward"] / self.reference.flops["forward"]

    def time(self, quantity: Quantity) -> Ratio | None:
        """Its time over the reference's, round by round; None where one of them ran out of memory."""
        mine, other = self.line.timings[quantity], self.reference.timings[quantity]
        return None if mine is None or other is None else ratio(mine.values, other.values)

    def memory(self, use: str) -> float | None:
        """Its peak memory over the reference's."""
        mine, other = self.line.memory[use], self.reference.memory[use]
        return None if mine is None or not other else mine / other


def comparisons(all_lines: Sequence[Line], kind: str = "row") -> list[Comparison]:
    """Every shape of the series of a kind that is not the reference itself."""
    found = {(*_place(line), line.subject): line for line in all_lines if line.kind == kind}
    return [
        Comparison(line=line, reference=found[(*_place(line), line.reference)])
        for line in found.values()
        if line.subject != line.reference and (*_place(line), line.reference) in found
    ]


def _place(line: Line) -> tuple[str, ...]:
    """Lines of one place took turns, so that their ratios mean something."""
    return line.series, line.machine, line.mode, line.turns


def chosen(all_lines: Sequence[Line], wanted: Callable[[Line], bool]) -> list[Line]:
    """The lines that are wanted, in their order."""
    return [line for line in all_lines if wanted(line)]


def heads_only(all_lines: Sequence[Line]) -> list[Line]:
    """The lines of the series in which only heads change."""
    return chosen(all_lines, lambda line: line.kind == "heads")


def data(all_lines: Sequence[Line]) -> pd.DataFrame:
    """One line per shape, mode, machine, quantity and round, unrounded."""
    columns = ["series", "subject", "machine", "mode", "status", "parameters", "flops_forward", "flops_training",
               "quantity", "batch", "round", "seconds_per_item"]  # fmt: skip
    rows = [row for line in all_lines for row in _data_rows(line)]
    return pd.DataFrame(rows, columns=columns)


def _data_rows(line: Line) -> list[tuple[Any, ...]]:
    head = (line.series, line.subject, line.machine, line.mode, line.status, line.parameters,
            line.flops["forward"], line.flops["training"])  # fmt: skip
    measured = [(quantity, timing) for quantity, timing in line.timings.items() if timing is not None]
    if not measured:
        return [(*head, None, None, None, None)]
    return [
        (*head, quantity, timing.batch, number, value)
        for quantity, timing in measured
        for number, value in enumerate(timing.values, start=1)
    ]
