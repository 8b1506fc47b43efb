# SPDX-License-Identifier: BSD-3-Clause
"""Files that nobody's save() writes: pickles put together opcode by opcode, and archives around
them.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import struct
import zipfile

ARRAY = b"numpy._core.multiarray _reconstruct"
BUFFER = b"numpy._core.numeric _frombuffer"
SCALAR = b"numpy._core.multiarray scalar"
TENSOR = b"modtree Tensor"


def value(obj):
    """The opcodes that push a plain value."""
    return pickletools.optimize(pickle.dumps(obj, 2))[2:-1]


def name(path):
    module, _, attribute = path.partition(b" ")
    return b"c" + module + b"\n" + attribute + b"\n"


def tuple_of(*parts):
    return b"(" + b"".join(parts) + b"t"


def call(path, *arguments):
    return name(path) + tuple_of(*arguments) + b"R"


def dtype(code, state=None):
    state = (3, "<", None, None, None, -1, -1, 0) if state is None else state
    return call(b"numpy dtype", value(code), value(False), value(True)) + value(state) + b"b"


F4 = dtype("f4")
START = call(ARRAY, name(b"numpy ndarray"), value((0,)), b"C\x01b")


def array(shape, kind, data, order=False):
    parts = value(1), value(shape), kind, value(order), b"B" + struct.pack("<I", len(data)) + data
    return START + tuple_of(*parts) + b"b"


def buffer(data, kind, shape, order="C", *more):
    parts = b"B" + struct.pack("<I", len(data)) + data, kind, value(shape), value(order)
    return call(BUFFER, *parts, *map(value, more))


def tensor(inner, kind=TENSOR, requires_grad=False):
    return call(b"modtree.numpy.tensor.tensor _rebuild", name(kind), inner, value(requires_grad))


ONES = array((2,), F4, struct.pack("<2f", 1, 1))


def archive(entries, method=zipfile.ZIP_STORED):
    """A zip archive; entries are (name, bytes)."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as opened:
        for entry, data in entries:
            opened.writestr(entry, data)
    return file.getvalue()


def storage(kind=b"torch FloatStorage", key="0", count=4):
    parts = value("storage"), name(kind), value(key), value("cpu"), value(count)
    return tuple_of(*parts) + b"Q"


def torch_tensor(memory, offset=0, size=(4,), stride=(1,), requires_grad=False, *more):
    parts = memory, value(offset), value(size), value(stride), value(requires_grad), value({})
    return call(b"torch._utils _rebuild_tensor_v2", *parts, *map(value, more))


def torch_file(pickled, data=b"\0" * 16, **more):
    """What torch.save() writes, with one storage."""
    entries = [("a/data.pkl", b"\x80\x02" + pickled + b"."), ("a/byteorder", b"little")]
    entries += [("a/data/0", data), *more.items()]
    return archive(entries)
