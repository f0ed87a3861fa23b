"""`parallelism`: one model over several processes of this machine, compared with itself in one process."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any, get_args

import typer

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.recipes import Profile

DEGREES = ["1,2,4"]
DIGITS = 9
LONGEST_SECONDS = 7 * 24 * 3600


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="parallelism")(parallelism)


def parallelism(
    row: Annotated[str, typer.Option(help="Row of the vision table, such as vit-own, or gpt2.")] = "vit-own",
    arm: Annotated[str, typer.Option(help="before or after the reshape.")] = "before",
    reduced: Annotated[
        bool, typer.Option("--reduced", help="A small shape with the published heads, for a quick look.")
    ] = False,
    degree: Annotated[
        list[str], typer.Option(help="Processes that share the model: by commas, or the option again.")
    ] = DEGREES,
    batch: Annotated[int, typer.Option(help="Images or texts in a forward pass.")] = 8,
    tokens: Annotated[int | None, typer.Option(help="Tokens of a text; default: all positions.")] = None,
    repeats: Annotated[int, typer.Option(help="Timed forward passes.")] = 5,
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    timeout: Annotated[float, typer.Option(help="Seconds for one degree.", min=1, max=LONGEST_SECONDS)] = 1800.0,
    profile: Annotated[str, typer.Option(help="Where records go: smoke, cpu or gpu.")] = "cpu",
    results: Annotated[Path | None, typer.Option(help="Folder of the run records; without it nothing is kept.")] = None,
) -> None:
    """Share one model out over processes: largest difference from one process, all-reduces, bytes, median seconds.

    Starts its processes itself, one thread each, or uses those of torchrun. Each degree becomes a record of its own,
    named after the machine, and a record is never written over.
    """
    from heads_for_depth.parallelism import Request, speaks  # DTensor takes seconds
    from heads_for_depth.parallelism.recording import record_of, run_id, subject_of

    subject = subject_of(row, arm, reduced)
    what: dict[str, Any] = {"batch": batch, "tokens": tokens, "repeats": repeats, "device": device, "dtype": dtype}
    requests = [Request(shape=subject.shape, degree=one, **what) for one in _degrees(degree)]
    names = [run_id(subject, request) for request in requests]
    _check_free(results, _profile(profile), names)
    lines = [HEADER]
    for name, request in zip(names, requests, strict=True):
        started = time.perf_counter()
        measured = _measure(request, timeout)
        lines.append(_line(measured))
        if results is not None and speaks():
            records.write(record_of(name, profile, subject, measured, time.perf_counter() - started), results)
    if speaks():
        typer.echo("\n".join(lines))


def _measure(request: Any, timeout_seconds: float) -> dict[str, Any]:
    """One degree; processes that fail end the command."""
    from heads_for_depth import parallelism as package

    what = {field.name: getattr(request, field.name) for field in fields(request)}
    try:
        return package.measure(**what, timeout_seconds=timeout_seconds)
    except package.ProcessesFailed as failure:
        typer.echo(f"heads-for-depth: degree {request.degree}: {failure}", err=True)
        raise typer.Exit(1) from failure


HEADER = f"{'degree':>6}{'difference':>12}{'relative':>10}{'all-reduces':>13}{'bytes':>14}{'seconds':>10}"


def _line(measured: dict[str, Any]) -> str:
    seconds = measured["forward_seconds"]["median"]
    note = "  more processes than cores: no speed" if measured["oversubscribed"] else ""
    return (
        f"{measured['degree']:>6}{measured['largest_difference']:>12.2g}{measured['relative_difference']:>10.2g}"
        f"{measured['all_reduces']:>13}{measured['bytes']:>14,}{seconds:>10.3g}{note}"
    )


def _profile(name: str) -> str:
    known = [profile for profile in get_args(Profile) if profile != "full"]
    if name not in known:
        raise BadInput("profile", name, f"use one of {', '.join(known)}")
    return name


def _degrees(texts: Sequence[str]) -> list[int]:
    """Degrees as they were given, each once."""
    parts = [part.strip() for text in texts for part in text.split(",")]
    if not all(part.isascii() and part.isdecimal() and len(part) <= DIGITS for part in parts):
        given = ",".join(texts)[:60]
        raise BadInput("degree", given, f"give whole numbers of at most {DIGITS} digits, by commas, such as 1,2,4")
    return list(dict.fromkeys(map(int, parts)))


def _check_free(results: Path | None, profile: str, names: Sequence[str]) -> None:
    """Refuse before anything is measured what could not be written afterwards."""
    if results is None:
        return
    from heads_for_depth.parallelism.recording import EXPERIMENT

    records.check_writable(results / profile / EXPERIMENT)
    for name in names:
        path = records.path_of(results, profile, EXPERIMENT, name)
        if path.exists():
            raise BadInput("run_id", name, f"has a record already at {path}")
