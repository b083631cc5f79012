#!/usr/bin/python3
"""Writes weights/net.safetensors, .npz and .onnx beside this file, and weights_golden.h: a small network of PyTorch's
with its weights in each of these formats, an input and what PyTorch computes of it.

usage: make_weights_golden.py && clang-format-14 -i weights_golden.h
(needs Debian's python3-torch, python3-numpy and python3-onnx)

The safetensors file is written by hand, after huggingface.co/docs/safetensors, with types of all widths. The
twin of the network is in tests/io/test_weights.c: convolutions of groups, a transposed one too, a linear layer
behind a flatten, and one whose output becomes an image.
"""
import json
import os
import struct
import warnings

import numpy as np
import torch
import torch.nn as nn

warnings.simplefilter("ignore")
torch.manual_seed(3)
here = os.path.dirname(os.path.abspath(__file__))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(2, 4, 3, padding=1, groups=2, bias=False)
        self.bn1 = nn.BatchNorm2d(4)
        self.up = nn.ConvTranspose2d(4, 6, (2, 3), stride=2, groups=2)
        self.fc1 = nn.Linear(6 * 8 * 7, 6)
        self.bn2 = nn.BatchNorm1d(6)
        self.fc2 = nn.Linear(6, 2 * 2 * 3)
        self.last = nn.Conv2d(3, 5, 1)

    def forward(self, x):
        x = self.up(self.bn1(self.conv1(x)).relu())
        x = self.bn2(self.fc1(x.flatten(1))).relu()
        return self.last(self.fc2(x).relu().reshape(-1, 3, 2, 2))


net = Net().eval()
with torch.no_grad():
    for bn in (net.bn1, net.bn2):
        bn.weight.uniform_(0.5, 1.5)
        bn.bias.normal_()
        bn.running_mean.normal_()
        bn.running_var.uniform_(0.5, 2)
    net.fc1.weight.copy_(net.fc1.weight.half().float())
    net.up.weight.copy_(net.up.weight.bfloat16().float())
x = torch.randn(2, 2, 4, 3)
state = net.state_dict()

header, data = {"__metadata__": {"format": "pt"}}, b""
for name, t in state.items():
    array = t.numpy()
    kind, raw = {"float32": "F32", "int64": "I64"}[str(array.dtype)], array.tobytes()
    if name == "fc1.weight":
        kind, raw = "F16", array.astype("<f2").tobytes()
    elif name == "up.weight":
        kind, raw = "BF16", (array.view(np.uint32) >> 16).astype("<u2").tobytes()
    elif name == "fc2.bias":
        kind, raw = "F64", array.astype("<f8").tobytes()
    header[name] = {"dtype": kind, "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
    data += raw
text = json.dumps(header).encode()
text += b" " * (-len(text) % 8)
os.makedirs(os.path.join(here, "weights"), exist_ok=True)
with open(os.path.join(here, "weights", "net.safetensors"), "wb") as f:
    f.write(struct.pack("<Q", len(text)) + text + data)
arrays = {name: t.numpy() for name, t in state.items()}
arrays["fc1.weight"] = arrays["fc1.weight"].astype("<f2")
np.savez(os.path.join(here, "weights", "net.npz"), **arrays)
torch.onnx.export(net, x, os.path.join(here, "weights", "net.onnx"), opset_version=13,
                  training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)


def put(f, name, t):
    values = t.detach().permute(0, 2, 3, 1).contiguous().flatten().tolist()
    f.write(f"static const float golden_{name}[{len(values)}] = {{\n")
    f.write(", ".join(f"{v:.9g}F" if "." in f"{v:.9g}" or "e" in f"{v:.9g}" else f"{v:.9g}.0F" for v in values))
    f.write("};\n")


with open(os.path.join(here, "weights_golden.h"), "w") as f:
    f.write(f"/* What PyTorch {torch.__version__} computes. Made by make_weights_golden.py, never by hand. */\n")
    f.write("#pragma once\n\n")
    put(f, "weights_x", x)
    put(f, "weights_y", net(x))
