"""κ of a trained model at full scale, from a checkpoint folder that the reader has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from heads_for_depth.conditioning.attention import measure
from heads_for_depth.conditioning.layers import by_kind
from heads_for_depth.datasets import as_input, fashion_mnist
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import Source
from heads_for_depth.known_models import load_checkpoint

NO_CHECKPOINT = "no checkpoint reachable"
"""What the report says where the reader has given none."""


def checkpoint_lines(folder: Path, inputs: int = 2, seed: int = 0, source: Source = "noise") -> list[dict[str, Any]]:
    """κ by kind of attention, width and object, of a trained model at the image size of its own configuration.

    `noise` is independent normal pixels from the seed, `images` the first validation images of Fashion-MNIST enlarged.
    Raises BadInput for a folder that is no checkpoint of timm, and for fewer than one input.
    """
    if inputs < 1:
        raise BadInput("inputs", inputs, "must be at least 1")
    model: Any = load_checkpoint(folder)
    channels, height, width = model.pretrained_cfg["input_size"]
    if source == "noise":
        images = torch.randn(inputs, channels, height, width, generator=torch.Generator().manual_seed(seed))
    else:
        images = as_input(fashion_mnist()["validation"].images[:inputs], height, channels)
    return by_kind(measure(model, images))
