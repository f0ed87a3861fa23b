"""One run = one file: all of it or nothing, never twice, never NaN, and clear words about a bad file."""

import errno
import json
import math
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import PlannedRun
from heads_for_depth.records import FIELDS, SCHEMA, STATUSES, Record


@pytest.fixture
def record(tiny_run: PlannedRun, record_of: Callable[..., Record]) -> Record:
    return record_of(tiny_run)


def place(results: Path) -> Path:
    return results / "smoke" / "vision_rows" / "tiny.seed-3.json"


def put(results: Path, content: bytes) -> Path:
    """A file where the record of the tiny run belongs."""
    path = place(results)
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    return path


def test_a_record_is_read_back_as_it_was_written(tmp_path: Path, record: Record):
    path = records.write(record, tmp_path)
    assert path == place(tmp_path)
    assert records.read(path) == record
    assert records.load(tmp_path, "smoke", "vision_rows") == [record]
    assert records.recorded_ids(tmp_path, "smoke", "vision_rows") == {"tiny.seed-3"}


def test_a_record_is_one_line_of_json_that_anyone_may_read(tmp_path: Path, record: Record):
    path = records.write(record, tmp_path)
    assert path.read_text().count("\n") == 1
    assert path.read_text().endswith("\n")
    assert path.stat().st_mode & 0o777 == 0o644
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_an_experiment_without_records_is_empty_and_nothing_is_created(tmp_path: Path):
    assert records.load(tmp_path / "none", "cpu", "vision_rows") == []
    assert list(tmp_path.iterdir()) == []


def test_records_come_in_the_order_of_their_ids(tmp_path: Path, record: Record):
    for run_id in ("b", "c", "a"):
        records.write(record | {"run_id": run_id}, tmp_path)
    assert [r["run_id"] for r in records.load(tmp_path, "smoke", "vision_rows")] == ["a", "b", "c"]


@pytest.mark.parametrize("status", STATUSES)
def test_a_failed_run_is_kept_like_any_other(tmp_path: Path, record: Record, status: str):
    assert records.read(records.write(record | {"status": status}, tmp_path))["status"] == status


def test_a_second_record_of_a_run_is_refused_and_the_first_stays(tmp_path: Path, record: Record):
    path = records.write(record, tmp_path)
    before = path.read_bytes()
    with pytest.raises(BadInput, match=r"run_id is 'tiny.seed-3': has a record already at .*tiny.seed-3.json"):
        records.write(record | {"status": "diverged"}, tmp_path)
    assert path.read_bytes() == before
    assert [p.name for p in path.parent.iterdir()] == [path.name]


