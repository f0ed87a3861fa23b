"""Checkpoints: a continued run is the uninterrupted one bit for bit, and no other run's state is taken for its own."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun
from heads_for_depth.models import count_parameters
from heads_for_depth.records import Record
from heads_for_depth.training import TrainingLoop, checkpoints, execute
from heads_for_depth.training.runs import blank_record
from long_run import long_run
from repeated_records import without_clocks


@pytest.fixture(scope="module")
def run() -> PlannedRun:
    """Three epochs of a small XCiT."""
    return long_run(epochs=3)


@pytest.fixture(scope="module")
def whole(run: PlannedRun) -> Record:
    """The record of the run that nothing interrupts."""
    return execute(run)


@pytest.fixture
def interrupt(monkeypatch: pytest.MonkeyPatch) -> Callable[[PlannedRun, Path, int], None]:
    """Carries a run out up to the start of an epoch, as if the process ended there."""
    original = TrainingLoop.epoch

    def carry_out(run: PlannedRun, folder: Path, end: int) -> None:
        def epoch(self: Any, train: Any, number: int) -> dict[str, float]:
            if number == end:
                raise KeyboardInterrupt
            return original(self, train, number)

        with monkeypatch.context() as patch:
            patch.setattr(TrainingLoop, "epoch", epoch)
            with pytest.raises(KeyboardInterrupt):
                execute(run, "cpu", folder)

    return carry_out


@pytest.mark.parametrize("epoch", [1, 2])
def test_a_run_continued_after_any_epoch_equals_the_uninterrupted_run_bit_for_bit(
    run: PlannedRun, whole: Record, tmp_path: Path, interrupt, epoch: int
):
    interrupt(run, tmp_path, epoch)
    torch.manual_seed(99)  # another process has another global state
    continued = execute(run, "cpu", tmp_path)
    assert without_clocks(continued) == without_clocks(whole)
    assert continued["seconds"]["resumed"] == 1
    assert "before" not in continued["seconds"]


def test_a_run_interrupted_twice_adds_its_times_up(run: PlannedRun, whole: Record, tmp_path: Path, interrupt):
    interrupt(run, tmp_path, 1)
    interrupt(run, tmp_path, 2)
    continued = execute(run, "cpu", tmp_path)
    assert without_clocks(continued) == without_clocks(whole)
    assert continued["seconds"]["resumed"] == 2
    assert continued["seconds"]["total"] >= sum(epoch["seconds"] for epoch in continued["metrics"]["epochs"])


def test_a_checkpoint_holds_every_number_that_training_changes(run: PlannedRun, tmp_path: Path, interrupt):
    interrupt(run, tmp_path, 1)
    state = torch.load(checkpoints.path_of(tmp_path, blank_record(run, "cpu")), weights_only=True)["state"]
    assert state["step"] == 4
    assert any(name.endswith("running_var") for name in state["model"])
    moments = state["optimizer"]["state"].values()
    assert all({"exp_avg", "exp_avg_sq", "step"} <= set(moment) for moment in moments)


def test_the_last_epoch_and_a_run_without_a_folder_leave_no_checkpoint(run: PlannedRun, tmp_path: Path):
    execute(replace(run, recipe=replace(run.recipe, epochs=1)), "cpu", tmp_path)  # type: ignore[type-var]
    assert list(tmp_path.rglob("*")) == []


def wider(run: PlannedRun) -> PlannedRun:
    shape = replace(run.shape, mlp_width=(64,))
    return replace(run, shape=shape, parameters=count_parameters(shape))


def at_another_rate(run: PlannedRun) -> PlannedRun:
    assert run.recipe is not None
    return replace(run, recipe=run.recipe.with_learning_rate(1e-3))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (wider, r"is from another plan \(shape mlp_width \[32\] then, \[64\] now\), remove it to start the run again$"),
        (at_another_rate, r"is from another plan \(recipe learning_rate 0.004 then, 0.001 now\), remove it"),
        (lambda run: replace(run, seed=4), r"is from another plan \(seed 3 then, 4 now\), remove it"),
    ],
    ids=["shape", "learning rate", "seed"],
)
def test_a_checkpoint_of_another_plan_is_refused(
    run: PlannedRun, tmp_path: Path, interrupt, change: Callable[[PlannedRun], PlannedRun], sentence: str
):
    interrupt(run, tmp_path, 1)
    with pytest.raises(BadInput, match=sentence):
        execute(change(run), "cpu", tmp_path)


@pytest.mark.parametrize(
    ("field", "value", "sentence"),
    [
        ("versions", {"torch": "1.0"}, r"another versions \(.* then, .* now\)"),
        ("threads", 7, r"another threads \(7 then, 1 now\)"),
        ("commit", "0" * 40, rf"another commit \({'0' * 40} then"),
    ],
)
def test_a_checkpoint_whose_origin_would_change_the_bits_is_refused(
    run: PlannedRun, tmp_path: Path, interrupt, field: str, value: object, sentence: str
):
    interrupt(run, tmp_path, 1)
    path = checkpoints.path_of(tmp_path, blank_record(run, "cpu"))
    saved = torch.load(path, weights_only=True)
    saved["record"]["provenance"][field] = value
    torch.save(saved, path)
    with pytest.raises(BadInput, match=sentence):
        execute(run, "cpu", tmp_path)


@pytest.mark.parametrize("damage", [lambda data: data[: len(data) // 2], lambda _: b"", lambda _: b"no checkpoint"])
def test_a_damaged_checkpoint_is_refused_by_its_name(
    run: PlannedRun, tmp_path: Path, interrupt, damage: Callable[[bytes], bytes]
):
    interrupt(run, tmp_path, 1)
    path = checkpoints.path_of(tmp_path, blank_record(run, "cpu"))
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(BadInput, match=r"checkpoint is '.*long.seed-3.pt': cannot be read, remove it to start the run"):
        execute(run, "cpu", tmp_path)


def test_a_file_in_another_format_is_refused(run: PlannedRun, tmp_path: Path):
    path = checkpoints.path_of(tmp_path, blank_record(run, "cpu"))
    path.parent.mkdir(parents=True)
    torch.save({"format": "heads-for-depth/checkpoint/0"}, path)
    with pytest.raises(BadInput, match=r"is not in format heads-for-depth/checkpoint/1, remove it"):
        execute(run, "cpu", tmp_path)
