"""The grids: every run that a profile plans, experiment by experiment."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import cause_grid, edge_grid, map_grid
from heads_for_depth.experiments.declaration import Declaration
from heads_for_depth.experiments.map_grid import TUNING_SEED
from heads_for_depth.experiments.premise_grid import PREMISES, THROUGH_TRAINING, premise_runs, training_runs
from heads_for_depth.experiments.rows import REDUCTIONS, VISION_ROWS, Arm, VisionRow, vision_cells
from heads_for_depth.experiments.runs import PlannedRun, Source
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import PROFILES, Budget, budget
from heads_for_depth.shapes import Regime, Shape, divisors, scaled_heads, with_heads

KAPPA_INPUTS = 2
"""Inputs over which κ of a full-scale model at initialization is a median."""


def cell_id(row: str, depth_arm: str, heads_arm: str) -> str:
    """Name of a cell inside run ids: which arm its depth and its heads come from."""
    return f"{row}.depth-{depth_arm}.heads-{heads_arm}"


def plan(profile: str, experiment: str | None = None, seeds: int | None = None) -> list[PlannedRun]:
    """Every run that a profile plans, tuning first, then seed by seed so that a partial sweep is balanced.

    `seeds` overrides the profile's seeds per cell: of the experiment that is named, or of every one that the profile
    plans now. Raises BadInput for an unknown profile or experiment, and for seeds below 1.
    """
    if experiment is None:
        return planned_now(profile, EXPERIMENTS, seeds)
    _check(profile, experiment, seeds)
    return _grid(profile, experiment, budget(profile), seeds)


def planned_now(profile: str, experiments: Sequence[str], seeds: int | None = None) -> list[PlannedRun]:
    """The runs of several experiments, each at `seeds` per cell if the profile plans any seed of it now, else none."""
    runs = []
    for experiment in experiments:
        _check(profile, experiment, seeds)
        money = budget(profile)
        served = [table for table, tuning in TUNING.items() if experiment in (table, tuning)]
        now = not served or any(money.seeds_of(table) for table in served)
        runs += _grid(profile, experiment, money, seeds if now else None)
    return runs


def _check(profile: str, experiment: str, seeds: int | None) -> None:
    if profile not in PROFILES:
        raise BadInput("profile", profile, f"use one of {', '.join(PROFILES)}")
    budget(profile)
    if seeds is not None and seeds < 1:
        raise BadInput("seeds", seeds, "must be at least 1")
    if experiment not in EXPERIMENTS:
        raise BadInput("experiment", experiment, f"use one of {', '.join(EXPERIMENTS)}")


TUNING = {
    "vision_rows": "vision_tuning",
    "vision_rows_keep_heads": "vision_tuning_keep_heads",
    "conditioning_training": "vision_tuning",
    "map": "map_tuning",
    "edge": "edge_tuning",
    "cause": "cause_tuning",
}
"""Experiment whose runs enter a table -> experiment whose runs choose its learning rates."""
DECLARATIONS: dict[str, Declaration] = {
    one.experiment: one
    for one in (PREMISES, THROUGH_TRAINING, map_grid.DECLARATION, edge_grid.DECLARATION, cause_grid.DECLARATION)
}
"""Experiment -> what it says of itself; those that are older are declared in the docstring of `experiments`."""


def _tunings(profile: str, money: Budget) -> dict[str, Callable[[], list[PlannedRun]]]:
    """Tuning experiment -> its runs."""
    return {
        "vision_tuning": lambda: _vision_tuning(profile, "vision_rows", money),
        "vision_tuning_keep_heads": lambda: _vision_tuning(profile, "vision_rows_keep_heads", money),
        "map_tuning": lambda: map_grid.map_tuning(profile),
        "edge_tuning": lambda: edge_grid.edge_tuning(profile),
        "cause_tuning": lambda: cause_grid.cause_tuning(profile),
    }


def _tables(profile: str, money: Budget) -> dict[str, Callable[[int], list[PlannedRun]]]:
    """Experiment that enters tables -> its runs at so many seeds."""
    return {
        "vision_rows": lambda seeds: _vision_rows(profile, "vision_rows", money, seeds),
        "vision_rows_keep_heads": lambda seeds: _vision_rows(profile, "vision_rows_keep_heads", money, seeds),
        "conditioning_training": lambda seeds: training_runs(
            [run for run in _vision_rows(profile, "vision_rows", money, seeds) if profile != "smoke" or run.row == OWN]
        ),
        "map": lambda seeds: map_grid.map_runs(profile, seeds),
        "edge": lambda seeds: edge_grid.edge_runs(profile, seeds),
        "cause": lambda seeds: cause_grid.cause_runs(profile, seeds),
    }


OWN = "vit-own"
"""The row that smoke keeps where it leaves the others out."""
EXPERIMENTS = (*dict.fromkeys(name for pair in TUNING.items() for name in reversed(pair)), "conditioning", "premises")


def _grid(profile: str, experiment: str, money: Budget, seeds: int | None) -> list[PlannedRun]:
    """One experiment; a table without seeds needs no tuning either."""
    if experiment == "conditioning":
        return _conditioning(profile)
    if experiment == "premises":
        return premise_runs(profile)
    if experiment in TUNING:
        return _tables(profile, money)[experiment](seeds or money.seeds_of(experiment))
    served = [table for table, tuning in TUNING.items() if tuning == experiment]
    needed = any(seeds or money.seeds_of(table) for table in served)
    return _tunings(profile, money)[experiment]() if needed else []


def _cells(profile: str, table: str) -> list[tuple[VisionRow, Arm, Arm, Shape]]:
    """The cells of a table; of the second reduction the smoke profile trains our own row only."""
    own_only = profile == "smoke" and table != "vision_rows"
    return [cell for cell in vision_cells(REDUCTIONS[table]) if not own_only or cell[0].name == OWN]


def _vision_tuning(profile: str, table: str, money: Budget) -> list[PlannedRun]:
    return [
        PlannedRun(
            experiment=TUNING[table], run_id=_tuning_id(cell_id(row.name, depth, heads), rate), kind="train",
            profile=profile, row=row.name, shape=shape, parameters=count_parameters(shape), seed=TUNING_SEED,
            depth_arm=depth, heads_arm=heads, reduction=REDUCTIONS[table],
            recipe=money.tuning.with_learning_rate(rate),
        )
        for rate in money.learning_rates for row, depth, heads, shape in _cells(profile, table)
    ]  # fmt: skip


def _vision_rows(profile: str, table: str, money: Budget, seeds: int) -> list[PlannedRun]:
    return [
        PlannedRun(
            experiment=table, run_id=f"{cell_id(row.name, depth, heads)}.seed-{seed}", kind="train",
            profile=profile, row=row.name, shape=shape, parameters=count_parameters(shape), seed=seed,
            depth_arm=depth, heads_arm=heads, reduction=REDUCTIONS[table], recipe=money.recipe,
            tuned_by=tuple(_tuning_id(cell_id(row.name, depth, heads), rate) for rate in money.learning_rates),
        )
        for seed in range(seeds) for row, depth, heads, shape in _cells(profile, table)
    ]  # fmt: skip


def _tuning_id(cell: str, learning_rate: float) -> str:
    return f"{cell}.rate-{learning_rate:g}"


def _conditioning(profile: str) -> list[PlannedRun]:
    """Noise in both regimes; enlarged images, whose flat background makes tokens alike, at fixed d_model only."""
    kinds: tuple[tuple[Regime, Source], ...] = (
        ("fixed-d-model", "noise"),
        ("fixed-head-dim", "noise"),
        ("fixed-d-model", "images"),
    )
    rows = [row for row in VISION_ROWS if profile != "smoke" or row.name == OWN]
    return [run for regime, inputs in kinds for row in rows for run in _head_sweep(profile, row, regime, inputs)]


def _head_sweep(profile: str, row: VisionRow, regime: Regime, inputs: Source) -> list[PlannedRun]:
    """Full-scale published shape at initialization, one run per head count of the first stage."""
    runs = []
    counts = head_counts(row.before, all_divisors=regime == "fixed-d-model" and inputs == "noise")
    for first in (1, row.before.heads[0]) if profile == "smoke" else counts:
        shape = with_heads(row.before, scaled_heads(row.before, first), regime)
        runs.append(
            PlannedRun(
                experiment="conditioning", run_id=f"{row.name}.{regime}.{inputs}.heads-{first}", kind="kappa",
                profile=profile, row=row.name, shape=shape, parameters=count_parameters(shape), seed=0,
                regime=regime, inputs=inputs, input_count=1 if profile == "smoke" else KAPPA_INPUTS,
            )
        )  # fmt: skip
    return runs


def head_counts(shape: Shape, all_divisors: bool) -> list[int]:
    """Head counts of the first stage that the sweep visits, ascending.

    All divisors of d_model for which the other stages keep their proportion, or only those up to twice the published
    count (at fixed head_dim the inner width, and the cost, grows with them).
    """
    counts = [h for h in divisors(shape.d_model[0]) if all(h * d % shape.heads[0] == 0 for d in shape.heads)]
    return counts if all_divisors else [h for h in counts if h <= 2 * shape.heads[0]]
