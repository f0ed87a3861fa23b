"""Tables of the depth × heads map and of its edge."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import isinf
from statistics import fmean

import pandas as pd

from heads_for_depth.conditioning.layers import upper_median
from heads_for_depth.experiments.edge_grid import HEAD_DIM
from heads_for_depth.findings.edge import EdgeFinding
from heads_for_depth.findings.exchange import Exchange
from heads_for_depth.findings.map_cells import CellKey, MapCell
from heads_for_depth.findings.map_verdicts import ReshapeFinding
from heads_for_depth.interventions import TEMPERATURE
from heads_for_depth.tables.formatting import change, signed, signed_percent, span, two_digits, whole
from heads_for_depth.tables.throughput import one_line_at_least
from heads_for_depth.tables.vision import NONE, kappa, mean_and_spread, with_interval
from heads_for_depth.verdicts import Beyond

SWEEP_TITLES = {
    "tokens-17": "17 tokens",
    "tokens-17-fixed-temperature": f"17 tokens, fixed temperature {TEMPERATURE:g}",
    "tokens-17-fixed-head-dim": f"17 tokens, head_dim {HEAD_DIM}",
    "tokens-50": "50 tokens",
}
SHORT_TITLES = {
    "tokens-17": "17 tokens",
    "tokens-17-fixed-temperature": "fixed temperature",
    "tokens-17-fixed-head-dim": f"head_dim {HEAD_DIM}",
    "tokens-50": "50 tokens",
}
CELL_TITLES = SWEEP_TITLES | {"tokens-17-twice": "17 tokens, twice the epochs"}
NOT_REACHED = "not reached"


def reshapes(findings: Sequence[ReshapeFinding]) -> pd.DataFrame:
    """One line per reshape of the map: verdict, difference, and the harder baselines."""
    return one_line_at_least([_reshape_line(finding) for finding in findings], ["reshape"])


def _reshape_line(finding: ReshapeFinding) -> dict[str, str]:
    before, after = finding.baseline, finding.reshape
    depths, heads = (change(str(b), str(a)) for b, a in ((before.depth, after.depth), (before.heads, after.heads)))
    return {
        "reshape": f"depth {depths}, heads {heads}",
        "verdict": str(finding.verdict.verdict),
        "difference [95 %]": with_interval(finding.difference),
        "n": str(finding.verdict.n),
        "parameters": signed_percent(after.parameters / before.parameters - 1),
        "against depth 6 with as many heads": with_interval(finding.as_many_heads),
        "less depth alone": with_interval(finding.same_heads),
    }


def cells(found: Mapping[CellKey, MapCell], rows: Iterable[str]) -> pd.DataFrame:
    """One line per recorded cell of these rows."""
    wanted = set(rows)
    return one_line_at_least(
        [_cell_line(cell) for cell in found.values() if cell.row in wanted and (cell.runs or cell.failed)], ["sweep"]
    )


def _cell_line(cell: MapCell) -> dict[str, str]:
    return {
        "sweep": CELL_TITLES[cell.row],
        "depth": str(cell.depth),
        "heads": str(cell.heads),
        "head_dim": str(cell.shape.head_dims[0]),
        "parameters": whole(cell.parameters),
        "MFLOP": f"{cell.flops / 1e6:.1f}",
        "test accuracy": mean_and_spread(cell.accuracy),
        "test loss": f"{fmean(cell.loss):.4f}" if cell.loss else NONE,
        "train loss": NONE if (loss := cell.mean("train_loss")) is None else f"{loss:.3f}",
        "κ start": _kappa(cell, "initial"),
        "κ middle": _kappa(cell, "middle"),
        "κ end": _kappa(cell, "final"),
        "seconds": NONE if (seconds := cell.mean("seconds")) is None else f"{seconds:.0f}",
        "learning rate": NONE if cell.learning_rate is None else f"{cell.learning_rate:g}",
        "n": str(len(cell.runs) + cell.failed),
        "failed": str(cell.failed),
    }


def _kappa(cell: MapCell, time: str) -> str:
    values = cell.kappas(time)
    return kappa(upper_median(values)) if values else NONE


def exchange(found: Sequence[Exchange]) -> pd.DataFrame:
    """One line per cell that has a shallower depth to give its layers to."""
    return one_line_at_least([_exchange_line(one) for one in found], ["depth"])


def _exchange_line(one: Exchange) -> dict[str, str]:
    return {
        "depth": change(str(one.depth), str(one.shallower)),
        "heads": str(one.heads),
        "doublings per layer [95 %]": exchange_rate(one),
        "n": str(one.n),
    }


def exchange_rate(one: Exchange) -> str:
    """Doublings per layer with the interval; what is not reached says so."""
    if not one.reached:
        return NOT_REACHED if isinf(one.lower) else f"{NOT_REACHED} [{signed(one.lower, 2)}, {NOT_REACHED}]"
    ends = (NOT_REACHED if isinf(end) else signed(end, 2) for end in (one.lower, one.upper))
    bound = "at most " if one.at_most else ""
    return f"{bound}{signed(one.doublings_per_layer, 2)} [{', '.join(ends)}]"


def edges(findings: Sequence[EdgeFinding]) -> pd.DataFrame:
    """One line per sweep and depth: the edge in heads, in head_dim, and against the number of tokens."""
    return one_line_at_least([_edge_line(finding) for finding in findings], ["sweep"])


def _edge_line(finding: EdgeFinding) -> dict[str, str]:
    edge, head_dim = finding.edge, finding.head_dim
    head = {"sweep": SWEEP_TITLES[finding.row], "depth": str(finding.depth)}
    if edge is None or head_dim is None:
        return head | dict.fromkeys(("largest heads that hold", "95 %", "head_dim", "head_dim / tokens"), NONE) | {
            "reads": NONE, "n": str(finding.n),
        }  # fmt: skip
    return head | {
        "largest heads that hold": str(edge.heads) if edge.any_holds else f"none shown, so {edge.heads}",
        "95 %": f"[{edge.lower}, {edge.upper}]",
        "head_dim": str(head_dim),
        "head_dim / tokens": two_digits(head_dim / finding.tokens),
        "reads": edge_reading(finding),
        "n": str(finding.n),
    }


def edge_reading(finding: EdgeFinding) -> str:
    """What the edge of one sweep says, in words."""
    if finding.edge is None:
        return NONE
    beyond = finding.edge.beyond
    word = f"{beyond} {finding.edge.recorded_to}" if beyond is Beyond.TOO_FEW_RUNS else str(beyond)
    return word if finding.decided else f"{word} (observation)"


def seeds_in_words(found: Iterable[MapCell]) -> str:
    """Seeds per cell, and how many of the cells have any: for captions."""
    counts = [len(cell.runs) + cell.failed for cell in found]
    some = [count for count in counts if count]
    if not some:
        return f"none of {len(counts)} cells recorded yet"
    return f"n = {span(some)} seeds per cell, {len(some)} of {len(counts)} cells recorded"
