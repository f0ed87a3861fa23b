"""`compare`: two folders of records side by side."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Annotated, Any

import typer

from heads_for_depth.findings.comparison import CellPair, Compared, KappaPair, RowPair, Side, compare_folders
from heads_for_depth.statistics import Difference
from heads_for_depth.tables import comparison as tables


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="compare")(compare)


def compare(
    a: Annotated[Path, typer.Argument(help="Folder of run records, e.g. the committed data/results.")],
    b: Annotated[Path, typer.Argument(help="Another one, e.g. of a fresh sweep.")],
    profile: Annotated[str, typer.Option(help="Profile of the records in A.")] = "cpu",
    profile_b: Annotated[str | None, typer.Option(help="Profile of the records in B; default: that of A.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything, unrounded, as JSON.")] = False,
) -> None:
    """Compare the records of two folders: accuracy per cell, reshape minus baseline and verdict per row, and κ.

    Means of a cell agree where Welch's interval of their difference contains zero, Holm over the cells; across
    profiles the budgets differ and only verdicts are compared. Exit code 0 where all verdicts agree, 1 where one
    differs.
    """
    compared = compare_folders(a, b, profile, profile_b or profile)
    print(json.dumps(_everything(compared), indent=2, ensure_ascii=False) if as_json else report(compared))
    if compared.changed:
        raise typer.Exit(1)


def report(compared: Compared) -> str:
    """The comparison for a terminal."""
    frames = [frame.to_string(index=False) for frame in (tables.rows(compared), tables.cells(compared)) if len(frame)]
    alone = f"{tables.only('A', compared.only_a)}\n{tables.only('B', compared.only_b)}"
    parts = [tables.header(compared), *frames, tables.kappa(compared.kappa), alone, tables.outcome(compared)]
    return "\n\n".join(parts)


def _everything(compared: Compared) -> dict[str, Any]:
    return {
        "a": _side(compared.a),
        "b": _side(compared.b),
        "numbers_compared": compared.same_profile,
        "verdicts_agree": not compared.changed,
        "rows": [_row(pair) for pair in compared.rows],
        "cells": [_cell(pair) for pair in compared.cells],
        "kappa": [_kappa(pair) for pair in compared.kappa],
        "only_a": compared.only_a,
        "only_b": compared.only_b,
    }


def _side(side: Side) -> dict[str, Any]:
    named = {"results": side.results, "profile": side.profile, "runs": sum(map(len, side.runs.values()))}
    return named | {"devices": list(side.devices), "commits": list(side.commits)}


def _row(pair: RowPair) -> dict[str, Any]:
    sides = {
        name: {
            "n": finding.verdict.n,
            "verdict": str(finding.verdict.verdict),
            "difference": _difference(finding.effects["reshape"]),
        }
        for name, finding in (("a", pair.a), ("b", pair.b))
    }
    return {"experiment": pair.experiment, "row": pair.a.row.name, "agrees": pair.agrees} | sides


def _cell(pair: CellPair) -> dict[str, Any]:
    row, depth, heads = pair.a.key
    sides = {name: {"n": len(c.accuracy), "mean": c.mean_accuracy} for name, c in (("a", pair.a), ("b", pair.b))}
    tested = {"difference": _difference(pair.difference), "p_holm": pair.p, "agrees": pair.agrees}
    named = {"experiment": pair.experiment, "row": row, "depth_arm": depth, "heads_arm": heads}
    return named | sides | tested


def _difference(difference: Difference | None) -> dict[str, Any] | None:
    """Points with the two-sided 95 % interval; an unbounded end is null."""
    if difference is None:
        return None
    interval = difference.interval(0.95)
    lower, upper = (end if math.isfinite(end) else None for end in (interval.lower, interval.upper))
    return {"points": difference.difference, "lower": lower, "upper": upper, "method": difference.method}


def _kappa(pair: KappaPair) -> dict[str, Any]:
    worst = max(pair.checks, key=lambda check: check.difference)
    named = {"experiment": pair.experiment, "run_id": pair.run_id, "numbers": len(pair.checks)}
    found = {"quantity": worst.quantity, "a": worst.recorded, "b": worst.here}
    largest = worst.difference if math.isfinite(worst.difference) else "inf"
    return named | {"largest_relative_difference": largest, "beyond_rounding": _beyond(pair)} | found


def _beyond(pair: KappaPair) -> int:
    return sum(not check.agrees for check in pair.checks)
