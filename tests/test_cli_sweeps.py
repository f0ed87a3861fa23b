"""`plan`, `run` and `status` as a stranger meets them: what they print, and one sentence for what they cannot do."""

import fcntl
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from heads_for_depth import datasets, records
from heads_for_depth.cli.main import main
from heads_for_depth.experiments import PlannedRun, estimated_seconds, plan
from heads_for_depth.records import Record
from heads_for_depth.sweeps import SweepFailed
from heads_for_depth.sweeps.workers import available_cores
from heads_for_depth.training import jobs, runs

SMOKE = {
    "vision_tuning": 48, "vision_rows": 24, "vision_tuning_keep_heads": 8, "vision_rows_keep_heads": 4,
    "conditioning_training": 4, "map_tuning": 4, "map": 6, "edge_tuning": 6, "edge": 6, "cause_tuning": 6, "cause": 8,
    "conditioning": 6, "premises": 3,
}  # fmt: skip


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch, inline: None, record_of: Callable[..., Record]) -> None:
    """Runs happen in no time."""
    monkeypatch.setattr(jobs, "execute", lambda run, *_: record_of(run))


def status_of(results: Path, capsys: pytest.CaptureFixture[str], *options: str) -> dict[str, dict[str, int]]:
    assert main(["status", "--profile", "smoke", "--results", str(results), "--json", *options]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["profile"] == "smoke"
    return {entry.pop("experiment"): entry for entry in answer["experiments"]}


def files(results: Path) -> list[Path]:
    return [path for path in results.rglob("*") if path.is_file() and path.name != ".sweep.lock"]


def test_plan_prints_runs_and_estimated_minutes_and_runs_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["plan", "--profile", "smoke", "--results", str(tmp_path / "none"), "--workers", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["experiment", "row", "runs", "to", "do", "minutes"]
    runs = plan("smoke")
    minutes = sum(map(estimated_seconds, runs)) / 60 / 2
    assert re.fullmatch(r"total +133 +133 +([\d.]+)  \(estimate, 2 workers\)", lines[-1])
    assert float(lines[-1].split()[3]) == pytest.approx(minutes, abs=0.06)
    assert sum(float(line.split()[4]) for line in lines[1:-1]) == pytest.approx(minutes, abs=0.06 * len(lines))
    assert len(lines) == 2 + len({(run.experiment, run.row) for run in runs})
    assert list(tmp_path.iterdir()) == []


def test_plan_of_one_worker_takes_twice_as_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    totals = {}
    for workers in ("1", "2"):
        only = ["--profile", "cpu", "--experiment", "vision_rows", "--results", str(tmp_path)]
        assert main(["plan", *only, "--workers", workers]) == 0
        totals[workers] = float(capsys.readouterr().out.splitlines()[-1].split()[3])
    assert totals["1"] == pytest.approx(2 * totals["2"], abs=0.2)


def test_plan_counts_only_what_is_left_to_do(tmp_path: Path, capsys: pytest.CaptureFixture[str], made_up: None):
    assert main(["run", "--profile", "smoke", "--experiment", "conditioning", "--results", str(tmp_path)]) == 0
    capsys.readouterr()
    assert main(["plan", "--profile", "smoke", "--results", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[2:] for line in lines if line.startswith("conditioning ")] == [["6", "0", "0.0"]]
    assert lines[-1].split()[:3] == ["total", "133", "127"]


def test_status_counts_planned_recorded_failed_and_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], record_of: Callable[..., Record]
):
    rows = [run for run in plan("smoke") if run.experiment == "vision_rows"]
    for run, outcome in zip(rows, ("ok", "ok", "diverged"), strict=False):
        records.write(record_of(run, outcome), tmp_path)
    expected = {name: {"planned": n, "recorded": 0, "failed": 0, "missing": n} for name, n in SMOKE.items()}
    expected["vision_rows"] = {"planned": 24, "recorded": 3, "failed": 1, "missing": 21}
    assert status_of(tmp_path, capsys) == expected
    assert main(["status", "--profile", "smoke", "--results", str(tmp_path)]) == 0
    printed = capsys.readouterr().out.splitlines()
    assert printed[0].split() == ["experiment", "planned", "recorded", "failed", "missing"]
    assert ["vision_rows", "24", "3", "1", "21"] in [line.split() for line in printed]


def test_more_seeds_are_more_planned_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert status_of(tmp_path, capsys, "--seeds", "3")["vision_rows"]["planned"] == 72


def test_run_does_everything_once(tmp_path: Path, capsys: pytest.CaptureFixture[str], made_up: None):
    command = ["run", "--profile", "smoke", "--results", str(tmp_path)]
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("133 runs added, 0 were recorded before, in ")
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("0 runs added, 133 were recorded before, in ")
    counted = status_of(tmp_path, capsys)
    assert {name: entry["recorded"] for name, entry in counted.items()} == SMOKE
    assert sum(entry["missing"] + entry["failed"] for entry in counted.values()) == 0
    assert len(files(tmp_path)) == 133


def test_a_sweep_shows_its_progress_on_stderr(tmp_path: Path, capsys: pytest.CaptureFixture[str], made_up: None):
    main(["run", "--profile", "smoke", "--experiment", "conditioning", "--results", str(tmp_path)])
    assert "6/6" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "run", "status"])
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]):
    assert main([command, "--help"]) == 0
    printed = capsys.readouterr().out
    assert "--profile" in printed
    assert "--results" in printed


