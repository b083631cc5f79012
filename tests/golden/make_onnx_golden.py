#!/usr/bin/python3
"""Writes onnx_golden.h: small networks, and what ONNX Runtime makes of them.

Each is run for batches of 2 and 3; a dimension that differs is a multiple of the batch (N). Constants are compared by
value. Needs python3-onnx, and onnxruntime-node where NODE_PATH points to:

    NODE_PATH=.../node_modules tests/golden/make_onnx_golden.py > tests/golden/onnx_golden.h && clang-format-14 -i tests/golden/onnx_golden.h
"""
import json
import os
import subprocess
import tempfile
import zlib

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

F32, S64 = TensorProto.FLOAT, TensorProto.INT64
rng = np.random.default_rng(13)
CASES = []

RUNNER = """
const ort = require('onnxruntime-node'), fs = require('fs');
(async () => {
    const jobs = JSON.parse(fs.readFileSync(process.argv[2]));
    const all = [];
    for (const job of jobs) {
        try {
            const s = await ort.InferenceSession.create(job.path, {logSeverityLevel: 4, graphOptimizationLevel: 'disabled'});
            const runs = [];
            for (const n of [2, 3]) {
                const feeds = {};
                for (const name of s.inputNames) {
                    const dims = job.inputs[name].map(d => d < 0 ? n : d);
                    const numel = dims.reduce((a, b) => a * b, 1);
                    feeds[name] = new ort.Tensor('float32', Float32Array.from({length: numel}, (_, i) => (i * 37 % 101) / 50 - 1), dims);
                }
                const out = await s.run(feeds), got = {};
                for (const name of s.outputNames)
                    got[name] = {type: out[name].type, dims: out[name].dims, data: Array.from(out[name].data, x => typeof x == 'bigint' ? x.toString() : Number(x))};
                runs.push(got);
            }
            all.push(runs);
        } catch (e) { all.push(String(e)); }
    }
    fs.writeFileSync(process.argv[3], JSON.stringify(all));
})();
"""


def case(name, opset, nodes, inputs=None, constants=None, outputs=None):
    """nodes: (type, inputs, outputs, attributes); every output of a node is compared unless said otherwise."""
    inputs = inputs or {"x": (-1, 4, 6, 8)}
    made = []
    for i, (kind, ins, outs, attributes) in enumerate(nodes):
        made.append(helper.make_node(kind, ins.split() if isinstance(ins, str) else ins, outs.split(), name=f"{kind}_{i}", **attributes))
        for k, n in enumerate(made[-1].input):
            if n == "-":
                made[-1].input[k] = ""
    outputs = outputs or [o for n in made for o in n.output]
    graph = helper.make_graph(
        made, "g",
        [helper.make_tensor_value_info(k, F32, ["n" if d < 0 else d for d in v]) for k, v in inputs.items()],
        [helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in (constants or {}).items()])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], producer_name="golden")
    model.ir_version = 8 if opset < 19 else 9
    CASES.append((name, model, inputs, outputs))


def one(name, kind, opset, ins, attributes=None, **more):
    """One node on x whose only output is y."""
    case(name, opset, [(kind, ins, "y", attributes or {})], **more)


def i64(*values):
    return np.array(values, np.int64)


def f32(*shape):
    return rng.normal(size=shape).astype(np.float32)


