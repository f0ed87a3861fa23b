"""Condition numbers per second, and how exact they are: batched QR and SVD against one SVD per matrix."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from heads_for_depth.benchmark.engine import Machine
from heads_for_depth.benchmark.exact_matrices import exact_matrix
from heads_for_depth.benchmark.settings import Settings, Stack
from heads_for_depth.benchmark.timing import Tick, alternate, seconds_per_call, with_median
from heads_for_depth.conditioning import condition_numbers, singular_values
from heads_for_depth.conditioning.spectra import relative_error_bound, threads

METHODS: dict[str, Callable[[Tensor], Tensor]] = {
    "loop": lambda stack: torch.stack([torch.linalg.svdvals(matrix) for matrix in stack]),
    "engine": singular_values,
}
"""One SVD per matrix, as a user would write it; and what the report does."""


def steps(machine: Machine, settings: Settings) -> int:
    """How often `measure` ticks."""
    return len(settings.stacks) * (len(_thread_counts(machine)) * (settings.repeats + 1) + len(settings.kappas))


def measure(machine: Machine, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Speed at every size with one thread and with all, and the errors of κ at every size."""
    counts = _thread_counts(machine)
    speeds = [_speed(stack, count, settings, tick) for stack in settings.stacks for count in counts]
    return {
        "speed": speeds,
        "errors": [_errors(s, k, settings, tick) for s in settings.stacks for k in settings.kappas],
    }


def _thread_counts(machine: Machine) -> list[int]:
    return [1, machine.threads] if machine.threads > 1 else [1]


def _speed(stack: Stack, count: int, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Both methods in alternation with `count` threads, and the halves of the report's, which bound its gain."""
    generator = torch.Generator().manual_seed(0)
    matrices = torch.randn(stack.count, stack.rows, stack.columns, generator=generator, dtype=torch.float64)
    tall = matrices.transpose(-2, -1)
    square = torch.linalg.qr(tall, mode="r").R
    calls: dict[str, Callable[[], object]] = {name: partial(call, matrices) for name, call in METHODS.items()}
    calls["engine, QR alone"] = partial(_as_the_report, torch.linalg.qr, tall, mode="r")
    calls["engine, SVD alone"] = partial(_as_the_report, torch.linalg.svdvals, square)
    arms = {name: partial(seconds_per_call, call, settings.stack_seconds) for name, call in calls.items()}
    with threads(count):
        seconds = alternate(arms, settings.repeats, partial(tick, "singular values"))
    per_matrix = {name: with_median([value / stack.count for value in found]) for name, found in seconds.items()}
    return {"rows": stack.rows, "columns": stack.columns, "matrices": stack.count, "threads": count,
            "seconds_per_matrix": per_matrix}  # fmt: skip


def _as_the_report(call: Callable[..., object], *arguments: Any, **named: Any) -> None:
    """One half of the report's method, on the one thread that it takes at these sizes."""
    with threads(1):
        call(*arguments, **named)


def _errors(stack: Stack, kappa: int, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Largest and median relative error of κ over matrices with exactly this κ, and over their rounded thirds.

    A third of an exact matrix has the same κ, but its entries no longer fit float64: what comes on top of the first
    error is the rounding of the matrix, which no algorithm undoes.
    """
    generator = np.random.default_rng(0)
    built = [exact_matrix(stack.rows, stack.columns, kappa, generator) for _ in range(settings.matrices_per_kappa)]
    matrices = torch.from_numpy(np.stack(built))
    found = {"exact entries": matrices, "rounded entries": matrices / 3}
    errors = {
        f"{name}, {kind}": _error(call(given), kappa) for name, call in METHODS.items() for kind, given in found.items()
    }
    largest_side = max(stack.rows, stack.columns)
    reported = condition_numbers(singular_values(matrices), largest_side)
    tick("errors of κ")
    return {
        "rows": stack.rows,
        "columns": stack.columns,
        "matrices": len(matrices),
        "kappa": kappa,
        "bound": relative_error_bound(float(kappa), largest_side),
        "reported_infinite": int(reported.isinf().sum()),
        "relative_errors": errors,
    }


def _error(values: Tensor, kappa: int) -> dict[str, float]:
    errors = (values[:, 0] / values[:, -1] / kappa - 1).abs()
    return {"largest": float(errors.max()), "median": float(errors.median())}
