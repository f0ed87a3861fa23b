"""The script for a GPU: what it refuses, what it runs in which order, and what its exit code says."""

import os
import subprocess
from pathlib import Path

import pytest

from heads_for_depth.paths import ROOT

SCRIPT = ROOT / "scripts" / "gpu_throughput.sh"


def run(**variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", str(SCRIPT)], capture_output=True, text=True, check=False, timeout=60, env=os.environ | variables
    )


@pytest.fixture
def python(tmp_path: Path) -> Path:
    """A stand-in that notes how it was called; it fails as the file `code` beside it says."""
    stub = tmp_path / "python"
    stub.write_text(
        f'#!/usr/bin/env bash\necho "$@" >> "{tmp_path}/calls"\nexit "$(cat "{tmp_path}/code" 2>/dev/null || echo 0)"\n'
    )
    stub.chmod(0o755)
    return stub


@pytest.mark.parametrize(
    ("variables", "says"),
    [
        ({"LIMIT": "soon"}, "LIMIT is 'soon': give a whole number of seconds"),
        ({"LIMIT": "0"}, "LIMIT is '0': give a whole number of seconds"),
        ({"DEVICE": "tpu"}, "DEVICE is 'tpu': use cuda or cpu"),
        ({"PYTHON": "no-such-python"}, "PYTHON is 'no-such-python': no such program"),
    ],
)
def test_bad_variables_are_refused_with_one_sentence(variables: dict[str, str], says: str) -> None:
    refused = run(**variables)
    assert refused.returncode == 2
    assert refused.stderr.strip() == f"gpu_throughput: {says}"


def test_a_gpu_is_measured_in_both_precisions_eager_first(python: Path, tmp_path: Path) -> None:
    done = run(PYTHON=str(python), OUT=str(tmp_path / "out"))
    assert done.returncode == 0
    calls = (tmp_path / "calls").read_text().splitlines()
    modes = [(call.split("--precision ")[1].split()[0], call.split("--mode ")[1].split()[0]) for call in calls]
    assert modes == [("bf16", "eager"), ("fp32", "eager"), ("bf16", "compiled"), ("fp32", "compiled")]
    assert all(f"--results {tmp_path / 'out'}" in call and "--device cuda" in call for call in calls)


def test_a_cpu_is_measured_in_float32_and_smoke_without_compiling(python: Path, tmp_path: Path) -> None:
    run(PYTHON=str(python), DEVICE="cpu", PROFILE="smoke")
    (call,) = (tmp_path / "calls").read_text().splitlines()
    assert "--profile smoke --device cpu --precision fp32 --mode eager" in call


def test_a_part_that_fails_is_told_by_the_exit_code_and_the_others_run(python: Path, tmp_path: Path) -> None:
    (tmp_path / "code").write_text("1")
    assert run(PYTHON=str(python)).returncode == 1
    assert len((tmp_path / "calls").read_text().splitlines()) == 4


def test_a_machine_that_cannot_be_measured_ends_it_at_once(python: Path, tmp_path: Path) -> None:
    (tmp_path / "code").write_text("2")
    refused = run(PYTHON=str(python))
    assert refused.returncode == 2
    assert "bf16, eager cannot be measured here" in refused.stderr
    assert len((tmp_path / "calls").read_text().splitlines()) == 1
