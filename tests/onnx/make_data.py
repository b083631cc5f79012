#!/usr/bin/python3
"""Fashion-MNIST as .npz files for networks that want colour or a class for each pixel.

usage: make_data.py FOLDER TRAIN TEST VALUES

writes FOLDER/colour.npz (32x32x3), FOLDER/pairs.npz (of two classes), FOLDER/maps.npz (28x28, class of a pixel by its
grey), FOLDER/colour_maps.npz, FOLDER/values.npz (32x32x3, with VALUES targets), of TRAIN and TEST images
"""
import gzip
import os
import sys

import numpy

SOURCE = "/usr/share/datasets/fashion-mnist"


def read(name, head, shape, count):
    with gzip.open(os.path.join(SOURCE, name)) as file:
        return numpy.frombuffer(file.read(head + count * int(numpy.prod(shape))), numpy.uint8,
                                offset=head).reshape(count, *shape)


def main(folder, train, test, number):
    colour, pairs, maps, colour_maps, values = {}, {}, {}, {}, {}
    for split, name, count in (("train", "train", train), ("test", "t10k", test)):
        images = read(name + "-images-idx3-ubyte.gz", 16, (28, 28), count)
        labels = read(name + "-labels-idx1-ubyte.gz", 8, (), count)
        wide = numpy.pad(images, ((0, 0), (2, 2), (2, 2)))
        # Three different channels: the image, mirrored, inverted.
        colour[split + "_images"] = numpy.stack([wide, wide[:, :, ::-1], 255 - wide], axis=3)
        colour[split + "_labels"] = labels
        pairs[split + "_images"], pairs[split + "_labels"] = colour[split + "_images"], labels % 2
        colour_maps[split + "_images"] = colour[split + "_images"]
        colour_maps[split + "_labels"] = numpy.minimum(wide // 64, 3)
        values[split + "_images"] = colour[split + "_images"]
        values[split + "_labels"] = numpy.tile(wide.reshape(count, -1), -(-number // 1024))[
            :, :number].astype(numpy.float32) / 255
        maps[split + "_images"] = images[..., None]
        maps[split + "_labels"] = numpy.minimum(images // 64, 3)
    for name, arrays in (("colour", colour), ("pairs", pairs), ("maps", maps),
                         ("colour_maps", colour_maps), ("values", values)):
        numpy.savez(os.path.join(folder, name + ".npz"), **arrays)


if len(sys.argv) != 5:
    sys.exit(__doc__)
main(sys.argv[1], *map(int, sys.argv[2:]))
