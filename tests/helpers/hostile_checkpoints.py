# SPDX-License-Identifier: BSD-3-Clause
"""safetensors files and indexes that no writer makes: seeded mutations of good ones."""

from __future__ import annotations

import copy
import json
import os
import random
from pathlib import Path

import numpy as np

INDEX = "model.safetensors.index.json"
CODES = ["F32", "F16", "I64", "U8", "BOOL", "BF16", "F64", "F8_E4M3", "C64", "F4"]
SIZES = {"F32": 32, "F16": 16, "I64": 64, "U8": 8, "BOOL": 8, "BF16": 16, "F64": 64}
SIZES |= {"F8_E4M3": 8, "C64": 64, "F4": 4}
#: Numbers, and what stands where numbers belong.
ODD = [0, 1, -1, 3, 7, 8, 2**31, 2**32, 2**53, 2**62, 2**63 - 1, 2**63, 2**64, 2**64 + 8, -(2**63)]
ODD += [10**400, 0.0, 1.5, 1e308, True, None, "8", "", [], [0], {}, float("nan"), float("inf")]
NAMES = ["", ".", "..", "../outside.safetensors", "/etc/passwd", "a/../../outside.safetensors"]
NAMES += [
    "sub/inside.safetensors",
    "no.safetensors",
    INDEX,
    "C:\\x",
    "..\\outside",
    "a\0b",
    "\udc80",
]
NAMES += ["link.safetensors", "loop.safetensors", "folder", "pipe.safetensors", "text.safetensors"]


def header_bytes(content, length=None, pad=b""):
    text = content if isinstance(content, bytes) else dumped(content)
    return (len(text) if length is None else length).to_bytes(8, "little") + text + pad


def dumped(content):
    return json.dumps(content).encode()


def good_file(rng, prefix="", count=None):
    """A header and the data it describes."""
    header, data = {}, b""
    if rng.random() < 0.5:
        header["__metadata__"] = {"format": "pt", "note": "x" * rng.randrange(5)}
    for i in range(rng.randrange(1, 5) if count is None else count):
        code = rng.choice(CODES)
        shape = [rng.randrange(0, 4) for _ in range(rng.randrange(0, 4))]
        if code == "F4":
            shape = [*shape, 2]
        size = int(np.prod(shape, dtype=int)) * SIZES[code] // 8
        values = bytes(rng.randrange(2 if code == "BOOL" else 256) for _ in range(size))
        place = [len(data), len(data) + size]
        header[f"{prefix}t{i}"] = {"dtype": code, "shape": shape, "data_offsets": place}
        data += values
    if rng.random() < 0.3:
        add_record(rng, header)
    return header, data


