"""One environment, however it is made: lock, environment.yml, pyproject.toml and the workflow agree."""

import re
import tomllib
from importlib.metadata import version

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from heads_for_depth.paths import ROOT

LOCK = [
    Requirement(line) for line in (ROOT / "requirements.lock").read_text().splitlines() if line and line[0] not in "#"
]
PINNED = {canonicalize_name(requirement.name): requirement for requirement in LOCK}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())
DECLARED = [Requirement(text) for text in PROJECT["dependencies"] + PROJECT["optional-dependencies"]["test"]]


def pinned_version(requirement: Requirement) -> str:
    return str(next(iter(requirement.specifier)).version)


def test_every_line_of_the_lock_pins_one_exact_version():
    loose = [str(r) for r in LOCK if r.url or [s.operator for s in r.specifier] != ["=="]]
    assert loose == []


def test_the_lock_names_each_package_once_and_not_this_project():
    assert len(PINNED) == len(LOCK)
    assert PROJECT["name"] not in PINNED


def test_the_lock_names_no_index_and_no_path():
    assert not re.search(r"(?m)^\s*-|://|^\s*[./]", (ROOT / "requirements.lock").read_text())


def test_conda_gets_python_pip_and_the_same_lock_and_nothing_else():
    assert CONDA["name"] == PROJECT["name"]
    assert CONDA["dependencies"] == ["python=3.11", "pip", {"pip": ["-r requirements.lock"]}]


def test_conda_and_the_workflow_use_a_python_that_the_project_supports():
    workflow = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())
    setup = next(step for step in workflow["jobs"]["build"]["steps"] if "setup-python" in step.get("uses", ""))
    python = CONDA["dependencies"][0].removeprefix("python=")
    assert setup["with"]["python-version"] == python
    assert SpecifierSet(PROJECT["requires-python"]).contains(python)
    assert f"PYTHON  ?= python{python}" in (ROOT / "Makefile").read_text()


@pytest.mark.parametrize("requirement", DECLARED, ids=str)
def test_a_declared_dependency_is_pinned_within_its_range(requirement: Requirement):
    assert canonicalize_name(requirement.name) in PINNED, f"{requirement.name} is missing from requirements.lock"
    assert requirement.specifier.contains(pinned_version(PINNED[canonicalize_name(requirement.name)]))


def test_this_environment_has_the_versions_of_the_lock():
    here = [r for r in LOCK if r.marker is None or r.marker.evaluate()]
    different = {r.name: version(r.name) for r in here if version(r.name) != pinned_version(r)}
    assert different == {}
