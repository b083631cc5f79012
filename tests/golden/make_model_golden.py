#!/usr/bin/python3
"""Writes model_golden.h beside this file: how many trained numbers PyTorch's twins of launch/model have.

usage: make_model_golden.py && clang-format-14 -i model_golden.h   (needs Debian's python3-torch)

The twins hold the layers only, for images of 32x32x3 and 10 classes; a forward checks that they fit.
"""
import os
import torch
import torch.nn as nn
import torch.nn.functional as F


def conv_bn(i, o, k=3, s=1, g=1, relu=True, bias=False):
    layers = [nn.Conv2d(i, o, k, s, k // 2, groups=g, bias=bias), nn.BatchNorm2d(o)]
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


class Basic(nn.Module):
    def __init__(self, i, o, s):
        super().__init__()
        self.body = nn.Sequential(conv_bn(i, o, 3, s), conv_bn(o, o, relu=False))
        self.down = conv_bn(i, o, 1, s, relu=False) if s != 1 or i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.down(x))


class Bottleneck(nn.Module):
    def __init__(self, i, inner, s):
        super().__init__()
        o = 4 * inner
        self.body = nn.Sequential(conv_bn(i, inner, 1), conv_bn(inner, inner, 3, s), conv_bn(inner, o, 1, relu=False))
        self.down = conv_bn(i, o, 1, s, relu=False) if s != 1 or i != o else nn.Identity()

    def forward(self, x):
        return F.relu(self.body(x) + self.down(x))


class Inverted(nn.Module):
    def __init__(self, i, o, s, t):
        super().__init__()
        wide = i * t
        self.body = nn.Sequential(*([conv_bn(i, wide, 1)] if t != 1 else []), conv_bn(wide, wide, 3, s, wide),
                                  conv_bn(wide, o, 1, relu=False))
        self.residual = s == 1 and i == o

    def forward(self, x):
        return x + self.body(x) if self.residual else self.body(x)


class Pyramid(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = conv_bn(3, 16)
        self.stages = nn.ModuleList(
            nn.Sequential(conv_bn(i, o, 3, s), conv_bn(o, o)) for i, o, s in ((16, 16, 1), (16, 32, 2), (32, 64, 2)))
        self.lateral = nn.ModuleList(nn.Conv2d(o, 32, 1) for o in (16, 32, 64))
        self.output = nn.ModuleList(nn.Conv2d(32, 32, 3, 1, 1) for _ in range(3))
        self.head = nn.Linear(96, 10)

    def forward(self, x):
        features, x = [], self.stem(x)
        for stage in self.stages:
            x = stage(x)
            features.append(x)
        levels, above = [None] * 3, None
        for i in (2, 1, 0):
            side = self.lateral[i](features[i])
            above = side if above is None else side + F.interpolate(above, scale_factor=2)
            levels[i] = F.relu(self.output[i](above)).mean((2, 3))
        return self.head(torch.cat(levels, 1))


class UNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.down = nn.ModuleList(nn.Sequential(conv_bn(i, o), conv_bn(o, o)) for i, o in ((3, 16), (16, 32), (32, 64)))
        self.up = nn.ModuleList(nn.Sequential(conv_bn(3 * o, o), conv_bn(o, o)) for o in (16, 32))
        self.head = nn.Conv2d(16, 10, 1)

    def forward(self, x):
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.down[2](F.max_pool2d(b, 2))
        b = self.up[1](torch.cat((F.interpolate(c, b.shape[2:]), b), 1))
        return self.head(self.up[0](torch.cat((F.interpolate(b, a.shape[2:]), a), 1))).permute(0, 2, 3, 1)


def pooled(features, head):
    return nn.Sequential(features, nn.AdaptiveAvgPool2d(1), nn.Flatten(), head)


def cnn_small():
    features = [conv_bn(3, 32), conv_bn(32, 32), nn.MaxPool2d(2), conv_bn(32, 64), conv_bn(64, 64), nn.MaxPool2d(2)]
    return nn.Sequential(*features, nn.Flatten(), nn.Linear(64 * 64, 128), nn.ReLU(), nn.Linear(128, 10))


def residual(stem, stages, blocks):
    layers, i = [conv_bn(3, stem)], stem
    for number, o in enumerate(stages):
        for block in range(blocks):
            layers.append(Basic(i, o, 2 if block == 0 and number > 0 else 1))
            i = o
    return pooled(nn.Sequential(*layers), nn.Linear(i, 10))


def vgg11c():
    layers, i = [], 3
    for o in (64, 0, 128, 0, 256, 256, 0, 512, 512, 0, 512, 512, 0):
        layers.append(conv_bn(i, o, bias=True) if o else nn.MaxPool2d(2))
        i = o or i
    head = nn.Sequential(nn.Linear(512, 512), nn.BatchNorm1d(512), nn.ReLU(), nn.Linear(512, 10))
    return pooled(nn.Sequential(*layers), head)


def imagenet_resnet(blocks, bottleneck):
    layers, i = [conv_bn(3, 64, 7, 2), nn.MaxPool2d(3, 2, 1)], 64
    for number, count in enumerate(blocks):
        for block in range(count):
            inner, s = 64 << number, 2 if block == 0 and number > 0 else 1
            layers.append(Bottleneck(i, inner, s) if bottleneck else Basic(i, inner, s))
            i = 4 * inner if bottleneck else inner
    return pooled(nn.Sequential(*layers), nn.Linear(i, 10))


def autoencoder():
    layers, i = [nn.Flatten()], 3 * 32 * 32
    for o in (128, 128, 128, 128, 8, 128, 128, 128, 128):
        layers += [nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU()]
        i = o
    return nn.Sequential(*layers, nn.Linear(i, 10))


def mlp():
    return nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 128), nn.ReLU(), nn.Linear(128, 128), nn.ReLU(),
                         nn.Linear(128, 10))


def mobilenetv2(stride):
    layers, i = [conv_bn(3, 32, 3, stride)], 32
    for t, o, n, s in ((1, 16, 1, 1), (6, 24, 2, stride), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2),
                       (6, 320, 1, 1)):
        for block in range(n):
            layers.append(Inverted(i, o, s if block == 0 else 1, t))
            i = o
    return pooled(nn.Sequential(*layers, conv_bn(320, 1280, 1)), nn.Linear(1280, 10))


twins = (("cnn-small", cnn_small()), ("resnet20", residual(16, (16, 32, 64), 3)),
         ("resnet18c", residual(64, (64, 128, 256, 512), 2)), ("resnet18", imagenet_resnet((2, 2, 2, 2), False)),
         ("resnet50", imagenet_resnet((3, 4, 6, 3), True)), ("vgg11c", vgg11c()), ("mobilenetv2", mobilenetv2(2)),
         ("mobilenetv2c", mobilenetv2(1)), ("mobilenetv2c-relu", mobilenetv2(1)), ("fpn-small", Pyramid()),
         ("unet-small", UNet()), ("autoencoder", autoencoder()), ("mlp", mlp()))

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "model_golden.h"), "w") as f:
    f.write("/* Trained numbers of PyTorch's twins of the models. Made by make_model_golden.py, never by hand. */\n")
    f.write("#pragma once\n\nstatic const struct {\n const char *name;\n long long numel;\n} golden_models[] = {\n")
    for name, twin in twins:
        assert twin(torch.zeros(2, 3, 32, 32)).shape == ((2, 32, 32, 10) if name == "unet-small" else (2, 10))
        f.write(f'{{"{name}", {sum(p.numel() for p in twin.parameters())}}},\n')
    f.write("};\n")