def shapes_of_windows():
    w = {"w": f32(6, 4, 3, 3)}
    one("conv", "Conv", 11, "x w", dict(pads=[1, 0, 2, 1], strides=[2, 1], dilations=[1, 2]), constants=w)
    for mode in "SAME_UPPER", "SAME_LOWER", "VALID":
        one(f"conv_{mode}", "Conv", 9, "x w", dict(auto_pad=mode, strides=[2, 3], kernel_shape=[3, 3]), constants=w)
    one("conv_groups", "Conv", 13, "x w b", dict(group=2), constants={"w": f32(6, 2, 3, 1), "b": f32(6)})
    one("conv_1d", "Conv", 13, "x w", dict(pads=[1, 1]), constants={"w": f32(6, 4, 3)}, inputs={"x": (-1, 4, 9)})
    t = {"w": f32(4, 3, 3, 2)}
    one("conv_transpose", "ConvTranspose", 11, "x w", dict(strides=[2, 3], pads=[1, 0, 0, 1], output_padding=[1, 2], dilations=[2, 1]), constants=t)
    one("conv_transpose_shape", "ConvTranspose", 11, "x w", dict(strides=[2, 2], output_shape=[12, 17]), constants=t)
    one("conv_transpose_groups", "ConvTranspose", 11, "x w", dict(group=2), constants=t)
    for kind in "MaxPool", "AveragePool":
        one(f"{kind}_pads", kind, 11, "x", dict(kernel_shape=[3, 2], strides=[2, 3], pads=[1, 0, 1, 1]))
        one(f"{kind}_ceil", kind, 10, "x", dict(kernel_shape=[3, 3], strides=[2, 2], ceil_mode=1))
        one(f"{kind}_ceil_pads", kind, 11, "x", dict(kernel_shape=[2, 2], strides=[3, 3], pads=[1, 1, 1, 1], ceil_mode=1))
        one(f"{kind}_same", kind, 9, "x", dict(kernel_shape=[3, 3], strides=[2, 2], auto_pad="SAME_UPPER"))
        one(f"{kind}_valid", kind, 9, "x", dict(kernel_shape=[3, 3], auto_pad="VALID"))
    one("MaxPool_dilations", "MaxPool", 10, "x", dict(kernel_shape=[2, 3], dilations=[2, 3]))
    one("global_average", "GlobalAveragePool", 9, "x")
    one("global_max", "GlobalMaxPool", 9, "x")


def shapes_of_products():
    flat = {"x": (-1, 6)}
    one("gemm", "Gemm", 13, "x w b", dict(transB=1), inputs=flat, constants={"w": f32(5, 6), "b": f32(5)})
    one("gemm_plain", "Gemm", 9, "x w b", {}, inputs=flat, constants={"w": f32(6, 5), "b": f32(1, 5)})
    one("matmul", "MatMul", 13, "x w", constants={"w": f32(8, 3)})
    one("matmul_list", "MatMul", 13, "x w", constants={"w": f32(8)})
    one("matmul_left", "MatMul", 13, "w x", constants={"w": f32(4, 3, 6)})
    case("matmul_both", 13, [("Transpose", "x", "t", dict(perm=[0, 1, 3, 2])), ("MatMul", "x t", "y", {})])


def shapes_that_stay():
    for kind, opset, attributes in (("Relu", 13, {}), ("LeakyRelu", 9, dict(alpha=0.1)), ("Elu", 9, {}), ("Selu", 9, {}), ("Sigmoid", 13, {}),
                                    ("HardSigmoid", 9, {}), ("HardSwish", 14, {}), ("Tanh", 13, {}), ("Softplus", 9, {}), ("Erf", 13, {}),
                                    ("Sqrt", 13, {}), ("Exp", 13, {}), ("Log", 13, {}), ("Abs", 13, {}), ("Neg", 13, {}), ("Reciprocal", 13, {}),
                                    ("Softsign", 9, {}), ("Celu", 12, {}), ("Mish", 18, {}), ("Gelu", 20, {}), ("LogSoftmax", 13, {}),
                                    ("Softmax", 11, {}), ("Softmax", 13, dict(axis=1)), ("LRN", 13, dict(size=3)), ("Clip", 9, dict(min=-1.0, max=1.0)),
                                    ("ThresholdedRelu", 10, {}), ("LpNormalization", 9, {}), ("MeanVarianceNormalization", 13, {}), ("Sign", 13, {}),
                                    ("Round", 11, {}), ("Floor", 13, {}), ("Ceil", 13, {}), ("Sin", 9, {}), ("Cos", 9, {})):
        one(f"{kind}_{opset}", kind, opset, "x", attributes)
    one("clip_inputs", "Clip", 13, "x - hi", constants={"hi": np.float32(6)})
    one("prelu", "PRelu", 9, "x s", constants={"s": f32(4, 1, 1)})
    c = {k: np.abs(f32(4)) for k in "sbmv"}
    one("batch_norm", "BatchNormalization", 9, "x s b m v", constants=c)
    one("batch_norm_15", "BatchNormalization", 15, "x s b m v", constants=c)
    case("batch_norm_training", 15, [("BatchNormalization", "x s b m v", "y rm rv", dict(training_mode=1))], constants=c, outputs=["y"])
    one("instance_norm", "InstanceNormalization", 9, "x s b", constants=c)
    one("group_norm_21", "GroupNormalization", 21, "x s b", dict(num_groups=2), constants=c)
    one("layer_norm", "LayerNormalization", 17, "x g", dict(axis=-2), constants={"g": f32(6, 8)})
    case("layer_norm_all", 17, [("LayerNormalization", "x g", "y m i", dict(axis=2))], constants={"g": f32(6, 8)})
    case("dropout", 13, [("Dropout", "x", "d", {}), ("Relu", "d", "y", {})], outputs=["y"])
    case("dropout_ratio", 12, [("Dropout", "x r t", "y", {})], constants={"r": np.float32(0.5), "t": np.array(False)})
    case("identity", 13, [("Relu", "x", "r", {}), ("Identity", "r", "y", {})], outputs=["y"])


