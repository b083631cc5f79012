#!/usr/bin/env python3
"""Writes image_golden.h: small JPEG and PNG files of every kind, and the pixels that Pillow decodes.

Run with Pillow 9.4 and numpy (Debian 12: python3-pil, python3-numpy) in this folder:
    /usr/bin/python3 make_image_golden.py > image_golden.h && clang-format-14 -i image_golden.h

The pixels stand as SHA-256 of their bytes as grey ("L"), RGB and RGBA. Alpha is dropped for the first two.
PNG files that Pillow cannot write (16 bits, few bits, interlaced) are written here, from the format's
own specification; of 16 bits the upper byte counts, which Pillow does for colour and numpy here for grey.
"""
import hashlib
import io
import struct
import zlib

import numpy as np
from PIL import Image

W, H = 19, 13


def picture(channels, seed):
    """Smooth shapes with some noise, so that JPEG has both to code."""
    rng = np.random.default_rng(seed)
    y, x = np.mgrid[0:H, 0:W]
    planes = [128 + 90 * np.sin(x / (2.0 + c) + seed) * np.cos(y / (3.0 + c)) for c in range(channels)]
    image = np.stack(planes, -1) + rng.normal(0, 12, (H, W, channels))
    return np.clip(image, 0, 255).astype(np.uint8)


def save(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def chunk(name, data):
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


def pack_rows(samples, depth):
    """samples (h, w, c) of integers -> filtered bytes of the rows, filter 0."""
    out = b""
    for row in samples:
        flat = row.reshape(-1)
        if depth == 16:
            packed = flat.astype(">u2").tobytes()
        elif depth == 8:
            packed = flat.astype(np.uint8).tobytes()
        else:
            bits = "".join(format(int(v), f"0{depth}b") for v in flat)
            bits += "0" * (-len(bits) % 8)
            packed = bytes(int(bits[i:i + 8], 2) for i in range(0, len(bits), 8))
        out += b"\0" + packed
    return out


ADAM7 = [(0, 0, 8, 8), (4, 0, 8, 8), (0, 4, 4, 8), (2, 0, 4, 4), (0, 2, 2, 4), (1, 0, 2, 2), (0, 1, 1, 2)]


def png(samples, depth, colour, interlaced=False, before=()):
    h, w = samples.shape[:2]
    if interlaced:
        raw = b"".join(pack_rows(samples[y::dy, x::dx], depth) for x, y, dx, dy in ADAM7
                       if x < w and y < h)
    else:
        raw = pack_rows(samples, depth)
    header = struct.pack(">IIBBBBB", w, h, depth, colour, 0, 0, int(interlaced))
    chunks = [chunk(b"IHDR", header), *before, chunk(b"IDAT", zlib.compress(raw, 9)), chunk(b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunks)


def files():
    grey, rgb, rgba = picture(1, 1), picture(3, 2), picture(4, 3)
    colour = Image.fromarray(rgb)
    yield "jpeg_grey", save(Image.fromarray(grey[..., 0]), "JPEG", quality=90)
    yield "jpeg_444", save(colour, "JPEG", quality=92, subsampling=0)
    yield "jpeg_422", save(colour, "JPEG", quality=80, subsampling=1)
    yield "jpeg_420", save(colour, "JPEG", quality=75, subsampling=2)
    yield "jpeg_progressive", save(colour, "JPEG", quality=75, progressive=True)
    yield "jpeg_optimized", save(colour, "JPEG", quality=30, optimize=True)
    exif = Image.Exif()
    exif[0x0112] = 6  # orientation: lies on its side
    yield "jpeg_orientation", save(colour, "JPEG", quality=75, exif=exif.tobytes())
    cmyk = save(Image.fromarray(rgba, "CMYK"), "JPEG", quality=85)
    yield "jpeg_cmyk", cmyk
    at = cmyk.index(b"Adobe") + 11  # the transform: 0 is CMYK, 2 YCCK
    yield "jpeg_ycck", cmyk[:at] + b"\2" + cmyk[at + 1:]
    yield "png_grey", save(Image.fromarray(grey[..., 0]), "PNG")
    yield "png_rgb", save(colour, "PNG")
    yield "png_rgba", save(Image.fromarray(rgba, "RGBA"), "PNG")
    yield "png_grey_alpha", save(Image.fromarray(rgba[..., :2], "LA"), "PNG")
    yield "png_palette", save(colour.quantize(13), "PNG")
    yield "png_palette_clear", save(colour.quantize(5), "PNG", transparency=2)
    for depth in (1, 2, 4):
        yield f"png_grey_{depth}", png(grey >> (8 - depth), depth, 0)
    wide = rgb.astype(np.uint16) * 256 + rgb[::-1]
    yield "png_rgb_16", png(wide, 16, 2)
    yield "png_grey_16", png(wide[..., :1], 16, 0)
    yield "png_interlaced", png(rgb, 8, 2, interlaced=True)
    yield "png_grey_4_interlaced", png(grey >> 4, 4, 0, interlaced=True)
    gamma = chunk(b"gAMA", struct.pack(">I", 100000))
    text = chunk(b"tEXt", b"Comment\0nothing")
    yield "png_gamma_and_text", png(rgb, 8, 2, before=(gamma, text))
    clear = chunk(b"tRNS", struct.pack(">HHH", *(int(v) for v in rgb[3, 4])))
    yield "png_clear_colour", png(rgb, 8, 2, before=(clear,))


def decode(name, data):
    image = Image.open(io.BytesIO(data))
    if name == "png_grey_16":
        image = Image.fromarray((np.array(image).astype(np.uint32) >> 8).astype(np.uint8))
    with_alpha = image.convert("RGBA")
    plain = with_alpha.convert("RGB") if "png" in name else image.convert("RGB")
    grey = image if image.mode == "L" else plain.convert("L")
    return grey, plain, with_alpha


def main():
    print(f"/* Written by make_image_golden.py with Pillow {Image.__version__}; do not edit. */")
    print("#pragma once\n\n#include <stddef.h>\n#include <stdint.h>\n")
    print(f"enum {{ IMAGE_GOLDEN_W = {W}, IMAGE_GOLDEN_H = {H} }};\n")
    table = []
    for name, data in files():
        print(f"static const uint8_t {name}[] = {{{', '.join(map(str, data))}}};\n")
        digests = [hashlib.sha256(np.array(i).tobytes()).hexdigest() for i in decode(name, data)]
        table.append(f'{{"{name}", {name}, sizeof {name}, {{' + ", ".join(f'"{d}"' for d in digests) + "}},")
    print("/* The digests are of the pixels as grey, RGB and RGBA. */")
    print("static const struct { const char *name; const uint8_t *bytes; size_t size; const char *digest[3]; }")
    print("image_golden[] = {" + "\n".join(table) + "};")


main()
