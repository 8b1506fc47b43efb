# SPDX-License-Identifier: BSD-3-Clause
"""load reads every protocol of pickle, and every kind of value that save is given."""

from __future__ import annotations

import collections
import io

import numpy as np
import pytest
from helpers.hostile_files import buffer, dtype, tensor

import modtree as mt
from modtree import nn


def test_read_only_bytes_are_not_written_to():
    """NumPy writes an array over bytes as bytes, and CPython has one object for each of one
    byte.
    """
    data = b"\x80\x05" + tensor(buffer(b"\x01", dtype("u1"), (1,))) + b"."
    back = mt.load(io.BytesIO(data))
    back.add_(1)
    assert back.tolist() == [2] and bytes([1]) == b"\x01"


@pytest.mark.parametrize("protocol", range(6))
def test_every_protocol_is_read(protocol):
    tagged = mt.ones(2)
    tagged.tag = "x"
    value = {
        "tensor": mt.arange(6).reshape(2, 3).t(),
        "parameter": nn.Parameter(mt.ones(2)),
        "tagged": tagged,
        "meta": mt.zeros(2, 3, device="meta"),
        "state": nn.BatchNorm1d(2).state_dict(),
        "plain": [
            None,
            True,
            -1,
            1 << 70,
            1.5,
            "ä\n",
            b"\xff",
            bytearray(b"x"),
            1j,
            range(3),
            slice(1, None),
        ],
        "sets": ({1, "a"}, frozenset({(1, 2)})),
        "more": [
            collections.Counter("aab"),
            collections.deque([1, 2], 5),
            collections.defaultdict(set, {1: {2}}),
            collections.OrderedDict(b=1, a=2),
        ],
        "values": [mt.float64, mt.device("meta"), mt.Size([1, 2]), mt.device("cpu", 1)],
    }
    file = io.BytesIO()
    mt.save(value, file, pickle_protocol=protocol)
    after = file.tell()
    file.write(b"more")
    file.seek(0)
    back = mt.load(file)
    assert file.tell() == after
    assert back["tensor"].tolist() == value["tensor"].tolist()
    assert isinstance(back["parameter"], nn.Parameter) and back["parameter"].requires_grad
    assert back["tagged"].tag == "x" and back["meta"].is_meta and back["meta"].shape == (2, 3)
    assert back["state"]._metadata == value["state"]._metadata
    for key in ("plain", "sets", "more", "values"):
        assert back[key] == value[key]
        assert [type(v) for v in back[key]] == [type(v) for v in value[key]]
    assert back["more"][1].maxlen == 5 and back["more"][2].default_factory is set


# From NumPy 2.5 on; files of older versions have such arrays.
@pytest.mark.filterwarnings("ignore:The 'generic' unit for NumPy timedelta:DeprecationWarning")
@pytest.mark.parametrize("protocol", range(6))
def test_arrays_are_read(protocol):
    whole = np.arange(24).reshape(2, 3, 4)
    value = [
        *(np.arange(3).astype(kind) for kind in "?bhilqBHILQefdgFDG"),
        np.array(["ab", "ö"]),
        np.array([b"ab", b""]),
        np.array(["2020-01-01", "NaT"], "M8[ns]"),
        np.array([1, 2], "m8[25s]"),
        np.array([1, 2], "m8"),
        np.arange(3, dtype=">i4"),
        whole.transpose(2, 0, 1),
        np.asfortranarray(whole),
        whole[:, ::2, ::-1],
        np.zeros((0, 3)),
        np.array(3.0),
        np.float32(1.5),
        np.bool_(True),
        np.str_("ä"),
        np.str_(""),
        np.bytes_(b""),
        np.complex128(1 + 2j),
        np.datetime64("2020-01-01"),
        np.dtype("f4"),
        np.dtype(">i8"),
        np.dtype("M8[us]"),
    ]
    shared = np.arange(3.0)
    file = io.BytesIO()
    mt.save([value, shared, shared], file, pickle_protocol=protocol)
    file.seek(0)
    back, one, other = mt.load(file)
    assert one is other
    for ours, theirs in zip(back, value, strict=True):
        assert type(ours) is type(theirs)
        if not isinstance(theirs, np.dtype):
            assert ours.dtype == theirs.dtype and ours.shape == theirs.shape
            np.testing.assert_array_equal(ours, theirs)
        else:
            assert ours == theirs
