"""Premises and κ through training as plain, unrounded data for the CSV files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

import pandas as pd

from heads_for_depth.findings.premises import PremiseLine, TrainingPath


def premises_data(lines: Sequence[PremiseLine]) -> pd.DataFrame:
    """One line per measured shape and input."""
    return pd.DataFrame([asdict(line) for line in lines], columns=list(PremiseLine.__dataclass_fields__))


def paths_data(paths: Sequence[TrainingPath]) -> pd.DataFrame:
    """One line per cell, quantity and epoch."""
    columns = ["row", "depth_arm", "heads_arm", "depth", "heads", "quantity", "epoch", "value", "n"]
    return pd.DataFrame(
        [
            (path.row, path.depth_arm, path.heads_arm, path.depth, path.heads, name, epoch, value, path.n)
            for path in paths
            for name, values in _quantities(path).items()
            for epoch, value in enumerate(values)
        ],
        columns=columns,
    )


def _quantities(path: TrainingPath) -> dict[str, Sequence[float | None]]:
    """Everything that a path holds per epoch; ranks, correlation and isotropy are of the concatenated heads."""
    return {f"kappa_{name}": values for name, values in path.kappa.items()} | {
        "effective_rank": path.effective_rank,
        "numerical_rank": path.numerical_rank,
        "head_correlation": path.head_correlation,
        "isotropy": path.isotropy,
    }
