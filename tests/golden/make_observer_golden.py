#!/usr/bin/env python3
"""Writes observer_golden.h: ranges that observers choose from histograms.

Run with PyTorch 1.13 (Debian 12: python3-torch, python3-numpy) in this folder:
    /usr/bin/python3 make_observer_golden.py > observer_golden.h && clang-format-14 -i observer_golden.h

Of each tensor the file has the counts on Octet's grid (32 bins to a power of two, a zero bin below 2^-32), made
here by frexp, and what follows from them by another way than in quant/observer/:
  - percentile: the quantile of a sorted list of bin ends, by the definition;
  - mse: each candidate's error by torch.fake_quantize over points that lie evenly in each bin (no closed form),
    and the least of them;
  - histogram: PyTorch's own HistogramObserver on the values themselves, which has bins of its own and stops where
    the error grows: Octet's range must not have a larger error than PyTorch's, and where PyTorch's does not stop
    early they are alike.
"""
import math
import struct
import warnings

import numpy as np
import torch
from torch.ao.quantization.observer import HistogramObserver

warnings.simplefilter("ignore")
torch.manual_seed(7)
torch.set_num_threads(1)
STEPS, SIDE, POINTS = 32, 64 * 32, 200


def bits(x):
    return "0x%08xu" % struct.unpack("<I", struct.pack("<f", x))[0]


def distance(x):
    """Of a magnitude from the bin of zero."""
    if x < 2.0 ** -32:
        return 0
    mantissa, exponent = math.frexp(x)  # x = mantissa * 2^exponent, mantissa in [0.5, 1)
    return min((exponent - 1 + 32) * STEPS + int((mantissa * 2 - 1) * STEPS), SIDE - 1) + 1


def edge(d):
    """The smallest magnitude of a bin."""
    power, step = divmod(d - 1, STEPS)
    return 2.0 ** (power - 32) * (1 + step / STEPS)


def count(values):
    counts = {}
    for v in values:
        d = distance(abs(v))
        b = SIDE + d if v >= 0 else SIDE - d
        counts[b] = counts.get(b, 0) + 1
    return dict(sorted(counts.items()))


def ends(b):
    d = b - SIDE
    if d == 0:
        return 0.0, 0.0
    return (edge(d), edge(d + 1)) if d > 0 else (-edge(1 - d), -edge(-d))


def qparams(low, high, kind):
    low, high = min(low, 0.0), max(high, 0.0)
    if kind == "symmetric":
        return np.float32(max(-low, high)) / np.float32(127.5), 128
    scale = np.float32(np.float32(high - low) / np.float32(255))
    if kind == "unsigned":
        return np.float32(np.float32(max(-low, high)) / np.float32(255)), 0
    zero = -round(float(np.float32(low) / scale))  # half even
    return scale, max(0, min(255, zero))


def error(counts, scale, zero):
    total = 0.0
    for b, n in counts.items():
        low, high = ends(b)
        x = low + (high - low) * (torch.arange(POINTS, dtype=torch.float64) + 0.5) / POINTS
        x = x.float()
        y = torch.fake_quantize_per_tensor_affine(x, float(scale), zero, 0, 255)
        total += n * float(((x.double() - y.double()) ** 2).mean())
    return total


def percentile(counts, p):
    magnitudes = {}
    for b, n in counts.items():
        d = abs(b - SIDE)
        magnitudes[d] = magnitudes.get(d, 0) + n
    wanted = p / 100 * sum(magnitudes.values())
    below = 0
    for d in sorted(magnitudes):
        if below + magnitudes[d] >= wanted:
            low, high = ends(SIDE + d)
            most = float(np.float32(low + (wanted - below) / magnitudes[d] * (high - low)))
            break
        below += magnitudes[d]
    bins = list(counts)
    return max(ends(bins[0])[0], -most), min(ends(bins[-1])[1], most)


def least(counts, kind):
    largest = max(abs(b - SIDE) for b in counts)
    bins = list(counts)
    best = None
    for i in range(4 * STEPS):
        if largest - i < 1:
            break
        most = edge(largest - i + 1)
        low, high = max(ends(bins[0])[0], -most), min(ends(bins[-1])[1], most)
        e = error(counts, *qparams(low, high, kind))
        if best is None or e < best[2]:
            best = (low, high, e)
    return best


def pytorch(values, kind):
    scheme = torch.per_tensor_symmetric if kind == "symmetric" else torch.per_tensor_affine
    observer = HistogramObserver(qscheme=scheme, dtype=torch.quint8)
    observer(torch.tensor(values))
    low, high = observer._non_linear_param_search()
    return float(low), float(high)


def normal(n, low, high):
    """Its ends are whole numbers, to which torch 1.13 cuts the range of a histogram."""
    return np.concatenate([torch.randn(n).numpy().astype(np.float32), np.float32([low, high])])


CASES = [
    ("a normal one with outliers", "symmetric", normal(100000, -20, 24)),
    ("behind a relu", "unsigned", np.maximum(normal(100000, 0, 30), 0)),
    ("skewed", "asymmetric", np.where((x := normal(60000, -1, 12)) < 0, x * np.float32(0.05), x)),
    ("with a heavy tail", "symmetric", np.float32(list(torch.randn(100000).numpy() ** 3) + [-100, 100])),
]

print("/* Ranges that observers choose from histograms, by make_observer_golden.py; do not edit. */\n#pragma once\n")
print("#include <stdint.h>\n")
for i, (name, kind, values) in enumerate(CASES):
    counts = count([float(v) for v in values])
    print(f"static const int32_t golden_counts_{i}[][2] = {{")
    print(",\n".join(f"{{{b}, {n}}}" for b, n in counts.items()))
    print("};\n")
print("typedef struct golden_choice { const char *name; char kind; const int32_t (*counts)[2]; int32_t bins;"
      " uint32_t percentile[2]; uint32_t least[2]; double error; uint32_t pytorch[2]; } golden_choice;\n")
print("/* percentile: of 99.9; error: at `least` */")
print("static const golden_choice golden_choices[] = {")
for i, (name, kind, values) in enumerate(CASES):
    counts = count([float(v) for v in values])
    low, high = percentile(counts, 99.9)
    mse = least(counts, kind)
    torch_low, torch_high = pytorch(values, kind)
    print(f'{{"{name}", \'{kind[0]}\', golden_counts_{i}, {len(counts)}, {{{bits(low)}, {bits(high)}}},'
          f" {{{bits(mse[0])}, {bits(mse[1])}}}, {mse[2]!r}, {{{bits(torch_low)}, {bits(torch_high)}}}}},")
print("};")
