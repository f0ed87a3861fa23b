"""What an experiment says about itself before its first run."""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass

from heads_for_depth.recipes import MapBudget, budget

FIXED = {
    "premises": "645fed47d6d6",
    "conditioning_training": "8903d8c493b4",
    "map": "ed871df0bca3",
    "edge": "645d53c03b10",
    "cause": "707d4ee3056b",
}
"""Experiment -> digest of its declaration. The commit that first holds a digest in this file fixed the declaration."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """Hypothesis, rule, grid, budget and expected result of one experiment; records of its runs carry the digest."""

    experiment: str
    hypothesis: str
    rule: str
    grid: str
    budget: str
    expected: str

    @property
    def digest(self) -> str:
        """Twelve hexadecimal digits that change with any word of it."""
        return hashlib.sha256("\n".join(astuple(self)).encode("utf8")).hexdigest()[:12]


def map_budget_in_words(tuning: str) -> str:
    """The budget of a map run in every profile that means something; `tuning` says which runs are tuned."""
    profiles = {"cpu": budget("cpu").map, "gpu": budget("gpu").map}
    spent = " ".join(f"Profile {name}: {_in_words(money)}" for name, money in profiles.items())
    return (
        f"Fashion-MNIST. {spent} {tuning} by validation accuracy, one tuning seed for all seeds of a cell, so "
        "that every interval is conditional on the chosen rates; a rate at the end of the grid stays. Condition "
        "numbers before training, after the middle epoch and at the end, on 16 validation images."
    )


def _in_words(money: MapBudget) -> str:
    recipe, tuning = money.recipe, money.tuning
    rates = ", ".join(f"{rate:g}" for rate in money.learning_rates)
    word = "epoch" if tuning.epochs == 1 else "epochs"
    return (
        f"{recipe.epochs} epochs of {recipe.train_images:,} images in batches of {recipe.batch_size}; peak "
        f"learning rate from {rates} after {tuning.epochs} {word} of {tuning.train_images:,} images."
    )
