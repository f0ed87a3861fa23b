"""Sweeps: only what is missing, tuned before tabled, one record per run whatever happens in between."""

import fcntl
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest
import torch

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun, plan
from heads_for_depth.paths import ROOT
from heads_for_depth.records import Record
from heads_for_depth.sweeps import Progress, SweepFailed, Workers, drain, missing, progress, run_all, tuned
from heads_for_depth.training import execute, jobs
from repeated_records import without_clocks

RATES = (1e-3, 2e-3, 4e-3)


class Trainer:
    """Stands in for training: remembers what it was asked to run and makes a record up."""

    def __init__(self, record_of: Callable[..., Record]) -> None:
        self.runs: list[PlannedRun] = []
        self.record_of = record_of
        self.failing: dict[str, BaseException | str] = {}

    def __call__(self, run: PlannedRun, device: str = "cpu", *_: object) -> Record:
        """The record of a run, or the failure that was asked for."""
        self.runs.append(run)
        failure = self.failing.get(run.run_id)
        if isinstance(failure, BaseException):
            raise failure
        return self.record_of(run, failure or "ok")


@pytest.fixture
def trainer(monkeypatch: pytest.MonkeyPatch, inline: None, record_of: Callable[..., Record]) -> Trainer:
    stand_in = Trainer(record_of)
    monkeypatch.setattr(jobs, "execute", stand_in)
    return stand_in


@pytest.fixture
def planned(tiny_run: PlannedRun) -> list[PlannedRun]:
    """Two table runs of one cell, listed before the three tuning runs that they need."""
    assert tiny_run.recipe is not None
    tuning = [
        replace(
            tiny_run, experiment="vision_tuning", run_id=f"tiny.rate-{rate:g}", seed=1_000,
            recipe=tiny_run.recipe.with_learning_rate(rate),
        )
        for rate in RATES
    ]  # fmt: skip
    untuned = replace(tiny_run.recipe, learning_rate=None)
    row = replace(tiny_run, recipe=untuned, tuned_by=tuple(run.run_id for run in tuning))
    rows = [replace(row, run_id=f"tiny.seed-{seed}", seed=seed) for seed in (0, 1)]
    return rows + tuning


def ids(runs: list[PlannedRun]) -> list[str]:
    return [run.run_id for run in runs]


def written(results: Path) -> dict[str, bytes]:
    """Every file with its content but the lock."""
    files = [path for path in results.rglob("*") if path.is_file() and path.name != ".sweep.lock"]
    return {str(path.relative_to(results)): path.read_bytes() for path in files}


def test_tuning_runs_come_first_and_every_run_is_recorded(tmp_path: Path, planned: list[PlannedRun], trainer: Trainer):
    assert run_all(planned, tmp_path, workers=1) == 5
    assert ids(trainer.runs) == ids(planned[2:] + planned[:2])
    assert missing(planned, tmp_path) == []


def test_a_run_at_a_fixed_rate_keeps_its_place_among_the_others(
    tmp_path: Path, planned: list[PlannedRun], tiny_run: PlannedRun, trainer: Trainer
):
    control = replace(tiny_run, run_id="control")  # takes no rate from tuning, and is no tuning run
    run_all([planned[0], control, planned[1], *planned[2:]], tmp_path, workers=1)
    assert ids(trainer.runs) == ids([*planned[2:], planned[0], control, planned[1]])


def test_a_second_call_runs_nothing(tmp_path: Path, planned: list[PlannedRun], trainer: Trainer):
    run_all(planned, tmp_path, workers=1)
    before = written(tmp_path)
    assert run_all(planned, tmp_path, workers=1) == 0
    assert len(trainer.runs) == 5
    assert written(tmp_path) == before


def test_only_what_is_missing_is_run_in_plan_order(
    tmp_path: Path, planned: list[PlannedRun], trainer: Trainer, record_of
):
    records.write(record_of(planned[3]), tmp_path)
    assert missing(planned, tmp_path) == [planned[0], planned[1], planned[2], planned[4]]
    assert run_all(planned, tmp_path, workers=1) == 4
    assert planned[3] not in trainer.runs


