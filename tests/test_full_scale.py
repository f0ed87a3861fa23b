"""Full-scale training, rehearsed small: two processes on a CPU, killed and continued, and every refusal."""

import contextlib
import os
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from PIL import Image
from timm.data.auto_augment import rand_augment_transform
from timm.data.distributed_sampler import OrderedDistributedSampler
from timm.layers import DropPath  # type: ignore[attr-defined]
from torch import distributed

from heads_for_depth import records
from heads_for_depth.claims import load_rows, load_table
from heads_for_depth.datasets import fashion_mnist
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import ARMS, VISION_ROWS, reduced_shape, vision_row
from heads_for_depth.flops import forward_flops
from heads_for_depth.full_scale import checkpoints, command, costs
from heads_for_depth.full_scale.command import main
from heads_for_depth.full_scale.costs import AssumedSpeed, row_costs
from heads_for_depth.full_scale.image_folder import read_image_folder
from heads_for_depth.full_scale.jobs import Job, arm_shape, check_hardware, plan_run
from heads_for_depth.full_scale.loaders import restore_streams, seed_streams, stream_states, validation_share
from heads_for_depth.full_scale.processes import TORCHRUN, Processes, join
from heads_for_depth.full_scale.recipe import FullRecipe
from heads_for_depth.full_scale.trainer import Trainer, with_stochastic_depth
from heads_for_depth.models import build, count_parameters
from heads_for_depth.recount import recount_rows
from heads_for_depth.tables import full_scale as tables
from heads_for_depth.training import Diverged

# timm leaves the image files that it has read to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:unclosed file .*png:ResourceWarning")

RUN_ID = "xcit-m.depth-after.heads-after.reduced.seed-0"
EPOCHS = 3
PATIENCE_SECONDS = 300
"""For one launch on a busy machine."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Ten classes of Fashion-MNIST: ten training images each, three for validation, and one more in the first class."""
    root = tmp_path_factory.mktemp("images")
    for split, source, count in (("train", "train", 10), ("val", "validation", 3)):
        images = fashion_mnist()[source]
        for label in range(10):
            place = root / split / f"class-{label}"
            place.mkdir(parents=True)
            chosen = (images.labels == label).nonzero()[: count + (split == "val" and label == 0), 0]
            for number, index in enumerate(chosen.tolist()):
                Image.fromarray(images.images[index].numpy()).save(place / f"{number}.png")
    return root


def arguments(folder: Path, places: Path, **changed: str) -> list[str]:
    """A rehearsal of the reshaped XCiT-M, a few seconds long."""
    options = {
        "row": "xcit-m", "depth-arm": "after", "heads-arm": "after", "data": str(folder), "device": "cpu",
        "epochs": str(EPOCHS), "batch-size": "20", "workers": "0", "results": str(places / "results"),
        "checkpoints": str(places / "checkpoints"),
    } | changed  # fmt: skip
    return ["--reduced", *(part for name, value in options.items() for part in (f"--{name}", value))]


def job_of(folder: Path, places: Path, world_size: int = 1, **recipe: Any) -> Job:
    """The same run as `arguments` has."""
    return Job(
        run=plan_run("xcit-m", "after", "after", 0, reduced=True),
        recipe=FullRecipe(**{"epochs": EPOCHS, "batch_size": 20} | recipe),
        data=read_image_folder(folder, 10), results=places / "results", checkpoints=places / "checkpoints",
        device="cpu", workers=0, world_size=world_size,
    )  # fmt: skip


# ---- two processes under torchrun ------------------------------------------------------------------------------------


