"""The sentences of the parallelism page."""

from __future__ import annotations

from collections.abc import Sequence

from heads_for_depth.findings.parallelism import Measured, Pair, Predicted
from heads_for_depth.tables.formatting import in_powers_of_ten
from heads_for_depth.tables.parallelism import direction
from heads_for_depth.tables.verification import short

NOTHING = "Nothing has been measured into these records yet."
FEW, MANY = 8, 64
"""Numbers of GPUs of which the sentences speak: a machine of today, and SOTA-190's largest experiment."""


def glued(pairs: Sequence[Pair], predicted: Sequence[Predicted], measured: Sequence[Measured]) -> dict[str, str]:
    """Every sentence and number that the chapters quote."""
    machines = sorted({short(one.machine) for one in measured})
    return {
        "parallelism.machine": ", ".join(machines) or "no machine",
        "parallelism.answer": ceilings(pairs),
        "parallelism.predicted": steps(predicted, FEW),
        "parallelism.layouts": reach(predicted, MANY),
        "parallelism.measured": agreement(measured),
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
    both = [one for one in predicted if _ratio(one, 1) and _ratio(one, gpus)]
    if not both:
        return f"No row has a layout of exactly {gpus} GPUs before and after."
    alone, many = ([_ratio(one, count) for one in both] for count in (1, gpus))
    less = sum(_ratio(one, gpus) > _ratio(one, 1) for one in both)
    return (
        f"Predicted, a training step of the reshape takes {min(alone):.2f} to {max(alone):.2f} of the baseline's time "
        f"on one GPU and {min(many):.2f} to {max(many):.2f} on {gpus}; in {less} of {len(both)} rows the reshape's "
        f"lead is smaller on {gpus}."
    )


def _ratio(one: Predicted, gpus: int) -> float:
    """Predicted seconds after over before; 0 where one of them has no layout of so many GPUs."""
    before, after = one.before[gpus], one.after[gpus]
    return 0.0 if before is None or after is None else after.predicted_seconds / before.predicted_seconds


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
    shared = [one for one in measured if one.degree > 1 and one.dtype == "float32"]
    if not shared:
        return NOTHING
    largest = max(one.relative_difference for one in shared)
    degrees = ", ".join(map(str, sorted({one.degree for one in shared})))
    plain = sum(one.two_a_layer for one in shared)
    return (
        f"At degrees {degrees} the logits of {len({one.name for one in shared})} models differ from those of one "
        f"process by at most {in_powers_of_ten(largest)} of the largest logit; {plain} of {len(shared)} measurements "
        "made exactly two all-reduces a layer and communicated nothing else."
    )
