"""What stands around the timings: other machines, published speeds, what is assumed, and what could not be measured."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from heads_for_depth.claims import load_table
from heads_for_depth.tables.formatting import whole
from heads_for_depth.tables.throughput import (
    HEADINGS,
    NOT_MEASURED,
    name_of,
    one_line_at_least,
    reshape_name,
    saved_time,
)
from heads_for_depth.throughput.reading import QUANTITIES, Line, chosen, comparisons
from heads_for_depth.throughput.subjects import not_measured


def elsewhere(lines: Sequence[Line], shown: Sequence[Line]) -> pd.DataFrame:
    """One line per reshape, machine and mode that the page does not show at length: time saved."""
    place = {(line.machine, line.mode) for line in shown}
    others = [one for one in comparisons(lines) if (one.line.machine, one.line.mode) not in place]
    return one_line_at_least(
        [
            {"machine": one.line.machine, "mode": one.line.mode, "reshape": reshape_name(one.line)}
            | {HEADINGS[quantity]: saved_time(one.time(quantity)) for quantity in QUANTITIES}
            for one in others
        ],
        ["machine"],
    )


def literature(lines: Sequence[Line]) -> pd.DataFrame:
    """timm's published speeds of the baselines, and this report's on a GPU where it has measured one."""
    table = load_table("timm_benchmarks")
    titles = {"xcit-m": "XCiT-M", "tnt-b": "TNT-B", "davit-b": "DaViT-B", "xcit-l": "XCiT-L", "davit-l": "DaViT-L",
              "vit-b": "ViT-B", "vit-l": "ViT-L", "deit-b": "DeiT-B"}  # fmt: skip
    on_gpu = {line.series: line for line in lines if line.subject == "before" and _like_timm(line)}
    return one_line_at_least(
        [
            {
                "baseline": title,
                "RTX 3090, forward": _published(table, f"{row}-infer-rtx3090"),
                "RTX 3090, training": _published(table, f"{row}-train-rtx3090"),
                "i9-10940X, forward": _published(table, f"{row}-infer-i9-10940x"),
                "our GPU, forward": _ours(on_gpu.get("vit-own" if row == "vit-b" else row)),
            }
            for row, title in titles.items()
        ],
        ["baseline"],
    )


def _like_timm(line: Line) -> bool:
    """Measured as timm's files are: a GPU in mixed precision, eager."""
    return line.device == "cuda" and line.mode == "bf16, eager"


def _published(table: pd.DataFrame, row: str) -> str:
    return str(table.loc[row, "samples_per_second"]) if row in table.index else "not in timm's files"


def _ours(line: Line | None) -> str:
    timing = None if line is None else line.timings["forward"]
    return NOT_MEASURED if timing is None else whole(round(timing.per_second))


def left_out() -> pd.DataFrame:
    """Sides of published rows that are not measured, and why."""
    return pd.DataFrame([{"row": row, "side": side, "why": why} for row, side, why in not_measured()])


def assumptions(lines: Sequence[Line]) -> pd.DataFrame:
    """One line per shape of which something is not published."""
    assumed = chosen(lines, lambda line: bool(line.assumption))
    return one_line_at_least([{"shape": name_of(line), "assumed": line.assumption} for line in assumed], ["shape"])


def measurements(lines: Sequence[Line]) -> pd.DataFrame:
    """One line per machine and mode."""
    places = dict.fromkeys((line.machine, line.mode) for line in lines)
    return one_line_at_least([_measurement(machine, mode, lines) for machine, mode in places], ["machine"])


def _measurement(machine: str, mode: str, lines: Sequence[Line]) -> dict[str, str]:
    ours = chosen(lines, lambda line: (line.machine, line.mode) == (machine, mode))
    return {
        "machine": machine,
        "mode": mode,
        "shapes": str(len(ours)),
        "out of memory": str(sum(line.status == "out_of_memory" for line in ours)),
        "machine otherwise": "busy" if any(line.busy for line in ours) else "idle",
    }
