"""Fashion-MNIST: the published bytes, fixed disjoint splits, and augmentation that only moves pixels."""

import gzip
import shutil
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from heads_for_depth import paths
from heads_for_depth.datasets import (
    MD5,
    PIXEL_MEAN,
    PIXEL_STD,
    Split,
    as_input,
    augment,
    epoch_order,
    fashion_mnist,
)
from heads_for_depth.errors import BadInput


@pytest.fixture
def copied_data(tmp_path: Path) -> Path:
    """A folder of its own with the four files."""
    for name in MD5:
        shutil.copy(paths.FASHION_MNIST / name, tmp_path)
    return tmp_path


def sorted_examples(images: Tensor, labels: Tensor) -> list[bytes]:
    """Every example as its 784 pixels and its label, in one canonical order."""
    pairs = zip(images.numpy(), labels.tolist(), strict=True)
    return sorted(image.tobytes() + bytes([label]) for image, label in pairs)


def test_the_splits_have_their_declared_sizes_and_ten_labels():
    splits = fashion_mnist()
    sizes = {name: len(split) for name, split in splits.items()}
    assert sizes == {"train": 55_000, "validation": 5_000, "test": 10_000}
    for split in splits.values():
        assert split.images.shape == (len(split), 28, 28)
        assert split.images.dtype == torch.uint8
        assert sorted(split.labels.unique().tolist()) == list(range(10))


def test_train_and_validation_share_the_training_files_out_without_overlap(tmp_path: Path):
    """torchvision reads the same bytes; together the two splits are its 60,000 training examples, each once."""
    from torchvision.datasets import FashionMNIST  # type: ignore[import-untyped,unused-ignore]

    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    for name in MD5:
        (raw / name.removesuffix(".gz")).write_bytes(gzip.decompress((paths.FASHION_MNIST / name).read_bytes()))
    splits = fashion_mnist()
    train = FashionMNIST(tmp_path, train=True, download=False)
    ours = [torch.cat([getattr(splits[s], part) for s in ("train", "validation")]) for part in ("images", "labels")]
    assert sorted_examples(*ours) == sorted_examples(train.data, train.targets)
    test = FashionMNIST(tmp_path, train=False, download=False)
    assert torch.equal(splits["test"].images, test.data)
    assert torch.equal(splits["test"].labels, test.targets)


def test_the_published_checksums_are_torchvisions():
    from torchvision.datasets import FashionMNIST

    assert dict(FashionMNIST.resources) == MD5


def test_pixel_mean_and_deviation_are_those_of_the_training_files():
    splits = fashion_mnist()
    pixels = torch.cat([splits["train"].images, splits["validation"].images]).double() / 255
    assert float(pixels.mean()) == pytest.approx(PIXEL_MEAN, abs=5e-5)
    assert float(pixels.std()) == pytest.approx(PIXEL_STD, abs=5e-5)


