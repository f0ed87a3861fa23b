"""Where the time of one training step goes in a single-thread worker of the engine: what bounds a faster loop."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from heads_for_depth.benchmark.engine import Machine, engine_loop
from heads_for_depth.benchmark.settings import BATCH_SIZE, Settings, endless_recipe
from heads_for_depth.benchmark.timing import Tick
from heads_for_depth.datasets import fashion_mnist
from heads_for_depth.shapes import Shape

GROUPS = {
    "matrix products": ("aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm"),
    "attention": ("_LaneAttention", "aten::_scaled_dot_product", "aten::_softmax"),
    "GELU": ("aten::gelu",),
    "LayerNorm": ("aten::native_layer_norm",),
    "copies": ("aten::copy_", "aten::cat", "aten::clone"),
    "optimizer and clipping": ("aten::_fused_adamw_", "Optimizer.", "aten::linalg_vector_norm", "aten::_foreach"),
}
"""Group -> how the names of its operations begin; a backward pass belongs to its operation."""
OTHERS = "everything else"


def steps(machine: Machine, settings: Settings) -> int:
    """How often `measure` ticks."""
    return 1


def measure(machine: Machine, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Share of each group of operations in the time of a step, for the first subject; they add up to one."""
    subject = settings.subjects[0]
    batches = 2 if settings.quick else 24
    seconds = machine.engine.pool.submit(profiled_seconds, subject.shape, batches).result()
    tick("profile")
    total = sum(seconds.values())
    shares = {name: spent / total for name, spent in seconds.items()}
    return {"title": subject.title, "batches": batches, "shares": shares}


def profiled_seconds(shape: Shape, batches: int) -> dict[str, float]:
    """Seconds per group, by the wall clock, while so many batches are trained, after as many to warm up."""
    torch.set_num_threads(1)
    train = fashion_mnist()["train"].first(batches * BATCH_SIZE)
    loop, _ = engine_loop(shape, endless_recipe(len(train)), 0, "automatic")
    loop.epoch(train, 0)
    with profile(activities=[ProfilerActivity.CPU]) as found:
        loop.epoch(train, 1)
    return by_group((event.key, event.self_cpu_time_total / 1e6) for event in found.key_averages())


def by_group(events: Iterable[tuple[str, float]]) -> dict[str, float]:
    """Seconds of operations, each without those it calls, summed over their groups."""
    seconds = dict.fromkeys([*GROUPS, OTHERS], 0.0)
    for name, spent in events:
        group = next((group for group, starts in GROUPS.items() if name.startswith(starts)), OTHERS)
        seconds[group] += spent
    return seconds
