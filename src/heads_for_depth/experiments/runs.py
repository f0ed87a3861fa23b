"""One planned run, and a rough idea of what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from heads_for_depth.experiments.rows import Arm
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Reduction, Regime, Shape

Kind = Literal["train", "kappa"]
Source = Literal["noise", "images"]
"""Network input of a κ measurement: independent normal pixels, or Fashion-MNIST enlarged to the image size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One run: what is built, how it is trained or measured, and the record it will become."""

    experiment: str
    run_id: str
    kind: Kind
    profile: str
    row: str
    shape: Shape
    parameters: int
    """Asserted when the run starts: a typo in a shape must not train."""
    seed: int
    depth_arm: Arm | None = None
    heads_arm: Arm | None = None
    regime: Regime = "fixed-d-model"
    reduction: Reduction | None = None
    recipe: Recipe | None = None
    tuned_by: tuple[str, ...] = ()
    """Run ids of the tuning runs whose best validation accuracy fixes the learning rate."""
    inputs: Source = "images"
    input_count: int = 0
    """Inputs over which κ is a median (kind `kappa`)."""

    def as_dict(self) -> dict[str, Any]:
        """The plan as it stands in the record."""
        names = ("row", "kind", "depth_arm", "heads_arm", "regime", "reduction", "seed", "inputs", "input_count")
        values = {name: getattr(self, name) for name in names}
        recipe = self.recipe.as_dict() if self.recipe else None
        return values | {"shape": self.shape.as_dict(), "recipe": recipe}


def estimated_seconds(run: PlannedRun) -> float:
    """Rough core-seconds of a run, from timings of one core of a 2-core machine; for planning, not a measurement."""
    blocks, width = sum(run.shape.depth), run.shape.d_model[0]
    if run.kind == "kappa":
        return 2.0 + run.input_count * run.parameters * 2.5e-8
    assert run.recipe is not None, "a training run has a recipe"
    base, reference = _MILLISECONDS_PER_BLOCK[run.shape.family]
    per_image = base * blocks * (width / reference) ** 1.2 / 1000
    return 8.0 + per_image * run.recipe.epochs * run.recipe.train_images


_MILLISECONDS_PER_BLOCK = {"vit": (0.10, 64), "xcit": (0.20, 64), "tnt": (0.30, 80), "davit": (0.14, 16)}
"""Family -> (milliseconds per image and block, at this d_model of the first stage)."""
