"""Re-train a random sample of records and compare what comes out with them, within a tolerance fixed here.

Same bits. Where the run is repeated on a CPU of the same model, with the same thread count, version of torch and
attention kernel, every number of the metrics and of κ, seconds apart, must come out identical.

Within tolerance. Anywhere else sums are taken in another order, and math libraries round the last bit of the initial
weights differently. The parameter count and the status must be equal all the same. κ at initialization, a forward pass
and a singular value decomposition in float64 of those weights, may differ by a relative 1e-4 (beyond κ = 1e8 by
1e-12·κ) and by one step of the six digits that a record keeps. Training amplifies the last bits, step by step, up to
the size of another seed's difference and no further. So accuracy and loss after the last epoch may differ by three
standard deviations of the difference of two seeds, 3·√2·s, with s pooled over the cells of the same experiment. An
experiment without repeated seeds takes the s of the table that it serves, after as many epochs as its own runs have,
and a profile without them that of the committed vision rows of profile `cpu`. Other numbers of a trained run are not
compared there.
"""

from heads_for_depth.verification.checks import Check, Verified, kappa_checks, verify_record
from heads_for_depth.verification.retraining import NoWorker, draw, find_records, recorded_seconds, retrain
from heads_for_depth.verification.tolerance import TOLERANCE, Margins, same_arithmetic, seed_noise

__all__ = [
    "TOLERANCE",
    "Check",
    "Margins",
    "NoWorker",
    "Verified",
    "draw",
    "find_records",
    "kappa_checks",
    "recorded_seconds",
    "retrain",
    "same_arithmetic",
    "seed_noise",
    "verify_record",
]
