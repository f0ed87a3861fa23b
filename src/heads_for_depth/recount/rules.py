"""The changes of a stated shape among which the rule search looks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from fractions import Fraction

from heads_for_depth.recount.counts import CLASS_BLOCKS, Countable, Variant
from heads_for_depth.shapes import STAGED, Shape

Change = Callable[[Variant], Variant]

WIDTH_FACTORS = tuple(Fraction(eighths, 8) for eighths in (4, 5, 6, 7, 9, 10, 11, 12))
"""d_model against the stated one; the MLP ratio stays."""
MLP_FACTORS = tuple(map(Fraction, ("1/4", "1/3", "1/2", "2/3", "3/4", "5/4", "4/3", "3/2", "2")))
"""MLP width against the stated one."""
INNER_FACTORS = tuple(map(Fraction, ("1/2", "3/2", "2")))
"""Attention inner width against d_model."""
OTHER_STAGES_REACH = 2
"""Blocks that a stage may have more than stated where the row changes the depth of another stage."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Axis:
    """Alternatives of which a rule uses at most one."""

    name: str
    changes: tuple[Change, ...]


def axes(stated: Countable, other: Countable | None) -> list[Axis]:
    """All axes of a stated shape, in the order in which changes apply; `other` is the other side of the row."""
    return [
        Axis(name="d_model", changes=tuple(map(_width, WIDTH_FACTORS))),
        *_depth_axes(stated, other),
        Axis(name="MLP width", changes=tuple(_mlp_changes(stated))),
        Axis(name="attention inner width", changes=tuple(_inner_changes(stated, other))),
        *_inner_d_model_axes(stated),
    ]


def _depth_axes(stated: Countable, other: Countable | None) -> Iterator[Axis]:
    other_depth = stated.depth if other is None else other.depth
    changed = _changed_stages(stated, other)
    for stage, (blocks, other_blocks) in enumerate(zip(stated.depth, other_depth, strict=True)):
        most = 2 * max(blocks, other_blocks) if stage in changed else blocks + OTHER_STAGES_REACH
        changes = tuple(_depth(stage, new) for new in range(1, most + 1) if new != blocks)
        yield Axis(name=f"depth of stage {stage + 1}" if len(stated.depth) > 1 else "depth", changes=changes)


def _changed_stages(stated: Countable, other: Countable | None) -> tuple[int, ...]:
    """The stages whose depth differs between the sides of the row; all where none does."""
    stages = range(len(stated.depth))
    changed = tuple(stage for stage in stages if other is not None and stated.depth[stage] != other.depth[stage])
    return changed or tuple(stages)


def _mlp_changes(stated: Countable) -> Iterator[Change]:
    for factor in MLP_FACTORS:
        yield _mlp(factor, class_blocks=True)
        if stated.family in CLASS_BLOCKS:
            yield _mlp(factor, class_blocks=False)


def _inner_changes(stated: Countable, other: Countable | None) -> Iterator[Change]:
    class_blocks = (True, False) if stated.family in CLASS_BLOCKS else (True,)
    stages = tuple(range(len(stated.depth)))
    changed = _changed_stages(stated, other)
    for widen_class in class_blocks:
        if other is not None and other.heads != stated.heads:
            yield _head_dim(head_dims(other), widen_class)
        for factor in INNER_FACTORS:
            yield _inner_width(factor, stages, widen_class)
            if stated.family in STAGED and changed != stages:
                yield _inner_width(factor, changed, widen_class)


def _inner_d_model_axes(stated: Countable) -> Iterator[Axis]:
    if isinstance(stated, Shape) and stated.family == "tnt":
        step, own = stated.inner_heads, stated.inner_d_model
        widths = range(step, 2 * own + 1, step)
        yield Axis(name="inner d_model", changes=tuple(_inner_d_model(width) for width in widths if width != own))


def head_dims(shape: Countable) -> tuple[int, ...]:
    """Width of one head per stage, whether given or derived."""
    return tuple(inner // heads for inner, heads in zip(shape.inner_widths, shape.heads, strict=True))


def _width(factor: Fraction) -> Change:
    def change(variant: Variant) -> Variant:
        shape = variant.shape
        wider = replace(shape, d_model=_times(shape.d_model, factor), mlp_width=_times(shape.mlp_width, factor))
        return replace(variant, shape=wider)

    return change


def _depth(stage: int, blocks: int) -> Change:
    def change(variant: Variant) -> Variant:
        depth = variant.shape.depth
        return replace(variant, shape=replace(variant.shape, depth=(*depth[:stage], blocks, *depth[stage + 1 :])))

    return change


def _mlp(factor: Fraction, *, class_blocks: bool) -> Change:
    def change(variant: Variant) -> Variant:
        widths = variant.shape.mlp_width
        shape = replace(variant.shape, mlp_width=_times(widths, factor))
        return Variant(shape=shape, class_mlp_width=None if class_blocks else widths[-1])

    return change


def _head_dim(kept: tuple[int, ...], widen_class: bool) -> Change:
    def change(variant: Variant) -> Variant:
        return replace(variant, shape=_with_head_dim(variant.shape, kept, widen_class))

    return change


def _inner_width(factor: Fraction, stages: tuple[int, ...], widen_class: bool) -> Change:
    def change(variant: Variant) -> Variant:
        shape = variant.shape
        widths = [factor * d if stage in stages else d for stage, d in enumerate(shape.d_model)]
        per_head = [_whole(Fraction(width, heads)) for width, heads in zip(widths, shape.heads, strict=True)]
        return replace(variant, shape=_with_head_dim(shape, tuple(per_head), widen_class))

    return change


def _with_head_dim(shape: Countable, per_head: tuple[int, ...], widen_class: bool) -> Countable:
    if isinstance(shape, Shape):
        return replace(shape, head_dim=per_head, widen_class_attention=widen_class)
    return replace(shape, head_dim=per_head)


def _inner_d_model(width: int) -> Change:
    def change(variant: Variant) -> Variant:
        assert isinstance(variant.shape, Shape)
        return replace(variant, shape=replace(variant.shape, inner_d_model=width))

    return change


def _times(widths: tuple[int, ...], factor: Fraction) -> tuple[int, ...]:
    return tuple(_whole(width * factor) for width in widths)


def _whole(number: Fraction) -> int:
    """The number where it is whole; a rule that gives a broken width does not exist."""
    if number.denominator != 1:
        raise ValueError(f"{number} is no width")
    return int(number)
