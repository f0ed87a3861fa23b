"""Question -> the full grid of planned runs, declared before any of them is run.

vision_rows     Question 3. Expected if the claim holds at reduced scale: at every row the reshape (depth after, heads
                after) is non-inferior to the published shape's reduction. Rule, fixed here: test accuracy, Welch's
                one-sided 95 % interval, margin 0.5 points, Holm over the rows, eight seeds per arm, else inconclusive.
                Learning rate per cell by vision_tuning. On two CPU cores the `cpu` profile takes about 70 minutes at
                three seeds per cell.
vision_tuning   The learning rate of every cell of vision_rows, one tuning seed, validation accuracy only.
conditioning    Question 2. Expected from the Gaussian prediction: no effect of heads at fixed d_model beyond the first
                few; at fixed head_dim a peak where h·head_dim meets the token count. About 20 minutes on
                two cores.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Literal

from heads_for_depth.errors import BadInput
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import PROFILES, Budget, Recipe, budget
from heads_for_depth.shapes import Reduction, Regime, Shape, divisors, reduced_heads, scaled_heads, with_heads

Arm = Literal["before", "after"]
ARMS: tuple[Arm, ...] = ("before", "after")
Kind = Literal["train", "kappa"]

TUNING_SEED = 1_000
"""Seed of the tuning runs; disjoint from the seeds 0, 1, 2, … of the table."""
WIDTH_DIVISOR = 8
DEPTH_DIVISOR = 4
REDUCTION: Reduction = "keep-head-dim"
"""The first of the two named reductions: every width divided by 8, XCiT and TNT depths by 4, head_dim kept near."""
KAPPA_INPUTS = 2
"""Inputs over which κ of a full-scale model at initialization is a median."""
Source = Literal["noise", "images"]
"""Network input of a κ measurement: independent normal pixels, or Fashion-MNIST enlarged to the image size."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VisionRow:
    """One published before → after pair with the full-scale shapes on both ends."""

    name: str
    title: str
    before: Shape
    depth_after: tuple[int, ...]
    heads_after: tuple[int, ...]
    published: bool
    """False for a row of our own."""
    heads_published: bool
    """False where LIT-527's heads after the reshape are not in our record and a doubling is assumed."""

    @property
    def after(self) -> Shape:
        """The reshape at full scale, d_model and MLP width as before."""
        return replace(with_heads(self.before, self.heads_after), depth=self.depth_after)


@dataclass(frozen=True, kw_only=True, slots=True)
class PlannedRun:
    """One run: what is built, how it is trained or measured, and the record it will become."""

    experiment: str
    run_id: str
    kind: Kind
    profile: str
    row: str
    shape: Shape
    parameters: int
    """Asserted when the run starts: a typo in a shape must not train."""
    seed: int
    depth_arm: Arm | None = None
    heads_arm: Arm | None = None
    regime: Regime = "fixed-d-model"
    reduction: Reduction | None = None
    recipe: Recipe | None = None
    tuned_by: tuple[str, ...] = ()
    """Run ids of the tuning runs whose best validation accuracy fixes the learning rate."""
    inputs: Source = "images"
    input_count: int = 0
    """Inputs over which κ is a median (kind `kappa`)."""

    def as_dict(self) -> dict[str, Any]:
        """The plan as it stands in the record."""
        names = ("row", "kind", "depth_arm", "heads_arm", "regime", "reduction", "seed", "inputs", "input_count")
        values = {name: getattr(self, name) for name in names}
        recipe = self.recipe.as_dict() if self.recipe else None
        return values | {"shape": self.shape.as_dict(), "recipe": recipe}


def _staged(family: str, depth: tuple[int, ...], d_model: tuple[int, ...], heads: tuple[int, ...]) -> Shape:
    return Shape(family=family, depth=depth, d_model=d_model, heads=heads, mlp_width=tuple(4 * d for d in d_model))


def _row(
    name: str, title: str, before: Shape, depth_after: tuple[int, ...], heads_after: tuple[int, ...], **facts: bool
) -> VisionRow:
    known = {"published": True, "heads_published": True} | facts
    return VisionRow(name=name, title=title, before=before, depth_after=depth_after, heads_after=heads_after, **known)


