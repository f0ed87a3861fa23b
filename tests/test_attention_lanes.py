"""Attention in lanes: the function that torch computes, in value and gradient, and no obstacle where it is missing."""

import copy
import os
import pickle
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from timm.layers.attention import Attention
from timm.models import davit, tnt
from torch import Tensor, nn
from torch.nn import functional

from heads_for_depth.attention_lanes import LanesUnavailable, availability, compiling, lane_attention, use_lanes
from heads_for_depth.attention_lanes.compiling import LARGEST_HEAD_DIM, cache_folder
from heads_for_depth.attention_lanes.library import library
from heads_for_depth.attention_lanes.switching import LARGEST_TOKENS
from heads_for_depth.conditioning import measure
from heads_for_depth.errors import BadInput
from heads_for_depth.models import attention_sites, build
from heads_for_depth.shapes import Shape
from heads_for_depth.wide_attention import WindowAttention

LIMIT = 1e-5
"""Largest relative error that rounding may leave against float64."""
STACKINGS = ((3,), (2, 1), (1, 1, 1))


def forget() -> None:
    """Let the next call look at the environment again, as a new process would."""
    availability.cache_clear()
    library.cache_clear()


@pytest.fixture(scope="module", autouse=True)
def kernel(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The kernel, compiled into a folder of its own; a machine without compiler fails here."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("HEADS_FOR_DEPTH_ATTENTION", raising=False)
        patch.setenv("HEADS_FOR_DEPTH_CACHE", str(tmp_path_factory.mktemp("cache")))
        forget()
        assert availability().ready, f"install a C++ compiler: {availability().reason}"
        yield
        forget()


def reference(parts: list[Tensor]) -> Tensor:
    """Softmax attention written out, in the parts' own precision."""
    q, k, v = torch.cat(parts, dim=2).permute(2, 0, 3, 1, 4)
    weights = (q * q.shape[-1] ** -0.5 @ k.transpose(-2, -1)).softmax(dim=-1)
    return (weights @ v).transpose(1, 2).flatten(2)


def noise(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def value_and_gradient(attention: Callable[..., Tensor], qkv: Tensor, stacking: tuple[int, ...] = (3,)) -> list[Tensor]:
    """The output, and the gradients of its product with fixed noise, stacked like qkv."""
    parts = [part.clone().requires_grad_() for part in qkv.split(stacking, dim=2)]
    out = attention(*parts)
    gradients = torch.autograd.grad((out * noise(*out.shape, seed=1).to(out.dtype)).sum(), parts)
    return [out.detach(), *torch.cat(gradients, dim=2).unbind(2)]


def relative_errors(
    qkv: Tensor, stacking: tuple[int, ...] = (3,), attention: Callable[..., Tensor] = lane_attention
) -> list[float]:
    """Of the output and of the gradients of q, k and v, against float64: norm of the difference over the norm.

    The gradients share the norm of the largest, since with one token two of them are zero.
    """
    ours = value_and_gradient(attention, qkv, stacking)
    exact = value_and_gradient(lambda *parts: reference(list(parts)), qkv.double(), stacking)
    norms = [exact[0].norm(), *[torch.stack(exact[1:]).flatten(1).norm(dim=1).max()] * 3]
    return [float((a - b).norm() / norm) for a, b, norm in zip(ours, exact, norms, strict=True)]


# ---- The function ----------------------------------------------------------------------------------------------------


def test_a_single_token_attends_to_itself():
    qkv = noise(3, 1, 3, 5, 4)
    out, dq, dk, dv = value_and_gradient(lane_attention, qkv)
    assert torch.equal(out, qkv[:, :, 2].flatten(2))
    assert torch.equal(dq, torch.zeros_like(dq))
    assert torch.equal(dk, torch.zeros_like(dk))
    assert torch.equal(dv.flatten(2), noise(3, 1, 20, seed=1))


def test_equal_keys_give_the_mean_of_the_values():
    qkv = noise(2, 7, 3, 3, 5)
    qkv[:, :, 1] = qkv[:, :1, 1]
    expected = qkv[:, :, 2].double().mean(dim=1, keepdim=True).flatten(2).expand(2, 7, 15)
    torch.testing.assert_close(lane_attention(qkv).double(), expected, rtol=0, atol=1e-6)


def test_two_keys_are_weighed_by_the_logistic_function_of_their_difference():
    """head_dim 4, so that the scale is 1/2: logits 3/2 and 1/2."""
    q, k, v = torch.zeros(3, 1, 2, 1, 1, 4)
    q[..., 0] = 1
    k[0, 0, ..., 0], k[0, 1, ..., 0] = 3, 1
    v[0, 0, ..., 1] = 1
    out = lane_attention(q, k, v)[0, :, 1]
    assert out.tolist() == pytest.approx([1 / (1 + 2.718281828459045**-1)] * 2, rel=1e-6)


@pytest.mark.parametrize("head_dim", [1, 2, 3, 4, 5, 8, 16])
@pytest.mark.parametrize(("batch", "tokens", "heads"), [(3, 1, 5), (2, 2, 8), (1, 17, 16), (5, 17, 4), (2, 50, 3)])
def test_value_and_gradient_agree_with_float64(batch: int, tokens: int, heads: int, head_dim: int):
    assert max(relative_errors(noise(batch, tokens, 3, heads, head_dim))) < LIMIT


@settings(max_examples=60, deadline=None)
@given(
    shape=st.tuples(*(st.integers(1, top) for top in (6, 50, 20, LARGEST_HEAD_DIM))),
    stacking=st.sampled_from(STACKINGS),
    size=st.sampled_from([0.01, 1.0, 4.0]),
    seed=st.integers(0, 2**31),
)
def test_any_shape_and_stacking_agrees_with_float64(
    shape: tuple[int, int, int, int], stacking: tuple[int, ...], size: float, seed: int
):
    """Rounding of a logit grows with the logit, whatever computes it: hence the factor.

    Where terms cancel, plain float32 arithmetic loses digits too; then a few times its error are allowed.
    """
    batch, tokens, heads, head_dim = shape
    qkv = size * noise(batch, tokens, 3, heads, head_dim, seed=seed)
    plain = max(relative_errors(qkv, stacking, lambda *parts: reference(list(parts))))
    assert max(relative_errors(qkv, stacking)) < max(LIMIT * max(1.0, size**2), 8 * plain)


def test_where_terms_cancel_the_kernel_loses_no_more_digits_than_plain_arithmetic():
    """Twenty weights of nearly 1/20 on gradients that nearly sum to zero."""
    qkv = 0.01 * noise(1, 20, 3, 1, 1)
    plain = max(relative_errors(qkv, (3,), lambda *parts: reference(list(parts))))
    assert plain > LIMIT / 8
    assert max(relative_errors(qkv)) < 8 * plain


@pytest.mark.parametrize("stacking", STACKINGS[1:])
def test_stacking_does_not_change_a_bit(stacking: tuple[int, ...]):
    qkv = noise(3, 9, 3, 5, 6)
    for packed, apart in zip(
        value_and_gradient(lane_attention, qkv), value_and_gradient(lane_attention, qkv, stacking), strict=True
    ):
        assert torch.equal(packed, apart)


def test_inputs_need_not_be_contiguous():
    qkv = noise(9, 3, 3, 5, 6)
    strided, plain = qkv.transpose(0, 1), qkv.transpose(0, 1).contiguous()
    assert not strided.is_contiguous()
    assert torch.equal(lane_attention(strided), lane_attention(plain))


def test_a_gradient_that_is_one_number_repeated_is_read_as_such():
    qkv = noise(3, 5, 3, 4, 3).requires_grad_()
    out = lane_attention(qkv)
    (summed,) = torch.autograd.grad(out.sum(), qkv, retain_graph=True)
    assert torch.equal(summed, torch.autograd.grad(out, qkv, torch.ones(3, 5, 12))[0])


@pytest.mark.parametrize("head_dim", [1, 2, 5, 16])
def test_saturated_softmax_picks_one_value_exactly(head_dim: int):
    """Logits ±10⁴·√head_dim: each query finds its own key."""
    tokens, heads = 9, 6
    q = torch.full((2, tokens, 1, heads, head_dim), 1e2)
    q[:, ::2] *= -1
    k = torch.linspace(-1e2, 1e2, tokens).reshape(1, tokens, 1, 1, 1).expand_as(q).clone()
    v = noise(2, tokens, 1, heads, head_dim)
    out, dq, dk, dv = value_and_gradient(lane_attention, torch.cat([q, k, v], dim=2))
    chosen = torch.tensor([0 if i % 2 == 0 else tokens - 1 for i in range(tokens)])
    assert torch.equal(out, v[:, chosen, 0].flatten(2))
    assert not dq.any()
    assert not dk.any()
    d_out = noise(*out.shape, seed=1).unflatten(2, (heads, head_dim))
    torch.testing.assert_close(dv[:, 0], d_out[:, ::2].sum(dim=1))
    assert not dv[:, 1:-1].any()


@pytest.mark.parametrize("head_dim", [1, 2, 5, 16])
def test_probabilities_of_the_backward_pass_sum_to_one_at_logits_of_ten_thousand(head_dim: int):
    """The sum over keys of the values' gradients is the sum over queries of the output's."""
    qkv = noise(3, 17, 3, 6, head_dim)
    qkv[:, :, :2] *= 100
    out, dq, dk, dv = value_and_gradient(lane_attention, qkv)
    d_out = noise(*out.shape, seed=1).unflatten(2, (6, head_dim))
    torch.testing.assert_close(dv.sum(dim=1), d_out.sum(dim=1), rtol=0, atol=2e-5)
    assert dq.isfinite().all()
    assert dk.isfinite().all()


@pytest.mark.parametrize("stacked", [0, 1, 2], ids=["query", "key", "value"])
@pytest.mark.parametrize("poison", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("head_dim", [1, 2, 5])
def test_nan_and_infinity_come_through_where_torch_has_them(poison: float, stacked: int, head_dim: int):
    qkv = noise(3, 6, 3, 7, head_dim)
    qkv[1, 4, stacked, 2, head_dim - 1] = poison
    ours = value_and_gradient(lane_attention, qkv)
    expected = value_and_gradient(lambda part: reference([part]), qkv)
    assert not ours[0][1].isfinite().all()
    for x, y in zip(ours, expected, strict=True):
        assert torch.equal(x.isfinite(), y.isfinite())
        torch.testing.assert_close(x[y.isfinite()], y[y.isfinite()], rtol=1e-4, atol=1e-5)


def test_nan_in_the_gradient_of_the_output_reaches_the_inputs():
    qkv = noise(2, 5, 3, 4, 3).requires_grad_()
    d_out = torch.ones(2, 5, 12)
    d_out[1, 2, 7] = torch.nan
    lane_attention(qkv).backward(d_out)
    assert qkv.grad is not None
    bad = qkv.grad.isnan().any(dim=-1)
    assert bad[1, 2, 0, 2]
    assert bad[1, :, 1, 2].all()
    assert bad[1, :, 2, 2].all()
    bad[1, :, :, 2] = False
    assert not bad.any()


def test_one_input_twice_gives_the_same_bits_on_any_number_of_threads():
    qkv = noise(8, 17, 3, 6, 5)
    first = value_and_gradient(lane_attention, qkv)
    again = value_and_gradient(lane_attention, qkv)
    torch.set_num_threads(2)
    threaded = value_and_gradient(lane_attention, qkv)
    torch.set_num_threads(1)
    for a, b, c in zip(first, again, threaded, strict=True):
        assert torch.equal(a, b)
        assert torch.equal(a, c)


@pytest.mark.parametrize("head_dim", [1, 2, 3, 6])
def test_a_result_does_not_depend_on_the_place_in_the_batch_or_among_the_heads(head_dim: int):
    qkv, d_out = noise(7, 10, 3, 8, head_dim), noise(7, 10, 8 * head_dim, seed=1)
    order = torch.tensor([5, 2, 7, 0, 1, 6, 3, 4])

    def run(qkv: Tensor, d_out: Tensor) -> tuple[Tensor, Tensor]:
        qkv = qkv.clone().requires_grad_()
        out = lane_attention(qkv)
        return out.detach().unflatten(2, (-1, head_dim)), torch.autograd.grad(out, qkv, d_out)[0]

    out, gradient = run(qkv, d_out)
    alone, alone_gradient = run(qkv[3:4], d_out[3:4])
    assert torch.equal(alone, out[3:4])
    assert torch.equal(alone_gradient, gradient[3:4])
    moved, moved_gradient = run(qkv[:, :, :, order], d_out.unflatten(2, (8, head_dim))[:, :, order].flatten(2))
    assert torch.equal(moved, out[:, :, order])
    assert torch.equal(moved_gradient, gradient[:, :, :, order])


def test_it_runs_without_gradients_too():
    qkv = noise(2, 5, 3, 4, 3)
    expected = lane_attention(qkv)
    for mode in (torch.no_grad(), torch.inference_mode()):
        with mode:
            assert torch.equal(lane_attention(qkv), expected)


def test_an_empty_batch_is_an_empty_result():
    assert lane_attention(torch.empty(0, 5, 3, 4, 3)).shape == (0, 5, 12)


def test_a_second_derivative_is_refused():
    qkv = noise(1, 3, 3, 2, 2).requires_grad_()
    with pytest.raises(RuntimeError, match="no second derivative"):
        torch.autograd.grad(lane_attention(qkv).sum(), qkv, create_graph=True)


@pytest.mark.parametrize(
    ("parts", "complaint"),
    [
        ([torch.zeros(2, 3, 3, 4, 2, dtype=torch.float64)], "float32 tensors on a CPU"),
        ([torch.zeros(2, 3, 3, 4, 2, device="meta")], "float32 tensors on a CPU"),
        ([torch.zeros(2, 3, 3, 4, LARGEST_HEAD_DIM + 1)], "head_dim 17 is not 1 to 16"),
        ([torch.zeros(2, 3, 3, 4, 0)], "head_dim 0"),
        ([torch.zeros(2, 0, 3, 4, 2)], "no tokens"),
        ([torch.zeros(2, 3, 2, 4, 2)], "stacked along the third of five axes"),
        ([torch.zeros(2, 3, 4, 2)], "stacked along the third of five axes"),
        ([torch.zeros(2, 3, 2, 4, 2), torch.zeros(2, 3, 1, 4, 3)], "differ in"),
        ([], "stacked along the third of five axes"),
    ],
    ids=lambda value: value.replace(" ", "-") if isinstance(value, str) else "",
)
def test_tensors_that_the_library_would_misread_are_refused(parts: list[Tensor], complaint: str):
    with pytest.raises(ValueError, match=complaint):
        lane_attention(*parts)


# ---- Models ----------------------------------------------------------------------------------------------------------

VIT = Shape(
    family="vit", depth=(2,), d_model=(16,), heads=(4,), mlp_width=(32,),
    image_size=28, patch_size=7, in_chans=1, classes=10,
)  # fmt: skip
TNT = replace(VIT, family="tnt", inner_d_model=12, inner_heads=2)
DAVIT = replace(VIT, family="davit", depth=(1, 1), d_model=(16, 32), heads=(2, 4), mlp_width=(32, 64), window=4,
                image_size=32)  # fmt: skip
SHAPES = {
    "vit": (VIT, 2, 2),
    "vit with wide heads": (replace(VIT, head_dim=(6,)), 2, 2),
    "tnt": (TNT, 4, 4),
    "tnt with wide heads": (replace(TNT, head_dim=(6,)), 4, 4),
    "davit": (DAVIT, 2, 4),
    "davit with wide heads": (replace(DAVIT, head_dim=(5, 5)), 2, 4),
}
"""Shape, layers that can run in lanes, and attention layers."""


def images(shape: Shape, count: int = 6) -> Tensor:
    return noise(count, shape.in_chans, shape.image_size, shape.image_size)


def fresh(shape: Shape) -> nn.Module:
    torch.manual_seed(0)
    return build(shape)


def switched(shape: Shape) -> nn.Module:
    model = fresh(shape)
    assert use_lanes(model, images(shape)).kernel == "lanes"
    return model


def train(model: nn.Module, shape: Shape, steps: int = 3) -> Tensor:
    """All parameters after a few optimizer steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        functional.cross_entropy(model(images(shape)), (torch.arange(6) + step) % 10).backward()
        optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()])


@pytest.mark.parametrize("name", SHAPES)
def test_training_is_the_same_within_rounding(name: str):
    shape, sites, _ = SHAPES[name]
    plain, lanes = fresh(shape), fresh(shape)
    assert use_lanes(lanes, images(shape)).as_dict()["sites"] == sites
    start = torch.cat([p.detach().flatten() for p in plain.parameters()])
    expected, ours = train(plain, shape), train(lanes, shape)
    assert not torch.equal(expected, ours)
    assert float((expected - ours).norm() / (expected - start).norm()) < LIMIT


@pytest.mark.parametrize("name", SHAPES)
def test_a_switched_model_keeps_its_parameters_names_classes_and_modes(name: str):
    shape, sites, of = SHAPES[name]
    plain, lanes = fresh(shape), fresh(shape)
    lanes.train()
    lanes.get_submodule(next(attention_sites(lanes)).name).eval()
    modes = [module.training for module in lanes.modules()]
    choice = use_lanes(lanes, images(shape))
    assert (choice.sites, choice.of) == (sites, of)
    assert [module.training for module in lanes.modules()] == modes
    assert [(type(m), m.extra_repr()) for m in lanes.modules()] == [(type(m), m.extra_repr()) for m in plain.modules()]
    assert all(p.grad is None for p in lanes.parameters())
    before, after = plain.state_dict(), lanes.state_dict()
    assert list(before) == list(after)
    assert all(torch.equal(before[key], after[key]) for key in before)
    described = [[(s.name, s.kind, s.heads) for s in attention_sites(model)] for model in (plain, lanes)]
    assert described[0] == described[1]
    assert len(described[0]) == of


def test_counting_tokens_leaves_no_trace():
    """The input that passes through changes no statistics, draws no random numbers and leaves no hook."""
    model = nn.Sequential(nn.BatchNorm1d(5), nn.Dropout(0.5), Attention(8, 4))
    buffers, state = copy.deepcopy(dict(model.named_buffers())), torch.get_rng_state()
    assert use_lanes(model, noise(3, 5, 8)).as_dict() == {"kernel": "lanes", "sites": 1, "of": 1}
    assert all(torch.equal(buffer, buffers[name]) for name, buffer in model.named_buffers())
    assert torch.equal(torch.get_rng_state(), state)
    assert not any(module._forward_pre_hooks for module in model.modules())


@pytest.mark.parametrize("name", SHAPES)
def test_condition_numbers_of_a_switched_model_are_those_of_the_model_to_the_bit(name: str):
    shape, *_ = SHAPES[name]
    assert measure(switched(shape), images(shape, 2)) == measure(fresh(shape), images(shape, 2))


@pytest.mark.parametrize("name", ["vit", "tnt", "davit"])
def test_a_copy_computes_with_its_own_weights(name: str):
    shape, *_ = SHAPES[name]
    model = switched(shape)
    before = model(images(shape))
    twin = copy.deepcopy(model)
    for parameter in twin.parameters():
        nn.init.zeros_(parameter)
    assert not twin(images(shape)).any()
    assert torch.equal(model(images(shape)), before)
    double = copy.deepcopy(model).double()
    assert torch.equal(double(images(shape).double()), fresh(shape).double()(images(shape).double()))


def test_hooks_of_the_output_projection_see_the_concatenated_heads():
    caught: list[Tensor] = []
    for model in (fresh(VIT), switched(VIT)):
        projection = model.get_submodule("blocks.1.attn.proj")
        projection.register_forward_pre_hook(lambda _, args: caught.append(args[0].detach()))
        model(images(VIT))
    assert caught[0].shape == (6, 17, 16)
    torch.testing.assert_close(caught[0], caught[1], rtol=0, atol=1e-5)
    assert not torch.equal(caught[0], caught[1])


def test_switching_twice_is_switching_once():
    model = switched(VIT)
    expected = model(images(VIT))
    assert use_lanes(model, images(VIT)).as_dict() == {"kernel": "lanes", "sites": 2, "of": 2}
    assert torch.equal(model(images(VIT)), expected)


def one_layer(layer: nn.Module) -> nn.Module:
    """A model of one attention layer, which takes (batch, tokens, channels)."""
    return nn.Sequential(layer)


def assert_left_alone(model: nn.Module, inputs: Tensor, reason: str) -> None:
    expected = model(inputs)
    choice = use_lanes(model, inputs)
    assert choice.as_dict()["kernel"] == "sdpa"
    assert choice.sites == 0
    assert choice.reasons == (reason,)
    assert torch.equal(model(inputs), expected)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"attn_head_dim": 17}, "head_dim 17 is above 16"),
        ({"gated": True}, "Attention with options"),
        ({"attn_drop": 0.1}, "Attention with options"),
        ({"dtype": torch.float64}, "not float32 on a CPU"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_layer_that_computes_something_else_is_left_alone(options, reason: str):
    layer = Attention(24, num_heads=4, **options).eval()
    assert_left_alone(one_layer(layer), noise(2, 5, 24).to(layer.proj.weight.dtype), reason)


@pytest.mark.parametrize("options", [{"qk_norm": True}, {"scale_norm": True}, {"qk_norm": True, "scale_norm": True}])
def test_norms_of_queries_keys_and_heads_run_in_lanes_with_values_and_gradients_of_torch(options: dict[str, bool]):
    layer = Attention(24, num_heads=4, norm_layer=nn.LayerNorm, **options)
    with torch.no_grad():
        for place, parameter in enumerate(layer.parameters()):
            parameter.add_(0.3 * noise(*parameter.shape) * (place + 1) / 10)
    inputs = noise(2, 5, 24)
    ends: list[list[Any]] = []
    for model in (one_layer(layer), one_layer(copy.deepcopy(layer))):
        if ends:
            assert use_lanes(model, inputs).sites == 1
        outputs = model(inputs)
        outputs.square().sum().backward()
        ends.append([outputs.detach(), *(parameter.grad for parameter in model.parameters())])
    for plain, lanes in zip(*ends, strict=True):
        assert torch.allclose(plain, lanes, rtol=1e-4, atol=1e-5)


def test_layers_with_too_many_tokens_another_scale_another_forward_or_other_values_are_left_alone(
    monkeypatch: pytest.MonkeyPatch,
):
    assert_left_alone(one_layer(Attention(8, 4)), noise(1, LARGEST_TOKENS + 1, 8), "129 tokens are not 1 to 128")
    scaled = tnt.Attention(8, 8, 4)
    scaled.scale = 1.0
    assert_left_alone(one_layer(scaled), noise(1, 5, 8), "Attention with options")
    replaced = Attention(8, 4)
    monkeypatch.setattr(replaced, "forward", lambda x: x)
    assert_left_alone(one_layer(replaced), noise(1, 5, 8), "Attention with options")
    narrow = tnt.Attention(16, 8, 4)
    narrow.scale = 4**-0.5
    assert_left_alone(one_layer(narrow), noise(1, 5, 16), "Attention with options")
    assert_left_alone(fresh(XCIT), images(XCIT), "XCA has no form in lanes")


XCIT = replace(VIT, family="xcit", patch_size=8, image_size=32)


@pytest.mark.parametrize("kind", [davit.WindowAttention, WindowAttention])
def test_attention_in_windows_runs_in_lanes(kind: type[nn.Module]):
    torch.manual_seed(0)
    layer = kind(12, (2, 2), 3) if kind is davit.WindowAttention else kind(12, 3)
    model, x = one_layer(layer), noise(5, 4, 12)
    expected = model(x)
    assert use_lanes(model, x).kernel == "lanes"
    torch.testing.assert_close(model(x), expected, rtol=0, atol=1e-6)
    assert not torch.equal(model(x), expected)


def test_a_masked_call_of_a_switched_layer_is_masked():
    torch.manual_seed(0)
    layer, x, mask = Attention(8, 4), noise(2, 5, 8), torch.eye(5, dtype=torch.bool)
    expected = layer(x, attn_mask=mask), layer(x, is_causal=True), layer(x, mask)
    assert use_lanes(one_layer(layer), x).kernel == "lanes"
    ours = layer(x, attn_mask=mask), layer(x, is_causal=True), layer(x, mask)
    assert all(torch.equal(a, b) for a, b in zip(ours, expected, strict=True))
    torch.testing.assert_close(layer(x, attn_mask=None, is_causal=False), layer(x))


def test_mixed_precision_uses_torch():
    plain, lanes = fresh(VIT), switched(VIT)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(plain(images(VIT)), lanes(images(VIT)))


def test_a_compiled_model_uses_torch_and_compiles_whole():
    layer, x = Attention(8, 4), noise(2, 5, 8)
    expected = torch.compile(copy.deepcopy(layer), backend="eager", fullgraph=True)(x)
    assert use_lanes(one_layer(layer), x).kernel == "lanes"
    torch.testing.assert_close(torch.compile(layer, backend="eager", fullgraph=True)(x), expected)


def test_a_pickled_layer_runs_in_lanes_where_there_are_some(monkeypatch: pytest.MonkeyPatch):
    layer, x = Attention(8, 4), noise(2, 5, 8)
    ordinary = layer(x)
    assert use_lanes(one_layer(layer), x).kernel == "lanes"
    in_lanes = layer(x)
    assert not torch.equal(in_lanes, ordinary)
    restored = pickle.loads(pickle.dumps(layer))
    assert torch.equal(restored(x), in_lanes)
    monkeypatch.setenv("HEADS_FOR_DEPTH_ATTENTION", "sdpa")
    forget()
    assert torch.equal(restored(x), ordinary)
    forget()


# ---- Machines that cannot --------------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Path]:
    """Another machine: an empty cache and a process that has loaded nothing. Gives the cache folder."""
    cache = tmp_path / "cache"
    monkeypatch.setenv("HEADS_FOR_DEPTH_CACHE", str(cache))
    monkeypatch.delenv("CXX", raising=False)
    forget()
    yield cache
    forget()


def compiler(folder: Path, body: str) -> str:
    """A compiler as a shell script, in which $real is the true one: it tells its version, then does what `body` says.

    $output is the last argument but one, $source the last.
    """
    real = next(path for path in map(shutil.which, compiling.COMPILERS) if path)
    path = folder / "compiler"
    path.write_text(
        f"#!/bin/sh\nreal={real}\n"
        'case "$*" in *--version) exec $real --version;; esac\n'
        f'eval "source=\\${{$#}}"; eval "output=\\${{$(($# - 1))}}"\n{body}\n'
    )
    path.chmod(0o755)
    return str(path)


QUICK = 'echo compiled >> "$(dirname "$0")/log"; exec $real "$@" -O0'
"""The true compiler without optimization, counting how often it runs."""


def compilations(folder: Path) -> int:
    log = folder / "log"
    return len(log.read_text().splitlines()) if log.is_file() else 0


def assert_unavailable(reason: str, folder: Path) -> None:
    """Not ready for this reason, said without naming a folder, and models compute as they did."""
    forget()
    assert not availability().ready
    assert reason in availability().reason
    assert str(folder) not in availability().reason
    assert str(compiling.SOURCE.parent) not in availability().reason
    model = fresh(VIT)
    assert use_lanes(model, images(VIT)).as_dict() == {
        "kernel": "sdpa", "sites": 0, "of": 2, "reason": availability().reason,
    }  # fmt: skip
    assert torch.equal(model(images(VIT)), fresh(VIT)(images(VIT)))
    if reason != "HEADS_FOR_DEPTH_ATTENTION is sdpa":
        with pytest.raises(LanesUnavailable):
            compiling.build()


def test_without_a_compiler_attention_is_as_it_was(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert_unavailable("no C++ compiler found: CXX is not set, and PATH has none of g++, clang++, c++", tmp_path)


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("/bin/false", "the compiler false failed with exit status 1: silent"),
        ("/nowhere/g++", "the compiler g++ cannot be started (No such file or directory)"),
        ("/bin/true", "the compiler left no library"),
        ("g++ 'half", "CXX is no command line: No closing quotation"),
    ],
)
def test_a_compiler_that_does_not_run_is_a_reason(
    command: str, reason: str, machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("CXX", command)
    assert_unavailable(reason, tmp_path)


def test_a_compiler_that_refuses_the_source_is_a_reason_and_leaves_nothing(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("CXX", compiler(tmp_path, 'echo "$source:7: too modern" >&2; exit 3'))
    assert_unavailable("the compiler compiler failed with exit status 3: attention_lanes.cpp:7: too modern", tmp_path)
    assert list(machine.iterdir()) == []


def test_a_compiler_that_hangs_is_a_reason(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setattr(compiling, "COMPILE_SECONDS", 0.2)
    monkeypatch.setenv("CXX", compiler(tmp_path, "exec sleep 60"))
    assert_unavailable("the compiler compiler took longer than 0.2 seconds", tmp_path)


def test_what_the_compiler_leaves_must_be_a_library(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CXX", compiler(tmp_path, 'echo no library > "$output"'))
    forget()
    assert availability().reason == "the compiled library cannot be loaded"
    with pytest.raises(LanesUnavailable):
        library()


def test_a_library_that_computes_something_else_is_found_out(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    wrong = (
        'sed "s/+ 1.f;/+ 1.1f * f * f + 1.f;/" "$source" > "$0.cpp"; exec $real -std=c++17 -O0 -march=native -fPIC '
        '-shared -DLARGEST_HEAD_DIM=16 -o "$output" "$0.cpp"'
    )
    monkeypatch.setenv("CXX", compiler(tmp_path, wrong))
    forget()
    assert availability().reason == "the compiled kernel disagrees with torch's attention"
    assert use_lanes(fresh(VIT), images(VIT)).kernel == "sdpa"


def unwritable(folder: Path) -> Path:
    """A folder in which this user can create nothing; for root, who may write anywhere, one of the kernel's."""
    if os.geteuid() == 0:
        return Path("/sys")
    folder.mkdir()
    folder.chmod(0o500)
    return folder


def test_a_cache_that_cannot_be_written_is_a_reason(machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.setenv("CXX", compiler(tmp_path, QUICK))
    for folder in (
        unwritable(tmp_path / "locked") / "lanes",
        unwritable(tmp_path / "locked2"),
        tmp_path / "file" / "x",
    ):
        (tmp_path / "file").touch()
        monkeypatch.setenv("HEADS_FOR_DEPTH_CACHE", str(folder))
        assert_unavailable("HEADS_FOR_DEPTH_CACHE can name another", tmp_path)
    assert compilations(tmp_path) == 0


def test_the_library_is_compiled_once_and_again_when_its_file_is_damaged(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("CXX", compiler(tmp_path, QUICK))
    first = compiling.build()
    whole = first.read_bytes()
    assert compiling.build() == first
    assert compilations(tmp_path) == 1
    first.unlink()
    first.write_bytes(whole[: len(whole) // 2])
    assert availability().ready
    assert compilations(tmp_path) == 2
    assert [path for path in machine.iterdir() if path.read_bytes() == whole] == [compiling.build()]
    assert max(relative_errors(noise(2, 5, 3, 3, 4))) < LIMIT


def test_another_command_version_processor_or_source_is_another_file(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    quick = compiler(tmp_path, QUICK)
    monkeypatch.setenv("CXX", quick)
    built = {compiling.build()}
    monkeypatch.setenv("CXX", f"{quick} -g0")
    built.add(compiling.build())
    Path(quick).write_text(Path(quick).read_text().replace("exec $real --version", "echo next; exit"))
    built.add(compiling.build())
    monkeypatch.setattr(compiling, "_processor", lambda: "another")
    built.add(compiling.build())
    source = tmp_path / "attention_lanes.cpp"
    source.write_text(compiling.SOURCE.read_text() + "// changed\n")
    monkeypatch.setattr(compiling, "SOURCE", source)
    built.add(compiling.build())
    assert len(built) == 5 == compilations(tmp_path)


def test_processes_that_build_at_once_do_not_disturb_each_other(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """The compiler waits until both are compiling."""
    both = 'touch "$0.$$"; for _ in $(seq 2000); do [ "$(ls "$0".* | wc -l)" = 2 ] && break; sleep 0.05; done; ' + QUICK
    monkeypatch.setenv("CXX", compiler(tmp_path, both))
    program = "from heads_for_depth.attention_lanes import availability; print(availability())"
    command = [sys.executable, "-W", "ignore", "-c", program]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    assert [process.communicate(timeout=300)[0] for process in processes] == [
        "Availability(ready=True, reason='')\n"
    ] * 2
    assert compilations(tmp_path) == 2
    assert [path.suffix for path in machine.iterdir()] == [".so"]
    assert availability().ready
    assert compilations(tmp_path) == 2


def test_the_environment_turns_the_kernel_off_and_refuses_other_words(
    machine: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setenv("HEADS_FOR_DEPTH_ATTENTION", "sdpa")
    assert_unavailable("HEADS_FOR_DEPTH_ATTENTION is sdpa", tmp_path)
    assert not machine.exists()
    monkeypatch.setenv("HEADS_FOR_DEPTH_ATTENTION", "fast")
    forget()
    with pytest.raises(BadInput, match="HEADS_FOR_DEPTH_ATTENTION is 'fast': use auto or sdpa"):
        availability()


def test_the_cache_lies_where_the_user_or_the_desktop_says(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", "/home/someone")
    monkeypatch.setenv("XDG_CACHE_HOME", "/var/caches")
    monkeypatch.setenv("HEADS_FOR_DEPTH_CACHE", "/here")
    assert cache_folder() == Path("/here")
    monkeypatch.delenv("HEADS_FOR_DEPTH_CACHE")
    assert cache_folder() == Path("/var/caches/heads-for-depth")
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert cache_folder() == Path("/home/someone/.cache/heads-for-depth")


def test_a_user_without_a_home_is_a_reason(monkeypatch: pytest.MonkeyPatch, machine: Path):
    for name in ("HEADS_FOR_DEPTH_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)
    assert_unavailable("this user has no home, HEADS_FOR_DEPTH_CACHE can name a cache folder", machine)


def test_models_without_a_layer_for_it_compile_nothing(machine: Path):
    use_lanes(fresh(XCIT), images(XCIT))
    assert not machine.exists()
