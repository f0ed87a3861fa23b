"""The recount: published counts, the rule search with planted and with hopeless targets, chance, and the command."""

import json
from collections.abc import Callable
from dataclasses import replace
from decimal import Decimal
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import torch
import typer
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.figure import Figure
from matplotlib.text import Text
from torch import nn

from heads_for_depth.claims import Claim, Printed, load_rows
from heads_for_depth.cli.recount_command import recount
from heads_for_depth.errors import BadInput
from heads_for_depth.figures.recount import published_against_counted
from heads_for_depth.models import count_parameters
from heads_for_depth.recount import (
    LanguageShape,
    RowRecount,
    SideRecount,
    Variant,
    exact_count,
    recount_row,
    recount_rows,
    stated_side,
)
from heads_for_depth.recount.counts import fast_count
from heads_for_depth.recount.rules import axes
from heads_for_depth.recount.search import search, variants_of
from heads_for_depth.shapes import Shape
from heads_for_depth.tables.recount import (
    counted_sides,
    nearest_table,
    recount_data,
    recount_table,
    recount_values,
    rules_table,
    savings_table,
    verdict_of,
)
from heads_for_depth.verdicts import RecountVerdict, recount_verdict

RECOUNTS, CLOSE = RecountVerdict.RECOUNTS, RecountVerdict.WITHIN_ONE_PERCENT
CONTRADICTS, NOT_IN_RECORD = RecountVerdict.CONTRADICTS, RecountVerdict.NOT_IN_RECORD

TINY = Shape(family="xcit", depth=(4,), d_model=(64,), heads=(4,), mlp_width=(256,), classes=10)
GPT2 = LanguageShape(
    family="gpt2", depth=(12,), d_model=(768,), heads=(12,), mlp_width=(3072,), vocab_size=50_257, positions=1_024
)
CRAMMED = LanguageShape(
    family="crammed-bert", depth=(16,), d_model=(768,), heads=(12,), mlp_width=(3072,), vocab_size=32_768
)
USER_ROWS = """row,family,depth_before,depth_after,heads_before,heads_after,d_model,mlp_width_before,mlp_width_after,\
params_before_m,params_after_m
vit-b,vit,12,6,12,24,768,3072,3072,86.6,44.0
swin-t,swin,"2,2,6,2","2,2,4,2","3,6,12,24","3,6,12,24","96,192,384,768","384,768,1536,3072","384,768,1536,3072",28.3,24.7
volo-d1,volo,"4,4,8,2","4,4,4,2","6,12,12,12","6,12,12,12","192,384,384,384","576,1152,1152,1152","576,1152,1152,1152",26.6,
deit-s,deit,12,12,6,12,384,1536,1536,22.1,22.1
"""


@pytest.fixture(scope="module")
def rows() -> dict[str, RowRecount]:
    return {row.claim.row: row for row in recount_rows(load_rows())}


def _claim(name: str, **changes: Any) -> Claim:
    return replace(next(claim for claim in load_rows() if claim.row == name), **changes)


def _millions(count: int, decimals: int) -> Printed:
    return Printed(text=f"{count / 1e6:.{decimals}f}")


@pytest.mark.parametrize("row", ["xcit-m", "tnt-b", "davit-b", "xcit-l", "davit-l"])
def test_every_clean_baseline_recounts(rows: dict[str, RowRecount], row: str):
    assert verdict_of(rows[row].before) is RECOUNTS


@pytest.mark.parametrize(
    ("row", "verdict"),
    [
        ("xcit-m", CONTRADICTS),
        ("tnt-b", CONTRADICTS),
        ("davit-b", CONTRADICTS),
        ("xcit-l", RECOUNTS),
        ("davit-l", RECOUNTS),
        ("crammed-bert", RECOUNTS),
        ("gpt2", NOT_IN_RECORD),
        ("vit-b", NOT_IN_RECORD),
        ("volo-1", NOT_IN_RECORD),
    ],
)
def test_every_reshape_has_its_verdict(rows: dict[str, RowRecount], row: str, verdict: RecountVerdict):
    assert verdict_of(rows[row].after) is verdict


