"""Timing is what a fake clock says, shapes take turns, memory that runs out is a status, machines stand beside."""

import json
import os
import signal
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from heads_for_depth import precision, provenance
from heads_for_depth.benchmark.reading import Ratio
from heads_for_depth.claims import load_rows
from heads_for_depth.cli.main import main
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import VISION_ROWS
from heads_for_depth.models import count_parameters
from heads_for_depth.records import read
from heads_for_depth.shapes import Shape
from heads_for_depth.throughput import measuring, memory, modes, reading, running, subjects, timing, workload
from heads_for_depth.throughput.isolation import in_own_process
from heads_for_depth.throughput.modes import Mode, Settings
from heads_for_depth.throughput.own_model import reshaped
from heads_for_depth.throughput.subjects import Series, Subject

EAGER = Mode()
QUICK = Settings(rounds=2, heads_rounds=1, batch_sizes=(1, 2), training_batch=2, heads_batch=2, seconds=0.001)


class FakeClock:
    """Time that passes only where something says that it costs time."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def costing(self, *seconds: float) -> Callable[[], None]:
        """A call that costs these seconds one after the other, and the last of them from then on."""
        costs = iter(seconds)
        last = seconds[-1]

        def call() -> None:
            self.now += next(costs, last)

        return call


# --- timing ---


def test_calls_that_warm_up_do_not_count() -> None:
    clock = FakeClock()
    assert timing.seconds_per_call(clock.costing(100.0, 2.0), 1, 0.5, clock) == pytest.approx(2.0)


def test_a_call_is_repeated_until_the_sample_is_long_enough_and_its_median_counts() -> None:
    clock = FakeClock()
    slow_once = clock.costing(1.0, 1.0, 9.0, 1.0, 1.0, 1.0)
    assert timing.seconds_per_call(slow_once, 1, 12.5, clock) == pytest.approx(1.0)


def test_short_calls_are_timed_many_at_once() -> None:
    clock = FakeClock()
    calls = 0

    def short() -> None:
        nonlocal calls
        calls += 1
        clock.now += 1e-6

    assert timing.seconds_per_call(short, 1, 0.01, clock) == pytest.approx(1e-6, rel=0.01)
    assert calls >= 0.01 / 1e-6


def test_the_clock_waits_for_the_device_before_it_is_read() -> None:
    clock = FakeClock()
    queue: list[float] = []

    def synchronize() -> None:
        clock.now += sum(queue)
        queue.clear()

    read_clock = timing.clock_of("cuda", synchronize, clock)
    assert timing.seconds_per_call(lambda: queue.append(0.25), 1, 0.1, read_clock) == pytest.approx(0.25)
    assert timing.seconds_per_call(lambda: queue.append(0.25), 1, 0.0, clock) < 1e-6


def test_the_clock_of_a_gpu_waits_for_it_and_that_of_a_cpu_has_nothing_to_wait_for(monkeypatch) -> None:
    waited: list[bool] = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))
    timing.clock_of("cpu")()
    assert waited == []
    timing.clock_of("cuda")()
    assert waited == [True]


def test_calls_take_turns_and_the_first_round_is_discarded() -> None:
    order: list[str] = []
    seconds = iter([50.0, 60.0, 1.0, 4.0, 3.0, 8.0, 2.0, 6.0])

    def sample(call: Callable[[], object]) -> float:
        call()
        return next(seconds)

    calls = {name: (lambda name=name: order.append(name)) for name in ("before", "after")}
    assert timing.take_turns(calls, 3, sample) == {"before": [1.0, 3.0, 2.0], "after": [4.0, 8.0, 6.0]}
    assert order == ["before", "after"] * 4


def test_a_summary_is_median_and_extremes_of_what_was_measured() -> None:
    values = [3.0, 1.0, 10.0]
    assert timing.summary(values) == {"values": values, "median": 3.0, "lowest": 1.0, "highest": 10.0}
    assert timing.summary(None) is None


def test_a_call_without_memory_is_not_made_again_and_the_others_go_on() -> None:
    tries: list[str] = []

    def starve() -> None:
        tries.append("starved")
        raise torch.OutOfMemoryError("no memory")

    def sample(call: Callable[[], object]) -> float:
        call()
        return 1.0

    found = timing.take_turns({"large": starve, "small": lambda: None}, 2, sample)
    assert found == {"large": None, "small": [1.0, 1.0]}
    assert tries == ["starved"]


def test_an_error_that_is_not_about_memory_is_not_swallowed() -> None:
    def fail() -> float:
        raise RuntimeError("shapes do not match")

    with pytest.raises(RuntimeError, match="shapes do not match"):
        timing.take_turns({"broken": fail}, 1, lambda call: float(call()))  # type: ignore[arg-type]


# --- what is measured ---


def test_every_side_of_every_published_row_is_measured_or_says_why_not() -> None:
    held = {(series.title, subject.name) for series in subjects.series_of("cpu") for subject in series.subjects}
    reasons = {(title, side): reason for title, side, reason in subjects.not_measured()}
    for claim in load_rows():
        for side in ("before", "after"):
            assert ((claim.title, side) in held) != bool(reasons.get((claim.title, side))), (claim.row, side)


def test_where_the_stated_reshape_does_not_recount_the_shape_that_does_is_measured_too() -> None:
    found = {
        series.name: count_parameters(subject.shape)
        for series in subjects.series_of("cpu")
        for subject in series.subjects
        if subject.name == subjects.RECOUNTING and isinstance(subject.shape, Shape)
    }
    assert {name: f"{count / 1e6:.1f}" for name, count in found.items()} == {"xcit-m": "59.0", "tnt-b": "30.9"}


def test_heads_alone_change_neither_depth_nor_width_and_cover_every_divisor() -> None:
    series = {one.name: one for one in subjects.series_of("cpu") if one.kind == "heads"}
    counts = [subject.shape.heads[0] for subject in series["heads-vit-b"].subjects]
    assert counts[0] == 12
    assert sorted(counts) == [n for n in range(1, 769) if 768 % n == 0]
    for one in series.values():
        assert len({(s.shape.depth, s.shape.d_model, s.shape.mlp_width) for s in one.subjects}) == 1
        assert one.reference == f"heads-{one.subjects[0].shape.heads[0]}"


def test_a_third_of_the_head_counts_is_compiled_with_the_published_one_first_and_rows_as_they_are() -> None:
    series = {one.name: one for one in subjects.series_of("cpu")}
    thinned = subjects.thinned(series["heads-vit-b"])
    assert thinned.reference == series["heads-vit-b"].reference
    assert len(thinned.subjects) == 1 + 6
    assert subjects.thinned(series["xcit-m"]) == series["xcit-m"]


def test_what_a_machine_cannot_run_is_left_out_with_a_word(monkeypatch, capsys) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert modes.possible_modes("cpu", "cpu") == (EAGER,)
    assert (
        "fp32.compiled is left out: mode is 'compiled': torch.compile needs a C++ compiler" in capsys.readouterr().err
    )


def test_profiles_measure_what_their_device_can() -> None:
    on_cpu = modes.modes_of("cpu", "cpu")
    assert [(mode.precision, mode.compiled) for mode in on_cpu] == [("fp32", False), ("fp32", True)]
    on_gpu = {(mode.precision, mode.compiled) for mode in modes.modes_of("gpu", "cuda")}
    assert on_gpu == {("fp32", False), ("bf16", False), ("fp32", True), ("bf16", True)}


# --- the work itself ---


@pytest.fixture
def tiny(tiny_shape: Shape) -> Series:
    pair = (Subject(name="before", shape=tiny_shape), Subject(name="after", shape=replace(tiny_shape, depth=(1,))))
    return Series(name="tiny", title="Tiny", kind="row", subjects=pair)


@pytest.fixture
def text() -> Subject:
    return next(s for s in subjects.series_of("smoke") if s.name == "gpt2").subjects[0]


def test_a_forward_pass_leaves_the_weights_and_a_training_step_moves_them(tiny: Series, text: Subject) -> None:
    for subject in (tiny.subjects[0], text):
        load = workload.Workload(subject, EAGER)
        before = [parameter.detach().clone() for parameter in load.model.parameters()]
        load.forward(2)()
        assert all(map(torch.equal, before, load.model.parameters()))
        load.training_step(2)()
        moved = [not torch.equal(old, new) for old, new in zip(before, load.model.parameters(), strict=True)]
        assert sum(moved) >= 0.9 * len(moved)
        assert all(parameter.grad is None for parameter in load.model.parameters())


def test_the_loss_of_a_text_is_over_all_its_tokens(text: Subject) -> None:
    load = workload.Workload(text, EAGER)
    assert load.logits(load.inputs(3)).shape == (3, text.tokens, text.shape.vocab_size)  # type: ignore[union-attr]
    assert load.targets(3).shape == (3, text.tokens)


def test_a_compiled_model_computes_the_same(tiny: Series) -> None:
    plain = workload.Workload(tiny.subjects[1], EAGER)
    compiled = workload.Workload(tiny.subjects[1], Mode(compiled=True))
    plain.model.eval()
    compiled.model.eval()
    with torch.inference_mode():
        inputs = plain.inputs(2)
        torch.testing.assert_close(compiled.logits(inputs), plain.logits(inputs), rtol=1e-4, atol=1e-5)
    assert compiled.run is not compiled.model


def test_a_series_is_measured_in_alternation_with_every_batch_size(tiny: Series) -> None:
    found = measuring.measure(tiny, EAGER, QUICK, threads=1)
    assert list(found) == ["before", "after"]
    for quantities in found.values():
        assert quantities is not None
        assert set(quantities["forward"]) == {"1", "2"}
        assert set(quantities["training"]) == {"2"}
        values = [seconds["values"] for what in ("forward", "training") for seconds in quantities[what].values()]
        assert all(len(rounds) == QUICK.rounds and min(rounds) > 0 for rounds in values)


def test_many_compiled_shapes_are_all_compiled(tiny_shape: Shape, monkeypatch) -> None:
    """Torch gives up on code that it has compiled eight times over, and would then run it eagerly without a word."""
    monkeypatch.setattr(torch, "compile", partial(torch.compile, backend="eager"))  # traced, and quickly
    monkeypatch.setattr(torch._dynamo.config, "recompile_limit", 2)  # torch's own is 8, which takes longer to reach
    torch._dynamo.reset()
    shapes = [replace(tiny_shape, heads=(heads,)) for heads in (1, 2, 4, 8, 16)]
    before = torch._dynamo.utils.counters["stats"]["unique_graphs"]
    for shape in shapes:
        workload.Workload(Subject(name="before", shape=shape), Mode(compiled=True)).forward(1)()
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] - before == len(shapes)


def test_a_model_lets_go_of_its_optimizer_after_its_turn(tiny: Series) -> None:
    load = workload.Workload(tiny.subjects[0], EAGER)
    load.training_step(2)()
    assert load.optimizer is not None
    load.release()
    assert load.optimizer is None
    assert all(parameter.grad is None for parameter in load.model.parameters())


def test_with_one_item_a_gpu_is_waited_for_within_the_call(tiny: Series, monkeypatch) -> None:
    waited: list[bool] = []
    load = workload.Workload(tiny.subjects[0], EAGER)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: waited.append(True))
    load.forward(1)()
    assert waited == []
    one, many = (workload.Workload(tiny.subjects[0], EAGER) for _ in range(2))
    calls = []
    for each, batch in ((one, 1), (many, 2)):
        monkeypatch.setattr(each, "inputs", lambda size: torch.zeros(size, 1, 28, 28))
        each.mode = Mode(device="cuda")
        calls.append(each.forward(batch))
    monkeypatch.setattr(workload, "cast", lambda *_: nullcontext())
    calls[1]()
    assert waited == []
    calls[0]()
    assert waited == [True]


def test_a_fraction_of_the_depth_takes_a_fraction_of_the_time(tiny_shape: Shape) -> None:
    deep = replace(tiny_shape, depth=(12,))
    pair = (Subject(name="before", shape=deep), Subject(name="after", shape=replace(deep, depth=(2,))))
    series = Series(name="deep", title="Deep", kind="row", subjects=pair)
    found = measuring.measure(series, EAGER, replace(QUICK, batch_sizes=(1,)), threads=1)
    before, after = (found[name]["training"]["2"]["median"] for name in ("before", "after"))  # type: ignore[index]
    assert before > 1.5 * after


# --- memory ---


def test_the_peak_is_what_a_call_held_at_once() -> None:
    held = 96 * 2**20
    meter = memory._ResidentSet()
    grown = meter.peak(lambda: np.ones(held // 8).sum())
    assert held - 2**20 <= grown < held + 32 * 2**20  # the kernel counts pages a few at a time


def test_a_smaller_call_after_a_larger_one_has_a_smaller_peak() -> None:
    if not Path("/proc/self/clear_refs").exists():
        assert memory._ResidentSet().peak(lambda: None) >= 0
        return
    meter = memory._ResidentSet()
    large = meter.peak(lambda: np.ones(96 * 2**20 // 8).sum())
    assert meter.peak(lambda: np.ones(8 * 2**20 // 8).sum()) < large / 2


def test_training_holds_gradients_and_two_moments_beside_the_weights(tiny_shape: Shape) -> None:
    wide = replace(tiny_shape, d_model=(512,), mlp_width=(2048,), depth=(4,))
    weights = 4 * count_parameters(wide)
    found = in_own_process(memory.peaks, Subject(name="before", shape=wide), EAGER, 1, (1,), 1)
    assert found is not None
    assert found["forward"]["1"] >= weights
    assert found["training"] >= 4 * weights


def test_a_batch_that_does_not_fit_leaves_the_others_measured(tiny: Series) -> None:
    found = measuring.measure(tiny, EAGER, replace(QUICK, batch_sizes=(1, 10**9)), threads=1)
    for quantities in found.values():
        assert quantities is not None
        assert quantities["forward"]["1"] is not None
        assert quantities["forward"][str(10**9)] is None


def test_a_killed_process_says_nothing_and_does_not_kill_its_parent() -> None:
    assert in_own_process(_die) is None
    assert in_own_process(os.getpid) != os.getpid()


def test_a_process_that_ends_in_any_other_way_is_an_error_and_what_it_raises_is_raised_here() -> None:
    with pytest.raises(RuntimeError, match="ended with exit code 7"):
        in_own_process(os._exit, 7)
    with pytest.raises(BadInput, match="degree is 3"):
        in_own_process(_refuse)


def _refuse() -> None:
    raise BadInput("degree", 3, "use 2")


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_where_memory_does_not_hold_a_series_each_shape_is_measured_alone(tiny: Series, monkeypatch) -> None:
    asked: list[list[str]] = []

    def own_process(measure: Any, series: Series) -> dict[str, Any] | None:
        names = [subject.name for subject in series.subjects]
        asked.append(names)
        return {"after": {"forward": {}}} if names == ["after"] else None

    monkeypatch.setattr(running, "in_own_process", own_process)
    found = running._together_or_alone(tiny, EAGER, QUICK)
    assert asked == [["before", "after"], ["before"], ["after"]]
    assert found == {"before": None, "after": {"forward": {}, "took_turns": False}}


def test_a_shape_without_room_beside_the_others_is_tried_alone(tiny: Series, monkeypatch) -> None:
    def own_process(measure: Any, series: Series) -> dict[str, Any]:
        alone = len(series.subjects) == 1
        return {s.name: {"forward": {}} if alone or s.name == "before" else None for s in series.subjects}

    monkeypatch.setattr(running, "in_own_process", own_process)
    found = running._together_or_alone(tiny, EAGER, QUICK)
    assert {name: quantities["took_turns"] for name, quantities in found.items()} == {"before": True, "after": False}  # type: ignore[index]


def test_a_use_without_memory_has_no_peak_and_the_others_have(tiny: Series) -> None:
    found = memory.peaks(tiny.subjects[0], EAGER, 1, (1, 10**9), 10**9)
    assert found["forward"]["1"] >= 0
    assert found["forward"][str(10**9)] is None
    assert found["training"] is None


def test_the_peak_of_a_gpu_is_its_allocators_after_a_call_that_does_not_count(monkeypatch) -> None:
    order: list[str] = []
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", lambda: order.append("reset"))
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: order.append("wait"))
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda: 527)
    assert memory._Allocator().peak(lambda: order.append("call")) == 527
    assert order == ["call", "reset", "call", "call", "wait"]


# --- records ---


@pytest.fixture
def here(monkeypatch) -> None:
    """Children's work is done in this process; nothing is said about the load."""
    monkeypatch.setattr(running, "in_own_process", lambda function, *arguments: function(*arguments))
    monkeypatch.setattr(running, "load_at_start", lambda: {"words": "the machine was idle", "busy": False})
    monkeypatch.setattr(running, "threads", lambda: 1)


