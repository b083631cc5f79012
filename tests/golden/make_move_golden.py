#!/usr/bin/python3
"""Writes move_golden.h beside this file: which values of a sample moves and pads take, for the tests of core.

usage: make_move_golden.py && clang-format-14 -i move_golden.h   (needs Debian's python3-torch, python3-numpy)

The sample is (H, W, C) = (4, 6, 8), and each value is its own number in that order. PyTorch says where it has
the operation, the formula of the ONNX specification (DepthToSpace, SpaceToDepth) where not, and numpy's pad.
"""
import os
import numpy as np
import torch
import torch.nn.functional as F

H, W, C = 4, 6, 8
arrays = []
nhwc = torch.arange(H * W * C, dtype=torch.float32).reshape(1, H, W, C)
nchw = nhwc.permute(0, 3, 1, 2).contiguous()


def put(name, t):
    arrays.append((name, [int(v) for v in np.asarray(t).flatten()]))


def put_nchw(name, t):
    put(name, t.permute(0, 2, 3, 1).contiguous().numpy())


def depth_to_space(x, b):  # ONNX, mode DCR
    n, c, h, w = x.shape
    t = x.reshape(n, b, b, c // (b * b), h, w)
    return t.permute(0, 3, 4, 1, 5, 2).reshape(n, c // (b * b), h * b, w * b)


def space_to_depth(x, b):  # ONNX
    n, c, h, w = x.shape
    t = x.reshape(n, c, h // b, b, w // b, b)
    return t.permute(0, 3, 5, 1, 2, 4).reshape(n, c * b * b, h // b, w // b)


put("slice", nhwc[:, :, :, 1:8:3].numpy())
put("flip", torch.flip(nhwc, [1]).numpy())
put("to_nchw", nhwc.permute(0, 3, 1, 2).contiguous().numpy())
put("whc", nhwc.permute(0, 2, 1, 3).contiguous().numpy())
put_nchw("depth_dcr", depth_to_space(nchw, 2))
put_nchw("depth_crd", F.pixel_shuffle(nchw, 2))
put_nchw("space_dcr", space_to_depth(nchw, 2))
put_nchw("space_crd", F.pixel_unshuffle(nchw, 2))
put_nchw("shuffle", torch.nn.ChannelShuffle(4)(nchw))



def put_pad(name, sides, mode, torch_mode):
    """sides: (top, bottom), (left, right), (channels before, behind); a constant is -1."""
    extra = {"constant_values": -1} if mode == "constant" else {}
    y = np.pad(nhwc.numpy()[0], sides, mode=mode, **extra)
    flat = [side for pair in reversed(sides) for side in pair]
    t = F.pad(nhwc[None], flat, mode=torch_mode, **({"value": -1} if mode == "constant" else {}))
    assert (t.numpy().flatten() == y.flatten()).all()
    put(name, y)


put_pad("pad_constant", ((1, 2), (0, 3), (2, 1)), "constant", "constant")
put_pad("pad_reflect", ((3, 1), (2, 0), (1, 7)), "reflect", "reflect")
put_pad("pad_edge", ((1, 5), (2, 0), (0, 3)), "edge", "replicate")

with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "move_golden.h"), "w") as f:
    f.write(f"/* What PyTorch {torch.__version__} and numpy {np.__version__} move. Made by make_move_golden.py, "
            "never by hand. */\n#pragma once\n\n")
    for name, values in arrays:
        f.write(f"static const int golden_{name}[{len(values)}] = {{\n    "
                + ", ".join(str(v) for v in values) + ",\n};\n")
