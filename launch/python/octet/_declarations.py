"""Types and functions of Octet's public headers. Made by launch/python/declare; do not edit."""
# ruff: noqa

from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char_p, c_float, c_int, c_int32, c_int64,
                    c_size_t, c_void_p)
from typing import Any

# oct_status
OCT_OK = 0
OCT_MISMATCH = 1
OCT_USAGE = 2
OCT_DATA = 3
OCT_PREPARE = 4
OCT_NUMERIC = 5
OCT_LOST = 6
OCT_RESOURCE = 7
OCT_DEFECT = 8
OCT_STOPPED = 9
OCT_PEER = 10

# oct_port_type
OCT_PORT_FLOAT = 0
OCT_PORT_CLASS = 1
OCT_PORT_U8 = 2
OCT_PORT_U16 = 3

# oct_pixel_order
OCT_PIXELS_AS_TRAINED = 0
OCT_PIXELS_REVERSED = 1
OCT_PIXELS_PADDED = 2
OCT_PIXELS_REVERSED_PADDED = 3
OCT_PIXELS_PLANES = 4


class oct_status(c_int):
    pass


class oct_net_options(Structure):
    _fields_ = [
        ("max_batch", c_int64),
        ("threads", c_int),
        ("large", c_bool),
    ]


class oct_port(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("h", c_int64),
        ("w", c_int64),
        ("c", c_int64),
        ("numel", c_int64),
        ("bytes", c_size_t),
        ("type", c_int),
        ("bits", c_int),
        ("scale", c_float),
        ("zero_point", c_int32),
    ]


class oct_pixels(Structure):
    _fields_ = [
        ("row_stride", c_size_t),
        ("image_stride", c_size_t),
        ("order", c_int),
    ]


oct_net_layer_fn = CFUNCTYPE(None, c_void_p, c_int, c_void_p)

# name: (result, arguments)
FUNCTIONS: dict[str, tuple[Any, list[Any]]] = {
    "oct_error_count": (c_size_t, []),
    "oct_error_message": (c_char_p, [c_size_t]),
    "oct_version": (c_char_p, []),
    "oct_net_open": (oct_status, [POINTER(c_void_p), c_char_p, POINTER(oct_net_options)]),
    "oct_net_open_bytes": (oct_status, [POINTER(c_void_p), c_void_p, c_size_t, POINTER(oct_net_options)]),
    "oct_net_clone": (oct_status, [POINTER(c_void_p), c_void_p]),
    "oct_net_close": (None, [POINTER(c_void_p)]),
    "oct_net_verify": (oct_status, [c_void_p]),
    "oct_net_num_inputs": (c_int, [c_void_p]),
    "oct_net_input": (POINTER(oct_port), [c_void_p, c_int]),
    "oct_net_output": (POINTER(oct_port), [c_void_p]),
    "oct_net_pixels": (c_size_t, [c_void_p]),
    "oct_net_num_classes": (c_int, [c_void_p]),
    "oct_net_class_name": (c_char_p, [c_void_p, c_int]),
    "oct_net_num_rows": (c_int64, [c_void_p]),
    "oct_net_run": (oct_status, [c_void_p, c_int64, POINTER(c_void_p), c_void_p]),
    "oct_net_num_layers": (c_int, [c_void_p]),
    "oct_net_layer": (POINTER(oct_port), [c_void_p, c_int]),
    "oct_net_layer_kind": (c_char_p, [c_void_p, c_int]),
    "oct_net_run_layers": (oct_status, [c_void_p, c_int64, POINTER(c_void_p), c_void_p, oct_net_layer_fn, c_void_p]),
    "oct_net_run_pixels": (oct_status, [c_void_p, c_int64, c_void_p, POINTER(oct_pixels), c_void_p]),
    "oct_net_classify": (oct_status, [c_void_p, c_int64, c_void_p, POINTER(oct_pixels), c_void_p, c_void_p]),
}
