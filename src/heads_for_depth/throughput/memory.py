"""Peak memory of one model: what the allocator held at most on a GPU, what the resident set grew by on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch

from heads_for_depth.benchmark.memory import peak_resident_bytes
from heads_for_depth.provenance import machine
from heads_for_depth.throughput.measuring import prepare
from heads_for_depth.throughput.modes import Mode
from heads_for_depth.throughput.subjects import Subject
from heads_for_depth.throughput.workload import Call, Workload
from heads_for_depth.training.runs import is_out_of_memory

SETTLE = 2
"""Calls during which memory is watched: the second training step finds the optimizer's state in place."""


def peaks(
    subject: Subject, mode: Mode, threads: int, forward_batches: tuple[int, ...], training_batch: int | None
) -> dict[str, Any]:
    """Bytes by use, weights included, each use after the other in this process, which should hold nothing else.

    `forward` is by batch size; `training` counts weights, gradients, optimizer state and activations. None for a use
    that runs out of memory, or that is not asked for.
    """
    prepare(mode, threads)
    meter = _Allocator() if mode.device == "cuda" else _ResidentSet()
    workload = Workload(subject, mode)
    forward = {str(batch): _peak(meter, partial(workload.forward, batch)) for batch in sorted(forward_batches)}
    training = None if training_batch is None else _peak(meter, partial(workload.training_step, training_batch))
    return {"forward": forward, "training": training}


def _peak(meter: _Allocator | _ResidentSet, make: Callable[[], Call]) -> int | None:
    """Peak of the call that is made; None where memory does not hold it, or its inputs."""
    try:
        return meter.peak(make())
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        return None


def memory_of(device: str) -> int:
    """Bytes of memory of the machine, or of the GPU."""
    if device == "cuda":
        return int(torch.cuda.get_device_properties(0).total_memory)
    return int(machine()["memory_bytes"])


class _Allocator:
    """Bytes that torch's allocator handed out on the GPU."""

    def peak(self, call: Callable[[], None]) -> int:
        call()  # what compiling holds is not the model's
        torch.cuda.reset_peak_memory_stats()
        for _ in range(SETTLE):
            call()
        torch.cuda.synchronize()
        return torch.cuda.max_memory_allocated()


class _ResidentSet:
    """Growth of this process's resident set since the meter was made."""

    def __init__(self) -> None:
        _forget_peak()
        self.before = peak_resident_bytes()

    def peak(self, call: Callable[[], None]) -> int:
        _forget_peak()
        for _ in range(SETTLE):
            call()
        return max(0, peak_resident_bytes() - self.before)


def _forget_peak() -> None:
    """Let the kernel start again from the present size; where it cannot, the peak is that of everything so far."""
    switch = Path("/proc/self/clear_refs")
    if switch.exists():
        switch.write_text("5")
