"""Shape -> nn.Module, from timm's own classes, and where in the module attention happens."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import torch
from timm.layers.attention import Attention
from timm.models import cait, davit, swin_transformer, tnt, vision_transformer, volo, xcit
from torch import nn
from torch.overrides import TorchFunctionMode

from heads_for_depth.errors import BadInput
from heads_for_depth.shapes import Shape
from heads_for_depth.wide_attention import (
    GridAttention,
    WideChannelAttention,
    WideCrossCovarianceAttention,
    WindowAttention,
)

ATTENTION_KINDS: dict[type[nn.Module], str] = {
    Attention: "tokens",
    GridAttention: "tokens",
    volo.Attention: "tokens",
    tnt.Attention: "tokens",
    davit.WindowAttention: "window",
    WindowAttention: "window",
    swin_transformer.WindowAttention: "window",
    xcit.XCA: "channels",
    davit.ChannelAttention: "channels",
    WideCrossCovarianceAttention: "channels",
    WideChannelAttention: "channels",
}
"""Attention classes whose `proj` input is the concatenated head outputs; class attention has one token only."""


CLASS_ATTENTION = (cait.ClassAttn, volo.ClassAttention)
"""Attention with the class token as its only query."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AttentionSite:
    """One attention layer inside a model."""

    name: str
    """Dotted module name, e.g. `blocks.3.attn`."""
    kind: str
    """`tokens`, `inner` (TNT's pixels), `window` or `channels`: what attends to what."""
    module: nn.Module
    heads: int


def build(shape: Shape, device: str | torch.device = "cpu") -> nn.Module:
    """The timm model of this shape, randomly initialized from the global generator; `meta` allocates nothing."""
    if shape.kv_heads is not None and shape.kv_heads != shape.heads:
        raise BadInput("kv_heads", shape.kv_heads, f"timm's {shape.family} shares no key/value heads, leave it out")
    with torch.device(device), _Uninitialized() if torch.device(device).type == "meta" else nullcontext():
        model = _BUILDERS[shape.family](shape)
        if shape.widened:
            _widen_attention(model, shape)
    return model


@cache
def count_parameters(shape: Shape) -> int:
    """Exact number of learned parameters (buffers excluded), counted on `meta`."""
    return sum(p.numel() for p in build(shape, "meta").parameters())


def attention_sites(model: nn.Module) -> Iterator[AttentionSite]:
    """Every multi-head attention of the model that has more than one query token, in forward order."""
    for name, module in model.named_modules():
        kind = ATTENTION_KINDS.get(type(module))
        if kind is not None:
            kind = "inner" if name.endswith("attn_in") else kind
            yield AttentionSite(name=name, kind=kind, module=module, heads=module.num_heads)


