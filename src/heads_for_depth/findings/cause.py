"""Question 6: what the interventions did to κ and to accuracy, the controls, and the correlations over the map."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import log

import numpy as np

from heads_for_depth.experiments.cause_grid import DEEP, LOWERING, PLAIN_SHAPES, RAISING, RATE_ROW, RESHAPE, SHALLOW
from heads_for_depth.experiments.map_grid import MAP_ROW, VERDICT_SEEDS
from heads_for_depth.findings.map_cells import CellKey, MapCell
from heads_for_depth.statistics import Correlation, Difference, clustered_correlation, welch_if_repeated
from heads_for_depth.verdicts import ACCURACY_MARGIN, CauseArm, CauseDecision, decide_cause, moved_down, moved_up

Cells = Mapping[CellKey, MapCell]
SEED = 190
"""Of the bootstrap."""
LARGEST_KAPPA = 1e16
"""What an infinite κ counts as: no float64 matrix of full rank has a larger one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmFinding:
    """One arm against the same shape without its change."""

    cell: MapCell
    plain: MapCell
    intended: str
    """`lower`, `raise`, or empty for a control."""
    accuracy: Difference | None
    """In points; None where an arm has fewer than two finished runs."""
    log_kappa: Mapping[str, Difference]
    """Time -> difference in log κ; a time that lacks two runs is left out."""

    @property
    def moved(self) -> bool | None:
        """Whether κ moved as intended after the middle epoch; None for a control, False where it is not known."""
        if not self.intended:
            return None
        middle = self.log_kappa.get("middle")
        return moved_down(middle) if self.intended == "lower" else moved_up(middle)


def plain_cell(cells: Cells, shape: tuple[int, int]) -> MapCell | None:
    """The map's cell of one of the three shapes; None where the map has none, as at smoke size."""
    return cells.get((MAP_ROW, *shape))


def plain_cells(cells: Cells) -> dict[CellKey, MapCell]:
    """The map's cells of the three shapes that the arms stand against."""
    return {key: cell for key, cell in cells.items() if key in {(MAP_ROW, *shape) for shape in PLAIN_SHAPES.values()}}


def arm_findings(arms: Cells, mapped: Cells) -> list[ArmFinding]:
    """Every arm but the learning rates, in the order declared, that has a plain cell to stand against."""
    found = []
    for (row, depth, heads), cell in arms.items():
        plain = plain_cell(mapped, (depth, heads))
        if plain is not None and not row.startswith(RATE_ROW):
            found.append(_arm(cell, plain))
    return found


def _arm(cell: MapCell, plain: MapCell) -> ArmFinding:
    times = {time: log_kappa_difference(plain, cell, time) for time in ("initial", "middle", "final")}
    return ArmFinding(
        cell=cell,
        plain=plain,
        intended="lower" if cell.row in LOWERING else "raise" if cell.row == RAISING else "",
        accuracy=welch_if_repeated(plain.accuracy, cell.accuracy),
        log_kappa={time: difference for time, difference in times.items() if difference is not None},
    )


def log_kappas(cell: MapCell, time: str) -> tuple[float, ...]:
    """Natural logarithm of κ per finished seed; an infinite κ counts as LARGEST_KAPPA, as declared."""
    return tuple(log(min(kappa, LARGEST_KAPPA)) for kappa in cell.kappas(time))


def log_kappa_difference(start: MapCell, end: MapCell, time: str) -> Difference | None:
    """Welch difference of log κ; None where an arm has fewer than two finished runs."""
    return welch_if_repeated(log_kappas(start, time), log_kappas(end, time))


def cause_decision(arms: Cells, mapped: Cells) -> CauseDecision:
    """The verdict by the declared rule."""
    deep, shallow, reshape = (_evidence(plain_cell(mapped, shape)) for shape in (DEEP, SHALLOW, RESHAPE))
    lowered = {name: _evidence(arms.get((name, *SHALLOW))) for name in LOWERING}
    return decide_cause(
        deep=deep, shallow=shallow, reshape=reshape, lowered=lowered, declared_n=VERDICT_SEEDS, margin=ACCURACY_MARGIN
    )


def _evidence(cell: MapCell | None) -> CauseArm:
    if cell is None:
        return CauseArm()
    return CauseArm(accuracy=cell.accuracy, log_kappa=log_kappas(cell, "middle"), diverged=cell.failed)


@dataclass(frozen=True, kw_only=True, slots=True)
class AgainstFinding:
    """The shallow shape with one lowering intervention, or the reshape, against the three plain shapes."""

    cell: MapCell
    against: Mapping[str, Difference | None]
    """`deep`, `shallow`, `reshape` -> difference in test accuracy in points."""
    read: bool | None
    """Whether its accuracy is read: κ of the shallow shape moved as intended, or nothing was to move it; None where
    that is not known."""


