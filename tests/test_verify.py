"""`verify`: which records are drawn, which plans are refused, how far a repeated run may be, and what comes of it."""

import copy
import json
import math
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from statistics import stdev
from typing import Any

import pytest

from heads_for_depth import paths, records
from heads_for_depth.cli.main import main
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import EXPERIMENTS, Arm, PlannedRun, plan
from heads_for_depth.records import Record
from heads_for_depth.sweeps import SweepFailed, run_all
from heads_for_depth.tables import verification as tables
from heads_for_depth.verification import (
    Check,
    Verified,
    draw,
    recorded_seconds,
    repetitions,
    retrain,
    retraining,
    same_arithmetic,
    seed_noise,
    verify_record,
)
from heads_for_depth.verification.checks import Value
from heads_for_depth.verification.retraining import declared_run
from heads_for_depth.verification.tolerance import kappa_difference, kappa_margin
from made_up_records import PROVENANCE, arm, failed, layer, planned, record, table, trained

MARGINS = {"test_accuracy": 0.02, "test_loss": 0.05}
ELSEWHERE = PROVENANCE | {"machine": {"processor": "Model B"}}


def finished(**metrics: float) -> Record:
    """A finished run of one cell with κ at both ends."""
    made = trained(planned("xcit-m", "before", "before"), 0.85, loss=0.4, start=30.0)
    made["metrics"] |= metrics
    return made


def changed(base: Record, *place: str, value: Any) -> Record:
    """A copy of a record with one number changed."""
    copied = copy.deepcopy(base)
    inner = copied
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    return copied


def with_kappa(value: float, provenance: dict[str, Any] = ELSEWHERE) -> Record:
    tables = {"initial": table(layer(value)), "final": table(layer(20.0))}
    return finished() | {"kappa": tables, "provenance": provenance}


# --- the tolerance