def test_topping_seeds_up_runs_the_new_seeds_only(tmp_path: Path, planned: list[PlannedRun], trainer: Trainer):
    run_all(planned, tmp_path, workers=1)
    more = [replace(planned[0], run_id=f"tiny.seed-{seed}", seed=seed) for seed in range(4)]
    assert run_all(more, tmp_path, workers=1) == 2
    assert ids(trainer.runs[-2:]) == ["tiny.seed-2", "tiny.seed-3"]


@pytest.mark.parametrize(
    ("outcomes", "chosen"),
    [
        ((0.5, 0.7, 0.6), 2e-3),
        ((0.5, 0.7, 0.7), 2e-3),
        ((0.7, 0.7, 0.7), 1e-3),
        (("diverged", 0.1, "out_of_memory"), 2e-3),
        ((0.3, 0.2, "diverged"), 1e-3),
    ],
)
def test_the_best_validation_accuracy_chooses_the_rate_and_the_smaller_rate_wins_a_tie(
    tmp_path: Path, planned: list[PlannedRun], record_of, outcomes: tuple[float | str, ...], chosen: float
):
    for run, outcome in zip(planned[2:], outcomes, strict=True):
        made_up = record_of(run, outcome) if isinstance(outcome, str) else record_of(run, "ok", outcome)
        records.write(made_up, tmp_path)
    run = tuned(planned[0], tmp_path)
    assert run.recipe is not None
    assert run.recipe.learning_rate == chosen
    assert run == replace(planned[0], recipe=run.recipe)


def test_the_chosen_rate_reaches_the_training(tmp_path: Path, planned: list[PlannedRun], trainer: Trainer, record_of):
    for run, accuracy in zip(planned[2:], (0.2, 0.3, 0.9), strict=True):
        records.write(record_of(run, "ok", accuracy), tmp_path)
    run_all(planned, tmp_path, workers=1)
    assert [run.recipe.learning_rate for run in trainer.runs if run.recipe] == [4e-3, 4e-3]
    recorded = records.load(tmp_path, "smoke", "vision_rows")
    assert [record["plan"]["recipe"]["learning_rate"] for record in recorded] == [4e-3, 4e-3]


def test_a_run_without_tuning_stays_as_it_is(tmp_path: Path, tiny_run: PlannedRun):
    assert tuned(tiny_run, tmp_path) is tiny_run


def test_a_missing_tuning_record_is_named_and_no_run_is_recorded(
    tmp_path: Path, planned: list[PlannedRun], trainer: Trainer
):
    with pytest.raises(BadInput, match=r"tuning record is .*tiny.rate-0.001.json': is missing; run the exp"):
        run_all(planned[:2], tmp_path, workers=1)
    assert trainer.runs == []
    assert written(tmp_path) == {}


def test_a_cell_of_which_every_learning_rate_failed_is_named(tmp_path: Path, planned: list[PlannedRun], record_of):
    for run in planned[2:]:
        records.write(record_of(run, "diverged"), tmp_path)
    with pytest.raises(BadInput, match=r"tuning records is 'tiny.rate-0.001': every learning rate of this cell failed"):
        tuned(planned[0], tmp_path)


def test_a_failed_run_is_recorded_counted_and_not_repeated(tmp_path: Path, planned: list[PlannedRun], trainer: Trainer):
    trainer.failing = {"tiny.seed-0": "diverged", "tiny.rate-0.002": "out_of_memory"}
    run_all(planned, tmp_path, workers=1)
    assert progress(planned, tmp_path) == [
        Progress(experiment="vision_rows", planned=2, recorded=2, failed=1),
        Progress(experiment="vision_tuning", planned=3, recorded=3, failed=1),
    ]
    assert run_all(planned, tmp_path, workers=1) == 0


