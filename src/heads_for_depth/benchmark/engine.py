"""The report's engine as the benchmark drives it: single-thread workers of a sweep, each training its own seed."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import count
from typing import Any, Literal

import torch

from heads_for_depth.attention_lanes import use_lanes
from heads_for_depth.benchmark.memory import peak_resident_bytes
from heads_for_depth.benchmark.settings import BATCH_SIZE, endless_recipe
from heads_for_depth.benchmark.timing import Window, images_per_second
from heads_for_depth.datasets import Split, fashion_mnist
from heads_for_depth.models import build
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Shape
from heads_for_depth.sweeps import Workers, processes
from heads_for_depth.sweeps.workers import available_cores
from heads_for_depth.training import TrainingLoop

Attention = Literal["automatic", "sdpa"]
"""The engine's own choice of attention kernel, or torch's in every layer."""
BATCHES_AT_ONCE = 2
"""Batches that a worker trains between two looks at the clock."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Machine:
    """The processes that take turns on this machine."""

    engine: Workers
    """One single-thread worker per core."""
    plain: Workers
    """One process for everything that uses all threads."""
    threads: int
    """Torch's own number of threads, which the plain loop leaves as it is."""


@contextmanager
def open_machine() -> Iterator[Machine]:
    """Start the processes; the end of the block ends them."""
    cores = len(available_cores())
    with processes(cores, cores) as engine, processes(1, 1) as plain:
        yield Machine(engine=engine, plain=plain, threads=torch.get_num_threads())


def engine_loop(shape: Shape, recipe: Recipe, seed: int, attention: Attention) -> tuple[TrainingLoop, dict[str, Any]]:
    """The loop that a sweep would train this shape with, and how it computes attention."""
    torch.manual_seed(seed)
    loop = TrainingLoop(build(shape), shape, recipe, seed)
    if attention == "sdpa":
        return loop, {"kernel": "sdpa"}
    return loop, use_lanes(loop.model, loop.inputs(fashion_mnist()["train"].images[:1])).as_dict()


@lru_cache(maxsize=2)
def _endless_steps(shape: Shape, attention: Attention) -> tuple[Iterator[int], dict[str, Any]]:
    """Short epochs without end, another seed in every process; kept between windows, for both kinds of attention."""
    images = BATCHES_AT_ONCE * BATCH_SIZE
    train = fashion_mnist()["train"].first(images)
    loop, kernel = engine_loop(shape, endless_recipe(images), os.getpid(), attention)
    return _epochs(loop, train), kernel


def _epochs(loop: TrainingLoop, train: Split) -> Iterator[int]:
    for epoch in count():
        loop.epoch(train, epoch)
        yield len(train)


def engine_window(shape: Shape, attention: Attention, threads: int, window: Window) -> dict[str, Any]:
    """Throughput of one worker, the cores' worth of time that it got, its peak memory and its kernel of attention."""
    torch.set_num_threads(threads)
    steps, kernel = _endless_steps(shape, attention)
    wall, processor = time.monotonic(), time.process_time()
    speed = images_per_second(steps, window)
    share = (time.process_time() - processor) / (time.monotonic() - wall)
    return {
        "images_per_second": speed,
        "core_share": share,
        "peak_resident_bytes": peak_resident_bytes(),
        "attention": kernel,
    }


def train_with_engine(shape: Shape, recipe: Recipe, seed: int, attention: Attention) -> dict[str, float]:
    """Train one seed to the end: validation accuracy in [0, 1], and seconds of everything but the imports."""
    torch.set_num_threads(1)
    started = time.perf_counter()
    loop, _ = engine_loop(shape, recipe, seed, attention)
    splits = fashion_mnist()
    for epoch in range(recipe.epochs):
        loop.epoch(splits["train"].first(recipe.train_images), epoch)
    validation = splits["validation"].first(recipe.evaluation_images)
    accuracy = loop.evaluate(validation, "validation")["validation_accuracy"]
    return {"accuracy": accuracy, "seconds": time.perf_counter() - started}


def together(workers: Workers, count: int, function: Any, *arguments: Any) -> list[Any]:
    """The same call in `count` idle workers at once; each takes one, since a call lasts longer than handing it out."""
    futures: list[Future[Any]] = [workers.pool.submit(function, *arguments) for _ in range(count)]
    return [future.result() for future in futures]