VISION_ROWS: tuple[VisionRow, ...] = (
    _row("xcit-m", "XCiT-M", _staged("xcit", (24,), (512,), (8,)), (12,), (16,)),
    _row("tnt-b", "TNT-B", _staged("tnt", (12,), (640,), (10,)), (8,), (16,)),
    _row("davit-b", "DaViT-B", _staged("davit", (1, 1, 9, 1), (128, 256, 512, 1024), (4, 8, 16, 32)),
         (1, 1, 5, 1), (8, 16, 32, 64), heads_published=False),
    _row("xcit-l", "XCiT-L", _staged("xcit", (24,), (768,), (16,)), (12,), (24,)),
    _row("davit-l", "DaViT-L", _staged("davit", (1, 1, 9, 1), (192, 384, 768, 1536), (6, 12, 24, 48)),
         (1, 1, 5, 1), (12, 24, 48, 96), heads_published=False),
    _row("vit-own", "ViT-B (our own row)", _staged("vit", (12,), (768,), (12,)), (6,), (24,), published=False),
)  # fmt: skip
"""The five clean rows of LIT-527 and one of our own: ViT-B with XCiT-M's trade, depth halved and heads doubled."""

_SMALL_INPUT: dict[str, dict[str, Any]] = {
    "vit": {"image_size": 28, "patch_size": 7},
    "tnt": {"image_size": 28, "patch_size": 7, "inner_d_model": 20, "inner_heads": 2},
    "xcit": {"image_size": 32, "patch_size": 8},
    "davit": {"image_size": 32, "window": 4},
}
"""Input geometry at reduced scale: 16 patches (4 inner tokens each in TNT), or an 8 × 8 map in DaViT's first stage."""


def vision_row(name: str) -> VisionRow:
    """The row of that name, or BadInput with the names there are."""
    for row in VISION_ROWS:
        if row.name == name:
            return row
    raise BadInput("row", name, f"use one of {', '.join(row.name for row in VISION_ROWS)}")


