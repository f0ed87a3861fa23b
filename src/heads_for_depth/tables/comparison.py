"""Two folders of records side by side, for a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pandas as pd

from heads_for_depth.findings.comparison import CellPair, Compared, KappaPair, RowPair, Side
from heads_for_depth.tables.formatting import NONE, stages
from heads_for_depth.tables.vision import with_interval

WORDS = {True: "agrees", False: "differs", None: NONE}
SHOWN_RUNS = 3
"""Run ids named per experiment that one side alone has."""


def header(compared: Compared) -> str:
    """What A and B are, and what can be compared."""
    lines = [_side("A", compared.a), _side("B", compared.b)]
    if not compared.same_profile:
        lines.append("A and B had different budgets: verdicts are compared, accuracies stand side by side only")
    return "\n".join(lines)


def _side(name: str, side: Side) -> str:
    runs = sum(map(len, side.runs.values()))
    made = f"{', '.join(side.devices)}; commit {', '.join(commit[:9] for commit in side.commits)}"
    return f"{name}: {side.results}, profile {side.profile}, {runs} runs, made on {made}"


def rows(compared: Compared) -> pd.DataFrame:
    """One line per row: reshape minus baseline in points with its two-sided 95 % Welch interval, and the verdicts."""
    return pd.DataFrame([_row(pair) for pair in compared.rows])


def _row(pair: RowPair) -> dict[str, str]:
    a, b = pair.a, pair.b
    return {
        "experiment": pair.experiment,
        "row": a.row.title,
        "n A": str(a.verdict.n),
        "n B": str(b.verdict.n),
        "reshape − baseline A": with_interval(a.effects["reshape"]),
        "reshape − baseline B": with_interval(b.effects["reshape"]),
        "verdict A": str(a.verdict.verdict),
        "verdict B": str(b.verdict.verdict),
        "verdicts": WORDS[pair.agrees],
    }


def cells(compared: Compared) -> pd.DataFrame:
    """One line per cell: mean test accuracy in percent on both sides, and whether seeds explain the difference."""
    return pd.DataFrame([_cell(pair) for pair in compared.cells])


def _cell(pair: CellPair) -> dict[str, str]:
    means = (pair.a.mean_accuracy or 0.0, pair.b.mean_accuracy or 0.0)
    return {
        "experiment": pair.experiment,
        "row": pair.row,
        "depth": stages(pair.a.shape.depth),
        "heads": stages(pair.a.shape.heads),
        "n A": str(len(pair.a.accuracy)),
        "n B": str(len(pair.b.accuracy)),
        "accuracy A": f"{means[0]:.2f}",
        "accuracy B": f"{means[1]:.2f}",
        "B − A": NONE if pair.difference is None else with_interval(pair.difference),
        "p, Holm": NONE if pair.p is None else f"{pair.p:.3f}",
        "means": WORDS[pair.agrees],
    }


def kappa(pairs: Sequence[KappaPair]) -> str:
    """The largest relative difference of a κ at initialization, and the one that takes most of its tolerance."""
    checks = [(pair, check) for pair in pairs for check in pair.checks]
    if not checks:
        return "κ at initialization: no run in common that measured it on the same inputs"
    run, largest = max(checks, key=lambda one: one[1].difference)
    measured = f"κ at initialization: {len(checks)} numbers of {len(pairs)} runs"
    if largest.difference == 0:
        return f"{measured}, all equal"
    beyond = sum(not check.agrees for _, check in checks)
    return (
        f"{measured}; the largest relative difference is {largest.difference:.2g} "
        f"({run.experiment}/{run.run_id}, {largest.quantity}: {largest.recorded} in A, "
        f"{largest.here} in B); {beyond} lie beyond the tolerance of rounding"
    )


def only(name: str, runs: Mapping[str, Sequence[str]]) -> str:
    """The runs that one side alone has, per experiment a count and the first few."""
    if not runs:
        return f"only in {name}: nothing"
    return "\n".join(f"only in {name}: {_first(experiment, run_ids)}" for experiment, run_ids in runs.items())


def _first(experiment: str, run_ids: Sequence[str]) -> str:
    more = ", …" if len(run_ids) > SHOWN_RUNS else ""
    return f"{len(run_ids)} of {experiment} ({', '.join(run_ids[:SHOWN_RUNS])}{more})"


def outcome(compared: Compared) -> str:
    """Whether the verdicts agree, and the rows where they do not."""
    if not compared.rows:
        return "verdicts: no row has runs of both arms on both sides"
    if not compared.changed:
        return f"verdicts: all {len(compared.rows)} agree"
    changed = [
        f"{p.a.row.title} of {p.experiment}: {p.a.verdict.verdict} in A, {p.b.verdict.verdict} in B"
        for p in compared.changed
    ]
    return f"verdicts: {len(changed)} of {len(compared.rows)} differ ({'; '.join(changed)})"
