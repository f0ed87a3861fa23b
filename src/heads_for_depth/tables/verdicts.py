"""The first page's table: every published row with what its recount, its κ and its reduction say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import pandas as pd

from heads_for_depth.findings.conditioning import HeadSweep, Setting
from heads_for_depth.findings.vision import RowFinding
from heads_for_depth.recount import RowRecount
from heads_for_depth.tables.conditioning import PRACTICE, range_ratio
from heads_for_depth.tables.formatting import span
from heads_for_depth.tables.recount import verdict_of
from heads_for_depth.tables.vision import published_change, published_saving, with_interval
from heads_for_depth.verdicts import CauseDecision


def verdicts(
    findings: Sequence[RowFinding], second: Sequence[RowFinding], recounts: Mapping[str, RowRecount],
    sweeps: Mapping[Setting, HeadSweep],
) -> pd.DataFrame:  # fmt: skip
    """One line per published vision row; `second`: those rows that are planned under the second reduction."""
    again = {finding.row.name: finding for finding in second}
    return pd.DataFrame(
        [_line(f, again.get(f.row.name), recounts[f.row.name], sweeps) for f in findings if f.row.name in recounts]
    )


def _line(
    finding: RowFinding, again: RowFinding | None, recount: RowRecount, sweeps: Mapping[Setting, HeadSweep]
) -> dict[str, str]:
    return {
        "row": finding.row.title,
        "verdict": str(finding.verdict.verdict),
        "our difference [95 %]": with_interval(finding.effects["reshape"]),
        "second reduction": "not planned" if again is None else str(again.verdict.verdict),
        "n": span([one.verdict.n for one in (finding, again) if one is not None]),
        "LIT-527: Top-1": published_change(recount.claim),
        "LIT-527: parameters": published_saving(recount.claim),
        "its stated shape": str(verdict_of(recount.after)),
        "κ, after / before": range_ratio(sweeps.get((finding.row.name, *PRACTICE))),
    }


def readme(table: pd.DataFrame, machine: str, date: str) -> str:
    """The README's table of verdicts in Markdown, with the hardware below it."""
    kept = [name for name in table.columns if not name.startswith("κ")]
    lines = ["| " + " | ".join(kept) + " |", "|" + " --- |" * len(kept)]
    lines += ["| " + " | ".join(row) + " |" for row in table[kept].itertuples(index=False)]
    note = (
        "Differences: reshape minus baseline, points of Fashion-MNIST test accuracy at reduced scale, two-sided 95 % "
        "Welch interval over n seeds, not adjusted; the verdict's test is one-sided and Holm-adjusted over the rows. "
        "The first reduction keeps head_dim near the published one; the second, whose verdict stands beside, keeps the "
        "published head counts. "
        f"Trained on {machine}, {date}."
    )
    return "\n".join([*lines, "", note])


def ledger(
    findings: Sequence[RowFinding], second: Sequence[RowFinding], recounts: Mapping[str, RowRecount],
    sweeps: Mapping[Setting, HeadSweep], cause: CauseDecision,
) -> pd.DataFrame:  # fmt: skip
    """The claim taken apart: what LIT-527 says, what was done about it here, and the outcome in numbers."""
    published = [f for f in findings if f.row.name in recounts]
    outcomes = [
        ("The reshapes save parameters at unchanged d_model and MLP width", "stated shapes recounted at full scale",
         _tally(str(verdict_of(recounts[f.row.name].after)) for f in published)),
        ("More heads lower the condition number", "κ over the head counts, d_model fixed, initialization, full scale",
         "κ changes by a factor of " + ", ".join(range_ratio(sweeps.get((f.row.name, *PRACTICE))) for f in published)),
        ("Accuracy holds with fewer layers and more heads", "2 × 2 of depth and heads, reduced scale, from scratch",
         _both([f.verdict.verdict for f in published], [f.verdict.verdict for f in second if f.row.name in recounts])),
        ("The same holds for language models", "recounted and timed at full size; none is trained", "not tested yet"),
        ("Better conditioning is why it works", "interventions on κ at unchanged heads, by a declared rule",
         f"{cause.verdict}: {cause.reason}"),
    ]  # fmt: skip
    return pd.DataFrame(outcomes, columns=["LIT-527 says", "done here", "outcome"])


def _both(first: Sequence[str], second: Sequence[str]) -> str:
    """The verdicts under both reductions, or under the first where the second has no published row."""
    return _tally(first) + (f"; with the published head counts {_tally(second)}" if second else "")


def _tally(words: Iterable[str]) -> str:
    counts = Counter(words)
    return ", ".join(f"{count} of {counts.total()} {word}" for word, count in counts.items())
