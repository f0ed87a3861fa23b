"""Which tensor-parallel degrees a shape admits: what is split must fall into equal parts.

Attention is split by heads and the MLP by its hidden width, so a degree must divide the heads and key/value heads of
every stage and every MLP width. Key/value heads are not repeated: no two processes hold the same one. TNT's attention
inside a patch is replicated, as norms and embeddings are, and constrains nothing.
"""

from __future__ import annotations

from math import gcd

from heads_for_depth.errors import BadInput
from heads_for_depth.recount import Countable
from heads_for_depth.shapes import Shape, divisors

GATED = ("crammed-bert",)
"""Families whose first MLP layer has two halves, one gating the other: each half is split by itself."""


def head_degrees(heads: int, kv_heads: int | None = None) -> list[int]:
    """Degrees that so many heads admit, ascending; `kv_heads` where several heads share a key/value head.

    Raises BadInput for a count below 1, and for key/value heads that do not divide the heads.
    """
    shared = heads if kv_heads is None else kv_heads
    for field, count in (("heads", heads), ("kv_heads", shared)):
        if count < 1:
            raise BadInput(field, count, "must be at least 1")
    if heads % shared:
        raise BadInput("kv_heads", shared, f"must divide heads {heads}, use one of {_listed(divisors(heads))}")
    return divisors(gcd(heads, shared))


def degrees(shape: Countable, most: int | None = None) -> list[int]:
    """Every degree that a shape admits, ascending, up to `most`."""
    numbers = [number // parts for values, parts in _split_widths(shape).values() for number in values]
    return [degree for degree in divisors(gcd(*numbers)) if most is None or degree <= most]


def check_degree(shape: Countable, degree: int) -> None:
    """Raise BadInput unless the shape admits the degree; names the width in the way and the degrees there are."""
    if degree < 1:
        raise BadInput("degree", degree, "must be at least 1")
    for field, (values, parts) in _split_widths(shape).items():
        for number in values:
            if number % (parts * degree):
                whole = "" if parts == 1 else f" in {parts} parts"
                remedy = f"cannot be split{whole} over {degree} processes, use a degree of {_listed(degrees(shape))}"
                raise BadInput(field, number, remedy)


def _split_widths(shape: Countable) -> dict[str, tuple[tuple[int, ...], int]]:
    """Field -> its values by stage, and into how many parts each falls before it is split."""
    kv_heads = shape.kv_heads if isinstance(shape, Shape) else None
    return {
        "heads": (shape.heads, 1),
        "kv_heads": (kv_heads or shape.heads, 1),
        "mlp_width": (shape.mlp_width, 2 if shape.family in GATED else 1),
    }


def _listed(numbers: list[int]) -> str:
    return ", ".join(map(str, numbers))
