#!/usr/bin/env python3
"""Writes quant_golden.h: PyTorch's own answers for scales, observers and fake quantization.

Run with PyTorch 1.13 (Debian 12: python3-torch) in this folder:
    /usr/bin/python3 make_quant_golden.py > quant_golden.h && clang-format-14 -i quant_golden.h

The formulas of quant/qparams.c are PyTorch's, so the test compares bits. Where Octet differs on
purpose, the cases say so here:
  - weights take the absmax of the step, never a moving average: the weight case therefore feeds
    PyTorch's PerChannelMinMaxObserver a single batch, and its codes are [-127, 127];
  - an observer that has seen nothing gives scale 1 and the zero point of an empty range, where
    PyTorch gives zero point 0; such cases are not in the file;
  - symmetric unsigned codes have the zero point (qmin + qmax + 1) / 2, which is PyTorch's 128 for
    0..255 without a custom range; other unsigned ranges are not in the file;
  - a value whose code is beyond int64 saturates; PyTorch's conversion to int64 is undefined there
    (on x86 a giant positive value becomes the lowest code), so the values here stay below.
"""
import struct
import warnings

import torch
from torch.ao.quantization.observer import (MinMaxObserver, MovingAverageMinMaxObserver,
                                            PerChannelMinMaxObserver)

warnings.simplefilter("ignore")
torch.manual_seed(20240229)
torch.set_num_threads(1)


def bits(x):
    return struct.unpack("<I", struct.pack("<f", x))[0]


def words(values):
    values = [bits(float(v)) for v in values]
    lines = []
    for i in range(0, len(values), 8):
        lines.append("    " + ", ".join(f"0x{v:08x}" for v in values[i:i + 8]) + ",")
    return "\n".join(lines)


def numbers(values):
    values = [str(int(v)) for v in values]
    lines = []
    for i in range(0, len(values), 24):
        lines.append("    " + ", ".join(values[i:i + 24]) + ",")
    return "\n".join(lines)


def emit(kind, name, body):
    print(f"static const {kind} {name}[] = {{\n{body}\n}};\n")


def observer_of(scheme, qmin, qmax, cls=MinMaxObserver, **more):
    """No custom range for PyTorch's own 0..255: a custom one moves its symmetric zero point."""
    per_channel = cls is PerChannelMinMaxObserver
    schemes = {("affine", False): torch.per_tensor_affine,
               ("symmetric", False): torch.per_tensor_symmetric,
               ("affine", True): torch.per_channel_affine,
               ("symmetric", True): torch.per_channel_symmetric}
    dtype = torch.qint8 if qmin < 0 else torch.quint8
    custom = {} if (qmin, qmax) in ((0, 255), (-128, 127)) else {"quant_min": qmin, "quant_max": qmax}
    return cls(dtype=dtype, qscheme=schemes[(scheme, per_channel)], **custom, **more)


def qparams_cases():
    edges = [0.0, -0.0, 1.0, -1.0, 6.0, -127.5, 1e-8, -1e-45, 1e-38, 3e38, 255 * 2.0**-23, 0.1, -0.3]
    ranges = [(a, b) for a in edges for b in edges if a <= b and b - a < 3.4e38]
    ranges += [tuple(sorted(torch.randn(2).mul(10.0**torch.randint(-6, 6, (1,)).item()).tolist()))
               for _ in range(60)]
    kinds = [("affine", 0, 255), ("symmetric", 0, 255), ("affine", -128, 127), ("symmetric", -128, 127),
             ("affine", 0, 127), ("symmetric", -127, 127), ("affine", 0, 15)]
    rows = []
    for scheme, qmin, qmax in kinds:
        for low, high in ranges:
            observer = observer_of(scheme, qmin, qmax)
            observer.min_val = torch.tensor(low)
            observer.max_val = torch.tensor(high)
            scale, zero = observer.calculate_qparams()
            rows.append(f"    {{0x{bits(low):08x}, 0x{bits(high):08x}, {int(scheme == 'symmetric')}, "
                        f"{qmin}, {qmax}, 0x{bits(scale.item()):08x}, {int(zero.item())}}},")
    print("typedef struct golden_qparams {\n    uint32_t min, max;\n    int symmetric;\n"
          "    int32_t qmin, qmax;\n    uint32_t scale;\n    int32_t zero_point;\n} golden_qparams;\n")
    emit("golden_qparams", "golden_qparams_cases", "\n".join(rows))


