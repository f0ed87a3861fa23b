"""The recipe of the full-scale runs: one for both arms of every row, with the origin of each number."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from heads_for_depth.errors import BadInput

LITERATURE = ("epochs",)
"""Fields whose value is LIT-527's; all others are our choice."""
PRECISIONS = ("fp32", "bf16")
BATCH_UNIT = 512
"""Images for which `unit_learning_rate` is given."""


@dataclass(frozen=True, kw_only=True, slots=True)
class FullRecipe:
    """Everything about a full-scale run that is not its shape or its seed, in the manner of DeiT.

    The literature record gives LIT-527's data set and epochs, and no more of its recipe. "Our choice" marks a common
    setting for models of this kind; it is not a number of LIT-527's. The image size belongs to the shape.
    """

    epochs: int = 300
    """LIT-527's."""
    batch_size: int = 1024
    """Images per optimizer step, all processes together. Our choice."""
    unit_learning_rate: float = 5e-4
    """Peak learning rate at a batch of BATCH_UNIT images; it grows in proportion with the batch. Our choice."""
    warmup_fraction: float = 5 / 300
    """Share of the steps with linear warm-up (5 of 300 epochs); a cosine follows. Our choice."""
    first_learning_rate: float = 1e-6
    """Where the warm-up begins. Our choice."""
    last_learning_rate: float = 1e-5
    """Where the cosine ends. Our choice."""
    optimizer: str = "adamw"
    """timm's name. Our choice."""
    betas: tuple[float, float] = (0.9, 0.999)
    """Our choice."""
    weight_decay: float = 0.05
    """On matrices and kernels only, as in the runs at reduced scale. Our choice."""
    clip_norm: float = 1.0
    """Largest norm of the gradient, as in the runs at reduced scale. Our choice."""
    stochastic_depth: float = 0.1
    """Chance that a residual branch is skipped for an image, the same in every block. Our choice."""
    auto_augment: str = "rand-m9-mstd0.5-mmax9-inc1"
    """RandAugment in timm's notation. Our choice; capped at 9, for at 10 no bit is left, which Pillow 13 refuses."""
    erasing: float = 0.25
    """Chance of random erasing per image, filled with noise. Our choice."""
    mixup: float = 0.8
    """Alpha of mixup. Our choice."""
    cutmix: float = 1.0
    """Alpha of cutmix, which takes turns with mixup at random. Our choice."""
    label_smoothing: float = 0.1
    """Our choice."""
    interpolation: str = "bicubic"
    """Of resized images, in training and validation. Our choice."""
    crop_fraction: float = 0.875
    """Side of the centre crop in validation over that of the resized image. Our choice."""
    ema_decay: float = 0.9999
    """Largest decay of the moving average of the weights, reached through timm's warm-up. Our choice."""
    precision: str = "fp32"
    """`bf16` runs the forward pass under autocast; weights, gradients and optimizer stay fp32. Our choice."""

    def __post_init__(self) -> None:
        for name in ("epochs", "batch_size"):
            if getattr(self, name) < 1:
                raise BadInput(name, getattr(self, name), "must be at least 1")
        if self.precision not in PRECISIONS:
            raise BadInput("precision", self.precision, f"use one of {', '.join(PRECISIONS)}")

    @property
    def learning_rate(self) -> float:
        """Peak learning rate at this batch."""
        return self.unit_learning_rate * self.batch_size / BATCH_UNIT

    @property
    def overrides(self) -> dict[str, Any]:
        """The fields that differ from the recipe's own values: what a rehearsal changed."""
        values = {field.name: getattr(self, field.name) for field in fields(self)}
        return {name: value for name, value in values.items() if value != getattr(FullRecipe(), name)}

    def as_dict(self) -> dict[str, Any]:
        """Plain values for a record."""
        return asdict(self) | {"betas": list(self.betas), "learning_rate": self.learning_rate}
