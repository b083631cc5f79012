#!/usr/bin/python3
"""Writes geometry_golden.h beside this file: what PyTorch computes of convolutions and pools whose sides differ, for
tests/core/test_geometry.c.

usage: make_geometry_golden.py && clang-format-14 -i geometry_golden.h   (needs Debian's python3-torch)

Activations are stored as (N, H, W, C), convolution weights as (O, kh, kw, I/groups). Pads are top, left, bottom, right.
"""
import os
import torch
import torch.nn.functional as F

torch.manual_seed(13)
torch.set_num_threads(1)
arrays = []


def put(name, t):
    arrays.append((name, "float", [float(v) for v in t.detach().contiguous().flatten()]))


def put_image(name, t):
    put(name, t.permute(0, 2, 3, 1))


def padded(x, pads, value=0.0):
    top, left, bottom, right = pads
    return F.pad(x, (left, right, top, bottom), value=value)


def put_layer(name, x, w, b, y, weights):
    grad = torch.randn(y.shape)
    y.backward(grad)
    for part, t in (("x", x), ("y", y), ("grad_y", grad), ("grad_x", x.grad)):
        put_image(f"{name}_{part}", t)
    for part, t in (("w", w), ("grad_w", w.grad)):
        put_image(f"{name}_{part}", weights(t))
    for part, t in (("b", b), ("grad_b", b.grad)):
        put(f"{name}_{part}", t)


def put_conv(name, x_shape, w_shape, pads, **args):
    x, w, b = (torch.randn(s, requires_grad=True) for s in (x_shape, w_shape, w_shape[:1]))
    put_layer(name, x, w, b, F.conv2d(padded(x, pads), w, b, **args), lambda t: t)


def put_transposed(name, x_shape, w_shape, pads, groups=1, **args):
    """The padding of a transposed convolution takes rows and columns of its output away."""
    x, w = (torch.randn(s, requires_grad=True) for s in (x_shape, w_shape))
    b = torch.randn(w_shape[1] * groups, requires_grad=True)
    y = F.conv_transpose2d(x, w, b, groups=groups, **args)
    top, left, bottom, right = pads
    y = y[:, :, top:y.shape[2] - bottom, left:y.shape[3] - right]

    def turned(t):  # (I, O/groups, kh, kw) -> (O, I/groups, kh, kw), by 180 degrees
        i, o, kh, kw = t.shape
        t = t.reshape(groups, i // groups, o, kh, kw).transpose(1, 2)
        return t.reshape(groups * o, i // groups, kh, kw).flip(2, 3)

    put_layer(name, x, w, b, y, turned)


def put_pool(name, x_shape, pool):
    x = torch.randint(-3, 4, x_shape).float().requires_grad_()  # ties on purpose
    y = pool(x)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for part, t in (("x", x), ("y", y), ("grad_y", grad), ("grad_x", x.grad)):
        put_image(f"{name}_{part}", t)


def mean_inside(x, pads, kernel, stride):
    """The mean of what lies in x, by sums of values and of ones."""
    area = kernel[0] * kernel[1]
    count = F.avg_pool2d(padded(torch.ones_like(x), pads), kernel, stride) * area
    return F.avg_pool2d(padded(x, pads), kernel, stride) * area / count


def put_linear(name, x_shape, out):
    x, w, b = (torch.randn(s, requires_grad=True) for s in (x_shape, (out, x_shape[-1]), (out,)))
    y = F.linear(x, w, b)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for part, t in (("x", x), ("w", w), ("b", b), ("y", y), ("grad_y", grad), ("grad_x", x.grad), ("grad_w", w.grad),
                    ("grad_b", b.grad)):
        put(f"{name}_{part}", t)


def put_ceil_sizes():
    """Rows of in, kernel, stride, padding, output: of max pools in ceil mode."""
    rows = []
    for size in range(1, 8):
        for kernel in range(1, 5):
            for stride in range(1, 5):
                for padding in range(0, kernel // 2 + 1):
                    try:
                        y = F.max_pool2d(torch.zeros(1, 1, size, 40), (kernel, 1), (stride, 1), (padding, 0),
                                         ceil_mode=True)
                    except RuntimeError:
                        rows += [size, kernel, stride, padding, 0]
                        continue
                    rows += [size, kernel, stride, padding, y.shape[2]]
    arrays.append(("ceil_sizes", "int", rows))


put_conv("conv_uneven", (2, 3, 7, 6), (4, 3, 2, 3), (0, 2, 1, 1), stride=(2, 1), dilation=(2, 1))
put_conv("conv_same", (2, 1, 13, 7), (3, 1, 10, 4), (4, 1, 5, 1), stride=2)
put_conv("conv_groups", (2, 4, 5, 6), (4, 2, 3, 3), (2, 3, 1, 0), dilation=(1, 3), groups=2)
put_conv("conv_depth", (2, 3, 6, 7), (3, 1, 3, 3), (2, 4, 2, 4), dilation=(2, 4), stride=(1, 2), groups=3)
put_conv("conv_point", (2, 3, 5, 5), (4, 3, 1, 1), (0, 0, 1, 0))
put_transposed("transposed", (2, 4, 2, 3), (4, 2, 2, 3), (1, 1, 1, 1), groups=2, stride=(3, 2), output_padding=(2, 1),
               dilation=(1, 2))
put_transposed("transposed_uneven", (2, 3, 4, 3), (3, 2, 3, 4), (0, 2, 1, 1), stride=(1, 3))
put_transposed("transposed_depth", (2, 3, 3, 4), (3, 1, 2, 2), (0, 0, 0, 0), groups=3, stride=2)
put_pool("max_ceil", (2, 2, 7, 6), lambda x: F.max_pool2d(x, (3, 2), (2, 3), (1, 1), ceil_mode=True))
put_pool("max_uneven", (2, 3, 6, 7), lambda x: F.max_pool2d(padded(x, (0, 1, 2, 0), float("-inf")), (3, 2), (1, 2)))
put_pool("avg_ceil", (2, 2, 7, 6), lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 1), ceil_mode=True))
put_pool("avg_ceil_inside", (2, 2, 8, 6), lambda x: F.avg_pool2d(x, (3, 2), (2, 3), (1, 1), ceil_mode=True,
                                                               count_include_pad=False))
put_pool("avg_uneven", (2, 3, 6, 7), lambda x: F.avg_pool2d(padded(x, (0, 1, 2, 0)), (3, 2), (1, 2)))
put_pool("avg_uneven_inside", (2, 3, 6, 7), lambda x: mean_inside(x, (0, 1, 2, 0), (3, 2), (1, 2)))
put_linear("linear3", (3, 4, 5), 6)
put_linear("linear4", (2, 3, 2, 5), 4)
put_ceil_sizes()

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "geometry_golden.h"), "w") as f:
    f.write(f"/* What PyTorch {torch.__version__} computes. Made by make_geometry_golden.py, never by hand. */\n")
    f.write("#pragma once\n\n")
    for name, kind, values in arrays:
        f.write(f"static const {kind} golden_{name}[{len(values)}] = {{\n")
        texts = ["%.9g" % v for v in values]
        if kind == "float":
            texts = [(t if any(c in t for c in ".en") else t + ".0") + "F" for t in texts]
        row = "   "
        for t in texts:
            if len(row) + len(t) + 2 > 100:
                f.write(row + "\n")
                row = "   "
            row += f" {t},"
        f.write(row + "\n};\n")
