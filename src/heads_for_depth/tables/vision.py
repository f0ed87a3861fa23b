"""Tables of the vision rows; every number here is rounded here and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import fmean, stdev

import pandas as pd

from heads_for_depth.claims import Claim
from heads_for_depth.findings.vision import EFFECTS, Cell, RowFinding
from heads_for_depth.findings.vision_data import SHOWN
from heads_for_depth.models import count_parameters
from heads_for_depth.statistics import Difference
from heads_for_depth.tables.formatting import MISSING, change, in_powers_of_ten, signed, signed_percent, stages, whole

NONE = "not measured"
EFFECT_TITLES = {
    "reshape": "reshape against baseline",
    "against more heads": "reshape against the deep shape with more heads",
    "more heads, deep": "more heads at the old depth",
    "more heads, shallow": "more heads at the new depth",
    "less depth, few heads": "less depth with the old heads",
}


def kappa(value: float | None) -> str:
    """A condition number with three digits, in powers of ten from 10,000 on."""
    if value is None:
        return NONE
    if value == float("inf"):
        return "inf"
    if value >= 1e4:
        return in_powers_of_ten(value)
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def with_interval(difference: Difference | None, decimals: int = 2) -> str:
    """A difference in points with its two-sided 95 % interval."""
    if difference is None:
        return NONE
    interval = difference.interval(0.95)
    lower, upper = (signed(end, decimals) for end in (interval.lower, interval.upper))
    return f"{signed(difference.difference, decimals)} [{lower}, {upper}]"


def mean_and_spread(values: Sequence[float]) -> str:
    """Mean ± standard deviation over seeds."""
    if not values:
        return NONE
    return f"{fmean(values):.2f} ± {stdev(values):.2f}" if len(values) > 1 else f"{values[0]:.2f}"


def against_the_claim(findings: Sequence[RowFinding], claims: Mapping[str, Claim]) -> pd.DataFrame:
    """One line per row: LIT-527's numbers, ours, and the verdict."""
    return pd.DataFrame([_claim_line(finding, claims.get(finding.row.name)) for finding in findings])


def _claim_line(finding: RowFinding, claim: Claim | None) -> dict[str, str]:
    row, baseline, reshape = finding.row, finding.baseline, finding.reshape
    ours = change(*(NONE if c.mean_accuracy is None else f"{c.mean_accuracy:.2f}" for c in (baseline, reshape)))
    return {
        "row": row.title,
        "verdict": str(finding.verdict.verdict),
        "published Top-1": "our own row" if claim is None else published_change(claim),
        "ours, test accuracy": ours,
        "difference [95 %]": with_interval(finding.effects["reshape"]),
        "n": str(finding.verdict.n),
        "parameters, published": "our own row" if claim is None else published_saving(claim),
        "parameters, ours": signed_percent(saving(finding)),
        "κ start": change(*(kappa(c.kappa.get("initial")) for c in (baseline, reshape))),
        "κ end": change(*(kappa(c.kappa.get("final")) for c in (baseline, reshape))),
    }


def published_change(claim: Claim) -> str:
    """Published score before → after with its difference."""
    before, after = claim.score_before, claim.score_after
    if before is None or after is None:
        return MISSING
    return f"{before.text} → {after.text} ({signed(after.value - before.value)})"


def published_saving(claim: Claim) -> str:
    """Relative change of the published parameters."""
    before, after = claim.params_before_m, claim.params_after_m
    if before is None or after is None:
        return MISSING
    return signed_percent(after.value / before.value - 1)


def saving(finding: RowFinding) -> float:
    """Relative change of our parameters, reshape against baseline."""
    return finding.reshape.parameters / finding.baseline.parameters - 1


