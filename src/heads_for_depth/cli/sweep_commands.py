"""`plan`, `run` and `status`: the grid of planned runs, carrying it out, and how far it is."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from heads_for_depth import paths
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun, estimated_seconds, plan
from heads_for_depth.provenance import check_device
from heads_for_depth.sweeps import OpenWorkers, SweepFailed, missing, progress, run_all
from heads_for_depth.sweeps.cluster import on_cluster
from heads_for_depth.sweeps.workers import available_cores

ProfileOption = Annotated[str, typer.Option(help="Size of the runs: smoke (minutes, meaningless), cpu, gpu.")]
ExperimentOption = Annotated[str | None, typer.Option(help="Only this experiment, e.g. vision_rows.")]
SeedsOption = Annotated[int | None, typer.Option(help="Seeds per cell; default: what the profile plans.")]
ResultsOption = Annotated[Path, typer.Option(help="Folder of the run records.")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")]
WorkersOption = Annotated[
    int | None, typer.Option(min=1, help="Worker processes of one thread each; default: all cores.")
]
DeviceOption = Annotated[str, typer.Option(help="cpu or cuda.")]
ExecutorOption = Annotated[
    str, typer.Option(help="processes: of this machine. dask: the workers of a running Dask scheduler.")
]
SchedulerOption = Annotated[
    str | None, typer.Option(help="Address of the Dask scheduler, such as tcp://10.0.0.1:8786.")
]


def register(app: typer.Typer) -> None:
    """Add the three commands."""
    app.command(name="plan")(show_plan)
    app.command(name="run")(run)
    app.command(name="status")(status)


def show_plan(
    profile: ProfileOption = "cpu",
    experiment: ExperimentOption = None,
    seeds: SeedsOption = None,
    results: ResultsOption = paths.RESULTS,
    workers: WorkersOption = 2,
) -> None:
    """Print what a profile would run, with estimated minutes; runs nothing."""
    planned = plan(profile, experiment, seeds)
    todo = {run.run_id for run in missing(planned, results)}
    rows: dict[tuple[str, str], list[PlannedRun]] = defaultdict(list)
    for one in planned:
        rows[one.experiment, one.row].append(one)
    print(f"{'experiment':<26}{'row':<28}{'runs':>6}{'to do':>7}{'minutes':>9}")
    for (name, row), runs in rows.items():
        left = [one for one in runs if one.run_id in todo]
        print(f"{name:<26}{row:<28}{len(runs):>6}{len(left):>7}{_minutes(left, workers):>9.1f}")
    left = [one for one in planned if one.run_id in todo]
    minutes = _minutes(left, workers)
    print(f"{'total':<54}{len(planned):>6}{len(left):>7}{minutes:>9.1f}  (estimate, {workers or 1} workers)")


def run(
    profile: ProfileOption = "cpu",
    experiment: ExperimentOption = None,
    seeds: SeedsOption = None,
    results: ResultsOption = paths.RESULTS,
    workers: WorkersOption = None,
    measure: Annotated[
        bool, typer.Option("--measure", help="First measure how many workers train fastest here; ten seconds.")
    ] = False,
    device: DeviceOption = "cpu",
    executor: ExecutorOption = "processes",
    scheduler: SchedulerOption = None,
) -> None:
    """Carry out every planned run that has no record yet; safe to stop and to repeat."""
    planned = plan(profile, experiment, seeds)
    open_workers = _open_workers(executor, scheduler, device)
    if measure:
        workers = _measured(workers)
    if workers is not None and workers > len(available_cores()):
        typer.echo(f"heads-for-depth: workers is {workers}: {len(available_cores())} cores take turns", err=True)
    try:
        added = run_all(planned, results, workers, device, open_workers)
    except KeyboardInterrupt:
        done = len(planned) - len(missing(planned, results))
        typer.echo(f"\nheads-for-depth: {done} of {len(planned)} planned runs are recorded in {results / profile}; "
                   "runs in progress continue after their last finished epoch", err=True)  # fmt: skip
        raise
    except SweepFailed as failure:
        typer.echo(f"heads-for-depth: {failure}", err=True)
        raise typer.Exit(1) from failure
    print(f"{added} runs added, {len(planned) - added} were recorded before, in {results / profile}")


def _measured(workers: int | None) -> int:
    """The number of workers that a short measurement recommends."""
    if workers is not None:
        raise BadInput("workers", workers, "is measured with --measure, leave one of the two out")
    from heads_for_depth.benchmark.workers import recommended_workers  # torchvision takes seconds to import

    count = recommended_workers()
    typer.echo(f"heads-for-depth: {count} workers train fastest on this machine", err=True)
    return count


def _open_workers(executor: str, scheduler: str | None, device: str) -> OpenWorkers | None:
    """None for the processes of this machine, whose device is checked here; a cluster's workers check their own."""
    if executor == "processes":
        if scheduler is not None:
            raise BadInput("scheduler", scheduler, "is for --executor dask, leave it out or add that")
        check_device(device)
        return None
    if executor != "dask":
        raise BadInput("executor", executor, "use processes or dask")
    if scheduler is None:
        raise BadInput("scheduler", scheduler, "--executor dask needs its address, such as tcp://10.0.0.1:8786")
    return on_cluster(scheduler, device)


def status(
    profile: ProfileOption = "cpu",
    seeds: SeedsOption = None,
    results: ResultsOption = paths.RESULTS,
    as_json: JsonOption = False,
) -> None:
    """Planned, recorded, failed and missing runs per experiment."""
    rows = progress(plan(profile, None, seeds), results)
    values = [asdict(p) | {"missing": p.missing} for p in rows]
    if as_json:
        print(json.dumps({"profile": profile, "experiments": values}, indent=2))
        return
    print(f"{'experiment':<26}{'planned':>9}{'recorded':>10}{'failed':>8}{'missing':>9}")
    for p in rows:
        print(f"{p.experiment:<26}{p.planned:>9}{p.recorded:>10}{p.failed:>8}{p.missing:>9}")


def _minutes(runs: list[PlannedRun], workers: int | None) -> float:
    return sum(map(estimated_seconds, runs)) / 60 / (workers or 1)
