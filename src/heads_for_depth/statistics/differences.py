"""The mean difference of two arms: its t distribution, and the one-sided questions asked of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf, isfinite, sqrt
from typing import Literal

import numpy as np
from scipy import special

from heads_for_depth.errors import BadInput
from heads_for_depth.statistics.arms import (
    Interval,
    Seeds,
    check_confidence,
    checked_arm,
    paired_differences,
    sample_variance,
)

Method = Literal["paired", "welch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """The mean of reshape minus baseline and its Student t distribution."""

    method: Method
    difference: float
    standard_error: float
    """Zero when the seeds have no spread."""
    degrees_of_freedom: float
    baseline_n: int
    reshape_n: int

    def interval(self, confidence: float = 0.95) -> Interval:
        """The two-sided t interval."""
        check_confidence(confidence)
        tail = (1 - confidence) / 2
        return Interval(lower=self.lower_bound(1 - tail), upper=self.upper_bound(1 - tail), confidence=confidence)

    def lower_bound(self, confidence: float = 0.95) -> float:
        """The lower end of the one-sided interval that is unbounded above."""
        check_confidence(confidence)
        if self.standard_error == 0:
            return -inf
        return self.difference - self.standard_error * float(special.stdtrit(self.degrees_of_freedom, confidence))

    def upper_bound(self, confidence: float = 0.95) -> float:
        """The upper end of the one-sided interval that is unbounded below."""
        return -self.negated().lower_bound(confidence)

    def p_above(self, threshold: float) -> float:
        """The p-value of the null hypothesis "difference <= threshold": small when the difference lies above it."""
        if self.standard_error == 0:
            return 1.0
        return float(special.stdtr(self.degrees_of_freedom, (threshold - self.difference) / self.standard_error))

    def p_below(self, threshold: float) -> float:
        """The p-value of the null hypothesis "difference >= threshold": small when the difference lies below it."""
        return self.negated().p_above(-threshold)

    def negated(self) -> "Difference":
        """The same comparison read as baseline minus reshape."""
        return replace(self, difference=-self.difference)

    def advantage(self, *, higher_is_better: bool) -> "Difference":
        """The comparison turned so that positive means that the reshape is better."""
        return self if higher_is_better else self.negated()


@dataclass(frozen=True, kw_only=True, slots=True)
class NonInferiority:
    """One reshape against one baseline at a margin: four one-sided questions, none corrected for multiplicity."""

    difference: Difference
    margin: float
    higher_is_better: bool
    p_non_inferior: float
    """Null hypothesis: the reshape is worse by the margin or more."""
    p_inferior: float
    """Null hypothesis: the reshape is worse by no more than the margin. Small: clearly inferior."""
    p_equivalent: float
    """Two one-sided tests (TOST). Null hypothesis: the difference is the margin or more, either way."""
    p_superior: float
    """Null hypothesis: the reshape is no better than the baseline."""
    smallest_margin: float
    """The margin above which non-inferiority would be shown."""


def paired_difference(baseline: Seeds, reshape: Seeds) -> Difference:
    """The t distribution of the mean difference within seeds; both arms list the same seeds in the same order."""
    differences = paired_differences(baseline, reshape)
    n = len(differences)
    return Difference(
        method="paired",
        difference=float(differences.mean()),
        standard_error=sqrt(sample_variance(differences) / n),
        degrees_of_freedom=float(n - 1),
        baseline_n=n,
        reshape_n=n,
    )


def welch_difference(baseline: Seeds, reshape: Seeds) -> Difference:
    """The t distribution of the difference of means with unequal variances, Satterthwaite's degrees of freedom."""
    before, after = checked_arm(baseline, "baseline"), checked_arm(reshape, "reshape")
    shares = np.array([sample_variance(before) / len(before), sample_variance(after) / len(after)])
    freedoms = np.array([len(before) - 1, len(after) - 1])
    total = float(shares.sum())
    return Difference(
        method="welch",
        difference=float(after.mean() - before.mean()),
        standard_error=sqrt(total),
        degrees_of_freedom=1 / float(((shares / total) ** 2 / freedoms).sum()) if total else float(freedoms.sum()),
        baseline_n=len(before),
        reshape_n=len(after),
    )


def welch_if_repeated(baseline: Sequence[float], reshape: Sequence[float]) -> Difference | None:
    """The Welch difference, or None where an arm has fewer than two seeds."""
    return welch_difference(baseline, reshape) if min(len(baseline), len(reshape)) > 1 else None


def compare(baseline: Seeds, reshape: Seeds, method: Method) -> Difference:
    """The paired or the Welch difference, by name."""
    return {"paired": paired_difference, "welch": welch_difference}[method](baseline, reshape)


def non_inferiority(
    baseline: Seeds,
    reshape: Seeds,
    margin: float,
    *,
    method: Method,
    higher_is_better: bool,
    confidence: float = 0.95,
) -> NonInferiority:
    """Does the reshape hold the baseline's level to within `margin`, in points or nats?"""
    if not (isfinite(margin) and margin >= 0):
        raise BadInput("margin", margin, "give a finite margin that is not negative")
    difference = compare(baseline, reshape, method)
    advantage = difference.advantage(higher_is_better=higher_is_better)
    return NonInferiority(
        difference=difference,
        margin=margin,
        higher_is_better=higher_is_better,
        p_non_inferior=advantage.p_above(-margin),
        p_inferior=advantage.p_below(-margin),
        p_equivalent=max(advantage.p_above(-margin), advantage.p_below(margin)),
        p_superior=advantage.p_above(0.0),
        smallest_margin=smallest_margin(difference, higher_is_better=higher_is_better, confidence=confidence),
    )


def smallest_margin(difference: Difference, *, higher_is_better: bool, confidence: float = 0.95) -> float:
    """The margin above which this one comparison would be shown to be non-inferior; 0 where it is superior."""
    return max(0.0, -difference.advantage(higher_is_better=higher_is_better).lower_bound(confidence))