@pytest.fixture
def smoke(tiny: Series, monkeypatch, here: None) -> tuple[Series, ...]:
    large = replace(tiny, name="too-large", title="Too large")
    measure = measuring.measure

    def measured(series: Series, **options: Any) -> dict[str, Any]:
        return {s.name: None for s in series.subjects} if series.name == "too-large" else measure(series, **options)

    monkeypatch.setattr(measuring, "measure", measured)
    return large, tiny


def _written(results: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((results / "smoke" / "throughput").glob("*.json"))}


def test_a_shape_without_memory_is_a_record_of_that_status_and_the_next_series_follows(
    smoke: tuple[Series, ...], tmp_path: Path
) -> None:
    assert running.measure_missing(smoke, [EAGER], "smoke", tmp_path) == 2
    found = [read(path) for path in sorted((tmp_path / "smoke" / "throughput").glob("*.json"))]
    by_series = {(record["plan"]["series"], record["plan"]["subject"]): record for record in found}
    assert {key: record["status"] for key, record in by_series.items()} == {
        ("tiny", "after"): "ok", ("tiny", "before"): "ok",
        ("too-large", "after"): "out_of_memory", ("too-large", "before"): "out_of_memory",
    }  # fmt: skip
    assert by_series["tiny", "before"]["metrics"]["flops"]["forward"] > 0
    assert by_series["too-large", "before"]["metrics"]["flops"]["forward"] > 0
    lines = {(line.series, line.subject): line for line in reading.lines(tmp_path, ["smoke"])}
    assert lines["too-large", "after"].timings == {"latency": None, "forward": None, "training": None}
    assert lines["tiny", "after"].timings["latency"] is not None


