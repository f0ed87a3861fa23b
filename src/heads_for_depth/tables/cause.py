"""Tables and sentences of the causal test."""

from __future__ import annotations

from collections.abc import Sequence
from math import exp

import pandas as pd

from heads_for_depth.experiments.cause_grid import PLAIN_SHAPES
from heads_for_depth.findings.cause import (
    AgainstFinding,
    ArmFinding,
    ControlFinding,
    KappaCorrelation,
    RateFinding,
)
from heads_for_depth.findings.map_cells import MapCell
from heads_for_depth.statistics import Correlation, Difference
from heads_for_depth.tables.formatting import NONE as NO_NUMBER
from heads_for_depth.tables.formatting import in_powers_of_ten, signed, signed_percent
from heads_for_depth.tables.throughput import one_line_at_least
from heads_for_depth.tables.vision import NONE, kappa, mean_and_spread, with_interval
from heads_for_depth.verdicts import CauseDecision

ARM_TITLES = {
    "spectral-shift": "spectral shift",
    "orthogonal-init": "orthogonal start",
    "head-norm": "head-output norm",
    "ill-conditioned-init": "ill-conditioned start",
    "wide-mlp": "wider MLP",
    "res-post-norm": "norms after",
}
SHAPE_TITLES = {shape: name for name, shape in PLAIN_SHAPES.items()}
NOT_YET = "No two arms that are compared have two finished runs each yet."
NOT_READ = "no, κ not moved as intended"


def arm_title(cell: MapCell) -> str:
    """An arm by its shape and its change."""
    shape = SHAPE_TITLES.get((cell.depth, cell.heads), f"depth {cell.depth}, heads {cell.heads}")
    return f"{shape}, {ARM_TITLES[cell.row]}" if cell.row in ARM_TITLES else shape


def plain_shapes_in_words() -> str:
    """The shapes that the interventions change, for a caption."""
    named = "; ".join(f"{name}: depth {depth}, heads {heads}" for name, (depth, heads) in PLAIN_SHAPES.items())
    return named[0].upper() + named[1:]


def moved_kappa(findings: Sequence[ArmFinding]) -> pd.DataFrame:
    """One line per arm: κ with the change over κ without, at three times, and whether it moved as intended."""
    return one_line_at_least([_kappa_line(finding) for finding in findings], ["arm"])


def _kappa_line(finding: ArmFinding) -> dict[str, str]:
    times = {"start": "initial", "middle": "middle", "end": "final"}
    return (
        {"arm": arm_title(finding.cell), "meant to": finding.intended or "control"}
        | {f"κ ×, {name}": kappa_ratio(finding.log_kappa.get(time)) for name, time in times.items()}
        | {"moved as intended": _moved_word(finding)}
        | {"n": str(len(finding.cell.runs))}
    )


def _moved_word(finding: ArmFinding) -> str:
    if finding.moved is None:
        return "control"
    return NONE if "middle" not in finding.log_kappa else "yes" if finding.moved else "no"


def kappa_ratio(log_kappa: Difference | None) -> str:
    """A ratio of two κ with its two-sided 95 % interval, from the difference of their logarithms."""
    if log_kappa is None:
        return NONE
    ends = log_kappa.interval(0.95)
    return f"{_ratio(log_kappa.difference)} [{_ratio(ends.lower)}, {_ratio(ends.upper)}]"


def _ratio(logarithm: float) -> str:
    if logarithm > 500:
        return "inf"
    return kappa(exp(logarithm)) if logarithm > -7 else in_powers_of_ten(exp(logarithm))


def accuracies(findings: Sequence[ArmFinding], deep: MapCell | None) -> pd.DataFrame:
    """One line per arm: accuracy, and the difference to the same shape without the change."""
    return one_line_at_least([_accuracy_line(finding, deep) for finding in findings], ["arm"])


def _accuracy_line(finding: ArmFinding, deep: MapCell | None) -> dict[str, str]:
    cell = finding.cell
    saving = NONE if deep is None else signed_percent(cell.parameters / deep.parameters - 1)
    return {
        "arm": arm_title(finding.cell),
        "test accuracy": mean_and_spread(cell.accuracy),
        "against the same shape without [95 %]": with_interval(finding.accuracy),
        "read": {NONE: "not known yet", "no": NOT_READ}.get(_moved_word(finding), "yes") if cell.runs else NONE,
        "parameters against deep": saving,
        "failed": str(cell.failed),
        "n": str(len(cell.runs) + cell.failed),
    }


def controls(findings: Sequence[ControlFinding]) -> pd.DataFrame:
    """One line per control and the shape it stands against."""
    return one_line_at_least([_control_line(finding) for finding in findings], ["arm"])


def _control_line(finding: ControlFinding) -> dict[str, str]:
    pair = finding.cell, finding.other
    return {
        "arm": arm_title(finding.cell),
        "against": arm_title(finding.other),
        "difference [95 %]": with_interval(finding.accuracy),
        "parameters": signed_percent(finding.cell.parameters / finding.other.parameters - 1),
        "n": str(min(len(cell.runs) + cell.failed for cell in pair)),
        "failed": str(sum(cell.failed for cell in pair)),
    }