@pytest.fixture
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty results folder, and no committed records beside it."""
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "committed")
    return tmp_path / "results"


VISION, TUNING_RUN = planned("xcit-m", "before", "before"), plan("cpu", "vision_tuning")[0]


def noise(results: Path, run: PlannedRun) -> dict[str, float]:
    return dict(seed_noise(results, record(run)))


def test_seed_noise_is_three_standard_deviations_of_the_difference_of_two_seeds(alone: Path):
    cells: tuple[tuple[Arm, tuple[float, ...]], ...] = (("before", (80.0, 82.0, 81.0)), ("after", (70.0, 75.0)))
    for heads, points in cells:
        for one in arm("xcit-m", "before", heads, points):
            records.write(one, alone)
    squares = sum(stdev(points) ** 2 * (len(points) - 1) for _, points in cells) / 3
    expected = {"test_accuracy": pytest.approx(3 * math.sqrt(2 * squares) / 100), "test_loss": 0.0}
    assert noise(alone, VISION) == expected


def seeds(results: Path, runs: Iterable[PlannedRun], *, early: float, late: float) -> None:
    """Runs of one cell whose validation metrics lie that far apart, after the first and after the last epoch."""
    for place, run in enumerate(runs):
        values = [{"validation_accuracy": 0.5 + place * d, "validation_loss": 1 - place * d} for d in (early, late)]
        metrics = {"epochs": values, "test_accuracy": 0.4 + place * late, "test_loss": 2.0} | values[-1]
        records.write(record(run, metrics=metrics), results)


def of_cell(experiment: str, profile: str = "cpu") -> list[PlannedRun]:
    """Two seeds of one cell of a table."""
    return [run for run in plan(profile, experiment, 2) if run.run_id.startswith("vit-own.depth-before.heads-after.")]


def every_metric(tolerance: float) -> dict[str, Any]:
    names = [f"{split}_{metric}" for split in ("test", "validation") for metric in ("accuracy", "loss")]
    return {name: pytest.approx(tolerance) for name in names}


def test_tuning_runs_without_seeds_take_the_noise_of_their_table_after_as_many_epochs(alone: Path):
    seeds(alone, of_cell("vision_rows"), early=0.03, late=0.01)
    assert TUNING_RUN.recipe is not None
    assert TUNING_RUN.recipe.epochs == 1
    assert noise(alone, TUNING_RUN) == every_metric(3 * 0.03)  # two values d apart have the standard deviation d/√2
    assert noise(alone, VISION)["validation_loss"] == pytest.approx(3 * 0.01)


def test_a_longer_run_than_there_are_epochs_takes_the_last(alone: Path):
    seeds(alone, of_cell("vision_rows"), early=0.03, late=0.01)
    assert TUNING_RUN.recipe is not None
    longer = replace(TUNING_RUN, recipe=replace(TUNING_RUN.recipe, epochs=9))
    assert noise(alone, longer) == every_metric(3 * 0.01)


def test_tuning_runs_of_the_second_reduction_take_the_noise_of_their_own_table(alone: Path):
    seeds(alone, of_cell("vision_rows"), early=0.03, late=0.01)
    seeds(alone, of_cell("vision_rows_keep_heads"), early=0.05, late=0.02)
    assert noise(alone, plan("cpu", "vision_tuning_keep_heads", 1)[0]) == every_metric(3 * 0.05)
    assert noise(alone, TUNING_RUN) == every_metric(3 * 0.03)


def test_a_profile_without_repeated_seeds_takes_the_noise_of_the_committed_vision_rows(alone: Path):
    seeds(paths.RESULTS, of_cell("vision_rows"), early=0.03, late=0.01)
    seeds(alone, of_cell("vision_rows", "smoke")[:1], early=0.9, late=0.9)
    assert noise(alone, of_cell("vision_rows", "smoke")[0]) == every_metric(3 * 0.03)


def test_a_failed_run_has_no_part_in_the_noise(alone: Path):
    for one in arm("xcit-m", "before", "before", (80.0, 82.0)):
        records.write(one, alone)
    before = noise(alone, VISION)
    records.write(failed("xcit-m", "before", "before", 2), alone)
    assert noise(alone, VISION) == before


@pytest.mark.parametrize(
    ("kappa", "margin"), [(1.0, 1.1e-4), (5e4, 1e-4 + 2e-6), (1e8, 1.1e-4), (2e10, 2e-2), (1e12, 1.0), (math.inf, 1.0)]
)
def test_the_tolerance_of_kappa_is_flat_up_to_1e8_and_grows_with_kappa_beyond(kappa: float, margin: float):
    assert kappa_margin(kappa) == pytest.approx(margin, rel=1e-3)


@pytest.mark.parametrize(
    ("one", "other", "difference"), [(2.0, 2.0, 0.0), (2.0, 1.5, 0.25), (1.5, 2.0, 0.25), (1e9, math.inf, 1.0)]
)
def test_kappa_differs_by_a_share_of_the_larger(one: float, other: float, difference: float):
    assert kappa_difference(one, other) == difference


def test_two_infinite_condition_numbers_do_not_differ():
    assert kappa_difference(math.inf, math.inf) == 0.0


@pytest.mark.parametrize(
    "difference",
    [
        {"device": "cuda"},
        {"machine": {"processor": "Model B"}},
        {"threads": 2},
        {"versions": {"torch": "2.15.0"}},
        {"attention": "lanes"},
    ],
    ids=lambda difference: next(iter(difference)),
)
def test_bits_are_compared_only_where_everything_that_orders_sums_is_the_same(difference: dict[str, Any]):
    ours, theirs = finished(), finished() | {"provenance": PROVENANCE | {"attention": "sdpa", "date": "2027-01-01"}}
    assert same_arithmetic(ours, theirs)
    assert not same_arithmetic(ours, theirs | {"provenance": PROVENANCE | difference})


def test_two_runs_on_one_gpu_need_not_be_identical():
    on_gpu = finished() | {"provenance": PROVENANCE | {"device": "cuda"}}
    assert not same_arithmetic(on_gpu, on_gpu)


# --- one run beside its record


def test_the_same_run_is_identical_though_it_took_other_seconds():
    here = changed(
        finished(), "metrics", "epochs", value=[e | {"seconds": 9.0} for e in finished()["metrics"]["epochs"]]
    )
    found = verify_record(here | {"seconds": {"total": 7.0}}, finished(), {})
    assert (found.outcome, found.same_arithmetic) == ("identical", True)
    assert {check.difference for check in found.checks} == {0.0}


def test_a_number_that_only_the_newer_version_records_is_no_difference():
    assert verify_record(finished(new_number=1.0), finished(), {}).outcome == "identical"


@pytest.mark.parametrize("lost", ["test_loss", "epochs"])
def test_a_number_that_is_no_longer_there_is_a_difference(lost: str):
    here = finished()
    del here["metrics"][lost]
    assert verify_record(here, finished(), {}).outcome == "differs"


@pytest.mark.parametrize("place", [("metrics", "test_loss"), ("kappa", "final")])
def test_with_the_same_arithmetic_the_last_bit_counts(place: tuple[str, str]):
    wanted = {"test_loss": math.nextafter(0.4, 1), "final": table(layer(math.nextafter(20.0, 21)))}
    found = verify_record(changed(finished(), *place, value=wanted[place[1]]), finished(), {})
    assert found.outcome == "differs"
    assert ".".join(place) in found.telling.quantity
    assert found.telling.tolerance == 0


@pytest.mark.parametrize(
    ("metric", "value", "outcome"),
    [
        ("test_accuracy", 0.85, "agrees"),
        ("test_accuracy", 0.8699, "agrees"),
        ("test_accuracy", 0.8301, "agrees"),
        ("test_accuracy", 0.8701, "differs"),
        ("test_accuracy", 0.8299, "differs"),
        ("test_loss", 0.4499, "agrees"),
        ("test_loss", 0.4501, "differs"),
        ("epochs", [], "agrees"),
    ],
)
def test_on_another_machine_final_accuracy_and_loss_may_differ_by_seed_noise(metric: str, value: Any, outcome: str):
    here = changed(finished(), "metrics", metric, value=value) | {"provenance": ELSEWHERE}
    here["kappa"]["final"] = table(layer(99.0))
    assert verify_record(here, finished(), MARGINS).outcome == outcome


def test_a_tuning_run_is_held_to_its_validation_metrics():
    tuning = next(run for run in plan("cpu", "vision_tuning") if run.row == "xcit-m")
    theirs = record(tuning, metrics={"validation_accuracy": 0.5, "validation_loss": 1.0})
    here = changed(theirs, "metrics", "validation_loss", value=1.2) | {"provenance": ELSEWHERE}
    margins = {"validation_accuracy": 0.1, "validation_loss": 0.1, "test_loss": 9.0}
    assert verify_record(here, theirs, margins).telling.quantity == "metrics.validation_loss"
    assert verify_record(here, theirs, margins).outcome == "differs"


def test_a_metric_without_known_noise_is_refused():
    with pytest.raises(BadInput, match=r"metric is 'test_accuracy': no records of two seeds of one cell"):
        verify_record(finished() | {"provenance": ELSEWHERE}, finished(), {})


@pytest.mark.parametrize(
    ("recorded", "here", "outcome"),
    [
        (1e4, 1e4, "identical"),
        (1e4, 1e4 * (1 + 5e-5), "agrees"),
        (1e4, 1e4 * (1 + 1e-3), "differs"),
        (1e4, 1e4 * (1 - 1e-3), "differs"),
        (1e11, 1.05e11, "agrees"),
        (1e11, 1.3e11, "differs"),
        (2e12, math.inf, "agrees"),
        (math.inf, 2e12, "agrees"),
        (math.inf, 1e6, "differs"),
    ],
)
def test_on_another_machine_kappa_at_initialization_may_differ_by_rounding(recorded: float, here: float, outcome: str):
    columns: dict[str, Any] = {"condition_number_q1": 5.0, "condition_number_q3": 6.0}
    ours, theirs = (finished() | {"kappa": {"initial": table(layer(value, **columns))}} for value in (here, recorded))
    found = verify_record(ours | {"provenance": ELSEWHERE}, theirs, MARGINS)
    assert found.outcome == outcome
    if outcome == "differs":
        assert found.telling.quantity == "kappa.initial.blocks.0.attn.concatenated.condition_number"


def test_a_layer_that_is_not_measured_any_more_differs():
    ours, theirs = with_kappa(30.0), with_kappa(30.0, PROVENANCE)
    ours["kappa"]["initial"]["rows"] = []
    assert verify_record(ours, theirs, MARGINS).outcome == "differs"


@pytest.mark.parametrize("provenance", [PROVENANCE, ELSEWHERE], ids=["same arithmetic", "another machine"])
@pytest.mark.parametrize(("field", "value"), [("parameters", 1), ("status", "diverged")])
def test_parameters_and_status_must_be_equal_everywhere(provenance: dict[str, Any], field: str, value: Any):
    here = finished() | {"provenance": provenance}
    assert verify_record(here, finished(), MARGINS).outcome == "identical"
    here[field] = here[field] + value if field == "parameters" else value
    found = verify_record(here, finished(), MARGINS)
    assert (found.outcome, found.telling.quantity) == ("differs", field)


def test_the_telling_number_is_the_one_nearest_to_its_tolerance():
    here = finished(test_accuracy=0.851, test_loss=0.44) | {"provenance": ELSEWHERE}
    telling = verify_record(here, finished(), MARGINS).telling
    assert telling.quantity == "metrics.test_loss"
    assert telling.difference == pytest.approx(0.04)


# --- the sample and its plans


def test_a_draw_is_repeated_by_its_seed_and_holds_no_record_twice():
    found = [finished() | {"run_id": f"run-{number}"} for number in range(100)]
    drawn = [[one["run_id"] for one in draw(found, 10, seed)] for seed in (1, 1, 2)]
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0])) == 10
    assert draw(found, 100, 3) == found


@pytest.mark.parametrize("count", [0, -1, 4])
def test_a_sample_that_there_is_not_is_refused(count: int):
    with pytest.raises(BadInput, match=rf"sample is {count}: there are 3 records, give a number from 1 to that"):
        draw([finished()] * 3, count, 0)


def test_the_estimate_is_what_the_runs_took_spread_over_the_workers_and_no_less_than_the_longest():
    sample = [finished() | {"seconds": {"total": seconds}} for seconds in (10.0, 20.0, 90.0)]
    assert recorded_seconds(sample, 1) == 120.0
    assert recorded_seconds(sample, 2) == 90.0


def grid() -> dict[str, PlannedRun]:
    return {run.run_id: run for run in plan("cpu", "vision_rows", 3)}


def test_a_run_is_rebuilt_as_it_was_planned_with_the_learning_rate_of_its_record():
    run = planned("tnt-b", "after", "before", 2)
    rebuilt = declared_run(record(run), grid())
    assert rebuilt.recipe is not None
    assert rebuilt.recipe.learning_rate == 0.002
    assert (rebuilt.shape, rebuilt.seed, rebuilt.parameters, rebuilt.tuned_by) == (run.shape, 2, run.parameters, ())
    assert rebuilt.recipe.with_learning_rate(0.1) == run.recipe.with_learning_rate(0.1)  # type: ignore[union-attr]


@pytest.mark.parametrize("profile", ["smoke", "cpu"])
def test_every_committed_record_is_of_a_run_that_is_still_declared(profile: str):
    declared = {(run.experiment, run.run_id): run for name in EXPERIMENTS for run in plan(profile, name, 8)}
    files = [path for name in EXPERIMENTS for path in (paths.RESULTS / profile / name).glob("*.json")]
    found = [json.loads(path.read_text()) for path in files]
    assert len(found) > 50
    for one in found:
        run = declared[one["experiment"], one["run_id"]]
        assert declared_run(one, {run.run_id: run}).shape == run.shape


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("run_id",), "xcit-m.depth-before.heads-before.seed-77"),
        (("plan", "shape", "depth"), [5]),
        (("plan", "shape", "mixers"), 2),
        (("plan", "recipe", "epochs"), 4),
        (("plan", "recipe", "momentum"), 0.9),
        (("plan", "recipe", "learning_rate"), 0.003),
        (("plan", "recipe"), None),
        (("plan", "seed"), 1),
        (("plan", "inputs"), "noise"),
        (("plan", "optimizer"), "lion"),
    ],
    ids=lambda value: ".".join(value) if isinstance(value, tuple) else "",
)
def test_a_record_whose_plan_is_not_declared_any_more_is_refused(place: tuple[str, ...], value: Any):
    foreign = changed(record(planned("xcit-m", "before", "before")), *place, value=value)
    with pytest.raises(BadInput, match=r"its plan is not declared any more, check out the commit .*0123456789abcdef"):
        declared_run(foreign, grid())


def test_a_plan_from_before_a_field_was_added_is_still_declared():
    older = record(planned("xcit-m", "before", "before"))
    del older["plan"]["regime"]
    del older["plan"]["shape"]["class_depth"]
    assert declared_run(older, grid()).run_id == older["run_id"]


@pytest.mark.parametrize(
    ("recorded", "asked"), [({}, "sdpa"), ({"attention": "sdpa"}, "sdpa"), ({"attention": "lanes"}, "auto")]
)
def test_a_run_is_repeated_with_the_attention_of_its_record(
    monkeypatch: pytest.MonkeyPatch, recorded: dict[str, str], asked: str
):
    theirs = record(planned("xcit-m", "before", "before"), provenance=PROVENANCE | recorded)
    found = []

    def carried_out(runs: list[PlannedRun], results: Path, *_: object, attention: str) -> int:
        found.append(attention)
        records.write(theirs, results)
        return len(runs)

    monkeypatch.setattr(retraining, "run_all", carried_out)
    assert list(retrain([theirs])) == [("vision_rows", theirs["run_id"])]
    assert found == [asked]


def test_a_record_of_a_gpu_is_refused_where_there_is_none(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    foreign = record(planned("xcit-m", "before", "before"), provenance=PROVENANCE | {"device": "cuda"})
    with pytest.raises(BadInput, match=r"device is 'cuda': this machine has no CUDA device"):
        retrain([foreign])


# --- the command


@pytest.fixture(scope="module")
def trained_here(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two smoke runs of this machine: a tuning run and a κ measurement."""
    folder = tmp_path_factory.mktemp("trained")
    chosen = [run for run in plan("smoke") if run.run_id in SMOKE_RUNS]
    with pytest.MonkeyPatch.context() as patched:
        from conftest import InlinePool
        from heads_for_depth.sweeps import workers

        patched.setattr(workers, "ProcessPoolExecutor", lambda *_, **__: InlinePool())
        run_all(chosen, folder, workers=1)
    return folder


