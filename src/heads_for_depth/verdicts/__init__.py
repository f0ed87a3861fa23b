"""The pre-declared rules: from a count, or from the seeds of two arms, to one of a few fixed words."""

from heads_for_depth.verdicts.cause import (
    CauseArm,
    CauseDecision,
    CauseVerdict,
    decide_cause,
    moved_down,
    moved_up,
)
from heads_for_depth.verdicts.edge import Beyond, Edge, HeadCount, find_edge
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
    "Beyond",
    "CauseArm",
    "CauseDecision",
    "CauseVerdict",
    "Comparison",
    "Edge",
    "HeadCount",
    "RecountVerdict",
    "ReducedScaleVerdict",
    "Rule",
    "Verdict",
    "decide",
    "decide_cause",
    "find_edge",
    "moved_down",
    "moved_up",
    "recount_verdict",
]
