#!/usr/bin/python3
"""Writes resize_golden.h beside this file: images in other sizes, forward and backward, for the tests of core.

usage: make_resize_golden.py && clang-format-14 -i resize_golden.h   (needs Debian's python3-torch)

Places follow the formulas of the ONNX specification (Resize: coordinate_transformation_mode, nearest_mode), in
exact fractions; where PyTorch has the mode, its result must be the same. Activations are stored as (N, H, W, C).
"""
import math
import os
from fractions import Fraction
import torch
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)
arrays = []


def put(name, t):
    arrays.append((name, [float(v) for v in t.detach().permute(0, 2, 3, 1).contiguous().flatten()]))


def place(coordinates, at, n_in, n_out):
    if coordinates == "half_pixel":
        return (Fraction(at) + Fraction(1, 2)) * n_in / n_out - Fraction(1, 2)
    if coordinates == "align_corners":
        return Fraction(at * (n_in - 1), n_out - 1) if n_out > 1 else Fraction(0)
    return Fraction(at * n_in, n_out)  # asymmetric


def matrix(coordinates, rounding, n_in, n_out):
    """(n_out, n_in): what each output position takes of each input position."""
    m = torch.zeros(n_out, n_in)
    for at in range(n_out):
        p = place(coordinates, at, n_in, n_out)
        if rounding == "linear":
            p = min(max(p, Fraction(0)), Fraction(n_in - 1))
            low = math.floor(p)
            m[at, low] += float(1 - (p - low))
            m[at, min(low + 1, n_in - 1)] += float(p - low)
        else:
            near = math.floor(p) if rounding == "floor" else math.ceil(p - Fraction(1, 2))
            m[at, min(max(near, 0), n_in - 1)] += 1
    return m


def put_resize(name, coordinates, rounding, sizes, **args):
    h, w, out_h, out_w = sizes
    x = (torch.randint(-128, 128, (1, 2, h, w)) / 64).requires_grad_()
    y = torch.einsum("oh,nchw,pw->ncop", matrix(coordinates, rounding, h, out_h), x,
                     matrix(coordinates, rounding, w, out_w))
    grad = torch.randint(-128, 128, y.shape) / 64
    y.backward(grad)
    if args:
        assert torch.allclose(F.interpolate(x, (out_h, out_w), **args), y, atol=1e-6)
    for part, t in (("x", x), ("y", y), ("grad_y", grad), ("grad_x", x.grad)):
        put(f"{name}_{part}", t)


for i, sizes in enumerate(((4, 5, 7, 3), (3, 4, 6, 9), (5, 2, 1, 5))):
    put_resize(f"resize_0_{i}", "asymmetric", "floor", sizes, mode="nearest")
    put_resize(f"resize_1_{i}", "half_pixel", "linear", sizes, mode="bilinear", align_corners=False)
    put_resize(f"resize_2_{i}", "align_corners", "linear", sizes, mode="bilinear", align_corners=True)
    put_resize(f"resize_3_{i}", "asymmetric", "linear", sizes)
    put_resize(f"resize_4_{i}", "half_pixel", "round_prefer_floor", sizes)
    put_resize(f"resize_5_{i}", "half_pixel", "floor", sizes)

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "resize_golden.h"), "w") as f:
    f.write(f"/* Resized images, by PyTorch {torch.__version__} and the formulas of ONNX. Made by "
            "make_resize_golden.py, never by hand. */\n#pragma once\n\n")
    for name, values in arrays:
        texts = ["%.9g" % v for v in values]
        texts = [(t if any(c in t for c in ".en") else t + ".0") + "F" for t in texts]
        f.write(f"static const float golden_{name}[{len(values)}] = {{\n    " + ", ".join(texts) + ",\n};\n")
