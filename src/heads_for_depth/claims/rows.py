"""One published before → after pair, and the file that holds many."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from heads_for_depth.claims.cells import (
    FAMILIES,
    STAGED_FAMILIES,
    STATUSES,
    Printed,
    blocks_of,
    choice_of,
    printed_of,
    stages_of,
    text_of,
    whole_of,
)
from heads_for_depth.claims.csv_files import bad_cell, read_csv, shown
from heads_for_depth.errors import BadInput
from heads_for_depth.paths import CLAIMS

ROWS = CLAIMS / "lit527_rows.csv"
"""The before → after rows of LIT-527."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """One published before → after pair; None and the empty text mean "not in the record"."""

    row: str
    """Unique name, used in addresses."""
    family: str
    """One of FAMILIES."""
    title: str = ""
    status: str = "user"
    """One of STATUSES."""
    depth_before: tuple[int, ...] | None
    """Blocks, one entry per stage; likewise the other tuples."""
    depth_after: tuple[int, ...] | None
    heads_before: tuple[int, ...] | None
    heads_after: tuple[int, ...] | None
    d_model: tuple[int, ...] | None
    mlp_width_before: tuple[int, ...] | None
    mlp_width_after: tuple[int, ...] | None
    head_dim_before: tuple[int, ...] | None = None
    """Width of one head where the row states it; otherwise d_model / heads."""
    head_dim_after: tuple[int, ...] | None = None
    image_size: int | None = None
    patch_size: int | None = None
    classes: int | None = None
    inner_d_model: int | None = None
    """TNT: width of the pixel tokens inside a patch."""
    vocab_size: int | None = None
    positions: int | None = None
    """Rows of a learned position table."""
    score_before: Printed | None = None
    score_after: Printed | None = None
    score_name: str = ""
    params_before_m: Printed | None
    """Millions of parameters, as printed."""
    params_after_m: Printed | None
    source: str = ""
    place: str = ""
    """Where in the source or in the literature record the row stands."""
    shape_source: str = ""
    """Where the numbers come from that complete the shape and that the source does not state."""
    note: str = ""


STAGE_COLUMNS = (
    "depth_before", "depth_after", "heads_before", "heads_after", "d_model",
    "mlp_width_before", "mlp_width_after", "head_dim_before", "head_dim_after",
)  # fmt: skip
WHOLE_COLUMNS = ("image_size", "patch_size", "classes", "inner_d_model", "vocab_size", "positions")
PRINTED_COLUMNS = ("score_before", "score_after", "params_before_m", "params_after_m")
REQUIRED = ("row", "family", *STAGE_COLUMNS[:7], "params_before_m", "params_after_m")
PARSERS: dict[str, Callable[[str], Any]] = {
    **{field.name: text_of for field in fields(Claim)},
    **dict.fromkeys(STAGE_COLUMNS, stages_of),
    **dict.fromkeys(STAGE_COLUMNS[:2], blocks_of),
    **dict.fromkeys(WHOLE_COLUMNS, whole_of),
    **dict.fromkeys(PRINTED_COLUMNS, printed_of),
    "family": choice_of(FAMILIES),
    "status": choice_of(STATUSES, default="user"),
}


def load_rows(path: Path = ROWS) -> list[Claim]:
    """The claims of a CSV file, checked cell by cell.

    Needs the columns that have no default in `Claim`; their cells may be empty except `row` and `family`. Raises
    BadInput naming file, line, column, value and remedy for an unknown or missing column, a malformed cell, an unknown
    family or status, a number of stages that the family cannot have, a repeated row.
    """
    header, lines = read_csv(path)
    _check_columns(path, header)
    return [_claim(path, line, dict(zip(header, cells, strict=True))) for line, cells in lines]


def _check_columns(path: Path, header: list[str]) -> None:
    known = [field.name for field in fields(Claim)]
    for place, name in enumerate(header):
        if name not in known:
            raise BadInput(f"{shown(path)}, line 1, column {place + 1}", name, f"the columns are {', '.join(known)}")
        if name in header[:place]:
            raise BadInput(f"{shown(path)}, line 1, column {place + 1}", name, "it stands there twice, remove one")
    for name in REQUIRED:
        if name not in header:
            remedy = f"add the column {name}; its cells may be empty where the number is not known"
            raise BadInput(f"{shown(path)}, line 1, columns", ", ".join(header), remedy)


def _claim(path: Path, line: int, cells: dict[str, str]) -> Claim:
    values: dict[str, Any] = {}
    for column, text in cells.items():
        try:
            values[column] = PARSERS[column](text)
        except ValueError as error:
            raise bad_cell(path, line, column, text, str(error)) from None
    if not values.get("title"):
        values["title"] = values["row"]
    claim = Claim(**{column: value for column, value in values.items() if value != ""})
    _check_stages(path, line, claim, cells)
    return claim


def _check_stages(path: Path, line: int, claim: Claim, cells: dict[str, str]) -> None:
    expected = None if claim.family in STAGED_FAMILIES else 1
    for column in STAGE_COLUMNS:
        value = getattr(claim, column)
        if value is None:
            continue
        if claim.family in STAGED_FAMILIES and len(value) == 1:
            remedy = f'{claim.family} has stages, give one number per stage, such as "1,1,9,1"'
            raise bad_cell(path, line, column, cells[column], remedy)
        if expected is not None and len(value) != expected:
            entries = "one number" if expected == 1 else f"{expected} numbers, one per stage"
            raise bad_cell(path, line, column, cells[column], f"give {entries} for this {claim.family} row")
        expected = len(value)
