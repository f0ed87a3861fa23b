"""Parallelism: what trading depth for heads does to the ways of sharing a model out over processes and GPUs.

constraints      which tensor-parallel degrees a shape admits
tensor_parallel  one model over several processes, by torch's own DTensor styles
communication    which collectives a forward pass makes, and their bytes
processes        a group of processes, started here or by torchrun
measuring        all of these on this machine: equal logits, bytes, seconds
work             operations and payloads of a shape, counted on `meta`
cost_model       predicted seconds of a layout from stated assumptions
layouts          the layouts that a shape admits, the best one by prediction, and the ceiling

Expected: degrees 2 and 4 give the logits of one process up to rounding, with two all-reduces a layer and nothing else,
on any machine in under a minute. More heads raise the largest tensor degree and fewer layers lower the largest number
of pipeline stages, so that their product stays where heads grow as depth shrinks (XCiT-M), and falls or rises where
they grow less or more.
"""

from heads_for_depth.parallelism.communication import Collective, Communication
from heads_for_depth.parallelism.constraints import check_degree, degrees, head_degrees
from heads_for_depth.parallelism.cost_model import (
    Assumptions,
    Layout,
    bubble,
    check_layout,
    forward_seconds,
    ring_seconds,
    training_seconds,
)
from heads_for_depth.parallelism.layouts import (
    GPU_COUNTS,
    Ceiling,
    CeilingChange,
    Prediction,
    admissible_layouts,
    best_layout,
    ceiling,
    ceiling_change,
    speed_up,
)
from heads_for_depth.parallelism.measuring import DTYPES, Request, check_dtype, measure, measure_here, timed
from heads_for_depth.parallelism.processes import Member, ProcessesFailed, meet, physical_cores, run_job, speaks
from heads_for_depth.parallelism.tensor_parallel import SUPPORTED, check_supported, fused_order, split
from heads_for_depth.parallelism.work import Work, tokens_by_stage, work_of

__all__ = [
    "DTYPES",
    "GPU_COUNTS",
    "SUPPORTED",
    "Assumptions",
    "Ceiling",
    "CeilingChange",
    "Collective",
    "Communication",
    "Layout",
    "Member",
    "Prediction",
    "ProcessesFailed",
    "Request",
    "Work",
    "admissible_layouts",
    "best_layout",
    "bubble",
    "ceiling",
    "ceiling_change",
    "check_degree",
    "check_dtype",
    "check_layout",
    "check_supported",
    "degrees",
    "forward_seconds",
    "fused_order",
    "head_degrees",
    "measure",
    "measure_here",
    "meet",
    "physical_cores",
    "ring_seconds",
    "run_job",
    "speaks",
    "speed_up",
    "split",
    "timed",
    "tokens_by_stage",
    "training_seconds",
    "work_of",
]
