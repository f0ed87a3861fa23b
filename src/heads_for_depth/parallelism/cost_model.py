"""How long a step would take on many GPUs, by a small model: predictions from stated assumptions, nothing measured.

A layout is tensor degree t × pipeline stages s × data replicas d. Of `batch` samples each replica takes batch/d, cut
into m micro-batches where s > 1. One micro-batch of b samples keeps the slowest stage busy for

    b · FLOPs / (peak · utilisation)                the blocks' operations shared by t and s; the replicated ones by s
    + all-reduces · ring(bytes, t)                  two a layer forward, four with backward
    + b · tokens · d_model · bytes / bandwidth      the hand-over to the next stage, where s > 1
      + latency

and the step lasts m + s − 1 of those, so that (s − 1) / (m + s − 1) of it is the pipeline's bubble. The slowest stage
has ceil(depth / s) of the blocks, which count as equal, and embedding and head besides. A ring all-reduce of p
processes takes 2(p − 1)/p · bytes / bandwidth and one latency per call, whatever p is: libraries change to trees where
latency matters. Training does three times the operations of the forward pass, and ends with one all-reduce over the
replicas of the gradients, four bytes per parameter of a process. Communication is not hidden behind computation.

At a fixed layout the prediction knows heads only through the operations of attention: among tokens these do not depend
on heads at fixed d_model, among channels (XCiT, DaViT) they fall with them. Heads bound which layouts there are.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from math import ceil, isfinite

from heads_for_depth.errors import BadInput
from heads_for_depth.parallelism.constraints import check_degree
from heads_for_depth.parallelism.work import Work, work_of
from heads_for_depth.recount import Countable

TRAINING_FACTOR = 3
"""Operations of forward and backward pass over those of the forward pass."""
GRADIENT_BYTES = 4
"""Bytes of the gradient of one parameter when it is summed over the replicas."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Assumptions:
    """Every number that a prediction rests on. The defaults are round figures of an A100 machine's data sheet."""

    peak_flops_per_second: float = 312e12
    """Operations per second of one GPU that its maker states for the precision of the run."""
    utilisation: float = 0.4
    """Share of the peak that matrix products are assumed to reach, in (0, 1], whatever their size."""
    latency_seconds: float = 20e-6
    """Of one collective or one hand-over between stages, however many take part."""
    node_bandwidth: float = 300e9
    """Bytes per second from one GPU to the others of its node, one direction."""
    network_bandwidth: float = 25e9
    """Bytes per second from one GPU to those of other nodes, one direction."""
    gpus_per_node: int = 8
    """A tensor group lies inside a node where it has at most so many; a whole layout likewise."""
    bytes_per_element: int = 2
    """Of an activation that is communicated."""
    micro_batches: int = 8
    """Into how many a replica's batch is cut where there is a pipeline."""
    batch: int = 512
    """Samples of one step, over all replicas."""

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            _check_number(field.name, value, whole=isinstance(field.default, int))
            lowest_is_zero = field.name == "latency_seconds"
            if not (value >= 0 if lowest_is_zero else value > 0):
                raise BadInput(field.name, value, "must not be negative" if lowest_is_zero else "must be positive")
        if self.utilisation > 1:
            raise BadInput("utilisation", self.utilisation, "must be above 0 and at most 1")


def _check_number(name: str, value: object, whole: bool) -> None:
    """Raise BadInput unless it is a finite number, and a whole one where one is meant."""
    kinds = int if whole else (int, float)
    if isinstance(value, bool) or not isinstance(value, kinds) or not isfinite(value):
        raise BadInput(name, value, "must be a whole number" if whole else "must be a finite number")


@dataclass(frozen=True, kw_only=True, slots=True)
class Layout:
    """How the GPUs are shared out."""

    tensor_degree: int = 1
    pipeline_stages: int = 1
    data_replicas: int = 1

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise BadInput(field.name, getattr(self, field.name), "must be at least 1")

    @property
    def gpus(self) -> int:
        """How many the layout takes."""
        return self.tensor_degree * self.pipeline_stages * self.data_replicas


DEFAULT = Assumptions()
ONE_GPU = Layout()


