"""`reproduce`: every run of a profile afresh, the site from them, and the comparison with the committed records."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer

from heads_for_depth import paths, provenance, records
from heads_for_depth.cli.compare_command import report
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import EXPERIMENTS, PlannedRun, estimated_seconds, plan
from heads_for_depth.findings.comparison import compare_folders
from heads_for_depth.report import ReportFailed
from heads_for_depth.report.parameters import ReportParameters
from heads_for_depth.sweeps import SweepFailed, missing, run_all
from heads_for_depth.sweeps.workers import available_cores

PUBLISHED = "cpu"
"""Profile of the committed records that a profile without committed records is compared with."""


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="reproduce")(reproduce)


def reproduce(
    results: Annotated[Path, typer.Option(help="Folder for the fresh records; new, empty, or of an interrupted call.")],
    profile: Annotated[str, typer.Option(help="Size of the runs: smoke (minutes, meaningless), cpu, gpu.")] = "gpu",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cuda",
    seeds: Annotated[int | None, typer.Option(help="Seeds per cell; default: what the profile plans.")] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Worker processes; default: one on a GPU, else all cores.")
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue in a folder that holds records of another commit.")
    ] = False,
) -> None:
    """Run everything that a profile plans, build the site from the new records, compare them with the committed ones.

    Safe to stop and to repeat. Exit code 0 where every verdict is the committed one, 1 where one differs, which a
    larger budget may well bring about, or where the sweep or the site fails.
    """
    parameters = _parameters(results, profile, device, seeds)
    planned = plan(profile, None, seeds)
    _check_folder(parameters.results_folder, profile, resume)
    count = workers or (1 if device == "cuda" else len(available_cores()))
    print(_estimate(missing(planned, parameters.results_folder), len(planned), count, device), flush=True)
    try:
        added = run_all(planned, parameters.results_folder, count, device)
        site = _built(parameters)
    except (SweepFailed, ReportFailed) as failure:
        typer.echo(f"heads-for-depth: {failure}", err=True)
        raise typer.Exit(1) from failure
    against = profile if (paths.RESULTS / profile).is_dir() else PUBLISHED
    compared = compare_folders(paths.RESULTS, parameters.results_folder, against, profile)
    print(f"{report(compared)}\n\nrecords: {parameters.results_folder / profile} ({added} runs added)\nsite:    {site}")
    if compared.changed:
        raise typer.Exit(1)


def _parameters(results: Path, profile: str, device: str, seeds: int | None) -> ReportParameters:
    """The notebooks' parameters; their relative paths count from the root of the repository."""
    folder = results.resolve()
    if folder == paths.RESULTS.resolve():
        raise BadInput("results", str(results), "holds the committed records, name another folder for fresh ones")
    inside = folder.is_relative_to(paths.ROOT)
    text = folder.relative_to(paths.ROOT).as_posix() if inside else str(folder)
    return ReportParameters(profile=profile, device=device, seeds=seeds, results=text)


def _check_folder(folder: Path, profile: str, resume: bool) -> None:
    """Raise BadInput where a folder holds records of another commit, unless they are to be kept."""
    found = [record for name in EXPERIMENTS for record in records.load(folder, profile, name)]
    commits = {str(record["provenance"].get("commit", "unknown")) for record in found} - {provenance.commit()}
    if commits and not resume:
        remedy = f"holds records of another commit ({', '.join(sorted(commits))}); name a new folder, or add --resume"
        raise BadInput("results", str(folder), remedy)


def _estimate(todo: list[PlannedRun], planned: int, workers: int, device: str) -> str:
    minutes = sum(map(estimated_seconds, todo)) / 60
    line = f"{len(todo)} of {planned} planned runs to do, about {minutes:.0f} minutes of a CPU core"
    if device == "cpu":
        return f"{line}, {minutes / workers:.0f} minutes with {workers} workers, then the site"
    return f"{line}; how much faster this GPU is shows in the progress bar; then the site"


def _built(parameters: ReportParameters) -> Path:
    from heads_for_depth.report.making import make_report  # papermill takes a second to import

    started = time.monotonic()

    def announce(text: str) -> None:
        typer.echo(f"[{time.monotonic() - started:6.0f} s] {text}", err=True)

    return make_report(parameters, announce).site / "index.html"
