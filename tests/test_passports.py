"""Publishing: files with stable names and stable bytes, and fragments that the book can number and link."""

import re
from pathlib import Path

import pandas as pd
import pytest
from IPython.core.interactiveshell import InteractiveShell
from IPython.utils.capture import capture_output
from matplotlib import pyplot as plt
from matplotlib.figure import Figure

from heads_for_depth.errors import BadInput
from heads_for_depth.passports import glue_values, publish_figure, publish_table
from heads_for_depth.paths import BOOK

DATA = pd.DataFrame({"heads": [1, 2, 4], "kappa": [1.5e5, 512.0, 268.25]})


def drawn() -> Figure:
    figure, axes = plt.subplots(figsize=(3, 2))
    axes.plot(DATA["heads"], DATA["kappa"], marker="o", label="κ")
    axes.legend()
    return figure


def published_figure(folder: Path, **options: str) -> str:
    publish_figure(drawn(), "kappa-fall", "It falls", "Condition number $\\kappa$.", DATA, folder=folder, **options)
    return (folder / "kappa-fall.md").read_text("utf-8")


def published_table(folder: Path, frame: pd.DataFrame, **options: object) -> list[str]:
    publish_table(frame, "counts", "Counts", "In millions.", folder=folder, **options)  # type: ignore[arg-type]
    return (folder / "counts.md").read_text("utf-8").splitlines()


def cells_of(line: str) -> list[str]:
    return [cell.strip() for cell in line.strip("|").split(" | ")]


def rows_of(fragment: list[str]) -> list[list[str]]:
    return [cells_of(line) for line in fragment if line.startswith("|")]


def test_a_figure_comes_as_svg_pdf_and_csv_under_its_slug(tmp_path: Path):
    published_figure(tmp_path)
    files = tmp_path / "site" / "figures"
    assert sorted(path.name for path in files.iterdir()) == ["kappa-fall.csv", "kappa-fall.pdf", "kappa-fall.svg"]
    assert (files / "kappa-fall.svg").read_bytes().startswith(b"<?xml")
    assert (files / "kappa-fall.pdf").read_bytes().startswith(b"%PDF")


def test_the_csv_of_a_figure_gives_the_data_back_exactly(tmp_path: Path):
    published_figure(tmp_path)
    pd.testing.assert_frame_equal(pd.read_csv(tmp_path / "site" / "figures" / "kappa-fall.csv"), DATA)


@pytest.mark.parametrize("suffix", ["svg", "pdf", "csv"])
def test_publishing_the_same_figure_twice_gives_the_same_bytes(tmp_path: Path, suffix: str):
    published_figure(tmp_path / "one")
    published_figure(tmp_path / "two")
    one, two = (tmp_path / name / "site" / "figures" / f"kappa-fall.{suffix}" for name in ("one", "two"))
    assert one.read_bytes() == two.read_bytes()


def test_figure_files_carry_no_date(tmp_path: Path):
    published_figure(tmp_path)
    files = tmp_path / "site" / "figures"
    assert b"<dc:date>" not in (files / "kappa-fall.svg").read_bytes()
    assert b"CreationDate" not in (files / "kappa-fall.pdf").read_bytes()


def test_a_published_figure_is_closed_so_that_the_notebook_does_not_show_it_again(tmp_path: Path):
    before = plt.get_fignums()
    published_figure(tmp_path)
    assert plt.get_fignums() == before


def test_the_fragment_of_a_figure_names_its_anchor_caption_and_downloads(tmp_path: Path):
    fragment = published_figure(tmp_path)
    assert fragment.startswith(":::{figure} /_generated/site/figures/kappa-fall.svg\n:name: kappa-fall\n")
    assert "**It falls.** Condition number $\\kappa$." in fragment
    for suffix in ("svg", "pdf", "csv"):
        assert f"{{site-file}}`{suffix.upper()} <figures/kappa-fall.{suffix}>`" in fragment


def test_the_alternative_text_of_a_figure_is_its_title_unless_given(tmp_path: Path):
    assert ":alt: It falls\n" in published_figure(tmp_path)
    assert ":alt: A falling line\n" in published_figure(tmp_path, alt="A falling\nline")


def test_a_passport_names_the_profile_and_the_commit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heads_for_depth.passports.commit", lambda: "0123456789abcdef0123")
    assert " · profile smoke · commit 0123456789\n" in published_figure(tmp_path, profile="smoke")


def test_a_passport_from_changed_source_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("heads_for_depth.passports.commit", lambda: "0123456789abcdef0123+changes")
    assert " · commit 0123456789 with local changes\n" in published_figure(tmp_path)


