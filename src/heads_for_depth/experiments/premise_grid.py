"""Question 2: the premises of Theorem 3.2 at full scale, and κ of the reduced models through training."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from heads_for_depth.claims import load_rows
from heads_for_depth.experiments.declaration import Declaration
from heads_for_depth.experiments.rows import VISION_ROWS, VisionRow
from heads_for_depth.experiments.runs import PlannedRun, Source
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import budget
from heads_for_depth.recount import stated_side
from heads_for_depth.shapes import Regime, Shape, with_heads

PREMISE_INPUTS = 2
"""Images over which a full-scale number is a median."""

_ROWS = budget("cpu").recipe
PREMISES = Declaration(
    experiment="premises",
    hypothesis=(
        "Theorem 3.2 of LIT-527 takes the entries of the concatenated head outputs as independent and normal: heads "
        "uncorrelated with each other, columns isotropic, D = h·head_dim well above N. Its prediction "
        "(√D + √N)/(√D − √N) holds where the premises do."
    ),
    rule=(
        "No verdict. Per row, before and after: N, D, D/N, the prediction, measured κ, the correlation between heads "
        "(mean RV coefficient over pairs, d/(d + N + 1) expected of independent normal entries) and isotropy "
        "(participation ratio of the spectrum over its expectation for such entries, 1 where the premises hold). A "
        "number is one draw of the weights: an observation."
    ),
    grid=(
        "Every clean row of LIT-527 and ViT-B as a row of our own at full scale and initialization: the shape before, "
        "the shape after, and the heads after with head_dim as before; ViT-L before. Noise and enlarged images."
    ),
    budget=f"{PREMISE_INPUTS} inputs per shape, float64; minutes on two cores.",
    expected=(
        "The premises fail: attention at initialization averages tokens, so columns share one direction. The "
        "prediction does not move with heads at fixed d_model, since neither N nor D does."
    ),
)
THROUGH_TRAINING = Declaration(
    experiment="conditioning_training",
    hypothesis="More heads keep κ lower not only at initialization but during and after training.",
    rule=(
        "No verdict. κ of the concatenated heads, the projected output, single heads and (first seed) the Jacobian, "
        "before training and after every epoch, with the premises of the theorem; and the ratio of κ of the "
        "concatenated heads at the heads after to that at the heads before, at the same depth, with n: observations."
    ),
    grid="Every cell of the reduced vision rows (first reduction): 24 shapes of four families.",
    budget=(
        f"Recipe and learning rates of the vision rows: {_ROWS.epochs} epochs of {_ROWS.train_images:,} images in "
        f"batches of {_ROWS.batch_size} (profile cpu); about 25 minutes of two cores per seed."
    ),
    expected="Training moves κ by more than the heads of a reshape do, in either direction.",
)


def premise_runs(profile: str) -> list[PlannedRun]:
    """One run per full-scale shape and input; smoke has our own row alone."""
    rows = [row for row in VISION_ROWS if profile != "smoke" or row.name == "vit-own"]
    shapes = [(row.name, *shape) for row in rows for shape in _shapes(row)]
    if profile != "smoke":
        shapes.append(("vit-l", "before", "fixed-d-model", _vit_l()))
    sources: tuple[Source, ...] = ("noise",) if profile == "smoke" else ("noise", "images")
    return [_premise_run(profile, *shape, source) for source in sources for shape in shapes]


def _shapes(row: VisionRow) -> Iterator[tuple[str, Regime, Shape]]:
    """(name, regime, shape): before, after, and the heads after at the head_dim before."""
    yield "before", "fixed-d-model", row.before
    yield "after", "fixed-d-model", row.after
    yield (
        "after-wide",
        "fixed-head-dim",
        replace(with_heads(row.before, row.heads_after, "fixed-head-dim"), depth=row.depth_after),
    )


def _vit_l() -> Shape:
    shape = stated_side(next(claim for claim in load_rows() if claim.row == "vit-l"), "before").shape
    assert isinstance(shape, Shape), "the published ViT-L"
    return shape


def _premise_run(profile: str, row: str, side: str, regime: Regime, shape: Shape, inputs: Source) -> PlannedRun:
    return PlannedRun(
        experiment="premises", run_id=f"{row}.{side}.{inputs}", kind="kappa", profile=profile, row=row, shape=shape,
        parameters=count_parameters(shape), seed=0, regime=regime, inputs=inputs,
        input_count=1 if profile == "smoke" else PREMISE_INPUTS, premises=True, declaration=PREMISES.digest,
    )  # fmt: skip


def training_runs(vision_runs: list[PlannedRun]) -> list[PlannedRun]:
    """The runs of the vision rows once more, with κ after every epoch and the premises."""
    return [
        replace(
            run, experiment=THROUGH_TRAINING.experiment, kappa_times="epochs", premises=True,
            declaration=THROUGH_TRAINING.digest,
        )
        for run in vision_runs
    ]  # fmt: skip
