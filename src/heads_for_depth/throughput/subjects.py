"""What is measured: every published and reshaped shape at full size, and one shape over many head counts."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from typing import Literal

from heads_for_depth.claims import Claim, load_rows
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import VISION_ROWS, VisionRow, reduced_shape
from heads_for_depth.recount import Countable, LanguageShape, recount_row, stated_side
from heads_for_depth.shapes import Shape, divisors, with_heads

Kind = Literal["row", "heads"]

CRAMMED_TOKENS = 128
GPT2_TOKENS = 512
"""Lengths of the texts that are timed; LIT-527's are not in our record."""
DOUBLED = "heads after the reshape doubled"
UNCHANGED = "MLP width after the reshape as before, embedding of the public GPT-2"
STAND_IN = "built as transformers' ModernBERT of the same matrices"
RECOUNTING = "recounting"
"""Name of the subject whose parameters print the published number where those of the stated reshape do not."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One shape."""

    name: str
    """`before`, `after`, `recounting`, or `heads-N`."""
    shape: Countable
    tokens: int = 0
    """Length of a text; 0 for a model of images."""
    assumption: str = ""
    """What of the shape is not in the record."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Series:
    """Shapes that take turns in one run, so that they can be compared."""

    name: str
    title: str
    kind: Kind
    subjects: tuple[Subject, ...]

    @property
    def reference(self) -> str:
        """Name of the subject that the others are compared with."""
        return self.subjects[0].name


EVERY_THIRD = 3
"""Of the head counts, how many are measured where a model is compiled first: one of so many."""


def series_of(profile: str) -> tuple[Series, ...]:
    """Everything that a profile measures; smoke takes small shapes that mean nothing."""
    if profile == "smoke":
        return _smoke()
    claims = {claim.row: claim for claim in load_rows()}
    rows = [_vision(row, claims.get(row.name)) for row in VISION_ROWS]
    single = Series(name="vit-l", title="ViT-L", kind="row", subjects=(_stated(claims["vit-l"], "before"),))
    language = [_crammed_bert(claims["crammed-bert"]), _gpt2(claims["gpt2"])]
    return (*rows, single, *language, *_heads_alone())


def short_title(title: str) -> str:
    """A row's title without the remark that it is ours."""
    return title.removesuffix(" (our own row)")


def thinned(series: Series) -> Series:
    """A third of the head counts, the published one among them; a row as it is. Compiling takes a minute a shape."""
    if series.kind == "row":
        return series
    return replace(series, subjects=(series.subjects[0], *series.subjects[1::EVERY_THIRD]))


def series_named(profile: str, names: Iterable[str]) -> tuple[Series, ...]:
    """The named ones, in the order of the profile; none named means all. Raises BadInput for an unknown name."""
    known = {series.name: series for series in series_of(profile)}
    wanted = list(names)
    for name in wanted:
        if name not in known:
            raise BadInput("row", name, f"use some of {', '.join(known)}")
    return tuple(series for name, series in known.items() if name in wanted or not wanted)


@cache
def not_measured() -> tuple[tuple[str, str, str], ...]:
    """(row, side, reason) for every side of a published row that no series holds."""
    held = {series.name: {subject.name for subject in series.subjects} for series in series_of("cpu")}
    lines = []
    for claim in load_rows():
        for side in ("before", "after"):
            if side not in held.get(claim.row, set()):
                lines.append((claim.title, side, _reason(claim, side)))
    return tuple(lines)


def _reason(claim: Claim, side: Literal["before", "after"]) -> str:
    stated = stated_side(claim, side)
    if stated.shape is None:
        return f"not in the record: {', '.join(name.replace('_', ' ') for name in stated.missing)}"
    same = {"deit-b": "ViT-B", "deit-l": "ViT-L", "vit-b": "ViT-B (our own row)"}[claim.row]
    return f"the shape of {same}"


def _vision(row: VisionRow, claim: Claim | None) -> Series:
    assumption = "" if row.heads_published else DOUBLED
    subjects = [Subject(name="before", shape=row.before), Subject(name="after", shape=row.after, assumption=assumption)]
    if claim is not None:
        subjects += _recounting(claim, row)
    return Series(name=row.name, title=row.title, kind="row", subjects=tuple(subjects))


def _recounting(claim: Claim, row: VisionRow) -> list[Subject]:
    """The shape that has the published parameters, where the stated reshape has not and chance does not explain it."""
    search = recount_row(claim).after.search
    if search is None or not search.beyond_chance or search.best is None:
        return []
    found = search.best.variant.shape
    assert isinstance(found, Shape), "a vision row"
    shape = replace(found, layer_scale=row.before.layer_scale)
    return [Subject(name=RECOUNTING, shape=shape, assumption="; ".join(search.best.words))]


def _stated(claim: Claim, side: Literal["before", "after"], **facts: object) -> Subject:
    shape = stated_side(claim, side).shape
    assert shape is not None, claim.row
    return Subject(name=side, shape=shape, **facts)  # type: ignore[arg-type]


def _crammed_bert(claim: Claim) -> Series:
    sides = [_stated(claim, side, tokens=CRAMMED_TOKENS, assumption=STAND_IN) for side in ("before", "after")]
    return Series(name=claim.row, title=claim.title, kind="row", subjects=tuple(sides))


def _gpt2(claim: Claim) -> Series:
    before = _stated(claim, "before", tokens=GPT2_TOKENS, assumption="embedding of the public GPT-2")
    assert claim.depth_after is not None, claim.row
    assert claim.heads_after is not None, claim.row
    shape = replace(before.shape, depth=claim.depth_after, heads=claim.heads_after)
    after = Subject(name="after", shape=shape, tokens=GPT2_TOKENS, assumption=UNCHANGED)
    return Series(name=claim.row, title=claim.title, kind="row", subjects=(before, after))


def _heads_alone() -> tuple[Series, ...]:
    """ViT-B and XCiT-M at their own depth and width; the published head count comes first."""
    rows = {row.name: row.before for row in VISION_ROWS}
    return (
        _head_counts("heads-vit-b", "ViT-B", rows["vit-own"], divisors(768)),
        _head_counts("heads-xcit-m", "XCiT-M", rows["xcit-m"], divisors(512)),
    )


def _head_counts(name: str, title: str, shape: Shape, counts: Iterable[int]) -> Series:
    ordered = sorted(counts, key=lambda count: (count != shape.heads[0], count))
    subjects = tuple(Subject(name=f"heads-{count}", shape=with_heads(shape, (count,))) for count in ordered)
    return Series(name=name, title=title, kind="heads", subjects=subjects)


def _smoke() -> tuple[Series, ...]:
    own = next(row for row in VISION_ROWS if row.name == "vit-own")
    before, after = reduced_shape(own, "before", "before"), reduced_shape(own, "after", "after")
    text = LanguageShape(
        family="gpt2", depth=(2,), d_model=(32,), heads=(4,), mlp_width=(64,), vocab_size=128, positions=32
    )
    shallow = replace(text, depth=(1,), heads=(8,))
    return (
        Series(name=own.name, title=own.title, kind="row", subjects=_pair(before, after)),
        Series(name="gpt2", title="GPT-2", kind="row", subjects=_pair(text, shallow, tokens=16)),
        _head_counts("heads-vit-b", "ViT-B", before, (1, before.heads[0])),
    )


def _pair(before: Countable, after: Countable, tokens: int = 0) -> tuple[Subject, Subject]:
    return Subject(name="before", shape=before, tokens=tokens), Subject(name="after", shape=after, tokens=tokens)
