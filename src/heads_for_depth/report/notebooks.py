"""Execute the notebooks with papermill; keep only executed copies that are complete."""

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import nbformat
import papermill
from nbclient.exceptions import CellTimeoutError, DeadKernelError
from papermill.exceptions import PapermillExecutionError

from heads_for_depth.errors import BadInput
from heads_for_depth.paths import EXECUTED, NOTEBOOKS
from heads_for_depth.report import ReportFailed
from heads_for_depth.report.parameters import ReportParameters

Announce = Callable[[str], None]

SOURCE_DIGEST = "source_sha256"
KERNEL_PATIENCE = 600
"""Seconds that a loaded machine may take to start a kernel or to hand over the outputs of a finished cell."""
VISIBILITY_TAGS = {"remove-cell", "remove-input", "hide-cell", "hide-input", "show-input"}


def planned(folder: Path = NOTEBOOKS) -> list[Path]:
    """The notebooks in the order of their numbers; raises BadInput when there are none."""
    notebooks = sorted(folder.glob("[0-9]*.ipynb"))
    if not notebooks:
        raise BadInput("notebooks folder", str(folder), "it holds no NN-question.ipynb; restore it from the repository")
    return notebooks


def is_complete(executed: Path) -> bool:
    """Whether an executed copy exists whose every cell ran: papermill ended it and noted no exception."""
    try:
        metadata = nbformat.read(executed, as_version=4).metadata
    except (OSError, ValueError):
        return False
    run = metadata.get("papermill", {})
    return bool(run.get("end_time")) and not run.get("exception")


def is_current(notebook: Path, executed: Path, parameters: ReportParameters) -> bool:
    """Whether an executed copy is complete and came from this source with these parameters."""
    if not is_complete(executed):
        return False
    metadata = nbformat.read(executed, as_version=4).metadata
    same_source = metadata.get("heads_for_depth", {}).get(SOURCE_DIGEST) == _digest(notebook)
    return same_source and metadata["papermill"].get("parameters") == parameters.as_values()


def execute(notebook: Path, parameters: ReportParameters, folder: Path = EXECUTED) -> Path:
    """Run one notebook and put the executed copy, complete, into the folder.

    The copy is written beside its final name and renamed at the end, so that a killed run leaves no half page.
    Progress bars of the notebook go to this process's stderr. Raises ReportFailed naming the notebook and the cell.
    """
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / f".partial-{notebook.name}"
    try:
        _run_in_kernel(notebook, partial, parameters)
    except PapermillExecutionError as error:
        raise ReportFailed(_failure(notebook, error)) from error
    except DeadKernelError as error:
        raise ReportFailed(f"notebook {notebook.name}: its kernel died, most often for want of memory") from error
    except CellTimeoutError as error:
        raise ReportFailed(f"notebook {notebook.name}: its kernel no longer answers") from error
    _prepare_for_reading(partial, notebook)
    executed = folder / notebook.name
    partial.replace(executed)
    return executed


def execute_all(
    notebooks: Iterable[Path], parameters: ReportParameters, announce: Announce, *, reuse: bool, folder: Path = EXECUTED
) -> None:
    """Run the notebooks in order, announcing each with its seconds; with reuse, keep copies that are current."""
    notebooks = list(notebooks)
    for number, notebook in enumerate(notebooks, start=1):
        step = f"notebook {number} of {len(notebooks)}, {notebook.stem}"
        if reuse and is_current(notebook, folder / notebook.name, parameters):
            announce(f"{step}: kept, nothing changed")
            continue
        announce(f"{step}: executing")
        started = time.monotonic()
        execute(notebook, parameters, folder)
        announce(f"{step}: done in {time.monotonic() - started:.0f} s")


def _run_in_kernel(notebook: Path, partial: Path, parameters: ReportParameters) -> None:
    os.environ["JUPYTER_PREFER_ENV_PATH"] = "1"  # the kernel of this environment, whatever the user has installed
    os.environ.setdefault("PYTHONWARNINGS", "ignore:IProgress not found")  # tqdm, which falls back to plain text
    papermill.execute_notebook(
        str(notebook),
        str(partial),
        parameters=parameters.as_values(),
        kernel_name="python3",
        language="python",
        cwd=str(notebook.parent),
        progress_bar=False,
        log_output=False,
        stderr_file=sys.stderr,
        start_timeout=KERNEL_PATIENCE,
        iopub_timeout=KERNEL_PATIENCE,
        extra_arguments=["--IPKernelApp.log_level=40"],
    )


def _digest(notebook: Path) -> str:
    return hashlib.sha256(notebook.read_bytes()).hexdigest()


def _failure(notebook: Path, error: PapermillExecutionError) -> str:
    where = f"notebook {notebook.name}, cell {error.cell_index + 1} (In [{error.exec_count}])"
    return f"{where} failed: {error.ename}: {error.evalue}\n\n{error.source.strip()}"


def _prepare_for_reading(executed: Path, notebook: Path) -> None:
    """Fold code, drop what the notebook wrote to stderr and the paths of this machine, note the source's digest."""
    content = nbformat.read(executed, as_version=4)
    for cell in content.cells:
        if cell.cell_type == "code":
            cell.outputs = [output for output in cell.outputs if not _is_stderr(output)]
            _fold(cell)
    content.metadata["papermill"].update(input_path=notebook.name, output_path=notebook.name)
    content.metadata["heads_for_depth"] = {SOURCE_DIGEST: _digest(notebook)}
    nbformat.write(content, executed)


def _is_stderr(output: Any) -> bool:
    return output.output_type == "stream" and output.name == "stderr"


def _fold(cell: Any) -> None:
    """Code opens on demand; of the parameters the page shows the injected ones alone."""
    tags = cell.metadata.setdefault("tags", [])
    if not VISIBILITY_TAGS & set(tags):
        tags.append("remove-cell" if "parameters" in tags else "hide-input")
