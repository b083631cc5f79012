"""Int8 models: `load` and what it returns."""
from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Union

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import _declarations as c
from . import _program
from ._errors import DataError, PrepareError, UsageError
from ._library import Library, library

DTYPES = {c.OCT_PORT_FLOAT: np.float32, c.OCT_PORT_CLASS: np.int32, c.OCT_PORT_U8: np.uint8, c.OCT_PORT_U16: np.uint16}
ORDERS = {"as_trained": c.OCT_PIXELS_AS_TRAINED, "reversed": c.OCT_PIXELS_REVERSED, "padded": c.OCT_PIXELS_PADDED,
          "reversed_padded": c.OCT_PIXELS_REVERSED_PADDED, "planes": c.OCT_PIXELS_PLANES}
FORMS = ("onnx", "tflite", "c", "flat")
Source = Union[str, "os.PathLike[str]", bytes, bytearray, memoryview]


@dataclass(frozen=True)
class Port:
    """What goes into a net or comes out of it, for one sample.

    Codes stand for real numbers: real = scale * (code - zero_point). bits 0: there are none.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    bits: int
    scale: float
    zero_point: int


@dataclass(frozen=True)
class Layer(Port):
    """A step of the integer program: the layer that it came from, what it does ("conv") and what it gives."""

    kind: str


@dataclass(frozen=True)
class Codes:
    """What a layer gives for some samples: `values`, (N, *layer.shape), are codes where layer.bits is not 0."""

    layer: Layer
    values: NDArray[Any]

    @property
    def real(self) -> NDArray[np.float32]:
        """The real numbers that the codes stand for, (N, *layer.shape)."""
        if self.layer.bits == 0:
            return self.values.astype(np.float32)
        return np.float32(self.layer.scale) * (self.values.astype(np.int32) - self.layer.zero_point).astype(np.float32)


@dataclass(frozen=True)
class Prediction:
    """Classes and their softmax probabilities, (N,), or one for each pixel of an output with a plane.

    names: those of the classes; None where the model has none.
    """

    classes: NDArray[np.int32]
    scores: NDArray[np.float32]
    names: NDArray[np.str_] | None


def load(model: Source, *, max_batch: int = 64, threads: int = 0, large: bool = False) -> Net:
    """Opens an int8 model: the path of a flat file or of an HDF5 one (*.int8.h5), "zoo:NAME", or bytes of a flat file.

    max_batch: samples that are run at a time; a call takes any number. threads: of a call; 0: as many as OpenMP has.
    large: takes models that need more than 256 MiB or 2**36 multiply-adds for a sample, which are refused otherwise.

    Raises DataError for a file that is missing or damaged, UsageError for a wrong argument, PrepareError for a model
    with layers that stay float where liboctet, which computes these, is not installed.
    """
    if isinstance(model, str) and model.startswith("zoo:"):
        name = model[len("zoo:") :]
        entry = _program.command("zoo", name)
        if "model" not in entry:
            raise DataError(f"{model}: its int8 model does not come with Octet; octet zoo make {name} trains it")
        model = entry["model"]
    return Net(model, max_batch=max_batch, threads=threads, large=large)


class Net:
    """An int8 model. Results have the bits of training's evaluation, for any number of samples and threads.

    Several threads may call one net at the same time; copies and pickles open its file again.
    `with octet.load(...) as m:` closes it at the end.
    """

    def __init__(self, model: Source, *, max_batch: int = 64, threads: int = 0, large: bool = False):
        self._lock = threading.Lock()
        self._nets: list[ctypes.c_void_p] = []  # one for each thread that has called at the same time as others
        self._idle: list[ctypes.c_void_p] = []  # those of them that no thread uses
        # C would get the low bits of more threads, and no machine has memory for more samples.
        if not 1 <= max_batch < 2**31:
            raise UsageError(f"max_batch is {max_batch}; give 1 to {2**31 - 1} samples")
        if not 0 <= threads < 2**31:
            raise UsageError(f"threads is {threads}; give 1 or more, or 0 for as many as OpenMP has")
        self.max_batch, self.threads, self.large = max_batch, threads, large
        #: The file, None of bytes; copies find it from other folders too.
        self.path = None if isinstance(model, (bytes, bytearray, memoryview)) else os.path.abspath(os.fspath(model))
        options = c.oct_net_options(max_batch, threads, large)
        self._library = library()
        try:
            first = self._open(self._library, model, options)
        except PrepareError as error:
            first = self._open_with_float_layers(model, options, error)
        self._nets.append(first)
        self._idle.append(first)
        lib = self._library
        #: What the model takes, and what it returns.
        self.inputs = tuple(_port(lib.oct_net_input(first, i).contents) for i in range(lib.oct_net_num_inputs(first)))
        self.output = _port(lib.oct_net_output(first).contents)
        #: Steps of the integer program in the order in which they run.
        self.layers = tuple(Layer(**vars(_port(lib.oct_net_layer(first, i).contents)),
                                  kind=lib.oct_net_layer_kind(first, i).decode())
                            for i in range(lib.oct_net_num_layers(first)))
        self._rows = lib.oct_net_num_rows(first)
        names = [lib.oct_net_class_name(first, k) for k in range(lib.oct_net_num_classes(first))]
        #: Names of the classes; empty where the model has none.
        self.classes = tuple(name.decode() for name in names if name is not None)

    @staticmethod
    def _open(lib: Library, model: Source, options: c.oct_net_options) -> ctypes.c_void_p:
        net = ctypes.c_void_p()
        if isinstance(model, (bytes, bytearray, memoryview)):
            data = bytes(model)
            # Bytes that begin at a multiple of 64 would be borrowed, and these are freed: one more in front.
            odd = ctypes.create_string_buffer(len(data) + 64)
            start = ctypes.addressof(odd)
            start += 1 if start % 64 == 0 else 0
            ctypes.memmove(start, data, len(data))
            lib.oct_net_open_bytes(ctypes.byref(net), start, len(data), ctypes.byref(options))
        else:
            lib.oct_net_open(ctypes.byref(net), os.fsencode(model), ctypes.byref(options))
        return net

    def _open_with_float_layers(self, model: Source, options: c.oct_net_options,
                                error: PrepareError) -> ctypes.c_void_p:
        """Opens a model that octet-runtime refuses with the library that has modules for float layers."""
        try:
            self._library = library(full=True)
        except Exception as missing:
            raise error from missing
        return self._open(self._library, model, options)

    @contextmanager
    def _borrowed(self) -> Iterator[ctypes.c_void_p]:
        """A net of C that no other thread uses: an idle one, or a clone."""
        with self._lock:
            if not self._nets:
                raise UsageError(f"{self.path or 'the model'} is closed; load it again")
            if self._idle:
                net = self._idle.pop()
            else:
                net = ctypes.c_void_p()
                self._library.oct_net_clone(ctypes.byref(net), self._nets[0])
                self._nets.append(net)
        try:
            yield net
        finally:
            with self._lock:
                if self._nets:
                    self._idle.append(net)
                else:
                    self._library.oct_net_close(ctypes.byref(net))

    def close(self) -> None:
        """Frees the model's memory; calls that are at work end as usual, later ones raise UsageError."""
        with self._lock:
            for net in self._idle:
                self._library.oct_net_close(ctypes.byref(net))
            self._nets, self._idle = [], []

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies, and nets that go to other processes, open the file again."""
        if self.path is None:
            raise UsageError("the model was opened from bytes, which a copy of the net does not have; load these again")
        return partial(load, self.path, max_batch=self.max_batch, threads=self.threads, large=self.large), ()

    def __enter__(self) -> Net:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __del__(self) -> None:
        if getattr(self, "_nets", None):
            self.close()

    def __repr__(self) -> str:
        takes = ", ".join(str(port.shape) for port in self.inputs)
        return f"<octet.Net {self.path or 'of bytes'}: {takes} to {self.output.shape}, {len(self.layers)} layers>"

    def __call__(self, *inputs: ArrayLike) -> NDArray[Any]:
        """Runs the model; returns (N, *output.shape), float32, or int32 where the model returns class numbers.

        inputs: an array for each input of the model, (N, *shape), float32 as training normalised it; other real numbers
        are converted. An array of one sample, (*shape), gives one result without N. Of one channel, samples may come
        without that axis, or flat. For a model of one input, uint8 is taken as pixels, which are normalised as training
        did (`predict` says how they may lie in memory). Float32 arrays in C's order are not copied.
        """
        given = [_array(values) for values in inputs]
        if len(given) == len(self.inputs) == 1 and given[0].dtype == np.uint8:
            return self._run_pixels(given[0])
        arrays, single = self._take(given)
        with self._borrowed() as net:
            result = self._run(arrays, lambda n, pointers, at: self._library.oct_net_run(net, n, pointers, at))
        return result[0] if single else result

    def predict(self, images: ArrayLike, *, order: str = "as_trained") -> Prediction:
        """The best class of each image and its softmax probability (NaN where the model returns class numbers).

        images: uint8, (N, rows, columns, channels) or one image without N; of one channel also (N, rows, columns).
        Rows and images may be apart in memory, as those of a cut-out frame are, and are not copied then.
        order: of channels; "as_trained", such as red, green, blue; "reversed"; "padded" and "reversed_padded", with
        one more channel that is not read, such as alpha; "planes": (N, channels, rows, columns).
        """
        pixels, single, layout = self._take_pixels(images, order)
        classes = np.empty((len(pixels), self._rows), np.int32)
        scores = np.empty((len(pixels), self._rows), np.float32)
        with self._borrowed() as net:
            for first, n in self._batches(len(pixels)):
                self._library.oct_net_classify(net, n, pixels[first:].ctypes.data, ctypes.byref(layout),
                                               classes[first:].ctypes.data, scores[first:].ctypes.data)
        shape: tuple[int, ...] = () if self._rows == 1 else self.output.shape[:2]
        classes, scores = (a.reshape(shape if single else (len(pixels), *shape)) for a in (classes, scores))
        return Prediction(classes, scores, np.array(self.classes)[classes] if self.classes else None)

    def codes(self, *inputs: ArrayLike) -> dict[str, Codes]:
        """What each layer gives, by the layer's name; of several steps with one name, the later ones as "name#2" ...

        inputs: as for a call, but no pixels. Every value of all samples is in memory at once.
        """
        given = [_array(values) for values in inputs]
        if any(array.dtype == np.uint8 for array in given):
            raise UsageError("codes are of float32 inputs, and these are uint8; normalise pixels as training did")
        arrays, single = self._take(given)
        count = 1 if single else len(arrays[0])
        values = [np.empty((count, *layer.shape), layer.dtype) for layer in self.layers]
        first = shown = 0

        def show(_: Any, i: int, at: int) -> None:
            nonlocal shown
            part = values[i][first : first + self.max_batch]
            ctypes.memmove(part.ctypes.data, at, part.nbytes)
            shown += 1

        def run(n: int, pointers: Any, at: int) -> None:
            nonlocal first, shown
            shown = 0
            self._library.oct_net_run_layers(net, n, pointers, at, show_layer, None)
            if shown < len(self.layers):  # ctypes prints what show raises, and goes on
                raise KeyboardInterrupt
            first += n

        show_layer = c.oct_net_layer_fn(show)
        with self._borrowed() as net:
            self._run(arrays, run)
        found: dict[str, Codes] = {}
        for layer, array in zip(self.layers, values):
            seen = sum(codes.layer.name == layer.name for codes in found.values())
            found[f"{layer.name}#{seen + 1}" if seen else layer.name] = Codes(layer, array)
        return found

    def verify(self) -> None:
        """Computes the golden inputs in the file; raises MismatchError where the outputs have other bits than there."""
        with self._borrowed() as net:
            self._library.oct_net_verify(net)

    def export(self, path: str | os.PathLike[str], *options: object, form: str | None = None) -> None:
        """Writes the model for other programs, as `octet export`, whose options may follow ("--pixels").

        form: onnx, tflite, c or flat; None: that of the ending, .onnx, .tflite, .flat or .c.
        Raises UsageError for other endings and for models that were not opened by a path.
        """
        chosen = form or os.path.splitext(os.fspath(path))[1][1:]
        if self.path is None:
            raise UsageError("the model was opened from bytes; write them to a file and load that")
        if chosen not in FORMS:
            raise UsageError(f"{os.fspath(path)}: the ending says no format; give form=, one of: {', '.join(FORMS)}")
        out = os.fspath(path)
        _program.run(["export", self.path, "--format", chosen, "-o", out[:-2] if chosen == "c" and out.endswith(".c")
                      else out, *options])

    def _batches(self, count: int) -> Iterator[tuple[int, int]]:
        for first in range(0, count, self.max_batch):
            yield first, min(self.max_batch, count - first)

    def _run(self, arrays: Sequence[NDArray[np.float32]], run: Any) -> NDArray[Any]:
        """Calls run(samples, inputs, output) for batch after batch."""
        count = len(arrays[0])
        result = np.empty((count, *self.output.shape), self.output.dtype)
        for first, n in self._batches(count):
            pointers = (ctypes.c_void_p * len(arrays))(*(a[first:].ctypes.data for a in arrays))
            run(n, pointers, result[first:].ctypes.data)
        return result

    def _take(self, inputs: Sequence[NDArray[Any]]) -> tuple[list[NDArray[np.float32]], bool]:
        """Arrays (N, ...) of float32 in C's order, and whether they were single samples."""
        if len(inputs) != len(self.inputs):
            plural = "" if len(self.inputs) == 1 else "s"
            raise UsageError(f"{self.path or 'the model'} takes {len(self.inputs)} input{plural}, "
                             f"and got {len(inputs)}")
        taken = [_floats(array, port) for array, port in zip(inputs, self.inputs)]
        if len({(len(array), single) for array, single in taken}) > 1:
            raise UsageError("the inputs have " + ", ".join(str(len(array)) for array, _ in taken) +
                             " samples; give as many of each")
        return [array for array, _ in taken], taken[0][1]

    def _run_pixels(self, images: NDArray[Any]) -> NDArray[Any]:
        pixels, single, layout = self._take_pixels(images, "as_trained")
        result = np.empty((len(pixels), *self.output.shape), self.output.dtype)
        with self._borrowed() as net:
            for first, n in self._batches(len(pixels)):
                self._library.oct_net_run_pixels(net, n, pixels[first:].ctypes.data, ctypes.byref(layout),
                                                 result[first:].ctypes.data)
        return result[0] if single else result

    def _take_pixels(self, images: ArrayLike, order: str) -> tuple[NDArray[np.uint8], bool, c.oct_pixels]:
        """Pixels (N, ...), whether they were one image, and how they lie in memory."""
        if order not in ORDERS:
            raise UsageError(f"order is '{order}'; give one of: {', '.join(ORDERS)}")
        array = _array(images)
        if array.dtype != np.uint8:
            raise UsageError(f"pixels are uint8 from 0 to 255, and these are {array.dtype}; for values that are "
                             "normalised call the net itself, m(x)")
        if len(self.inputs) > 1:
            raise UsageError(f"{self.path or 'the model'} has {len(self.inputs)} inputs, and pixels are for one; call "
                             "it with float32 arrays")
        h, w, channels = _plane(self.inputs[0].shape)
        each, shapes = channels, _shapes_of(self.inputs[0].shape)
        if order.endswith("padded"):
            each = channels + 1
            shapes = [(h, w, each)]
        elif order == "planes":
            shapes = [(channels, h, w), (channels * h * w,)]
        shape = shapes[0] if order == "planes" else (h, w, each)
        array, single = _samples(array, shapes, "pixels")
        array = array.reshape(len(array), *shape)
        # What the C interface can say: bytes from row to row and from image to image, all else one after another.
        line = shape[-1] if order == "planes" else w * each
        lines = channels * h if order == "planes" else h
        image, outer, inner, pixel = array.strides
        if order == "planes":
            row, dense = inner, pixel == 1 and outer == h * inner
        else:
            row, dense = outer, pixel == 1 and inner == each
        if not dense or row < line or image < (lines - 1) * row + line:
            array = np.ascontiguousarray(array)
            row, image = line, lines * line
        return array, single, c.oct_pixels(row, image, ORDERS[order])


