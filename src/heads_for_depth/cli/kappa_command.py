"""`kappa`: condition numbers of any timm model the report can read, per head count."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from heads_for_depth.conditioning import measure
from heads_for_depth.conditioning.checkpoint import checkpoint_lines
from heads_for_depth.conditioning.layers import by_kind
from heads_for_depth.errors import BadInput
from heads_for_depth.known_models import shape_of
from heads_for_depth.models import build
from heads_for_depth.shapes import REGIMES, scaled_heads, with_heads


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="kappa")(kappa)


def kappa(
    model: Annotated[
        str | None, typer.Option(help="A timm model name, such as vit_base_patch16_224 or xcit_medium_24_p16_224.")
    ] = None,
    heads: Annotated[str | None, typer.Option(help="Head counts of the first stage, such as 1,2,4.")] = None,
    checkpoint: Annotated[
        Path | None, typer.Option(help="Instead of both: a trained model's folder, as timm saves it.")
    ] = None,
    regime: Annotated[
        str, typer.Option(help="fixed-d-model (head_dim falls) or fixed-head-dim (inner width grows).")
    ] = "fixed-d-model",
    inputs: Annotated[
        int, typer.Option(help="Images of independent normal pixels over which κ is a median.", min=1)
    ] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the weights and of the images.", min=0, max=2**63 - 1)] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON instead of a table.")] = False,
) -> None:
    """Measure κ of every attention layer, at random initialization or of a checkpoint; a float64 forward pass."""
    if checkpoint is not None:
        if model is not None or heads is not None:
            given = "model" if model is not None else "heads"
            raise BadInput(given, model or heads, "a checkpoint has its own, leave it out")
        _print(str(checkpoint), checkpoint_lines(checkpoint, inputs, seed), as_json, {"inputs": inputs, "seed": seed})
        return
    if model is None or heads is None:
        missing = "model" if model is None else "heads"
        raise BadInput(missing, None, "give --model and --heads, or --checkpoint")
    if regime not in REGIMES:
        raise BadInput("regime", regime, f"use one of {', '.join(REGIMES)}")
    shape = shape_of(model)
    shapes = [with_heads(shape, scaled_heads(shape, count), regime) for count in _counts(heads)]
    lines = [line for one in shapes for line in _lines(one, inputs, seed)]
    _print(model, lines, as_json, {"regime": regime, "inputs": inputs, "seed": seed})


def _print(model: str, lines: list[dict[str, Any]], as_json: bool, settings: dict[str, Any]) -> None:
    if as_json:
        print(json.dumps({"model": model} | settings | {"kappa": lines}, indent=2))
        return
    ends = ("median", "lowest", "highest")
    print(f"{'heads':>6}{'kind':>10}{'object':>14}{'N x D':>12}{''.join(f'{end:>11}' for end in ends)}{'Gaussian':>10}")
    for line in lines:
        size = f"{line['rows']} x {line['columns']}"
        numbers = "".join(f"{float(line[key]):>11.3g}" for key in ends)
        predicted = "-" if line["gaussian"] is None else f"{line['gaussian']:.3g}"
        print(f"{line['heads']:>6}{line['kind']:>10}{line['object']:>14}{size:>12}{numbers}{predicted:>10}")


def _counts(text: str) -> list[int]:
    try:
        counts = [int(part) for part in text.split(",")]
    except ValueError as error:
        raise BadInput("heads", text, "give whole numbers separated by commas, such as 1,2,4") from error
    if any(count < 1 for count in counts):
        raise BadInput("heads", text, "every head count must be at least 1")
    return counts


def _lines(shape: Any, inputs: int, seed: int) -> list[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = build(shape)
    images = torch.randn(inputs, shape.in_chans, shape.image_size, shape.image_size, generator=generator)
    return by_kind(measure(model, images))
