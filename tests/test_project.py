"""The house rules that a machine can check: module order, thin notebooks, a table of contents without holes."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path

import nbformat
import pytest
import yaml

from heads_for_depth.parallelism import Assumptions
from heads_for_depth.paths import BOOK, NOTEBOOKS, ROOT

PACKAGE = ROOT / "src" / "heads_for_depth"
# Each module imports only from those above it.
ORDER = (
    "errors", "paths", "whole_files", "claims", "shapes", "wide_attention", "interventions", "models", "known_models",
    "attention_lanes", "recount", "language_models", "flops", "precision", "datasets", "recipes", "experiments",
    "provenance", "records", "conditioning", "training", "parallelism", "sweeps", "benchmark", "throughput",
    "full_scale", "statistics", "verification", "verdicts", "findings", "tables", "figures", "passports", "report",
    "cli",
)  # fmt: skip
SOURCES = sorted(PACKAGE.rglob("*.py"))
NOTEBOOK_FILES = sorted(NOTEBOOKS.glob("*.ipynb"))
PARAMETERS = ["profile", "device", "seeds", "results"]
OWN_PARAMETERS = {
    "02-conditioning": ["checkpoint"],
    "07-throughput": ["measure"],
    "13-parallelism": ["measure", *(field.name for field in fields(Assumptions))],
}
"""What a notebook lets its reader change beside the four; the code that takes it refuses what it cannot use."""


def module_of(source: Path) -> str:
    return source.relative_to(PACKAGE).with_suffix("").parts[0]


def imported_modules(source: Path) -> Iterator[str]:
    """Names below heads_for_depth that a source imports, wherever in the file."""
    for node in ast.walk(ast.parse(source.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            whole_package = node.module == PACKAGE.name
            names = [f"{node.module}.{alias.name}" if whole_package else str(node.module) for alias in node.names]
        else:
            continue
        yield from {name.split(".")[1] for name in names if name.startswith(f"{PACKAGE.name}.")}


def test_every_module_has_its_place_in_the_order():
    assert {module_of(source) for source in SOURCES} - {"__init__"} <= set(ORDER)


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative_to(PACKAGE).as_posix())
def test_a_module_imports_only_from_modules_above_it(source: Path):
    module = module_of(source)
    allowed = {module, "__version__", *(ORDER[: ORDER.index(module)] if module in ORDER else ())}
    assert set(imported_modules(source)) <= allowed


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative_to(PACKAGE).as_posix())
def test_imports_are_absolute(source: Path):
    tree = ast.parse(source.read_text("utf-8"))
    assert [node.lineno for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.level] == []


@pytest.mark.parametrize("source", SOURCES, ids=lambda source: source.relative_to(PACKAGE).as_posix())
def test_no_function_is_longer_than_forty_lines(source: Path):
    functions = [node for node in ast.walk(ast.parse(source.read_text("utf-8"))) if isinstance(node, ast.FunctionDef)]
    lengths = {function.name: (function.end_lineno or 0) - function.lineno + 1 for function in functions}
    assert {name: length for name, length in lengths.items() if length > 40} == {}


def test_there_are_notebooks():
    assert NOTEBOOK_FILES


@pytest.mark.parametrize("notebook", NOTEBOOK_FILES, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_kept_without_outputs(notebook: Path):
    command = [sys.executable, "-m", "nbstripout", "--keep-id", "--verify", str(notebook)]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, f"strip it: nbstripout --keep-id {notebook.relative_to(ROOT)}\n{run.stdout}{run.stderr}"


@pytest.mark.parametrize("notebook", NOTEBOOK_FILES, ids=lambda notebook: notebook.stem)
def test_a_notebook_has_one_cell_of_parameters_with_the_four_names_and_its_own(notebook: Path):
    cells = nbformat.read(notebook, as_version=4).cells
    tagged = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    assert len(tagged) == 1
    assigned = [n.targets[0] for n in ast.parse(tagged[0].source).body if isinstance(n, ast.Assign)]
    names = [target.id for target in assigned if isinstance(target, ast.Name)]
    assert names == PARAMETERS + OWN_PARAMETERS.get(notebook.stem, [])


def test_a_notebook_starts_from_the_assumptions_that_the_package_makes():
    cells = nbformat.read(NOTEBOOKS / "13-parallelism.ipynb", as_version=4).cells
    (cell,) = [cell for cell in cells if "parameters" in cell.metadata.get("tags", [])]
    given: dict[str, object] = {}
    exec(cell.source, given)
    assert all(given[field.name] == field.default for field in fields(Assumptions))


@pytest.mark.parametrize("notebook", NOTEBOOK_FILES, ids=lambda notebook: notebook.stem)
def test_a_notebook_is_thin(notebook: Path):
    cells = [cell for cell in nbformat.read(notebook, as_version=4).cells if cell.cell_type == "code"]
    defined = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda)
    assert not [node for cell in cells for node in ast.walk(ast.parse(cell.source)) if isinstance(node, defined)]
    assert max(len(cell.source.splitlines()) for cell in cells) <= 20


def test_every_page_of_the_contents_has_its_source_and_every_source_its_page():
    contents = yaml.safe_load((BOOK / "_toc.yml").read_text())
    pages = {contents["root"], *(chapter["file"] for part in contents["parts"] for chapter in part["chapters"])}
    chapters = {path.stem for path in BOOK.glob("*.md")}
    assert pages == chapters | {f"executed/{notebook.stem}" for notebook in NOTEBOOK_FILES}