def _port(port: c.oct_port) -> Port:
    plane = (port.h, port.w, port.c) if port.h * port.w > 1 else (port.c,)
    return Port(port.name.decode(), plane, np.dtype(DTYPES[port.type]), port.bits, port.scale, port.zero_point)


def _plane(shape: tuple[int, ...]) -> tuple[int, ...]:
    return shape if len(shape) == 3 else (1, 1, *shape)


def _shapes_of(shape: tuple[int, ...]) -> list[tuple[int, ...]]:
    """Shapes in which a sample may be given: its own; of one channel also without that axis, and flat.

    Rows of several channels are not taken flat: nothing says whether they are pixels or, as in CIFAR-10, planes.
    """
    if len(shape) == 1:
        return [shape, (1, 1, *shape)]
    h, w, channels = shape
    if channels > 1:
        return [shape]
    return [shape, (h * w,), *([(h, w)] if h > 1 else [])]  # so no array is both a sample and several


def _samples(array: NDArray[Any], shapes: list[tuple[int, ...]], what: str) -> tuple[NDArray[Any], bool]:
    """The array with samples as its first axis, and whether it was a single one."""
    if array.shape in shapes:
        return array[np.newaxis], True
    if array.ndim < 2 or array.shape[1:] not in shapes:
        takes = ", ".join(map(str, shapes[0]))
        remedy = _remedy(array, shapes[0])
        raise UsageError(f"{what} have shape {array.shape}, and the model takes (N, {takes}){remedy}")
    return array, False


def _remedy(array: NDArray[Any], shape: tuple[int, ...]) -> str:
    h, w, channels = _plane(shape)
    if array.ndim == 4 and array.shape[1:] == (channels, h, w):
        return "; channels come last: pass x.transpose(0, 2, 3, 1)"
    if array.shape == (channels, h, w):
        return "; channels come last: pass x.transpose(1, 2, 0)"
    if array.ndim == 2 and array.shape[1] == h * w * channels:
        return (f"; channels that follow each other: pass x.reshape(-1, {h}, {w}, {channels}); planes that do: pass "
                f"x.reshape(-1, {channels}, {h}, {w}).transpose(0, 2, 3, 1)")
    return ""


def _array(values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except (ValueError, TypeError, RuntimeError) as error:  # such as rows of different lengths, a tensor on a GPU
        raise UsageError(f"an input is no array of numbers: {error}") from None


def _floats(array: NDArray[Any], port: Port) -> tuple[NDArray[np.float32], bool]:
    if array.dtype.kind not in "fiub":
        raise UsageError(f"an input has numbers of type {array.dtype}, and the model takes float32")
    array, single = _samples(array, _shapes_of(port.shape), "inputs")
    return np.require(array, np.float32, ["C", "ALIGNED"]), single
