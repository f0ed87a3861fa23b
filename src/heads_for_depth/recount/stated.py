"""The shape that a claim states for one side, with what the record leaves open."""

from dataclasses import dataclass
from typing import Any, Literal

from heads_for_depth.claims import Claim
from heads_for_depth.errors import BadInput
from heads_for_depth.recount.counts import Countable
from heads_for_depth.recount.language import GPT2_POSITIONS, GPT2_VOCAB_SIZE, LANGUAGE_FAMILIES, LanguageShape
from heads_for_depth.shapes import FAMILIES, Shape

Side = Literal["before", "after"]
SIDES: tuple[Side, ...] = ("before", "after")

HEADS_DO_NOT_COUNT = ("vit", "deit", "tnt", "davit", *LANGUAGE_FAMILIES)
"""Families whose parameters do not depend on the head count at fixed d_model."""
PATCH_SIZES = {"volo": 8, "swin": 4}
"""Patch sizes of timm's definitions where they are not 16."""


@dataclass(frozen=True, kw_only=True, slots=True)
class StatedSide:
    """What the row says about one side."""

    side: Side
    shape: Countable | None
    """None where a number is missing without which nothing can be counted, or the family cannot be built."""
    missing: tuple[str, ...] = ()
    """Columns of the row that would be needed."""
    any_heads: bool = False
    """Whether heads are not stated, and the count holds for every head count."""
    open_vocabulary: bool = False
    """Whether `shape` has the public GPT-2's embedding because the row does not state one."""


def stated_side(claim: Claim, side: Side) -> StatedSide:
    """The shape of one side of a row. Raises BadInput naming row and field where the numbers make no shape."""
    if claim.family not in (*FAMILIES, *LANGUAGE_FAMILIES):
        return StatedSide(side=side, shape=None, missing=(f"a definition of {claim.family}",))
    values = {name: f"{name}_{side}" for name in ("depth", "heads", "mlp_width")} | {"d_model": "d_model"}
    given = {name: getattr(claim, column) for name, column in values.items()}
    any_heads = given["heads"] is None and claim.family in HEADS_DO_NOT_COUNT
    if any_heads and given["d_model"]:
        given["heads"] = (1,) * len(given["d_model"])
    missing = tuple(values[name] for name, value in given.items() if value is None)
    missing += _missing_vocabulary(claim)
    if set(missing) - {"vocab_size", "positions"} or (missing and claim.family != "gpt2"):
        return StatedSide(side=side, shape=None, missing=missing)
    return StatedSide(
        side=side, shape=_shape(claim, side, given), missing=missing, any_heads=any_heads, open_vocabulary=bool(missing)
    )


def _missing_vocabulary(claim: Claim) -> tuple[str, ...]:
    needed = {"crammed-bert": ("vocab_size",), "gpt2": ("vocab_size", "positions")}.get(claim.family, ())
    return tuple(column for column in needed if getattr(claim, column) is None)


def _shape(claim: Claim, side: Side, given: dict[str, Any]) -> Countable:
    values: dict[str, Any] = {"family": claim.family, "head_dim": getattr(claim, "head_dim_" + side), **given}
    try:
        if claim.family in LANGUAGE_FAMILIES:
            values["vocab_size"] = claim.vocab_size or GPT2_VOCAB_SIZE
            values["positions"] = claim.positions or (GPT2_POSITIONS if claim.family == "gpt2" else 0)
            return LanguageShape(**values)
        optional = ("image_size", "patch_size", "classes", "inner_d_model")
        stated = {name: getattr(claim, name) for name in optional if getattr(claim, name) is not None}
        return Shape(**{"patch_size": PATCH_SIZES.get(claim.family, 16), **values, **stated})
    except BadInput as error:
        raise BadInput(f"row {claim.row}, {side}, {error.field}", error.value, error.remedy) from None
