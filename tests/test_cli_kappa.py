"""`heads-for-depth kappa`: its numbers against a direct measurement, and one sentence for every bad option."""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from statistics import median_high
from typing import Any

import numpy as np
import pytest
import timm
import torch
from timm.models import save_for_hf

from heads_for_depth.cli.main import main
from heads_for_depth.conditioning import measure
from heads_for_depth.errors import BadInput
from heads_for_depth.tables.checkpoint import checkpoint_table

MODEL = "vit_tiny_patch16_224"


def arguments(**changed: str) -> list[str]:
    options = {"model": MODEL, "heads": "3", "inputs": "1", "seed": "7"} | changed
    return ["kappa", *(part for name, value in options.items() for part in (f"--{name}", value))]


@cache
def reference() -> list[dict[str, Any]]:
    """timm's own model of that name from the same seed, on the same noise: one dictionary per layer and object."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model = timm.create_model(MODEL)
    noise = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(7))
    table = measure(model, noise)
    return [dict(zip(table["columns"], row, strict=True)) for row in table["rows"]]


def test_json_holds_the_numbers_of_a_direct_measurement(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments(), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    lines = printed.pop("kappa")
    assert printed == {"model": MODEL, "regime": "fixed-d-model", "inputs": 1, "seed": 7}
    assert [(line["object"], line["rows"], line["columns"], line["layers"]) for line in lines] == [
        ("concatenated", 197, 192, 12), ("projected", 197, 192, 12), ("head", 197, 64, 12),
    ]  # fmt: skip
    for line in lines:
        assert (line["heads"], line["kind"], line["gaussian"]) == (3, "tokens", None)
        layers = [float(row["condition_number"]) for row in reference() if row["object"] == line["object"]]
        ends = (median_high(layers), min(layers), max(layers))
        assert (line["median"], line["lowest"], line["highest"]) == pytest.approx(ends, rel=1e-5)


def test_the_measured_number_is_the_condition_number_of_the_layers_output(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*arguments(), "--json"]) == 0
    (line,) = [line for line in json.loads(capsys.readouterr().out)["kappa"] if line["object"] == "projected"]
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(7)
        model: Any = timm.create_model(MODEL).double().eval()
    caught: list[Any] = []
    for block in model.blocks:
        block.attn.register_forward_hook(lambda module, args, output: caught.append(output[0].numpy()))
    with torch.no_grad():
        model(torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(7)).double())
    kappas = [float(np.linalg.cond(matrix)) for matrix in caught]
    assert (line["median"], line["lowest"]) == pytest.approx((median_high(kappas), min(kappas)), rel=1e-4)


def test_the_table_has_a_line_per_object_and_head_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments(heads="1, 6", regime="fixed-head-dim")) == 0
    header, *lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert header == ["heads", "kind", "object", "N", "x", "D", "median", "lowest", "highest", "Gaussian"]
    assert [(line[0], line[2], line[5]) for line in lines] == [
        ("1", "concatenated", "64"), ("1", "projected", "192"), ("1", "head", "64"),
        ("6", "concatenated", "384"), ("6", "projected", "192"), ("6", "head", "64"),
    ]  # fmt: skip
    assert [line[-1] for line in lines] == ["-", "-", "-", "6.05", "-", "-"]  # (19.596 + 14.036) / (19.596 − 14.036)


def test_the_seed_draws_the_weights_and_the_images(capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for seed in ("7", "7", "8"):
        assert main(arguments(seed=seed)) == 0
        printed.append(capsys.readouterr().out)
    assert printed[0] == printed[1] != printed[2]


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"heads": "5"}, "heads is 5: must divide d_model 192, use one of 1, 2, 3, 4, 6, 8"),
        ({"heads": "3,5"}, "heads is 5: must divide d_model 192"),
        ({"heads": "0"}, "heads is '0': every head count must be at least 1"),
        ({"heads": "-3"}, "heads is '-3': every head count must be at least 1"),
        ({"heads": "three"}, "heads is 'three': give whole numbers separated by commas, such as 1,2,4"),
        ({"heads": "1,,2"}, "heads is '1,,2': give whole numbers"),
        ({"heads": ""}, "heads is '': give whole numbers"),
        ({"model": "davit_tiny", "heads": "9"}, "heads is 9: must divide d_model 96, use one of 1, 2, 3, 4, 6, 8, 12"),
        ({"regime": "fixed"}, "regime is 'fixed': use one of fixed-d-model, fixed-head-dim"),
        ({"model": "vit_tiny"}, "model is 'vit_tiny': timm has no such model"),
        ({"model": "resnet18"}, "model is 'resnet18': is a ResNet, the report reads"),
        ({"inputs": "0"}, "Invalid value for '--inputs'"),
        ({"seed": "-1"}, "Invalid value for '--seed'"),
        ({"seed": "9223372036854775808"}, "Invalid value for '--seed'"),
    ],
)
def test_a_bad_option_is_one_sentence_and_exit_code_2(
    changed: dict[str, str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*arguments(**changed), "--json"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"heads-for-depth: {sentence}")
    assert err.count("\n") == 1


@pytest.mark.parametrize("missing", ["model", "heads"])
def test_model_and_heads_must_be_given(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    given = arguments()
    place = given.index(f"--{missing}")
    assert main(given[:place] + given[place + 2 :]) == 2
    sentence = f"heads-for-depth: {missing} is None: give --model and --heads, or --checkpoint\n"
    assert capsys.readouterr().err == sentence


# A trained model from a folder.


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A ViT of one block as timm saves it, its weights far from any initialization."""
    folder = tmp_path_factory.mktemp("checkpoint") / "vit-of-one-block"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(11)
        model: Any = timm.create_model("vit_tiny_patch16_224", depth=1, num_classes=5)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.3 * torch.randn_like(parameter))
    save_for_hf(model, str(folder), model_args={"depth": 1, "num_classes": 5})
    return folder


