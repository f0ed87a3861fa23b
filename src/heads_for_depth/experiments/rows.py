"""The rows under test at full scale, and the reduced shape of every cell of their 2 × 2."""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from heads_for_depth.errors import BadInput
from heads_for_depth.shapes import Reduction, Shape, reduced_heads, with_heads

Arm = Literal["before", "after"]
ARMS: tuple[Arm, ...] = ("before", "after")

WIDTH_DIVISOR = 8
DEPTH_DIVISOR = 4
REDUCTION: Reduction = "keep-head-dim"
"""The first of the two named reductions: every width divided by 8, XCiT and TNT depths by 4, head_dim kept near."""
REDUCTIONS: dict[str, Reduction] = {"vision_rows": REDUCTION, "vision_rows_keep_heads": "keep-heads"}
"""Experiment -> its reduction. The second keeps the published head counts, so that head_dim shrinks with the width."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionRow:
    """One published before → after pair with the full-scale shapes on both ends."""

    name: str
    title: str
    before: Shape
    depth_after: tuple[int, ...]
    heads_after: tuple[int, ...]
    published: bool
    """False for a row of our own."""
    heads_published: bool
    """False where LIT-527's heads after the reshape are not in our record and a doubling is assumed."""

    @property
    def after(self) -> Shape:
        """The reshape at full scale, d_model and MLP width as before."""
        return replace(with_heads(self.before, self.heads_after), depth=self.depth_after)


def _staged(family: str, depth: tuple[int, ...], d_model: tuple[int, ...], heads: tuple[int, ...]) -> Shape:
    return Shape(family=family, depth=depth, d_model=d_model, heads=heads, mlp_width=tuple(4 * d for d in d_model))


def _xcit(d_model: tuple[int, ...], heads: tuple[int, ...]) -> Shape:
    """24 blocks, with the small initial residual scale that published XCiTs of this depth have."""
    return replace(_staged("xcit", (24,), d_model, heads), layer_scale=1e-5)


def _row(
    name: str, title: str, before: Shape, depth_after: tuple[int, ...], heads_after: tuple[int, ...], **facts: bool
) -> VisionRow:
    known = {"published": True, "heads_published": True} | facts
    return VisionRow(name=name, title=title, before=before, depth_after=depth_after, heads_after=heads_after, **known)


VISION_ROWS: tuple[VisionRow, ...] = (
    _row("xcit-m", "XCiT-M", _xcit((512,), (8,)), (12,), (16,)),
    _row("tnt-b", "TNT-B", _staged("tnt", (12,), (640,), (10,)), (8,), (16,)),
    _row("davit-b", "DaViT-B", _staged("davit", (1, 1, 9, 1), (128, 256, 512, 1024), (4, 8, 16, 32)),
         (1, 1, 5, 1), (8, 16, 32, 64), heads_published=False),
    _row("xcit-l", "XCiT-L", _xcit((768,), (16,)), (12,), (24,)),
    _row("davit-l", "DaViT-L", _staged("davit", (1, 1, 9, 1), (192, 384, 768, 1536), (6, 12, 24, 48)),
         (1, 1, 5, 1), (12, 24, 48, 96), heads_published=False),
    _row("vit-own", "ViT-B (our own row)", _staged("vit", (12,), (768,), (12,)), (6,), (24,), published=False),
)  # fmt: skip
"""The five clean rows of LIT-527 and one of our own: ViT-B with XCiT-M's trade, depth halved and heads doubled."""

_SMALL_INPUT: dict[str, dict[str, Any]] = {
    "vit": {"image_size": 28, "patch_size": 7},
    "tnt": {"image_size": 28, "patch_size": 7, "inner_d_model": 20, "inner_heads": 2},
    "xcit": {"image_size": 32, "patch_size": 8},
    "davit": {"image_size": 32, "window": 4},
}
"""Input geometry at reduced scale: 16 patches (4 inner tokens each in TNT), or an 8 × 8 map in DaViT's first stage."""


def vision_row(name: str) -> VisionRow:
    """The row of that name, or BadInput with the names there are."""
    for row in VISION_ROWS:
        if row.name == name:
            return row
    raise BadInput("row", name, f"use one of {', '.join(row.name for row in VISION_ROWS)}")


def reduced_shape(row: VisionRow, depth_arm: Arm, heads_arm: Arm, reduction: Reduction = REDUCTION) -> Shape:
    """One cell of a row's 2 × 2 at reduced scale: depth from one arm, heads from the other."""
    before = row.before
    d_model = tuple(d // WIDTH_DIVISOR for d in before.d_model)
    pair = reduced_heads(before=before.heads[0], after=row.heads_after[0], d_model=before.d_model[0],
                         reduced_d_model=d_model[0], reduction=reduction)  # fmt: skip
    depth = before.depth if depth_arm == "before" else row.depth_after
    proportion = [Fraction(h, before.heads[0]) for h in before.heads]
    heads = tuple(int(pair[heads_arm == "after"] * p) for p in proportion)
    return Shape(
        family=before.family, depth=_reduced_depth(before.family, depth), d_model=d_model, heads=heads,
        mlp_width=tuple(4 * d for d in d_model), in_chans=1, classes=10, **_SMALL_INPUT[before.family],
    )  # fmt: skip


def _reduced_depth(family: str, depth: tuple[int, ...]) -> tuple[int, ...]:
    """XCiT and TNT a quarter; ViT a half; DaViT's 9 → 5 has no smaller whole ratio and stays."""
    divisor = {"xcit": DEPTH_DIVISOR, "tnt": DEPTH_DIVISOR, "vit": 2, "davit": 1}[family]
    if any(blocks % divisor for blocks in depth):
        raise BadInput("depth", depth, f"cannot be divided by {divisor} in {family}")
    return tuple(blocks // divisor for blocks in depth)


def vision_cells(reduction: Reduction = REDUCTION) -> list[tuple[VisionRow, Arm, Arm, Shape]]:
    """All cells of all rows, (row, depth arm, heads arm, reduced shape)."""
    arms = [(depth, heads) for depth in ARMS for heads in ARMS]
    return [
        (row, depth, heads, reduced_shape(row, depth, heads, reduction)) for row in VISION_ROWS for depth, heads in arms
    ]