def shapes_of_pairs():
    for kind in "Add", "Sub", "Mul", "Div", "Pow":
        one(f"{kind}_channels", kind, 13, "x c", constants={"c": np.abs(f32(4, 1, 1))})
    one("add_more_dims", "Add", 13, "x c", constants={"c": f32(2, 1, 4, 1, 1)})
    case("squeeze_excite", 13, [("GlobalAveragePool", "x", "g", {}), ("Sigmoid", "g", "s", {}), ("Mul", "x s", "y", {})])
    for kind in "Max", "Min", "Sum", "Mean":
        one(f"{kind}_three", kind, 13, "x c d", constants={"c": f32(1), "d": f32(6, 1)})
    case("where", 13, [("Greater", "x c", "g", {}), ("Where", "g x c", "y", {})], constants={"c": np.float32(0)})


def shapes_of_reductions():
    for opset in 11, 13, 18:
        given = dict(axes=[2, 3]) if opset < 18 else {}
        ins, more = ("x", {}) if opset < 18 else ("x a", {"a": i64(2, 3)})
        one(f"mean_{opset}", "ReduceMean", opset, ins, dict(keepdims=0, **given), constants=more)
        one(f"max_keep_{opset}", "ReduceMax", opset, ins, dict(keepdims=1, **given), constants=more)
    one("sum_axes", "ReduceSum", 13, "x a", dict(keepdims=0), constants={"a": i64(-1)})
    one("sum_none", "ReduceSum", 13, "x", dict(noop_with_empty_axes=1))
    one("sum_old", "ReduceSum", 11, "x", dict(axes=[1], keepdims=1))
    one("l2", "ReduceL2", 13, "x", dict(axes=[1]))
    one("argmax", "ArgMax", 13, "x", dict(axis=1, keepdims=0))


