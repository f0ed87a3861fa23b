"""The theorem's premises: correlation between heads and isotropy against direct computations and simulated matrices."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

from heads_for_depth.conditioning import measure, observe, premise_table
from heads_for_depth.conditioning.layers import layer_rows
from heads_for_depth.conditioning.premises import head_correlation, independent_head_correlation, isotropy
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import DECLARATIONS, PlannedRun, plan
from heads_for_depth.findings.premises import premise_lines, training_paths
from heads_for_depth.models import build
from heads_for_depth.records import Record
from heads_for_depth.training import execute, initial_model
from made_up_records import layer, record, table

Array = np.ndarray


def normal(*size: int, seed: int = 0) -> Tensor:
    return torch.randn(*size, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def rv(a: Array, b: Array) -> float:
    """Escoufier's coefficient of two matrices, uncentred."""
    one, other = a @ a.T, b @ b.T
    return float(np.trace(one @ other) / math.sqrt(np.trace(one @ one) * np.trace(other @ other)))


@pytest.mark.parametrize(("tokens", "heads", "head_dim"), [(9, 2, 3), (5, 4, 1), (6, 3, 8)])
def test_correlation_is_the_mean_of_the_coefficient_over_pairs(tokens: int, heads: int, head_dim: int):
    matrices = normal(3, tokens, heads * head_dim) + 0.5
    for matrix, value in zip(matrices.numpy(), head_correlation(matrices, heads), strict=True):
        parts = np.split(matrix, heads, axis=1)
        pairs = [rv(parts[i], parts[j]) for i in range(heads) for j in range(i)]
        assert float(value) == pytest.approx(np.mean(pairs), rel=1e-12)


def test_equal_heads_correlate_wholly_and_orthogonal_ones_not_at_all():
    one = normal(1, 6, 2)
    assert float(head_correlation(torch.cat((one, -2 * one, one), dim=-1), 3)) == pytest.approx(1)
    basis = torch.eye(6, dtype=torch.float64).unsqueeze(0)
    assert float(head_correlation(basis, 3)) == pytest.approx(0)


@pytest.mark.parametrize(("tokens", "heads", "head_dim"), [(40, 4, 8), (17, 8, 8), (50, 16, 4)])
def test_simulated_independent_heads_have_the_expected_correlation_and_isotropy(tokens: int, heads: int, head_dim: int):
    matrices = normal(400, tokens, heads * head_dim)
    expected = independent_head_correlation(tokens, head_dim)
    assert float(head_correlation(matrices, heads).mean()) == pytest.approx(expected, rel=0.02)
    assert float(isotropy(matrices).mean()) == pytest.approx(1, rel=0.01)


def test_one_direction_is_as_anisotropic_as_can_be_and_equal_values_as_even():
    rank_one = normal(1, 8, 1) @ normal(1, 1, 5, seed=1)
    assert float(isotropy(rank_one)) == pytest.approx(14 / 40)
    assert float(isotropy(torch.eye(5, dtype=torch.float64).unsqueeze(0))) == pytest.approx(5 * 11 / 25)
    assert float(isotropy(torch.zeros(1, 4, 3))) == 0


def test_a_head_that_is_zero_counts_as_correlated_with_nothing():
    matrices = torch.cat((normal(1, 6, 2), torch.zeros(1, 6, 2, dtype=torch.float64)), dim=-1)
    assert float(head_correlation(matrices, 2)) == pytest.approx(0, abs=1e-15)


def test_the_table_has_a_line_per_layer_with_the_medians_of_its_matrices(tiny_run: PlannedRun):
    model = initial_model(tiny_run)
    inputs = torch.randn(3, 1, 28, 28, generator=torch.Generator().manual_seed(5))
    seen = observe(model, inputs)
    rows = layer_rows(premise_table(seen))
    assert [(row["site"], row["heads"], row["rows"], row["columns"]) for row in rows] == [
        ("blocks.0.attn", 4, 17, 16), ("blocks.1.attn", 4, 17, 16),
    ]  # fmt: skip
    concatenated = seen.caught["blocks.1.attn"][1]
    assert rows[1]["head_correlation"] == pytest.approx(float(head_correlation(concatenated, 4).median()), rel=1e-5)
    assert rows[1]["isotropy"] == pytest.approx(float(isotropy(concatenated).median()), rel=1e-5)
    assert rows[1]["head_correlation_independent"] == pytest.approx(4 / (4 + 17 + 1), rel=1e-5)


