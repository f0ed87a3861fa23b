"""Which layouts a shape admits, which is predicted to be fastest, and how far model parallelism can go at all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

from heads_for_depth.errors import BadInput
from heads_for_depth.parallelism.constraints import degrees
from heads_for_depth.parallelism.cost_model import (
    DEFAULT,
    ONE_GPU,
    Assumptions,
    Layout,
    check_layout,
    forward_seconds,
    training_seconds,
)
from heads_for_depth.recount import Countable
from heads_for_depth.shapes import divisors

GPU_COUNTS = (1, 2, 4, 8, 16, 32, 64)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prediction:
    """A layout and what the cost model predicts for it."""

    layout: Layout
    predicted_seconds: float
    speed_up: float
    """Predicted seconds on one GPU over those of this layout."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ceiling:
    """The most that a shape can be taken apart; follows from its numbers alone and predicts no speed."""

    tensor_degree: int
    """Largest degree that heads, key/value heads and MLP width of every stage admit."""
    pipeline_stages: int
    """One block each: the depth."""

    @property
    def gpus(self) -> int:
        """The most GPUs that can work on one copy of the model."""
        return self.tensor_degree * self.pipeline_stages


@dataclass(frozen=True, kw_only=True, slots=True)
class CeilingChange:
    """What trading depth for heads does to the ceiling: each property is after over before, above 1 where it rises."""

    before: Ceiling
    after: Ceiling

    @property
    def tensor_degree(self) -> Fraction:
        """Of the largest tensor-parallel degree."""
        return Fraction(self.after.tensor_degree, self.before.tensor_degree)

    @property
    def pipeline_stages(self) -> Fraction:
        """Of the largest number of pipeline stages."""
        return Fraction(self.after.pipeline_stages, self.before.pipeline_stages)

    @property
    def gpus(self) -> Fraction:
        """Of their product."""
        return Fraction(self.after.gpus, self.before.gpus)


def ceiling(shape: Countable) -> Ceiling:
    """The largest tensor degree and the largest number of pipeline stages of a shape."""
    return Ceiling(tensor_degree=degrees(shape)[-1], pipeline_stages=sum(shape.depth))


def ceiling_change(before: Countable, after: Countable) -> CeilingChange:
    """Whether a reshape raises or lowers the ceiling, in tensor degree, in pipeline stages and in their product."""
    return CeilingChange(before=ceiling(before), after=ceiling(after))


def admissible_layouts(
    shape: Countable, gpus: int, assumptions: Assumptions = DEFAULT, replicas: bool = False
) -> Iterator[Layout]:
    """Every admissible layout of exactly so many GPUs; without `replicas` all of them share one copy of the model."""
    if gpus < 1:
        raise BadInput("gpus", gpus, "must be at least 1")
    for tensor_degree in degrees(shape, most=gpus):
        for stages in divisors(gpus // tensor_degree) if gpus % tensor_degree == 0 else ():
            copies = gpus // (tensor_degree * stages)
            layout = Layout(tensor_degree=tensor_degree, pipeline_stages=stages, data_replicas=copies)
            if (replicas or copies == 1) and _admissible(shape, layout, assumptions):
                yield layout


def _admissible(shape: Countable, layout: Layout, assumptions: Assumptions) -> bool:
    try:
        check_layout(shape, layout, assumptions)
    except BadInput:
        return False
    return True


def best_layout(
    shape: Countable,
    gpus: int,
    assumptions: Assumptions = DEFAULT,
    *,
    replicas: bool = False,
    training: bool = True,
    tokens: int | None = None,
) -> Prediction | None:
    """The layout of so many GPUs with the fewest predicted seconds; None where the shape admits none.

    `replicas` allows copies of the model that share the batch; `training` asks for a training step, not a forward pass.
    """
    predicted: Callable[..., float] = training_seconds if training else forward_seconds
    found = [
        (predicted(shape, layout, assumptions, tokens), layout)
        for layout in admissible_layouts(shape, gpus, assumptions, replicas)
    ]
    if not found:
        return None
    seconds, layout = min(found, key=lambda pair: pair[0])
    alone = predicted(shape, ONE_GPU, assumptions, tokens)
    return Prediction(layout=layout, predicted_seconds=seconds, speed_up=alone / seconds)


def speed_up(
    shape: Countable,
    assumptions: Assumptions = DEFAULT,
    *,
    counts: Sequence[int] = GPU_COUNTS,
    replicas: bool = False,
    training: bool = True,
    tokens: int | None = None,
) -> dict[int, Prediction | None]:
    """Number of GPUs -> the best layout's prediction, or None where the shape cannot use exactly so many."""
    found = {}
    for gpus in counts:
        found[gpus] = best_layout(shape, gpus, assumptions, replicas=replicas, training=training, tokens=tokens)
    return found