def test_xcit_m_prints_its_number_with_head_dim_kept_or_a_wider_mlp_and_with_no_other_single_change(
    rows: dict[str, RowRecount],
):
    found = rows["xcit-m"].after.search
    assert found is not None
    attention, mlp = found.hits
    d, blocks, narrow = 512, 12, rows["xcit-m"].after.count
    assert narrow is not None
    assert attention.count - narrow == blocks * (4 * d * d + 3 * d)
    assert attention.fields["head_dim"] == ((32,), (64,))
    assert attention.fields["widen_class_attention"] == (None, False)
    assert mlp.count - narrow == blocks * (2 * d * 1024 + 1024)
    assert mlp.fields["mlp_width"] == ((2048,), (3072,))
    assert [level.hits for level in found.levels] == [2]
    assert found.beyond_chance


def test_tnt_b_prints_its_number_with_half_the_mlp_width(rows: dict[str, RowRecount]):
    found = rows["tnt-b"].after.search
    assert found is not None
    (rule,) = found.hits
    d, blocks, stated = 640, 8, rows["tnt-b"].after.count
    assert stated is not None
    assert stated - rule.count == blocks * (2 * d * 1280 + 1280)
    assert rule.fields == {"mlp_width": ((2560,), (1280,))}
    assert found.beyond_chance


def test_nothing_within_the_search_prints_the_number_of_davit_b(rows: dict[str, RowRecount]):
    side = rows["davit-b"].after
    assert side.search is not None
    assert side.search.best is None
    assert [level.changes for level in side.search.levels] == [1, 2, 3]
    assert not side.search.beyond_chance
    assert side.relative_difference == pytest.approx(0.0105, abs=1e-4)


def test_a_count_without_heads_holds_for_all_of_them(rows: dict[str, RowRecount]):
    after = rows["davit-l"].after
    assert after.stated.any_heads
    assert isinstance(after.stated.shape, Shape)
    assert count_parameters(replace(after.stated.shape, heads=(12, 24, 48, 96))) == after.count


def test_savings_are_those_of_the_numbers_and_those_of_the_shapes(rows: dict[str, RowRecount]):
    row = rows["tnt-b"]
    assert row.published_saving == pytest.approx(1 - 30.9 / 65.4)
    assert row.stated_saving == pytest.approx(4 / 12 * 12 * 5_353_360 / 65_428_680, rel=1e-6)
    assert rows["gpt2"].published_saving is None
    assert rows["volo-1"].stated_saving is None


def test_gpt2_has_its_well_known_number_of_parameters():
    assert exact_count(Variant(shape=GPT2)) == 124_439_808


