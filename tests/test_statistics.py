"""Two arms of seeds: hand-worked answers, invariances, agreement with scipy and statsmodels, refusals."""

from itertools import combinations
from math import comb, inf, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy import stats
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW, ttost_paired

from heads_for_depth import statistics
from heads_for_depth.errors import BadInput

BASELINE = np.array([84.61, 85.02, 85.30, 84.45, 85.71, 84.98, 85.13, 84.77])
RESHAPE = np.array([84.90, 84.72, 85.55, 84.61, 85.35, 85.21, 84.88, 85.07])
SHORTER = np.array([83.2, 84.9, 84.1, 85.6, 82.7])

Pair = tuple[np.ndarray, np.ndarray]
values = st.lists(st.integers(8000, 9000).map(lambda hundredths: hundredths / 100), min_size=2, max_size=9)
arms = st.tuples(values, values)
pairs = st.lists(st.tuples(st.integers(8000, 9000), st.integers(8000, 9000)), min_size=2, max_size=9).map(
    lambda rows: tuple(np.array(rows).T / 100)
)
methods = st.sampled_from(["paired", "welch"])


def has_spread(difference: statistics.Difference) -> bool:
    return difference.standard_error > 0


# --- known answers, worked by hand ---


def test_paired_difference_of_three_seeds_is_the_one_worked_by_hand() -> None:
    # differences 1, 2, 3: mean 2, sd 1, standard error 1 / sqrt(3)
    found = statistics.paired_difference([80.0, 81.0, 82.0], [81.0, 83.0, 85.0])
    assert found.difference == pytest.approx(2)
    assert found.standard_error == pytest.approx(1 / sqrt(3))
    assert found.degrees_of_freedom == 2
    # t quantiles at 2 degrees of freedom, from printed tables: 4.303 two-sided 95 %, 2.920 one-sided 95 %
    assert found.interval().lower == pytest.approx(2 - 4.303 / sqrt(3), abs=5e-4)
    assert found.interval().upper == pytest.approx(2 + 4.303 / sqrt(3), abs=5e-4)
    assert found.lower_bound() == pytest.approx(2 - 2.920 / sqrt(3), abs=5e-4)
    assert found.upper_bound() == pytest.approx(2 + 2.920 / sqrt(3), abs=5e-4)


def test_welch_degrees_of_freedom_are_the_ones_worked_by_hand() -> None:
    # variances of the means: 1/3 (variance 1, n 3) and 1 (variance 2, n 2); (4/3)^2 / ((1/3)^2 / 2 + 1^2 / 1) = 32/19
    found = statistics.welch_difference([80.0, 81.0, 82.0], [84.0, 86.0])
    assert found.difference == pytest.approx(4)
    assert found.standard_error == pytest.approx(sqrt(4 / 3))
    assert found.degrees_of_freedom == pytest.approx(32 / 19)
    assert (found.baseline_n, found.reshape_n) == (3, 2)


def test_one_sided_p_value_at_two_degrees_of_freedom_has_its_closed_form() -> None:
    # at 2 degrees of freedom P(T > t) = 1/2 - t / (2 sqrt(2 + t^2)); here t = (2 - 1) / (1 / sqrt(3)) = sqrt(3)
    found = statistics.paired_difference([80.0, 81.0, 82.0], [81.0, 83.0, 85.0])
    above = 0.5 - sqrt(3) / (2 * sqrt(5))
    assert found.p_above(1.0) == pytest.approx(above)
    assert found.p_below(1.0) == pytest.approx(1 - above)


def test_sign_flips_of_three_equal_signs_reach_a_quarter() -> None:
    # of 8 sign patterns only the two with all signs equal are as extreme as all positive differences
    p = statistics.sign_flip_p([80.0, 81.0, 82.0], [81.0, 83.0, 85.0], np.random.default_rng(0))
    assert p == pytest.approx(2 / 8)


def test_sign_flips_count_ties_as_extreme() -> None:
    # differences 0.1, 0.2, -0.3: the sum is 0 up to rounding, so every pattern is at least as extreme
    p = statistics.sign_flip_p([80.0, 80.0, 80.3], [80.1, 80.2, 80.0], np.random.default_rng(0))
    assert p == 1


