"""What is shared out over processes, and the record of each degree."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from heads_for_depth import records
from heads_for_depth.errors import BadInput
from heads_for_depth.experiments import ARMS, VISION_ROWS, Arm, reduced_shape
from heads_for_depth.parallelism.constraints import degrees
from heads_for_depth.parallelism.measuring import Request, measure
from heads_for_depth.parallelism.work import tokens_by_stage
from heads_for_depth.provenance import device_name, machine, machine_slug, slug, stamp
from heads_for_depth.recount import Countable, LanguageShape, Variant, exact_count
from heads_for_depth.recount.language import GPT2_POSITIONS, GPT2_VOCAB_SIZE
from heads_for_depth.shapes import Shape

EXPERIMENT = "tensor_parallel"
GPT2 = {"before": (12, 12), "after": (4, 16)}
"""Depth and heads of GPT-2 on both ends of its row of LIT-527."""
DEPTH_DIVISOR, WIDTH_DIVISOR = 4, 8
"""Of the reduced GPT-2, which keeps the published heads."""
SECONDS = ("forward_seconds", "all_reduce_seconds")
"""Measured seconds, which a record holds apart from its other numbers."""
ROWS = ("vit-own", "gpt2")
"""Rows that the report shares out: a model of images and one of text."""
DEGREES = (1, 2, 4)
BATCH, TOKENS = 4, 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Subject:
    """What is measured."""

    row: str
    arm: Arm
    reduced: bool
    shape: Countable

    @property
    def name(self) -> str:
        """Its part of a run id."""
        return f"{self.row}.{self.arm}" + (".reduced" if self.reduced else "")


def subject_of(row: str, arm: str, reduced: bool) -> Subject:
    """One end of a row. Raises BadInput for an unknown row or arm."""
    end = _arm(arm)
    return Subject(row=row, arm=end, reduced=reduced, shape=_shape(row, end, reduced))


def measure_when(when: str, profile: str, device: str, results: Path) -> int:
    """Measure what a notebook asks for and this machine has not, and say how many degrees that were.

    See `records.asks_to_measure` for `when`. A GPU per process is needed on CUDA; degrees beyond are left out.
    """
    if profile == "full" or not records.asks_to_measure(when, results, profile, EXPERIMENT):
        return 0
    recorded = records.recorded_ids(results, profile, EXPERIMENT)
    measured = 0
    for subject, request in planned(profile, device):
        name = run_id(subject, request)
        if name not in recorded:
            started = time.perf_counter()
            found = measure(**{field.name: getattr(request, field.name) for field in fields(request)})
            records.write(record_of(name, profile, subject, found, time.perf_counter() - started), results)
            measured += 1
    return measured


def planned(profile: str, device: str) -> Iterator[tuple[Subject, Request]]:
    """Both ends of the rows at the degrees that they and the device admit; smoke takes one small model."""
    most = torch.cuda.device_count() if device == "cuda" else DEGREES[-1]
    smoke = profile == "smoke"
    for row in ROWS[:1] if smoke else ROWS:
        for arm in ARMS[:1] if smoke else ARMS:
            subject = subject_of(row, arm, reduced=smoke)
            tokens = TOKENS if isinstance(subject.shape, LanguageShape) else None
            for degree in degrees(subject.shape, min(most, 2) if smoke else most):
                if degree in DEGREES:
                    yield (
                        subject,
                        Request(shape=subject.shape, degree=degree, batch=BATCH, tokens=tokens, device=device),
                    )


def run_id(subject: Subject, request: Request) -> str:
    """Shape, degree, precision and where it is computed: another machine's record lies beside this one's."""
    place = f"cuda.{slug(device_name('cuda'))}" if request.device == "cuda" else request.device
    (tokens,) = tokens_by_stage(request.shape, request.tokens)
    size = f"batch-{request.batch}.tokens-{tokens}"
    parts = (subject.name, f"degree-{request.degree}", size, request.dtype, place, machine_slug(machine()))
    return ".".join(parts)


def record_of(
    name: str, profile: str, subject: Subject, measured: dict[str, Any], total_seconds: float
) -> records.Record:
    """The record of one degree; `total_seconds` include the start of its processes."""
    metrics = {key: value for key, value in measured.items() if key not in ("status", *SECONDS)}
    plan = {"kind": "parallelism", "row": subject.row, "arm": subject.arm, "reduced": subject.reduced}
    asked = ("degree", "batch", "tokens", "repeats", "dtype", "seed")
    return {
        "schema": records.SCHEMA,
        "run_id": name,
        "experiment": EXPERIMENT,
        "profile": profile,
        "status": measured["status"],
        "plan": plan | {"shape": subject.shape.as_dict()} | {key: measured[key] for key in asked},
        "parameters": exact_count(Variant(shape=subject.shape)),
        "metrics": metrics,
        "kappa": {},
        "seconds": {"total": total_seconds} | {key: measured[key] for key in SECONDS},
        "provenance": stamp(measured["device"], "transformers") | {"threads": measured["threads"]},
    }


def _arm(name: str) -> Arm:
    for arm in ARMS:
        if arm == name:
            return arm
    raise BadInput("arm", name, f"use one of {', '.join(ARMS)}")


def _shape(row: str, arm: Arm, reduced: bool) -> Shape | LanguageShape:
    if row == "gpt2":
        return _gpt2(arm, reduced)
    known = next((one for one in VISION_ROWS if one.name == row), None)
    if known is None:
        raise BadInput("row", row, f"use one of {', '.join(one.name for one in VISION_ROWS)}, gpt2")
    if reduced:
        return replace(reduced_shape(known, arm, arm, "keep-heads"), in_chans=3)
    return known.before if arm == "before" else known.after


def _gpt2(arm: Arm, reduced: bool) -> LanguageShape:
    """GPT-2 small on one end of its row; reduced, a model of 64 positions that runs in a moment."""
    depth, heads = GPT2[arm]
    d_model = 768 // (WIDTH_DIVISOR if reduced else 1)
    return LanguageShape(
        family="gpt2", depth=(depth // (DEPTH_DIVISOR if reduced else 1),), d_model=(d_model,), heads=(heads,),
        mlp_width=(4 * d_model,),
        vocab_size=512 if reduced else GPT2_VOCAB_SIZE, positions=64 if reduced else GPT2_POSITIONS,
    )  # fmt: skip