def add_record(rng, header):
    keys = [key for key in header if key != "__metadata__"]
    of = rng.choice(keys)
    count = int(np.prod(header[of]["shape"], dtype=int))
    record = {
        "versions": {"": 1, "t0": None, "t1": {"version": 2}},
        "shared": {"tie": of, "view": [of, [count // 2], [1], count - count // 2]},
        "values": {"_extra_state": {"step": [1, 2.5, None]}},
        "places": {"tie": 0, "view": 2, "_extra_state": 1},
    }
    header.setdefault("__metadata__", {})["modtree"] = json.dumps(record)


# -- mutations of one file -------------------------------------------------------------------------


def flip_bytes(rng, header, data):
    content = bytearray(header_bytes(header) + data)
    for _ in range(rng.randrange(1, 4)):
        content[rng.randrange(min(len(content), 400))] = rng.randrange(256)
    return bytes(content)


def cut(rng, header, data):
    content = header_bytes(header) + data
    return content[: rng.randrange(len(content))]


def lengthen(rng, header, data):
    return header_bytes(header) + data + bytes(rng.randrange(1, 20))


def other_length(rng, header, data):
    length = rng.choice([0, 1, 2, 8, 99, 100_000_000, 100_000_001, 2**31, 2**63, 2**64 - 1])
    return header_bytes(header, length) + data


def shift_length(rng, header, data):
    content = dumped(header)
    return header_bytes(content, max(0, len(content) + rng.randrange(-9, 10))) + data


def odd_offsets(rng, header, data):
    entry = some_entry(rng, header)
    entry["data_offsets"][rng.randrange(2)] = rng.choice(ODD)
    return header_bytes(header) + data


def shifted_offsets(rng, header, data):
    entry = some_entry(rng, header)
    entry["data_offsets"] = [n + rng.choice([-8, -1, 1, 4, 8]) for n in entry["data_offsets"]]
    return header_bytes(header) + data


def exchanged_offsets(rng, header, data):
    one, other = some_entry(rng, header), some_entry(rng, header)
    one["data_offsets"], other["data_offsets"] = other["data_offsets"], one["data_offsets"]
    return header_bytes(header) + data


def odd_shape(rng, header, data):
    shape = some_entry(rng, header)["shape"]
    if shape and rng.random() < 0.7:
        shape[rng.randrange(len(shape))] = rng.choice(ODD)
    else:
        shape.append(rng.choice(ODD))
    return header_bytes(header) + data


def many_dimensions(rng, header, data):
    some_entry(rng, header)["shape"] += [1] * rng.choice([60, 64, 65, 1000, 20_000])
    return header_bytes(header) + data


def huge_product(rng, header, data):
    entry = some_entry(rng, header)
    entry["shape"] = [2**32] * rng.choice([2, 4, 64]) + [rng.choice([0, 1])]
    return header_bytes(header) + data


def odd_dtype(rng, header, data):
    names = ["F31", "", "f32", "FLOAT", None, 32, ["F32"], {"F32": 1}, "F32\0", "C128", "I4", "U64"]
    some_entry(rng, header)["dtype"] = rng.choice(names)
    return header_bytes(header) + data


def lost_field(rng, header, data):
    entry = some_entry(rng, header)
    del entry[rng.choice(list(entry))]
    return header_bytes(header) + data


def odd_entry(rng, header, data):
    key = rng.choice(list(header))
    header[key] = rng.choice([*ODD, nested(3), [1, 2], "text"])
    return header_bytes(header) + data


def odd_metadata(rng, header, data):
    header["__metadata__"] = rng.choice([1, "x", [], {"a": 1}, {"a": None}, {"a": {}}, None, {}])
    return header_bytes(header) + data


def key_twice(rng, header, data):
    text = dumped(header)
    key = rng.choice(list(header))
    again = dumped({key: rng.choice(list(header.values()))})[1:-1]
    return header_bytes(text[:-1] + b"," + again + b"}") + data


def field_twice(rng, header, data):
    text = dumped(header)
    return header_bytes(text.replace(b'"dtype":', b'"dtype": "F32", "dtype":', 1)) + data


def no_text(rng, header, data):
    text = bytearray(dumped(header))
    text[rng.randrange(len(text))] = rng.choice([0x80, 0xFF, 0xC0, 0])
    return header_bytes(bytes(text)) + data


def deep(rng, header, data):
    depth = rng.choice([100, 5000, 100_000])
    text = rng.choice([b"[" * depth, b'{"a":' * depth, b"[" * depth + b"]" * depth])
    return header_bytes(text) + data


def other_json(rng, header, data):
    text = rng.choice([b"[]", b"null", b"1", b'"x"', b"", b"{", b"{}", b"  ", b"{}x", b"NaN"])
    return header_bytes(text) + data


def spaces(rng, header, data):
    text = dumped(header)
    forms = [text + b" " * 9, b" " + text, text + b"\n", b"\xef\xbb\xbf" + text]
    return header_bytes(rng.choice(forms)) + data


def wrong_bools(rng, header, data):
    return header_bytes(header) + bytes(rng.randrange(256) for _ in data)


def odd_record(rng, header, data):
    add_record(rng, header)
    record = json.loads(header["__metadata__"]["modtree"])
    part = rng.choice(list(record))
    if rng.random() < 0.4:
        record[part] = rng.choice(ODD)
    elif part == "shared" and rng.random() < 0.7:
        spot = rng.randrange(4)
        record[part]["view"][spot] = rng.choice([*ODD, [2**40], [0, 0], [-1], ["1"], "t0", "none"])
    else:
        record[part][rng.choice([*record[part], "t0", ""])] = rng.choice(ODD)
    header["__metadata__"]["modtree"] = json.dumps(record)
    return header_bytes(header) + data


def broken_record(rng, header, data):
    text = rng.choice(["", "{", "[]", "1", "[" * 100_000, "{}", '{"shared":{"x":"x"}}', "\ud800"])
    header.setdefault("__metadata__", {})["modtree"] = text
    return header_bytes(header) + data


def some_entry(rng, header):
    return header[rng.choice([key for key in header if key != "__metadata__"])]


def nested(depth):
    value = {}
    for _ in range(depth):
        value = {"a": [value]}
    return value


def unchanged(rng, header, data):
    return header_bytes(header) + data


OF_FILES = [
    unchanged, flip_bytes, cut, lengthen, other_length, shift_length, odd_offsets, shifted_offsets,
    exchanged_offsets, odd_shape, many_dimensions, huge_product, odd_dtype, lost_field, odd_entry,
    odd_metadata, key_twice, field_twice, no_text, deep, other_json, spaces, wrong_bools,
    odd_record, broken_record,
]  # fmt: skip


def hostile_file(seed):
    """The name of a mutation, and the bytes of a file."""
    rng = random.Random(seed)
    mutation = OF_FILES[seed % len(OF_FILES)]
    return mutation.__name__, mutation(rng, *good_file(rng))


# -- a folder with an index ------------------------------------------------------------------------


def good_folder(rng):
    """Index and shards, as content and (header, data)."""
    shards = {f"model-{i:05}-of-00003.safetensors": good_file(rng, f"s{i}.") for i in (1, 2, 3)}
    keys = {
        name: [k for k in header if k != "__metadata__"] for name, (header, _) in shards.items()
    }
    total = sum(len(data) for _, data in shards.values())
    weight_map = {key: name for name, found in keys.items() for key in found}
    return {"metadata": {"total_size": total}, "weight_map": weight_map}, shards


def write_folder(folder, index, shards):
    for name, content in shards.items():
        if not isinstance(content, bytes):
            content = header_bytes(content[0]) + content[1]
        (folder / name).write_bytes(content)
    text = index if isinstance(index, bytes) else dumped(index)
    (folder / INDEX).write_bytes(text)


def odd_name(rng, index, shards):
    index["weight_map"][rng.choice(list(index["weight_map"]))] = rng.choice([*NAMES, *ODD])
    return index, shards


def all_odd_names(rng, index, shards):
    name = rng.choice(NAMES)
    index["weight_map"] = dict.fromkeys(index["weight_map"], name)
    return index, shards


def lost_shard(rng, index, shards):
    del shards[rng.choice(list(shards))]
    return index, shards


def damaged_shard(rng, index, shards):
    name = rng.choice(list(shards))
    mutation = rng.choice(OF_FILES)
    shards[name] = mutation(rng, *copy.deepcopy(shards[name]))
    return index, shards


def key_elsewhere(rng, index, shards):
    index["weight_map"][rng.choice(list(index["weight_map"]))] = rng.choice(list(shards))
    return index, shards


def unknown_key(rng, index, shards):
    index["weight_map"]["unknown"] = rng.choice(list(shards))
    return index, shards


def forgotten_key(rng, index, shards):
    del index["weight_map"][rng.choice(list(index["weight_map"]))]
    return index, shards


def key_in_two_shards(rng, index, shards):
    names = list(shards)
    shards[names[0]] = shards[names[1]]
    return index, shards


def odd_index(rng, index, shards):
    index[rng.choice(["weight_map", "metadata"])] = rng.choice([*ODD, nested(2)])
    return index, shards


def odd_total(rng, index, shards):
    index["metadata"]["total_size"] = rng.choice(ODD)
    return index, shards


def key_twice_in_index(rng, index, shards):
    key = rng.choice(list(index["weight_map"]))
    text = dumped(index["weight_map"])[:-1] + b"," + dumped({key: rng.choice(list(shards))})[1:]
    return b'{"metadata": {}, "weight_map": ' + text + b"}", shards


def damaged_index(rng, index, shards):
    text = bytearray(dumped(index))
    kind = rng.randrange(3)
    if kind == 0:
        return bytes(text[: rng.randrange(len(text))]), shards
    if kind == 1:
        text[rng.randrange(len(text))] = rng.randrange(256)
        return bytes(text), shards
    return rng.choice([b"", b"{}", b"[]", b"null", b"[" * 100_000, b'{"weight_map":{}}']), shards


def index_of_index(rng, index, shards):
    shards[next(iter(shards))] = dumped(index)
    return index, shards


def index_record(rng, index, shards):
    key = rng.choice(list(index["weight_map"]))
    index["metadata"]["modtree"] = rng.choice(
        [
            json.dumps({"shared": {"tie": key}}),
            json.dumps({"shared": {key: key}}),
            json.dumps({"shared": {"tie": "none"}}),
            json.dumps({"values": {key: 1}}),
            "{",
        ]
    )
    return index, shards


OF_FOLDERS = [
    lambda rng, index, shards: (index, shards), odd_name, all_odd_names, lost_shard, damaged_shard,
    key_elsewhere, unknown_key, forgotten_key, key_in_two_shards, odd_index, odd_total,
    key_twice_in_index, damaged_index, index_of_index, index_record,
]  # fmt: skip


def hostile_folder(seed, folder):
    """Writes an index and its shards into a folder, and beside it what no reader may touch."""
    rng = random.Random(seed)
    mutation = OF_FOLDERS[seed % len(OF_FOLDERS)]
    write_folder(folder, *mutation(rng, *good_folder(rng)))
    header, data = good_file(rng, "s1.", 4)
    outside = folder.parent / "outside.safetensors"
    outside.write_bytes(header_bytes(header) + data)
    (folder / "folder").mkdir()
    (folder / "sub").mkdir()
    (folder / "sub" / "inside.safetensors").write_bytes(header_bytes(header) + data)
    (folder / "text.safetensors").write_bytes(b"hello")
    if os.name != "nt":
        os.symlink(outside, folder / "link.safetensors")
        os.symlink("loop.safetensors", folder / "loop.safetensors")
        os.mkfifo(folder / "pipe.safetensors")
    return mutation.__name__


def snapshot(folder: Path):
    """What a folder holds; equal as long as nobody writes into it."""
    return sorted((str(p), p.lstat().st_size, p.lstat().st_mtime_ns) for p in folder.rglob("*"))
