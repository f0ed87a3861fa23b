"""Models: counts by hand and against timm's published definitions, what counts depend on, and widened attention."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import timm
import torch
from timm.layers.attention import Attention
from timm.models import davit, volo, xcit
from torch import Tensor, nn

from heads_for_depth.errors import BadInput
from heads_for_depth.models import attention_sites, build, count_parameters
from heads_for_depth.shapes import Shape, divisors
from heads_for_depth.wide_attention import (
    GridAttention,
    WideChannelAttention,
    WideCrossCovarianceAttention,
    WindowAttention,
)

PUBLISHED = {
    "vit_base_patch16_224": Shape(family="vit", depth=(12,), d_model=(768,), heads=(12,), mlp_width=(3072,)),
    "deit_small_patch16_224": Shape(family="deit", depth=(12,), d_model=(384,), heads=(6,), mlp_width=(1536,)),
    "xcit_medium_24_p16_224": Shape(family="xcit", depth=(24,), d_model=(512,), heads=(8,), mlp_width=(2048,)),
    "xcit_large_24_p16_224": Shape(family="xcit", depth=(24,), d_model=(768,), heads=(16,), mlp_width=(3072,)),
    "tnt_s_patch16_224": Shape(
        family="tnt", depth=(12,), d_model=(384,), heads=(6,), mlp_width=(1536,), inner_d_model=24
    ),
    "tnt_b_patch16_224": Shape(family="tnt", depth=(12,), d_model=(640,), heads=(10,), mlp_width=(2560,)),
    "davit_base": Shape(
        family="davit",
        depth=(1, 1, 9, 1),
        d_model=(128, 256, 512, 1024),
        heads=(4, 8, 16, 32),
        mlp_width=(512, 1024, 2048, 4096),
    ),
    "davit_large": Shape(
        family="davit",
        depth=(1, 1, 9, 1),
        d_model=(192, 384, 768, 1536),
        heads=(6, 12, 24, 48),
        mlp_width=(768, 1536, 3072, 6144),
    ),
    "volo_d1_224": Shape(
        family="volo",
        depth=(4, 4, 8, 2),
        d_model=(192, 384, 384, 384),
        heads=(6, 12, 12, 12),
        mlp_width=(576, 1152, 1152, 1152),
        patch_size=8,
    ),
    "swin_tiny_patch4_window7_224": Shape(
        family="swin",
        depth=(2, 2, 6, 2),
        d_model=(96, 192, 384, 768),
        heads=(3, 6, 12, 24),
        mlp_width=(384, 768, 1536, 3072),
        patch_size=4,
    ),
}
"""timm's name of a published model and the same model as a shape."""

SMALL = {
    "vit": replace(PUBLISHED["vit_base_patch16_224"], depth=(2,), d_model=(48,), heads=(4,), mlp_width=(192,)),
    "xcit": replace(PUBLISHED["xcit_medium_24_p16_224"], depth=(2,), d_model=(48,), heads=(4,), mlp_width=(192,)),
    "tnt": replace(
        PUBLISHED["tnt_b_patch16_224"], depth=(2,), d_model=(48,), heads=(4,), mlp_width=(192,), inner_d_model=8
    ),
    "davit": replace(
        PUBLISHED["davit_base"],
        depth=(1, 1, 2, 1),
        d_model=(16, 32, 64, 128),
        heads=(2, 4, 8, 16),
        mlp_width=(64, 128, 256, 512),
    ),
    "volo": replace(
        PUBLISHED["volo_d1_224"],
        depth=(1, 1, 2, 1),
        d_model=(32, 64, 64, 64),
        heads=(2, 4, 4, 4),
        mlp_width=(96, 192, 192, 192),
    ),
    "swin": replace(
        PUBLISHED["swin_tiny_patch4_window7_224"],
        depth=(1, 1, 2, 1),
        d_model=(16, 32, 64, 128),
        heads=(2, 4, 8, 16),
        mlp_width=(64, 128, 256, 512),
    ),
}
"""One small full-resolution shape per family."""


def test_a_vision_transformer_has_the_parameters_that_one_adds_up_by_hand():
    d, mlp, tokens = 768, 3072, 197
    embedding = 3 * 16 * 16 * d + d + d + tokens * d
    block = 2 * 2 * d + (d * 3 * d + 3 * d) + (d * d + d) + (d * mlp + mlp) + (mlp * d + d)
    assert count_parameters(PUBLISHED["vit_base_patch16_224"]) == embedding + 12 * block + 2 * d + 1000 * d + 1000


