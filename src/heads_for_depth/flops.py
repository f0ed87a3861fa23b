"""Floating-point operations of a model of images or of text, counted by torch on `meta`; a multiply-add is two.

Matrix products and convolutions count, and nothing else: norms, softmax, activations and the optimizer do not.
Attention counts as plain matrix products, whatever computes it later.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from math import prod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

from heads_for_depth.language_models import build_language
from heads_for_depth.models import build
from heads_for_depth.recount.language import LanguageShape
from heads_for_depth.shapes import Shape

aten = torch.ops.aten


@cache
def forward_flops(shape: Shape | LanguageShape, tokens: int = 0) -> int:
    """Operations of the forward pass of one image, or of one text of so many tokens."""
    return _count(shape, tokens, backward=False)


@cache
def training_flops(shape: Shape | LanguageShape, tokens: int = 0) -> int:
    """Operations of forward and backward pass of one image or text; the gradient of the pixels is not among them."""
    return _count(shape, tokens, backward=True)


def _count(shape: Shape | LanguageShape, tokens: int, backward: bool) -> int:
    model, inputs = on_meta(shape, tokens)
    counter = FlopCounterMode(display=False, custom_mapping={aten.convolution_backward: _convolution_backward})
    with sdpa_kernel(SDPBackend.MATH), counter, torch.set_grad_enabled(backward):
        outputs = model(**inputs)
        logits: Tensor = getattr(outputs, "logits", outputs)
        if backward:
            logits.sum().backward()
    return int(counter.get_total_flops())


def on_meta(shape: Shape | LanguageShape, tokens: int) -> tuple[nn.Module, dict[str, Tensor]]:
    """The model, and one input by name; a whole mask spares transformers a look at values that `meta` does not have."""
    if isinstance(shape, LanguageShape):
        ids = torch.empty(1, tokens, dtype=torch.long, device="meta")
        mask = torch.empty(1, 1, tokens, tokens, dtype=torch.bool, device="meta")
        return build_language(shape, "meta", tokens).eval(), {"input_ids": ids, "attention_mask": mask}
    images = torch.empty(1, shape.in_chans, shape.image_size, shape.image_size, device="meta")
    return build(shape, "meta").eval(), {"x": images}


def _convolution_backward(out: Sequence[int], x: Sequence[int], weight: Sequence[int], *rest: Any, **_: Any) -> int:
    """As many operations as the forward pass for each gradient that is asked for, of the input and of the weight.

    Torch's own formula (2.14) counts the gradient of the weight once per group too often.
    """
    wanted = rest[WANTED - 3]
    forward = 2 * prod(out[2:]) * prod(weight) * out[0]
    return forward * (bool(wanted[0]) + bool(wanted[1]))


WANTED = 10
"""Place of the flags that say which gradients are asked for, among the arguments of a convolution's backward pass."""
