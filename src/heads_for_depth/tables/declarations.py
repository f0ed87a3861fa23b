"""What an experiment declared before it ran, beside the commits that fixed it and that made its records."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from heads_for_depth.experiments import Declaration
from heads_for_depth.paths import ROOT
from heads_for_depth.provenance import first_commit_with
from heads_for_depth.records import Record
from heads_for_depth.tables.formatting import whole

FILE = ROOT / "src" / "heads_for_depth" / "experiments" / "declaration.py"
"""Holds the digest of every declaration."""


def declaration(declared: Declaration, records: Sequence[Record]) -> pd.DataFrame:
    """Two columns: what is declared, and its words."""
    lines = {
        "hypothesis": declared.hypothesis,
        "rule": declared.rule,
        "grid": declared.grid,
        "budget": declared.budget,
        "expected": declared.expected,
        "fixed by": _fixed(declared),
        "records": _made(declared, records),
    }
    return pd.DataFrame([{"declared": name, "before the first run": text} for name, text in lines.items()])


def _fixed(declared: Declaration) -> str:
    commit = first_commit_with(declared.digest, FILE)
    known = f"commit {commit}" if commit else "a commit that this copy of the repository does not know"
    return f"{known}, the first that holds the digest `{declared.digest}` of these words"


def _made(declared: Declaration, records: Sequence[Record]) -> str:
    if not records:
        return "none yet"
    alike = sum(record["plan"].get("declaration") == declared.digest for record in records)
    commits = sorted({_short(record["provenance"]["commit"]) for record in records})
    dates = sorted(record["provenance"]["date"][:10] for record in records)
    return (
        f"{whole(len(records))}, {whole(alike)} of them with this digest; made from commit {', '.join(commits)}, "
        f"{dates[0]} to {dates[-1]}"
    )


def _short(commit: str) -> str:
    head, changes, _ = commit.partition("+")
    return head[:10] + (" with local changes" if changes else "")
