"""The literature as tables and as values for the text, in the digits in which it was printed."""

from collections.abc import Iterable
from decimal import Decimal

import pandas as pd

from heads_for_depth.claims import Claim, Printed, load_table
from heads_for_depth.tables.formatting import MISSING, change, signed, stages


def cell_values(name: str) -> dict[str, str]:
    """Every cell of a literature table, keyed `<table>.<row>.<column>`; an empty cell reads "not in the record"."""
    table = load_table(name)
    return {
        f"{name}.{row}.{column}": text or MISSING for row, cells in table.iterrows() for column, text in cells.items()
    }


def rows_table(claims: Iterable[Claim]) -> pd.DataFrame:
    """The before → after rows of LIT-527."""
    return pd.DataFrame(
        [
            {
                "row": claim.title,
                "status": claim.status,
                "depth": change(stages(claim.depth_before), stages(claim.depth_after)),
                "heads": change(stages(claim.heads_before), stages(claim.heads_after)),
                "MLP width": change(stages(claim.mlp_width_before), stages(claim.mlp_width_after)),
                "parameters (M)": change(_text(claim.params_before_m), _text(claim.params_after_m)),
                "score": change(_text(claim.score_before), _text(claim.score_after)),
                "measured by": claim.score_name,
            }
            for claim in claims
        ]
    )


def score_gains(claims: Iterable[Claim]) -> dict[str, str]:
    """The claimed gain of each row with both scores, keyed `<row>.gain`, with the decimals of the scores."""
    both = {c.row: (c.score_before, c.score_after) for c in claims}
    return {
        f"{row}.gain": _difference(after.text, before.text)
        for row, (before, after) in both.items()
        if before is not None and after is not None
    }


def head_widths(claims: Iterable[Claim]) -> dict[str, str]:
    """d_model / heads and MLP width / heads after the change, for rows without stages that hold these numbers.

    Keyed `<row>.head_dim_after` and `<row>.mlp_per_head_after`.
    """
    values: dict[str, str] = {}
    for claim in claims:
        heads = claim.heads_after[0] if claim.heads_after and len(claim.heads_after) == 1 else None
        for key, widths in (("head_dim_after", claim.d_model), ("mlp_per_head_after", claim.mlp_width_after)):
            if heads is not None and widths is not None and widths[0] % heads == 0:
                values[f"{claim.row}.{key}"] = str(widths[0] // heads)
    return values


def baselines_table() -> pd.DataFrame:
    """The paper's baselines beside the public checkpoints of the same models."""
    table = load_table("public_baselines").reset_index(drop=True)
    return pd.DataFrame(
        {
            "model": table["model"],
            "paper's baseline (%)": table["top1_paper"],
            "public checkpoint (%)": table["top1_public"].replace("", MISSING),
            "checkpoint": table["checkpoint"].replace("", MISSING),
            "public − paper": [_gap(cells["top1_public"], cells["top1_paper"]) for _, cells in table.iterrows()],
        }
    )


def baseline_gaps() -> dict[str, str]:
    """Public checkpoint minus the paper's baseline in points, keyed `<row>.gap`."""
    table = load_table("public_baselines")
    return {f"{row}.gap": _gap(cells["top1_public"], cells["top1_paper"]) for row, cells in table.iterrows()}


def drift_table() -> pd.DataFrame:
    """The same authors' baselines across their papers."""
    table = load_table("baseline_drift").reset_index(drop=True)
    return pd.DataFrame(
        {
            "model": table["model"],
            "paper": table["paper"],
            "baseline (%)": table["top1"].where(table["spread"] == "", table["top1"] + " ± " + table["spread"]),
            "read in": table["secondary"].map({"yes": "a note about the paper", "no": "the record"}),
        }
    )


def evidence_table() -> pd.DataFrame:
    """The works around the claim: what each measured and which way it points."""
    works, numbers = load_table("evidence"), load_table("evidence_numbers")
    return pd.DataFrame(
        {
            "work": [_work(cells) for _, cells in works.iterrows()],
            "numbers": [_numbers(numbers[numbers["work"] == row]) for row in works.index],
            "bearing on the claim": list(works["bearing"]),
            "direction": list(works["direction"]),
        }
    )


def numbers_table(name: str) -> pd.DataFrame:
    """One of the tables of single numbers (sota190, sota109)."""
    table = load_table(name).reset_index(drop=True)
    return pd.DataFrame(
        {
            "work": table["work"],
            "configuration": table["configuration"],
            "quantity": table["quantity"],
            "value": [_value(cells) for _, cells in table.iterrows()],
        }
    )


def _text(printed: Printed | None) -> str:
    return MISSING if printed is None else printed.text


def _gap(public: str, paper: str) -> str:
    return _difference(public, paper) if public and paper else MISSING


def _difference(minuend: str, subtrahend: str) -> str:
    """The difference with the decimals of the coarser number."""
    numbers = Decimal(minuend), Decimal(subtrahend)
    decimals = min(-int(number.as_tuple().exponent) for number in numbers)
    return signed(float(numbers[0] - numbers[1]), decimals)


def _work(cells: "pd.Series[str]") -> str:
    identifier = f" ({cells['identifier']})" if cells["identifier"] else ""
    return f"{cells['work']}{identifier}{' †' if cells['secondary'] == 'yes' else ''}"


def _numbers(lines: pd.DataFrame) -> str:
    """All numbers of one work, grouped by configuration."""
    groups: dict[str, list[str]] = {}
    for _, cells in lines.iterrows():
        groups.setdefault(cells["configuration"], []).append(f"{cells['quantity']} {_value(cells)}")
    return "; ".join(f"{configuration}: {', '.join(values)}" for configuration, values in groups.items())


def _value(cells: "pd.Series[str]") -> str:
    return " ".join(part for part in (cells["qualifier"], cells["value"], cells["unit"]) if part)
