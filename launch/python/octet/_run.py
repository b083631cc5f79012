"""Training runs: `train` and what it returns."""
from __future__ import annotations

import html
import json
import os
import sys
import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Callable, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _program
from ._errors import DataError, UsageError
from ._net import Net, load
from ._recipe import Recipe, Source

Record = dict[str, Any]
Samples = Union[ArrayLike, tuple[ArrayLike, ArrayLike]]
PROGRESS = ("bar", "lines", "none")
STORED = {"F32": np.float32, "F64": np.float64, "I32": np.int32, "I64": np.int64, "U8": np.uint8, "I8": np.int8}


def train(recipe: Source, changes: Mapping[str, Any] | None = None, *, ranks: int = 1, output: str | Path | None = None,
          data: Samples | None = None, test: Samples | None = None, on_record: Callable[[Record], object] | None = None,
          progress: str | None = None, restart: int = 0) -> Run:
    """Trains in float, calibrates, trains quantized and makes the int8 model, by the program `octet train`.

    recipe: a file, the name of a shipped recipe, or a Recipe; changes: keys with other values, {"qat.epochs": 2}.
    ranks: processes that train together; they change no bit of the result. output: the run's folder, if it is not
    that of the recipe. restart: how often a run goes on by itself after a rank is lost.
    data, test: arrays in place of the recipe's data, (images, labels) or samples alone: images uint8 or float32,
    (N, rows, columns, channels), of one channel also (N, rows, columns); labels whole numbers (N,). They are written
    once, as .npy files beside the run folder. Without test, the recipe's data.split is kept for it.
    on_record: is called with each new record of metrics.jsonl as it comes; what it raises stops the run.
    progress: "bar", "lines" or "none"; None: a bar in terminals and notebooks.

    KeyboardInterrupt stops the run after its step, with a checkpoint. The same call goes on from there, and ends in the
    same bytes; of a run that has ended it returns the results at once.

    Raises UsageError or DataError before anything has started, PrepareError where a layer cannot become integers,
    NumericError, LostError, ResourceError, StoppedError where another process stopped the run.
    """
    if progress not in (None, *PROGRESS):
        raise UsageError(f"progress is '{progress}'; give one of: {', '.join(PROGRESS)}")
    wanted = dict(changes or {})
    if output is not None:
        wanted["output"] = str(output)
    chosen = Recipe(recipe, wanted)
    folder = Path(chosen["output"])
    if data is not None:
        chosen.update(write_data(folder.with_name(folder.name + ".data"), data, test))
    elif test is not None:
        raise UsageError("test was given without data; give both, or neither")
    follower = _Follower(folder / "metrics.jsonl", on_record) if on_record else None
    shown = progress or ("bar" if _is_watched() else "none")
    with tempfile.TemporaryDirectory(prefix="octet-") as scratch:
        file = Path(scratch) / "recipe.yaml"
        chosen.write(file)
        words = ["train", file, *(["--ranks", ranks] if ranks != 1 else []), "--progress", shown]
        if restart:
            words += ["--restart", restart]
        if shown == "none":
            words.append("--quiet")
        _program.run(words, while_running=follower, show=shown != "none")
    return Run(folder)


