#!/usr/bin/env python3
"""Writes array_golden.h: one data set of 6 training and 4 test samples in files of numpy and h5py.

Run with numpy and h5py (Debian 12: python3-numpy, python3-h5py) in this folder:
    /usr/bin/python3 make_array_golden.py > array_golden.h && clang-format-14 -i array_golden.h

Sample n of a split has at (y, x, c), 5 x 4 x 2, the byte (n * 40 + y * 8 + x * 2 + c) % 256 + 100 for the test,
as int8 minus 128, as float32 divided by 8. Its label is n % 3. The files are deflated here, since most of an HDF5 file is
zeros; the test inflates them.
"""
import io
import os
import tempfile
import zlib

import h5py
import numpy as np

COUNT = {"train": 6, "test": 4}
SHAPE = (5, 4, 2)


def samples(split, dtype):
    n = COUNT[split]
    codes = (np.arange(n * 40) + (100 if split == "test" else 0)) % 256
    if dtype == "i1":
        codes = codes - 128
    values = codes / 8 if dtype.endswith("f4") else codes
    return values.astype(dtype).reshape(n, *SHAPE)


def labels(split, dtype):
    return (np.arange(COUNT[split]) % 3).astype(dtype)


def npy(array, version):
    out = io.BytesIO()
    np.lib.format.write_array(out, array, version=version)
    return out.getvalue()


def npz(write, dtype, label_type):
    out = io.BytesIO()
    write(out, **{f"{s}_images": samples(s, dtype) for s in COUNT},
          **{f"{s}_labels": labels(s, label_type) for s in COUNT})
    return out.getvalue()


def hdf5(dtype, label_type, libver=None, **options):
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.h5")
        with h5py.File(path, "w", libver=libver) as f:
            for s in COUNT:
                f.create_dataset(s + "/images", data=samples(s, dtype), **options)
                f.create_dataset(s + "/labels", data=labels(s, label_type))
        return open(path, "rb").read()


def compact(dtype, label_type):
    """Small arrays within their objects, by the low-level interface."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "a.h5")
        with h5py.File(path, "w") as f:
            for s in COUNT:
                group = f.create_group(s)
                for name, array in (("images", samples(s, dtype)), ("labels", labels(s, label_type))):
                    options = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                    options.set_layout(h5py.h5d.COMPACT)
                    space = h5py.h5s.create_simple(array.shape)
                    made = h5py.h5d.create(group.id, name.encode(), h5py.h5t.py_create(array.dtype), space, options)
                    made.write(h5py.h5s.ALL, h5py.h5s.ALL, array)
        return open(path, "rb").read()


def files():
    for split in COUNT:
        yield f"npy_{split}_images", npy(samples(split, "u1"), (1, 0))
        yield f"npy_{split}_labels", npy(labels(split, "<i8"), (2, 0) if split == "train" else (3, 0))
    yield "npz_u1", npz(np.savez, "u1", "<i4")
    yield "npz_i1", npz(np.savez, "i1", "u1")
    yield "npz_f4_packed", npz(np.savez_compressed, "f4", ">i2")
    yield "h5_u1", hdf5("u1", "<i8")
    yield "h5_f4_big", hdf5(">f4", ">i4")
    yield "h5_i1_latest", hdf5("i1", "u2", libver="latest")
    yield "h5_u1_chunks", hdf5("u1", "i1", chunks=(4, 3, 4, 1))
    yield "h5_f4_packed", hdf5("f4", "<u8", chunks=(1, 5, 4, 2), compression="gzip", shuffle=True)
    yield "h5_u1_v110", hdf5("u1", "<i4", libver=("v108", "v108"), chunks=(2, 2, 3, 2), compression="gzip")
    yield "h5_u1_compact", compact("u1", "u1")


def main():
    print(f"/* Written by make_array_golden.py with numpy {np.__version__} and h5py {h5py.__version__}; do not edit. */")
    print("#pragma once\n\n#include <stddef.h>\n#include <stdint.h>\n")
    table = []
    for name, data in files():
        packed = zlib.compress(data, 9)
        print(f"static const uint8_t {name}[] = {{{', '.join(map(str, packed))}}};\n")
        table.append(f'{{"{name}", {name}, sizeof {name}, {len(data)}}},')
    print("/* The bytes are deflated; `whole` of them come out. */")
    print("static const struct { const char *name; const uint8_t *bytes; size_t size, whole; }")
    print("array_golden[] = {" + "\n".join(table) + "};")


main()
