#!/usr/bin/env python3
"""Writes networks into tests/golden/onnx_cases as the exporters of PyTorch 2.x write them: torch.onnx.export(dynamo=True)
of 2.5 and later (opset 18 and up, file format 10, data beside the file), torch.onnx.dynamo_export of 2.1 to 2.4
(a function for each module and each ATen operator, conditions inside), and scripted modules (If, Loop). None of these
exporters is in Debian 12, so python3-onnx 1.12 writes the nodes, and its unknown fields hold what it does not know;
the outputs are those that python3-torch 1.13 computes of the same network:
    tests/golden/make_onnx_torch2.py
"""
import os

import numpy as np
import onnx
import torch
import torch.nn.functional as F
from onnx import TensorProto, helper, numpy_helper

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_cases")
node = helper.make_node


def raw_text(field, value):
    data = value.encode()
    return bytes([field << 3 | 2, len(data)]) + data


def with_metadata(n, scope):
    """NodeProto.metadata_props, younger than onnx 1.12."""
    entry = raw_text(1, "pkg.torch.onnx.name_scopes") + raw_text(2, scope)
    n.MergeFromString(bytes([9 << 3 | 2, len(entry)]) + entry)
    return n


def with_default(function, name, value):
    """FunctionProto.attribute_proto, younger than onnx 1.12."""
    attribute = helper.make_attribute(name, value).SerializeToString()
    function.MergeFromString(bytes([11 << 3 | 2, len(attribute)]) + attribute)
    return function


def ref(n, **attributes):
    """Attributes of a node in a function that are those of the call."""
    for name, (of, kind) in attributes.items():
        a = n.attribute.add()
        a.name, a.ref_attr_name, a.type = name, of, kind
    return n


def tensor(name, value, kind=None):
    value = value.detach().numpy() if isinstance(value, torch.Tensor) else np.asarray(value)
    return numpy_helper.from_array(value if kind is None else value.astype(kind), name)


def bfloat16(name, value):
    bits = value.detach().numpy().view(np.uint32) >> 16
    return helper.make_tensor(name, TensorProto.BFLOAT16, value.shape, bits.astype(np.uint16).tobytes(), raw=True)


def longs(name, *values):
    return tensor(name, np.array(values, np.int64))


def save(name, nodes, weights, x, y, *, opset, ir, functions=(), domains=(), external=False, batch="s77"):
    shape = [batch, *x.shape[1:]]
    graph = helper.make_graph(
        nodes, "main_graph", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [batch, *y.shape[1:]])], weights)
    graph.value_info.append(helper.make_tensor_value_info(nodes[0].output[0], TensorProto.FLOAT, [batch, None]))
    opsets = [helper.make_opsetid("", opset), *[helper.make_opsetid(d, 1) for d in domains]]
    model = helper.make_model(graph, producer_name="pytorch", producer_version="2.x", opset_imports=opsets,
                              functions=list(functions), ir_version=ir)
    path = os.path.join(OUT, name + ".onnx")
    if external:
        data = name + ".onnx.data"
        if os.path.exists(os.path.join(OUT, data)):
            os.remove(os.path.join(OUT, data))
        onnx.save(model, path, save_as_external_data=True, all_tensors_to_one_file=True, location=data,
                  size_threshold=0)
    else:
        onnx.save(model, path)
    np.savez(os.path.join(OUT, name + ".npz"), x=x.numpy(), y=y.detach().numpy())
    print(name, tuple(y.shape), os.path.getsize(path))


def batch_norm(channels):
    return torch.rand(channels) + 0.5, torch.randn(channels), torch.randn(channels) * 0.2, torch.rand(channels) + 0.5


