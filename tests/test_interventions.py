"""Interventions: each changes what it is named after and nothing else, and adds no parameter."""

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from timm.layers.attention import Attention
from timm.models.vision_transformer import Block, ResPostBlock
from torch import Tensor, nn

from heads_for_depth.attention_lanes import use_lanes
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun
from heads_for_depth.interventions import (
    ILL_CONDITION,
    INTERVENTIONS,
    SHIFT,
    TEMPERATURE,
    Directions,
    HeadNorm,
    SpectralShift,
    intervene,
)
from heads_for_depth.models import build
from heads_for_depth.shapes import Shape
from heads_for_depth.training import initial_model

CHANGES = [name for name in INTERVENTIONS if name != "none"]


def model_of(shape: Shape, intervention: str = "none", seed: int = 0) -> nn.Module:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return intervene(build(shape), intervention)


def first_attention(model: nn.Module) -> Any:
    return next(module for module in model.modules() if type(module) is Attention)


def value_weights(model: nn.Module) -> Tensor:
    attention = first_attention(model)
    return attention.qkv.weight.detach()[2 * attention.attn_dim :]


def images(count: int = 3) -> Tensor:
    return torch.randn(count, 1, 28, 28, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", CHANGES)
def test_no_intervention_adds_or_renames_a_parameter(name: str, tiny_shape: Shape):
    plain, changed = model_of(tiny_shape), model_of(tiny_shape, name)
    sizes = [{key: value.shape for key, value in model.state_dict().items()} for model in (plain, changed)]
    assert sizes[0] == sizes[1]


@pytest.mark.parametrize("name", CHANGES)
def test_every_intervention_changes_the_function_and_leaves_the_rest_of_the_start_alone(name: str, tiny_shape: Shape):
    plain, changed = model_of(tiny_shape), model_of(tiny_shape, name)
    assert not torch.equal(plain.eval()(images()), changed.eval()(images()))
    touched = {"orthogonal-init": ("attn.qkv.weight", "attn.proj.weight"), "ill-conditioned-init": ("attn.qkv.weight",)}
    for key, value in plain.state_dict().items():
        assert torch.equal(value, changed.state_dict()[key]) is not key.endswith(touched.get(name, ("no such",)))


def test_queries_and_keys_start_as_they_were(tiny_shape: Shape):
    for name in ("orthogonal-init", "ill-conditioned-init"):
        pair = [first_attention(model_of(tiny_shape, one)).qkv.weight[: 2 * 16] for one in ("none", name)]
        assert torch.equal(*pair)


def test_an_orthogonal_start_has_equal_singular_values_and_the_norm_of_the_old_one(tiny_shape: Shape):
    for name in ("qkv", "proj"):
        before, after = (getattr(first_attention(model_of(tiny_shape, one)), name).weight.detach()
                         for one in ("none", "orthogonal-init"))  # fmt: skip
        if name == "qkv":
            before, after = before[32:], after[32:]
        values = np.linalg.svd(after.double().numpy(), compute_uv=False)
        assert values.max() / values.min() == pytest.approx(1, abs=1e-5)
        assert float(after.norm()) == pytest.approx(float(before.norm()), rel=1e-5)


def test_an_ill_conditioned_start_has_the_stated_condition_number_and_the_norm_of_the_old_one(tiny_shape: Shape):
    before, after = value_weights(model_of(tiny_shape)), value_weights(model_of(tiny_shape, "ill-conditioned-init"))
    values = np.linalg.svd(after.double().numpy(), compute_uv=False)
    assert values[0] / values[-1] == pytest.approx(ILL_CONDITION, rel=1e-3)
    assert np.diff(np.log(values)) == pytest.approx([-np.log(ILL_CONDITION) / 15] * 15, rel=1e-2)  # geometric
    assert float(after.norm()) == pytest.approx(float(before.norm()), rel=1e-5)


def test_a_spectral_shift_raises_what_is_below_and_keeps_what_is_above():
    generator = torch.Generator().manual_seed(0)
    left, right = (torch.linalg.qr(torch.randn(n, 5, generator=generator, dtype=torch.float64)).Q for n in (9, 7))
    values = torch.tensor([4.0, 1.0, 0.3, 0.02, 0.0], dtype=torch.float64)
    matrix = left @ torch.diag(values) @ right.T
    shifted = SpectralShift(0.1)(matrix.unsqueeze(0))[0]
    found = torch.linalg.svdvals(shifted)
    assert found[:5].numpy() == pytest.approx([4.0, 1.0, 0.4, 0.4, 0.4])
    three = left[:, :3] @ torch.diag(torch.tensor([4.0, 1.0, 0.4], dtype=torch.float64)) @ right[:, :3].T
    assert torch.allclose(left[:, :3].T @ shifted @ right[:, :3], left[:, :3].T @ three @ right[:, :3], atol=1e-12)


def test_the_shift_bounds_the_condition_number_of_a_models_head_outputs(tiny_shape: Shape):
    model = model_of(tiny_shape, "spectral-shift").double().eval()
    seen: list[Tensor] = []
    first_attention(model).proj.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    with torch.no_grad():
        model(images().double())
    values = torch.linalg.svdvals(seen[0])
    assert float((values[:, 0] / values[:, -1]).max()) == pytest.approx(1 / SHIFT, rel=1e-6)


def test_a_matrix_that_is_not_finite_passes_and_its_neighbours_are_shifted_as_ever():
    x = torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(6))
    poisoned = x.clone()
    poisoned[1, 2, 3] = torch.nan
    shifted = SpectralShift(0.1)(poisoned)
    assert torch.equal(shifted[1].isnan(), poisoned[1].isnan())
    assert torch.allclose(shifted[[0, 2]], SpectralShift(0.1)(x)[[0, 2]])


