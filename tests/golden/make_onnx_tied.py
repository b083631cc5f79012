#!/usr/bin/env python3
"""Writes networks into tests/golden/onnx_cases of which several layers have one initializer, each with an input, the
output, and what torch.optim.SGD makes of all parameters in three steps towards zeros:
    pip install torch onnx numpy && tests/golden/make_onnx_tied.py
"""
import os

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_cases")
node = helper.make_node


def save(name, nodes, shape, parameters, forward):
    info = helper.make_tensor_value_info
    constants = [numpy_helper.from_array(p.detach().numpy(), n) for n, p in parameters.items()]
    graph = helper.make_graph(nodes, name, [info(nodes[0].input[0], TensorProto.FLOAT, ["n", *shape])], [info(nodes[-1].output[0], TensorProto.FLOAT, None)], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_operatorsetid("", 13)])
    model.ir_version = 8
    onnx.save(model, os.path.join(OUT, name + ".onnx"))
    x = torch.randn(6, *shape)
    y = forward(x, **parameters).detach().numpy()
    weights = [p for p in parameters.values() if p.ndim > 1]
    biases = [p for p in parameters.values() if p.ndim == 1]
    sgd = torch.optim.SGD([dict(params=weights, weight_decay=0.01), dict(params=biases)], lr=0.1, momentum=0.9)
    for _ in range(3):
        sgd.zero_grad()
        out = forward(x, **parameters)
        F.mse_loss(out, torch.zeros_like(out)).backward()
        norm = torch.nn.utils.clip_grad_norm_(parameters.values(), 0.5)
        assert norm > 0.6, norm  # so that a gradient that counts twice shows
        sgd.step()
    trained = {"trained_" + n: p.detach().numpy() for n, p in parameters.items()}
    np.savez(os.path.join(OUT, name + ".npz"), x=x.numpy(), y=y, **trained)


def parameter(*shape, scale):
    return torch.nn.Parameter(torch.randn(*shape) * scale)


torch.manual_seed(3)
torch.set_num_threads(1)
# One matrix in three ways: behind an image, whose columns change places, behind numbers, and transposed.
save("tied_dense",
     [node("Flatten", ["x"], ["f"]), node("Gemm", ["f", "w", "b1"], ["g1"], "in", transB=1), node("Relu", ["g1"], ["r1"]),
      node("Gemm", ["r1", "w", "b2"], ["g2"], "middle", transB=1), node("Relu", ["g2"], ["r2"]),
      node("Transpose", ["w"], ["t"], perm=[1, 0]), node("Gemm", ["r2", "t", "b3"], ["y"], "out", transB=1)],
     (3, 2, 2), dict(w=parameter(12, 12, scale=0.6), b1=parameter(12, scale=0.6), b2=parameter(12, scale=0.6), b3=parameter(12, scale=0.6)),
     lambda x, w, b1, b2, b3: F.linear(F.relu(F.linear(F.relu(F.linear(x.flatten(1), w, b1)), w, b2)), w.t(), b3))
# The same kernels at other distances and with another bias; and once more all alike. The output is called like a layer.
save("tied_conv",
     [node("Conv", ["image", "w", "b1"], ["c1"], "near", pads=[1] * 4), node("Relu", ["c1"], ["r1"]),
      node("Conv", ["r1", "w", "b2"], ["c2"], "far", pads=[2] * 4, dilations=[2, 2]), node("Relu", ["c2"], ["r2"]),
      node("Conv", ["r2", "w", "b1"], ["c3"], "again", pads=[1] * 4), node("Flatten", ["c3"], ["f"]), node("Gemm", ["f", "v"], ["far"], "out", transB=1)],
     (3, 4, 4), dict(w=parameter(3, 3, 3, 3, scale=0.3), b1=parameter(3, scale=0.5), b2=parameter(3, scale=0.5), v=parameter(5, 48, scale=0.5)),
     lambda x, w, b1, b2, v: F.linear(F.conv2d(F.relu(F.conv2d(F.relu(F.conv2d(x, w, b1, padding=1)), w, b2, padding=2, dilation=2)), w, b1, padding=1).flatten(1), v))
