"""Partial rank correlations against scipy, closed forms and simulated causes."""

import math

import numpy as np
import pytest
from scipy import stats

from heads_for_depth.errors import BadInput
from heads_for_depth.statistics import (
    clustered_correlation,
    partial_rank_correlation,
    within_groups_rank_correlation,
)


def draw(seed: int, runs: int = 60) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """x and y that go together through z alone, and z."""
    generator = np.random.default_rng(seed)
    z = generator.normal(size=runs)
    return z + 0.5 * generator.normal(size=runs), -z + 0.5 * generator.normal(size=runs), z


@pytest.mark.parametrize("seed", range(4))
def test_with_nothing_fixed_it_is_spearmans(seed: int):
    x, y, _ = draw(seed)
    x[:7] = x[0]  # ties
    assert partial_rank_correlation(x, y) == pytest.approx(stats.spearmanr(x, y).statistic, abs=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_with_one_quantity_fixed_it_is_the_textbook_formula_of_three_spearmans(seed: int):
    x, y, z = draw(seed)
    xy, xz, yz = (stats.spearmanr(*pair).statistic for pair in ((x, y), (x, z), (y, z)))
    expected = (xy - xz * yz) / math.sqrt((1 - xz**2) * (1 - yz**2))
    assert partial_rank_correlation(x, y, [z]) == pytest.approx(expected, abs=1e-12)
    assert partial_rank_correlation(x, y, [z, 2 * z + 1, z**3]) == pytest.approx(expected, abs=1e-9)  # same ranks


def test_a_common_cause_disappears_when_it_is_fixed_and_a_direct_effect_does_not():
    x, y, z = draw(9, runs=2000)
    assert partial_rank_correlation(x, y) < -0.7
    assert abs(partial_rank_correlation(x, y, [z])) < 0.15
    assert partial_rank_correlation(x, y + 2 * x, [z]) > 0.7


def test_only_order_matters():
    x, y, z = draw(1)
    assert partial_rank_correlation(np.exp(x), y, [z**3]) == pytest.approx(partial_rank_correlation(x, y, [z]))
    assert partial_rank_correlation(-x, y, [z]) == pytest.approx(-partial_rank_correlation(x, y, [z]))


def test_what_is_explained_wholly_has_no_correlation():
    x, y, _ = draw(2)
    assert math.isnan(partial_rank_correlation(x, y, [x]))
    assert math.isnan(partial_rank_correlation(np.ones(10), np.arange(10.0)))


def test_within_groups_the_groups_own_levels_do_not_count():
    x = [1.0, 2.0, 3.0, 101.0, 102.0, 103.0]
    y = [103.0, 102.0, 101.0, 3.0, 2.0, 1.0]
    groups = ["a"] * 3 + ["b"] * 3
    assert within_groups_rank_correlation(x, y, groups) == pytest.approx(-1)
    upwards = [101.0, 102.0, 103.0, 1.0, 2.0, 3.0]
    assert partial_rank_correlation(x, upwards) < 0 < within_groups_rank_correlation(x, upwards, groups)
    assert math.isnan(within_groups_rank_correlation(x, y, list(range(6))))


def test_the_interval_resamples_groups_whole_covers_and_repeats():
    hits = 0
    for seed in range(60):
        generator = np.random.default_rng(seed)
        level = generator.normal(size=20)
        x = np.repeat(level, 4) + 0.3 * generator.normal(size=80)
        y = np.repeat(generator.normal(size=20), 4) + 0.3 * generator.normal(size=80)  # no correlation
        groups = [i // 4 for i in range(80)]
        found = clustered_correlation(x, y, groups, range(80), np.random.default_rng(1), given=(), resamples=199)
        hits += found.interval.lower <= 0 <= found.interval.upper
        assert (found.runs, found.clusters, found.blocks) == (80, 20, 80)
    assert hits >= 50  # 95 % nominal; an interval over runs instead of groups covers about 65 %
    again = [
        clustered_correlation(x, y, groups, range(80), np.random.default_rng(1), given=(), resamples=99)
        for _ in range(2)
    ]
    assert again[0] == again[1]
    assert again[0].value == pytest.approx(stats.spearmanr(x, y).statistic)


def test_without_given_the_clustered_correlation_is_the_one_within_groups():
    x, y, _ = draw(4, runs=40)
    groups = [i % 8 for i in range(40)]
    found = clustered_correlation(x, y, groups, range(40), np.random.default_rng(0), resamples=99)
    assert found.value == pytest.approx(within_groups_rank_correlation(x, y, groups))
    assert found.interval.lower < found.value < found.interval.upper


def test_an_effect_of_the_seed_that_all_cells_share_widens_the_interval_within_cells():
    hits = 0
    for number in range(60):
        generator = np.random.default_rng(number)
        seeds = np.tile(np.arange(8), 20)
        x, y = (generator.normal(size=8)[seeds] + generator.normal(size=160) for _ in range(2))  # no correlation
        cells = [i // 8 for i in range(160)]
        found = clustered_correlation(x, y, cells, list(seeds), np.random.default_rng(1), resamples=199)
        hits += found.interval.lower <= 0 <= found.interval.upper
        assert (found.runs, found.clusters, found.blocks) == (160, 20, 8)
    assert hits >= 48


def test_a_seed_that_few_cells_have_is_drawn_with_the_others():
    x, y, _ = draw(6, runs=12)
    cells, seeds = [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2], [0, 1, 2, 3, 0, 1, 2, 4, 0, 1, 2, 5]
    found = clustered_correlation(x, y, cells, seeds, np.random.default_rng(0), given=(), resamples=99)
    assert (found.clusters, found.blocks) == (3, 6)
    assert -1 <= found.interval.lower < found.value < found.interval.upper <= 1


def test_two_groups_or_two_seeds_give_no_bounded_interval():
    x, y, _ = draw(5, runs=10)
    for groups, blocks in (([0] * 5 + [1] * 5, list(range(10))), (list(range(10)), [0, 1] * 5)):
        found = clustered_correlation(x, y, groups, blocks, np.random.default_rng(0), given=())
        assert (found.interval.lower, found.interval.upper) == (-1, 1)


def test_columns_of_different_length_are_refused():
    with pytest.raises(BadInput, match=r"give one value per run, 3 of every quantity"):
        partial_rank_correlation([1, 2, 3], [1, 2])