def test_another_machine_adds_its_records_beside_and_changes_none(
    smoke: tuple[Series, ...], tmp_path: Path, monkeypatch
) -> None:
    running.measure_missing(smoke, [EAGER], "smoke", tmp_path)
    before = _written(tmp_path)
    assert running.measure_missing(smoke, [EAGER], "smoke", tmp_path) == 0
    assert _written(tmp_path) == before
    other = provenance.machine() | {"processor": "Another Processor"}
    monkeypatch.setattr(provenance, "machine", lambda: other)
    monkeypatch.setattr(modes, "machine", lambda: other)
    assert running.measure_missing(smoke, [EAGER], "smoke", tmp_path) == 2
    after = _written(tmp_path)
    assert len(after) == 2 * len(before)
    assert {name: after[name] for name in before} == before
    assert all("another-processor" in name for name in set(after) - set(before))


def test_the_records_say_where_and_how_they_were_made(smoke: tuple[Series, ...], tmp_path: Path) -> None:
    running.measure_missing(smoke[1:], [EAGER], "smoke", tmp_path)
    record = read(next((tmp_path / "smoke" / "throughput").glob("tiny.before.*")))
    assert record["provenance"]["machine"] == provenance.machine()
    assert record["provenance"]["threads"] == 1
    assert record["provenance"]["busy"] is False
    assert record["plan"]["precision"] == "fp32"
    assert record["parameters"] == record["metrics"]["parameters"] == count_parameters(smoke[1].subjects[0].shape)
    assert set(record["metrics"]["peak_memory_bytes"]) == {"forward", "training"}


