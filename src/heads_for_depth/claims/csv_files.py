"""CSV files of rows with unique names: header and cells, each with its line, or one sentence on what is wrong."""

import csv
import re
from pathlib import Path

from heads_for_depth.errors import BadInput
from heads_for_depth.paths import ROOT

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*")


def read_csv(path: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Header, and the cells of each row with the line on which it ends; refuses what is no table with unique rows."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader if cells]
    except OSError as error:
        raise BadInput("claims file", shown(path), f"{error.strerror}: give the path of a CSV file") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise BadInput("claims file", shown(path), f"it is no CSV file in UTF-8 ({error}): save it as such") from error
    if len(lines) < 2:
        raise BadInput("claims file", shown(path), "it holds no rows: give a line of column names and at least one row")
    header, body = lines[0][1], lines[1:]
    for line, cells in body:
        if len(cells) != len(header):
            remedy = f"give {len(header)} as the first line does, and quote cells that hold commas"
            raise BadInput(f"{shown(path)}, line {line}, number of cells", len(cells), remedy)
    _check_row_names(path, header, body)
    return header, body


def _check_row_names(path: Path, header: list[str], body: list[tuple[int, list[str]]]) -> None:
    if "row" not in header:
        raise BadInput(f"{shown(path)}, columns", ", ".join(header), "add the column row, a unique name per line")
    seen: dict[str, int] = {}
    for line, cells in body:
        name = cells[header.index("row")]
        if not NAME.fullmatch(name):
            raise bad_cell(path, line, "row", name, "use letters, digits, hyphens and underscores")
        if name in seen:
            raise bad_cell(path, line, "row", name, f"line {seen[name]} has this name, use another")
        seen[name] = line


def bad_cell(path: Path, line: int, column: str, value: str, remedy: str) -> BadInput:
    """The refusal of one cell."""
    return BadInput(f"{shown(path)}, line {line}, column {column}", value, remedy)


def shown(path: Path) -> str:
    """The path as a reader knows it: from the repository's root where it lies there."""
    return path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else str(path)
