"""`heads-for-depth recount`: does a published shape have its published parameters?"""

import json
import sys
from inspect import cleandoc
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from heads_for_depth.claims import ROWS, load_rows

if TYPE_CHECKING:
    from heads_for_depth.recount import RowRecount, Rule, Search, SideRecount


def register(app: typer.Typer) -> None:
    """Add the command of this module to the application."""
    paragraphs = cleandoc(recount.__doc__ or "").split("\n\n")
    app.command(help="\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs))(recount)


def recount(
    claims: Annotated[
        Path | None,
        typer.Option(
            help="CSV of before → after rows in the format of data/claims/lit527_rows.csv. "
            "[default: the rows of LIT-527]"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print everything, unrounded, as JSON.")] = False,
) -> None:
    """Count the parameters of published shapes and compare them with the published numbers.

    Every row of the claims file names a shape before and after a change, and the parameters that were printed for them.
    Each shape is built at full scale without allocating memory and counted exactly. The verdict is "recounts" where the
    count rounds to the printed number, "within 1 %", "contradicts its stated shape", or "not in the record" where the
    number or a part of the shape is missing. Where a count does not print, changes of depth, MLP width, attention
    inner width and d_model are searched for one that does, and the table says how many would by chance.

    A row needs the columns row, family, depth_before, depth_after, heads_before, heads_after, d_model,
    mlp_width_before, mlp_width_after, params_before_m and params_after_m (millions, digits as printed). Families:
    vit, deit, xcit, tnt, davit, volo, swin, crammed-bert, gpt2. Leave a cell empty where the number is not known; write
    stages as "1,1,9,1".
    """
    rows = load_rows(claims or ROWS)
    from tqdm import tqdm

    from heads_for_depth.recount import recount_row  # imports torch and timm: seconds that a bad file need not cost

    progress = tqdm(rows, desc="Recounting", unit="row", file=sys.stderr, leave=False, disable=None)
    counted = [recount_row(row) for row in progress]
    typer.echo(json.dumps(list(map(_row, counted)), indent=2, ensure_ascii=False) if as_json else _report(counted))


def _report(rows: "list[RowRecount]") -> str:
    """The tables for a terminal."""
    from heads_for_depth.tables.recount import recount_table, rules_table, savings_table

    sections = [("Published and counted parameters", recount_table(rows))]
    rules = rules_table(rows)
    sections += [("Changes of the stated shape that print the published number", rules)] if len(rules) else []
    savings = savings_table(rows)
    sections += [("Share of parameters saved", savings)] if len(savings) else []
    return "\n\n".join(f"{title}\n{frame.to_string(index=False)}" for title, frame in sections)


def _row(row: "RowRecount") -> dict[str, Any]:
    return {
        "row": row.claim.row,
        "title": row.claim.title,
        "family": row.claim.family,
        "status": row.claim.status,
        "before": _side(row.before),
        "after": _side(row.after),
        "published_saving": row.published_saving,
        "stated_saving": row.stated_saving,
    }


def _side(side: "SideRecount") -> dict[str, Any]:
    from heads_for_depth.tables.recount import verdict_of

    return {
        "published_m": None if side.published is None else side.published.text,
        "count": side.count,
        "verdict": str(verdict_of(side)),
        "relative_difference": side.relative_difference,
        "prints_when_cut_off": side.truncates,
        "missing": list(side.stated.missing),
        "holds_for_any_heads": side.stated.any_heads,
        "search": None if side.search is None else _search(side.search),
        "embedding_rows": None if side.embedding is None else [side.embedding.fewest, side.embedding.most],
    }


def _search(search: "Search") -> dict[str, Any]:
    levels = [
        {
            "changes": level.changes,
            "rules": level.rules,
            "hits": level.hits,
            "expected_by_chance": level.expected_by_chance if isfinite(level.expected_by_chance) else None,
        }
        for level in search.levels
    ]
    return {
        "levels": levels,
        "explains": search.beyond_chance,
        "hits": list(map(_rule, search.hits)),
        "nearest": list(map(_rule, search.nearest)),
    }


def _rule(rule: "Rule") -> dict[str, Any]:
    fields = {name: {"stated": stated, "rule": new} for name, (stated, new) in rule.fields.items()}
    return {"words": list(rule.words), "count": rule.count, "fields": fields}