def shapes_that_move():
    case("concat", 13, [("Relu", "x", "r", {}), ("Concat", "x r x", "y", dict(axis=1))])
    one("concat_last", "Concat", 13, "x x", dict(axis=-1))
    case("split_equal", 11, [("Split", "x", "a b", dict(axis=1))])
    case("split_attribute", 11, [("Split", "x", "a b", dict(axis=1, split=[1, 3]))])
    case("split_input", 13, [("Split", "x s", "a b", dict(axis=3))], constants={"s": i64(3, 5)})
    case("split_outputs", 18, [("Split", "x", "a b c", dict(axis=3, num_outputs=3))])
    one("slice_old", "Slice", 9, "x", dict(starts=[1, -3], ends=[1000, -1], axes=[1, 3]))
    one("slice", "Slice", 13, "x s e a t", constants={"s": i64(1, -1), "e": i64(2**63 - 1, -2**63), "a": i64(-1, 2), "t": i64(3, -2)})
    one("slice_no_axes", "Slice", 11, "x s e", constants={"s": i64(0, 1), "e": i64(2**62, 3)})
    one("transpose", "Transpose", 13, "x", dict(perm=[0, 2, 3, 1]))
    one("transpose_batch", "Transpose", 13, "x", dict(perm=[1, 0, 3, 2]))
    one("transpose_all", "Transpose", 13, "x")
    one("reshape", "Reshape", 13, "x s", constants={"s": i64(0, -1, 8)})
    one("reshape_rows", "Reshape", 13, "x s", constants={"s": i64(-1, 8)})
    one("reshape_zero", "Reshape", 14, "x s", dict(allowzero=1), constants={"s": i64(-1, 4, 48)})
    one("flatten", "Flatten", 13, "x")
    one("flatten_2", "Flatten", 13, "x", dict(axis=-2))
    one("squeeze_attribute", "Squeeze", 11, "x", dict(axes=[1, -1]), inputs={"x": (-1, 1, 5, 1)})
    one("squeeze_input", "Squeeze", 13, "x a", inputs={"x": (-1, 1, 5, 1)}, constants={"a": i64(3)})
    one("squeeze_all", "Squeeze", 13, "x", inputs={"x": (-1, 1, 5, 1)})
    one("unsqueeze_attribute", "Unsqueeze", 11, "x", dict(axes=[1, 3]), inputs={"x": (-1, 5)})
    one("unsqueeze_input", "Unsqueeze", 13, "x a", inputs={"x": (-1, 5)}, constants={"a": i64(-1, 0)})
    one("expand", "Expand", 13, "x s", inputs={"x": (-1, 1, 5)}, constants={"s": i64(4, 1, 3, 1)})
    one("tile", "Tile", 13, "x r", constants={"r": i64(1, 2, 1, 3)})
    one("pad_attribute", "Pad", 9, "x", dict(pads=[0, 0, 1, 2, 0, 1, -1, 0]))
    one("pad_input", "Pad", 13, "x p v", dict(mode="constant"), constants={"p": i64(0, 0, 1, 2, 0, 1, 3, 0), "v": np.float32(1)})
    one("pad_reflect", "Pad", 13, "x p", dict(mode="reflect"), constants={"p": i64(0, 0, 1, 2, 0, 0, 1, 2)})
    one("pad_axes", "Pad", 18, "x p - a", constants={"p": i64(1, 2, 0, 1), "a": i64(-1, 2)})
    one("upsample", "Upsample", 9, "x s", constants={"s": np.array([1, 1, 2, 1.5], np.float32)})
    one("resize_10", "Resize", 10, "x s", constants={"s": np.array([1, 1, 0.5, 3], np.float32)})
    one("resize_scales", "Resize", 11, "x r s", dict(mode="linear"), constants={"r": np.zeros(0, np.float32), "s": np.array([1, 1, 1.7, 0.3], np.float32)})
    one("resize_13", "Resize", 13, "x - s", constants={"s": np.array([1, 1, 2, 2], np.float32)})
    one("resize_axes", "Resize", 18, "x - - z", dict(axes=[3, 2]), constants={"z": i64(5, 9)})
    case("resize_sizes", 13, [("Shape", "x", "s", {}), ("Slice", "s a b", "nc", {}), ("Concat", "nc hw", "z", dict(axis=0)), ("Resize", "x - - z", "y", dict(mode="linear", coordinate_transformation_mode="align_corners"))],
         constants={"a": i64(0), "b": i64(2), "hw": i64(7, 5)}, outputs=["y"])
    one("depth_to_space", "DepthToSpace", 11, "x", dict(blocksize=2, mode="CRD"))
    one("space_to_depth", "SpaceToDepth", 9, "x", dict(blocksize=2))
    one("gather", "Gather", 13, "x i", dict(axis=1), constants={"i": i64(0)[0:1].reshape(())})
    one("scatter", "ScatterND", 16, "x i u", constants={"i": np.zeros((0, 4), np.int64), "u": np.zeros(0, np.float32)})
    one("gather_many", "Gather", 13, "x i", dict(axis=2), constants={"i": i64(0, -1, 1, 2, 3, 3).reshape(2, 3)})
    case("cast", 13, [("Cast", "x", "i", dict(to=S64)), ("Cast", "i", "y", dict(to=F32))], outputs=["y"])
    case("cast_half", 13, [("Cast", "x", "i", dict(to=TensorProto.FLOAT16)), ("Cast", "i", "y", dict(to=F32))], outputs=["y"])
    case("channel_shuffle", 11, [("Reshape", "x s", "a", {}), ("Transpose", "a", "b", dict(perm=[0, 2, 1, 3, 4])), ("Reshape", "b t", "y", {})],
         constants={"s": i64(0, 2, 2, 6, 8), "t": i64(-1, 4, 6, 8)})


