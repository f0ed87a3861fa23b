"""The sentences of the throughput page: what was seen, with its range, and on what."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from heads_for_depth.tables.formatting import whole
from heads_for_depth.tables.throughput import saved
from heads_for_depth.throughput.reading import QUANTITIES, Comparison, Line, Quantity, chosen, comparisons
from heads_for_depth.throughput.subjects import RECOUNTING

NOTHING = "Nothing has been measured into these records yet."
EQUAL = 0.02
"""Shares that differ by less count as equal: timings of one shape scatter by about as much."""


def shown(lines: Sequence[Line]) -> list[Line]:
    """The lines of the machine that measured the most in float32 and eager, a CPU if there is one: the page's own."""
    plain = chosen(lines, lambda line: line.mode == "fp32, eager")
    plain = chosen(plain, lambda line: line.device == "cpu") or plain
    machines = sorted({line.machine for line in plain})
    if not machines:
        return []
    most = max(machines, key=lambda machine: sum(line.machine == machine for line in plain))
    return chosen(plain, lambda line: line.machine == most)


def beside(lines: Sequence[Line], mode: str) -> list[Line]:
    """The lines of the same machine in another mode, or of the machine that has the most in it where that has none."""
    found = chosen(lines, lambda line: line.mode == mode)
    own = {line.machine for line in shown(lines)}
    machines = sorted({line.machine for line in found} & own or {line.machine for line in found})
    most = max(machines, key=lambda machine: sum(line.machine == machine for line in found), default=None)
    return chosen(found, lambda line: line.machine == most)


def glued(lines: Sequence[Line]) -> dict[str, str]:
    """Every sentence and number that the chapters quote."""
    ours = shown(lines)
    compiled = beside(lines, "fp32, compiled")
    return {
        "throughput.machine": ours[0].machine if ours else "no machine",
        "throughput.answer": answer(ours),
        "throughput.recounting": recounting(ours),
        "throughput.memory": memory(ours),
        "throughput.compiled": _compiled(ours, compiled),
        "throughput.busy": _busy(ours),
        "throughput.gpu": _gpu(lines),
        **{f"throughput.{name}": heads_alone(ours, name) for name in ("heads-vit-b", "heads-xcit-m")},
    }


def stated(lines: Sequence[Line]) -> list[Comparison]:
    """The reshapes as they are stated (or assumed), without the shapes that recount instead."""
    return [one for one in comparisons(lines) if one.line.subject != RECOUNTING]


def answer(lines: Sequence[Line]) -> str:
    """Whether time goes with the parameters."""
    found = stated(lines)
    if not found:
        return NOTHING
    parameters = [one.parameters_saved for one in found]
    parts = [_against_parameters(found, quantity) for quantity in QUANTITIES]
    return (
        f"{len(found)} reshapes save {_ends(parameters)} of the parameters. They save {'; '.join(parts)}. Less means "
        f"by more than {100 * EQUAL:g} points. These are medians over rounds on one machine ({lines[0].machine}, "
        "float32, eager): observations, without an interval over machines."
    )


def _against_parameters(found: Sequence[Comparison], quantity: Quantity) -> str:
    pairs = [(one.parameters_saved, ratio) for one in found if (ratio := one.time(quantity)) is not None]
    if not pairs:
        return f"of {_NOUNS[quantity]} nothing that could be measured"
    times = [1 - ratio.median for _, ratio in pairs]
    less = sum(time < parameters - EQUAL for time, (parameters, _) in zip(times, pairs, strict=True))
    return (
        f"{_ends(times)} of {_NOUNS[quantity]} (median {saved(median(times))}), which is less than of the parameters "
        f"in {less} of {len(pairs)}"
    )


_NOUNS: dict[Quantity, str] = {
    "latency": "the latency of one image or text",
    "forward": "the time per item at the best batch",
    "training": "the time of a training step",
}


def _ends(shares: Sequence[float]) -> str:
    return f"{saved(min(shares))} to {saved(max(shares))}"


def _range(lines: Sequence[Line], quantity: Quantity) -> str:
    ratios = [one.time(quantity) for one in stated(lines)]
    times = [1 - ratio.median for ratio in ratios if ratio is not None]
    return _ends(times) if times else "not measured"