# Refusals: one sentence on stderr, exit code 2, nothing written


def refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one sentence that a refused command prints."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("heads-for-depth: ")
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("heads-for-depth: ").rstrip("\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--profile", "huge"], "profile is 'huge': use one of smoke, cpu, gpu, full"),
        (["--profile", "full"], "profile is 'full': use one of smoke, cpu, gpu"),
        (["--seeds", "0"], "seeds is 0: must be at least 1"),
        (["--seeds", "two"], "Invalid value for '--seeds'"),
        (["--bogus"], "No such option: --bogus"),
    ],
)
@pytest.mark.parametrize("command", ["plan", "run", "status"])
def test_what_is_not_an_option_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, options: list[str], sentence: str
):
    profile = [] if "--profile" in options else ["--profile", "smoke"]
    said = refused([command, *profile, *options, "--results", str(tmp_path / "new")], capsys)
    assert said.startswith(sentence)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", ["plan", "run"])
@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (
            ["--experiment", "language"],
            "experiment is 'language': use one of vision_tuning, vision_rows, vision_tuning_keep_heads, "
            "vision_rows_keep_heads, conditioning",
        ),
        (["--workers", "0"], "Invalid value for '--workers'"),
        (["--workers", "-1"], "Invalid value for '--workers'"),
    ],
)
def test_experiments_and_workers_are_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str, options: list[str], sentence: str
):
    said = refused([command, "--profile", "smoke", *options, "--results", str(tmp_path / "new")], capsys)
    assert said.startswith(sentence)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_command_is_refused(capsys: pytest.CaptureFixture[str]):
    assert refused(["trian"], capsys).startswith("No such command 'trian'")


def run_conditioning(results: Path, *options: str) -> list[str]:
    return ["run", "--profile", "smoke", "--experiment", "conditioning", "--results", str(results), *options]


def test_cuda_without_cuda_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    said = refused(run_conditioning(tmp_path / "new", "--device", "cuda"), capsys)
    assert said == "device is 'cuda': this machine has no CUDA device that torch can use, use cpu"
    assert refused(run_conditioning(tmp_path / "new", "--device", "tpu"), capsys) == "device is 'tpu': use cpu or cuda"
    assert list(tmp_path.iterdir()) == []


def test_a_results_folder_that_cannot_be_written_to_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "file").write_text("")
    said = refused(run_conditioning(tmp_path / "file" / "results"), capsys)
    assert re.fullmatch(r"results is '.*file/results': cannot be written to \(.+\), choose another folder", said)
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_table_runs_without_their_tuning_runs_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made_up: None
):
    said = refused(["run", "--profile", "smoke", "--experiment", "vision_rows", "--results", str(tmp_path)], capsys)
    assert re.fullmatch(r"tuning record is '.*\.json': is missing; run the experiment vision_tuning first", said)
    assert files(tmp_path) == []


