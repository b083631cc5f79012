#!/usr/bin/env python3
"""Writes tflite_golden.h: the codes that TFLite with XNNPACK really computes, for the target tflite.

Run with Debian's numpy and tfjs-tflite-node 0.0.2 (npm install --ignore-scripts tfjs-tflite-node@0.0.2) where NODE_PATH
finds it, in this folder:
    NODE_PATH=.../node_modules /usr/bin/python3 make_tflite_golden.py > tflite_golden.h && clang-format-14 -i tflite_golden.h

Each case is a model of one operator in the form that quant/target/README.md gives for a step (tflite_file.py writes
it). The script stops where the runtime differs from the formula of the target, in which the expected values below are
computed; so the formulas are proven by values. Codes are written as Octet has them: 128 more than there.

    make_tflite_golden.py --probe

prints, for each form, how many codes differ from the formula with XNNPACK and with the interpreter's own kernels.
"""
import sys
from fractions import Fraction

import numpy as np

from tflite_file import Model, Runtime, find_runtime

f32 = np.float32
rng = np.random.default_rng(20261123)
SAME, VALID = 0, 1
CASES = []  # of {kind, name, model, expected, probe, ...}


def case(kind, name, model, output, expected, probe=False, **more):
    model.outputs = [output]
    CASES.append({"kind": kind, "name": name, "model": model, "expected": expected, "probe": probe, **more})


def codes(*shape):
    return rng.integers(-128, 128, shape).astype(np.int8)


def code(steps, zero, lo=-128, hi=127):
    return np.clip(np.rint(steps).astype(np.int64) + zero, lo, hi).astype(np.int8)


def add_quantize():
    scale, zero = f32(0.0371), -11
    middles = ((np.arange(-150, 150, 3) + 0.5) * scale).astype(f32)
    x = np.concatenate([middles, np.nextafter(middles, f32(9)), (rng.random(40) * 12 - 6).astype(f32)]).reshape(1, 1, 1, -1)
    m = Model()
    y = m.operator("QUANTIZE", [m.input(x)], m.tensor(x.shape, "int8", scale, zero))
    case("quantize", "products", m, y, code((x * (f32(1) / scale)).astype(f32), zero), x=x, scale=scale, zero=zero)


def sums(x, zero, w, bias, stride, padding, groups):
    """The accumulators of a convolution; x (N,H,W,C), w (O,kh,kw,I)."""
    outs, kernel, _, ins = w.shape
    logical = np.pad(x.astype(np.int64) - zero, ((0, 0), (padding,) * 2, (padding,) * 2, (0, 0)))
    height = (logical.shape[1] - kernel) // stride + 1
    width = (logical.shape[2] - kernel) // stride + 1
    y = np.zeros((1, height, width, outs), np.int64)
    for o in range(outs):
        first = o // (outs // groups) * ins
        for ky in range(kernel):
            for kx in range(kernel):
                part = logical[:, ky:ky + (height - 1) * stride + 1:stride, kx:kx + (width - 1) * stride + 1:stride]
                y[..., o] += part[..., first:first + ins] @ w[o, ky, kx].astype(np.int64)
        y[..., o] += int(bias[o])
    return y


