"""The loop that a user would write: eager timm, torchvision transforms on PIL images, torch's DataLoader, AdamW.

It is meant to be good user code, not a straw man: the same shape, batch, optimizer, clipping and schedule as the
report's engine, pixels in memory, worker processes that stay alive between epochs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import torch
from PIL import Image
from timm.optim import param_groups_weight_decay  # type: ignore[attr-defined]
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset
from torchvision import transforms

from heads_for_depth.benchmark.memory import peak_resident_bytes
from heads_for_depth.benchmark.settings import endless_recipe
from heads_for_depth.benchmark.timing import Window, images_per_second
from heads_for_depth.datasets import PIXEL_MEAN, PIXEL_STD, Split, fashion_mnist
from heads_for_depth.models import build
from heads_for_depth.recipes import Recipe
from heads_for_depth.shapes import Shape
from heads_for_depth.training import learning_rate


class FashionImages(Dataset[tuple[Tensor, int]]):
    """Fashion-MNIST as torchvision's own class serves it: one PIL image at a time, then the transform."""

    def __init__(self, split: Split, transform: Any) -> None:
        self.images, self.labels, self.transform = split.images.numpy(), split.labels.tolist(), transform

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(Image.fromarray(self.images[index])), self.labels[index]


def training_transform(image_size: int) -> Any:
    """Shifts of up to two pixels and flips, padded to the image size of the shape."""
    return transforms.Compose(
        [transforms.RandomCrop(28, padding=2), transforms.RandomHorizontalFlip(), evaluation_transform(image_size)]
    )


def evaluation_transform(image_size: int) -> Any:
    """Padded to the image size of the shape, and normalized."""
    padding = [transforms.Pad((image_size - 28) // 2)] if image_size > 28 else []
    return transforms.Compose([*padding, transforms.ToTensor(), transforms.Normalize((PIXEL_MEAN,), (PIXEL_STD,))])


class PlainLoop:
    """Model, optimizer, schedule and loader of one training run."""

    def __init__(self, shape: Shape, recipe: Recipe, seed: int, loader_processes: int) -> None:
        torch.manual_seed(seed)
        self.model, self.recipe, self.image_size = build(shape), recipe, shape.image_size
        listed: Callable[[], set[str]] = getattr(self.model, "no_weight_decay", set)
        groups = param_groups_weight_decay(self.model, recipe.weight_decay, no_weight_decay_list=listed())
        peak = recipe.learning_rate or 0.0
        self.optimizer = torch.optim.AdamW(groups, lr=peak, betas=recipe.betas)
        self.schedule = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda step: learning_rate(recipe, step) / peak
        )
        self.loader = DataLoader(
            FashionImages(fashion_mnist()["train"].first(recipe.train_images), training_transform(shape.image_size)),
            batch_size=recipe.batch_size,
            shuffle=True,
            drop_last=True,
            num_workers=loader_processes,
            persistent_workers=loader_processes > 0,
        )

    def steps(self) -> Iterator[int]:
        """One optimizer step at a time, one pass over the training images; how many images the step took."""
        self.model.train()
        for images, labels in self.loader:
            self.optimizer.zero_grad()
            loss = functional.cross_entropy(self.model(images), labels)
            loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.recipe.clip_norm)
            self.optimizer.step()
            self.schedule.step()
            yield len(labels)

    @torch.no_grad()
    def accuracy(self, split: Split) -> float:
        """Share of right answers over a split."""
        self.model.eval()
        loader = DataLoader(FashionImages(split, evaluation_transform(self.image_size)), batch_size=500)
        return sum(int((self.model(x).argmax(dim=1) == y).sum()) for x, y in loader) / len(split)


@lru_cache(maxsize=2)
def _endless_steps(shape: Shape, loader_processes: int) -> Iterator[int]:
    """Epoch after epoch; kept by the process between its windows, for both numbers of loader processes."""
    loop = PlainLoop(shape, endless_recipe(len(fashion_mnist()["train"])), 0, loader_processes)
    return _epochs(loop)


def _epochs(loop: PlainLoop) -> Iterator[int]:
    while True:
        yield from loop.steps()


def plain_window(shape: Shape, loader_processes: int, threads: int, window: Window) -> dict[str, float]:
    """Throughput of the plain loop in this process, which has `threads` of torch's threads, and its peak memory."""
    torch.set_num_threads(threads)
    speed = images_per_second(_endless_steps(shape, loader_processes), window)
    return {"images_per_second": speed, "peak_resident_bytes": peak_resident_bytes()}


def train_plainly(shape: Shape, recipe: Recipe, seed: int, loader_processes: int, threads: int) -> dict[str, float]:
    """Train one seed to the end: validation accuracy in [0, 1], and seconds of everything but the imports."""
    torch.set_num_threads(threads)
    started = time.perf_counter()
    loop = PlainLoop(shape, recipe, seed, loader_processes)
    for _ in range(recipe.epochs):
        for _ in loop.steps():
            pass
    accuracy = loop.accuracy(fashion_mnist()["validation"].first(recipe.evaluation_images))
    return {"accuracy": accuracy, "seconds": time.perf_counter() - started}
