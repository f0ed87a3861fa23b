"""One repeated run beside its record, number by number."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from heads_for_depth.conditioning.layers import layer_rows
from heads_for_depth.records import Record
from heads_for_depth.verification.tolerance import (
    Margins,
    final_metrics,
    kappa_difference,
    kappa_margin,
    margin_of,
    same_arithmetic,
)

Value = int | float | str | None
"""A number, a word such as a status or "inf", or None where there is none."""
Outcome = Literal["identical", "agrees", "differs"]
KAPPA_COLUMNS = ("condition_number", "condition_number_q1", "condition_number_q3")


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One number here and in the record."""

    quantity: str
    """Where it stands in the record, such as `metrics.test_loss`."""
    here: Value
    recorded: Value
    difference: float
    """In the record's unit; relative for a κ within tolerance. Infinite where there is nothing to subtract."""
    tolerance: float

    @property
    def agrees(self) -> bool:
        """Within tolerance."""
        return self.difference <= self.tolerance

    @property
    def used(self) -> float:
        """Share of the tolerance that the difference takes."""
        if self.difference == 0:
            return 0.0
        return self.difference / self.tolerance if self.tolerance else math.inf


@dataclass(frozen=True, kw_only=True, slots=True)
class Verified:
    """One run: whether it had to come out bit for bit, what was checked, and what came of it."""

    experiment: str
    run_id: str
    same_arithmetic: bool
    checks: tuple[Check, ...]
    identical: bool
    """Every number of metrics and κ, seconds apart, is the same."""

    @property
    def outcome(self) -> Outcome:
        """`identical`, `agrees` (within tolerance) or `differs`."""
        if not all(check.agrees for check in self.checks):
            return "differs"
        return "identical" if self.identical else "agrees"

    @property
    def telling(self) -> Check:
        """The check that takes the largest share of its tolerance; the first of equals."""
        return max(self.checks, key=lambda check: check.used)


def verify_record(here: Record, recorded: Record, margins: Margins) -> Verified:
    """Compare a repeated run with its record: bit for bit where the arithmetic is the same, else within tolerance.

    Raises BadInput where a metric has no known seed noise.
    """
    every = list(_every_number(here, recorded))
    exact = same_arithmetic(here, recorded)
    chosen = every if exact else [*_metrics(here, recorded, margins), *kappa_checks(here, recorded)]
    equal = [_exactly(name, here[name], recorded[name]) for name in ("parameters", "status")]
    return Verified(
        experiment=recorded["experiment"],
        run_id=recorded["run_id"],
        same_arithmetic=exact,
        checks=(*chosen, *equal),
        identical=all(check.difference == 0 for check in every),
    )


def _exactly(quantity: str, here: Value, recorded: Value) -> Check:
    if here == recorded:
        difference = 0.0
    elif isinstance(here, (int, float)) and isinstance(recorded, (int, float)):
        difference = float(abs(here - recorded))
    else:
        difference = math.inf
    return Check(quantity=quantity, here=here, recorded=recorded, difference=difference, tolerance=0.0)


def _every_number(here: Record, recorded: Record) -> Iterator[Check]:
    """Every number of the record's metrics, κ and premises but seconds; final accuracy and loss first."""
    measured = ("metrics", "kappa", "premises")
    ours, theirs = (
        dict(_leaves({name: record[name] for name in measured if name in record})) for record in (here, recorded)
    )
    first = [f"metrics.{name}" for name in final_metrics(recorded["metrics"])]
    for name in dict.fromkeys([*first, *theirs]):
        yield _exactly(name, ours.get(name), theirs[name])


def _leaves(value: Any, where: str = "") -> Iterator[tuple[str, Value]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            if not key.endswith("seconds"):
                yield from _leaves(inner, f"{where}.{key}".lstrip("."))
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _leaves(inner, f"{where}[{index}]")
    else:
        yield where, value


def _metrics(here: Record, recorded: Record, margins: Margins) -> Iterator[Check]:
    for name in final_metrics(recorded["metrics"]):
        exact = _exactly(f"metrics.{name}", here["metrics"].get(name), recorded["metrics"][name])
        yield Check(
            quantity=exact.quantity,
            here=exact.here,
            recorded=exact.recorded,
            difference=exact.difference,
            tolerance=margin_of(margins, name),
        )


def kappa_checks(here: Record, recorded: Record) -> Iterator[Check]:
    """Median and quartiles of κ of every layer and object at initialization; relative differences."""
    if "initial" not in recorded["kappa"]:
        return
    ours = {_layer(row): row for row in layer_rows(here["kappa"].get("initial", {"columns": [], "rows": []}))}
    for row in layer_rows(recorded["kappa"]["initial"]):
        for column in KAPPA_COLUMNS:
            yield _kappa(row, ours.get(_layer(row), {}).get(column), column)


def _layer(row: dict[str, Any]) -> tuple[str, str]:
    return row["site"], row["object"]


def _kappa(row: dict[str, Any], ours: float | None, column: str) -> Check:
    theirs = float(row[column])
    difference = math.inf if ours is None else kappa_difference(float(ours), theirs)
    smaller = theirs if ours is None else min(float(ours), theirs)
    return Check(
        quantity=f"kappa.initial.{row['site']}.{row['object']}.{column}",
        here=_plain(ours),
        recorded=_plain(theirs),
        difference=difference,
        tolerance=kappa_margin(smaller),
    )


def _plain(kappa: float | None) -> Value:
    return "inf" if kappa is not None and math.isinf(kappa) else kappa
