"""A user's model: any that timm names and the report can read, against itself with another depth and head count."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from heads_for_depth.errors import BadInput
from heads_for_depth.known_models import shape_of
from heads_for_depth.shapes import Shape, scaled_heads, with_heads
from heads_for_depth.throughput.modes import Mode, settings_of
from heads_for_depth.throughput.reading import Line, line_of
from heads_for_depth.throughput.running import check_batches, measure_series
from heads_for_depth.throughput.subjects import Series, Subject

MOST_BLOCKS = 1_000


def measured_model(
    name: str,
    depth: tuple[int, ...] | None,
    heads: int | None,
    batch_sizes: tuple[int, ...] | None,
    modes: Sequence[Mode],
    profile: str,
) -> list[Line]:
    """Measure a timm model, and beside it the same with another depth or head count where one is given.

    Raises BadInput for a name that timm or the report does not know, a depth with another number of stages, heads that
    do not divide the width, and batches whose inputs alone are larger than memory.
    """
    series = _series(name, depth, heads)
    lines = []
    for mode in modes:
        settings = settings_of(profile, mode)
        settings = replace(settings, batch_sizes=tuple(sorted({1, *batch_sizes}))) if batch_sizes else settings
        check_batches([series], settings, mode.device)
        lines += [line_of(record) for record in measure_series(series, mode, settings, profile)]
    return lines


def _series(name: str, depth: tuple[int, ...] | None, heads: int | None) -> Series:
    before = shape_of(name)
    subjects = [Subject(name="before", shape=before)]
    after = reshaped(before, depth, heads)
    if after != before:
        subjects.append(Subject(name="after", shape=after))
    return Series(name=name, title=name, kind="row", subjects=tuple(subjects))


def reshaped(shape: Shape, depth: tuple[int, ...] | None, heads: int | None) -> Shape:
    """The shape with another depth and head count at the same d_model and MLP width."""
    if depth is not None and len(depth) != len(shape.depth):
        raise BadInput("depth", depth, f"give {len(shape.depth)} numbers, one per stage, as in {shape.depth}")
    if depth is not None and max(depth) > MOST_BLOCKS:
        raise BadInput("depth", depth, f"give at most {MOST_BLOCKS} blocks per stage")
    deeper = replace(shape, depth=depth) if depth is not None else shape
    return with_heads(deeper, scaled_heads(deeper, heads)) if heads is not None else deeper
