# SPDX-License-Identifier: BSD-3-Clause
"""Files that modtree.save() wrote of models whose leaves are torch's: read by default, with torch
and without it.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from helpers.hostile_files import call, name, tuple_of, value
from helpers.implementations import HAS_TORCH, needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn

torch = importlib.import_module("torch") if HAS_TORCH else None


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.arange(6.0).view(2, 3))
        self.register_buffer("halves", torch.ones(3).bfloat16())
        self.register_buffer("eighths", torch.ones(2).to(torch.float8_e4m3fn))
        self.register_buffer("shape_only", torch.empty(2, 3, device="meta"))
        self.own = nn.Parameter(mt.ones(2))


def leaves():
    tagged, frozen = torch.ones(2), torch.nn.Parameter(torch.ones(2), requires_grad=False)
    tagged.tag = {"a": torch.zeros(1)}
    frozen.tag = 3
    return {
        "state": Mixed().state_dict(),
        "strided": torch.arange(6.0).view(2, 3).t()[1:, ::2],
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "negated": torch._neg_view(torch.ones(2)),
        "tagged": tagged,
        "frozen": frozen,
        "flags": torch.tensor([True, False]),
        "empty": torch.zeros(0, 3),
        "learned": torch.ones(1).requires_grad_(),
        "dtype": torch.float16,
        "size": torch.Size([2, 3]),
        "device": torch.device("cpu"),
    }


def written(obj, protocol=5):
    file = io.BytesIO()
    mt.save(obj, file, pickle_protocol=protocol)
    file.seek(0)
    return file


@needs_torch
@pytest.mark.parametrize("protocol", range(6))
def test_they_come_back_as_they_were(protocol):
    old, new = leaves(), mt.load(written(leaves(), protocol))
    assert list(new) == list(old)
    assert (new["dtype"], new["size"], new["device"]) == (
        torch.float16,
        torch.Size([2, 3]),
        torch.device("cpu"),
    )
    state, other = new.pop("state"), old.pop("state")
    assert state._metadata == other._metadata and isinstance(state["own"], mt.Tensor)
    for key, tensor in [*old.items(), *other.items()]:
        if isinstance(tensor, torch.Tensor):
            found = new.get(key, state.get(key))
            assert type(found) is type(tensor) and found.dtype == tensor.dtype, key
            assert found.stride() == tensor.stride(), key
            assert found.requires_grad == tensor.requires_grad, key
            if not found.is_meta and key != "conjugated":
                assert torch.equal(found.float(), tensor.float()), key
    assert new["conjugated"].is_conj() and new["conjugated"].tolist() == [1 - 2j]
    assert new["negated"].is_neg() and new["tagged"].tag["a"].tolist() == [0]
    assert new["frozen"].tag == 3 and isinstance(new["frozen"], torch.nn.Parameter)


@needs_torch
def test_a_model_with_such_leaves_goes_on():
    model, other = Mixed(), Mixed()
    other.weight.data.zero_()
    other.load_state_dict(mt.load(written(model.state_dict())))
    assert torch.equal(other.weight, model.weight)


@needs_torch
def test_they_move_to_meta():
    new = mt.load(written(leaves()), map_location="meta")
    assert new["strided"].is_meta and isinstance(new["strided"], torch.Tensor)


@needs("ml_dtypes")
@needs_torch
def test_without_torch_they_are_tensors_of_modtree(tmp_path):
    mt.save(leaves(), tmp_path / "file")
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import modtree as mt\n"
        f"new = mt.load({str(tmp_path / 'file')!r})\n"
        "state = new['state']\n"
        "assert state['weight'].tolist() == [[0, 1, 2], [3, 4, 5]]\n"
        "assert state['halves'].dtype == mt.bfloat16 and state['shape_only'].is_meta\n"
        "assert state['eighths'].dtype == mt.float8_e4m3fn\n"
        "assert new['conjugated'].tolist() == [1 - 2j] and new['negated'].tolist() == [-1, -1]\n"
        "assert isinstance(new['frozen'], mt.nn.Parameter) and new['frozen'].tag == 3\n"
        "assert new['tagged'].tag['a'].tolist() == [0] and new['learned'].requires_grad\n"
        "assert (new['dtype'], new['size']) == (mt.float16, mt.Size([2, 3]))\n"
        "assert new['strided'].tolist() == [[1], [2]]\n"
        "print('read')\n"
    )
    root = str(Path(mt.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert done.stdout == "read\n", done.stderr


# -- from a stranger -------------------------------------------------------------------------------


def storage_bytes(count):
    """What torch pickles of a storage of ones."""
    memory = torch.ones(count).untyped_storage()
    typed = torch.storage.TypedStorage(wrap_storage=memory, dtype=torch.float32, _internal=True)
    return typed.__reduce__()[1][0]


def tensor(data, offset=0, size=(2,), stride=(1,), requires_grad=False):
    memory = call(
        b"torch.storage _load_from_bytes",
        b"B" + struct.pack("<I", len(data)) + data if type(data) is bytes else value(data),
    )
    parts = memory, *map(value, (offset, size, stride, requires_grad, {}))
    return b"\x80\x03" + call(b"torch._utils _rebuild_tensor_v2", *parts) + b"."


DAMAGED = "the file is damaged: the storage of a tensor of torch"


@needs_torch
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda data: tensor(data, size=(3,)), "does not fit the 2 values"),
        (lambda data: tensor(data, offset=-1), "does not fit the 2 values"),
        (lambda data: tensor(data, stride=(1 << 62,)), "does not fit the 2 values"),
        (lambda data: tensor(data, requires_grad=1), "requires_grad is no bool"),
        (lambda data: tensor(data[:-1]), "is to have 2 values of float32, but 7 bytes follow"),
        (lambda data: tensor(data + b"\0"), "is to have 2 values of float32, but 9 bytes follow"),
        (lambda data: tensor(b"\x80\x02N." * 5), DAMAGED),
        (lambda data: tensor(b""), "the file is truncated"),
        (lambda data: tensor("text"), DAMAGED),
        (lambda data: tensor(data.replace(b"FloatStorage", b"QInt8Storage")), "torch.QInt8Storage"),
        (
            lambda data: b"\x80\x02" + name(b"torch Tensor") + tuple_of(value(5)) + b"R.",
            "a call of Tensor",
        ),
        (
            lambda data: b"\x80\x02" + name(b"torch._utils _rebuild_sparse_tensor") + b".",
            "torch._utils._rebuild_sparse_tensor",
        ),
        (lambda data: b"\x80\x02" + name(b"torch hub") + b".", "torch.hub"),
    ],
)
def test_what_is_wrong_is_said(make, message):
    data = make(storage_bytes(2))
    with pytest.raises(pickle.UnpicklingError, match=re.escape(message)):
        mt.load(io.BytesIO(data))


@needs_torch
def test_every_change_of_a_byte_is_read_or_refused():
    value = {"a": torch.arange(4.0), "b": torch.nn.Parameter(torch.ones(1))}
    data = written(value).read()
    for at in range(len(data)):
        with pytest.raises(pickle.UnpicklingError):
            mt.load(io.BytesIO(data[:at]))
        for bits in (0xFF, 0x01, 0x80):
            changed = data[:at] + bytes([data[at] ^ bits]) + data[at + 1 :]
            with contextlib.suppress(pickle.UnpicklingError):
                mt.load(io.BytesIO(changed))