def arithmetic_of_shapes():
    """What exporters write, with the batch in it."""
    case("view_of_size", 13, [("Shape", "x", "s", {}), ("Gather", "s zero", "n", dict(axis=0)), ("Unsqueeze", "n a", "u", {}), ("Concat", "u m", "t", dict(axis=0)), ("Reshape", "x t", "y", {})],
         constants={"zero": np.int64(0), "a": i64(0), "m": i64(-1)}, outputs=["y"])
    case("view_old", 11, [("Shape", "x", "s", {}), ("Gather", "s one", "c", dict(axis=0)), ("Div", "c two", "h", {}), ("Cast", "h", "k", dict(to=S64)), ("Shape", "x", "s2", {}), ("Gather", "s2 zero", "n", dict(axis=0)),
                          ("Unsqueeze", "n", "nu", dict(axes=[0])), ("Unsqueeze", "k", "ku", dict(axes=[0])), ("Concat", "nu two1 ku m", "t", dict(axis=0)), ("Reshape", "x t", "y", {})],
         constants={"zero": np.int64(0), "one": np.int64(1), "two": np.int64(2), "two1": i64(2), "m": i64(-1)}, outputs=["c", "h", "y"])
    case("heads_in_batch", 13, [("Shape", "x", "s", {}), ("Gather", "s zero", "n", dict(axis=0)), ("Mul", "n four", "nh", {}), ("Unsqueeze", "nh a", "u", {}), ("Concat", "u r", "t", dict(axis=0)), ("Reshape", "x t", "y", {}),
                                ("Transpose", "y", "z", dict(perm=[1, 0, 2]))],
         constants={"zero": np.int64(0), "four": np.int64(4), "a": i64(0), "r": i64(6, 8)}, outputs=["y", "z"])
    case("class_token", 13, [("Shape", "x", "s", {}), ("Slice", "s a b", "n", {}), ("Concat", "n m m", "t", dict(axis=0)), ("ConstantOfShape", "three", "ones", dict(value=helper.make_tensor("v", S64, [1], [1]))), ("Mul", "ones mm", "neg", {}),
                             ("Equal", "t neg", "e", {}), ("Where", "e ones t", "w", {}), ("Expand", "cls w", "tok", {}), ("Concat", "tok x", "y", dict(axis=1))],
         inputs={"x": (-1, 5, 8)}, constants={"a": i64(0), "b": i64(1), "m": i64(-1), "mm": np.int64(-1), "three": i64(3), "cls": f32(1, 1, 8)}, outputs=["ones", "neg", "tok", "y"])
    case("pad_decomposed", 13, [("ConstantOfShape", "four", "z", dict(value=helper.make_tensor("v", S64, [1], [0]))), ("Concat", "given z", "all", dict(axis=0)), ("Reshape", "all two", "pairs", {}), ("Slice", "pairs m low ax step", "turned", {}),
                                ("Transpose", "turned", "t", dict(perm=[1, 0])), ("Reshape", "t m", "flat", {}), ("Cast", "flat", "pads", dict(to=S64)), ("Pad", "x pads", "y", {})],
         constants={"four": i64(4), "given": i64(1, 2, 3, 4), "two": i64(-1, 2), "m": i64(-1), "low": i64(-2**63 + 1), "ax": i64(0), "step": i64(-1)}, outputs=["pairs", "turned", "flat", "pads", "y"])
    case("same_of_size", 13, [("Shape", "x", "s", {}), ("Gather", "s i2", "h", dict(axis=0)), ("Cast", "h", "hf", dict(to=F32)), ("Div", "hf two", "q", {}), ("Ceil", "q", "qc", {}), ("Cast", "qc", "qi", dict(to=S64)), ("Sub", "qi one", "q1", {}),
                              ("Mul", "q1 two_i", "q2", {}), ("Add", "q2 three", "need", {}), ("Sub", "need h", "pad", {}), ("Max", "pad zero", "p", {}), ("Div", "p two_i", "half", {})],
         constants={"i2": np.int64(2), "two": np.float32(2), "one": np.int64(1), "two_i": np.int64(2), "three": np.int64(3), "zero": np.int64(0)})
    case("scaled_size", 11, [("Shape", "x", "s", {}), ("Slice", "s a b", "hw", {}), ("Cast", "hw", "f", dict(to=F32)), ("Mul", "f k", "g", {}), ("Floor", "g", "fl", {}), ("Cast", "fl", "i", dict(to=S64)), ("Slice", "s zero a", "nc", {}), ("Concat", "nc i", "z", dict(axis=0)),
                             ("Resize", "x r r z", "y", {})],
         constants={"a": i64(2), "b": i64(4), "k": np.array([2, 1.5], np.float32), "zero": i64(0), "r": np.zeros(0, np.float32)}, outputs=["i", "y"])
    case("range_of_size", 13, [("Shape", "x", "s", {}), ("Gather", "s i1", "c", dict(axis=0)), ("Range", "zero c one", "r", {}), ("Gather", "table r", "e", dict(axis=0)), ("Add", "x e", "y", {})],
         inputs={"x": (-1, 5, 8)}, constants={"i1": np.int64(1), "zero": np.int64(0), "one": np.int64(1), "table": f32(9, 8)}, outputs=["r", "e", "y"])
    case("size_and_prod", 13, [("Shape", "x", "s", {}), ("Slice", "s a b", "t", {}), ("ReduceProd", "t", "p", dict(keepdims=0)), ("Size", "x", "n", {}), ("Div", "n p", "batch", {}), ("Unsqueeze", "p z", "pu", {}), ("Unsqueeze", "batch z", "bu", {}),
                               ("Concat", "bu pu", "target", dict(axis=0)), ("Reshape", "x target", "y", {})],
         constants={"a": i64(1), "b": i64(4), "z": i64(0)}, outputs=["p", "y"])
    case("shape_15", 15, [("Shape", "x", "s", dict(start=1, end=-1)), ("Shape", "x", "t", dict(start=-2))])


