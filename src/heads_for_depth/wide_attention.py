"""Attention layers whose inner width h·head_dim differs from d_model, where timm has none.

Each follows the arithmetic of the timm layer it replaces; at head_dim = d_model / heads the two are the same function.
"""

from __future__ import annotations

import torch
from jaxtyping import Float
from timm.layers.attention import Attention
from torch import Tensor, nn
from torch.nn import functional


class _WideAttention(nn.Module):
    """Projections into and out of `heads` heads of `head_dim` channels."""

    def __init__(self, d_model: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.num_heads, self.head_dim = heads, head_dim
        self.qkv = nn.Linear(d_model, 3 * heads * head_dim)
        self.proj = nn.Linear(heads * head_dim, d_model)

    def split_heads(self, x: Float[Tensor, "batch tokens d_model"]) -> tuple[Tensor, ...]:
        """Queries, keys and values, each (batch, heads, head_dim, tokens)."""
        batch, tokens, _ = x.shape
        qkv = self.qkv(x).reshape(batch, tokens, 3, self.num_heads, self.head_dim)
        return qkv.permute(2, 0, 3, 4, 1).unbind(0)

    def join_heads(self, heads: Float[Tensor, "batch heads head_dim tokens"]) -> Float[Tensor, "batch tokens d_model"]:
        """Concatenate the heads of every token and project back to d_model."""
        return self.proj(heads.flatten(1, 2).transpose(1, 2))


class WideCrossCovarianceAttention(_WideAttention):
    """XCiT's cross-covariance attention: channels of a head attend to each other, one temperature per head."""

    def __init__(self, d_model: int, heads: int, head_dim: int) -> None:
        super().__init__(d_model, heads, head_dim)
        self.temperature = nn.Parameter(torch.ones(heads, 1, 1))

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Softmax over key channels of the cosine between query and key channels, applied to the values."""
        q, k, v = self.split_heads(x)
        cosine = functional.normalize(q, dim=-1) @ functional.normalize(k, dim=-1).transpose(-2, -1)
        return self.join_heads((cosine * self.temperature).softmax(dim=-1) @ v)


class WideChannelAttention(_WideAttention):
    """DaViT's channel attention: softmax of keyᵀ·value over value channels, applied to the queries."""

    def forward(self, x: Float[Tensor, "batch tokens d_model"]) -> Float[Tensor, "batch tokens d_model"]:
        """Scaled by head_dim^-1/2, as the layer it replaces."""
        q, k, v = self.split_heads(x)
        weights = (k * self.head_dim**-0.5 @ v.transpose(-2, -1)).softmax(dim=-1)
        return self.join_heads(weights @ q)


class GridAttention(Attention):
    """Token attention over a (height, width) grid, as VOLO's transformer stages call it."""

    def forward(  # type: ignore[override]
        self, x: Float[Tensor, "batch height width d_model"]
    ) -> Float[Tensor, "batch height width d_model"]:
        """Flatten the grid, attend, restore the grid."""
        return super().forward(x.flatten(1, 2)).unflatten(1, x.shape[1:3])


class WindowAttention(Attention):
    """Token attention within one window, as DaViT's spatial blocks call it."""
