#!/usr/bin/env python3
"""Writes structure_golden.h: where PyTorch's own prepare puts quantizers, and what it fuses.

Run with PyTorch 1.13 (Debian 12: python3-torch) in this folder:
    /usr/bin/python3 make_structure_golden.py > structure_golden.h && clang-format-14 -i structure_golden.h

The networks are twins of those in launch/model and tests/quant/test_structure.c: the same names, the
same wiring. Two lists for each:

  graph   prepare_qat_fx: every fused module, and every quantizer with the tensors that it serves
          (PyTorch shares one instance between concat's inputs and output, and along pools, flatten and
          the like). The twin has no stubs, since FX needs none: its input is Octet's `quant`.
  eager   fuse_modules_qat by name, then prepare_qat: every module that has an activation_post_process.

A tensor is named after the module that makes it; the result of a functional op after its caller:
"blocks.0:add#0" is the first add in the forward of blocks.0. add + relu is one op to PyTorch as to
Octet and goes by the add. Octet's fusion of convolution and add is of its own (Horizon's ConvAdd2d), so
the comparison runs on a target that leaves it out; the last layer's output is quantized, since PyTorch
knows no high-precision output.
"""
import operator
import warnings

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.ao.quantization as tq
from torch.ao.quantization.quantize_fx import prepare_qat_fx

warnings.simplefilter("ignore")


