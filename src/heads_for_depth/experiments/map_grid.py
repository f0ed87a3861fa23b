"""Question 5: the depth × heads map of a small ViT at fixed d_model, and its declaration."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heads_for_depth.experiments.declaration import Declaration, map_budget_in_words
from heads_for_depth.experiments.runs import PlannedRun
from heads_for_depth.interventions import NO_INTERVENTION
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import Recipe, budget
from heads_for_depth.shapes import Shape

D_MODEL = 64
DEPTHS = (1, 2, 3, 4, 6, 8, 12)
HEADS = (1, 2, 4, 8, 16, 32, 64)
"""Every power of two up to d_model: head_dim goes from 64 to 1."""
VERDICT_DEPTHS = (6, 3)
"""Depths at which verdicts are drawn: a baseline and half of it."""
FIRST_DEPTHS = (6, 3, 12, 1, 2, 4, 8)
"""Order in which a seed visits the depths, so that a partial map answers the main question first."""
VERDICT_SEEDS, OTHER_SEEDS = 8, 3
TWICE_HEADS = (8, 32)
"""Head counts of the columns that are also trained for twice the budget."""
TUNING_SEED = 1_000
"""Seed of the tuning runs; disjoint from the seeds 0, 1, 2, … of the tables."""

DECLARATION = Declaration(
    experiment="map",
    hypothesis=(
        "Heads buy layers: at fixed d_model and MLP width, test loss falls with depth and with the head count, so that "
        "a shallower model with more heads reaches the loss of a deeper one with fewer."
    ),
    rule=(
        "The reshapes (depth 3, heads 16) and (depth 3, heads 32) against (depth 6, heads 8): test accuracy, Welch's "
        f"one-sided 95 % interval, margin 0.5 points, Holm over the two, {VERDICT_SEEDS} seeds per arm (seeds 0 to "
        f"{VERDICT_SEEDS - 1}, no more and no fewer), else inconclusive. A run that diverged or ran out of memory: of "
        "the baseline, inconclusive; of a reshape, never reproduced, and not reproduced only if a rank test in which "
        "such a run ranks last shows it worse by more than the margin. Against depth 6 with as many heads as the "
        "reshape, and for less depth alone, the difference is shown with its interval and carries no verdict. The "
        "exchange rate is read off mean test loss and carries no verdict: from (depth L, heads h) to the next "
        "smaller depth of the grid, the doublings of heads at which that depth first reaches the same loss, going "
        "from few heads to many, interpolated linearly in the logarithm of the heads, over the layers given up. "
        "Where the smallest head count has the loss already, the number is an upper bound; where none has, it is not "
        f"reached. It needs {OTHER_SEEDS} finished seeds in the cell and in every cell of the smaller depth. Its "
        "interval is a 95 % percentile bootstrap of the cells' means from residuals pooled over the map, nominal at "
        "these seed counts; the residuals are taken as independent though the cells of a seed share the order of the "
        "images."
    ),
    grid=(
        f"ViT of timm, d_model {D_MODEL}, MLP width {4 * D_MODEL}, 28 px, patch 7 (17 tokens): depth "
        f"{', '.join(map(str, DEPTHS))} × heads {', '.join(map(str, HEADS))}. {VERDICT_SEEDS} seeds at depths "
        f"{' and '.join(map(str, sorted(VERDICT_DEPTHS)))}, {OTHER_SEEDS} elsewhere. The columns of "
        f"{' and '.join(map(str, TWICE_HEADS))} heads once more at twice the epochs and the same rates, {OTHER_SEEDS} "
        "seeds."
    ),
    budget=map_budget_in_words("The rate is chosen per cell"),
    expected=(
        "Accuracy rises with depth and with heads, by less from doubling to doubling; few heads cost more at small "
        "depth. If conditioning is the mechanism, the rise follows κ, which falls mostly over the first doublings."
    ),
)


def vit(
    depth: int, heads: int, *, head_dim: int | None = None, mlp_width: int = 4 * D_MODEL, patch_size: int = 7
) -> Shape:
    """A ViT of the map's family; patch 7 gives 17 tokens, patch 4 gives 50."""
    return Shape(
        family="vit", depth=(depth,), d_model=(D_MODEL,), heads=(heads,), mlp_width=(mlp_width,),
        head_dim=None if head_dim is None else (head_dim,), image_size=28, patch_size=patch_size, in_chans=1,
        classes=10,
    )  # fmt: skip


