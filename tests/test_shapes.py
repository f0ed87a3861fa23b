"""Shapes: what they derive, what they refuse, and how heads are reduced with the width."""

from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heads_for_depth import claims
from heads_for_depth.errors import BadInput
from heads_for_depth.shapes import FAMILIES, STAGED, Shape, divisors, reduced_heads, scaled_heads, with_heads

VIT = Shape(family="vit", depth=(12,), d_model=(768,), heads=(12,), mlp_width=(3072,))
DAVIT = Shape(
    family="davit",
    depth=(1, 1, 9, 1),
    d_model=(96, 192, 384, 768),
    heads=(3, 6, 12, 24),
    mlp_width=(384, 768, 1536, 3072),
)


def test_head_dim_is_d_model_divided_by_heads_unless_it_is_given():
    assert VIT.head_dims == (64,)
    assert VIT.inner_widths == (768,)
    assert replace(VIT, heads=(24,), head_dim=(64,)).inner_widths == (1536,)


def test_a_shape_is_widened_only_where_heads_times_head_dim_is_not_d_model():
    assert not VIT.widened
    assert not replace(VIT, head_dim=(64,)).widened
    assert replace(VIT, head_dim=(32,)).widened


@pytest.mark.parametrize("shape", [VIT, DAVIT, replace(VIT, heads=(24,), head_dim=(64,), kv_heads=(6,))])
def test_a_shape_survives_its_record(shape: Shape):
    assert Shape.from_dict(shape.as_dict()) == shape


def test_a_record_with_an_unknown_field_is_refused():
    with pytest.raises(BadInput, match="shape is 'colour': is no field of a shape"):
        Shape.from_dict(VIT.as_dict() | {"colour": 1})


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"family": "mlp"}, "family is 'mlp': use one of vit, deit"),
        ({"heads": (7,)}, "heads is 7: must divide d_model 768, use one of 1, 2, 3, 4, 6"),
        ({"kv_heads": (5,)}, "kv_heads is 5: must divide heads 12, use one of 1, 2, 3, 4, 6, 12"),
        ({"depth": (1, 1)}, "vit has no stages, give one number"),
        ({"d_model": (768, 768)}, "needs 1 entries, one per stage, as depth has"),
        ({"depth": (0,)}, "depth is .*must be at least 1"),
        ({"mlp_width": (-4,)}, "mlp_width is .*must be at least 1"),
        ({"family": "tnt", "inner_heads": 3}, "inner_heads is 3: must divide inner_d_model 40"),
    ],
)
def test_a_shape_that_cannot_be_is_refused_with_the_remedy(changes: dict[str, object], sentence: str):
    with pytest.raises(BadInput, match=sentence):
        replace(VIT, **changes)  # type: ignore[arg-type]


def test_divisors_are_every_head_count_that_a_width_allows():
    assert divisors(12) == [1, 2, 3, 4, 6, 12]


def test_more_heads_keep_d_model_or_head_dim_by_regime():
    assert with_heads(VIT, (24,)).head_dims == (32,)
    widened = with_heads(VIT, (24,), "fixed-head-dim")
    assert (widened.head_dims, widened.inner_widths) == ((64,), (1536,))


def test_stages_keep_their_proportion_of_heads():
    assert scaled_heads(DAVIT, 6) == (6, 12, 24, 48)
    with pytest.raises(BadInput, match="does not scale the stage heads"):
        scaled_heads(replace(DAVIT, heads=(3, 6, 12, 16)), 1)


def test_heads_reduced_with_the_width_stay_near_the_published_head_dim():
    assert reduced_heads(before=8, after=16, d_model=512, reduced_d_model=64, reduction="keep-head-dim") == (1, 2)


def test_published_heads_are_kept_where_they_divide_the_reduced_width():
    assert reduced_heads(before=8, after=16, d_model=512, reduced_d_model=64, reduction="keep-heads") == (8, 16)
    with pytest.raises(BadInput, match="no keep-heads heads in the ratio 10:16 divide it"):
        reduced_heads(before=10, after=16, d_model=640, reduced_d_model=64, reduction="keep-heads")


@given(st.integers(1, 8), st.integers(1, 8), st.integers(1, 40))
def test_reduced_heads_keep_the_published_ratio_and_divide_the_width(before: int, factor: int, multiple: int):
    after, width = before * factor, before * factor * multiple
    pair = reduced_heads(before=before, after=after, d_model=width, reduced_d_model=width, reduction="keep-head-dim")
    assert Fraction(pair[1], pair[0]) == factor
    assert width % pair[0] == width % pair[1] == 0


def test_every_family_with_a_shape_can_stand_in_a_claims_file():
    assert set(FAMILIES) <= set(claims.FAMILIES)
    assert set(STAGED) == set(claims.STAGED_FAMILIES)