SMOKE_RUNS = {
    "tnt-b.depth-after.heads-before.rate-0.001": "vision_tuning",
    "vit-own.fixed-d-model.noise.heads-1": "conditioning",
}


def as_committed(trained_here: Path, folder: Path, change: Callable[[Record], None] = lambda record: None) -> Path:
    """The two records of this machine in a results folder of their own, each changed."""
    for run_id, experiment in SMOKE_RUNS.items():
        one = records.read(records.path_of(trained_here, "smoke", experiment, run_id))
        change(one)
        records.write(one, folder)
    return folder


@pytest.fixture
def repeated(monkeypatch: pytest.MonkeyPatch, trained_here: Path, alone: Path) -> None:
    """Re-training yields what this machine trained before; seed noise is three points and 0.03 nats."""
    seeds(paths.RESULTS, of_cell("vision_rows"), early=0.01, late=0.01)

    def same_again(runs: list[PlannedRun], results: Path, *_: object, **__: object) -> int:
        for run in runs:
            records.write(records.read(records.path_of(trained_here, "smoke", run.experiment, run.run_id)), results)
        return len(runs)

    monkeypatch.setattr(retraining, "run_all", same_again)


def verify(results: Path, *options: str) -> int:
    return main(["verify", "--profile", "smoke", "--results", str(results), "--workers", "1", *options])


