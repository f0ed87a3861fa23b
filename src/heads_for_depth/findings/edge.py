"""Question 5, the edge: per depth and sweep, where more heads stop paying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from heads_for_depth.experiments.edge_grid import EDGE_ROWS, HEAD_DIM
from heads_for_depth.experiments.map_grid import MAP_ROW, VERDICT_DEPTHS, VERDICT_SEEDS
from heads_for_depth.findings.map_cells import CellKey, MapCell
from heads_for_depth.verdicts import ACCURACY_MARGIN, Edge, HeadCount, find_edge

SWEEPS = (MAP_ROW, *EDGE_ROWS)
"""The map's own sweep over heads first, then those of experiment `edge`."""
SEED = 109
"""Of the bootstrap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EdgeFinding:
    """One sweep over head counts at one depth."""

    row: str
    depth: int
    tokens: int
    cells: Mapping[int, MapCell]
    """Head count -> its cell, ascending; also those without runs."""
    edge: Edge | None
    """None where fewer than two head counts have two finished runs."""

    @property
    def n(self) -> int:
        """Seeds of the cell that has the fewest, diverged ones included."""
        return min((len(cell.runs) + cell.failed for cell in self.cells.values()), default=0)

    @property
    def decided(self) -> bool:
        """Whether every cell has the declared seeds, diverged ones included, so that the edge is more than seen."""
        return self.edge is not None and self.n >= VERDICT_SEEDS

    @property
    def head_dim(self) -> int | None:
        """Width of a head at the edge."""
        return None if self.edge is None else self.cells[self.edge.heads].shape.head_dims[0]


def tokens_of(cell: MapCell) -> int:
    """Patches and the class token."""
    return (cell.shape.image_size // cell.shape.patch_size) ** 2 + 1


def edge_findings(mapped: Mapping[CellKey, MapCell], swept: Mapping[CellKey, MapCell]) -> list[EdgeFinding]:
    """Every sweep at every verdict depth, deepest first; a sweep that the profile has no cells of is left out."""
    generator = np.random.default_rng(SEED)
    found = []
    for row in SWEEPS:
        for depth in sorted({depth for name, depth, _ in (*mapped, *swept) if name == row}, reverse=True):
            if row != MAP_ROW or depth in VERDICT_DEPTHS:
                found.append(_finding(row, depth, mapped, swept, generator))
    return found


def _finding(
    row: str, depth: int, mapped: Mapping[CellKey, MapCell], swept: Mapping[CellKey, MapCell],
    generator: np.random.Generator,
) -> EdgeFinding:  # fmt: skip
    source = mapped if row == MAP_ROW else swept
    cells = {heads: cell for (name, d, heads), cell in source.items() if (name, d) == (row, depth)}
    if row == "tokens-17-fixed-head-dim" and (MAP_ROW, depth, HEAD_DIM) in mapped:
        cells[HEAD_DIM] = mapped[MAP_ROW, depth, HEAD_DIM]  # d_model / 8 heads is a head_dim of 8 already
    ordered = dict(sorted(cells.items()))
    arms = {heads: cell.accuracy for heads, cell in ordered.items()}
    first = next(iter(ordered.values()))
    return EdgeFinding(
        row=row, depth=depth, tokens=tokens_of(first), cells=ordered,
        edge=find_edge(
            arms, ACCURACY_MARGIN, generator, diverged=[heads for heads, cell in ordered.items() if cell.failed]
        ),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class AcrossFinding:
    """One sweep read against the map's own at one depth, as declared."""

    own: EdgeFinding
    """The map's sweep: 17 tokens, free temperature, fixed d_model."""
    sweep: EdgeFinding
    own_breaks: tuple[int, ...]
    """Head counts that break in the map's own sweep."""
    untested: tuple[int, ...]
    """Those of them that this sweep does not have, or has too few runs of."""
    taken_away: tuple[int, ...]
    """Those of them that hold in this sweep."""
    breaks_only_here: tuple[int, ...]
    """Head counts that hold in the map's own sweep and break in this one."""

    @property
    def decided(self) -> bool:
        """Whether both sweeps have the declared seeds."""
        return self.own.decided and self.sweep.decided


def across_sweeps(findings: Sequence[EdgeFinding]) -> list[AcrossFinding]:
    """Every other sweep against the map's own at the same depth, where both have head counts that were compared."""
    own = {finding.depth: finding for finding in findings if finding.row == MAP_ROW and finding.edge is not None}
    return [
        _across(own[finding.depth], finding)
        for finding in findings
        if finding.row != MAP_ROW and finding.edge is not None and finding.depth in own
    ]


def _across(own: EdgeFinding, sweep: EdgeFinding) -> AcrossFinding:
    here, there = _counts(sweep), _counts(own)
    own_breaks = tuple(heads for heads, count in there.items() if count is HeadCount.BREAKS)
    broken_here = (heads for heads, count in here.items() if count is HeadCount.BREAKS)
    return AcrossFinding(
        own=own,
        sweep=sweep,
        own_breaks=own_breaks,
        untested=tuple(heads for heads in own_breaks if heads not in here),
        taken_away=tuple(heads for heads in own_breaks if here.get(heads) is HeadCount.HOLDS),
        breaks_only_here=tuple(heads for heads in broken_here if there.get(heads) is HeadCount.HOLDS),
    )


def _counts(finding: EdgeFinding) -> Mapping[int, HeadCount]:
    return {} if finding.edge is None else finding.edge.counts
