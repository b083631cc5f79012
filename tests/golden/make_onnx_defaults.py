#!/usr/bin/env python3
"""onnx_cases/function_defaults: an attribute of a function by its default and by the call. The values are those of the
same network without a function in ONNX's own reference; that of 1.17 forgets defaults, as its inliner does.
Needs onnx 1.14 or newer, such as python3-onnx of Debian 13."""
import os

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_cases", "function_defaults")
OPSETS = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]

inside = helper.make_node("LeakyRelu", ["a"], ["b"])
alpha = inside.attribute.add()
alpha.name, alpha.ref_attr_name, alpha.type = "alpha", "slope", onnx.AttributeProto.FLOAT
leak = helper.make_function("mine", "Leak", ["a"], ["b"], [inside], OPSETS, [], [helper.make_attribute("slope", 0.5)])

rng = np.random.RandomState(1)
w, v, x = (rng.randn(*shape).astype(np.float32) for shape in ((4, 3, 3, 3), (2, 4, 3, 3), (2, 3, 6, 6)))
weights = [numpy_helper.from_array(w, "w"), numpy_helper.from_array(v, "v")]


def network(first, second, **more):
    """The network around two nodes, c to d and e to f."""
    value = helper.make_tensor_value_info
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="conv", pads=[1, 1, 1, 1]), first,
        helper.make_node("Conv", ["d", "v"], ["e"], name="conv_1"), second,
        helper.make_node("Flatten", ["f"], ["y"], name="flatten"),
    ]
    graph = helper.make_graph(nodes, "net", [value("x", TensorProto.FLOAT, ["n", 3, 6, 6])],
                              [value("y", TensorProto.FLOAT, ["n", 32])], weights)
    made = helper.make_model(graph, opset_imports=OPSETS, ir_version=9, **more)
    onnx.checker.check_model(made)
    return made


onnx.save(network(helper.make_node("Leak", ["c"], ["d"], name="leak", domain="mine"),
                  helper.make_node("Leak", ["e"], ["f"], name="leak_1", domain="mine", slope=0.125),
                  functions=[leak]), OUT + ".onnx")
written_out = network(helper.make_node("LeakyRelu", ["c"], ["d"], alpha=0.5),
                      helper.make_node("LeakyRelu", ["e"], ["f"], alpha=0.125))
np.savez(OUT + ".npz", x=x, y=ReferenceEvaluator(written_out).run(None, {"x": x})[0])