def test_runs_repeated_on_one_machine_come_out_bit_for_bit(
    tmp_path: Path, trained_here: Path, inline: None, capsys: pytest.CaptureFixture[str]
):
    results = as_committed(trained_here, tmp_path / "results")
    before = {path: path.read_bytes() for path in results.rglob("*.json")}
    written = tmp_path / "verified.json"
    assert verify(results, "--sample", "2", "--seed", "5", "--json", str(written)) == 0
    printed = capsys.readouterr()
    assert "2 of 2 records of profile smoke, drawn with --seed 5" in printed.out
    assert "2 identical, 0 within tolerance, 0 differ; 2 of 2 had to be identical" in printed.out
    assert all(run_id in printed.err for run_id in SMOKE_RUNS)
    answer = json.loads(written.read_text())
    assert (answer["seed"], answer["drawn"], answer["of"]) == (5, 2, 2)
    assert [run["outcome"] for run in answer["runs"]] == ["identical", "identical"]
    assert {path: path.read_bytes() for path in results.rglob("*.json")} == before


def test_the_tolerance_and_the_minutes_stand_before_the_result(
    tmp_path: Path, trained_here: Path, repeated: None, capsys: pytest.CaptureFixture[str]
):
    results = as_committed(trained_here, tmp_path / "results", lambda one: one["seconds"].update(total=90.0))
    assert verify(results, "--sample", "2") == 0
    printed = capsys.readouterr().out
    assert 0 < printed.index("about 3.0 minutes") < printed.index("3·√2") < printed.index("identical\n")


