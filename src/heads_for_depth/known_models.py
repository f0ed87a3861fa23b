"""The Shape of a model that timm knows by name, read off timm's own definition."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import timm
import torch
from timm.models import davit, swin_transformer, tnt, vision_transformer, volo, xcit
from torch import nn

from heads_for_depth.errors import BadInput
from heads_for_depth.models import count_parameters
from heads_for_depth.shapes import Shape


def shape_of(name: str) -> Shape:
    """The shape of a timm model, built on `meta`.

    Raises BadInput for a name that timm does not know, a family that the report does not, or a variant with parts that
    a Shape does not describe (its parameters would not recount).
    """
    if name not in timm.list_models():
        near = difflib.get_close_matches(name, timm.list_models(), n=3)
        raise BadInput("model", name, f"timm has no such model{', did you mean ' + ', '.join(near) if near else ''}")
    with torch.device("meta"):
        model = timm.create_model(name)
    reader = _READERS.get(type(model))
    if reader is None:
        families = ", ".join(sorted(kind.__name__ for kind in _READERS))
        raise BadInput("model", name, f"is a {type(model).__name__}, the report reads {families}")
    try:
        shape = reader(model)
        described = count_parameters(shape) == sum(p.numel() for p in model.parameters())
    except (AttributeError, BadInput):  # blocks without attention or MLP, and widths that no Shape holds
        described = False
    if not described:
        raise BadInput("model", name, "is a variant with parts that depth, width and heads do not describe")
    return replace(shape, layer_scale=_layer_scale(name)) if shape.family == "xcit" else shape


def load_checkpoint(folder: Path) -> nn.Module:
    """A trained model from a local folder as timm saves it: config.json with the weights beside it.

    Raises BadInput where the folder is no such checkpoint, or holds a model whose attention the report does not read.
    """
    if not (folder / "config.json").is_file():
        raise BadInput("checkpoint", str(folder), "give a folder with timm's config.json and the weights beside it")
    try:
        model = timm.create_model(f"local-dir:{folder}", pretrained=True)
    except (OSError, RuntimeError, ValueError, KeyError, TypeError, AssertionError, UnpicklingError) as error:
        reason = " ".join(str(error).split())[:160] or type(error).__name__
        raise BadInput("checkpoint", str(folder), f"timm cannot load it ({reason}), save it again with timm") from error
    if type(model) not in _READERS:
        families = ", ".join(sorted(kind.__name__ for kind in _READERS))
        raise BadInput("checkpoint", str(folder), f"holds a {type(model).__name__}, the report reads {families}")
    return model


def _layer_scale(name: str) -> float:
    """XCiT's initial residual scale, read off a real model of one block: `meta` holds no values."""
    model: Any = timm.create_model(name, depth=1, cls_attn_layers=0)
    return float(f"{float(model.blocks[0].gamma1[0].detach()):.6g}")


def _mlp_width(block: Any) -> int:
    return int(block.mlp.fc1.out_features)


def _input(model: Any) -> dict[str, Any]:
    """Image size, channels and classes of the model's default configuration."""
    channels, height, _ = model.default_cfg["input_size"]
    return {"image_size": height, "in_chans": channels, "classes": model.num_classes}


def _vit(model: Any) -> Shape:
    block = model.blocks[0]
    return Shape(
        family="vit", depth=(len(model.blocks),), d_model=(model.embed_dim,), heads=(block.attn.num_heads,),
        mlp_width=(_mlp_width(block),), patch_size=model.patch_embed.patch_size[0], **_input(model),
    )  # fmt: skip


def _xcit(model: Any) -> Shape:
    block = model.blocks[0]
    return Shape(
        family="xcit", depth=(len(model.blocks),), d_model=(model.embed_dim,), heads=(block.attn.num_heads,),
        mlp_width=(_mlp_width(block),), patch_size=model.patch_embed.patch_size,
        class_depth=len(model.cls_attn_blocks), **_input(model),
    )  # fmt: skip


def _tnt(model: Any) -> Shape:
    block = model.blocks[0]
    return Shape(
        family="tnt", depth=(len(model.blocks),), d_model=(model.embed_dim,), heads=(block.attn_out.num_heads,),
        mlp_width=(_mlp_width(block),), patch_size=model.pixel_embed.patch_size[0],
        inner_d_model=model.pixel_embed.in_dim, inner_heads=block.attn_in.num_heads, **_input(model),
    )  # fmt: skip


def _davit(model: Any) -> Shape:
    pairs = [stage.blocks for stage in model.stages]
    spatial = [next(m for m in stage.modules() if isinstance(m, davit.SpatialBlock)) for stage in model.stages]
    return Shape(
        family="davit", depth=tuple(len(blocks) for blocks in pairs),
        d_model=tuple(block.attn.dim for block in spatial), heads=tuple(block.attn.num_heads for block in spatial),
        mlp_width=tuple(_mlp_width(block) for block in spatial), window=spatial[0].window_size[0], **_input(model),
    )  # fmt: skip


def _volo(model: Any) -> Shape:
    stages = [stage for stage in model.network if isinstance(stage, nn.Sequential)]
    first: list[Any] = [stage[0] for stage in stages]
    return Shape(
        family="volo", depth=tuple(len(stage) for stage in stages),
        d_model=tuple(block.norm1.normalized_shape[0] for block in first),
        heads=tuple(block.attn.num_heads for block in first), mlp_width=tuple(_mlp_width(block) for block in first),
        patch_size=8, **_input(model),
    )  # fmt: skip


def _swin(model: Any) -> Shape:
    first = [stage.blocks[0] for stage in model.layers]
    return Shape(
        family="swin", depth=tuple(len(stage.blocks) for stage in model.layers),
        d_model=tuple(block.attn.dim for block in first), heads=tuple(block.attn.num_heads for block in first),
        mlp_width=tuple(_mlp_width(block) for block in first), patch_size=model.patch_embed.patch_size[0],
        window=first[0].attn.window_size[0], **_input(model),
    )  # fmt: skip


_READERS: dict[type[nn.Module], Callable[..., Shape]] = {
    vision_transformer.VisionTransformer: _vit,
    xcit.Xcit: _xcit,
    tnt.TNT: _tnt,
    davit.DaVit: _davit,
    volo.VOLO: _volo,
    swin_transformer.SwinTransformer: _swin,
}