def comparisons(arms: Cells, mapped: Cells) -> list[AgainstFinding]:
    """What the verdict compares: the reshape first, then every lowering intervention on the shallow shape."""
    references = {name: plain_cell(mapped, shape) for name, shape in PLAIN_SHAPES.items()}
    compared = [references["reshape"], *(arms.get((name, *SHALLOW)) for name in LOWERING)]
    shallow = references["shallow"]
    return [
        AgainstFinding(
            cell=cell,
            against={
                name: None if other is None or other is cell else welch_if_repeated(other.accuracy, cell.accuracy)
                for name, other in references.items()
            },
            read=True if cell is references["reshape"] else _lowered(shallow, cell),
        )
        for cell in compared
        if cell is not None
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class ControlFinding:
    """One control against the shape that it is a control for."""

    cell: MapCell
    other: MapCell
    accuracy: Difference | None
    """In points, `cell` minus `other`."""


def control_findings(arms: Cells, mapped: Cells) -> list[ControlFinding]:
    """The wider MLP against the deep shape and the reshape; with the norms after, the three shapes against each other.

    A pair of which the profile lacks a cell, as at smoke size, is left out.
    """
    wide = arms.get(("wide-mlp", *SHALLOW))
    deep, shallow, reshape = (arms.get(("res-post-norm", *shape)) for shape in (DEEP, SHALLOW, RESHAPE))
    pairs = (
        (wide, plain_cell(mapped, DEEP)), (wide, plain_cell(mapped, RESHAPE)),
        (shallow, deep), (reshape, deep), (reshape, shallow),
    )  # fmt: skip
    return [
        ControlFinding(cell=cell, other=other, accuracy=welch_if_repeated(other.accuracy, cell.accuracy))
        for cell, other in pairs
        if cell is not None and other is not None
    ]


@dataclass(frozen=True, kw_only=True, slots=True)
class RateFinding:
    """All shapes of the control sweep at one peak learning rate."""

    learning_rate: float
    cells: Mapping[tuple[int, int], MapCell]
    """(depth, heads) -> its cell."""
    shallow: Difference | None
    """Shallow minus deep in test accuracy, in points."""
    reshape: Difference | None
    """Reshape minus deep, in points."""


def rate_findings(arms: Cells) -> list[RateFinding]:
    """The sweep of learning rates, the smallest first."""
    rates = sorted({float(row.removeprefix(RATE_ROW)) for row, _, _ in arms if row.startswith(RATE_ROW)})
    return [_rate(arms, rate) for rate in rates]


def _rate(arms: Cells, rate: float) -> RateFinding:
    cells = {(depth, heads): cell for (row, depth, heads), cell in arms.items() if row == f"{RATE_ROW}{rate:g}"}
    shallow, reshape = (
        welch_if_repeated(cells[DEEP].accuracy, cells[shape].accuracy) if {DEEP, shape} <= cells.keys() else None
        for shape in (SHALLOW, RESHAPE)
    )
    return RateFinding(learning_rate=rate, cells=cells, shallow=shallow, reshape=reshape)


def _lowered(plain: MapCell | None, cell: MapCell) -> bool | None:
    difference = None if plain is None else log_kappa_difference(plain, cell, "middle")
    return None if difference is None else moved_down(difference)


@dataclass(frozen=True, kw_only=True, slots=True)
class KappaCorrelation:
    """κ at one time against final test loss over the map."""

    time: str
    given: str
    """What is held fixed, in words."""
    correlation: Correlation | None
    """None below three cells with runs, or where κ is infinite in every run."""


GIVEN = ("the cell", "depth, heads and parameters", "nothing")
"""What is held fixed; the first is read first."""


def kappa_correlations(mapped: Cells) -> list[KappaCorrelation]:
    """κ before training and after the middle epoch with final test loss: raw, partial, and within cells."""
    generator = np.random.default_rng(SEED)
    return [
        KappaCorrelation(time=time, given=given, correlation=_correlation(mapped, time, given, generator))
        for time in ("initial", "middle")
        for given in GIVEN
    ]


def _correlation(mapped: Cells, time: str, given: str, generator: np.random.Generator) -> Correlation | None:
    runs = [(cell, run) for key, cell in mapped.items() if key[0] == MAP_ROW for run in cell.runs if time in run.kappa]
    groups, seeds = [(cell.depth, cell.heads) for cell, _ in runs], [run.seed for _, run in runs]
    if len(set(groups)) < 3:
        return None
    kappa = [min(run.kappa[time], LARGEST_KAPPA) for _, run in runs]
    loss = [run.loss for _, run in runs]
    fixed = {
        "nothing": (),
        "depth, heads and parameters": [
            [float(getattr(cell, name)) for cell, _ in runs] for name in ("depth", "heads", "parameters")
        ],
        "the cell": None,
    }[given]
    return clustered_correlation(kappa, loss, groups, seeds, generator, given=fixed)
