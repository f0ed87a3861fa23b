"""The shape of a transformer, and the rules that change one shape into another.

A shape is everything that fixes the parameter count: family, depth, d_model, heads, head_dim and MLP width.
Families with stages (DaViT, Swin, VOLO) have one entry per stage; the others have one entry.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from fractions import Fraction
from typing import Any, Literal

from heads_for_depth.errors import BadInput

FAMILIES = ("vit", "deit", "xcit", "tnt", "davit", "volo", "swin")
STAGED = ("davit", "volo", "swin")
Regime = Literal["fixed-d-model", "fixed-head-dim"]
REGIMES: tuple[Regime, ...] = ("fixed-d-model", "fixed-head-dim")
Reduction = Literal["keep-head-dim", "keep-heads"]


def divisors(number: int) -> list[int]:
    """Every positive divisor of `number`, ascending: the head counts that a width allows."""
    return [candidate for candidate in range(1, number + 1) if number % candidate == 0]


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """One architecture, checked when it is built."""

    family: str
    """One of FAMILIES."""
    depth: tuple[int, ...]
    """Blocks per stage."""
    d_model: tuple[int, ...]
    """Token width per stage."""
    heads: tuple[int, ...]
    """Attention heads per stage (outer attention in TNT)."""
    mlp_width: tuple[int, ...]
    """Hidden width of the MLP per stage."""
    head_dim: tuple[int, ...] | None = None
    """Width of one head per stage; None means d_model / heads, the practice's regime."""
    kv_heads: tuple[int, ...] | None = None
    """Key/value heads per stage; None means as many as heads."""
    image_size: int = 224
    patch_size: int = 16
    in_chans: int = 3
    classes: int = 1000
    inner_d_model: int = 40
    """TNT: width of the pixel tokens inside a patch."""
    inner_heads: int = 4
    """TNT: heads of the attention inside a patch."""
    class_depth: int = 2
    """XCiT: class-attention blocks after the main stack."""
    widen_class_attention: bool = True
    """Whether a given head_dim also applies to class attention (XCiT, VOLO)."""
    layer_scale: float = 1.0
    """XCiT: initial residual scale (eta); does not change the count."""
    window: int = 7
    """DaViT, Swin: side of the attention window in tokens."""

    def __post_init__(self) -> None:
        _check_family(self)
        _check_lengths(self)
        _check_positive(self)
        _check_heads(self)

    @property
    def head_dims(self) -> tuple[int, ...]:
        """Width of one head per stage, whether given or derived."""
        return self.head_dim or tuple(d // h for d, h in zip(self.d_model, self.heads, strict=True))

    @property
    def inner_widths(self) -> tuple[int, ...]:
        """Attention inner width h·head_dim per stage: D of the theorem."""
        return tuple(h * d for h, d in zip(self.heads, self.head_dims, strict=True))

    @property
    def widened(self) -> bool:
        """Whether the attention is wider (or narrower) inside than the tokens are."""
        return self.inner_widths != self.d_model

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record; `Shape.from_dict` reads them back."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Shape:
        """The shape that `as_dict` wrote."""
        unknown = sorted(set(values) - {field.name for field in fields(cls)})
        if unknown:
            raise BadInput("shape", unknown[0], "is no field of a shape")
        checked: dict[str, Any] = {key: tuple(v) if isinstance(v, list) else v for key, v in values.items()}
        return cls(**checked)


def _check_family(shape: Shape) -> None:
    if shape.family not in FAMILIES:
        raise BadInput("family", shape.family, f"use one of {', '.join(FAMILIES)}")


def _check_lengths(shape: Shape) -> None:
    stages = len(shape.depth)
    if shape.family not in STAGED and stages != 1:
        raise BadInput("depth", shape.depth, f"{shape.family} has no stages, give one number")
    for name in ("d_model", "heads", "mlp_width", "head_dim", "kv_heads"):
        value = getattr(shape, name)
        if value is not None and len(value) != stages:
            raise BadInput(name, value, f"needs {stages} entries, one per stage, as depth has")


def _check_positive(shape: Shape) -> None:
    for field in fields(shape):
        value = getattr(shape, field.name)
        numbers = value if isinstance(value, tuple) else (value,)
        if any(isinstance(n, int) and not isinstance(n, bool) and n < 1 for n in numbers):
            raise BadInput(field.name, value, "must be at least 1")


def _check_heads(shape: Shape) -> None:
    for width, heads in zip(shape.d_model, shape.heads, strict=True):
        if shape.head_dim is None and width % heads:
            allowed = ", ".join(map(str, divisors(width)))
            raise BadInput("heads", heads, f"must divide d_model {width}, use one of {allowed}")
    for heads, kv_heads in zip(shape.heads, shape.kv_heads or shape.heads, strict=True):
        if heads % kv_heads:
            allowed = ", ".join(map(str, divisors(heads)))
            raise BadInput("kv_heads", kv_heads, f"must divide heads {heads}, use one of {allowed}")
    if shape.family == "tnt" and shape.inner_d_model % shape.inner_heads:
        raise BadInput("inner_heads", shape.inner_heads, f"must divide inner_d_model {shape.inner_d_model}")


def with_heads(shape: Shape, heads: tuple[int, ...], regime: Regime = "fixed-d-model") -> Shape:
    """The same shape with other head counts: head_dim shrinks (`fixed-d-model`) or is kept (`fixed-head-dim`)."""
    if regime not in REGIMES:
        raise BadInput("regime", regime, f"use one of {', '.join(REGIMES)}")
    head_dim = shape.head_dims if regime == "fixed-head-dim" else None
    return replace(shape, heads=heads, head_dim=head_dim, kv_heads=None)


def scaled_heads(shape: Shape, first_stage_heads: int) -> tuple[int, ...]:
    """Head counts per stage when the first stage gets `first_stage_heads` and the stages keep their proportions."""
    factor = Fraction(first_stage_heads, shape.heads[0])
    heads = tuple(h * factor for h in shape.heads)
    if any(h.denominator != 1 for h in heads):
        raise BadInput("heads", first_stage_heads, f"does not scale the stage heads {shape.heads} to whole numbers")
    return tuple(int(h) for h in heads)


def reduced_heads(
    *, before: int, after: int, d_model: int, reduced_d_model: int, reduction: Reduction
) -> tuple[int, int]:
    """Head counts (before, after) at a smaller width, their ratio exactly as published.

    `keep-heads` keeps both counts. `keep-head-dim` takes the pair that divides the reduced width and whose first
    head_dim is nearest to the published one. Raises BadInput where no pair divides the reduced width.
    """
    ratio = Fraction(after, before)
    pairs = [(m * ratio.denominator, m * ratio.numerator) for m in range(1, reduced_d_model + 1)]
    pairs = [pair for pair in pairs if reduced_d_model % pair[0] == 0 and reduced_d_model % pair[1] == 0]
    if reduction == "keep-heads":
        pairs = [pair for pair in pairs if pair == (before, after)]
    if not pairs:
        remedy = f"no {reduction} heads in the ratio {before}:{after} divide it"
        raise BadInput("reduced d_model", reduced_d_model, remedy)
    return min(pairs, key=lambda pair: abs(reduced_d_model // pair[0] - d_model // before))
