"""Records of a declared experiment, refused where they were made under other words."""

from __future__ import annotations

from collections.abc import Iterable

from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import DECLARATIONS
from heads_for_depth.records import Record


def declared(records: Iterable[Record], experiment: str) -> list[Record]:
    """The records, each of which carries the digest of the present declaration; BadInput for one that does not."""
    now = DECLARATIONS[experiment].digest
    checked = list(records)
    for record in checked:
        made_under = record["plan"].get("declaration")
        if made_under != now:
            remedy = f"{record['run_id']} was made under another declaration of {experiment} than {now}; run it again"
            raise BadInput("declaration", made_under, remedy)
    return checked