def torch2_dynamo():
    """Mean and deviation of images inside the network, batch norm, windows, split, resize, clip, mean, a head."""
    torch.manual_seed(1)
    x = torch.randn(2, 3, 12, 10)
    mean, std = torch.rand(1, 3, 1, 1), torch.rand(1, 3, 1, 1) + 0.5
    w1, b1, w2, b2 = torch.randn(8, 3, 3, 3) * 0.2, torch.randn(8), torch.randn(5, 4) * 0.5, torch.randn(5)
    norm = batch_norm(8)
    h = F.conv2d((x - mean) / std, w1, b1, padding=1)
    h = F.relu(F.batch_norm(h, norm[2], norm[3], norm[0], norm[1]))
    h = F.max_pool2d(h, 2)
    p, q = h.chunk(2, 1)
    h = F.interpolate(p * torch.sigmoid(q), size=(12, 10), mode="bilinear") + F.hardswish(
        F.interpolate(p, scale_factor=2.0, mode="nearest"))
    h = torch.clamp(h, -0.5, 3.0)
    y = F.log_softmax(F.linear(h.mean((2, 3)), w2, b2), 1)
    nodes = [
        node("Sub", ["x", "mean"], ["sub"], name="node_sub"),
        node("Div", ["sub", "std"], ["div"], name="node_div"),
        node("Conv", ["div", "conv1.weight", "conv1.bias"], ["conv2d"], name="node_conv2d", group=1, pads=[1, 1, 1, 1],
             auto_pad="NOTSET", strides=[1, 1], dilations=[1, 1]),
        node("BatchNormalization", ["conv2d", "bn1.weight", "bn1.bias", "bn1.running_mean", "bn1.running_var"],
             ["batch_norm"], name="node_batch_norm", training_mode=0, epsilon=1e-5, momentum=0.9),
        node("Relu", ["batch_norm"], ["relu"], name="node_relu"),
        node("MaxPool", ["relu"], ["max_pool2d"], name="node_max_pool2d", storage_order=0, dilations=[1, 1],
             ceil_mode=0, pads=[0, 0, 0, 0], auto_pad="NOTSET", strides=[2, 2], kernel_shape=[2, 2]),
        node("Split", ["max_pool2d"], ["p", "q"], name="node_split", axis=1, num_outputs=2),
        node("Sigmoid", ["q"], ["sigmoid"], name="node_sigmoid"),
        node("Mul", ["p", "sigmoid"], ["mul"], name="node_mul"),
        node("Shape", ["x"], ["dims"], name="node_shape", start=0, end=1),
        node("Concat", ["dims", "val_sizes"], ["sizes"], name="node_concat", axis=0),
        node("Resize", ["mul", "", "", "sizes"], ["up1"], name="node_upsample_bilinear2d", mode="linear",
             coordinate_transformation_mode="half_pixel", keep_aspect_ratio_policy="stretch", antialias=0,
             cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, nearest_mode="floor"),
        node("Resize", ["p", "", "val_scales"], ["up2"], name="node_upsample_nearest2d", mode="nearest",
             coordinate_transformation_mode="asymmetric", keep_aspect_ratio_policy="stretch", antialias=0,
             cubic_coeff_a=-0.75, exclude_outside=0, extrapolation_value=0.0, nearest_mode="floor"),
        node("HardSwish", ["up2"], ["hardswish"], name="node_hardswish"),
        node("Add", ["up1", "hardswish"], ["add"], name="node_add"),
        node("Clip", ["add", "val_lo", "val_hi"], ["clamp"], name="node_clamp"),
        node("ReduceMean", ["clamp", "val_axes"], ["mean_1"], name="node_mean", keepdims=0, noop_with_empty_axes=0),
        node("Reshape", ["mean_1", "val_shape"], ["view"], name="node_view", allowzero=1),
        node("Gemm", ["view", "fc.weight", "fc.bias"], ["linear"], name="node_linear", transB=1, alpha=1.0, beta=1.0),
        node("LogSoftmax", ["linear"], ["y"], name="node_log_softmax", axis=1),
    ]
    for n in nodes:
        with_metadata(n, f"['', '{n.output[0]}']")
    weights = [tensor("mean", mean), tensor("std", std), tensor("conv1.weight", w1), tensor("conv1.bias", b1),
               *[tensor("bn1." + k, v) for k, v in zip(("weight", "bias", "running_mean", "running_var"), norm)],
               longs("val_sizes", 4, 12, 10), tensor("val_scales", np.float32([1, 1, 2, 2])),
               tensor("val_lo", np.float32(-0.5)), tensor("val_hi", np.float32(3)), longs("val_axes", -2, -1),
               longs("val_shape", -1, 4), tensor("fc.weight", w2), tensor("fc.bias", b2)]
    save("torch2_dynamo", nodes, weights, x, y, opset=18, ir=10, external=True,
         domains=("pkg.onnxscript.torch_lib.common", "ai.onnx.ml"))


