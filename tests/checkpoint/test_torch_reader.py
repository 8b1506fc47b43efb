# SPDX-License-Identifier: BSD-3-Clause
"""The reader of checkpoints on files of torch.save() and modtree.save()."""

from __future__ import annotations

import importlib
import importlib.util
import os
import struct
import sys

import numpy as np
import pytest
from helpers.hostile_files import archive, name, storage, torch_file, torch_tensor, value
from helpers.implementations import HAS_TORCH, needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn
from modtree.files.checkpoint.base import CheckpointError, Entry, View
from modtree.files.checkpoint.reader import open_checkpoint
from modtree.files.checkpoint.verify import verify

torch = importlib.import_module("torch") if HAS_TORCH else None
needs_ml_dtypes = needs("ml_dtypes")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 3, bias=False), nn.Linear(2, 3, bias=False)
        self.b.weight = self.a.weight
        self.norm = nn.BatchNorm1d(3)

    def get_extra_state(self):
        return {"calls": 3, "ids": mt.tensor([1, 2])}

    def set_extra_state(self, state):
        self.extra = state


def save_ours(obj, path):
    mt.save(obj, path, format="torch")


def save_theirs(obj, path):
    torch.save(mt.to_torch(obj), path)


archives = pytest.mark.parametrize(
    "save", [save_ours, pytest.param(save_theirs, marks=needs_torch)]
)
writers = pytest.mark.parametrize(
    "save", [save_ours, pytest.param(save_theirs, marks=needs_torch), mt.save]
)


@writers
@pytest.mark.parametrize("under", ["", "state_dict", "model_state_dict", "model"])
def test_a_state_dict_is_found(save, under, tmp_path):
    model = Net()
    state = model.state_dict()
    path = str(tmp_path / "file.pt")
    save({under: state, "epoch": 3, "loss": mt.tensor(0.5)} if under else state, path)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.format == ("modtree" if save is mt.save else "torch")
        assert checkpoint.found_under == under
        assert checkpoint.left_out == (("epoch", "loss") if under else ())
        # In a pickle of modtree, tied entries of a state dict have memory of their own.
        ties = {} if save is mt.save else {"b.weight": "a.weight"}
        assert checkpoint.ties == ties
        expected = [key for key in state if key not in ties and key != "_extra_state"]
        assert list(checkpoint.entries) == expected
        assert checkpoint.entries["a.weight"] == Entry("a.weight", (3, 2), "float32", 24, path)
        assert checkpoint.entries["norm.num_batches_tracked"].dtype == "int64"
        assert checkpoint.values["_extra_state"]["calls"] == 3
        assert checkpoint.versions == state._metadata
        found = checkpoint.state_dict()
        assert list(found) == list(state) == checkpoint.keys()
    other = Net()
    other.load_state_dict(found)
    assert other.a.weight.tolist() == model.a.weight.tolist()
    assert other.extra["ids"].tolist() == [1, 2]


@writers
def test_several_state_dicts(save, tmp_path):
    path = tmp_path / "file.pt"
    parts = {"encoder": nn.Linear(1, 2).state_dict(), "decoder": nn.BatchNorm1d(2).state_dict()}
    save({**parts, "step": 5}, path)
    with pytest.raises(CheckpointError, match="several state dicts, encoder, decoder: name one"):
        open_checkpoint(path)
    for part, version in (("encoder", 1), ("decoder", 2)):
        with open_checkpoint(path, part) as checkpoint:
            assert checkpoint.keys() == [*parts[part]]
            assert checkpoint.versions == {"": {"version": version}}


@writers
def test_dicts_in_dicts_are_one_tree(save, tmp_path):
    path = tmp_path / "file.pt"
    parts = {"encoder": {"w": nn.Linear(1, 2).weight}, "decoder": {"w": nn.Linear(1, 2).weight}}
    save({**parts, "step": 5}, path)
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.keys() == ["encoder.w", "decoder.w", "step"]
        assert checkpoint.values == {"step": 5}


@archives
def test_views_of_another_entry(save, tmp_path):
    base = mt.arange(12.0)
    state = {"part": base[2:8:3], "whole": base.reshape(3, 4), "turned": base.reshape(3, 4).t()}
    save(state, tmp_path / "file.pt")
    with open_checkpoint(tmp_path / "file.pt") as checkpoint:
        assert list(checkpoint.entries) == ["whole"]
        assert checkpoint.views == {
            "part": View("whole", (2,), (3,), 2),
            "turned": View("whole", (4, 3), (1, 4), 0),
        }
        found = checkpoint.state_dict()
    assert list(found) == list(state)
    found["whole"][0, 2] = 50
    assert found["part"].tolist() == [50, 5] and found["turned"][2, 0].item() == 50


