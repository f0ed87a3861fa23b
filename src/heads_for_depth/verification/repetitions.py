"""What repeating records has shown so far: how far runs of two machines are apart, kept beside the records."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

from heads_for_depth.errors import BadInput
from heads_for_depth.provenance import machine, machine_slug
from heads_for_depth.records import Record, check_writable
from heads_for_depth.verification.checks import Check, Verified
from heads_for_depth.verification.tolerance import KAPPA_FLAT
from heads_for_depth.whole_files import written_beside

SCHEMA = "heads-for-depth/repetition/1"
FOLDER = "repetitions"
FIELDS = ("schema", "profile", "seed", "of", "runs", "provenance")
RUN_FIELDS = ("experiment", "run_id", "recorded_on", "outcome", "largest_difference")
QUANTITIES = ("accuracy", "loss", "kappa", "large_kappa")
"""Final accuracy and loss, in the record's unit; κ at initialization up to KAPPA_FLAT and beyond, relative."""
Repetition = dict[str, Any]


def summary(line: Verified, recorded: Record) -> dict[str, Any]:
    """One repeated run: where it was recorded, what came of it, and its largest difference of each quantity."""
    largest = {name: _largest(line.checks, name) for name in QUANTITIES}
    return {
        "experiment": line.experiment,
        "run_id": line.run_id,
        "recorded_on": recorded["provenance"]["machine"]["processor"],
        "outcome": line.outcome,
        "same_arithmetic": line.same_arithmetic,
        "largest_difference": {name: value for name, value in largest.items() if value is not None},
    }


def _largest(checks: Sequence[Check], quantity: str) -> float | None:
    found = [check.difference for check in checks if _quantity(check) == quantity and not _one_alone_infinite(check)]
    return max((difference for difference in found if isfinite(difference)), default=None)


def _quantity(check: Check) -> str | None:
    """Which of QUANTITIES a check is about; None for any other number of a record."""
    if check.quantity.startswith("metrics.") and check.quantity.count(".") == 1:
        return check.quantity.rsplit("_", 1)[-1] if check.quantity.endswith(("_accuracy", "_loss")) else None
    if not check.quantity.startswith("kappa.initial.") or "condition_number" not in check.quantity:
        return None
    return "kappa" if isinstance(check.recorded, float) and check.recorded < KAPPA_FLAT else "large_kappa"


def _one_alone_infinite(check: Check) -> bool:
    """Whether one of two condition numbers is infinite and the other is not, which the outcome of the run says."""
    return (check.here == "inf") != (check.recorded == "inf")


def repetition(facts: Mapping[str, Any], runs: Sequence[dict[str, Any]], provenance: Mapping[str, Any]) -> Repetition:
    """What one `verify` found, as it is kept."""
    return {"schema": SCHEMA, **facts, "runs": list(runs), "provenance": dict(provenance)}


def place(results: Path, profile: str, seed: int) -> Path:
    """Where a draw of this machine is kept. Raises BadInput where one is there already, or nothing can be written."""
    path = results / FOLDER / f"{machine_slug(machine())}.{profile}.seed-{seed}.json"
    check_writable(path.parent)
    if path.exists():
        raise BadInput("seed", seed, f"is kept already at {path}, give another --seed")
    return path


def write(found: Repetition, path: Path) -> Path:
    """Keep it at its place, whole or not at all and never over another."""
    folder = path.parent
    text = json.dumps(found, allow_nan=False, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    try:
        with written_beside(folder, text.encode("utf8")) as file:
            path.hardlink_to(file)
    except FileExistsError as error:
        raise BadInput("seed", found["seed"], f"is kept already at {path}, give another --seed") from error
    return path


def load(results: Path) -> list[Repetition]:
    """Every kept repetition below this folder. Raises BadInput for a damaged file."""
    return [_read(path) for path in sorted((results / FOLDER).glob("*.json"))]


def _read(path: Path) -> Repetition:
    try:
        found = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput("repetition", str(path), "cannot be read; remove it and run `verify --keep` again") from error
    if not isinstance(found, dict) or found.get("schema") != SCHEMA or not _complete(found):
        raise BadInput("repetition", str(path), f"is not of schema {SCHEMA}; remove it and run `verify --keep` again")
    return found


def _complete(found: Repetition) -> bool:
    """Whether everything that is read later is there."""
    runs = found.get("runs")
    listed = isinstance(runs, list) and all(isinstance(run, dict) for run in runs)
    return (
        listed and all(name in found for name in FIELDS) and all(n in run for run in found["runs"] for n in RUN_FIELDS)
    )
