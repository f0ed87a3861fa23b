"""The sentences of the map's page; each carries its interval and n, or says that it is an observation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isinf
from statistics import fmean

from heads_for_depth.experiments.edge_grid import EDGE_ROWS
from heads_for_depth.experiments.map_grid import MAP_ROW, OTHER_SEEDS, TWICE_ROW
from heads_for_depth.findings.edge import AcrossFinding, EdgeFinding, across_sweeps
from heads_for_depth.findings.exchange import Exchange
from heads_for_depth.findings.map_cells import CellKey, MapCell
from heads_for_depth.findings.map_verdicts import ReshapeFinding
from heads_for_depth.tables.depth_heads import SWEEP_TITLES, seeds_in_words
from heads_for_depth.tables.formatting import signed, span
from heads_for_depth.tables.vision import with_interval
from heads_for_depth.verdicts import Beyond


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
        "map.edge.across": across(across_sweeps(edges)),
        "map.edge.coverage": edge_coverage(swept),
    }


def coverage(mapped: Mapping[CellKey, MapCell]) -> str:
    """How much of the map is recorded."""
    own, twice = ([cell for key, cell in mapped.items() if key[0] == row] for row in (MAP_ROW, TWICE_ROW))
    failed = sum(cell.failed for cell in mapped.values())
    return f"The map: {seeds_in_words(own)}; at twice the epochs: {seeds_in_words(twice)}; {failed} runs failed."


def answer(reshapes: Sequence[ReshapeFinding]) -> str:
    """What half the depth with more heads does, by the rule."""
    if not reshapes:
        return "The map of this profile has none of the reshapes that carry a verdict."
    parts = [_answer(finding) for finding in reshapes if finding.difference is not None or finding.reshape.failed]
    return " ".join(parts) if parts else "The reshapes that carry a verdict do not have two finished runs per arm yet."


def _answer(finding: ReshapeFinding) -> str:
    before, after, difference = finding.baseline, finding.reshape, finding.difference
    n = "" if difference is None else _per_arm(difference.baseline_n, difference.reshape_n)
    measured = "no difference is measured" if difference is None else f"{with_interval(difference)} points ({n})"
    diverged = f" ({after.failed} runs of the reshape diverged)" if after.failed else ""
    return (
        f"From depth {before.depth} with {before.heads} heads to depth {after.depth} with {after.heads}: "
        f"{measured}, which reads “{finding.verdict.verdict}”{diverged}; against depth {before.depth} with "
        f"{after.heads} heads as well, {with_interval(finding.as_many_heads)}; less depth alone, "
        f"{with_interval(finding.same_heads)}."
    )


def _per_arm(baseline: int, reshape: int) -> str:
    count = f"{baseline} per arm" if baseline == reshape else f"{baseline} and {reshape}"
    return f"two-sided 95 % Welch, n = {count}"


def exchange(found: Sequence[Exchange]) -> str:
    """How many doublings buy a layer."""
    if not found:
        return (
            f"The exchange rate needs {OTHER_SEEDS} seeds in every cell of a depth and in one of the next "
            "larger depth, which no two depths have yet."
        )
    more = [one for one in found if one.reached and not one.at_most and one.doublings_per_layer > 0]
    missed = [one for one in found if not one.reached]
    order = sorted(found, key=lambda one: one.doublings_per_layer)
    centre = order[(len(order) - 1) // 2 : len(order) // 2 + 1]
    middle = fmean(one.doublings_per_layer for one in centre)
    bound = "at most " if any(one.at_most for one in centre) else ""
    typical = "is not reached" if isinf(middle) else f"is {bound}{signed(middle, 2)} doublings per layer given up"
    return (
        f"Of {len(found)} cells, the next smaller depth reaches the same test loss with more heads in {len(more)}, "
        f"with no more heads in {len(found) - len(more) - len(missed)}, and at no head count in {len(missed)}; the "
        f"median {typical} (observation, n = {span([one.n for one in found])}; the interval of each is in the table)."
    )


def edge(findings: Sequence[EdgeFinding]) -> str:
    """Where the practice breaks, sweep by sweep."""
    parts = [_edge(finding) for finding in findings if finding.edge is not None]
    return " ".join(parts) if parts else "No sweep over heads has two finished runs at two of its head counts yet."


def _edge(finding: EdgeFinding) -> str:
    found = finding.edge
    assert found is not None, "left out above"
    rest = BEYOND[found.beyond].format(recorded_to=found.recorded_to)
    kind = "" if finding.decided else ", an observation"
    shown = (
        f"the largest head count that holds is {found.heads}" if found.any_holds
        else f"no head count is shown to hold the level of a smaller one, so the edge is the smallest, {found.heads}"
    )  # fmt: skip
    return (
        f"{SWEEP_TITLES[finding.row]}, depth {finding.depth}: {shown} "
        f"(head_dim {finding.head_dim}; 95 % interval {found.lower} to {found.upper}), {rest}; "
        f"n = {finding.n} in the cell with the fewest{kind}."
    )


BEYOND = {
    Beyond.NONE: "the most of the sweep, so there is no edge within its range",
    Beyond.BREAKS: "and every larger one is shown to be worse by more than the margin",
    Beyond.TOO_FEW_RUNS: "and beyond {recorded_to} fewer than two runs are finished",
    Beyond.UNDETERMINED: "and beyond it the seeds do not decide",
}
"""What lies beyond the edge, as the end of a sentence."""


SPEAKS_FOR = {
    "tokens-17-fixed-temperature": "the sharpness of attention",
    "tokens-17-fixed-head-dim": "the width of a head, or for the capacity that grows with it",
    "tokens-50": "head_dim against the length of the sequence",
}
"""Sweep -> what a difference to the map's own speaks for, as declared."""