@writers
def test_tensors_and_their_bytes(save, tmp_path):
    state = {
        "a": mt.arange(6.0).reshape(2, 3),
        "t": mt.arange(6, dtype=mt.int16).reshape(2, 3).t(),
        "flags": mt.tensor([True, False]),
        "one": mt.tensor(2.0),
        "none": mt.zeros(0, 2),
        "wide": mt.ones(1).expand(4),
        "p": nn.Parameter(mt.ones(2)),
    }
    save(state, tmp_path / "file.pt")
    checkpoint = open_checkpoint(tmp_path / "file.pt")
    for key, old in state.items():
        new, entry = checkpoint.tensor(key), checkpoint.entries[key]
        assert new.tolist() == old.tolist() and type(new) is type(old)
        assert entry.shape == tuple(old.shape) and entry.nbytes == old.numel() * old.element_size()
        plain = np.ascontiguousarray(old.detach().numpy())
        assert b"".join(map(bytes, checkpoint.chunks(key, 5))) == plain.tobytes(), key
        assert all(len(chunk) <= 5 for chunk in checkpoint.chunks(key, 5))
        assert checkpoint.array(key).tolist() == old.tolist()
    with pytest.raises(KeyError):
        checkpoint.tensor("b")
    checkpoint.close()
    if save is not mt.save:
        with pytest.raises(ValueError, match="is closed"):
            checkpoint.tensor("a")
    assert new.tolist() == [1, 1]


def test_a_map_is_private_and_stays_after_closing(tmp_path):
    path = tmp_path / "file.pt"
    mt.save({"a": mt.ones(4)}, path, format="torch")
    before = path.read_bytes()
    with open_checkpoint(path) as checkpoint:
        tensor, again = checkpoint.tensor("a"), checkpoint.tensor("a")
    tensor += 1
    assert path.read_bytes() == before and again.tolist() == [2, 2, 2, 2]


@needs_torch
@needs_ml_dtypes
def test_stored_dtypes(tmp_path):
    halves = torch.tensor([1.5, -2.0]).bfloat16()
    torch.save({"h": halves, "e": halves.to(torch.float8_e5m2)}, tmp_path / "file.pt")
    with open_checkpoint(tmp_path / "file.pt") as checkpoint:
        assert [e.dtype for e in checkpoint.entries.values()] == ["bfloat16", "float8_e5m2"]
        assert checkpoint.tensor("e").float().tolist() == [1.5, -2.0]
        assert b"".join(checkpoint.chunks("h")) == halves.view(torch.int16).numpy().tobytes()


def sparse_file(path, count):
    """An archive with one record of so many floats, without blocks on the disk."""
    pickled = b"\x80\x02}" + value("w") + torch_tensor(storage(count=count), 0, (count,)) + b"s."
    head, size = archive([("a/data.pkl", pickled)]), count * 4
    start, end = head.index(b"PK\x01\x02"), head.index(b"PK\x05\x06")
    large, wide = (0xFFFFFFFF,) * 2, struct.pack("<2H2Q", 1, 16, size, size)
    local = struct.pack("<4s5H3I2H", b"PK\3\4", 45, 0, 0, 0, 33, 0, *large, 8, 20)
    entry = b"PK\1\2", 45, 45, 0, 0, 0, 33, 0, *large, 8, 20, 0, 0, 0, 0, start
    directory = head[start:end] + struct.pack("<4s6H3I5H2I", *entry) + b"a/data/0" + wide
    at = start + len(local) + 8 + len(wide) + size
    with open(path, "wb") as file:
        file.write(head[:start] + local + b"a/data/0" + wide)
        file.truncate(at)
        file.seek(at)
        file.write(directory)
        places = 44, 45, 45, 0, 0, 2, 2, len(directory), at
        file.write(struct.pack("<4sQ2H2I4Q", b"PK\6\6", *places))
        file.write(struct.pack("<4sIQI", b"PK\6\7", 0, at + len(directory), 1))
        file.write(struct.pack("<4s4H2IH", b"PK\5\6", 0, 0, 2, 2, len(directory), large[0], 0))