def rates(findings: Sequence[RateFinding]) -> pd.DataFrame:
    """One line per learning rate: accuracy of every shape, and the differences to the deep one."""
    return one_line_at_least([_rate_line(finding) for finding in findings], ["learning rate"])


def _rate_line(finding: RateFinding) -> dict[str, str]:
    cells = finding.cells.values()
    return (
        {"learning rate": f"{finding.learning_rate:g}"}
        | {arm_title(cell): _with_diverged(cell) for cell in cells}
        | {"shallow − deep [95 %]": with_interval(finding.shallow)}
        | {"reshape − deep [95 %]": with_interval(finding.reshape)}
        | {"n": str(min(len(cell.runs) + cell.failed for cell in cells))}
    )


def _with_diverged(cell: MapCell) -> str:
    return mean_and_spread(cell.accuracy) + (f" ({cell.failed} diverged)" if cell.failed else "")


def correlations(found: Sequence[KappaCorrelation]) -> pd.DataFrame:
    """One line per time and set of fixed quantities."""
    return pd.DataFrame(
        [
            {
                "κ": {"initial": "before training", "middle": "after the middle epoch"}[one.time],
                "given": one.given,
                "rank correlation with test loss [95 %]": correlation(one.correlation),
                "runs": NONE if one.correlation is None else str(one.correlation.runs),
                "cells": NONE if one.correlation is None else str(one.correlation.clusters),
                "seeds": NONE if one.correlation is None else str(one.correlation.blocks),
            }
            for one in found
        ]
    )


def correlation(found: Correlation | None) -> str:
    """A correlation with its interval."""
    if found is None or found.value != found.value:
        return NONE
    ends = found.interval
    return f"{signed(found.value, 2)} [{signed(ends.lower, 2)}, {signed(ends.upper, 2)}]"


def compared(found: Sequence[AgainstFinding], decision: CauseDecision) -> pd.DataFrame:
    """What the verdict compares: differences against the three plain shapes, and the p-values of the rule."""
    return one_line_at_least([_compared_line(one, decision) for one in found], ["arm"])


def _compared_line(one: AgainstFinding, decision: CauseDecision) -> dict[str, str]:
    name = one.cell.row
    tests = {"not worse than deep by δ": decision.holds_p, "better than shallow": decision.gains_p,
             "worse than the reshape": decision.short_p}  # fmt: skip
    return (
        {"arm": arm_title(one.cell)}
        | {f"against {other} [95 %]": with_interval(difference) for other, difference in one.against.items()}
        | {f"p, {words}": f"{p[name]:.3f}" if name in p else NO_NUMBER for words, p in tests.items()}
        | {"read": NONE if one.read is None else "yes" if one.read else NOT_READ}
        | {"n": str(len(one.cell.runs))}
    )


def glued(
    findings: Sequence[ArmFinding], decision: CauseDecision, found: Sequence[KappaCorrelation],
    against: Sequence[AgainstFinding],
) -> dict[str, str]:  # fmt: skip
    """Every sentence and number that the chapters quote."""
    return {
        "cause.verdict": str(decision.verdict),
        "cause.reason": decision.reason,
        "cause.evidence": _evidence(against),
        "cause.moved": _moved(findings),
        "cause.gains": _gains(findings),
        "cause.correlation": _correlations(found),
    }


def _evidence(against: Sequence[AgainstFinding]) -> str:
    """The differences that the verdict rests on; an intervention that did not move κ as intended is not read."""
    parts = [
        f"{arm_title(one.cell)} against {other} {with_interval(difference)} points (n = {len(one.cell.runs)})"
        for one in against
        for other, difference in one.against.items()
        if difference is not None and one.read
    ]
    return f"Two-sided 95 % Welch: {'; '.join(parts)}." if parts else NOT_YET


def _moved(findings: Sequence[ArmFinding]) -> str:
    parts = [
        f"{arm_title(finding.cell)}: κ × {kappa_ratio(finding.log_kappa['middle'])} (n = {len(finding.cell.runs)}), "
        f"{'as intended' if finding.moved else 'not as intended'}"
        for finding in findings
        if finding.intended and "middle" in finding.log_kappa
    ]
    return "; ".join(parts) + "." if parts else NOT_YET


def _gains(findings: Sequence[ArmFinding]) -> str:
    """Accuracy of the interventions that moved κ, and of no other."""
    known = [finding for finding in findings if finding.intended and "middle" in finding.log_kappa]
    parts = [
        f"{arm_title(finding.cell)}: {with_interval(finding.accuracy)} points (n = {len(finding.cell.runs)})"
        for finding in known
        if finding.moved
    ]
    if parts:
        return "; ".join(parts) + "."
    return "No intervention moved κ as intended." if known else NOT_YET


def _correlations(found: Sequence[KappaCorrelation]) -> str:
    parts = [
        f"κ {'before training' if one.time == 'initial' else 'after the middle epoch'} given {one.given}: "
        f"{correlation(one.correlation)} ({one.correlation.runs} runs, {one.correlation.clusters} cells, "
        f"{one.correlation.blocks} {'seed' if one.correlation.blocks == 1 else 'seeds'})"
        for one in found
        if one.correlation is not None
    ]
    return "; ".join(parts) + "." if parts else "Fewer than three cells of the map have runs yet."
