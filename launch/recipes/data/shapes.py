#!/usr/bin/python3
"""Draws coloured shapes on textured backgrounds: a data set for each kind of task, made in a minute.

usage: shapes.py TASK OUT [--train N] [--test N] [--size PIXELS] [--seed S]

TASK           OUT                                       what the model is to find
segmentation   an HDF5 file: {train,test}/images,labels  the shape at each pixel: 0 for none, then in the order below
multilabel     an HDF5 file: {train,test}/images,labels  which shapes are there: a 0 or 1 for each
folder         OUT/{train,test}/SHAPE/NNNNN.jpg          the one shape that is there

Shapes are disc, square, triangle, ring and cross. Colours, sizes, places and textures say nothing. JPEG files
differ in size (from PIXELS to half as much again), as photographs do.
The same numbers give the same bytes, with the same versions of numpy, PIL and h5py.
Needs python3 with numpy, and PIL for folders or h5py for the others (Debian: python3-numpy python3-pil python3-h5py).
"""
import argparse
import pathlib

import numpy as np

SHAPES = ("disc", "square", "triangle", "ring", "cross")


def texture(rng, h, w):
    """A rough field of colours: noise of three sizes over a slope."""
    image = np.zeros((h, w, 3))
    for cell in (2, 7, 19):
        coarse = rng.normal(size=(h // cell + 2, w // cell + 2, 3))
        image += np.repeat(np.repeat(coarse, cell, 0), cell, 1)[:h, :w] * rng.uniform(5, 18)
    y, x = np.mgrid[0:h, 0:w]
    slope = rng.normal(size=(2, 3)) * 40
    return image + rng.uniform(60, 190, 3) + (y / h)[..., None] * slope[0] + (x / w)[..., None] * slope[1]


def inside(shape, y, x):
    """Where a shape of radius 1 is, in its own turned coordinates."""
    r = np.hypot(y, x)
    if shape == "disc":
        return r < 1
    if shape == "ring":
        return (r < 1) & (r > 0.55)
    if shape == "square":
        return np.maximum(abs(y), abs(x)) < 0.8
    if shape == "triangle":
        return (y < 0.5) & (y > 1.75 * abs(x) - 1)
    return (np.maximum(abs(y), abs(x)) < 0.95) & (np.minimum(abs(y), abs(x)) < 0.3)


def draw(rng, image, shape, least, most):
    """Draws a shape and returns where it is."""
    h, w = image.shape[:2]
    radius = rng.uniform(least, most) * min(h, w)
    cy, cx = rng.uniform(radius, h - radius), rng.uniform(radius, w - radius)
    y, x = (np.mgrid[0:h, 0:w] - np.array([cy, cx])[:, None, None]) / radius
    angle = rng.uniform(-0.5, 0.5)
    turned = y * np.cos(angle) - x * np.sin(angle), y * np.sin(angle) + x * np.cos(angle)
    where = inside(shape, *turned)
    under = image[where].mean(0)
    colour = rng.uniform(0, 255, 3)
    while abs(colour - under).sum() < 120:  # it can be seen
        colour = rng.uniform(0, 255, 3)
    image[where] = colour + rng.normal(size=(where.sum(), 3)) * 8
    return where


def finished(rng, image):
    return np.clip(image + rng.normal(size=image.shape) * 6, 0, 255).astype(np.uint8)


def segmentation(rng, size):
    image, goal = texture(rng, size, size), np.zeros((size, size), np.uint8)
    for _ in range(rng.integers(1, 4)):
        shape = rng.integers(len(SHAPES))
        goal[draw(rng, image, SHAPES[shape], 0.15, 0.28)] = shape + 1
    return finished(rng, image), goal


def multilabel(rng, size):
    image, goal = texture(rng, size, size), np.zeros(len(SHAPES), np.float32)
    free = np.ones((size, size), bool)
    for shape in rng.permutation(len(SHAPES))[:rng.integers(1, 4)]:
        before = image.copy()
        where = draw(rng, image, SHAPES[shape], 0.13, 0.2)
        if free[where].mean() < 0.8:  # it would hide another one
            image = before
            continue
        free &= ~where
        goal[shape] = 1
    return finished(rng, image), goal


def write_arrays(args, draw_one):
    import h5py
    with h5py.File(args.out, "w") as file:
        for split, count in ((0, args.train), (1, args.test)):
            group = file.create_group(("train", "test")[split])
            for i in range(count):
                image, goal = draw_one(np.random.default_rng([args.seed, split, i]), args.size)
                if i == 0:
                    images = group.create_dataset("images", (count, *image.shape), "u1")
                    goals = group.create_dataset("labels", (count, *goal.shape), goal.dtype)
                images[i], goals[i] = image, goal


def write_folder(args):
    from PIL import Image
    for split, count in ((0, args.train), (1, args.test)):
        for shape in SHAPES:
            (args.out / ("train", "test")[split] / shape).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            rng = np.random.default_rng([args.seed, split, i])
            shape = SHAPES[i % len(SHAPES)]
            image = texture(rng, *rng.integers(args.size, args.size * 3 // 2 + 1, 2))
            draw(rng, image, shape, 0.15, 0.35)
            path = args.out / ("train", "test")[split] / shape / f"{i:05}.jpg"
            Image.fromarray(finished(rng, image)).save(path, quality=90)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("task", choices=("segmentation", "multilabel", "folder"))
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--train", type=int, default=2000, help="training images (2000)")
    parser.add_argument("--test", type=int, default=500, help="test images (500)")
    parser.add_argument("--size", type=int, help="height and width (48; folder: 224 or more)")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    args.size = args.size or (224 if args.task == "folder" else 48)
    args.out.parent.mkdir(parents=True, exist_ok=True)
    if args.task == "folder":
        write_folder(args)
    else:
        write_arrays(args, segmentation if args.task == "segmentation" else multilabel)
    print(f"{args.out}: {args.train} training and {args.test} test images")


main()
