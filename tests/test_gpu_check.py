"""The check for a GPU machine: parts bounded and independent, a summary, and planned records as far as time allows."""

import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from heads_for_depth import records
from heads_for_depth.experiments import PlannedRun, estimated_seconds, plan
from heads_for_depth.paths import ROOT
from heads_for_depth.records import Record
from made_up_records import trained

SCRIPT = ROOT / "scripts" / "gpu_check.sh"
STAND_IN = """#!/usr/bin/env bash
echo "$*" >>"$CALLS"
case "$1 $2 $3" in
  "-W ignore scripts/gpu_probe.py") printf '%b' "$PROBED" ;;
  "-m pytest "*) eval "${TESTS:-}" ;;
  "-c "*) eval "${BENCH:-}" ;;
  "scripts/gpu_records.py "*) eval "${RECORDS:-}" ;;
esac
"""
SOUND = "records:\\ntests:\\nbench:\\nmachine:python 3.12, Accelerator X\\n"


def loaded(name: str) -> ModuleType:
    """A script as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


gpu_records, gpu_probe = loaded("gpu_records"), loaded("gpu_probe")
Run = subprocess.CompletedProcess[str]
Check = Callable[..., Run]


@pytest.fixture
def check(tmp_path: Path) -> Check:
    """The script with a stand-in for Python, which answers as the test says and notes how it was called."""
    python = tmp_path / "python"
    python.write_text(STAND_IN)
    python.chmod(0o755)

    def run(**variables: str) -> Run:
        known = {"PYTHON": str(python), "PROBED": SOUND, "CALLS": str(tmp_path / "calls"), "OUT": str(tmp_path / "out")}
        environment = {"PATH": os.environ["PATH"]} | known | variables
        return subprocess.run(
            [SCRIPT], env=environment, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=60
        )

    return run


def calls(tmp_path: Path) -> list[str]:
    return (tmp_path / "calls").read_text().splitlines()


def summary(run: Run) -> dict[str, str]:
    """Part -> state, from the lines after the heading."""
    lines = run.stdout.split("== summary")[1].splitlines()[1:]
    return {line[:10].strip(): line[10:41].strip() for line in lines}


def vision(profile: str, seeds: int = 2) -> list[PlannedRun]:
    return [run for name in ("vision_tuning", "vision_rows") for run in plan(profile, name, seeds)]


def finished(run: PlannedRun) -> Record:
    """A made-up record of a training run."""
    one = trained(run, 0.5)
    one["metrics"] |= {"validation_accuracy": 0.5, "validation_loss": 1.0}
    return one


# --- the shell script


def test_three_parts_that_succeed_are_summed_up_and_end_in_exit_code_0(tmp_path: Path, check: Check):
    run = check()
    assert run.returncode == 0
    assert summary(run) == {"tests": "ok", "bench": "ok", "records": "ok"}
    assert "python 3.12, Accelerator X" in run.stdout
    assert f"records in {tmp_path / 'out'}" in run.stdout
    pytest_call, bench_call, records_call = calls(tmp_path)[1:]
    assert "-m cuda" in pytest_call
    assert "tests/test_seed_batches.py" in pytest_call
    assert "bench --only training" in bench_call
    assert "--profile gpu --device cuda --seeds 2 --until " in records_call
    until = int(records_call.split("--until ")[1].split()[0])
    assert 300 < until - time.time() <= 440


@pytest.mark.parametrize("part", ["TESTS", "BENCH", "RECORDS"])
def test_a_part_that_fails_stops_no_other_and_ends_in_exit_code_1(tmp_path: Path, check: Check, part: str):
    run = check(**{part: "exit 3"})
    assert run.returncode == 1
    expected = {"tests": "ok", "bench": "ok", "records": "ok"} | {part.lower(): "failed: exit code 3"}
    assert summary(run) == expected
    assert len(calls(tmp_path)) == 4


def test_a_part_that_takes_too_long_is_stopped_and_the_rest_goes_on(check: Check):
    run = check(TESTS="sleep 30", LIMIT="3")
    assert run.returncode == 1
    assert summary(run) == {"tests": "failed: stopped after 1 s", "bench": "ok", "records": "ok"}


def test_what_cannot_be_imported_is_said_and_left_out(tmp_path: Path, check: Check):
    run = check(PROBED="records:\\ntests:No module named 'pytest'\\nbench:No module named 'papermill'\\nmachine:X\\n")
    assert run.returncode == 0
    assert summary(run) == {"tests": "left out", "bench": "left out", "records": "ok"}
    assert "== tests: left out, No module named 'pytest'" in run.stdout
    assert "== bench: left out, No module named 'papermill'" in run.stdout
    assert len(calls(tmp_path)) == 2


def test_without_the_package_s_own_imports_nothing_runs_and_the_way_out_is_said(tmp_path: Path, check: Check):
    run = check(PROBED="records:No module named 'jaxtyping'\\n")
    assert run.returncode == 2
    assert run.stderr.startswith("gpu_check: No module named 'jaxtyping'. Where there is a network, `pip download")
    assert "WHEELS=wheels" in run.stderr
    assert len(calls(tmp_path)) == 1


def test_wheels_are_installed_for_this_run_only_and_without_a_network(tmp_path: Path, check: Check):
    (tmp_path / "wheels").mkdir()
    (tmp_path / "wheels" / "one-1.0-py3-none-any.whl").touch()
    assert check(WHEELS="wheels").returncode == 0
    installed = calls(tmp_path)[0]
    assert "pip install --quiet --no-index --no-deps --target" in installed
    assert installed.endswith(f"{tmp_path}/wheels/one-1.0-py3-none-any.whl")
    assert not Path(installed.split("--target ")[1].split()[0]).exists()


def test_only_the_named_parts_run(tmp_path: Path, check: Check):
    run = check(PARTS="records")
    assert summary(run) == {"tests": "left out", "bench": "left out", "records": "ok"}
    assert len(calls(tmp_path)) == 2


def test_a_relative_folder_counts_from_where_the_script_is_called(tmp_path: Path, check: Check):
    check(OUT="below/it")
    assert calls(tmp_path)[-1].endswith(f"--out {tmp_path}/below/it")


@pytest.mark.parametrize(
    ("variable", "value", "sentence"),
    [
        ("LIMIT", "soon", "LIMIT is 'soon': give a whole number of seconds"),
        ("LIMIT", "0", "LIMIT is '0': give a whole number of seconds"),
        ("SEEDS", "-1", "SEEDS is '-1': give a whole number of at least 1"),
        ("DEVICE", "tpu", "DEVICE is 'tpu': use cuda or cpu"),
        ("PARTS", "tests all", "PARTS names 'all': use some of tests, bench, records"),
        ("PYTHON", "/no/python", "PYTHON is '/no/python': no such program"),
        ("PROBED", "records:\\nrefused:device is 'cuda'", "device is 'cuda'"),
    ],
)
def test_a_variable_that_cannot_be_used_is_refused_in_one_sentence(
    check: Check, variable: str, value: str, sentence: str
):
    run = check(**{variable: value})
    assert run.returncode == 2
    assert run.stderr == f"gpu_check: {sentence}\n"
    assert "==" not in run.stdout


def test_on_a_cpu_it_adds_the_planned_records_that_are_missing(tmp_path: Path):
    corners = [run for run in vision("smoke", 1) if run.depth_arm == run.heads_arm]
    lacking = [run for run in corners if run.row == "vit-own" and run.depth_arm == "after" and not run.tuned_by]
    for run in corners:
        if run not in lacking:
            records.write(finished(run), tmp_path)
    variables = {"DEVICE": "cpu", "PROFILE": "smoke", "SEEDS": "1", "PARTS": "records"}
    variables |= {"OUT": str(tmp_path), "PYTHON": sys.executable}
    done = subprocess.run(
        [SCRIPT], env=os.environ | variables, capture_output=True, text=True, check=False, timeout=600
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert summary(done)["records"] == "ok"
    assert len(lacking) == 2
    for planned in lacking:
        made = records.read(records.path_of(tmp_path, "smoke", "vision_tuning", planned.run_id))
        assert (made["plan"], made["status"]) == (planned.as_dict(), "ok")


# --- what can run here


def test_what_is_missing_is_named_in_one_line(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setitem(gpu_probe.NEEDS, "bench", ("heads_for_depth.experiments", "no_such_module"))
    gpu_probe.main("cpu", "smoke", "tests", "bench")
    lines = capsys.readouterr().out.splitlines()
    assert lines[:3] == ["records:", "tests:", "bench:No module named 'no_such_module'"]
    assert lines[3].startswith(f"machine:python {sys.version.split()[0]}, torch ")


def test_without_the_package_nothing_is_said_of_the_machine(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setitem(gpu_probe.NEEDS, "records", ("no_such_module",))
    gpu_probe.main("cpu", "smoke", "tests")
    assert capsys.readouterr().out == "records:No module named 'no_such_module'\n"


@pytest.mark.parametrize(
    ("device", "profile", "sentence"), [("cuda", "gpu", "device is 'cuda'"), ("cpu", "huge", "profile is 'huge'")]
)
def test_a_device_or_profile_that_is_not_there_is_refused(
    monkeypatch: pytest.MonkeyPatch, device: str, profile: str, sentence: str
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert gpu_probe.machine(device, profile).startswith(f"refused:{sentence}")


# --- records within a time


class Clock:
    """A job takes what the test says, on a clock that nobody waits for."""

    def __init__(self, seconds: Callable[[PlannedRun], float]) -> None:
        self.now, self.seconds = 1000.0, seconds
        self.ran: list[PlannedRun] = []

    def execute_job(self, job: tuple[PlannedRun, ...], device: str) -> list[Record]:
        """Records of a job, later."""
        self.now += sum(map(self.seconds, job))
        self.ran += job
        return [finished(run) for run in job]


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """A hundred times as fast as estimated."""
    found = Clock(lambda run: estimated_seconds(run) / 100)
    monkeypatch.setattr(gpu_records, "execute_job", found.execute_job)
    for name in ("time", "monotonic"):
        monkeypatch.setattr(gpu_records.time, name, lambda: found.now)
    return found


def test_baseline_and_reshape_of_every_row_are_run_the_cheapest_row_first(tmp_path: Path, clock: Clock):
    added = gpu_records.run_until(1e9, vision("gpu"), tmp_path, "cpu")
    corners = [run for run in vision("gpu") if run.depth_arm == run.heads_arm]
    assert added == len(corners) == len(clock.ran)
    assert {run.run_id for run in clock.ran} == {run.run_id for run in corners}
    order = list(dict.fromkeys(run.row for run in clock.ran))
    cost = {row: sum(estimated_seconds(run) for run in corners if run.row == row) for row in order}
    assert order == sorted(order, key=cost.__getitem__)


def test_the_tuning_of_a_shape_comes_before_its_seeds(tmp_path: Path, clock: Clock):
    gpu_records.run_until(1e9, vision("gpu"), tmp_path, "cuda")
    done: set[str] = set()
    for run in clock.ran:
        if run.experiment == "vision_rows":
            assert run.recipe is not None
            assert run.recipe.learning_rate is not None
            assert {one.run_id for one in vision("gpu") if one.run_id == run.run_id and set(one.tuned_by) <= done}
        done.add(run.run_id)


def test_no_run_is_started_that_would_not_end_in_time(tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]):
    end = clock.now + 60
    added = gpu_records.run_until(end, vision("gpu"), tmp_path, "cpu")
    assert 0 < added == len(list(tmp_path.rglob("*.json")))
    assert end - 60 < clock.now <= end
    assert capsys.readouterr().out.splitlines()[-1].endswith("would not fit into the time left")


def test_what_is_recorded_is_not_run_again(tmp_path: Path, clock: Clock):
    first = gpu_records.run_until(clock.now + 60, vision("gpu"), tmp_path, "cpu")
    rest = gpu_records.run_until(1e9, vision("gpu"), tmp_path, "cpu")
    assert first + rest == len({run.run_id for run in clock.ran}) == len(clock.ran)


def test_a_job_is_told_with_its_speed(tmp_path: Path, clock: Clock, capsys: pytest.CaptureFixture[str]):
    run = next(run for run in vision("smoke") if run.experiment == "vision_tuning")
    gpu_records.carry_out((run,), tmp_path, "cpu")
    assert run.recipe is not None
    speed = run.recipe.train_images * run.recipe.epochs / 90.0  # a made-up record trained for 90 seconds
    assert capsys.readouterr().out.endswith(f"{run.run_id} and 0 more: ok, {speed:,.0f} images per second\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--profile", "huge", "--device", "cpu"], "profile is 'huge'"),
        (["--device", "tpu"], "device is 'tpu'"),
        (["--profile", "smoke", "--device", "cpu", "--seeds", "0"], "seeds is 0"),
    ],
)
def test_records_that_cannot_be_made_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], sentence: str
):
    assert gpu_records.main([*options, "--out", str(tmp_path / "out")]) == 2
    assert capsys.readouterr().err.startswith(f"gpu_records: {sentence}")