def test_progress_counts_planned_runs_only(tmp_path: Path, planned: list[PlannedRun], record_of):
    records.write(record_of(planned[0]), tmp_path)
    records.write(record_of(replace(planned[0], run_id="tiny.seed-99")), tmp_path)
    rows = progress(planned, tmp_path)
    assert [(p.planned, p.recorded, p.failed, p.missing) for p in rows] == [(2, 1, 0, 1), (3, 0, 0, 3)]


def test_an_interruption_keeps_what_had_finished_and_the_same_call_continues(
    tmp_path: Path, planned: list[PlannedRun], trainer: Trainer
):
    trainer.failing = {"tiny.rate-0.004": KeyboardInterrupt()}
    with pytest.raises(KeyboardInterrupt):
        run_all(planned, tmp_path, workers=1)
    before = written(tmp_path)
    assert sorted(before) == [f"smoke/vision_tuning/tiny.rate-{rate}.json" for rate in ("0.001", "0.002")]
    trainer.failing = {}
    assert run_all(planned, tmp_path, workers=1) == 3
    assert before.items() <= written(tmp_path).items()
    assert missing(planned, tmp_path) == []


def test_a_failure_beside_a_finished_run_does_not_lose_the_finished_run(
    tmp_path: Path, planned: list[PlannedRun], trainer: Trainer
):
    """Two runs end at the same moment, in every order in which they can be seen."""
    trainer.failing = {"tiny.rate-0.001": BadInput("data file", "x", "is missing")}
    for attempt in range(8):
        results = tmp_path / str(attempt)
        with pytest.raises(BadInput, match="data file is 'x': is missing"):
            run_all(planned[2:4], results, workers=2)
        assert list(written(results)) == ["smoke/vision_tuning/tiny.rate-0.002.json"]


