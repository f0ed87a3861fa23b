"""Condition numbers of attention: spectra of matrices, and where in a model the matrices come from."""

from heads_for_depth.conditioning.attention import measure
from heads_for_depth.conditioning.spectra import (
    SpectrumSummary,
    condition_numbers,
    gaussian_prediction,
    singular_values,
    summarize,
)

__all__ = ["SpectrumSummary", "condition_numbers", "gaussian_prediction", "measure", "singular_values", "summarize"]
