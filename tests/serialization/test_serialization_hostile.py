# SPDX-License-Identifier: BSD-3-Clause
"""Pickles from a stranger: modtree.load says what is wrong with each, runs nothing, and needs
little memory and time.
"""

from __future__ import annotations

import io
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.hostile_files import (
    ARRAY,
    BUFFER,
    F4,
    ONES,
    SCALAR,
    START,
    array,
    buffer,
    call,
    dtype,
    name,
    tensor,
    tuple_of,
    value,
)
from helpers.limits import HANGS_AFTER

import modtree as mt
from modtree import nn

POINTER = struct.pack("<Q", 0x4141414141414141)
DAMAGED = "the file is damaged: "
LIST = (
    "which is neither a tensor nor a plain container. Only if you trust where the file comes "
    "from, load it with weights_only=False"
)


def outside(what):
    return f"Weights only load failed: the file contains {what}, {LIST}"


def of_dtype(code):
    return (
        f"Weights only load failed: the file contains an array of dtype {code}; arrays of "
        f"numbers, text and times can be read"
    )


def attribute(key, kind):
    return f"Weights only load failed: the file sets the attribute {key!r} of {kind}"


def nested(depth):
    return b")" + b"\x85" * depth


def doubled(depth):
    """((), ()) of itself, again and again: short to write, long to walk."""
    return b")" + b"2\x86" * depth


OBJECTS = {
    "an ndarray over a pointer": (
        call(b"numpy ndarray", value((1,)), dtype("O8"), b"C\x08" + POINTER),
        of_dtype("'O8'"),
    ),
    "ndarray itself": (call(b"numpy ndarray", value((1,)), F4), outside("a call of ndarray")),
    "ndarray, made anew": (
        name(b"numpy ndarray") + tuple_of(value((1,)), F4) + b"\x81",
        outside("a call of ndarray"),
    ),
    "a buffer of objects": (buffer(POINTER, dtype("O8"), (1,)), of_dtype("'O8'")),
    "a buffer, dtype by name": (
        buffer(POINTER, value("O"), (1,)),
        DAMAGED + "an array without a dtype",
    ),
    "a list of objects": (
        START + tuple_of(value(1), value((1,)), dtype("O8"), value(False), value(["x"])) + b"b",
        of_dtype("'O8'"),
    ),
    "a scalar object": (call(SCALAR, dtype("O8"), b"C\x08" + POINTER), of_dtype("'O8'")),
    **{
        f"dtype({code!r})": (dtype(code), of_dtype(repr(code)))
        for code in (
            ["O", "object", "V8", "f4,O", "f4,f4", "<f4", "T", "U", "U01", "f4\n", "U99999999999"]
            + [None, 4, ("f4", 2), [("a", "O")], {"names": ["a"], "formats": ["O"]}]
        )
    },
    "dtype of a class": (
        call(b"numpy dtype", name(b"builtins set"), value(False), value(True)),
        of_dtype("<class 'set'>"),
    ),
    "a dtype with fields": (
        dtype("f4", (3, "|", None, ("a",), {"a": ("O", 0)}, 8, 1, 63)),
        DAMAGED + "a dtype with parts",
    ),
    "a dtype with a base": (
        dtype("f4", (3, "|", (("O",), (2,)), None, None, 8, 1, 63)),
        DAMAGED + "a dtype with parts",
    ),
    "a dtype of another size": (
        dtype("f4", (3, "<", None, None, None, 800, 8, 0)),
        DAMAGED + "the size of a dtype",
    ),
    "a dtype of a bad order": (
        dtype("f4", (3, "!", None, None, None, -1, -1, 0)),
        DAMAGED + "the state of a dtype",
    ),
    "a dtype of a short state": (dtype("f4", (3, "<")), DAMAGED + "the state of a dtype"),
    "a time without unit": (dtype("M8"), DAMAGED + "the unit of a time"),
    "a time of a bad unit": (
        dtype("M8", (4, "<", None, None, None, -1, -1, 0, ({}, (b"xs", 1, 1, 1)))),
        DAMAGED + "the unit of a time",
    ),
    "text too long for NumPy": (array((1,), dtype("U2147483647"), b""), DAMAGED),
}

