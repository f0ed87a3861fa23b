"""Making the report: checked parameters, whole notebooks or none, no warning in the book, no dead link in the site."""

import json
import os
import socket
from pathlib import Path

import nbformat
import pytest
import typer
from typer.testing import CliRunner

from heads_for_depth.cli import report_commands
from heads_for_depth.errors import BadInput
from heads_for_depth.paths import ROOT
from heads_for_depth.report import ReportFailed, book, notebooks
from heads_for_depth.report.links import site_problems
from heads_for_depth.report.making import MadeReport, make_report
from heads_for_depth.report.parameters import ReportParameters

PARAMETERS_CELL = 'profile = "cpu"\ndevice = "cpu"\nseeds = None\nresults = "data/results"'


def silent(text: str) -> None:
    """Announce nothing."""


def write_notebook(path: Path, *cells: str, tags: list[str] | None = None) -> Path:
    """A notebook with a cell of parameters and then the given code; tags go to the last cell."""
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(source) for source in (PARAMETERS_CELL, *cells)]
    notebook.cells[0].metadata["tags"] = ["parameters"]
    if tags:
        notebook.cells[-1].metadata["tags"] = tags
    path.parent.mkdir(parents=True, exist_ok=True)
    nbformat.write(notebook, path)
    return path


def printed(executed: Path) -> str:
    cells = nbformat.read(executed, as_version=4).cells
    outputs = [output for cell in cells if cell.cell_type == "code" for output in cell.outputs]
    return "".join(output.text for output in outputs if output.output_type == "stream")


# --- parameters


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("profile", "huge"),
        ("profile", True),
        ("device", "gpu"),
        ("device", None),
        ("seeds", 0),
        ("seeds", "3"),
        ("seeds", 2.0),
        ("seeds", True),
        ("results", ""),
        ("results", 3),
    ],
)
def test_a_parameter_that_cannot_be_used_is_refused_by_name(name: str, value: object):
    with pytest.raises(BadInput, match=f"^{name} is "):
        ReportParameters.from_values({name: value})


def test_an_unknown_parameter_is_refused_and_the_known_ones_are_named():
    with pytest.raises(BadInput, match=r"parameter epochs is 3: the parameters are device, profile, results, seeds"):
        ReportParameters.from_values({"epochs": 3})


def test_a_file_cannot_be_the_results_folder(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="file is a file"):
        ReportParameters(results=str(tmp_path / "file" / "below"))


def test_an_unwritable_results_folder_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    with pytest.raises(BadInput, match="results"):
        ReportParameters(results=str(tmp_path))


def test_cuda_is_refused_on_a_machine_without_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BadInput, match="torch sees no CUDA device"):
        ReportParameters(device="cuda")


def test_a_relative_results_folder_counts_from_the_root_of_the_repository(tmp_path: Path):
    assert ReportParameters().results_folder == ROOT / "data" / "results"
    assert ReportParameters(results=str(tmp_path)).results_folder == tmp_path


# --- notebooks


def test_an_executed_notebook_saw_the_given_parameters_and_is_complete(tmp_path: Path):
    source = write_notebook(tmp_path / "01-question.ipynb", "print(profile, device, seeds, results)")
    parameters = ReportParameters(profile="smoke", seeds=2)
    executed = notebooks.execute(source, parameters, tmp_path / "executed")
    assert printed(executed) == "smoke cpu 2 data/results\n"
    assert notebooks.is_complete(executed)
    assert sorted(path.name for path in executed.parent.iterdir()) == ["01-question.ipynb"]


def test_an_executed_notebook_shows_no_progress_bar_and_no_path_of_this_machine(tmp_path: Path):
    source = write_notebook(tmp_path / "01-question.ipynb", "import sys\nprint('9 %', file=sys.stderr)\nprint('done')")
    executed = notebooks.execute(source, ReportParameters(), tmp_path / "executed")
    assert printed(executed) == "done\n"
    assert str(tmp_path) not in executed.read_text("utf-8")


