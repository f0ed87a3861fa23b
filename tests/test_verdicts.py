"""The pre-declared rule: each of its lines, its boundary, its multiplicity and what it refuses."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from heads_for_depth import statistics
from heads_for_depth.errors import BadInput
from heads_for_depth.verdicts import (
    ACCURACY_MARGIN,
    LOSS_MARGIN,
    VISION_METHOD,
    Comparison,
    RecountVerdict,
    ReducedScaleVerdict,
    Rule,
    Verdict,
    decide,
)

REPRODUCED, NOT_REPRODUCED = ReducedScaleVerdict.REPRODUCED, ReducedScaleVerdict.NOT_REPRODUCED
INCONCLUSIVE, NOT_TESTABLE = ReducedScaleVerdict.INCONCLUSIVE, ReducedScaleVerdict.NOT_TESTABLE
ACCURACY = Rule(declared_n=8, margin=ACCURACY_MARGIN, higher_is_better=True, method=VISION_METHOD)
LOSS = Rule(declared_n=8, margin=LOSS_MARGIN, higher_is_better=False, method=VISION_METHOD)
WOBBLE = np.array([-0.4, -0.3, -0.2, -0.1, 0.1, 0.2, 0.3, 0.4])
"""Eight seeds around a level: mean 0, variance 0.6 / 7."""


def seeds(level: float, scale: float = 1.0, n: int = 8) -> tuple[float, ...]:
    return tuple((level + scale * WOBBLE[:n]).tolist())


def row(difference: float, scale: float = 1.0, n: int = 8, name: str = "row") -> Comparison:
    """A baseline at 85 points and a reshape `difference` away."""
    return Comparison(row=name, baseline=seeds(85.0, scale, n), reshape=seeds(85.0 + difference, scale, n))


def only(comparison: Comparison, rule: Rule = ACCURACY) -> Verdict:
    (verdict,) = decide([comparison], rule)
    return verdict


def required(value: float | None) -> float:
    assert value is not None
    return value


# Standard error of the difference of two such arms: sqrt(2 * 0.6 / 7 / 8) = 0.14639, 14 degrees of freedom,
# one-sided 95 % quantile 1.7613 (printed tables): the bounds lie 0.25783 to each side.
REACH = 0.25783


def test_the_verdicts_are_worded_as_the_protocol_words_them() -> None:
    assert [verdict.value for verdict in ReducedScaleVerdict] == [
        "reproduced at reduced scale",
        "not reproduced at reduced scale",
        "inconclusive",
        "not testable here",
    ]
    assert [verdict.value for verdict in RecountVerdict] == [
        "recounts",
        "within 1 %",
        "contradicts its stated shape",
        "not in the record",
    ]


def test_the_margins_are_the_declared_ones() -> None:
    assert (ACCURACY_MARGIN, LOSS_MARGIN, VISION_METHOD) == (0.5, 0.02, "welch")


# --- the three verdicts of the t tests, at their boundaries ---


@pytest.mark.parametrize(
    ("difference", "expected"),
    [
        (0.0, REPRODUCED),
        (2.0, REPRODUCED),
        (-0.5 + REACH + 0.001, REPRODUCED),
        (-0.5 + REACH - 0.001, INCONCLUSIVE),
        (-0.5, INCONCLUSIVE),
        (-0.5 - REACH + 0.001, INCONCLUSIVE),
        (-0.5 - REACH - 0.001, NOT_REPRODUCED),
        (-2.0, NOT_REPRODUCED),
    ],
)
def test_one_row_is_decided_where_its_one_sided_bound_crosses_the_margin(
    difference: float, expected: ReducedScaleVerdict
) -> None:
    found = only(row(difference))
    assert found.verdict is expected
    assert found.difference == pytest.approx(difference)
    assert found.lower == pytest.approx(difference - REACH, abs=1e-4)
    assert found.upper == pytest.approx(difference + REACH, abs=1e-4)
    assert found.smallest_margin == pytest.approx(max(0.0, REACH - difference), abs=1e-4)
    assert (found.n, found.declared_n, found.margin) == (8, 8, 0.5)


@pytest.mark.parametrize(
    ("difference", "expected"), [(0.0, REPRODUCED), (-0.1, REPRODUCED), (0.02, INCONCLUSIVE), (0.1, NOT_REPRODUCED)]
)
def test_a_loss_that_rises_is_the_one_that_fails(difference: float, expected: ReducedScaleVerdict) -> None:
    found = only(Comparison(row="loss", baseline=seeds(0.4, 0.03), reshape=seeds(0.4 + difference, 0.03)), LOSS)
    assert found.verdict is expected
    assert found.difference == pytest.approx(difference)
    assert found.upper == pytest.approx(difference + 0.03 * REACH, abs=1e-5)
    assert found.smallest_margin == pytest.approx(max(0.0, difference + 0.03 * REACH), abs=1e-5)


def test_the_rule_uses_the_method_it_declares() -> None:
    # the reshape follows its baseline seed by seed, so pairing sees a difference that Welch cannot
    baseline = seeds(85.0, 5.0)
    noise = (0.01, -0.01, 0.02, -0.02, 0.01, -0.01, 0.0, 0.0)
    followed = Comparison(
        row="row", baseline=baseline, reshape=tuple(b + e for b, e in zip(baseline, noise, strict=True))
    )
    assert only(followed).verdict is INCONCLUSIVE
    assert only(followed, replace(ACCURACY, method="paired")).verdict is REPRODUCED


# --- fewer runs than declared, divergence, what cannot be run ---


@pytest.mark.parametrize("n", [2, 3, 7])
def test_no_verdict_is_drawn_below_the_declared_n_but_its_numbers_are_given(n: int) -> None:
    found = only(row(3.0, scale=0.1, n=n))
    assert found.verdict is INCONCLUSIVE
    assert found.reason == f"n = {n} of the declared 8"
    assert found.n == n
    assert required(found.lower) > 2
    assert required(found.adjusted_p_non_inferior) < 0.05


def test_the_smaller_arm_counts() -> None:
    full = row(0.0)
    assert only(replace(full, reshape=full.reshape[:3])).reason == "n = 3 of the declared 8"
    assert only(replace(full, baseline=full.baseline[:5])).reason == "n = 5 of the declared 8"


@pytest.mark.parametrize(("n", "difference"), [(0, None), (1, -1.0)])
def test_a_row_without_two_seeds_has_no_interval(n: int, difference: float | None) -> None:
    found = only(row(-1.0, n=n))
    assert found.verdict is INCONCLUSIVE
    assert found.reason == f"n = {n} of the declared 8"
    assert found.difference == pytest.approx(difference)
    assert (found.lower, found.upper, found.smallest_margin) == (None, None, None)
    assert (found.adjusted_p_non_inferior, found.adjusted_p_inferior) == (None, None)


def test_a_diverged_run_counts_as_a_run() -> None:
    full = row(0.0)
    assert only(replace(full, reshape=full.reshape[:7])).reason == "n = 7 of the declared 8"
    one_diverged = only(replace(full, reshape=full.reshape[:7], reshape_diverged=1))
    assert one_diverged.n == 8
    assert one_diverged.reason.startswith("1 of 8 reshape runs diverged")


@pytest.mark.parametrize("diverged", range(1, 9))
def test_a_reshape_that_diverges_is_never_reproduced_and_fails_when_ranks_show_it(diverged: int) -> None:
    better = Comparison(row="row", baseline=seeds(85.0), reshape=seeds(90.0)[: 8 - diverged], reshape_diverged=diverged)
    found = only(better)
    # d runs rank lowest and 8 - d highest: Mann-Whitney U = 8 (8 - d); printed tables give U <= 15 as the 5 % point
    assert found.verdict is (NOT_REPRODUCED if 8 * (8 - diverged) <= 15 else INCONCLUSIVE)
    assert (found.difference, found.lower, found.upper, found.smallest_margin) == (None, None, None, None)
    assert found.adjusted_p_non_inferior is None


def test_one_divergence_does_not_hide_that_the_other_runs_fall_short() -> None:
    short = Comparison(row="row", baseline=seeds(85.0), reshape=seeds(83.0)[:7], reshape_diverged=1)
    assert only(short).verdict is NOT_REPRODUCED
    loss = Comparison(row="row", baseline=seeds(0.4, 0.03), reshape=seeds(0.5, 0.03)[:7], reshape_diverged=1)
    assert only(loss, LOSS).verdict is NOT_REPRODUCED


@pytest.mark.parametrize("reshape_level", [80.0, 90.0])
@pytest.mark.parametrize("reshape_diverged", [0, 8])
def test_a_baseline_that_diverges_gives_no_verdict(reshape_level: float, reshape_diverged: int) -> None:
    unsound = Comparison(
        row="row",
        baseline=seeds(85.0)[:7],
        baseline_diverged=1,
        reshape=seeds(reshape_level)[reshape_diverged:],
        reshape_diverged=reshape_diverged,
    )
    found = only(unsound)
    assert found.verdict is INCONCLUSIVE
    assert found.reason == "1 of 8 baseline runs diverged, so there is no sound level to hold"
    assert (found.difference, found.adjusted_p_inferior) == (None, None)


def test_divergence_below_the_declared_n_waits_for_the_runs() -> None:
    found = only(Comparison(row="row", baseline=seeds(85.0, n=3), reshape_diverged=3))
    assert (found.verdict, found.reason) == (INCONCLUSIVE, "n = 3 of the declared 8")


def test_a_row_that_cannot_be_run_says_why_and_leaves_the_other_rows_alone() -> None:
    blocked = Comparison(row="TNT", obstacle="the family has no patch of 5 pixels")
    tested = row(-0.5 + REACH + 0.001)
    verdicts = decide([blocked, tested, blocked], ACCURACY)
    assert [found.verdict for found in verdicts] == [NOT_TESTABLE, REPRODUCED, NOT_TESTABLE]
    assert (verdicts[0].row, verdicts[0].reason, verdicts[0].n) == ("TNT", "the family has no patch of 5 pixels", 0)
    assert verdicts[1] == only(tested)


def test_seeds_that_all_agree_are_no_evidence() -> None:
    found = only(Comparison(row="chance", baseline=(10.0,) * 8, reshape=(10.0,) * 8))
    assert found.verdict is INCONCLUSIVE
    assert "no spread" in found.reason
    assert found.difference == 0
    assert (found.lower, found.upper, found.smallest_margin) == (None, None, None)


# --- several rows: Holm ---


def test_a_row_that_would_pass_alone_needs_more_in_a_table_of_two() -> None:
    barely = row(-0.5 + REACH + 0.001)
    assert only(barely).verdict is REPRODUCED
    together = decide([barely, barely], ACCURACY)
    assert [found.verdict for found in together] == [INCONCLUSIVE, INCONCLUSIVE]
    assert together[0].adjusted_p_non_inferior == pytest.approx(2 * required(only(barely).adjusted_p_non_inferior))
    assert [found.lower for found in together] == [only(barely).lower] * 2
    failing = row(-0.5 - REACH - 0.001)
    assert [found.verdict for found in decide([failing, failing], ACCURACY)] == [INCONCLUSIVE, INCONCLUSIVE]


def test_a_row_that_is_not_run_yet_still_counts_in_the_family() -> None:
    barely, waiting = row(-0.5 + REACH + 0.001), Comparison(row="waiting")
    assert [found.verdict for found in decide([barely, waiting], ACCURACY)] == [INCONCLUSIVE, INCONCLUSIVE]


def test_adjusted_p_values_agree_with_statsmodels() -> None:
    table = [row(difference, name=str(difference)) for difference in (-0.9, -0.4, -0.15, 0.0, 0.2)]
    raw_above, raw_below = [], []
    for comparison in table:
        means = CompareMeans(DescrStatsW(comparison.reshape), DescrStatsW(comparison.baseline))
        raw_above.append(means.ttest_ind(alternative="larger", usevar="unequal", value=-0.5)[1])
        raw_below.append(means.ttest_ind(alternative="smaller", usevar="unequal", value=-0.5)[1])
    found = decide(table, ACCURACY)
    assert [v.adjusted_p_non_inferior for v in found] == pytest.approx(multipletests(raw_above, method="holm")[1])
    assert [v.adjusted_p_inferior for v in found] == pytest.approx(multipletests(raw_below, method="holm")[1])
    assert [v.row for v in found] == [comparison.row for comparison in table]


differences = st.lists(st.integers(-150, 100).map(lambda hundredths: hundredths / 100), min_size=1, max_size=5)


@settings(max_examples=50, deadline=None)
@given(differences, st.sampled_from([0.5, 1.0, 2.0]))
def test_a_row_is_reproduced_exactly_when_its_smallest_margin_is_within_the_margin(
    levels: list[float], scale: float
) -> None:
    for found in decide([row(level, scale) for level in levels], ACCURACY):
        smallest = required(found.smallest_margin)
        assume(abs(smallest - ACCURACY_MARGIN) > 1e-6)
        assert (found.verdict is REPRODUCED) == (smallest < ACCURACY_MARGIN)
        assert smallest >= -required(found.lower) - 1e-9


@settings(max_examples=20, deadline=None)
@given(differences)
def test_the_verdict_turns_at_the_smallest_margin(levels: list[float]) -> None:
    table = [row(level) for level in levels]
    for place, found in enumerate(decide(table, ACCURACY)):
        turn = required(found.smallest_margin)
        assert decide(table, replace(ACCURACY, margin=turn + 1e-6))[place].verdict is REPRODUCED
        if turn > 1e-6:
            assert decide(table, replace(ACCURACY, margin=turn - 1e-6))[place].verdict is not REPRODUCED


@settings(max_examples=50, deadline=None)
@given(differences, st.integers(-40, 10))
def test_the_level_of_both_arms_and_the_sign_of_the_measure_do_not_matter(levels: list[float], shift: int) -> None:
    table = [row(level) for level in levels]
    shifted = [
        replace(c, baseline=tuple(np.add(c.baseline, shift)), reshape=tuple(np.add(c.reshape, shift))) for c in table
    ]
    turned = [replace(c, baseline=tuple(np.negative(c.baseline)), reshape=tuple(np.negative(c.reshape))) for c in table]
    found = decide(table, ACCURACY)
    assume(all(abs(required(v.smallest_margin) - ACCURACY_MARGIN) > 1e-6 for v in found))
    assert [v.verdict for v in decide(shifted, ACCURACY)] == [v.verdict for v in found]
    losses = decide(turned, replace(ACCURACY, higher_is_better=False))
    assert [v.verdict for v in losses] == [v.verdict for v in found]
    assert [v.upper for v in losses] == pytest.approx([-required(v.lower) for v in found])


def test_wrongly_reproduced_tables_are_as_rare_as_alpha_says() -> None:
    # five rows, each truly worse by exactly the margin: at most 5 % of tables may hold a "reproduced"
    generator = np.random.default_rng(3)
    wrong = 0
    for _ in range(200):
        draws = generator.normal([[85.0], [84.5]], 0.4, (5, 2, 8))
        p_values = [statistics.welch_difference(baseline, reshape).p_above(-0.5) for baseline, reshape in draws]
        table = [Comparison(row="row", baseline=tuple(b), reshape=tuple(r)) for b, r in draws.tolist()]
        found = any(verdict.verdict is REPRODUCED for verdict in decide(table, ACCURACY))
        assert found == (min(p_values) < 0.05 / 5)
        wrong += found
    assert wrong / 200 < 0.05 + 3 * (0.05 * 0.95 / 200) ** 0.5


# --- refusals ---


def test_an_empty_table_has_no_verdicts() -> None:
    assert decide([], ACCURACY) == []


@pytest.mark.parametrize("bad", [float("nan"), inf])
@pytest.mark.parametrize("field", ["baseline", "reshape"])
def test_a_value_that_is_not_finite_is_refused_with_its_row_and_arm(field: str, bad: float) -> None:
    arms: dict[str, Any] = {field: (85.0, bad)}
    with pytest.raises(BadInput, match=rf"^XCiT-M: {field} is .*diverged"):
        replace(row(0.0, name="XCiT-M"), **arms)


@pytest.mark.parametrize("field", ["baseline_diverged", "reshape_diverged"])
def test_a_negative_count_of_diverged_runs_is_refused(field: str) -> None:
    counts: dict[str, Any] = {field: -1}
    with pytest.raises(BadInput, match=rf"^XCiT-M: {field} is -1"):
        replace(row(0.0, name="XCiT-M"), **counts)


@pytest.mark.parametrize(
    ("field", "bad"),
    [
        ("declared_n", 1),
        ("margin", -0.5),
        ("margin", float("nan")),
        ("alpha", 0.0),
        ("alpha", 0.5),
        ("alpha", 5.0),
    ],
)
def test_a_rule_that_cannot_be_applied_is_refused(field: str, bad: Any) -> None:
    with pytest.raises(BadInput, match=rf"^{field} is"):
        replace(ACCURACY, **{field: bad})


def test_a_paired_rule_refuses_arms_of_different_lengths() -> None:
    full = row(0.0)
    with pytest.raises(BadInput, match="same 8 seeds"):
        decide([replace(full, reshape=full.reshape[:5])], replace(ACCURACY, method="paired"))
