# SPDX-License-Identifier: BSD-3-Clause
"""Files in the form that torch had before 1.6, which it still writes on request."""

from __future__ import annotations

import collections
import contextlib
import io
import pickle
import random

import pytest

torch = pytest.importorskip("torch")

import modtree as mt  # noqa: E402


class Own:
    """Something that weights_only=True refuses."""

    def __init__(self, value):
        self.value = value


def old_file(value, **options):
    file = io.BytesIO()
    torch.save(value, file, _use_new_zipfile_serialization=False, **options)
    file.seek(0)
    return file


def values():
    base = torch.arange(12.0).reshape(3, 4)
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    return {
        "plain": base,
        "view": base[1:, ::2],
        "transposed": base.t(),
        "bool": torch.tensor([True, False]),
        "half": torch.ones(3, dtype=torch.float16),
        "int": torch.tensor(7),
        "complex": torch.ones(2, dtype=torch.complex64).conj(),
        "negated": torch._neg_view(torch.ones(2)),
        "empty": torch.ones(0, 3),
        "parameter": torch.nn.Parameter(torch.ones(2)),
        "state": net.state_dict(),
        "other": [1, "text", (None, 2.5)],
    }


def assert_same(mine, theirs):
    if isinstance(theirs, torch.Tensor):
        assert isinstance(mine, mt.Tensor) and mine.tolist() == theirs.tolist()
        assert str(mine.dtype).rpartition(".")[2] == str(theirs.dtype).rpartition(".")[2]
        assert mine.requires_grad == theirs.requires_grad
    elif isinstance(theirs, dict):
        assert list(mine) == list(theirs)
        for key, value in theirs.items():
            assert_same(mine[key], value)
    else:
        assert mine == theirs


@pytest.mark.parametrize("weights_only", [True, False, None])
@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_old_files_are_read(weights_only, protocol):
    value = values()
    back = mt.load(old_file(value, pickle_protocol=protocol), weights_only=weights_only)
    assert_same(back, value)
    assert type(back["state"]) is collections.OrderedDict
    back["plain"][1, 0] = 100.0  # of one memory, as before
    assert back["view"][0, 0] == 100.0 and back["transposed"][0, 1] == 100.0


def test_a_path_and_a_map_of_it(tmp_path):
    value = values()
    (tmp_path / "old.pt").write_bytes(old_file(value).getvalue())
    for mmap in (None, True):
        assert_same(mt.load(tmp_path / "old.pt", mmap=mmap), value)
    assert mt.load(tmp_path / "old.pt", "meta")["plain"].is_meta


def test_a_class_of_a_program_takes_weights_only_false():
    value = {"own": Own(torch.ones(2)), "more": collections.deque([torch.zeros(1)])}
    with pytest.raises(pickle.UnpicklingError, match="Own"):
        mt.load(old_file(value))
    back = mt.load(old_file(value), weights_only=False)
    assert type(back["own"]) is Own and back["own"].value.tolist() == [1, 1]
    assert type(back["own"].value) is mt.Tensor and back["more"][0].tolist() == [0]


def test_what_follows_in_the_file_is_left():
    first, second = old_file(torch.ones(2)).getvalue(), pickle.dumps("next")
    file = io.BytesIO(first + second)
    for weights_only in (True, False):
        file.seek(0)
        assert mt.load(file, weights_only=weights_only).tolist() == [1, 1]
        assert pickle.load(file) == "next"


@pytest.mark.parametrize("weights_only", [True, False])
def test_damaged_old_files_are_refused(weights_only):
    data = old_file({"w": torch.arange(4.0), "v": torch.ones(2)}).getvalue()
    for end in (len(data) - 1, len(data) - 20, len(data) - 40):
        with pytest.raises(pickle.UnpicklingError):
            mt.load(io.BytesIO(data[:end]), weights_only=weights_only)
    at = data.rindex((4).to_bytes(8, "little"))
    grown = data[:at] + (1 << 40).to_bytes(8, "little") + data[at + 8 :]
    with pytest.raises(pickle.UnpicklingError, match="damaged|truncated"):
        mt.load(io.BytesIO(grown), weights_only=weights_only)


def test_random_damages_of_old_files():
    data = old_file(values()).getvalue()
    rng = random.Random(5)
    for _ in range(300):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 3)):
            changed[rng.randrange(len(data))] = rng.randrange(256)
        with contextlib.suppress(pickle.UnpicklingError):
            mt.load(io.BytesIO(bytes(changed)))


def test_checkpoints_of_the_old_form(tmp_path):
    net = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    path = tmp_path / "old.bin"
    path.write_bytes(old_file({"state_dict": net.state_dict(), "epoch": 3}).getvalue())
    assert mt.checkpoints.verify(path) == []
    assert_same(dict(mt.load_file(path)), dict(net.state_dict()))
    mt.checkpoints.convert(path, tmp_path / "new.safetensors")
    assert not mt.compare(path, tmp_path / "new.safetensors")
    path.write_bytes(path.read_bytes()[:-1])
    assert [problem.kind for problem in mt.checkpoints.verify(path)] == ["damaged"]