def test_code_opens_on_demand_and_an_author_s_own_tag_is_kept(tmp_path: Path):
    source = write_notebook(tmp_path / "01-question.ipynb", "1 + 1", "2 + 2", tags=["remove-input"])
    executed = notebooks.execute(source, ReportParameters(), tmp_path / "executed")
    tags = [cell.metadata["tags"] for cell in nbformat.read(executed, as_version=4).cells]
    folded = ["hide-input"]
    assert tags == [["parameters", "remove-cell"], ["injected-parameters", *folded], folded, ["remove-input"]]


def test_a_failing_notebook_is_named_with_its_cell_and_leaves_no_page(tmp_path: Path):
    source = write_notebook(tmp_path / "02-broken.ipynb", "x = 1", "raise RuntimeError('no such row')")
    with pytest.raises(ReportFailed, match=r"notebook 02-broken.ipynb, cell 4 .*RuntimeError: no such row"):
        notebooks.execute(source, ReportParameters(), tmp_path / "executed")
    assert not (tmp_path / "executed" / "02-broken.ipynb").exists()


def test_a_notebook_whose_kernel_dies_is_named(tmp_path: Path):
    source = write_notebook(tmp_path / "02-killed.ipynb", "import os, signal\nos.kill(os.getpid(), signal.SIGKILL)")
    with pytest.raises(ReportFailed, match=r"notebook 02-killed.ipynb: its kernel died"):
        notebooks.execute(source, ReportParameters(), tmp_path / "executed")


def test_a_later_failure_keeps_no_earlier_page_of_the_same_notebook_current(tmp_path: Path):
    source = write_notebook(tmp_path / "01-question.ipynb", "print('first')")
    executed = notebooks.execute(source, ReportParameters(), tmp_path / "executed")
    write_notebook(source, "raise RuntimeError")
    assert not notebooks.is_current(source, executed, ReportParameters())


@pytest.mark.parametrize(
    "papermill",
    [{}, {"end_time": None, "exception": None}, {"end_time": "2026-01-01T00:00:00", "exception": True}],
    ids=["never run", "killed", "failed"],
)
def test_a_notebook_that_did_not_run_to_its_end_is_not_complete(tmp_path: Path, papermill: dict[str, object]):
    path = write_notebook(tmp_path / "01-question.ipynb")
    notebook = nbformat.read(path, as_version=4)
    notebook.metadata["papermill"] = papermill
    nbformat.write(notebook, path)
    assert not notebooks.is_complete(path)


def test_a_missing_or_truncated_notebook_is_not_complete(tmp_path: Path):
    (tmp_path / "half.ipynb").write_text(json.dumps({"cells": []})[:-3])
    assert not notebooks.is_complete(tmp_path / "half.ipynb")
    assert not notebooks.is_complete(tmp_path / "absent.ipynb")


def test_reuse_executes_again_only_after_a_change_of_source_or_parameters(tmp_path: Path):
    source = write_notebook(tmp_path / "01-question.ipynb", "print('once')")
    heard: list[str] = []

    def executions(parameters: ReportParameters) -> int:
        heard.clear()
        notebooks.execute_all([source], parameters, heard.append, reuse=True, folder=tmp_path / "executed")
        return sum("executing" in line for line in heard)

    assert [executions(ReportParameters()), executions(ReportParameters())] == [1, 0]
    assert [executions(ReportParameters(seeds=2)), executions(ReportParameters(seeds=2))] == [1, 0]
    write_notebook(source, "print('twice')")
    assert executions(ReportParameters(seeds=2)) == 1


def test_notebooks_run_in_the_order_of_their_numbers(tmp_path: Path):
    for name in ("09-last.ipynb", "00-first.ipynb", "draft.ipynb"):
        write_notebook(tmp_path / name)
    assert [notebook.stem for notebook in notebooks.planned(tmp_path)] == ["00-first", "09-last"]


