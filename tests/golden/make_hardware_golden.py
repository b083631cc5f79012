#!/usr/bin/env python3
"""Writes tests/golden/hardware_golden.h: layers of targets espdl-s3, espdl-p4 and bpu by their published formulas
(quant/target/README.md), in whole numbers of any size and without code of Octet:

    tests/golden/make_hardware_golden.py >tests/golden/hardware_golden.h

Codes are signed here, and 128 more in the file. Only averages of ESP-DL compute in floats, as its reference does."""
import math
from fractions import Fraction

import numpy as np

rng = np.random.default_rng(15)
f32 = np.float32
ROWS = {}


def bits(values):
    return [f"0x{int(v):08x}" for v in np.atleast_1d(np.asarray(values, f32)).ravel().view(np.uint32)]


def array(kind, name, values):
    print(f"static const {kind} {name}[] = {{{', '.join(str(v) for v in values)}}};\n")
    return name


def row(target, struct, kind, fields):
    ROWS.setdefault((f"{target}_{kind}", struct), []).append("{" + ", ".join(str(f) for f in fields) + "}")


def name_of(target, kind):
    return f"{target}_{kind}_{len(ROWS.get((f'{target}_{kind}', dict(add='binary', mul='binary', concat='binary').get(kind, kind)), []))}"


def ours(values):
    return [int(v) + 128 for v in np.asarray(values).ravel()]


def clip(x, lo, hi):
    return max(lo, min(hi, x))


# Rounding of exact numbers.
def half_up(x):
    return math.floor(Fraction(x) + Fraction(1, 2))


def half_even(x):
    return round(Fraction(x))


# How a sum becomes a code before it is cut: (sum, factor) where the factor is exact.
def shift_up(total, factor, wide=False):
    return half_up(clip(total, -2**19, 2**19 - 1) * factor)


def shift_even(total, factor, wide=False):
    return half_even(total * factor)


def split(factor):
    """Multiplier of 15 bits, shift before and shift behind of an 8-bit output."""
    factor = min(float(factor), 32767.0)
    mantissa, exponent = math.frexp(factor)
    multiplier = min(math.floor(mantissa * 2**15 + 0.5), 32767)
    total = 15 - exponent
    before = clip(total - (29 - 7), 0, 17)
    return multiplier, before, total - before


def q15(total, factor, wide=False):
    multiplier, before, behind = split(factor)
    narrow = clip(half_up(Fraction(total, 2**before)), -2**15, 2**15 - 1)
    return half_up(Fraction(narrow * multiplier, 2**behind))


REQUANTIZE = {"espdl_s3": shift_up, "espdl_p4": shift_even, "bpu": q15}


def conv(target, name, ins, outs, size, kernel, stride, padding, groups, sx, sw, sy, bias, relu=False):
    """Scales are doubles that floats hold; sw has one for each output channel."""
    x = rng.integers(-128, 128, (size, size, ins))
    each = ins // groups
    w = rng.integers(-127, 128, (outs, kernel, kernel, each))
    out = (size + 2 * padding - kernel) // stride + 1
    lo = 0 if relu else -128
    y = np.zeros((out, out, outs), int)
    for oy in range(out):
        for ox in range(out):
            for o in range(outs):
                first = o // (outs // groups) * each
                total = int(bias[o])
                for ky in range(kernel):
                    for kx in range(kernel):
                        iy, ix = oy * stride - padding + ky, ox * stride - padding + kx
                        if 0 <= iy < size and 0 <= ix < size:
                            total += int(x[iy, ix, first:first + each] @ w[o, ky, kx])
                factor = Fraction(sx) * Fraction(sw[o]) / Fraction(sy)
                if target == "bpu":
                    factor = float(sx) * float(sw[o]) / float(sy)
                y[oy, ox, o] = clip(REQUANTIZE[target](total, factor), lo, 127)
    n = name_of(target, "conv")
    row(target, "conv", "conv", [f'"{name}"', size, size, ins, out, out, outs, kernel, stride, padding, groups,
        bits(sx)[0], bits(sy)[0], 128, 128, lo + 128, 255, array("uint8_t", n + "_x", ours(x)),
        array("int8_t", n + "_w", w.ravel()), array("int32_t", n + "_bias", bias),
        array("uint32_t", n + "_scale", bits(sw)), array("uint8_t", n + "_y", ours(y))])