def test_a_block_of_xcit_has_the_parameters_that_one_adds_up_by_hand():
    d, mlp, heads = 512, 2048, 8
    attention = d * 3 * d + 3 * d + d * d + d + heads
    patch_interaction = 2 * (9 * d + d) + 2 * d
    block = attention + patch_interaction + (d * mlp + mlp + mlp * d + d) + 3 * 2 * d + 3 * d
    shape = PUBLISHED["xcit_medium_24_p16_224"]
    assert count_parameters(shape) - count_parameters(replace(shape, depth=(23,))) == block


@pytest.mark.parametrize(
    ("name", "millions"),
    [("vit_base_patch16_224", "86.6"), ("swin_tiny_patch4_window7_224", "28.3"), ("volo_d1_224", "26.6")],
)
def test_public_models_count_what_their_authors_print(name: str, millions: str):
    assert f"{count_parameters(PUBLISHED[name]) / 1e6:.1f}" == millions


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_shape_counts_what_timm_s_own_definition_counts(name: str):
    with torch.device("meta"):
        reference = timm.create_model(name)
    assert count_parameters(PUBLISHED[name]) == sum(parameter.numel() for parameter in reference.parameters())


@pytest.mark.parametrize("family", ["vit", "tnt"])
def test_parameters_do_not_depend_on_heads_at_fixed_d_model(family: str):
    shape = SMALL[family]
    assert len({count_parameters(replace(shape, heads=(heads,))) for heads in divisors(48)}) == 1


def test_parameters_of_davit_do_not_depend_on_heads_at_fixed_d_model():
    other = replace(SMALL["davit"], heads=(1, 2, 4, 32))
    assert count_parameters(other) == count_parameters(SMALL["davit"])


def test_xcit_learns_one_temperature_per_head_and_layer_and_nothing_else_per_head():
    shape = SMALL["xcit"]
    for heads in divisors(48):
        extra = count_parameters(replace(shape, heads=(heads,))) - count_parameters(replace(shape, heads=(1,)))
        assert extra == (heads - 1) * shape.depth[0]


def test_swin_learns_one_position_bias_table_per_head_and_layer():
    one = replace(SMALL["swin"], heads=(1, 1, 1, 1))
    more = replace(SMALL["swin"], heads=(1, 1, 4, 1))
    assert count_parameters(more) - count_parameters(one) == 3 * 2 * (2 * 7 - 1) ** 2


@pytest.mark.parametrize("family", SMALL)
def test_every_further_block_of_a_stage_costs_the_same(family: str):
    shape = SMALL[family]
    for stage in range(len(shape.depth)):
        counts = [
            count_parameters(replace(shape, depth=(*shape.depth[:stage], blocks, *shape.depth[stage + 1 :])))
            for blocks in (1, 2, 3, 5)
        ]
        assert counts[1] - counts[0] == counts[2] - counts[1] == (counts[3] - counts[2]) / 2 > 0


@pytest.mark.parametrize("family", SMALL)
def test_a_model_of_every_family_and_regime_computes_class_scores(family: str):
    shape = SMALL[family]
    for kept in (None, shape.head_dims):
        heads = shape.heads if kept is None else tuple(2 * h for h in shape.heads)
        model = build(replace(shape, heads=heads, head_dim=kept)).eval()
        with torch.no_grad():
            scores = model(torch.zeros(1, 3, 224, 224))
        assert scores.shape == (1, 1000)
        assert torch.isfinite(scores).all()


def test_head_dim_kept_while_heads_double_adds_four_square_projections_per_layer():
    d, shape = 48, SMALL["xcit"]
    widened = replace(shape, heads=(8,), head_dim=(12,), widen_class_attention=False)
    narrow = replace(shape, heads=(8,))
    assert count_parameters(widened) - count_parameters(narrow) == 2 * (4 * d * d + 3 * d)


@pytest.mark.parametrize("mlp_width", [488, 920, 1840])
def test_an_mlp_width_whose_ratio_is_no_binary_fraction_is_built_exactly(mlp_width: int):
    model = build(replace(SMALL["vit"], d_model=(56,), mlp_width=(mlp_width,)), "meta")
    assert model.get_submodule("blocks.0.mlp.fc1").out_features == mlp_width


def test_a_model_on_meta_holds_no_numbers():
    for shape in (SMALL["vit"], replace(SMALL["xcit"], heads=(8,), head_dim=(12,))):
        assert all(parameter.is_meta for parameter in build(shape, "meta").parameters())


