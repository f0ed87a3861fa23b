"""Floating-point operations of a training step, and the most that this machine does per second."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heads_for_depth.benchmark.timing import seconds_per_call
from heads_for_depth.models import build
from heads_for_depth.shapes import Shape


def training_flops(shape: Shape, images: int = 2) -> float:
    """Operations of one forward and backward pass per image: matrix products and convolutions, 2 per multiply-add.

    Counted with attention as plain matrix products, whatever computes it later: torch's counter knows neither the fused
    attention of a CPU nor an operator from outside. Activations, norms, softmax and the optimizer are not counted.
    """
    model = build(shape).train()
    inputs = torch.zeros(images, shape.in_chans, shape.image_size, shape.image_size)
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        functional.cross_entropy(model(inputs), torch.zeros(images, dtype=torch.long)).backward()
    return counter.get_total_flops() / images


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
