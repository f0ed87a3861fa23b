"""The recount as tables and as values for the text."""

from collections.abc import Iterable, Iterator

import pandas as pd

from heads_for_depth.recount import RowRecount, Rule, Search, SideRecount
from heads_for_depth.tables.formatting import (
    MISSING,
    NONE,
    millions,
    percent,
    signed_percent,
    stages,
    two_digits,
    whole,
)
from heads_for_depth.verdicts import RecountVerdict, recount_verdict

NOTHING = "nothing within the search"


def verdict_of(side: SideRecount) -> RecountVerdict:
    """The verdict of one side by the pre-declared rule."""
    return recount_verdict(prints=side.prints, relative_difference=side.relative_difference)


def recount_table(rows: Iterable[RowRecount]) -> pd.DataFrame:
    """Two lines per row, before and after: the stated shape, published and counted millions, verdict."""
    return pd.DataFrame(
        [
            {
                "row": _label(row, side),
                "depth": stages(getattr(row.claim, f"depth_{side.stated.side}")),
                "heads": _heads(row, side),
                "MLP width": stages(getattr(row.claim, f"mlp_width_{side.stated.side}")),
                "published (M)": MISSING if side.published is None else side.published.text,
                "counted (M)": millions(side.count),
                "difference": signed_percent(side.relative_difference),
                "verdict": str(verdict_of(side)),
            }
            for row, side in _sides(rows)
        ]
    )


def recount_data(rows: Iterable[RowRecount]) -> pd.DataFrame:
    """The same lines unrounded."""
    return pd.DataFrame(
        [
            {
                "row": row.claim.row,
                "side": side.stated.side,
                "published_m": None if side.published is None else side.published.text,
                "counted": side.count,
                "relative_difference": side.relative_difference,
                "verdict": str(verdict_of(side)),
            }
            for row, side in _sides(rows)
        ]
    )


def rules_table(rows: Iterable[RowRecount]) -> pd.DataFrame:
    """Every rule that prints a published number which the stated shape does not, and how many chance would give."""
    return pd.DataFrame([line for row, side in _sides(rows) for line in _rule_lines(row, side)])


def nearest_table(rows: Iterable[RowRecount]) -> pd.DataFrame:
    """The rules nearest to each number that its stated shape does not print: those that print it, then the others."""
    return pd.DataFrame(
        [
            {
                "row": _label(row, side),
                "rule": "; ".join(rule.words),
                "changes": whole(rule.changes),
                "counted (M)": millions(rule.count, 3),
                "prints": "yes" if rule in side.search.hits else "no",
            }
            for row, side in _sides(rows)
            if side.search is not None
            for rule in (*side.search.hits, *side.search.nearest)
        ]
    )


def counted_sides(rows: Iterable[RowRecount]) -> pd.DataFrame:
    """What the figure draws: a line for every side that is both published and counted (millions)."""
    return pd.DataFrame(
        [
            {
                "label": _label(row, side),
                "published": side.published.value,
                "counted": side.count / 1e6,
                "prints": side.prints,
                "remark": signed_percent(side.relative_difference),
            }
            for row, side in _sides(rows)
            if side.published is not None and side.count is not None
        ]
    )


def savings_table(rows: Iterable[RowRecount]) -> pd.DataFrame:
    """Parameters saved, as published and as the stated shapes count, for the rows that have either."""
    return pd.DataFrame(
        [
            {
                "row": row.claim.title,
                "status in the record": row.claim.status,
                "saved, published": percent(row.published_saving),
                "saved, stated shapes": percent(row.stated_saving),
            }
            for row in rows
            if row.published_saving is not None or row.stated_saving is not None
        ]
    )


def recount_values(rows: Iterable[RowRecount]) -> dict[str, str]:
    """Text for the prose, keyed `<row>.<side>.<quantity>`, `<row>.saving.<kind>` and `<status>.<side>.<verdict>`."""
    rows = list(rows)
    values: dict[str, str] = {}
    for row, side in _sides(rows):
        values |= {f"{row.claim.row}.{side.stated.side}.{key}": text for key, text in _side_values(row, side).items()}
    for row in rows:
        values[f"{row.claim.row}.saving.published"] = percent(row.published_saving)
        values[f"{row.claim.row}.saving.stated"] = percent(row.stated_saving)
    return values | _tally(rows)


