"""Condition numbers: how many per second, and how far from the exact ones."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from heads_for_depth.benchmark.files import Benchmark
from heads_for_depth.benchmark.reading import SpectraLine, spectra_lines
from heads_for_depth.tables.costs import nothing, with_extremes
from heads_for_depth.tables.formatting import in_powers_of_ten, percent
from heads_for_depth.tables.vision import kappa


def speed(record: Benchmark | None) -> pd.DataFrame:
    """One line per size of matrix and number of threads."""
    lines = spectra_lines(record)
    return pd.DataFrame([_speed(line) for line in lines]) if lines else nothing()


def _speed(line: SpectraLine) -> dict[str, str]:
    return {
        "matrices": f"{line.rows} × {line.columns}",
        "threads": str(line.threads),
        "κ per second": f"{line.matrices_per_second:,.0f}",
        "report / loop": with_extremes(line.speed_up),
        "QR, of the loop's time": percent(line.qr_share, 0),
        "SVD of the factor, of the loop's time": percent(line.svd_share, 0),
    }


def errors(record: Benchmark | None) -> pd.DataFrame:
    """One line per size and κ: the largest relative errors and their bound."""
    part = record["parts"].get("spectra") if record else None
    return pd.DataFrame([_errors(line) for line in part["errors"]]) if part else nothing()


def _errors(line: Mapping[str, Any]) -> dict[str, str]:
    found = line["relative_errors"]
    infinite = line["reported_infinite"]
    return {
        "matrices": f"{line['rows']} × {line['columns']}",
        "κ": _power(line["kappa"]),
        "bound": in_powers_of_ten(line["bound"]),
        "report": in_powers_of_ten(found["engine, exact entries"]["largest"]),
        "loop": in_powers_of_ten(found["loop, exact entries"]["largest"]),
        "report, rounded entries": in_powers_of_ten(found["engine, rounded entries"]["largest"]),
        "written as": "number" if not infinite else "inf" if infinite == line["matrices"] else "either",
    }


def _power(number: int) -> str:
    return kappa(float(number)) if number < 1e4 else in_powers_of_ten(float(number), 0)