def test_one_head_has_no_correlation(tiny_run: PlannedRun):
    shape = replace(tiny_run.shape, heads=(1,))
    rows = layer_rows(premise_table(observe(build(shape), torch.randn(1, 1, 28, 28))))
    assert {(row["head_correlation"], row["head_correlation_independent"]) for row in rows} == {(None, None)}


# What is recorded, and when.


def through(run: PlannedRun, times: str, epochs: int) -> Record:
    assert run.recipe is not None
    recipe = replace(run.recipe, epochs=epochs, train_images=64)
    return execute(replace(run, recipe=recipe, kappa_times=times, premises=True))  # type: ignore[arg-type]


def test_kappa_is_recorded_when_the_plan_says_and_premises_wherever_kappa_is(tiny_run: PlannedRun):
    expected = {
        ("ends", 3): ["initial", "final"],
        ("middle", 3): ["initial", "middle", "final"],
        ("middle", 1): ["initial", "final"],
        ("epochs", 3): ["initial", "epoch-1", "epoch-2", "final"],
    }
    for (times, epochs), names in expected.items():
        record = through(tiny_run, times, epochs)
        assert list(record["kappa"]) == names
        assert list(record["premises"]) == names
    assert "premises" not in execute(tiny_run)


def test_the_middle_is_after_the_middle_epoch(tiny_run: PlannedRun):
    every, middle = (through(tiny_run, times, 5) for times in ("epochs", "middle"))
    assert middle["kappa"]["middle"] == every["kappa"]["epoch-3"]
    assert middle["kappa"]["middle"] != every["kappa"]["epoch-2"]
    assert middle["kappa"]["initial"] == every["kappa"]["initial"]


def test_premises_of_an_initial_model_are_those_of_the_inputs_of_its_kappa(tiny_run: PlannedRun):
    run = replace(tiny_run, kind="kappa", inputs="noise", input_count=2, premises=True)
    record = execute(run)
    assert list(record["premises"]) == ["initial"]
    noise = torch.randn(2, 1, 28, 28, generator=torch.Generator().manual_seed(run.seed))
    model = initial_model(run)
    assert record["premises"]["initial"] == premise_table(observe(model, noise))
    assert record["kappa"]["initial"] == measure(model, noise)


# What is read from the records.


def premise_record(run: PlannedRun, kappas: list[float], correlation: float | None, isotropies: list[float]) -> Record:
    layers = [layer(kappa, f"blocks.{i}.attn", rows=196, columns=512, heads=8) for i, kappa in enumerate(kappas)]
    columns = ["site", "kind", "heads", "rows", "columns", "head_correlation", "head_correlation_independent",
               "isotropy"]  # fmt: skip
    rows = [[f"blocks.{i}.attn", "tokens", 8, 196, 512, correlation, 0.25, value] for i, value in enumerate(isotropies)]
    return record(run, kappa={"initial": table(*layers)}, premises={"initial": {"columns": columns, "rows": rows}})


def test_a_line_holds_medians_over_the_layers_and_lines_are_in_the_order_of_the_rows():
    runs = {run.run_id: run for run in plan("cpu", "premises")}
    records = [
        premise_record(runs["xcit-m.after.noise"], [3.0, 9.0, 5.0], 0.5, [0.25, 0.75]),
        premise_record(runs["vit-l.before.noise"], [2.0], None, [0.5]),
        premise_record(runs["xcit-m.before.images"], [4.0], 0.5, [0.5]),
        premise_record(runs["xcit-m.before.noise"], [7.0], 0.5, [0.5]),
    ]
    lines = premise_lines(records)
    assert [(line.row, line.side, line.inputs) for line in lines] == [
        ("xcit-m", "before", "noise"), ("xcit-m", "after", "noise"), ("vit-l", "before", "noise"),
        ("xcit-m", "before", "images"),
    ]  # fmt: skip
    assert (lines[1].kappa, lines[1].isotropy, lines[1].head_correlation) == (5.0, 0.5, 0.5)
    assert lines[2].head_correlation is None
    assert (lines[1].tokens, lines[1].width, lines[1].heads) == (196, 512, 8)