class _Uninitialized(TorchFunctionMode):
    """Skips the arithmetic of weight initialization, which on `meta` changes nothing and takes most of the time."""

    SKIPPED = frozenset(
        {"uniform_", "normal_", "kaiming_uniform_", "erfinv_", "mul_", "add_", "clamp_", "zero_", "fill_"}
    )

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Return a `meta` tensor as it is from in-place arithmetic; run everything else."""
        if getattr(func, "__name__", "") in self.SKIPPED:
            tensor = args[0] if args else kwargs["tensor"]
            if tensor.is_meta:
                return tensor
        return func(*args, **(kwargs or {}))


def _mlp_ratio(shape: Shape) -> float:
    """MLP width as a multiple of d_model, a little above: timm cuts off the product, which may fall just below."""
    ratios = {Fraction(width, d) for width, d in zip(shape.mlp_width, shape.d_model, strict=True)}
    if len(ratios) != 1:
        raise BadInput("mlp_width", shape.mlp_width, f"must be one multiple of d_model {shape.d_model} in every stage")
    return float(ratios.pop()) * (1 + 1e-12)


def _vit(shape: Shape) -> nn.Module:
    return vision_transformer.VisionTransformer(
        img_size=shape.image_size, patch_size=shape.patch_size, in_chans=shape.in_chans, num_classes=shape.classes,
        embed_dim=shape.d_model[0], depth=shape.depth[0], num_heads=_native_heads(shape)[0],
        mlp_ratio=_mlp_ratio(shape),
    )  # fmt: skip


def _xcit(shape: Shape) -> nn.Module:
    if shape.patch_size not in (8, 16) or shape.image_size % shape.patch_size:
        raise BadInput("patch_size", shape.patch_size, f"XCiT takes 8 or 16, dividing image size {shape.image_size}")
    return xcit.Xcit(
        img_size=shape.image_size, patch_size=shape.patch_size, in_chans=shape.in_chans, num_classes=shape.classes,
        embed_dim=shape.d_model[0], depth=shape.depth[0], num_heads=_native_heads(shape)[0],
        mlp_ratio=_mlp_ratio(shape),
        cls_attn_layers=shape.class_depth, eta=shape.layer_scale, tokens_norm=True,
    )  # fmt: skip


def _tnt(shape: Shape) -> nn.Module:
    if shape.patch_size <= 4:
        raise BadInput("patch_size", shape.patch_size, "TNT needs more than 4 pixels, else a patch has one inner token")
    return tnt.TNT(
        img_size=shape.image_size, patch_size=shape.patch_size, in_chans=shape.in_chans, num_classes=shape.classes,
        embed_dim=shape.d_model[0], inner_dim=shape.inner_d_model, depth=shape.depth[0],
        num_heads_inner=shape.inner_heads, num_heads_outer=_native_heads(shape)[0], mlp_ratio=_mlp_ratio(shape),
    )  # fmt: skip


def _davit(shape: Shape) -> nn.Module:
    return davit.DaVit(
        in_chans=shape.in_chans, num_classes=shape.classes, depths=shape.depth, embed_dims=shape.d_model,
        num_heads=_native_heads(shape), window_size=shape.window, mlp_ratio=_mlp_ratio(shape), drop_path_rate=0.0,
    )  # fmt: skip


def _volo(shape: Shape) -> nn.Module:
    if len(shape.depth) != 4:
        raise BadInput("depth", shape.depth, "VOLO has four stages, the first with outlook attention")
    return volo.VOLO(
        list(shape.depth), img_size=shape.image_size, in_chans=shape.in_chans, num_classes=shape.classes,
        patch_size=shape.patch_size, embed_dims=list(shape.d_model), num_heads=list(_native_heads(shape)),
        mlp_ratio=_mlp_ratio(shape),
    )  # fmt: skip


def _swin(shape: Shape) -> nn.Module:
    if any(d != shape.d_model[0] * 2**stage for stage, d in enumerate(shape.d_model)):
        raise BadInput("d_model", shape.d_model, "Swin doubles its width at every stage")
    return swin_transformer.SwinTransformer(
        img_size=shape.image_size, patch_size=shape.patch_size, in_chans=shape.in_chans, num_classes=shape.classes,
        embed_dim=shape.d_model[0], depths=shape.depth, num_heads=_native_heads(shape), window_size=shape.window,
        mlp_ratio=_mlp_ratio(shape), drop_path_rate=0.0,
    )  # fmt: skip


_BUILDERS: dict[str, Callable[[Shape], nn.Module]] = {
    "vit": _vit, "deit": _vit, "xcit": _xcit, "tnt": _tnt, "davit": _davit, "volo": _volo, "swin": _swin,
}  # fmt: skip


def _native_heads(shape: Shape) -> tuple[int, ...]:
    """Heads to hand to timm: where the attention is widened afterwards, a count that any width allows."""
    if not shape.widened:
        return shape.heads
    if shape.family == "volo" and shape.d_model[0] % shape.heads[0]:
        raise BadInput("heads", shape.heads[0], f"must divide d_model {shape.d_model[0]} in VOLO's outlook stage")
    return (shape.heads[0] if shape.family == "volo" else 1,) + (1,) * (len(shape.heads) - 1)


def _widen_attention(model: nn.Module, shape: Shape) -> None:
    """Replace every attention by one of the same kind with `heads` heads of `head_dim`, in place.

    TNT's attention inside a patch and VOLO's outlook attention are not what the reshapes change and stay as they are.
    """
    by_width: dict[int, tuple[int, int]] = {}
    for width, heads, head_dim in zip(shape.d_model, shape.heads, shape.head_dims, strict=True):
        if by_width.setdefault(width, (heads, head_dim)) != (heads, head_dim):
            raise BadInput("heads", shape.heads, "stages of equal width need equal heads where head_dim is given")
    for name, module in list(model.named_modules()):
        if type(module) in (*ATTENTION_KINDS, *CLASS_ATTENTION) and not name.endswith("attn_in"):
            width = module.get_submodule("proj").out_features
            assert isinstance(width, int)
            wide = _wide_attention(module, width, *by_width[width], shape)
            model.set_submodule(name, wide.apply(_initialize))


def _initialize(module: nn.Module) -> None:
    """Initialize a linear layer as all of timm's models here do: truncated normal, no bias."""
    if isinstance(module, nn.Linear):
        nn.init.trunc_normal_(module.weight, std=0.02)
        if module.bias is not None:
            nn.init.zeros_(module.bias)


def _wide_attention(module: nn.Module, d_model: int, heads: int, head_dim: int, shape: Shape) -> nn.Module:
    if isinstance(module, CLASS_ATTENTION):
        head_dim = head_dim if shape.widen_class_attention else d_model // heads
        return volo.ClassAttention(d_model, heads, head_dim, qkv_bias=isinstance(module, cait.ClassAttn))
    if isinstance(module, xcit.XCA):
        return WideCrossCovarianceAttention(d_model, heads, head_dim)
    if isinstance(module, davit.ChannelAttention):
        return WideChannelAttention(d_model, heads, head_dim)
    if isinstance(module, swin_transformer.WindowAttention):
        return swin_transformer.WindowAttention(d_model, heads, head_dim, module.window_size)
    if isinstance(module, davit.WindowAttention):
        return WindowAttention(d_model, heads, attn_head_dim=head_dim, qkv_bias=True)
    if isinstance(module, volo.Attention):
        return GridAttention(d_model, heads, attn_head_dim=head_dim)
    return Attention(d_model, heads, attn_head_dim=head_dim, qkv_bias=not isinstance(module, tnt.Attention))
