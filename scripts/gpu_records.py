"""Carry out vision runs of a profile, the cheapest row first, as long as the next one is expected to fit into the time.

A row comes with its baseline and its reshape: first their tuning runs, then their seeds, all of a shape at once on a
GPU. Every run is the planned one and its record an ordinary record; only their number depends on the time. What is
recorded already is not run again, so a second call goes on where the first one ended.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import ARMS, PlannedRun, estimated_seconds, plan
from heads_for_depth.provenance import check_device
from heads_for_depth.records import Record
from heads_for_depth.sweeps import missing, tuned
from heads_for_depth.training.jobs import Job, as_jobs, execute_job

CAUTION = 1.2
"""Factor on the expected seconds of a job, since the next one may be slower than those before."""


def rows_by_cost(planned: list[PlannedRun]) -> list[list[PlannedRun]]:
    """The runs of baseline and reshape of every row, tuning first; the cheapest row first."""
    rows: dict[str, list[PlannedRun]] = {}
    for run in planned:
        if run.depth_arm == run.heads_arm:
            rows.setdefault(run.row, []).append(run)
    return sorted(rows.values(), key=lambda runs: sum(map(estimated_seconds, runs)))


def jobs_of(runs: list[PlannedRun], results: Path, device: str) -> Iterator[Job]:
    """What is missing of one row, arm by arm; seeds are planned once their learning rate is known."""
    for arm in ARMS:
        own = [run for run in runs if run.depth_arm == arm]
        yield from as_jobs(missing([run for run in own if not run.tuned_by], results), device)
        rest = missing([run for run in own if run.tuned_by], results)
        yield from as_jobs([tuned(run, results) for run in rest], device)


def carry_out(job: Job, results: Path, device: str) -> float:
    """Run and record one job; returns its seconds."""
    started = time.monotonic()
    made = execute_job(job, device)
    for record in made:
        records.write(record, results)
    seconds = time.monotonic() - started
    print(f"{seconds:7.1f} s  {_described(made)}")
    return seconds


def _described(made: list[Record]) -> str:
    recipe = made[0]["plan"]["recipe"]
    trained = sum(record["seconds"].get("train", 0.0) for record in made)
    images = len(made) * recipe["train_images"] * recipe["epochs"]
    speed = f", {images / trained:,.0f} images per second" if trained else ""
    statuses = ", ".join(dict.fromkeys(record["status"] for record in made))
    return f"{made[0]['run_id']} and {len(made) - 1} more: {statuses}{speed}"


def run_until(end: float, planned: list[PlannedRun], results: Path, device: str) -> int:
    """Run jobs while the next is expected to end by `end`, seconds since 1970; returns how many runs were added."""
    added, pace = 0, 0.0
    for row in rows_by_cost(planned):
        for job in jobs_of(row, results, device):
            expected = pace * max(map(estimated_seconds, job))
            if time.time() + CAUTION * expected > end:
                print(f"{job[0].run_id} would not fit into the time left")
                return added
            took = carry_out(job, results, device)
            pace = max(pace, took / max(map(estimated_seconds, job)))
            added += len(job)
    return added


def main(arguments: list[str] | None = None) -> int:
    """Parse the options and run; returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--profile", default="gpu")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument(
        "--until", type=float, default=time.time() + 300, help="seconds since 1970; default: in 5 minutes"
    )
    parser.add_argument("--out", type=Path, default=Path("gpu-records"))
    given = parser.parse_args(arguments)
    try:
        check_device(given.device)
        records.check_writable(given.out)
        experiments = ("vision_tuning", "vision_rows")
        planned = [run for name in experiments for run in plan(given.profile, name, given.seeds)]
        added = run_until(given.until, planned, given.out, given.device)
    except BadInput as error:
        print(f"gpu_records: {error}", file=sys.stderr)
        return 2
    print(f"{added} runs added in {given.out / given.profile}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