def constants():
    a, b = f32(3, 1, 4), f32(2, 1)
    for kind in "Add", "Sub", "Mul", "Div", "Max", "Min":
        case(f"constant_{kind}", 13, [(kind, "a b", "y", {}), (kind, "i k", "j", {}), ("Relu", "x", "z", {})], constants={"a": a, "b": b, "i": i64(-7, 8, 9), "k": i64(2, -3, 4)})
    case("constant_pow", 13, [("Pow", "a b", "y", {}), ("Pow", "i k", "j", {}), ("Relu", "x", "z", {})], constants={"a": np.abs(a), "b": b, "i": i64(-7, 8, 9), "k": i64(2, 3, 0)})
    case("constant_mod", 13, [("Mod", "i k", "j", {}), ("Mod", "a b", "y", dict(fmod=1)), ("Relu", "x", "z", {})], constants={"i": i64(-7, 8, 9, 6), "k": i64(2, -3, 4, -6), "a": a, "b": b})
    for kind in "Abs", "Ceil", "Cos", "Erf", "Exp", "Floor", "Log", "Neg", "Reciprocal", "Relu", "Round", "Sigmoid", "Sign", "Sin", "Sqrt", "Tanh":
        case(f"constant_{kind}", 13, [(kind, "a", "y", {}), ("Add", "x y", "z", {})], constants={"a": np.array([2.5, 0.5, 3.25, 1e-3, 1.5], np.float32)}, inputs={"x": (-1, 5)})
    case("constant_compare", 13, [("Equal", "a b", "e", {}), ("Less", "a b", "l", {}), ("Greater", "a b", "g", {}), ("LessOrEqual", "a b", "le", {}), ("GreaterOrEqual", "a b", "ge", {}), ("And", "e l", "n", {}), ("Or", "e l", "o", {}), ("Xor", "e le", "xo", {}),
                                  ("Not", "e", "no", {}), ("Where", "l a b", "w", {}), ("Relu", "x", "z", {})], constants={"a": i64(1, 2, 3), "b": i64(2, 2, 2)})
    case("constant_cast", 13, [("Cast", "a", "i", dict(to=S64)), ("Cast", "a", "t", dict(to=TensorProto.BOOL)), ("Cast", "i", "f", dict(to=F32)), ("Cast", "i", "s", dict(to=TensorProto.INT32)), ("Cast", "i", "b", dict(to=TensorProto.BOOL)), ("Relu", "x", "z", {})],
         constants={"a": np.array([-1.9, 0, 0.5, 3.7], np.float32)})
    c = f32(3, 4, 5)
    for kind in "ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1", "ReduceL2", "ReduceSumSquare":
        attributes = {} if kind == "ReduceSum" else dict(axes=[0, 2])
        case(f"constant_{kind}", 13, [(kind, "c a" if kind == "ReduceSum" else "c", "y", dict(keepdims=0, **attributes)), ("Relu", "x", "z", {})], constants={"c": c, "a": i64(0, 2)})
    case("constant_moves", 13, [("Transpose", "c", "t", dict(perm=[2, 0, 1])), ("Slice", "c s e a k", "l", {}), ("Concat", "c c", "cc", dict(axis=1)), ("Split", "c p", "p0 p1", dict(axis=1)), ("Tile", "c r", "ti", {}), ("Expand", "d es", "ex", {}),
                                ("Gather", "c gi", "g", dict(axis=1)), ("Pad", "c pads v", "pad", {}), ("Squeeze", "d sa", "sq", {}), ("Unsqueeze", "c sa", "un", {}), ("Flatten", "c", "fl", dict(axis=2)), ("Reshape", "c rs", "re", {}),
                                ("ConstantOfShape", "r", "cs", {}), ("Relu", "x", "z", {})],
         constants={"c": c, "s": i64(-1, 0), "e": i64(-100, 3), "a": i64(2, 0), "k": i64(-2, 2), "p": i64(1, 3), "r": i64(2, 1, 3), "d": f32(3, 1, 1), "es": i64(2, 1, 4, 1), "gi": i64(3, -4, 0).reshape(3, 1), "pads": i64(1, 0, -1, 0, 2, 1), "v": np.float32(0.5),
                    "sa": i64(1), "rs": i64(5, -1)})
    case("constant_scatter", 13, [("ScatterND", "c i u", "y", {}), ("Relu", "x", "z", {})], constants={"c": c, "i": i64(2, 0, -1, 3).reshape(2, 2), "u": f32(2, 5)})
    case("constant_range", 13, [("Range", "a b c", "y", {}), ("Range", "d e f", "w", {}), ("Relu", "x", "z", {})], constants={"a": np.int64(10), "b": np.int64(-1), "c": np.int64(-3), "d": np.float32(0.5), "e": np.float32(2), "f": np.float32(0.25)})
    case("weight_norm", 13, [("ReduceL2", "v", "n", dict(axes=[1, 2, 3], keepdims=1)), ("Div", "v n", "u", {}), ("Mul", "u g", "w", {}), ("Conv", "x w", "y", {})], constants={"v": f32(6, 4, 3, 3), "g": f32(6, 1, 1, 1)}, outputs=["w", "y"])
    case("linear_transposed", 13, [("Transpose", "w", "wt", dict(perm=[1, 0])), ("MatMul", "x wt", "m", {}), ("Add", "b m", "y", {})], inputs={"x": (-1, 5, 8)}, constants={"w": f32(3, 8), "b": f32(3)})