def cells(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """One line per cell of every 2 × 2: shape, parameters, accuracy, loss, learning rate."""
    return pd.DataFrame([_cell_line(finding, cell) for finding in findings for cell in finding.cells.values()])


def _cell_line(finding: RowFinding, cell: Cell) -> dict[str, str]:
    return {
        "row": finding.row.title,
        "depth": stages(cell.shape.depth),
        "heads": stages(cell.shape.heads),
        "head_dim": stages(tuple(dict.fromkeys(cell.shape.head_dims))),
        "parameters": whole(cell.parameters),
        "test accuracy": mean_and_spread(cell.accuracy),
        "test loss": f"{fmean(cell.loss):.3f}" if cell.loss else NONE,
        "n": str(len(cell.accuracy) + cell.failed),
        "failed": str(cell.failed),
        "learning rate": _learning_rate(cell),
    }


def _learning_rate(cell: Cell) -> str:
    if cell.learning_rate is not None:
        return f"{cell.learning_rate:g}"
    return "mixed" if cell.accuracy or cell.failed else NONE


def effects(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """More heads and less depth read apart: Welch differences in points with two-sided 95 % intervals."""
    return pd.DataFrame(
        [
            {"row": finding.row.title}
            | {EFFECT_TITLES[name]: with_interval(finding.effects[name]) for name in EFFECTS}
            | {"n": str(finding.verdict.n)}
            for finding in findings
        ]
    )


def reductions(first: Sequence[RowFinding], second: Sequence[RowFinding]) -> pd.DataFrame:
    """One line per row of the second reduction, the same row of the first beside it."""
    by_row = {finding.row.name: finding for finding in first}
    return pd.DataFrame([_reduction_line(by_row[finding.row.name], finding) for finding in second])


def _reduction_line(first: RowFinding, second: RowFinding) -> dict[str, str]:
    line = {"row": second.row.title, "verdict": str(second.verdict.verdict)}
    for name, finding in (("heads kept", second), ("head_dim kept", first)):
        line |= {
            f"{name}: head_dim": _head_dims(finding.baseline.shape.head_dims, finding.reshape.shape.head_dims),
            f"{name}: difference [95 %]": with_interval(finding.effects["reshape"]),
            f"{name}: n": str(finding.verdict.n),
        }
    return line


def shown_effects() -> list[str]:
    """Titles of the effects that the forest plot shows, in its order."""
    return [EFFECT_TITLES[name] for name in SHOWN]


def tests(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """What the verdict rests on: one-sided bounds, Holm-adjusted p, the smallest margin, and the paired interval."""
    return pd.DataFrame([_test_line(finding) for finding in findings])


def _test_line(finding: RowFinding) -> dict[str, str]:
    verdict = finding.verdict
    return {
        "row": finding.row.title,
        "Welch [95 %]": with_interval(finding.effects["reshape"]),
        "paired [95 %]": with_interval(finding.paired),
        "one-sided lower end": NONE if verdict.lower is None else signed(verdict.lower, 2),
        "p, not worse by δ": _p(verdict.adjusted_p_non_inferior),
        "p, worse by δ": _p(verdict.adjusted_p_inferior),
        "smallest δ that holds": NONE if verdict.smallest_margin is None else f"{verdict.smallest_margin:.2f}",
        "reason": verdict.reason,
    }


def _p(value: float | None) -> str:
    return NONE if value is None else "< 0.001" if value < 0.001 else f"{value:.3f}"


def shapes(findings: Sequence[RowFinding]) -> pd.DataFrame:
    """Full-scale shape beside its reduction, both arms."""
    return pd.DataFrame(
        [
            {
                "row": f.row.title,
                "published depth": change(stages(f.row.before.depth), stages(f.row.depth_after)),
                "ours": change(stages(f.baseline.shape.depth), stages(f.reshape.shape.depth)),
                "published heads": _published_heads(f),
                "ours ": change(stages(f.baseline.shape.heads), stages(f.reshape.shape.heads)),
                "d_model": change(stages(f.row.before.d_model), stages(f.baseline.shape.d_model)),
                "head_dim published": _head_dims(f.row.before.head_dims, f.row.after.head_dims),
                "head_dim ours": _head_dims(f.baseline.shape.head_dims, f.reshape.shape.head_dims),
                "parameters (M)": f"{count_parameters(f.row.before) / 1e6:.1f} ⇒ {f.baseline.parameters / 1e6:.2f}",
            }
            for f in findings
        ]
    )


def _published_heads(finding: RowFinding) -> str:
    written = change(stages(finding.row.before.heads), stages(finding.row.heads_after))
    return written if finding.row.heads_published else f"{written} (doubling assumed)"


def _head_dims(before: tuple[int, ...], after: tuple[int, ...]) -> str:
    return change(*(stages(tuple(dict.fromkeys(dims))) for dims in (before, after)))
