#!/usr/bin/env python3
"""Writes HDF5 files of every kind that h5py can write, and beside each what h5py reads of it.

    /usr/bin/python3 make_hdf5_files.py FOLDER EVERY

Of all combinations (element, storage, format of the file) each EVERY-th is written; 1: all. A file NAME.h5 goes with
NAME.txt, a line for each array: path, number of elements, and the place in NAME.bin where its values begin, 8 bytes
each: float64, or int64 of whole numbers.
"""
import os
import sys

import h5py
import numpy as np

ELEMENTS = [o + t for t in "i2 i4 i8 u2 u4 u8 f2 f4 f8".split() for o in "<>"] + ["i1", "u1", "bool", "enum", "array"]
SHAPES = [(7,), (5, 3), (4, 5, 6), (6, 5, 4, 3), (40, 9, 1, 2)]
FORMATS = [(v, user, attributes) for v in ("earliest", "v108", "v110", "latest") for user in (0, 512, 4096)
           for attributes in ("", "before", "after")]
STORAGES = {
    "contiguous": {},
    "auto": {"chunks": True},
    "sample": {"chunks": "sample"},
    "edge": {"chunks": "edge"},
    "gzip": {"chunks": True, "compression": "gzip"},
    "gzip-sample": {"chunks": "sample", "compression": "gzip", "shuffle": True},
    "fletcher": {"chunks": "edge", "fletcher32": True},
    "all": {"chunks": "edge", "compression": "gzip", "shuffle": True, "fletcher32": True},
    "szip": {"chunks": "edge", "compression": "szip"},
    "scale": {"chunks": "edge", "scaleoffset": 0},
    "nbit": {"chunks": "edge", "nbit": True},
    "grows": {"chunks": "edge", "maxshape": True},
    "grows-twice": {"chunks": "edge", "maxshape": True, "twice": True},
    "compact": {"compact": True},
    "unwritten": {"fill": 3, "unwritten": True},
    "partly": {"chunks": "edge", "fill": 5, "partly": True},
    "virtual": {"virtual": True},
}


def element(name):
    if name == "enum":
        return h5py.enum_dtype({"A": 0, "B": 1, "C": 200}, basetype="<i2")
    if name == "array":
        return np.dtype(("<i4", (2,)))
    return np.dtype(name)


def numbers(rng, name, shape):
    dtype = np.dtype("<i2") if name == "enum" else np.dtype("<i4") if name == "array" else np.dtype(name)
    if name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if dtype.kind == "f":
        values = rng.normal(0, 100, shape).astype(dtype)
        values.flat[0] = np.inf
        values.flat[1] = np.nan
        return values
    info = np.iinfo(dtype)
    return rng.integers(info.min, min(info.max, 2**63 - 1), shape, dtype="i8", endpoint=True).astype(dtype)


def write(file, path, name, storage, shape, rng):
    how = dict(STORAGES[storage])
    shape = shape[:3] if name == "array" else shape
    values = numbers(rng, name, shape + ((2,) if name == "array" else ()))
    chunk = how.get("chunks")
    if chunk == "sample":
        chunk = (1,) + shape[1:]
    elif chunk == "edge":
        chunk = tuple(max(1, s * 2 // 3) for s in shape)
    elif chunk:
        chunk = h5py._hl.filters.guess_chunk(shape, None, 8)
    if how.get("virtual"):
        source = file.create_dataset(path + "-source", data=values.astype(element(name).base))
        layout = h5py.VirtualLayout(shape=values.shape, dtype=source.dtype)
        layout[...] = h5py.VirtualSource(".", source.name, shape=values.shape)
        file.create_virtual_dataset(path, layout)
        return
    of = h5py.h5t.py_create(element(name), logical=True)
    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
    if how.get("compact"):
        options.set_layout(h5py.h5d.COMPACT)
    if chunk:
        options.set_chunk(chunk)
    if how.get("nbit"):
        options.set_filter(5)
    if "scaleoffset" in how:
        float_like = values.dtype.kind == "f"
        options.set_scaleoffset(h5py.h5z.SO_FLOAT_DSCALE if float_like else h5py.h5z.SO_INT, 2 if float_like else 0)
    if how.get("shuffle"):
        options.set_shuffle()
    if how.get("compression") == "gzip":
        options.set_deflate(5)
    if how.get("compression") == "szip":
        options.set_szip(h5py.h5z.SZIP_NN_OPTION_MASK, 8)
    if how.get("fletcher32"):
        options.set_fletcher32()
    if "fill" in how:
        options.set_fill_value(np.array(1 if name == "bool" else how["fill"], dtype=values.dtype))
    most = tuple(h5py.h5s.UNLIMITED if how.get("twice") or i == 0 else n for i, n in enumerate(shape)) \
        if how.get("maxshape") else shape
    space = h5py.h5s.create_simple(shape, most)
    made = h5py.h5d.create(file.id, path.encode(), of, space, options)
    if how.get("unwritten"):
        return
    if how.get("partly"):
        file[path][:1] = values[:1]
    else:
        made.write(h5py.h5s.ALL, h5py.h5s.ALL, np.ascontiguousarray(values), mtype=of)


def set_attributes(file, count):
    for item in [file] + list(file.values()):
        for i in range(count):
            item.attrs[f"a{i}"] = "some text of some length" if i % 2 else np.arange(30)


def main():
    folder, every = sys.argv[1], int(sys.argv[2])
    rng = np.random.default_rng(7)
    number = made = 0
    for index, (version, user, attributes) in enumerate(FORMATS):
        base = os.path.join(folder, f"{version}-{user}-{attributes}")
        with h5py.File(base + ".h5", "w", libver=(version, version) if version.startswith("v") else version,
                       userblock_size=user) as f:
            if attributes == "before":
                set_attributes(f, 2)
            for name in ELEMENTS:
                for storage in STORAGES:
                    number += 1
                    if number % every:
                        continue
                    path = f"{name}-{storage}".replace("<", "l").replace(">", "b")
                    try:
                        write(f, path, name, storage, SHAPES[number % len(SHAPES)], rng)
                        made += 1
                    except (ValueError, OSError):  # HDF5 does not write it: szip of few numbers, scaled truth values
                        if path in f:
                            del f[path]
            if attributes == "after":
                set_attributes(f, 2 if index % 2 else 20)
        position = 0
        with h5py.File(base + ".h5", "r") as f, open(base + ".txt", "w") as t, open(base + ".bin", "wb") as b:
            for path in f:
                try:
                    values = f[path][()]
                except OSError:  # HDF5 1.14 does not unpack all that 1.10 has scaled
                    continue
                print(path, values.size, position, file=t)
                position += b.write(values.astype("<f8" if values.dtype.kind == "f" else "<i8").tobytes())
    print(made)


main()
