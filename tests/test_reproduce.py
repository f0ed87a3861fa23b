"""`reproduce`: everything a profile plans, the site and the comparison in one call; what it refuses to touch."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from heads_for_depth import paths, provenance, records
from heads_for_depth.cli import reproduce_command
from heads_for_depth.cli.main import main
from heads_for_depth.experiments import PlannedRun, estimated_seconds, plan
from heads_for_depth.records import Record
from heads_for_depth.report import ReportFailed, making
from heads_for_depth.report.making import MadeReport
from heads_for_depth.report.parameters import ReportParameters
from heads_for_depth.training import jobs
from made_up_records import PROVENANCE, layer, planned, record, table, trained


class Report:
    """Stands in for papermill and the book: remembers what it was asked to build."""

    def __init__(self) -> None:
        self.built: list[ReportParameters] = []
        self.failure: ReportFailed | None = None

    def __call__(self, parameters: ReportParameters, announce: Callable[[str], None]) -> MadeReport:
        """The place of the site."""
        self.built.append(parameters)
        if self.failure:
            raise self.failure
        return MadeReport(site=Path("site"), execute_seconds=1.0, build_seconds=1.0)


@pytest.fixture
def report(monkeypatch: pytest.MonkeyPatch) -> Report:
    stand_in = Report()
    monkeypatch.setattr(making, "make_report", stand_in)
    return stand_in


@pytest.fixture
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inline: None, report: Report) -> Path:
    """A folder for fresh records beside made-up committed ones; runs happen in no time."""

    def made_up(run: PlannedRun, *_: object) -> Record:
        here = {"provenance": PROVENANCE | {"commit": provenance.commit()}}
        if run.kind == "kappa":
            return record(run, kappa={"initial": table(layer(30.0))}) | here
        one = trained(run, 0.5)
        one["metrics"] |= {"validation_accuracy": 0.5, "validation_loss": 1.0}
        return one | here

    monkeypatch.setattr(jobs, "execute", made_up)
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "committed")
    for profile in ("cpu", "smoke"):
        records.write(trained(planned("xcit-m", "before", "before", profile=profile), 0.5), tmp_path / "committed")
        records.write(trained(planned("xcit-m", "after", "after", profile=profile), 0.5), tmp_path / "committed")
    return tmp_path / "fresh"


def reproduce(results: Path, *options: str, profile: str = "smoke") -> int:
    command = ["reproduce", "--profile", profile, "--device", "cpu", "--workers", "1", "--results", str(results)]
    return main([*command, *options])


def test_everything_is_run_built_and_compared(fresh: Path, report: Report, capsys: pytest.CaptureFixture[str]):
    assert reproduce(fresh) == 0
    runs = plan("smoke")
    assert len(list(fresh.glob("smoke/*/*.json"))) == len(runs)
    printed = capsys.readouterr().out
    minutes = sum(map(estimated_seconds, runs)) / 60
    assert printed.startswith(
        f"{len(runs)} of {len(runs)} planned runs to do, about {minutes:.0f} minutes of a CPU core"
    )
    assert f"A: {paths.RESULTS}, profile smoke" in printed
    assert f"records: {fresh / 'smoke'} ({len(runs)} runs added)" in printed
    assert "site:    site/index.html" in printed
    assert [(one.profile, one.results_folder) for one in report.built] == [("smoke", fresh)]


def test_a_second_call_continues_where_the_first_was_stopped(
    fresh: Path, report: Report, capsys: pytest.CaptureFixture[str]
):
    report.failure = ReportFailed("stopped")
    assert reproduce(fresh) == 1
    next(fresh.glob("smoke/vision_rows/*.json")).unlink()
    report.failure = None
    capsys.readouterr()
    assert reproduce(fresh) == 0
    assert capsys.readouterr().out.startswith(f"1 of {len(plan('smoke'))} planned runs to do")


def test_a_profile_without_committed_records_is_compared_with_the_published_one(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    few = [run for name in ("vision_tuning", "vision_rows") for run in plan("gpu", name, 1) if run.row == "xcit-m"]
    monkeypatch.setattr(reproduce_command, "plan", lambda *_: few)
    assert reproduce(fresh, profile="gpu") == 0
    printed = capsys.readouterr().out
    assert f"A: {paths.RESULTS}, profile cpu" in printed
    assert f"B: {fresh}, profile gpu" in printed


def test_a_verdict_that_differs_ends_in_exit_code_1_after_everything_was_built(fresh: Path, report: Report):
    for seed in range(8):
        for arm, points in (("before", 80 + seed / 100), ("after", 60 + seed / 100)):
            one = trained(planned("tnt-b", arm, arm, seed, profile="smoke"), points / 100)  # type: ignore[arg-type]
            records.write(one, paths.RESULTS)
    assert reproduce(fresh) == 1
    assert len(report.built) == 1


def test_a_site_that_fails_ends_in_one_sentence(fresh: Path, report: Report, capsys: pytest.CaptureFixture[str]):
    report.failure = ReportFailed("notebook 03 failed")
    assert reproduce(fresh) == 1
    assert capsys.readouterr().err.rstrip().endswith("heads-for-depth: notebook 03 failed")


# --- refusals


def refused(capsys: pytest.CaptureFixture[str], results: Path, *options: str, profile: str = "smoke") -> str:
    assert reproduce(results, *options, profile=profile) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("heads-for-depth: ").rstrip("\n")


def test_records_of_another_commit_are_not_mixed_with_fresh_ones_unless_asked(
    fresh: Path, capsys: pytest.CaptureFixture[str]
):
    records.write(trained(planned("xcit-m", "before", "before", profile="smoke"), 0.5), fresh)
    said = refused(capsys, fresh)
    assert said.startswith(f"results is '{fresh}': holds records of another commit (0123456789abcdef")
    assert said.endswith("name a new folder, or add --resume")
    assert reproduce(fresh, "--resume") == 0


def test_the_committed_records_are_not_touched(fresh: Path, capsys: pytest.CaptureFixture[str]):
    before = sorted(paths.RESULTS.rglob("*"))
    assert "holds the committed records, name another folder" in refused(capsys, paths.RESULTS)
    assert sorted(paths.RESULTS.rglob("*")) == before


def test_a_gpu_that_is_not_there_is_refused(
    fresh: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert refused(capsys, fresh, "--device", "cuda").startswith("device is 'cuda': torch sees no CUDA device")
    assert not fresh.exists()


@pytest.mark.parametrize(
    ("options", "profile", "sentence"),
    [
        ((), "huge", "profile is 'huge'"),
        ((), "full", "profile is 'full': use one of smoke, cpu, gpu"),
        (("--seeds", "0"), "smoke", "seeds is 0"),
        (("--workers", "0"), "smoke", "Invalid value for '--workers'"),
    ],
)
def test_what_cannot_be_reproduced_is_refused(
    fresh: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], profile: str, sentence: str
):
    assert refused(capsys, fresh, *options, profile=profile).startswith(sentence)
    assert not fresh.exists()


def test_a_broken_record_is_refused_before_anything_runs(fresh: Path, capsys: pytest.CaptureFixture[str]):
    place = fresh / "smoke" / "vision_rows" / "half.json"
    place.parent.mkdir(parents=True)
    place.write_text(json.dumps({"schema": "heads-for-depth/run/0"}))
    assert "is from another version" in refused(capsys, fresh)