def test_no_more_runs_wait_than_there_are_workers(tmp_path: Path, planned: list[PlannedRun], monkeypatch, record_of):
    """Counted on a real executor with more threads than that."""
    running, most, lock = set(), [], threading.Lock()

    def slow(run: PlannedRun, *_: object) -> Record:
        with lock:
            running.add(run.run_id)
            most.append(len(running))
        time.sleep(0.02)
        with lock:
            running.remove(run.run_id)
        return record_of(run)

    monkeypatch.setattr(jobs, "execute", slow)
    todo = [replace(planned[2], run_id=f"run-{number}") for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        assert drain(Workers(pool=pool, count=2), [(run,) for run in todo], tmp_path) == 10
    assert max(most) == 2
    assert missing(todo, tmp_path) == []


# The lock


@pytest.fixture
def other_sweep(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that holds the folder."""
    program = (
        "import fcntl, sys, time\n"
        "file = open(sys.argv[1], 'w'); fcntl.flock(file, fcntl.LOCK_EX); print('held', flush=True); time.sleep(600)\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / ".sweep.lock")]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()
    process.stdout.close()


def test_a_second_sweep_is_refused_while_the_first_is_alive(
    tmp_path: Path, planned: list[PlannedRun], trainer: Trainer, other_sweep: subprocess.Popen[str]
):
    with pytest.raises(BadInput, match=r"results is .*: another sweep is writing there, wait for it or stop it"):
        run_all(planned, tmp_path, workers=1)
    assert trainer.runs == []
    assert written(tmp_path) == {}
    other_sweep.kill()
    other_sweep.wait()
    assert (tmp_path / ".sweep.lock").is_file()
    assert run_all(planned, tmp_path, workers=1) == 5


def test_the_lock_is_held_during_a_sweep_and_free_afterwards_also_after_a_failure(
    tmp_path: Path, planned: list[PlannedRun], monkeypatch: pytest.MonkeyPatch, trainer: Trainer
):
    def is_free() -> bool:
        with (tmp_path / ".sweep.lock").open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                return False
            return True

    seen = []

    def look_then_train(run: PlannedRun, *_: object) -> Record:
        seen.append(is_free())
        return trainer(run)

    monkeypatch.setattr(jobs, "execute", look_then_train)
    trainer.failing = {"tiny.rate-0.004": RuntimeError("broken")}
    with pytest.raises(RuntimeError, match="broken"):
        run_all(planned, tmp_path, workers=1)
    assert seen == [False, False, False]
    assert is_free()


def test_a_folder_that_cannot_be_written_to_is_refused_before_anything_runs(
    tmp_path: Path, planned: list[PlannedRun], trainer: Trainer
):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"results is .*cannot be written to"):
        run_all(planned, tmp_path / "file" / "results", workers=1)
    assert trainer.runs == []


# Real worker processes


def test_a_worker_computes_the_same_bits_as_this_process_and_its_bad_input_arrives_as_such(
    tmp_path: Path, tiny_run: PlannedRun
):
    good = replace(tiny_run, experiment="vision_tuning", run_id="good")
    bad = replace(good, run_id="wrong-count", parameters=1)
    with pytest.raises(BadInput) as refusal:
        run_all([good, bad], tmp_path, workers=1)
    assert str(refusal.value) == "parameters is 5738: the plan of wrong-count says 1"
    (record,) = records.load(tmp_path, "smoke", "vision_tuning")
    assert torch.get_num_threads() == record["provenance"]["threads"] == 1
    assert without_clocks(record) == without_clocks(execute(good))


def kill_the_next_worker(before: set[int | None]) -> None:
    """Wait for a child process that was not there before."""
    while not (new := {child.pid for child in multiprocessing.active_children()} - before):
        time.sleep(0.01)
    os.kill(new.pop() or 0, signal.SIGKILL)


def test_a_killed_worker_ends_the_sweep_in_one_sentence(tmp_path: Path, planned: list[PlannedRun]):
    before = {child.pid for child in multiprocessing.active_children()}
    killer = threading.Thread(target=kill_the_next_worker, args=(before,))
    killer.start()
    with pytest.raises(SweepFailed, match=r"^a worker process was killed, .*; finished runs are recorded, the same"):
        run_all(planned, tmp_path, workers=1)
    killer.join()
    assert written(tmp_path) == {}


def command_line(results: Path) -> list[str]:
    program = "import sys; from heads_for_depth.cli.main import main; sys.exit(main())"
    options = ["--profile", "smoke", "--experiment", "vision_tuning", "--workers", "1", "--results", str(results)]
    return [sys.executable, "-c", program, "run", *options]


def test_a_sweep_killed_in_the_middle_loses_the_running_run_only_and_the_same_command_completes_it(
    tmp_path: Path, record_of
):
    """All but the eight runs of the smallest family are recorded beforehand, to keep this short."""
    runs = plan("smoke", "vision_tuning")
    for run in runs:
        if run.row != "vit-own":
            records.write(record_of(run), tmp_path)
    before = written(tmp_path)
    first = subprocess.Popen(command_line(tmp_path), cwd=ROOT, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    folder = tmp_path / "smoke" / "vision_tuning"
    while len(list(folder.glob("*.json"))) == len(before):
        assert first.poll() is None, "the sweep ended before its first record"
        time.sleep(0.01)
    workers = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    _, alive = psutil.wait_procs(workers, timeout=120)
    assert alive == []
    after_kill = {name: content for name, content in written(tmp_path).items() if name.endswith(".json")}
    assert len(before) < len(after_kill) < len(runs)
    assert {record["run_id"] for record in records.load(tmp_path, "smoke", "vision_tuning")} <= set(ids(runs))
    second = subprocess.run(command_line(tmp_path), cwd=ROOT, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    assert f"{len(runs) - len(after_kill)} runs added, {len(after_kill)} were recorded before" in second.stdout
    found = [record["run_id"] for record in records.load(tmp_path, "smoke", "vision_tuning")]
    assert sorted(found) == sorted(ids(runs))
    assert after_kill.items() <= written(tmp_path).items()
