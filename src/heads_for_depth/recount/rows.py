"""The recount of whole rows."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from decimal import Decimal

from heads_for_depth.claims import Claim, Printed
from heads_for_depth.errors import BadInput
from heads_for_depth.recount.counts import Variant, exact_count
from heads_for_depth.recount.language import MILLION, EmbeddingRows, LanguageShape, embedding_rows
from heads_for_depth.recount.search import Search, search
from heads_for_depth.recount.stated import StatedSide, stated_side


@dataclass(frozen=True, kw_only=True, slots=True)
class SideRecount:
    """One side of a row: published, counted, and what explains the difference."""

    stated: StatedSide
    published: Printed | None
    """Millions of parameters; None where the record holds none."""
    count: int | None
    """Exact parameters of the stated shape; None where the record does not fix it."""
    search: Search | None = None
    """The rule search, where the stated shape does not print the published number."""
    embedding: EmbeddingRows | None = None
    """Where the vocabulary is not in the record: the embeddings that would print the published number."""

    @property
    def prints(self) -> bool | None:
        """Whether the count rounds to the published number; None where either is missing."""
        if self.published is None or self.count is None:
            return None
        return self.published.prints(Decimal(self.count) / MILLION)

    @property
    def truncates(self) -> bool | None:
        """Whether the count gives the published number when further digits are cut off."""
        if self.published is None or self.count is None:
            return None
        return self.published.truncates(Decimal(self.count) / MILLION)

    @property
    def relative_difference(self) -> float | None:
        """(counted - published) / published; None where either is missing."""
        if self.published is None or self.count is None:
            return None
        return self.count / MILLION / self.published.value - 1


@dataclass(frozen=True, kw_only=True, slots=True)
class RowRecount:
    """A published row with both of its sides recounted."""

    claim: Claim
    before: SideRecount
    after: SideRecount

    @property
    def published_saving(self) -> float | None:
        """Share of parameters saved, from the published numbers."""
        before, after = self.before.published, self.after.published
        return None if before is None or after is None else 1 - after.value / before.value

    @property
    def stated_saving(self) -> float | None:
        """Share of parameters saved by the stated shapes, as counted."""
        before, after = self.before.count, self.after.count
        return None if before is None or after is None else 1 - after / before


def recount_rows(claims: Iterable[Claim], *, with_search: bool = True) -> Iterator[RowRecount]:
    """Recount rows one by one; the first use of a family costs seconds, its further counts little."""
    for claim in claims:
        yield recount_row(claim, with_search=with_search)


def recount_row(claim: Claim, *, with_search: bool = True) -> RowRecount:
    """Count both sides of a row and, where a count does not print the published number, search for a rule that does.

    Raises BadInput, naming row and field, where the stated numbers make no shape.
    """
    before, after = stated_side(claim, "before"), stated_side(claim, "after")
    try:
        return RowRecount(
            claim=claim,
            before=_recount_side(before, after, claim.params_before_m, with_search),
            after=_recount_side(after, before, claim.params_after_m, with_search),
        )
    except BadInput as error:
        raise BadInput(f"row {claim.row}, {error.field}", error.value, error.remedy) from None


def _recount_side(side: StatedSide, other: StatedSide, published: Printed | None, with_search: bool) -> SideRecount:
    if side.shape is None:
        return SideRecount(stated=side, published=published, count=None)
    if side.open_vocabulary:
        fits = published is not None and isinstance(side.shape, LanguageShape)
        embedding = embedding_rows(side.shape, published) if fits else None  # type: ignore[arg-type]
        return SideRecount(stated=side, published=published, count=None, embedding=embedding)
    counted = SideRecount(stated=side, published=published, count=exact_count(Variant(shape=side.shape)))
    if not with_search or published is None or counted.prints is not False:
        return counted
    found = search(side.shape, other.shape, published)
    return SideRecount(stated=side, published=published, count=counted.count, search=found)
