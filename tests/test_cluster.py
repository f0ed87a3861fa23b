"""Sweeps on a real Dask scheduler with real worker processes on loopback, one of which is killed in mid-run."""

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from heads_for_depth import records
from heads_for_depth.cli.main import main
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun
from heads_for_depth.records import Record
from heads_for_depth.sweeps import SweepFailed, cluster, missing, run_all
from heads_for_depth.sweeps.cluster import on_cluster
from heads_for_depth.training import execute
from long_run import long_run
from repeated_records import without_clocks

Process = subprocess.Popen[bytes]
DASK = [sys.executable, "-m", "dask"]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


UNREACHED = "cannot be reached; start one with `dask scheduler` and give the address that it prints"


def four_runs() -> list[PlannedRun]:
    return [replace(long_run(epochs=2), run_id=f"long.seed-{seed}", seed=seed) for seed in range(4)]


def start(*arguments: str) -> Process:
    return subprocess.Popen([*DASK, *arguments], **QUIET)  # type: ignore[call-overload]


def wait_until(condition: Callable[[], bool], seconds: float = 300) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


@pytest.fixture
def scheduler(tmp_path: Path) -> Iterator[tuple[str, Process]]:
    """Address and process of a scheduler without workers."""
    file = tmp_path / "scheduler.json"
    process = start("scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file))
    wait_until(file.is_file)
    yield json.loads(file.read_text())["address"], process
    process.kill()
    process.wait()


@pytest.fixture
def start_worker(scheduler: tuple[str, Process], tmp_path: Path) -> Iterator[Callable[..., Process]]:
    """Starts workers without a nanny, which would start a killed one again."""
    started: list[Process] = []

    def worker(threads: int = 1) -> Process:
        place = str(tmp_path / f"worker-{len(started)}")
        started.append(start("worker", scheduler[0], "--nthreads", str(threads), "--no-nanny", "--no-dashboard",
                             "--local-directory", place))  # fmt: skip
        return started[-1]

    yield worker
    for process in started:
        process.kill()
        process.wait()


def test_a_sweep_survives_the_death_of_one_of_two_workers_and_the_bits_are_those_of_this_machine(
    tmp_path: Path, scheduler: tuple[str, Process], start_worker: Callable[..., Process]
):
    results, runs = tmp_path / "results", four_runs()
    doomed, _ = start_worker(), start_worker()
    added: list[int] = []
    sweep = threading.Thread(target=lambda: added.append(run_all(runs, results, open_workers=on_cluster(scheduler[0]))))
    sweep.start()
    wait_until(lambda: len(missing(runs, results)) < 4)
    doomed.kill()
    sweep.join(timeout=600)
    assert added == [4]
    found = records.load(results, "smoke", "vision_rows")
    assert [without_clocks(record) for record in found] == [without_clocks(execute(run)) for run in runs]
    assert not (results / ".checkpoints").exists()


def test_a_scheduler_that_dies_ends_the_sweep_in_one_sentence_and_what_had_finished_is_recorded(
    tmp_path: Path, scheduler: tuple[str, Process], start_worker: Callable[..., Process], monkeypatch
):
    start_worker()
    results, runs = tmp_path / "results", four_runs()

    def kill_after_the_first(record: Record, folder: Path) -> Path:
        path = write(record, folder)
        scheduler[1].kill()
        return path

    write = records.write
    monkeypatch.setattr(records, "write", kill_after_the_first)
    with pytest.raises(
        SweepFailed, match=r"^the scheduler tcp://.* is gone, finished runs are recorded, the same comm"
    ):
        run_all(runs, results, open_workers=on_cluster(scheduler[0]))
    assert len(missing(runs, results)) == 3


def test_a_worker_with_several_threads_is_refused_since_torch_would_share_them(
    tmp_path: Path, scheduler: tuple[str, Process], start_worker: Callable[..., Process]
):
    start_worker(threads=2)
    with pytest.raises(BadInput, match=r"worker is 'tcp://127.0.0.1:\d+': has 2 threads, start it with --nthreads 1"):
        run_all(four_runs(), tmp_path / "results", open_workers=on_cluster(scheduler[0]))


def test_a_worker_of_another_commit_and_a_worker_without_the_device_are_refused(
    tmp_path: Path, scheduler: tuple[str, Process], start_worker: Callable[..., Process], monkeypatch
):
    start_worker()
    with pytest.raises(BadInput, match=r"device is 'cuda': this machine has no CUDA device"):
        run_all(four_runs(), tmp_path, device="cuda", open_workers=on_cluster(scheduler[0], "cuda"))
    monkeypatch.setattr(cluster, "_here", lambda: "0" * 40)
    with pytest.raises(BadInput, match=rf"worker is 'tcp://.*': runs commit .* and the sweep {'0' * 40}, use one sou"):
        run_all(four_runs(), tmp_path, open_workers=on_cluster(scheduler[0]))
    assert missing(four_runs(), tmp_path) == four_runs()


def test_a_scheduler_without_workers_is_refused_with_how_to_start_one(
    tmp_path: Path, scheduler: tuple[str, Process], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(cluster, "PATIENCE_SECONDS", 0.5)
    with pytest.raises(BadInput, match=r"has no workers; start some with `dask worker tcp://127.0.0.1:\d+ --n"):
        run_all(four_runs(), tmp_path / "results", open_workers=on_cluster(scheduler[0]))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--executor", "dask", "--scheduler", "tcp://127.0.0.1:1"], f"scheduler is 'tcp://127.0.0.1:1': {UNREACHED}"),
        (["--executor", "dask", "--scheduler", "nowhere at all"], f"scheduler is 'nowhere at all': {UNREACHED}"),
        (["--executor", "dask"],
         "scheduler is None: --executor dask needs its address, such as tcp://10.0.0.1:8786"),
        (["--executor", "slurm"], "executor is 'slurm': use processes or dask"),
        (["--scheduler", "tcp://127.0.0.1:1"],
         "scheduler is 'tcp://127.0.0.1:1': is for --executor dask, leave it out or add that"),
    ],
    ids=["unreachable", "no address", "none given", "unknown executor", "scheduler without dask"],
)  # fmt: skip
def test_a_cluster_that_cannot_be_used_is_answered_in_one_sentence(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, options: list[str], sentence: str
):
    monkeypatch.setattr(cluster, "PATIENCE_SECONDS", 1)
    command = ["run", "--profile", "smoke", "--experiment", "vision_tuning", "--results", str(tmp_path), *options]
    assert main(command) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"heads-for-depth: {sentence}"
    assert list(tmp_path.rglob("*.json")) == []


def test_without_dask_the_sentence_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "distributed", None)
    with pytest.raises(BadInput, match=r"executor is 'dask': needs Dask, install it with pip install 'heads-for-depth"):
        on_cluster("tcp://127.0.0.1:1")
