"""The vision rows' numbers for the prose, and the protocol's constants as the code holds them."""

from __future__ import annotations

from collections.abc import Sequence

from heads_for_depth.datasets import VALIDATION_IMAGES
from heads_for_depth.findings.vision import RowFinding
from heads_for_depth.findings.vision_data import last_epoch_gain, sampling_error, seed_spread
from heads_for_depth.recipes import Budget
from heads_for_depth.tables.formatting import signed_percent, span, whole
from heads_for_depth.tables.vision import NONE, mean_and_spread, saving, with_interval
from heads_for_depth.verdicts import ACCURACY_MARGIN, LOSS_MARGIN, ReducedScaleVerdict


def glued(findings: Sequence[RowFinding], budget: Budget) -> dict[str, str]:
    """Every value of this question that a chapter quotes."""
    values: dict[str, str] = {}
    for f in findings:
        key = f"vision.{f.row.name}"
        values |= {
            f"{key}.difference": with_interval(f.effects["reshape"]),
            f"{key}.heads_deep": with_interval(f.effects["more heads, deep"]),
            f"{key}.heads_shallow": with_interval(f.effects["more heads, shallow"]),
            f"{key}.depth": with_interval(f.effects["less depth, few heads"]),
            f"{key}.saving": signed_percent(saving(f)),
            f"{key}.n": str(f.verdict.n),
            f"{key}.verdict": str(f.verdict.verdict),
            f"{key}.accuracy_before": mean_and_spread(f.baseline.accuracy),
            f"{key}.accuracy_after": mean_and_spread(f.reshape.accuracy),
        }
    counts = [str(f.verdict.verdict) for f in findings if f.row.published]
    values |= {f"vision.count.{name.replace(' ', '_')}": str(counts.count(name)) for name in ReducedScaleVerdict}
    values |= {"vision.rows": str(len(counts)), "vision.runs": str(_runs(findings))}
    values["vision.answer"] = answer(findings)
    values["vision.depth_alone"] = by_row(findings, "less depth, few heads", "With the old heads, less depth changes")
    values["vision.heads_shallow"] = by_row(findings, "more heads, shallow", "At the new depth, more heads change")
    values["vision.n"] = span([f.verdict.n for f in findings])
    hours = sum(c.train_seconds for f in findings for c in f.cells.values()) / 3600
    measured = {
        "vision.core_hours": hours,
        "vision.sampling_error": sampling_error(findings, budget.recipe.evaluation_images),
        "vision.pooled_sd": seed_spread(findings),
        "vision.last_epoch_gain": last_epoch_gain(findings),
    }
    values |= {key: NONE if number is None else f"{number:.2f}" for key, number in measured.items()}
    return values | protocol(budget)


def answer(findings: Sequence[RowFinding]) -> str:
    """How many published rows read which verdict, and where too few seeds leave it open."""
    counts = [f.verdict.verdict for f in findings if f.row.published]
    words = (ReducedScaleVerdict.NOT_REPRODUCED, ReducedScaleVerdict.INCONCLUSIVE)
    told = [
        f"{counts.count(ReducedScaleVerdict.REPRODUCED)} of {len(counts)} published rows read "
        f"“{ReducedScaleVerdict.REPRODUCED}”",
        *(f"{counts.count(word)} “{word}”" for word in words),
    ]
    few = [f for f in findings if f.verdict.n < f.verdict.declared_n]
    if not few:
        return f"{', '.join(told)}."
    return (
        f"{', '.join(told)}. A verdict needs {few[0].verdict.declared_n} seeds in both arms; {len(few)} of "
        f"{len(findings)} rows, our own among them, have fewer, so the question is open there."
    )


def by_row(findings: Sequence[RowFinding], effect: str, opening: str) -> str:
    """One step of the 2 × 2 in every row, with its interval in points; `effect` is a key of a finding's effects."""
    found = [(f.row.title, f.effects[effect]) for f in findings]
    told = [(title, difference) for title, difference in found if difference is not None]
    if not told:
        return f"{opening} test accuracy by an amount that is not measured yet."
    parts = [f"{with_interval(difference)} ({title})" for title, difference in told]
    n = span([min(difference.baseline_n, difference.reshape_n) for _, difference in told])
    return f"{opening} test accuracy by {', '.join(parts)} points (two-sided 95 % Welch, n = {n} per arm)."


def glued_second(findings: Sequence[RowFinding]) -> dict[str, str]:
    """What the prose says of the second reduction."""
    n = span([finding.verdict.n for finding in findings])
    return {
        "vision.second.n": n,
        "vision.second.runs": str(_runs(findings)),
        "vision.second.answer": answer(findings),
    }


def _runs(findings: Sequence[RowFinding]) -> int:
    return sum(len(c.accuracy) + c.failed for f in findings for c in f.cells.values())


def protocol(budget: Budget) -> dict[str, str]:
    """Constants of the protocol as the code holds them."""
    recipe, tuning = budget.recipe, budget.tuning
    return {
        "protocol.margin_accuracy": f"{ACCURACY_MARGIN:g}",
        "protocol.margin_loss": f"{LOSS_MARGIN:g}",
        "protocol.declared_seeds": str(budget.declared_seeds),
        "protocol.seeds": str(budget.seeds),
        "protocol.train_images": whole(recipe.train_images),
        "protocol.epochs": str(recipe.epochs),
        "protocol.batch_size": str(recipe.batch_size),
        "protocol.steps": whole(recipe.steps),
        "protocol.learning_rates": ", ".join(f"{rate:g}" for rate in budget.learning_rates),
        "protocol.tuning_images": whole(tuning.train_images * tuning.epochs),
        "protocol.validation_images": whole(VALIDATION_IMAGES),
        "protocol.test_images": whole(recipe.evaluation_images),
    }
