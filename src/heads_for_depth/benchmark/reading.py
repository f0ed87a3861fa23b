"""What a benchmark record says, as plain numbers: ratios with their spread, shares of the machine's peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

import pandas as pd

from heads_for_depth.benchmark.files import Benchmark

PLAIN = ("plain, no loader processes", "plain, a loader process per core")
ENGINE, ENGINE_SDPA = "engine", "engine, torch's attention"
"""Names of the arms of training."""
ALL_THREADS = "one worker, all threads"
"""What stands beside numbers of single-thread workers."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ratio:
    """The median over rounds of what two arms measured in the same round, and its extremes."""

    median: float
    lowest: float
    highest: float


def ratio(of: Sequence[float], to: Sequence[float]) -> Ratio:
    """Of the first arm to the second, round by round."""
    ratios = [a / b for a, b in zip(of, to, strict=True)]
    return Ratio(median=median(ratios), lowest=min(ratios), highest=max(ratios))


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingLine:
    """One shape: images per second of the whole machine, medians, and ratios by round."""

    title: str
    plain: float
    """The better of the two ways to load images."""
    plain_arm: str
    engine: float
    engine_per_core: float
    speed_up: Ratio
    """Engine over plain loop."""
    kernel_speed_up: Ratio
    """Engine over engine with torch's attention in every layer."""
    kernel: str
    """How the engine computed attention, in words."""
    plain_share: float
    """Achieved operations per second over the machine's peak in large matrix products."""
    engine_share: float


def training_lines(record: Benchmark | None) -> list[TrainingLine]:
    """One line per shape; none without a benchmark, or where it left training out."""
    part = record["parts"].get("training") if record else None
    return [_training_line(part, shape) for shape in part["shapes"]] if part else []


def training_data(record: Benchmark | None) -> pd.DataFrame:
    """One line per shape, arm and round, unrounded."""
    columns = ["shape", "arm", "round", "images_per_second"]
    lines: list[tuple[str, str, int, float]] = []
    for shape in record["parts"].get("training", {"shapes": []})["shapes"] if record else []:
        for name, arm in shape["arms"].items():
            values = enumerate(arm["images_per_second"]["values"], start=1)
            lines += [(shape["title"], name, number, value) for number, value in values]
    return pd.DataFrame(lines, columns=columns)


def _training_line(part: dict[str, Any], shape: dict[str, Any]) -> TrainingLine:
    speeds = {name: arm["images_per_second"] for name, arm in shape["arms"].items()}
    best = max(PLAIN, key=lambda name: float(speeds[name]["median"]))
    plain, engine = speeds[best]["median"], speeds[ENGINE]["median"]
    share = shape["flops_per_image"] / gemm_peak(part)
    return TrainingLine(
        title=shape["title"],
        plain=plain,
        plain_arm=best,
        engine=engine,
        engine_per_core=engine / part["workers"],
        speed_up=ratio(speeds[ENGINE]["values"], speeds[best]["values"]),
        kernel_speed_up=ratio(speeds[ENGINE]["values"], speeds[ENGINE_SDPA]["values"]),
        kernel=_kernel(shape["arms"][ENGINE]["attention"]),
        plain_share=plain * share,
        engine_share=engine * share,
    )


def gemm_peak(part: dict[str, Any]) -> float:
    """Operations per second of the best large matrix product."""
    return float(max(part["gemm_flops_per_second"].values()))


def _kernel(attention: dict[str, Any]) -> str:
    if attention["kernel"] == "sdpa":
        return "torch's"
    sites, of = attention["sites"], attention["of"]
    return "lanes" if sites == of else f"lanes in {sites} of {of} layers"


@dataclass(frozen=True, kw_only=True, slots=True)
class SpectraLine:
    """Singular values of one size of matrix with one number of threads."""

    rows: int
    columns: int
    threads: int
    matrices_per_second: float
    """With the report's QR and SVD of a whole batch, median."""
    speed_up: Ratio
    """Over one SVD per matrix."""
    qr_share: float
    """Seconds of the QR alone over those of one SVD per matrix."""
    svd_share: float
    """Seconds of the SVD of the square factor alone over those of one SVD per matrix."""


def spectra_lines(record: Benchmark | None) -> list[SpectraLine]:
    """One line per size and number of threads; none without a benchmark, or where it left spectra out."""
    part = record["parts"].get("spectra") if record else None
    return [_spectra_line(speed) for speed in part["speed"]] if part else []


def _spectra_line(speed: dict[str, Any]) -> SpectraLine:
    seconds = speed["seconds_per_matrix"]
    loop = float(seconds["loop"]["median"])
    return SpectraLine(
        rows=speed["rows"],
        columns=speed["columns"],
        threads=speed["threads"],
        matrices_per_second=1 / seconds["engine"]["median"],
        speed_up=ratio(seconds["loop"]["values"], seconds["engine"]["values"]),
        qr_share=seconds["engine, QR alone"]["median"] / loop,
        svd_share=seconds["engine, SVD alone"]["median"] / loop,
    )
