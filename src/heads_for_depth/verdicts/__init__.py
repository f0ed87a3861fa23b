"""The pre-declared rules: from a count, or from the seeds of two arms, to one of a few fixed words."""

from heads_for_depth.verdicts.recounts import (
    CLOSE_COUNT,
    RecountVerdict,
    recount_verdict,
)
from heads_for_depth.verdicts.reduced_scale import (
    ACCURACY_MARGIN,
    LOSS_MARGIN,
    VISION_METHOD,
    Comparison,
    ReducedScaleVerdict,
    Rule,
    Verdict,
    decide,
)

__all__ = [
    "ACCURACY_MARGIN",
    "CLOSE_COUNT",
    "LOSS_MARGIN",
    "VISION_METHOD",
    "Comparison",
    "RecountVerdict",
    "ReducedScaleVerdict",
    "Rule",
    "Verdict",
    "decide",
    "recount_verdict",
]
