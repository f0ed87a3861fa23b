"""One run = one JSON file, written atomically. Failures are kept; duplicates, NaN and half files are refused.

A record lies at `<results>/<profile>/<experiment>/<run_id>.json`. Infinite condition numbers are the string "inf".
"""

from __future__ import annotations

import json
import math
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heads_for_depth.errors import BadInput
from heads_for_depth.whole_files import written_beside

SCHEMA = "heads-for-depth/run/1"
STATUSES = ("ok", "diverged", "out_of_memory", "interrupted")
FIELDS = (
    "schema",
    "run_id",
    "experiment",
    "profile",
    "status",
    "plan",
    "parameters",
    "metrics",
    "kappa",
    "seconds",
    "provenance",
)
Record = dict[str, Any]


def path_of(results: Path, profile: str, experiment: str, run_id: str) -> Path:
    """Where the record of a run lies."""
    if not re.fullmatch(r"[A-Za-z0-9._-]+", run_id):
        raise BadInput("run_id", run_id, "use letters, digits, dots, dashes and underscores")
    return results / profile / experiment / f"{run_id}.json"


def check_writable(results: Path) -> None:
    """Raise BadInput unless records can be written to this folder; creates it."""
    try:
        results.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=results):
            pass
    except OSError as error:
        raise _unwritable(results, error) from error


def _unwritable(folder: Path, error: OSError) -> BadInput:
    return BadInput("results", str(folder), f"cannot be written to ({error.strerror}), choose another folder")


def write(record: Record, results: Path) -> Path:
    """Write one record: all of it or nothing, and never over another one.

    Raises BadInput where a field is missing, the status is unknown, a number is not finite, the run has a record, or
    the folder cannot be written to.
    """
    _check(record, "new record")
    path = path_of(results, record["profile"], record["experiment"], record["run_id"])
    check_writable(path.parent)
    text = json.dumps(record, allow_nan=False, separators=(",", ":"), sort_keys=True) + "\n"
    try:
        with written_beside(path.parent, text.encode("utf8")) as file:
            path.hardlink_to(file)
    except FileExistsError as error:
        raise BadInput("run_id", record["run_id"], f"has a record already at {path}") from error
    except OSError as error:
        raise _unwritable(path.parent, error) from error
    return path


def read(path: Path) -> Record:
    """One record, or BadInput that says what is wrong with the file."""
    try:
        record = json.loads(path.read_text(encoding="utf8"))
    except (ValueError, RecursionError) as error:  # no UTF-8, no JSON, or more of it than can be read
        raise BadInput("record", str(path), "is truncated or no JSON; remove it and run the sweep again") from error
    except OSError as error:
        raise BadInput("record", str(path), f"cannot be read ({error.strerror})") from error
    _check(record, str(path))
    if record["run_id"] != path.stem:
        raise BadInput("run_id", record["run_id"], f"{path} must carry its run id as its name; remove the copy")
    return record


def load(results: Path, profile: str, experiment: str) -> list[Record]:
    """Every record of an experiment, by run id. An experiment without records is an empty list."""
    folder = results / profile / experiment
    return [read(path) for path in sorted(folder.glob("*.json"))]


def recorded_ids(results: Path, profile: str, experiment: str) -> set[str]:
    """Run ids that have a readable record."""
    return {record["run_id"] for record in load(results, profile, experiment)}


WHEN = ("where none", "here", "never")
"""When a notebook measures this machine: where the folder holds no machine's records, always, or not at all."""


def asks_to_measure(when: str, results: Path, profile: str, experiment: str) -> bool:
    """Whether a notebook that is given this word should measure what the machine has no record of."""
    if when not in WHEN:
        raise BadInput("measure", when, f"use one of {', '.join(WHEN)}")
    return when == "here" or (when == "where none" and not recorded_ids(results, profile, experiment))


def _check(record: object, place: str) -> None:
    if not isinstance(record, dict):
        raise BadInput("record", place, "must be a JSON object")
    schema = record.get("schema")
    if schema != SCHEMA:
        raise BadInput("schema", schema, f"{place} is from another version, this one reads {SCHEMA}")
    missing = [field for field in FIELDS if field not in record]
    if missing:
        raise BadInput("record", place, f"lacks {', '.join(missing)}; remove it and run the sweep again")
    if record["status"] not in STATUSES:
        raise BadInput("status", record["status"], f"{place}: use one of {', '.join(STATUSES)}")
    for where, number in _numbers(record, ""):
        if not math.isfinite(number):
            raise BadInput(where.lstrip("."), number, f"{place}: a record holds finite numbers only")


def _numbers(value: Any, where: str) -> Iterator[tuple[str, float]]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _numbers(inner, f"{where}.{key}")
    elif isinstance(value, list):
        for index, inner in enumerate(value):
            yield from _numbers(inner, f"{where}[{index}]")
    elif isinstance(value, float):
        yield where, value
