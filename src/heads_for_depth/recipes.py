"""Optimizer, schedule and budget as frozen data: one recipe per profile, the same for every cell of a table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, get_args

from heads_for_depth.errors import BadInput

Profile = Literal["smoke", "cpu", "gpu", "full"]
PROFILES: tuple[Profile, ...] = get_args(Profile)
MAP_EXPERIMENTS = ("map", "edge", "cause", "conditioning_training")
"""Experiments whose seeds a profile plans one by one, since they take hours and arrive in parts."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Recipe:
    """Everything about a training run that is not its shape or its seed."""

    train_images: int
    """Distinct training images, the first of the fixed training split."""
    epochs: int
    batch_size: int
    learning_rate: float | None
    """Peak learning rate; None where the tuning runs choose it."""
    evaluation_images: int = 10_000
    """Test images, the first of the test split."""
    weight_decay: float = 0.05
    warmup_fraction: float = 0.1
    """Share of the steps with linear warm-up; cosine decay to zero follows."""
    clip_norm: float = 1.0
    betas: tuple[float, float] = (0.9, 0.98)

    @property
    def steps(self) -> int:
        """Optimizer steps of the whole run; the incomplete last batch of an epoch is dropped."""
        return self.epochs * (self.train_images // self.batch_size)

    def with_learning_rate(self, learning_rate: float) -> Recipe:
        """The same recipe at a chosen peak learning rate."""
        return replace(self, learning_rate=learning_rate)

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        return asdict(self) | {"betas": list(self.betas)}


@dataclass(frozen=True, kw_only=True, slots=True)
class MapBudget:
    """What one profile spends on each run of the depth × heads map and of the experiments that extend it."""

    recipe: Recipe
    """For the runs that enter tables and figures."""
    tuning: Recipe
    """For the runs that choose the learning rate on the validation split."""
    learning_rates: tuple[float, ...]
    seeds: Mapping[str, int]
    """Experiment -> seeds per cell that this profile plans now; none where it is not named."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """What one profile spends on a training experiment."""

    recipe: Recipe
    """For the runs that enter the tables."""
    tuning: Recipe
    """For the runs that choose the learning rate on the validation split."""
    learning_rates: tuple[float, ...]
    seeds: int
    """Seeds per cell that this profile plans now."""
    declared_seeds: int
    """Seeds per arm below which no verdict is drawn."""
    map: MapBudget
    keep_heads_seeds: int = 0
    """Seeds per cell of the second reduction that this profile plans now."""

    def seeds_of(self, experiment: str) -> int:
        """Seeds per cell of one table that this profile plans now."""
        if experiment in MAP_EXPERIMENTS:
            return self.map.seeds.get(experiment, 0)
        return self.keep_heads_seeds if experiment == "vision_rows_keep_heads" else self.seeds

    def learning_rates_of(self, experiment: str) -> tuple[float, ...]:
        """The grid of learning rates that the cells of a table were tuned over."""
        of_map = experiment in MAP_EXPERIMENTS and experiment != "conditioning_training"
        return self.map.learning_rates if of_map else self.learning_rates


def _recipe(train_images: int, epochs: int, batch_size: int = 128, evaluation_images: int = 10_000) -> Recipe:
    return Recipe(
        train_images=train_images,
        epochs=epochs,
        batch_size=batch_size,
        learning_rate=None,
        evaluation_images=evaluation_images,
    )


BUDGETS: dict[str, Budget] = {
    "smoke": Budget(
        recipe=_recipe(512, 1, 64, 256),
        tuning=_recipe(256, 1, 64, 256),
        learning_rates=(1e-3, 4e-3),
        seeds=1,
        declared_seeds=8,
        keep_heads_seeds=1,
        map=MapBudget(
            recipe=_recipe(256, 2, 64, 256),
            tuning=_recipe(128, 1, 64, 256),
            learning_rates=(4e-3,),
            seeds=dict.fromkeys(MAP_EXPERIMENTS, 1),
        ),
    ),
    "cpu": Budget(
        recipe=_recipe(24_000, 3, 64),
        tuning=_recipe(15_000, 1, 64),
        learning_rates=(1e-3, 2e-3, 4e-3),
        seeds=8,
        declared_seeds=8,
        keep_heads_seeds=8,
        map=MapBudget(
            recipe=_recipe(24_000, 5, 64),
            tuning=_recipe(24_000, 1, 64),
            learning_rates=(1e-3, 2e-3, 4e-3, 8e-3),
            seeds={},
        ),
    ),
    "gpu": Budget(
        recipe=_recipe(55_000, 30),
        tuning=_recipe(55_000, 10),
        learning_rates=(5e-4, 1e-3, 2e-3, 4e-3),
        seeds=8,
        declared_seeds=8,
        keep_heads_seeds=8,
        map=MapBudget(
            recipe=_recipe(55_000, 30),
            tuning=_recipe(55_000, 6),
            learning_rates=(5e-4, 1e-3, 2e-3, 4e-3, 8e-3),
            seeds=dict.fromkeys(MAP_EXPERIMENTS, 8),
        ),
    ),
}
"""Budgets by profile. `full` (ImageNet-1k) has no reduced-scale budget."""


def budget(profile: str) -> Budget:
    """The budget of a profile, or BadInput with the profiles that have one."""
    if profile not in BUDGETS:
        raise BadInput("profile", profile, f"use one of {', '.join(BUDGETS)}")
    return BUDGETS[profile]
