"""Question 5, the edge: where more heads stop paying, with temperature, rank and capacity taken apart."""

from __future__ import annotations

from collections.abc import Iterator

from heads_for_depth.experiments.declaration import Declaration, map_budget_in_words
from heads_for_depth.experiments.map_grid import HEADS, VERDICT_DEPTHS, VERDICT_SEEDS, cell_run, cell_tuning, vit
from heads_for_depth.experiments.runs import PlannedRun
from heads_for_depth.interventions import NO_INTERVENTION, TEMPERATURE
from heads_for_depth.shapes import Shape

HEAD_DIM = 8
"""Width of a head where it is fixed: the inner width is d_model at 8 heads, a cell that the map holds already."""
EDGE_ROWS = ("tokens-17-fixed-temperature", "tokens-17-fixed-head-dim", "tokens-50")
"""The sweeps beside the map's own, in the order in which a seed visits them."""
SWEEP_HEADS = {
    "tokens-17-fixed-temperature": HEADS[:-1],
    "tokens-17-fixed-head-dim": tuple(heads for heads in HEADS[:-1] if heads != 8),
    "tokens-50": HEADS,
}
"""A fixed temperature needs head_dim 2 or more: of a single number only the sign has a direction."""

DECLARATION = Declaration(
    experiment="edge",
    hypothesis=(
        "There is a head count beyond which accuracy falls, and it depends on head_dim against the number of tokens: "
        "a head narrower than the sequence cannot form every attention pattern (Bhojanapalli et al. 2020)."
    ),
    rule=(
        "Per depth and sweep, every head count but the smallest is compared with the best smaller one, that of the "
        "highest mean test accuracy. It holds if the lower end of Welch's one-sided 95 % interval of the difference "
        "lies above −0.5 points; it breaks if the upper end lies below −0.5 points, or if one of its runs diverged "
        "or ran out of memory, and then it is no best smaller one either; else it is undetermined. No correction "
        "over head counts. The edge is the largest head count that holds, or the smallest of the sweep if none does. "
        "A sweep reads: none within the range, if its largest count holds; breaks, if every count beyond the edge "
        "breaks; else undetermined beyond the edge. The interval of the edge is a 95 % percentile bootstrap over the "
        f"seeds of the cells. Seeds 0 to {VERDICT_SEEDS - 1} in every cell of the sweep, else the reading is an "
        "observation. The sweep of 17 tokens with free temperature and fixed d_model is the map's own. Read across "
        "sweeps, at one depth: a break that a fixed temperature takes away speaks for the sharpness of attention; "
        "one that a fixed head_dim takes away speaks for the width of a head or for the capacity that grows with it, "
        "which this sweep does not part; a head count that holds with 17 tokens and breaks with 50 speaks for "
        "head_dim against length."
    ),
    grid=(
        f"ViT of the map at depths {' and '.join(map(str, sorted(VERDICT_DEPTHS)))}. 50 tokens (patch 4): heads "
        f"{', '.join(map(str, HEADS))}. 17 tokens with logits of {TEMPERATURE:g} times the cosine of query and key, so "
        "that the largest logit is the same at every head_dim while the spread of random directions grows as head_dim "
        f"falls: heads {', '.join(map(str, HEADS[:-1]))}. 17 tokens with head_dim {HEAD_DIM}, so that the inner width "
        f"grows from {HEAD_DIM} to {HEAD_DIM * HEADS[-2]}: the same heads, those of the map at 8. "
        f"{VERDICT_SEEDS} seeds."
    ),
    budget=map_budget_in_words("The rate is chosen per cell"),
    expected=(
        "At 17 tokens no edge, or one at head_dim 1 to 2; at 50 tokens an earlier one if the low-rank bottleneck acts "
        "at this scale. At fixed head_dim accuracy rises with the inner width, since parameters grow."
    ),
)


def sweep_shape(row: str, depth: int, heads: int) -> Shape:
    """The shape of one cell of a sweep."""
    head_dim = HEAD_DIM if row == "tokens-17-fixed-head-dim" else None
    return vit(depth, heads, head_dim=head_dim, patch_size=4 if row == "tokens-50" else 7)


def sweep_intervention(row: str) -> str:
    """What is changed in the attention of a sweep's cells."""
    return "fixed-temperature" if row == "tokens-17-fixed-temperature" else NO_INTERVENTION


def edge_cells(profile: str) -> Iterator[tuple[str, int, int]]:
    """(sweep, depth, heads) in the order in which a seed visits them; smoke has one depth and two head counts."""
    for row in EDGE_ROWS:
        for depth in (1,) if profile == "smoke" else VERDICT_DEPTHS:
            yield from ((row, depth, heads) for heads in ((1, 4) if profile == "smoke" else SWEEP_HEADS[row]))


def edge_tuning(profile: str) -> list[PlannedRun]:
    """The tuning runs of every cell."""
    return [
        run
        for row, depth, heads in edge_cells(profile)
        for run in cell_tuning(DECLARATION, row, sweep_shape(row, depth, heads), profile, sweep_intervention(row))
    ]


def edge_runs(profile: str, seeds: int) -> list[PlannedRun]:
    """Every cell, seed by seed up to the declared ones."""
    return [
        cell_run(DECLARATION, row, sweep_shape(row, depth, heads), profile, seed, sweep_intervention(row))
        for seed in range(min(seeds, VERDICT_SEEDS))
        for row, depth, heads in edge_cells(profile)
    ]
