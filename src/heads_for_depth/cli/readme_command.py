"""`readme`: write the table of verdicts into README.md from the committed records, or check that it is current."""

from __future__ import annotations

from typing import Annotated

import typer

from heads_for_depth import paths, records
from heads_for_depth.claims import load_rows
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import EXPERIMENTS
from heads_for_depth.findings.conditioning import head_sweeps
from heads_for_depth.findings.vision import vision_findings
from heads_for_depth.recount import recount_rows
from heads_for_depth.tables import provenance, verdicts

BEGIN, END = "<!-- verdicts:begin -->", "<!-- verdicts:end -->"
PROFILE = "cpu"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="readme")(readme)


def readme(
    check: Annotated[bool, typer.Option("--check", help="Change nothing; exit 1 where it is stale.")] = False,
) -> None:
    """Write the first table of README.md from the committed cpu records."""
    path = paths.ROOT / "README.md"
    text = path.read_text("utf-8")
    before, _, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise BadInput("README.md", BEGIN, f"put the table's place between {BEGIN} and {END}")
    current = f"{before}{BEGIN}\n\n{verdict_table()}\n\n{END}{after}"
    if check and current != text:
        print("README.md is stale: run `heads-for-depth readme`")
        raise typer.Exit(1)
    if not check:
        path.write_text(current, "utf-8")


def verdict_table() -> str:
    """The table in Markdown with the hardware below it."""
    found = {name: records.load(paths.RESULTS, PROFILE, name) for name in EXPERIMENTS}
    clean = [claim for claim in load_rows() if claim.status == "clean"]
    recounts = {row.claim.row: row for row in recount_rows(clean, with_search=False)}
    findings = vision_findings(found["vision_rows"], PROFILE)
    second = vision_findings(found["vision_rows_keep_heads"], PROFILE, "vision_rows_keep_heads")
    table = verdicts.verdicts(findings, second, recounts, head_sweeps(found["conditioning"]))
    glued = provenance.glued(found, PROFILE)
    return verdicts.readme(table, glued["provenance.machine"], glued["provenance.date"])