def test_a_new_draw_names_the_seed_that_repeats_it(
    tmp_path: Path, trained_here: Path, repeated: None, capsys: pytest.CaptureFixture[str]
):
    results = as_committed(trained_here, tmp_path / "results")
    seeds = []
    for _ in range(2):
        assert verify(results, "--sample", "1") == 0
        seeds.append(capsys.readouterr().out.split("drawn with --seed ")[1].split()[0])
    assert seeds[0] != seeds[1]
    assert all(seed.isdigit() for seed in seeds)


def moved(record: Record) -> None:
    """As if made on another machine, so that tolerances apply."""
    record["provenance"]["machine"]["processor"] = "another one"


def five_points(record: Record) -> None:
    moved(record)
    if record["metrics"]:
        record["metrics"]["validation_accuracy"] += 0.05


def one_thousandth(record: Record) -> None:
    moved(record)
    for one in record["kappa"].values():
        place = one["columns"].index("condition_number")
        one["rows"][0][place] *= 1.001


def one_parameter(record: Record) -> None:
    moved(record)
    record["parameters"] += 1


def last_bit(record: Record) -> None:
    if record["metrics"]:
        record["metrics"]["validation_loss"] = math.nextafter(record["metrics"]["validation_loss"], 9)


@pytest.mark.parametrize(
    ("change", "told"),
    [
        (five_points, "validation_accuracy"),
        (one_thousandth, "condition_number"),
        (one_parameter, "parameters"),
        (last_bit, "validation_loss"),
    ],
)
def test_a_changed_record_is_found_out(
    tmp_path: Path,
    trained_here: Path,
    repeated: None,
    capsys: pytest.CaptureFixture[str],
    change: Callable[[Record], None],
    told: str,
):
    assert verify(as_committed(trained_here, tmp_path / "sound", moved), "--sample", "2") == 0
    assert verify(as_committed(trained_here, tmp_path / "changed", change), "--sample", "2") == 1
    differing = [line for line in capsys.readouterr().out.splitlines() if line.endswith(" differs")]
    assert differing
    assert all(told in line for line in differing)


