"""Shapes read off timm's models: recounted against timm itself, and what a Shape cannot hold refused."""

import pytest
import timm
import torch

from heads_for_depth.errors import BadInput
from heads_for_depth.known_models import shape_of
from heads_for_depth.models import build, count_parameters
from heads_for_depth.shapes import Shape

MODELS: dict[str, tuple[Shape, float]] = {
    "vit_tiny_patch16_224": (
        Shape(family="vit", depth=(12,), d_model=(192,), heads=(3,), mlp_width=(768,)), 5.72,
    ),
    "deit_tiny_patch16_224": (
        Shape(family="vit", depth=(12,), d_model=(192,), heads=(3,), mlp_width=(768,)), 5.72,
    ),
    "xcit_nano_12_p16_224": (
        Shape(family="xcit", depth=(12,), d_model=(128,), heads=(4,), mlp_width=(512,)), 3.05,
    ),
    "tnt_s_patch16_224": (
        Shape(family="tnt", depth=(12,), d_model=(384,), heads=(6,), mlp_width=(1536,), inner_d_model=24), 23.77,
    ),
    "davit_tiny": (
        Shape(family="davit", depth=(1, 1, 3, 1), d_model=(96, 192, 384, 768), heads=(3, 6, 12, 24),
              mlp_width=(384, 768, 1536, 3072)), 28.36,
    ),
    "volo_d1_224": (
        Shape(family="volo", depth=(4, 4, 8, 2), d_model=(192, 384, 384, 384), heads=(6, 12, 12, 12),
              mlp_width=(576, 1152, 1152, 1152), patch_size=8), 26.63,
    ),
    "swin_tiny_patch4_window7_224": (
        Shape(family="swin", depth=(2, 2, 6, 2), d_model=(96, 192, 384, 768), heads=(3, 6, 12, 24),
              mlp_width=(384, 768, 1536, 3072), patch_size=4), 28.29,
    ),
}  # fmt: skip
"""Name -> the shape in its paper, and millions of parameters as timm's table of results prints them."""


@pytest.mark.parametrize("name", MODELS)
def test_the_shape_of_a_model_is_that_of_its_paper(name: str) -> None:
    assert shape_of(name) == MODELS[name][0]


@pytest.mark.parametrize("name", MODELS)
def test_the_shape_recounts_at_the_printed_precision(name: str) -> None:
    assert round(count_parameters(shape_of(name)) / 1e6, 2) == pytest.approx(MODELS[name][1], abs=0.0101)


@pytest.mark.parametrize("name", MODELS)
def test_the_model_of_the_shape_has_timms_parameters_one_by_one(name: str) -> None:
    with torch.device("meta"):
        reference = timm.create_model(name)
    ours = build(shape_of(name), "meta")
    assert {key: p.shape for key, p in ours.named_parameters()} == {
        key: p.shape for key, p in reference.named_parameters()
    }


@pytest.mark.parametrize(
    ("name", "facts"),
    [
        ("vit_base_patch32_384", {"image_size": 384, "patch_size": 32, "heads": (12,)}),
        ("swin_base_patch4_window12_384", {"image_size": 384, "window": 12, "heads": (4, 8, 16, 32)}),
        ("xcit_tiny_12_p8_224", {"patch_size": 8, "heads": (4,), "d_model": (192,)}),
    ],
)
def test_resolution_patches_and_windows_are_read_too(name: str, facts: dict[str, object]) -> None:
    shape = shape_of(name)
    assert {field: getattr(shape, field) for field in facts} == facts


def test_a_model_of_another_family_is_refused_with_the_families_there_are() -> None:
    with pytest.raises(BadInput, match=r"^model is 'resnet18': is a ResNet, the report reads DaVit, .*, Xcit$"):
        shape_of("resnet18")


@pytest.mark.parametrize(
    "name",
    [
        "deit3_base_patch16_224",  # a scale on every residual branch
        "vit_small_patch16_18x2_224",  # two attentions side by side in a block
        "vit_base_patch16_224_miil",  # no bias on queries, keys and values
        "vit_base_patch16_clip_224",  # a norm before the blocks
    ],
)
def test_a_variant_that_a_shape_cannot_describe_is_refused(name: str) -> None:
    with pytest.raises(
        BadInput, match=rf"^model is '{name}': is a variant with parts that depth, width and heads do not"
    ):
        shape_of(name)


def test_an_unknown_name_is_refused_with_the_names_it_may_have_meant() -> None:
    with pytest.raises(
        BadInput, match=r"^model is 'vit_bse_patch16_224': timm has no such model, did you mean .*vit_base"
    ):
        shape_of("vit_bse_patch16_224")


@pytest.mark.parametrize("name", ["", "qqqqqqqq"])
def test_a_name_that_is_near_nothing_gets_no_suggestion(name: str) -> None:
    with pytest.raises(BadInput, match=rf"^model is '{name}': timm has no such model$"):
        shape_of(name)