def test_a_folder_without_notebooks_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="notebooks folder"):
        notebooks.planned(tmp_path)


# --- the book


@pytest.fixture
def small_book(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty repository with this book's configuration, for chapters that a test writes."""
    (tmp_path / "book").mkdir()
    (tmp_path / "book" / "_ext").symlink_to(ROOT / "book" / "_ext")
    (tmp_path / "book" / "_static").symlink_to(ROOT / "book" / "_static")
    (tmp_path / "book" / "references.bib").write_text("")
    (tmp_path / "book" / "_toc.yml").write_text("format: jb-book\nroot: index\n")
    (tmp_path / "_config.yml").write_text((ROOT / "_config.yml").read_text())
    places = {"ROOT": tmp_path, "BOOK": tmp_path / "book", "CONFIG": tmp_path / "_config.yml"}
    places |= {"GENERATED": tmp_path / "book" / "_generated", "SITE": tmp_path / "_build" / "html"}
    for name, path in places.items():
        monkeypatch.setattr(book, name, path)
    return tmp_path / "book"


def test_a_smoke_build_says_so_on_its_pages_and_another_build_does_not(small_book: Path):
    (small_book / "index.md").write_text("# Title\n")
    assert "mean nothing scientifically" in (book.build_book("smoke") / "index.html").read_text()
    assert "mean nothing scientifically" not in (book.build_book("cpu") / "index.html").read_text()


def test_a_warning_of_the_book_fails_the_build_and_is_quoted(small_book: Path):
    (small_book / "index.md").write_text("# Title\n\nSee {numref}`nowhere`.\n")
    with pytest.raises(ReportFailed, match=r"index.md:3: WARNING: undefined label: 'nowhere'"):
        book.build_book("cpu")


def test_a_dead_download_link_fails_the_build_and_is_named(small_book: Path):
    (small_book / "index.md").write_text("# Title\n\n{site-file}`CSV <tables/gone.csv>`\n")
    with pytest.raises(ReportFailed, match=r"index.html: <a> leads to tables/gone.csv, which does not exist"):
        book.build_book("cpu")


def test_pages_of_an_earlier_build_are_gone(small_book: Path):
    stale = small_book.parent / "_build" / "html" / "old-chapter.html"
    stale.parent.mkdir(parents=True)
    stale.write_text("<p>old</p>")
    (small_book / "index.md").write_text("# Title\n")
    book.build_book("cpu")
    assert not stale.exists()


# --- links of a built site


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ('<a href="gone.html">x</a>', "index.html: <a> leads to gone.html, which does not exist"),
        ('<a href="other.html#gone">x</a>', "index.html: <a> leads to other.html#gone, which has no such anchor"),
        ('<a href="#gone">x</a>', "index.html: <a> leads to #gone, which has no such anchor"),
        ('<img src="gone.svg">', "index.html: <img> leads to gone.svg, which does not exist"),
        ('<i id="a"></i><b id="a"></b>', "index.html: the id 'a' is given 2 times"),
        ('<script src="https://cdn.example/x.js"></script>', "<script> loads https://cdn.example/x.js from another"),
        ('<img src="//cdn.example/x.png">', "index.html: <img> loads //cdn.example/x.png from another host"),
    ],
)
def test_a_problem_of_a_page_is_found(tmp_path: Path, body: str, problem: str):
    (tmp_path / "index.html").write_text(f"<html><body>{body}</body></html>")
    (tmp_path / "other.html").write_text('<html><body><p id="there"></p></body></html>')
    (found,) = site_problems(tmp_path)
    assert problem in found


