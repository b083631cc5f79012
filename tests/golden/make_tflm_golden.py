#!/usr/bin/env python3
"""Writes tflm_golden.h: codes that TFLite computes with its own kernels, without XNNPACK, for the target tflm.

Run as make_tflite_golden.py is, whose cases these are:
    NODE_PATH=.../node_modules /usr/bin/python3 make_tflm_golden.py > tflm_golden.h && clang-format-14 -i tflm_golden.h

Sums, products, averages and convolutions of each channel have the arithmetic of the reference there. The expected values
are computed from its definition in whole numbers, apart from Octet, and the script stops where the runtime differs.
Three forms are other ones: CONV_2D, whose optimised kernel rounds a few sums in 10,000 another way on x86, so that only
small ones are here, in which none does; SUB, whose ratios are doubles in TFLite and floats in TFLM; MUL, whose ratio is
a float in TFLite and a double in TFLM, which gives the same codes here. tests/gemmlowp judges those of TFLM.
"""
import math

import numpy as np

import make_tflite_golden as g
from tflite_file import Runtime, find_runtime

f32 = np.float32


def fixed(real):
    """A real number as a multiplier of 31 bits and an exponent."""
    part, exponent = math.frexp(real)
    multiplier = math.floor(part * 2**31 + 0.5)
    if multiplier == 2**31:
        multiplier, exponent = multiplier // 2, exponent + 1
    return (multiplier, exponent) if exponent >= -31 else (0, 0)


def times(x, real, rounds=2):
    """Whole numbers times a real one: twice rounded, or once, halves away from 0."""
    multiplier, exponent = fixed(real)
    if rounds == 1:
        return np.array([math.floor(abs(int(v)) * real + 0.5) * (1 if v > 0 else -1) for v in x.ravel()]).reshape(x.shape)
    x = x.astype(np.int64) << max(exponent, 0)
    high = (x * multiplier + (1 << 30)) >> 31
    if exponent >= 0:
        return high
    return np.where(high >= 0, (high + (1 << (-exponent - 1))) >> -exponent, -((-high + (1 << (-exponent - 1))) >> -exponent))


def convolved(c):
    acc = g.sums(c["x"], c["zx"], c["w"], c["bias"], c["stride"], c["padding"], c["groups"])
    real = [float(c["sx"]) * float(s) / float(c["sy"]) for s in c["sw"]]
    y = np.stack([times(acc[..., o], r) for o, r in enumerate(real)], -1)
    return np.clip(y + c["zy"], c["lo"], c["hi"])


def logical(c):
    return [c[x].astype(np.int64) - c[q][1] for x, q in (("a", "qa"), ("b", "qb"))]


def added(c, rounds=2):
    a, b = logical(c)
    sa, sb, sy = (f32(c[q][0]) for q in ("qa", "qb", "qy"))
    two = 2 * float(max(sa, sb))
    total = times(a << 20, float(sa) / two, rounds) + times(b << 20, float(sb) / two, rounds)
    return np.clip(times(total, two / (float(sy) * (1 << 20)), rounds) + c["qy"][1], c["qy"][1] if c["relu"] else -128, 127)


def multiplied(c, rounds=2):
    a, b = logical(c)
    sa, sb, sy = (float(f32(c[q][0])) for q in ("qa", "qb", "qy"))
    return np.clip(times(a * b, sa * sb / sy, rounds) + c["qy"][1], -128, 127)


EXPECTED = {"conv": convolved, "add": added, "mul": multiplied, "pool": lambda c: c["expected"]}


def add_apart():
    """Products whose codes are others where they are rounded once."""
    a, b = (x.astype(np.int8) for x in np.meshgrid(np.arange(-128, 128), np.arange(-128, 128)))
    found = 0
    while found < 3:
        qa, qb, qy = ((float(f32(g.rng.random() * 0.05 + 0.01)), int(g.rng.integers(-128, 128))) for _ in range(3))
        c = {"a": a, "b": b, "qa": qa, "qb": qb, "qy": qy}
        apart = multiplied(c) != multiplied(c, 1)
        if apart.sum() < 8:
            continue
        found += 1
        g.add_binary("mul", "rounded twice", qa, qb, qy, values=[x[apart][:96].reshape(1, 1, 1, -1) for x in (a, b)])


def main():
    path = find_runtime()
    if not path:
        raise SystemExit("no libtensorflowlite_c.so of tfjs-tflite-node in NODE_PATH")
    g.add_all()
    add_apart()
    g.CASES[:] = [c for c in g.CASES if c["kind"] in EXPECTED and not c["probe"]]
    for c in g.CASES:
        c["expected"] = EXPECTED[c["kind"]](c).astype(np.int8)
    g.write(Runtime(path), "tflm", False)


main()
