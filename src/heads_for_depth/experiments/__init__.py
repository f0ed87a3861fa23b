"""Question -> the full grid of planned runs, declared before any of them is run.

vision_rows     Question 3. Expected if the claim holds at reduced scale: at every row the reshape (depth after, heads
                after) is non-inferior to the published shape's reduction. Rule, fixed here: test accuracy, Welch's
                one-sided 95 % interval, margin 0.5 points, Holm over the rows, eight seeds per arm, else inconclusive.
                Learning rate per cell by vision_tuning. On two CPU cores the `cpu` profile takes about half an hour
                per seed of all cells.
vision_tuning   The learning rate of every cell of vision_rows, one tuning seed, validation accuracy only.
vision_rows_keep_heads, vision_tuning_keep_heads
                The same rows, rule and budget under the second reduction: the published head counts at an eighth of
                the width, so that head_dim is an eighth too (8 or less). Expected if what counts is the number of
                heads: the same verdicts. If head_dim counts, the reshape does worse here than under the first
                reduction. A table and a Holm family of its own.
conditioning    Question 2. Expected from the Gaussian prediction: no effect of heads at fixed d_model beyond the first
                few; at fixed head_dim a peak where h·head_dim meets the token count. About 20 minutes on
                two cores.

The experiments below say the same of themselves in a `Declaration`, whose digest every record carries.

premises, conditioning_training   Question 2, in `premise_grid`.
map, map_tuning                   Question 5, in `map_grid`.
edge, edge_tuning                 Question 5, in `edge_grid`.
cause, cause_tuning               Question 6, in `cause_grid`.
"""

from heads_for_depth.experiments.declaration import Declaration
from heads_for_depth.experiments.grids import (
    DECLARATIONS,
    EXPERIMENTS,
    KAPPA_INPUTS,
    TUNING,
    cell_id,
    head_counts,
    plan,
    planned_now,
)
from heads_for_depth.experiments.map_grid import TUNING_SEED
from heads_for_depth.experiments.rows import (
    ARMS,
    DEPTH_DIVISOR,
    REDUCTION,
    REDUCTIONS,
    VISION_ROWS,
    WIDTH_DIVISOR,
    Arm,
    VisionRow,
    reduced_shape,
    vision_cells,
    vision_row,
)
from heads_for_depth.experiments.runs import (
    OPTIONS,
    KappaTimes,
    Kind,
    PlannedRun,
    Source,
    estimated_seconds,
)

__all__ = [
    "ARMS",
    "DECLARATIONS",
    "DEPTH_DIVISOR",
    "EXPERIMENTS",
    "KAPPA_INPUTS",
    "OPTIONS",
    "REDUCTION",
    "REDUCTIONS",
    "TUNING",
    "TUNING_SEED",
    "VISION_ROWS",
    "WIDTH_DIVISOR",
    "Arm",
    "Declaration",
    "KappaTimes",
    "Kind",
    "PlannedRun",
    "Source",
    "VisionRow",
    "cell_id",
    "estimated_seconds",
    "head_counts",
    "plan",
    "planned_now",
    "reduced_shape",
    "vision_cells",
    "vision_row",
]
