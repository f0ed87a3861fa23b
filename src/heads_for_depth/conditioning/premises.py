"""What Theorem 3.2 assumes of the concatenated head outputs, measured: independent heads, isotropic columns, D above N.

Both numbers have a known expectation for independent normal entries, and are read against it.
"""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from heads_for_depth.conditioning.attention import Observation
from heads_for_depth.conditioning.spectra import singular_values

PREMISE_COLUMNS = (
    "site", "kind", "heads", "rows", "columns", "head_correlation", "head_correlation_independent", "isotropy",
)  # fmt: skip


def premise_table(seen: Observation) -> dict[str, Any]:
    """The premises at every attention layer: a table {"columns": […], "rows": [[…], …]}; medians over the matrices."""
    rows = [_row(site.name, site.kind, site.heads, seen.caught[site.name][1]) for site in seen.sites]
    return {"columns": list(PREMISE_COLUMNS), "rows": rows}


def _row(name: str, kind: str, heads: int, concatenated: Float[Tensor, "matrices tokens width"]) -> list[Any]:
    tokens, width = concatenated.shape[-2:]
    correlation = None if heads == 1 else _plain(head_correlation(concatenated, heads))
    expected = None if heads == 1 else float(f"{independent_head_correlation(tokens, width // heads):.6g}")
    return [name, kind, heads, tokens, width, correlation, expected, _plain(isotropy(concatenated))]


def _plain(values: Float[Tensor, "matrices"]) -> float:
    return float(f"{float(values.quantile(0.5)):.6g}")


def head_correlation(concatenated: Float[Tensor, "matrices tokens width"], heads: int) -> Float[Tensor, "matrices"]:
    """Mean RV coefficient (Escoufier 1973) over pairs of heads, 0 to 1; 1 where all heads span the same Gram matrix.

    RV(A, B) = tr(AAᵀBBᵀ) / (‖AAᵀ‖·‖BBᵀ‖), uncentred as the theorem's matrix is. Needs two heads. A head that is zero
    counts as correlated with nothing.
    """
    by_head = concatenated.double().unflatten(-1, (heads, -1)).transpose(-3, -2)
    total = torch.zeros(len(by_head), *by_head.shape[-2:-1] * 2, dtype=torch.float64, device=by_head.device)
    filled = torch.zeros(len(by_head), dtype=torch.float64, device=by_head.device)
    for head in by_head.unbind(1):
        gram = head @ head.transpose(-2, -1)
        norm = gram.flatten(1).norm(dim=1)
        total += gram / norm.clamp(min=torch.finfo(torch.float64).tiny)[:, None, None]
        filled += norm > 0
    return (total.flatten(1).square().sum(dim=1) - filled) / (heads * (heads - 1))


def independent_head_correlation(tokens: int, head_dim: int) -> float:
    """RV coefficient of two independent N × d matrices of normal entries, as a ratio of expectations: d/(d + N + 1)."""
    return head_dim / (head_dim + tokens + 1)


def isotropy(concatenated: Float[Tensor, "matrices tokens width"]) -> Float[Tensor, "matrices"]:
    """Participation ratio of the squared singular values over ND/(N + D + 1), its value for independent normal entries.

    1 where the premises hold, small where few directions carry everything; 0 for a matrix of zeros.
    """
    tokens, width = concatenated.shape[-2:]
    squares = singular_values(concatenated).square()
    fourth = squares.square().sum(dim=-1)
    ratio = squares.sum(dim=-1).square() / fourth
    return torch.where(fourth > 0, ratio * (tokens + width + 1) / (tokens * width), 0.0)