def recounting(lines: Sequence[Line]) -> str:
    """What the shapes save that have the published parameters where the stated ones have not."""
    told = []
    for one in comparisons(lines):
        if one.line.subject == RECOUNTING and (ratio := one.time("training")) is not None:
            told.append(
                f"{one.line.title} saves {saved(one.parameters_saved)} of its parameters and "
                f"{saved(1 - ratio.median)} of a training step's time"
            )
    return f"In the shapes that recount, {' and '.join(told)}." if told else NOTHING


def memory(lines: Sequence[Line]) -> str:
    """Peak memory saved in training, beside parameters."""
    found = [(one, share) for one in stated(lines) if (share := one.memory("training")) is not None]
    if not found:
        return NOTHING
    return (
        f"Of a training step's peak memory {len(found)} reshapes save {_ends([1 - share for _, share in found])}; it "
        "holds weights, gradients and two moments, which go with the parameters, and activations, which go with the "
        "depth."
    )


def heads_alone(lines: Sequence[Line], series: str) -> str:
    """What more heads cost at unchanged depth and width: at twice the published count, and at most."""
    found = [one for one in comparisons(lines, "heads") if one.line.series == series]
    if not found:
        return NOTHING
    title, reference = found[0].line.title, found[0].reference
    twice = next((one for one in found if one.line.heads == 2 * reference.heads), None)
    most = max(found, key=lambda one: one.line.heads)
    told = [_heads_at(one) for one in (twice, most) if one is not None]
    hurts = [one.line for one in sorted(found, key=lambda one: one.line.heads) if _slower(one, 1.25)]
    edge = (
        f"the first count whose training step takes a quarter longer is {hurts[0].heads} (head_dim {hurts[0].head_dim})"
        if hurts
        else "none of the measured counts makes a training step a quarter longer"
    )
    return f"{title} ({reference.heads} heads as published): {'; '.join(told)}; {edge}."


def _heads_at(one: Comparison) -> str:
    latency, training = one.time("latency"), one.time("training")
    if latency is None or training is None:
        return f"with {one.line.heads} heads memory runs out"
    times = f"latency is {latency.median:.2f} and a training step {training.median:.2f} times as long"
    return f"with {one.line.heads} heads {times}"


def _slower(one: Comparison, factor: float) -> bool:
    ratio = one.time("training")
    return one.line.heads > one.reference.heads and ratio is not None and ratio.median > factor


def _compiled(eager: Sequence[Line], compiled: Sequence[Line]) -> str:
    """What torch.compile changes; on a machine that measured no eager model, what the reshapes save there."""
    if compiled and compiled[0].machine not in {line.machine for line in eager}:
        return (
            f"Compiled models were measured on another machine ({compiled[0].machine}), before and after in turns as "
            f"above; of a training step's time the reshapes save {_range(compiled, 'training')} there, of the latency "
            f"{_range(compiled, 'latency')}. How much faster compiled models are than eager ones, no machine has "
            "measured."
        )
    by_name = {(line.series, line.subject): line for line in eager}
    gains = []
    for line in chosen(compiled, lambda line: line.kind == "row"):
        mine, plain = line.timings["training"], by_name.get((line.series, line.subject))
        other = plain.timings["training"] if plain else None
        if mine is not None and other is not None:
            gains.append(other.median / mine.median)
    if not gains:
        return "Compiled models have not been measured."
    return (
        f"Compiled, a training step of the {len(gains)} shapes measured runs at {min(gains):.2f} to {max(gains):.2f} "
        "times the speed of the eager one, which was measured in another run; of a training step's time the reshapes "
        f"then save {_range(compiled, 'training')}."
    )


def _busy(lines: Sequence[Line]) -> str:
    busy = sum(line.busy for line in lines)
    if not lines:
        return NOTHING
    return (
        "Nothing else ran on the machine when the measurements began."
        if not busy
        else f"Something else ran on the machine when {whole(busy)} of {whole(len(lines))} measurements began."
    )


def _gpu(lines: Sequence[Line]) -> str:
    found = chosen(lines, lambda line: line.device == "cuda")
    if not found:
        return "No GPU has been measured by this report; timm's published numbers for the baselines stand in its place."
    names = ", ".join(sorted({line.machine for line in found}))
    return f"Measured on {names}: {whole(len(found))} shapes and modes."
