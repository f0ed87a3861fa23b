"""Values and sentences of the page on costs; what the benchmark has not measured is said in a sentence."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from heads_for_depth.benchmark.files import Benchmark
from heads_for_depth.benchmark.reading import ALL_THREADS, gemm_peak, spectra_lines, training_lines
from heads_for_depth.records import Record
from heads_for_depth.statistics import welch_difference
from heads_for_depth.tables.formatting import in_powers_of_ten, percent, whole
from heads_for_depth.tables.vision import with_interval

NO_BENCHMARK = "There is no benchmark record in this build; the command heads-for-depth bench writes one."
NOT_MEASURED = "Not measured yet."
LEFT_OUT = "The benchmark that this page shows left this part out."


def glued(records: Mapping[str, Sequence[Record]], record: Benchmark | None) -> dict[str, str]:
    """Values and sentences for the prose, by key."""
    seconds = [float(run["seconds"]["total"]) for found in records.values() for run in found]
    values = {"costs.runs": whole(len(seconds)), "costs.core_hours": f"{sum(seconds) / 3600:.1f}"}
    return values | {f"costs.{key}": sentence for key, sentence in sentences(record).items()}


def sentences(record: Benchmark | None) -> dict[str, str]:
    """What a benchmark says, by what it is about; without a benchmark, once that there is none."""
    if record is None:
        return dict.fromkeys(("benchmark", *_SENTENCES), NOT_MEASURED) | {"training": NO_BENCHMARK}
    told = {key: tell(record) if part in record["parts"] else LEFT_OUT for key, (part, tell) in _SENTENCES.items()}
    return {"benchmark": _origin(record)} | told


def _origin(record: Benchmark) -> str:
    stamp = record["provenance"]
    machine = f"{stamp['machine']['processor']}, {stamp['machine']['cores']} cores"
    versions = f"torch {stamp['versions']['torch']}, timm {stamp['versions']['timm']}"
    words = record["load"]["words"]
    return (
        f"Measured {stamp['date'][:10]} on {machine} ({versions}), medians of {record['repeats']} rounds in which the "
        f"arms took turns; {words}."
    )


def _training(record: Benchmark) -> str:
    ratios = [(line.speed_up.median, line.title) for line in training_lines(record)]
    (lowest, slow), (highest, fast) = min(ratios), max(ratios)
    verb = "is never slower than" if lowest >= 1 else "is not always faster than"
    return (
        f"The engine {verb} the plain loop: from {lowest:.1f} times its images per second ({slow}) to {highest:.1f} "
        f"times ({fast})."
    )


def _peak(record: Benchmark) -> str:
    part = record["parts"]["training"]
    shares = [line.engine_share for line in training_lines(record)]
    return (
        f"The best large float32 matrix product reached {gemm_peak(part) / 1e9:.0f} GFLOP/s on all cores; of that the "
        f"engine reaches {percent(min(shares), 0)} to {percent(max(shares), 0)}, depending on the shape."
    )


def _profile(record: Benchmark) -> str:
    """What a loop could gain at most without faster matrix products."""
    part = record["parts"]["profile"]
    products = part["shares"]["matrix products"]
    return (
        f"At {part['title']} matrix products take {percent(products, 0)} of the engine's step; a loop in which all "
        f"else took no time would be {1 / products:.1f} times as fast."
    )


def _accuracy(record: Benchmark) -> str:
    part = record["parts"]["accuracy"]
    plain, engine = ([100 * seed["accuracy"] for seed in part[name]] for name in ("plain", "engine"))
    difference = welch_difference(plain, engine)
    interval = difference.interval(0.95)
    agree = "contains zero" if interval.lower <= 0 <= interval.upper else "does not contain zero"
    times = part["seconds"]["plain"] / part["seconds"]["engine"]
    return (
        f"Engine minus plain loop: {with_interval(difference)} points of validation accuracy (two-sided 95 % Welch "
        f"interval over {len(engine)} seeds each), which {agree}. For all seeds the plain loop took {times:.1f} times "
        "as long."
    )


def _workers(record: Benchmark) -> str:
    part = record["parts"]["workers"]
    medians: dict[str, float] = part["medians"]
    best, alone = part["recommended"], medians[ALL_THREADS]
    return (
        f"The fewest workers that train as fast as any number: {best}. They train {medians[str(best)] / alone:.1f} "
        "times as many images per second as one worker with all threads."
    )


def _spectra(record: Benchmark) -> str:
    told = [
        f"{line.speed_up.median:.2f} times at {line.rows} × {line.columns} with {line.threads} "
        f"thread{'s' if line.threads > 1 else ''}"
        for line in spectra_lines(record)
    ]
    return f"Condition numbers per second, the report over one SVD per matrix: {', '.join(told)}."


def _errors(record: Benchmark) -> str:
    lines: Sequence[Mapping[str, Any]] = record["parts"]["spectra"]["errors"]
    ours, theirs = (_largest_errors(lines, name) for name in ("engine", "loop"))
    larger = [error for error, other in zip(ours, theirs, strict=True) if error > other]
    beyond = sum(error > line["bound"] for error, line in zip(ours, lines, strict=True))
    rest = f"; where it is larger, it is at most {in_powers_of_ten(max(larger))}" if larger else ""
    held = "never above the bound" if not beyond else f"above the bound in {beyond}"
    total = len(lines)
    return (
        f"The report's largest error is {held}, and no larger than the loop's in {total - len(larger)} of {total} "
        f"lines{rest}."
    )


def _largest_errors(lines: Sequence[Mapping[str, Any]], name: str) -> list[float]:
    """Over the matrices of each line without rounding."""
    return [float(line["relative_errors"][f"{name}, exact entries"]["largest"]) for line in lines]


def _notebook(record: Benchmark) -> str:
    part = record["parts"]["notebook"]
    total, kernel, imports = (float(part[name]["median"]) for name in ("total", "kernel", "imports"))
    return (
        f"Executing {part['notebook']} over complete records takes {total:.1f} s, of which {kernel:.1f} s start and "
        f"stop its kernel and {imports:.1f} s import packages."
    )


_SENTENCES: dict[str, tuple[str, Callable[[Benchmark], str]]] = {
    "training": ("training", _training),
    "peak": ("training", _peak),
    "profile": ("profile", _profile),
    "accuracy": ("accuracy", _accuracy),
    "workers": ("workers", _workers),
    "spectra": ("spectra", _spectra),
    "errors": ("spectra", _errors),
    "notebook": ("notebook", _notebook),
}
"""Key -> the part of the benchmark that a sentence speaks of, and what says it."""
