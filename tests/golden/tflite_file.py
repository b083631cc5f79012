"""TFLite models for golden values: a small writer of its own (no flatc), and the real runtime by ctypes.

The runtime is libtensorflowlite_c.so 2.9 of the npm package tfjs-tflite-node 0.0.2, found by find_runtime().
"""
import ctypes
import glob
import os
import struct

import numpy as np


class Table:
    """fields: (number, format, value); the value of the format "o" is a Table, a Vector or bytes, None leaves out."""

    def __init__(self, *fields):
        self.fields = [f for f in fields if f[2] is not None]


class Vector:
    def __init__(self, form, values):
        self.form, self.values = form, values


def width_of(form):
    return 4 if form == "o" else struct.calcsize("<" + form)


def build(root, identifier):
    """Parents come before what they point to; each table has a vtable of its own."""
    out = bytearray(4) + identifier

    def align(size, ahead=0):
        out.extend(bytes(-(len(out) + ahead) % size))

    def point(where, thing):
        there = put(thing)
        struct.pack_into("<I", out, where, there - where)

    def put_vector(vector):
        align(16 if vector.form == "B" else max(4, width_of(vector.form)), 4)
        at = len(out)
        out.extend(struct.pack("<I", len(vector.values)))
        if vector.form == "o":
            out.extend(bytes(4 * len(vector.values)))
            for i, value in enumerate(vector.values):
                point(at + 4 + 4 * i, value)
        else:
            out.extend(struct.pack(f"<{len(vector.values)}{vector.form}", *vector.values))
        return at

    def put_table(table):
        fields = sorted(table.fields, key=lambda f: -width_of(f[1]))
        size, places = 4, {}
        for number, form, _ in fields:
            size += -size % width_of(form)
            places[number] = size
            size += width_of(form)
        slots = max(places, default=-1) + 1
        align(8)
        vtable = len(out)
        out.extend(struct.pack(f"<{2 + slots}H", 4 + 2 * slots, size, *[places.get(s, 0) for s in range(slots)]))
        align(8)
        at = len(out)
        out.extend(struct.pack("<i", at - vtable) + bytes(size - 4))
        for number, form, value in fields:
            if form == "o":
                point(at + places[number], value)
            else:
                struct.pack_into("<" + form, out, at + places[number], value)
        return at

    def put(thing):
        if isinstance(thing, bytes):
            align(4)
            at = len(out)
            out.extend(struct.pack("<I", len(thing)) + thing + b"\0")
            return at
        return put_vector(thing) if isinstance(thing, Vector) else put_table(thing)
    point(0, root)
    return bytes(out)


TYPES = {"float32": 0, "int32": 2, "uint8": 3, "int64": 4, "int8": 9}
# The number of each operator in the schema, its version with int8, the number of its options in their union.
OPERATORS = {
    "ADD": (0, 2, 11), "AVERAGE_POOL_2D": (1, 2, 5), "CONCATENATION": (2, 2, 10), "CONV_2D": (3, 3, 1),
    "DEPTHWISE_CONV_2D": (4, 3, 2), "DEQUANTIZE": (6, 2, 38), "MAX_POOL_2D": (17, 2, 5), "MUL": (18, 2, 21),
    "RESHAPE": (22, 1, 17), "RESIZE_BILINEAR": (23, 2, 15), "PAD": (34, 2, 22), "GATHER": (36, 2, 23),
    "TRANSPOSE": (39, 2, 26), "SUB": (41, 2, 28), "CAST": (53, 1, 37), "MAXIMUM": (55, 2, 39), "ARG_MAX": (56, 2, 40),
    "MINIMUM": (57, 2, 39), "PADV2": (60, 2, 43), "SLICE": (65, 2, 48), "RESIZE_NEAREST_NEIGHBOR": (97, 2, 74),
    "QUANTIZE": (114, 1, 99),
}


class Model:
    """One graph with the inputs that it is run on."""

    def __init__(self):
        self.tensors, self.buffers, self.operators, self.codes = [], [Table()], [], []
        self.inputs, self.outputs, self.feeds = [], [], []

    def tensor(self, shape, dtype, scale=None, zero=0, axis=0, data=None):
        buffer = quantization = None
        if data is not None:
            buffer = len(self.buffers)
            self.buffers.append(Table((0, "o", Vector("B", np.ascontiguousarray(data).tobytes()))))
        if scale is not None:
            scales = np.atleast_1d(np.asarray(scale, np.float32))
            quantization = Table((2, "o", Vector("f", [float(s) for s in scales])),
                                 (3, "o", Vector("q", [int(zero)] * len(scales))), (6, "i", axis))
        self.tensors.append(Table((0, "o", Vector("i", [int(n) for n in shape])), (1, "b", TYPES[dtype]),
                                  (2, "I", buffer), (3, "o", b"t%d" % len(self.tensors)), (4, "o", quantization)))
        return len(self.tensors) - 1

    def input(self, x, scale=None, zero=0):
        self.inputs.append(self.tensor(x.shape, str(x.dtype), scale, zero))
        self.feeds.append(x)
        return self.inputs[-1]

    def constant(self, x, scale=None, zero=0, axis=0):
        return self.tensor(x.shape, str(x.dtype), scale, zero, axis, x)

    def operator(self, name, inputs, output, *options):
        if name not in self.codes:
            self.codes.append(name)
        self.operators.append(Table((0, "I", self.codes.index(name)), (1, "o", Vector("i", inputs)),
                                    (2, "o", Vector("i", [output])), (3, "B", OPERATORS[name][2]),
                                    (4, "o", Table(*options))))
        return output

    def bytes(self):
        graph = Table((0, "o", Vector("o", self.tensors)), (1, "o", Vector("i", self.inputs)),
                      (2, "o", Vector("i", self.outputs)), (3, "o", Vector("o", self.operators)))
        codes = [Table((0, "b", OPERATORS[c][0]), (2, "i", OPERATORS[c][1]), (3, "i", OPERATORS[c][0]))
                 for c in self.codes]
        return build(Table((0, "I", 3), (1, "o", Vector("o", codes)), (2, "o", Vector("o", [graph])),
                           (4, "o", Vector("o", self.buffers))), b"TFL3")


