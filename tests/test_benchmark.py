"""The benchmark: exact matrices, fair loops, ratios by hand, records that stay, a page that says what is missing."""

import io
import json
import os
import re
import time
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor
from contextlib import redirect_stderr, redirect_stdout
from fractions import Fraction
from itertools import count
from pathlib import Path
from typing import Any

import matplotlib as mpl
import nbformat
import numpy as np
import psutil  # type: ignore[import-untyped]
import pytest
import torch
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image

from conftest import InlinePool
from heads_for_depth.benchmark import (
    engine,
    files,
    notebook,
    peak,
    profile,
    reading,
    running,
    settings,
    timing,
    workers,
)
from heads_for_depth.benchmark.engine import engine_loop
from heads_for_depth.benchmark.exact_matrices import exact_matrix, exact_orthogonal
from heads_for_depth.benchmark.memory import peak_resident_bytes
from heads_for_depth.benchmark.plain_loop import PlainLoop, evaluation_transform, training_transform
from heads_for_depth.cli.main import main
from heads_for_depth.conditioning import singular_values
from heads_for_depth.conditioning.spectra import relative_error_bound
from heads_for_depth.datasets import Split, as_input, fashion_mnist
from heads_for_depth.errors import BadInput
from heads_for_depth.figures.costs import speed_ups
from heads_for_depth.figures.style import WIDTH_INCHES
from heads_for_depth.models import build
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Shape
from heads_for_depth.sweeps import workers as sweep_workers
from heads_for_depth.tables import cost_spectra, cost_values, costs
from heads_for_depth.training import TrainingLoop, learning_rate
from made_up_records import PROVENANCE, planned, record

RECIPE = Recipe(train_images=300, epochs=2, batch_size=128, learning_rate=2e-3, evaluation_images=100)
MEASURED = ("training", "profile", "accuracy", "workers", "spectra")
PHONE_PIXELS, SMALLEST_POINTS = 358, 9


# --- matrices with a known κ ---


def determinant(square: list[list[Fraction]]) -> Fraction:
    """By elimination in exact arithmetic."""
    rows, result = [list(row) for row in square], Fraction(1)
    for place in range(len(rows)):
        pivot = next((row for row in range(place, len(rows)) if rows[row][place]), None)
        if pivot is None:
            return Fraction(0)
        result *= rows[pivot][place] * (-1 if pivot != place else 1)
        rows[place], rows[pivot] = rows[pivot], rows[place]
        for below in range(place + 1, len(rows)):
            factor = rows[below][place] / rows[place][place]
            rows[below] = [a - factor * b for a, b in zip(rows[below], rows[place], strict=True)]
    return result


@pytest.mark.parametrize("order", [1, 2, 3, 17, 49, 128, 197])
def test_the_orthogonal_factors_are_orthogonal_without_rounding(order: int) -> None:
    whole = np.rint(exact_orthogonal(order) * 16).astype(np.int64)
    assert np.array_equal(whole / 16, exact_orthogonal(order))
    assert np.array_equal(whole @ whole.T, 256 * np.eye(order, dtype=np.int64))


@pytest.mark.parametrize("kappa", [7, 10**14])
def test_both_ends_of_the_spectrum_are_exact_in_rational_arithmetic(kappa: int) -> None:
    matrix = exact_matrix(6, 9, kappa, np.random.default_rng(3))
    gram = [
        [sum(Fraction(float(a)) * Fraction(float(b)) for a, b in zip(x, y, strict=True)) for y in matrix]
        for x in matrix
    ]
    for squared in (1, kappa**2):
        shifted = [[entry - Fraction(squared * (i == j)) for j, entry in enumerate(row)] for i, row in enumerate(gram)]
        assert determinant(shifted) == 0
    values = np.linalg.svd(matrix, compute_uv=False)
    assert (values.max(), values.min()) == pytest.approx((kappa, 1), rel=0.1)


def test_two_matrices_of_one_kappa_are_different_matrices() -> None:
    generator = np.random.default_rng(0)
    first, second = (exact_matrix(17, 32, 10**6, generator) for _ in range(2))
    assert not np.array_equal(first, second)


@pytest.mark.parametrize(
    ("rows", "columns", "kappa", "field"),
    [(5, 4, 10, "rows and columns"), (1, 4, 10, "rows and columns"), (4, 1025, 10, "rows and columns"),
     (4, 8, 0, "kappa"), (4, 8, 10**14 + 1, "kappa")],
)  # fmt: skip
def test_a_matrix_that_cannot_be_exact_is_refused(rows: int, columns: int, kappa: int, field: str) -> None:
    with pytest.raises(BadInput, match=field):
        exact_matrix(rows, columns, kappa, np.random.default_rng(0))