def add_conv(name, ins, outs, size, kernel, stride=1, padding=0, depthwise=False, zx=0, zy=0, act=0, probe=False):
    x, groups = codes(1, size, size, ins), ins if depthwise else 1
    w = rng.integers(-127, 128, (outs, kernel, kernel, ins // groups)).astype(np.int8)
    bias = rng.integers(-9000, 9000, outs).astype(np.int32)
    sx, sw = f32(0.0213), (rng.random(outs) * 0.01 + 0.001).astype(f32)
    acc = sums(x, zx, w, bias, stride, padding, groups)
    sy = f32(np.abs(acc * (sx * sw)).max() / 140)  # so that some are cut
    lo = zy if act else -128
    hi = min(127, zy + int(np.rint(f32(6) / sy))) if act == 3 else 127
    expected = code(acc.astype(f32) * ((sx * sw).astype(f32) / sy).astype(f32), zy, lo, hi)
    m = Model()
    v, padded = m.input(x, sx, zx), np.array([[0, 0], [padding] * 2, [padding] * 2, [0, 0]], np.int32)
    if padding:
        side = size + 2 * padding
        v = m.operator("PAD", [v, m.constant(padded)], m.tensor((1, side, side, ins), "int8", sx, zx))
    weight = m.constant(w.transpose(3, 1, 2, 0), sw, 0, 3) if depthwise else m.constant(w, sw)
    inputs = [v, weight, m.constant(bias, (sx * sw).astype(f32))]
    y = m.tensor(expected.shape, "int8", sy, zy)
    if depthwise:
        m.operator("DEPTHWISE_CONV_2D", inputs, y, (0, "b", VALID), (1, "i", stride), (2, "i", stride),
                   (3, "i", outs // ins), (4, "b", act))
    else:
        m.operator("CONV_2D", inputs, y, (0, "b", VALID), (1, "i", stride), (2, "i", stride), (3, "b", act))
    case("conv", name, m, y, expected, probe, x=x, w=w, bias=bias, sx=sx, sw=sw, sy=sy, zx=zx, zy=zy, lo=lo, hi=hi,
         kernel=kernel, stride=stride, padding=padding, groups=groups)


def sum_codes(a, b, qa, qb, qy, subtract=False, bits=21):
    """Multipliers of so many bits, of ratios in float."""
    ratio = [f32(qa[0]) / f32(qy[0]), f32(qb[0]) / f32(qy[0])]
    shift = bits - int(np.frexp(max(ratio))[1])
    ma, mb = (int(np.rint(np.ldexp(float(r), shift))) for r in ratio)
    t = ma * (a.astype(np.int64) - qa[1]) + (-mb if subtract else mb) * (b.astype(np.int64) - qb[1])
    return (t + (1 << (shift - 1))) >> shift


def add_binary(kind, name, qa, qb, qy, act=0, form=None, probe=False, size=(1, 4, 4, 48), other=None,
               values=None):
    """qa, qb and qy are (scale, zero point)."""
    a, b = values or (codes(*size), codes(*(other or size)))
    form = form or kind.upper()
    if kind == "add":
        expected = code(sum_codes(a, b, qa, qb, qy, form == "SUB"), qy[1], qy[1] if act else -128)
    else:
        factor = f32(f32(f32(qa[0]) * f32(qb[0])) / f32(qy[0]))
        expected = code(((a.astype(np.int64) - qa[1]) * (b.astype(np.int64) - qb[1])).astype(f32) * factor, qy[1])
    m = Model()
    inputs = [m.input(a, *qa), m.input(b, *qb)]
    y = m.operator(form, inputs, m.tensor(expected.shape, "int8", *qy), (0, "b", act))
    case(kind, name, m, y, expected, probe, a=a, b=b, qa=qa, qb=qb, qy=qy, relu=act == 1)


def add_sum_of_bits():
    """Sums whose codes are others with multipliers of 20 bits."""
    a, b = (x.astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    found = 0
    while found < 3:
        qa, qb, qy = ((float(f32(rng.random() * 0.05 + 0.01)), int(rng.integers(-128, 128))) for _ in range(3))
        ours = [np.clip(sum_codes(a, b, qa, qb, qy, bits=n) + qy[1], -128, 127) for n in (21, 20)]
        apart = ours[0] != ours[1]
        if apart.sum() < 8:
            continue
        found += 1
        add_binary("add", "multipliers of 21 bits", qa, qb, qy, values=[x[apart].reshape(1, 1, 1, -1) for x in (a, b)])


def away(total, count):
    """Quotients, halves away from 0."""
    return np.where(total > 0, (total + count // 2) // count, -((-total + count // 2) // count))


def add_pool(name, size, kernel, stride, zero, same=False, include_pad=False, channels=6, probe=False):
    x, scale, padding = codes(1, size, size, channels), 0.0371, kernel // 2 if same or include_pad else 0
    ends = ((0, 0), (padding,) * 2, (padding,) * 2, (0, 0))
    inside = np.pad(np.ones((1, size, size, 1), np.int64), ends)
    # Padding has the code of 0 where it counts, and adds nothing where it does not.
    plane = np.pad(x.astype(np.int64), ends, constant_values=zero if include_pad else 0)
    out = (size + 2 * padding - kernel) // stride + 1
    at = [(slice(None), slice(i, i + (out - 1) * stride + 1, stride), slice(j, j + (out - 1) * stride + 1, stride))
          for i in range(kernel) for j in range(kernel)]
    count = kernel * kernel if include_pad else sum(inside[k] for k in at)
    expected = away(sum(plane[k] for k in at), count).astype(np.int8)
    m = Model()
    v = m.input(x, scale, zero)
    if include_pad:
        v = m.operator("PAD", [v, m.constant(np.array(ends, np.int32))], m.tensor(plane.shape, "int8", scale, zero))
    y = m.operator("AVERAGE_POOL_2D", [v], m.tensor(expected.shape, "int8", scale, zero), (0, "b", SAME if same else VALID),
                   (1, "i", stride), (2, "i", stride), (3, "i", kernel), (4, "i", kernel))
    case("pool", name, m, y, expected, probe, x=x, zero=zero, kernel=kernel, stride=stride, padding=padding,
         include_pad=include_pad)


def place(mode, at, size, out):
    """Low and high pixel, and the weight of the high one in 1/2048."""
    if mode == 1:
        x = Fraction(2 * at + 1, 2) * Fraction(size, out) - Fraction(1, 2)
    else:
        x = Fraction(at * (size - 1), max(out - 1, 1)) if mode == 2 else Fraction(at * size, out)
    x = min(max(x, Fraction(0)), Fraction(size - 1))
    low = int(x)
    return low, min(low + 1, size - 1), int((x - low) * 2048 + Fraction(1, 2))


def add_resize(mode, size, out, channels=5, probe=False):
    """mode: 1 half pixel, 2 aligned corners, 3 asymmetric."""
    x = codes(1, size, size, channels)
    expected = np.zeros((1, *out, channels), np.int64)
    for row in range(out[0]):
        top, bottom, wy = place(mode, row, size, out[0])
        for column in range(out[1]):
            left, right, wx = place(mode, column, size, out[1])
            corners = ((top, left, (2048 - wy) * (2048 - wx)), (top, right, (2048 - wy) * wx),
                       (bottom, left, wy * (2048 - wx)), (bottom, right, wy * wx))
            expected[:, row, column] = sum(x[:, i, j].astype(np.int64) * w for i, j, w in corners)
    expected = ((expected + (1 << 21)) >> 22).astype(np.int8)
    m = Model()
    y = m.operator("RESIZE_BILINEAR", [m.input(x, 0.0371, -11), m.constant(np.array(out, np.int32))],
                   m.tensor(expected.shape, "int8", 0.0371, -11), (2, "B", mode == 2), (3, "B", mode == 1))
    case("resize", "mode %d, %d to %dx%d" % (mode, size, *out), m, y, expected, probe, x=x, mode=mode)


def add_codes():
    """What moves codes, looks them up or compares them, with both kinds of kernels."""
    x, q = codes(1, 8, 8, 40), (0.0371, -11)
    ints = lambda m, *values: m.constant(np.array(values, np.int32))

    def probe(name, make, expected, dtype="int8"):
        m = Model()
        y = m.tensor(expected.shape, dtype, *(q if dtype == "int8" else ()))
        make(m, m.input(x, *q), y)
        case("probe", name, m, y, expected, True)
    table = codes(256)

    def look_up(m, v, y):
        v = m.operator("CAST", [v], m.tensor(x.shape, "int32"), (0, "b", 9), (1, "b", 2))
        v = m.operator("ADD", [v, ints(m, 128)], m.tensor(x.shape, "int32"), (0, "b", 0))
        m.operator("GATHER", [m.constant(table, *q), v], y, (0, "i", 0))
    probe("CAST, ADD, GATHER of a table", look_up, table[x.astype(int) + 128])
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-128)
    pooled = np.max([padded[:, i:i + 7:2, j:j + 7:2] for i in range(3) for j in range(3)], axis=0)

    def max_pool(m, v, y):
        least = m.constant(np.array([-128], np.int8), *q)
        v = m.operator("PADV2", [v, m.constant(np.array([[0, 0], [1, 1], [1, 1], [0, 0]], np.int32)), least],
                       m.tensor(padded.shape, "int8", *q))
        m.operator("MAX_POOL_2D", [v], y, (0, "b", VALID), (1, "i", 2), (2, "i", 2), (3, "i", 3), (4, "i", 3))
    probe("PADV2, MAX_POOL_2D", max_pool, pooled)
    bound = lambda m, value: m.constant(np.array([value], np.int8), *q)
    probe("MINIMUM", lambda m, v, y: m.operator("MINIMUM", [v, bound(m, 50)], y), np.minimum(x, 50))
    probe("MAXIMUM", lambda m, v, y: m.operator("MAXIMUM", [v, bound(m, -11)], y), np.maximum(x, -11))
    probe("TRANSPOSE", lambda m, v, y: m.operator("TRANSPOSE", [v, ints(m, 0, 3, 1, 2)], y), x.transpose(0, 3, 1, 2))
    probe("SLICE", lambda m, v, y: m.operator("SLICE", [v, ints(m, 0, 0, 0, 8), ints(m, 1, 8, 8, 16)], y), x[..., 8:24])
    probe("CONCATENATION", lambda m, v, y: m.operator("CONCATENATION", [v, v], y, (0, "i", 3)), np.concatenate([x, x], 3))
    probe("ARG_MAX", lambda m, v, y: m.operator("ARG_MAX", [v, ints(m, 3)], y, (0, "b", 2)), x.argmax(3), "int32")
    probe("DEQUANTIZE", lambda m, v, y: m.operator("DEQUANTIZE", [v], y),
          (x.astype(np.int32) + 11).astype(f32) * f32(0.0371), "float32")
    for out in (16, 13, 24):
        rows = np.arange(out) * 8 // out
        probe("RESIZE_NEAREST_NEIGHBOR to %d" % out, lambda m, v, y: m.operator(
            "RESIZE_NEAREST_NEIGHBOR", [v, ints(m, out, out)], y, (0, "B", 0), (1, "B", 0)), x[:, rows][:, :, rows])


def add_all():
    add_quantize()
    add_conv("3x3, padded", 5, 6, 6, 3, padding=1, zx=-121, zy=-28)
    add_conv("3x3, relu, stride 2", 5, 6, 7, 3, stride=2, zx=-128, zy=-128)
    add_conv("3x3, relu whose zero point is not the least code", 5, 6, 7, 3, zx=3, zy=-90, act=1)
    add_conv("1x1, relu6", 16, 5, 3, 1, zx=-7, zy=-38, act=3)
    add_conv("3x3 of each channel", 6, 6, 5, 3, padding=1, depthwise=True, zx=0, zy=-125)
    add_conv("5x5 of each channel, stride 2", 4, 4, 9, 5, stride=2, padding=2, depthwise=True, zx=-128, zy=-128)
    add_conv("a row", 70, 9, 1, 1, zx=13, zy=2)
    add_binary("add", "", (0.037, 3), (0.021, -7), (0.05, 11))
    add_binary("add", "a large and a small scale", (0.1, 0), (0.0003, 5), (0.1, 0))
    add_binary("add", "relu", (0.0371, 3), (0.0211, -128), (0.0512, -128), act=1)
    add_binary("add", "halves", (0.5, 3), (0.25, -7), (0.5, 11))
    add_sum_of_bits()
    add_binary("mul", "", (0.037, 3), (0.021, -7), (0.05, 11))
    add_binary("mul", "halves, odd zero point", (0.5, 3), (0.25, -7), (0.25, 11))
    add_binary("mul", "halves, even zero point", (0.5, 3), (0.25, -7), (0.25, 12))
    add_binary("mul", "a gate", (0.031, -18), (1 / 256, -128), (0.03, -17))
    add_pool("2x2", 8, 2, 2, -11)
    add_pool("3x3 of what is inside", 7, 3, 1, -11, same=True)
    add_pool("3x3 with padding", 7, 3, 2, 40, include_pad=True)
    add_pool("mean of 7x7", 7, 7, 1, -128)
    add_pool("mean of 8x8", 8, 8, 1, 5)
    for mode in (1, 2, 3):
        add_resize(mode, 4, (8, 7))
    add_resize(1, 6, (3, 5))
    add_binary("add", "a difference", (0.037, 3), (0.021, -7), (0.05, 11), form="SUB", probe=True)
    add_binary("mul", "of a channel", (0.5, 3), (0.25, -7), (0.25, 11), size=(1, 16, 16, 32), other=(1, 1, 1, 32), probe=True)
    add_conv("3x3, larger", 32, 40, 24, 3, zx=7, zy=-100, probe=True)
    add_conv("3x3 of each channel, larger", 40, 40, 24, 3, depthwise=True, zx=7, zy=-100, probe=True)
    add_pool("mean of 24x24", 24, 24, 1, 7, channels=40, probe=True)
    for mode in (1, 2, 3):
        for out in ((24, 25), (13, 5)):
            add_resize(mode, 8, out, probe=True)
    add_codes()


def probe(runtime):
    print("%-60s %s" % ("form", "codes that differ with XNNPACK, without, of how many"))
    for c in CASES:
        counts = [int((runtime.run(c["model"], xnnpack).ravel() != c["expected"].ravel()).sum()) for xnnpack in (True, False)]
        print("%-60s %d %d of %d" % ((c["kind"] + " " + c["name"]).strip(), *counts, c["expected"].size))


def bits(values):
    return [f"0x{int(v):08x}" for v in np.atleast_1d(np.asarray(values, f32)).ravel().view(np.uint32)]


def ours(x):
    return (x.astype(np.int64) + 128).ravel()


def array(kind, name, values):
    print(f"static const {kind} {name}[] = {{{', '.join(str(v) for v in values)}}};\n")
    return name


HEADER = """/* Made by make_%s_golden.py with TFLite %s and its %s. Codes are 128 more than there. */
#pragma once

#include "tests/quant/layer_cases.h"
"""


def row_of(c, name, y):
    text = '"%s"' % c["name"]
    codes_of = lambda key: array("uint8_t", f"{name}_{key}", ours(c[key]))
    if c["kind"] == "quantize":
        x = array("uint32_t", name + "_x", bits(c["x"]))
        return f"{{{text}, {bits(c['scale'])[0]}, {c['zero'] + 128}, {c['x'].size}, {x}, {y}}}"
    out = c["expected"].shape
    if c["kind"] == "conv":
        arrays = [codes_of("x"), array("int8_t", name + "_w", c["w"].ravel()), array("int32_t", name + "_bias", c["bias"]),
                  array("uint32_t", name + "_scale", bits(c["sw"])), y]
        numbers = [*c["x"].shape[1:], *out[1:], c["kernel"], c["stride"], c["padding"], c["groups"], bits(c["sx"])[0],
                   bits(c["sy"])[0], *(c[k] + 128 for k in ("zx", "zy", "lo", "hi"))]
        return "{" + ", ".join(map(str, [text, *numbers, *arrays])) + "}"
    if c["kind"] == "pool":
        numbers = [*c["x"].shape[1:], *out[1:3], c["kernel"], c["stride"], c["padding"], int(c["include_pad"]), c["zero"] + 128]
        return "{" + ", ".join(map(str, [text, *numbers, codes_of("x"), y])) + "}"
    if c["kind"] == "resize":
        return "{" + ", ".join(map(str, [text, c["mode"], *c["x"].shape[1:], *out[1:3], codes_of("x"), y])) + "}"
    scales = ", ".join(bits([c["qa"][0], c["qb"][0], c["qy"][0]]))
    zeros = ", ".join(str(c[k][1] + 128) for k in ("qa", "qb", "qy"))
    return f"{{{text}, {int(c['relu'])}, {c['a'].size}, {{{scales}}}, {{{zeros}}}, {codes_of('a')}, {codes_of('b')}, {y}}}"


def write(runtime, target="tflite", xnnpack=True):
    print(HEADER % (target, runtime.version, "XNNPACK delegate" if xnnpack else "own kernels"))
    rows = {}
    for k, c in enumerate(CASES):
        y = runtime.run(c["model"], xnnpack)
        differ = int((y.ravel() != c["expected"].ravel()).sum())
        if differ:
            raise SystemExit(f"{c['kind']} {c['name']}: {differ} codes differ from the formula")
        if not c["probe"]:
            name = f"{target}_{c['kind']}_{k}"
            rows.setdefault(c["kind"], []).append(row_of(c, name, array("uint8_t", name + "_y", ours(y))))
    for kind, lines in rows.items():
        struct = "binary" if kind in ("add", "mul") else kind
        print(f"static const layer_{struct} {target}_{kind}_cases[] = {{\n    " + ",\n    ".join(lines) + "};\n")


def main():
    path = find_runtime()
    if not path:
        raise SystemExit("no libtensorflowlite_c.so of tfjs-tflite-node in NODE_PATH")
    add_all()
    (probe if sys.argv[1:] == ["--probe"] else write)(Runtime(path))


if __name__ == "__main__":
    main()
