"""`compare`: two folders of records, their accuracies, verdicts and κ, and what one of them alone has."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from heads_for_depth import records
from heads_for_depth.cli.main import main
from heads_for_depth.experiments import Arm, plan
from heads_for_depth.findings.comparison import Compared, compare_folders
from heads_for_depth.records import Record
from heads_for_depth.tables import comparison as tables
from made_up_records import PROVENANCE, arm, failed, layer, measured, planned, trained

WOBBLE = (-0.08, -0.06, -0.04, -0.02, 0.02, 0.04, 0.06, 0.08)


def level(points: float, n: int = 8) -> list[float]:
    return [points + wobble for wobble in WOBBLE[:n]]


def row(name: str, baseline: Sequence[float], reshape: Sequence[float], **numbers: Any) -> list[Record]:
    return [*arm(name, "before", "before", baseline, **numbers), *arm(name, "after", "after", reshape, **numbers)]


def folder(place: Path, *found: Iterable[Record]) -> Path:
    for group in found:
        for one in group:
            records.write(one, place)
    return place


def compared(a: Path, b: Path) -> Compared:
    return compare_folders(a, b, "cpu", "cpu")


def as_profile(profile: str, found: Iterable[Record]) -> list[Record]:
    return [one | {"profile": profile} for one in found]


# --- verdicts


def test_a_folder_agrees_with_itself(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)), [measured("tnt-b", 2, layer(30.0))])
    assert main(["compare", str(a), str(a)]) == 0
    printed = capsys.readouterr().out
    assert "verdicts: all 1 agree" in printed
    assert "all equal" in printed
    assert printed.count("only in") == 2
    found = compared(a, a)
    assert [pair.agrees for pair in found.cells] == [True, True]
    assert [pair.difference.difference for pair in found.cells if pair.difference] == [0.0, 0.0]


def test_a_verdict_that_differs_is_named_and_ends_in_exit_code_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)), row("tnt-b", level(70), level(70)))
    b = folder(tmp_path / "b", row("xcit-m", level(85), level(80)), row("tnt-b", level(70), level(70)))
    assert main(["compare", str(a), str(b)]) == 1
    last = capsys.readouterr().out.strip().splitlines()[-1]
    assert last == (
        "verdicts: 1 of 2 differ (XCiT-M of vision_rows: reproduced at reduced scale in A, "
        "not reproduced at reduced scale in B)"
    )


def test_a_row_shows_the_difference_of_its_arms_on_both_sides(tmp_path: Path):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(84)))
    b = folder(tmp_path / "b", row("xcit-m", level(85, 4), level(86, 4)))
    frame = tables.rows(compared(a, b))
    assert list(frame["row"]) == ["XCiT-M"]
    assert list(frame.loc[0, ["n A", "n B"]]) == ["8", "4"]
    for side, (before, after) in {"A": (level(85), level(84)), "B": (level(85, 4), level(86, 4))}.items():
        low, high = stats.ttest_ind(after, before, equal_var=False).confidence_interval(0.95)
        text = str(frame.loc[0, f"reshape − baseline {side}"]).replace("−", "-")
        assert [float(part) for part in text.replace("[", "").replace("]", "").replace(",", "").split()] == (
            pytest.approx([sum(after) / len(after) - sum(before) / len(before), low, high], abs=0.005)
        )


def test_each_side_is_judged_by_the_declared_seeds_of_its_own_profile(tmp_path: Path):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    b = folder(tmp_path / "b", row("xcit-m", level(85, 7), level(85, 7)))
    pair = compared(a, b).rows[0]
    assert (str(pair.a.verdict.verdict), str(pair.b.verdict.verdict)) == ("reproduced at reduced scale", "inconclusive")
    assert not pair.agrees


def test_a_row_that_one_side_has_not_run_is_no_disagreement(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)), row("tnt-b", level(70), level(70)))
    b = folder(tmp_path / "b", row("tnt-b", level(70), level(70)))
    assert main(["compare", str(a), str(b)]) == 0
    assert "only in A: 16 of vision_rows (xcit-m.depth-after.heads-after.seed-0" in capsys.readouterr().out
    assert [pair.a.row.name for pair in compared(a, b).rows] == ["tnt-b"]


def test_diverged_runs_reach_the_verdict_of_their_side(tmp_path: Path):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    lost = [failed("xcit-m", "after", "after", seed) for seed in range(8)]
    b = folder(tmp_path / "b", arm("xcit-m", "before", "before", level(85)), lost)
    found = compared(a, b)
    assert [str(pair.b.verdict.verdict) for pair in found.changed] == ["not reproduced at reduced scale"]
    assert [pair.a.key for pair in found.cells] == [("xcit-m", "before", "before")]


def test_the_second_reduction_is_a_table_of_its_own(tmp_path: Path):
    def keep_heads(points: Sequence[float]) -> list[Record]:
        runs = [run for run in plan("cpu", "vision_rows_keep_heads", 8) if run.row == "xcit-m"]
        corners = [run for run in runs if run.depth_arm == run.heads_arm]
        return [trained(run, points[run.seed] / 100) for run in corners]

    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)), keep_heads(level(80)))
    b = folder(tmp_path / "b", row("xcit-m", level(85), level(85)), keep_heads(level(80)))
    found = compared(a, b)
    tables_of_rows = [(pair.experiment, pair.a.row.name) for pair in found.rows]
    assert tables_of_rows == [("vision_rows", "xcit-m"), ("vision_rows_keep_heads", "xcit-m")]
    heads = [(pair.experiment, pair.a.shape.heads) for pair in found.cells]
    assert heads[0] == ("vision_rows", (1,))
    assert heads[2] == ("vision_rows_keep_heads", (8,))


# --- cells


def four_cells(shift: float) -> list[Record]:
    arms: tuple[Arm, ...] = ("before", "after")
    moved = iter((0.0, 0.3 * shift, 0.05 * shift, shift))
    return [one for depth in arms for heads in arms for one in arm("xcit-m", depth, heads, level(80 + next(moved)))]


def test_means_are_compared_as_welch_and_holm_say(tmp_path: Path):
    found = compared(folder(tmp_path / "a", four_cells(0.0)), folder(tmp_path / "b", four_cells(0.4)))
    arms = [(pair.a.accuracy, pair.b.accuracy) for pair in found.cells]
    raw = [stats.ttest_ind(b, a, equal_var=False).pvalue for a, b in arms]
    adjusted = multipletests(raw, method="holm")[1]
    assert [d.difference for pair in found.cells if (d := pair.difference)] == pytest.approx([0.0, 0.12, 0.02, 0.4])
    assert [pair.p for pair in found.cells] == pytest.approx(list(adjusted))
    assert [pair.agrees for pair in found.cells] == [p >= 0.05 for p in adjusted]
    assert {pair.agrees for pair in found.cells} == {True, False}


def test_exchanging_the_folders_turns_the_differences_round(tmp_path: Path):
    a, b = folder(tmp_path / "a", four_cells(0.0)), folder(tmp_path / "b", four_cells(0.4))
    there, back = ([pair.difference for pair in compared(*order).cells] for order in ((a, b), (b, a)))
    assert [d.difference for d in there if d] == pytest.approx([-d.difference for d in back if d])
    assert [pair.p for pair in compared(a, b).cells] == pytest.approx([pair.p for pair in compared(b, a).cells])


def test_a_single_seed_has_no_test(tmp_path: Path):
    a = folder(tmp_path / "a", arm("xcit-m", "before", "before", [85.0]), row("tnt-b", level(70), level(70)))
    b = folder(tmp_path / "b", arm("xcit-m", "before", "before", [50.0]), row("tnt-b", level(70), level(70)))
    pair = compared(a, b).cells[0]
    assert (pair.difference, pair.p, pair.agrees) == (None, None, None)
    assert tables.cells(compared(a, b)).loc[0, "means"] == "—"


def test_across_budgets_verdicts_are_compared_and_means_are_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    longer = as_profile("gpu", row("xcit-m", level(92), level(92)))
    b = folder(tmp_path / "b", longer)
    assert main(["compare", str(a), str(b), "--profile-b", "gpu"]) == 0
    printed = capsys.readouterr().out
    assert "profile cpu" in printed
    assert "profile gpu" in printed
    assert "A and B had different budgets" in printed
    assert "verdicts: all 1 agree" in printed
    found = compare_folders(a, b, "cpu", "gpu")
    assert [pair.agrees for pair in found.cells] == [None, None]


def test_the_header_names_profiles_machines_and_commits(tmp_path: Path):
    other = PROVENANCE | {"device_name": "Accelerator X", "commit": "f" * 40}
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    b = folder(tmp_path / "b", [one | {"provenance": other} for one in row("xcit-m", level(85), level(85))])
    lines = tables.header(compared(a, b)).splitlines()
    assert lines[0] == f"A: {a}, profile cpu, 16 runs, made on Model A; commit 012345678"
    assert lines[1] == f"B: {b}, profile cpu, 16 runs, made on Accelerator X; commit fffffffff"
    assert len(lines) == 2


# --- κ


def test_the_largest_relative_difference_of_kappa_is_found_with_its_place(tmp_path: Path):
    first = [layer(30.0), layer(400.0, "blocks.1.attn")]
    second = [layer(30.0), layer(500.0, "blocks.1.attn")]
    a = folder(tmp_path / "a", [measured("tnt-b", 2, *first), measured("tnt-b", 4, *first)])
    b = folder(tmp_path / "b", [measured("tnt-b", 2, *first), measured("tnt-b", 4, *second)])
    told = tables.kappa(compared(a, b).kappa)
    assert "12 numbers of 2 runs; the largest relative difference is 0.2 (conditioning/tnt-b." in told
    assert "heads-4, kappa.initial.blocks.1.attn.concatenated.condition_number: 400.0 in A, 500.0 in B" in told
    assert told.endswith("1 lie beyond the tolerance of rounding")


@pytest.mark.parametrize("field", ["seed", "input_count", "inputs"])
def test_kappa_of_other_inputs_or_weights_is_not_compared(tmp_path: Path, field: str):
    one = measured("tnt-b", 2, layer(30.0))
    other = one | {"plan": one["plan"] | {field: "images" if field == "inputs" else 77}}
    same = measured("tnt-b", 4, layer(30.0))
    a, b = folder(tmp_path / "a", [one, same]), folder(tmp_path / "b", [other, same])
    assert [pair.run_id for pair in compared(a, b).kappa] == [same["run_id"]]


def test_kappa_at_initialization_is_compared_across_budgets(tmp_path: Path):
    run = planned("xcit-m", "before", "before")
    a = folder(tmp_path / "a", [trained(run, 0.85, start=40.0)])
    b = folder(tmp_path / "b", as_profile("gpu", [trained(run, 0.95, start=50.0)]))
    (pair,) = compare_folders(a, b, "cpu", "gpu").kappa
    assert max(check.difference for check in pair.checks) == pytest.approx(0.2)


def test_failed_measurements_are_not_compared(tmp_path: Path):
    lost = measured("tnt-b", 2, layer(30.0), status="out_of_memory", kappa={})
    same = measured("tnt-b", 4, layer(30.0))
    a, b = folder(tmp_path / "a", [measured("tnt-b", 2, layer(30.0)), same]), folder(tmp_path / "b", [lost, same])
    assert [pair.run_id for pair in compared(a, b).kappa] == [same["run_id"]]


# --- JSON


def test_json_has_every_number_unrounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", four_cells(0.0), [measured("tnt-b", 2, layer(30.0))])
    b = folder(tmp_path / "b", four_cells(0.4), [measured("tnt-b", 2, layer(40.0)), measured("tnt-b", 4, layer(1.0))])
    code = main(["compare", str(a), str(b), "--json"])
    answer = json.loads(capsys.readouterr().out)
    found = compared(a, b)
    assert code == (0 if answer["verdicts_agree"] else 1)
    assert [cell["p_holm"] for cell in answer["cells"]] == [pair.p for pair in found.cells]
    assert answer["rows"][0]["a"]["difference"]["points"] == pytest.approx(0.0)
    assert answer["rows"][0]["b"]["difference"]["points"] == pytest.approx(0.4)
    assert answer["kappa"][-1]["largest_relative_difference"] == pytest.approx(0.25)
    assert answer["only_b"] == {"conditioning": ["tnt-b.fixed-d-model.noise.heads-4"]}
    assert answer["only_a"] == {}
    assert (answer["a"]["runs"], answer["b"]["runs"]) == (33, 34)


def test_seeds_without_spread_leave_an_open_interval(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", [85.0] * 8, [85.0] * 8))
    assert main(["compare", str(a), str(a), "--json"]) == 0
    difference = json.loads(capsys.readouterr().out)["cells"][0]["difference"]
    assert (difference["lower"], difference["upper"]) == (None, None)


# --- refusals


def refused(capsys: pytest.CaptureFixture[str], *arguments: object) -> str:
    assert main(["compare", *map(str, arguments)]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err.removeprefix("heads-for-depth: ").rstrip("\n")


def test_a_missing_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    assert refused(capsys, a, tmp_path / "b").startswith(f"results is '{tmp_path / 'b'}': is no folder")
    assert refused(capsys, tmp_path / "b", a).startswith(f"results is '{tmp_path / 'b'}': is no folder")


def test_a_folder_without_records_of_the_profile_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    assert "holds no records of profile gpu" in refused(capsys, a, a, "--profile-b", "gpu")
    assert refused(capsys, a, a, "--profile", "huge").startswith("profile is 'huge'")


def test_a_record_of_another_schema_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    (a / "cpu" / "vision_rows" / "old.json").write_text('{"schema": "heads-for-depth/run/0"}')
    assert refused(capsys, a, a).startswith("schema is 'heads-for-depth/run/0'")


def test_a_record_of_another_grid_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    run = planned("xcit-m", "before", "before")
    foreign = trained(replace(run, shape=replace(run.shape, depth=(5,))), 0.85)
    a, b = folder(tmp_path / "a", row("tnt-b", level(70), level(70))), folder(tmp_path / "b", [foreign])
    assert "is of no planned cell" in refused(capsys, a, b)


def test_folders_with_nothing_in_common_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    a = folder(tmp_path / "a", row("xcit-m", level(85), level(85)))
    b = folder(tmp_path / "b", [measured("tnt-b", 2, layer(30.0))])
    assert refused(capsys, a, b) == f"results is '{a} and {b}': have no cell and no condition number in common"
