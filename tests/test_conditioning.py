"""κ of every object against direct float64 computations, and the properties that κ must have."""

import copy
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import scipy.stats
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from heads_for_depth.conditioning import (
    attention,
    condition_numbers,
    gaussian_prediction,
    measure,
    singular_values,
    spectra,
    summarize,
)
from heads_for_depth.conditioning.attention import jacobian
from heads_for_depth.conditioning.spectra import effective_rank, numerical_rank
from heads_for_depth.models import attention_sites, build
from heads_for_depth.shapes import Shape

Array = np.ndarray


def small(family: str, **facts: Any) -> Shape:
    """A shape of that family with two stages or blocks and random-looking but tiny sizes."""
    stages = 2 if family == "davit" else 1
    values: dict[str, Any] = {
        "depth": (1,) * stages if family == "davit" else (2,), "d_model": (16, 32)[:stages], "heads": (4, 8)[:stages],
        "image_size": 32, "patch_size": 16, "in_chans": 2, "classes": 3, "inner_d_model": 8, "inner_heads": 2,
        "class_depth": 1, "window": 4,
    } | facts  # fmt: skip
    return Shape(family=family, mlp_width=tuple(2 * d for d in values["d_model"]), **values)


SHAPES = {
    "vit": small("vit"),
    "xcit": small("xcit", patch_size=8),
    "tnt": small("tnt"),
    "davit": small("davit"),
    "wide vit": small("vit", head_dim=(7,)),
    "wide xcit": small("xcit", patch_size=8, head_dim=(6,)),
    "wide tnt": small("tnt", head_dim=(3,)),
    "wide davit": small("davit", head_dim=(5, 6)),
}
KINDS = {
    "vit": {"tokens"}, "xcit": {"channels"}, "tnt": {"tokens", "inner"}, "davit": {"window", "channels"},
}  # fmt: skip


def model_and_inputs(shape: Shape, seed: int = 0) -> tuple[nn.Module, Tensor]:
    """A model with weights far enough from initialization to have no special structure, and four inputs."""
    torch.manual_seed(seed)
    model = build(shape)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model, torch.randn(4, shape.in_chans, shape.image_size, shape.image_size)


# Attention written out in numpy, one matrix and one head at a time.


def weight(module: nn.Module, name: str) -> Array:
    parameter = module.get_parameter(name)
    return parameter.detach().numpy().astype(np.float64)


def affine(layer: nn.Module, x: Array) -> Array:
    bias = weight(layer, "bias") if getattr(layer, "bias", None) is not None else 0.0
    return x @ weight(layer, "weight").T + bias


def softmax(x: Array) -> Array:
    """Over the last axis."""
    powers = np.exp(x - x.max(axis=-1, keepdims=True))
    return powers / powers.sum(axis=-1, keepdims=True)


def queries_keys_values(layer: nn.Module, x: Array, heads: int) -> list[list[Array]]:
    """Per head, its tokens × head_dim queries, keys and values."""
    if hasattr(layer, "qkv"):
        packed = affine(layer.get_submodule("qkv"), x)
    else:
        packed = np.concatenate([affine(layer.get_submodule("qk"), x), affine(layer.get_submodule("v"), x)], axis=1)
    q, k, v = (np.split(part, heads, axis=1) for part in np.split(packed, 3, axis=1))
    return [list(three) for three in zip(q, k, v, strict=True)]


def token_attention(layer: nn.Module, q: Array, k: Array, v: Array, head: int) -> Array:
    return softmax(q @ k.T / math.sqrt(q.shape[1])) @ v


def cross_covariance_attention(layer: nn.Module, q: Array, k: Array, v: Array, head: int) -> Array:
    unit_q, unit_k = q / np.linalg.norm(q, axis=0), k / np.linalg.norm(k, axis=0)
    temperature = weight(layer, "temperature")[head].item()
    return v @ softmax(unit_q.T @ unit_k * temperature).T


def channel_attention(layer: nn.Module, q: Array, k: Array, v: Array, head: int) -> Array:
    return q @ softmax(k.T @ v / math.sqrt(q.shape[1])).T


def attention_of(layer: nn.Module, kind: str) -> Callable[..., Array]:
    if kind != "channels":
        return token_attention
    return cross_covariance_attention if hasattr(layer, "temperature") else channel_attention


def heads_by_hand(layer: nn.Module, kind: str, x: Array, heads: int) -> list[Array]:
    """Every head's output, tokens × head_dim."""
    attend = attention_of(layer, kind)
    return [attend(layer, *three, head) for head, three in enumerate(queries_keys_values(layer, x, heads))]


