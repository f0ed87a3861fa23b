"""Singular values in float64, and what is read from them: κ, ranks, bounds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

EPSILON = torch.finfo(torch.float64).eps
SMALL_SIDE = 256
"""Shorter side up to which singular values are computed on one thread: two spend their time waiting for each other."""


def singular_values(matrices: Float[Tensor, "*batch rows columns"]) -> Float[Tensor, "*batch k"]:
    """Singular values in float64, descending, k = min(rows, columns).

    A QR factorization first makes the matrix square; it is faster than a direct SVD and at least as accurate here.
    How far the smallest value can be off is `relative_error_bound`.
    """
    tall = matrices.double()
    if tall.shape[-2] < tall.shape[-1]:
        tall = tall.transpose(-2, -1)
    with threads(1) if tall.shape[-1] <= SMALL_SIDE else nullcontext():
        if tall.shape[-2] > tall.shape[-1]:
            tall = torch.linalg.qr(tall, mode="r").R
        return torch.linalg.svdvals(tall)


@contextmanager
def threads(count: int) -> Iterator[None]:
    """So many of torch's threads within the block, and as many as before after it."""
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def relative_error_bound(kappa: float, largest_side: int) -> float:
    """Relative error of κ that rounding in float64 can cause, max(rows, columns)·ε·κ; from 1 on no digit is certain.

    A backward-stable algorithm moves every singular value by at most about that multiple of ε·σ₁, and σ_k is σ₁/κ.
    """
    return largest_side * EPSILON * kappa


def numerical_rank(values: Float[Tensor, "*batch k"], largest_side: int) -> Tensor:
    """How many singular values exceed max(rows, columns)·ε·σ₁, the floor below which they are rounding error."""
    return (values > largest_side * EPSILON * values[..., :1]).sum(dim=-1)


def effective_rank(values: Float[Tensor, "*batch k"]) -> Float[Tensor, "*batch"]:
    """Exponential of the entropy of the normalized singular values (Roy & Vetterli 2007), 1 to k; 0 where all are 0."""
    total = values.sum(dim=-1, keepdim=True)
    share = values / total
    return torch.where(total[..., 0] > 0, torch.exp(-torch.xlogy(share, share).sum(dim=-1)), 0.0)


def condition_numbers(values: Float[Tensor, "*batch k"], largest_side: int) -> Float[Tensor, "*batch"]:
    """κ = σ₁/σ_k per matrix (Theorem 3.2 of LIT-527), `inf` where the matrix is rank-deficient numerically."""
    deficient = numerical_rank(values, largest_side) < values.shape[-1]
    return torch.where(deficient, math.inf, values[..., 0] / values[..., -1])


def gaussian_prediction(tokens: int, width: int) -> float | None:
    """κ ≈ (√D + √N)/(√D − √N) of an N × D matrix of independent normal entries, D > N; None where D ≤ N."""
    if width <= tokens:
        return None
    return (math.sqrt(width) + math.sqrt(tokens)) / (math.sqrt(width) - math.sqrt(tokens))


@dataclass(frozen=True, kw_only=True, slots=True)
class SpectrumSummary:
    """One object at one place of a model, over inputs (and heads, where the object is a single head)."""

    rows: int
    columns: int
    matrices: int
    condition_number: float
    """Median κ; infinite where at least half of the matrices are rank-deficient."""
    condition_number_q1: float
    condition_number_q3: float
    rank_deficient: float
    """Share of the matrices whose smallest singular value is rounding error."""
    numerical_rank: float
    """Median."""
    effective_rank: float
    """Median."""

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record, six significant digits, infinity as the string "inf"."""
        return {key: _plain(value) for key, value in asdict(self).items()}


def _plain(value: int | float) -> int | float | str:
    if isinstance(value, int):
        return value
    return "inf" if math.isinf(value) else float(f"{value:.6g}")


def summarize(matrices: Float[Tensor, "*batch rows columns"]) -> SpectrumSummary:
    """Medians and quartiles over all leading dimensions; the quartiles are order statistics, so infinity is allowed."""
    rows, columns = matrices.shape[-2:]
    values = singular_values(matrices.reshape(-1, rows, columns))
    kappa = condition_numbers(values, max(rows, columns)).sort().values
    ranks = numerical_rank(values, max(rows, columns)).double()
    return SpectrumSummary(
        rows=rows,
        columns=columns,
        matrices=len(kappa),
        condition_number=_order_statistic(kappa, 0.5),
        condition_number_q1=_order_statistic(kappa, 0.25),
        condition_number_q3=_order_statistic(kappa, 0.75),
        rank_deficient=float(kappa.isinf().double().mean()),
        numerical_rank=float(ranks.quantile(0.5)),
        effective_rank=float(effective_rank(values).quantile(0.5)),
    )


def _order_statistic(ascending: Float[Tensor, "n"], share: float) -> float:
    """The value at the rounded-up position, so that a median of an even count is never an average with infinity."""
    return float(ascending[min(len(ascending) - 1, int(share * len(ascending)))])