# --- reading ---


def _record(
    subject: str, forward: dict[str, list[float] | None], training: list[float], parameters: int
) -> dict[str, Any]:
    def told(values: list[float] | None) -> dict[str, Any] | None:
        return timing.summary(values)

    return {
        "run_id": f"row.{subject}.fp32.eager.box-2-cores", "status": "ok", "parameters": parameters,
        "plan": {
            "series": "row", "title": "Row", "kind": "row", "subject": subject, "reference": "before", "assumption": "",
            "device": "cpu", "precision": "fp32", "compiled": False,
            "shape": {"heads": [4], "d_model": [64], "head_dim": None},
        },
        "metrics": {
            "flops": {"forward": 600, "training": 1800},
            "forward": {batch: told(values) for batch, values in forward.items()}, "training": {"4": told(training)},
            "peak_memory_bytes": {"forward": {"1": 100 * parameters}, "training": 400 * parameters},
        },
        "provenance": {
            "device": "cpu", "busy": False, "date": "2026-11-30", "machine": {"processor": "Box(R)", "cores": 2},
        },
    }  # fmt: skip


@pytest.fixture
def pair() -> list[reading.Line]:
    before = _record("before", {"1": [2.0, 4.0, 6.0], "8": [8.0, 16.0, 24.0], "64": None}, [40.0, 44.0, 48.0], 10)
    after = _record("after", {"1": [1.0, 3.0, 3.0], "8": [12.0, 12.0, 12.0], "64": None}, [20.0, 22.0, 36.0], 6)
    return [reading.line_of(record) for record in (before, after)]


