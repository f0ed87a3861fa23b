"""Where a number came from: commit, machine, device, versions, and digests of the inputs."""

from __future__ import annotations

import hashlib
import os
import platform
import re
import subprocess
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch

from heads_for_depth import paths
from heads_for_depth.datasets import MD5
from heads_for_depth.errors import BadInput

PACKAGES = ("torch", "timm", "numpy")


def first_commit_with(text: str, path: Path) -> str | None:
    """Abbreviated hash and date of the commit that brought a text into a file.

    None outside git, in a shallow clone, and where no commit has it yet.
    """
    if _git("rev-parse", "--is-shallow-repository") != "false":
        return None
    found = _git("log", "--reverse", "--format=%h of %cs", f"-S{text}", "--", str(path))
    return found.splitlines()[0] if found else None


@cache
def commit() -> str:
    """The commit of the working tree, with `+changes` where tracked source differs from it; `unknown` outside git."""
    head = _git("rev-parse", "HEAD")
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", "src", "data/claims", "data/fashion-mnist")
    if head is None:
        return "unknown"
    return head + ("+changes" if changed else "")


def _git(*arguments: str) -> str | None:
    command = ["git", "-C", str(paths.ROOT), *arguments]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


@cache
def machine() -> dict[str, Any]:
    """Processor model, logical cores and memory in bytes of this machine."""
    return {
        "processor": _processor(),
        "cores": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
    }


def machine_slug(machine: Mapping[str, Any]) -> str:
    """A file name for this kind of machine: its processor and the number of its cores."""
    return slug(f"{machine['processor']} {machine['cores']} cores")


def slug(words: str) -> str:
    """The words in lower-case letters and digits with hyphens between, trade marks left out."""
    return re.sub(r"[^a-z0-9]+", "-", without_marks(words).lower()).strip("-")


def without_marks(words: str) -> str:
    """A processor's name without trade marks."""
    return re.sub(r"\((r|tm)\)", "", words, flags=re.IGNORECASE)


def _processor() -> str:
    info = Path("/proc/cpuinfo")
    lines = info.read_text().splitlines() if info.is_file() else []
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or "unknown"


def versions(*others: str) -> dict[str, str]:
    """Python and the packages that compute, and others by name."""
    return {"python": platform.python_version()} | {name: _version(name) for name in (*PACKAGES, *others)}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"


def check_device(device: str) -> str:
    """`cpu` or `cuda`, checked to be there."""
    if device not in ("cpu", "cuda"):
        raise BadInput("device", device, "use cpu or cuda")
    if device == "cuda" and not torch.cuda.is_available():
        raise BadInput("device", device, "this machine has no CUDA device that torch can use, use cpu")
    return device


def device_name(device: str) -> str:
    """The name of the device that computes."""
    return torch.cuda.get_device_name() if device == "cuda" else _processor()


def stamp(device: str, *others: str) -> dict[str, Any]:
    """Everything a record says about where it came from; `others` are packages that it needed beside the usual."""
    return {
        "commit": commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": machine(),
        "device": device,
        "device_name": device_name(device),
        "threads": torch.get_num_threads(),
        "versions": versions(*others),
        "data": hashlib.sha256("".join(sorted(MD5.values())).encode()).hexdigest()[:16],
    }