@pytest.mark.parametrize("family", SMALL)
def test_widened_attention_starts_from_the_same_distribution_as_timm_s_own(family: str):
    shape = SMALL[family]
    wide = replace(shape, heads=tuple(2 * heads for heads in shape.heads), head_dim=shape.head_dims)
    for model in (build(shape), build(wide)):
        for site in attention_sites(model):
            linear = [module for module in site.module.modules() if isinstance(module, nn.Linear)]
            weights = torch.cat([module.weight.detach().flatten() for module in linear])
            assert float(weights.std()) == pytest.approx(0.02, rel=0.2)
            biases = [p.detach() for name, p in site.module.named_parameters() if name.endswith("bias")]
            assert all(not bias.any() for bias in biases)


@pytest.mark.parametrize(
    ("family", "kinds"),
    [
        ("vit", ["tokens", "tokens"]),
        ("xcit", ["channels", "channels"]),
        ("tnt", ["inner", "tokens", "inner", "tokens"]),
        ("davit", ["window", "channels"] * 5),
        ("volo", ["tokens"] * 4),
        ("swin", ["window"] * 5),
    ],
)
def test_attention_is_found_in_every_layer_with_its_kind(family: str, kinds: list[str]):
    sites = list(attention_sites(build(SMALL[family], "meta")))
    assert [site.kind for site in sites] == kinds
    assert {site.heads for site in sites if site.kind != "inner"} <= set(SMALL[family].heads)


def _outputs(reference: nn.Module, wide: nn.Module, x: Tensor) -> tuple[Tensor, Tensor]:
    """Both layers' outputs after the reference's weights are copied over."""
    with torch.no_grad():
        wide.load_state_dict(reference.state_dict())
        return reference.eval()(x), wide.eval()(x)


@pytest.mark.parametrize(
    ("reference", "wide", "tokens"),
    [
        (lambda: xcit.XCA(24, num_heads=4, qkv_bias=True), lambda: WideCrossCovarianceAttention(24, 4, 6), (10, 24)),
        (
            lambda: davit.ChannelAttention(24, num_heads=4, qkv_bias=True),
            lambda: WideChannelAttention(24, 4, 6),
            (10, 24),
        ),
        (
            lambda: davit.WindowAttention(24, window_size=(7, 7), num_heads=4),
            lambda: WindowAttention(24, 4, attn_head_dim=6, qkv_bias=True),
            (49, 24),
        ),
        (lambda: volo.Attention(24, num_heads=4), lambda: GridAttention(24, 4, attn_head_dim=6), (7, 7, 24)),
        (
            lambda: Attention(24, 4, qkv_bias=True),
            lambda: Attention(24, 4, attn_head_dim=6, qkv_bias=True),
            (10, 24),
        ),
    ],
    ids=["XCiT", "DaViT channels", "DaViT windows", "VOLO", "ViT"],
)
def test_a_widened_layer_at_the_usual_head_dim_is_the_layer_it_replaces(
    reference: Callable[[], nn.Module], wide: Callable[[], nn.Module], tokens: tuple[int, ...]
):
    x = torch.randn(2, *tokens, generator=torch.Generator().manual_seed(0))
    expected, actual = _outputs(reference(), wide(), x)
    torch.testing.assert_close(actual, expected)


def _edited(name: str, **changes: object) -> Shape:
    return replace(PUBLISHED[name], **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("shape", "sentence"),
    [
        (_edited("vit_base_patch16_224", kv_heads=(4,)), "kv_heads .* vit shares no key/value heads"),
        (_edited("xcit_medium_24_p16_224", patch_size=14), "patch_size is 14: XCiT takes 8 or 16"),
        (_edited("xcit_medium_24_p16_224", image_size=220), "dividing image size 220"),
        (_edited("tnt_b_patch16_224", patch_size=4), "patch_size is 4: TNT needs more than 4 pixels"),
        (_edited("swin_tiny_patch4_window7_224", d_model=(96, 192, 384, 384)), "Swin doubles its width"),
        (_edited("davit_base", mlp_width=(512, 1024, 2048, 2048)), "must be one multiple of d_model"),
    ],
)
def test_a_shape_that_the_family_cannot_have_is_refused_with_the_remedy(shape: Shape, sentence: str):
    with pytest.raises(BadInput, match=sentence):
        build(shape, "meta")


def test_a_volo_without_four_stages_is_refused():
    shape = replace(
        PUBLISHED["volo_d1_224"],
        depth=(4, 4, 8),
        d_model=(192, 384, 384),
        heads=(6, 12, 12),
        mlp_width=(576, 1152, 1152),
    )
    with pytest.raises(BadInput, match="VOLO has four stages"):
        build(shape, "meta")