def text_of(runs, name):
    """'f32 (N, 4)' and, of what is the same in both, the elements."""
    types = {"float32": "f32", "int64": "s64", "int32": "s32", "bool": "u8", "uint8": "u8", "int8": "s8"}
    a, b = runs[0][name], runs[1][name]
    dims = []
    for m, n in zip(a["dims"], b["dims"]):
        if m == n:
            dims.append(str(m))
        else:
            assert m % 2 == 0 and m // 2 * 3 == n, (name, a["dims"], b["dims"])
            dims.append("N" if m == 2 else f"{m // 2} N")
    text = f"{types[a['type']]} ({', '.join(dims)})"
    return text, a["data"] if a["dims"] == b["dims"] and a["data"] == b["data"] else None


def depends_on_input(model):
    live = {i.name for i in model.graph.input}
    for n in model.graph.node:
        if n.op_type not in ("Shape", "Size") and live & set(n.input):
            live |= set(n.output)
    return live


def main():
    for group in (shapes_of_windows, shapes_of_products, shapes_that_stay, shapes_of_pairs, shapes_of_reductions, shapes_that_move, arithmetic_of_shapes, constants):
        group()
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for i, (name, model, inputs, outputs) in enumerate(CASES):
            path = os.path.join(folder, f"{i}.onnx")
            onnx.save(model, path)
            jobs.append(dict(path=path, inputs=inputs))
        run, jobs_file, result = (os.path.join(folder, f) for f in ("run.js", "jobs.json", "result.json"))
        open(run, "w").write(RUNNER)
        json.dump(jobs, open(jobs_file, "w"))
        subprocess.run(["node", run, jobs_file, result], check=True)
        results = json.load(open(result))
    blob, table, expected, most = b"", [], [], 1
    for (name, model, inputs, outputs), runs in zip(CASES, results):
        if isinstance(runs, str):
            raise SystemExit(f"{name}: {runs}")
        live = depends_on_input(model)
        data = model.SerializeToString()
        first = len(expected)
        for o in outputs:
            text, numbers = text_of(runs, o)
            if o in live or numbers is None:
                numbers = []
            most = max(most, len(numbers))
            values = ", ".join(repr(float(v)) if not isinstance(v, str) else v for v in numbers)
            expected.append(f'{{"{text}", {len(numbers)}, {{{values or 0}}}}},')
        table.append(f'{{"{name}", {len(blob)}, {len(data)}, {first}, {len(outputs)}}},')
        blob += data
    print(f"/* Written by make_onnx_golden.py with onnx {onnx.__version__} and ONNX Runtime; do not edit. */")
    print("#pragma once\n\n#include <stddef.h>\n#include <stdint.h>\n")
    packed = zlib.compress(blob, 9)
    print(f"/* All networks one behind the other, deflated. */\nenum {{ ONNX_GOLDEN_BYTES = {len(blob)}, ONNX_GOLDEN_NUMBERS_MAX = {most} }};")
    print(f"static const uint8_t onnx_golden_bytes[] = {{{', '.join(map(str, packed))}}};\n")
    print("/* An output: type and shape, and its elements where it is a constant. */")
    print("typedef struct onnx_golden_output { const char *shape; int count; double value[ONNX_GOLDEN_NUMBERS_MAX]; } onnx_golden_output;")
    print("static const onnx_golden_output onnx_golden_outputs[] = {" + "\n".join(expected) + "};")
    print("typedef struct onnx_golden_case { const char *name; size_t at, size; int first, outputs; } onnx_golden_case;")
    print("static const onnx_golden_case onnx_golden[] = {" + "\n".join(table) + "};")


main()
