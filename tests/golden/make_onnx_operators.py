#!/usr/bin/env python3
"""Writes networks into tests/golden/onnx_cases whose operators PyTorch's exporter does not write, or writes otherwise,
each with an input and the output of ONNX Runtime:
    pip install onnx onnxruntime numpy && tests/golden/make_onnx_operators.py
"""
import os

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_cases")


class Net:
    """Nodes one after another; value 0 is the input."""

    def __init__(self, name, opset, shape):
        self.name, self.opset, self.shape = name, opset, shape
        self.random = np.random.default_rng(len(name))
        self.nodes, self.constants = [], []

    def number(self, value, dtype=np.float32):
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), f"c{len(self.constants)}"))
        return self.constants[-1].name

    def numbers(self, *shape, scale=0.5):
        return self.number(self.random.normal(size=shape) * scale)

    def integers(self, *values):
        return self.number(values, np.int64)

    def op(self, type, *inputs, **attributes):
        self.nodes.append(helper.make_node(type, list(inputs), [f"v{len(self.nodes)}"], f"{type.lower()}{len(self.nodes)}", **attributes))
        return f"v{len(self.nodes) - 1}"

    def conv(self, x, i, o, k=1, **attributes):
        return self.op("Conv", x, self.numbers(o, i, k, k), self.numbers(o), **attributes)

    def save(self, y, channels_last=False, *more):
        info = helper.make_tensor_value_info
        graph = helper.make_graph(self.nodes, self.name, [info("x", TensorProto.FLOAT, ["n", *self.shape])], [info(v, TensorProto.FLOAT, None) for v in (y, *more)], self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_operatorsetid("", self.opset)])
        model.ir_version = 8 if self.opset < 22 else 10
        x = self.random.normal(size=(2, *self.shape)).astype(np.float32)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        result = session.run(None, {"x": x})[0]
        path = os.path.join(OUT, self.name)
        onnx.save(model, path + ".onnx")
        np.savez(path + ".npz", x=x.transpose(0, 3, 1, 2) if channels_last else x, y=result)
        print(self.name, result.shape, os.path.getsize(path + ".onnx"))


n = Net("resized_of_opset_10", 10, (3, 4, 6))  # pixels are found from the corner
a = n.op("Resize", n.conv("x", 3, 4), n.number([1, 1, 2, 2]), mode="linear")
a = n.op("Resize", n.conv(a, 4, 4), n.number([1, 1, 0.25, 1 / 3]), mode="nearest")
n.save(n.op("Resize", n.conv(a, 4, 2), n.number([1, 1, 3, 1.5]), mode="nearest"))

n = Net("resized_to_one_pixel", 19, (3, 6, 8))
a = n.conv("x", 3, 4)
half = dict(coordinate_transformation_mode="pytorch_half_pixel")
b = n.op("Resize", a, "", n.number([1, 1, 1 / 6, 0.5]), mode="linear", **half)
c = n.op("Resize", a, "", "", n.integers(1, 1), mode="nearest", nearest_mode="floor", axes=[-2, -1], **half)
d = n.op("Resize", a, "", n.number([0.5, 1.5]), mode="linear", coordinate_transformation_mode="half_pixel_symmetric", axes=[2, 3])
n.save(n.op("Concat", *(n.op("Flatten", v) for v in (b, c, d)), axis=1))

n = Net("local_response", 13, (3, 6, 5))
a = n.op("Relu", n.conv("x", 3, 8))
n.save(n.conv(n.op("LRN", a, size=5, alpha=0.2, beta=0.75, bias=2.0), 8, 4))

n = Net("reductions", 18, (3, 6, 5))
a = n.conv("x", 3, 4)
parts = [n.op("ReduceMax", a, n.integers(1)), n.op("ReduceMin", a, n.integers(-1)), n.op("ReduceL1", a, n.integers(2)),
         n.op("ReduceL2", a, n.integers(1, 3)), n.op("ReduceSumSquare", a, n.integers(2, 3), keepdims=0), n.op("ReduceMax", a, n.integers(3, 1))]
n.save(n.op("Concat", *(n.op("Flatten", v) for v in parts), axis=1))

n = Net("larger_and_smaller", 13, (3, 6, 5))
a, b, c = n.conv("x", 3, 4), n.conv("x", 3, 4), n.conv("x", 3, 1)
a = n.op("Max", a, b, n.number(-0.4), c)
a = n.op("Min", a, n.numbers(4, 6, 5), n.op("GlobalAveragePool", b))
n.save(n.op("Mean", a, b, c))

n = Net("functions", 24, (3, 6, 5))
a = n.op("Softsign", n.conv("x", 3, 4))
a = n.op("ThresholdedRelu", n.conv(a, 4, 4), alpha=0.1)
a = n.op("Celu", n.conv(a, 4, 4), alpha=0.7)
a = n.op("Swish", n.conv(a, 4, 4), alpha=1.3)
n.save(n.op("Pow", n.op("Sigmoid", n.conv(a, 4, 4)), n.number(1.5)))

n = Net("rescaled_and_turned", 13, (6, 5, 3))
a = n.op("Div", n.op("Sub", n.op("Mul", "x", n.number(0.5)), n.number([0.1, 0.2, 0.3])), n.number([0.4, 0.5, 0.6]))
n.save(n.op("Relu", n.conv(n.op("Transpose", a, perm=[0, 3, 1, 2]), 3, 4, 3)), channels_last=True)

n = Net("windows_of_later_opsets", 19, (3, 6, 8))
a = n.op("Pad", n.conv("x", 3, 4), n.integers(1, 0, 0, 2), "", n.integers(-1, 1), mode="constant")
a = n.op("AveragePool", n.conv(a, 6, 4), kernel_shape=[2, 2], pads=[0, 0, 0, 1], count_include_pad=1)
a = n.op("ConvTranspose", a, n.numbers(4, 3, 3, 4), strides=[2, 3], auto_pad="SAME_UPPER")
n.save(n.op("ConvTranspose", a, n.numbers(3, 2, 3, 3), strides=[2, 2], output_shape=[20, 54]))

n = Net("averages_apart", 19, (3, 9, 8))
a = n.op("AveragePool", n.conv("x", 3, 4), kernel_shape=[3, 2], dilations=[2, 3], strides=[2, 1], pads=[1, 0, 2, 1], count_include_pad=1)
a = n.op("AveragePool", n.conv(n.op("Relu", a), 4, 4), kernel_shape=[1, 2], dilations=[5, 2])
n.save(n.op("AveragePool", a, kernel_shape=[1, 1], dilations=[2, 2]))

n = Net("changed", 13, (1, 6))  # tied weights, two outputs, a softmax that the loss has itself
w = n.numbers(6, 6)
a = n.op("Relu", n.op("MatMul", "x", w))
b = n.op("MatMul", a, n.op("Transpose", w, perm=[1, 0]))
n.nodes.append(helper.make_node("Softmax", [b], ["probabilities"], "softmax"))
n.save("probabilities", False, a)
