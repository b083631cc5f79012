#!/usr/bin/python3
"""Writes elementwise_golden.h beside this file: what PyTorch computes element by element, for tests/core/test_elementwise.c.

usage: make_elementwise_golden.py && clang-format-14 -i elementwise_golden.h   (needs Debian's python3-torch)

Inputs and outputs of four dimensions are stored as (N, H, W, C).
"""
import os
import torch
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)
arrays = []


def put(name, t):
    if t.dim() == 4:
        t = t.permute(0, 2, 3, 1)
    arrays.append((name, [float(v) for v in t.detach().contiguous().flatten()]))


def put_call(name, f, inputs):
    for t in inputs:
        t.requires_grad_()
    y = f(*inputs)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for number, t in enumerate(inputs):
        put(f"{name}_x{number}", t)
        put(f"{name}_grad_x{number}", t.grad)
    put(f"{name}_y", y)
    put(f"{name}_grad_y", grad)


def put_function(name, f, corners=(-3.0, 0.0, 3.0, 20.0, -30.0)):
    x = torch.randn(3, 7) * 3
    x.view(-1)[:len(corners)] = torch.tensor(corners)
    put_call(name, f, [x])


def put_positive(name, f):
    put_call(name, f, [torch.rand(3, 7) * 9 + 0.05])


def put_binary(name, f, a, b, shift=0.0):
    put_call(name, f, [torch.randn(a), torch.randn(b).abs() + shift if shift else torch.randn(b)])


put_function("hard_sigmoid", F.hardsigmoid)
put_function("tanh", torch.tanh)
put_function("gelu", F.gelu)
put_function("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"))
put_function("elu", lambda x: F.elu(x, 0.7))
put_function("softplus", F.softplus)
put_function("exp", torch.exp, (-3.0, 0.0, 3.0, 9.0))
put_positive("logarithm", torch.log)
put_positive("sqrt", torch.sqrt)
put_function("abs", torch.abs)
put_function("neg", torch.neg)
put_function("square", torch.square)
put_positive("reciprocal", torch.reciprocal)
put_function("erf", torch.erf)
inf = float("inf")
put_function("clip", lambda x: torch.clamp(x, -1.5, 3.0), (-1.5, 3.0, 0.0, 20.0))
put_function("clip_above", lambda x: torch.clamp(x, max=0.5), (0.5, 20.0))
put_function("clip_below", lambda x: torch.clamp(x, min=-0.25), (-0.25, -20.0))
for op, f, shift in (("add", torch.add, 0), ("sub", torch.sub, 0), ("mul", torch.mul, 0), ("div", torch.div, 0.3)):
    put_binary(f"{op}_equal", f, (2, 3, 2, 3), (2, 3, 2, 3), shift)
    put_binary(f"{op}_channels", f, (2, 3, 2, 3), (2, 3, 1, 1), shift)
    put_binary(f"{op}_positions", f, (2, 3, 2, 3), (2, 1, 2, 3), shift)
    put_binary(f"{op}_first", f, (2, 3, 1, 1), (2, 3, 2, 3), shift)


def put_prelu(name, channels):
    x = torch.randn(2, 3, 2, 3)
    x.view(-1)[0] = 0.0
    put_call(name, F.prelu, [x, torch.randn(channels) * 0.5])


put_prelu("prelu", 3)
put_prelu("prelu_one", 1)

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "elementwise_golden.h"), "w") as f:
    f.write(f"/* What PyTorch {torch.__version__} computes. Made by make_elementwise_golden.py, never by hand. */\n")
    f.write("#pragma once\n\n#include <math.h>\n\n")
    for name, values in arrays:
        f.write(f"static const float golden_{name}[{len(values)}] = {{\n")
        texts = ["%.9g" % v for v in values]
        f.write("    " + ", ".join((t if any(c in t for c in ".en") else t + ".0") + "F" for t in texts) + "};\n")
