"""Condition numbers of attention: spectra of matrices, and where in a model the matrices come from."""

from heads_for_depth.conditioning.attention import Observation, kappa_table, measure, observe
from heads_for_depth.conditioning.premises import premise_table
from heads_for_depth.conditioning.spectra import (
    SpectrumSummary,
    condition_numbers,
    gaussian_prediction,
    singular_values,
    summarize,
)

__all__ = [
    "Observation",
    "SpectrumSummary",
    "condition_numbers",
    "gaussian_prediction",
    "kappa_table",
    "measure",
    "observe",
    "premise_table",
    "singular_values",
    "summarize",
]
