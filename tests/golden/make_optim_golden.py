#!/usr/bin/python3
"""Writes optim_golden.h beside this file: optimizers, schedules, clipping and averages from elsewhere.

usage: make_optim_golden.py && clang-format-14 -i optim_golden.h   (needs Debian's python3-torch)

Schedules, clipping and averages are PyTorch's. LARS and LAMB, which PyTorch has not, are written down here from
the equations of their papers, in double.
"""
import os
import numpy as np
import torch
from torch.optim import lr_scheduler
from torch.optim.swa_utils import AveragedModel

torch.manual_seed(11)
SIZE, STEPS = 7, 4
arrays = []


def put(name, values, kind="float"):
    arrays.append((name, kind, [float(v) for v in np.asarray(values, dtype=np.float64).ravel()]))


def norm(x):
    return np.sqrt(np.sum(x * x))


def lars(w, grads, lr=0.1, momentum=0.9, decay=0.01, trust=0.02):
    """You, Gitman, Ginsburg: Large Batch Training of Convolutional Networks, algorithm 1."""
    v = np.zeros_like(w)
    for g in grads:
        local = trust * norm(w) / (norm(g) + decay * norm(w))
        v = momentum * v + lr * local * (g + decay * w)
        w = w - v
        yield w


def lamb(w, grads, lr=0.01, b1=0.9, b2=0.999, eps=1e-6, decay=0.1):
    """You et al.: Large Batch Optimization for Deep Learning, algorithm 2, phi the identity."""
    m, v = np.zeros_like(w), np.zeros_like(w)
    for t, g in enumerate(grads, 1):
        m = b1 * m + (1 - b1) * g
        v = b2 * v + (1 - b2) * g * g
        r = (m / (1 - b1**t)) / (np.sqrt(v / (1 - b2**t)) + eps)
        u = r + decay * w
        w = w - lr * norm(w) / norm(u) * u
        yield w


def put_optimizer(name, steps):
    w = torch.randn(SIZE).numpy().astype(np.float64)
    grads = torch.randn(STEPS, SIZE).numpy().astype(np.float64)
    put(f"{name}_start", w)
    put(f"{name}_grads", grads)
    put(f"{name}_after", list(steps(w, grads)))


def put_schedule(name, lr, count, make):
    p = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([p], lr=lr)
    schedule, rates = make(optimizer), []
    for step in range(count):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        if step + 1 < count:
            schedule.step()
    put(f"{name}_lr", rates, "double")


def put_clip():
    weight, bias = torch.randn(SIZE, requires_grad=True), torch.randn(1, requires_grad=True)
    weight.grad, bias.grad = torch.randn(SIZE) * 3, torch.randn(1) * 3
    put("clip_grads", torch.cat([weight.grad, bias.grad]))
    total = torch.nn.utils.clip_grad_norm_([weight, bias], 1.5)
    put("clip_norm", [total])
    put("clip_after", torch.cat([weight.grad, bias.grad]))


def put_average(name, decay, warmup):
    model = torch.nn.Linear(SIZE, 1, bias=False)
    values = torch.randn(STEPS, SIZE)

    def mean(averaged, value, count):
        d = min(decay, (1 + float(count)) / (10 + float(count))) if warmup else decay
        return d * averaged + (1 - d) * value

    averaged, after = AveragedModel(model, avg_fn=mean), []
    for v in values:
        with torch.no_grad():
            model.weight.copy_(v.reshape(1, -1))
        averaged.update_parameters(model)
        after.append(averaged.module.weight.detach().clone().reshape(-1))
    put(f"{name}_values", values)
    put(f"{name}_after", torch.stack(after))


put_optimizer("lars", lars)
put_optimizer("lamb", lamb)
put_schedule("restarts", 0.3, 40, lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 2, 0.02))
put_schedule("equal_restarts", 0.3, 12, lambda o: lr_scheduler.CosineAnnealingWarmRestarts(o, 5, 1, 0))
put_schedule("polynomial", 0.3, 11, lambda o: lr_scheduler.PolynomialLR(o, 10, 2.5))
put_schedule("one_cycle", 0.3, 20, lambda o: lr_scheduler.OneCycleLR(o, 0.3, 20, pct_start=0.3))
put_schedule("one_cycle_linear", 0.3, 20, lambda o: lr_scheduler.OneCycleLR(
    o, 0.3, 20, pct_start=0.45, anneal_strategy="linear", div_factor=10, final_div_factor=100))
put_clip()
put_average("average", 0.6, False)
put_average("early_average", 0.25, True)

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "optim_golden.h"), "w") as f:
    f.write("/* Made by make_optim_golden.py; do not edit. */\n#pragma once\n")
    for name, kind, values in arrays:
        suffix = "F" if kind == "float" else ""
        digits = 9 if kind == "float" else 17
        texts = [f"{v:.{digits}g}" for v in values]
        texts = [t if set(t) & set(".en") else t + ".0" for t in texts]
        f.write(f"static const {kind} golden_{name}[{len(values)}] = {{{', '.join(t + suffix for t in texts)},}};\n")
