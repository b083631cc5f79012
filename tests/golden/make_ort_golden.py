#!/usr/bin/env python3
"""Writes ort_golden.h: the codes that ONNX Runtime really computes, for the target onnxruntime.

Run with Debian's python3-onnx and numpy, and onnxruntime-node 1.30 (npm install --ignore-scripts
onnxruntime-node@1.30.0) where NODE_PATH finds it, in this folder:
    NODE_PATH=.../node_modules /usr/bin/python3 make_ort_golden.py > ort_golden.h && clang-format-14 -i ort_golden.h

Each case is a small QDQ model in the form that quant/target/README.md gives for a step; ort_run.cjs runs it at
the optimization levels disabled, basic, extended and all. What `all` (the default) computes is written. The
script stops where extended or all differ from the formula of the target, in which the expected values below
are computed, and where another level differs though it should not; so the formulas are proven by values.

    make_ort_golden.py --probe [RUNNER...]

prints, for each form, how many codes differ from the formula at each level, and which operators ONNX Runtime
made of it. RUNNER is what runs node, such as: qemu-x86_64 -cpu Haswell /usr/bin/node (AVX2 without VNNI, where
weights of type s8 saturate).
"""
import json
import os
import subprocess
import sys
import tempfile

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

HERE = os.path.dirname(os.path.abspath(__file__))
LEVELS = ("disabled", "basic", "extended", "all")
TYPES = {"float32": TensorProto.FLOAT, "uint8": TensorProto.UINT8, "int8": TensorProto.INT8,
         "int32": TensorProto.INT32, "int64": TensorProto.INT64}
f32 = np.float32
rng = np.random.default_rng(20261122)


class Model:
    """One graph with the inputs that it is run on."""

    def __init__(self):
        self.nodes, self.inputs, self.constants, self.outputs, self.feeds = [], [], [], [], {}
        self.count = 0

    def name(self):
        self.count += 1
        return f"v{self.count}"

    def input(self, array):
        name = self.name()
        self.feeds[name] = array
        self.inputs.append(helper.make_tensor_value_info(name, TYPES[str(array.dtype)], array.shape))
        return name

    def constant(self, array):
        name = self.name()
        self.constants.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def node(self, op, *inputs, **attributes):
        name = self.name()
        self.nodes.append(helper.make_node(op, list(inputs), [name], **attributes))
        return name

    def quantize(self, value, scale, zero_point):
        return self.node("QuantizeLinear", value, self.constant(f32(scale)), self.constant(np.uint8(zero_point)))

    def dequantize(self, value, scale, zero_point):
        return self.node("DequantizeLinear", value, self.constant(f32(scale)), self.constant(np.uint8(zero_point)))

    def channels(self, array, scale, zero_point):
        zeros = np.full(array.shape[0], zero_point, array.dtype)
        return self.node("DequantizeLinear", self.constant(array), self.constant(scale), self.constant(zeros), axis=0)

    def output(self, value, like):
        self.outputs.append(helper.make_tensor_value_info(value, TYPES[str(like.dtype)], like.shape))
        return self

    def save(self, path):
        graph = helper.make_graph(self.nodes, "graph", self.inputs, self.outputs, self.constants)
        opsets = [helper.make_opsetid("", 13)]
        model = helper.make_model(graph, opset_imports=opsets)
        model.ir_version = 8
        onnx.checker.check_model(model)
        onnx.save(model, path)