def test_of_many_writers_of_one_run_exactly_one_succeeds(tmp_path: Path, record: Record):
    def attempt(number: int) -> bool:
        try:
            records.write(record | {"parameters": number}, tmp_path)
        except BadInput:
            return False
        return True

    with ThreadPoolExecutor(8) as pool:
        succeeded = list(pool.map(attempt, range(24)))
    assert sum(succeeded) == 1
    assert records.read(place(tmp_path))["parameters"] == succeeded.index(True)


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_not_finite_is_refused_by_name(tmp_path: Path, record: Record, number: float):
    record["metrics"] = {"epochs": [{"train_loss": 1.0}, {"train_loss": number}]}
    with pytest.raises(BadInput, match=rf"metrics.epochs\[1\].train_loss is {number}: .*finite numbers only"):
        records.write(record, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_infinite_condition_number_is_a_word(tmp_path: Path, record: Record):
    record["kappa"] = {"initial": {"columns": ["condition_number"], "rows": [["inf"]]}}
    assert records.read(records.write(record, tmp_path))["kappa"]["initial"]["rows"] == [["inf"]]


@pytest.mark.parametrize("field", FIELDS)
def test_a_record_without_one_of_its_fields_is_refused(tmp_path: Path, record: Record, field: str):
    del record[field]
    with pytest.raises(BadInput, match=field):
        records.write(record, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_unknown_status_is_refused_with_those_there_are(tmp_path: Path, record: Record):
    with pytest.raises(BadInput, match=r"status is 'fine': .*use one of ok, diverged, out_of_memory, interrupted"):
        records.write(record | {"status": "fine"}, tmp_path)


@pytest.mark.parametrize("run_id", ["", "a/b", "../a", "a b", "a\n", "é"])
def test_a_run_id_that_is_no_file_name_is_refused(tmp_path: Path, record: Record, run_id: str):
    with pytest.raises(BadInput, match=r"run_id is .*: use letters, digits, dots, dashes and underscores"):
        records.write(record | {"run_id": run_id}, tmp_path)
    assert list(tmp_path.iterdir()) == []


def as_bytes(record: Record, **changes: Any) -> bytes:
    return json.dumps(record | changes).encode()


def test_a_truncated_file_is_named_with_the_remedy(tmp_path: Path, record: Record):
    whole = as_bytes(record)
    path = put(tmp_path, whole[: len(whole) // 2])
    with pytest.raises(BadInput) as refusal:
        records.load(tmp_path, "smoke", "vision_rows")
    assert str(refusal.value) == f"record is {str(path)!r}: is truncated or no JSON; remove it and run the sweep again"


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"{", b"not json"])
def test_an_empty_or_binary_file_is_no_record(tmp_path: Path, content: bytes):
    with pytest.raises(BadInput, match="is truncated or no JSON"):
        records.read(put(tmp_path, content))


@pytest.mark.parametrize("content", [b"[]", b"3", b"null", b'"text"'])
def test_json_that_is_no_object_is_no_record(tmp_path: Path, content: bytes):
    with pytest.raises(BadInput, match="must be a JSON object"):
        records.read(put(tmp_path, content))


def test_a_record_of_another_schema_is_refused_with_both_versions(tmp_path: Path, record: Record):
    path = put(tmp_path, as_bytes(record, schema="heads-for-depth/run/0"))
    with pytest.raises(BadInput, match=r"schema is 'heads-for-depth/run/0': .* this one reads " + SCHEMA):
        records.read(path)


def test_a_file_that_lacks_a_field_is_refused(tmp_path: Path, record: Record):
    del record["kappa"]
    with pytest.raises(BadInput, match=r"lacks kappa; remove it and run the sweep again"):
        records.read(put(tmp_path, as_bytes(record)))


def test_nan_in_a_file_is_refused(tmp_path: Path, record: Record):
    path = put(tmp_path, as_bytes(record, metrics={"test_loss": math.nan}))
    with pytest.raises(BadInput, match=r"metrics\.test_loss is nan"):
        records.read(path)


def test_a_copy_under_another_name_is_refused_since_it_would_count_twice(tmp_path: Path, record: Record):
    path = records.write(record, tmp_path)
    path.with_name("tiny.seed-4.json").write_bytes(path.read_bytes())
    with pytest.raises(BadInput, match=r"run_id is 'tiny.seed-3': .*tiny.seed-4.json must carry its run id"):
        records.load(tmp_path, "smoke", "vision_rows")


def test_a_folder_in_place_of_a_record_is_refused(tmp_path: Path):
    place(tmp_path).mkdir(parents=True)
    with pytest.raises(BadInput, match=r"cannot be read"):
        records.load(tmp_path, "smoke", "vision_rows")


def test_a_folder_below_a_file_cannot_be_written_to(tmp_path: Path, record: Record):
    (tmp_path / "file").write_text("in the way")
    for attempt in (records.check_writable, lambda results: records.write(record, results)):
        with pytest.raises(BadInput, match=r"results is .*file/below.*: cannot be written to \(.+\), choose another"):
            attempt(tmp_path / "file" / "below")
    assert (tmp_path / "file").read_text() == "in the way"


def test_a_file_in_place_of_the_profile_folder_cannot_be_written_to(tmp_path: Path, record: Record):
    (tmp_path / "smoke").write_text("in the way")
    with pytest.raises(BadInput, match=r"results is .*: cannot be written to"):
        records.write(record, tmp_path)


def test_checking_a_folder_creates_it_and_leaves_no_file(tmp_path: Path):
    records.check_writable(tmp_path / "a" / "b")
    assert list((tmp_path / "a" / "b").iterdir()) == []


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, record: Record, monkeypatch: pytest.MonkeyPatch):
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(BadInput, match=r"cannot be written to \(No space left on device\)"):
        records.write(record, tmp_path)
    assert list(place(tmp_path).parent.iterdir()) == []


def test_a_process_killed_while_writing_leaves_no_record_and_nothing_in_the_way(tmp_path: Path, record: Record):
    """Killed after the bytes are in the temporary file and before it gets its name."""
    program = (
        "import json, os, signal, sys; from pathlib import Path; from heads_for_depth import records\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "records.write(json.loads(sys.argv[1]), Path(sys.argv[2]))\n"
    )
    child = subprocess.run([sys.executable, "-c", program, json.dumps(record), str(tmp_path)], check=False)
    assert child.returncode == -signal.SIGKILL
    left = [path.suffix for path in place(tmp_path).parent.iterdir()]
    assert left == [".tmp"]
    assert records.load(tmp_path, "smoke", "vision_rows") == []
    records.write(record, tmp_path)
    assert records.load(tmp_path, "smoke", "vision_rows") == [record]
