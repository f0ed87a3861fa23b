"""Comparisons without a normal distribution: the BCa bootstrap, sign flips, ranks; and Holm's adjustment."""

from math import inf

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from heads_for_depth.errors import BadInput
from heads_for_depth.statistics.arms import (
    NO_SPREAD,
    Array,
    Interval,
    Seeds,
    check_confidence,
    checked_arm,
    paired_differences,
    sample_variance,
)


def bca_interval(
    baseline: Seeds,
    reshape: Seeds,
    generator: np.random.Generator,
    *,
    confidence: float = 0.95,
    resamples: int = 9999,
) -> Interval:
    """The BCa bootstrap interval (Efron 1987) of the mean paired difference; the seed is the unit of resampling."""
    check_confidence(confidence)
    differences = paired_differences(baseline, reshape)
    if sample_variance(differences) == 0:
        return Interval(lower=-inf, upper=inf, confidence=confidence)
    found = stats.bootstrap(
        (differences,), np.mean, n_resamples=resamples, confidence_level=confidence, method="BCa", rng=generator
    ).confidence_interval
    return Interval(lower=float(found.low), upper=float(found.high), confidence=confidence)


def sign_flip_p(
    baseline: Seeds,
    reshape: Seeds,
    generator: np.random.Generator,
    *,
    exact_up_to: int = 14,
    resamples: int = 9999,
) -> float:
    """The two-sided permutation p-value of "no difference", flipping the signs of the paired differences.

    Exact (all 2**n sign patterns) up to `exact_up_to` seeds; beyond, `resamples` random patterns and the observed one.
    """
    differences = paired_differences(baseline, reshape)
    n = len(differences)
    if n <= exact_up_to:
        signs = 1 - 2 * (np.arange(2**n)[:, None] >> np.arange(n) & 1)
    else:
        signs = np.vstack([np.ones(n, dtype=int), generator.choice([-1, 1], size=(resamples, n))])
    tie = NO_SPREAD * float(np.abs(differences).sum())
    return float(np.mean(np.abs(signs @ differences) >= abs(differences.sum()) - tie))


def inferior_by_rank_p(
    baseline: Seeds, reshape: Seeds, reshape_diverged: int, margin: float, *, higher_is_better: bool
) -> float:
    """The one-sided rank p-value (Mann-Whitney) that the reshape is worse than the baseline by more than `margin`.

    For arms whose mean does not exist: every diverged run of the reshape ranks below every finished run. Null
    hypothesis: the reshape's runs come from the baseline's distribution moved by the margin. Exact where an arm has at
    most 8 runs and no values tie, otherwise the normal approximation.
    """
    if reshape_diverged < 1:
        raise BadInput("reshape_diverged", reshape_diverged, "rank only where a run diverged; else compare the means")
    sign = 1 if higher_is_better else -1
    lowered = sign * checked_arm(baseline, "baseline") - margin
    finished = sign * checked_arm(reshape, "reshape", at_least=0)
    worst = min([*lowered, *finished])
    after = np.concatenate([finished, worst - 1 - np.arange(reshape_diverged)])
    return float(stats.mannwhitneyu(after, lowered, alternative="less").pvalue)


def holm(p_values: ArrayLike) -> Array:
    """Holm's step-down adjustment: p-values to compare with one alpha for the whole family, in the order given."""
    raw = np.asarray(p_values, dtype=np.float64)
    if raw.ndim != 1 or not ((raw >= 0) & (raw <= 1)).all():
        raise BadInput("p_values", raw.tolist(), "give a flat list of probabilities between 0 and 1")
    order = np.argsort(raw, kind="stable")
    adjusted = np.empty_like(raw)
    adjusted[order] = np.minimum(1.0, np.maximum.accumulate(raw[order] * np.arange(len(raw), 0, -1)))
    return adjusted
