"""Images and labels of PyTorch's users as arrays for Octet: of tensors, arrays and Datasets."""
from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Union

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from ._errors import UsageError
from ._run import _is_watched

Samples = Union["Dataset[Any]", torch.Tensor, ArrayLike, tuple[Any, Any]]
LAYOUTS = ("NCHW", "NHWC")


@dataclass(frozen=True)
class Taken:
    """Images with channels last, their labels, and the names of the classes where they are known."""

    images: NDArray[Any]
    labels: NDArray[Any] | None
    classes: Sequence[str]

    @property
    def arrays(self) -> Any:
        """The images, or a pair of images and labels."""
        return self.images if self.labels is None else (self.images, self.labels)


def as_input(images: NDArray[Any], layout: str) -> torch.Tensor:
    """The first two images as a module takes them: float32, (2, C, H, W)."""
    two = np.resize(images[:2], (2, *images.shape[1:])).astype(np.float32)
    if two.ndim == 3:
        two = two[:, None]
    return torch.from_numpy(np.ascontiguousarray(two.transpose(0, 3, 1, 2) if two.ndim == 4 and layout == "NHWC"
                                                 else two))


def find_layout(module: nn.Module, images: NDArray[Any], example: torch.Tensor | None, layout: str | None) -> str:
    """Where the channels are: as the caller says, as the example's shape says, or as the module can compute it."""
    if images.ndim not in (2, 3, 4):
        raise UsageError(f"images have shape {images.shape}; give (N, C, H, W), (N, H, W, C), (N, H, W) of one "
                         "channel, or features (N, F)")
    layouts = [layout] if layout else list(LAYOUTS if images.ndim == 4 else LAYOUTS[:1])
    if example is not None:
        fits = [one for one in layouts if as_input(images, one).shape[1:] == example.shape[1:]]
        said = f"the example has shape {tuple(example.shape)}"
    else:
        fits, said = [], ""
        for one in layouts:
            try:
                with torch.no_grad():
                    module(as_input(images, one))
                fits.append(one)
            except Exception as error:  # whatever a module raises
                said = said or f"the module says of {tuple(as_input(images, one).shape)}: {str(error).splitlines()[0]}"
    if not fits:
        raise UsageError(f"images of shape {images.shape} do not fit the module; {said}")
    if len(fits) > 1:
        raise UsageError(f"images of shape {images.shape} may be NCHW or NHWC for this module; say which with "
                         'layout="NCHW" or layout="NHWC"')
    return fits[0]


def take_samples(data: Samples, folder: Path, part: str, workers: int, decide: Callable[[NDArray[Any]], str]) -> Taken:
    """Arrays of a pair, of images alone, or of a Dataset, which is written into the folder once.

    decide: says of some images which of LAYOUTS they have.
    """
    if isinstance(data, TensorDataset) and len(data.tensors) == 2:
        data = (data.tensors[0], data.tensors[1])
    if isinstance(data, Dataset):
        return _write_dataset(data, folder, part, workers, decide)
    if isinstance(data, (tuple, list)) and len(data) != 2:
        raise UsageError(f"{part} is a {type(data).__name__} of {len(data)}; give (images, labels) or a torch Dataset")
    images, labels = data if isinstance(data, (tuple, list)) else (data, None)
    array = _array(images)
    if array.dtype.kind not in "fiub":
        raise UsageError(f"images of {part} are {array.dtype}; give uint8 pixels or float32")
    goals = None if labels is None else _array(labels)
    if len(array) == 0:
        raise UsageError(f"{part} has no samples")
    if goals is not None and len(goals) != len(array):
        raise UsageError(f"{part} has {len(array)} images and {len(goals)} labels; give one for each")
    array = array if array.dtype == np.uint8 else array.astype(np.float32, copy=False)
    return Taken(_channels_last(array, decide(array)), goals, ())