def every_pair(count=240):
    """The ends, and any."""
    ends = [-128, -127, -1, 0, 1, 126, 127]
    a = [i for i in ends for _ in ends] + list(rng.integers(-128, 128, count - 49))
    b = [j for _ in ends for j in ends] + list(rng.integers(-128, 128, count - 49))
    return [int(v) for v in a], [int(v) for v in b]


def binary(target, kind, name, scales, formula, relu=False):
    a, b = every_pair()
    y = [clip(formula(i, j), 0 if relu else -128, 127) for i, j in zip(a, b)]
    n = name_of(target, kind)
    row(target, "binary", kind, [f'"{name}"', int(relu), len(a), "{" + ", ".join(bits(scales)) + "}", "{128, 128, 128}",
        array("uint8_t", n + "_a", ours(a)), array("uint8_t", n + "_b", ours(b)), array("uint8_t", n + "_y", ours(y))])


def mul(target, name, scales):
    sa, sb, sy = (Fraction(s) for s in scales)
    factor = sa * sb / sy if target != "bpu" else float(sa) * float(sb) / float(sy)
    binary(target, "mul", name, scales, lambda i, j: REQUANTIZE[target](i * j, factor))


def concat(target, name, scales):
    """Only the second input changes its scale; the first has the output's."""
    sb, sy = Fraction(scales[1]), Fraction(scales[2])
    factor = sb / sy if target != "bpu" else float(sb) / float(sy)
    binary(target, "concat", name, scales, lambda i, j: REQUANTIZE[target](j, factor))


def average(target, total, count):
    if target == "bpu":
        return q15(total, 1.0 / count)
    v = f32(total) * (f32(1) / f32(count))
    if target == "espdl_p4":
        return int(np.rint(v))
    return int(np.floor(f32(np.float64(v) + 0.5)))


def pool(target, name, size, kernel, stride, padding, channels=6):
    x = rng.integers(-128, 128, (size, size, channels))
    out = (size + 2 * padding - kernel) // stride + 1
    y = np.zeros((out, out, channels), int)
    padded = np.zeros((size + 2 * padding, size + 2 * padding, channels), int)
    padded[padding:padding + size, padding:padding + size] = x
    for oy in range(out):
        for ox in range(out):
            window = padded[oy * stride:oy * stride + kernel, ox * stride:ox * stride + kernel]
            for c in range(channels):
                y[oy, ox, c] = clip(average(target, int(window[..., c].sum()), kernel * kernel), -128, 127)
    n = name_of(target, "pool")
    row(target, "pool", "pool", [f'"{name}"', size, size, channels, out, out, kernel, stride, padding, 1, 128,
        array("uint8_t", n + "_x", ours(x)), array("uint8_t", n + "_y", ours(y))])


def biases(outs, most):
    return [int(b) for b in rng.integers(-most, most + 1, outs)]


def add_espdl(target, one):
    """Scales of powers of two; `one`: the same for all channels."""
    def weights(outs, power):
        return [2.0 ** (power - (0 if one else o % 3)) for o in range(outs)]
    conv(target, "3x3", 3, 8, 6, 3, 1, 1, 1, 2.0**-5, weights(8, -8), 2.0**-3, biases(8, 3000))
    conv(target, "3x3 relu, stride 2", 4, 6, 7, 3, 2, 1, 1, 2.0**-6, weights(6, -7), 2.0**-4, biases(6, 3000), True)
    conv(target, "depthwise", 6, 6, 5, 3, 1, 1, 6, 2.0**-5, weights(6, -6), 2.0**-4, biases(6, 900))
    conv(target, "small shifts", 2, 5, 6, 1, 1, 0, 1, 2.0**-5, weights(5, -6), 2.0**-9, biases(5, 900))
    # Shifts so far that sums of 20 bits are codes within the ends.
    conv(target, "sums beyond 20 bits", 8, 8, 5, 1, 1, 0, 1, 2.0**-5, weights(8, -9), 2.0**0,
         [s * (2**19 - 1 - k) for s, k in zip((1, -1, 1, -1, 1, -1, 1, -1), (0, 1, 900, 900, 9000, 9000, 2, 3))])
    same = (2.0**-4, 2.0**-4, 2.0**-4)
    binary(target, "add", "one scale", same, lambda i, j: i + j)
    binary(target, "add", "one scale, relu", same, lambda i, j: i + j, True)
    for power in (-3, -6, -8, -11, 1):
        mul(target, f"2^{power}", (2.0**-5, 2.0**-4, 2.0 ** (-9 - power)))
    for power in (-1, -2, -5, 2):
        concat(target, f"2^{power}", (2.0**-4, 2.0 ** (-4 + power), 2.0**-4))


