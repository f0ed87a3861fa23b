"""One planned run, and a rough idea of what it costs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from heads_for_depth.experiments.rows import Arm
from heads_for_depth.interventions import NO_INTERVENTION
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Reduction, Regime, Shape

Kind = Literal["train", "kappa"]
Source = Literal["noise", "images"]
"""Network input of a κ measurement: independent normal pixels, or Fashion-MNIST enlarged to the image size."""
KappaTimes = Literal["ends", "middle", "epochs"]
"""When κ of a training run is measured: before and after training, also after the middle epoch, or after every one."""


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
    intervention: str = NO_INTERVENTION
    """What is changed in the model's attention, one of `interventions.INTERVENTIONS`."""
    kappa_times: KappaTimes = "ends"
    premises: bool = False
    """Whether the premises of the theorem are measured wherever κ is."""

    declaration: str = ""
    """Digest of the declaration that fixed this run before any was carried out; empty where none was written."""

    def as_dict(self) -> dict[str, Any]:
        """The plan as it stands in the record; what an experiment makes no use of is not in it."""
        names = ("row", "kind", "depth_arm", "heads_arm", "regime", "reduction", "seed", "inputs", "input_count")
        values = {name: getattr(self, name) for name in names}
        used = {name: getattr(self, name) for name, unused in OPTIONS.items() if getattr(self, name) != unused}
        recipe = self.recipe.as_dict() if self.recipe else None
        return values | used | {"shape": self.shape.as_dict(), "recipe": recipe}


OPTIONS = {"intervention": NO_INTERVENTION, "kappa_times": "ends", "premises": False, "declaration": ""}
"""Field of a plan -> its value in experiments that make no use of it."""


def estimated_seconds(run: PlannedRun) -> float:
    """Rough core-seconds of a run, from timings of one core of a 2-core machine; for planning, not a measurement."""
    blocks, width = sum(run.shape.depth), run.shape.d_model[0]
    if run.kind == "kappa":
        return 2.0 + run.input_count * run.parameters * 2.5e-8
    assert run.recipe is not None, "a training run has a recipe"
    base, reference = _MILLISECONDS_PER_BLOCK[run.shape.family]
    tokens = (run.shape.image_size // run.shape.patch_size) ** 2 / 16 if run.shape.family == "vit" else 1.0
    per_image = base * blocks * tokens * (width / reference) ** 1.2 / 1000
    per_image *= SHIFT_COST if run.intervention == "spectral-shift" else 1.0
    return 8.0 + per_image * run.recipe.epochs * run.recipe.train_images


SHIFT_COST = 3.0
"""How much longer a run takes that decomposes every attention output."""
_MILLISECONDS_PER_BLOCK = {"vit": (0.10, 64), "xcit": (0.20, 64), "tnt": (0.30, 80), "davit": (0.14, 16)}
"""Family -> (milliseconds per image and block, at this d_model of the first stage)."""