NAMES = {
    path: (name(path.encode()), outside(path.replace(" ", ".")))
    for path in [
        "numpy.dtypes Float32DType",
        "numpy.anything PretendDType",
        "numpy dtypes",
        "numpy load",
        "numpy.lib.stride_tricks as_strided",
        "os system",
        "posix system",
        "builtins eval",
        "__builtin__ eval",
        "builtins getattr",
        "builtins list",
        "copyreg _reconstructor",
        "copy_reg _reconstructor",
        "modtree.serialization load",
        "modtree.numpy.tensor.tensor Tensor.__init__",
        "modtree.numpy.tensor.tensor np",
        "modtree.numpy.tensor.parameter _rebuild_buffer",
        "modtree.nn Linear",
        "torch load",
        "torch._utils _rebuild_qtensor",
        "torch FloatStorage",
        "collections abc",
        "_codecs decode",
        "numpy._core.multiarray _frombuffer",
    ]
}
NAMES["a name with dots on the stack"] = (
    value("modtree.numpy.tensor.tensor") + value("Tensor.detach") + b"\x93",
    outside("modtree.numpy.tensor.tensor.Tensor.detach"),
)
NAMES["names that are no text"] = (b"NN\x93", DAMAGED + "a name that is not text")
NAMES["a name without end"] = (b"c" + b"a" * 5000 + b"\nx\n", DAMAGED + "a long line")
NAMES["a call by INST"] = (b"(" + value("true") + b"ios\nsystem\n", outside("os.system"))
NAMES["a call by OBJ"] = (b"(" + name(b"os system") + value("true") + b"o", outside("os.system"))

ARRAYS = {
    "too large": (
        array((3,), F4, b"\0" * 8),
        DAMAGED + "an array of shape (3,) and dtype float32 does not have 8 bytes",
    ),
    "too small": (
        array((1,), F4, b"\0" * 8),
        DAMAGED + "an array of shape (1,) and dtype float32 does not have 8 bytes",
    ),
    "huge": (
        array((1 << 40,), F4, b""),
        DAMAGED + "an array of shape (1099511627776,) and dtype float32 does not have 0 bytes",
    ),
    "beyond memory": (
        array((1 << 40, 1 << 40), F4, b""),
        DAMAGED + "an array that no memory could hold",
    ),
    "huge but empty": (
        array((1 << 62, 0, 1 << 62), F4, b""),
        DAMAGED + "an array that no memory could hold",
    ),
    "a negative size": (array((-2, -1), F4, b"\0" * 8), DAMAGED + "(-2, -1) where sizes belong"),
    "a size that is a bool": (
        array((True,), F4, b"\0" * 4),
        DAMAGED + "(True,) where sizes belong",
    ),
    "a size that is a float": (array((1.0,), F4, b"\0" * 4), DAMAGED + "(1.0,) where sizes belong"),
    "no sizes": (array(None, F4, b"\0" * 4), DAMAGED + "None where sizes belong"),
    "a hundred dimensions": (array((1,) * 100, F4, b"\0" * 4), DAMAGED + "ValueError: "),
    "no dtype": (array((1,), value("f4"), b"\0" * 4), DAMAGED + "an array without a dtype"),
    "data that is a list": (
        START + tuple_of(value(1), value((1,)), F4, value(False), value([0])) + b"b",
        DAMAGED + "an array that is not made of bytes",
    ),
    "data that is a tensor": (
        call(BUFFER, tensor(ONES), F4, value((2,)), value("C")),
        DAMAGED + "an array that is not made of bytes",
    ),
    "a state of another length": (
        START + value((1, (2,))) + b"b",
        DAMAGED + "the state of an array",
    ),
    "a state that is no tuple": (START + value("x") + b"b", DAMAGED + "the state of an array"),
    "another start": (
        call(ARRAY, name(b"builtins set"), value((0,)), b"C\x01b"),
        DAMAGED + "the start of an array",
    ),
    "a start with sizes": (
        call(ARRAY, name(b"numpy ndarray"), value((1 << 40,)), b"C\x01b"),
        DAMAGED + "the start of an array",
    ),
    "a bad order": (buffer(b"\0" * 4, F4, (1,), "X"), DAMAGED + "the order of an array"),
    "bad axes": (buffer(b"\0" * 4, F4, (1, 1), "K", "ab"), DAMAGED + "the order of an array"),
    "axes out of range": (
        buffer(b"\0" * 4, F4, (1, 1), "K", (0, 7)),
        DAMAGED + "AxisError: axis 7 is out of bounds",
    ),
    "missing arguments": (
        call(BUFFER, F4),
        DAMAGED + "TypeError: _frombuffer() missing 3 required positional arguments",
    ),
    "keywords": (
        name(ARRAY) + b")" + value({"code": 1}) + b"\x92",
        outside("a call with keywords"),
    ),
    "arguments that are no tuple": (
        name(ARRAY) + value([1]) + b"R",
        DAMAGED + "a call whose arguments are no tuple",
    ),
    "many empty texts": (
        buffer(b"", dtype("U0"), (1 << 40,)),
        DAMAGED + "an array without a dtype",
    ),
    "bools that are neither": (
        buffer(b"\0\2", dtype("b1"), (2,)),
        DAMAGED + "a bool that is neither True nor False",
    ),
    "text beyond Unicode": (
        buffer(b"\xff" * 4, dtype("U1"), (1,)),
        DAMAGED + "text with a character that there is not",
    ),
    "a scalar of another size": (
        call(SCALAR, F4, b"C\x08" + POINTER),
        DAMAGED + "an array of shape () and dtype float32 does not have 8 bytes",
    ),
}