def bayes_add(sa, sb, sy, subtract=False):
    """The operand of the larger scale is shifted to the left, the other one multiplied by 15 bits."""
    ratio = min(sa, sb) / max(sa, sb)
    shift = max(k for k in range(24) if math.floor(ratio * 2**k + 0.5) <= 32767)
    factor = math.floor(ratio * 2**shift + 0.5)
    ka, kb = (2**shift, factor) if sa >= sb else (factor, 2**shift)
    out = max(sa, sb) / 2**shift / sy
    return lambda i, j: q15(ka * i + (-kb if subtract else kb) * j, out)


def add_bpu():
    def real(x):
        return float(f32(x))
    for name, sx, sy, relu in (("3x3", 0.031, 0.17, False), ("3x3 relu", 0.0113, 0.09, True), ("ratio near 1", 0.5, 0.26, False)):
        sw = [real(s) for s in rng.uniform(0.001, 0.02, 8)]
        conv("bpu", name, 3, 8, 6, 3, 1, 1, 1, real(sx), sw, real(sy), biases(8, 3000), relu)
    conv("bpu", "depthwise", 6, 6, 5, 3, 1, 1, 6, real(0.02), [real(s) for s in rng.uniform(0.001, 0.02, 6)], real(0.1),
         biases(6, 900))
    # Factors below 2^-7, where sums shift to the right before they are multiplied.
    conv("bpu", "shifts before", 8, 6, 5, 1, 1, 0, 1, real(0.004), [real(s) for s in rng.uniform(1e-6, 1e-3, 6)], real(0.3),
         biases(6, 2**28))
    # Powers of two, whose halves are many.
    conv("bpu", "powers of two", 3, 8, 6, 3, 1, 1, 1, 2.0**-5, [2.0 ** -(7 + o % 3) for o in range(8)], 2.0**-3,
         biases(8, 3000))
    for sa, sb, sy in ((0.031, 0.017, 0.045), (0.017, 0.031, 0.045), (0.02, 0.02, 0.04), (0.5, 0.0001, 0.4), (0.03, 0.04, 0.001)):
        sa, sb, sy = real(sa), real(sb), real(sy)
        binary("bpu", "add", f"{sa:.3g} + {sb:.3g}", (sa, sb, sy), bayes_add(sa, sb, sy), sa > 0.4)
    for scales in ((0.03, 0.02, 0.07), (0.01, 0.009, 0.012), (0.5, 0.25, 0.125)):
        mul("bpu", "%g * %g" % scales[:2], tuple(real(s) for s in scales))
    for sb in (0.011, 0.045, 0.0625):
        concat("bpu", f"{sb:g}", (real(0.0625), real(sb), real(0.0625)))


def main():
    print("/* Made by make_hardware_golden.py: published formulas in whole numbers. Codes are 128 more than there. */\n"
          "#pragma once\n\n#include \"tests/quant/layer_cases.h\"\n")
    for target, one in (("espdl_s3", True), ("espdl_p4", False)):
        add_espdl(target, one)
    add_bpu()
    for target in REQUANTIZE:
        for name, size, kernel, stride, padding in (("2x2", 6, 2, 2, 0), ("3x3 with padding", 5, 3, 1, 1), ("4x4", 4, 4, 1, 0),
                                                    ("5x5", 7, 5, 2, 2)):
            pool(target, name, size, kernel, stride, padding)
    for (kind, struct), rows in ROWS.items():
        print(f"static const layer_{struct} {kind}_cases[] = {{\n    " + ",\n    ".join(rows) + "};\n")


main()