def test_throughput_is_that_of_the_best_batch_and_latency_that_of_one_image(pair: list[reading.Line]) -> None:
    before, after = pair
    assert before.timings["latency"] == reading.Timing(batch=1, values=(2.0, 4.0, 6.0), median=4.0)
    assert before.timings["forward"] == reading.Timing(batch=8, values=(1.0, 2.0, 3.0), median=2.0)
    assert after.timings["forward"].per_second == pytest.approx(1 / 1.5)  # type: ignore[union-attr]
    assert before.timings["training"] == reading.Timing(batch=4, values=(10.0, 11.0, 12.0), median=11.0)


def test_achieved_operations_are_those_of_an_image_over_its_seconds(pair: list[reading.Line]) -> None:
    assert pair[0].flops_per_second("forward") == pytest.approx(600 / 2)
    assert pair[0].flops_per_second("training") == pytest.approx(1800 / 11)


def test_a_shape_is_compared_with_its_reference_round_by_round(pair: list[reading.Line]) -> None:
    (comparison,) = reading.comparisons(pair)
    assert comparison.parameters_saved == pytest.approx(0.4)
    assert comparison.time("latency") == Ratio(median=0.5, lowest=0.5, highest=0.75)
    assert comparison.time("training") == Ratio(median=0.5, lowest=0.5, highest=0.75)
    assert comparison.memory("training") == pytest.approx(0.6)