UNFINISHED = {
    "an array without values": (START, DAMAGED + "an array or dtype in it is not complete"),
    "in a list": (b"]" + START + b"a", DAMAGED + "an array or dtype in it is not complete"),
    "as a key": (b"}" + START + b"Ns", DAMAGED + "an array or dtype in it is not complete"),
    "dropped": (START + b"0N", DAMAGED + "an array or dtype in it is not complete"),
    "taken from the memo": (
        START + b"q\0h\0",
        "the file uses an array or dtype before it is complete",
    ),
    "duplicated": (START + b"2", "the file uses an array or dtype before it is complete"),
    "a tensor of it": (tensor(START), DAMAGED + "a tensor that is not made of an array"),
    "an array of a dtype without state": (
        array((1,), call(b"numpy dtype", value("f4")), b"\0" * 4),
        DAMAGED + "an array without a dtype",
    ),
    "a second state": (
        ONES + value((1, (9,), None, False, b"")) + b"b",
        outside("a state for ndarray"),
    ),
    "a second state of a dtype": (
        F4 + value((3, ">", None, None, None, -1, -1, 0)) + b"b",
        outside("a state for Float32DType"),
    ),
}

STATES = {
    "of a function": (
        name(b"modtree.numpy.tensor.tensor _rebuild") + value({"__code__": 1}) + b"b",
        outside("a state for method"),
    ),
    "of slots": (
        name(b"modtree.numpy.tensor.tensor _rebuild") + value((None, {"__defaults__": ()})) + b"b",
        outside("a state for method"),
    ),
    "of a class": (
        name(b"modtree Tensor") + value({"detach": 1}) + b"b",
        outside("a state for type"),
    ),
    "of a set": (b"\x8f" + value({"a": 1}) + b"b", outside("a state for set")),
    "of a list": (b"]" + value({"a": 1}) + b"b", outside("a state for list")),
    "a tensor's class": (
        tensor(ONES) + value({"__class__": 1}) + b"b",
        attribute("__class__", "Tensor"),
    ),
    "a tensor's method": (
        tensor(ONES) + value({"detach": 1}) + b"b",
        attribute("detach", "Tensor"),
    ),
    "a tensor's gradient": (tensor(ONES) + value({"grad": 1}) + b"b", attribute("grad", "Tensor")),
    "a number as a name": (tensor(ONES) + value({1: 1}) + b"b", attribute(1, "Tensor")),
    "a tensor's slots": (
        tensor(ONES) + value((None, {"data": 1})) + b"b",
        DAMAGED + "a state of Tensor",
    ),
    "an OrderedDict's method": (
        call(b"collections OrderedDict") + value({"items": 1}) + b"b",
        attribute("items", "OrderedDict"),
    ),
    "metadata": (
        call(b"collections OrderedDict") + value({"_metadata": 1}) + b"b",
        DAMAGED + "_metadata that is no dict",
    ),
}