def _sides(rows: Iterable[RowRecount]) -> Iterator[tuple[RowRecount, SideRecount]]:
    for row in rows:
        yield row, row.before
        yield row, row.after


def _label(row: RowRecount, side: SideRecount) -> str:
    return f"{row.claim.title}, {side.stated.side}"


def _hits(found: Search) -> int:
    return sum(level.hits for level in found.levels)


def _heads(row: RowRecount, side: SideRecount) -> str:
    return "any" if side.stated.any_heads else stages(getattr(row.claim, f"heads_{side.stated.side}"))


def _rule_lines(row: RowRecount, side: SideRecount) -> Iterator[dict[str, str]]:
    found = side.search
    if side.published is not None and side.embedding is not None:
        yield _embedding_line(row, side)
    if found is None or side.published is None:
        return
    rules: list[Rule | None] = [*found.hits] or [None]
    for rule in rules:
        yield {
            "row": _label(row, side),
            "published (M)": side.published.text,
            "rule": NOTHING if rule is None else "; ".join(rule.words),
            "counted (M)": NONE if rule is None else millions(rule.count),
            "hits": f"{whole(_hits(found))} of {whole(found.rules)}",
            "hits by chance": two_digits(found.expected_by_chance),
            "reading": _reading(side),
        }


def _embedding_line(row: RowRecount, side: SideRecount) -> dict[str, str]:
    """What the published number says about an embedding that the record does not state."""
    assert side.published is not None
    assert side.embedding is not None
    rows = f"{whole(side.embedding.fewest)} to {whole(side.embedding.most)} embedding rows"
    return {
        "row": _label(row, side),
        "published (M)": side.published.text,
        "rule": f"{rows} (public GPT-2: {whole(side.embedding.public_rows)})",
        "counted (M)": NONE,
        "hits": NONE,
        "hits by chance": NONE,
        "reading": "solved for what the record leaves open",
    }


def _reading(side: SideRecount) -> str:
    assert side.search is not None
    if not side.search.hits:
        return "no explanation found"
    return "explains the number" if side.search.beyond_chance else "no more than chance"


def _side_values(row: RowRecount, side: SideRecount) -> dict[str, str]:
    values = {
        "depth": stages(getattr(row.claim, f"depth_{side.stated.side}")),
        "heads": _heads(row, side),
        "published_m": MISSING if side.published is None else side.published.text,
        "count_m": millions(side.count),
        "count": NONE if side.count is None else whole(side.count),
        "difference": signed_percent(side.relative_difference),
        "verdict": str(verdict_of(side)),
    }
    return values | _search_values(side) | _embedding_values(side)


def _search_values(side: SideRecount) -> dict[str, str]:
    found = side.search
    if found is None:
        return {}
    values = {
        "rules": whole(found.rules),
        "hits": whole(_hits(found)),
        "expected_by_chance": two_digits(found.expected_by_chance),
        "reading": _reading(side),
        "rule": NOTHING if found.best is None else "; ".join(found.best.words),
    }
    for place, rule in enumerate(found.hits, start=1):
        values |= {f"rule_{place}": "; ".join(rule.words), f"rule_{place}_count_m": millions(rule.count, 3)}
    return values


def _embedding_values(side: SideRecount) -> dict[str, str]:
    if side.embedding is None:
        return {}
    return {
        "embedding_fewest": whole(side.embedding.fewest),
        "embedding_most": whole(side.embedding.most),
        "embedding_public": whole(side.embedding.public_rows),
        "public_count_m": millions(side.embedding.public_count),
        "blocks_only_m": millions(side.embedding.blocks_only),
    }


def _tally(rows: list[RowRecount]) -> dict[str, str]:
    """How many sides of each status get each verdict, among those with a published number."""
    tally: dict[str, int] = {}
    for row, side in _sides(rows):
        of = f"{row.claim.status}.{side.stated.side}"
        published = int(side.published is not None)
        tally[f"{of}.published"] = tally.get(f"{of}.published", 0) + published
        for verdict in RecountVerdict:
            key = f"{of}.{verdict.name.lower()}"
            tally[key] = tally.get(key, 0) + published * int(verdict_of(side) is verdict)
    return {key: whole(number) for key, number in tally.items()}
