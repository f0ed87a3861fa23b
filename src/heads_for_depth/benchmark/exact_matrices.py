"""Matrices whose condition number is known exactly, entry by entry without rounding.

A = U·diag(σ)·Vᵀ with integer singular values σ and orthogonal U and V whose entries are integers over a power of two: a
Hadamard matrix of order 4^m divided by 2^m is such a matrix, and so are direct sums, row and column permutations of
them. Every entry of A is then a sum of integers over a power of two that fits the 53 bits of a float64, so that an
error of a computed κ is the algorithm's own.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import block_diag, hadamard

from heads_for_depth.errors import BadInput

LARGEST_KAPPA = 10**14
"""Sums of the singular values below still fit 53 bits for up to 1024 rows."""
Matrix = NDArray[np.float64]


def exact_matrix(rows: int, columns: int, kappa: int, generator: np.random.Generator) -> Matrix:
    """A rows × columns matrix (rows <= columns <= 1024) with κ = σ₁/σ_rows exactly: σ₁ = kappa, σ_rows = 1.

    The other singular values are the nearest integers to a geometric sequence. Raises BadInput for sizes or a κ that do
    not fit.
    """
    if not 2 <= rows <= columns <= 1024:
        raise BadInput("rows and columns", (rows, columns), "give 2 to 1024, no more rows than columns")
    if not 1 <= kappa <= LARGEST_KAPPA:
        raise BadInput("kappa", kappa, f"give a whole number from 1 to {LARGEST_KAPPA:.0e}")
    values = np.rint(float(kappa) ** np.linspace(1, 0, rows))
    left = exact_orthogonal(rows)[generator.permutation(rows)]
    right = exact_orthogonal(columns)[:, generator.permutation(columns)[:rows]]
    return (left * generator.permutation(values)) @ right.T


def exact_orthogonal(order: int) -> Matrix:
    """An orthogonal matrix whose entries are 0 or ± a power of two: the largest Hadamard blocks that fit."""
    blocks, left = [], order
    while left:
        half = (left.bit_length() - 1) // 2  # the largest block has order 4^half
        blocks.append(hadamard(4**half) / 2.0**half)
        left -= 4**half
    orthogonal: Matrix = block_diag(*blocks)
    return orthogonal
