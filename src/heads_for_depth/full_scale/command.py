"""The command line of the full-scale runs: bad input is one sentence, from one process, and exit code 2."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated

import typer

from heads_for_depth import paths
from heads_for_depth.errors import BadInput
from heads_for_depth.full_scale.execution import OutOfMemory, execute
from heads_for_depth.full_scale.image_folder import read_image_folder
from heads_for_depth.full_scale.jobs import Job, check_hardware, plan_run
from heads_for_depth.full_scale.processes import Processes, join
from heads_for_depth.full_scale.recipe import FullRecipe

Asked = Callable[[Processes], Job]
"""What a command line asks for: the job, once every process has checked it."""
FAILED, BAD_INPUT, INTERRUPTED = 1, 2, 130

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False)


@app.command()
def full_scale(
    row: Annotated[str, typer.Option(help="Row of the vision table, e.g. xcit-m.")],
    depth_arm: Annotated[str, typer.Option(help="Depth as before or after the reshape.")],
    heads_arm: Annotated[str, typer.Option(help="Heads as before or after the reshape.")],
    data: Annotated[Path, typer.Option(help="Folder with train/<class>/ and val/<class>/.")],
    seed: Annotated[int, typer.Option(help="Initial weights, order and augmentation.")] = 0,
    results: Annotated[Path, typer.Option(help="Folder of the run records.")] = paths.RESULTS,
    checkpoints: Annotated[Path, typer.Option(help="Folder of the checkpoints.")] = Path("checkpoints"),
    device: Annotated[str, typer.Option(help="cuda or cpu.")] = "cuda",
    precision: Annotated[str, typer.Option(help="fp32, or bf16 under autocast.")] = FullRecipe().precision,
    epochs: Annotated[int, typer.Option(help="Passes over the training images.")] = FullRecipe().epochs,
    batch_size: Annotated[int, typer.Option(help="Images per step, all processes together.")] = FullRecipe().batch_size,
    image_size: Annotated[int | None, typer.Option(help="Side in pixels; default: the shape's own.")] = None,
    workers: Annotated[int, typer.Option(help="Loader processes per training process.", min=0)] = 8,
    reduced: Annotated[bool, typer.Option("--reduced", help="Rehearse with the reduced shape (ten classes).")] = False,
) -> Asked:
    """Train one arm of one row on ImageNet-1k, or continue it from its last finished epoch, and write its record.

    Start it by torchrun, one process per GPU; without torchrun it is one process.
    """

    def job(processes: Processes) -> Job:
        run = plan_run(row, depth_arm, heads_arm, seed, reduced=reduced, image_size=image_size)
        recipe = FullRecipe(precision=precision, epochs=epochs, batch_size=batch_size)
        return Job(
            run=run, recipe=recipe, data=read_image_folder(data, run.shape.classes), results=results,
            checkpoints=checkpoints, device=check_hardware(device, recipe, processes), workers=workers,
            world_size=processes.world_size,
        )  # fmt: skip

    return job


def main(arguments: list[str] | None = None) -> int:
    """Run the command; returns 0 done, 1 diverged or out of memory (and recorded), 2 bad input, 130 interrupted."""
    try:
        processes = join()
    except BadInput as error:
        print(f"full_scale: {error}", file=sys.stderr)
        return BAD_INPUT
    try:
        code = _outcome(arguments, processes)
    except OutOfMemory:
        processes.say("memory ran out; use more GPUs or a smaller --batch-size")
        return processes.abandon(FAILED)
    if code == INTERRUPTED:
        processes.say("interrupted; the same command continues after the last finished epoch")
        return processes.abandon(code)
    processes.leave()
    return code


def _outcome(arguments: list[str] | None, processes: Processes) -> int:
    """The exit code; what a user must read has been said."""
    try:
        asked: Asked | int | None = app(args=arguments, standalone_mode=False)
        return _carry_out(asked, processes) if callable(asked) else asked or 0
    except BadInput as error:
        processes.say(str(error))
        return BAD_INPUT
    except typer.TyperException as error:
        processes.say(error.format_message())
        return BAD_INPUT
    except (KeyboardInterrupt, typer.Abort):
        return INTERRUPTED


def _carry_out(asked: Asked, processes: Processes) -> int:
    job = processes.agree(lambda: asked(processes))
    record = execute(job, processes)
    processes.say(f"{record['status']}, recorded in {job.record}")
    return 0 if record["status"] == "ok" else FAILED