def torchrun(what: list[str], given: list[str]) -> subprocess.Popen[str]:
    """Two processes, one thread each."""
    environment = {name: value for name, value in os.environ.items() if name not in TORCHRUN}
    environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    start = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", *what, *given]
    return subprocess.Popen(start, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


MODULE = ["-m", "heads_for_depth.full_scale"]


def kill_tree(launched: subprocess.Popen[str]) -> None:
    """SIGKILL for torchrun and its processes, which live in sessions of their own."""
    family = [*psutil.Process(launched.pid).children(recursive=True), psutil.Process(launched.pid)]
    for process in family:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(family)
    launched.communicate()


@dataclass(frozen=True)
class Launch:
    """What a finished launch left behind."""

    places: Path
    code: int
    errors: str

    @property
    def record(self) -> records.Record:
        return records.read(records.path_of(self.places / "results", "full", "full_scale", RUN_ID))


def launched(places: Path, what: list[str], given: list[str]) -> Launch:
    process = torchrun(what, given)
    try:
        _, errors = process.communicate(timeout=PATIENCE_SECONDS)
    except subprocess.TimeoutExpired:
        kill_tree(process)
        raise
    return Launch(places=places, code=process.returncode, errors=errors)


SPYING = """
import sys
from pathlib import Path
import torch
from heads_for_depth.full_scale import command, trainer

plain = trainer.Trainer.state

def spied(self):
    every = {**self.model.state_dict(), **{f"average {k}": v for k, v in self.average.module.state_dict().items()}}
    torch.save(every, Path(__file__).with_name(f"rank-{self.processes.rank}.pt"))
    return plain(self)

trainer.Trainer.state = spied
raise SystemExit(command.main())
"""
"""Keeps what each process holds at the end of an epoch, and changes nothing else."""


@pytest.fixture(scope="module")
def uninterrupted(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    places = tmp_path_factory.mktemp("uninterrupted")
    script = places / "spying.py"
    script.write_text(SPYING)
    return launched(places, [str(script)], arguments(folder, places))


STALLING = """
import time
from pathlib import Path
from heads_for_depth.full_scale import command, trainer

plain = trainer.Trainer._step

def stalled(self, images, targets):
    if self.updates == 7:
        Path(__file__).with_name("midway").touch()
        time.sleep(1000)
    return plain(self, images, targets)

trainer.Trainer._step = stalled
raise SystemExit(command.main())
"""
"""Stands still in the middle of the second epoch of five steps, to be killed there on every machine."""


@pytest.fixture(scope="module")
def killed(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Places of the same run, killed in its second epoch."""
    places = tmp_path_factory.mktemp("killed")
    script = places / "stalling.py"
    script.write_text(STALLING)
    process = torchrun([str(script)], arguments(folder, places))
    try:
        patience = time.monotonic() + PATIENCE_SECONDS
        while not (places / "midway").exists() and process.poll() is None and time.monotonic() < patience:
            time.sleep(0.05)
    finally:
        kill_tree(process)
    return places


@pytest.fixture(scope="module")
def resumed(folder: Path, killed: Path, tmp_path_factory: pytest.TempPathFactory) -> Launch:
    """The killed run, continued by the same command; the places of the killed one stay as they are."""
    places = tmp_path_factory.mktemp("resumed")
    shutil.copytree(killed / "checkpoints", places / "checkpoints")
    return launched(places, MODULE, arguments(folder, places))


def without_seconds(record: records.Record) -> dict[str, Any]:
    """The metrics of a record except the time they took."""
    epochs = [
        {name: value for name, value in epoch.items() if name != "seconds"} for epoch in record["metrics"]["epochs"]
    ]
    return record["metrics"] | {"epochs": epochs}


def test_two_processes_train_and_write_one_record(uninterrupted: Launch, folder: Path):
    assert uninterrupted.code == 0, uninterrupted.errors
    record = uninterrupted.record
    assert (record["status"], record["experiment"], record["profile"]) == ("ok", "full_scale", "full")
    assert record["parameters"] == count_parameters(plan_run("xcit-m", "after", "after", 0, reduced=True).shape)
    assert record["plan"]["launch"] == {"world_size": 2, "batch_per_process": 10, "workers": 0}
    assert record["plan"]["images"] == {"classes": 10, "train": 100, "val": 31}
    assert record["plan"]["overrides"] == {"epochs": EPOCHS, "batch_size": 20}
    assert record["plan"]["recipe"]["precision"] == "fp32"
    assert record["plan"]["reduction"] == "keep-head-dim"
    assert record["plan"]["resumed_after_epochs"] == []
    assert record["provenance"]["data"] == read_image_folder(folder, 10).digest
    assert list((uninterrupted.places / "results").rglob("*.json")) == [
        records.path_of(uninterrupted.places / "results", "full", "full_scale", RUN_ID)
    ]


def test_the_record_holds_every_epoch_and_its_result_is_the_last_one(uninterrupted: Launch):
    metrics = uninterrupted.record["metrics"]
    scores = {f"{average}validation_{kind}" for average in ("", "ema_") for kind in ("loss", "accuracy")}
    assert [set(epoch) for epoch in metrics["epochs"]] == [{"train_loss", "learning_rate", "seconds"} | scores] * EPOCHS
    assert {name: metrics[name] for name in scores} == {name: metrics["epochs"][-1][name] for name in scores}
    assert len({epoch["train_loss"] for epoch in metrics["epochs"]}) == EPOCHS


def test_nothing_but_the_epochs_is_printed_and_by_one_process_only(uninterrupted: Launch):
    lines = uninterrupted.errors.splitlines()
    assert [line.split(":")[1].strip() for line in lines[:-1]] == [f"epoch {n} of {EPOCHS}" for n in (1, 2, 3)]
    assert lines[-1].startswith("full_scale: ok, recorded in ")


def test_both_processes_hold_equal_weights_statistics_and_averages_at_the_end(uninterrupted: Launch):
    first, second = (torch.load(uninterrupted.places / f"rank-{rank}.pt") for rank in (0, 1))
    assert any("running_mean" in name for name in first)
    assert [name for name in first if not torch.equal(first[name], second[name])] == []
    saved = final_state(uninterrupted)["model"]
    assert [name for name in saved if not torch.equal(first[name], saved[name])] == []


def test_a_killed_run_leaves_a_whole_checkpoint_and_no_record(killed: Path, folder: Path):
    saved = checkpoints.load(job_of(folder, killed, world_size=2))
    assert saved is not None
    assert len(saved["progress"]["epochs"]) == 1
    assert list(killed.rglob("*.json")) == []


def test_a_continued_run_ends_with_the_very_numbers_of_an_uninterrupted_one(uninterrupted: Launch, resumed: Launch):
    assert resumed.code == 0, resumed.errors
    assert without_seconds(resumed.record) == without_seconds(uninterrupted.record)
    assert resumed.record["plan"]["resumed_after_epochs"] == [1]
    assert resumed.errors.startswith(f"full_scale: {RUN_ID} continues after epoch 1 of {EPOCHS}\n")
    first, second = final_state(uninterrupted), final_state(resumed)
    for part in ("model", "average"):
        assert [name for name in first[part] if not torch.equal(first[part][name], second[part][name])] == []


def final_state(launch: Launch) -> dict[str, Any]:
    return torch.load(launch.places / "checkpoints" / f"{RUN_ID}.pt", weights_only=True)["trainer"]


def test_validation_by_two_processes_is_that_of_one(
    uninterrupted: Launch, folder: Path, alone: Processes, tmp_path: Path
):
    """31 images leave the second process one fewer, and its loader repeats one."""
    trainer = Trainer(job_of(folder, tmp_path), alone)
    for name, prefix in (("model", "validation"), ("average", "ema_validation")):
        trainer.model.load_state_dict(final_state(uninterrupted)[name])
        measured = trainer.evaluate(trainer.model, prefix)
        recorded = uninterrupted.record["metrics"]
        assert measured == pytest.approx({key: recorded[key] for key in measured}, rel=1e-6)
        assert measured[f"{prefix}_accuracy"] * 31 == pytest.approx(round(measured[f"{prefix}_accuracy"] * 31))


REFUSING = """
import os
from pathlib import Path
from heads_for_depth.full_scale import command

if os.environ["RANK"] == "1":
    os.chdir(Path(__file__).parent)
raise SystemExit(command.main())
"""
"""The second process works in another folder, as on a machine that lacks the data."""


def test_what_one_process_refuses_is_said_once_and_every_process_leaves(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    script, places = tmp_path / "refusing.py", tmp_path / "places"
    script.write_text(REFUSING)
    monkeypatch.chdir(folder.parent)
    refused = launched(places, [str(script)], arguments(Path(folder.name), places))
    assert refused.code != 0
    sentence, _, torchruns_own = refused.errors.partition("\n")
    assert sentence.startswith(f"full_scale: train folder is '{folder.name}/train': No such file or directory")
    assert torchruns_own.count("exitcode  : 2") >= 1  # torchrun may end the second one before it says so itself
    assert "full_scale:" not in torchruns_own
    assert not places.exists()


# ---- one process -----------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def no_process_group_left() -> Iterator[None]:
    """A test that fails inside the command does not take the next ones with it."""
    yield
    if distributed.is_initialized():
        distributed.destroy_process_group()


@pytest.fixture
def alone() -> Iterator[Processes]:
    processes = join()
    yield processes
    processes.leave()


def test_one_process_needs_no_torchrun_and_bf16_is_recorded(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    given = arguments(folder, tmp_path, row="vit-own", precision="bf16", epochs="1", seed="7", **{"image-size": "14"})
    assert main(given) == 0, capsys.readouterr().err
    (path,) = (tmp_path / "results").rglob("*.json")
    record = records.read(path)
    assert record["run_id"] == "vit-own.depth-after.heads-after.reduced.seed-7"
    assert record["plan"]["overrides"] == {"epochs": 1, "batch_size": 20, "precision": "bf16", "image_size": 14}
    assert (record["plan"]["seed"], record["plan"]["shape"]["image_size"]) == (7, 14)
    assert record["plan"]["launch"]["world_size"] == 1
    capsys.readouterr()
    assert refusal(given, capsys) == (
        f"run is '{record['run_id']}': has a record already at {path}, which is never overwritten"
    )


def test_bf16_rounds_what_fp32_does_not(folder: Path, tmp_path: Path, alone: Processes):
    """One step from equal weights on equal images: losses differ, by less than bf16's eight bits."""
    losses = []
    for precision in ("fp32", "bf16"):
        trainer = Trainer(job_of(folder, tmp_path, precision=precision), alone)
        losses.append(trainer.evaluate(trainer.model, "first")["first_loss"])
        assert {parameter.dtype for parameter in trainer.model.parameters()} == {torch.float32}
    assert losses[0] != losses[1]
    assert losses[1] == pytest.approx(losses[0], rel=2**-7)


def test_a_run_whose_loss_is_no_longer_finite_is_recorded_as_diverged(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(command, "FullRecipe", lambda **given: FullRecipe(unit_learning_rate=1e30, **given))
    assert main(arguments(folder, tmp_path, row="vit-own")) == 1
    (path,) = (tmp_path / "results").rglob("*.json")
    record = records.read(path)
    assert record["status"] == "diverged"
    assert "validation_loss" not in record["metrics"]


def test_a_training_loss_that_is_not_finite_ends_the_run_though_the_weights_still_are(
    folder: Path, tmp_path: Path, alone: Processes, monkeypatch: pytest.MonkeyPatch
):
    trainer = Trainer(job_of(folder, tmp_path), alone)
    monkeypatch.setattr(Trainer, "_step", lambda *_: torch.tensor(float("inf")))
    with pytest.raises(Diverged):
        trainer.epoch(0)


def test_a_run_whose_memory_runs_out_is_recorded_as_such(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def too_much(trainer: Trainer, epoch: int) -> dict[str, float]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Trainer, "epoch", too_much)
    assert main(arguments(folder, tmp_path, row="vit-own")) == 1
    (path,) = (tmp_path / "results").rglob("*.json")
    assert records.read(path)["status"] == "out_of_memory"
    assert "memory ran out" in capsys.readouterr().err


def test_an_interrupted_run_has_no_record_and_says_how_to_go_on(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def stopped(trainer: Trainer, epoch: int) -> dict[str, float]:
        raise KeyboardInterrupt

    monkeypatch.setattr(Trainer, "epoch", stopped)
    assert main(arguments(folder, tmp_path, row="vit-own")) == 130
    assert list(tmp_path.rglob("*.json")) == []
    assert capsys.readouterr().err == (
        "full_scale: interrupted; the same command continues after the last finished epoch\n"
    )


def test_random_numbers_go_on_where_they_were(alone: Processes):
    def drawn() -> list[float]:
        return [random.random(), float(np.random.rand()), float(torch.rand(1))]  # noqa: NPY002

    cpu = torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        seed_streams(3, 0)
        first = drawn()
        states = stream_states(cpu)
        expected = drawn()
        restore_streams(states, cpu)
        assert drawn() == expected != first
        seed_streams(3, 0)
        assert drawn() == first
        seed_streams(3, 1)
        assert not set(drawn()) & set(first)


# ---- refusals --------------------------------------------------------------------------------------------------------


def refusal(given: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence of a refused command."""
    assert main(given) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err.removeprefix("full_scale: ").rstrip("\n")


@pytest.mark.parametrize(
    ("changed", "sentence"),
    [
        ({"row": "vit"}, "row is 'vit': use one of xcit-m, tnt-b"),
        ({"depth-arm": "deep"}, "depth arm is 'deep': use one of before, after"),
        ({"heads-arm": ""}, "heads arm is '': use one of before, after"),
        ({"seed": "-1"}, "seed is -1: must be at least 0"),
        ({"epochs": "0"}, "epochs is 0: must be at least 1"),
        ({"precision": "fp16"}, "precision is 'fp16': use one of fp32, bf16"),
        ({"device": "tpu"}, "device is 'tpu': use cpu or cuda"),
        ({"image-size": "33"}, "patch_size is 8: XCiT takes 8 or 16, dividing image size 33"),
        ({"batch-size": "7"}, "batch size is 7: gives each process 7, which must be even"),
        ({"batch-size": "102"}, "batch size is 102: there are only 100 training images"),
        ({"workers": "-1"}, "Invalid value for '--workers'"),
        ({"epochs": "many"}, "Invalid value for '--epochs'"),
        ({"colour": "red"}, "No such option: --colour"),
    ],
)
def test_a_bad_option_is_one_sentence(
    changed: dict[str, str], sentence: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert refusal(arguments(folder, tmp_path, **changed), capsys).startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def remove_validation(root: Path) -> None:
    shutil.rmtree(root / "val")


def remove_training(root: Path) -> None:
    shutil.rmtree(root / "train")


def empty_a_class(root: Path) -> None:
    for image in (root / "train" / "class-3").iterdir():
        image.rename(image.with_suffix(".txt"))


def rename_a_class(root: Path) -> None:
    (root / "val" / "class-3").rename(root / "val" / "class-11")


def drop_classes_in_training(root: Path) -> None:
    for label in (2, 4, 6, 8):
        shutil.rmtree(root / "train" / f"class-{label}")


def drop_a_class(root: Path) -> None:
    for split in ("train", "val"):
        shutil.rmtree(root / split / "class-9")


@pytest.mark.parametrize(
    ("spoil", "sentence"),
    [
        (remove_validation, "val folder is '{root}/val': No such file or directory; --data needs the folders train"),
        (remove_training, "train folder is '{root}/train': No such file or directory; --data needs the folders train"),
        (empty_a_class, "train folder is '{root}/train': holds no image in class class-3; fill or remove"),
        (rename_a_class, "val folder is '{root}/val': lacks class class-3; train and val need the same classes"),
        (
            drop_classes_in_training,
            "train folder is '{root}/train': lacks classes class-2, class-4, class-6 and 1 more; train and val need",
        ),
        (drop_a_class, "number of classes is 9: {root} must have 10, as many as the model has outputs"),
    ],
)
def test_a_bad_image_folder_is_one_sentence(
    spoil: Callable[[Path], None], sentence: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    root, places = tmp_path / "images", tmp_path / "places"
    shutil.copytree(folder, root)
    spoil(root)
    assert refusal(arguments(root, places), capsys).startswith(sentence.format(root=root))
    assert not places.exists()


@pytest.mark.parametrize("place", ["results", "checkpoints"])
def test_a_folder_that_cannot_be_written_to_is_one_sentence(
    place: str, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "file").write_text("")
    sentence = refusal(arguments(folder, tmp_path, **{place: str(tmp_path / "file" / "below")}), capsys)
    assert sentence.startswith(f"{place} is '{tmp_path}/file/below")
    assert "cannot be written to" in sentence


@pytest.mark.parametrize(
    ("changed", "difference"),
    [
        ({"image-size": "40"}, "shape (image_size is 32 there and 40 here)"),
        ({"epochs": "5"}, "recipe (epochs is 3 there and 5 here)"),
        ({}, "run (processes is 2 there and 1 here)"),
    ],
)
def test_a_checkpoint_of_another_run_is_refused_and_stays(
    changed: dict[str, str], difference: str, killed: Path, folder: Path, tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
):  # fmt: skip
    shutil.copytree(killed / "checkpoints", tmp_path / "checkpoints")
    path = tmp_path / "checkpoints" / f"{RUN_ID}.pt"
    before = path.read_bytes()
    sentence = refusal(arguments(folder, tmp_path, **changed), capsys)
    assert sentence.startswith(f"checkpoint is '{path}': is of another {difference}; move it away")
    assert path.read_bytes() == before


def test_a_checkpoint_of_another_version_is_refused(killed: Path, folder: Path, tmp_path: Path):
    job = job_of(folder, tmp_path, world_size=2)
    tmp_path.joinpath("checkpoints").mkdir()
    saved = torch.load(killed / "checkpoints" / f"{RUN_ID}.pt", weights_only=True)
    saved["identity"]["version"]["timm"] = "0.1"
    torch.save(saved, job.checkpoint)
    with pytest.raises(BadInput, match=r"is of another version \(timm is 0.1 there and .* here\)"):
        checkpoints.load(job)


def test_another_data_set_is_another_run(killed: Path, folder: Path, tmp_path: Path):
    job = replace(job_of(folder, killed, world_size=2), data=replace(read_image_folder(folder, 10), train={"one": 100}))
    with pytest.raises(BadInput, match=r"is of another run \(data is "):
        checkpoints.load(job)


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", None])
def test_a_damaged_checkpoint_is_one_sentence(
    content: bytes | None, killed: Path, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    """None is a file that lost its second half."""
    path = tmp_path / "checkpoints" / f"{RUN_ID}.pt"
    path.parent.mkdir()
    whole = (killed / "checkpoints" / f"{RUN_ID}.pt").read_bytes()
    path.write_bytes(whole[: len(whole) // 2] if content is None else content)
    sentence = refusal(arguments(folder, tmp_path), capsys)
    assert sentence.startswith(f"checkpoint is '{path}': is truncated or no checkpoint; move it away")


@pytest.mark.parametrize("content", [{"model": 1}, [1, 2]])
def test_another_file_of_torchs_is_no_checkpoint(content: object, folder: Path, tmp_path: Path):
    job = job_of(folder, tmp_path)
    job.checkpoints.mkdir()
    torch.save(content, job.checkpoint)
    with pytest.raises(BadInput, match="is no checkpoint of a full-scale run; move it away"):
        checkpoints.load(job)


def test_a_checkpoint_that_cannot_be_written_leaves_the_former_one(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    job = job_of(folder, tmp_path)
    job.checkpoints.mkdir()
    checkpoints.save(job, {"number": 1})

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"cannot be written \(No space left on device\)"):
        checkpoints.save(job, {"number": 2})
    assert checkpoints.load(job) == {"number": 1}


def test_a_run_that_is_being_trained_is_not_started_again(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    with checkpoints.hold(job_of(folder, tmp_path)):
        assert refusal(arguments(folder, tmp_path), capsys).startswith(
            f"run is '{RUN_ID}': is being trained by another process"
        )


@pytest.mark.parametrize("name", ["WORLD_SIZE", "SLURM_STEP_NUM_TASKS"])
def test_several_processes_without_torchrun_are_refused(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setenv(name, "4")
    assert main([]) == 2
    assert capsys.readouterr().err.startswith(f"full_scale: {name} is '4': several processes need torchrun")


def test_a_gpu_must_be_there_for_every_process_and_compute_in_bf16(monkeypatch: pytest.MonkeyPatch, alone: Processes):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="device is 'cuda': this machine has no CUDA device"):
        check_hardware("cuda", FullRecipe(), alone)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "Old GPU")
    assert check_hardware("cuda", FullRecipe(), replace(alone, local_rank=1)) == "cuda"
    with pytest.raises(BadInput, match="GPU is 2: this machine has 2"):
        check_hardware("cuda", FullRecipe(), replace(alone, local_rank=2))
    with pytest.raises(BadInput, match="precision is 'bf16': Old GPU does not compute in it, use fp32"):
        check_hardware("cuda", FullRecipe(precision="bf16"), alone)


def test_the_batch_is_shared_out_evenly_or_refused(folder: Path, tmp_path: Path):
    assert job_of(folder, tmp_path, world_size=4, batch_size=40).share == 10
    with pytest.raises(BadInput, match="batch size is 42: must be divisible by the 4 processes"):
        job_of(folder, tmp_path, world_size=4, batch_size=42)


# ---- shapes, recipe, loaders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", VISION_ROWS, ids=lambda row: row.name)
def test_the_arms_at_full_scale_are_the_rows_own_shapes_and_their_crossings(row: Any):
    assert arm_shape(row, "before", "before") == row.before
    assert arm_shape(row, "after", "after") == row.after
    crossed = arm_shape(row, "before", "after")
    assert (crossed.depth, crossed.heads) == (row.before.depth, row.heads_after)
    crossed = arm_shape(row, "after", "before")
    assert (crossed.depth, crossed.heads) == (row.depth_after, row.before.heads)


def test_a_full_run_is_planned_with_the_recounted_parameters_of_its_row():
    for found in recount_rows([claim for claim in load_rows() if claim.status == "clean"], with_search=False):
        for arm, side in zip(ARMS, (found.before, found.after), strict=True):
            run = plan_run(found.claim.row, arm, arm, 1)
            assert run.parameters == side.count
            assert run.run_id == f"{found.claim.row}.depth-{arm}.heads-{arm}.seed-1"
            assert (run.shape.image_size, run.shape.classes) == (224, 1000)


@pytest.mark.parametrize("row", VISION_ROWS, ids=lambda row: row.name)
def test_stochastic_depth_lies_on_every_residual_branch_and_has_no_parameters(row: Any):
    shape = reduced_shape(row, "after", "after")
    plain, skipping = build(shape), with_stochastic_depth(build(shape), 0.25)
    branches = [module for module in skipping.modules() if isinstance(module, DropPath)]
    per_block = {"xcit": 3, "tnt": 1, "davit": 4, "vit": 2}[shape.family]
    class_blocks = 2 * shape.class_depth if shape.family == "xcit" else 0
    assert len(branches) == per_block * sum(shape.depth) + class_blocks
    assert {branch.drop_prob for branch in branches} == {0.25}
    assert not any(isinstance(module, DropPath) for module in plain.modules())
    assert sum(p.numel() for p in skipping.parameters()) == count_parameters(shape)


def test_the_epochs_are_those_of_the_literature_record():
    assert FullRecipe().epochs == int(str(load_table("lit527").loc["epochs", "value"]))


def test_the_strongest_augmentation_that_the_recipe_draws_is_one_that_can_be_carried_out():
    image = Image.new("RGB", (32, 32))
    operations = rand_augment_transform(FullRecipe().auto_augment, {}).ops
    assert any(operation.name == "PosterizeIncreasing" for operation in operations)
    for operation in operations:
        operation.prob, operation.magnitude, operation.magnitude_std = 1.0, 1000, 0
        assert operation(image).size == image.size


def test_the_learning_rate_follows_the_batch():
    assert FullRecipe(batch_size=4096).learning_rate == pytest.approx(8 * FullRecipe(batch_size=512).learning_rate)


def test_the_schedule_rises_to_the_peak_and_ends_at_its_last_value(folder: Path, tmp_path: Path, alone: Processes):
    trainer = Trainer(job_of(folder, tmp_path, epochs=60), alone)  # five steps an epoch, 300 in all, five of warm-up
    rates = []
    for step in range(301):
        trainer.schedule.step_update(step)
        rates.append(trainer.optimizer.param_groups[0]["lr"])
    recipe = trainer.job.recipe
    assert rates[0] == pytest.approx(recipe.first_learning_rate)
    assert max(rates) == rates[5] == pytest.approx(recipe.learning_rate, rel=2e-3)
    assert rates[300] == pytest.approx(recipe.last_learning_rate)


@pytest.mark.parametrize("images", [1, 2, 7, 31, 50_000])
@pytest.mark.parametrize("processes", [1, 2, 3, 8])
def test_the_shares_of_validation_images_are_timms_without_its_repetitions(images: int, processes: int):
    samplers = [OrderedDistributedSampler(range(images), processes, rank) for rank in range(processes)]
    shares = [list(sampler)[: validation_share(images, sampler.rank, processes)] for sampler in samplers]
    assert sorted(index for share in shares for index in share) == list(range(images))


def test_every_epoch_has_its_own_order_and_a_seed_has_it_for_every_shape(
    folder: Path, tmp_path: Path, alone: Processes, monkeypatch: pytest.MonkeyPatch
):
    orders: list[list[int]] = []

    def look(trainer: Trainer, images: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return torch.zeros(())

    monkeypatch.setattr(Trainer, "_step", look)
    monkeypatch.setattr(Trainer, "evaluate", lambda *_: {})
    for row in ("vit-own", "tnt-b"):
        job = replace(job_of(folder, tmp_path), run=plan_run(row, "after", "before", 5, reduced=True))
        trainer = Trainer(job, alone)
        for epoch in (0, 1):
            trainer.epoch(epoch)
            orders.append(list(trainer.train.sampler))
    assert orders[:2] == orders[2:]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == list(range(100))


# ---- costs -----------------------------------------------------------------------------------------------------------


def test_the_operations_of_a_vit_are_those_of_its_matrices():
    shape = vision_row("vit-own").before
    depth, width, mlp, tokens = 12, 768, 3072, 14 * 14 + 1
    block = 2 * tokens * (4 * width * width + 2 * width * mlp) + 2 * 2 * tokens * tokens * width
    ends = 2 * 14 * 14 * (3 * 16 * 16) * width + 2 * width * 1000
    assert forward_flops(shape) == depth * block + ends
    assert costs.arm_cost(shape).training_flops_per_image == 3 * (depth * block + ends)


def test_gpu_hours_are_operations_over_the_assumed_speed():
    cost = costs.ArmCost(parameters=1, training_flops_per_image=36_000_000)
    speed = AssumedSpeed(peak_flops_per_second=2e9, utilisation=0.5)
    assert cost.gpu_hours(FullRecipe(epochs=10), speed) == pytest.approx(1_281_167 * 10 / 100_000)


@pytest.mark.parametrize(("peak", "utilisation"), [(0.0, 0.5), (-1.0, 0.5), (1e12, 0.0), (1e12, 1.1)])
def test_an_impossible_speed_is_refused(peak: float, utilisation: float):
    with pytest.raises(BadInput, match="must be"):
        AssumedSpeed(peak_flops_per_second=peak, utilisation=utilisation)


def test_every_claim_has_its_line_and_what_cannot_be_run_its_reason():
    lines = row_costs(load_rows())
    assert [line.name for line in lines] == [*(claim.row for claim in load_rows()), "vit-own"]
    by_name = {line.name: line for line in lines}
    assert {name for name, line in by_name.items() if line.after} == {row.name for row in VISION_ROWS}
    assert by_name["gpt2"].reason == "a model of text, which ImageNet-1k does not train"
    assert by_name["vit-b"].reason == "not in the record: `depth_after`, `heads_after`"
    assert by_name["volo-1"].reason.startswith("not in the record: `depth_before`")
    assert {name for name, line in by_name.items() if line.assumption} == {"davit-b", "davit-l"}
    assert all(bool(line.reason) is (line.after is None) is (line.before is None) for line in lines)
    complete = replace(load_rows()[0], row="xcit-m-of-a-reader")
    assert row_costs([complete])[0].reason == "not declared in `VISION_ROWS`"


def test_the_table_shows_before_and_after_and_the_command_of_the_reshape():
    claims = [claim for claim in load_rows() if claim.row in ("xcit-m", "davit-b", "gpt2")]
    found, recipe = row_costs(claims), FullRecipe()
    speed = AssumedSpeed(peak_flops_per_second=1e14, utilisation=1.0)
    table = tables.costs_table(found, recipe, speed).set_index("row")
    assert table.loc["XCiT-M", "parameters (M)"] == "84.40 → 46.40"
    assert "--row xcit-m --depth-arm after --heads-arm after" in str(table.loc["XCiT-M", "command of the reshape"])
    assert list(table.loc["GPT-2"]) == [
        "—", "—", "—", "cannot be run here: a model of text, which ImageNet-1k does not train",
    ]  # fmt: skip
    assert "DaViT-B †" in table.index
    data = tables.costs_data(found, recipe, speed)
    assert len(data) == 2 * len(found)
    xcit = data[data["row"] == "xcit-m"]
    assert list(xcit["parameters"]) == [count_parameters(getattr(vision_row("xcit-m"), arm)) for arm in ARMS]
    values = tables.glued(found, recipe, speed)
    ends = [end for cost in found for end in (cost.before, cost.after) if end]
    assert values["full.hours_one_seed"] == f"{round(sum(end.gpu_hours(recipe, speed) for end in ends)):,}"
    assert len(ends) == 6  # XCiT-M, DaViT-B and the row of our own, before and after
    assert (values["full.rows"], values["full.rows_not_here"]) == ("3", "1")


def test_the_tables_commands_are_ones_that_the_command_line_takes(folder: Path, capsys: pytest.CaptureFixture[str]):
    """Without the folder imagenet the first complaint is about the data, after every option was read."""
    _, options = tables.command("tnt-b", "after").split(" -m heads_for_depth.full_scale ")
    assert refusal(options.split(), capsys).startswith("train folder is 'imagenet/train': No such file")


def test_the_recipe_table_has_a_line_per_field_and_names_our_choices():
    table = tables.recipe_table(FullRecipe(), vision_row("xcit-m").before).set_index("setting")
    assert {name.strip("`") for name in table.index} == {*FullRecipe().as_dict(), "image_size"} - {"learning_rate"}
    assert table.loc["`epochs`", "origin"] == "LIT-527"
    assert set(table["origin"]) == {"LIT-527", "published baselines", "our choice"}
    assert table.loc["`image_size`", "value"] == "224"
