"""The literature tables of `data/claims/`, as text."""

import pandas as pd

from heads_for_depth.claims.csv_files import read_csv
from heads_for_depth.errors import BadInput
from heads_for_depth.paths import CLAIMS


def table_names() -> list[str]:
    """Names of the literature tables in `data/claims/`."""
    return sorted(path.stem for path in CLAIMS.glob("*.csv"))


def load_table(name: str) -> pd.DataFrame:
    """One literature table as text, one line per row, indexed by its `row` column; an empty cell is the empty text."""
    if name not in table_names():
        raise BadInput("table", name, f"use one of {', '.join(table_names())}")
    path = CLAIMS / f"{name}.csv"
    header, lines = read_csv(path)
    return pd.DataFrame([cells for _, cells in lines], columns=header, dtype=str).set_index("row")