def test_crammed_bert_has_the_parameters_of_its_modules():
    d, mlp = 768, 3072
    with torch.device("meta"):
        attention = [nn.LayerNorm(d), nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d, bias=False)]
        gated_mlp = [nn.LayerNorm(d), nn.Linear(d, mlp, bias=False), nn.Linear(mlp // 2, d, bias=False)]
        outside = [nn.Embedding(32_768, d), nn.LayerNorm(d), nn.LayerNorm(d)]
    block = nn.ModuleList([*attention, *gated_mlp])
    one_scale_of_the_positions = 1
    expected = 16 * _size(block) + sum(map(_size, outside)) + one_scale_of_the_positions
    assert exact_count(Variant(shape=CRAMMED)) == expected


def test_a_gpt2_block_has_the_parameters_of_torch_s_encoder_layer():
    layer = nn.TransformerEncoderLayer(768, 12, 3072, device="meta")
    fewer = replace(GPT2, depth=(11,))
    assert exact_count(Variant(shape=GPT2)) - exact_count(Variant(shape=fewer)) == _size(layer)


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def test_crammed_bert_s_baseline_prints_only_when_digits_are_cut_off(rows: dict[str, RowRecount]):
    before = rows["crammed-bert"].before
    assert verdict_of(before) is CLOSE
    assert before.truncates
    assert before.search is not None
    assert not before.search.beyond_chance


def test_the_embedding_of_gpt2_is_solved_from_its_published_number(rows: dict[str, RowRecount]):
    embedding = rows["gpt2"].before.embedding
    assert embedding is not None
    for own, prints in [
        (embedding.fewest - 1, False),
        (embedding.fewest, True),
        (embedding.most, True),
        (embedding.most + 1, False),
    ]:
        count = exact_count(Variant(shape=replace(GPT2, vocab_size=own, positions=0)))
        assert Printed(text="89").prints(Decimal(count) / 1_000_000) is prints
    assert embedding.public_count == 124_439_808


@pytest.mark.parametrize(
    "shape",
    [
        TINY,
        replace(TINY, family="tnt", heads=(8,)),
        replace(TINY, family="vit"),
        Shape(
            family="davit",
            depth=(1, 2, 1),
            d_model=(32, 64, 128),
            heads=(2, 4, 8),
            mlp_width=(128, 256, 512),
            classes=10,
        ),
        Shape(
            family="swin",
            depth=(1, 2),
            d_model=(32, 64),
            heads=(2, 4),
            mlp_width=(128, 256),
            classes=10,
            patch_size=4,
        ),
        Shape(
            family="volo",
            depth=(1, 1, 2, 1),
            d_model=(32, 64, 64, 64),
            heads=(2, 4, 4, 4),
            mlp_width=(96, 192, 192, 192),
            patch_size=8,
            classes=10,
        ),
        CRAMMED,
    ],
    ids=lambda shape: shape.family,
)
def test_the_fast_count_is_the_model_s_own_for_every_pair_of_changes(shape: Shape | LanguageShape):
    other = replace(shape, heads=tuple(h // 2 for h in shape.heads), depth=tuple(2 * d for d in shape.depth))
    thinned = [replace(axis, changes=axis.changes[:: max(1, len(axis.changes) // 2)]) for axis in axes(shape, other)]
    pairs = combinations(thinned, 2)
    variants = [variant for pair in pairs for variant in variants_of(Variant(shape=shape), pair)]
    assert len(set(variants)) >= 12
    assert list(map(fast_count, variants)) == list(map(exact_count, variants))


@pytest.mark.parametrize(
    ("planted", "field", "value"),
    [
        (replace(TINY, depth=(7,)), "depth", (7,)),
        (replace(TINY, mlp_width=(384,)), "mlp_width", (384,)),
        (replace(TINY, heads=(4,), head_dim=(32,)), "inner_width", (128,)),
        (replace(TINY, d_model=(80,), mlp_width=(320,)), "d_model", (80,)),
    ],
    ids=["depth", "MLP width", "attention inner width", "d_model"],
)
def test_a_planted_change_is_found(planted: Shape, field: str, value: tuple[int, ...]):
    found = search(TINY, replace(TINY, depth=(8,), heads=(2,)), _millions(count_parameters(planted), 5))
    assert found.best is not None
    assert found.best.changes == 1
    assert found.best.count == count_parameters(planted)
    assert found.best.fields[field][1] == value


def test_a_planted_pair_of_changes_is_found_where_no_single_change_prints():
    planted = replace(TINY, depth=(3,), mlp_width=(128,))
    found = search(TINY, None, _millions(count_parameters(planted), 6))
    assert found.levels[0].hits == 0
    assert found.best is not None
    assert found.best.fields == {"depth": ((4,), (3,)), "mlp_width": ((256,), (128,))}


def test_the_nearest_rules_are_sorted_by_their_distance(rows: dict[str, RowRecount]):
    found = rows["davit-b"].after.search
    assert found is not None
    distances = [abs(rule.count - 62_000_000) for rule in found.nearest]
    assert distances == sorted(distances)
    assert min(distances) > 50_000


def test_chance_hits_are_the_near_misses_spread_evenly_over_a_tenth_to_either_side():
    stated, published = _stated_after("xcit-m"), Printed(text="59.0")
    singles = {v for axis in axes(stated, None) for v in variants_of(Variant(shape=stated), (axis,))}
    millions = [exact_count(variant) / 1e6 for variant in singles]
    hits = sum(58.95 <= count <= 59.05 for count in millions)
    near_misses = sum(53.1 <= count <= 64.9 for count in millions) - hits
    (level,) = search(stated, None, published).levels
    assert (level.rules, level.hits) == (len(singles), hits)
    assert level.expected_by_chance == pytest.approx(near_misses * 0.1 / (64.9 - 53.1 - 0.1))


def _stated_after(row: str) -> Shape:
    shape = stated_side(_claim(row), "after").shape
    assert isinstance(shape, Shape)
    return shape


def test_a_coarse_number_is_printed_by_many_rules_and_explained_by_none():
    found = search(TINY, replace(TINY, depth=(8,)), Printed(text="1"))
    assert found.hits
    assert not found.beyond_chance


@pytest.mark.parametrize(
    ("prints", "difference", "verdict"),
    [
        (True, 0.02, RECOUNTS),
        (False, 0.0099, CLOSE),
        (False, -0.01, CLOSE),
        (False, 0.0101, CONTRADICTS),
        (None, None, NOT_IN_RECORD),
    ],
)
def test_the_verdict_follows_from_print_and_difference(
    prints: bool | None, difference: float | None, verdict: RecountVerdict
):
    assert recount_verdict(prints=prints, relative_difference=difference) is verdict


@given(st.integers(1, 10**10), st.integers(0, 4))
@settings(max_examples=200)
def test_a_count_always_prints_its_own_rounding(count: int, decimals: int):
    text = f"{Decimal(count) / 1_000_000:.{decimals}f}"
    assert Printed(text=text).prints(Decimal(count) / 1_000_000)


@pytest.mark.parametrize(
    ("changes", "missing"),
    [
        ({"depth_after": None}, ("depth_after",)),
        ({"heads_after": None}, ("heads_after",)),
        ({"d_model": None, "mlp_width_after": None}, ("mlp_width_after", "d_model")),
    ],
)
def test_what_is_missing_for_a_count_is_named(changes: dict[str, Any], missing: tuple[str, ...]):
    side = stated_side(_claim("xcit-m", **changes), "after")
    assert side.shape is None
    assert side.missing == missing


def test_heads_that_make_no_shape_are_refused_with_row_side_and_remedy():
    with pytest.raises(BadInput, match="row xcit-m, after, heads is 7: must divide d_model 512"):
        recount_row(_claim("xcit-m", heads_after=(7,)))


def test_a_shape_that_the_family_cannot_have_is_refused_with_its_row():
    claim = _claim("davit-b", family="swin", heads_after=(4, 8, 16, 32), d_model=(128, 256, 512, 512))
    with pytest.raises(BadInput, match=r"row davit-b, d_model is .* Swin doubles its width at every stage"):
        recount_row(replace(claim, mlp_width_before=(512, 1024, 2048, 2048), mlp_width_after=(512, 1024, 2048, 2048)))


def test_a_row_may_state_its_own_head_dim():
    row = recount_row(_claim("xcit-m", head_dim_after=(64,)), with_search=False)
    assert row.after.count == exact_count(Variant(shape=replace(_stated_after("xcit-m"), head_dim=(64,))))
    assert row.after.search is None


def test_tables_and_values_agree_with_the_counts(rows: dict[str, RowRecount]):
    chosen = list(rows.values())
    table = recount_table(chosen).set_index("row")
    assert table.loc["XCiT-M, after", "counted (M)"] == "46.40"
    assert table.loc["DaViT-B, after", "heads"] == "any"
    assert len(recount_data(chosen)) == len(table) == 28
    values = recount_values(chosen)
    assert values["clean.before.recounts"] == values["clean.before.published"] == "5"
    assert (values["clean.after.recounts"], values["clean.after.contradicts"]) == ("2", "3")
    assert values["tnt-b.after.rule"] == "MLP width 1280 (stated: 2560)"
    assert values["davit-b.after.rule"] == "nothing within the search"
    assert all(isinstance(value, str) for value in values.values())


def test_the_table_of_rules_shows_hits_and_chance_for_every_number_that_does_not_print(rows: dict[str, RowRecount]):
    table = rules_table(rows.values())
    assert list(table["row"].unique()) == [
        "XCiT-M, after",
        "TNT-B, after",
        "DaViT-B, after",
        "Crammed BERT, before",
        "GPT-2, before",
    ]
    assert list(table["reading"].unique()) == [
        "explains the number",
        "no explanation found",
        "no more than chance",
        "solved for what the record leaves open",
    ]
    assert set(nearest_table(rows.values())["prints"]) == {"yes", "no"}


def test_savings_are_shown_for_every_row_that_has_one(rows: dict[str, RowRecount]):
    table = savings_table(rows.values()).set_index("row")
    assert list(table.loc["TNT-B"]) == ["clean", "52.8 %", "32.7 %"]
    assert "GPT-2" not in table.index


def test_the_figure_has_a_line_for_every_side_that_is_published_and_counted(rows: dict[str, RowRecount]):
    sides = counted_sides(rows.values())
    figure = published_against_counted(sides)
    assert isinstance(figure, Figure)
    labels = [label.get_text() for label in figure.axes[0].get_yticklabels()]
    assert labels == list(sides["label"])
    assert len(labels) == 12
    figure.canvas.draw()
    assert min(float(text.get_fontsize()) for text in figure.findobj(Text)) >= 11


def _app() -> Callable[..., Any]:
    app = typer.Typer()
    app.command()(recount)
    return app


def _run(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    _app()(arguments, standalone_mode=False)
    return capsys.readouterr().out


def test_the_command_recounts_families_that_the_record_does_not_count(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    path = tmp_path / "mine.csv"
    path.write_text(USER_ROWS, "utf-8")
    counted = {row["row"]: row for row in json.loads(_run(["--claims", str(path), "--json"], capsys))}
    assert {name: row["before"]["verdict"] for name, row in counted.items()} == dict.fromkeys(counted, "recounts")
    assert counted["vit-b"]["after"]["count"] == 86_567_656 - 6 * 7_087_872
    assert counted["vit-b"]["after"]["verdict"] == "recounts"
    assert counted["swin-t"]["after"]["verdict"] == "recounts"
    assert counted["volo-d1"]["after"]["verdict"] == "not in the record"
    assert counted["deit-s"]["after"]["verdict"] == "recounts"


def test_the_command_prints_a_table_that_a_person_can_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    path = tmp_path / "mine.csv"
    path.write_text(USER_ROWS.replace("86.6,44.0", "86.6,62.9"), "utf-8")
    printed = _run(["--claims", str(path)], capsys)
    assert "vit-b, after" in printed
    assert "contradicts its stated shape" in printed
    assert "Changes of the stated shape that print the published number" in printed


def test_the_command_refuses_a_missing_file(tmp_path: Path):
    with pytest.raises(BadInput, match="give the path of a CSV file"):
        _app()(["--claims", str(tmp_path / "none.csv")], standalone_mode=False)


def test_counting_leaves_the_random_state_alone():
    torch.manual_seed(0)
    expected = torch.rand(1)
    torch.manual_seed(0)
    exact_count(Variant(shape=replace(TINY, depth=(5,))))
    assert torch.equal(torch.rand(1), expected)


def test_a_side_without_a_count_has_neither_print_nor_difference():
    side = SideRecount(stated=stated_side(_claim("volo-1"), "before"), published=Printed(text="26.6"), count=None)
    assert (side.prints, side.truncates, side.relative_difference) == (None, None, None)