def layer_inputs(model: nn.Module, inputs: Tensor) -> dict[str, Array]:
    """Input of every attention layer in a float64 forward pass in evaluation mode, (matrices, tokens, channels)."""
    double, seen = copy.deepcopy(model).double().eval(), {}
    for site in attention_sites(double):
        site.module.register_forward_pre_hook(lambda _, args, name=site.name: seen.update({name: args[0].numpy()}))
    with torch.no_grad():
        double(inputs.double())
    return seen


def summary_by_numpy(matrices: list[Array]) -> dict[str, float]:
    """What a table row says, from numpy's SVD, rank and quantiles and scipy's entropy."""
    spectra = [np.linalg.svd(matrix, compute_uv=False) for matrix in matrices]
    ranks = [int(np.linalg.matrix_rank(matrix)) for matrix in matrices]
    full = [rank == min(matrix.shape) for rank, matrix in zip(ranks, matrices, strict=True)]
    kappas = [s[0] / s[-1] if ok else math.inf for s, ok in zip(spectra, full, strict=True)]
    quartiles = np.quantile(kappas, [0.25, 0.5, 0.75], method="higher")
    return {
        "rows": matrices[0].shape[0],
        "columns": matrices[0].shape[1],
        "matrices": len(matrices),
        "condition_number_q1": quartiles[0],
        "condition_number": quartiles[1],
        "condition_number_q3": quartiles[2],
        "rank_deficient": 1 - np.mean(full),
        "numerical_rank": np.median(ranks),
        "effective_rank": np.median([np.exp(scipy.stats.entropy(s)) for s in spectra]),
    }


def table_rows(table: dict[str, Any]) -> dict[tuple[str, str], dict[str, Any]]:
    """(site, object) -> the row, by column."""
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return {(row["site"], row["object"]): row for row in rows}


def assert_row(row: dict[str, Any], matrices: list[Array]) -> None:
    expected = summary_by_numpy(matrices)
    found = {key: float(row[key]) for key in expected}
    assert found == pytest.approx(expected, rel=2e-5)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_every_row_is_the_spectrum_of_the_attention_written_out_by_hand(name: str):
    model, inputs = model_and_inputs(SHAPES[name])
    rows = table_rows(measure(model, inputs))
    seen = layer_inputs(model, inputs)
    sites = list(attention_sites(model))
    assert len(rows) == 3 * len(sites)
    assert {site.kind for site in sites} == KINDS[name.removeprefix("wide ")]
    for site in sites:
        heads = [heads_by_hand(site.module, site.kind, x, site.heads) for x in seen[site.name]]
        concatenated = [np.concatenate(per_head, axis=1) for per_head in heads]
        projected = [affine(site.module.get_submodule("proj"), matrix) for matrix in concatenated]
        assert_row(rows[site.name, "concatenated"], concatenated)
        assert_row(rows[site.name, "projected"], projected)
        assert_row(rows[site.name, "head"], [head for per_head in heads for head in per_head])
        assert rows[site.name, "head"]["heads"] == site.heads
        assert rows[site.name, "head"]["kind"] == site.kind


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_heads_side_by_side_are_the_input_of_the_projection(name: str):
    """The same by hand, as numbers and not only as spectra."""
    model, inputs = model_and_inputs(SHAPES[name])
    seen = layer_inputs(model, inputs)
    double = copy.deepcopy(model).double().eval()
    sites = list(attention_sites(double))
    caught = attention._catch(double, sites, inputs.double())
    for site in sites:
        x, concatenated, projected = caught[site.name]
        assert np.array_equal(x.numpy(), seen[site.name])
        by_hand = [np.concatenate(heads_by_hand(site.module, site.kind, one, site.heads), axis=1) for one in x.numpy()]
        np.testing.assert_allclose(concatenated.numpy(), by_hand, rtol=1e-9, atol=1e-12)
        after = [affine(site.module.get_submodule("proj"), one) for one in by_hand]
        np.testing.assert_allclose(projected.numpy(), after, rtol=1e-9, atol=1e-12)


def finite_differences(layer: nn.Module, x: Tensor, step: float = 1e-5) -> Tensor:
    """Central differences: column j is how the output moves with input element j."""
    moves = step * torch.eye(x.numel(), dtype=torch.float64).reshape(-1, *x.shape)
    with torch.no_grad():
        moved = layer(x + moves) - layer(x - moves)
    return moved.flatten(1).T / (2 * step)


