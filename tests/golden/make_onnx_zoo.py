#!/usr/bin/env python3
"""Writes the float ONNX networks that the tests import: torchvision's and others' architectures as PyTorch's own
exporter writes them, in narrow widths, with random weights and batch-norm statistics of real forward passes.

    make_onnx_zoo.py FOLDER [--full] [NAME...]

NAME.onnx is the network, NAME.npz holds x (N, C, H, W) and y, what PyTorch computes of it in evaluation. Narrow
networks have at most 200 KB, so that tests need no PyTorch; --full writes the usual widths at their usual image sizes.
Made with Debian 12's python3-torch 1.13 and python3-torchvision 0.14.
"""
import argparse
import importlib
import os
import sys

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F
import torchvision
from torchvision.models import densenet, efficientnet, mobilenetv2, mobilenetv3, regnet, resnet, shufflenetv2, \
    squeezenet
from torchvision.ops.misc import Conv2dNormActivation

CLASSES = 10


class NarrowResNet(resnet.ResNet):
    """ResNet-18 with an eighth of its width, which the constructor fixes."""

    def __init__(self):
        nn.Module.__init__(self)
        self._norm_layer = nn.BatchNorm2d
        self.inplanes, self.dilation, self.groups, self.base_width = 8, 1, 1, 64
        self.conv1 = nn.Conv2d(3, 8, 7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(8)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(resnet.BasicBlock, 8, 2)
        self.layer2 = self._make_layer(resnet.BasicBlock, 12, 2, stride=2)
        self.layer3 = self._make_layer(resnet.BasicBlock, 16, 2, stride=2)
        self.layer4 = self._make_layer(resnet.BasicBlock, 24, 2, stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(24, CLASSES)


def resnet18(full):
    return (torchvision.models.resnet18(), (3, 224, 224)) if full else (NarrowResNet(), (3, 32, 32))


def mobilenet_v2(full):
    if full:
        return torchvision.models.mobilenet_v2(), (3, 224, 224)
    setting = [[1, 8, 1, 1], [4, 8, 2, 2], [4, 16, 2, 2], [4, 24, 1, 1]]
    net = mobilenetv2.MobileNetV2(num_classes=CLASSES, width_mult=0.25, inverted_residual_setting=setting)
    net.features[-1] = Conv2dNormActivation(net.features[-1][0].in_channels, 48, kernel_size=1,
                                            norm_layer=nn.BatchNorm2d, activation_layer=nn.ReLU6)
    net.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(48, CLASSES))
    return net, (3, 32, 32)


def mobilenet_v3_small(full):
    if full:
        return torchvision.models.mobilenet_v3_small(), (3, 224, 224)
    block = mobilenetv3.InvertedResidualConfig
    setting = [block(16, 3, 16, 16, True, "RE", 2, 1, 0.5), block(16, 3, 32, 24, False, "RE", 2, 1, 0.5),
               block(24, 5, 48, 24, True, "HS", 1, 1, 0.5), block(24, 5, 48, 32, True, "HS", 2, 1, 0.5)]
    return mobilenetv3.MobileNetV3(setting, 32, num_classes=CLASSES), (3, 32, 32)


def efficientnet_b0(full):
    if full:
        return torchvision.models.efficientnet_b0(), (3, 224, 224)
    block = efficientnet.MBConvConfig
    setting = [block(1, 3, 1, 8, 8, 1, 1.0, 1.0), block(4, 3, 2, 8, 16, 2, 1.0, 1.0),
               block(4, 5, 2, 16, 24, 1, 1.0, 1.0)]
    net = efficientnet.EfficientNet(setting, dropout=0.2, num_classes=CLASSES, last_channel=48)
    return net, (3, 32, 32)


def shufflenet_v2(full):
    if full:
        return torchvision.models.shufflenet_v2_x1_0(), (3, 224, 224)
    return shufflenetv2.ShuffleNetV2([2, 2, 2], [8, 16, 24, 32, 48], num_classes=CLASSES), (3, 32, 32)


def squeezenet1_1(full):
    if full:
        return torchvision.models.squeezenet1_1(), (3, 224, 224)

    class Narrow(squeezenet.SqueezeNet):
        def __init__(self):
            nn.Module.__init__(self)
            fire = squeezenet.Fire
            self.features = nn.Sequential(
                nn.Conv2d(3, 16, 3, stride=2), nn.ReLU(inplace=True), nn.MaxPool2d(3, 2, ceil_mode=True),
                fire(16, 4, 12, 12), fire(24, 4, 12, 12), nn.MaxPool2d(3, 2, ceil_mode=True), fire(24, 8, 16, 16))
            self.classifier = nn.Sequential(nn.Dropout(0.5), nn.Conv2d(32, CLASSES, 1), nn.ReLU(inplace=True),
                                            nn.AdaptiveAvgPool2d((1, 1)))
    return Narrow(), (3, 32, 32)


def regnet_y(full):
    if full:
        return torchvision.models.regnet_y_400mf(), (3, 224, 224)
    params = regnet.BlockParams([1, 1, 2], [8, 16, 24], [8, 8, 8], [1.0, 1.0, 1.0], [2, 2, 2], 0.25)
    return regnet.RegNet(params, num_classes=CLASSES, stem_width=8), (3, 32, 32)


def densenet121(full):
    if full:
        return torchvision.models.densenet121(), (3, 224, 224)
    return densenet.DenseNet(4, (3, 4, 9), num_init_features=8, bn_size=2, num_classes=CLASSES), (3, 64, 64)


class Inception(nn.Module):
    """Two of GoogLeNet's blocks with its convolutions, narrow, and its padded max pool with ceil_mode."""

    def __init__(self):
        super().__init__()
        made_of = importlib.import_module("torchvision.models.googlenet")  # models.googlenet is a function
        conv, block = made_of.BasicConv2d, made_of.Inception
        self.conv1 = conv(3, 12, kernel_size=7, stride=2, padding=3)
        self.maxpool1 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception3a = block(12, 6, 6, 8, 4, 6, 4)
        self.inception3b = block(24, 8, 8, 12, 4, 8, 4)
        self.maxpool3 = nn.MaxPool2d(3, stride=2, ceil_mode=True)
        self.inception4a = block(32, 12, 6, 12, 4, 4, 4)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.dropout = nn.Dropout(0.2)
        self.fc = nn.Linear(32, CLASSES)

    def forward(self, x):
        x = self.maxpool1(self.conv1(x))
        x = self.inception4a(self.maxpool3(self.inception3b(self.inception3a(x))))
        return self.fc(self.dropout(torch.flatten(self.avgpool(x), 1)))


def googlenet_(full):
    if full:
        net = torchvision.models.googlenet(aux_logits=False, transform_input=False, init_weights=False)
        return net, (3, 224, 224)
    return Inception(), (3, 32, 32)


class UNet(nn.Module):
    """Ronneberger et al. 2015 with transposed convolutions, padded so that sizes stay."""

    def __init__(self, width, classes):
        super().__init__()
        def double(i, o):
            return nn.Sequential(nn.Conv2d(i, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True),
                                 nn.Conv2d(o, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU(inplace=True))
        w = width
        self.down1, self.down2, self.down3 = double(3, w), double(w, 2 * w), double(2 * w, 4 * w)
        self.pool = nn.MaxPool2d(2)
        self.up2 = nn.ConvTranspose2d(4 * w, 2 * w, 2, stride=2)
        self.conv2 = double(4 * w, 2 * w)
        self.up1 = nn.ConvTranspose2d(2 * w, w, 3, stride=2, padding=1, output_padding=1)
        self.conv1 = double(2 * w, w)
        self.head = nn.Conv2d(w, classes, 1)

    def forward(self, x):
        a = self.down1(x)
        b = self.down2(self.pool(a))
        c = self.down3(self.pool(b))
        b = self.conv2(torch.cat([self.up2(c), b], 1))
        a = self.conv1(torch.cat([self.up1(b), a], 1))
        return self.head(a)


def unet(full):
    return (UNet(64, 21), (3, 256, 256)) if full else (UNet(6, 4), (3, 32, 32))


class YoloConv(nn.Sequential):
    def __init__(self, i, o, k=1, s=1):
        super().__init__(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o, eps=1e-3), nn.SiLU())


class Bottleneck(nn.Module):
    def __init__(self, c, add):
        super().__init__()
        self.cv1, self.cv2, self.add = YoloConv(c, c, 3), YoloConv(c, c, 3), add

    def forward(self, x):
        y = self.cv2(self.cv1(x))
        return x + y if self.add else y


class SplitBlock(nn.Module):
    """A convolution whose halves go their own ways through bottlenecks and are joined, all of them."""

    def __init__(self, i, o, n, add):
        super().__init__()
        self.half = o // 2
        self.cv1, self.cv2 = YoloConv(i, o), YoloConv((2 + n) * self.half, o)
        self.m = nn.ModuleList(Bottleneck(self.half, add) for _ in range(n))

    def forward(self, x):
        y = list(self.cv1(x).split((self.half, self.half), 1))
        for m in self.m:
            y.append(m(y[-1]))
        return self.cv2(torch.cat(y, 1))


class PoolBlock(nn.Module):
    def __init__(self, i, o):
        super().__init__()
        self.cv1, self.cv2, self.pool = YoloConv(i, i // 2), YoloConv(2 * i, o), nn.MaxPool2d(5, 1, 2)

    def forward(self, x):
        x = self.cv1(x)
        y1 = self.pool(x)
        y2 = self.pool(y1)
        return self.cv2(torch.cat([x, y1, y2, self.pool(y2)], 1))


class Yolo(nn.Module):
    """A backbone, neck and dense head in the manner of the YOLO family: SiLU, split, concat, nearest upsampling,
    max pools of stride 1. The head's maps are joined over positions: (N, outputs, positions)."""

    def __init__(self, w, outputs):
        super().__init__()
        self.stem, self.c1 = YoloConv(3, w, 3, 2), YoloConv(w, 2 * w, 3, 2)
        self.b1 = SplitBlock(2 * w, 2 * w, 1, True)
        self.c2 = YoloConv(2 * w, 4 * w, 3, 2)
        self.b2 = SplitBlock(4 * w, 4 * w, 1, True)
        self.sppf = PoolBlock(4 * w, 4 * w)
        self.up = nn.Upsample(scale_factor=2, mode="nearest")
        self.n1 = SplitBlock(6 * w, 2 * w, 1, False)
        self.down = YoloConv(2 * w, 2 * w, 3, 2)
        self.n2 = SplitBlock(6 * w, 4 * w, 1, False)
        self.h1, self.h2 = nn.Conv2d(2 * w, outputs, 1), nn.Conv2d(4 * w, outputs, 1)

    def forward(self, x):
        a = self.b1(self.c1(self.stem(x)))
        b = self.sppf(self.b2(self.c2(a)))
        a = self.n1(torch.cat([self.up(b), a], 1))
        b = self.n2(torch.cat([self.down(a), b], 1))
        return torch.cat([self.h1(a).flatten(2), self.h2(b).flatten(2)], 2)


def yolo(full):
    return (Yolo(32, 85), (3, 320, 320)) if full else (Yolo(6, 8), (3, 32, 32))


class Same(nn.Module):
    """Keras' padding SAME in front of a layer without padding: uneven where the stride asks for it."""

    def __init__(self, size, kernel, stride, layer):
        super().__init__()
        pads = []
        for n, k, s in reversed(list(zip(size, kernel, stride))):
            total = max((-(-n // s) - 1) * s + k - n, 0)
            pads += [total // 2, total - total // 2]
        self.pads, self.layer = pads, layer

    def forward(self, x):
        return self.layer(F.pad(x, self.pads))


def conv_bn(size, i, o, kernel, stride=1, groups=1, relu=True):
    stride2 = (stride, stride)
    layers = [Same(size, kernel, stride2, nn.Conv2d(i, o, kernel, stride, groups=groups)), nn.BatchNorm2d(o, eps=1e-3)]
    return nn.Sequential(*layers, *([nn.ReLU()] if relu else []))


class ResNet8(nn.Module):
    """MLPerf Tiny's image classification network (three stacks of one block)."""

    def __init__(self, w, size=32):
        super().__init__()
        s = (size, size)
        self.stem = conv_bn(s, 3, w, (3, 3))
        self.stacks = nn.ModuleList()
        i = w
        for k, o in enumerate((w, 2 * w, 4 * w)):
            stride = 1 if k == 0 else 2
            t = (s[0] // stride, s[1] // stride)
            short = nn.Identity() if k == 0 else Same(s, (1, 1), (stride, stride), nn.Conv2d(i, o, 1, stride))
            self.stacks.append(nn.ModuleDict({"a": conv_bn(s, i, o, (3, 3), stride),
                                              "b": conv_bn(t, o, o, (3, 3), relu=False), "short": short}))
            i, s = o, t
        self.pool, self.fc = nn.AvgPool2d(s), nn.Linear(i, CLASSES)

    def forward(self, x):
        x = self.stem(x)
        for stack in self.stacks:
            x = F.relu(stack["b"](stack["a"](x)) + stack["short"](x))
        return self.fc(torch.flatten(self.pool(x), 1))


def resnet8(full):
    return (ResNet8(16), (3, 32, 32)) if full else (ResNet8(6), (3, 32, 32))


class DsCnn(nn.Module):
    """MLPerf Tiny's keyword spotting network: 49x10 coefficients, a 10x4 stem of stride 2, four separable blocks."""

    def __init__(self, w):
        super().__init__()
        s = (25, 5)
        self.stem = nn.Sequential(Same((49, 10), (10, 4), (2, 2), nn.Conv2d(1, w, (10, 4), 2)), nn.BatchNorm2d(w),
                                  nn.ReLU(), nn.Dropout(0.2))
        self.blocks = nn.Sequential(*[nn.Sequential(conv_bn(s, w, w, (3, 3), groups=w), conv_bn(s, w, w, (1, 1)))
                                      for _ in range(4)])
        self.drop, self.pool, self.fc = nn.Dropout(0.4), nn.AvgPool2d((24, 5)), nn.Linear(w, 12)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.drop(self.blocks(self.stem(x)))), 1))


def ds_cnn(full):
    return DsCnn(64 if full else 16), (1, 49, 10)


class MobileNetV1(nn.Module):
    """MLPerf Tiny's visual wake words network, width 0.25 of Howard et al. 2017."""

    def __init__(self, w, size, plan):
        super().__init__()
        s = (size, size)
        layers = [conv_bn(s, 3, w, (3, 3), 2)]
        s, i = (s[0] // 2, s[1] // 2), w
        for o, stride in plan:
            layers.append(conv_bn(s, i, i, (3, 3), stride, groups=i))
            s = (-(-s[0] // stride), -(-s[1] // stride))
            layers.append(conv_bn(s, i, o, (1, 1)))
            i = o
        self.layers, self.pool, self.fc = nn.Sequential(*layers), nn.AvgPool2d(s), nn.Linear(i, 2)

    def forward(self, x):
        return self.fc(torch.flatten(self.pool(self.layers(x)), 1))


def mobilenet_v1(full):
    if full:
        plan = [(16, 1), (32, 2), (32, 1), (64, 2), (64, 1), (128, 2)] + [(128, 1)] * 5 + [(256, 2), (256, 1)]
        return MobileNetV1(8, 96, plan), (3, 96, 96)
    return MobileNetV1(8, 48, [(16, 1), (24, 2), (24, 1), (32, 2), (32, 1), (48, 2), (48, 1)]), (3, 48, 48)


class Autoencoder(nn.Module):
    """MLPerf Tiny's anomaly detection network: linear layers with batch norm around a bottleneck."""

    def __init__(self, n, w, b):
        super().__init__()
        sizes, layers = [n, w, w, b, w, w], []
        for i, o in zip(sizes, sizes[1:]):
            layers += [nn.Linear(i, o), nn.BatchNorm1d(o), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(w, n))

    def forward(self, x):
        return self.layers(torch.flatten(x, 1))


def autoencoder(full):
    return (Autoencoder(640, 128, 8), (1, 5, 128)) if full else (Autoencoder(160, 48, 8), (1, 5, 32))


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads, self.scale = heads, (dim // heads) ** -0.5
        self.qkv, self.proj = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        n, t, c = x.shape
        q, k, v = self.qkv(x).reshape(n, t, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4).unbind(0)
        a = ((q @ k.transpose(-2, -1)) * self.scale).softmax(-1)
        return self.proj((a @ v).transpose(1, 2).reshape(n, t, c))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.norm1, self.attn, self.norm2 = nn.LayerNorm(dim), Attention(dim, heads), nn.LayerNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class ViT(nn.Module):
    """Dosovitskiy et al. 2021: patches, a class token, positions, blocks, the class token's output."""

    def __init__(self, size, patch, dim, heads, depth):
        super().__init__()
        self.patch_embed = nn.Conv2d(3, dim, patch, patch)
        self.cls_token = nn.Parameter(torch.randn(1, 1, dim) * 0.02)
        self.pos_embed = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, dim) * 0.02)
        self.blocks = nn.Sequential(*[Block(dim, heads) for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(dim), nn.Linear(dim, CLASSES)

    def forward(self, x):
        x = self.patch_embed(x).flatten(2).transpose(1, 2)
        x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1), x], 1) + self.pos_embed
        return self.head(self.norm(self.blocks(x))[:, 0])


def vit(full):
    return (ViT(224, 16, 192, 3, 12), (3, 224, 224)) if full else (ViT(32, 8, 24, 3, 2), (3, 32, 32))


class Slopes(nn.Module):
    """What the others have no example of: PReLU of one slope and of one a channel, clips of any bounds behind
    convolutions, sums and alone, quotients by one number and by one a channel."""

    def __init__(self, width):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, 2, 1, bias=False), nn.BatchNorm2d(width), nn.PReLU(width))
        self.left = nn.Sequential(nn.Conv2d(width, width, 3, 1, 1, bias=False), nn.BatchNorm2d(width))
        self.deep = nn.Sequential(nn.Conv2d(width, width, 3, 2, 1, groups=width), nn.PReLU())
        self.mix = nn.Conv2d(width, width, 1)
        self.head = nn.Linear(width, width)
        self.slope = nn.PReLU(width)
        self.classes = nn.Linear(width, CLASSES)
        self.register_buffer("spread", 0.5 + torch.rand(1, width, 1, 1))

    def forward(self, x):
        x = self.stem(x)
        y = torch.clamp(self.left(x), -0.75, 1.5)
        x = torch.clamp(x + y, -1, 2.5) / self.spread
        x = torch.clamp(self.deep(x), min=-0.3)
        x = torch.clamp(self.mix(x / 0.7), 0.1, 3)
        x = x.mean((2, 3))
        return self.classes(self.slope(self.head(x)))


def slopes(full):
    return Slopes(64 if full else 16), ((3, 224, 224) if full else (3, 32, 32))


MODELS = {"resnet18": resnet18, "mobilenet_v2": mobilenet_v2, "mobilenet_v3_small": mobilenet_v3_small,
          "efficientnet_b0": efficientnet_b0, "shufflenet_v2": shufflenet_v2, "squeezenet1_1": squeezenet1_1,
          "regnet_y": regnet_y, "densenet121": densenet121, "googlenet": googlenet_, "unet": unet, "yolo": yolo,
          "resnet8": resnet8, "ds_cnn": ds_cnn, "mobilenet_v1": mobilenet_v1, "autoencoder": autoencoder, "vit": vit,
          "slopes": slopes}
# The versions of the format that files are written in, so that readers meet more than one.
OPSETS = {"mobilenet_v2": 9, "unet": 11, "resnet18": 17, "googlenet": 10, "densenet121": 12, "mobilenet_v3_small": 14,
          "efficientnet_b0": 15, "vit": 16, "shufflenet_v2": 11}


def settle(net, shape):
    """Weights are random; statistics are those of a few forward passes, factors and offsets are not trivial."""
    generator = torch.Generator().manual_seed(7)
    for module in net.modules():
        if isinstance(module, nn.PReLU):
            module.weight.data = 0.4 * torch.randn(module.weight.shape, generator=generator)
        if isinstance(module, (nn.BatchNorm2d, nn.BatchNorm1d, nn.LayerNorm)):
            module.weight.data = 0.5 + torch.rand(module.weight.shape, generator=generator)
            module.bias.data = 0.2 * torch.randn(module.bias.shape, generator=generator)
        elif isinstance(module, nn.Linear):
            module.reset_parameters()
    net.train()
    with torch.no_grad():
        for _ in range(20):
            net(torch.randn(8, *shape, generator=generator))
    net.eval()


def write(name, folder, full):
    torch.manual_seed(1)
    net, shape = MODELS[name](full)
    settle(net, shape)
    x = torch.randn(2, *shape, generator=torch.Generator().manual_seed(3))
    path = os.path.join(folder, name)
    # Batch norm stays an operator of its own, so that training can go on with it.
    torch.onnx.export(net, torch.randn(2, *shape), path + ".onnx", opset_version=OPSETS.get(name, 13),
                      input_names=["input"], output_names=["output"],
                      dynamic_axes={"input": {0: "batch"}, "output": {0: "batch"}},
                      training=torch.onnx.TrainingMode.PRESERVE, do_constant_folding=False)
    with torch.no_grad():
        y = net(x)
    np.savez(path + ".npz", x=x.numpy(), y=y.numpy())
    print(f"{name}: {os.path.getsize(path + '.onnx')} bytes, opset {OPSETS.get(name, 13)}, {tuple(shape)} -> "
          f"{tuple(y.shape[1:])}, outputs within {y.abs().max().item():.3g}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder")
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--full", action="store_true")
    args = parser.parse_intermixed_args()
    unknown = [name for name in args.names if name not in MODELS]
    if unknown:
        sys.exit(f"no network '{unknown[0]}'; known: {', '.join(MODELS)}")
    os.makedirs(args.folder, exist_ok=True)
    for name in args.names or MODELS:
        write(name, args.folder, args.full)


if __name__ == "__main__":
    main()