def test_shapes_of_different_machines_modes_or_runs_are_never_compared(pair: list[reading.Line]) -> None:
    before, after = pair
    others = [
        replace(after, machine="Another"), replace(after, compiled=True), replace(after, precision="bf16"),
        replace(after, turns="another run"),
    ]  # fmt: skip
    for other in others:
        assert reading.comparisons([before, other]) == []


def test_a_shape_that_was_measured_alone_is_compared_with_nothing() -> None:
    before, after = (_record(name, {"1": [1.0]}, [2.0], 10) for name in ("before", "after"))
    after["metrics"]["took_turns"] = False
    assert reading.comparisons([reading.line_of(before), reading.line_of(after)]) == []


def test_a_shape_without_memory_has_no_ratio(pair: list[reading.Line]) -> None:
    before, after = pair
    starved = replace(after, timings=dict.fromkeys(reading.QUANTITIES), memory={"forward": None, "training": None})
    (comparison,) = reading.comparisons([before, starved])
    assert comparison.time("forward") is None
    assert comparison.memory("training") is None


def test_the_data_of_a_figure_hold_every_round(pair: list[reading.Line]) -> None:
    frame = reading.data(pair)
    assert len(frame) == 2 * 3 * 3
    before = frame[(frame.subject == "before") & (frame.quantity == "forward")]
    assert before.seconds_per_item.tolist() == [1.0, 2.0, 3.0]


# --- bad input ---


