"""Images in folders, one folder per class, below `train` and `val`: what is there, checked before anything is built."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from timm.data import get_img_extensions  # type: ignore[attr-defined]

from heads_for_depth.errors import BadInput

SPLITS = ("train", "val")
NAMED = 3
"""Classes that a complaint names."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ImageFolder:
    """A checked data set."""

    root: Path
    train: Mapping[str, int]
    """Class folder -> training images."""
    validation: Mapping[str, int]

    @property
    def classes(self) -> int:
        """Number of classes."""
        return len(self.train)

    @property
    def train_images(self) -> int:
        """Training images of all classes."""
        return sum(self.train.values())

    @property
    def validation_images(self) -> int:
        """Validation images of all classes."""
        return sum(self.validation.values())

    @property
    def digest(self) -> str:
        """Names the classes and the numbers of their images, not the pixels."""
        text = json.dumps([sorted(self.train.items()), sorted(self.validation.items())])
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_image_folder(root: Path, classes: int) -> ImageFolder:
    """Look at every class folder once.

    Raises BadInput where `train` or `val` is missing, a class folder holds no image, the two differ in their classes,
    or there are not as many classes as the model has outputs.
    """
    train, validation = (_counted(root / split) for split in SPLITS)
    for split, own, other in (("val", validation, train), ("train", train, validation)):
        lacking = sorted(other.keys() - own.keys())
        if lacking:
            raise BadInput(
                f"{split} folder", str(root / split), f"lacks {_named(lacking)}; train and val need the same classes"
            )
    if len(train) != classes:
        raise BadInput("number of classes", len(train), f"{root} must have {classes}, as many as the model has outputs")
    return ImageFolder(root=root, train=train, validation=validation)


def _counted(folder: Path) -> dict[str, int]:
    """Class folder -> images directly in it."""
    try:
        counts = {entry.name: _images(entry) for entry in folder.iterdir() if entry.is_dir()}
    except OSError as error:
        remedy = f"{error.strerror}; --data needs the folders train and val, one folder per class in each"
        raise BadInput(f"{folder.name} folder", str(folder), remedy) from error
    empty = sorted(name for name, images in counts.items() if not images)
    if empty:
        remedy = f"holds no image in {_named(empty)}; fill or remove every such class folder"
        raise BadInput(f"{folder.name} folder", str(folder), remedy)
    return counts


def _images(folder: Path) -> int:
    extensions = get_img_extensions(as_set=True)
    return sum(path.suffix.lower() in extensions for path in folder.iterdir())


def _named(classes: list[str]) -> str:
    more = f" and {len(classes) - NAMED} more" if len(classes) > NAMED else ""
    return f"{'class' if len(classes) == 1 else 'classes'} {', '.join(classes[:NAMED])}{more}"
