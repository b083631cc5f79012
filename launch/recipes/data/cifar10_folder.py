#!/usr/bin/python3
"""Writes CIFAR-10's 60,000 images as PNG files: OUT/train/CLASS/NNNNN.png and OUT/test/CLASS/NNNNN.png.

usage: cifar10_folder.py SOURCE OUT [--limit N]

SOURCE holds the binary version (data_batch_1.bin to data_batch_5.bin, test_batch.bin). Pixels are the same, so a
recipe with `format: folder` learns what one with `format: cifar10` does, but for the order of the samples.
Needs python3 with numpy and PIL (Debian: python3-numpy python3-pil).
"""
import argparse
import pathlib
import sys

import numpy as np
from PIL import Image

CLASSES = ("airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
RECORD = 1 + 3 * 32 * 32


def records(path):
    data = np.fromfile(path, np.uint8)
    if data.size == 0 or data.size % RECORD:
        sys.exit(f"{path}: is no batch of CIFAR-10: {data.size} bytes, a record has {RECORD}")
    data = data.reshape(-1, RECORD)
    if data[:, 0].max() > 9:
        sys.exit(f"{path}: has a label above 9")
    return data


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("source", type=pathlib.Path)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--limit", type=int, help="only the first N images of each file")
    args = parser.parse_args()
    splits = {"train": [f"data_batch_{i}.bin" for i in range(1, 6)], "test": ["test_batch.bin"]}
    for split, files in splits.items():
        for name in CLASSES:
            (args.out / split / name).mkdir(parents=True, exist_ok=True)
        number = 0
        for file in files:
            for record in records(args.source / file)[:args.limit]:
                pixels = record[1:].reshape(3, 32, 32).transpose(1, 2, 0)
                Image.fromarray(pixels).save(args.out / split / CLASSES[record[0]] / f"{number:05}.png")
                number += 1
        print(f"{args.out / split}: {number} images")


main()
