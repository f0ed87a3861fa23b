"""The most floating-point operations that this machine does per second."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from heads_for_depth.benchmark.timing import seconds_per_call


def gemm_flops_per_second(sizes: Sequence[int], calls: int = 3) -> dict[str, float]:
    """Side of a square float32 product -> operations per second with all of torch's threads, the best of some calls."""
    speeds = {}
    for size in sizes:
        left, right, product = torch.rand(size, size), torch.rand(size, size), torch.empty(size, size)
        seconds = [_seconds(left, right, product) for _ in range(calls)]
        speeds[str(size)] = 2 * size**3 / min(seconds)
    return speeds


def _seconds(left: torch.Tensor, right: torch.Tensor, product: torch.Tensor) -> float:
    return seconds_per_call(lambda: torch.mm(left, right, out=product), 0.0)