def test_a_killed_worker_ends_in_one_sentence_and_exit_code_1(
    tmp_path: Path, trained_here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    def killed(*_: object, **__: object) -> int:
        raise SweepFailed("gone")

    monkeypatch.setattr(retraining, "run_all", killed)
    assert verify(as_committed(trained_here, tmp_path / "results"), "--sample", "1") == 1
    said = "a worker process was killed, perhaps because memory ran out; with --workers 1 it needs the least"
    assert capsys.readouterr().err == f"heads-for-depth: {said}\n"


def refused(results: Path, capsys: pytest.CaptureFixture[str], *options: str) -> str:
    """The one sentence of a refused call."""
    assert verify(results, *options) == 2
    printed = capsys.readouterr()
    assert printed.err.startswith("heads-for-depth: ")
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("heads-for-depth: ").rstrip("\n")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--sample", "0"), "sample is 0: there are 2 records, give a number from 1 to that"),
        (("--sample", "3"), "sample is 3: there are 2 records, give a number from 1 to that"),
        (("--sample", "two"), "Invalid value for '--sample'"),
        ((), "Missing option '--sample'"),
        (("--sample", "1", "--profile", "huge"), "profile is 'huge': use one of smoke, cpu, gpu"),
        (("--sample", "1", "--experiment", "vision"), "experiment is 'vision': use one of vision_tuning"),
        (("--sample", "1", "--experiment", "vision_rows"), "results is "),
        (("--sample", "1", "--json", "/nowhere/at/all.json"), "json is '/nowhere/at/all.json': its folder"),
    ],
)
def test_what_cannot_be_verified_is_refused(
    tmp_path: Path, trained_here: Path, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], sentence: str
):
    assert refused(as_committed(trained_here, tmp_path / "results"), capsys, *options).startswith(sentence)


def test_a_missing_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    said = refused(tmp_path / "none", capsys, "--sample", "1")
    assert said == f"results is '{tmp_path / 'none'}': is no folder, give the one that holds the run records"


def test_a_folder_without_records_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert "holds no records of profile smoke" in refused(tmp_path, capsys, "--sample", "1")


