"""What executing one notebook costs when every run is recorded already."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import papermill

from heads_for_depth.benchmark.engine import Machine
from heads_for_depth.benchmark.settings import Settings
from heads_for_depth.benchmark.timing import Tick, with_median
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import plan
from heads_for_depth.paths import NOTEBOOKS
from heads_for_depth.sweeps import missing

NOTEBOOK = "03-vision-rows.ipynb"
EXPERIMENTS = ("vision_tuning", "vision_rows")
"""What this notebook would train where it is not recorded."""
PROFILE = "cpu"


def check(results: Path, notebooks: Path = NOTEBOOKS) -> None:
    """Raise BadInput where the notebook is missing, or has runs to train before it can be timed."""
    if not (notebooks / NOTEBOOK).is_file():
        raise BadInput("notebook", str(notebooks / NOTEBOOK), "is missing; restore it from the repository")
    left = sum(len(missing(plan(PROFILE, name), results)) for name in EXPERIMENTS)
    if left:
        remedy = f"lacks {left} runs that the notebook would train first; record them, or leave the part out by --only"
        raise BadInput("results", str(results), remedy)


def steps(machine: Machine, settings: Settings) -> int:
    """How often `measure` ticks."""
    return settings.notebook_runs


def measure(machine: Machine, settings: Settings, tick: Tick) -> dict[str, Any]:
    """Seconds of the whole execution, of starting the kernel and of the imports, over a few executions."""
    values: dict[str, object] = {"profile": PROFILE, "results": str(settings.results.resolve())}
    runs = []
    for _ in range(settings.notebook_runs):
        runs.append(execution_seconds(NOTEBOOKS / NOTEBOOK, values))
        tick(f"notebook {NOTEBOOK}")
    return {"notebook": NOTEBOOK} | {name: with_median([run[name] for run in runs]) for name in runs[0]}


def execution_seconds(notebook: Path, parameters: Mapping[str, object]) -> dict[str, float]:
    """Execute a notebook by papermill, from starting its kernel to the end of its last cell.

    `imports` is the first cell of code that is not parameters; what is neither kernel nor imports is its work.
    """
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment
    with tempfile.TemporaryDirectory() as folder:
        started = time.perf_counter()
        executed = papermill.execute_notebook(
            str(notebook),
            str(Path(folder) / notebook.name),
            parameters=dict(parameters),
            kernel_name="python3",
            language="python",
            cwd=str(notebook.parent),
            progress_bar=False,
            extra_arguments=["--IPKernelApp.log_level=40"],
        )
        total = time.perf_counter() - started
    cells = [cell for cell in executed.cells if cell.cell_type == "code"]
    seconds = [float(cell.metadata.papermill["duration"] or 0.0) for cell in cells]
    work = [s for s, cell in zip(seconds, cells, strict=True) if not _is_parameters(cell)]
    return {"total": total, "kernel": total - sum(seconds), "imports": work[0], "cells": sum(work[1:])}


def _is_parameters(cell: Any) -> bool:
    return bool({"parameters", "injected-parameters"} & set(cell.metadata.get("tags", [])))