def torch2_tokens():
    """Opset 21: layer norm, GELU, group norm, attention with fp16 and bf16 weights that are cast."""
    torch.manual_seed(2)
    x = torch.randn(2, 4, 6, 6)
    g, gs, gb = 2, torch.rand(4) + 0.5, torch.randn(4)
    ls, lb = torch.rand(4) + 0.5, torch.randn(4)
    wq, wk = (torch.randn(4, 4) * 0.5).half(), (torch.randn(4, 4) * 0.5).bfloat16()
    w1, b1 = torch.randn(4, 8) * 0.4, torch.randn(8)
    h = F.group_norm(x, g, gs, gb)
    h = h.flatten(2).transpose(1, 2)
    n = F.layer_norm(h, (4,), ls, lb)
    a = torch.softmax((n @ wq.float()) @ (n @ wk.float()).transpose(1, 2) * 0.5, -1) @ n
    h = F.gelu((h + a) @ w1 + b1) + F.gelu((h - a) @ w1 + b1, approximate="tanh")
    y = h.mean(1)
    nodes = [
        node("GroupNormalization", ["x", "norm.weight", "norm.bias"], ["gn"], name="node_group_norm", num_groups=g,
             epsilon=1e-5, stash_type=1),
        node("Reshape", ["gn", "flat"], ["view"], name="node_view", allowzero=0),
        node("Transpose", ["view"], ["h"], name="node_transpose", perm=[0, 2, 1]),
        node("LayerNormalization", ["h", "ln.weight", "ln.bias"], ["n"], name="node_layer_norm", axis=-1, epsilon=1e-5,
             stash_type=1),
        node("Cast", ["q.weight"], ["wq"], name="node_cast", to=TensorProto.FLOAT, saturate=1),
        node("CastLike", ["k.weight", "x"], ["wk"], name="node_cast_like"),
        node("MatMul", ["n", "wq"], ["q"], name="node_q"),
        node("MatMul", ["n", "wk"], ["k"], name="node_k"),
        node("Transpose", ["k"], ["kt"], name="node_kt", perm=[0, 2, 1]),
        node("MatMul", ["q", "kt"], ["qk"], name="node_qk"),
        node("Mul", ["qk", "half"], ["scaled"], name="node_mul"),
        node("Softmax", ["scaled"], ["softmax"], name="node_softmax", axis=-1),
        node("MatMul", ["softmax", "n"], ["a"], name="node_sdpa"),
        node("Add", ["h", "a"], ["ha"], name="node_add"),
        node("Sub", ["h", "a"], ["hb"], name="node_sub"),
        node("MatMul", ["ha", "w1"], ["m1"], name="node_m1"),
        node("Add", ["m1", "b1"], ["l1"], name="node_l1"),
        node("MatMul", ["hb", "w1"], ["m2"], name="node_m2"),
        node("Add", ["m2", "b1"], ["l2"], name="node_l2"),
        node("Gelu", ["l1"], ["g1"], name="node_gelu", approximate="none"),
        node("Gelu", ["l2"], ["g2"], name="node_gelu_1", approximate="tanh"),
        node("Add", ["g1", "g2"], ["sum"], name="node_add_1"),
        node("ReduceMean", ["sum", "one"], ["y"], name="node_mean", keepdims=0),
    ]
    weights = [tensor("norm.weight", gs), tensor("norm.bias", gb), longs("flat", 0, 4, -1), tensor("ln.weight", ls),
               tensor("ln.bias", lb), tensor("q.weight", wq), bfloat16("k.weight", wk.float()),
               tensor("half", np.float32(0.5)), tensor("w1", w1), tensor("b1", b1), longs("one", 1)]
    save("torch2_tokens", nodes, weights, x, y, opset=21, ir=10, batch="batch")


