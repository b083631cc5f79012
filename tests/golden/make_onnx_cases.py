#!/usr/bin/env python3
"""Writes tests/golden/onnx_cases: small networks by PyTorch's exporter, each with an input and PyTorch's output,
for what the zoo (make_onnx_zoo.py) has no example of. Debian's python3-torch 1.13 and python3-onnx wrote them:
    tests/golden/make_onnx_cases.py
"""
import os

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "onnx_cases")
CASES = {}


def case(opset=13, shape=(2, 3, 8, 6), dynamic=True):
    def add(make):
        CASES[make.__name__] = (make, opset, shape, dynamic)
        return make

    return add


class Run(nn.Module):
    """Modules under their names, and a function of them."""

    def __init__(self, forward, **modules):
        super().__init__()
        self.run = forward
        for name, module in modules.items():
            if isinstance(module, nn.Parameter):
                self.register_parameter(name, module)
            else:
                self.add_module(name, module)

    def forward(self, x):
        return self.run(self, x)


def parameter(*shape):
    return nn.Parameter(torch.randn(*shape))


@case(opset=9)
def hard_swish_in_parts():
    return Run(lambda m, x: (lambda y: y * F.relu6(y + 3) / 6)(m.conv(x)), conv=nn.Conv2d(3, 4, 3))


@case(opset=9)
def hard_sigmoid_in_parts():
    return Run(lambda m, x: m.conv(x) * (F.relu6(m.gate(x) + 3) / 6), conv=nn.Conv2d(3, 4, 1), gate=nn.Conv2d(3, 4, 1))


@case(opset=12)
def activations():
    def run(m, x):
        x = F.leaky_relu(m.a(x), 0.2)
        x = F.elu(m.b(x), 0.7)
        x = F.softplus(m.c(x))
        x = torch.tanh(m.a(x))
        x = F.selu(m.b(x))
        x = F.mish(m.c(x))
        x = torch.abs(x) + torch.sqrt(torch.abs(x) + 1) + torch.exp(-x)
        return torch.clamp(x, -0.3, 2.5)

    return Run(run, a=nn.Conv2d(3, 3, 1), b=nn.Conv2d(3, 3, 1), c=nn.Conv2d(3, 3, 1))


@case(opset=12)
def prelu():
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.PReLU(4), nn.Conv2d(4, 2, 3), nn.PReLU())
    with torch.no_grad():
        net[1].weight.uniform_(0.1, 0.5)
    return net


@case(opset=14, shape=(2, 5, 6))
def gelu_by_tanh():
    return Run(
        lambda m, x: (lambda y: 0.5 * y * (1 + torch.tanh(0.7978845608 * (y + 0.044715 * torch.pow(y, 3)))))(m.fc(x)),
        fc=nn.Linear(6, 4),
    )


@case(opset=17, shape=(2, 5, 6))
def layer_norm():
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.Linear(8, 3))


@case(opset=13, shape=(2, 5, 6))
def layer_norm_in_parts():
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8, eps=1e-3), nn.Linear(8, 3))


@case()
def group_norm():
    net = nn.Sequential(nn.Conv2d(3, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(), nn.Conv2d(6, 4, 1))
    with torch.no_grad():
        net[1].weight.uniform_(0.5, 2)
        net[1].bias.normal_()
    return net


@case()
def instance_norm():
    return nn.Sequential(nn.Conv2d(3, 6, 3), nn.InstanceNorm2d(6, affine=True), nn.ReLU())


@case(shape=(2, 4, 9))
def conv_of_sequences():
    return nn.Sequential(
        nn.Conv1d(4, 6, 3, stride=2, padding=1), nn.BatchNorm1d(6), nn.ReLU(), nn.Conv1d(6, 5, 2, dilation=2), nn.AvgPool1d(2)
    )


@case(shape=(2, 4, 5, 7))
def transposed():
    return nn.Sequential(
        nn.ConvTranspose2d(4, 6, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 1), groups=2),
        nn.ReLU(),
        nn.ConvTranspose2d(6, 3, 3, stride=1, padding=1, dilation=1),
    )


