"""A sweep of one run of many short epochs, as a program: python long_run.py RESULTS. Killed and continued by tests."""

import sys
from pathlib import Path

from heads_for_depth.experiments import PlannedRun
from heads_for_depth.models import count_parameters
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Shape
from heads_for_depth.sweeps import run_all


def long_run(epochs: int = 6) -> PlannedRun:
    """An XCiT, because its batch norms have buffers that a checkpoint must hold."""
    shape = Shape(
        family="xcit", depth=(1,), d_model=(16,), heads=(4,), mlp_width=(32,),
        image_size=32, patch_size=8, in_chans=1, classes=10,
    )  # fmt: skip
    recipe = Recipe(train_images=256, epochs=epochs, batch_size=64, learning_rate=4e-3, evaluation_images=200)
    return PlannedRun(
        experiment="vision_rows", run_id="long.seed-3", kind="train", profile="smoke", row="xcit-m",
        shape=shape, parameters=count_parameters(shape), seed=3, recipe=recipe,
    )  # fmt: skip


if __name__ == "__main__":
    run_all([long_run()], Path(sys.argv[1]), workers=1)