def conv(i, o, k=3, s=1, groups=1, bias=False):
    return nn.Conv2d(i, o, k, s, k // 2, groups=groups, bias=bias)


def conv_bn(i, o, k=3, s=1, relu=True, groups=1, act=nn.ReLU):
    layers = [conv(i, o, k, s, groups), nn.BatchNorm2d(o)]
    return layers + [act()] if relu else layers


def add_relu(ff, a, b):
    return ff.add_relu(a, b) if ff else F.relu(a + b)


def floats(eager):
    return torch.nn.quantized.FloatFunctional() if eager else None


class Net(nn.Module):
    def __init__(self, eager):
        super().__init__()
        self.eager = eager
        if eager:
            self.quant, self.dequant = tq.QuantStub(), tq.DeQuantStub()

    def forward(self, x):
        if not self.eager:
            return self.body(x)
        return self.dequant(self.body(self.quant(x)))


class CnnSmall(Net):
    shape = (1, 1, 28, 28)

    def __init__(self, eager):
        super().__init__(eager)
        self.features = nn.Sequential(*conv_bn(1, 32), *conv_bn(32, 32), nn.MaxPool2d(2),
                                      *conv_bn(32, 64), *conv_bn(64, 64), nn.MaxPool2d(2))
        self.head = nn.Sequential(nn.Linear(64 * 49, 128), nn.ReLU(), nn.Linear(128, 10))

    def body(self, x):
        return self.head(torch.flatten(self.features(x), 1))

    fuse = [["features.0", "features.1", "features.2"], ["features.3", "features.4", "features.5"],
            ["features.7", "features.8", "features.9"],
            ["features.10", "features.11", "features.12"], ["head.0", "head.1"]]


class ResidualBlock(nn.Module):
    """resnet20's: body, shortcut, add, relu."""

    def __init__(self, i, o, s, eager):
        super().__init__()
        self.body = nn.Sequential(*conv_bn(i, o, 3, s), *conv_bn(o, o, 3, 1, relu=False))
        self.shortcut = None
        if s != 1 or i != o:
            self.shortcut = nn.Sequential(*conv_bn(i, o, 1, s, relu=False))
        self.add = floats(eager)

    def forward(self, x):
        y = self.body(x)
        return add_relu(self.add, y, x if self.shortcut is None else self.shortcut(x))


class ResNet20(Net):
    shape = (1, 3, 32, 32)

    def __init__(self, eager):
        super().__init__(eager)
        self.stem = nn.Sequential(*conv_bn(3, 16))
        blocks, i = [], 16
        for o in (16, 32, 64):
            for b in range(3):
                blocks.append(ResidualBlock(i, o, 2 if b == 0 and o > 16 else 1, eager))
                i = o
        self.blocks = nn.Sequential(*blocks)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(64, 10)

    def body(self, x):
        return self.head(torch.flatten(self.pool(self.blocks(self.stem(x))), 1))

    @property
    def fuse(self):
        lists = [["stem.0", "stem.1", "stem.2"]]
        for i, block in enumerate(self.blocks):
            lists += [[f"blocks.{i}.body.{j}" for j in (0, 1, 2)],
                      [f"blocks.{i}.body.{j}" for j in (3, 4)]]
            if block.shortcut is not None:
                lists.append([f"blocks.{i}.shortcut.{j}" for j in (0, 1)])
        return lists


class Concat(Net):
    """Concat of a pooled tensor and a gated one; the gate is a sigmoid of itself, so one tensor is
    read twice."""
    shape = (1, 3, 16, 16)

    def __init__(self, eager):
        super().__init__(eager)
        self.stem = nn.Sequential(*conv_bn(3, 16))
        self.pool = nn.MaxPool2d(2)
        self.gate = conv(16, 8, 1, bias=True)
        self.global_pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(24, 10)

    def body(self, x):
        y = self.pool(self.stem(x))
        z = self.gate(y)
        z = z * torch.sigmoid(z)
        y = torch.cat([y, z], 1)
        return self.head(torch.flatten(self.global_pool(y), 1))

    fuse = None  # functional throughout: no eager twin


class LinearNorm(Net):
    """linear + batch_norm + nothing, linear + relu, and a batch norm + relu of its own."""
    shape = (1, 3, 8, 8)

    def __init__(self, eager):
        super().__init__(eager)
        self.conv = conv(3, 8, bias=True)
        self.pool = nn.MaxPool2d(2)
        self.bn = nn.BatchNorm2d(8)
        self.relu = nn.ReLU()
        self.fc1 = nn.Linear(128, 32)
        self.bn1 = nn.BatchNorm1d(32)
        self.fc2 = nn.Linear(32, 16)
        self.relu2 = nn.ReLU()
        self.fc3 = nn.Linear(16, 10)

    def body(self, x):
        x = self.relu(self.bn(self.pool(self.conv(x))))
        x = self.bn1(self.fc1(torch.flatten(x, 1)))
        return self.fc3(self.relu2(self.fc2(x)))

    fuse = [["bn", "relu"], ["fc1", "bn1"], ["fc2", "relu2"]]


class BasicBlock(nn.Module):
    """resnet18c's: relu and add are functions."""

    def __init__(self, i, o, s):
        super().__init__()
        self.conv1, self.bn1 = conv(i, o, 3, s), nn.BatchNorm2d(o)
        self.conv2, self.bn2 = conv(o, o, 3, 1), nn.BatchNorm2d(o)
        self.downsample = None
        if s != 1 or i != o:
            self.downsample = nn.Sequential(*conv_bn(i, o, 1, s, relu=False))

    def forward(self, x):
        y = F.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu(y + (x if self.downsample is None else self.downsample(x)))


class ResNet18c(Net):
    shape = (1, 3, 32, 32)

    def __init__(self, eager):
        super().__init__(eager)
        self.conv1, self.bn1 = conv(3, 64), nn.BatchNorm2d(64)
        self.layer1 = nn.Sequential(BasicBlock(64, 64, 1), BasicBlock(64, 64, 1))
        self.layer2 = nn.Sequential(BasicBlock(64, 128, 2), BasicBlock(128, 128, 1))
        self.layer3 = nn.Sequential(BasicBlock(128, 256, 2), BasicBlock(256, 256, 1))
        self.layer4 = nn.Sequential(BasicBlock(256, 512, 2), BasicBlock(512, 512, 1))
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(512, 10)

    def body(self, x):
        x = F.relu(self.bn1(self.conv1(x)))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))

    fuse = None  # functional: eager cannot


class InvertedResidual(nn.Module):
    def __init__(self, i, o, s, expand):
        super().__init__()
        h = i * expand
        layers = conv_bn(i, h, 1) if expand != 1 else []
        layers += conv_bn(h, h, 3, s, groups=h) + conv_bn(h, o, 1, relu=False)
        self.body = nn.Sequential(*layers)
        self.residual = s == 1 and i == o

    def forward(self, x):
        y = self.body(x)
        return x + y if self.residual else y


class MobileNetV2c(Net):
    """With relu: PyTorch fuses no relu6."""
    shape = (1, 3, 32, 32)

    def __init__(self, eager):
        super().__init__(eager)
        self.stem = nn.Sequential(*conv_bn(3, 32))
        blocks, i = [], 32
        for t, c, n, s in ((1, 16, 1, 1), (6, 24, 2, 1), (6, 32, 3, 2), (6, 64, 4, 2),
                           (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)):
            for b in range(n):
                blocks.append(InvertedResidual(i, c, s if b == 0 else 1, t))
                i = c
        self.blocks = nn.Sequential(*blocks)
        self.top = nn.Sequential(*conv_bn(320, 1280, 1))
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.head = nn.Linear(1280, 10)

    def body(self, x):
        x = self.top(self.blocks(self.stem(x)))
        return self.head(torch.flatten(self.pool(x), 1))

    fuse = None