@case(shape=(2, 3, 11, 9))
def windows():
    return nn.Sequential(
        nn.Conv2d(3, 6, (3, 5), stride=(2, 1), padding=(1, 2), dilation=(2, 1)),
        nn.MaxPool2d((3, 2), stride=(1, 2), padding=(1, 0), ceil_mode=True),
        nn.Conv2d(6, 6, 3, padding=1, groups=6),
        nn.AvgPool2d(3, stride=2, padding=1, count_include_pad=False),
        nn.AvgPool2d(2, stride=1, padding=1, count_include_pad=True),
    )


@case()
def padded():
    def run(m, x):
        x = m.a(F.pad(x, (0, 1, 0, 1)))
        x = m.b(F.pad(x, (2, 1, 1, 0), mode="reflect"))
        return m.c(F.pad(x, (1, 0, 0, 2), value=0.5))

    return Run(run, a=nn.Conv2d(3, 4, 2), b=nn.Conv2d(4, 4, 3), c=nn.Conv2d(4, 2, 3))


@case(opset=11)
def resized():
    def run(m, x):
        x = F.interpolate(m.a(x), scale_factor=2, mode="nearest")
        x = F.interpolate(m.b(x), size=(7, 9), mode="bilinear", align_corners=False)
        return F.interpolate(x, size=(13, 5), mode="bilinear", align_corners=True)

    return Run(run, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(4, 4, 1))