CALLS = {
    "bytes(2**40)": (
        call(b"builtins bytes", value(1 << 40)),
        DAMAGED + "TypeError: _no_bytes() takes 0 positional arguments but 1 was given",
    ),
    "bytearray(2**40)": (call(b"builtins bytearray", value(1 << 40)), DAMAGED + "a bytearray"),
    "bytearray of a range": (
        call(b"builtins bytearray", call(b"builtins range", value(1 << 40))),
        DAMAGED + "a bytearray",
    ),
    "a set of a range": (
        call(b"builtins set", call(b"builtins range", value(1 << 40))),
        "the file makes a set of range",
    ),
    "a frozenset of text": (
        call(b"builtins frozenset", value("abc")),
        "the file makes a set of str",
    ),
    "a set of a list": (
        call(b"builtins set", value([[1]])),
        DAMAGED + "TypeError: unhashable type: 'list'",
    ),
    "a deque of a range": (
        call(b"collections deque", call(b"builtins range", value(1 << 40))),
        DAMAGED + "a deque",
    ),
    "a deque of a bad length": (
        call(b"collections deque", b")", value("x")),
        DAMAGED + "the length of a deque",
    ),
    "a Counter of a range": (
        call(b"collections Counter", call(b"builtins range", value(1 << 40))),
        DAMAGED + "a Counter",
    ),
    "an OrderedDict of a range": (
        call(b"collections OrderedDict", call(b"builtins range", value(1 << 40))),
        "the file makes an OrderedDict of range",
    ),
    "an OrderedDict of numbers": (
        call(b"collections OrderedDict", value([1])),
        "the file makes an OrderedDict of what are not pairs",
    ),
    "a defaultdict of a function": (
        call(b"collections defaultdict", name(b"modtree.numpy.tensor.tensor _rebuild")),
        DAMAGED + "a defaultdict",
    ),
    "a complex number of text": (
        call(b"builtins complex", value("1"), value(0)),
        DAMAGED + "a complex number",
    ),
    "a complex number beyond floats": (
        call(b"builtins complex", value(1 << 5000), value(0)),
        DAMAGED + "OverflowError: int too large to convert to float",
    ),
    "a range of text": (call(b"builtins range", value("a")), DAMAGED + "a range"),
    "a range of nothing": (
        call(b"builtins range", value(0), value(1), value(0)),
        DAMAGED + "ValueError: range() arg 3 must not be zero",
    ),
    "a slice of slices": (
        call(b"builtins slice", call(b"builtins slice", b"N")),
        DAMAGED + "a slice",
    ),
    "encode by a codec": (
        call(b"_codecs encode", value("a"), value("zlib")),
        DAMAGED + "encoded bytes",
    ),
    "encode what is not Latin": (
        call(b"_codecs encode", value("\u1234"), value("latin1")),
        DAMAGED + "UnicodeEncodeError: 'latin-1' codec can't encode character",
    ),
    "a call of a value": (value(3) + b")R", outside("a call of int")),
    "a call of a list": (b"])R", outside("a call of list")),
    "a call of a tensor": (tensor(ONES) + b")R", outside("a call of Tensor")),
    "a call of a class of tensors": (
        name(b"modtree Tensor") + value((1 << 40,)) + b"R",
        outside("a call of Tensor"),
    ),
    "a parameter made anew": (
        name(b"modtree.nn.parameter Parameter") + b")\x81",
        outside("a call of Parameter"),
    ),
    "sizes of text": (call(b"modtree Size", value(("a",))), DAMAGED + "sizes"),
    "a device of a list": (call(b"modtree device", b"]"), DAMAGED + "the name of a device"),
    "a device that is not there": (
        call(b"modtree device", value("cuda:0")),
        "the file contains the device 'cuda:0': Expected one of the device types cpu, meta",
    ),
    "a dtype that is not there": (
        call(b"modtree.numpy.tensor.dtypes _dtype_by_name", value("object")),
        DAMAGED + "the name of a dtype",
    ),
    "a dtype by a list": (
        call(b"modtree.numpy.tensor.dtypes _dtype_by_name", b"]"),
        DAMAGED + "the name of a dtype",
    ),
    "more arguments than bytes": (
        b"("
        + value(b"\0" * 60000)
        + b"q\0"
        + b"0("
        + (name(b"builtins bytearray") + b"h\0\x85R") * 10
        + b"l",
        DAMAGED + "it copies more than it holds",
    ),
}

