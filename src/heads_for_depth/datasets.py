"""Fashion-MNIST from the repository's own files: checksums verified, fully in memory, fixed splits."""

from __future__ import annotations

import gzip
import hashlib
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Bool, Float, Int, UInt8
from torch import Tensor
from torch.nn import functional

from heads_for_depth import paths
from heads_for_depth.errors import BadInput

MD5 = {
    "train-images-idx3-ubyte.gz": "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "train-labels-idx1-ubyte.gz": "25c81989df183df01b3e8a0aad5dffbe",
    "t10k-images-idx3-ubyte.gz": "bef4ecab320f06d8554ea6380940ec79",
    "t10k-labels-idx1-ubyte.gz": "bb300cfdad3c16e7a12a480ee83cd310",
}
"""The checksums that torchvision publishes for the four original files."""

VALIDATION_IMAGES = 5_000
SPLIT_SEED = 527
PIXEL_MEAN, PIXEL_STD = 0.2860, 0.3530
"""Mean and standard deviation of the 60,000 training images, pixels scaled to [0, 1]."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Split:
    """Images and labels of one split, in memory."""

    images: UInt8[Tensor, "n height width"]
    labels: Int[Tensor, "n"]

    def __len__(self) -> int:
        return len(self.labels)

    def first(self, count: int) -> Split:
        """The first `count` examples: a smaller training set for a smaller budget."""
        if count > len(self):
            raise BadInput("images", count, f"the split has {len(self)}")
        return Split(images=self.images[:count], labels=self.labels[:count])


@cache
def fashion_mnist(folder: Path = paths.FASHION_MNIST) -> dict[str, Split]:
    """Splits `train` (55,000 images), `validation` (5,000, from the training files) and `test` (10,000).

    Raises BadInput where a file is missing or its MD5 is not the published one.
    """
    images, labels = (_read(folder / f"train-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1"))
    test_images, test_labels = (_read(folder / f"t10k-{part}-ubyte.gz") for part in ("images-idx3", "labels-idx1"))
    order = torch.from_numpy(np.random.default_rng(SPLIT_SEED).permutation(len(labels)))
    chosen = {"train": order[VALIDATION_IMAGES:], "validation": order[:VALIDATION_IMAGES]}
    splits = {name: Split(images=images[index], labels=labels[index].long()) for name, index in chosen.items()}
    return splits | {"test": Split(images=test_images, labels=test_labels.long())}


def _read(path: Path) -> UInt8[Tensor, "..."]:
    """One IDX file of unsigned bytes as a tensor."""
    if not path.is_file():
        raise BadInput("data file", str(path), "is missing; restore it with `git checkout -- data/fashion-mnist`")
    packed = path.read_bytes()
    if hashlib.md5(packed, usedforsecurity=False).hexdigest() != MD5[path.name]:
        raise BadInput("data file", str(path), f"does not have MD5 {MD5[path.name]}; restore it with git")
    raw = gzip.decompress(packed)
    dimensions = np.frombuffer(raw, ">i4", count=raw[3], offset=4)
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(*dimensions).copy())


def as_input(images: UInt8[Tensor, "n 28 28"], image_size: int, channels: int) -> Float[Tensor, "n c size size"]:
    """Normalized float32 input, grey in every channel: zero-padded up to 32 pixels, bilinearly enlarged beyond."""
    scaled = images.unsqueeze(1).to(torch.float32).div_(255)
    if image_size <= 32:
        before = (image_size - 28) // 2
        scaled = functional.pad(scaled, (before, image_size - 28 - before) * 2)
    else:
        scaled = functional.interpolate(scaled, size=image_size, mode="bilinear", align_corners=False)
    return scaled.sub_(PIXEL_MEAN).div_(PIXEL_STD).expand(-1, channels, -1, -1)


def augment(images: UInt8[Tensor, "n 28 28"], generator: torch.Generator, shift: int = 2) -> UInt8[Tensor, "n 28 28"]:
    """Random horizontal flip and a shift of up to `shift` pixels per axis, the whole batch at once."""
    return moved(images, *draw_moves(len(images), generator, shift), shift)


def draw_moves(count: int, generator: torch.Generator, shift: int = 2) -> tuple[Int[Tensor, "n 2"], Bool[Tensor, "n"]]:
    """Row and column offsets in [0, 2·shift], and whether to flip, for `count` images."""
    offsets = torch.randint(0, 2 * shift + 1, (count, 2), generator=generator)
    return offsets, torch.rand(count, generator=generator) < 0.5


def moved(
    images: UInt8[Tensor, "n 28 28"], offsets: Int[Tensor, "n 2"], flip: Bool[Tensor, "n"], shift: int = 2
) -> UInt8[Tensor, "n 28 28"]:
    """Images shifted and flipped as drawn, black where nothing was; on the device of the images."""
    steps = torch.arange(images.shape[-1], device=images.device)
    rows = offsets[:, :1] + steps
    columns = offsets[:, 1:] + torch.where(flip[:, None], steps.flip(0), steps)
    padded = functional.pad(images, (shift,) * 4)
    first = torch.arange(len(images), device=images.device)
    return padded[first[:, None, None], rows[:, :, None], columns[:, None, :]]


def epoch_order(count: int, seed: int, epoch: int) -> tuple[Int[Tensor, "n"], torch.Generator]:
    """The order of one epoch and the generator of its augmentation, the same for every shape of one seed."""
    generator = torch.Generator().manual_seed(1_000_003 * seed + epoch)
    return torch.randperm(count, generator=generator), generator
