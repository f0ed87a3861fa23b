"""`verify`: re-train a random sample of the records and compare."""

from __future__ import annotations

import json
import math
import secrets
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from heads_for_depth import paths
from heads_for_depth.errors import BadInput
from heads_for_depth.provenance import stamp
from heads_for_depth.sweeps.workers import available_cores
from heads_for_depth.tables import verification as tables
from heads_for_depth.verification import (
    TOLERANCE,
    NoWorker,
    Verified,
    draw,
    find_records,
    recorded_seconds,
    repetitions,
    retrain,
    seed_noise,
    verify_record,
)

HELP = "Re-train randomly drawn records in a temporary folder and compare; exit 1 where a run differs."


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="verify", help=f"{HELP}\n\n{TOLERANCE}")(verify)


def verify(
    sample: Annotated[int, typer.Option(help="How many records to draw.")],
    seed: Annotated[
        int | None, typer.Option(help="Repeats a draw; default: a new one, printed.", min=0, max=2**32 - 1)
    ] = None,
    profile: Annotated[str, typer.Option(help="Records of this profile: smoke, cpu or gpu.")] = "cpu",
    experiment: Annotated[str | None, typer.Option(help="Only this experiment, e.g. vision_tuning.")] = None,
    results: Annotated[Path, typer.Option(help="Folder of the run records.")] = paths.RESULTS,
    workers: Annotated[int | None, typer.Option(min=1, help="Worker processes; default: all cores.")] = None,
    json_file: Annotated[Path | None, typer.Option("--json", help="Also write every compared number here.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the largest differences beside the records.")] = False,
) -> None:
    """Draw, estimate, re-train, compare."""
    if json_file is not None and not json_file.absolute().parent.is_dir():
        raise BadInput("json", str(json_file), "its folder does not exist, create it or choose another")
    found = find_records(results, profile, experiment)
    seed = secrets.randbelow(2**32) if seed is None else seed
    drawn = draw(found, sample, seed)
    kept = repetitions.place(results, profile, seed) if keep else None
    minutes = recorded_seconds(drawn, workers or len(available_cores())) / 60
    print(f"{sample} of {len(found)} records of profile {profile}, drawn with --seed {seed}")
    print(f"about {minutes:.1f} minutes, by the seconds that the records took where they were made")
    print(TOLERANCE, flush=True)
    lines = _verified(drawn, results, workers)
    print(f"\n{tables.verified(lines).to_string(index=False)}\n\n{tables.tally(lines)}")
    if json_file is not None:
        facts = {"profile": profile, "seed": seed, "drawn": sample, "of": len(found), "tolerance": TOLERANCE}
        json_file.write_text(json.dumps(facts | {"runs": list(map(_plain, lines))}, indent=2, allow_nan=False) + "\n")
    if kept is not None:
        facts = {"profile": profile, "seed": seed, "of": len(found)}
        print(f"\nkept: {_keep(lines, drawn, facts, kept)}")
    if any(line.outcome == "differs" for line in lines):
        raise typer.Exit(1)


def _keep(lines: Sequence[Verified], drawn: Sequence[dict[str, Any]], facts: dict[str, Any], path: Path) -> Path:
    runs = [repetitions.summary(line, record) for line, record in zip(lines, drawn, strict=True)]
    return repetitions.write(repetitions.repetition(facts, runs, stamp("cpu") | {"threads": 1}), path)


def _verified(drawn: Sequence[dict[str, Any]], results: Path, workers: int | None) -> list[Verified]:
    noise = {record["experiment"]: seed_noise(results, record) for record in _one_each(drawn)}
    try:
        made = retrain(drawn, workers)
    except NoWorker as failure:
        typer.echo(f"heads-for-depth: {failure}", err=True)
        raise typer.Exit(1) from failure
    return [
        verify_record(made[record["experiment"], record["run_id"]], record, noise[record["experiment"]])
        for record in drawn
    ]


def _one_each(drawn: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One record of every experiment; all of its runs have the same budget."""
    return list({record["experiment"]: record for record in drawn}.values())


def _plain(line: Verified) -> dict[str, Any]:
    """A line for JSON; an infinite difference is the string "inf"."""
    checks = [
        {name: "inf" if value == math.inf else value for name, value in asdict(check).items()} for check in line.checks
    ]
    return asdict(line) | {"outcome": line.outcome, "checks": checks}
