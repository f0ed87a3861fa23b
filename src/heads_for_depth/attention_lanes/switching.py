"""Letting a model's attention layers run in lanes, where that is the same function and faster."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from jaxtyping import Float
from timm.layers.attention import Attention
from timm.models import davit, tnt
from torch import Tensor, nn

from heads_for_depth.attention_lanes.compiling import LARGEST_HEAD_DIM
from heads_for_depth.attention_lanes.operator import availability, lane_attention
from heads_for_depth.models import AttentionSite, attention_sites
from heads_for_depth.wide_attention import WindowAttention

LARGEST_TOKENS = 128
"""Tokens up to which a layer is switched: the lead at the largest head_dim shrinks to nothing a little beyond."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionKernel:
    """How a model computes attention."""

    sites: int
    """Attention layers that run in lanes."""
    of: int
    """Attention layers altogether."""
    reasons: tuple[str, ...]
    """Why the others do not, each reason once."""

    @property
    def kernel(self) -> Literal["lanes", "sdpa"]:
        """`lanes` where at least one layer runs in them; `sdpa` means the model as it was."""
        return "lanes" if self.sites else "sdpa"

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        plain: dict[str, Any] = {"kernel": self.kernel, "sites": self.sites, "of": self.of}
        return plain | ({"reason": "; ".join(self.reasons)} if self.reasons else {})


def use_lanes(model: nn.Module, inputs: Float[Tensor, "batch *size"]) -> AttentionKernel:
    """Let every eligible attention layer of a model run in lanes, in place, and say how many do.

    Parameters, their names and the layers' classes stay. A switched layer goes back to its own forward for any call
    that is not float32 on a CPU, so a copy of the model in float64 computes what it always did. `inputs` are of the
    size to come; the first passes through the model in evaluation mode, to count the tokens of each layer.
    """
    sites = list(attention_sites(model))
    tokens = _tokens(model, sites, inputs[:1])
    reasons = {site.name: _obstacle(site.module, tokens[site.name]) for site in sites}
    eligible = [site.module for site in sites if not reasons[site.name]]
    others = dict.fromkeys(reason for reason in reasons.values() if reason)
    if eligible and not availability().ready:
        return AttentionKernel(sites=0, of=len(sites), reasons=(availability().reason, *others))
    for module in eligible:
        module.forward = _LaneForward(module)
    return AttentionKernel(sites=len(eligible), of=len(sites), reasons=tuple(others))


def _tokens(model: nn.Module, sites: list[AttentionSite], inputs: Tensor) -> dict[str, int]:
    """Tokens of every layer for images of this size; 0 for a layer that the model does not call."""
    tokens = {site.name: 0 for site in sites}

    def note(name: str, x: Tensor) -> None:
        tokens[name] = x.shape[1:-1].numel()

    handles = [
        site.module.register_forward_pre_hook(lambda _, args, name=site.name: note(name, args[0])) for site in sites
    ]
    training = {module: module.training for module in model.modules()}
    model.eval()
    with torch.no_grad():
        model(inputs)
    for module, mode in training.items():
        module.training = mode
    for handle in handles:
        handle.remove()
    return tokens


def _obstacle(module: Any, tokens: int) -> str | None:
    """Why a layer is not switched, or None."""
    name = type(module).__name__
    if type(module) not in _PARTS:
        return f"{name} has no form in lanes"
    if any(p.dtype != torch.float32 or p.device.type != "cpu" for p in module.parameters()):
        return "not float32 on a CPU"
    head_dim = module.proj.in_features // module.num_heads
    if head_dim > LARGEST_HEAD_DIM:
        return f"head_dim {head_dim} is above {LARGEST_HEAD_DIM}"
    if not 0 < tokens <= LARGEST_TOKENS:
        return f"{tokens} tokens are not 1 to {LARGEST_TOKENS}"
    return f"{name} with options" if _has_options(module, head_dim) else None


def _has_options(module: Any, head_dim: int) -> bool:
    """Whether a layer computes anything but softmax attention with scale head_dim^-1/2 and its projections."""
    return (
        (type(module) is not Attention and not all(isinstance(norm, nn.Identity) for norm in _norms(module)))
        or getattr(module, "gate", None) is not None
        or getattr(getattr(module, "attn_drop", None), "p", 0) > 0
        or module.scale != head_dim**-0.5
        or (isinstance(module, tnt.Attention) and module.head_dim != head_dim)
        or not isinstance(vars(module).get("forward"), _LaneForward | None)
    )


def _norms(module: Any) -> list[nn.Module]:
    """What a layer does to queries, to keys and to the concatenated heads, where it has a place for it."""
    found = (getattr(module, name, None) for name in ("q_norm", "k_norm", "norm"))
    return [norm for norm in found if norm is not None]


class _LaneForward:
    """The forward of a switched layer, set on the instance: a copy of the layer gets a copy that belongs to it."""

    def __init__(self, layer: nn.Module) -> None:
        self.layer: Any = layer

    def __call__(self, x: Tensor, *options: Any, **named: Any) -> Tensor:
        """In lanes where the call fits, else the layer's own forward."""
        layer = self.layer
        if not _fits(layer, x, *options, *named.values()):
            return type(layer).forward(layer, x, *options, **named)
        heads = lane_attention(*_PARTS[type(layer)](layer, x))
        projected = layer.proj(layer.norm(heads) if type(layer) is Attention else heads)
        return layer.proj_drop(projected) if hasattr(layer, "proj_drop") else projected


def _fits(layer: Any, x: Tensor, *options: Any) -> bool:
    """Whether one call can run in lanes: float32 on a CPU, nothing traced or cast by torch, no mask."""
    return (
        type(x) is Tensor
        and x.dtype == layer.proj.weight.dtype == torch.float32
        and x.device.type == "cpu"
        and not torch.is_autocast_enabled("cpu")
        and not torch.compiler.is_compiling()
        and all(option is None or option is False for option in options)
        and availability().ready
    )


def _packed(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    return (layer.qkv(x).unflatten(-1, (3, layer.num_heads, -1)),)


def _plain(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    """Of timm's plain attention, which may normalize queries and keys."""
    (packed,) = _packed(layer, x)
    if isinstance(layer.q_norm, nn.Identity) and isinstance(layer.k_norm, nn.Identity):
        return (packed,)
    queries, keys, values = packed.unbind(2)
    return (torch.stack((layer.q_norm(queries), layer.k_norm(keys), values), dim=2),)


def _values_apart(layer: Any, x: Tensor) -> tuple[Tensor, ...]:
    heads = layer.num_heads
    return layer.qk(x).unflatten(-1, (2, heads, -1)), layer.v(x).unflatten(-1, (1, heads, -1))


_PARTS: dict[type[nn.Module], Callable[[Any, Tensor], tuple[Tensor, ...]]] = {
    Attention: _plain,
    WindowAttention: _packed,
    davit.WindowAttention: _packed,
    tnt.Attention: _values_apart,
}
"""Queries, keys and values of each kind of layer that can run in lanes."""
