"""How much seeds and test images scatter: standard deviations and the binomial error of an accuracy."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

from scipy import stats

from heads_for_depth.errors import BadInput
from heads_for_depth.statistics.arms import Interval, Seeds, check_confidence, checked_arm, sample_variance


@dataclass(frozen=True, kw_only=True, slots=True)
class Spread:
    """A standard deviation between seeds and its interval."""

    standard_deviation: float
    interval: Interval
    degrees_of_freedom: int


def seed_standard_deviation(values: Seeds, *, confidence: float = 0.95) -> Spread:
    """The standard deviation between the seeds of one arm, with its chi-square interval."""
    return pooled_sd([values], confidence=confidence)


def pooled_sd(arms: Sequence[Seeds], *, confidence: float = 0.95) -> Spread:
    """One standard deviation within several arms, each around its own mean, with its chi-square interval."""
    check_confidence(confidence)
    checked = [checked_arm(values, f"arm {place}") for place, values in enumerate(arms, start=1)]
    if not checked:
        raise BadInput("arms", 0, "give at least one arm")
    freedom = sum(len(arm) - 1 for arm in checked)
    squares = sum(sample_variance(arm) * (len(arm) - 1) for arm in checked)
    tail = (1 - confidence) / 2
    lower, upper = (sqrt(squares / float(stats.chi2.ppf(level, freedom))) for level in (1 - tail, tail))
    return Spread(
        standard_deviation=sqrt(squares / freedom),
        interval=Interval(lower=lower, upper=upper, confidence=confidence),
        degrees_of_freedom=freedom,
    )


def test_set_sampling_error(accuracy: float, n_images: int) -> float:
    """The binomial standard error, in points, of an accuracy (in points) measured on `n_images` test images.

    An interval over seeds speaks of this fixed test set; a statement about the population adds this error to each
    accuracy. The error of a difference on the same images is another one: it needs their per-image predictions.
    """
    if not 0 <= accuracy <= 100:
        raise BadInput("accuracy", accuracy, "give percentage points between 0 and 100")
    if n_images < 1:
        raise BadInput("n_images", n_images, "give at least one image")
    return sqrt(accuracy * (100 - accuracy) / n_images)
