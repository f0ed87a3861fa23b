"""Tensor parallelism as it runs here: the same logits as one process, what is communicated, and how long it takes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import DeviceMesh

from heads_for_depth.errors import BadInput
from heads_for_depth.language_models import build_language
from heads_for_depth.models import build
from heads_for_depth.parallelism.communication import Communication
from heads_for_depth.parallelism.constraints import check_degree
from heads_for_depth.parallelism.processes import Member, meet, physical_cores, run_job
from heads_for_depth.parallelism.tensor_parallel import check_supported, split
from heads_for_depth.parallelism.work import tokens_by_stage
from heads_for_depth.precision import has_bf16
from heads_for_depth.provenance import check_device
from heads_for_depth.recount import Countable
from heads_for_depth.shapes import Shape

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
WARM_UPS = 1
"""Calls before the first that is timed."""
MOST_ITEMS, MOST_REPEATS = 65_536, 10_000
"""Of a batch, and of timed passes: beyond, something was mistyped."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What is measured, checked when it is built."""

    shape: Countable
    degree: int
    """Processes that share the model."""
    batch: int
    """Images or texts in a forward pass."""
    tokens: int | None = None
    """Of a text; None means as many as the model has positions. An image's size fixes its own."""
    repeats: int = 5
    """Timed forward passes."""
    device: str = "cpu"
    """`cpu` or `cuda`."""
    dtype: str = "float32"
    """One of DTYPES, for weights and activations."""
    seed: int = 0
    """Of the weights, equal in every process, and of the inputs."""

    def __post_init__(self) -> None:
        check_supported(self.shape)
        check_degree(self.shape, self.degree)
        tokens_by_stage(self.shape, self.tokens)
        for field, most in (("batch", MOST_ITEMS), ("repeats", MOST_REPEATS)):
            if not 1 <= getattr(self, field) <= most:
                raise BadInput(field, getattr(self, field), f"must be at least 1 and at most {most}")
        check_device(self.device)
        check_dtype(self.dtype, self.device)


def check_dtype(dtype: str, device: str) -> None:
    """Raise BadInput for a precision that is not offered, or that the device does not compute in."""
    if dtype not in DTYPES:
        raise BadInput("dtype", dtype, f"use one of {', '.join(DTYPES)}")
    if dtype == "bfloat16" and not has_bf16(device):
        raise BadInput("dtype", dtype, f"this machine's {device} does not compute in it, use float32")


def measure(shape: Countable, degree: int, *, timeout_seconds: float = 600.0, **what: Any) -> dict[str, Any]:
    """Build the model in `degree` processes from one seed, share it out, and compare, count and time its forward pass.

    `what` are the other fields of Request. Raises BadInput for what cannot be measured, ProcessesFailed where a process
    fails or takes too long. The result, all plain values, each of the first process:

    status                  "ok"
    largest_difference      of any logit from that of the whole model in one process, absolute
    relative_difference     the same over the largest logit of the whole model
    all_reduces, bytes      of one forward pass: calls, and bytes handed over in all of them
    other_collectives       calls of any other kind; none is expected
    forward_seconds         of one forward pass, a barrier before each: {"values": […], "median": …}
    all_reduce_seconds      of one all-reduce of the same payload by itself, likewise; None for one process
    communication_share     all_reduces · median of all_reduce_seconds over median of forward_seconds; None likewise
    oversubscribed          True where processes share a core: their seconds say nothing about speed
    """
    request = Request(shape=shape, degree=degree, **what)
    result = run_job(degree, measure_here, request, device=request.device, timeout_seconds=timeout_seconds)
    assert result is not None, "the first process is never one too many"
    return result


def measure_here(
    member: Member, request: Request, clock: Callable[[], float] = time.perf_counter
) -> dict[str, Any] | None:
    """The part of one process in `measure`; every process of the group calls it, None where it is one too many."""
    mesh = member.mesh(request.degree)
    if mesh is None:
        return None
    model, inputs = _model(request).to(member.device), _inputs(request).to(member.device)
    forward = partial(_logits, model, inputs)
    whole = forward() if member.rank == 0 else None
    split(model, request.shape, mesh)
    with Communication() as noted:
        logits = forward()
    found = _differences(logits, whole) if whole is not None else {}
    ready = partial(_ready, mesh, member.device)
    done = partial(_synchronize, member.device)
    seconds = timed(forward, request.repeats, before=ready, after=done, clock=clock)
    alone = _all_reduce_seconds(request, mesh, member.device, clock) if request.degree > 1 else None
    return _conditions(request) | found | _counts(noted) | _timings(seconds, alone, noted.calls())