def across(findings: Sequence[AcrossFinding]) -> str:
    """What every other sweep says about the map's own, depth by depth."""
    parts = [_across(finding) for finding in findings]
    return " ".join(parts) if parts else "No other sweep has head counts yet that can be read against the map's own."


def _across(finding: AcrossFinding) -> str:
    row = finding.sweep.row
    changed = finding.breaks_only_here if row == "tokens-50" else finding.taken_away
    reading = f", which speaks for {SPEAKS_FOR[row]}" if changed else ""
    kind = "" if finding.decided else ", an observation"
    n = min(finding.own.n, finding.sweep.n)
    return (
        f"{SWEEP_TITLES[row]}, depth {finding.sweep.depth}: {_seen_across(finding)}{reading} "
        f"(n = {n} in the cell with the fewest{kind})."
    )


def _seen_across(finding: AcrossFinding) -> str:
    """What changed from the map's own sweep to this one."""
    own, untested = finding.own_breaks, finding.untested
    if finding.sweep.row == "tokens-50":
        return f"of the head counts that hold with 17 tokens, {_counted(finding.breaks_only_here, 'break')} with 50"
    if not own:
        return "no head count is shown to break with 17 tokens, so that there is no break to take away"
    if untested == own:
        return f"the head counts that break with 17 tokens ({_listed(own)}) are not measured here"
    missing = f" ({_listed(untested)} not measured here)" if untested else ""
    held = _counted(finding.taken_away, "hold")
    return f"of the head counts that break with 17 tokens ({_listed(own)}), {held} here{missing}"


def _counted(heads: Sequence[int], what: str) -> str:
    """Which head counts are shown to do something."""
    return f"{_listed(heads)} {what}" if heads else f"none is shown to {what}"


def _listed(heads: Sequence[int]) -> str:
    return f"{', '.join(map(str, heads))} heads"


def edge_coverage(swept: Mapping[CellKey, MapCell]) -> str:
    """How much of the sweeps beside the map is recorded."""
    parts = []
    for row in EDGE_ROWS:
        ours = [cell for key, cell in swept.items() if key[0] == row]
        parts.append(f"{SWEEP_TITLES[row]}: {seeds_in_words(ours)}")
    return "; ".join(parts) + "."
