# SPDX-License-Identifier: BSD-3-Clause
"""GGUF files, by the documented layout."""

from __future__ import annotations

import struct

import numpy as np

TYPES = {"float32": 0, "float16": 1, "int8": 24, "int16": 25, "int32": 26, "int64": 27}
TYPES |= {"float64": 28}


def text(value):
    return struct.pack("<Q", len(value.encode())) + value.encode()


def gguf(tensors, settings=(), version=3, alignment=32, raw=()):
    """A file.

    Args:
        tensors: Arrays by name.
        settings: Name, type and packed value of each.
        version: Of the format.
        alignment: Of the values.
        raw: Name, shape, type and bytes of tensors that are not arrays.
    """
    items = [(n, a.shape, TYPES[a.dtype.name], _bytes(a)) for n, a in tensors.items()]
    items += raw
    head = b"GGUF" + struct.pack("<IQQ", version, len(items), len(settings))
    for name, kind, value in settings:
        head += text(name) + struct.pack("<I", kind) + value
    data = b""
    for name, shape, kind, values in items:
        data += bytes(-len(data) % alignment)
        head += text(name) + struct.pack("<I", len(shape))
        head += b"".join(struct.pack("<Q", n) for n in reversed(shape))
        head += struct.pack("<IQ", kind, len(data))
        data += values
    return head + bytes(-len(head) % alignment) + data


def _bytes(array):
    return np.ascontiguousarray(array, array.dtype.newbyteorder("<")).tobytes()
