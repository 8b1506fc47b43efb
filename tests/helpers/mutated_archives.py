# SPDX-License-Identifier: BSD-3-Clause
"""Archives in torch's form with faults that a number chooses: in the headers of zip, in the names
and places of records, in the pickle, or anywhere.
"""

from __future__ import annotations

import functools
import io
import struct
import zipfile

import numpy as np

import modtree as mt
from modtree import nn

_NUMBERS = (0, 1, 4, 0xFF, 0xFFFF, 1 << 20, (1 << 31) - 1, 1 << 31, 0xFFFFFFFF)
_NAMES = (
    b"../x",
    b"/etc/x",
    b"archive/data/0",
    b"archive/data.pkl",
    b"archive/byteorder",
    b"a\\..\\..\\x",
    b"c:/x",
    b"archive/data/../../x",
    b"x\0y",
    b"",
)
#: Fields of headers: where they stand, and their form.
_CENTRAL = {6: "<H", 8: "<H", 10: "<H", 16: "<I", 20: "<I", 24: "<I", 28: "<H", 30: "<H", 32: "<H"}
_CENTRAL |= {34: "<H", 42: "<I"}
_LOCAL = {4: "<H", 6: "<H", 8: "<H", 14: "<I", 18: "<I", 22: "<I", 26: "<H", 28: "<H"}
_END = {4: "<H", 6: "<H", 8: "<H", 10: "<H", 12: "<I", 16: "<I", 20: "<H"}


def _records(data):
    with zipfile.ZipFile(io.BytesIO(data)) as opened:
        return [(entry.filename, opened.read(entry)) for entry in opened.infolist()]


@functools.cache
def valid_archives():
    """Files that can be read: what is changed is one of them."""
    base = mt.arange(12.0)
    model = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3))
    tagged = mt.ones(2)
    tagged.tag = "x"
    values = [
        model.state_dict(),
        {"model": model.state_dict(), "epoch": 3},
        {"whole": base.reshape(3, 4), "part": base[2:8:3], "bits": base.view(mt.int32)},
        {"b": mt.tensor([True, False]), "c": mt.tensor([1j]), "u": mt.tensor([1], dtype=mt.uint16)},
        {
            "p": nn.Parameter(mt.ones(2)),
            "t": tagged,
            "m": mt.zeros(2, device="meta"),
            "s": {1, "a"},
        },
        [mt.ones(1), (mt.zeros(0, 2), b"x", 1 << 70, mt.float16, mt.Size([2]), mt.device("cpu"))],
    ]
    files = []
    for value in values:
        file = io.BytesIO()
        mt.save(value, file, format="torch")
        files.append(file.getvalue())
    plain = io.BytesIO()
    with zipfile.ZipFile(plain, "w") as opened:  # as the standard library lays it out
        for name, data in _records(files[0]):
            opened.writestr(name, data)
    return [*files, plain.getvalue()]


def _places(data, signature):
    found, at = [], data.find(signature)
    while at >= 0:
        found.append(at)
        at = data.find(signature, at + 1)
    return found


def _with_field(rng, data, signature, fields):
    places = _places(data, signature)
    if not places:
        return data
    at = places[rng.integers(len(places))]
    place = list(fields)[rng.integers(len(fields))]
    form = fields[place]
    if at + place + struct.calcsize(form) > len(data):
        return data
    (old,) = struct.unpack_from(form, data, at + place)
    limit = (1 << 8 * struct.calcsize(form)) - 1
    near = max(0, old + int(rng.integers(-70, 70)))
    number = near if rng.integers(2) else _NUMBERS[rng.integers(len(_NUMBERS))]
    changed = bytearray(data)
    struct.pack_into(form, changed, at + place, min(number, limit))
    return bytes(changed)


def _with_name(rng, data):
    """Another name, of the same length, in one header or everywhere."""
    names = [name.encode() for name, _ in _records(data)]
    old = names[rng.integers(len(names))]
    new = _NAMES[rng.integers(len(_NAMES))]
    new = (new + b"/" * len(old))[: len(old)] if rng.integers(2) else new.rjust(len(old), b"a")
    new = new[-len(old) :]
    return data.replace(old, new, -1 if rng.integers(2) else 1)


