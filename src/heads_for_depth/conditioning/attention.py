"""The matrices whose κ this report measures, taken from a forward pass in float64.

concatenated  the head outputs side by side, N × D, before the output projection (the object of Theorem 3.2)
projected     the attention layer's output, N × d_model
head          every head's output alone, N × head_dim
jacobian      of the attention layer with respect to its input, exact, (N·d_model) × (N·d_model), reduced scale only
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from heads_for_depth.conditioning.spectra import SpectrumSummary, gaussian_prediction, summarize
from heads_for_depth.models import AttentionSite, attention_sites

COLUMNS = ("site", "kind", "heads", "object", "gaussian", *SpectrumSummary.__dataclass_fields__)
JACOBIAN_MATRICES = 1
"""Inputs per layer for which the Jacobian is formed."""
LARGEST_JACOBIAN = 1_664
"""Side N·d_model above which the Jacobian is not formed."""
MATRICES_PER_SITE = 64
"""Matrices per layer at most: windows beyond are thinned evenly."""


Caught = Mapping[str, tuple[Tensor, Tensor, Tensor]]
"""Layer name -> (layer input, concatenated heads, projected output), each (matrices, tokens, channels)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Observation:
    """The attention layers of one model and what passed through them in one float64 forward pass."""

    sites: tuple[AttentionSite, ...]
    caught: Caught


def observe(model: nn.Module, inputs: Float[Tensor, "n c h w"]) -> Observation:
    """One forward pass of a float64 copy of the model in evaluation mode (batch norms frozen)."""
    double = copy.deepcopy(model).double().eval()
    sites = tuple(attention_sites(double))
    return Observation(sites=sites, caught=_catch(double, sites, inputs.double()))


def measure(model: nn.Module, inputs: Float[Tensor, "n c h w"], jacobians: bool = False) -> dict[str, Any]:
    """κ of every attention layer: a table {"columns": […], "rows": [[…], …]} for a record.

    The model is copied to float64 and evaluated. `jacobians` adds the Jacobian of the first and the last layer of each
    kind.
    """
    return kappa_table(observe(model, inputs), jacobians)


def kappa_table(seen: Observation, jacobians: bool = False) -> dict[str, Any]:
    """κ of every attention layer of an observed model, as `measure` gives it."""
    rows = [row for site in seen.sites for row in _site_rows(site, *seen.caught[site.name])]
    if jacobians:
        rows += [_jacobian_row(site, seen.caught[site.name][0]) for site in _ends(seen.sites)]
    return {"columns": list(COLUMNS), "rows": [row for row in rows if row]}


def _catch(model: nn.Module, sites: Sequence[AttentionSite], inputs: Tensor) -> Caught:
    caught: dict[str, list[Tensor]] = {site.name: [] for site in sites}
    handles = []
    for site in sites:
        keep = caught[site.name].append
        projection: nn.Module = site.module.proj  # type: ignore[assignment]
        handles.append(site.module.register_forward_pre_hook(lambda _, args, keep=keep: keep(args[0])))
        handles.append(projection.register_forward_pre_hook(lambda _, args, keep=keep: keep(args[0])))
        handles.append(projection.register_forward_hook(lambda _, args, out, keep=keep: keep(out)))
    with torch.no_grad():
        model(inputs)
    for handle in handles:
        handle.remove()
    return {name: tuple(_as_matrices(tensor) for tensor in three) for name, three in caught.items()}  # type: ignore[misc]


def _as_matrices(tensor: Tensor) -> Float[Tensor, "matrices tokens channels"]:
    """Windows and inputs as one leading axis, grids flattened, thinned evenly to at most MATRICES_PER_SITE."""
    if tensor.dim() == 4:
        tensor = tensor.flatten(1, 2)
    step = max(1, len(tensor) // MATRICES_PER_SITE)
    return tensor[::step][:MATRICES_PER_SITE].detach()


def _site_rows(site: AttentionSite, _: Tensor, concatenated: Tensor, projected: Tensor) -> list[list[Any]]:
    heads = concatenated.unflatten(-1, (site.heads, -1)).transpose(-3, -2)
    return [
        _row(site, "concatenated", summarize(concatenated)),
        _row(site, "projected", summarize(projected)),
        _row(site, "head", summarize(heads)),
    ]


def _row(site: AttentionSite, name: str, summary: SpectrumSummary) -> list[Any]:
    predicted = gaussian_prediction(summary.rows, summary.columns) if name != "jacobian" else None
    gaussian = None if predicted is None else float(f"{predicted:.6g}")
    return [site.name, site.kind, site.heads, name, gaussian, *summary.as_dict().values()]


def _ends(sites: Sequence[AttentionSite]) -> list[AttentionSite]:
    """First and last layer of each kind of attention."""
    ends = {}
    for kind in dict.fromkeys(site.kind for site in sites):
        same = [site for site in sites if site.kind == kind]
        ends.update({site.name: site for site in (same[0], same[-1])})
    return list(ends.values())


def _jacobian_row(site: AttentionSite, inputs: Tensor) -> list[Any]:
    side = inputs.shape[-2] * inputs.shape[-1]
    if side > LARGEST_JACOBIAN:
        return []
    stacked = torch.stack([jacobian(site.module, x) for x in inputs[:JACOBIAN_MATRICES]])
    return _row(site, "jacobian", summarize(stacked))


def jacobian(layer: nn.Module, x: Float[Tensor, "tokens channels"], chunk: int = 256) -> Float[Tensor, "out in"]:
    """Exact Jacobian of one attention layer at one input.

    The input is repeated along the batch axis, which the layer treats independently, so that one backward pass yields
    `chunk` rows: row i is the gradient of output element i.
    """
    side = x.numel()
    rows = []
    for start in range(0, side, chunk):
        count = min(chunk, side - start)
        batch = x.repeat(count, 1, 1).requires_grad_()
        with torch.enable_grad():
            picked = layer(batch).flatten(1)[torch.arange(count), torch.arange(start, start + count)].sum()
            rows.append(torch.autograd.grad(picked, batch)[0].flatten(1))
    return torch.cat(rows)
