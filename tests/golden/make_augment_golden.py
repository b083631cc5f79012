#!/usr/bin/python3
"""Writes augment_golden.h beside this file: what Pillow makes of small images, for the tests of io/augment.

usage: make_augment_golden.py && clang-format-14 -i augment_golden.h   (needs Debian's python3-pil, numpy)

Hue is torchvision's adjust_hue for PIL images, whose formula stands below. An image is stored as height x
width x channels.
"""
import os
import numpy as np
from PIL import Image, ImageEnhance, ImageOps

generator = np.random.default_rng(7)
arrays = []


def put(name, image, kind="uint8_t"):
    values = np.asarray(image)
    arrays.append((name, kind, values.shape, values.flatten().tolist()))


def smooth_noise(h, w, c):
    """Blocks of noise with a gradient: edges, flat places, all brightnesses."""
    coarse = generator.integers(0, 256, (h // 3 + 1, w // 3 + 1, c))
    fine = np.kron(coarse, np.ones((3, 3, 1)))[:h, :w]
    return np.clip(fine + generator.integers(-40, 41, (h, w, c)), 0, 255).astype(np.uint8)


def adjust_hue(image, turn):
    h, s, v = image.convert("HSV").split()
    shifted = (np.asarray(h).astype(np.int64) + int(turn * 255)) % 256
    return Image.merge("HSV", (Image.fromarray(shifted.astype(np.uint8)), s, v)).convert("RGB")


colour = smooth_noise(13, 11, 3)
grey = smooth_noise(9, 14, 1)[:, :, 0]
dark = (smooth_noise(13, 11, 3) // 3 + 20).astype(np.uint8)
put("colour", colour)
put("grey", grey)
put("dark", dark)
rgb, low = Image.fromarray(colour), Image.fromarray(dark)
for h, w in ((5, 4), (13, 3), (6, 11), (20, 17), (1, 1), (14, 10)):
    put(f"colour_{h}x{w}", rgb.resize((w, h), Image.BILINEAR))
for h, w in ((4, 4), (9, 30), (3, 14)):
    put(f"grey_{h}x{w}", Image.fromarray(grey).resize((w, h), Image.BILINEAR))
put("real", (grey / 7 - 11).astype(np.float32), "float")
put("real_5x9", Image.fromarray((grey / 7 - 11).astype(np.float32), "F").resize((9, 5), Image.BILINEAR), "float")
put("brightness", ImageEnhance.Brightness(rgb).enhance(1.37))
put("brightness_down", ImageEnhance.Brightness(rgb).enhance(0.41))
put("contrast", ImageEnhance.Contrast(rgb).enhance(1.61))
put("contrast_down", ImageEnhance.Contrast(rgb).enhance(0.3))
put("saturation", ImageEnhance.Color(rgb).enhance(1.7))
put("saturation_down", ImageEnhance.Color(rgb).enhance(0.23))
put("sharpness", ImageEnhance.Sharpness(rgb).enhance(1.9))
put("sharpness_down", ImageEnhance.Sharpness(rgb).enhance(0.1))
put("posterize", ImageOps.posterize(rgb, 3))
put("solarize", ImageOps.solarize(rgb, 97))
put("autocontrast", ImageOps.autocontrast(low))
put("equalize", ImageOps.equalize(low))
for i, turn in enumerate((0.1, -0.37, 0.5)):
    put(f"hue_{i}", adjust_hue(rgb, turn))
put("turned", rgb.rotate(28.5, Image.BILINEAR, fillcolor=(128, 128, 128)))
put("sheared", rgb.transform(rgb.size, Image.AFFINE, (1, 0.21, 0, 0, 1, 0), Image.BILINEAR, fillcolor=(128, 128, 128)))

here = os.path.dirname(os.path.abspath(__file__))
with open(os.path.join(here, "augment_golden.h"), "w") as out:
    out.write("/* Written by make_augment_golden.py: Pillow's results. */\n#pragma once\n\n#include <stdint.h>\n\n")
    for name, kind, shape, values in arrays:
        size = f"enum {{ {name}_h = {shape[0]}, {name}_w = {shape[1]} }};\n"
        text = ", ".join(f"{v!r}f" if kind == "float" else str(v) for v in values)
        out.write(f"{size}static const {kind} {name}[] = {{{text}}};\n")
