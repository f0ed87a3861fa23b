"""What every row costs at full scale: parameters, operations and GPU-hours, computed without training anything."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from heads_for_depth.claims import Claim
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import VISION_ROWS, Arm, VisionRow
from heads_for_depth.flops import forward_flops
from heads_for_depth.full_scale.jobs import arm_shape
from heads_for_depth.full_scale.recipe import FullRecipe
from heads_for_depth.models import count_parameters
from heads_for_depth.shapes import FAMILIES, Shape

IMAGENET_IMAGES = 1_281_167
"""Training images of ImageNet-1k (ILSVRC 2012)."""
TRAINING_FACTOR = 3
"""Operations of a training step over those of its forward pass: the backward pass counts as two of them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AssumedSpeed:
    """How fast a GPU is assumed to be; nothing here is measured."""

    peak_flops_per_second: float
    """Operations per second that the GPU's maker states for the precision of the run."""
    utilisation: float
    """Share of the peak that training is assumed to reach, in (0, 1]."""

    def __post_init__(self) -> None:
        if not self.peak_flops_per_second > 0:
            raise BadInput("peak_flops_per_second", self.peak_flops_per_second, "must be positive")
        if not 0 < self.utilisation <= 1:
            raise BadInput("utilisation", self.utilisation, "must be above 0 and at most 1")

    def gpu_hours(self, flops: int) -> float:
        """Hours that one such GPU takes for so many operations."""
        return flops / (self.peak_flops_per_second * self.utilisation) / 3600


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmCost:
    """One end of a row."""

    parameters: int
    training_flops_per_image: int
    """Forward and backward pass of one image."""

    def gpu_hours(self, recipe: FullRecipe, speed: AssumedSpeed) -> float:
        """GPU-hours of a whole run, validation and loading left out."""
        return speed.gpu_hours(self.training_flops_per_image * IMAGENET_IMAGES * recipe.epochs)


@dataclass(frozen=True, kw_only=True, slots=True)
class RowCost:
    """One row of the claims, or one of our own."""

    name: str
    title: str
    before: ArmCost | None
    """None where the row cannot be run here."""
    after: ArmCost | None
    reason: str = ""
    """Why the row cannot be run."""
    assumption: str = ""
    """What is assumed where it can."""


def row_costs(claims: Iterable[Claim]) -> list[RowCost]:
    """One line per claim, in their order, then the rows of our own."""
    declared = {row.name: row for row in VISION_ROWS}
    lines = [_declared(declared[c.row]) if c.row in declared else _undeclared(c) for c in claims]
    return lines + [_declared(row) for row in VISION_ROWS if not row.published]


def arm_cost(shape: Shape) -> ArmCost:
    """Parameters and operations of one shape."""
    return ArmCost(parameters=count_parameters(shape), training_flops_per_image=TRAINING_FACTOR * forward_flops(shape))


def _declared(row: VisionRow) -> RowCost:
    return RowCost(
        name=row.name,
        title=row.title,
        before=_arm(row, "before"),
        after=_arm(row, "after"),
        assumption="" if row.heads_published else "heads after the reshape: doubled",
    )


def _arm(row: VisionRow, arm: Arm) -> ArmCost:
    return arm_cost(arm_shape(row, arm, arm))


def _undeclared(claim: Claim) -> RowCost:
    return RowCost(name=claim.row, title=claim.title, before=None, after=None, reason=_reason(claim))


def _reason(claim: Claim) -> str:
    """Why a claim is no row of VISION_ROWS."""
    if claim.family not in FAMILIES:
        return "a model of text, which ImageNet-1k does not train"
    needed = ("depth_before", "depth_after", "heads_before", "heads_after", "d_model")
    missing = [f"`{name}`" for name in needed if getattr(claim, name) is None]
    return f"not in the record: {', '.join(missing)}" if missing else "not declared in `VISION_ROWS`"