def observer_cases():
    """Each batch is its min and max, as ranks exchange them."""
    batches = torch.randn(24, 2).mul(3).sort(dim=1).values
    batches[3] = torch.tensor([0.5, 2.0])
    batches[4] = torch.tensor([-2.0, -1.0])
    batches[5] = torch.tensor([1e-40, 1e-39])
    batches[6] = torch.tensor([-1e30, 1e30])
    emit("uint32_t", "golden_batches", words(batches.flatten()))
    for name, cls, constant in [("min_max", MinMaxObserver, None),
                                ("average_01", MovingAverageMinMaxObserver, 0.01),
                                ("average_3", MovingAverageMinMaxObserver, 0.3),
                                ("average_1", MovingAverageMinMaxObserver, 1.0)]:
        more = {} if constant is None else {"averaging_constant": constant}
        observer = observer_of("affine", 0, 255, cls, **more)
        states = []
        for batch in batches:
            observer(batch)
            states += [observer.min_val.item(), observer.max_val.item()]
        emit("uint32_t", f"golden_{name}", words(states))


def values_around(scale, zero, qmin, qmax):
    steps = torch.arange(qmin - 4, qmax + 5) - zero
    inside = steps[torch.randperm(len(steps))[:16]].float()
    ends = torch.tensor([qmin - 1, qmin - 0.5, qmin, qmin + 0.5, qmax - 0.5, qmax, qmax + 0.5, qmax + 1.0])
    ties = inside[:8] + 0.5
    x = torch.cat([inside * scale, ties * scale, (ends - zero) * scale])
    x = torch.cat([x, torch.nextafter(x, torch.full_like(x, 9e9))[:16],
                   torch.nextafter(x, torch.full_like(x, -9e9))[:16]])
    giant = 2.0**62 * scale
    special = torch.tensor([0.0, -0.0, 1e-45, -1e-45, 1e-39, -1e-39, 1000 * scale, giant, -giant])
    return torch.cat([x, torch.randn(20) * scale * (qmax - qmin) * 0.6, special])


def fake_quantize_cases():
    kinds = [(0.1, 0, 0, 255), (0.0234375, 128, 0, 255), (2.0**-7, 128, 0, 255), (0.5, 37, 0, 255),
             (1.7e-3, 0, -128, 127), (0.25, 0, -127, 127), (3.3, -5, -128, 127), (2.0**-23, 0, 0, 127),
             (1e6, 64, 0, 127), (0.013, 7, 0, 15)]
    print("typedef struct golden_fake {\n    uint32_t scale;\n"
          "    int32_t zero_point, qmin, qmax, first, count;\n} golden_fake;\n")
    rows, xs, ys, masks, gradients, upstream = [], [], [], [], [], []
    for scale, zero, qmin, qmax in kinds:
        scale = torch.tensor(scale).item()
        x = values_around(scale, zero, qmin, qmax).requires_grad_()
        g = torch.randn(len(x))
        y, mask = torch.ops.aten.fake_quantize_per_tensor_affine_cachemask(x, scale, zero, qmin, qmax)
        plain = torch.fake_quantize_per_tensor_affine(x, scale, zero, qmin, qmax)
        assert torch.equal(plain, y)
        plain.backward(g)
        rows.append(f"    {{0x{bits(scale):08x}, {zero}, {qmin}, {qmax}, {len(xs)}, {len(x)}}},")
        xs += x.tolist()
        ys += y.tolist()
        masks += mask.tolist()
        upstream += g.tolist()
        gradients += x.grad.tolist()
    emit("golden_fake", "golden_fake_cases", "\n".join(rows))
    emit("uint32_t", "golden_fake_x", words(xs))
    emit("uint32_t", "golden_fake_y", words(ys))
    emit("uint8_t", "golden_fake_mask", numbers(masks))
    emit("uint32_t", "golden_fake_dy", words(upstream))
    emit("uint32_t", "golden_fake_dx", words(gradients))


def weight_cases():
    """Rows are output channels; codes by PyTorch's per-channel quantization of one observed batch."""
    weight = torch.randn(10, 30) * torch.logspace(-4, 2, 10)[:, None]
    weight[1] = 0.0
    weight[2] = 0.0
    weight[2, 7] = -1.0
    weight[3] = torch.arange(30) - 15.0
    weight[3, 0] = 127.0  # scale 1: ties
    weight[3] = torch.where(weight[3] == 127.0, weight[3], weight[3] + 0.5)
    observer = observer_of("symmetric", -127, 127, PerChannelMinMaxObserver, ch_axis=0)
    observer(weight)
    scale, zero = observer.calculate_qparams()
    assert int(zero.abs().max()) == 0
    y = torch.fake_quantize_per_channel_affine(weight, scale, zero.to(torch.int32), 0, -127, 127)
    print("enum { GOLDEN_CHANNELS = 10, GOLDEN_TAPS = 30 };\n")
    emit("uint32_t", "golden_weight", words(weight.flatten()))
    emit("uint32_t", "golden_weight_scale", words(scale))
    emit("uint32_t", "golden_weight_fake", words(y.flatten()))


print("/* Made by make_quant_golden.py with PyTorch " + torch.__version__ + ". Floats are their bits. */\n"
      "#pragma once\n\n#include <stdint.h>\n")
qparams_cases()
observer_cases()
fake_quantize_cases()
weight_cases()