@pytest.mark.parametrize("slug", ["", "Kappa", "kappa fall", "../kappa", "kappa_fall", "1-kappa", "kappa-", "κ"])
def test_a_slug_that_cannot_be_an_address_is_refused_and_nothing_is_written(tmp_path: Path, slug: str):
    with pytest.raises(BadInput, match="slug"):
        publish_table(DATA, slug, "Title", "Caption.", folder=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_table_lists_its_columns_and_rows_in_order(tmp_path: Path):
    rows = rows_of(published_table(tmp_path, pd.DataFrame({"row": ["XCiT-M", "TNT-B"], "published": ["84.4", "65.4"]})))
    assert rows == [["row", "published"], [":--", "--:"], ["XCiT-M", "84.4"], ["TNT-B", "65.4"]]


@pytest.mark.parametrize(
    "cells",
    [
        ["84.4", "−0.3"],
        [1, 2.5],
        ["24 → 12", "1,1,9,1 → 1,1,5,1"],
        ["[−0.12, 0.74]", "—"],
        ["1.5e5", "inf"],
        ["12 M", "3 %"],
        ["24 → not in the record", "not in the record", "12"],
        ["5.5e4 → inf", "not measured", "2.5e-03"],
    ],
    ids=str,
)
def test_a_column_of_numbers_is_aligned_to_the_right(tmp_path: Path, cells: list[object]):
    assert rows_of(published_table(tmp_path, pd.DataFrame({"x": cells})))[1] == ["--:"]


@pytest.mark.parametrize(
    "cells", [["XCiT-M", "2"], ["1 layer", "2 layers"], [None, None], ["—", ""], ["not in the record"]], ids=str
)
def test_any_other_column_is_aligned_to_the_left(tmp_path: Path, cells: list[object]):
    assert rows_of(published_table(tmp_path, pd.DataFrame({"x": cells})))[1] == [":--"]


def test_missing_cells_show_a_dash(tmp_path: Path):
    frame = pd.DataFrame({"a": ["x", None], "b": [1.5, float("nan")]})
    assert rows_of(published_table(tmp_path, frame))[3] == ["—", "—"]


def test_a_bar_or_a_line_break_in_a_cell_does_not_break_the_table(tmp_path: Path):
    rows = rows_of(published_table(tmp_path, pd.DataFrame({"a": ["x|y\nz"], "b": ["w"]})))
    assert rows[2] == ["x\\|y z", "w"]


def test_a_named_index_becomes_the_first_column_of_table_and_csv(tmp_path: Path):
    frame = pd.DataFrame({"kappa": [1.5]}, index=pd.Index(["ViT-B"], name="family"))
    assert rows_of(published_table(tmp_path, frame))[0] == ["family", "kappa"]
    assert (tmp_path / "site" / "tables" / "counts.csv").read_text() == "family,kappa\nViT-B,1.5\n"


def test_the_csv_of_a_table_can_hold_unrounded_values(tmp_path: Path):
    published_table(tmp_path, pd.DataFrame({"kappa": ["268"]}), data=pd.DataFrame({"kappa": [268.2519531]}))
    assert (tmp_path / "site" / "tables" / "counts.csv").read_text() == "kappa\n268.2519531\n"


def classes_of(fragment: list[str]) -> list[str]:
    return next(line.split()[1:] for line in fragment if line.startswith(":class:"))


def test_only_a_sortable_table_is_marked_as_such(tmp_path: Path):
    assert "sortable" in classes_of(published_table(tmp_path, DATA, sortable=True))
    assert "sortable" not in classes_of(published_table(tmp_path, DATA))


def test_only_short_names_of_rows_are_kept_on_one_line(tmp_path: Path):
    short, long = (pd.DataFrame({"row": ["DaViT-B", name]}) for name in ("DaViT-L", "a work with a long title"))
    assert "short-names" in classes_of(published_table(tmp_path, short))
    assert "short-names" not in classes_of(published_table(tmp_path, long))


def test_a_table_of_many_columns_has_narrow_gaps(tmp_path: Path):
    for columns, dense in ((8, True), (7, False)):
        frame = pd.DataFrame({f"x{place}": ["1.0"] for place in range(columns)})
        assert ("dense" in classes_of(published_table(tmp_path, frame))) is dense


def test_columns_of_sentences_have_room_wherever_they_stand(tmp_path: Path):
    words = "the reshape holds the baseline's level (margin 0.5)"
    for middle, last, roomy in ((2 * words, words, [2, 4]), (words, words, [4]), (2 * words, "81.4", [2])):
        frame = pd.DataFrame({"row": [2 * words], "reason": [middle], "top-1": ["81.4 → 81.7"], "basis": [last]})
        classes = classes_of(published_table(tmp_path, frame))
        assert [name for name in classes if name.startswith("sentences")] == [f"sentences-{place}" for place in roomy]


def test_the_style_sheet_knows_every_column_of_sentences_in_the_book():
    styled = set(re.findall(r"\.sentences-(\d+) td:nth-child\(\1\)", (BOOK / "_static" / "report.css").read_text()))
    assert styled == {str(place) for place in range(2, 11)}


def test_a_change_and_an_interval_do_not_break_over_lines_but_lists_do(tmp_path: Path):
    frame = pd.DataFrame({"x": ["24 → 12", "[−0.1, 0.4]", "1, 1, 9, 1 → 1, 1, 5, 1"]})
    cells = [row[0] for row in rows_of(published_table(tmp_path, frame))[2:]]
    assert cells == [
        "24\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}12",
        "[−0.1,\N{NO-BREAK SPACE}0.4]",
        "1, 1, 9, 1\N{NO-BREAK SPACE}→\N{NO-BREAK SPACE}1, 1, 5, 1",
    ]
    assert (tmp_path / "site" / "tables" / "counts.csv").read_text().splitlines()[1] == "24 → 12"


def test_an_empty_table_is_refused(tmp_path: Path):
    with pytest.raises(BadInput, match="table counts"):
        published_table(tmp_path, DATA.iloc[:0])


def test_glued_values_are_recorded_as_text_and_not_displayed():
    shell = InteractiveShell.instance()
    try:
        with capture_output() as captured:
            glue_values({"row.delta": "−0.3"})
    finally:
        InteractiveShell.clear_instance()
    assert shell is not None
    (output,) = captured.outputs
    assert output.data == {"application/papermill.record/text/plain": "'−0.3'"}
    assert output.metadata["scrapbook"]["name"] == "row.delta"


def test_a_glued_value_that_is_not_yet_text_is_refused():
    with pytest.raises(BadInput, match=r"glued value row\.delta"):
        glue_values({"row.delta": -0.3})


def test_a_glue_key_with_a_colon_is_refused():
    with pytest.raises(BadInput, match="glue key"):
        glue_values({"row:delta": "−0.3"})