def test_a_second_sweep_in_the_same_folder_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made_up: None
):
    with (tmp_path / ".sweep.lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        said = refused(run_conditioning(tmp_path), capsys)
    assert said == f"results is {str(tmp_path)!r}: another sweep is writing there, wait for it or stop it"
    assert files(tmp_path) == []
    assert main(run_conditioning(tmp_path)) == 0


@pytest.mark.parametrize("command", ["plan", "run", "status"])
@pytest.mark.parametrize(
    ("content", "remedy"),
    [
        ('{"schema": "heads-for', "is truncated or no JSON; remove it and run the sweep again"),
        ('{"schema": "heads-for-depth/run/0"}', "is from another version, this one reads heads-for-depth/run/1"),
        ('{"schema": "heads-for-depth/run/1"}', "remove it and run the sweep again"),
    ],
)
def test_a_bad_record_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inline: None, command: str, content: str, remedy: str
):
    path = tmp_path / "smoke" / "conditioning" / "x.json"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    said = refused([command, "--profile", "smoke", "--results", str(tmp_path)], capsys)
    assert str(path) in said
    assert said.endswith(remedy)
    assert files(tmp_path) == [path]


def test_a_corrupted_data_file_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inline: None, monkeypatch: pytest.MonkeyPatch
):
    """Read with another checksum than the file has, which is what a changed file looks like."""
    monkeypatch.setitem(datasets.MD5, "t10k-images-idx3-ubyte.gz", "0" * 32)
    monkeypatch.setattr(runs, "fashion_mnist", datasets.fashion_mnist.__wrapped__)
    assert main(["run", "--profile", "smoke", "--experiment", "vision_tuning", "--results", str(tmp_path)]) == 2
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.fullmatch(r"heads-for-depth: data file is '.*t10k-images-.*': does not have MD5 0{32}; restore .*", said)
    assert files(tmp_path) == []


# Ends that are nobody's fault


def test_ctrl_c_is_answered_with_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], inline: None, monkeypatch, record_of: Callable[..., Record]
):
    def interrupted(run: PlannedRun, *_: object) -> Record:
        if files(tmp_path):
            raise KeyboardInterrupt
        return record_of(run)

    monkeypatch.setattr(jobs, "execute", interrupted)
    assert main(run_conditioning(tmp_path, "--workers", "1")) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert said == "heads-for-depth: interrupted; what was recorded is whole, the same command goes on from there"
    assert len(files(tmp_path)) == 1


def test_a_killed_worker_is_answered_with_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    def killed(*_: object) -> int:
        raise SweepFailed("a worker process was killed")

    monkeypatch.setattr("heads_for_depth.cli.sweep_commands.run_all", killed)
    assert main(run_conditioning(tmp_path)) == 1
    assert capsys.readouterr().err == "heads-for-depth: a worker process was killed\n"


def test_a_measured_number_of_workers_is_said_and_used(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    used: list[int | None] = []

    def run_all(planned: object, results: Path, workers: int | None, *_: object) -> int:
        used.append(workers)
        return 0

    monkeypatch.setattr("heads_for_depth.benchmark.workers.recommended_workers", lambda: 1)
    monkeypatch.setattr("heads_for_depth.cli.sweep_commands.run_all", run_all)
    assert main(run_conditioning(tmp_path, "--measure")) == 0
    assert used == [1]
    assert "1 workers train fastest on this machine" in capsys.readouterr().err
    assert refused(run_conditioning(tmp_path, "--measure", "--workers", "2"), capsys) == (
        "workers is 2: is measured with --measure, leave one of the two out"
    )


def test_more_workers_than_cores_take_turns_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], made_up: None
):
    cores = len(available_cores())
    assert main(run_conditioning(tmp_path, "--workers", str(cores + 1))) == 0
    assert f"heads-for-depth: workers is {cores + 1}: {cores} cores take turns" in capsys.readouterr().err
