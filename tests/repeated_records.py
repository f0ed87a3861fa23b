"""Records of one run carried out more than once."""

import json

from heads_for_depth.records import Record


def without_clocks(record: Record) -> Record:
    """Everything in a record but durations and the date: what a repetition must give again."""
    copied: Record = json.loads(json.dumps(record))
    del copied["seconds"], copied["provenance"]["date"]
    for epoch in copied["metrics"].get("epochs", []):
        del epoch["seconds"], epoch["cpu_seconds"]
    return copied