@pytest.mark.parametrize("rule", ["@import 'https://fonts.example/f.css';", "p { src: url(//fonts.example/f.woff2) }"])
def test_a_style_sheet_that_loads_from_another_host_is_found(tmp_path: Path, rule: str):
    (tmp_path / "index.html").write_text("<html></html>")
    (tmp_path / "report.css").write_text(rule)
    (found,) = site_problems(tmp_path)
    assert found.startswith("report.css: the style sheet loads ")


def test_working_links_and_ordinary_links_to_other_sites_are_no_problem(tmp_path: Path):
    links = '<a href="other.html#there">a</a> <a href="https://arxiv.org/abs/1">b</a> <a href="mailto:a@b">c</a>'
    (tmp_path / "index.html").write_text(f'<html><body><h1 id="top">x</h1><a href="#top">d</a>{links}</body></html>')
    (tmp_path / "other.html").write_text('<html><body><p id="there"></p><img src="data:,"></body></html>')
    (tmp_path / "report.css").write_text("p { background: url(data:image/png;base64,xx) url(local.png) }")
    assert site_problems(tmp_path) == []


# --- the commands


@pytest.fixture
def application() -> typer.Typer:
    app = typer.Typer()
    report_commands.register(app)
    return app


def test_a_failed_build_exits_with_one_and_says_what_failed(application: typer.Typer, monkeypatch: pytest.MonkeyPatch):
    def fail(*arguments: object, **options: object) -> None:
        raise ReportFailed("notebook 02-broken.ipynb, cell 4 failed")

    monkeypatch.setattr("heads_for_depth.report.making.make_report", fail)
    result = CliRunner().invoke(application, ["build"])
    assert result.exit_code == 1
    assert "Report failed: notebook 02-broken.ipynb, cell 4 failed" in result.stderr


def test_a_build_ends_with_the_place_of_the_site_and_its_seconds(
    application: typer.Typer, monkeypatch: pytest.MonkeyPatch
):
    made = MadeReport(site=ROOT / "_build" / "html", execute_seconds=61.2, build_seconds=9.4)
    monkeypatch.setattr("heads_for_depth.report.making.make_report", lambda *arguments, **options: made)
    lines = CliRunner().invoke(application, ["build"]).stdout.splitlines()
    assert lines[0].split() == ["Site:", "_build/html/index.html"]
    assert lines[-1].split(maxsplit=1) == ["Took:", "execute 61 s, build 9 s"]


def test_a_build_with_a_bad_parameter_starts_nothing(application: typer.Typer, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heads_for_depth.report.making.make_report", lambda *a, **o: pytest.fail("it started"))
    result = CliRunner().invoke(application, ["build", "--profile", "huge"])
    assert isinstance(result.exception, BadInput)


def test_serving_before_building_says_what_to_run(
    application: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(report_commands, "ROOT", tmp_path)
    monkeypatch.setattr(report_commands, "SITE", tmp_path / "html")
    result = CliRunner().invoke(application, ["serve"])
    assert "not built yet: run `make report` first" in str(result.exception)


def test_serving_on_a_port_in_use_is_refused(application: typer.Typer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "index.html").write_text("<html></html>")
    monkeypatch.setattr(report_commands, "SITE", tmp_path)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        result = CliRunner().invoke(application, ["serve", "--port", str(port)])
    assert isinstance(result.exception, BadInput)
    assert f"port is {port}" in str(result.exception)


def test_making_the_report_starts_from_empty_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    making = "heads_for_depth.report.making"
    executed, generated = tmp_path / "executed", tmp_path / "generated"
    for folder in (executed, generated):
        folder.mkdir()
        (folder / "stale").write_text("")
    monkeypatch.setattr(f"{making}.EXECUTED", executed)
    monkeypatch.setattr(f"{making}.GENERATED", generated)
    monkeypatch.setattr(f"{making}.planned", list)
    monkeypatch.setattr(f"{making}.build_book", lambda profile: tmp_path)
    assert make_report(ReportParameters(), silent).site == tmp_path
    assert not executed.exists()
    assert not generated.exists()
