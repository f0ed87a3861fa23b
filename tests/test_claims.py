"""The literature's files: what they say, how a cell is read, and what is refused with file, line, column and remedy."""

from decimal import Decimal
from pathlib import Path

import pytest

from heads_for_depth.claims import ROWS, Claim, Printed, load_rows, load_table, table_names
from heads_for_depth.errors import BadInput
from heads_for_depth.tables.claims import (
    baseline_gaps,
    baselines_table,
    cell_values,
    drift_table,
    evidence_table,
    head_widths,
    numbers_table,
    rows_table,
    score_gains,
)
from heads_for_depth.tables.formatting import MISSING

HEADER = (
    "row,family,depth_before,depth_after,heads_before,heads_after,d_model,mlp_width_before,mlp_width_after,"
    "params_before_m,params_after_m"
)
LINE = "mine,vit,12,6,12,24,768,3072,3072,86.6,44.0"


def _file(folder: Path, *lines: str) -> Path:
    path = folder / "rows.csv"
    path.write_text("\n".join(lines) + "\n", "utf-8")
    return path


def _row(name: str) -> Claim:
    return next(claim for claim in load_rows() if claim.row == name)


def test_the_record_holds_five_clean_three_language_and_six_confounded_rows():
    statuses = [claim.status for claim in load_rows()]
    assert {status: statuses.count(status) for status in statuses} == {"clean": 5, "language": 3, "confounded": 6}


@pytest.mark.parametrize(
    ("row", "depth", "heads", "mlp_width", "params", "score"),
    [
        ("xcit-m", (24, 12), (8, 16), 2048, ("84.4", "59.0"), ("81.4", "81.7")),
        ("tnt-b", (12, 8), (10, 16), 2560, ("65.4", "30.9"), ("82.3", "82.3")),
        ("xcit-l", (24, 12), (16, 24), 3072, ("189.1", "103.8"), ("82.1", "82.4")),
    ],
)
def test_a_row_without_stages_holds_the_numbers_of_the_record(
    row: str,
    depth: tuple[int, int],
    heads: tuple[int, int],
    mlp_width: int,
    params: tuple[str, str],
    score: tuple[str, str],
):
    claim = _row(row)
    assert (claim.depth_before, claim.depth_after) == ((depth[0],), (depth[1],))
    assert (claim.heads_before, claim.heads_after) == ((heads[0],), (heads[1],))
    assert claim.mlp_width_before == claim.mlp_width_after == (mlp_width,)
    assert (claim.params_before_m, claim.params_after_m) == tuple(Printed(text=text) for text in params)
    assert (claim.score_before, claim.score_after) == tuple(Printed(text=text) for text in score)


@pytest.mark.parametrize(("row", "params"), [("davit-b", ("88.0", "62.0")), ("davit-l", ("196.8", "140.0"))])
def test_a_davit_row_has_stages_and_no_heads_after_the_change(row: str, params: tuple[str, str]):
    claim = _row(row)
    assert (claim.depth_before, claim.depth_after) == ((1, 1, 9, 1), (1, 1, 5, 1))
    assert claim.heads_after is None
    assert (claim.params_before_m, claim.params_after_m) == tuple(Printed(text=text) for text in params)


def test_the_numbers_that_the_record_lacks_are_missing_and_not_filled():
    for claim in load_rows():
        if claim.status == "confounded":
            assert (claim.params_before_m, claim.params_after_m) == (None, None)
            assert (claim.score_before, claim.score_after) == (None, None)
    assert _row("gpt2").params_after_m is None
    assert cell_values("lit527_rows")["lit527_rows.gpt2.params_after_m"] == MISSING


def test_heads_of_xcit_l_are_32_wide_and_the_128_of_the_record_is_mlp_width_over_heads():
    widths = head_widths(load_rows())
    assert widths["xcit-l.head_dim_after"] == "32"
    assert widths["xcit-l.mlp_per_head_after"] == "128"


