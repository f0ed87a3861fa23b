"""Say what can run here: a line `machine:…` or `refused:…`, and per part `part:` with the reason why it cannot."""

from __future__ import annotations

import importlib
import sys

NEEDS = {
    "records": ("heads_for_depth.experiments", "heads_for_depth.sweeps"),
    "tests": ("pytest",),
    "bench": ("heads_for_depth.cli", "heads_for_depth.benchmark.notebook", "heads_for_depth.benchmark.running"),
}
"""Part -> modules that it imports; the package itself cannot be used without those of `records`."""


def obstacle(part: str) -> str:
    """Why the modules of a part cannot be imported, in one line; empty where they can."""
    try:
        for name in NEEDS[part]:
            importlib.import_module(name)
    except Exception as error:  # a version that does not fit may fail in any way
        return (str(error).splitlines() or [type(error).__name__])[0]
    return ""


def machine(device: str, profile: str) -> str:
    """What computes, or the sentence that refuses the device or the profile."""
    import torch

    from heads_for_depth.errors import BadInput
    from heads_for_depth.provenance import check_device, device_name
    from heads_for_depth.recipes import budget

    try:
        budget(profile)
        name = device_name(check_device(device))
    except BadInput as error:
        return f"refused:{error}"
    return f"machine:python {sys.version.split()[0]}, torch {torch.__version__}, {name}"


def main(device: str, profile: str, *parts: str) -> None:
    """Print the lines; without the package there is nothing to say of the machine."""
    reason = obstacle("records")
    print(f"records:{reason}")
    if not reason:
        for part in parts:
            print(f"{part}:{obstacle(part)}")
        print(machine(device, profile))


if __name__ == "__main__":
    main(*sys.argv[1:])
