"""What is measured and for how long: the full benchmark, and a quick one that shows that everything runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from heads_for_depth import paths
from heads_for_depth.experiments import reduced_shape, vision_row
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Shape

BATCH_SIZE = 128


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """One shape whose training is timed."""

    title: str
    shape: Shape


@dataclass(frozen=True, kw_only=True, slots=True)
class Stack:
    """A batch of matrices whose singular values are timed."""

    rows: int
    columns: int
    count: int
    """Matrices in the batch."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """Sizes and durations of one benchmark."""

    results: Path
    """Folder of the run records that the notebook reads, and below which the benchmark's own record goes."""
    quick: bool
    """Whether the sizes show only that everything runs; such numbers mean nothing."""
    repeats: int
    """Rounds of alternation that count; one more comes first and is discarded."""
    subjects: tuple[Subject, ...]
    """The first one is also the one for which memory and the number of workers are measured."""
    warm_up_seconds: float
    """Every process has been training for that long when a window opens."""
    window_seconds: float
    gemm_sizes: tuple[int, ...]
    """Sides of the square matrices whose product gives the machine's peak."""
    trained: Subject
    """The shape that both loops train to the end."""
    recipe: Recipe
    seeds: int
    """Seeds that each loop trains to the end."""
    stacks: tuple[Stack, ...]
    stack_seconds: float
    """Shortest duration over which a stack is timed."""
    kappas: tuple[int, ...]
    """Condition numbers of the matrices that are built to have them exactly; at most 10^14."""
    matrices_per_kappa: int
    notebook_runs: int


def vit(depth: int, heads: int) -> Subject:
    """A ViT of d_model 64 on 28 pixels and patch 7: 16 tokens and the class token."""
    shape = Shape(
        family="vit", depth=(depth,), d_model=(64,), heads=(heads,), mlp_width=(256,),
        image_size=28, patch_size=7, in_chans=1, classes=10,
    )  # fmt: skip
    return Subject(title=f"ViT, {depth} layers, {heads} heads", shape=shape)


def reduced(row: str) -> Subject:
    """The baseline of a reduced vision row."""
    planned = vision_row(row)
    return Subject(title=f"{planned.title}, reduced", shape=reduced_shape(planned, "before", "before"))


def _recipe(train_images: int, epochs: int, evaluation_images: int) -> Recipe:
    return Recipe(
        train_images=train_images,
        epochs=epochs,
        batch_size=BATCH_SIZE,
        learning_rate=2e-3,
        evaluation_images=evaluation_images,
    )


def endless_recipe(train_images: int) -> Recipe:
    """A recipe whose schedule outlasts every window."""
    return Recipe(train_images=train_images, epochs=100_000, batch_size=BATCH_SIZE, learning_rate=1e-3)


def full(repeats: int, results: Path = paths.RESULTS) -> Settings:
    """The benchmark that the report shows; under six minutes on two cores."""
    return Settings(
        results=results,
        quick=False,
        repeats=repeats,
        subjects=(
            *(vit(*shape) for shape in ((6, 8), (6, 2), (2, 32), (2, 64))),
            *(reduced(row) for row in ("xcit-m", "tnt-b", "davit-b")),
        ),
        warm_up_seconds=0.2,
        window_seconds=0.6,
        gemm_sizes=(1024, 2048, 4096),
        trained=vit(2, 32),
        recipe=_recipe(8_192, 3, 2_500),
        seeds=4,
        stacks=(Stack(rows=49, columns=128, count=64), Stack(rows=197, columns=768, count=8)),
        stack_seconds=0.15,
        kappas=tuple(10**power for power in range(0, 15, 2)),
        matrices_per_kappa=16,
        notebook_runs=3,
    )


def quick(repeats: int, results: Path = paths.RESULTS) -> Settings:
    """The same parts at sizes that mean nothing."""
    return Settings(
        results=results,
        quick=True,
        repeats=repeats,
        subjects=(vit(1, 4),),
        warm_up_seconds=0.02,
        window_seconds=0.05,
        gemm_sizes=(128,),
        trained=vit(1, 4),
        recipe=_recipe(256, 1, 128),
        seeds=2,
        stacks=(Stack(rows=17, columns=32, count=4),),
        stack_seconds=0.002,
        kappas=(1, 10**7, 10**14),
        matrices_per_kappa=2,
        notebook_runs=1,
    )