@pytest.mark.parametrize("name", table_names())
def test_every_number_of_the_literature_names_its_source(name: str):
    table = load_table(name)
    columns = [column for column in ("source", "place", "identifier", "work", "paper") if column in table]
    assert columns
    assert (table[columns] != "").any(axis=1).all()


def test_every_number_of_the_evidence_belongs_to_a_work():
    assert set(load_table("evidence_numbers")["work"]) <= set(load_table("evidence").index)


def test_every_work_of_the_evidence_says_which_way_it_points():
    assert set(load_table("evidence")["direction"]) <= {"for", "against", "mixed", "context"}
    assert set(load_table("evidence")["secondary"]) <= {"yes", "no"}


def test_a_printed_number_stands_for_everything_that_rounds_to_it():
    printed = Printed(text="59.0")
    assert printed.unit == Decimal("0.1")
    assert printed.prints(Decimal("58.95"))
    assert printed.prints(Decimal("59.049999"))
    assert not printed.prints(Decimal("59.051"))
    assert not printed.prints(Decimal("58.949"))


def test_printed_digits_matter():
    assert Printed(text="59").prints(Decimal("59.4"))
    assert not Printed(text="59.00").prints(Decimal("59.01"))


def test_a_number_may_also_have_been_cut_off_instead_of_rounded():
    printed = Printed(text="119")
    assert printed.truncates(Decimal("119.59"))
    assert not printed.prints(Decimal("119.59"))
    assert not printed.truncates(Decimal("118.9"))


def test_a_file_of_one_s_own_needs_only_the_required_columns(tmp_path: Path):
    (claim,) = load_rows(_file(tmp_path, HEADER, LINE))
    assert (claim.row, claim.title, claim.status) == ("mine", "mine", "user")
    assert (claim.d_model, claim.heads_after) == ((768,), (24,))
    assert claim.params_after_m == Printed(text="44.0")


def test_stages_are_read_from_a_quoted_cell_and_an_empty_cell_is_missing(tmp_path: Path):
    line = 'd,davit,"1,1,9,1","1,1,5,1",,,"96,192,384,768","384,768,1536,3072",,50,'
    (claim,) = load_rows(_file(tmp_path, HEADER, line))
    assert claim.depth_after == (1, 1, 5, 1)
    assert claim.heads_before is None
    assert claim.params_after_m is None


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (LINE.replace("vit", "mlp-mixer"), "line 2, column family is 'mlp-mixer': use one of vit, deit, xcit"),
        (LINE.replace("86.6", "86,6"), "line 2, number of cells is 12: give 11 as the first line does"),
        (LINE.replace("86.6", "86.6M"), "line 2, column params_before_m is '86.6M': give a positive number as printed"),
        (LINE.replace("86.6", "-86.6"), "column params_before_m is '-86.6'"),
        (LINE.replace("86.6", "nan"), "column params_before_m is 'nan'"),
        (LINE.replace("86.6", "1e2"), "column params_before_m is '1e2'"),
        (LINE.replace(",768,", ",0,"), "column d_model is '0': give a whole number from 1"),
        (LINE.replace(",6,", ",6.5,"), "column depth_after is '6.5': give a whole number"),
        (LINE.replace(",6,", ",1001,"), "column depth_after is '1001': give at most 1000 blocks per stage"),
        (LINE.replace(",6,", ',"2,4",'), "column depth_after is '2,4': give one number for this vit row"),
        (LINE.replace("mine", "my row"), "column row is 'my row': use letters, digits, hyphens and underscores"),
        (LINE.replace("vit", "davit"), "column depth_before is '12': davit has stages, give one number per stage"),
        (
            'd,swin,"2,2,6,2","2,2",,,"96,192,384,768","384,768,1536,3072",,28.3,',
            "column depth_after is '2,2': give 4 numbers, one per stage",
        ),
    ],
)
def test_a_malformed_line_is_refused_with_its_place_and_the_remedy(tmp_path: Path, line: str, sentence: str):
    with pytest.raises(BadInput) as refusal:
        load_rows(_file(tmp_path, HEADER, line))
    assert sentence in str(refusal.value)
    assert "rows.csv" in str(refusal.value)