@pytest.mark.parametrize("name", sorted(MD5))
def test_one_changed_byte_is_refused_with_the_file_and_the_remedy(copied_data: Path, name: str):
    packed = bytearray((copied_data / name).read_bytes())
    packed[len(packed) // 2] ^= 1
    (copied_data / name).write_bytes(packed)
    with pytest.raises(BadInput, match=rf"data file is .*{name}.*does not have MD5 {MD5[name]}; restore it"):
        fashion_mnist(copied_data)


def test_a_truncated_file_is_refused(copied_data: Path):
    path = copied_data / "t10k-images-idx3-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(BadInput, match=r"t10k-images.*does not have MD5"):
        fashion_mnist(copied_data)


def test_a_missing_file_is_named_with_how_to_get_it_back(copied_data: Path):
    (copied_data / "train-labels-idx1-ubyte.gz").unlink()
    with pytest.raises(BadInput, match=r"train-labels-idx1-ubyte.gz.*is missing; restore it with `git checkout"):
        fashion_mnist(copied_data)


def test_a_copy_of_the_files_yields_the_same_splits(copied_data: Path):
    for name, split in fashion_mnist(copied_data).items():
        assert torch.equal(split.images, fashion_mnist()[name].images)
        assert torch.equal(split.labels, fashion_mnist()[name].labels)


def test_first_takes_a_prefix_and_refuses_more_than_there_is():
    split = Split(images=torch.arange(12, dtype=torch.uint8).reshape(3, 2, 2), labels=torch.tensor([7, 8, 9]))
    assert split.first(2).labels.tolist() == [7, 8]
    assert split.first(2).images.flatten().tolist() == list(range(8))
    with pytest.raises(BadInput, match=r"images is 4: the split has 3"):
        split.first(4)


def marked_images(count: int) -> Tensor:
    """Images in which every pixel has its own value modulo 256, so that a wrong move shows."""
    return (torch.arange(count * 28 * 28) * 37 % 251).reshape(count, 28, 28).to(torch.uint8)


def augmented_one_by_one(images: Tensor, seed: int, shift: int) -> Tensor:
    """Pad, crop and mirror each image alone, with the draws that the batch makes: offsets first, then mirrors."""
    generator = torch.Generator().manual_seed(seed)
    offsets = torch.randint(0, 2 * shift + 1, (len(images), 2), generator=generator).tolist()
    mirrors = (torch.rand(len(images), generator=generator) < 0.5).tolist()
    moved = []
    for image, (top, left), mirror in zip(images, offsets, mirrors, strict=True):
        crop = functional.pad(image, (shift, shift, shift, shift))[top : top + 28, left : left + 28]
        moved.append(crop.flip(1) if mirror else crop)
    return torch.stack(moved)


@settings(deadline=None, max_examples=15)
@given(count=st.integers(1, 20), seed=st.integers(0, 2**31), shift=st.integers(0, 4))
def test_augmenting_a_batch_is_augmenting_each_image(count: int, seed: int, shift: int):
    images = marked_images(count)
    batch = augment(images, torch.Generator().manual_seed(seed), shift)
    assert torch.equal(batch, augmented_one_by_one(images, seed, shift))


def test_without_a_shift_an_image_is_either_itself_or_its_mirror():
    images = marked_images(64)
    moved = augment(images, torch.Generator().manual_seed(0), shift=0)
    same = [torch.equal(a, b) for a, b in zip(moved, images, strict=True)]
    mirrored = [torch.equal(a, b.flip(1)) for a, b in zip(moved, images, strict=True)]
    assert all(a != b for a, b in zip(same, mirrored, strict=True))
    assert 16 < sum(same) < 48


def test_a_shift_within_the_margin_keeps_every_pixel_value():
    images = torch.zeros(50, 28, 28, dtype=torch.uint8)
    images[:, 4:24, 4:24] = marked_images(50)[:, 4:24, 4:24]
    moved = augment(images, torch.Generator().manual_seed(1), shift=4)
    assert torch.equal(moved.flatten(1).sort().values, images.flatten(1).sort().values)
    assert not torch.equal(moved, images)


def test_augmentation_leaves_its_input_alone_and_follows_its_generator():
    images = marked_images(8)
    first, second, other = (augment(images, torch.Generator().manual_seed(seed)) for seed in (5, 5, 6))
    assert torch.equal(images, marked_images(8))
    assert torch.equal(first, second)
    assert not torch.equal(first, other)


def test_black_and_white_become_their_standardized_values():
    images = torch.zeros(1, 28, 28, dtype=torch.uint8)
    images[0, 10, 20] = 255
    x = as_input(images, 28, 1)
    assert x.dtype == torch.float32
    assert x.shape == (1, 1, 28, 28)
    assert float(x[0, 0, 10, 20]) == pytest.approx((1 - 0.2860) / 0.3530)
    assert float(x[0, 0, 0, 0]) == pytest.approx(-0.2860 / 0.3530)


def test_thirty_two_pixels_are_the_image_in_a_black_frame_of_two():
    images = marked_images(2)
    x = as_input(images, 32, 1)
    assert torch.equal(x[:, :, 2:30, 2:30], as_input(images, 28, 1))
    frame = torch.ones(32, 32, dtype=torch.bool)
    frame[2:30, 2:30] = False
    assert torch.allclose(x[..., frame], torch.tensor(-0.2860 / 0.3530))


def test_a_constant_image_stays_constant_when_enlarged_in_three_equal_channels():
    x = as_input(torch.full((1, 28, 28), 51, dtype=torch.uint8), 224, 3)
    assert x.shape == (1, 3, 224, 224)
    assert torch.allclose(x, torch.tensor((0.2 - 0.2860) / 0.3530))


def test_an_epoch_visits_every_example_once_in_an_order_of_its_own():
    orders = {(seed, epoch): epoch_order(1000, seed, epoch)[0] for seed in range(3) for epoch in range(3)}
    assert all(order.sort().values.tolist() == list(range(1000)) for order in orders.values())
    assert len({tuple(order.tolist()) for order in orders.values()}) == 9
    assert torch.equal(orders[2, 1], epoch_order(1000, 2, 1)[0])


def test_order_and_augmentation_do_not_touch_the_global_generator():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    _, generator = epoch_order(100, 1, 1)
    augment(marked_images(2), generator)
    assert torch.equal(torch.get_rng_state(), before)
