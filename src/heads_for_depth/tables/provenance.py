"""Where the records came from: machine, versions, commits, dates, durations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from heads_for_depth.errors import BadInput
from heads_for_depth.records import STATUSES, Record
from heads_for_depth.tables.formatting import whole

Records = Mapping[str, Sequence[Record]]
"""Experiment -> its records."""


def experiments(records: Records) -> pd.DataFrame:
    """One line per experiment: how many runs, how they ended, core-hours, and the commits that made them."""
    return pd.DataFrame([_line(name, found) for name, found in records.items() if found])


def _line(name: str, found: Sequence[Record]) -> dict[str, str]:
    counts = {status: sum(record["status"] == status for record in found) for status in STATUSES}
    dates = sorted(record["provenance"]["date"][:10] for record in found)
    return {
        "experiment": name,
        "runs": str(len(found)),
        "ended": ", ".join(f"{count} {status.replace('_', ' ')}" for status, count in counts.items() if count),
        "core-hours": f"{_hours(found):.2f}",
        "dates": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
        "commits": ", ".join(sorted({_short(record["provenance"]["commit"]) for record in found})),
    }


def _short(commit: str) -> str:
    head, changes, _ = commit.partition("+")
    return f"`{head[:10]}`" + (" with local changes" if changes else "")


def _hours(found: Sequence[Record]) -> float:
    return sum(float(record["seconds"]["total"]) for record in found) / 3600


def environments(records: Records) -> pd.DataFrame:
    """One line per machine and set of versions that print differently."""
    stamps = [record["provenance"] for found in records.values() for record in found]
    counts = Counter(tuple(_environment(stamp).items()) for stamp in stamps)
    return pd.DataFrame([dict(line) | {"runs": str(runs)} for line, runs in counts.items()])


def _environment(stamp: Mapping[str, Any]) -> dict[str, str]:
    machine = stamp["machine"]
    return {
        "processor": machine["processor"],
        "cores": str(machine["cores"]),
        "memory": f"{machine['memory_bytes'] / 2**30:.0f} GiB",
        "system": machine["system"],
        "device": stamp["device"] if stamp["device"] == "cpu" else f"{stamp['device']}, {stamp['device_name']}",
        "threads per run": str(stamp["threads"]),
        "versions": ", ".join(f"{name} {number}" for name, number in stamp["versions"].items()),
    }


def glued(records: Records, profile: str) -> dict[str, str]:
    """Values for the prose: runs, hours, machine, dates. Raises BadInput where there is no record."""
    found = [record for some in records.values() for record in some]
    if not found:
        raise BadInput("records", profile, f"there are none yet, run `heads-for-depth run --profile {profile}`")
    machines = sorted({r["provenance"]["machine"]["processor"] for r in found})
    cores = sorted({r["provenance"]["machine"]["cores"] for r in found})
    dates = sorted(r["provenance"]["date"][:10] for r in found)
    return {
        "provenance.profile": profile,
        "provenance.runs": whole(len(found)),
        "provenance.failed": whole(sum(r["status"] != "ok" for r in found)),
        "provenance.train_hours": f"{_hours(found):.1f}",
        "provenance.machine": f"{', '.join(machines)}, {' or '.join(map(str, cores))} cores",
        "provenance.date": dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}",
        "provenance.commits": ", ".join(sorted({_short(r["provenance"]["commit"]).strip("`") for r in found})),
    }
