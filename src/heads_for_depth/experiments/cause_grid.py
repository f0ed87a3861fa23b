"""Question 6: interventions that move κ at unchanged heads, and the controls beside them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from heads_for_depth.experiments.declaration import Declaration, map_budget_in_words
from heads_for_depth.experiments.map_grid import D_MODEL, OTHER_SEEDS, VERDICT_SEEDS, cell_run, cell_tuning, vit
from heads_for_depth.experiments.runs import PlannedRun
from heads_for_depth.interventions import ILL_CONDITION, NO_INTERVENTION, SHIFT
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import budget
from heads_for_depth.shapes import Shape

DEEP, SHALLOW, RESHAPE = (6, 8), (3, 8), (3, 32)
"""(depth, heads) of the baseline, of less depth alone, and of the reshape; the map trains all three."""
PLAIN_SHAPES = {"deep": DEEP, "shallow": SHALLOW, "reshape": RESHAPE}
LOWERING = ("spectral-shift", "orthogonal-init", "head-norm")
"""Interventions that are meant to lower κ at unchanged heads."""
RAISING = "ill-conditioned-init"
"""The intervention that is meant to raise κ at many heads."""
RATES = (5e-4, 1e-3, 2e-3, 4e-3, 8e-3)
"""Peak learning rates of the control sweep, the same for all three shapes."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CauseArm:
    """One arm: a shape, and what is changed in it."""

    row: str
    depth: int
    heads: int
    intervention: str = NO_INTERVENTION
    mlp_width: int = 4 * D_MODEL

    @property
    def shape(self) -> Shape:
        """The shape that is built."""
        return vit(self.depth, self.heads, mlp_width=self.mlp_width)


def equal_mlp_width() -> int:
    """MLP width at which the shallow shape comes nearest to the parameters of the deep one."""
    target, plain = (count_parameters(vit(*shape)) for shape in (DEEP, SHALLOW))
    one_wider = count_parameters(vit(*SHALLOW, mlp_width=4 * D_MODEL + 1)) - plain
    return 4 * D_MODEL + round((target - plain) / one_wider)


def _arm(shape: tuple[int, int], intervention: str) -> CauseArm:
    return CauseArm(row=intervention, depth=shape[0], heads=shape[1], intervention=intervention)


def cause_arms() -> list[CauseArm]:
    """Every arm that the map does not train already, in the order in which a seed visits them."""
    wide = CauseArm(row="wide-mlp", depth=SHALLOW[0], heads=SHALLOW[1], mlp_width=equal_mlp_width())
    return [
        *(_arm(SHALLOW, name) for name in LOWERING),
        _arm(RESHAPE, RAISING),
        wide,
        *(_arm(shape, "res-post-norm") for shape in (DEEP, SHALLOW, RESHAPE)),
        *(_arm(DEEP, name) for name in LOWERING),
    ]


