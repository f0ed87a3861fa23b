"""The sentences of the map's page; each carries its interval and n, or says that it is an observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from statistics import median

from heads_for_depth.experiments.edge_grid import EDGE_ROWS
from heads_for_depth.experiments.map_grid import MAP_ROW, TWICE_ROW
from heads_for_depth.findings.edge import EdgeFinding
from heads_for_depth.findings.exchange import Exchange
from heads_for_depth.findings.map_cells import CellKey, MapCell
from heads_for_depth.findings.map_verdicts import ReshapeFinding
from heads_for_depth.tables.depth_heads import SWEEP_TITLES, seeds_in_words
from heads_for_depth.tables.formatting import signed
from heads_for_depth.tables.vision import with_interval
from heads_for_depth.verdicts import Beyond

NOTHING = "No run of it is recorded yet."


def glued(
    mapped: Mapping[CellKey, MapCell], swept: Mapping[CellKey, MapCell], reshapes: Sequence[ReshapeFinding],
    exchanges: Sequence[Exchange], edges: Sequence[EdgeFinding],
) -> dict[str, str]:  # fmt: skip
    """Every sentence and number that the chapters quote."""
    return {
        "map.coverage": coverage(mapped),
        "map.answer": answer(reshapes),
        "map.exchange": exchange(exchanges),
        "map.edge": edge(edges),
        "map.edge.coverage": edge_coverage(swept),
    }


def coverage(mapped: Mapping[CellKey, MapCell]) -> str:
    """How much of the map is recorded."""
    own, twice = ([cell for key, cell in mapped.items() if key[0] == row] for row in (MAP_ROW, TWICE_ROW))
    failed = sum(cell.failed for cell in mapped.values())
    return f"The map: {seeds_in_words(own)}; at twice the epochs: {seeds_in_words(twice)}; {failed} runs failed."


def answer(reshapes: Sequence[ReshapeFinding]) -> str:
    """What half the depth with more heads does, by the rule."""
    parts = [_answer(finding) for finding in reshapes if finding.difference is not None]
    return " ".join(parts) if parts else f"The two reshapes that carry a verdict are not recorded yet. {NOTHING}"


def _answer(finding: ReshapeFinding) -> str:
    before, after = finding.baseline, finding.reshape
    return (
        f"From depth {before.depth} with {before.heads} heads to depth {after.depth} with {after.heads}: "
        f"{with_interval(finding.difference)} points (two-sided 95 % Welch, n = {finding.verdict.n} per arm), which "
        f"reads “{finding.verdict.verdict}”; against depth {before.depth} with {after.heads} heads as well, "
        f"{with_interval(finding.as_many_heads)}; less depth alone, {with_interval(finding.same_heads)}."
    )


def exchange(found: Sequence[Exchange]) -> str:
    """How many doublings buy a layer."""
    if not found:
        return f"No two neighbouring depths have the declared seeds in every cell. {NOTHING}"
    more = [one for one in found if one.reached and not one.at_most and one.doublings_per_layer > 0]
    missed = [one for one in found if not one.reached]
    middle = median(one.doublings_per_layer for one in found)
    typical = "is not reached" if isinf(middle) else f"is {signed(middle, 2)} doublings per layer given up"
    seeds = sorted({one.n for one in found})
    return (
        f"Of {len(found)} cells, the next smaller depth reaches the same test loss with more heads in {len(more)}, "
        f"with no more heads in {len(found) - len(more) - len(missed)}, and at no head count in {len(missed)}; the "
        f"median {typical} (observation, n = {seeds[0]} to {seeds[-1]}; the interval of each is in the table)."
    )


def edge(findings: Sequence[EdgeFinding]) -> str:
    """Where the practice breaks, sweep by sweep."""
    parts = [_edge(finding) for finding in findings if finding.edge is not None]
    return " ".join(parts) if parts else NOTHING


def _edge(finding: EdgeFinding) -> str:
    found = finding.edge
    assert found is not None, "left out above"
    rest = BEYOND[found.beyond].format(recorded_to=found.recorded_to)
    kind = "" if finding.decided else ", an observation"
    return (
        f"{SWEEP_TITLES[finding.row]}, depth {finding.depth}: the largest head count that holds is {found.heads} "
        f"(head_dim {finding.head_dim}; 95 % interval {found.lower} to {found.upper}), {rest}; "
        f"n = {finding.n} in the cell with the fewest{kind}."
    )


BEYOND = {
    Beyond.NONE: "the most of the sweep, so there is no edge within its range",
    Beyond.BREAKS: "and every larger one is shown to be worse by more than the margin",
    Beyond.NOT_RECORDED: "and nothing beyond {recorded_to} is recorded yet",
    Beyond.UNDETERMINED: "and beyond it the seeds do not decide",
}
"""What lies beyond the edge, as the end of a sentence."""


def edge_coverage(swept: Mapping[CellKey, MapCell]) -> str:
    """How much of the sweeps beside the map is recorded."""
    parts = []
    for row in EDGE_ROWS:
        ours = [cell for key, cell in swept.items() if key[0] == row]
        parts.append(f"{SWEEP_TITLES[row]}: {seeds_in_words(ours)}")
    return "; ".join(parts) + "."
