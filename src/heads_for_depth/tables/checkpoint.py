"""κ of a checkpoint that the reader has, as a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd

from heads_for_depth.conditioning.checkpoint import NO_CHECKPOINT, checkpoint_lines
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import Source
from heads_for_depth.tables.formatting import NONE as NO_NUMBER
from heads_for_depth.tables.vision import kappa


def checkpoint_table(folder: object) -> pd.DataFrame:
    """One line per input, kind of attention and object; one that says so where no folder is given.

    Raises BadInput for anything that is no path of a timm checkpoint.
    """
    if folder is None:
        return pd.DataFrame([{"model": NO_CHECKPOINT}])
    if not isinstance(folder, str) or not folder:
        raise BadInput("checkpoint", folder, "give the path of a folder that timm saved, or leave it out")
    sources: tuple[Source, ...] = ("noise", "images")
    return pd.DataFrame(
        [
            _line(Path(folder).name, source, line)
            for source in sources
            for line in checkpoint_lines(Path(folder), source=source)
        ]
    )


def _line(name: str, source: str, line: dict[str, Any]) -> dict[str, str]:
    numbers = {key: kappa(float(line[key])) for key in ("median", "lowest", "highest")}
    return (
        {"model": name, "input": source, "attention": line["kind"], "object": line["object"]}
        | {"heads": str(line["heads"]), "N × D": f"{line['rows']} × {line['columns']}", "layers": str(line["layers"])}
        | {"κ": numbers["median"], "range": f"[{numbers['lowest']}, {numbers['highest']}]"}
        | {"Gaussian": NO_NUMBER if line["gaussian"] is None else kappa(line["gaussian"])}
    )
