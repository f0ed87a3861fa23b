"""Two arms of seeds compared: intervals, one-sided tests, their multiplicity and the spread between seeds.

An arm holds one value per seed, in percentage points or nats. A difference is always reshape minus baseline in the
measure's own direction; where "better" matters, `higher_is_better` says which way that is. All of it is float64 and
pure: randomness comes in as a `numpy.random.Generator`. An arm that is not 1-D and finite, is too short or (when
paired) differs in length from the other raises `BadInput`. Seeds that all agree say nothing about their spread, so they
give unbounded intervals and p = 1.
"""

from heads_for_depth.statistics.arms import Array, Interval, Seeds
from heads_for_depth.statistics.differences import (
    Difference,
    Method,
    NonInferiority,
    compare,
    non_inferiority,
    paired_difference,
    smallest_margin,
    welch_difference,
    welch_if_repeated,
)
from heads_for_depth.statistics.partial_rank import (
    Correlation,
    clustered_correlation,
    partial_rank_correlation,
    within_groups_rank_correlation,
)
from heads_for_depth.statistics.resampling import bca_interval, holm, inferior_by_rank_p, sign_flip_p
from heads_for_depth.statistics.spread import Spread, pooled_sd, seed_standard_deviation, test_set_sampling_error

__all__ = [
    "Array",
    "Correlation",
    "Difference",
    "Interval",
    "Method",
    "NonInferiority",
    "Seeds",
    "Spread",
    "bca_interval",
    "clustered_correlation",
    "compare",
    "holm",
    "inferior_by_rank_p",
    "non_inferiority",
    "paired_difference",
    "partial_rank_correlation",
    "pooled_sd",
    "seed_standard_deviation",
    "sign_flip_p",
    "smallest_margin",
    "test_set_sampling_error",
    "welch_difference",
    "welch_if_repeated",
    "within_groups_rank_correlation",
]
