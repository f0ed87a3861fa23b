"""Parameters of the two language architectures of LIT-527, by formula.

`crammed-bert` follows the public configuration of Geiping and Goldstein (2023): pre-norm blocks without biases, a gated
MLP (of its MLP width one half gates the other), one learned scale of the sinusoidal positions, a norm after the
embedding and one at the end, decoder tied to the embedding. `gpt2` follows Radford et al. (2019): pre-norm blocks with
biases, learned positions, a norm at the end, decoder tied to the embedding.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from decimal import Decimal
from math import ceil, floor
from typing import Any

from heads_for_depth.claims import Printed
from heads_for_depth.errors import BadInput

LANGUAGE_FAMILIES = ("crammed-bert", "gpt2")
GPT2_VOCAB_SIZE = 50_257
GPT2_POSITIONS = 1_024
MILLION = 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class LanguageShape:
    """A language model's shape, checked when built; tuples of one entry, as in `Shape`."""

    family: str
    """One of LANGUAGE_FAMILIES."""
    depth: tuple[int, ...]
    d_model: tuple[int, ...]
    heads: tuple[int, ...]
    mlp_width: tuple[int, ...]
    """Output width of the first MLP layer."""
    head_dim: tuple[int, ...] | None = None
    """None means d_model / heads."""
    vocab_size: int
    positions: int = 0
    """Rows of the learned position table (gpt2)."""

    def __post_init__(self) -> None:
        if self.family not in LANGUAGE_FAMILIES:
            raise BadInput("family", self.family, f"use one of {', '.join(LANGUAGE_FAMILIES)}")
        if self.head_dim is None and self.d_model[0] % self.heads[0]:
            raise BadInput("heads", self.heads[0], f"must divide d_model {self.d_model[0]}")
        if self.family == "crammed-bert" and self.mlp_width[0] % 2:
            raise BadInput("mlp_width", self.mlp_width[0], "must be even, for one half gates the other")

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    @property
    def inner_widths(self) -> tuple[int, ...]:
        """Attention inner width h·head_dim."""
        return self.d_model if self.head_dim is None else (self.heads[0] * self.head_dim[0],)


@dataclass(frozen=True, kw_only=True, slots=True)
class EmbeddingRows:
    """Rows of width d_model (vocabulary and positions together) with which a model prints a published count."""

    fewest: int
    most: int
    blocks_only: int
    """Parameters without any embedding row."""
    public_rows: int
    """Rows of the public GPT-2."""
    public_count: int
    """Parameters with the rows of the public GPT-2."""


def language_parameters(shape: LanguageShape) -> int:
    """Exact number of learned parameters; tied weights count once."""
    return shape.depth[0] * BLOCKS[shape.family](shape) + OUTSIDE[shape.family](shape)


def embedding_rows(shape: LanguageShape, published: Printed) -> EmbeddingRows:
    """How many embedding rows a GPT-2 may have to print the published millions of parameters."""
    d_model = shape.d_model[0]
    own = shape.vocab_size + shape.positions
    blocks_only = language_parameters(shape) - own * d_model
    middle, half = Decimal(published.text) * MILLION, published.unit * MILLION / 2
    return EmbeddingRows(
        fewest=max(0, ceil((middle - half - blocks_only) / d_model)),
        most=max(0, floor((middle + half - blocks_only) / d_model)),
        blocks_only=blocks_only,
        public_rows=GPT2_VOCAB_SIZE + GPT2_POSITIONS,
        public_count=blocks_only + (GPT2_VOCAB_SIZE + GPT2_POSITIONS) * d_model,
    )


def _crammed_block(shape: LanguageShape) -> int:
    d, inner, mlp = shape.d_model[0], shape.inner_widths[0], shape.mlp_width[0]
    return 4 * d * inner + d * mlp + mlp // 2 * d + 2 * 2 * d


def _crammed_outside(shape: LanguageShape) -> int:
    d = shape.d_model[0]
    return shape.vocab_size * d + 1 + 2 * 2 * d


def _gpt2_block(shape: LanguageShape) -> int:
    d, inner, mlp = shape.d_model[0], shape.inner_widths[0], shape.mlp_width[0]
    attention = 3 * inner * (d + 1) + d * (inner + 1)
    return attention + mlp * (d + 1) + d * (mlp + 1) + 2 * 2 * d


def _gpt2_outside(shape: LanguageShape) -> int:
    d = shape.d_model[0]
    return (shape.vocab_size + shape.positions) * d + 2 * d


BLOCKS: dict[str, Callable[[LanguageShape], int]] = {"crammed-bert": _crammed_block, "gpt2": _gpt2_block}
OUTSIDE: dict[str, Callable[[LanguageShape], int]] = {"crammed-bert": _crammed_outside, "gpt2": _gpt2_outside}
