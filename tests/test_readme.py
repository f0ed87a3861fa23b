"""The README's table of verdicts: what the command writes, what it leaves alone, and whether it is current."""

from pathlib import Path

import pytest

from heads_for_depth import paths, records
from heads_for_depth.cli import readme_command
from heads_for_depth.cli.main import main
from made_up_records import arm, measured, three_objects

BEGIN, END = "<!-- verdicts:begin -->", "<!-- verdicts:end -->"
BEFORE, AFTER = "# Title\n\nFirst.\n\n", "\n\nLast line without an end"


@pytest.fixture
def readme(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A README with an old table, and a table that costs nothing."""
    path = tmp_path / "README.md"
    path.write_text(f"{BEFORE}{BEGIN}\n| old |\n{END}{AFTER}", "utf-8")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(readme_command, "verdict_table", lambda: "| κ new |")
    return path


def test_the_readme_shows_what_the_committed_records_give() -> None:
    assert main(["readme", "--check"]) == 0, "run `heads-for-depth readme`"


def test_the_table_is_written_between_the_markers_and_nothing_else_changes(readme: Path) -> None:
    assert main(["readme"]) == 0
    text = readme.read_text("utf-8")
    assert text == f"{BEFORE}{BEGIN}\n\n| κ new |\n\n{END}{AFTER}"
    assert main(["readme"]) == 0
    assert readme.read_text("utf-8") == text


def test_a_check_changes_nothing_and_fails_until_the_table_is_current(
    readme: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stale = readme.read_text("utf-8")
    assert main(["readme", "--check"]) == 1
    assert capsys.readouterr().out == "README.md is stale: run `heads-for-depth readme`\n"
    assert readme.read_text("utf-8") == stale
    main(["readme"])
    assert main(["readme", "--check"]) == 0


@pytest.mark.parametrize("text", ["no markers", f"only {BEGIN}", f"only {END}", f"{END}\n| old |\n{BEGIN}\nthe rest"])
@pytest.mark.parametrize("options", [[], ["--check"]])
def test_a_readme_without_a_place_for_the_table_is_refused_and_kept(
    readme: Path, text: str, options: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    readme.write_text(text, "utf-8")
    assert main(["readme", *options]) == 2
    assert capsys.readouterr().err.startswith(f"heads-for-depth: README.md is '{BEGIN}': put the table's place between")
    assert readme.read_text("utf-8") == text


def test_the_table_is_made_from_the_records_and_the_claims(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [
        *arm("xcit-m", "before", "before", (85.0, 85.2)),
        *arm("xcit-m", "after", "after", (84.0, 84.2)),
        *(measured("xcit-m", heads, *three_objects(10.0, kind="channels")) for heads in (8, 16)),
    ]
    for run in runs:
        records.write(run, tmp_path)
    monkeypatch.setattr(paths, "RESULTS", tmp_path)
    lines = readme_command.verdict_table().split("\n")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("|")]
    assert [row[0] for row in rows[2:]] == ["XCiT-M", "TNT-B", "DaViT-B", "XCiT-L", "DaViT-L"]
    assert rows[2][1] == "inconclusive"
    assert rows[2][2].startswith("−1.00 [")
    assert rows[2][3:] == ["inconclusive", "0 to 2", "81.4 → 81.7 (+0.3)", "−30.1 %", "contradicts its stated shape"]
    assert rows[3][1:5] == ["inconclusive", "not measured", "inconclusive", "0"]
    assert lines[-1].endswith("Trained on Model A, 2 cores, 2026-03-01.")


def test_without_any_records_there_is_one_sentence_and_the_readme_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "README.md").write_text(f"{BEGIN}{END}", "utf-8")
    monkeypatch.setattr(paths, "ROOT", tmp_path)
    monkeypatch.setattr(paths, "RESULTS", tmp_path / "results")
    assert main(["readme"]) == 2
    expected = "heads-for-depth: records is 'cpu': there are none yet, run `heads-for-depth run --profile cpu`\n"
    assert capsys.readouterr().err == expected
    assert (tmp_path / "README.md").read_text("utf-8") == f"{BEGIN}{END}"
