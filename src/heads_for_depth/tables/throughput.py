"""What shapes cost in time and memory, and what a reshape saves there beside what it saves in parameters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pandas as pd

from heads_for_depth.benchmark.reading import Ratio
from heads_for_depth.tables.formatting import millions, signed, whole
from heads_for_depth.throughput.reading import QUANTITIES, Comparison, Line, Quantity, Timing, chosen, comparisons
from heads_for_depth.throughput.subjects import RECOUNTING, short_title

NOT_MEASURED = "not measured"
OUT_OF_MEMORY = "out of memory"
HEADINGS: dict[Quantity, str] = {"latency": "latency", "forward": "forward", "training": "training"}
ASSUMED, RECOUNTS = "†", "‡"
"""Mark a shape of which something is assumed, and one that has the published parameters where the stated has not."""


def saved(share: float) -> str:
    """What is saved, in percent; a loss has a sign, and what rounds to zero has none."""
    return f"{_whole_percent(share)} %"


def _whole_percent(share: float) -> str:
    return signed(100 * share, 0).removeprefix("+")


def saved_time(ratio: Ratio | None) -> str:
    """Share of time saved: median over rounds [lowest, highest]."""
    if ratio is None:
        return OUT_OF_MEMORY
    ends = ", ".join(_whole_percent(1 - end) for end in (ratio.highest, ratio.lowest))
    return f"{saved(1 - ratio.median)} [{ends}]"


def name_of(line: Line) -> str:
    """A shape in a table of rows, with its mark."""
    side = "after" if line.subject == RECOUNTING else line.subject
    return f"{short_title(line.title)}, {side}{_mark(line)}"


def reshape_name(line: Line) -> str:
    """A reshape beside its own baseline, with its mark."""
    return short_title(line.title) + _mark(line)


def _mark(line: Line) -> str:
    if line.subject == RECOUNTING:
        return f" {RECOUNTS}"
    return f" {ASSUMED}" if line.assumption else ""


def savings(lines: Sequence[Line]) -> pd.DataFrame:
    """One line per reshape: parameters and time saved against its baseline."""
    return one_line_at_least(
        [
            {"reshape": reshape_name(one.line), "parameters": saved(one.parameters_saved)}
            | {HEADINGS[quantity]: saved_time(one.time(quantity)) for quantity in QUANTITIES}
            for one in comparisons(lines)
        ],
        ["reshape"],
    )


def other_savings(lines: Sequence[Line]) -> pd.DataFrame:
    """One line per reshape: operations and peak memory saved."""
    return one_line_at_least(
        [
            {
                "reshape": reshape_name(one.line),
                "parameters": saved(one.parameters_saved),
                "operations": saved(one.flops_saved),
                "memory, forward": _memory_saved(one, "forward"),
                "memory, training": _memory_saved(one, "training"),
            }
            for one in comparisons(lines)
        ],
        ["reshape"],
    )


def _memory_saved(comparison: Comparison, use: str) -> str:
    share = comparison.memory(use)
    return NOT_MEASURED if share is None else saved(1 - share)


def speeds(lines: Sequence[Line]) -> pd.DataFrame:
    """One line per shape: latency, throughput at its best batch, training step."""
    rows = chosen(lines, lambda line: line.kind == "row")
    return one_line_at_least(
        [
            {
                "shape": name_of(line),
                "latency (ms)": _timed(line, "latency", _milliseconds),
                "per second, forward": _timed(line, "forward", _per_second),
                "per second, training": _timed(line, "training", _per_second),
            }
            for line in rows
        ],
        ["shape"],
    )


def sizes(lines: Sequence[Line]) -> pd.DataFrame:
    """One line per shape: parameters, operations, achieved operations per second, peak memory."""
    rows = chosen(lines, lambda line: line.kind == "row")
    return one_line_at_least(
        [
            {
                "shape": name_of(line),
                "M": millions(line.parameters, 1),
                "GFLOP": f"{line.flops['forward'] / 1e9:.1f}",
                "GFLOP/s": _achieved(line),
                "MB, forward": _megabytes(line.memory["forward"]),
                "MB, training": _megabytes(line.memory["training"]),
            }
            for line in rows
        ],
        ["shape"],
    )


def _timed(line: Line, quantity: Quantity, write: Callable[[Timing], str]) -> str:
    timing = line.timings[quantity]
    return OUT_OF_MEMORY if timing is None else write(timing)


def _milliseconds(timing: Timing) -> str:
    low, high = (1000 * end for end in (min(timing.values), max(timing.values)))
    return f"{_rate(1000 * timing.median)} [{_rate(low)}, {_rate(high)}]"


def _per_second(timing: Timing) -> str:
    low, high = 1 / max(timing.values), 1 / min(timing.values)
    return f"{_rate(timing.per_second)} [{_rate(low)}, {_rate(high)}]"


def _rate(number: float) -> str:
    return f"{number:.1f}" if number < 100 else whole(round(number))


def _achieved(line: Line) -> str:
    speed = line.flops_per_second("forward")
    return OUT_OF_MEMORY if speed is None else whole(round(speed / 1e9))


def _megabytes(size: int | None) -> str:
    return NOT_MEASURED if size is None else whole(round(size / 1e6))


def heads(lines: Sequence[Line], series: str) -> pd.DataFrame:
    """One line per head count of a series: time and memory as multiples of those of the published count."""
    found = {one.line.subject: one for one in comparisons(lines, "heads") if one.line.series == series}
    ours = sorted(chosen(lines, lambda line: line.series == series), key=lambda line: line.heads)
    return one_line_at_least([_heads_row(line, found.get(line.subject)) for line in ours], ["heads"])


def _heads_row(line: Line, comparison: Comparison | None) -> dict[str, str]:
    published = line.subject == line.reference
    times = {
        HEADINGS[quantity]: "1" if published else _multiple(comparison.time(quantity) if comparison else None)
        for quantity in QUANTITIES
    }
    return {
        "heads": f"{line.heads} *" if published else str(line.heads),
        "head_dim": str(line.head_dim),
        **times,
        **{
            f"memory, {use}": "1" if published else _memory_multiple(comparison, use) for use in ("forward", "training")
        },
    }


def _memory_multiple(comparison: Comparison | None, use: str) -> str:
    multiple = None if comparison is None else comparison.memory(use)
    return NOT_MEASURED if multiple is None else f"{multiple:.2f}"


def _multiple(ratio: Ratio | None) -> str:
    return OUT_OF_MEMORY if ratio is None else f"{ratio.median:.2f}"


def one_line_at_least(rows: list[dict[str, str]], first: list[str]) -> pd.DataFrame:
    """The rows; one that says so where there are none."""
    return pd.DataFrame(rows or [{first[0]: NOT_MEASURED}])


def report(lines: Sequence[Line]) -> str:
    """The tables for a terminal, one set per machine and mode."""
    parts = []
    for machine, mode in dict.fromkeys((line.machine, line.mode) for line in lines):
        ours = chosen(lines, lambda line, place=(machine, mode): (line.machine, line.mode) == place)  # type: ignore[misc]
        parts += [f"{machine}, {mode}", *_sections(ours)]
    return "\n\n".join(parts)


def _sections(lines: Sequence[Line]) -> list[str]:
    frames = [speeds(lines), sizes(lines), savings(lines)] if any(line.kind == "row" for line in lines) else []
    frames += [heads(lines, series) for series in dict.fromkeys(o.series for o in lines if o.kind == "heads")]
    return [frame.to_string(index=False) for frame in frames]