def test_the_error_bound_is_the_larger_side_times_the_spacing_of_float64_times_kappa() -> None:
    assert relative_error_bound(1e6, 768) == pytest.approx(768 * 2.0**-52 * 1e6)
    assert relative_error_bound(2.0**52 / 768, 768) == 1


@pytest.mark.parametrize(("rows", "columns"), [(17, 32), (49, 128), (60, 60)])
@pytest.mark.parametrize("power", [0, 4, 8, 12, 14])
def test_every_measured_kappa_lies_within_its_bound(rows: int, columns: int, power: int) -> None:
    generator = np.random.default_rng(power)
    matrices = torch.from_numpy(np.stack([exact_matrix(rows, columns, 10**power, generator) for _ in range(4)]))
    values = singular_values(matrices)
    errors = (values[:, 0] / values[:, -1] / 10**power - 1).abs()
    assert float(errors.max()) <= relative_error_bound(10.0**power, max(rows, columns))


# --- timing ---


def test_the_arms_take_turns_and_the_first_round_does_not_count() -> None:
    numbers, turns = count(), []

    def arm(name: str) -> Callable[[], int]:
        def measure() -> int:
            turns.append(name)
            return next(numbers)

        return measure

    rounds: list[int] = []
    measured = timing.alternate({"a": arm("a"), "b": arm("b")}, 3, lambda: rounds.append(len(turns)))
    assert turns == ["a", "b"] * 4
    assert measured == {"a": [2, 4, 6], "b": [3, 5, 7]}
    assert rounds == [2, 4, 6, 8]


class Clock:
    """Time that passes only when a step is made."""

    now = 100.0

    def steps(self, seconds: float, images: int) -> Iterator[int]:
        while True:
            self.now += seconds
            yield images


