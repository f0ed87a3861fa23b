"""Changes to a ViT's attention that move κ, the softmax temperature or the norms at unchanged depth, heads and width.

orthogonal-init        Value and output weights start orthogonal, with the Frobenius norm of timm's own start.
ill-conditioned-init   Value weights start with singular values that fall geometrically to a millionth of the first.
spectral-shift         The concatenated head outputs get their small singular values raised to a tenth of the first.
head-norm              Every head's output is divided by its root mean square, token by token.
fixed-temperature      Attention logits are a fixed temperature times the cosine of query and key: the largest logit
                       is the same at every head_dim, the spread of random directions grows as head_dim falls.
res-post-norm          LayerNorm after attention and MLP, inside the residual branch, instead of before.

None of them adds a parameter.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from jaxtyping import Float
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, ResPostBlock
from torch import Tensor, nn
from torch.nn import functional

from heads_for_depth.errors import BadInput

NO_INTERVENTION = "none"
SHIFT = 0.1
"""λ of the spectral shift: the smallest singular value of the attention output as a share of the largest."""
ILL_CONDITION = 1e6
"""Condition number of the value weights after the ill-conditioned initialization, up to the rounding of float32."""
TEMPERATURE = 8.0
"""Largest attention logit at fixed temperature: that of unit-scale queries and keys at a head_dim of 64."""


class SpectralShift(nn.Module):
    """Adds λσ₁ − σᵢ to every singular value σᵢ below λσ₁, so that κ is at most 1/λ.

    The shift is a constant in the backward pass: the gradient reaches the input as if nothing had been added. A matrix
    that is not finite passes as it is.
    """

    def __init__(self, share: float) -> None:
        super().__init__()
        self.share = share

    def forward(self, outputs: Float[Tensor, "batch tokens width"]) -> Float[Tensor, "batch tokens width"]:
        """The head outputs with no singular value below λσ₁."""
        with torch.no_grad():
            finite = outputs.isfinite().flatten(-2).all(dim=-1)[..., None, None]
            left, values, right = torch.linalg.svd(torch.where(finite, outputs, 0.0), full_matrices=False)
            added = (self.share * values[..., :1] - values).clamp(min=0)
            shift = (left * added.unsqueeze(-2)) @ right
        return outputs + shift


class HeadNorm(nn.Module):
    """Divides every head's output by its root mean square over head_dim, token by token; no learned scale."""

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.heads = heads

    def forward(self, outputs: Float[Tensor, "*batch width"]) -> Float[Tensor, "*batch width"]:
        """The head outputs, each of root mean square one."""
        by_head = outputs.unflatten(-1, (self.heads, -1))
        return functional.rms_norm(by_head, by_head.shape[-1:]).flatten(-2)


class Directions(nn.Module):
    """Queries or keys of one length: root mean square one over head_dim, times a constant."""

    def __init__(self, gain: float) -> None:
        super().__init__()
        self.gain = gain

    def forward(self, vectors: Float[Tensor, "*batch head_dim"]) -> Float[Tensor, "*batch head_dim"]:
        """The vectors, each of length gain·√head_dim."""
        return self.gain * functional.rms_norm(vectors, vectors.shape[-1:])


def _attentions(model: nn.Module) -> Iterator[Attention]:
    yield from (module for module in model.modules() if type(module) is Attention)


def _value_rows(attention: Attention) -> slice:
    """Rows of the packed query, key and value weights that make the values."""
    return slice(2 * attention.attn_dim, 3 * attention.attn_dim)


def _orthogonal(weight: Tensor) -> Tensor:
    """An orthogonal matrix of the shape and Frobenius norm of another."""
    matrix = nn.init.orthogonal_(torch.empty_like(weight))
    return matrix * (weight.norm() / matrix.norm())


def _ill_conditioned(weight: Tensor) -> Tensor:
    """A matrix of the shape, singular vectors and Frobenius norm of another; κ is ILL_CONDITION."""
    left, values, right = torch.linalg.svd(weight, full_matrices=False)
    falling = torch.logspace(0, -math.log10(ILL_CONDITION), len(values), dtype=weight.dtype)
    return (left * (falling * (weight.norm() / falling.norm()))) @ right


def _start_orthogonal(model: nn.Module) -> None:
    for attention in _attentions(model):
        values = _value_rows(attention)
        attention.qkv.weight[values] = _orthogonal(attention.qkv.weight[values])
        attention.proj.weight.copy_(_orthogonal(attention.proj.weight))


def _start_ill_conditioned(model: nn.Module) -> None:
    for attention in _attentions(model):
        values = _value_rows(attention)
        attention.qkv.weight[values] = _ill_conditioned(attention.qkv.weight[values])


def _shift_spectra(model: nn.Module) -> None:
    for attention in _attentions(model):
        attention.norm = SpectralShift(SHIFT)


def _normalize_heads(model: nn.Module) -> None:
    for attention in _attentions(model):
        attention.norm = HeadNorm(attention.num_heads)


def _fix_temperature(model: nn.Module) -> None:
    """Timm divides the product of query and key by √head_dim; with these lengths it is TEMPERATURE times the cosine."""
    for attention in _attentions(model):
        attention.q_norm = Directions(TEMPERATURE / math.sqrt(attention.head_dim))
        attention.k_norm = Directions(1.0)


def _norm_after(model: nn.Module) -> None:
    """Timm's own block with the norms after, with the weights of the block it replaces."""
    for name, block in list(model.named_modules()):
        if type(block) is Block:
            parts: Any = block
            after = ResPostBlock(parts.norm1.normalized_shape[0], parts.attn.num_heads)
            after.attn, after.mlp, after.norm1, after.norm2 = block.attn, block.mlp, block.norm1, block.norm2
            model.set_submodule(name, after)


_CHANGES: dict[str, Callable[[nn.Module], None]] = {
    "orthogonal-init": _start_orthogonal,
    "ill-conditioned-init": _start_ill_conditioned,
    "spectral-shift": _shift_spectra,
    "head-norm": _normalize_heads,
    "fixed-temperature": _fix_temperature,
    "res-post-norm": _norm_after,
}
INTERVENTIONS = (NO_INTERVENTION, *_CHANGES)


def intervene(model: nn.Module, intervention: str) -> nn.Module:
    """The model with one of INTERVENTIONS made in place; `none` leaves it as it is.

    Random numbers come from the global generator. Raises BadInput for an unknown name, and for a model without timm's
    plain attention, on which the interventions are defined.
    """
    if intervention not in INTERVENTIONS:
        raise BadInput("intervention", intervention, f"use one of {', '.join(INTERVENTIONS)}")
    if intervention == NO_INTERVENTION:
        return model
    if not any(True for _ in _attentions(model)):
        raise BadInput("intervention", intervention, f"is for a ViT, {type(model).__name__} has other attention")
    with torch.no_grad():
        _CHANGES[intervention](model)
    return model