def _rebuilt(rng, data):
    """The same records in an archive of another kind: compressed, repeated, left out, too long."""
    records = _records(data)
    kind = rng.integers(6)
    method = zipfile.ZIP_DEFLATED if kind == 0 else zipfile.ZIP_STORED
    at = int(rng.integers(len(records)))
    name, body = records[at]
    if kind == 1:
        records.append((name[:-1] + "~", body))  # renamed below
    elif kind == 2:
        del records[at]
    elif kind == 3:
        records[at] = name, body + bytes(int(rng.integers(1, 100)))
    elif kind == 4:
        records[at] = name, body[: int(rng.integers(len(body) + 1))]
    elif kind == 5:
        records[at] = name, bytes(1 << 22)
        method = zipfile.ZIP_DEFLATED
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as opened:
        for entry, content in records:
            opened.writestr(entry, content)
    new = file.getvalue()
    return new.replace((name[:-1] + "~").encode(), name.encode()) if kind == 1 else new


def with_changed_pickle(data, change):
    """A changed pickle, under a checksum that fits."""
    records = dict(_records(data))
    key = next(name for name in records if name.endswith("data.pkl"))
    records[key] = change(records[key])
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as opened:
        for entry, content in records.items():
            opened.writestr(entry, content)
    return file.getvalue()


def with_small_number(rng, data):
    """A pickle with another number of one or two bytes, where it has any."""
    changed = bytearray(data)
    small = [i for i, code in enumerate(changed[:-1]) if code in b"KM"]
    if small:
        at = small[rng.integers(len(small))] + 1
        new = changed[at] + int(rng.integers(-2, 3)) if rng.integers(2) else rng.integers(256)
        changed[at] = int(new) % 256
    return bytes(changed)


def changed_pickle(rng, data):
    """A pickle with a few changes."""
    changed = bytearray(data)
    for _ in range(rng.integers(1, 4)):
        at = int(rng.integers(len(changed)))
        kind = rng.integers(4)
        if kind == 0:
            changed[at] = rng.integers(256)
        elif kind == 1:
            del changed[at : at + int(rng.integers(1, 8))]
        elif kind == 2:
            start = int(rng.integers(len(changed)))
            changed[at:at] = changed[start : start + int(rng.integers(1, 60))]
        else:
            small = [i for i, code in enumerate(changed[:-1]) if code in b"KM"]
            if small:
                changed[small[rng.integers(len(small))] + 1] = (0, 1, 255)[rng.integers(3)]
        changed = changed or bytearray(b".")
    return bytes(changed)


def _anywhere(rng, data):
    changed = bytearray(data)
    at = int(rng.integers(len(changed)))
    kind = rng.integers(4)
    if kind == 0:
        changed[at] ^= 1 << rng.integers(8)
    elif kind == 1:
        del changed[at : at + int(rng.integers(1, 100))]
    elif kind == 2:
        changed[at:at] = bytes(int(rng.integers(1, 100)))
    else:
        del changed[at:]
    return bytes(changed) or b"P"


def mutated(seed, files=None):
    """The file of a number, made of one of these."""
    rng = np.random.default_rng(seed)
    files = valid_archives() if files is None else files
    data = files[seed % len(files)]
    if not data.startswith(b"PK"):
        return changed_pickle(rng, data) if rng.integers(2) else _anywhere(rng, data)
    kind = rng.integers(8)
    if kind < 2:
        data = with_changed_pickle(data, lambda content: changed_pickle(rng, content))
    elif kind == 2:
        data = _rebuilt(rng, data)
    elif kind == 3:
        data = _with_name(rng, data)
    for _ in range(rng.integers(1, 3) if kind > 3 else rng.integers(2)):
        which = rng.integers(4)
        if which == 0:
            data = _with_field(rng, data, b"PK\x01\x02", _CENTRAL)
        elif which == 1:
            data = _with_field(rng, data, b"PK\x03\x04", _LOCAL)
        elif which == 2:
            data = _with_field(rng, data, b"PK\x05\x06", _END)
        else:
            data = _anywhere(rng, data)
    return data
