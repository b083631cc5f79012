#!/usr/bin/python3
"""Writes folders of small pictures, and those of the test as a network takes them: what a user of PyTorch has at hand.

usage: make_photos.py FOLDER

FOLDER/train/CLASS/*.png and FOLDER/test/CLASS/*.png are ten patterns in noise. FOLDER/test.f32 holds the test pictures as
float numbers (N, 3, 32, 32), in the order of classes and names, normalised with mean 0.5 and std 0.25 in float32;
FOLDER/test.labels a byte for each.
"""
import os
import sys

import numpy
from PIL import Image

CLASSES, SIDE = 10, 32
COUNTS = {"train": 48, "test": 50}


def main(folder):
    random = numpy.random.default_rng(5)
    patterns = numpy.kron(random.integers(0, 256, (CLASSES, 8, 8, 3)), numpy.ones((4, 4, 1)))
    pictures = []
    for split, count in COUNTS.items():
        for label in range(CLASSES):
            place = os.path.join(folder, split, f"thing-{label}")
            os.makedirs(place)
            for i in range(count):
                noisy = patterns[label] + random.normal(0, 90, (SIDE, SIDE, 3))
                pixels = numpy.clip(noisy, 0, 255).astype(numpy.uint8)
                Image.fromarray(pixels).save(os.path.join(place, f"{i:03}.png"))
                if split == "test":
                    pictures.append(pixels)
    one = numpy.float32(1)
    unit, mean, inverse = one / numpy.float32(255), numpy.float32(0.5), one / numpy.float32(0.25)
    x = (numpy.stack(pictures).astype(numpy.float32) * unit - mean) * inverse
    numpy.ascontiguousarray(x.transpose(0, 3, 1, 2)).tofile(os.path.join(folder, "test.f32"))
    numpy.repeat(numpy.arange(CLASSES, dtype=numpy.uint8), COUNTS["test"]).tofile(os.path.join(folder, "test.labels"))


if len(sys.argv) != 2:
    sys.exit(__doc__)
main(sys.argv[1])
