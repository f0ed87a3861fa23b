"""What the report costs: core-hours of its runs, and the engine beside a plain loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import pandas as pd

from heads_for_depth.benchmark.files import Benchmark
from heads_for_depth.benchmark.reading import ALL_THREADS, Ratio, TrainingLine, training_lines
from heads_for_depth.records import Record
from heads_for_depth.tables.formatting import NONE, percent, whole
from heads_for_depth.tables.vision import mean_and_spread


def runs(records: Mapping[str, Sequence[Record]]) -> pd.DataFrame:
    """One line per experiment: its runs, what they cost together, and what one costs."""
    lines = [_runs(name, found) for name, found in records.items() if found]
    everything = [record for found in records.values() for record in found]
    return pd.DataFrame([*lines, _runs("all", everything)])


def _runs(name: str, found: Sequence[Record]) -> dict[str, str]:
    seconds = [float(record["seconds"]["total"]) for record in found]
    return {
        "experiment": name,
        "runs": whole(len(found)),
        "core-hours": f"{sum(seconds) / 3600:.2f}",
        "seconds per run, median": f"{median(seconds):.0f}" if seconds else NONE,
        "longest": f"{max(seconds):.0f}" if seconds else NONE,
    }


def nothing() -> pd.DataFrame:
    """Stands where a table of the benchmark would."""
    return pd.DataFrame([{"benchmark": "no record yet: run `heads-for-depth bench`"}])


def training(record: Benchmark | None) -> pd.DataFrame:
    """One line per shape: images per second of the whole machine, and the ratios."""
    lines = training_lines(record)
    return pd.DataFrame([_training(line) for line in lines]) if lines else nothing()


def _training(line: TrainingLine) -> dict[str, str]:
    return {
        "shape": line.title,
        "engine / plain loop": with_extremes(line.speed_up),
        "engine / with torch's attention": with_extremes(line.kernel_speed_up),
        "plain loop": whole(round(line.plain)),
        "engine": whole(round(line.engine)),
        "engine, per core": whole(round(line.engine_per_core)),
        "attention": line.kernel,
    }


def with_extremes(ratio: Ratio) -> str:
    """A ratio with its lowest and highest round."""
    return f"{ratio.median:.2f} [{ratio.lowest:.2f}, {ratio.highest:.2f}]"


def peak_shares(record: Benchmark | None) -> pd.DataFrame:
    """One line per shape: operations per image and the share of the machine's peak that either loop reaches."""
    part = record["parts"].get("training") if record else None
    if record is None or part is None:
        return nothing()
    flops = [float(shape["flops_per_image"]) for shape in part["shapes"]]
    lines = zip(training_lines(record), flops, strict=True)
    return pd.DataFrame([_peak_share(line, operations) for line, operations in lines])


def _peak_share(line: TrainingLine, operations: float) -> dict[str, str]:
    return {
        "shape": line.title,
        "million operations per image": f"{operations / 1e6:.1f}",
        "plain loop": percent(line.plain_share, 0),
        "engine": percent(line.engine_share, 0),
    }


def profile(record: Benchmark | None) -> pd.DataFrame:
    """One line per group of operations: its share of a training step at the first shape, the largest first."""
    part = record["parts"].get("profile") if record else None
    if part is None:
        return nothing()
    largest = sorted(part["shares"].items(), key=lambda pair: -pair[1])
    return pd.DataFrame([{"operations": name, "share of the step": percent(share, 0)} for name, share in largest])


def accuracy(record: Benchmark | None) -> pd.DataFrame:
    """One line per loop: validation accuracy over its seeds, and its seconds."""
    part = record["parts"].get("accuracy") if record else None
    if part is None:
        return nothing()
    return pd.DataFrame([_accuracy(name, part) for name in ("plain", "engine")])


def _accuracy(name: str, part: Mapping[str, Any]) -> dict[str, str]:
    points = tuple(100 * seed["accuracy"] for seed in part[name])
    return {
        "loop": {"plain": "plain loop"}.get(name, name),
        "seeds": str(len(points)),
        "accuracy (%)": mean_and_spread(points),
        "seconds, all seeds": f"{part['seconds'][name]:.1f}",
        "seconds, one seed": f"{median(seed['seconds'] for seed in part[name]):.1f}",
    }


def workers(record: Benchmark | None) -> pd.DataFrame:
    """One line per number of workers: images per second of the whole machine."""
    part = record["parts"].get("workers") if record else None
    if part is None:
        return nothing()
    values = part["images_per_second"]
    return pd.DataFrame([_workers(name, found) for name, found in values.items()])


def _workers(name: str, found: Sequence[float]) -> dict[str, str]:
    label = name if name == ALL_THREADS else f"{name} of one thread"
    return {"workers": label, "images per second": f"{median(found):.0f} [{min(found):.0f}, {max(found):.0f}]"}


def memory(record: Benchmark | None) -> pd.DataFrame:
    """Peak resident set of one engine worker and of the plain loop, at the first shape."""
    part = record["parts"].get("training") if record else None
    if part is None:
        return nothing()
    arms = part["shapes"][0]["arms"]
    engine = max(arms["engine"]["peak_resident_bytes"])
    plain = max(max(arm["peak_resident_bytes"]) for name, arm in arms.items() if name.startswith("plain"))
    lines = [("engine, one worker", engine), (f"engine, {part['workers']} workers", engine * part["workers"]),
             ("plain loop, its own process", plain)]  # fmt: skip
    return pd.DataFrame([{"process": name, "peak (MiB)": f"{size / 2**20:.0f}"} for name, size in lines])


def benchmarks(records: Sequence[Benchmark]) -> pd.DataFrame:
    """One line per benchmark record, those at quick sizes marked."""
    return pd.DataFrame([_benchmark(record) for record in records]) if records else nothing()


def _benchmark(record: Benchmark) -> dict[str, str]:
    stamp = record["provenance"]
    return {
        "machine": f"{stamp['machine']['processor']}, {stamp['machine']['cores']} cores",
        "date": stamp["date"][:10],
        "commit": f"`{stamp['commit'][:10]}`",
        "parts": ", ".join(record["parts"]),
        "rounds": str(record["repeats"]),
        "cores in use before": f"{record['load']['average']:.1f}{' (busy)' if record['load']['busy'] else ''}",
        "sizes": "quick: not shown above" if record["quick"] else "full",
    }