TORCH_LIB, COMMON, TORCH = "pkg.onnxscript.torch_lib", "pkg.onnxscript.torch_lib.common", "pkg.torch.2.1.0"


def function(domain, name, inputs, outputs, nodes, attributes=()):
    opsets = [helper.make_opsetid("", 18), *[helper.make_opsetid(d, 1) for d in (TORCH_LIB, COMMON, TORCH)]]
    return helper.make_function(domain, name, inputs, outputs, nodes, opsets, list(attributes))


def branch(name, nodes, output):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.UNDEFINED, None)])


def torch2_functions():
    """A function of each module calls one of each operator, which asks for ranks and has attributes with defaults."""
    torch.manual_seed(3)
    x = torch.randn(2, 3, 8, 8)
    w, b, fw, fb = torch.randn(6, 3, 3, 3) * 0.3, torch.randn(6), torch.randn(4, 6) * 0.5, torch.randn(4)
    norm = batch_norm(6)
    h = F.leaky_relu(F.batch_norm(F.conv2d(x, w, b, stride=2), norm[2], norm[3], norm[0], norm[1], eps=1e-3), 0.1)
    y = F.linear(h.mean((2, 3)), fw, fb) + F.linear(h.amax((2, 3)), fw, fb)
    INT, FLOAT, INTS = onnx.AttributeProto.INT, onnx.AttributeProto.FLOAT, onnx.AttributeProto.INTS
    functions = [
        function(COMMON, "Rank", ["input"], ["return_val"], [
            node("Shape", ["input"], ["tmp"]), node("Size", ["tmp"], ["return_val"])]),
        function(COMMON, "IsScalar", ["input"], ["return_val"], [
            node("Rank", ["input"], ["tmp"], domain=COMMON), node("Constant", [], ["zero"], value_int=0),
            node("Equal", ["tmp", "zero"], ["return_val"])]),
        function(TORCH_LIB, "_aten_convolution_onnx", ["input", "weight", "bias"], ["return_val"], [
            node("Rank", ["input"], ["rank"], domain=COMMON), node("Constant", [], ["three"], value_int=3),
            node("Equal", ["rank", "three"], ["no_batch"]),
            node("If", ["no_batch"], ["input_1"], then_branch=branch("then", [
                node("Constant", [], ["axes"], value_ints=[0]), node("Unsqueeze", ["input", "axes"], ["input_2"])],
                "input_2"), else_branch=branch("else", [node("Identity", ["input"], ["input_3"])], "input_3")),
            ref(node("Conv", ["input_1", "weight", "bias"], ["result"]), strides=("strides", INTS), pads=("pads", INTS),
                group=("groups", INT)),
            node("If", ["no_batch"], ["return_val"], then_branch=branch("then_1", [
                node("Constant", [], ["axes_1"], value_ints=[0]), node("Squeeze", ["result", "axes_1"], ["result_1"])],
                "result_1"), else_branch=branch("else_1", [node("Identity", ["result"], ["result_2"])], "result_2")),
        ], ["strides", "pads", "groups"]),
        with_default(function(TORCH_LIB, "_aten_native_batch_norm_inference_onnx",
                              ["input", "weight", "bias", "mean", "var"], ["return_val"], [
            ref(node("BatchNormalization", ["input", "weight", "bias", "mean", "var"], ["return_val"], training_mode=0),
                epsilon=("eps", FLOAT), momentum=("momentum", FLOAT))], ["momentum"]), "eps", 1e-3),
        with_default(function(TORCH_LIB, "aten_leaky_relu", ["self"], ["result"], [
            ref(node("Constant", [], ["slope"]), value_float=("negative_slope", FLOAT)),
            node("CastLike", ["slope", "self"], ["slope_cast"]), node("Constant", [], ["zero"], value_float=0.0),
            node("CastLike", ["zero", "self"], ["zero_cast"]), node("Mul", ["self", "slope_cast"], ["scaled"]),
            node("Max", ["self", "zero_cast"], ["up"]), node("Min", ["scaled", "zero_cast"], ["down"]),
            node("Add", ["up", "down"], ["result"])]), "negative_slope", 0.1),
        function(TORCH_LIB, "aten_mean_dim", ["self", "dim"], ["result"], [
            node("IsScalar", ["self"], ["scalar"], domain=COMMON),
            node("If", ["scalar"], ["result"], then_branch=branch("then_2", [node("Identity", ["self"], ["r1"])], "r1"),
                 else_branch=branch("else_2", [
                     node("IsScalar", ["dim"], ["dim_scalar"], domain=COMMON),
                     node("If", ["dim_scalar"], ["dims"], then_branch=branch("then_3", [
                         node("Constant", [], ["zero"], value_ints=[0]), node("Unsqueeze", ["dim", "zero"], ["d1"])],
                         "d1"), else_branch=branch("else_3", [node("Identity", ["dim"], ["d2"])], "d2")),
                     ref(node("ReduceMean", ["self", "dims"], ["r2"]), keepdims=("keepdim", INT))], "r2"))],
            ["keepdim"]),
        function(TORCH_LIB, "aten_addmm", ["self", "mat1", "mat2"], ["return_val"], [
            ref(node("Gemm", ["mat1", "mat2", "self"], ["return_val"]), alpha=("alpha", FLOAT), beta=("beta", FLOAT))],
            ["alpha", "beta"]),
        function(TORCH, "torch_nn_modules_conv_Conv2d_conv_1", ["l_x_", "conv.weight", "conv.bias"], ["convolution"], [
            node("_aten_convolution_onnx", ["l_x_", "conv.weight", "conv.bias"], ["convolution"], domain=TORCH_LIB,
                 strides=[2, 2], pads=[0, 0, 0, 0], groups=1)]),
        function(TORCH, "torch_nn_modules_linear_Linear_fc_1", ["view", "fc.weight", "fc.bias"], ["addmm"], [
            node("Transpose", ["fc.weight"], ["t"], perm=[1, 0]),
            node("aten_addmm", ["fc.bias", "view", "t"], ["addmm"], domain=TORCH_LIB, alpha=1.0, beta=1.0)]),
    ]
    nodes = [
        node("torch_nn_modules_conv_Conv2d_conv_1", ["x", "conv.weight", "conv.bias"], ["conv"], domain=TORCH,
             name="conv_1"),
        node("_aten_native_batch_norm_inference_onnx", ["conv", *["bn." + k for k in (
            "weight", "bias", "running_mean", "running_var")]], ["bn"], domain=TORCH_LIB, name="bn_1", momentum=0.9),
        node("aten_leaky_relu", ["bn"], ["act"], domain=TORCH_LIB, name="act_1"),
        node("Constant", [], ["dim"], value_ints=[2, 3]),
        node("aten_mean_dim", ["act", "dim"], ["mean"], domain=TORCH_LIB, name="mean_1", keepdim=0),
        node("torch_nn_modules_linear_Linear_fc_1", ["mean", "fc.weight", "fc.bias"], ["fc_a"], domain=TORCH,
             name="fc_1"),
        node("ReduceMax", ["act", "dim"], ["flat"], name="amax_1", keepdims=0),
        node("torch_nn_modules_linear_Linear_fc_1", ["flat", "fc.weight", "fc.bias"], ["fc_b"], domain=TORCH,
             name="fc_2"),
        node("Add", ["fc_a", "fc_b"], ["y"], name="add_1"),
    ]
    weights = [tensor("conv.weight", w), tensor("conv.bias", b),
               *[tensor("bn." + k, v) for k, v in zip(("weight", "bias", "running_mean", "running_var"), norm)],
               tensor("fc.weight", fw), tensor("fc.bias", fb)]
    save("torch2_functions", nodes, weights, x, y, opset=18, ir=8, functions=functions,
         domains=(TORCH_LIB, COMMON, TORCH))


