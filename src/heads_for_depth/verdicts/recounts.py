"""What an exact parameter count says about a published number."""

from enum import StrEnum


class RecountVerdict(StrEnum):
    """What an exact parameter count says about a published one."""

    RECOUNTS = "recounts"
    WITHIN_ONE_PERCENT = "within 1 %"
    CONTRADICTS = "contradicts its stated shape"
    NOT_IN_RECORD = "not in the record"


CLOSE_COUNT = 0.01
"""Share of the published parameters by which a count may differ and still read "within 1 %"."""


def recount_verdict(*, prints: bool | None, relative_difference: float | None) -> RecountVerdict:
    """The verdict of an exact count: whether it rounds to the published number, and (counted - published) / published.

    None for both means that the record lacks the published number, or what would be needed to count.
    """
    if prints is None or relative_difference is None:
        return RecountVerdict.NOT_IN_RECORD
    if prints:
        return RecountVerdict.RECOUNTS
    close = abs(relative_difference) <= CLOSE_COUNT
    return RecountVerdict.WITHIN_ONE_PERCENT if close else RecountVerdict.CONTRADICTS