def find_runtime():
    """The library in NODE_PATH, or in build/tflite of this repository; None where it is not."""
    here = os.path.dirname(os.path.abspath(__file__))
    machine = {"x86_64": "linux_amd64", "aarch64": "linux_arm64"}.get(os.uname().machine, "none")
    folders = os.environ.get("NODE_PATH", "").split(":") + [f"{here}/../../build/tflite/node_modules"]
    for folder in filter(None, folders):
        for path in glob.glob(f"{folder}/tfjs-tflite-node/cc_deps/{machine}/libtensorflowlite_c.so"):
            return path
    return None


class XnnpackOptions(ctypes.Structure):
    _fields_ = [("threads", ctypes.c_int32), ("flags", ctypes.c_uint32)]


SIGNED_CODES = 1  # the flag that gives XNNPACK operators of int8
NUMPY = {1: np.float32, 2: np.int32, 3: np.uint8, 4: np.int64, 9: np.int8}


class Runtime:
    def __init__(self, path):
        self.library = ctypes.CDLL(path)
        for name in ("TfLiteModelCreate", "TfLiteInterpreterOptionsCreate", "TfLiteInterpreterCreate",
                     "TfLiteInterpreterGetInputTensor", "TfLiteInterpreterGetOutputTensor",
                     "TfLiteXNNPackDelegateCreate"):
            getattr(self.library, name).restype = ctypes.c_void_p
        for name in ("TfLiteVersion", "TfLiteTensorName"):
            getattr(self.library, name).restype = ctypes.c_char_p
        self.version = self.library.TfLiteVersion().decode()

    def open(self, data, xnnpack=True):
        return Session(self.library, data, xnnpack)

    def run(self, model, xnnpack=True):
        """The first output of a Model."""
        return self.open(model.bytes(), xnnpack).run(model.feeds)[0]


class Session:
    def __init__(self, library, data, xnnpack):
        self.library, self.data = library, ctypes.create_string_buffer(data, len(data))
        self.model = ctypes.c_void_p(library.TfLiteModelCreate(self.data, ctypes.c_size_t(len(data))))
        options = ctypes.c_void_p(library.TfLiteInterpreterOptionsCreate())
        library.TfLiteInterpreterOptionsSetNumThreads(options, 1)
        if xnnpack:
            self.delegate = ctypes.c_void_p(
                library.TfLiteXNNPackDelegateCreate(ctypes.byref(XnnpackOptions(1, SIGNED_CODES))))
            library.TfLiteInterpreterOptionsAddDelegate(options, self.delegate)
        self.interpreter = ctypes.c_void_p(self.model and library.TfLiteInterpreterCreate(self.model, options))
        if not self.interpreter or library.TfLiteInterpreterAllocateTensors(self.interpreter):
            raise SystemExit("TFLite does not take the model")
        self.outputs = [self.describe(library.TfLiteInterpreterGetOutputTensor(self.interpreter, i))
                        for i in range(library.TfLiteInterpreterGetOutputTensorCount(self.interpreter))]

    def input_type(self):
        return self.describe(self.library.TfLiteInterpreterGetInputTensor(self.interpreter, 0))[2]

    def describe(self, tensor):
        tensor, library = ctypes.c_void_p(tensor), self.library
        shape = [library.TfLiteTensorDim(tensor, k) for k in range(library.TfLiteTensorNumDims(tensor))]
        return library.TfLiteTensorName(tensor).decode(), shape, NUMPY[library.TfLiteTensorType(tensor)]

    def run(self, feeds):
        library, pointer = self.library, ctypes.c_void_p
        for i, x in enumerate(feeds):
            tensor = pointer(library.TfLiteInterpreterGetInputTensor(self.interpreter, i))
            x = np.ascontiguousarray(x)
            if library.TfLiteTensorCopyFromBuffer(tensor, x.ctypes.data_as(pointer), ctypes.c_size_t(x.nbytes)):
                raise SystemExit("an input does not fit")
        if library.TfLiteInterpreterInvoke(self.interpreter):
            raise SystemExit("TFLite could not run the model")
        results = []
        for i, (_, shape, dtype) in enumerate(self.outputs):
            tensor, y = pointer(library.TfLiteInterpreterGetOutputTensor(self.interpreter, i)), np.empty(shape, dtype)
            if library.TfLiteTensorCopyToBuffer(tensor, y.ctypes.data_as(pointer), ctypes.c_size_t(y.nbytes)):
                raise SystemExit("an output does not fit")
            results.append(y)
        return results