@pytest.mark.parametrize("name", sorted(SHAPES))
def test_the_jacobian_agrees_with_finite_differences_and_with_autograd(name: str):
    model, inputs = model_and_inputs(SHAPES[name])
    double, seen = copy.deepcopy(model).double().eval(), layer_inputs(model, inputs)
    sites = {site.kind: site for site in attention_sites(double)}
    for site in sites.values():
        x = torch.from_numpy(seen[site.name][0])[:6]
        exact = jacobian(site.module, x)
        assert torch.allclose(exact, finite_differences(site.module, x), rtol=1e-6, atol=1e-8)
        reference = torch.autograd.functional.jacobian(lambda one, layer=site.module: layer(one[None])[0], x)
        assert torch.allclose(exact, reference.reshape(exact.shape), rtol=1e-10, atol=1e-13)
        assert torch.allclose(exact, jacobian(site.module, x, chunk=7), rtol=1e-10, atol=1e-13)


def test_jacobians_are_formed_for_the_first_and_last_layer_of_each_kind():
    shape = small("tnt", depth=(3,))
    model, inputs = model_and_inputs(shape)
    rows = table_rows(measure(model, inputs, jacobians=True))
    formed = {site for site, name in rows if name == "jacobian"}
    assert formed == {"blocks.0.attn_in", "blocks.2.attn_in", "blocks.0.attn_out", "blocks.2.attn_out"}
    seen = layer_inputs(model, inputs)
    double = copy.deepcopy(model).double().eval()
    for site in attention_sites(double):
        if site.name in formed:
            x = torch.from_numpy(seen[site.name][0])
            reference = torch.autograd.functional.jacobian(lambda one, layer=site.module: layer(one[None])[0], x)
            assert_row(rows[site.name, "jacobian"], [reference.reshape(x.numel(), x.numel()).numpy()])
            assert rows[site.name, "jacobian"]["gaussian"] is None


def test_a_jacobian_that_is_too_large_is_left_out(monkeypatch: pytest.MonkeyPatch):
    model, inputs = model_and_inputs(SHAPES["vit"])
    monkeypatch.setattr(attention, "LARGEST_JACOBIAN", 5 * 16 - 1)
    assert "jacobian" not in {name for _, name in table_rows(measure(model, inputs, jacobians=True))}
    monkeypatch.setattr(attention, "LARGEST_JACOBIAN", 5 * 16)
    assert "jacobian" in {name for _, name in table_rows(measure(model, inputs, jacobians=True))}


@pytest.mark.parametrize("name", ["vit", "xcit", "davit"])
def test_measuring_leaves_the_model_as_it_was_and_repeats(name: str):
    """Also the batch-norm statistics of XCiT, which a forward pass in training mode would move."""
    model, inputs = model_and_inputs(SHAPES[name])
    model.train()
    before = copy.deepcopy(model.state_dict())
    first, second = measure(model, inputs), measure(model, inputs)
    assert first == second
    assert model.training
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    assert {p.dtype for p in model.parameters()} == {torch.float32}
    assert all(p.grad is None for p in model.parameters())
    assert first == measure(model.eval(), inputs)


def test_every_spectrum_comes_from_a_float64_forward_pass(monkeypatch: pytest.MonkeyPatch):
    dtypes = []

    def spy(matrices: Tensor) -> Any:
        dtypes.append(matrices.dtype)
        return summarize(matrices)

    monkeypatch.setattr(attention, "summarize", spy)
    measure(*model_and_inputs(SHAPES["davit"]), jacobians=True)
    assert set(dtypes) == {torch.float64}


def test_the_prediction_stands_beside_every_matrix_that_is_wider_than_tall():
    model, inputs = model_and_inputs(SHAPES["vit"])
    for (_, name), row in table_rows(measure(model, inputs)).items():
        expected = None if name == "head" else (4 + math.sqrt(5)) / (4 - math.sqrt(5))
        assert row["gaussian"] == (expected if expected is None else pytest.approx(expected, rel=1e-5))


def test_at_fixed_width_the_prediction_does_not_depend_on_the_heads():
    predictions = set()
    for heads in (1, 2, 4, 8, 16):
        rows = table_rows(measure(*model_and_inputs(small("vit", heads=(heads,)))))
        predictions.add(rows["blocks.0.attn", "concatenated"]["gaussian"])
    assert len(predictions) == 1


def test_windows_beyond_the_limit_are_thinned_evenly():
    tensor = torch.arange(256.0).reshape(256, 1, 1)
    assert attention._as_matrices(tensor).flatten().tolist() == [float(i) for i in range(0, 256, 4)]
    assert attention._as_matrices(tensor[:64]).flatten().tolist() == [float(i) for i in range(64)]


