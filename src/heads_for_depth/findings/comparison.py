"""Two folders of records side by side: accuracies, differences, verdicts and κ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import EXPERIMENTS, REDUCTIONS
from heads_for_depth.findings.vision import Cell, RowFinding, vision_findings
from heads_for_depth.records import Record
from heads_for_depth.statistics import Difference, holm, welch_if_repeated
from heads_for_depth.verification import Check, find_records, kappa_checks

ALPHA = 0.05
"""Chance, over all cells, that one of them reads "differs" though both sides train alike."""
MEASURED = ("row", "seed", "regime", "inputs", "input_count")
"""What fixes κ at initialization beside the shape; the budget does not enter."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of the two folders."""

    results: str
    profile: str
    devices: tuple[str, ...]
    """Names of the devices that computed."""
    commits: tuple[str, ...]
    runs: Mapping[str, frozenset[str]]
    """Experiment -> run ids."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CellPair:
    """One cell of a 2 × 2 in both folders."""

    experiment: str
    row: str
    a: Cell
    b: Cell
    difference: Difference | None
    """Welch, B minus A, in points; None across profiles and where a side has fewer than two finished runs."""
    p: float | None
    """Holm-adjusted over the cells, two-sided; null hypothesis: both sides have one mean."""

    @property
    def agrees(self) -> bool | None:
        """Whether the means differ by no more than seeds do; None where it cannot be said."""
        return None if self.p is None else self.p >= ALPHA


@dataclass(frozen=True, kw_only=True, slots=True)
class RowPair:
    """One row in both folders; each verdict is drawn by the rule of its own profile."""

    experiment: str
    a: RowFinding
    b: RowFinding

    @property
    def agrees(self) -> bool:
        """Whether the two verdicts are the same word."""
        return self.a.verdict.verdict == self.b.verdict.verdict


@dataclass(frozen=True, kw_only=True, slots=True)
class KappaPair:
    """κ at initialization of one run in both folders; `here` is B, `recorded` is A."""

    experiment: str
    run_id: str
    checks: tuple[Check, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class Compared:
    """All that two folders have in common, and what they have not."""

    a: Side
    b: Side
    rows: tuple[RowPair, ...]
    """Rows with a run of the baseline and of the reshape on both sides."""
    cells: tuple[CellPair, ...]
    kappa: tuple[KappaPair, ...]

    @property
    def same_profile(self) -> bool:
        """Across profiles verdicts are compared, accuracies are not."""
        return self.a.profile == self.b.profile

    @property
    def changed(self) -> tuple[RowPair, ...]:
        """Rows whose verdicts differ."""
        return tuple(pair for pair in self.rows if not pair.agrees)

    @property
    def only_a(self) -> dict[str, list[str]]:
        """Experiment -> run ids that A has and B has not."""
        return _only(self.a, self.b)

    @property
    def only_b(self) -> dict[str, list[str]]:
        """Experiment -> run ids that B has and A has not."""
        return _only(self.b, self.a)


def _only(side: Side, other: Side) -> dict[str, list[str]]:
    found = {name: sorted(side.runs[name] - other.runs[name]) for name in EXPERIMENTS}
    return {name: run_ids for name, run_ids in found.items() if run_ids}


def compare_folders(a: Path, b: Path, profile_a: str, profile_b: str) -> Compared:
    """Compare the records of two folders, each under its own profile.

    Raises BadInput where a folder is missing or has no records, for a record of another schema or grid, and where the
    two have nothing in common.
    """
    found_a, found_b = find_records(a, profile_a), find_records(b, profile_b)
    rows = _row_pairs(found_a, found_b, profile_a, profile_b)
    compared = Compared(
        a=_side(a, profile_a, found_a),
        b=_side(b, profile_b, found_b),
        rows=tuple(pair for pair in rows if min(pair.a.verdict.n, pair.b.verdict.n) > 0),
        cells=_cell_pairs(rows, numbers=profile_a == profile_b),
        kappa=_kappa_pairs(found_a, found_b),
    )
    if not (compared.rows or compared.cells or compared.kappa):
        raise BadInput("results", f"{a} and {b}", "have no cell and no condition number in common")
    return compared


def _side(results: Path, profile: str, found: Sequence[Record]) -> Side:
    stamps = [record["provenance"] for record in found]
    runs = {name: frozenset(r["run_id"] for r in found if r["experiment"] == name) for name in EXPERIMENTS}
    return Side(
        results=str(results),
        profile=profile,
        devices=tuple(sorted({str(stamp.get("device_name", "unknown")) for stamp in stamps})),
        commits=tuple(sorted({str(stamp.get("commit", "unknown")) for stamp in stamps})),
        runs=runs,
    )


def _row_pairs(found_a: Sequence[Record], found_b: Sequence[Record], profile_a: str, profile_b: str) -> list[RowPair]:
    """The rows of every table that both profiles plan."""
    pairs = []
    for table in REDUCTIONS:
        others = {finding.row.name: finding for finding in _findings(found_b, profile_b, table)}
        for finding in _findings(found_a, profile_a, table):
            if finding.row.name in others:
                pairs.append(RowPair(experiment=table, a=finding, b=others[finding.row.name]))
    return pairs


def _findings(found: Sequence[Record], profile: str, table: str) -> list[RowFinding]:
    return vision_findings([record for record in found if record["experiment"] == table], profile, table)


def _cell_pairs(rows: Sequence[RowPair], *, numbers: bool) -> tuple[CellPair, ...]:
    """Cells that have runs on both sides; their means are tested where the two budgets are one."""
    pairs = [(row, row.a.cells[key], row.b.cells[key]) for row in rows for key in row.a.cells]
    pairs = [(row, one, other) for row, one, other in pairs if one.accuracy and other.accuracy]
    differences = [_difference(one, other) if numbers else None for _, one, other in pairs]
    adjusted = iter(holm([_two_sided(difference) for difference in differences if difference is not None]))
    return tuple(
        CellPair(
            experiment=row.experiment,
            row=row.a.row.title,
            a=one,
            b=other,
            difference=difference,
            p=None if difference is None else float(next(adjusted)),
        )
        for (row, one, other), difference in zip(pairs, differences, strict=True)
    )


def _difference(one: Cell, other: Cell) -> Difference | None:
    return welch_if_repeated(one.accuracy, other.accuracy)


def _two_sided(difference: Difference) -> float:
    return min(1.0, 2 * min(difference.p_above(0.0), difference.p_below(0.0)))


def _kappa_pairs(found_a: Sequence[Record], found_b: Sequence[Record]) -> tuple[KappaPair, ...]:
    """Runs whose κ at initialization both sides measured on the same model and inputs."""
    measured_a, measured_b = (
        {(r["experiment"], r["run_id"]): r for r in found if r["status"] == "ok" and "initial" in r["kappa"]}
        for found in (found_a, found_b)
    )
    common = [key for key in measured_a if key in measured_b and _alike(measured_a[key], measured_b[key])]
    return tuple(
        KappaPair(experiment=key[0], run_id=key[1], checks=tuple(kappa_checks(measured_b[key], measured_a[key])))
        for key in common
    )


def _alike(one: Record, other: Record) -> bool:
    same_shape = one["plan"]["shape"] == other["plan"]["shape"]
    return same_shape and all(one["plan"].get(name) == other["plan"].get(name) for name in MEASURED)
