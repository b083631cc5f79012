#!/usr/bin/python3
"""Writes core_golden.h beside this file: what PyTorch computes, for the tests of core.

usage: make_core_golden.py && clang-format-14 -i core_golden.h   (needs Debian's python3-torch)

Activations are stored as (N, H, W, C), convolution weights as (O, kh, kw, I/groups).
"""
import os
import torch
import torch.nn.functional as F

torch.manual_seed(5)
torch.set_num_threads(1)
arrays = []


def put(name, t):
    if t.dim() == 4:
        t = t.permute(0, 2, 3, 1)
    arrays.append((name, [float(v) for v in t.detach().contiguous().flatten()]))


def put_conv(name, x_shape, w_shape, **args):
    x = torch.randn(x_shape, requires_grad=True)
    w = torch.randn(w_shape, requires_grad=True)
    b = torch.randn(w_shape[0], requires_grad=True)
    y = F.conv2d(x, w, b, **args)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for part, t in (("x", x), ("w", w), ("b", b), ("y", y), ("grad_y", grad), ("grad_x", x.grad),
                    ("grad_w", w.grad), ("grad_b", b.grad)):
        put(f"{name}_{part}", t)


def put_batch_norm():
    bn = torch.nn.BatchNorm2d(3)
    with torch.no_grad():
        bn.weight.copy_(torch.tensor([1.5, -0.5, 0.75]))
        bn.bias.copy_(torch.tensor([0.1, 0.2, -0.3]))
    x = (torch.randn(5, 3, 2, 3) * 2 + 1).requires_grad_()
    y = bn(x)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for part, t in (("x", x), ("y", y), ("grad_y", grad), ("grad_x", x.grad), ("gamma", bn.weight),
                    ("beta", bn.bias), ("grad_gamma", bn.weight.grad), ("grad_beta", bn.bias.grad),
                    ("mean", bn.running_mean), ("var", bn.running_var)):
        put(f"bn_{part}", t)
    bn.eval()
    put("bn_eval_y", bn(x))


def put_pool(name, pool, *args):
    x = torch.randint(-3, 4, (2, 2, 7, 6)).float().requires_grad_()  # ties on purpose
    y = pool(x, *args)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for part, t in (("x", x), ("y", y), ("grad_y", grad), ("grad_x", x.grad)):
        put(f"{name}_{part}", t)


def put_cross_entropy():
    z = (torch.randn(6, 5) * 4).requires_grad_()
    labels = torch.tensor([0, 4, 2, 2, 1, 3])
    loss = F.cross_entropy(z, labels, label_smoothing=0.1)
    loss.backward()
    put("ce_z", z)
    put("ce_loss", loss.reshape(1))
    put("ce_grad", z.grad)


def put_optimizer(name, make):
    p = torch.randn(7, requires_grad=True)
    grads = torch.randn(4, 7)
    put(f"{name}_start", p)
    put(f"{name}_grads", grads)
    optimizer, ends = make([p]), []
    for g in grads:
        p.grad = g.clone()
        optimizer.step()
        ends.append(p.detach().clone())
    put(f"{name}_after", torch.stack(ends))


def put_cosine():
    p = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=0.3)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=10, eta_min=0.02)
    rates = []
    for _ in range(11):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    arrays.append(("cosine_lr", rates))


def put_conv_transpose(name, x_shape, w_shape, **args):
    def turned(w):  # the weight of the convolution that it is: (O, I, kh, kw), by 180 degrees
        return w.permute(1, 0, 2, 3).flip(2, 3)

    x = torch.randn(x_shape, requires_grad=True)
    w = torch.randn(w_shape, requires_grad=True)
    b = torch.randn(w_shape[1], requires_grad=True)
    y = F.conv_transpose2d(x, w, b, **args)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for part, t in (("x", x), ("w", turned(w)), ("b", b), ("y", y), ("grad_y", grad), ("grad_x", x.grad),
                    ("grad_w", turned(w.grad)), ("grad_b", b.grad)):
        put(f"{name}_{part}", t)


def put_function(name, f, *shapes):
    inputs = [(torch.randn(shape) * 3).requires_grad_() for shape in shapes]
    with torch.no_grad():  # where functions have their corners
        inputs[0].view(-1)[:4] = torch.tensor([-3.0, 0.0, 3.0, 20.0])
    y = f(*inputs)
    grad = torch.randn(y.shape)
    y.backward(grad)
    for number, t in enumerate(inputs):
        put(f"{name}_x{number}", t)
        put(f"{name}_grad_x{number}", t.grad)
    put(f"{name}_y", y)
    put(f"{name}_grad_y", grad)


def put_argmax():
    x = torch.randint(-3, 4, (12, 6)).float()  # ties on purpose
    x[2, 4] = x[5, 1] = x[5, 3] = float("nan")
    put("argmax_x", x)
    put("argmax_y", torch.argmax(x, dim=1))