def test_holm_is_the_step_down_worked_by_hand() -> None:
    # sorted 0.01, 0.02, 0.03, 0.04 times 4, 3, 2, 1 = 0.04, 0.06, 0.06, 0.04, then never falling
    assert statistics.holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert statistics.holm([0.6, 0.7]) == pytest.approx([1, 1])
    assert len(statistics.holm([])) == 0


def test_rank_p_value_of_an_arm_wholly_below_the_other_is_one_over_all_arrangements() -> None:
    baseline = [85.1, 85.2, 85.3, 85.4]
    expected = 1 / comb(8, 4)
    for finished, diverged in (([], 4), ([80.0, 81.0], 2)):
        p = statistics.inferior_by_rank_p(baseline, finished, diverged, 0.5, higher_is_better=True)
        assert p == pytest.approx(expected)


def test_rank_p_value_moves_the_baseline_by_the_margin_in_the_losing_direction() -> None:
    losses, finished = [0.300, 0.301, 0.302], [0.305, 0.306]
    within = statistics.inferior_by_rank_p(losses, finished, 1, 0.02, higher_is_better=False)
    beyond = statistics.inferior_by_rank_p(losses, finished, 1, 0.001, higher_is_better=False)
    # the reshape's ranks among all six runs, worst first: 1, 5, 6 at the wide margin, 1, 2, 3 at the narrow one
    assert within == pytest.approx(rank_sum_p(12))
    assert beyond == pytest.approx(rank_sum_p(6))


def rank_sum_p(observed: int) -> float:
    """P(rank sum of 3 among 6 <= observed), by listing every arrangement."""
    sums = [sum(ranks) for ranks in combinations(range(1, 7), 3)]
    return sum(total <= observed for total in sums) / len(sums)


def test_sampling_error_of_a_coin_flip_accuracy_on_ten_thousand_images_is_half_a_point() -> None:
    assert statistics.test_set_sampling_error(50.0, 10_000) == pytest.approx(0.5)
    assert statistics.test_set_sampling_error(100.0, 10_000) == 0


def test_seed_standard_deviation_has_the_chi_square_interval_worked_by_hand() -> None:
    # values 1, 2, 3: variance 1 on 2 degrees of freedom; there the chi-square quantile at q is -2 log(1 - q)
    found = statistics.seed_standard_deviation([1.0, 2.0, 3.0])
    assert found.standard_deviation == pytest.approx(1)
    assert found.interval.lower == pytest.approx(sqrt(2 / (-2 * np.log(0.025))))
    assert found.interval.upper == pytest.approx(sqrt(2 / (-2 * np.log(0.975))))


def test_pooled_standard_deviation_weighs_arms_by_their_degrees_of_freedom() -> None:
    # sums of squares 2 (2 degrees of freedom) and 18 (1): sqrt(20 / 3); the arms' own means do not matter
    found = statistics.pooled_sd([[1.0, 2.0, 3.0], [50.0, 56.0]])
    assert found.standard_deviation == pytest.approx(sqrt(20 / 3))
    assert found.degrees_of_freedom == 3


def test_seeds_without_spread_give_no_evidence() -> None:
    for found in (
        statistics.paired_difference([84.1, 85.3, 86.7], [84.101, 85.301, 86.701]),
        statistics.welch_difference([84.1] * 3, [84.9] * 3),
    ):
        assert found.standard_error == 0
        assert (found.lower_bound(), found.upper_bound()) == (-inf, inf)
        assert (found.p_above(-0.5), found.p_below(-0.5)) == (1, 1)
    resampled = statistics.bca_interval([84.1, 85.3, 86.7], [84.101, 85.301, 86.701], np.random.default_rng(0))
    assert (resampled.lower, resampled.upper) == (-inf, inf)


# --- agreement with references ---


@pytest.mark.parametrize("after", [RESHAPE, SHORTER])
def test_welch_agrees_with_scipy(after: np.ndarray) -> None:
    found, reference = statistics.welch_difference(BASELINE, after), stats.ttest_ind(after, BASELINE, equal_var=False)
    interval = reference.confidence_interval(0.95)
    assert found.degrees_of_freedom == pytest.approx(reference.df)
    assert (found.interval().lower, found.interval().upper) == pytest.approx((interval.low, interval.high))
    greater = stats.ttest_ind(after, BASELINE - 0.5, equal_var=False, alternative="greater")
    assert found.p_above(-0.5) == pytest.approx(greater.pvalue)
    assert found.lower_bound() - -0.5 == pytest.approx(greater.confidence_interval(0.95).low)


