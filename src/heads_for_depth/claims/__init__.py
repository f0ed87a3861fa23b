"""The published rows as facts: numbers with their printed precision, their places, and gaps left as gaps.

`load_rows` reads a table of before → after rows into checked `Claim`s, the project's own or a user's; `load_table`
reads any table of `data/claims/` as text. An empty cell means that the literature record does not hold the value.
"""

from heads_for_depth.claims.cells import FAMILIES, STAGED_FAMILIES, STATUSES, Printed
from heads_for_depth.claims.rows import ROWS, Claim, load_rows
from heads_for_depth.claims.tables import load_table, table_names

__all__ = [
    "FAMILIES",
    "ROWS",
    "STAGED_FAMILIES",
    "STATUSES",
    "Claim",
    "Printed",
    "load_rows",
    "load_table",
    "table_names",
]
