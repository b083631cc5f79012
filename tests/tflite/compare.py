#!/usr/bin/env python3
"""Compares TFLite with XNNPACK, on exported models, with what `codes` (tests/onnx) has written to stdin.

usage: codes MODEL.int8.h5 COUNT DATA | compare.py ALL.tflite FILE.tflite...

ALL.tflite was exported with --all-values: every tensor of it is compared. Of each further file the output is; its input
may be floats, codes (--codes) or pixels (--pixels). A model for tflm runs in TFLM where this Python has its package
(pip install tflite-micro), otherwise in TFLite's own kernels, without XNNPACK. Prints one line of JSON: tensors and numbers compared, how many
differ and in which tensors; of a classifier also how many images each side gets right, the last file there, and of how
many the classes differ. Ends with 0 whatever differs, with 1 when something could not be compared.
"""
import json
import os
import struct
import sys

import numpy

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../golden"))
from tflite_file import Runtime, find_runtime  # noqa: E402

try:
    from tflite_micro.python.tflite_micro import runtime as micro
except ImportError:
    micro = None

TYPES = {"u8": numpy.uint8, "u16": numpy.uint16, "f32": numpy.float32, "s32": numpy.int32}


def read(dtype, count):
    data = sys.stdin.buffer.read(count * numpy.dtype(dtype).itemsize)
    if len(data) != count * numpy.dtype(dtype).itemsize:
        sys.exit("compare.py: stdin ended early")
    return numpy.frombuffer(data, dtype)


