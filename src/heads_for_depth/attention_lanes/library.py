"""The compiled library, called on tensors: shapes, strides and memory; no autograd."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from functools import cache

import torch
from torch import Tensor

from heads_for_depth.attention_lanes.compiling import LanesUnavailable, build

FLOAT_BYTES = 4


class _Shape(ctypes.Structure):
    """`Shape` of attention_lanes.cpp."""

    _fields_ = tuple(
        (name, ctypes.c_int64)
        for name in ("batch", "tokens", "heads", "head_dim", "q_stride", "k_stride", "v_stride")
    )  # fmt: skip


class Library:
    """The kernel on contiguous float32 tensors in CPU memory, which the caller has checked.

    Queries, keys and values come in this order in one to three tensors (batch, tokens, stacked, heads, head_dim).
    """

    def __init__(self, path: str) -> None:
        try:
            library = ctypes.CDLL(path)
            self._forward, self._backward = library.attention_lanes_forward, library.attention_lanes_backward
            self._lanes: int = library.attention_lanes_width()
        except (OSError, AttributeError) as error:
            raise LanesUnavailable("the compiled library cannot be loaded") from error
        self._forward.argtypes = [ctypes.POINTER(_Shape), *[ctypes.c_void_p] * 5]
        self._backward.argtypes = [ctypes.POINTER(_Shape), *[ctypes.c_void_p] * 9]

    def forward(self, parts: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """The heads' outputs (batch, tokens, heads · head_dim), and what the backward pass needs besides."""
        batch, tokens, _, heads, head_dim = parts[0].shape
        out = parts[0].new_empty(batch, tokens, heads * head_dim)
        groups = -(-batch * heads // self._lanes)
        statistics = parts[0].new_empty(groups, tokens, 2, self._lanes)
        shape, addresses = _shape(parts), _addresses(parts)
        _check(self._forward(shape, *addresses, out.data_ptr(), statistics.data_ptr()))
        return out, statistics

    def backward(self, parts: Sequence[Tensor], out: Tensor, statistics: Tensor, d_out: Tensor) -> list[Tensor]:
        """The gradients with respect to the parts."""
        gradients = [torch.empty_like(part) for part in parts]
        given = (out.data_ptr(), statistics.data_ptr(), d_out.data_ptr())
        _check(self._backward(_shape(parts), *_addresses(parts), *given, *_addresses(gradients)))
        return gradients


@cache
def library() -> Library:
    """The library of this machine, loaded once per process. Raises LanesUnavailable."""
    return Library(str(build()))


def _shape(parts: Sequence[Tensor]) -> _Shape:
    batch, tokens, _, heads, head_dim = parts[0].shape
    strides = [part.shape[2] * heads * head_dim for part in parts for _ in range(part.shape[2])]
    return _Shape(batch, tokens, heads, head_dim, *strides)


def _addresses(parts: Sequence[Tensor]) -> list[int]:
    """Where queries, keys and values begin."""
    return [
        part.data_ptr() + stacked * part.shape[3] * part.shape[4] * FLOAT_BYTES
        for part in parts
        for stacked in range(part.shape[2])
    ]


def _check(succeeded: int) -> None:
    if not succeeded:
        raise MemoryError("no memory for the attention of one group of heads")