DECLARATION = Declaration(
    experiment="cause",
    hypothesis=(
        "If a lower condition number is why more heads let depth drop, then lowering κ as far by other means at "
        "unchanged heads lets depth drop as well."
    ),
    rule=(
        "Deep: depth 6, heads 8. Shallow: depth 3, heads 8. Reshape: depth 3, heads 32. κ is that of the "
        "concatenated heads after the middle epoch, median over layers; its logarithm is compared, an infinite κ "
        "taken as 1e16. The first that applies decides. (1) Inconclusive, if the deep, shallow or reshape arm or a "
        f"lowering intervention on the shallow shape lacks one of seeds 0 to {VERDICT_SEEDS - 1} or has a run that "
        "diverged or ran out of memory. (2) Inconclusive, unless deep is better than shallow, and reshape better "
        "than shallow (test accuracy, Welch's one-sided 95 %), and κ of the reshape below κ of shallow (two-sided 95 "
        "% Welch interval of the difference below zero). (3) An intervention counts if it lowered κ of the shallow "
        "shape (interval below zero) at least as far as the heads do (mean log κ not above the reshape's). "
        "Inconclusive, if none counts. (4) Conditioning suffices, if every intervention that counts makes the "
        "shallow shape non-inferior to deep (one-sided 95 % Welch, margin 0.5 points, Holm over those that count) "
        "and better than plain shallow (one-sided 95 %, Holm likewise). (5) Conditioning does not suffice, if every "
        "intervention that counts leaves the shallow shape worse than the reshape (one-sided 95 %, each of them). "
        "(6) Else inconclusive. The accuracy of an intervention whose κ did not move as intended (interval on the "
        "intended side of zero) is shown as not read. The raising intervention, the deep shape with the lowering "
        "ones, the wider MLP, the norms after and the learning rates are shown with intervals and carry no verdict. "
        "Rank correlation (Spearman's) of κ before training and after the middle epoch with final test loss, over "
        "all finished runs of the map at its own budget: within cells, which is read first, and partial, linear in "
        "ranks, given depth, heads and parameters; 95 % percentile bootstrap that draws cells and seeds, since the "
        "cells of a seed share its random numbers; no verdict."
    ),
    grid=(
        "ViT of the map. Shallow and deep with: a spectral shift (singular values of the head outputs raised to "
        f"{SHIFT:g} of the largest), orthogonal value and output weights at the start, head outputs of unit root mean "
        f"square. Reshape with value weights of condition number {ILL_CONDITION:,.0f} at the start. Controls: the "
        f"shallow shape with an MLP of {equal_mlp_width()} at the deep shape's parameters; all three shapes with the "
        f"norms after (timm's ResPostBlock); all three at peak learning rates "
        f"{', '.join(f'{rate:g}' for rate in RATES)}. {VERDICT_SEEDS} seeds, {OTHER_SEEDS} in the sweep of "
        "learning rates."
    ),
    budget=map_budget_in_words("The rate is chosen per arm, except in the sweep of learning rates,"),
    expected=(
        "The spectral shift bounds κ by its construction. From the literature on conditioning a gain of a few tenths "
        "of a point; whether it replaces layers is open."
    ),
)
RATE_ROW = "rate-"


def _arms(profile: str) -> list[CauseArm]:
    """The arms of a profile; smoke takes one layer off and keeps few heads, one arm per kind of change."""
    if profile != "smoke":
        return cause_arms()
    small = [replace(arm, depth=1, heads=4) for arm in cause_arms() if arm.depth == SHALLOW[0]]
    return list({arm.row: replace(arm, mlp_width=min(arm.mlp_width, 300)) for arm in small}.values())


def cause_tuning(profile: str) -> list[PlannedRun]:
    """The tuning runs of every arm."""
    return [
        run for arm in _arms(profile) for run in cell_tuning(DECLARATION, arm.row, arm.shape, profile, arm.intervention)
    ]


def cause_runs(profile: str, seeds: int) -> list[PlannedRun]:
    """Every arm seed by seed up to the declared ones, and the learning rates after the arms of a seed."""
    return [run for seed in range(min(seeds, VERDICT_SEEDS)) for run in _one_seed(profile, seed)]


def _one_seed(profile: str, seed: int) -> Iterator[PlannedRun]:
    for arm in _arms(profile):
        yield cell_run(DECLARATION, arm.row, arm.shape, profile, seed, arm.intervention)
    if seed < OTHER_SEEDS:
        yield from _rates(profile, seed)


def _rates(profile: str, seed: int) -> Iterator[PlannedRun]:
    """The three shapes at every learning rate of the control; smoke has one shape and two rates."""
    shapes, rates = (((1, 4),), RATES[:2]) if profile == "smoke" else ((DEEP, SHALLOW, RESHAPE), RATES)
    recipe = budget(profile).map.recipe
    for shape in shapes:
        for rate in rates:
            row = f"{RATE_ROW}{rate:g}"
            planned = cell_run(DECLARATION, row, vit(*shape), profile, seed)
            yield replace(planned, recipe=recipe.with_learning_rate(rate), tuned_by=())
