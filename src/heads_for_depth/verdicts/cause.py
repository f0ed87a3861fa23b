"""Does conditioning let depth drop? The rule is the declaration of experiment `cause`; the first that applies decides.

Deep, shallow and reshape are three shapes without any intervention: the baseline, less depth alone, and less depth with
more heads. Accuracy is in points, κ as its natural logarithm, one value per finished seed.

1. An arm lacks a declared seed, or a run diverged: inconclusive.
2. Deep is not shown better than shallow, or the reshape not better than shallow, or its κ not lower: inconclusive.
3. No intervention lowered κ at least as far as the heads do: inconclusive.
4. Every one that did makes the shallow shape hold the deep one's level and gains on plain shallow: suffices.
5. Every one that did leaves the shallow shape worse than the reshape: does not suffice.
6. Otherwise: inconclusive.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from statistics import fmean

from heads_for_depth.statistics import Difference, holm, welch_difference


class CauseVerdict(StrEnum):
    """What the interventions say about the mechanism."""

    SUFFICES = "conditioning suffices at reduced scale"
    DOES_NOT_SUFFICE = "conditioning does not suffice at reduced scale"
    INCONCLUSIVE = "inconclusive"


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseArm:
    """The finished seeds of one arm."""

    accuracy: Sequence[float] = ()
    """Test accuracy in points."""
    log_kappa: Sequence[float] = ()
    """Natural logarithm of κ after the middle epoch."""
    diverged: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseDecision:
    """The verdict, the sentence that says which line decided, and the tests that it rests on."""

    verdict: CauseVerdict
    reason: str
    counted: tuple[str, ...] = ()
    """Interventions that lowered κ at least as far as the heads do."""
    holds_p: Mapping[str, float] = field(default_factory=dict)
    """Intervention that counts -> Holm-adjusted p of "worse than deep by the margin or more"."""
    gains_p: Mapping[str, float] = field(default_factory=dict)
    """Intervention that counts -> Holm-adjusted p of "no better than plain shallow"."""
    short_p: Mapping[str, float] = field(default_factory=dict)
    """Intervention that counts -> p of "no worse than the reshape"."""


def moved_down(log_kappa: Difference | None) -> bool:
    """Whether the two-sided 95 % interval of a difference in log κ lies below zero."""
    return log_kappa is not None and log_kappa.interval(0.95).upper < 0


def moved_up(log_kappa: Difference | None) -> bool:
    """Whether the two-sided 95 % interval of a difference in log κ lies above zero."""
    return log_kappa is not None and log_kappa.interval(0.95).lower > 0


def decide_cause(
    *,
    deep: CauseArm,
    shallow: CauseArm,
    reshape: CauseArm,
    lowered: Mapping[str, CauseArm],
    declared_n: int,
    margin: float,
    alpha: float = 0.05,
) -> CauseDecision:
    """The verdict by the declared rule; `lowered`: intervention -> the shallow shape with it; margin in points."""
    open_ = _cannot_tell(deep, shallow, reshape, lowered, declared_n, alpha)
    if open_:
        return CauseDecision(verdict=CauseVerdict.INCONCLUSIVE, reason=open_)
    counted = {name: arm for name, arm in lowered.items() if _as_far(arm, shallow, reshape)}
    if not counted:
        reason = "No intervention lowered κ as far as more heads do."
        return CauseDecision(verdict=CauseVerdict.INCONCLUSIVE, reason=reason)
    holds = _adjusted({n: welch_difference(deep.accuracy, a.accuracy).p_above(-margin) for n, a in counted.items()})
    gains = _adjusted({n: welch_difference(shallow.accuracy, a.accuracy).p_above(0.0) for n, a in counted.items()})
    short = {n: welch_difference(a.accuracy, reshape.accuracy).p_above(0.0) for n, a in counted.items()}
    verdict, reason = _read(holds, gains, short, alpha)
    return CauseDecision(
        verdict=verdict, reason=reason, counted=tuple(counted), holds_p=holds, gains_p=gains, short_p=short
    )


def _cannot_tell(
    deep: CauseArm, shallow: CauseArm, reshape: CauseArm, lowered: Mapping[str, CauseArm], declared_n: int, alpha: float
) -> str | None:
    """Why the rule cannot be applied, or None."""
    arms = [deep, shallow, reshape, *lowered.values()]
    if any(arm.diverged for arm in arms):
        return "A run of an arm that is compared diverged."
    if not any(arm.accuracy for arm in lowered.values()):
        return "No run of an intervention on the shallow shape is recorded."
    if min(min(len(arm.accuracy), len(arm.log_kappa)) for arm in arms) < declared_n:
        return "An arm that is compared lacks declared seeds."
    if welch_difference(shallow.accuracy, deep.accuracy).p_above(0.0) >= alpha:
        return "The deep shape is not shown to be better than the shallow one, so there is no depth to replace."
    if welch_difference(shallow.accuracy, reshape.accuracy).p_above(0.0) >= alpha:
        return "More heads are not shown to gain at the smaller depth."
    if not moved_down(welch_difference(shallow.log_kappa, reshape.log_kappa)):
        return "More heads are not shown to lower κ at the smaller depth."
    return None


def _as_far(arm: CauseArm, shallow: CauseArm, reshape: CauseArm) -> bool:
    """Whether an intervention lowered κ, and at least as far as the heads of the reshape do."""
    lowered = moved_down(welch_difference(shallow.log_kappa, arm.log_kappa))
    return lowered and fmean(arm.log_kappa) <= fmean(reshape.log_kappa)


def _read(
    holds: Mapping[str, float], gains: Mapping[str, float], short: Mapping[str, float], alpha: float
) -> tuple[CauseVerdict, str]:
    names = ", ".join(holds)
    if all(holds[name] < alpha and gains[name] < alpha for name in holds):
        return CauseVerdict.SUFFICES, f"Lowering κ at unchanged heads replaces the depth ({names})."
    if all(short[name] < alpha for name in holds):
        return CauseVerdict.DOES_NOT_SUFFICE, f"With κ lowered as far, accuracy stays below what heads gain ({names})."
    return CauseVerdict.INCONCLUSIVE, f"Neither answer is shown for every intervention that lowered κ as far ({names})."


def _adjusted(p_values: Mapping[str, float]) -> dict[str, float]:
    return {name: float(p) for name, p in zip(p_values, holm(list(p_values.values())), strict=True)}
