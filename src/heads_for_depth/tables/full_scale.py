"""The full-scale runs as tables: the recipe, and what each row would cost."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields
from typing import Any

import pandas as pd

from heads_for_depth.experiments import ARMS, Arm
from heads_for_depth.full_scale.costs import IMAGENET_IMAGES, TRAINING_FACTOR, ArmCost, AssumedSpeed, RowCost
from heads_for_depth.full_scale.recipe import BATCH_UNIT, LITERATURE, FullRecipe
from heads_for_depth.recipes import BUDGETS
from heads_for_depth.shapes import Shape
from heads_for_depth.tables.formatting import NONE, change, millions, percent, whole

LAUNCH = "torchrun --standalone --nproc-per-node gpu -m heads_for_depth.full_scale"
OPTIONS = "--data imagenet --precision bf16"
ASSUMED = "†"
"""Marks a row of which something is assumed."""


def command(row: str, arm: Arm) -> str:
    """What trains one end of a row on all GPUs of one machine."""
    return f"{LAUNCH} --row {row} --depth-arm {arm} --heads-arm {arm} {OPTIONS}"


def recipe_table(recipe: FullRecipe, shape: Shape) -> pd.DataFrame:
    """The settings of every run and whose choice they are; the image size is that of the shape."""
    values = {field.name: getattr(recipe, field.name) for field in fields(recipe)}
    lines = [(name, value, "LIT-527" if name in LITERATURE else "our choice") for name, value in values.items()]
    lines.insert(1, ("image_size", shape.image_size, "published baselines"))
    return pd.DataFrame([{"setting": f"`{name}`", "value": _value(value), "origin": o} for name, value, o in lines])


def _value(value: object) -> str:
    if isinstance(value, tuple):
        return ", ".join(map(_value, value))
    return f"{value:.3g}" if isinstance(value, float) and value < 0.1 else str(value)


def costs_table(costs: Sequence[RowCost], recipe: FullRecipe, speed: AssumedSpeed) -> pd.DataFrame:
    """One line per row, before → after, with the command of its reshape or the reason why there is none."""
    return pd.DataFrame(
        [
            {
                "row": f"{cost.title} {ASSUMED}" if cost.assumption else cost.title,
                "parameters (M)": _pair(cost, lambda arm: millions(arm.parameters)),
                "training GFLOP per image": _pair(cost, lambda arm: f"{arm.training_flops_per_image / 1e9:.1f}"),
                "GPU-hours, estimated": _pair(cost, lambda arm: whole(round(arm.gpu_hours(recipe, speed)))),
                "command of the reshape": f"`{command(cost.name, 'after')}`" if cost.after else _not_here(cost),
            }
            for cost in costs
        ]
    )


def _not_here(cost: RowCost) -> str:
    return f"cannot be run here: {cost.reason}"


def _pair(cost: RowCost, write: Callable[[ArmCost], str]) -> str:
    if cost.before is None or cost.after is None:
        return NONE
    return change(write(cost.before), write(cost.after))


def costs_data(costs: Sequence[RowCost], recipe: FullRecipe, speed: AssumedSpeed) -> pd.DataFrame:
    """One line per row and arm, unrounded."""
    frame = pd.DataFrame(
        [
            {"row": cost.name, "arm": arm}
            | _numbers(end, recipe, speed)
            | {"command": command(cost.name, arm) if end else None}
            | {"assumption": cost.assumption, "reason": cost.reason}
            for cost in costs
            for arm, end in zip(ARMS, (cost.before, cost.after), strict=True)
        ]
    )
    return frame.astype({"parameters": "Int64", "training_flops_per_image": "Int64"})


def _numbers(end: ArmCost | None, recipe: FullRecipe, speed: AssumedSpeed) -> dict[str, Any]:
    return {
        "parameters": end.parameters if end else None,
        "training_flops_per_image": end.training_flops_per_image if end else None,
        "estimated_gpu_hours": end.gpu_hours(recipe, speed) if end else None,
    }


def glued(costs: Sequence[RowCost], recipe: FullRecipe, speed: AssumedSpeed) -> dict[str, str]:
    """The assumptions and sums for the prose."""
    runnable = [cost for cost in costs if cost.before and cost.after]
    ends = [end for cost in runnable for end in (cost.before, cost.after) if end]
    hours = sum(end.gpu_hours(recipe, speed) for end in ends)
    seeds = BUDGETS["gpu"].declared_seeds
    return {
        "full.epochs": str(recipe.epochs),
        "full.batch_size": whole(recipe.batch_size),
        "full.batch_unit": whole(BATCH_UNIT),
        "full.learning_rate": f"{recipe.learning_rate:g}",
        "full.images": whole(IMAGENET_IMAGES),
        "full.factor": str(TRAINING_FACTOR),
        "full.peak_tflops": f"{speed.peak_flops_per_second / 1e12:g}",
        "full.utilisation": percent(speed.utilisation, 0),
        "full.rows": str(len(runnable)),
        "full.rows_not_here": str(len(costs) - len(runnable)),
        "full.hours_one_seed": whole(round(hours)),
        "full.declared_seeds": str(seeds),
        "full.hours_declared": whole(round(hours * seeds)),
    }