def test_a_checkpoint_is_measured_with_its_own_weights(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kappa", "--checkpoint", str(checkpoint), "--inputs", "1", "--seed", "7", "--json"]) == 0
    lines = {line["object"]: line for line in json.loads(capsys.readouterr().out)["kappa"]}
    model: Any = timm.create_model(f"local-dir:{checkpoint}", pretrained=True).double().eval()
    caught: list[Any] = []
    model.blocks[0].attn.register_forward_hook(lambda module, args, output: caught.append(output[0].numpy()))
    with torch.no_grad():
        model(torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(7)).double())
    assert lines["projected"]["median"] == pytest.approx(float(np.linalg.cond(caught[0])), rel=1e-4)
    assert {line["heads"] for line in lines.values()} == {3}


def test_the_reports_table_measures_a_checkpoint_under_both_inputs_and_says_where_there_is_none(checkpoint: Path):
    assert checkpoint_table(None).to_dict("records") == [{"model": "no checkpoint reachable"}]
    frame = checkpoint_table(str(checkpoint))
    assert list(frame["input"]) == ["noise"] * 3 + ["images"] * 3
    assert set(frame["model"]) == {"vit-of-one-block"}
    assert list(frame["N × D"]) == ["197 × 192", "197 × 192", "197 × 64"] * 2
    assert all(float(value.replace(",", "")) >= 1 for value in frame["κ"])


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda folder: None, "give a folder with timm's config.json and the weights beside it"),
        (lambda folder: (folder / "config.json").write_text("{"), "timm cannot load it"),
        (lambda folder: (folder / "config.json").write_text('{"architecture": "no_such_net"}'), "timm cannot load it"),
        (lambda folder: (folder / "config.json").write_text('{"architecture": "vit_tiny_patch16_224"}'),
         "timm cannot load it"),
        (lambda folder: save_for_hf(timm.create_model("resnet10t", num_classes=2), str(folder)), "holds a ResNet"),
    ],
)  # fmt: skip
def test_what_is_no_checkpoint_is_one_sentence(
    make: Callable[[Path], Any], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    make(tmp_path)
    assert main(["kappa", "--checkpoint", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"heads-for-depth: checkpoint is '{tmp_path}': ")
    assert sentence in err
    assert err.count("\n") == 1


def test_a_checkpoint_has_its_own_model_and_heads(checkpoint: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, value in (("model", MODEL), ("heads", "3")):
        assert main(["kappa", "--checkpoint", str(checkpoint), f"--{name}", value]) == 2
        assert f"{name} is '{value}': a checkpoint has its own, leave it out" in capsys.readouterr().err
    with pytest.raises(BadInput, match="checkpoint is 7: give the path of a folder"):
        checkpoint_table(7)