def test_paired_agrees_with_scipy() -> None:
    found, reference = statistics.paired_difference(BASELINE, RESHAPE), stats.ttest_rel(RESHAPE, BASELINE)
    interval = reference.confidence_interval(0.95)
    assert (found.interval().lower, found.interval().upper) == pytest.approx((interval.low, interval.high))
    assert found.p_above(0.0) == pytest.approx(stats.ttest_rel(RESHAPE, BASELINE, alternative="greater").pvalue)
    less = stats.ttest_rel(RESHAPE, BASELINE, alternative="less").confidence_interval(0.95)
    assert found.upper_bound() == pytest.approx(less.high)


@pytest.mark.parametrize("after", [RESHAPE, SHORTER])
def test_welch_equivalence_and_bounds_agree_with_statsmodels(after: np.ndarray) -> None:
    found = statistics.non_inferiority(BASELINE, after, 0.5, method="welch", higher_is_better=True)
    reference = CompareMeans(DescrStatsW(after), DescrStatsW(BASELINE))
    p, (from_below, from_above) = reference.ttost_ind(-0.5, 0.5, usevar="unequal")
    assert found.p_equivalent == pytest.approx(p)
    assert found.p_non_inferior == pytest.approx(from_below[1])
    assert found.p_inferior == pytest.approx(1 - from_below[1])
    assert found.difference.p_below(0.5) == pytest.approx(from_above[1])
    assert found.p_superior == pytest.approx(reference.ttest_ind(alternative="larger", usevar="unequal")[1])
    low, _ = reference.tconfint_diff(0.05, alternative="larger", usevar="unequal")
    assert found.difference.lower_bound() == pytest.approx(low)


def test_paired_equivalence_agrees_with_statsmodels() -> None:
    found = statistics.non_inferiority(BASELINE, RESHAPE, 0.3, method="paired", higher_is_better=True)
    p, from_below, _ = ttost_paired(RESHAPE, BASELINE, -0.3, 0.3)
    assert found.p_equivalent == pytest.approx(p)
    assert found.p_non_inferior == pytest.approx(from_below[1])


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_agrees_with_statsmodels(p_values: list[float]) -> None:
    assert statistics.holm(p_values) == pytest.approx(multipletests(p_values, method="holm")[1])


def test_bca_interval_agrees_with_scipy_on_the_differences() -> None:
    found = statistics.bca_interval(BASELINE, RESHAPE, np.random.default_rng(5), resamples=999)
    reference = stats.bootstrap(
        (RESHAPE - BASELINE,), np.mean, n_resamples=999, method="BCa", rng=np.random.default_rng(5)
    ).confidence_interval
    assert (found.lower, found.upper) == (reference.low, reference.high)
    assert found.lower < found.upper


def test_exact_sign_flips_agree_with_scipy() -> None:
    before, after = BASELINE, RESHAPE + 0.2
    reference = stats.permutation_test((after - before,), np.sum, permutation_type="samples", n_resamples=10_000)
    assert statistics.sign_flip_p(before, after, np.random.default_rng(0)) == pytest.approx(reference.pvalue)


def test_sampled_sign_flips_come_near_the_exact_ones_and_never_reach_zero() -> None:
    before, after = BASELINE, RESHAPE + 0.2
    exact = statistics.sign_flip_p(before, after, np.random.default_rng(0))
    sampled = statistics.sign_flip_p(before, after, np.random.default_rng(0), exact_up_to=4, resamples=20_000)
    assert sampled != exact
    assert sampled == pytest.approx(exact, abs=4 * sqrt(exact / 20_000))
    rising = np.arange(30.0)
    assert statistics.sign_flip_p(rising, 2 * rising + 1, np.random.default_rng(0), resamples=99) == 1 / 100