TENSORS = {
    "a class that is none": (
        tensor(ONES, b"builtins set"),
        DAMAGED + "a class that is no class of tensors",
    ),
    "a class of buffers": (
        tensor(ONES, b"modtree.nn.parameter Buffer"),
        DAMAGED + "a class that is no class of tensors",
    ),
    "of a list": (tensor(value([1])), DAMAGED + "a tensor that is not made of an array"),
    "of a tensor": (tensor(tensor(ONES)), DAMAGED + "a tensor that is not made of an array"),
    "of text": (
        tensor(array((1,), dtype("U1"), b"\0" * 4)),
        DAMAGED + "a tensor of str32",
    ),
    "of the other byte order": (
        tensor(array((1,), dtype("f4", (3, ">", None, None, None, -1, -1, 0)), b"\0" * 4)),
        DAMAGED + "ValueError: given numpy array has byte order different",
    ),
    "a number as requires_grad": (
        tensor(ONES, requires_grad=1),
        DAMAGED + "requires_grad is no bool",
    ),
    "integers that require gradients": (
        tensor(array((1,), dtype("i8"), b"\0" * 8), requires_grad=True),
        DAMAGED + "a tensor of modtree.int64 that requires gradients",
    ),
    "a parameter of an array": (
        call(b"modtree.numpy.tensor.parameter _rebuild_parameter", ONES, value(True)),
        DAMAGED + "a class that is no class of tensors",
    ),
    "a meta tensor without a dtype": (
        call(
            b"modtree.numpy.tensor.tensor _rebuild_meta",
            name(b"modtree Tensor"),
            value((1,)),
            value("f4"),
            value(False),
        ),
        DAMAGED + "a tensor without a dtype",
    ),
    "a meta tensor of bad sizes": (
        call(
            b"modtree.numpy.tensor.tensor _rebuild_meta",
            name(b"modtree Tensor"),
            value((-1,)),
            call(b"modtree.numpy.tensor.dtypes _dtype_by_name", value("float32")),
            value(False),
        ),
        DAMAGED + "(-1,) where sizes belong",
    ),
    "a meta tensor beyond memory": (
        call(
            b"modtree.numpy.tensor.tensor _rebuild_meta",
            name(b"modtree Tensor"),
            value((1 << 40, 1 << 40)),
            call(b"modtree.numpy.tensor.dtypes _dtype_by_name", value("float32")),
            value(False),
        ),
        DAMAGED + "an array that no memory could hold",
    ),
}

