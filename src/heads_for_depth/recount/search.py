"""Which changes of a stated shape print the published count, and how many would by chance."""

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from itertools import combinations

from heads_for_depth.claims import Printed
from heads_for_depth.errors import BadInput
from heads_for_depth.recount.counts import Countable, Variant, exact_count, fast_count
from heads_for_depth.recount.language import MILLION
from heads_for_depth.recount.rules import Axis, axes
from heads_for_depth.recount.words import Changes, changed_fields, describe

MOST_CHANGES = 3
SHOWN = 5
"""How many rules are described, of those that print the number and of the nearest others."""
NEIGHBOURHOOD = 0.1
"""Chance is judged from the rules whose count lies within this share of the published number."""
CHANCE_THAT_EXPLAINS = 0.1
"""Expected chance hits below which a hit counts as an explanation."""

Counted = tuple[Variant, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """A change of the stated shape and what it counts; the count is that of the model itself."""

    changes: int
    """Number of changed quantities."""
    words: tuple[str, ...]
    """The changes, each with the stated value."""
    fields: Changes
    """Changed fields of the shape: stated value and the rule's."""
    variant: Variant
    count: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Level:
    """All rules with the same number of changes."""

    changes: int
    rules: int
    """Distinct shapes that were counted."""
    hits: int
    """How many of them print the published number."""
    expected_by_chance: float
    """How many would, were the counts of the others near the published number spread evenly there."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Search:
    """The outcome for one side of one row; it ends with the first number of changes that has a hit."""

    levels: tuple[Level, ...]
    hits: tuple[Rule, ...]
    """Rules that print the number, nearest first, at most SHOWN of them."""
    nearest: tuple[Rule, ...]
    """The nearest rules that do not print it, at most SHOWN of them."""

    @property
    def rules(self) -> int:
        """Distinct shapes that were counted, over all levels."""
        return sum(level.rules for level in self.levels)

    @property
    def expected_by_chance(self) -> float:
        """Hits that chance would have given up to where the search ended."""
        return sum(level.expected_by_chance for level in self.levels)

    @property
    def beyond_chance(self) -> bool:
        """Whether the hits explain the number: chance alone would hardly have given one."""
        return bool(self.hits) and self.expected_by_chance < CHANCE_THAT_EXPLAINS

    @property
    def best(self) -> Rule | None:
        """The nearest of the simplest rules that print the number; None where nothing within the search does."""
        return self.hits[0] if self.hits else None


def search(stated: Countable, other: Countable | None, published: Printed) -> Search:
    """Look for one change of the stated shape that prints the published millions, then for two, then for three.

    A change is one of: depth of a stage, MLP width, attention inner width, d_model (MLP ratio kept), TNT's inner
    d_model. MLP and attention change with or without the class-attention blocks in families that have them.
    """
    all_axes, seen = axes(stated, other), {Variant(shape=stated)}
    levels: list[Level] = []
    hits: list[Rule] = []
    misses: list[tuple[int, Counted]] = []
    for changes in range(1, MOST_CHANGES + 1):
        counted = sorted(_counted(stated, all_axes, changes, seen), key=lambda pair: _distance(pair, published))
        printing = [pair for pair in counted if _prints(pair, published)]
        levels.append(_level(changes, counted, printing, published))
        misses += [(changes, pair) for pair in counted[: len(printing) + SHOWN] if not _prints(pair, published)]
        hits = [_rule(stated, other, changes, pair) for pair in printing[:SHOWN]]
        if hits:
            break
    nearest = sorted(misses, key=lambda miss: _distance(miss[1], published))[:SHOWN]
    rules = tuple(_rule(stated, other, changes, pair) for changes, pair in nearest)
    return Search(levels=tuple(levels), hits=tuple(hits), nearest=rules)


def _counted(stated: Countable, all_axes: list[Axis], changes: int, seen: set[Variant]) -> Iterator[Counted]:
    """Every new shape with that many changes that exists, with its count; adds them to `seen`."""
    for chosen in combinations(all_axes, changes):
        for variant in variants_of(Variant(shape=stated), chosen):
            if variant in seen:
                continue
            seen.add(variant)
            try:
                yield variant, fast_count(variant)
            except BadInput:  # the family has no such model
                continue


def variants_of(start: Variant, chosen: tuple[Axis, ...]) -> Iterator[Variant]:
    """Every combination of one alternative per axis that gives whole widths and divisible heads."""
    if not chosen:
        yield start
        return
    for change in chosen[0].changes:
        try:
            changed = change(start)
        except ValueError:  # a width that is no whole number, or BadInput: no such shape
            continue
        yield from variants_of(changed, chosen[1:])


def _level(changes: int, counted: list[Counted], printing: list[Counted], published: Printed) -> Level:
    window, bin_width = 2 * NEIGHBOURHOOD * published.value, float(published.unit)
    near = sum(_distance(pair, published) <= window / 2 for pair in counted) - len(printing)
    chance = near * bin_width / (window - bin_width) if window > bin_width else float("nan")
    return Level(changes=changes, rules=len(counted), hits=len(printing), expected_by_chance=chance)


def _rule(stated: Countable, other: Countable | None, changes: int, pair: Counted) -> Rule:
    variant, count = pair
    built = exact_count(variant)
    if built != count:
        raise ArithmeticError(f"the search counted {count} parameters where the model has {built}: {variant}")
    words, changed = describe(stated, other, variant), changed_fields(stated, variant)
    return Rule(changes=changes, words=words, fields=changed, variant=variant, count=built)


def _distance(pair: Counted, published: Printed) -> float:
    return abs(pair[1] / MILLION - published.value)


def _prints(pair: Counted, published: Printed) -> bool:
    return published.prints(Decimal(pair[1]) / MILLION)