def test_rank_p_value_agrees_with_scipy_when_a_run_is_infinitely_bad() -> None:
    after = np.append(RESHAPE[:6], [-1e6, -1e7])
    reference = stats.mannwhitneyu(after, BASELINE - 0.505, alternative="less", method="exact").pvalue
    found = statistics.inferior_by_rank_p(BASELINE, RESHAPE[:6], 2, 0.505, higher_is_better=True)
    assert found == pytest.approx(reference)


def test_one_sided_welch_bound_covers_the_truth_as_often_as_it_says() -> None:
    generator = np.random.default_rng(11)
    before, after = generator.normal(85, 0.3, (2000, 8)), generator.normal(85, 0.6, (2000, 8))
    covered = [statistics.welch_difference(b, a).lower_bound() < 0 for b, a in zip(before, after, strict=True)]
    assert np.mean(covered) == pytest.approx(0.95, abs=4 * sqrt(0.95 * 0.05 / 2000))


# --- invariances ---


@settings(max_examples=50, deadline=None)
@given(pairs, methods, st.integers(-50, 50))
def test_shifting_both_arms_changes_nothing(pair: Pair, method: statistics.Method, shift: int) -> None:
    before, after = pair
    found, shifted = (
        statistics.compare(before, after, method),
        statistics.compare(before + shift, after + shift, method),
    )
    assert shifted.difference == pytest.approx(found.difference, abs=1e-9)
    assert shifted.standard_error == pytest.approx(found.standard_error, abs=1e-9)
    assert shifted.degrees_of_freedom == pytest.approx(found.degrees_of_freedom)


@settings(max_examples=50, deadline=None)
@given(pairs, methods)
def test_swapping_the_arms_mirrors_the_interval(pair: Pair, method: statistics.Method) -> None:
    before, after = pair
    found, swapped = statistics.compare(before, after, method), statistics.compare(after, before, method)
    assert swapped.difference == -found.difference
    assert swapped.interval().lower == pytest.approx(-found.interval().upper)
    assert swapped.p_above(0.3) == pytest.approx(found.p_below(-0.3))


@settings(max_examples=50, deadline=None)
@given(arms)
def test_the_order_of_seeds_does_not_matter_to_welch(pair: Pair) -> None:
    before, after = pair
    found = statistics.welch_difference(before, after)
    reordered = statistics.welch_difference(sorted(before), sorted(after, reverse=True))
    assert reordered.lower_bound() == pytest.approx(found.lower_bound())


def test_the_order_of_seeds_does_matter_to_pairing() -> None:
    aligned = statistics.paired_difference(BASELINE, RESHAPE)
    crossed = statistics.paired_difference(BASELINE, RESHAPE[::-1])
    assert crossed.difference == pytest.approx(aligned.difference)
    assert crossed.standard_error != pytest.approx(aligned.standard_error, rel=0.05)


@settings(max_examples=50, deadline=None)
@given(pairs, methods, st.sampled_from([0.0, 0.02, 0.5, 3.0]))
def test_a_loss_is_an_accuracy_with_its_sign_turned(pair: Pair, method: statistics.Method, margin: float) -> None:
    before, after = pair
    accuracy = statistics.non_inferiority(before, after, margin, method=method, higher_is_better=True)
    loss = statistics.non_inferiority(-before, -after, margin, method=method, higher_is_better=False)
    for question in ("p_non_inferior", "p_inferior", "p_equivalent", "p_superior", "smallest_margin"):
        assert getattr(loss, question) == pytest.approx(getattr(accuracy, question))
    assert loss.difference.difference == pytest.approx(-accuracy.difference.difference)


@settings(max_examples=50, deadline=None)
@given(arms)
def test_non_inferiority_holds_exactly_when_the_lower_bound_is_above_the_margin(pair: Pair) -> None:
    before, after = pair
    for margin in (0.0, 0.5, 2.0):
        found = statistics.non_inferiority(before, after, margin, method="welch", higher_is_better=True)
        assume(abs(found.difference.lower_bound() + margin) > 1e-9)
        assert (found.p_non_inferior < 0.05) == (found.difference.lower_bound() > -margin)
        assert (found.p_inferior < 0.05) == (found.difference.upper_bound() < -margin)