# Spectra


def rotated(values: Array, rows: int, columns: int, seed: int) -> Array:
    """A rows × columns matrix with these singular values."""
    generator = np.random.default_rng(seed)
    left = scipy.stats.ortho_group.rvs(rows, random_state=generator)[:, : len(values)]
    right = scipy.stats.ortho_group.rvs(columns, random_state=generator)[:, : len(values)]
    return left * values @ right.T


def kappa(matrix: Array) -> float:
    return float(condition_numbers(singular_values(torch.from_numpy(matrix)), max(matrix.shape)))


@pytest.mark.parametrize("exponent", range(13))
@pytest.mark.parametrize(("rows", "columns"), [(17, 40), (40, 17), (24, 24)])
def test_condition_numbers_from_one_to_a_million_millions_are_known(exponent: int, rows: int, columns: int):
    values = np.logspace(0, -exponent, min(rows, columns))
    matrix = rotated(values, rows, columns, seed=exponent)
    tolerance = 10 * max(rows, columns) * np.finfo(float).eps * 10.0**exponent
    assert kappa(matrix) == pytest.approx(10.0**exponent, rel=tolerance)
    assert kappa(matrix) == pytest.approx(np.linalg.cond(matrix), rel=tolerance)
    ours = singular_values(torch.from_numpy(matrix)).numpy()
    np.testing.assert_allclose(ours, np.linalg.svd(matrix, compute_uv=False), atol=1e-14)


@pytest.mark.parametrize(
    "matrix",
    [
        np.zeros((4, 6)),
        np.ones((5, 5)),
        np.tile(np.random.default_rng(0).normal(size=(8, 3)), (1, 2)),
        np.random.default_rng(1).normal(size=(17, 3)) @ np.random.default_rng(2).normal(size=(3, 16)),
        rotated(np.array([1.0, 1e-3, 1e-17]), 3, 9, seed=0),
    ],
    ids=["zero", "ones", "repeated columns", "product of rank 3", "below rounding"],
)
def test_a_rank_deficient_matrix_has_an_infinite_condition_number(matrix: Array):
    assert kappa(matrix) == math.inf
    summary = summarize(torch.from_numpy(matrix)[None])
    assert summary.rank_deficient == 1
    assert summary.numerical_rank == np.linalg.matrix_rank(matrix)
    assert summary.as_dict()["condition_number"] == "inf"
    assert math.isfinite(summary.effective_rank)


def test_a_large_but_finite_condition_number_is_reported_and_not_called_deficient():
    summary = summarize(torch.diag(torch.tensor([1.0, 1e-13], dtype=torch.float64))[None])
    assert summary.condition_number == pytest.approx(1e13)
    assert summary.rank_deficient == 0


MATRICES = {"rows": st.integers(1, 9), "columns": st.integers(1, 9), "seed": st.integers(0, 2**31)}
quick = settings(deadline=None, max_examples=40)


def normal(rows: int, columns: int, seed: int) -> Array:
    return np.random.default_rng(seed).normal(size=(rows, columns))


@quick
@given(**MATRICES, scale=st.floats(1e-100, 1e100))
def test_scaling_does_not_change_the_condition_number(rows: int, columns: int, seed: int, scale: float):
    matrix = normal(rows, columns, seed)
    assert kappa(scale * matrix) == pytest.approx(kappa(matrix), rel=1e-9)


@quick
@given(**MATRICES)
def test_rotating_tokens_or_channels_does_not_change_the_condition_number(rows: int, columns: int, seed: int):
    matrix, generator = normal(rows, columns, seed), np.random.default_rng(seed + 1)
    left, right = (np.linalg.qr(generator.normal(size=(side, side)))[0] for side in (rows, columns))
    assert kappa(left @ matrix @ right) == pytest.approx(kappa(matrix), rel=1e-8)


@quick
@given(**MATRICES)
def test_transposing_does_not_change_the_condition_number(rows: int, columns: int, seed: int):
    matrix = normal(rows, columns, seed)
    assert kappa(matrix.T) == pytest.approx(kappa(matrix), rel=1e-9)


@quick
@given(**MATRICES)
def test_a_condition_number_is_at_least_one_and_ranks_are_ordered(rows: int, columns: int, seed: int):
    values = singular_values(torch.from_numpy(normal(rows, columns, seed)))
    assert float(condition_numbers(values, max(rows, columns))) >= 1
    assert 1 - 1e-12 <= float(effective_rank(values)) <= min(rows, columns) + 1e-9
    assert int(numerical_rank(values, max(rows, columns))) == min(rows, columns)