_PRIME = (1 << 61) - 1
COLLIDING = b"".join(value(k * _PRIME + 1) + b"N" for k in range(1, 5000))
KEYS = {
    "a deep tuple": (b"}" + nested(100_000) + b"Ns", "the file has a key with too many parts"),
    "a deep tuple in a set": (
        b"\x8f(" + nested(100_000) + b"\x90",
        "the file has a key with too many parts",
    ),
    "a deep tuple in a frozenset": (
        b"(" + nested(100_000) + b"\x91",
        "the file has a key with too many parts",
    ),
    "a deep tuple in a call": (
        name(b"builtins set") + b"](" + nested(100_000) + b"e\x85R",
        "the file has a key with too many parts",
    ),
    "a deep tuple in an OrderedDict": (
        name(b"collections OrderedDict") + b"](" + nested(100_000) + b"N\x86e\x85R",
        "the file has a key with too many parts",
    ),
    "a tuple of itself twice, and again": (
        b"}" + doubled(60) + b"Ns",
        "the file has a key with too many parts",
    ),
    "a long tuple": (b"}(" + b"N" * 1000 + b"tNs", "the file has a key with too many parts"),
    "a huge integer": (
        b"}" + value(1 << 100_000) + b"Ns",
        "the file has a key with too many digits",
    ),
    "integers of one hash": (b"}(" + COLLIDING + b"u", "the file has too many keys with one hash"),
    "a list": (b"}]Ns", DAMAGED + "TypeError: unhashable type: 'list'"),
    "half an item": (b"}(NNNu", "the file sets items of dict"),
}

BYTES = {
    "nothing": (None, "the file is empty: a download or a save that did not get far"),
    "text": (None, "not a known checkpoint format: it is text, 'Hello'"),
    "protocol 6": (b"\x80\x06N", "the file has pickle's protocol 6; the last known is 5"),
    "an unknown opcode": (b"\xff", "the file is not a pickle, or damaged: unknown opcode b'\\xff'"),
    "extension 1": (b"\x82\x01", outside("a name of the extension registry")),
    "extension 2": (b"\x83\x01\0", outside("a name of the extension registry")),
    "extension 4": (b"\x84\x01\0\0\0", outside("a name of the extension registry")),
    "a persistent id": (value("x") + b"Q", outside("a persistent id")),
    "a persistent line": (b"Px\n", outside("a persistent id")),
    "a buffer outside": (b"\x97", outside("a buffer that lies outside the file")),
    "a buffer to read": (b"\x98", outside("a buffer that lies outside the file")),
    **{
        f"{what} of 2**{bits} bytes": (
            code + (1 << bits).to_bytes(width, "little"),
            f"the file is truncated: {1 << bits} bytes are announced, 1 are left",
        )
        for what, code, bits, width in [
            ("bytes", b"B", 31, 4),
            ("bytes", b"\x8e", 60, 8),
            ("a bytearray", b"\x96", 60, 8),
            ("text", b"X", 31, 4),
            ("text", b"\x8d", 63, 8),
            ("old text", b"T", 30, 4),
            ("an integer", b"\x8b", 30, 4),
            ("a frame", b"\x95", 62, 8),
        ]
    },
    "a negative length": (b"T\xff\xff\xff\xff", DAMAGED + "a negative length"),
    "an integer of negative length": (b"\x8b\xff\xff\xff\xff", DAMAGED + "a negative length"),
    "a million digits": (b"I" + b"9" * 1_000_000 + b"\n", DAMAGED + "a long line"),
    "a million digits, long": (b"L" + b"9" * 1_000_000 + b"L\n", DAMAGED + "a long line"),
    "a float of letters": (b"Fabc\n", DAMAGED + "ValueError: could not convert string to float"),
    "text without quotes": (b"Sabc\n", DAMAGED + "text without quotes"),
    "text that is no UTF-8": (
        b"\x8c\x01\xff",
        DAMAGED + "UnicodeDecodeError: 'utf-8' codec can't decode byte 0xff",
    ),
    "text with a bad escape": (
        b"V\\u12\n",
        DAMAGED + "UnicodeDecodeError: 'rawunicodeescape' codec can't decode",
    ),
    "an entry of the memo that is not there": (b"h\x07", DAMAGED + "KeyError: 7"),
    "no line for the memo": (b"gabc\n", DAMAGED + "ValueError: invalid literal for int()"),
    "no value": (b"", DAMAGED + "it does not end with one value"),
    "two values": (b"NN", DAMAGED + "it does not end with one value"),
    "a mark that stays": (b"(N", DAMAGED + "it does not end with one value"),
    "no mark": (b"t", DAMAGED + "IndexError: pop from empty list"),
    "a tuple of nothing": (b"\x87", DAMAGED + "a tuple of more than there is"),
    "an append to a dict": (b"}Na", "the file appends to dict"),
    "an append to a bytearray": (
        b"\x96" + struct.pack("<Q", 1) + b"xNa",
        "the file appends to bytearray",
    ),
    "a set item of a list": (b"]NNs", "the file sets items of list"),
    "an addition to a list": (b"](N\x90", "the file adds to list"),
    "torch's form before 1.6": (
        b"\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19",
        "the file is truncated",
    ),
}