def run(models, runner):
    """Runs each model at each level: the output, and the operators of the optimized graph."""
    with tempfile.TemporaryDirectory() as folder:
        jobs = []
        for k, model in enumerate(models):
            model.save(f"{folder}/{k}.onnx")
            inputs = []
            for name, array in model.feeds.items():
                np.ascontiguousarray(array).tofile(f"{folder}/{k}.{name}.in")
                inputs.append({"name": name, "type": str(array.dtype), "dims": list(array.shape),
                               "file": f"{folder}/{k}.{name}.in"})
            for level in LEVELS:
                jobs.append({"model": f"{folder}/{k}.onnx", "level": level, "inputs": inputs,
                             "save": f"{folder}/{k}.{level}", "optimized": f"{folder}/{k}.{level}.onnx"})
        with open(f"{folder}/jobs.json", "w") as file:
            json.dump(jobs, file)
        done = subprocess.run([*runner, f"{HERE}/ort_run.cjs", f"{folder}/jobs.json"], check=True,
                              stdout=subprocess.PIPE, text=True)
        lines = iter([json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")])
        for k, model in enumerate(models):
            results = {}
            for level in LEVELS:
                line = next(lines)
                if "error" in line:
                    raise SystemExit(f"model {k}, {level}: {line['error']}")
                name = model.outputs[0].name
                data = np.fromfile(f"{folder}/{k}.{level}.{name}", line[name]["type"]).reshape(line[name]["dims"])
                graph = onnx.load(f"{folder}/{k}.{level}.onnx").graph
                results[level] = (data, [node.op_type for node in graph.node])
            yield results


def code(value, zero_point, lo=0, hi=255):
    """The requantizer: half to even, then the zero point, then the bounds."""
    return np.clip(np.rint(value).astype(np.float64) + zero_point, lo, hi).astype(np.uint8)


def sums(x, zero_point, weight, bias, pads, stride, groups):
    """The accumulators of a convolution; x (N,C,H,W), weight (O,I,kh,kw), pads top, left, bottom, right."""
    outs, ins, kh, kw = weight.shape
    each = outs // groups
    logical = np.pad(x.astype(np.int64) - zero_point, ((0, 0), (0, 0), (pads[0], pads[2]), (pads[1], pads[3])))
    height = (logical.shape[2] - kh) // stride + 1
    width = (logical.shape[3] - kw) // stride + 1
    y = np.zeros((x.shape[0], outs, height, width), np.int64)
    for o in range(outs):
        for i in range(ins):
            for ky in range(kh):
                for kx in range(kw):
                    plane = logical[:, o // each * ins + i, ky:ky + height * stride:stride, kx:kx + width * stride:stride]
                    y[:, o] += plane * int(weight[o, i, ky, kx])
        y[:, o] += int(bias[o])
    return y


CASES = []  # of {kind, name, model, expected, exact: levels that must give it, ...}


def case(kind, name, model, expected, exact=("extended", "all"), **more):
    CASES.append({"kind": kind, "name": name, "model": model, "expected": expected, "exact": exact, **more})


def add_quantize():
    scale = f32(0.0371)
    x = (rng.standard_normal(54) * 4).astype(f32)
    middles = ((np.arange(400) - 200 + 0.5).astype(f32) * scale).astype(f32)
    quotient, product = np.rint(middles / scale), np.rint(middles * (f32(1) / scale))
    apart = middles[(quotient != product) & (np.abs(quotient) < 110)][:24]  # where a product with the reciprocal gives another code
    ties = middles[180:220]
    ends = np.array([0, -0.0, 1e-30, -1e-30, 1e30, -1e30, np.inf, -np.inf, 5.27, -4.19], f32)
    for zero_point in (0, 113, 128, 255):
        values = np.concatenate([apart, ties, ends, x])
        m = Model()
        case("quantize", f"zero point {zero_point}", m.output(m.quantize(m.input(values), scale, zero_point), np.zeros(values.shape, np.uint8)),
             code(np.clip(values / scale, -1e6, 1e6), zero_point), LEVELS, scale=scale, zero_point=zero_point, x=values)
    assert len(apart) >= 8


def add_conv(name, ins, outs, size, kernel, pads=(0, 0, 0, 0), stride=1, groups=1, zx=0, zy=0, lo=0, hi=255, ones=False,
             weight_type="u8", probe=False, keeps=False):
    x = rng.integers(0, 256, (1, ins, size, size)).astype(np.uint8)
    w = rng.integers(-127, 128, (outs, ins // groups, kernel, kernel)).astype(np.int8)
    bias = rng.integers(-9000, 9000, outs).astype(np.int32)
    sw = (rng.random(outs) * 0.01 + 0.001).astype(f32)
    if ones:
        w[:], bias[:], sw[:] = 1, 0, f32(1) / f32(kernel * kernel)
    sx = f32(0.0213)
    while keeps and f32(f32(sx * sw[0]) / sx) == sw[0]:  # a scale that changes the multiplier
        sx = np.nextafter(sx, f32(1))
    acc = sums(x, zx, w, bias, pads, stride, groups)
    largest = np.abs(acc * (sx * sw)[None, :, None, None]).max()
    sy = sx if keeps else f32(largest / 140)  # so that some are cut
    multiplier = (sx * sw / sy).astype(f32)
    expected = code(acc.astype(f32) * multiplier[None, :, None, None], zy, lo, hi)
    m = Model()
    weight = (w.astype(np.int32) + 128).astype(np.uint8) if weight_type == "u8" else w
    y = m.node("Conv", m.dequantize(m.input(x), sx, zx), m.channels(weight, sw, 128 if weight_type == "u8" else 0),
               m.channels(bias, (sx * sw).astype(f32), 0), kernel_shape=[kernel, kernel], pads=list(pads),
               strides=[stride, stride], group=groups)
    y = m.quantize(y, sy, zy)
    if (lo, hi) != (0, 255):
        y = m.node("Clip", y, m.constant(np.uint8(lo)), m.constant(np.uint8(hi)))
    case("probe" if probe else "conv", name, m.output(y, expected), expected, x=x, weight=w, bias=bias, sx=sx, sw=sw,
         sy=sy, zx=zx, zy=zy, lo=lo, hi=hi, stride=stride, padding=pads[0], groups=groups, kernel=kernel)


def add_linear(name, rows, depth, outs, zx):
    x = rng.integers(0, 256, (rows, depth)).astype(np.uint8)
    w = rng.integers(-127, 128, (outs, depth)).astype(np.int8)
    bias = rng.integers(-9000, 9000, outs).astype(np.int32)
    sx, sw = f32(0.0213), (rng.random(outs) * 0.01 + 0.001).astype(f32)
    acc = (x.astype(np.int64) - zx) @ w.astype(np.int64).T + bias
    expected = (acc.astype(f32) * (sx * sw)[None]).astype(f32)
    m = Model()
    y = m.node("Gemm", m.dequantize(m.input(x), sx, zx), m.channels((w.astype(np.int32) + 128).astype(np.uint8), sw, 128),
               m.channels(bias, (sx * sw).astype(f32), 0), transB=1)
    case("linear", name, m.output(y, expected), expected, x=x, weight=w, bias=bias, sx=sx, sw=sw, zx=zx)


def add_binary(op, name, a, b, y, exact, relu=False, form="Add", probe=False):
    """a, b and y are (scale, zero point)."""
    size = (8, 96)
    xa, xb = rng.integers(0, 256, size).astype(np.uint8), rng.integers(0, 256, size).astype(np.uint8)
    (sa, za), (sb, zb), (sy, zy) = a, b, y
    m = Model()
    v = m.node(form, m.dequantize(m.input(xa), sa, za), m.dequantize(m.input(xb), sb, zb))
    v = m.quantize(v, sy, zy)
    la, lb = xa.astype(np.int32) - za, xb.astype(np.int32) - zb
    if op == "add":
        total = la - lb if form == "Sub" else la + lb
        expected = np.clip(total + zy, zy if relu else 0, 255).astype(np.uint8)
    else:
        factor = f32(f32(f32(sa) * f32(sb)) / f32(sy))
        expected = code(((la * lb).astype(f32) * factor).astype(f32) + f32(zy), 0)
    if relu:
        v = m.node("Clip", v, m.constant(np.uint8(zy)), m.constant(np.uint8(255)))
    case("probe" if probe else op, name, m.output(v, expected), expected, exact, a=xa, b=xb, qa=a, qb=b, qy=y, relu=relu)


def add_codes():
    """What runs on codes themselves, at every level."""
    x = rng.integers(0, 256, (1, 8, 12, 12)).astype(np.uint8)

    def probe(name, make, expected):
        m = Model()
        case("probe", name, m.output(make(m, m.input(x)), expected), expected, LEVELS)
    table = rng.integers(0, 256, 256).astype(np.uint8)
    ints = lambda m, *values: m.constant(np.array(values, np.int64))
    probe("Gather of a table", lambda m, v: m.node("Gather", m.constant(table), m.node("Cast", v, to=TensorProto.INT32)), table[x])
    pooled = np.pad(x, ((0, 0), (0, 0), (1, 1), (1, 1)))
    pooled = np.max([pooled[:, :, i:i + 12:2, j:j + 12:2] for i in range(3) for j in range(3)], axis=0)
    probe("MaxPool", lambda m, v: m.node("MaxPool", v, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]), pooled)
    probe("Clip", lambda m, v: m.node("Clip", v, m.constant(np.uint8(113)), m.constant(np.uint8(200))), np.clip(x, 113, 200))
    probe("Transpose", lambda m, v: m.node("Transpose", v, perm=[0, 2, 3, 1]), x.transpose(0, 2, 3, 1))
    probe("Slice", lambda m, v: m.node("Slice", v, ints(m, 3), ints(m, 7), ints(m, 1)), x[:, 3:7])
    probe("Concat", lambda m, v: m.node("Concat", v, v, axis=1), np.concatenate([x, x], 1))
    for mode in ("constant", "reflect", "edge"):
        more = {"constant_values": 113} if mode == "constant" else {}
        probe(f"Pad {mode}", lambda m, v: m.node("Pad", v, ints(m, 0, 0, 1, 2, 0, 0, 3, 0), m.constant(np.uint8(113)), mode=mode),
              np.pad(x, ((0, 0), (0, 0), (1, 3), (2, 0)), mode=mode, **more))
    rows, columns = np.arange(20) * 12 // 20, np.arange(17) * 12 // 17
    probe("Resize nearest", lambda m, v: m.node("Resize", v, "", "", ints(m, 1, 8, 20, 17), mode="nearest",
          coordinate_transformation_mode="asymmetric", nearest_mode="floor"), x[:, :, rows][:, :, :, columns])
    probe("DepthToSpace", lambda m, v: m.node("DepthToSpace", v, blocksize=2, mode="DCR"),
          x.reshape(1, 2, 2, 2, 12, 12).transpose(0, 3, 4, 1, 5, 2).reshape(1, 2, 24, 24))
    probe("SpaceToDepth", lambda m, v: m.node("SpaceToDepth", v, blocksize=2),
          x.reshape(1, 8, 6, 2, 6, 2).transpose(0, 3, 5, 1, 2, 4).reshape(1, 32, 6, 6))
    probe("ArgMax", lambda m, v: m.node("ArgMax", v, axis=1, keepdims=0), x.argmax(1))
    spread = np.full((1, 8, 24, 24), 113, np.uint8)
    spread[:, :, ::2, ::2] = x

    def dilate(m, v):
        v = m.node("Reshape", v, ints(m, 1, 8, 12, 1, 12, 1))
        v = m.node("Pad", v, ints(m, *[0] * 9, 1, 0, 1), m.constant(np.uint8(113)))
        v = m.node("Reshape", v, ints(m, 1, 8, 24, 24))
        return m.node("Slice", v, ints(m, 0, 0), ints(m, 23, 23), ints(m, 2, 3))
    probe("zeros between codes", dilate, spread[:, :, :23, :23])


def add_all():
    add_quantize()
    add_conv("3x3", 5, 6, 6, 3, (1, 1, 1, 1), zx=7, zy=100)
    add_conv("3x3, relu", 5, 6, 6, 3, (1, 1, 1, 1), stride=2, zx=0, zy=0)
    add_conv("1x1, bounds of a relu6 whose zero point is not the least code", 16, 5, 3, 1, zx=121, zy=90, lo=90, hi=201)
    add_conv("3x3, groups", 8, 4, 5, 3, groups=2, zx=255, zy=255)
    add_conv("3x3 of each channel", 6, 6, 5, 3, (1, 1, 1, 1), groups=6, zx=128, zy=3)
    add_conv("average 3x3", 6, 6, 7, 3, stride=2, groups=6, zx=77, zy=12, ones=True)
    add_conv("average 7x7", 6, 6, 7, 7, groups=6, zx=0, zy=0, ones=True)
    add_conv("mean of 6x6", 6, 6, 13, 6, groups=6, zx=77, zy=77, ones=True, keeps=True)
    add_conv("mean of 5x5", 6, 6, 7, 5, groups=6, zx=0, zy=0, ones=True, keeps=True)
    add_conv("factor of each channel", 8, 8, 3, 1, groups=8, zx=33, zy=190)
    add_linear("as float", 3, 70, 9, 13)
    add_binary("add", "one zero point", (0.037, 121), (0.037, 121), (0.037, 121), LEVELS)
    add_binary("add", "relu", (0.037, 121), (0.037, 121), (0.037, 121), LEVELS, relu=True)
    add_binary("add", "zero points of their own", (0.037, 0), (0.037, 255), (0.037, 128), LEVELS)
    add_binary("mul", "", (0.037, 121), (0.021, 3), (0.05, 77), (*LEVELS[2:],), form="Mul")
    add_binary("mul", "middles of codes, odd zero point", (0.5, 121), (0.25, 3), (0.25, 77), (*LEVELS[2:],), form="Mul")
    add_binary("mul", "middles of codes, even zero point", (0.5, 121), (0.25, 3), (0.25, 78), (*LEVELS[2:],), form="Mul")
    add_binary("mul", "a gate", (0.031, 110), (1 / 256, 0), (0.03, 111), (*LEVELS[2:],), form="Mul")
    add_codes()
    add_binary("add", "a difference", (0.037, 121), (0.037, 121), (0.037, 121), LEVELS, form="Sub", probe=True)
    add_conv("3x3 with weights of type s8", 16, 24, 12, 3, zx=7, zy=100, weight_type="s8", probe=True)
    add_conv("3x3, larger", 32, 32, 24, 3, zx=7, zy=100, probe=True)
    add_conv("average 12x12", 8, 8, 12, 12, groups=8, zx=7, zy=9, ones=True, probe=True)


def probe(runner):
    print("%-72s %s" % ("form", "codes that differ of how many at " + ", ".join(LEVELS)))
    for c, results in zip(CASES, run([c["model"] for c in CASES], runner)):
        counts = ["%d" % (results[level][0] != c["expected"]).sum() for level in LEVELS]
        ops = "+".join(op for op in results["all"][1] if op != "Transpose")
        print("%-72s %s of %d  %s" % ((c["kind"] + " " + c["name"]).strip(), " ".join(counts), c["expected"].size, ops))


def bits(values):
    return [f"0x{int(v):08x}" for v in np.atleast_1d(np.asarray(values, f32)).view(np.uint32)]


def array(kind, name, values):
    values = [str(v) for v in values]
    lines = ["    " + ", ".join(values[i:i + 20]) + "," for i in range(0, len(values), 20)]
    print(f"static const {kind} {name}[] = {{\n" + "\n".join(lines) + "\n};\n")


def rows_last(x):
    return x.transpose(0, 2, 3, 1).ravel() if x.ndim == 4 else x.ravel()


HEADER = """/* Made by make_ort_golden.py with onnxruntime-node %s. Floats are their bits; images are (H, W, C) and weights
 * (O, kh, kw, I). */
#pragma once

#include "tests/quant/layer_cases.h"
"""


def write(version):
    rows = {"quantize": [], "conv": [], "linear": [], "add": [], "mul": []}
    print(HEADER % version)
    for k, (c, results) in enumerate(zip(CASES, run([c["model"] for c in CASES], ["node"]))):
        for level in c["exact"]:
            differ = int((results[level][0] != c["expected"]).sum())
            if differ:
                raise SystemExit(f"{c['kind']} {c['name']}: {differ} codes differ from the formula at level {level}")
        y, name = results["all"][0], f"ort_{c['kind']}_{k}"
        text = '"%s"' % c["name"]
        if c["kind"] == "quantize":
            array("uint32_t", name + "_x", bits(c["x"]))
            array("uint8_t", name + "_y", y)
            rows["quantize"].append(f"{{{text}, {bits(c['scale'])[0]}, {c['zero_point']}, {y.size}, {name}_x, {name}_y}}")
        elif c["kind"] in ("conv", "linear"):
            array("uint8_t", name + "_x", rows_last(c["x"]))
            array("int8_t", name + "_weight", rows_last(c["weight"]))
            array("int32_t", name + "_bias", c["bias"])
            array("uint32_t", name + "_scale", bits(c["sw"]))
            array("uint32_t" if c["kind"] == "linear" else "uint8_t", name + "_y",
                  bits(y.ravel()) if c["kind"] == "linear" else rows_last(y))
            arrays = f"{name}_x, {name}_weight, {name}_bias, {name}_scale, {name}_y"
            if c["kind"] == "linear":
                rows["linear"].append(f"{{{text}, {c['x'].shape[0]}, {c['x'].shape[1]}, {y.shape[1]}, {bits(c['sx'])[0]}, {c['zx']}, {arrays}}}")
            else:
                _, ins, height, width = c["x"].shape
                rows["conv"].append(f"{{{text}, {height}, {width}, {ins}, {y.shape[2]}, {y.shape[3]}, {y.shape[1]}, {c['kernel']}, "
                                    f"{c['stride']}, {c['padding']}, {c['groups']}, {bits(c['sx'])[0]}, {bits(c['sy'])[0]}, "
                                    f"{c['zx']}, {c['zy']}, {c['lo']}, {c['hi']}, {arrays}}}")
        elif c["kind"] in ("add", "mul"):
            for which, values in (("a", c["a"]), ("b", c["b"]), ("y", y)):
                array("uint8_t", f"{name}_{which}", values.ravel())
            scales = ", ".join(bits([c["qa"][0], c["qb"][0], c["qy"][0]]))
            zeros = f"{c['qa'][1]}, {c['qb'][1]}, {c['qy'][1]}"
            rows[c["kind"]].append(f"{{{text}, {int(c['relu'])}, {y.size}, {{{scales}}}, {{{zeros}}}, {name}_a, {name}_b, {name}_y}}")
    for kind, struct in (("quantize", "quantize"), ("conv", "conv"), ("linear", "linear"), ("add", "binary"), ("mul", "binary")):
        print(f"static const layer_{struct} ort_{kind}_cases[] = {{\n    " + ",\n    ".join(rows[kind]) + "};\n")


def main():
    add_all()
    if sys.argv[1:2] == ["--probe"]:
        probe(sys.argv[2:] or ["node"])
        return
    done = subprocess.run(["node", "-p", "require('onnxruntime-node/package.json').version"], check=True,
                          stdout=subprocess.PIPE, text=True)
    write(done.stdout.strip())


main()
