"""How far a shape can be taken apart, what a small cost model predicts, and what was measured on processes."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pandas as pd

from heads_for_depth.findings.parallelism import Measured, Pair, Predicted
from heads_for_depth.parallelism import Assumptions, Layout, Prediction
from heads_for_depth.tables.formatting import NONE, change, in_powers_of_ten, whole
from heads_for_depth.tables.verification import short

NOT_MEASURED = "not measured"
CANNOT = "no such layout"


def ceilings(pairs: Sequence[Pair]) -> pd.DataFrame:
    """One line per row: what bounds tensor and pipeline parallelism, before → after."""
    return pd.DataFrame(
        [
            {
                "row": pair.name,
                "tensor degree": change(str(one.before.tensor_degree), str(one.after.tensor_degree)),
                "stages": change(str(one.before.pipeline_stages), str(one.after.pipeline_stages)),
                "product": change(str(one.before.gpus), str(one.after.gpus)),
                "ceiling": direction(one.gpus),
            }
            for pair in pairs
            for one in [pair.ceilings]
        ]
    )


def direction(factor: Fraction) -> str:
    """In a word, what a reshape does to a ceiling."""
    return "unchanged" if factor == 1 else ("raised" if factor > 1 else "lowered")


def predictions(predicted: Sequence[Predicted], gpus: Sequence[int]) -> pd.DataFrame:
    """One line per row: predicted milliseconds of a training step on so many GPUs, before → after."""
    return pd.DataFrame(
        [
            {"row": one.name} | {f"{count} GPU{'s' if count > 1 else ''}": _pair(one, count) for count in gpus}
            for one in predicted
        ]
    )


def _pair(one: Predicted, gpus: int) -> str:
    return change(_milliseconds(one.before[gpus]), _milliseconds(one.after[gpus]))


def _milliseconds(prediction: Prediction | None) -> str:
    return NONE if prediction is None else f"{1000 * prediction.predicted_seconds:.0f}"


def layouts(predicted: Sequence[Predicted], gpus: int) -> pd.DataFrame:
    """One line per row: the layout predicted to be fastest on so many GPUs, before and after."""
    return pd.DataFrame(
        [
            {
                "row": one.name,
                "before": _layout(one.before[gpus]),
                "after": _layout(one.after[gpus]),
                "predicted speed-up": change(_speed_up(one.before[gpus]), _speed_up(one.after[gpus])),
            }
            for one in predicted
        ]
    )


def _layout(prediction: Prediction | None) -> str:
    return CANNOT if prediction is None else layout_words(prediction.layout)


def layout_words(layout: Layout) -> str:
    """Tensor degree × stages."""
    return f"{layout.tensor_degree} × {layout.pipeline_stages}"


def _speed_up(prediction: Prediction | None) -> str:
    return NONE if prediction is None else f"{prediction.speed_up:.1f}"


def assumptions(values: Assumptions) -> pd.DataFrame:
    """What every prediction on the page rests on."""
    lines = {
        "peak of one GPU (TFLOP/s)": f"{values.peak_flops_per_second / 1e12:g}",
        "share of the peak that is reached": f"{100 * values.utilisation:g} %",
        "latency of one collective (µs)": f"{values.latency_seconds * 1e6:g}",
        "bandwidth inside a node (GB/s)": f"{values.node_bandwidth / 1e9:g}",
        "bandwidth between nodes (GB/s)": f"{values.network_bandwidth / 1e9:g}",
        "GPUs per node": str(values.gpus_per_node),
        "bytes per communicated element": str(values.bytes_per_element),
        "micro-batches of a pipeline": str(values.micro_batches),
        "images or texts per step": whole(values.batch),
    }
    return pd.DataFrame([{"assumption": words, "value": text} for words, text in lines.items()])


def measured(found: Sequence[Measured]) -> pd.DataFrame:
    """One line per shape and degree: agreement, communication, seconds; machine, device and batch where they differ."""
    where = [{"machine": short(one.machine), "device": one.device, "batch": str(one.batch)} for one in found]
    differ = [name for name in (where[0] if where else ()) if len({place[name] for place in where}) > 1]
    rows = [
        {
            **{name: place[name] for name in differ},
            "shape": one.name,
            "degree": str(one.degree),
            "difference": in_powers_of_ten(one.relative_difference),
            "all-reduces": str(one.all_reduces),
            "MB": f"{one.bytes / 1e6:.1f}" + ("" if one.dtype == "float32" else f", {one.dtype}"),
            "seconds": f"{one.seconds:.3f}" + (" ‡" if one.oversubscribed else ""),
            "all-reduce": NONE if one.all_reduce_share is None else f"{100 * one.all_reduce_share:.0f} %",
        }
        for one, place in zip(found, where, strict=True)
    ]
    return pd.DataFrame(rows or [{"shape": NOT_MEASURED}])
