"""From the seeds of a table's rows to its verdicts, by a rule that is fixed before any result is seen.

The first line that applies decides:

1. The row cannot be run at this scale: `not testable here`. It is no member of the Holm family.
2. Either arm has fewer runs than declared (a diverged run counts as a run): `inconclusive`.
3. A baseline run diverged: `inconclusive`, for there is no sound level to hold.
4. A reshape run diverged: never reproduced. `not reproduced at reduced scale` if a one-sided rank test, in which a
   diverged run ranks below every finished one, shows the reshape worse by more than the margin; else `inconclusive`.
5. A one-sided t test shows that the reshape is not worse by the margin: `reproduced at reduced scale`.
6. A one-sided t test shows that it is worse by more than the margin: `not reproduced at reduced scale`.
7. Otherwise: `inconclusive`.

Over the rows of a table, test 5 is held to alpha by Holm's procedure, and so are tests 4 and 6 together. A row that can
be run but has no test yet stays in both families with p = 1.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import isfinite

import numpy as np

from heads_for_depth.errors import BadInput
from heads_for_depth.statistics import Array, Difference, Method, compare, holm, inferior_by_rank_p

ACCURACY_MARGIN = 0.5
"""Percentage points of test accuracy that a reshape may lose and still hold its baseline's level."""

LOSS_MARGIN = 0.02
"""Nats of test loss that a reshape may gain and still hold its baseline's level."""

VISION_METHOD: Method = "welch"
"""The interval declared for the vision rows: pairing by seed brings nothing across different depths."""

BISECTIONS = 32
"""Halvings of a bracket that is at most a few points wide: the smallest margin is good to about 1e-9."""


class ReducedScaleVerdict(StrEnum):
    """What a comparison at reduced scale says about a published row."""

    REPRODUCED = "reproduced at reduced scale"
    NOT_REPRODUCED = "not reproduced at reduced scale"
    INCONCLUSIVE = "inconclusive"
    NOT_TESTABLE = "not testable here"


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """What is declared before any run: it decides every row of one table alike."""

    declared_n: int
    """Runs per arm below which no verdict is drawn; at least 2."""
    margin: float
    """The loss of level that still counts as holding it, in the measure's unit (points or nats)."""
    higher_is_better: bool
    """True for accuracy, false for a loss."""
    method: Method
    """How the seeds of the two arms are compared."""
    alpha: float = 0.05
    """The chance, over the whole table, of one wrong "reproduced", and likewise of one wrong "not reproduced"."""

    def __post_init__(self) -> None:
        if self.declared_n < 2:
            raise BadInput("declared_n", self.declared_n, "declare at least 2 runs per arm")
        if not (isfinite(self.margin) and self.margin >= 0):
            raise BadInput("margin", self.margin, "give a finite margin that is not negative")
        if not 0 < self.alpha < 0.5:
            raise BadInput("alpha", self.alpha, "give a fraction between 0 and 0.5, such as 0.05")


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """One row of a table: the values of its finished runs, in the order of their seeds, and how many runs diverged."""

    row: str
    baseline: tuple[float, ...] = ()
    reshape: tuple[float, ...] = ()
    baseline_diverged: int = 0
    reshape_diverged: int = 0
    obstacle: str | None = None
    """Why the row cannot be run at this scale, as a sentence; None where it can."""

    def __post_init__(self) -> None:
        for field in ("baseline", "reshape"):
            values = tuple(float(value) for value in getattr(self, field))
            if not all(isfinite(value) for value in values):
                raise BadInput(f"{self.row}: {field}", values, "give finite values; count a diverged run as diverged")
            object.__setattr__(self, field, values)
        for field in ("baseline_diverged", "reshape_diverged"):
            if getattr(self, field) < 0:
                raise BadInput(f"{self.row}: {field}", getattr(self, field), "count the diverged runs from 0")

    @property
    def baseline_n(self) -> int:
        """All runs of the baseline, finished or diverged."""
        return len(self.baseline) + self.baseline_diverged

    @property
    def reshape_n(self) -> int:
        """All runs of the reshape, finished or diverged."""
        return len(self.reshape) + self.reshape_diverged

    @property
    def n(self) -> int:
        """The runs of the smaller arm."""
        return min(self.baseline_n, self.reshape_n)

    @property
    def diverged(self) -> bool:
        """Whether any run of either arm diverged, so that the arm has no mean."""
        return self.baseline_diverged + self.reshape_diverged > 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """A row's verdict with all that it rests on; None where the runs do not give the number."""

    row: str
    verdict: ReducedScaleVerdict
    reason: str
    """One sentence, without measured numbers."""
    difference: float | None
    """Mean of reshape minus baseline in the measure's own direction (a positive loss difference is worse)."""
    lower: float | None
    """Lower end of the one-sided (1 - alpha) interval of the difference, for this row alone."""
    upper: float | None
    """Upper end of the one-sided (1 - alpha) interval; with `lower` a two-sided (1 - 2 alpha) interval."""
    n: int
    """Runs of the smaller arm, finished or diverged."""
    declared_n: int
    margin: float
    smallest_margin: float | None
    """The margin above which this row would read "reproduced" were it the whole table's margin, Holm included.
    Below the declared n it says what these few runs would give."""
    adjusted_p_non_inferior: float | None
    """Holm-adjusted; null hypothesis: worse by the margin or more. Below alpha: reproduced."""
    adjusted_p_inferior: float | None
    """Holm-adjusted; null hypothesis: not worse by more than the margin. Below alpha: not reproduced."""