class File:
    """The first table of a FlatBuffer of TFLite's, as far as qparams and texts are asked for."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()

    def number(self, form, at):
        return struct.unpack_from("<" + form, self.data, at)[0]

    def field(self, table, number):
        """Where a field lies; None: it is not there."""
        slots = table - self.number("i", table)
        if 4 + 2 * number >= self.number("H", slots):
            return None
        at = self.number("H", slots + 4 + 2 * number)
        return table + at if at else None

    def follow(self, at):
        return at + self.number("I", at)

    def vector(self, at, form):
        at = self.follow(at)
        return list(struct.unpack_from(f"<{self.number('I', at)}{form}", self.data, at + 4))

    def text(self, at):
        at = self.follow(at)
        return self.data[at + 4:at + 4 + self.number("I", at)].decode()

    def tables(self, at):
        at = self.follow(at)
        return [self.follow(at + 4 + 4 * i) for i in range(self.number("I", at))]

    def input_qparams(self):
        graph = self.tables(self.field(self.follow(0), 2))[0]
        tensor = self.tables(self.field(graph, 0))[self.vector(self.field(graph, 1), "i")[0]]
        quant = self.follow(self.field(tensor, 4))
        return (numpy.float32(self.vector(self.field(quant, 2), "f")[0]), self.vector(self.field(quant, 3), "q")[0])

    def properties(self):
        root = self.follow(0)
        buffers, texts = self.tables(self.field(root, 4)), {}
        for entry in self.tables(self.field(root, 6)):
            buffer = buffers[self.number("I", self.field(entry, 1))]
            texts[self.text(self.field(entry, 0))] = self.text(self.field(buffer, 0))
        return texts


def feed_of(file, dtype, image, texts):
    """The input that the file takes for a normalised image. texts: of a file that takes these."""
    if dtype == numpy.float32:
        return image
    if dtype == numpy.uint8:  # pixels
        mean, std = (numpy.array(texts[key].split(), numpy.float32) for key in ("octet.mean", "octet.std"))
        return numpy.rint((image * std + mean) * 255).astype(numpy.uint8)
    scale, zero = file.input_qparams()
    steps = image / scale if file.properties()["octet.target"] == "tflm" else image * (numpy.float32(1) / scale)
    return numpy.clip(numpy.rint(steps) + zero, -128, 127).astype(numpy.int8)


def ours(value):
    """Codes as they are there."""
    return value if value.dtype != numpy.uint8 else value.astype(numpy.int16) - 128


class Micro:
    """A file in TFLM, as Session of tflite_file has it in TFLite."""

    def __init__(self, file):
        self.interpreter = micro.Interpreter.from_bytes(file.data)
        graph = file.tables(file.field(file.follow(0), 2))[0]
        tensors = file.tables(file.field(graph, 0))
        self.outputs = [(file.text(file.field(tensors[number], 3)), None, self.interpreter.get_output_details(i)["dtype"])
                        for i, number in enumerate(file.vector(file.field(graph, 2), "i"))]

    def input_type(self):
        return self.interpreter.get_input_details(0)["dtype"]

    def run(self, feeds):
        self.interpreter.set_input(feeds[0], 0)
        self.interpreter.invoke()
        return [self.interpreter.get_output(i) for i in range(len(self.outputs))]


class Compared:
    def __init__(self, runtime, path, everything):
        self.file, self.everything = File(path), everything
        tflm = self.file.properties()["octet.target"] == "tflm"
        self.session = Micro(self.file) if tflm and micro else runtime.open(self.file.data, xnnpack=not tflm)
        self.input = self.session.input_type()
        self.seen = set()

    def count(self, image, made, output, total, texts):
        """made: what Octet computed of this image, by name; output: what it returns, and its codes."""
        results = self.session.run([feed_of(self.file, self.input, image, texts)])
        for (name, _, dtype), y in zip(self.session.outputs, results):
            last = name == self.session.outputs[0][0]
            own = name[:-1] if name not in made and name.endswith("_") else name  # a layer called like a port
            x = output[dtype == numpy.int8] if last else made.get(own) if self.everything else None
            if x is None:
                sys.exit(f"compare.py: {name} is no value of the model")
            self.seen.add(name)
            if last:
                self.classes = int(x.argmax()), int(y.argmax())
            differ = y.ravel() != x.ravel()
            kind = "outputs" if last else "codes"
            total[kind] += differ.size
            if differ.any():
                total[kind + "_differ"] += int(differ.sum())
                total["differing"][name] = total["differing"].get(name, 0) + int(differ.sum())
                most = numpy.abs(y.ravel().astype(numpy.float64) - x.ravel()).max()
                total["most"] = max(total["most"], float(most))


def main(paths):
    library = find_runtime()
    runtime = Runtime(library)
    head = json.loads(sys.stdin.buffer.readline())
    values, batch = head["values"], head["batch"]
    files = [Compared(runtime, path, i == 0) for i, path in enumerate(paths)]
    texts = files[0].file.properties()
    total = {"images": head["count"], "tensors": 0, "codes": 0, "codes_differ": 0, "outputs": 0, "outputs_differ": 0,
             "most": 0, "differing": {}, "version": runtime.version}
    if head["labels"]:
        total |= {"right": 0, "right_there": 0, "classes_differ": 0}
    size = head["h"] * head["w"] * head["c"]
    for _ in range(head["count"] // batch):
        images = read(numpy.float32, batch * size).reshape(batch, 1, head["h"], head["w"], head["c"])
        labels = read(numpy.int32, batch) if head["labels"] else None
        arrays = [read(TYPES[v["type"]], batch * v["h"] * v["w"] * v["c"]).reshape(batch, -1) for v in values]
        for n in range(batch):
            made = {v["name"]: ours(a[n]) for v, a in zip(values, arrays)}
            last = next(i for i, v in enumerate(values) if v["output"])
            before = values[last]["from"]
            codes = ours(arrays[before][n]) if values[last]["kind"] == "dequantize" else None
            for file in files:
                file.count(images[n], made, (ours(arrays[last][n]), codes), total, texts)
            if labels is not None:
                here, there = files[-1].classes
                total["right"] += int(here == labels[n])
                total["right_there"] += int(there == labels[n])
                total["classes_differ"] += int(here != there)
    total["tensors"] = len(files[0].seen) - 1
    print(json.dumps(total))


if len(sys.argv) < 2:
    sys.exit(__doc__)
main(sys.argv[1:])
