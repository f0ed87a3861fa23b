"""One full-scale run: what is trained, by which recipe, on which data, and where it is written."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import ARMS, REDUCTION, Arm, PlannedRun, VisionRow, cell_id, reduced_shape, vision_row
from heads_for_depth.full_scale.image_folder import ImageFolder
from heads_for_depth.full_scale.processes import Processes
from heads_for_depth.full_scale.recipe import FullRecipe
from heads_for_depth.models import count_parameters
from heads_for_depth.provenance import check_device
from heads_for_depth.shapes import Shape, with_heads

EXPERIMENT, PROFILE = "full_scale", "full"


@dataclass(frozen=True, kw_only=True, slots=True)
class Job:
    """A run with everything that it needs."""

    run: PlannedRun
    recipe: FullRecipe
    data: ImageFolder
    results: Path
    """Folder of the records."""
    checkpoints: Path
    """Folder of the checkpoints; all machines must see it."""
    device: str
    """`cpu` or `cuda`."""
    workers: int
    """Loader processes of each training process."""
    world_size: int

    def __post_init__(self) -> None:
        size, share = self.recipe.batch_size, self.recipe.batch_size // self.world_size
        if size % self.world_size:
            raise BadInput("batch size", size, f"must be divisible by the {self.world_size} processes")
        if share % 2:
            raise BadInput("batch size", size, f"gives each process {share}, which must be even: mixing takes pairs")
        if size > self.data.train_images:
            raise BadInput("batch size", size, f"there are only {self.data.train_images} training images")

    @property
    def share(self) -> int:
        """Images per process and step."""
        return self.recipe.batch_size // self.world_size

    @property
    def record(self) -> Path:
        """Where the record will lie."""
        return records.path_of(self.results, PROFILE, EXPERIMENT, self.run.run_id)

    @property
    def checkpoint(self) -> Path:
        """Where the checkpoint lies."""
        return self.checkpoints / f"{self.run.run_id}.pt"

    def plan(self) -> dict[str, Any]:
        """The plan as it stands in the record."""
        launch = {"world_size": self.world_size, "batch_per_process": self.share, "workers": self.workers}
        images = {"classes": self.data.classes, "train": self.data.train_images, "val": self.data.validation_images}
        recipe = {"recipe": self.recipe.as_dict(), "overrides": self._overrides()}
        return self.run.as_dict() | recipe | {"images": images, "launch": launch}

    def _overrides(self) -> dict[str, Any]:
        """What differs from the recipe and from the image size of the shape."""
        assert self.run.depth_arm, "a full-scale run takes its depth from an arm"
        assert self.run.heads_arm, "a full-scale run takes its heads from an arm"
        own = _own_shape(vision_row(self.run.row), self.run.depth_arm, self.run.heads_arm, bool(self.run.reduction))
        size = self.run.shape.image_size
        return self.recipe.overrides | ({"image_size": size} if size != own.image_size else {})


def arm_shape(row: VisionRow, depth_arm: Arm, heads_arm: Arm) -> Shape:
    """One cell of a row's 2 × 2 at full scale: depth from one arm, heads from the other, all else as published."""
    heads = row.before.heads if heads_arm == "before" else row.heads_after
    depth = row.before.depth if depth_arm == "before" else row.depth_after
    return replace(with_heads(row.before, heads), depth=depth)


def plan_run(
    row_name: str, depth_arm: str, heads_arm: str, seed: int, *, reduced: bool = False, image_size: int | None = None
) -> PlannedRun:
    """The run of one row, arms and seed, its parameters counted from its shape.

    `reduced` takes the cell's reduced shape, in colour, for a rehearsal; its run id says so. Raises BadInput for an
    unknown row or arm, a negative seed, and an image size that the family cannot take.
    """
    row, depth, heads = vision_row(row_name), _arm("depth arm", depth_arm), _arm("heads arm", heads_arm)
    if seed < 0:
        raise BadInput("seed", seed, "must be at least 0")
    shape = _own_shape(row, depth, heads, reduced)
    if image_size is not None:
        shape = replace(shape, image_size=image_size)
    name = cell_id(row.name, depth, heads) + (".reduced" if reduced else "")
    return PlannedRun(
        experiment=EXPERIMENT, run_id=f"{name}.seed-{seed}", kind="train", profile=PROFILE, row=row.name, shape=shape,
        parameters=count_parameters(shape), seed=seed, depth_arm=depth, heads_arm=heads,
        reduction=REDUCTION if reduced else None,
    )  # fmt: skip


def _own_shape(row: VisionRow, depth_arm: Arm, heads_arm: Arm, reduced: bool) -> Shape:
    if reduced:
        return replace(reduced_shape(row, depth_arm, heads_arm), in_chans=3)
    return arm_shape(row, depth_arm, heads_arm)


def _arm(field: str, name: str) -> Arm:
    for arm in ARMS:
        if arm == name:
            return arm
    raise BadInput(field, name, f"use one of {', '.join(ARMS)}")


def check_hardware(device: str, recipe: FullRecipe, processes: Processes) -> str:
    """The device, checked: it is there, each process has its own GPU, and the precision is its own."""
    check_device(device)
    if device == "cpu":
        return device
    gpus = torch.cuda.device_count()
    if processes.local_rank >= gpus:
        raise BadInput("GPU", processes.local_rank, f"this machine has {gpus}, start one process for each")
    if recipe.precision == "bf16" and not torch.cuda.is_bf16_supported(including_emulation=False):
        raise BadInput("precision", "bf16", f"{torch.cuda.get_device_name()} does not compute in it, use fp32")
    return device