@dataclass(frozen=True, kw_only=True, slots=True)
class _Test:
    """What the runs of one row give before the rule reads them; p-values are Holm-adjusted."""

    advantage: Difference | None = None
    p_non_inferior: float | None = None
    p_inferior: float | None = None
    smallest_margin: float | None = None


def decide(comparisons: Sequence[Comparison], rule: Rule) -> list[Verdict]:
    """The verdicts of one table's rows, in their order; `BadInput` where paired arms differ in length."""
    family = [comparison for comparison in comparisons if comparison.obstacle is None]
    tests = iter(_tests(family, rule))
    return [
        _verdict(comparison, next(tests) if comparison.obstacle is None else _Test(), rule, len(family))
        for comparison in comparisons
    ]


def _verdict(comparison: Comparison, test: _Test, rule: Rule, rows: int) -> Verdict:
    verdict, reason = _ruling(comparison, test, rule, rows)
    lower, upper = _bounds(test.advantage, rule)
    return Verdict(
        row=comparison.row,
        verdict=verdict,
        reason=reason,
        difference=_mean_difference(comparison),
        lower=lower,
        upper=upper,
        n=comparison.n,
        declared_n=rule.declared_n,
        margin=rule.margin,
        smallest_margin=test.smallest_margin,
        adjusted_p_non_inferior=test.p_non_inferior,
        adjusted_p_inferior=test.p_inferior,
    )


def _ruling(comparison: Comparison, test: _Test, rule: Rule, rows: int) -> tuple[ReducedScaleVerdict, str]:
    """The documented rule, line by line."""
    if comparison.obstacle is not None:
        return ReducedScaleVerdict.NOT_TESTABLE, comparison.obstacle
    if comparison.n < rule.declared_n:
        return ReducedScaleVerdict.INCONCLUSIVE, f"n = {comparison.n} of the declared {rule.declared_n}"
    if comparison.diverged:
        return _ruling_after_divergence(comparison, test, rule)
    tested = f"(margin {rule.margin:g}, one-sided t test, Holm over the table's {rows} rows, n = {comparison.n})"
    if test.p_non_inferior is None or test.p_inferior is None:
        return ReducedScaleVerdict.INCONCLUSIVE, "the seeds show no spread, so the difference has no interval"
    if test.p_non_inferior < rule.alpha:
        return ReducedScaleVerdict.REPRODUCED, f"the reshape holds the baseline's level {tested}"
    if test.p_inferior < rule.alpha:
        return ReducedScaleVerdict.NOT_REPRODUCED, f"the reshape falls short of the baseline's level {tested}"
    return ReducedScaleVerdict.INCONCLUSIVE, f"neither holding the baseline's level nor losing it is shown {tested}"


