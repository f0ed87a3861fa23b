"""Peak memory of this process."""

from __future__ import annotations

import resource
import sys
from pathlib import Path


def peak_resident_bytes() -> int:
    """The largest resident set of this process so far.

    The kernel's status file is asked first: `getrusage` also counts what the process was before it started Python.
    """
    status = Path("/proc/self/status")
    lines = status.read_text().splitlines() if status.is_file() else []
    peaks = [int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")]
    unit = 1 if sys.platform == "darwin" else 1024
    return peaks[0] if peaks else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
