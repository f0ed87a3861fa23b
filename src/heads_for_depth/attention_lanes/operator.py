"""Attention in lanes as a function that autograd knows, and whether this machine has it."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional

from heads_for_depth.attention_lanes.compiling import LARGEST_HEAD_DIM, LanesUnavailable
from heads_for_depth.attention_lanes.library import library
from heads_for_depth.errors import BadInput

SELF_TEST_TOLERANCE = 1e-4
"""Far above rounding, far below any mistake, for numbers of size 1."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Availability:
    """Whether attention can run in lanes on this machine."""

    ready: bool
    reason: str
    """Why not; empty where it can."""


@cache
def availability() -> Availability:
    """Compile or load the kernel and compare it with torch's attention, once per process.

    The environment variable HEADS_FOR_DEPTH_ATTENTION turns the kernel off with `sdpa`; `auto` is the default. Raises
    BadInput for any other value, and nothing else.
    """
    wanted = os.environ.get("HEADS_FOR_DEPTH_ATTENTION") or "auto"
    if wanted not in ("auto", "sdpa"):
        raise BadInput("HEADS_FOR_DEPTH_ATTENTION", wanted, "use auto or sdpa")
    if wanted == "sdpa":
        return Availability(ready=False, reason="HEADS_FOR_DEPTH_ATTENTION is sdpa")
    try:
        _self_test()
    except LanesUnavailable as error:
        return Availability(ready=False, reason=str(error))
    return Availability(ready=True, reason="")


def lane_attention(*parts: Tensor) -> Float[Tensor, "batch tokens inner"]:
    """Softmax attention with scale head_dim^-1/2, the heads' outputs side by side: inner = heads · head_dim.

    Queries, keys and values come stacked along the third axis of one tensor (batch, tokens, 3, heads, head_dim), or in
    this order in two or three. float32 on a CPU, head_dim up to LARGEST_HEAD_DIM, at least one token; a second
    derivative is refused. One thread computes it, however many torch has, so that the bits do not depend on their
    number. NaN and infinity come through as in torch's attention. Raises ValueError for other tensors, LanesUnavailable
    without kernel.
    """
    _check(parts)
    return _LaneAttention.apply(*(part.contiguous() for part in parts))


class _LaneAttention(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, *parts: Tensor) -> Tensor:
        out, statistics = library().forward(parts)
        ctx.save_for_backward(*parts, out, statistics)
        return out

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor, ...]:
        if torch.is_grad_enabled():  # create_graph
            raise RuntimeError("attention in lanes has no second derivative")
        *parts, out, statistics = ctx.saved_tensors
        return tuple(library().backward(parts, out, statistics, d_out.contiguous()))


def _check(parts: tuple[Tensor, ...]) -> None:
    """Refuse what the library would read as other numbers than those meant."""
    if not parts or any(part.dim() != 5 for part in parts) or sum(part.shape[2] for part in parts) != 3:
        raise ValueError("queries, keys and values must be stacked along the third of five axes")
    if len({(*part.shape[:2], *part.shape[3:]) for part in parts}) != 1:
        raise ValueError("queries, keys and values differ in batch, tokens, heads or head_dim")
    if any(part.dtype != torch.float32 or part.device.type != "cpu" for part in parts):
        raise ValueError("attention in lanes takes float32 tensors on a CPU")
    if not 1 <= parts[0].shape[4] <= LARGEST_HEAD_DIM:
        raise ValueError(f"head_dim {parts[0].shape[4]} is not 1 to {LARGEST_HEAD_DIM}")
    if parts[0].shape[1] == 0:
        raise ValueError("there are no tokens to attend to")


def _self_test() -> None:
    """Compare output and gradient with torch's attention, over each way of copying into lanes."""
    with torch.inference_mode(False), torch.enable_grad():
        for head_dim in (1, 2, 3, 6):
            qkv = torch.arange(2 * 5 * 3 * 12 * head_dim).sin().reshape(2, 5, 3, 12, head_dim).requires_grad_()
            q, k, v = qkv.permute(2, 0, 3, 1, 4)
            expected = functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
            out = lane_attention(qkv)
            weights = torch.arange(out.numel()).cos().reshape(out.shape)
            gradients = [torch.autograd.grad((x * weights).sum(), qkv)[0] for x in (out, expected)]
            for ours, theirs in ((out, expected), gradients):
                if not torch.allclose(ours, theirs, rtol=0, atol=SELF_TEST_TOLERANCE):
                    raise LanesUnavailable("the compiled kernel disagrees with torch's attention")