def _ruling_after_divergence(comparison: Comparison, test: _Test, rule: Rule) -> tuple[ReducedScaleVerdict, str]:
    if comparison.baseline_diverged:
        count = f"{comparison.baseline_diverged} of {comparison.baseline_n} baseline runs diverged"
        return ReducedScaleVerdict.INCONCLUSIVE, f"{count}, so there is no sound level to hold"
    count = f"{comparison.reshape_diverged} of {comparison.reshape_n} reshape runs diverged and no baseline run did"
    if test.p_inferior is not None and test.p_inferior < rule.alpha:
        return ReducedScaleVerdict.NOT_REPRODUCED, f"{count}, and by rank it falls short by more than the margin"
    return ReducedScaleVerdict.INCONCLUSIVE, f"{count}: not a level that holds, but too few to show that it is lost"


def _tests(family: Sequence[Comparison], rule: Rule) -> list[_Test]:
    """One test per row of the Holm family."""
    advantages = [_advantage(comparison, rule) for comparison in family]
    pairs = list(zip(family, advantages, strict=True))
    inferior = [_inferior_p(comparison, advantage, rule) for comparison, advantage in pairs]
    adjusted_inferior = holm([1.0 if p is None else p for p in inferior])
    adjusted_non_inferior = _non_inferior_p(advantages, rule.margin)
    return [
        _Test(
            advantage=advantage,
            p_non_inferior=None if advantage is None else float(adjusted_non_inferior[place]),
            p_inferior=None if inferior[place] is None else float(adjusted_inferior[place]),
            smallest_margin=None if advantage is None else _smallest_margin(advantages, place, rule.alpha),
        )
        for place, advantage in enumerate(advantages)
    ]


def _advantage(comparison: Comparison, rule: Rule) -> Difference | None:
    """The t distribution of the reshape's advantage; None if a run diverged or the runs give no spread."""
    if comparison.diverged or comparison.n < 2:
        return None
    difference = compare(comparison.baseline, comparison.reshape, rule.method)
    return difference.advantage(higher_is_better=rule.higher_is_better) if difference.standard_error else None


def _non_inferior_p(advantages: Sequence[Difference | None], margin: float) -> Array:
    """Holm-adjusted p-values of "worse by the margin or more", one per row."""
    return holm([1.0 if advantage is None else advantage.p_above(-margin) for advantage in advantages])


def _inferior_p(comparison: Comparison, advantage: Difference | None, rule: Rule) -> float | None:
    """The raw p-value of "not worse by more than the margin", by ranks after a divergence; None if there is no test."""
    if advantage is not None:
        return advantage.p_below(-rule.margin)
    if comparison.baseline_diverged or not comparison.reshape_diverged or comparison.baseline_n < 2:
        return None
    return inferior_by_rank_p(
        comparison.baseline,
        comparison.reshape,
        comparison.reshape_diverged,
        rule.margin,
        higher_is_better=rule.higher_is_better,
    )


def _smallest_margin(advantages: Sequence[Difference | None], place: int, alpha: float) -> float:
    """The least margin, common to all rows, at which this row's adjusted p reaches alpha: bisected, floored at 0.

    It lies between the row's own bound and its Bonferroni bound, for adjusted p-values fall as the margin grows.
    """
    own = advantages[place]
    assert own is not None
    low, high = -own.lower_bound(1 - alpha), -own.lower_bound(1 - alpha / len(advantages))
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        if _non_inferior_p(advantages, middle)[place] > alpha:
            low = middle
        else:
            high = middle
    return max(0.0, high)


def _bounds(advantage: Difference | None, rule: Rule) -> tuple[float | None, float | None]:
    """The one-sided bounds of reshape minus baseline, in the measure's own direction."""
    if advantage is None:
        return None, None
    difference = advantage.advantage(higher_is_better=rule.higher_is_better)
    return difference.lower_bound(1 - rule.alpha), difference.upper_bound(1 - rule.alpha)


def _mean_difference(comparison: Comparison) -> float | None:
    if comparison.diverged or comparison.n == 0:
        return None
    return float(np.mean(comparison.reshape) - np.mean(comparison.baseline))