def _is_watched() -> bool:
    """Whether somebody sees what is written to stderr: in a terminal, or in a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return sys.stderr.isatty() or hasattr(shell, "kernel")


class _Follower:
    """Reads the records that are added to a file."""

    def __init__(self, path: Path, on_record: Callable[[Record], object]):
        self._path, self._on_record = path, on_record
        self._at = path.stat().st_size if path.exists() else 0

    def __call__(self) -> None:
        if not self._path.exists():
            return
        with self._path.open("rb") as file:
            # A run that is resumed drops the records after its checkpoint.
            self._at = min(self._at, self._path.stat().st_size)
            file.seek(self._at)
            lines = file.read()
        whole = lines.rfind(b"\n") + 1
        self._at += whole
        for line in lines[:whole].splitlines():
            self._on_record(json.loads(line))


def write_data(folder: Path, data: Samples, test: Samples | None) -> dict[str, Any]:
    """Writes arrays as .npy files, those that are not there yet; returns the keys of a recipe that name them."""
    parts = {"train": data} if test is None else {"train": data, "test": test}
    keys: dict[str, Any] = {"data.format": "npy", "data.path": str(folder)}
    folder.mkdir(parents=True, exist_ok=True)
    for part, samples in parts.items():
        images, labels = samples if isinstance(samples, tuple) and len(samples) == 2 else (samples, None)
        array = np.asarray(images)
        if array.dtype.kind not in "fiub":
            raise UsageError(f"images of {part} are {array.dtype}; give uint8 pixels or float32")
        _write_array(folder / f"{part}_images.npy", array if array.dtype == np.uint8 else array.astype(np.float32))
        if labels is None:
            continue
        goals = np.asarray(labels)
        if len(goals) != len(array):
            raise UsageError(f"{part} has {len(array)} images and {len(goals)} labels; give one for each")
        _write_array(folder / f"{part}_labels.npy", goals.astype(np.int64 if goals.dtype.kind in "iub" else np.float32))
    part = "train" if test is None else "{split}"
    return {**keys, "data.images": f"{part}_images", "data.labels": f"{part}_labels"}


def _write_array(path: Path, array: NDArray[Any]) -> None:
    if path.exists():
        there = np.load(path, mmap_mode="r")
        if there.dtype == array.dtype and np.array_equal(there, array):
            return
    new = path.with_name(path.name + ".new")
    with new.open("wb") as file:
        np.save(file, np.ascontiguousarray(array))
    new.replace(path)


class Report:
    """The report of a run: a page of its own, which notebooks show in place."""

    def __init__(self, path: Path):
        self.path = path

    @property
    def text(self) -> str:
        """The page's HTML."""
        return self.path.read_text(encoding="utf-8")

    def _repr_html_(self) -> str:
        return f'<iframe srcdoc="{html.escape(self.text)}" style="width: 100%; height: 40em; border: 0"></iframe>'

    def __repr__(self) -> str:
        return f"<octet.Report {self.path}>"


class Run:
    """What a training left in its folder; Run("runs/a") opens one that was made elsewhere."""

    def __init__(self, folder: str | os.PathLike[str]):
        self.folder = Path(folder)
        if not (self.folder / "metrics.jsonl").exists():
            raise DataError(f"{self.folder}: is no run folder: it has no metrics.jsonl")

    @property
    def metrics(self) -> list[Record]:
        """The records of metrics.jsonl in their order; pandas.DataFrame(run.metrics) takes them."""
        with (self.folder / "metrics.jsonl").open(encoding="utf-8") as file:
            return [json.loads(line) for line in file]

    @property
    def recipe(self) -> Recipe:
        """The recipe that the run followed, with all its keys."""
        return Recipe(self.folder / "recipe.yaml")

    @cached_property
    def result(self) -> Record:
        """The last record of a run that has ended: accuracies in percent, sizes, the model's SHA-256."""
        results = [record for record in self.metrics if record["kind"] == "result"]
        if not results:
            raise DataError(f"{self.folder}: the run has not ended; octet.train with the same recipe goes on with it")
        return results[-1]

    @property
    def float_accuracy(self) -> float | None:
        """In percent, at the end of the float phase; None where the run had none."""
        return self.result["float_accuracy"]  # type: ignore[no-any-return]

    @property
    def qat_accuracy(self) -> float | None:
        """In percent, at the end of QAT."""
        return self.result["qat_accuracy"]  # type: ignore[no-any-return]

    @property
    def int8_accuracy(self) -> float | None:
        """In percent, of the int8 model: the same as that of QAT."""
        return self.result["int8_accuracy"]  # type: ignore[no-any-return]

    @cached_property
    def model(self) -> Net:
        """The int8 model."""
        return load(self.folder / "model.int8.h5")

    @property
    def report(self) -> Report:
        """The report as a page."""
        return Report(self.folder / "report.html")

    @cached_property
    def weights(self) -> dict[str, NDArray[Any]]:
        """Parameters and statistics of the last checkpoint by name, in PyTorch's names and layouts."""
        with tempfile.TemporaryDirectory(prefix="octet-") as scratch:
            file = Path(scratch) / "weights.safetensors"
            _program.run(["export", self.folder, "--format", "safetensors", "-o", file])
            return read_safetensors(file)

    def __repr__(self) -> str:
        try:
            said = f"int8 {self.int8_accuracy} %" if self.int8_accuracy is not None else "ended"
        except DataError:
            said = "not ended"
        return f"<octet.Run {self.folder}: {said}>"


def read_safetensors(path: Path) -> dict[str, NDArray[Any]]:
    """Arrays of a .safetensors file."""
    content = path.read_bytes()
    end = 8 + int.from_bytes(content[:8], "little")
    arrays = {}
    for name, entry in json.loads(content[8:end]).items():
        if name != "__metadata__":
            first, last = entry["data_offsets"]
            values = np.frombuffer(content[end + first : end + last], STORED[entry["dtype"]])
            arrays[name] = values.reshape(entry["shape"]).copy()
    return arrays
