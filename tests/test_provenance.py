"""Where a record came from: the commit and whether it was changed, the machine, the device, the versions."""

import json
import os
import platform
import socket
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path

import pytest
import torch

from heads_for_depth import datasets, paths, provenance
from heads_for_depth.errors import BadInput


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A git repository of its own with one committed source file, taken for the project's root."""
    (tmp_path / "src").mkdir()
    (tmp_path / "src" / "a.py").write_text("a = 1\n")
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "--quiet", "--message", "first")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    provenance.commit.cache_clear()
    yield tmp_path
    provenance.commit.cache_clear()


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=Test", "-c", "user.email=test@example.org")
    command = ["git", "-C", str(folder), *names, *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


def test_a_clean_tree_is_its_commit(repository: Path):
    assert provenance.commit() == git(repository, "rev-parse", "HEAD")


def test_changed_source_is_marked(repository: Path):
    (repository / "src" / "a.py").write_text("a = 2\n")
    assert provenance.commit() == git(repository, "rev-parse", "HEAD") + "+changes"


def test_changed_prose_and_new_records_are_no_change_of_the_source(repository: Path):
    (repository / "data" / "results").mkdir(parents=True)
    (repository / "data" / "results" / "new.json").write_text("{}")
    (repository / "README.md").write_text("new")
    assert provenance.commit() == git(repository, "rev-parse", "HEAD")


def test_outside_git_the_commit_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    provenance.commit.cache_clear()
    try:
        assert provenance.commit() == "unknown"
    finally:
        provenance.commit.cache_clear()


def test_a_stamp_holds_commit_date_machine_device_threads_versions_and_data():
    stamp = provenance.stamp("cpu")
    assert set(stamp) == {"commit", "date", "machine", "device", "device_name", "threads", "versions", "data"}
    age = datetime.now(UTC) - datetime.fromisoformat(stamp["date"])
    assert -1 <= age.total_seconds() < 60
    assert stamp["device"] == "cpu"
    assert stamp["device_name"] == stamp["machine"]["processor"]
    assert stamp["threads"] == torch.get_num_threads() == 1
    assert json.loads(json.dumps(stamp)) == stamp


def test_the_machine_is_described_as_the_system_describes_it():
    machine = provenance.machine()
    assert machine["cores"] == os.cpu_count()
    assert machine["system"] == f"{platform.system()} {platform.machine()}"
    assert machine["processor"]
    if Path("/proc/meminfo").is_file():
        kibibytes = int(Path("/proc/meminfo").read_text().split("MemTotal:")[1].split()[0])
        assert machine["memory_bytes"] == pytest.approx(1024 * kibibytes, rel=0.05)


def test_versions_are_those_that_are_installed():
    versions = provenance.versions()
    assert versions["python"] == platform.python_version()
    assert {name: versions[name] for name in ("torch", "timm", "numpy")} == {
        name: version(name) for name in ("torch", "timm", "numpy")
    }


def test_a_missing_package_is_said_to_be_missing(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(provenance, "PACKAGES", ("numpy", "no-such-package-527"))
    assert provenance.versions()["no-such-package-527"] == "not installed"


def test_the_digest_of_the_data_follows_the_checksums(monkeypatch: pytest.MonkeyPatch):
    before = provenance.stamp("cpu")["data"]
    assert provenance.stamp("cpu")["data"] == before
    monkeypatch.setitem(datasets.MD5, "t10k-labels-idx1-ubyte.gz", "0" * 32)
    assert provenance.stamp("cpu")["data"] != before


def test_a_stamp_names_neither_host_nor_user_nor_folder():
    text = json.dumps(provenance.stamp("cpu"))
    assert socket.gethostname() not in text
    assert str(paths.ROOT) not in text
    assert str(Path.home()) not in text


def test_an_unknown_device_is_refused():
    with pytest.raises(BadInput, match="device is 'tpu': use cpu or cuda"):
        provenance.check_device("tpu")


def test_cuda_is_refused_where_there_is_none_and_taken_where_there_is_one(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(BadInput, match="device is 'cuda': this machine has no CUDA device that torch can use, use cpu"):
        provenance.check_device("cuda")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    assert provenance.check_device("cuda") == "cuda"
    assert provenance.check_device("cpu") == "cpu"


def test_a_machine_is_named_by_its_processor_and_cores() -> None:
    machine = {"processor": "Intel(R) Core(TM) i7-8550U CPU @ 1.80GHz", "cores": 8}
    assert provenance.machine_slug(machine) == "intel-core-i7-8550u-cpu-1-80ghz-8-cores"