@pytest.mark.parametrize(
    ("values", "expected"),
    [((1, 1, 1, 1), 4), ((5, 0, 0), 1), ((2, 2, 0), 2), ((3, 1), 4 / 27**0.25), ((0, 0), 0)],
)
def test_the_effective_rank_is_the_exponential_of_the_entropy(values: tuple[float, ...], expected: float):
    """For (3, 1) the entropy is ln 4 − ¾·ln 3."""
    assert float(effective_rank(torch.tensor(values, dtype=torch.float64))) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("tokens", "width", "expected"),
    [(1, 4, 3), (4, 9, 5), (16, 25, 9), (196, 784, 3), (100, 121, 21), (9, 1_000_000, 1003 / 997)],
)
def test_the_gaussian_prediction_at_hand_computed_sizes(tokens: int, width: int, expected: float):
    assert gaussian_prediction(tokens, width) == pytest.approx(expected)


@pytest.mark.parametrize(("tokens", "width"), [(16, 16), (17, 16), (196, 64)])
def test_there_is_no_prediction_unless_the_matrix_is_wider_than_tall(tokens: int, width: int):
    assert gaussian_prediction(tokens, width) is None


@pytest.mark.parametrize(("tokens", "width"), [(50, 200), (100, 400), (20, 500)])
def test_simulated_normal_matrices_have_the_predicted_condition_number(tokens: int, width: int):
    simulated = summarize(torch.from_numpy(np.random.default_rng(527).normal(size=(20, tokens, width))))
    assert simulated.condition_number == pytest.approx(gaussian_prediction(tokens, width), rel=0.1)


def test_median_and_quartiles_are_order_statistics_over_all_leading_axes():
    kappas = torch.tensor([[2.0, 8.0, 4.0, 1.0], [64.0, 16.0, 32.0, 128.0]], dtype=torch.float64)
    summary = summarize(torch.diag_embed(torch.stack([kappas, torch.ones_like(kappas)], dim=-1)))
    assert (summary.condition_number_q1, summary.condition_number, summary.condition_number_q3) == (4, 16, 64)
    assert (summary.rows, summary.columns, summary.matrices) == (2, 2, 8)


@pytest.mark.parametrize(("deficient", "median"), [(1, 3.0), (2, math.inf), (3, math.inf), (4, math.inf)])
def test_the_median_is_infinite_where_half_of_the_matrices_are_deficient(deficient: int, median: float):
    matrices = torch.diag(torch.tensor([3.0, 1.0])).repeat(4, 1, 1)
    matrices[:deficient, 1, 1] = 0
    summary = summarize(matrices)
    assert summary.condition_number == pytest.approx(median)
    assert summary.rank_deficient == deficient / 4


def test_a_layer_with_a_dead_projection_is_reported_as_deficient():
    model, inputs = model_and_inputs(SHAPES["vit"])
    with torch.no_grad():
        model.get_parameter("blocks.1.attn.proj.weight")[0] = 0
        model.get_parameter("blocks.1.attn.qkv.weight")[32:] = 0
    rows = table_rows(measure(model, inputs))
    assert rows["blocks.1.attn", "concatenated"]["condition_number"] == "inf"
    assert rows["blocks.1.attn", "concatenated"]["numerical_rank"] == 1
    assert rows["blocks.0.attn", "concatenated"]["rank_deficient"] == 0


def test_one_head_alone_is_the_whole_of_a_single_head_layer():
    rows = table_rows(measure(*model_and_inputs(replace(SHAPES["vit"], heads=(1,)))))
    whole, alone = rows["blocks.0.attn", "concatenated"], rows["blocks.0.attn", "head"]
    assert whole | {"object": "head"} == alone


def test_the_number_of_threads_is_what_it_was_after_singular_values_were_computed_on_one(
    monkeypatch: pytest.MonkeyPatch,
):
    seen = []
    original = torch.linalg.svdvals

    def spy(matrix: torch.Tensor) -> torch.Tensor:
        seen.append(torch.get_num_threads())
        return original(matrix)

    monkeypatch.setattr(torch.linalg, "svdvals", spy)
    torch.set_num_threads(2)
    try:
        for side in (spectra.SMALL_SIDE, spectra.SMALL_SIDE + 1):
            spectra.singular_values(torch.eye(side))
            assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(1)
    assert seen == [1, 2]