@pytest.fixture
def nothing_runs(monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise AssertionError("something was measured")

    monkeypatch.setattr(running, "in_own_process", refuse)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--row", "xcit-s"], "row is 'xcit-s': use some of xcit-m, tnt-b"),
        (["--model", "vit_bose_patch16_224"], "did you mean vit_base_patch16_224"),
        (["--model", "vit_base_patch16_224", "--heads", "7"], "heads is 7: must divide d_model 768"),
        (["--model", "vit_base_patch16_224", "--depth", "6,6"], "depth is (6, 6): give 1 numbers, one per stage"),
        (["--model", "vit_base_patch16_224", "--batch-sizes", "1,0"], "batch-sizes is '1,0': give whole numbers"),
        (["--model", "vit_base_patch16_224", "--batch-sizes", "900000000"], "its inputs alone take"),
        (["--model", "vit_base_patch16_224", "--batch-sizes", "9" * 5000], "at most 9 digits"),
        (["--model", "vit_base_patch16_224", "--depth", "1000000"], "give at most 1000 blocks per stage"),
        (["--batch-sizes", "4"], "belongs to --model NAME"),
        (["--model", "vit_base_patch16_224", "--row", "xcit-m"], "name rows or a model, not both"),
        (["--precision", "fp8"], "precision is 'fp8': use one of fp32, bf16"),
        (["--profile", "full"], "profile is 'full': throughput is measured with smoke, cpu, gpu"),
        (["--device", "tpu"], "device is 'tpu': use cpu or cuda"),
    ],
)
def test_bad_input_is_one_sentence_and_nothing_is_measured(
    arguments: list[str], says: str, nothing_runs: None, tmp_path: Path, capsys
) -> None:
    assert main(["throughput", "--results", str(tmp_path), *arguments]) == 2
    told = capsys.readouterr().err.strip()
    assert says in told
    assert len(told.splitlines()) == 1
    assert list(tmp_path.rglob("*.json")) == []


def test_a_processor_without_bfloat16_is_said_to_be_so(nothing_runs: None, tmp_path: Path, monkeypatch, capsys) -> None:
    monkeypatch.setattr(precision, "processor_flags", lambda: {"avx2"})
    assert main(["throughput", "--precision", "bf16", "--results", str(tmp_path)]) == 2
    assert "precision is 'bf16': this machine's cpu does not compute in bfloat16, use fp32" in capsys.readouterr().err
    monkeypatch.setattr(precision, "processor_flags", lambda: {"avx2", "amx_bf16"})
    precision.check_precision("bf16", "cpu")


def test_a_machine_without_a_compiler_is_said_to_be_so(monkeypatch) -> None:
    monkeypatch.setattr("shutil.which", lambda _: None)
    with pytest.raises(BadInput, match="needs a C\\+\\+ compiler here"):
        modes.check_mode(Mode(compiled=True))
    modes.check_mode(EAGER)


def test_another_depth_and_head_count_keep_width_and_mlp() -> None:
    xcit = VISION_ROWS[0].before
    shape = reshaped(xcit, (12,), 16)
    assert (shape.depth, shape.heads) == ((12,), (16,))
    assert (shape.d_model, shape.mlp_width) == (xcit.d_model, xcit.mlp_width)
    assert reshaped(xcit, None, None) == xcit


def test_the_smoke_profile_measures_from_scratch_through_real_processes(tmp_path: Path, capsys) -> None:
    started = time.monotonic()
    assert main(["throughput", "--profile", "smoke", "--row", "gpt2", "--results", str(tmp_path)]) == 0
    told = capsys.readouterr().out
    assert "GPT-2" in told
    records = [json.loads(path.read_text()) for path in (tmp_path / "smoke" / "throughput").glob("gpt2.*.json")]
    assert {record["plan"]["subject"] for record in records} == {"before", "after"}
    assert all(record["status"] == "ok" for record in records)
    assert all(0 < record["seconds"]["total"] < time.monotonic() - started for record in records)


@pytest.mark.parametrize(
    "damage",
    [{"plan": {}}, {"run_id": "no-dots"}, {"metrics": []}, {"provenance": None}, {"metrics": {}}],
    ids=lambda damage: next(iter(damage)),
)
def test_a_record_that_is_no_measurement_is_named(damage: dict[str, Any]) -> None:
    with pytest.raises(BadInput, match=r"record is .*holds no measurement of throughput; remove it and measure again"):
        reading.line_of(_record("before", {"1": [1.0]}, [2.0], 10) | damage)


def test_records_that_cannot_be_read_are_found_before_anything_is_measured(
    nothing_runs: None, tmp_path: Path, capsys
) -> None:
    folder = tmp_path / "smoke" / "throughput"
    folder.mkdir(parents=True)
    (folder / "deep.json").write_text("[" * 200_000)
    assert main(["throughput", "--profile", "smoke", "--results", str(tmp_path)]) == 2
    assert "is truncated or no JSON; remove it" in capsys.readouterr().err