def put_norm_groups():
    """Ghost batch norm: a BatchNorm2d with the same weights over each slice of 4, 4 and 2 samples, whose running
    values are averaged by the samples that each has seen."""
    sizes = (4, 4, 2)
    x = (torch.randn(sum(sizes), 3, 2, 3) * 2 + 1).requires_grad_()
    gamma = torch.tensor([1.5, -0.5, 0.75], requires_grad=True)
    beta = torch.tensor([0.1, 0.2, -0.3], requires_grad=True)
    norms = [torch.nn.BatchNorm2d(3) for _ in sizes]
    for bn in norms:
        bn.weight, bn.bias = torch.nn.Parameter(gamma.detach()), torch.nn.Parameter(beta.detach())
    y = torch.cat([bn(part) for bn, part in zip(norms, x.split(sizes))])
    grad = torch.randn(y.shape)
    y.backward(grad)

    def mean(buffers):
        return sum(b * n for b, n in zip(buffers, sizes)) / sum(sizes)

    for part, t in (("x", x), ("y", y), ("grad_y", grad), ("grad_x", x.grad), ("gamma", gamma), ("beta", beta),
                    ("grad_gamma", sum(bn.weight.grad for bn in norms)),
                    ("grad_beta", sum(bn.bias.grad for bn in norms)),
                    ("mean", mean([bn.running_mean for bn in norms])),
                    ("var", mean([bn.running_var for bn in norms]))):
        put(f"ghost_{part}", t)


def resized(h, w, mode):
    corners = {"align_corners": False} if mode == "bilinear" else {}
    return lambda x: F.interpolate(x, (h, w), mode=mode, **corners)


put_conv("conv", (3, 3, 7, 6), (4, 3, 3, 3), stride=2, padding=1)
put_conv("conv_groups", (3, 4, 9, 8), (6, 2, 3, 3), padding=1, groups=2)
put_conv("conv_depth", (3, 4, 5, 6), (4, 1, 3, 3), padding=1, groups=4)
put_batch_norm()
put_pool("max_pool", F.max_pool2d, 3, 2, 1)
put_pool("avg_pool", F.avg_pool2d, 2, 2)
put_cross_entropy()
put_optimizer("sgd", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01))
put_optimizer("nesterov", lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.01, nesterov=True))
put_optimizer("adamw", lambda p: torch.optim.AdamW(p, lr=0.01, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1))
put_cosine()
put_conv_transpose("conv_transpose", (3, 3, 4, 3), (3, 4, 4, 4), stride=2, padding=1)
put_conv_transpose("conv_transpose_one", (2, 3, 4, 3), (3, 2, 3, 3))
put_function("sigmoid", torch.sigmoid, (3, 7))
put_function("silu", F.silu, (3, 7))
put_function("hard_swish", F.hardswish, (3, 7))
put_function("leaky_relu", lambda x: F.leaky_relu(x, 0.125), (3, 7))
put_function("add_scalar", lambda x: x + 0.3, (3, 7))
put_function("mul_scalar", lambda x: x * -1.7, (3, 7))
put_function("mul", torch.mul, (3, 7), (3, 7))
put_function("softmax", lambda x: F.softmax(x, -1), (4, 9))
put_function("nearest", resized(3, 10, "nearest"), (2, 3, 4, 5))
put_function("bilinear", resized(3, 10, "bilinear"), (2, 3, 4, 5))
put_function("bilinear_up", resized(8, 6, "bilinear"), (2, 2, 4, 3))
put_function("soft_loss", lambda z, t: F.cross_entropy(z, t), (6, 5), (6, 5))
put_function("soft_loss_smooth", lambda z, t: F.cross_entropy(z, t.softmax(1), label_smoothing=0.1), (6, 5), (6, 5))
put_function("seed_loss", lambda z, t: F.cross_entropy(torch.softmax(z, dim=1), t), (6, 5), (6, 5))
put_argmax()
put_norm_groups()

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "core_golden.h"), "w") as f:
    f.write(f"/* What PyTorch {torch.__version__} computes. Made by make_core_golden.py, never by hand. */\n")
    f.write("#pragma once\n\n#include <math.h>\n\n")
    for name, values in arrays:
        kind, suffix = ("double", "") if name == "cosine_lr" else ("float", "F")
        line = f"static const {kind} golden_{name}[{len(values)}] = {{"
        f.write(line + "\n")
        texts = [("%.17g" if kind == "double" else "%.9g") % v for v in values]
        texts = ["NAN" if t == "nan" else (t if any(c in t for c in ".en") else t + ".0") + suffix for t in texts]
        row = "   "
        for t in texts:
            if len(row) + len(t) + 2 > 100:
                f.write(row + "\n")
                row = "   "
            row += f" {t},"
        f.write(row + "\n};\n")
