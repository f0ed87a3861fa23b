"""Shared inputs: one thread, a transformer that trains in a second, and a planned run of it."""

from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

import pytest
import torch

from heads_for_depth.experiments import PlannedRun
from heads_for_depth.recipes import Recipe
from heads_for_depth.records import SCHEMA, Record
from heads_for_depth.shapes import Shape
from heads_for_depth.sweeps import workers


class InlinePool(Executor):
    """Runs each submitted call at once, in this process."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """A future that is done already."""
        future: Future[Any] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> Iterator[None]:
    """What a worker process has; sums come out in the same order on every machine."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture
def tiny_shape() -> Shape:
    """A ViT with 16 patches and a class token at 28 pixels."""
    return Shape(
        family="vit", depth=(2,), d_model=(16,), heads=(4,), mlp_width=(32,),
        image_size=28, patch_size=7, in_chans=1, classes=10,
    )  # fmt: skip


@pytest.fixture
def tiny_run(tiny_shape: Shape) -> PlannedRun:
    """Eight optimizer steps of the tiny ViT, as a run that enters the table of vision rows."""
    block = 4 * 16 + (16 * 48 + 48) + (16 * 16 + 16) + (16 * 32 + 32) + (32 * 16 + 16)
    ends = (49 * 16 + 16) + 16 + 17 * 16 + 2 * 16 + (16 * 10 + 10)
    recipe = Recipe(train_images=256, epochs=2, batch_size=64, learning_rate=4e-3, evaluation_images=200)
    return PlannedRun(
        experiment="vision_rows", run_id="tiny.seed-3", kind="train", profile="smoke", row="vit-own",
        shape=tiny_shape, parameters=2 * block + ends, seed=3, recipe=recipe,
    )  # fmt: skip


@pytest.fixture
def record_of() -> Callable[..., Record]:
    """Writes down what a run could have come to, without running it."""

    def made_up(run: PlannedRun, status: str = "ok", accuracy: float = 0.5) -> Record:
        return {
            "schema": SCHEMA, "run_id": run.run_id, "experiment": run.experiment, "profile": run.profile,
            "status": status, "plan": run.as_dict(), "parameters": run.parameters,
            "metrics": {"validation_accuracy": accuracy} if status == "ok" else {},
            "kappa": {}, "seconds": {"total": 1.5}, "provenance": {"commit": "unknown"},
        }  # fmt: skip

    return made_up


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sweep carries its runs out in this process, one after the other."""
    monkeypatch.setattr(workers, "ProcessPoolExecutor", lambda *_, **__: InlinePool())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The only skip in this suite: tests marked `cuda` on a machine without a CUDA device."""
    for item in items:
        if item.get_closest_marker("cuda") and not torch.cuda.is_available():
            item.add_marker(pytest.mark.skip(reason="no CUDA device"))