def check_layout(shape: Countable, layout: Layout, assumptions: Assumptions = DEFAULT) -> None:
    """Raise BadInput unless the shape admits the layout, and its smallest piece of the batch has a whole sample."""
    check_degree(shape, layout.tensor_degree)
    depth = sum(shape.depth)
    if layout.pipeline_stages > depth:
        raise BadInput("pipeline_stages", layout.pipeline_stages, f"must be at most the depth {depth}")
    pieces = layout.data_replicas * _micro_batches(layout, assumptions)
    if pieces > assumptions.batch:
        raise BadInput("batch", assumptions.batch, f"must be at least {pieces}, replicas times micro-batches")


def bubble(stages: int, micro_batches: int) -> float:
    """Share of a step in which a GPU of a pipeline waits, in [0, 1)."""
    return (stages - 1) / (micro_batches + stages - 1)


def ring_seconds(payload_bytes: float, members: int, bandwidth: float, latency_seconds: float) -> float:
    """Predicted seconds of one all-reduce over a ring; nothing for a single member."""
    if members == 1:
        return 0.0
    return 2 * (members - 1) / members * payload_bytes / bandwidth + latency_seconds


def forward_seconds(
    shape: Countable, layout: Layout, assumptions: Assumptions = DEFAULT, tokens: int | None = None
) -> float:
    """Predicted seconds of the forward pass of a batch. Raises BadInput for a layout that the shape does not admit."""
    check_layout(shape, layout, assumptions)
    return _pipeline_seconds(work_of(shape, tokens), layout, assumptions, backward=False)


def training_seconds(
    shape: Countable, layout: Layout, assumptions: Assumptions = DEFAULT, tokens: int | None = None
) -> float:
    """Predicted seconds of a training step without the optimizer. Raises BadInput as `forward_seconds` does."""
    check_layout(shape, layout, assumptions)
    amount = work_of(shape, tokens)
    gradients = GRADIENT_BYTES * amount.parameters / (layout.tensor_degree * layout.pipeline_stages)
    bandwidth = _bandwidth(layout.gpus, assumptions)
    summing = ring_seconds(gradients, layout.data_replicas, bandwidth, assumptions.latency_seconds)
    return _pipeline_seconds(amount, layout, assumptions, backward=True) + summing


def _pipeline_seconds(amount: Work, layout: Layout, assumptions: Assumptions, backward: bool) -> float:
    micro_batches = _micro_batches(layout, assumptions)
    slots = micro_batches / (1 - bubble(layout.pipeline_stages, micro_batches))
    samples = assumptions.batch / (layout.data_replicas * micro_batches)
    return slots * _stage_seconds(amount, layout, assumptions, samples, backward)


def _stage_seconds(amount: Work, layout: Layout, assumptions: Assumptions, samples: float, backward: bool) -> float:
    """Predicted seconds of the slowest stage for one micro-batch of so many samples."""
    share = ceil(amount.blocks / layout.pipeline_stages) / amount.blocks
    blocks = amount.split_flops / layout.tensor_degree + amount.replicated_flops
    flops = (share * blocks + amount.outside_flops) * (TRAINING_FACTOR if backward else 1)
    computing = samples * flops / (assumptions.peak_flops_per_second * assumptions.utilisation)
    payload = samples * amount.reduced_elements / amount.all_reduces * assumptions.bytes_per_element
    bandwidth = _bandwidth(layout.tensor_degree, assumptions)
    reducing = ring_seconds(payload, layout.tensor_degree, bandwidth, assumptions.latency_seconds)
    passing = _hand_over_seconds(payload, layout, assumptions)
    return computing + (2 if backward else 1) * (share * amount.all_reduces * reducing + passing)


def _hand_over_seconds(payload: float, layout: Layout, assumptions: Assumptions) -> float:
    """Predicted seconds to hand a micro-batch's tokens from one stage to the next."""
    if layout.pipeline_stages == 1:
        return 0.0
    bandwidth = _bandwidth(layout.tensor_degree * layout.pipeline_stages, assumptions)
    return payload / bandwidth + assumptions.latency_seconds


def _micro_batches(layout: Layout, assumptions: Assumptions) -> int:
    return assumptions.micro_batches if layout.pipeline_stages > 1 else 1


def _bandwidth(gpus: int, assumptions: Assumptions) -> float:
    return assumptions.node_bandwidth if gpus <= assumptions.gpus_per_node else assumptions.network_bandwidth
