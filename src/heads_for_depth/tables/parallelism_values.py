"""The sentences of the parallelism page."""

from __future__ import annotations

from collections.abc import Sequence

from heads_for_depth.findings.parallelism import Measured, Pair, Predicted
from heads_for_depth.tables.parallelism import direction

NOTHING = "Nothing has been measured into these records yet."
FEW, MANY = 8, 64
"""Numbers of GPUs of which the sentences speak: a machine of today, and SOTA-190's largest experiment."""


def glued(pairs: Sequence[Pair], predicted: Sequence[Predicted], measured: Sequence[Measured]) -> dict[str, str]:
    """Every sentence and number that the chapters quote."""
    return {
        "parallelism.answer": ceilings(pairs),
        "parallelism.predicted": steps(predicted, FEW),
        "parallelism.layouts": reach(predicted, MANY),
        "parallelism.measured": agreement(measured),
        "parallelism.few": str(FEW),
        "parallelism.many": str(MANY),
    }


def ceilings(pairs: Sequence[Pair]) -> str:
    """What the trade does to the three ceilings; it follows from the shapes and is no measurement."""
    tensor = _directions([direction(pair.ceilings.tensor_degree) for pair in pairs])
    stages = _directions([direction(pair.ceilings.pipeline_stages) for pair in pairs])
    product = _directions([direction(pair.ceilings.gpus) for pair in pairs])
    return (
        f"Of {len(pairs)} reshapes, the largest tensor degree is {tensor}; the largest number of pipeline stages is "
        f"{stages}; their product, the most GPUs that can share one copy, is {product}."
    )


def _directions(words: Sequence[str]) -> str:
    told = [f"{word} in {words.count(word)}" for word in ("raised", "unchanged", "lowered") if word in words]
    return ", ".join(told)


def steps(predicted: Sequence[Predicted], gpus: int) -> str:
    """Predicted time of a training step after over before, on one GPU and on many."""
    one, many = (_ratios(predicted, count) for count in (1, gpus))
    slower = sum(after > before for before, after in zip(one, many, strict=True))
    return (
        f"Predicted, a training step of the reshape takes {min(one):.2f} to {max(one):.2f} of the baseline's time on "
        f"one GPU and {min(many):.2f} to {max(many):.2f} on {gpus}: in {slower} of {len(one)} rows the reshape's lead "
        "is smaller there, because fewer layers leave less to share out and the fixed costs stay."
    )


def _ratios(predicted: Sequence[Predicted], gpus: int) -> list[float]:
    pairs = [(one.before[gpus], one.after[gpus]) for one in predicted]
    return [
        after.predicted_seconds / before.predicted_seconds
        for before, after in pairs
        if before is not None and after is not None
    ]


def reach(predicted: Sequence[Predicted], gpus: int) -> str:
    """How many rows have a layout of exactly so many GPUs, before and after."""
    before = sum(one.before[gpus] is not None for one in predicted)
    after = sum(one.after[gpus] is not None for one in predicted)
    return (
        f"Exactly {gpus} GPUs can share one copy of {before} of the {len(predicted)} baselines and of {after} of the "
        "reshapes."
    )


def agreement(measured: Sequence[Measured]) -> str:
    """Whether a model that is shared out computes the same, and what it communicates."""
    shared = [one for one in measured if one.degree > 1]
    if not shared:
        return NOTHING
    largest = max(one.relative_difference for one in shared)
    degrees = ", ".join(map(str, sorted({one.degree for one in shared})))
    return (
        f"At degrees {degrees} the logits of {len({one.name for one in shared})} models differ from those of one "
        f"process by at most {largest:.1e} of the largest logit, with two all-reduces a layer and no other "
        "communication."
    )