@case()
def shuffled():
    def run(m, x):
        x = F.pixel_shuffle(m.a(x), 2)
        x = F.pixel_unshuffle(m.b(x), 2)
        n, c, h, w = x.shape
        x = x.reshape(n, 3, c // 3, h, w).transpose(1, 2).reshape(n, c, h, w)
        return m.c(x)

    return Run(run, a=nn.Conv2d(3, 8, 1), b=nn.Conv2d(2, 3, 1), c=nn.Conv2d(12, 2, 1))


@case()
def cut():
    def run(m, x):
        x = m.a(x)
        y = torch.cat([x[:, ::2], x[:, 1::2]], 1)  # every other channel
        z = torch.cat([x[..., ::2, ::2], x[..., 1::2, ::2], x[..., ::2, 1::2], x[..., 1::2, 1::2]], 1)  # YOLOv5's Focus
        p, q, r = torch.split(m.b(z), [2, 1, 3], dim=1)
        y = torch.flip(y, [2])[:, 1:, 1:5]
        return torch.cat([F.relu(p).flatten(1), q.flatten(1), r[:, 1].flatten(1), y.flatten(1)], 1)

    return Run(run, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(16, 6, 1))


@case()
def joined():
    """Concat along height, width and channels."""

    def run(m, x):
        y = torch.cat([m.a(x), m.b(x)], 2)
        y = torch.cat([y, F.relu(y), m.c(y)], 3)
        return torch.cat([y, torch.sigmoid(y)], 1)

    return Run(run, a=nn.Conv2d(3, 4, 1), b=nn.Conv2d(3, 4, 1), c=nn.Conv2d(4, 4, 1))


@case()
def scaled():
    """Constants and parameters: of a channel, a pixel, a place, a number."""

    def run(m, x):
        x = m.conv(x) * m.scale + m.shift
        x = (x - 0.25) / 1.5 + m.plane
        x = x * m.row - m.all
        return 1 - x / m.scale2

    return Run(
        run,
        conv=nn.Conv2d(3, 4, 1),
        scale=parameter(1, 4, 1, 1),
        shift=parameter(4, 1, 1),
        plane=parameter(8, 6),
        row=parameter(1, 1, 8, 1),
        all=parameter(4, 8, 6),
        scale2=nn.Parameter(torch.rand(4, 1, 1) + 0.5),
    )


@case()
def gated():
    """Broadcast of computed values: over pixels, over channels, of rows against columns."""

    def run(m, x):
        x = m.conv(x)
        x = x * torch.sigmoid(m.se(x.mean((2, 3), keepdim=True)))
        x = x * torch.sigmoid(m.spatial(x))
        x = x + x.mean(2, keepdim=True)
        x = x - x.mean(3, keepdim=True) * x.mean((1, 2), keepdim=True)
        return torch.tanh(x.mean(1, keepdim=True)) / (1 + torch.abs(m.spatial(x)))

    return Run(run, conv=nn.Conv2d(3, 4, 1), se=nn.Conv2d(4, 4, 1), spatial=nn.Conv2d(4, 1, 3, padding=1))


@case()
def flattened():
    """Behind a flatten of (C, H, W) the columns of weights change their places, or values are moved."""

    def run(m, x):
        a = m.fc1(m.conv(x).flatten(1))
        b = m.fc2(m.conv(x).flatten(2))  # over pixels
        c = m.fc3(m.conv(x).permute(0, 2, 3, 1))  # over channels
        d = m.fc4(m.conv(x)[:, 1:3].flatten(1))
        return torch.cat([a, b.flatten(1), c.flatten(1), d], 1)

    return Run(run, conv=nn.Conv2d(3, 4, 1), fc1=nn.Linear(192, 5), fc2=nn.Linear(48, 3), fc3=nn.Linear(4, 3), fc4=nn.Linear(96, 2))


@case(opset=13, shape=(2, 3, 8, 8))
def attention():
    """nn.MultiheadAttention as PyTorch exports it, with the batch folded into the heads."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.patch = nn.Conv2d(3, 12, 4, stride=4)
            self.token = parameter(1, 1, 12)
            self.position = parameter(1, 5, 12)
            self.norm = nn.LayerNorm(12)
            self.attention = nn.MultiheadAttention(12, 3, batch_first=True)
            self.head = nn.Linear(12, 4)

        def forward(self, x):
            x = self.patch(x).flatten(2).transpose(1, 2)
            x = torch.cat([self.token.expand(x.shape[0], -1, -1), x], 1) + self.position
            y = self.norm(x)
            q = self.attention(y, y, y, need_weights=False)[0]
            return self.head((x + q)[:, 0])

    return Net()


@case(shape=(2, 3, 8, 8), dynamic=False)
def fixed_batch():
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(144, 5), nn.Softmax(1))


@case()
def shared():
    """One convolution and its batch norm, called twice."""

    def run(m, x):
        return m.head(m.conv(x)) + F.avg_pool2d(m.head(F.max_pool2d(m.conv(x), 2)), 1).mean((2, 3), keepdim=True)

    return Run(run, conv=nn.Conv2d(3, 4, 1), head=nn.Conv2d(4, 2, 3, padding=1))


@case(shape=(2, 5, 6))
def mixer():
    """Weights times a value, means over tokens, softmax over the middle."""

    def run(m, x):
        x = x + m.tokens(x.transpose(1, 2)).transpose(1, 2)
        x = torch.matmul(m.left, x)
        x = F.softmax(x, 1) * x
        return torch.cat([x.mean(1), x.mean(2), x.sum(1)], 1)

    return Run(run, tokens=nn.Linear(5, 5), left=parameter(4, 5))


def main():
    os.makedirs(OUT, exist_ok=True)
    for name, (make, opset, shape, dynamic) in sorted(CASES.items()):
        torch.manual_seed(len(name))
        net = make().eval()
        for m in net.modules():
            if isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)):
                m.running_mean.normal_(0, 0.2)
                m.running_var.uniform_(0.5, 2)
        x = torch.randn(*shape)
        y = net(x).detach()
        path = os.path.join(OUT, name)
        example = x if dynamic else x[:1]
        torch.onnx.export(
            net,
            example,
            path + ".onnx",
            opset_version=opset,
            input_names=["x"],
            output_names=["y"],
            dynamic_axes={"x": {0: "n"}, "y": {0: "n"}} if dynamic else None,
            training=torch.onnx.TrainingMode.PRESERVE,
            do_constant_folding=False,
        )
        np.savez(path + ".npz", x=x.numpy(), y=y.numpy())
        print(name, tuple(y.shape), os.path.getsize(path + ".onnx"))


main()