def test_the_shift_is_a_constant_to_the_gradient():
    x = torch.randn(2, 5, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(2)).requires_grad_()
    weights = torch.arange(40.0, dtype=torch.float64).view(2, 5, 4)
    (gradient,) = torch.autograd.grad((SpectralShift(0.1)(x) * weights).sum(), x)
    assert torch.equal(gradient, weights)


def test_head_outputs_are_normalized_head_by_head_and_token_by_token():
    x = torch.tensor([[[3.0, 4.0, 0.1, 0.1], [0.0, 2.0, 5.0, 12.0]]])
    expected = [[3 / 12.5**0.5, 4 / 12.5**0.5, 1, 1], [0, 2**0.5, 5 / 84.5**0.5, 12 / 84.5**0.5]]
    assert HeadNorm(2)(x)[0].numpy() == pytest.approx(np.array(expected), rel=1e-5)


def test_logits_at_a_fixed_temperature_are_that_many_times_the_cosine():
    generator = torch.Generator().manual_seed(3)
    for head_dim in (2, 8, 64):
        q, k = torch.randn(2, 5, head_dim, generator=generator, dtype=torch.float64).unbind(0)
        logits = Directions(TEMPERATURE / head_dim**0.5)(q) @ Directions(1.0)(k).T / head_dim**0.5
        cosines = nn.functional.cosine_similarity(q[:, None], k[None], dim=-1)
        assert torch.allclose(logits, TEMPERATURE * cosines, atol=1e-12)


def test_the_scale_of_queries_and_keys_does_not_matter_at_a_fixed_temperature(tiny_shape: Shape):
    model = model_of(tiny_shape, "fixed-temperature").eval()
    louder = copy.deepcopy(model)
    with torch.no_grad():
        for module in louder.modules():
            if type(module) is Attention:
                module.qkv.weight[:32] *= 3
    assert torch.allclose(model(images()), louder(images()), atol=1e-5)
    plain = model_of(tiny_shape).eval()
    louder.load_state_dict({k: 3 * v if k.endswith("qkv.weight") else v for k, v in plain.state_dict().items()})
    assert not torch.allclose(plain(images()), louder(images()), atol=1e-5)


def test_norms_after_are_those_of_timms_own_block(tiny_shape: Shape):
    model: Any = model_of(tiny_shape, "res-post-norm").eval()
    assert {type(block) for block in model.blocks} == {ResPostBlock}
    reference = ResPostBlock(16, 4, mlp_ratio=2.0, qkv_bias=True).eval()
    reference.load_state_dict(model.blocks[0].state_dict())
    x = torch.randn(2, 17, 16, generator=torch.Generator().manual_seed(4))
    assert torch.equal(model.blocks[0](x), reference(x))
    assert {type(block) for block in model_of(tiny_shape).blocks} == {Block}  # type: ignore[union-attr]


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_model_trains_and_every_parameter_gets_a_finite_gradient(name: str, tiny_shape: Shape):
    model = model_of(tiny_shape, name)
    model(images()).square().sum().backward()
    gradients = {key: parameter.grad for key, parameter in model.named_parameters()}
    assert all(g is not None and torch.isfinite(g).all() and g.abs().sum() > 0 for g in gradients.values())


@pytest.mark.parametrize("name", [*CHANGES, "none"])
def test_in_lanes_a_changed_model_is_the_same_function(name: str, tiny_shape: Shape):
    plain = model_of(tiny_shape, name)
    with torch.no_grad():  # away from the start, where head outputs are alike and a shift would magnify rounding
        for place, parameter in enumerate(plain.parameters()):
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(place))
            parameter.add_(0.2 * noise)
    lanes = copy.deepcopy(plain)
    assert use_lanes(lanes, images(1)).sites == 2
    for model in (plain, lanes):
        model(images()).square().sum().backward()
    assert torch.allclose(plain(images()), lanes(images()), rtol=1e-4, atol=1e-4)
    for one, other in zip(plain.parameters(), lanes.parameters(), strict=True):
        assert one.grad is not None
        assert other.grad is not None
        assert torch.allclose(one.grad, other.grad, rtol=1e-3, atol=1e-3 * float(one.grad.abs().max()))


def test_a_planned_intervention_is_in_the_model_that_is_trained(tiny_run: PlannedRun):
    run = replace(tiny_run, intervention="head-norm")
    assert isinstance(first_attention(initial_model(run)).norm, HeadNorm)
    assert run.as_dict()["intervention"] == "head-norm"
    assert "intervention" not in tiny_run.as_dict()


def test_what_cannot_be_changed_is_refused(tiny_shape: Shape):
    with pytest.raises(BadInput, match=r"intervention is 'dropout': use one of none, orthogonal-init"):
        intervene(build(tiny_shape), "dropout")
    xcit = Shape(family="xcit", depth=(1,), d_model=(16,), heads=(2,), mlp_width=(32,), patch_size=8, image_size=32)
    with pytest.raises(BadInput, match=r"intervention is 'head-norm': is for a ViT, Xcit has other attention"):
        intervene(build(xcit), "head-norm")