def _channels_last(images: NDArray[Any], layout: str) -> NDArray[Any]:
    return np.moveaxis(images, -3, -1) if layout == "NCHW" and images.ndim == 4 else images


def _array(values: Any) -> NDArray[Any]:
    return np.asarray(values.detach().cpu() if isinstance(values, torch.Tensor) else values)


def _write_dataset(data: Dataset[Any], folder: Path, part: str, workers: int,
                   decide: Callable[[NDArray[Any]], str]) -> Taken:
    """Reads each sample once and writes it into files that are mapped into memory."""
    if isinstance(data, IterableDataset) or not hasattr(data, "__len__"):
        raise UsageError(f"the Dataset of {part} has no length; give one with __len__ and __getitem__")
    count = len(data)
    if count == 0:
        raise UsageError(f"the Dataset of {part} has no samples")
    first = _pair(data[0], part)
    layout = decide(first[0][None])

    def stored(sample: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        image, label = _pair(sample, part)
        return _channels_last(image[None], layout)[0], label

    paths = [folder / f"{part}_{what}.npy" for what in ("images", "labels")]
    if not _are_written(paths, {0: stored(data[0]), count - 1: stored(data[count - 1])}, count):
        new = [path.with_name(path.name + ".new") for path in paths]
        files = [np.lib.format.open_memmap(path, mode="w+", dtype=value.dtype, shape=(count, *value.shape))
                 for path, value in zip(new, stored(data[0]))]
        for i, sample in enumerate(DataLoader(data, batch_size=None, num_workers=workers)):
            for file, value in zip(files, stored(sample)):
                if value.shape != file.shape[1:]:
                    raise UsageError(f"sample {i} of the Dataset of {part} has shape {value.shape}, and sample 0 "
                                     f"{file.shape[1:]}; resize all to one size")
                file[i] = value
            _show(part, i + 1, count)
        for file, at, path in zip(files, new, paths):
            file.flush()
            at.replace(path)
    return Taken(np.load(paths[0], mmap_mode="r"), np.load(paths[1], mmap_mode="r"), _class_names(data))


def _are_written(paths: Sequence[Path], some: Mapping[int, Sequence[NDArray[Any]]], count: int) -> bool:
    """Whether an earlier call has written this Dataset: as many samples, and some of them the same."""
    if not all(path.exists() for path in paths):
        return False
    arrays = [np.load(path, mmap_mode="r") for path in paths]
    return all(len(array) == count for array in arrays) and all(
        np.array_equal(array[at], value) for at, values in some.items() for array, value in zip(arrays, values))


def _class_names(data: Any) -> tuple[str, ...]:
    names = getattr(data, "classes", None)
    while names is None and hasattr(data, "dataset"):  # a Subset
        data = data.dataset
        names = getattr(data, "classes", None)
    return tuple(map(str, names)) if names is not None else ()


def _pair(sample: Any, part: str) -> tuple[NDArray[Any], NDArray[Any]]:
    if not isinstance(sample, (tuple, list)) or len(sample) != 2:
        raise UsageError(f"samples of the Dataset of {part} are no pairs; give a Dataset of (image, label)")
    image, label = (_array(value) for value in sample)
    if image.dtype.kind not in "fiub" or image.ndim == 0:
        raise UsageError(f"images of the Dataset of {part} are {type(sample[0]).__name__}; add a transform that makes "
                         "tensors of them, such as torchvision.transforms.ToTensor()")
    return image if image.dtype == np.uint8 else image.astype(np.float32), label


def _show(part: str, done: int, count: int) -> None:
    """A bar for people, in a terminal or notebook."""
    if _is_watched() and (done == count or done * 100 // count != (done - 1) * 100 // count):
        filled = done * 30 // count
        sys.stderr.write(f"\rwriting {part} [{'#' * filled}{'.' * (30 - filled)}] {done} of {count}"
                         + ("\n" if done == count else ""))
        sys.stderr.flush()
