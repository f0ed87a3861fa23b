"""Numbers of fewer bits, and whether a device computes with them."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from heads_for_depth.errors import BadInput

Precision = Literal["fp32", "bf16"]
BF16_FLAGS = ("avx512_bf16", "amx_bf16", "bf16")
"""Words of /proc/cpuinfo, of which a processor with bfloat16 arithmetic has at least one."""


def check_precision(precision: str, device: str) -> None:
    """Raise BadInput for an unknown precision, or one that the device would only emulate."""
    if precision not in get_args(Precision):
        raise BadInput("precision", precision, f"use one of {', '.join(get_args(Precision))}")
    if precision == "bf16" and not has_bf16(device):
        raise BadInput("precision", precision, f"this machine's {device} does not compute in bfloat16, use fp32")


def has_bf16(device: str) -> bool:
    """Whether the device has instructions for bfloat16."""
    if device == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    return any(flag in processor_flags() for flag in BF16_FLAGS)


def processor_flags() -> set[str]:
    """What the processor can do, as the kernel names it; empty where it does not say."""
    information = Path("/proc/cpuinfo")
    lines = information.read_text().splitlines() if information.is_file() else []
    named = [line.split(":", 1)[1].split() for line in lines if line.startswith(("flags", "Features"))]
    return set(named[0]) if named else set()


def cast(precision: str, device: str) -> AbstractContextManager[Any]:
    """Autocast to bfloat16, or nothing."""
    return torch.autocast(device, dtype=torch.bfloat16) if precision == "bf16" else nullcontext()