def test_a_repeated_row_is_refused_with_the_line_of_the_first(tmp_path: Path):
    with pytest.raises(BadInput, match="line 3, column row is 'mine': line 2 has this name, use another"):
        load_rows(_file(tmp_path, HEADER, LINE, LINE))


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (HEADER.replace(",params_after_m", ""), "add the column params_after_m; its cells may be empty"),
        (HEADER.replace("row,", "name,"), "add the column row, a unique name per line"),
        (HEADER.replace("d_model", "width"), "column 7 is 'width': the columns are row, family"),
        (HEADER.replace("heads_after", "heads_before"), "column 6 is 'heads_before': it stands there twice"),
    ],
)
def test_wrong_columns_are_refused_by_name(tmp_path: Path, header: str, sentence: str):
    line = LINE if len(header.split(",")) == 11 else LINE.rsplit(",", 1)[0]
    with pytest.raises(BadInput) as refusal:
        load_rows(_file(tmp_path, header, line))
    assert sentence in str(refusal.value)


@pytest.mark.parametrize("content", [b"", b"row,family\n", b"\xff\xfe\x00r", b'row,"family\n'])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, content: bytes):
    path = tmp_path / "rows.csv"
    path.write_bytes(content)
    with pytest.raises(BadInput, match=r"claims file is .*rows\.csv"):
        load_rows(path)


@pytest.mark.parametrize("name", ["missing.csv", "."])
def test_a_path_without_a_file_is_refused(tmp_path: Path, name: str):
    with pytest.raises(BadInput, match="give the path of a CSV file"):
        load_rows(tmp_path / name)


def test_a_file_that_a_spreadsheet_saved_is_read(tmp_path: Path):
    path = tmp_path / "rows.csv"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEADER}\r\n{LINE}\r\n\r\n".encode())
    assert [claim.row for claim in load_rows(path)] == ["mine"]


def test_an_unknown_table_is_refused_with_the_known_ones():
    assert ROWS.stem in table_names()
    with pytest.raises(BadInput, match=r"table is 'sota': use one of .*lit527_rows"):
        load_table("sota")


def test_claimed_gains_and_gaps_keep_the_digits_of_the_coarser_number():
    assert score_gains(load_rows())["xcit-m.gain"] == "+0.3"
    assert score_gains(load_rows())["tnt-b.gain"] == "0.0"
    assert "gpt2.gain" not in score_gains(load_rows())
    assert baseline_gaps() == {
        "xcit-m.gap": "+1.2",
        "xcit-l.gap": "+0.8",
        "tnt-b.gap": "+0.6",
        "davit-b.gap": "+1.4",
        "davit-l.gap": MISSING,
    }


def test_every_cell_of_every_table_has_a_value_for_the_text():
    for name in table_names():
        table = load_table(name)
        values = cell_values(name)
        assert len(values) == table.size
        assert all(values.values())


def test_the_literature_tables_show_every_line():
    assert len(rows_table(load_rows())) == 14
    assert len(baselines_table()) == 5
    assert list(drift_table()["baseline (%)"]) == ["81.4", "82.2", "82.6 ± 0.39", "83.3", "83.6", "84.3 ± 0.26"]
    assert len(numbers_table("sota190")) == len(load_table("sota190"))
    evidence = evidence_table().set_index("work")
    narang = evidence.loc["Narang et al. (2021) (arXiv 2102.11972, table 1)", "numbers"]
    assert "6 layers, 24 heads: final loss 1.857, SuperGLUE 73.55, training speed 3.70 steps/s" in str(narang)
