#!/usr/bin/python3
"""Writes token_golden.h beside this file: what PyTorch computes with rows and tokens, for the tests of core.

usage: make_token_golden.py && clang-format-14 -i token_golden.h   (needs Debian's python3-torch)

Activations are stored with their channels last. Of each case: inputs x0, x1, parameters p0, p1, the output y
and, for grad_y, the gradients of all of them.
"""
import os
import torch
import torch.nn.functional as F

torch.manual_seed(11)
torch.set_num_threads(1)
arrays = []


def put(name, t):
    arrays.append((name, [float(v) for v in t.detach().contiguous().flatten()]))


def case(name, f, inputs, params=()):
    xs = [(torch.randn(s) * 2 + 0.5).requires_grad_() for s in inputs]
    ps = [torch.randn(s).requires_grad_() for s in params]
    y = f(*xs, *ps)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for number, t in enumerate(xs):
        put(f"{name}_x{number}", t)
        put(f"{name}_grad_x{number}", t.grad if t.grad is not None else torch.zeros(t.shape))
    for number, t in enumerate(ps):
        put(f"{name}_p{number}", t)
        put(f"{name}_grad_p{number}", t.grad)
    put(f"{name}_y", y)
    put(f"{name}_grad_y", grad)


def channels_last(f):
    def moved(x, *params):
        return f(x.movedim(-1, 1), *params).movedim(1, -1)
    return moved


case("layer_norm", lambda x, w, b: F.layer_norm(x, (8,), w, b, 1e-5), [(3, 5, 8)], [(8,), (8,)])
case("layer_norm_image", lambda x, w, b: F.layer_norm(x, (4,), w, b, 1e-6), [(3, 2, 3, 4)], [(4,), (4,)])
case("group_norm", channels_last(lambda x, w, b: F.group_norm(x, 2, w, b, 1e-5)), [(3, 3, 4, 6)], [(6,), (6,)])
case("instance_norm", channels_last(lambda x, w, b: F.instance_norm(x, weight=w, bias=b, eps=1e-5)),
     [(3, 3, 4, 5)], [(5,), (5,)])
case("matmul", torch.matmul, [(3, 4, 5), (3, 5, 2)])
case("matmul_heads", torch.matmul, [(3, 2, 4, 3), (3, 2, 3, 4)])
case("mean_tokens", lambda x: x.mean(1), [(3, 5, 4)])
case("mean_plane", lambda x: x.mean((1, 2), keepdim=True), [(3, 3, 4, 2)])
case("parameter", lambda x, w: w.expand(3, -1, -1) + 0 * x.sum(), [(3, 2)], [(2, 4)])
case("add_parameter", lambda x, w: x + w, [(3, 4, 5)], [(4, 5)])
case("mul_parameter", lambda x, w: x * w, [(3, 2, 3, 4)], [(1, 1, 4)])

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "token_golden.h"), "w") as f:
    f.write(f"/* What PyTorch {torch.__version__} computes. Made by make_token_golden.py, never by hand. */\n")
    f.write("#pragma once\n\n")
    for name, values in arrays:
        f.write(f"static const float golden_{name}[{len(values)}] = {{\n")
        texts = [f"{v:.9g}" for v in values]
        texts = [(t if any(c in t for c in ".en") else t + ".0") + "F" for t in texts]
        row = "   "
        for t in texts:
            if len(row) + len(t) + 2 > 100:
                f.write(row + "\n")
                row = "   "
            row += f" {t},"
        f.write(row + "\n};\n")
