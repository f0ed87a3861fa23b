"""Reading a κ table: one dictionary per layer and object, and the layers of one kind taken together."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any


def layer_rows(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """A κ table {"columns", "rows"} as one dictionary per layer and object; "inf" becomes infinity."""
    rows = [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]
    return [{key: math.inf if value == "inf" else value for key, value in row.items()} for row in rows]


def upper_median(values: Sequence[float]) -> float:
    """The median, or the upper one of an even count, so that it is never an average with infinity."""
    return sorted(values)[len(values) // 2]


def is_main(layer: Mapping[str, Any], family: str, davit_kind: str = "window") -> bool:
    """Whether a layer is of the attention that a family's reshape changes.

    XCiT's channel attention, ViT's and TNT's attention between patches, and in DaViT one kind of attention in the third
    stage, the one whose depth changes.
    """
    if family == "davit":
        return bool(layer["kind"] == davit_kind) and str(layer["site"]).startswith("stages.2.")
    return bool(layer["kind"] != "inner")


def main_median(table: Mapping[str, Any], family: str, name: str = "concatenated") -> float | None:
    """Median over layers of κ of one object, in the attention that the family's reshape changes; None without layers.

    For models at reduced scale: in DaViT it is the channel attention of the third stage, whose map is smaller than a
    window there, so that padded windows are rank-deficient by construction. DaViT's Jacobian is that of the first and
    last channel attention, the only ones it is formed for, which lie outside the third stage.
    """
    any_stage = family == "davit" and name == "jacobian"
    layers = [
        row
        for row in layer_rows(table)
        if row["object"] == name and (row["kind"] == "channels" if any_stage else is_main(row, family, "channels"))
    ]
    return upper_median([float(row["condition_number"]) for row in layers]) if layers else None


def by_kind(table: Mapping[str, Any]) -> list[dict[str, Any]]:
    """κ over the layers of one kind, head count, width and object: median and range, in order of appearance."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in layer_rows(table):
        groups.setdefault((row["heads"], row["kind"], row["object"], row["rows"], row["columns"]), []).append(row)
    return [_group(key, rows) for key, rows in groups.items()]


def _group(key: tuple[Any, ...], rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    heads, kind, name, tokens, width = key
    values = [float(row["condition_number"]) for row in rows]
    ends = {"median": upper_median(values), "lowest": min(values), "highest": max(values)}
    plain = {label: "inf" if math.isinf(value) else value for label, value in ends.items()}
    return (
        {"heads": heads, "kind": kind, "object": name, "rows": tokens, "columns": width, "layers": len(rows)}
        | plain
        | {"gaussian": rows[0]["gaussian"]}
    )