def test_images_count_from_the_opening_of_the_window_to_the_end_of_the_last_step(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    # steps of 3 s: the window opens at 104, is entered at 106 and closes at 106 + 7; the third step ends at 115
    speed = timing.images_per_second(clock.steps(3.0, 12), timing.Window(begin=104.0, seconds=7.0))
    assert speed == 3 * 12 / 9
    assert clock.now == 115.0


def test_a_window_that_is_open_already_starts_after_one_step(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "monotonic", lambda: clock.now)
    assert timing.images_per_second(clock.steps(2.0, 10), timing.Window(begin=0.0, seconds=0.0)) == 5
    assert clock.now == 104.0


def test_a_call_is_timed_over_as_many_calls_as_fill_the_duration(monkeypatch) -> None:
    clock = Clock()
    monkeypatch.setattr(time, "perf_counter", lambda: clock.now)
    slow = clock.steps(0.4, 1)
    assert timing.seconds_per_call(lambda: next(slow), 1.0) == pytest.approx(0.4)
    assert clock.now == pytest.approx(101.2)


def test_the_peak_of_memory_is_at_least_what_the_process_holds() -> None:
    before = peak_resident_bytes()
    held = np.ones(256 * 2**20 // 8)
    assert peak_resident_bytes() >= max(before, psutil.Process().memory_info().rss - 2**20)
    assert peak_resident_bytes() >= held.nbytes


# --- the machine's peak ---


def test_the_peak_is_two_operations_per_multiply_add_over_the_fastest_call(monkeypatch) -> None:
    seconds = iter([0.5, 0.25, 1.0, 8.0, 8.0, 4.0])
    monkeypatch.setattr(peak, "seconds_per_call", lambda *_: next(seconds))
    assert peak.gemm_flops_per_second((4, 8)) == {"4": 2 * 4**3 / 0.25, "8": 2 * 8**3 / 4.0}


# --- the two loops do the same ---


@pytest.mark.parametrize("size", [28, 32])
def test_the_plain_loop_evaluates_on_the_same_pixels_as_the_engine(size: int) -> None:
    images = fashion_mnist()["validation"].images[:3]
    plain = torch.stack([evaluation_transform(size)(Image.fromarray(image.numpy())) for image in images])
    torch.testing.assert_close(plain, as_input(images, size, 1))


@pytest.mark.parametrize("size", [28, 32])
def test_the_plain_loop_shifts_by_up_to_two_pixels_and_flips(size: int) -> None:
    torch.manual_seed(0)
    image = fashion_mnist()["train"].images[0]
    padded = torch.nn.functional.pad(image, (2, 2, 2, 2))
    shifted = [padded[r : r + 28, c : c + 28] for r in range(5) for c in range(5)]
    allowed = as_input(torch.stack([*shifted, *(crop.flip(1) for crop in shifted)]), size, 1)
    transform, seen = training_transform(size), set()
    for _ in range(60):
        made = transform(Image.fromarray(image.numpy()))
        (place,) = [k for k, other in enumerate(allowed) if torch.allclose(made, other)]
        seen.add(place)
    assert len(seen) > 20
    assert {place < 25 for place in seen} == {True, False}


def test_the_plain_loop_has_the_optimizer_and_the_schedule_of_the_engine(tiny_shape: Shape) -> None:
    plain = PlainLoop(tiny_shape, RECIPE, 0, 0)
    engine, _ = engine_loop(tiny_shape, RECIPE, 0, "sdpa")

    def groups(optimizer: torch.optim.Optimizer) -> dict[float, int]:
        return {g["weight_decay"]: sum(p.numel() for p in g["params"]) for g in optimizer.param_groups}

    assert groups(plain.optimizer) == groups(engine.optimizer)
    assert plain.optimizer.defaults["betas"] == engine.optimizer.defaults["betas"] == RECIPE.betas
    for p, q in zip(plain.model.parameters(), engine.model.parameters(), strict=True):
        assert torch.equal(p, q)
    rates = []
    for _ in range(RECIPE.epochs):
        for images in plain.steps():
            assert images == RECIPE.batch_size
            rates.append(plain.optimizer.param_groups[0]["lr"])
    assert rates == pytest.approx([learning_rate(RECIPE, step) for step in range(1, RECIPE.steps + 1)])


def test_the_plain_loop_learns(tiny_shape: Shape) -> None:
    """Two classes that differ in brightness, told apart after a few steps."""
    bright = (torch.arange(64) % 2).long()
    images = (bright[:, None, None] * 200).expand(-1, 28, 28).to(torch.uint8).contiguous()
    loop = PlainLoop(tiny_shape, RECIPE, 0, 0)
    inputs = torch.stack([evaluation_transform(28)(Image.fromarray(image.numpy())) for image in images])
    loop.loader = [(inputs, bright)] * 30  # type: ignore[assignment]
    before = loop.accuracy(Split(images=images, labels=bright))
    list(loop.steps())
    assert loop.accuracy(Split(images=images, labels=bright)) == 1.0 > before


def test_the_engine_of_the_benchmark_trains_to_the_bits_of_a_sweep(tiny_shape: Shape) -> None:
    train = fashion_mnist()["train"].first(256)
    loop, kernel = engine_loop(tiny_shape, RECIPE, 5, "sdpa")
    torch.manual_seed(5)
    own = TrainingLoop(build(tiny_shape), tiny_shape, RECIPE, 5)
    assert loop.epoch(train, 0)["train_loss"] == own.epoch(train, 0)["train_loss"]
    assert kernel == {"kernel": "sdpa"}


# --- number of workers ---


@pytest.mark.parametrize(("cores", "counts"), [(1, [1]), (2, [1, 2]), (6, [1, 2, 4, 6]), (8, [1, 2, 4, 8])])
def test_workers_are_tried_in_powers_of_two_up_to_the_cores(cores: int, counts: list[int]) -> None:
    assert workers.worker_counts(cores) == counts


def test_the_fewest_workers_win_that_are_as_fast_as_any() -> None:
    assert workers.best_of({"1": 100.0, "2": 196.0, "4": 200.0, reading.ALL_THREADS: 900.0}) == 2
    assert workers.best_of({"1": 100.0, "2": 190.0, "4": 200.0, reading.ALL_THREADS: 10.0}) == 4


# --- records ---


def arm(values: list[float], **facts: Any) -> dict[str, Any]:
    known = {"images_per_second": timing.with_median(values), "peak_resident_bytes": [2**30] * len(values)}
    return known | facts


def made_up(**changed: Any) -> files.Benchmark:
    """A benchmark with one shape and round numbers."""
    lanes = {"kernel": "lanes", "sites": 2, "of": 2}
    arms = {
        "plain, no loader processes": arm([100.0, 110.0, 120.0]),
        "plain, a loader process per core": arm([80.0, 200.0, 90.0]),
        "engine": arm([220.0, 440.0, 240.0], attention=lanes, core_share=[1.0] * 3),
        "engine, torch's attention": arm([110.0, 110.0, 120.0], attention={"kernel": "sdpa"}),
    }
    shape = {"title": "ViT, 2 layers, 32 heads", "shape": {}, "flops_per_image": 5e6, "arms": arms}
    training = {"window_seconds": 1.0, "threads": 2, "workers": 2, "shapes": [shape]}
    training["gemm_flops_per_second"] = {"1024": 8e9, "2048": 1e10}
    seeds = {"plain": [0.70, 0.72], "engine": [0.71, 0.73]}
    trained = {
        name: [{"accuracy": share, "seconds": 3.0 if name == "plain" else 2.0} for share in shares]
        for name, shares in seeds.items()
    }
    machines = {"1": [90.0, 100.0, 110.0], "2": [190.0, 200.0, 210.0], reading.ALL_THREADS: [50.0, 50.0, 50.0]}
    seconds = {"loop": [4e-3, 6e-3, 8e-3], "engine": [2e-3, 2e-3, 2e-3], "engine, QR alone": [6e-4] * 3,
               "engine, SVD alone": [1.5e-3] * 3}  # fmt: skip
    errors = {
        f"{name}, {kind} entries": {"largest": largest, "median": largest / 2}
        for name, kind, largest in (
            ("engine", "exact", 2e-11), ("loop", "exact", 3e-11),
            ("engine", "rounded", 4e-11), ("loop", "rounded", 1e-11),
        )
    }  # fmt: skip
    parts = {
        "training": training,
        "profile": {"title": "ViT", "batches": 24, "shares": {"matrix products": 0.4, "GELU": 0.05, "attention": 0.55}},
        "accuracy": {"title": "ViT", "workers": 2, **trained, "seconds": {"plain": 6.0, "engine": 2.0}},
        "workers": {"title": "ViT", "images_per_second": machines, "recommended": 2,
                    "medians": {name: sorted(values)[1] for name, values in machines.items()}},
        "spectra": {
            "speed": [{"rows": 49, "columns": 128, "matrices": 64, "threads": 1,
                       "seconds_per_matrix": {name: timing.with_median(found) for name, found in seconds.items()}}],
            "errors": [{"rows": 49, "columns": 128, "matrices": 16, "kappa": 10**6, "bound": 2.8e-8,
                        "reported_infinite": 0, "relative_errors": errors}],
        },
        "notebook": {"notebook": "03-vision-rows.ipynb", "total": timing.with_median([12.0]),
                     "kernel": timing.with_median([2.5]), "imports": timing.with_median([6.0]),
                     "cells": timing.with_median([3.5])},
    }  # fmt: skip
    stamp = PROVENANCE | {"versions": {"python": "3.11.7", "torch": "2.14.1", "timm": "1.0.31"}}
    load = {"average": 0.1, "cores": 2, "busy": False, "words": "the load average was 0.1"}
    known = {"schema": files.SCHEMA, "quick": False, "repeats": 3, "load": load, "seconds": {}, "parts": parts}
    return known | {"provenance": stamp} | changed


def test_a_second_benchmark_of_a_machine_gets_a_dated_file_and_leaves_the_first_alone(tmp_path: Path) -> None:
    first = files.write(made_up(), tmp_path)
    before = first.read_bytes()
    others = [files.write(made_up(repeats=repeats), tmp_path) for repeats in (5, 7)]
    assert first == tmp_path / "benchmarks" / "model-a-2-cores.json"
    assert [path.name for path in others] == [
        "model-a-2-cores.20260301T235900.json", "model-a-2-cores.20260301T235900-2.json",
    ]  # fmt: skip
    assert first.read_bytes() == before
    assert sorted(path.name for path in first.parent.iterdir()) == sorted([first.name, *(p.name for p in others)])
    assert sorted(found["repeats"] for found in files.load(tmp_path)) == [3, 5, 7]


def test_the_page_shows_the_newest_of_the_most_complete_benchmarks_and_never_a_quick_one(tmp_path: Path) -> None:
    assert files.newest(tmp_path) is None
    files.write(made_up(quick=True), tmp_path)
    assert files.newest(tmp_path) is None
    dates = {day: made_up()["provenance"] | {"date": f"2026-03-{day:02d}T00:00:00+00:00"} for day in (4, 5, 6)}
    files.write(made_up(provenance=dates[5], repeats=5), tmp_path)
    files.write(made_up(provenance=dates[4], repeats=4), tmp_path)
    files.write(made_up(provenance=dates[6], repeats=6, parts={"spectra": {}}), tmp_path)
    found = files.newest(tmp_path)
    assert found is not None
    assert found["repeats"] == 5


@pytest.mark.parametrize(
    ("text", "remedy"),
    [
        ("{", "cannot be read"),
        ("[]", "is not of schema heads-for-depth/benchmark/1"),
        ('{"schema": "heads-for-depth/benchmark/2"}', "is not of schema"),
        ('{"schema": "heads-for-depth/benchmark/1", "quick": false}', "lacks repeats, load"),
    ],
)
def test_a_damaged_benchmark_is_named(tmp_path: Path, text: str, remedy: str) -> None:
    path = tmp_path / "benchmarks" / "a.json"
    path.parent.mkdir()
    path.write_text(text)
    with pytest.raises(BadInput, match=remedy) as error:
        files.load(tmp_path)
    assert error.value.value == str(path)


def test_a_number_that_is_not_finite_leaves_no_file(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        files.write(made_up(seconds={"training": float("nan")}), tmp_path)
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize(("average", "busy"), [(0.4, False), (0.6, True)])
def test_a_busy_machine_is_told_in_words(monkeypatch, average: float, busy: bool) -> None:
    monkeypatch.setattr(running, "cores_in_use", lambda: average)
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    load = running.load_at_start()
    assert (load["average"], load["cores"], load["busy"]) == (average, 2, busy)
    assert f"{average} of 2 cores were in use" in load["words"]
    assert ("do not quote these ratios" in load["words"]) is busy


def test_a_busy_machine_is_told_before_anything_is_measured(monkeypatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(running, "cores_in_use", lambda: 99.0)
    found = running.run(settings.quick(3), [])
    assert found["load"]["busy"]
    assert capsys.readouterr().err.startswith("Warning: 99.0 of")


# --- what a record says ---


def test_ratios_are_taken_round_by_round() -> None:
    found = reading.ratio([220.0, 440.0, 240.0], [100.0, 110.0, 120.0])
    assert (found.median, found.lowest, found.highest) == (2.2, 2.0, 4.0)


def test_the_engine_is_set_against_the_better_of_the_two_plain_loops() -> None:
    (line,) = reading.training_lines(made_up())
    assert (line.plain, line.plain_arm) == (110.0, "plain, no loader processes")
    assert (line.engine, line.engine_per_core, line.kernel) == (240.0, 120.0, "lanes")
    assert (line.speed_up.median, line.kernel_speed_up.highest) == (2.2, 4.0)
    assert (line.plain_share, line.engine_share) == pytest.approx((110 * 5e6 / 1e10, 240 * 5e6 / 1e10))


def test_the_data_of_the_figure_hold_every_round() -> None:
    data = reading.training_data(made_up())
    assert len(data) == 4 * 3
    engine = data[(data["arm"] == "engine") & (data["round"] == 2)]
    assert engine["images_per_second"].tolist() == [440.0]
    assert len(reading.training_data(None)) == 0


def cells(frame: Any) -> list[list[str]]:
    return [list(map(str, row)) for row in frame.to_numpy()]


def test_the_tables_of_a_benchmark_hold_its_medians_and_extremes() -> None:
    benchmark = made_up()
    assert cells(costs.training(benchmark)) == [
        ["ViT, 2 layers, 32 heads", "2.20 [2.00, 4.00]", "2.00 [2.00, 4.00]", "110", "240", "120", "lanes"]
    ]
    assert cells(costs.peak_shares(benchmark)) == [["ViT, 2 layers, 32 heads", "5.0", "6 %", "12 %"]]
    assert cells(costs.accuracy(benchmark)) == [
        ["plain loop", "2", "71.00 ± 1.41", "6.0", "3.0"], ["engine", "2", "72.00 ± 1.41", "2.0", "2.0"],
    ]  # fmt: skip
    assert cells(costs.workers(benchmark)) == [
        ["1 of one thread", "100 [90, 110]"], ["2 of one thread", "200 [190, 210]"],
        ["one worker, all threads", "50 [50, 50]"],
    ]  # fmt: skip
    assert [row[1] for row in cells(costs.memory(benchmark))] == ["1024", "2048", "1024"]
    assert cells(cost_spectra.speed(benchmark)) == [["49 × 128", "1", "500", "3.00 [2.00, 4.00]", "10 %", "25 %"]]
    assert cells(cost_spectra.errors(benchmark)) == [
        ["49 × 128", "1e6", "2.8e−8", "2.0e−11", "3.0e−11", "4.0e−11", "number"]
    ]


@pytest.mark.parametrize(("infinite", "written"), [(0, "number"), (16, "inf"), (3, "either")])
def test_the_table_says_how_the_report_writes_such_a_kappa(infinite: int, written: str) -> None:
    benchmark = made_up()
    benchmark["parts"]["spectra"]["errors"][0]["reported_infinite"] = infinite
    assert cells(cost_spectra.errors(benchmark))[0][-1] == written


def test_a_quick_or_busy_benchmark_is_marked_in_the_list() -> None:
    load = {"average": 3.0, "cores": 2, "busy": True, "words": "busy"}
    frame = costs.benchmarks([made_up(), made_up(quick=True, load=load)])
    assert frame["sizes"].tolist() == ["full", "quick: not shown above"]
    assert frame["cores in use before"].tolist() == ["0.1", "3.0 (busy)"]


def test_the_cost_of_the_runs_is_the_sum_of_their_seconds() -> None:
    runs = {
        "vision_rows": [record(planned("vit-own", "before", "before", seed), seconds={"total": s}) for seed, s in
                        enumerate((100.0, 200.0, 3300.0))],
        "conditioning": [],
    }  # fmt: skip
    assert cells(costs.runs(runs)) == [["vision_rows", "3", "1.00", "200", "3300"], ["all", "3", "1.00", "200", "3300"]]
    values = cost_values.glued(runs, None)
    assert (values["costs.runs"], values["costs.core_hours"]) == ("3", "1.0")
    assert cells(costs.runs({"conditioning": []})) == [["all", "0", "0.00", "—", "—"]]


def test_the_sentences_say_what_was_measured() -> None:
    said = cost_values.sentences(made_up())
    assert said["benchmark"].startswith(
        "Measured 2026-03-01 on Model A, 2 cores (torch 2.14.1, timm 1.0.31), medians of 3"
    )
    assert "the load average was 0.1" in said["benchmark"]
    assert said["training"].startswith("The engine is never slower than the plain loop: from 2.2 times")
    assert "reached 10 GFLOP/s on all cores; of that the engine reaches 12 % to 12 %" in said["peak"]
    # means 71 and 72, variances 2 and 2 over 2 seeds each: standard error √2, 2 degrees of freedom, t = 4.3027
    assert said["accuracy"].startswith("Engine minus plain loop: +1.00 [−5.08, +7.08] points")
    assert "contains zero. For all seeds the plain loop took 3.0 times as long" in said["accuracy"]
    assert said["workers"].endswith(
        "any number: 2. They train 4.0 times as many images per second as one worker with all threads."
    )
    assert "3.00 times at 49 × 128 with 1 thread." in said["spectra"]
    assert said["errors"] == (
        "The report's largest error is never above the bound, and no larger than the loop's in 1 of 1 lines."
    )
    assert said["notebook"] == (
        "Executing 03-vision-rows.ipynb over complete records takes 12.0 s, of which 2.5 s start and stop its kernel "
        "and 6.0 s import packages."
    )


def test_the_sentences_admit_a_slower_shape_a_difference_and_an_error_above_the_bound() -> None:
    benchmark = made_up()
    (shape,) = benchmark["parts"]["training"]["shapes"]
    slower = shape["arms"] | {"engine": arm([90.0, 90.0, 90.0], attention={"kernel": "sdpa"})}
    benchmark["parts"]["training"]["shapes"].append(shape | {"title": "TNT-B", "arms": slower})
    benchmark["parts"]["accuracy"]["engine"] = [{"accuracy": share, "seconds": 1.0} for share in (0.91, 0.93)]
    benchmark["parts"]["accuracy"]["plain"] = [{"accuracy": share, "seconds": 1.0} for share in (0.7, 0.7)]
    benchmark["parts"]["spectra"]["errors"][0]["relative_errors"]["engine, exact entries"]["largest"] = 1.0
    said = cost_values.sentences(benchmark)
    assert said["training"] == (
        "The engine is not always faster than the plain loop: from 0.8 times its images per second (TNT-B) to 2.2 "
        "times (ViT, 2 layers, 32 heads)."
    )
    assert "which does not contain zero" in said["accuracy"]
    assert said["errors"] == (
        "The report's largest error is above the bound in 1, and no larger than the loop's in 0 of 1 lines; "
        "where it is larger, it is at most 1.0e0."
    )


def test_without_a_benchmark_the_page_says_so_once_and_names_what_is_not_measured() -> None:
    said = cost_values.glued({}, None)
    assert said["costs.training"].startswith("There is no benchmark record in this build")
    others = set(said) - {"costs.runs", "costs.core_hours", "costs.training"}
    assert others == {f"costs.{key}" for key in cost_values.sentences(made_up())} - {"costs.training"}
    assert {said[key] for key in others} == {"Not measured yet."}
    tables = (
        costs.training,
        costs.peak_shares,
        costs.accuracy,
        costs.workers,
        costs.memory,
        cost_spectra.speed,
        cost_spectra.errors,
    )
    assert {table(None).to_numpy().tolist()[0][0] for table in tables} == {"no record yet: run `heads-for-depth bench`"}
    assert len(costs.benchmarks([])) == 1


def test_a_part_that_was_left_out_is_told_apart_from_no_benchmark() -> None:
    said = cost_values.sentences(made_up(parts={"notebook": made_up()["parts"]["notebook"]}))
    assert said["training"] == said["spectra"] == cost_values.LEFT_OUT
    assert said["notebook"].startswith("Executing")
    assert costs.training(made_up(parts={})).columns.tolist() == ["benchmark"]


# --- the figure ---


def seven_lines() -> list[reading.TrainingLine]:
    benchmark = made_up()
    (shape,) = benchmark["parts"]["training"]["shapes"]
    titles = [subject.title for subject in settings.full(3).subjects]
    benchmark["parts"]["training"]["shapes"] = [shape | {"title": title} for title in titles]
    return reading.training_lines(benchmark)


def drawn(lines: list[reading.TrainingLine]) -> Figure:
    figure = speed_ups(lines)
    FigureCanvasAgg(figure).draw()
    return figure


@pytest.mark.parametrize("number", [0, 1, 7])
def test_the_figure_can_be_read_on_a_phone(number: int) -> None:
    figure = drawn(seven_lines()[:number])
    box = figure.get_tightbbox()
    assert box.width <= WIDTH_INCHES + 0.05
    scale = min(1.0, PHONE_PIXELS / (96 * box.width))
    sizes = [float(text.get_fontsize()) * scale for text in figure.findobj(Text) if text.get_text().strip()]
    assert min(sizes) >= SMALLEST_POINTS


def test_every_ratio_has_a_bar_between_its_extremes_and_a_mark_at_its_median() -> None:
    (axes,) = speed_ups(reading.training_lines(made_up())).axes
    drawn_at = [np.asarray(line.get_xdata(), dtype=float).tolist() for line in axes.get_lines()]
    bars = [places for places in drawn_at if len(places) == 2]
    marks = [places[0] for places in drawn_at if len(places) == 1]
    assert bars == [[2.0, 4.0], [2.0, 4.0], [1.0, 1.0]]
    assert marks == [2.2, 2.0]
    assert (axes.get_xscale(), axes.get_xlim()[0] < 1 < 4 < axes.get_xlim()[1]) == ("log", True)
    said = [text.get_text() for text in speed_ups([]).axes[0].texts]
    assert said == [" no benchmark record"]


def test_the_same_benchmark_draws_the_same_bytes() -> None:
    drawings = []
    for _ in range(2):
        buffer = io.BytesIO()
        with mpl.rc_context({"svg.hashsalt": "figure"}):
            speed_ups(seven_lines()).savefig(buffer, format="svg", metadata={"Date": None})
        drawings.append(buffer.getvalue())
    assert drawings[0] == drawings[1]


# --- the command ---


@pytest.fixture(scope="module")
def one_core() -> Iterator[None]:
    """A machine of one core whose worker processes do their work in this one."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sweep_workers, "ProcessPoolExecutor", lambda *_, **__: InlinePool())
        patched.setattr(engine, "available_cores", lambda: [0])
        yield


@pytest.fixture(scope="module")
def quick_runs(tmp_path_factory: pytest.TempPathFactory, one_core: None) -> tuple[Path, list[str], list[str]]:
    """Two quick benchmarks by the command: the results folder, what they printed, and what the progress bars said."""
    results = tmp_path_factory.mktemp("results")
    out, err = [], []
    for parts in (",".join(MEASURED), "spectra"):
        with redirect_stdout(io.StringIO()) as printed, redirect_stderr(io.StringIO()) as progress:
            code = main(["bench", "--quick", "--repeats", "3", "--results", str(results), "--only", parts])
        assert code == 0
        out.append(printed.getvalue())
        err.append(progress.getvalue())
    return results, out, err


def test_a_quick_benchmark_is_one_labelled_record_of_all_raw_values(
    quick_runs: tuple[Path, list[str], list[str]],
) -> None:
    results, _, _ = quick_runs
    second, first = sorted(files.load(results), key=lambda found: len(found["parts"]))
    assert (first["quick"], first["repeats"], tuple(first["parts"])) == (True, 3, tuple(sorted(MEASURED)))
    assert tuple(second["parts"]) == ("spectra",)
    assert files.newest(results) is None
    assert len(list((results / "benchmarks").iterdir())) == 2
    assert all(".quick." in path.name for path in (results / "benchmarks").iterdir())
    (shape,) = first["parts"]["training"]["shapes"]
    for found in shape["arms"].values():
        values = found["images_per_second"]["values"]
        assert len(values) == 3
        assert min(values) > 0
        assert found["images_per_second"]["median"] == sorted(values)[1]
    assert shape["arms"]["engine, torch's attention"]["attention"]["kernel"] == "sdpa"
    assert [len(first["parts"]["accuracy"][name]) for name in ("plain", "engine")] == [2, 2]
    assert set(first["provenance"]) >= {"commit", "date", "machine", "versions"}
    assert set(first["seconds"]) == set(MEASURED)


def test_the_command_prints_the_tables_of_the_parts_that_ran(quick_runs: tuple[Path, list[str], list[str]]) -> None:
    _, (everything, some), _ = quick_runs
    assert everything.startswith("Quick sizes: these numbers mean nothing.")
    titles = ("Training images per second", "Number of workers", "Trained to the end", "Memory")
    assert all(title in everything for title in titles)
    assert not any(title in some for title in titles)
    assert "Condition numbers" in everything
    assert "Condition numbers" in some
    assert "\nRecord: " in some


def test_the_progress_bar_ends_full(quick_runs: tuple[Path, list[str], list[str]]) -> None:
    """Every part ticks as often as it said that it would: the matrix products, 4 rounds, and so on."""
    last = quick_runs[2][0].rstrip().split("\r")[-1]
    assert re.search(r"100%.* (\d+)/\1 ", last)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--only", "training,speed"), "only is 'speed': use some of training, profile, accuracy"),
        (("--only", ""), "only is '': use some of"),
        (("--repeats", "2"), "repeats is 2: give at least 3"),
        (("--repeats", "-1"), "repeats is -1: give at least 3"),
        (("--repeats", "many"), "Invalid value for '--repeats'"),
        (("--only", "notebook"), "runs that the notebook would train first"),
        ((), "runs that the notebook would train first"),
    ],
)
def test_a_bad_option_gets_one_sentence_and_measures_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch, arguments: tuple[str, ...], sentence: str
) -> None:
    monkeypatch.setattr(running, "run", lambda *_: pytest.fail("nothing may be measured"))
    assert main(["bench", "--results", str(tmp_path), *arguments]) == 2
    captured = capsys.readouterr()
    assert sentence in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)
    assert list(tmp_path.rglob("*.json")) == []


def test_a_results_folder_that_cannot_be_written_to_is_refused_before_anything_runs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch
) -> None:
    monkeypatch.setattr(running, "run", lambda *_: pytest.fail("nothing may be measured"))
    (tmp_path / "benchmarks").write_text("a file")
    assert main(["bench", "--quick", "--only", "spectra", "--results", str(tmp_path)]) == 2
    assert "cannot be written to" in capsys.readouterr().err


def test_a_worker_that_is_killed_ends_the_command_with_a_sentence(tmp_path: Path, capsys, monkeypatch) -> None:
    def killed(*_: object) -> None:
        raise BrokenExecutor

    monkeypatch.setattr(running, "run", killed)
    assert main(["bench", "--quick", "--only", "spectra", "--results", str(tmp_path)]) == 1
    assert "a worker process was killed" in capsys.readouterr().err
    assert list(tmp_path.rglob("*.json")) == []


# --- a notebook ---


def test_a_missing_notebook_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"notebook is .*03-vision-rows\.ipynb': is missing"):
        notebook.check(tmp_path, tmp_path)


def test_the_seconds_of_a_notebook_are_told_apart_by_their_cells(tmp_path: Path) -> None:
    cells = [
        nbformat.v4.new_code_cell("pause = 0.0", metadata={"tags": ["parameters"]}),
        nbformat.v4.new_code_cell("import time\ntime.sleep(0.5)"),
        nbformat.v4.new_markdown_cell("text"),
        nbformat.v4.new_code_cell("time.sleep(pause)"),
        nbformat.v4.new_code_cell("time.sleep(pause)"),
    ]
    path = tmp_path / "tiny.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=cells), path)
    seconds = notebook.execution_seconds(path, {"pause": 0.2})
    assert seconds["imports"] >= 0.5
    assert seconds["cells"] >= 0.4
    assert seconds["total"] >= seconds["imports"] + seconds["cells"]
    assert seconds["kernel"] > 0
    assert json.loads(path.read_text())["cells"][1]["outputs"] == []


# ---- where a step goes -----------------------------------------------------------------------------------------------


def test_operations_fall_into_their_groups_and_the_rest_into_everything_else() -> None:
    events = [("aten::mm", 3.0), ("aten::addmm", 1.0), ("aten::gelu_backward", 0.5), ("_LaneAttentionBackward", 2.0),
              ("Optimizer.step#AdamW.step", 0.25), ("aten::index", 0.125)]  # fmt: skip
    seconds = profile.by_group(events)
    assert seconds["matrix products"] == 4.0
    assert (seconds["GELU"], seconds["attention"], seconds["optimizer and clipping"]) == (0.5, 2.0, 0.25)
    assert seconds[profile.OTHERS] == 0.125
    assert sum(seconds.values()) == sum(spent for _, spent in events)


def test_a_profiled_step_spends_time_in_products_attention_and_gelu() -> None:
    seconds = profile.profiled_seconds(settings.quick(3).subjects[0].shape, 2)
    assert min(seconds["matrix products"], seconds["attention"], seconds["GELU"], seconds["LayerNorm"]) > 0


def test_the_profile_is_shown_largest_first_with_what_a_loop_could_gain() -> None:
    shown = costs.profile(made_up())
    assert list(shown["operations"]) == ["attention", "matrix products", "GELU"]
    assert list(shown["share of the step"]) == ["55 %", "40 %", "5 %"]
    assert cost_values.sentences(made_up())["profile"] == (
        "At ViT matrix products take 40 % of the engine's step; a loop in which all else took no time would be 2.5 "
        "times as fast."
    )


def test_the_cores_in_use_are_counted_between_two_looks_at_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """User, nice, system, idle, waiting for a disk: 30 of 80 ticks were work."""
    looks = iter(["cpu 10 0 10 100 10 0 0 0", "cpu 30 0 20 140 20 0 0 0"])
    monkeypatch.setattr(Path, "read_text", lambda *_: next(looks))
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    assert running.cores_in_use(0.0) == 8 * 30 / 80
