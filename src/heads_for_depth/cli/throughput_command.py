"""`heads-for-depth throughput`: what a shape costs in time and memory on this machine, before and after."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from heads_for_depth.errors import BadInput
from heads_for_depth.paths import RESULTS

DIGITS = 9
"""Of a whole number that is asked for."""
Modes = Literal["eager", "compiled", "both"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(name="throughput")(throughput)


def throughput(
    row: Annotated[list[str] | None, typer.Option(help="A row by name; repeat for more. [default: all]")] = None,
    model: Annotated[
        str | None, typer.Option(help="Instead of rows: a timm model, against itself with --depth and --heads.")
    ] = None,
    depth: Annotated[str | None, typer.Option(help="With --model: blocks, per stage: 1,1,5,1.")] = None,
    heads: Annotated[str | None, typer.Option(help="With --model: heads of the first stage.")] = None,
    mode: Annotated[Modes, typer.Option(help="Whether torch.compile is used.")] = "eager",
    precision: Annotated[str, typer.Option(help="fp32, or bf16 by autocast.")] = "fp32",
    device: Annotated[str, typer.Option(help="cpu or cuda.")] = "cpu",
    profile: Annotated[str, typer.Option(help="Batch sizes and durations: smoke, cpu or gpu.")] = "cpu",
    batch_sizes: Annotated[
        str | None, typer.Option(help="With --model: batch sizes of the forward pass, such as 1,4,16.")
    ] = None,
    results: Annotated[Path, typer.Option(help="Folder of the run records.")] = RESULTS,
) -> None:
    """Measure latency, throughput, training step and memory of full-size shapes, taking turns; medians and spread.

    Rows become records, one per shape, beside those of other machines; what this machine has measured is not measured
    again. A model of your own is measured and printed only. Let nothing else run meanwhile: the load is recorded.
    """
    if model is None:
        for name, value in (("depth", depth), ("heads", heads), ("batch-sizes", batch_sizes)):
            if value is not None:
                raise BadInput(name, value, "belongs to --model NAME, which measures a model of your own")
        _rows(row or [], _modes(mode, precision, device), profile, results)
    elif row:
        raise BadInput("row", ", ".join(row), "name rows or a model, not both")
    else:
        _model(model, depth, heads, batch_sizes, _modes(mode, precision, device), profile)


def _modes(mode: Modes, precision: str, device: str) -> list[Any]:
    from heads_for_depth.precision import check_precision
    from heads_for_depth.provenance import check_device
    from heads_for_depth.throughput.modes import Mode, check_mode  # imports torch and timm: seconds

    check_precision(precision, check_device(device))
    compiled = {"eager": (False,), "compiled": (True,), "both": (False, True)}[mode]
    modes = [Mode(device=device, precision=precision, compiled=value) for value in compiled]  # type: ignore[arg-type]
    for one in modes:
        check_mode(one)
    return modes


def _rows(names: list[str], modes: list[Any], profile: str, results: Path) -> None:
    from heads_for_depth.tables.throughput import report
    from heads_for_depth.throughput.reading import chosen, lines
    from heads_for_depth.throughput.running import measure_missing
    from heads_for_depth.throughput.subjects import series_named

    wanted = series_named(profile, names)
    lines(results, (profile,))  # what is there can be read, before an hour is spent beside it
    measured = measure_missing(wanted, modes, profile, results)
    series = {one.name for one in wanted}
    words = {(one.hardware, one.precision, one.compiled) for one in modes}
    shown = chosen(
        lines(results, (profile,)),
        lambda line: line.series in series and (line.hardware, line.precision, line.compiled) in words,
    )
    typer.echo(report(shown))
    typer.echo(f"\nSeries measured now: {measured}; records: {results / profile / 'throughput'}")


def _model(
    name: str, depth: str | None, heads: str | None, batch_sizes: str | None, modes: list[Any], profile: str
) -> None:
    from heads_for_depth.tables.throughput import report
    from heads_for_depth.throughput.own_model import measured_model

    sizes = None if batch_sizes is None else whole_numbers("batch-sizes", batch_sizes)
    stages = None if depth is None else whole_numbers("depth", depth)
    count = None if heads is None else whole_numbers("heads", heads)
    if count is not None and len(count) != 1:
        raise BadInput("heads", heads, "give one number, the heads of the first stage; other stages keep their ratio")
    typer.echo(report(measured_model(name, stages, count[0] if count else None, sizes, modes, profile)))


def whole_numbers(field: str, text: str) -> tuple[int, ...]:
    """Positive whole numbers separated by commas."""
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= DIGITS and int(part) > 0 for part in parts):
        remedy = f"give whole numbers of at least 1 and at most {DIGITS} digits, separated by commas, such as 1,4,16"
        raise BadInput(field, text if len(text) <= 60 else text[:60] + "…", remedy)
    return tuple(map(int, parts))
