"""Exact parameter counts, and the same numbers fast enough to search with."""

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, NamedTuple

from torch import nn

from heads_for_depth.models import build
from heads_for_depth.recount.language import LanguageShape, language_parameters
from heads_for_depth.shapes import Shape

CLASS_BLOCKS = {"xcit": "cls_attn_blocks", "volo": "post_network"}
"""Families with class-attention blocks after the main stack, and timm's name for these."""

Countable = Shape | LanguageShape


@dataclass(frozen=True, kw_only=True, slots=True)
class Variant:
    """A shape whose class-attention blocks may have an MLP of their own."""

    shape: Countable
    class_mlp_width: int | None = None
    """XCiT, VOLO: MLP width of the class-attention blocks; None means that of the last stage."""


class Total(NamedTuple):
    """Learned parameters of a model, and those of some parts of it."""

    whole: int
    blocks: tuple[int, ...]
    """One block of each stage."""
    class_mlp: int
    """The MLPs of the class-attention blocks."""


def exact_count(variant: Variant) -> int:
    """Parameters of the model itself: timm's on `meta`, the formula's for language."""
    shape = variant.shape
    if isinstance(shape, LanguageShape):
        return language_parameters(shape)
    if variant.class_mlp_width is None:
        return _total(shape).whole
    ratio = Fraction(variant.class_mlp_width, shape.d_model[-1])
    other = replace(shape, depth=(1,) * len(shape.depth), mlp_width=tuple(int(ratio * d) for d in shape.d_model))
    return _total(shape).whole - _total(shape).class_mlp + _total(other).class_mlp


def fast_count(variant: Variant) -> int:
    """The same number from a few small models, for it is affine in every depth, MLP width and attention inner width."""
    shape = variant.shape
    if isinstance(shape, LanguageShape):
        return language_parameters(shape)
    ratio = Fraction(shape.mlp_width[0], shape.d_model[0])
    plane = _plane(_anchor(shape))
    count = plane.total(shape, ratio)
    if variant.class_mlp_width is not None:
        own_ratio = Fraction(variant.class_mlp_width, shape.d_model[-1])
        count += plane.class_mlp_slope * (own_ratio - ratio)
    return int(count)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Part:
    """A count that is affine in the MLP ratio and in head_dim; at MLP ratio 1 and head_dim 1 it is `at_one`."""

    at_one: int
    per_ratio: int
    per_head_dim: int

    def at(self, ratio: Fraction, head_dim: int) -> Fraction:
        return self.at_one + (ratio - 1) * self.per_ratio + (head_dim - 1) * self.per_head_dim


@dataclass(frozen=True, kw_only=True, slots=True)
class _Plane:
    """Parameters outside the blocks, and of one block of each stage."""

    outside: _Part
    blocks: tuple[_Part, ...]
    class_mlp_slope: int

    def total(self, shape: Shape, ratio: Fraction) -> Fraction:
        """Parameters of the shape: the parts at its MLP ratio and head dimensions, times its depth."""
        head_dims = shape.head_dims if shape.widened else (1,) * len(shape.depth)
        stages = zip(self.blocks, shape.depth, head_dims, strict=True)
        total = sum((depth * block.at(ratio, head_dim) for block, depth, head_dim in stages), Fraction(0))
        return total + self.outside.at(ratio, head_dims[-1])


def _anchor(shape: Shape) -> Shape:
    """The smallest shape that differs from this one in depth, MLP width and inner width only."""
    return replace(
        shape,
        depth=(1,) * len(shape.depth),
        mlp_width=shape.d_model,
        head_dim=(1,) * len(shape.depth) if shape.widened else None,
    )


@lru_cache(maxsize=4096)
def _plane(anchor: Shape) -> _Plane:
    """Measure the parts of all shapes that share an anchor, by one step in each direction."""
    wider_mlp = replace(anchor, mlp_width=tuple(2 * d for d in anchor.d_model))
    wider_heads = replace(anchor, head_dim=(2,) * len(anchor.depth)) if anchor.widened else anchor
    totals = [_total(shape) for shape in (anchor, wider_mlp, wider_heads)]
    outside_and_blocks = ((total.whole - sum(total.blocks), *total.blocks) for total in totals)
    parts = [
        _Part(at_one=one, per_ratio=mlp - one, per_head_dim=heads - one)
        for one, mlp, heads in zip(*outside_and_blocks, strict=True)
    ]
    slope = totals[1].class_mlp - totals[0].class_mlp
    return _Plane(outside=parts[0], blocks=tuple(parts[1:]), class_mlp_slope=slope)


@lru_cache(maxsize=16384)
def _total(shape: Shape) -> Total:
    model = build(shape, "meta")
    class_blocks = getattr(model, CLASS_BLOCKS[shape.family]) if shape.family in CLASS_BLOCKS else ()
    return Total(
        whole=_size(model),
        blocks=tuple(_size(stage[0]) for stage in _stages(model, shape.family)),
        class_mlp=sum(_size(block.mlp) for block in class_blocks),
    )


def _stages(model: Any, family: str) -> list[Any]:
    """The blocks of each stage, which within a stage all have the same parameters."""
    if family == "davit":
        return [stage.blocks for stage in model.stages]
    if family == "swin":
        return [layer.blocks for layer in model.layers]
    if family == "volo":
        return [stage for stage in model.network if isinstance(stage, nn.Sequential)]
    return [model.blocks]


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
