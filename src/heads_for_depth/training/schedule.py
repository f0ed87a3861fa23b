"""What the optimizer decays, and the learning rate at every step."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from torch import nn

from heads_for_depth.recipes import Recipe


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Weight decay for matrices and kernels only, not for biases, norms, tokens, positions, temperatures or scales."""
    decayed = decayed_names(model)
    groups: list[dict[str, Any]] = [
        {"params": [p for name, p in model.named_parameters() if name in decayed], "weight_decay": weight_decay},
        {"params": [p for name, p in model.named_parameters() if name not in decayed], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


def decayed_names(model: nn.Module) -> set[str]:
    """Names of the parameters that take weight decay."""
    skip: Callable[[], set[str]] = getattr(model, "no_weight_decay", set)
    listed = skip()
    decayed = {name for name, p in model.named_parameters() if p.dim() >= 2 and p.shape[0] > 1 and name not in listed}
    return {name for name in decayed if not name.endswith("temperature")}


def learning_rate(recipe: Recipe, step: int) -> float:
    """Linear warm-up over the first steps, then a cosine that ends at zero after the last; `step` counts from 0."""
    peak = recipe.learning_rate or 0.0
    warmup = max(1, round(recipe.warmup_fraction * recipe.steps))
    if step < warmup:
        return peak * (step + 1) / warmup
    progress = (step - warmup) / max(1, recipe.steps - warmup)
    return peak * 0.5 * (1 + math.cos(math.pi * progress))
