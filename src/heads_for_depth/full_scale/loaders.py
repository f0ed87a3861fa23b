"""timm's loaders over the image folders, and its mixing of training images."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from timm.data import Mixup, create_dataset, create_loader  # type: ignore[attr-defined]

from heads_for_depth.full_scale.jobs import Job

SEED_STRIDE = 1_000_003
"""Keeps the orders and streams of different seeds apart."""


def train_loader(job: Job, device: torch.device) -> Any:
    """Augmented batches of this process's share, on the device: float32 images, labels. Drops an incomplete batch."""
    recipe = job.recipe
    return create_loader(
        create_dataset("", root=str(job.data.root), split="train", is_training=True),
        batch_size=job.share, is_training=True, auto_augment=recipe.auto_augment,
        re_prob=recipe.erasing, re_mode="pixel", **_common(job, device),
    )  # fmt: skip


def validation_loader(job: Job, device: torch.device) -> Any:
    """Batches of this process's share of `val`, centre-cropped; the last images are repeated to equal shares."""
    return create_loader(
        create_dataset("", root=str(job.data.root), split="val"),
        batch_size=job.share, crop_pct=job.recipe.crop_fraction, **_common(job, device),
    )  # fmt: skip


def _common(job: Job, device: torch.device) -> dict[str, Any]:
    """Loader processes start anew every epoch, so that their random numbers do too and a resumed run repeats them."""
    shape = job.run.shape
    return {
        "input_size": (shape.in_chans, shape.image_size, shape.image_size),
        "interpolation": job.recipe.interpolation,
        "num_workers": job.workers,
        "persistent_workers": False,
        "distributed": True,
        "pin_memory": device.type == "cuda",
        "device": device,
    }


def validation_share(images: int, rank: int, world_size: int) -> int:
    """Images of this process that are no repetition."""
    return (images - rank + world_size - 1) // world_size


def mixing(job: Job) -> Mixup:
    """Mixup or cutmix of a batch with its reverse; integer labels become smoothed shares of the classes."""
    recipe = job.recipe
    return Mixup(
        mixup_alpha=recipe.mixup,
        cutmix_alpha=recipe.cutmix,
        label_smoothing=recipe.label_smoothing,
        num_classes=job.run.shape.classes,
    )


def order_seed(seed: int, epoch: int) -> int:
    """What shuffles the training images of one epoch, the same for every shape of one seed."""
    return SEED_STRIDE * seed + epoch


def seed_streams(seed: int, rank: int) -> None:
    """Start this process's random numbers: augmentation, erasing, mixing and stochastic depth draw from all three."""
    number = (SEED_STRIDE * seed + rank) % 2**32
    random.seed(number)
    np.random.seed(number)  # noqa: NPY002 (timm mixes with numpy's global generator)
    torch.manual_seed(number)


def stream_states(device: torch.device) -> dict[str, Any]:
    """The state of these random numbers, as plain values and tensors."""
    _, keys, *rest = np.random.get_state()  # noqa: NPY002
    return {
        "python": random.getstate(),
        "numpy": [torch.from_numpy(np.asarray(keys, np.int64)), *rest],
        "torch": torch.get_rng_state(),
        "cuda": torch.cuda.get_rng_state(device) if device.type == "cuda" else None,
    }


def restore_streams(states: dict[str, Any], device: torch.device) -> None:
    """Continue the random numbers where `stream_states` read them."""
    keys, *rest = states["numpy"]
    random.setstate(states["python"])
    np.random.set_state(("MT19937", keys.numpy().astype(np.uint32), *rest))  # noqa: NPY002
    torch.set_rng_state(states["torch"])
    if device.type == "cuda":
        torch.cuda.set_rng_state(states["cuda"], device)
