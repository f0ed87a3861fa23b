"""What can happen to a sweep, done to it: nothing recorded is lost, nothing half is read, the same call goes on."""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun, plan
from heads_for_depth.paths import ROOT
from heads_for_depth.records import Record
from heads_for_depth.sweeps import missing, run_all
from heads_for_depth.training import checkpoints, execute
from heads_for_depth.training.runs import blank_record
from long_run import long_run
from repeated_records import without_clocks

LONG_RUN = [sys.executable, str(Path(__file__).with_name("long_run.py"))]
QUIET = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
PATIENCE = 300
"""Seconds after which a process that should have ended counts as hanging."""


def command_line(results: Path) -> list[str]:
    """The command as from a terminal, where Ctrl-C is heard; what runs this suite may have it ignored."""
    program = (
        "import signal, sys; signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "from heads_for_depth.cli.main import main; sys.exit(main())"
    )
    options = ["--profile", "smoke", "--experiment", "vision_tuning", "--workers", "1", "--results", str(results)]
    return [sys.executable, "-c", program, "run", *options]


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    while not condition():
        assert process.poll() is None, "the process ended too early"
        time.sleep(0.01)


def all_gone(processes: list[psutil.Process]) -> bool:
    return psutil.wait_procs(processes, timeout=PATIENCE)[1] == []


# Killed


def test_a_run_whose_parent_and_worker_are_killed_goes_on_after_its_last_epoch_to_the_same_bits(tmp_path: Path):
    checkpoint = checkpoints.path_of(tmp_path / ".checkpoints", blank_record(long_run(), "cpu"))
    first = subprocess.Popen([*LONG_RUN, str(tmp_path)], cwd=ROOT, text=True, **QUIET)  # type: ignore[call-overload]
    wait_for(checkpoint.is_file, first)
    workers = psutil.Process(first.pid).children(recursive=True)
    first.kill()
    first.wait()
    assert all_gone(workers)
    assert missing([long_run()], tmp_path) == [long_run()]
    assert run_all([long_run()], tmp_path, workers=1) == 1
    (record,) = records.load(tmp_path, "smoke", "vision_rows")
    assert record["seconds"]["resumed"] == 1
    assert without_clocks(record) == without_clocks(execute(long_run()))
    assert list(tmp_path.rglob("*.pt")) == []


def test_a_process_killed_while_it_writes_a_record_leaves_no_record_and_the_next_sweep_clears_the_rest(
    tmp_path: Path, tiny_run: PlannedRun, record_of: Callable[..., Record], inline: None
):
    """Killed when the text is written and the file has not its name yet."""
    program = (
        "import json, os, signal, sys; from pathlib import Path; from heads_for_depth import records\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "records.write(json.loads(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    run = replace(tiny_run, experiment="vision_tuning", run_id="killed")
    command = [sys.executable, "-c", program, json.dumps(record_of(run)), str(tmp_path)]
    assert subprocess.run(command, check=False).returncode == -signal.SIGKILL
    (left,) = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert left.name.startswith(".writing-")
    assert left.stat().st_size > 0
    assert missing([run], tmp_path) == [run]
    assert run_all([run], tmp_path, workers=1) == 1
    assert [path.name for path in (tmp_path / "smoke").rglob("*") if path.is_file()] == ["killed.json"]


# Interrupted


def test_ctrl_c_ends_parent_and_workers_says_what_is_saved_and_a_second_sweep_meanwhile_is_refused(
    tmp_path: Path, record_of: Callable[..., Record]
):
    """Ctrl-C reaches every process of the terminal, so it is sent to the whole group."""
    runs = plan("smoke", "vision_tuning")
    for run in runs[:-24]:
        records.write(record_of(run), tmp_path)
    first = subprocess.Popen(
        command_line(tmp_path), cwd=ROOT, text=True, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        start_new_session=True,
    )  # fmt: skip
    wait_for(lambda: bool(psutil.Process(first.pid).children(recursive=True)), first)
    with pytest.raises(BadInput, match=r"results is .*: another sweep is writing there, wait for it or stop it"):
        run_all(runs, tmp_path, workers=1)
    folder = tmp_path / "smoke" / "vision_tuning"
    wait_for(lambda: len(list(folder.glob("*.json"))) > len(runs) - 24, first)
    workers = psutil.Process(first.pid).children(recursive=True)
    os.killpg(first.pid, signal.SIGINT)
    _, said = first.communicate(timeout=PATIENCE)
    assert first.returncode == 130, said
    assert all_gone(workers)
    recorded = len(records.load(tmp_path, "smoke", "vision_tuning"))
    assert len(runs) - 24 < recorded < len(runs)
    assert f"{recorded} of {len(runs)} planned runs are recorded in" in said
    assert "Traceback" not in said


# Out of space, out of memory


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 256 KiB; where mounting is not allowed, files of this process end at that size."""
    folder = tmp_path / "small"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode == 0:
        yield folder
        subprocess.run(["umount", str(folder)], check=True)
        return
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (256 * 1024, before[1]))
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    yield folder
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, ignored)


def large(record: Record) -> Record:
    """A record that alone fills the small disk."""
    return record | {"kappa": {"filling": "x" * 400 * 1024}}


def test_a_full_disk_is_said_in_one_sentence_and_what_was_recorded_stays(
    small_disk: Path, tiny_run: PlannedRun, record_of: Callable[..., Record]
):
    first, second = (replace(tiny_run, run_id=name) for name in ("first", "second"))
    records.write(record_of(first), small_disk)
    with pytest.raises(
        BadInput, match=r"results is .*cannot be written to \((No space left|File too large).*another fo"
    ):
        records.write(large(record_of(second)), small_disk)
    assert [path.name for path in small_disk.rglob("*") if path.is_file()] == ["first.json"]
    assert records.load(small_disk, "smoke", "vision_rows") == [record_of(first)]
    records.write(record_of(second), small_disk)
    assert missing([first, second], small_disk) == []


def test_a_checkpoint_that_does_not_fit_leaves_the_former_one(small_disk: Path):
    record = blank_record(long_run(), "cpu")
    checkpoints.save(small_disk, record, {"step": 1})
    with pytest.raises(BadInput, match=r"checkpoints is .*: cannot be written to \((No space left|File too large)"):
        checkpoints.save(small_disk, record, {"step": 2, "filling": "x" * 400 * 1024})
    assert checkpoints.load(small_disk, record) == (record, {"step": 1})
    assert [path.name for path in small_disk.rglob("*") if path.is_file()] == ["long.seed-3.pt"]


def test_a_process_that_gets_no_more_memory_records_it(tmp_path: Path):
    """Its address space is closed a little above what it holds; one batch of all images then asks for more."""
    program = (
        "import resource, sys; from dataclasses import replace; from pathlib import Path\n"
        "import psutil; from long_run import long_run; from heads_for_depth import records\n"
        "from heads_for_depth.training import execute\n"
        "run = long_run(); recipe = replace(run.recipe, train_images=40_000, batch_size=40_000)\n"
        "execute(long_run(epochs=1))\n"
        "held = psutil.Process().memory_info().vms\n"
        "resource.setrlimit(resource.RLIMIT_AS, (held + 256 * 2**20,) * 2)\n"
        "records.write(execute(replace(run, recipe=recipe, run_id='starved')), Path(sys.argv[1]))\n"
    )
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), str(ROOT / "src")])}
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (record,) = records.load(tmp_path, "smoke", "vision_rows")
    assert record["status"] == "out_of_memory"
