"""`bench`: the engine beside the loop that a user would write, on this machine."""

from __future__ import annotations

from concurrent.futures import BrokenExecutor
from pathlib import Path
from typing import Annotated, Any

import typer

from heads_for_depth import paths, records
from heads_for_depth.errors import BadInput

FEWEST_ROUNDS = 3


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="bench")(bench)


def bench(
    results: Annotated[
        Path, typer.Option(help="Folder of the run records; the benchmark goes below it, into benchmarks/.")
    ] = paths.RESULTS,
    repeats: Annotated[int, typer.Option(help="Rounds in which the arms take turns, at least 3.")] = 5,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes: shows that everything runs.")] = False,
    only: Annotated[
        str | None,
        typer.Option(help="Parts, by commas: training, profile, accuracy, workers, spectra, notebook."),
    ] = None,
) -> None:
    """Measure training, condition numbers and a notebook side by side with plain code; medians, ratios, spread.

    Takes under six minutes on two cores. Let nothing else run: the load is recorded. Every benchmark is a file of its
    own, and the newest complete one is what the page on costs shows.
    """
    from heads_for_depth.benchmark import files, notebook, running, settings  # torchvision and papermill take seconds

    if repeats < FEWEST_ROUNDS:
        raise BadInput("repeats", repeats, f"give at least {FEWEST_ROUNDS}, so that a median stands between two others")
    names = _parts(only, tuple(running.PARTS))
    records.check_writable(results / files.FOLDER)
    if "notebook" in names:
        notebook.check(results)
    sizes = settings.quick if quick else settings.full
    try:
        record = running.run(sizes(repeats, results), names)
    except BrokenExecutor as error:
        typer.echo(
            "heads-for-depth: a worker process was killed, perhaps for want of memory; nothing written", err=True
        )
        raise typer.Exit(1) from error
    path = files.write(record, results)
    typer.echo(report(record))
    typer.echo(f"\nRecord: {path}")


def _parts(only: str | None, known: tuple[str, ...]) -> list[str]:
    """The parts to run, in their own order."""
    if only is None:
        return list(known)
    asked = [name.strip() for name in only.split(",")]
    unknown = [name for name in asked if name not in known]
    if unknown:
        raise BadInput("only", unknown[0], f"use some of {', '.join(known)}, separated by commas")
    return [name for name in known if name in asked]


def report(record: dict[str, Any]) -> str:
    """The tables for a terminal: those of the parts that ran."""
    from heads_for_depth.tables import cost_spectra, cost_values, costs

    tables = {
        "training": [
            ("Training images per second", costs.training),
            ("Share of the machine's peak", costs.peak_shares),
            ("Memory", costs.memory),
        ],
        "profile": [("Where a training step goes", costs.profile)],
        "accuracy": [("Trained to the end", costs.accuracy)],
        "workers": [("Number of workers", costs.workers)],
        "spectra": [("Condition numbers", cost_spectra.speed), ("Largest relative errors of κ", cost_spectra.errors)],
    }
    shown = [entry for name in record["parts"] for entry in tables.get(name, [])]
    sections = [f"{title}\n{table(record).to_string(index=False)}" for title, table in shown]
    said = [text for text in cost_values.sentences(record).values() if text != cost_values.LEFT_OUT]
    quick = ["Quick sizes: these numbers mean nothing."] if record["quick"] else []
    return "\n\n".join([*quick, *sections, "\n".join(said)])