def reduced_shape(row: VisionRow, depth_arm: Arm, heads_arm: Arm, reduction: Reduction = REDUCTION) -> Shape:
    """One cell of a row's 2 × 2 at reduced scale: depth from one arm, heads from the other."""
    before = row.before
    d_model = tuple(d // WIDTH_DIVISOR for d in before.d_model)
    pair = reduced_heads(before=before.heads[0], after=row.heads_after[0], d_model=before.d_model[0],
                         reduced_d_model=d_model[0], reduction=reduction)  # fmt: skip
    depth = before.depth if depth_arm == "before" else row.depth_after
    proportion = [Fraction(h, before.heads[0]) for h in before.heads]
    heads = tuple(int(pair[heads_arm == "after"] * p) for p in proportion)
    return Shape(
        family=before.family, depth=_reduced_depth(before.family, depth), d_model=d_model, heads=heads,
        mlp_width=tuple(4 * d for d in d_model), in_chans=1, classes=10, **_SMALL_INPUT[before.family],
    )  # fmt: skip


def _reduced_depth(family: str, depth: tuple[int, ...]) -> tuple[int, ...]:
    """XCiT and TNT a quarter; ViT a half; DaViT's 9 → 5 has no smaller whole ratio and stays."""
    divisor = {"xcit": DEPTH_DIVISOR, "tnt": DEPTH_DIVISOR, "vit": 2, "davit": 1}[family]
    if any(blocks % divisor for blocks in depth):
        raise BadInput("depth", depth, f"cannot be divided by {divisor} in {family}")
    return tuple(blocks // divisor for blocks in depth)


def vision_cells() -> list[tuple[VisionRow, Arm, Arm, Shape]]:
    """All cells of all rows, (row, depth arm, heads arm, reduced shape)."""
    arms = [(depth, heads) for depth in ARMS for heads in ARMS]
    return [(row, depth, heads, reduced_shape(row, depth, heads)) for row in VISION_ROWS for depth, heads in arms]


def cell_id(row: str, depth_arm: str, heads_arm: str) -> str:
    """Name of a cell inside run ids: which arm its depth and its heads come from."""
    return f"{row}.depth-{depth_arm}.heads-{heads_arm}"


def plan(profile: str, experiment: str | None = None, seeds: int | None = None) -> list[PlannedRun]:
    """Every run that a profile plans, tuning first, then seed by seed so that a partial sweep is balanced.

    `seeds` overrides the profile's seeds per cell (to top a sweep up). Raises BadInput for an unknown profile or
    experiment.
    """
    if profile not in PROFILES:
        raise BadInput("profile", profile, f"use one of {', '.join(PROFILES)}")
    money = budget(profile)
    if seeds is not None and seeds < 1:
        raise BadInput("seeds", seeds, "must be at least 1")
    grids = {
        "vision_tuning": lambda: _vision_tuning(profile, money),
        "vision_rows": lambda: _vision_rows(profile, money, seeds or money.seeds),
        "conditioning": lambda: _conditioning(profile),
    }
    if experiment is not None and experiment not in grids:
        raise BadInput("experiment", experiment, f"use one of {', '.join(grids)}")
    return [run for name, grid in grids.items() if experiment in (None, name) for run in grid()]


EXPERIMENTS = ("vision_tuning", "vision_rows", "conditioning")


def _vision_tuning(profile: str, money: Budget) -> list[PlannedRun]:
    return [
        PlannedRun(
            experiment="vision_tuning", run_id=_tuning_id(cell_id(row.name, depth, heads), rate), kind="train",
            profile=profile, row=row.name, shape=shape, parameters=count_parameters(shape), seed=TUNING_SEED,
            depth_arm=depth, heads_arm=heads, reduction=REDUCTION, recipe=money.tuning.with_learning_rate(rate),
        )
        for rate in money.learning_rates for row, depth, heads, shape in vision_cells()
    ]  # fmt: skip


def _vision_rows(profile: str, money: Budget, seeds: int) -> list[PlannedRun]:
    return [
        PlannedRun(
            experiment="vision_rows", run_id=f"{cell_id(row.name, depth, heads)}.seed-{seed}", kind="train",
            profile=profile, row=row.name, shape=shape, parameters=count_parameters(shape), seed=seed,
            depth_arm=depth, heads_arm=heads, reduction=REDUCTION, recipe=money.recipe,
            tuned_by=tuple(_tuning_id(cell_id(row.name, depth, heads), rate) for rate in money.learning_rates),
        )
        for seed in range(seeds) for row, depth, heads, shape in vision_cells()
    ]  # fmt: skip


def _tuning_id(cell: str, learning_rate: float) -> str:
    return f"{cell}.rate-{learning_rate:g}"


def _conditioning(profile: str) -> list[PlannedRun]:
    """Noise in both regimes; enlarged images, whose flat background makes tokens alike, at fixed d_model only."""
    kinds: tuple[tuple[Regime, Source], ...] = (
        ("fixed-d-model", "noise"),
        ("fixed-head-dim", "noise"),
        ("fixed-d-model", "images"),
    )
    runs = [run for regime, inputs in kinds for row in VISION_ROWS for run in _head_sweep(profile, row, regime, inputs)]
    if profile == "smoke":
        runs = [run for run in runs if run.row == "vit-own" and run.shape.heads[0] in (1, 12)]
    return runs


def _head_sweep(profile: str, row: VisionRow, regime: Regime, inputs: Source) -> list[PlannedRun]:
    """Full-scale published shape at initialization, one run per head count of the first stage."""
    runs = []
    for first in head_counts(row.before, all_divisors=regime == "fixed-d-model" and inputs == "noise"):
        shape = with_heads(row.before, scaled_heads(row.before, first), regime)
        runs.append(
            PlannedRun(
                experiment="conditioning", run_id=f"{row.name}.{regime}.{inputs}.heads-{first}", kind="kappa",
                profile=profile, row=row.name, shape=shape, parameters=count_parameters(shape), seed=0,
                regime=regime, inputs=inputs, input_count=1 if profile == "smoke" else KAPPA_INPUTS,
            )
        )  # fmt: skip
    return runs


def head_counts(shape: Shape, all_divisors: bool) -> list[int]:
    """Head counts of the first stage that the sweep visits, ascending.

    All divisors of d_model for which the other stages keep their proportion, or only those up to twice the published
    count (at fixed head_dim the inner width, and the cost, grows with them).
    """
    counts = [h for h in divisors(shape.d_model[0]) if all(h * d % shape.heads[0] == 0 for d in shape.heads)]
    return counts if all_divisors else [h for h in counts if h <= 2 * shape.heads[0]]


def estimated_seconds(run: PlannedRun) -> float:
    """Rough core-seconds of a run, from timings of one core of a 2-core machine; for planning, not a measurement."""
    blocks, width = sum(run.shape.depth), run.shape.d_model[0]
    if run.kind == "kappa":
        return 2.0 + run.input_count * run.parameters * 2.5e-8
    assert run.recipe is not None, "a training run has a recipe"
    base, reference = _MILLISECONDS_PER_BLOCK[run.shape.family]
    per_image = base * blocks * (width / reference) ** 1.2 / 1000
    return 8.0 + per_image * run.recipe.epochs * run.recipe.train_images


_MILLISECONDS_PER_BLOCK = {"vit": (0.10, 64), "xcit": (0.20, 64), "tnt": (0.30, 80), "davit": (0.14, 16)}
"""Family -> (milliseconds per image and block, at this d_model of the first stage)."""