WHOLE = {"nothing": b"", "text": b"Hello"}

CASES = {
    f"{group}: {case}": (
        WHOLE.get(case, b"" if code is None else b"\x80\x02" + code + b"."),
        message,
    )
    for group, cases in {
        "objects": OBJECTS,
        "names": NAMES,
        "arrays": ARRAYS,
        "unfinished": UNFINISHED,
        "states": STATES,
        "calls": CALLS,
        "tensors": TENSORS,
        "keys": KEYS,
        "bytes": BYTES,
    }.items()
    for case, (code, message) in cases.items()
}


@pytest.mark.parametrize("case", CASES)
def test_what_is_wrong_is_said(case):
    data, message = CASES[case]
    with pytest.raises(pickle.UnpicklingError, match=re.escape(message)) as caught:
        mt.load(io.BytesIO(data))
    assert len(str(caught.value)) < 500


def test_in_little_memory():
    """All of them, in a process that may take 256 MiB more than it has after the import."""
    script = Path(__file__).parents[1] / "isolated" / "load_hostile.py"
    done = subprocess.run(
        [sys.executable, script, "test_serialization_hostile"],
        capture_output=True,
        text=True,
        timeout=HANGS_AFTER,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["refused", str(len(CASES))]


def test_every_part_of_a_file_is_refused():
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    for protocol in (0, 2, 5):
        file = io.BytesIO()
        mt.save(
            {"model": model.state_dict(), "more": [1.5, "x", {2, 3}]},
            file,
            pickle_protocol=protocol,
        )
        data = file.getvalue()
        for end in range(len(data)):
            with pytest.raises(pickle.UnpicklingError):
                mt.load(io.BytesIO(data[:end]))


def test_places_in_the_memo_cost_nothing():
    back = mt.load(io.BytesIO(b"\x80\x02Nr\xff\xff\xff\x7f0j\xff\xff\xff\x7f."))
    assert back is None


def test_deep_and_shared_containers():
    deep = mt.load(io.BytesIO(b"\x80\x02" + b"(" * 100_000 + b"l" * 100_000 + b"."))
    depth = 0
    while deep:
        (deep,) = deep
        depth += 1
    assert depth == 100_000 - 1
    data = b"\x80\x02" + b"(" * 100_000 + b"l" * 100_000 + b"."
    with pytest.raises(pickle.UnpicklingError, match="nested too deeply"):
        mt.load(io.BytesIO(data), map_location="meta")
    twice = mt.load(io.BytesIO(b"\x80\x02" + tensor(ONES) + b"2\x86" * 60 + b"."), "meta")
    for _ in range(60):
        assert twice[0] is twice[1]
        twice = twice[0]
    assert twice.is_meta
    inside = mt.load(io.BytesIO(b"\x80\x02]q\0h\0a" + b"."), map_location="meta")
    assert inside[0] is inside