def test_paths_hold_every_epoch_of_every_cell_that_has_runs(tiny_run: PlannedRun):
    run = replace(
        tiny_run, experiment="conditioning_training", depth_arm="before", heads_arm="after",
        declaration=DECLARATIONS["conditioning_training"].digest,
    )  # fmt: skip
    records = [through(replace(run, seed=seed, run_id=f"tiny.seed-{seed}"), "epochs", 3) for seed in (0, 1)]
    (path,) = training_paths(records)
    assert (path.row, path.depth_arm, path.heads_arm, path.n) == ("vit-own", "before", "after", 2)
    assert {name: len(values) for name, values in path.kappa.items()} == dict.fromkeys(
        ("concatenated", "projected", "head", "jacobian"), 4
    )
    assert len(path.effective_rank) == len(path.isotropy) == 4
    finals = [
        sorted(r["condition_number"] for r in layer_rows(one["kappa"]["final"]) if r["object"] == "concatenated")[1]
        for one in records
    ]
    assert path.kappa["concatenated"][-1] == max(finals)  # the upper median of two runs and of two layers


def test_a_path_takes_medians_over_layers_first_counts_failed_runs_and_reads_davits_jacobian_where_it_is_formed():
    run = next(run for run in plan("cpu", "conditioning_training", 3) if run.run_id.startswith("davit-b.depth-before"))

    def measured(seed: int, ranks: list[float], status: str = "ok") -> Record:
        stage = [
            layer(5.0, f"stages.2.blocks.{i}.1.attn", kind="channels", effective_rank=rank)
            for i, rank in enumerate(ranks)
        ]
        ends = [layer(kappa, f"stages.{i}.blocks.0.1.attn", kind="channels", object="jacobian")
                for i, kappa in ((0, 70.0), (3, 90.0))]  # fmt: skip
        windows = layer(1.0, "stages.0.blocks.0.0.attn", kind="window", object="jacobian")
        kappa = table(*stage, windows, *ends)
        columns = ["site", "kind", "head_correlation", "isotropy"]
        premises = {"columns": columns, "rows": [[f"stages.2.blocks.{i}.1.attn", "channels", rank / 20, rank / 10]
                                                 for i, rank in enumerate(ranks)]}  # fmt: skip
        planned = replace(run, seed=seed, run_id=f"davit-b.{seed}")
        times = ("initial", "final")
        return record(planned, kappa=dict.fromkeys(times, kappa), premises=dict.fromkeys(times, premises)) | {
            "status": status
        }

    (path,) = training_paths([measured(0, [1.0, 2.0, 9.0]), measured(1, [3.0, 8.0, 10.0]), measured(2, [], "diverged")])
    assert path.effective_rank == [5.0, 5.0]  # medians 2 and 8; pooled it would be 5.5
    assert path.isotropy == [0.5, 0.5]
    assert path.head_correlation == [0.25, 0.25]
    assert (path.n, path.failed) == (2, 1)
    assert path.kappa["jacobian"] == [90.0, 90.0]


def test_records_made_under_other_words_are_refused(tiny_run: PlannedRun):
    record = through(replace(tiny_run, experiment="conditioning_training", declaration="0123456789ab"), "epochs", 1)
    for read, experiment in ((training_paths, "conditioning_training"), (premise_lines, "premises")):
        with pytest.raises(
            BadInput, match=f"declaration is '0123456789ab': tiny.seed-3 was made under .* {experiment}"
        ):
            read([record])