def cell_name(row: str, depth: int, heads: int) -> str:
    """Name of a cell inside run ids."""
    return f"{row}.depth-{depth}.heads-{heads}"


def cell_tuning(
    declaration: Declaration, row: str, shape: Shape, profile: str, intervention: str = NO_INTERVENTION
) -> list[PlannedRun]:
    """The tuning runs of one cell, one per learning rate of the profile."""
    money = budget(profile).map
    name = cell_name(row, shape.depth[0], shape.heads[0])
    return [
        PlannedRun(
            experiment=f"{declaration.experiment}_tuning", run_id=f"{name}.rate-{rate:g}", kind="train",
            profile=profile, row=row, shape=shape, parameters=count_parameters(shape), seed=TUNING_SEED,
            intervention=intervention, recipe=money.tuning.with_learning_rate(rate), declaration=declaration.digest,
        )
        for rate in money.learning_rates
    ]  # fmt: skip


def cell_run(
    declaration: Declaration, row: str, shape: Shape, profile: str, seed: int, intervention: str = NO_INTERVENTION
) -> PlannedRun:
    """One run of one cell, at the learning rate that the cell's tuning runs choose."""
    tuning = cell_tuning(declaration, row, shape, profile, intervention)
    return PlannedRun(
        experiment=declaration.experiment, kind="train", profile=profile, row=row, shape=shape,
        run_id=f"{cell_name(row, shape.depth[0], shape.heads[0])}.seed-{seed}", parameters=count_parameters(shape),
        seed=seed, recipe=budget(profile).map.recipe, tuned_by=tuple(run.run_id for run in tuning),
        intervention=intervention, kappa_times="middle", premises=True, declaration=declaration.digest,
    )  # fmt: skip


MAP_ROW, TWICE_ROW = "tokens-17", "tokens-17-twice"


def map_cells(profile: str) -> list[tuple[int, int]]:
    """(depth, heads) of the map in the order in which a seed visits them; smoke has four of them."""
    depths, heads = ((2, 1), (1, 4)) if profile == "smoke" else (FIRST_DEPTHS, HEADS)
    return [(depth, count) for depth in depths for count in heads]


def map_tuning(profile: str) -> list[PlannedRun]:
    """The tuning runs of every cell."""
    shapes = [vit(*cell) for cell in map_cells(profile)]
    return [run for shape in shapes for run in cell_tuning(DECLARATION, MAP_ROW, shape, profile)]


def map_runs(profile: str, seeds: int) -> list[PlannedRun]:
    """Every cell seed by seed up to the declared ones, the columns at twice the epochs at the end of a seed."""
    return [run for seed in range(min(seeds, VERDICT_SEEDS)) for run in _one_seed(profile, seed)]


def _one_seed(profile: str, seed: int) -> Iterator[PlannedRun]:
    for depth, heads in map_cells(profile):
        if seed < OTHER_SEEDS or depth in VERDICT_DEPTHS:
            yield cell_run(DECLARATION, MAP_ROW, vit(depth, heads), profile, seed)
    if seed < OTHER_SEEDS:
        yield from (_twice(run) for run in _columns(profile, seed))


def _columns(profile: str, seed: int) -> Iterator[PlannedRun]:
    columns = (4,) if profile == "smoke" else TWICE_HEADS
    cells = [cell for cell in map_cells(profile) if cell[1] in columns]
    yield from (cell_run(DECLARATION, MAP_ROW, vit(*cell), profile, seed) for cell in cells)


def _twice(run: PlannedRun) -> PlannedRun:
    """The same cell, rate and seed for twice the epochs."""
    assert run.recipe, "a cell has a recipe"
    recipe: Recipe = replace(run.recipe, epochs=2 * run.recipe.epochs)
    name = cell_name(TWICE_ROW, run.shape.depth[0], run.shape.heads[0])
    return replace(run, row=TWICE_ROW, run_id=f"{name}.seed-{run.seed}", recipe=recipe)