def test_a_file_larger_than_memory(tmp_path):
    count, path = 1 << 36, tmp_path / "file.pt"
    try:
        sparse_file(path, count)
    except OSError:
        pytest.skip("no file of that size here")
    with open_checkpoint(path) as checkpoint:
        assert checkpoint.entries["w"].nbytes == 4 * count
        tensor = checkpoint.tensor("w")
        assert tensor.shape == (count,) and tensor[-1].item() == 0.0
        assert len(next(checkpoint.chunks("w"))) == 1 << 24
    assert mt.load(path, mmap=True)["w"][12345].item() == 0.0


# -- what is wrong ---------------------------------------------------------------------------------


def written(data, tmp_path):
    path = tmp_path / "file.pt"
    path.write_bytes(data)
    return str(path)


T = torch_tensor(storage())


def entry(key, what):
    return b"}" + value(key) + what + b"s"


WRONG = {
    "a list": (torch_file(value([1, 2])), "it holds a list where a state dict belongs"),
    "a tuple as key": (torch_file(entry((1, 2), T)), "(1, 2) is no key of a state dict"),
    "code": (torch_file(name(b"os system")), "os.system"),
    "a bad tensor": (torch_file(entry("a", torch_tensor(storage(), 1))), "does not fit"),
    "half an archive": (torch_file(b"N")[:-30], "the archive is damaged"),
    "a pickle of None": (b"\x80\x02N.", "it holds a NoneType where a state dict belongs"),
    "half a pickle": (b"\x80\x02]", "the file is truncated"),
    "a dict in itself": (
        torch_file(
            b"}q\0(" + value("a") + b"h\0" + value("b") + entry("t", T) + b"u"
        ),
        "a container in it contains itself",
    ),
    "two of one key": (
        torch_file(
            b"}(" + value("a") + entry("b", entry("c", T)) + value("a.b") + entry("c", T) + b"u"
        ),
        "tensor 'a.b.c': two entries have this key",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_what_is_no_state_dict(case, tmp_path):
    data, message = WRONG[case]
    path = written(data, tmp_path)
    with pytest.raises(CheckpointError) as caught:
        open_checkpoint(path)
    assert caught.value.file == path and message in str(caught.value)


@pytest.mark.parametrize("key", [b"a.w", ("a", "w")])
def test_a_file_with_keys_that_stand_for_text(key, tmp_path):
    path = str(tmp_path / "a.pt")
    mt.save({key: mt.ones(2)}, path)
    (problem,) = verify(path)
    assert problem.kind == "not read"
    state = eval(problem.message.partition("; try ")[2], {"modtree": mt, "path": path})
    assert list(state) == ["a.w"] and state["a.w"].tolist() == [1, 1]


@pytest.mark.parametrize("keys, data", [(["tensor"], T), (["0", "1"], T + T + b"\x86")])
def test_tensors_without_a_state_dict(keys, data, tmp_path):
    with open_checkpoint(written(torch_file(data), tmp_path)) as checkpoint:
        assert checkpoint.keys() == keys
        assert checkpoint.tensor(keys[0]).tolist() == [0] * 4


def test_dicts_that_stand_everywhere(tmp_path):
    """2 ** 200 entries, in a file of a few thousand bytes."""
    part = entry("t", T)
    for place in range(200):
        memo = bytes([place])
        part = b"}(" + value("a") + part + b"q" + memo + value("b") + b"h" + memo + b"u"
    with pytest.raises(CheckpointError, match="containers in it stand at too many places"):
        open_checkpoint(written(torch_file(part), tmp_path))


def test_an_expanded_tensor_is_not_written_out(tmp_path):
    data = torch_file(entry("w", torch_tensor(storage(), 0, (1 << 40,), (0,))))
    with open_checkpoint(written(data, tmp_path)) as checkpoint:
        assert checkpoint.tensor("w").shape == (1 << 40,)
        with pytest.raises(
            CheckpointError, match="tensor 'w': its 1099511627776 elements are 1 in"
        ):
            next(checkpoint.chunks("w"))


def test_a_bool_that_is_none(tmp_path):
    memory = storage(b"torch BoolStorage", count=2)
    data = torch_file(entry("w", torch_tensor(memory, 0, (2,))), b"\0\2")
    with open_checkpoint(written(data, tmp_path)) as checkpoint:
        with pytest.raises(CheckpointError, match="tensor 'w': .* neither True nor False"):
            checkpoint.tensor("w")


@pytest.mark.skipif(sys.platform == "win32", reason="has no pipes with names")
def test_a_pipe_is_refused(tmp_path):
    os.mkfifo(tmp_path / "file.pt")
    with pytest.raises(CheckpointError, match="no regular file"):
        open_checkpoint(tmp_path / "file.pt")