def timed(
    call: Callable[[], object],
    repeats: int,
    *,
    before: Callable[[], None],
    after: Callable[[], None],
    clock: Callable[[], float] = time.perf_counter,
) -> list[float]:
    """Seconds of each of `repeats` calls after a warm-up; `before` is not timed, `after` (to wait for a GPU) is."""
    seconds = []
    for number in range(WARM_UPS + repeats):
        before()
        started = clock()
        call()
        after()
        if number >= WARM_UPS:
            seconds.append(clock() - started)
    return seconds


def _model(request: Request) -> nn.Module:
    """The same weights in every process, drawn on the CPU."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(request.seed)
        shape = request.shape
        model = build(shape) if isinstance(shape, Shape) else build_language(shape)
    return model.eval().to(DTYPES[request.dtype])


def _inputs(request: Request) -> Tensor:
    """Independent normal pixels, or independent tokens."""
    generator, shape = torch.Generator().manual_seed(request.seed), request.shape
    if isinstance(shape, Shape):
        size = (request.batch, shape.in_chans, shape.image_size, shape.image_size)
        return torch.randn(size, generator=generator).to(DTYPES[request.dtype])
    (tokens,) = tokens_by_stage(shape, request.tokens)
    return torch.randint(shape.vocab_size, (request.batch, tokens), generator=generator)


def _logits(model: nn.Module, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        outputs = model(inputs)
    logits: Tensor = getattr(outputs, "logits", outputs)
    return logits


def _differences(logits: Tensor, whole: Tensor) -> dict[str, float]:
    largest = float(whole.float().abs().max())
    difference = float((logits.float() - whole.float()).abs().max())
    return {"largest_difference": difference, "largest_logit": largest, "relative_difference": difference / largest}


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _ready(mesh: DeviceMesh, device: torch.device) -> None:
    _synchronize(device)
    meet(mesh)


def _all_reduce_seconds(
    request: Request, mesh: DeviceMesh, device: torch.device, clock: Callable[[], float]
) -> list[float]:
    """Seconds of single all-reduces of one layer's payload, with nothing else going on."""
    (tokens,) = tokens_by_stage(request.shape, request.tokens)
    size = (request.batch, tokens, request.shape.d_model[0])
    payload = torch.zeros(size, dtype=DTYPES[request.dtype], device=device)
    call = partial(distributed.all_reduce, payload, group=mesh.get_group())
    ready, done = partial(_ready, mesh, device), partial(_synchronize, device)
    return timed(call, request.repeats, before=ready, after=done, clock=clock)


def _conditions(request: Request) -> dict[str, Any]:
    """What the numbers were measured under."""
    here = min(request.degree, int(os.environ.get("LOCAL_WORLD_SIZE", request.degree)))
    return {
        "status": "ok",
        "degree": request.degree,
        "batch": request.batch,
        "tokens": tokens_by_stage(request.shape, request.tokens)[0],
        "repeats": request.repeats,
        "device": request.device,
        "dtype": request.dtype,
        "seed": request.seed,
        "threads": torch.get_num_threads(),
        "physical_cores": physical_cores(),
        "oversubscribed": request.device == "cpu" and here > physical_cores(),
        "load_average": os.getloadavg()[0],
    }


def _counts(noted: Communication) -> dict[str, int]:
    calls = noted.calls()
    return {
        "all_reduces": calls,
        "bytes": noted.payload_bytes(),
        "other_collectives": len(noted.collectives) - calls,
    }


def _timings(seconds: list[float], alone: list[float] | None, calls: int) -> dict[str, Any]:
    forward = {"values": seconds, "median": median(seconds)}
    if alone is None:
        return {"forward_seconds": forward, "all_reduce_seconds": None, "communication_share": None}
    share = calls * median(alone) / median(seconds)
    reduce = {"values": alone, "median": median(alone)}
    return {"forward_seconds": forward, "all_reduce_seconds": reduce, "communication_share": share}