@settings(max_examples=50, deadline=None)
@given(pairs, methods, st.booleans())
def test_the_smallest_margin_is_where_the_test_turns(
    pair: Pair, method: statistics.Method, higher_is_better: bool
) -> None:
    before, after = pair
    difference = statistics.compare(before, after, method)
    assume(has_spread(difference))
    turn = statistics.smallest_margin(difference, higher_is_better=higher_is_better)
    assert turn >= 0

    def p(margin: float) -> float:
        return statistics.non_inferiority(
            before, after, margin, method=method, higher_is_better=higher_is_better
        ).p_non_inferior

    if turn == 0:
        assert p(0.0) <= 0.05 + 1e-9
    else:
        assert p(turn) == pytest.approx(0.05, abs=1e-6)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(0, 1), min_size=1, max_size=8))
def test_holm_follows_its_p_values_in_any_order_and_never_lowers_one(p_values: list[float]) -> None:
    adjusted = statistics.holm(p_values)
    assert (adjusted >= np.array(p_values)).all()
    assert statistics.holm(p_values[::-1]) == pytest.approx(adjusted[::-1])


# --- refusals ---


@pytest.mark.parametrize("method", ["paired", "welch"])
@pytest.mark.parametrize(
    ("bad", "remedy"),
    [
        ([85.0], "at least 2 seeds"),
        ([], "at least 2 seeds"),
        ([85.0, float("nan")], "finite"),
        ([85.0, inf], "finite"),
        ([[85.0, 84.0], [83.0, 82.0]], "one dimension"),
        (["85.0", "high"], "one number per seed"),
    ],
)
def test_an_unusable_arm_is_refused_by_name(method: statistics.Method, bad: Any, remedy: str) -> None:
    with pytest.raises(BadInput, match=rf"^baseline is .*{remedy}"):
        statistics.compare(bad, [85.0, 84.0], method)
    with pytest.raises(BadInput, match=rf"^reshape is .*{remedy}"):
        statistics.compare([85.0, 84.0], bad, method)


def test_pairing_refuses_arms_of_different_lengths() -> None:
    for refused in (
        lambda: statistics.paired_difference(BASELINE, SHORTER),
        lambda: statistics.bca_interval(BASELINE, SHORTER, np.random.default_rng(0)),
        lambda: statistics.sign_flip_p(BASELINE, SHORTER, np.random.default_rng(0)),
    ):
        with pytest.raises(BadInput, match="same 8 seeds"):
            refused()


@pytest.mark.parametrize("margin", [-0.5, float("nan"), inf])
def test_a_margin_that_is_negative_or_not_finite_is_refused(margin: float) -> None:
    with pytest.raises(BadInput, match="margin"):
        statistics.non_inferiority(BASELINE, RESHAPE, margin, method="welch", higher_is_better=True)


def test_a_confidence_given_in_percent_is_refused() -> None:
    difference = statistics.welch_difference(BASELINE, RESHAPE)
    for refused in (
        lambda: difference.interval(95.0),
        lambda: difference.lower_bound(95.0),
        lambda: statistics.pooled_sd([BASELINE], confidence=95.0),
        lambda: statistics.bca_interval(BASELINE, RESHAPE, np.random.default_rng(0), confidence=95.0),
    ):
        with pytest.raises(BadInput, match=r"confidence is 95\.0"):
            refused()


@pytest.mark.parametrize("p_values", [[0.5, -0.1], [1.1], [float("nan")], [[0.1, 0.2]]])
def test_holm_refuses_what_is_no_list_of_probabilities(p_values: Any) -> None:
    with pytest.raises(BadInput, match="p_values"):
        statistics.holm(p_values)


def test_sampling_error_refuses_an_impossible_accuracy_and_an_empty_test_set() -> None:
    with pytest.raises(BadInput, match="accuracy"):
        statistics.test_set_sampling_error(100.5, 10_000)
    with pytest.raises(BadInput, match="n_images"):
        statistics.test_set_sampling_error(85.0, 0)


def test_a_spread_of_no_arm_and_a_ranking_without_divergence_are_refused() -> None:
    with pytest.raises(BadInput, match="arms"):
        statistics.pooled_sd([])
    with pytest.raises(BadInput, match="reshape_diverged"):
        statistics.inferior_by_rank_p(BASELINE, RESHAPE, 0, 0.5, higher_is_better=True)
