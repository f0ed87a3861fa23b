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
    """One line per cell, object and epoch."""
    columns = ["row", "depth_arm", "heads_arm", "depth", "heads", "object", "epoch", "kappa", "n"]
    return pd.DataFrame(
        [
            (path.row, path.depth_arm, path.heads_arm, path.depth, path.heads, name, epoch, value, path.n)
            for path in paths
            for name, values in path.kappa.items()
            for epoch, value in enumerate(values)
        ],
        columns=columns,
    )
