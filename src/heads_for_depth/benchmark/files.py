"""Benchmark records: one JSON file per benchmark of a machine, never overwritten."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from heads_for_depth.errors import BadInput
from heads_for_depth.provenance import machine_slug
from heads_for_depth.whole_files import written_beside

SCHEMA = "heads-for-depth/benchmark/1"
FOLDER = "benchmarks"
FIELDS = ("schema", "quick", "repeats", "load", "seconds", "parts", "provenance")
Benchmark = dict[str, Any]


def write(record: Benchmark, results: Path) -> Path:
    """Write a record whole or not at all: `<machine>.json`, or with its date where the machine has one already.

    Raises BadInput where a field is missing or the folder cannot be written to, ValueError for a number not finite.
    """
    _check(record, "new benchmark")
    text = json.dumps(record, allow_nan=False, indent=1, sort_keys=True, ensure_ascii=False) + "\n"
    folder = results / FOLDER
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with written_beside(folder, text.encode("utf8")) as file:
            return _link(file, folder, record)
    except OSError as error:
        raise BadInput("results", str(folder), f"cannot be written to ({error.strerror})") from error


def _link(written: Path, folder: Path, record: Benchmark) -> Path:
    """Give the written file the first name that is free."""
    for name in _names(record):
        try:
            (folder / name).hardlink_to(written)
        except FileExistsError:
            continue
        return folder / name
    raise AssertionError("names never end")


def _names(record: Benchmark) -> Iterator[str]:
    stem = machine_slug(record["provenance"]["machine"]) + (".quick" if record["quick"] else "")
    dated = f"{stem}.{re.sub('[^0-9T]', '', record['provenance']['date'][:19])}"
    yield f"{stem}.json"
    yield f"{dated}.json"
    number = 2
    while True:
        yield f"{dated}-{number}.json"
        number += 1


def load(results: Path) -> list[Benchmark]:
    """Every benchmark below this folder, oldest first; none is an empty list. Raises BadInput for a damaged file."""
    found = [_read(path) for path in sorted((results / FOLDER).glob("*.json"))]
    return sorted(found, key=lambda record: str(record["provenance"]["date"]))


def newest(results: Path) -> Benchmark | None:
    """The latest of the most complete benchmarks at full sizes, or None; a quick one measures nothing."""
    complete = [record for record in load(results) if not record["quick"]]
    return max(complete, key=lambda record: (len(record["parts"]), str(record["provenance"]["date"])), default=None)


def _read(path: Path) -> Benchmark:
    try:
        record = json.loads(path.read_text(encoding="utf8"))
    except (OSError, ValueError, RecursionError) as error:
        raise BadInput("benchmark", str(path), "cannot be read; remove it and run `heads-for-depth bench`") from error
    _check(record, str(path))
    return dict(record)


def _check(record: object, place: str) -> None:
    if not isinstance(record, dict) or record.get("schema") != SCHEMA:
        raise BadInput("benchmark", place, f"is not of schema {SCHEMA}; remove it and run `heads-for-depth bench`")
    missing = [field for field in FIELDS if field not in record]
    if missing:
        raise BadInput("benchmark", place, f"lacks {', '.join(missing)}; remove it and run `heads-for-depth bench`")
