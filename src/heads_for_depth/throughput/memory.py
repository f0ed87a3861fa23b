"""Peak memory of one model: what the allocator held at most on a GPU, what the resident set grew by on a CPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from heads_for_depth.benchmark.memory import peak_resident_bytes
from heads_for_depth.throughput.modes import Mode
from heads_for_depth.throughput.subjects import Subject
from heads_for_depth.throughput.workload import Workload

SETTLE = 2
"""Calls during which memory is watched: the second training step finds the optimizer's state in place."""


def peaks(subject: Subject, mode: Mode, forward_batches: tuple[int, ...], training_batch: int) -> dict[str, Any]:
    """Bytes by use, weights included, each use after the other in this process, which should hold nothing else.

    `forward` is by batch size; `training` counts weights, gradients, optimizer state and activations.
    """
    meter = _Allocator() if mode.device == "cuda" else _ResidentSet()
    workload = Workload(subject, mode)
    forward = {str(batch): meter.peak(workload.forward(batch)) for batch in sorted(forward_batches)}
    return {"forward": forward, "training": meter.peak(workload.training_step(training_batch))}


class _Allocator:
    """Bytes that torch's allocator handed out on the GPU."""

    def peak(self, call: Callable[[], None]) -> int:
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