def torch2_groups():
    """Opset 18: a factor for each group."""
    torch.manual_seed(5)
    x, w = torch.randn(2, 3, 5, 5), torch.randn(6, 3, 3, 3)
    scale, shift = torch.rand(3) + 0.5, torch.randn(3)
    y = F.group_norm(F.conv2d(x, w), 3, scale.repeat_interleave(2), shift.repeat_interleave(2), 1e-3)
    nodes = [
        node("Conv", ["x", "conv.weight"], ["c"], name="node_conv2d"),
        node("GroupNormalization", ["c", "norm.scale", "norm.shift"], ["y"], name="node_norm", num_groups=3,
             epsilon=1e-3),
    ]
    weights = [tensor("conv.weight", w), tensor("norm.scale", scale), tensor("norm.shift", shift)]
    save("torch2_groups", nodes, weights, x, y, opset=18, ir=9)


def scripted():
    """torch.jit.script keeps a loop of a fixed number of rounds, and asks for shapes."""
    torch.manual_seed(4)
    x = torch.randn(2, 3, 6, 6)
    w, ws, b = torch.randn(4, 3, 1, 1), torch.randn(4, 4, 3, 3) * 0.3, torch.randn(4)
    h = F.conv2d(x, w)
    for i in range(3):
        h = torch.relu(F.conv2d(h, ws, b, padding=1)) + float(i)
    y = h[:, :, 1:].flatten(1)
    info = helper.make_tensor_value_info
    body = helper.make_graph([
        node("Conv", ["carried", "block.weight", "block.bias"], ["c"], pads=[1, 1, 1, 1]),
        node("Relu", ["c"], ["r"]), node("Cast", ["i"], ["f"], to=TensorProto.FLOAT),
        node("Add", ["r", "f"], ["next"]), node("Cast", ["go"], ["go_on"], to=TensorProto.BOOL),
    ], "body", [info("i", TensorProto.INT64, []), info("go", TensorProto.BOOL, []), info("carried", TensorProto.FLOAT, None)],
        [info("go_on", TensorProto.BOOL, []), info("next", TensorProto.FLOAT, None)])
    nodes = [
        node("Conv", ["x", "stem.weight"], ["stem"], name="/stem/Conv"),
        node("Constant", [], ["rounds"], value=tensor("", np.int64(3))),
        node("Constant", [], ["true"], value=tensor("", np.array(True))),
        node("Loop", ["rounds", "true", "stem"], ["looped"], name="/Loop", body=body),
        node("Shape", ["x"], ["shape"]), node("Constant", [], ["two"], value=tensor("", np.int64(2))),
        node("Gather", ["shape", "two"], ["h"]), node("Constant", [], ["four"], value=tensor("", np.int64(4))),
        node("Greater", ["h", "four"], ["is_large"]),
        node("If", ["is_large"], ["cropped"], name="/If", then_branch=branch("then", [
            node("Constant", [], ["start"], value_ints=[1]), node("Constant", [], ["end"], value_ints=[1 << 62]),
            node("Constant", [], ["axis"], value_ints=[2]),
            node("Slice", ["looped", "start", "end", "axis"], ["sliced"])], "sliced"),
            else_branch=branch("else", [node("NonZero", ["looped"], ["nonzero"])], "nonzero")),
        node("Flatten", ["cropped"], ["y"], name="/Flatten"),
    ]
    weights = [tensor("stem.weight", w), tensor("block.weight", ws), tensor("block.bias", b)]
    save("scripted", nodes, weights, x, y, opset=16, ir=8)


torch2_dynamo()
torch2_tokens()
torch2_functions()
torch2_groups()
scripted()