class Vgg11c(Net):
    """PyTorch fuses linear with batch norm, but no relu behind them."""
    shape = (1, 3, 32, 32)

    def __init__(self, eager):
        super().__init__(eager)
        layers, i = [], 3
        for v in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
            if v == 0:
                layers.append(nn.MaxPool2d(2))
                continue
            layers += [conv(i, v, bias=True), nn.BatchNorm2d(v), nn.ReLU()]
            i = v
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(),
                                        nn.Linear(512, 10))

    def body(self, x):
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))

    @property
    def fuse(self):
        convs = [i for i, m in enumerate(self.features) if isinstance(m, nn.Conv2d)]
        return [[f"features.{i + j}" for j in range(3)] for i in convs] + [
            ["classifier.0", "classifier.1"]]


FUSED = {"ConvBn2d": "conv2d + batch_norm", "ConvBnReLU2d": "conv2d + batch_norm + relu",
         "ConvReLU2d": "conv2d + relu", "LinearReLU": "linear + relu",
         "LinearBn1d": "linear + batch_norm", "BNReLU2d": "batch_norm + relu"}

OPS = {operator.add: "add", operator.mul: "mul", torch.cat: "concat", torch.sigmoid: "sigmoid",
       torch.flatten: "flatten", F.relu: "relu", torch.relu: "relu"}


def graph_lists(cls):
    model = prepare_qat_fx(cls(False).train(), tq.get_default_qat_qconfig_mapping("fbgemm"),
                           (torch.randn(cls.shape),))
    scopes = model._node_name_to_scope
    modules = dict(model.named_modules(remove_duplicate=False))
    counts, names, groups, fused = {}, {}, {}, []
    for node in model.graph.nodes:
        if node.op == "call_module" and "activation_post_process" in node.target:
            source = node.args[0]
            group = groups.setdefault(id(getattr(model, node.target)), [])
            group.append(names[source])
        elif node.op == "placeholder":
            names[node] = "quant"
        elif node.op == "call_module":
            names[node] = node.target
            kind = type(modules[node.target]).__name__
            if kind in FUSED:
                fused.append(f"{node.target}: {FUSED[kind]}")
        elif node.op == "call_function":
            op, scope = OPS[node.target], scopes[node.name][0]
            key = (scope, op)
            before = node.args[0]
            if op == "flatten":  # a view: no values of its own
                names[node] = names[before.args[0]]
                continue
            if op == "relu" and before.op == "call_function" and OPS[before.target] == "add":
                names[node] = names[before]
                fused.append(f"{names[node]}: add + relu")
                continue
            names[node] = f"{scope}:{op}#{counts.get(key, 0)}"
            counts[key] = counts.get(key, 0) + 1
    return fused, [" ".join(sorted(set(g))) for g in groups.values()]


def eager_list(cls):
    model = cls(True).train()
    tq.fuse_modules_qat(model, model.fuse, inplace=True)
    model.qconfig = tq.get_default_qat_qconfig("fbgemm")
    tq.prepare_qat(model, inplace=True)
    return [n for n, m in model.named_modules() if hasattr(m, "activation_post_process")
            and not isinstance(m, tq.FakeQuantizeBase)]


def emit(name, lines):
    body = "".join(f'    "{line}",\n' for line in sorted(lines))
    print(f"static const char *const {name}[] = {{\n{body}    NULL,\n}};\n")


TWINS = {"cnn_small": CnnSmall, "resnet20": ResNet20, "concat": Concat, "linear_norm": LinearNorm,
         "resnet18c": ResNet18c, "mobilenetv2c_relu": MobileNetV2c, "vgg11c": Vgg11c}

print("/* Written by make_structure_golden.py with PyTorch "
      f"{torch.__version__.split('a')[0]}; do not edit. */\n#pragma once\n\n#include <stddef.h>\n")
for name, cls in TWINS.items():
    fused, groups = graph_lists(cls)
    emit(f"{name}_fused", fused)
    emit(f"{name}_quantizers", groups)
    if cls.fuse is not None:
        emit(f"{name}_eager", eager_list(cls))
