"""What the forward pass of one image or text takes, counted on `meta`: the input of the cost model."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from math import ceil

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heads_for_depth.errors import BadInput
from heads_for_depth.flops import on_meta
from heads_for_depth.recount import Countable, LanguageShape, Variant, exact_count

_BLOCKS = {
    "davit": r"stages\.\d+", "swin": r"layers\.\d+", "volo": r"network\.\d+",
    "gpt2": r"transformer\.h\.\d+", "crammed-bert": r"model\.layers\.\d+",
}  # fmt: skip
"""Family -> where its blocks lie in the module, if not in `blocks`."""
_REPLICATED = {"tnt": r"blocks\.\d+\.(attn_in|mlp_in)"}
"""Family -> what every process of a tensor group computes though it lies in a block: TNT's attention in a patch."""
_ALL_REDUCES = {"davit": 4}
"""Family -> all-reduces of a block's forward pass, if not 2: DaViT's is a layer over windows and one over channels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Work:
    """One image or text of batch one; operations are those of matrix products and convolutions, a multiply-add two."""

    split_flops: int
    """In the blocks, shared out over a tensor group."""
    replicated_flops: int
    """In the blocks, done by every process of a tensor group."""
    outside_flops: int
    """Before and after the blocks: embedding, class attention, head; done by every process of a tensor group."""
    blocks: int
    all_reduces: int
    """All blocks together, forward."""
    reduced_elements: int
    """Elements in all of these together."""
    parameters: int

    @property
    def flops(self) -> int:
        """All operations of the forward pass on one process."""
        return self.split_flops + self.replicated_flops + self.outside_flops


def tokens_by_stage(shape: Countable, tokens: int | None = None) -> tuple[int, ...]:
    """Tokens in each stage, class token included; a text has `tokens` of them, by default all its positions.

    Raises BadInput for a text longer than the position table, and for `tokens` of an image, whose size fixes them.
    """
    if isinstance(shape, LanguageShape):
        return (_text_tokens(shape, tokens),)
    if tokens is not None:
        raise BadInput("tokens", tokens, "is for models of text; the image size fixes those of an image")
    side = shape.image_size // shape.patch_size
    if shape.family == "davit":
        side = ceil(shape.image_size / 4)
    if shape.family in ("davit", "swin"):
        return tuple(ceil(side / 2**stage) ** 2 for stage in range(len(shape.depth)))
    if shape.family == "volo":
        return (side**2, *((side // 2) ** 2 for _ in shape.depth[1:]))
    return (side**2 + (shape.family != "xcit"),)


def _text_tokens(shape: LanguageShape, tokens: int | None) -> int:
    count = shape.positions if tokens is None else tokens
    if count < 1:
        raise BadInput(
            "tokens", tokens, f"give the tokens of a text, at least 1: {shape.family} has no number of its own"
        )
    if shape.positions and count > shape.positions:
        raise BadInput("tokens", count, f"must be at most the {shape.positions} positions of the model")
    return count


@cache
def work_of(shape: Countable, tokens: int | None = None) -> Work:
    """The work of one image, or of one text of `tokens`; allocates nothing."""
    counts = _counts_by_module(shape, tokens)
    total = counts.pop("Global")
    blocks = _total(counts, _BLOCKS.get(shape.family, r"blocks\.\d+"))
    replicated = _total(counts, _REPLICATED[shape.family]) if shape.family in _REPLICATED else 0
    per_block = _ALL_REDUCES.get(shape.family, 2)
    stages = zip(shape.depth, tokens_by_stage(shape, tokens), shape.d_model, strict=True)
    return Work(
        split_flops=blocks - replicated,
        replicated_flops=replicated,
        outside_flops=total - blocks,
        blocks=sum(shape.depth),
        all_reduces=per_block * sum(shape.depth),
        reduced_elements=per_block * sum(depth * count * width for depth, count, width in stages),
        parameters=exact_count(Variant(shape=shape)),
    )


def _counts_by_module(shape: Countable, tokens: int | None) -> dict[str, int]:
    """Operations by module name below the model; `Global` holds all. Attention counts as plain matrix products."""
    model, inputs = on_meta(shape, _text_tokens(shape, tokens) if isinstance(shape, LanguageShape) else 0)
    counter = FlopCounterMode(display=False)
    with sdpa_kernel(SDPBackend.MATH), counter, torch.no_grad():
        model(**inputs)
    counts = {str(name): sum(operators.values()) for name, operators in counter.get_flop_counts().items()}
    return {name.partition(".")[2] or name: count for name, count in counts.items()}


def _total(counts: dict[str, int], pattern: str) -> int:
    return sum(count for name, count in counts.items() if re.fullmatch(pattern, name))
