"""One arm of seeds: a checked array, its variance, and the differences of two paired arms."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from heads_for_depth.errors import BadInput

Array = NDArray[np.float64]
Seeds = ArrayLike | Sequence[float]
"""One arm: a value per seed. (A tuple is no `ArrayLike` at run time.)"""

NO_SPREAD = 1e-12
"""Values that differ by less than this fraction of their size are rounding noise of equal values."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Interval:
    """A two-sided interval; unbounded ends are infinite."""

    lower: float
    upper: float
    confidence: float


def check_confidence(confidence: float) -> None:
    if not 0 < confidence < 1:
        raise BadInput("confidence", confidence, "give a fraction between 0 and 1, such as 0.95")


def checked_arm(values: Seeds, field: str, *, at_least: int = 2) -> Array:
    """One checked arm: shape (seeds,), float64, finite."""
    try:
        arm = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise BadInput(field, values, "give one number per seed") from None
    if arm.ndim != 1:
        raise BadInput(field, f"an array of shape {arm.shape}", "give one value per seed, in one dimension")
    if not np.isfinite(arm).all():
        raise BadInput(field, arm.tolist(), "give finite values; a diverged run is counted, not averaged")
    if len(arm) < at_least:
        raise BadInput(field, arm.tolist(), f"give at least {at_least} seeds")
    return arm


def paired_differences(baseline: Seeds, reshape: Seeds) -> Array:
    """Differences by seed, shape (seeds,); rounding noise of a constant difference is removed."""
    before, after = checked_arm(baseline, "baseline"), checked_arm(reshape, "reshape")
    if len(before) != len(after):
        raise BadInput("reshape", f"{len(after)} seeds", f"give the same {len(before)} seeds as the baseline")
    differences = after - before
    noise = NO_SPREAD * float(np.abs([before, after]).max())
    return np.full_like(differences, differences[0]) if np.ptp(differences) <= noise else differences


def sample_variance(values: Array) -> float:
    """The sample variance, exactly zero when the values differ by rounding only."""
    return 0.0 if np.ptp(values) <= NO_SPREAD * np.abs(values).max() else float(values.var(ddof=1))