@pytest.mark.parametrize("content", ['{"schema": "heads-for-depth/run/0"}', '{"schema": "heads'])
def test_a_record_of_another_schema_or_half_a_record_is_refused(
    tmp_path: Path, trained_here: Path, capsys: pytest.CaptureFixture[str], content: str
):
    results = as_committed(trained_here, tmp_path / "results")
    (results / "smoke" / "conditioning" / "zzz.json").write_text(content)
    assert "zzz.json" in refused(results, capsys, "--sample", "1")


def test_a_record_of_another_grid_is_refused_before_anything_is_trained(
    tmp_path: Path, trained_here: Path, capsys: pytest.CaptureFixture[str]
):
    results = as_committed(trained_here, tmp_path / "results", lambda one: one["plan"].update(seed=4))
    assert "its plan is not declared any more" in refused(results, capsys, "--sample", "2")


# --- what repetitions have shown ---


def _check(quantity: str, here: Value, recorded: Value, difference: float) -> Check:
    return Check(quantity=quantity, here=here, recorded=recorded, difference=difference, tolerance=2.0)


def _line_with(*checks: Check) -> Verified:
    return Verified(experiment="vision_rows", run_id="a", same_arithmetic=False, checks=checks, identical=False)


def test_a_kept_repetition_holds_the_largest_difference_of_each_quantity() -> None:
    line = _line_with(
        _check("metrics.test_accuracy", 0.86, 0.87, 0.01),
        _check("metrics.test_loss", 0.4, 1.6, 1.2),
        _check("metrics.validation_loss", 0.4, 0.42, 0.02),
        _check("kappa.initial.a.concatenated.condition_number", 100.0, 101.0, 0.01),
        _check("kappa.initial.b.concatenated.condition_number_q1", 100.0, 102.0, 0.02),
        _check("kappa.initial.c.projected.condition_number", 2e12, 1e12, 0.5),
        _check("kappa.initial.d.projected.condition_number", "inf", 1e12, 1.0),
        _check("parameters", 5, 5, 0.0),
    )
    found = repetitions.summary(line, {"provenance": {"machine": {"processor": "Box"}}})
    assert found["largest_difference"] == {"accuracy": 0.01, "loss": 1.2, "kappa": 0.02, "large_kappa": 0.5}
    assert found["recorded_on"] == "Box"
    assert found["outcome"] == "agrees"


def test_a_repetition_is_kept_once_and_read_back(tmp_path: Path, monkeypatch) -> None:
    provenance = {"machine": {"processor": "Intel(R) Box", "cores": 2}}
    monkeypatch.setattr(repetitions, "machine", lambda: provenance["machine"])
    runs = [repetitions.summary(_line_with(_check("metrics.test_loss", 1.0, 1.5, 0.5)), {"provenance": provenance})]
    found = repetitions.repetition({"profile": "cpu", "seed": 7, "of": 9}, runs, provenance)
    path = repetitions.write(found, repetitions.place(tmp_path, "cpu", 7))
    assert path.name == "intel-box-2-cores.cpu.seed-7.json"
    assert repetitions.load(tmp_path) == [found]
    with pytest.raises(BadInput, match="seed is 7: is kept already"):
        repetitions.place(tmp_path, "cpu", 7)
    with pytest.raises(BadInput, match="seed is 7: is kept already"):
        repetitions.write(found, path)
    path.write_text(path.read_text()[:-20])
    with pytest.raises(BadInput, match="cannot be read"):
        repetitions.load(tmp_path)
    path.write_text('{"schema": "another"}')
    with pytest.raises(BadInput, match="is not of schema"):
        repetitions.load(tmp_path)


def test_repetitions_are_tabled_by_machine_and_experiment() -> None:
    def run(outcome: str, **largest: float) -> dict[str, Any]:
        return {
            "experiment": "vision_rows",
            "recorded_on": "AMD EPYC",
            "outcome": outcome,
            "largest_difference": largest,
        }

    provenance = {"machine": {"processor": "Intel(R) Xeon(R) Processor", "cores": 2}}
    runs = [run("agrees", accuracy=0.01, loss=0.25, kappa=1e-6), run("identical", accuracy=0.0, loss=0.0, kappa=0.0)]
    found = repetitions.repetition({"profile": "cpu", "seed": 7, "of": 9}, runs, provenance)
    (line,) = tables.repeated([found]).to_numpy().tolist()
    assert line == ["Intel Xeon", "AMD EPYC", "`vision_rows`", "2 (1)", "1.00", "0.250", "1.0e−6"]
    assert tables.repeated([]).to_numpy().tolist() == [["nothing repeated yet"]]
