# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.save(format="torch")``: torch.load() reads the file in each of its ways, modtree.load()
too, and what shared memory still does.
"""

from __future__ import annotations

import collections
import importlib
import importlib.util
import io
import math
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn

needs_ml_dtypes = needs("ml_dtypes")

WAYS = {
    "weights": {"weights_only": True},
    "mapped": {"weights_only": True, "mmap": True},
    "trusted": {"weights_only": False},
    "trusted and mapped": {"weights_only": False, "mmap": True},
}
ways = pytest.mark.parametrize("way", WAYS)


def lib_of(name):
    return mt if name == "modtree" else importlib.import_module("torch")


libs = pytest.mark.parametrize("name", ["modtree", pytest.param("torch", marks=needs_torch)])


def back(value, tmp_path, name, way):
    path = tmp_path / "file.pt"
    mt.save(value, path, format="torch")
    return lib_of(name).load(path, **WAYS[way])


def tensors():
    base = mt.arange(24.0).reshape(4, 6)
    found = {
        "whole": base,
        "transposed": base.t(),
        "part": base[1:3, ::2],
        "number": mt.tensor(3.5),
        "empty": mt.zeros(0, 3),
        "expanded": mt.tensor([1.0]).expand(3, 5),
        "one": mt.ones(1, 1, 4),
        "integers": mt.tensor([-(2**62), 5]),
        "bools": mt.tensor([True, False, True]),
        "complex": mt.tensor([1 + 2j, -3j]),
        "doubles": mt.tensor([math.inf, -0.0], dtype=mt.float64),
        "halves": mt.ones(3).half(),
        "bytes": mt.tensor([1, 255], dtype=mt.uint8),
        "uint16": mt.tensor([1, 65535], dtype=mt.uint16),
        "uint64": mt.tensor([2**63 + 1], dtype=mt.uint64),
        "learned": mt.ones(2).requires_grad_(),
        "parameter": nn.Parameter(mt.ones(2, 3)),
        "frozen": nn.Parameter(mt.ones(2), requires_grad=False),
    }
    return found


def bits(tensor):
    """What is equal for tensors of both libraries exactly when their bytes are."""
    plain = tensor.detach()
    if str(plain.dtype).endswith(("bfloat16", "float8_e4m3fn", "float8_e5m2")):
        kind = "int16" if plain.element_size() == 2 else "uint8"
        lib = mt if isinstance(plain, mt.Tensor) else importlib.import_module("torch")
        plain = plain.view(getattr(lib, kind))
    return plain.numpy().tobytes()


def assert_same(new, old, key=""):
    assert str(new.dtype).partition(".")[2] == str(old.dtype).partition(".")[2], key
    assert tuple(new.shape) == tuple(old.shape) and new.stride() == old.stride(), key
    assert new.requires_grad == old.requires_grad, key
    assert type(new).__name__ == type(old).__name__, key
    assert bits(new) == bits(old), key


@ways
@libs
def test_tensors_come_back_bit_for_bit(name, way, tmp_path):
    value = tensors()
    new = back(value, tmp_path, name, way)
    assert list(new) == list(value)
    for key, old in value.items():
        assert isinstance(new[key], lib_of(name).Tensor)
        assert_same(new[key], old, key)


@ways
@libs
@needs_ml_dtypes
def test_stored_dtypes_come_back_bit_for_bit(name, way, tmp_path):
    numbers = mt.tensor([1.5, -2.25, math.inf])
    value = {"bfloat16": numbers.bfloat16(), "part": numbers.bfloat16()[::2]}
    value["float8"] = numbers[:2].to(mt.float8_e4m3fn)
    new = back(value, tmp_path, name, way)
    for key, old in value.items():
        assert_same(new[key], old, key)


@ways
@libs
def test_shared_memory_stays_shared(name, way, tmp_path):
    base = mt.arange(12.0)
    tied = nn.Parameter(mt.ones(2))
    value = {
        "matrix": base.reshape(3, 4),
        "transposed": base.reshape(3, 4).t(),
        "tail": base[8:],
        "bits": base.view(mt.int32)[2:4],
        "apart": base.clone(),
        "first": tied,
        "second": tied,
    }
    new = back(value, tmp_path, name, way)
    assert new["first"] is new["second"]
    new["matrix"][2, 1] = 100.0
    assert new["transposed"][1, 2].item() == 100.0 and new["tail"][1].item() == 100.0
    new["matrix"][0, 2] = 0.0
    assert new["bits"].tolist() == [0, 0x40400000]
    assert new["apart"].tolist() == base.tolist()
    assert new["tail"].storage_offset() == 8


@libs
def test_parts_that_do_not_touch_stay_in_one_storage(name, tmp_path):
    whole = mt.zeros(3, 1000)
    value = {"a": whole[0, :10], "b": whole[2, -10:]}
    mt.save(value, tmp_path / "file.pt", format="torch")
    with zipfile.ZipFile(tmp_path / "file.pt") as archive:
        assert [n for n in archive.namelist() if "/data/" in n] == ["archive/data/0"]
    new = lib_of(name).load(tmp_path / "file.pt")
    distance = new["b"].storage_offset() - new["a"].storage_offset()
    assert distance == 2 * 1000 + 990


def test_only_the_part_of_a_storage_in_use_is_written(tmp_path):
    large = mt.zeros(1 << 20)
    mt.save({"a": large[1000:1010], "b": large[1005:1020]}, tmp_path / "file.pt", format="torch")
    assert os.path.getsize(tmp_path / "file.pt") < 2000


@needs_torch
def test_memory_shared_with_torch_is_written_once(tmp_path):
    torch = importlib.import_module("torch")
    theirs = torch.arange(6.0)
    value = {"theirs": theirs.view(2, 3), "ours": mt.from_torch(theirs[2:]), "apart": theirs + 0}
    mt.save(value, tmp_path / "file.pt", format="torch")
    new = torch.load(tmp_path / "file.pt")
    new["theirs"][0, 2] = 50
    assert new["ours"].tolist() == [50, 3, 4, 5]
    assert new["ours"].untyped_storage().data_ptr() == new["theirs"].untyped_storage().data_ptr()
    assert new["apart"].tolist() == [0, 1, 2, 3, 4, 5]


PLAIN = {
    "none": None,
    "flags": [True, False],
    "integers": [0, 255, 256, 65536, -1, 2**31, -(2**31), 2**63, -(2**2000)],
    "floats": (0.5, -math.inf, 1e-300),
    "text": ["", "ü€😀", "twice", "twice", "\ud800"],
    "bytes": [b"", b"\x00\xff", bytearray(b"ab")],
    "complex": 1 - 2j,
    "nested": {"a": [{"b": ((), (1,), [[]])}], 3: {4: {}}, (1, "x"): 1.0, None: 0},
    "set": {1, "a", (2, 3)},
    "ordered": collections.OrderedDict(b=1, a=2),
    "counter": collections.Counter("abca"),
    "empty": [[], {}, (), set(), collections.OrderedDict()],
}


@ways
@libs
def test_plain_values(name, way, tmp_path):
    new = back(PLAIN, tmp_path, name, way)
    assert new == PLAIN and list(new) == list(PLAIN)
    assert [type(v) for v in new.values()] == [type(v) for v in PLAIN.values()]
    assert list(map(type, new["empty"])) == list(map(type, PLAIN["empty"]))
    assert type(new["flags"][0]) is bool and list(new["ordered"]) == ["b", "a"]


@ways
@libs
def test_names(name, way, tmp_path):
    value = {"dtype": [mt.float32, mt.int64, mt.bfloat16], "size": mt.Size([2, 3])}
    value |= {"device": mt.device("cpu"), "meta": mt.device("meta")}
    new, lib = back(value, tmp_path, name, way), lib_of(name)
    assert new == {
        "dtype": [lib.float32, lib.int64, lib.bfloat16],
        "size": lib.Size([2, 3]),
        "device": lib.device("cpu"),
        "meta": lib.device("meta"),
    }
    assert type(new["size"]) is lib.Size


@libs
def test_what_was_one_object_is_one_object(name, tmp_path):
    inner = [1]
    value = {"a": inner, "b": inner, "c": (inner, inner)}
    value["itself"] = value
    new = back(value, tmp_path, name, "weights")
    assert new["a"] is new["b"] is new["c"][0] and new["itself"] is new


@libs
def test_numbers_and_arrays_of_numpy(name, tmp_path):
    value = {
        "float": np.float32(1.5),
        "int": np.int64(-3),
        "bool": np.bool_(True),
        "complex": np.complex64(1j),
        "text": np.str_("a"),
        "backwards": np.arange(6.0).reshape(2, 3)[:, ::-1],
        "big": np.arange(3, dtype=">i4"),
        "odd": np.zeros(3, [("a", "i1"), ("b", "<f4")])["b"],
    }
    new = back(value, tmp_path, name, "weights")
    plain = {k: new[k] for k in ("float", "int", "bool", "complex", "text")}
    assert plain == {"float": 1.5, "int": -3, "bool": True, "complex": 1j, "text": "a"}
    assert [type(v) for v in plain.values()] == [float, int, bool, complex, str]
    for key in ("backwards", "big", "odd"):
        assert isinstance(new[key], lib_of(name).Tensor) and new[key].is_contiguous()
        assert new[key].tolist() == value[key].tolist()


@ways
@libs
def test_attributes_of_tensors(name, way, tmp_path):
    tagged, parameter = mt.ones(2), nn.Parameter(mt.ones(2))
    tagged.tag = {"a": mt.zeros(1)}
    parameter.is_expert = True
    new = back({"t": tagged, "p": parameter, "again": tagged}, tmp_path, name, way)
    assert new["t"].tag["a"].tolist() == [0.0] and new["p"].is_expert is True
    assert new["again"] is new["t"] and isinstance(new["p"], lib_of(name).nn.Parameter)


@libs
def test_tensors_on_meta(name, tmp_path):
    value = {"t": mt.zeros(2, 3, device="meta"), "p": nn.Parameter(mt.zeros(4, device="meta"))}
    new = back(value, tmp_path, name, "weights")
    assert new["t"].is_meta and tuple(new["t"].shape) == (2, 3) and new["t"].stride() == (3, 1)
    assert new["p"].is_meta and isinstance(new["p"], lib_of(name).nn.Parameter)
    assert os.path.getsize(tmp_path / "file.pt") < 2000


# -- state dicts -----------------------------------------------------------------------------------


class Counts(nn.Module):
    """Has extra state, and a tie."""

    _version = 7

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 2, bias=False), nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.norm = nn.BatchNorm1d(2)
        self.calls = 3

    def get_extra_state(self):
        return {"calls": self.calls, "ids": mt.tensor([1, 2])}

    def set_extra_state(self, state):
        self.calls = state["calls"] + int(state["ids"].sum())


@ways
@libs
def test_a_state_dict_keeps_versions_ties_and_extra_state(name, way, tmp_path):
    model = Counts()
    new = back(model.state_dict(), tmp_path, name, way)
    assert type(new) is collections.OrderedDict
    assert new._metadata == model.state_dict()._metadata and new._metadata[""]["version"] == 7
    other = Counts()
    other.calls = 0
    other.load_state_dict(new)
    assert other.calls == 3 + 3 and other.a.weight.tolist() == model.a.weight.tolist()
    new["a.weight"][0, 0] = 9.0
    assert new["b.weight"][0, 0].item() == 9.0


@needs_torch
@pytest.mark.parametrize("optimizer", ["SGD", "Adam", "AdamW", "Adagrad"])
def test_training_goes_on_in_torch(optimizer, tmp_path):
    torch = importlib.import_module("torch")
    x = np.random.default_rng(0).standard_normal((5, 3))

    def step(lib, model, optimizer):
        optimizer.zero_grad()
        model(lib.from_numpy(x)).pow(2).mean().backward()
        optimizer.step()

    ours = nn.Linear(3, 2).double()
    our_optimizer = getattr(mt.optim, optimizer)(ours.parameters(), lr=0.1)
    step(mt, ours, our_optimizer)
    checkpoint = {"m": ours.state_dict(), "o": our_optimizer.state_dict(), "epoch": 1}
    mt.save(checkpoint, tmp_path / "file.pt", format="torch")
    loaded = torch.load(tmp_path / "file.pt")
    theirs = torch.nn.Linear(3, 2).double()
    their_optimizer = getattr(torch.optim, optimizer)(theirs.parameters(), lr=0.5)
    theirs.load_state_dict(loaded["m"])
    their_optimizer.load_state_dict(loaded["o"])
    step(mt, ours, our_optimizer)
    step(torch, theirs, their_optimizer)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.detach().numpy(), q.detach().numpy(), rtol=1e-12)


@needs_torch
@needs_ml_dtypes
@pytest.mark.parametrize("mapped", [False, True])
def test_from_torch_to_modtree_and_back(mapped, tmp_path):
    torch = importlib.import_module("torch")
    model = torch.nn.Sequential(torch.nn.Linear(2, 3), torch.nn.BatchNorm1d(3))
    model.register_buffer("halves", torch.randn(3, 4).bfloat16().t())
    model.register_buffer("eighths", torch.randn(3).to(torch.float8_e5m2))
    model.extra = torch.nn.Linear(2, 3)
    model.extra.weight = model[0].weight
    state = model.state_dict()
    state["part"] = state["halves"][1:, ::2]
    state["_extra_state"] = {"a": [1, torch.ones(2)]}
    torch.save(state, tmp_path / "theirs.pt")
    mt.save(mt.load(tmp_path / "theirs.pt", mmap=mapped), tmp_path / "ours.pt", format="torch")
    old, new = (torch.load(tmp_path / n, weights_only=True) for n in ("theirs.pt", "ours.pt"))
    assert list(new) == list(old) and new._metadata == old._metadata
    for key in old:
        if key != "_extra_state":
            assert bits(new[key].contiguous()) == bits(old[key].contiguous()), key
            assert new[key].stride() == old[key].stride() and new[key].dtype == old[key].dtype
            assert new[key].storage_offset() == old[key].storage_offset(), key
    assert new["_extra_state"]["a"][1].tolist() == [1, 1]
    for shared in (("0.weight", "extra.weight"), ("halves", "part")):
        a, b = (new[key].untyped_storage().data_ptr() for key in shared)
        assert a == b, shared


@needs_torch
def test_leaves_of_torch(tmp_path):
    torch = importlib.import_module("torch")
    base = torch.arange(6.0)
    parameter = torch.nn.Parameter(torch.ones(2).bfloat16(), requires_grad=False)
    parameter.tag = "x"
    value = {
        "base": base,
        "part": base.view(2, 3).t()[1:],
        "conjugated": torch.tensor([1 + 2j]).conj(),
        "negated": torch._neg_view(torch.ones(2)),
        "parameter": parameter,
        "same": parameter,
        "meta": torch.empty(2, 3, device="meta").t(),
        "names": [torch.float16, torch.Size([1]), torch.device("cpu")],
        "ours": mt.ones(2),
    }
    mt.save(value, tmp_path / "file.pt", format="torch")
    new = torch.load(tmp_path / "file.pt", weights_only=True)
    for key in ("base", "part", "conjugated", "negated", "parameter"):
        assert torch.equal(new[key], value[key]) and new[key].dtype == value[key].dtype, key
    assert new["parameter"] is new["same"] and new["same"].tag == "x"
    assert new["names"] == value["names"] and new["ours"].tolist() == [1, 1]
    assert new["meta"].is_meta and new["meta"].stride() == (1, 3)
    new["base"][1] = 7
    assert new["part"][0, 0].item() == 7


# -- the file --------------------------------------------------------------------------------------


def test_records_are_plain_and_aligned(tmp_path):
    mt.save({"a": mt.ones(3), "b": mt.ones(5).double()}, tmp_path / "file.pt", format="torch")
    data = (tmp_path / "file.pt").read_bytes()
    with zipfile.ZipFile(tmp_path / "file.pt") as archive:
        assert archive.testzip() is None
        for entry in archive.infolist():
            assert entry.compress_type == zipfile.ZIP_STORED
        assert archive.read("archive/version") == b"3\n"
        assert archive.read("archive/byteorder") == sys.byteorder.encode()
        for key in ("0", "1"):
            values = archive.read(f"archive/data/{key}")
            assert data.index(values) % 64 == 0


def test_equal_objects_give_equal_files():
    files = [io.BytesIO(), io.BytesIO()]
    for file in files:
        mt.save({"a": mt.ones(3)}, file, format="torch")
    assert files[0].getvalue() == files[1].getvalue()


def test_a_file_that_only_writes():
    class Sink:
        def __init__(self):
            self.data = bytearray()

        def write(self, data):
            self.data += data
            return len(data)

    sink = Sink()
    mt.save({"a": mt.ones(3)}, sink, format="torch")
    assert mt.load(io.BytesIO(sink.data))["a"].tolist() == [1, 1, 1]


@pytest.mark.slow
@libs
def test_more_records_than_old_archives_can_have(name, tmp_path):
    count = 66_000
    value = [mt.tensor([i]) for i in range(count)]
    new = back(value, tmp_path, name, "weights")
    assert len(new) == count and all(new[i].item() == i for i in range(0, count, 997))


def test_torch_is_not_needed(tmp_path):
    script = (
        "import sys\n"
        "sys.modules['torch'] = None\n"
        "import modtree as mt\n"
        f"mt.save(mt.nn.Linear(2, 3).state_dict(), {str(tmp_path / 'file.pt')!r}, format='torch')\n"
    )
    root = str(Path(mt.__file__).parents[1])
    subprocess.run(
        [sys.executable, "-c", script], check=True, env={**os.environ, "PYTHONPATH": root}
    )
    assert list(mt.load(tmp_path / "file.pt")) == ["weight", "bias"]


# -- what cannot be said ---------------------------------------------------------------------------


class Kept(dict):
    pass


class Marked(mt.Tensor):
    pass


Point = collections.namedtuple("Point", "x y")

REFUSED = {
    "a module": (nn.Linear(1, 1), "obj is a modtree.nn.linear.Linear", "save its state_dict()"),
    "an optimizer": (
        {"o": mt.optim.SGD([mt.ones(1)], 0.1)},
        "obj['o'] is a modtree.optim.sgd.SGD",
        "save its state_dict()",
    ),
    "a function": ({"a": [1, len]}, "obj['a'][1] is a builtins.builtin_function", "tensors"),
    "a class": ([int], "obj[0] is a builtins.type", "tensors, numbers, text"),
    "a dict of a class": ({"a": {"b": Kept()}}, "obj['a']['b'] is a ", "plain dict"),
    "a named tuple": ([Point(1, 2)], "obj[0] is a ", "plain dict, list or tuple"),
    "a tensor of a class": (
        {"t": mt.ones(1).as_subclass(Marked)},
        "obj['t'] is a tensor of class",
        "plain tensor",
    ),
    "an uninitialized parameter": (
        nn.LazyLinear(2).state_dict(),
        "obj['weight'] is a modtree.nn.parameter.UninitializedParameter",
        "no shape yet",
    ),
    "text of NumPy": ({"a": np.array(["x"])}, "obj['a'] is a NumPy ndarray of dtype <U1", ""),
    "a time": ([np.datetime64("2020")], "obj[0] is a NumPy value of dtype datetime64", ""),
    "a frozenset": ([frozenset((1,))], "obj[0] is a builtins.frozenset", ""),
    "a key": ({(1, b"x", frozenset()): 1}, "obj's keys[2] is a builtins.frozenset", ""),
    "an attribute": (None, "obj['t'].tag is a builtins.object", ""),
}
_tagged = mt.ones(1)
_tagged.tag = object()
REFUSED["an attribute"] = ({"t": _tagged}, *REFUSED["an attribute"][1:])


@pytest.mark.parametrize("case", REFUSED)
def test_what_torch_would_not_read_is_refused_with_its_place(case, tmp_path):
    value, place, advice = REFUSED[case]
    path = tmp_path / "file.pt"
    path.write_bytes(b"old")
    with pytest.raises(TypeError) as caught:
        mt.save(value, path, format="torch")
    assert place in str(caught.value) and advice in str(caught.value), str(caught.value)
    assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["file.pt"]


@needs_torch
@pytest.mark.parametrize("kind", ["sparse", "quantized", "subclass", "uninitialized"])
@pytest.mark.filterwarnings("ignore")
def test_leaves_of_torch_that_are_refused(kind, tmp_path):
    torch = importlib.import_module("torch")
    value = {
        "sparse": lambda: torch.eye(2).to_sparse(),
        "quantized": lambda: torch.quantize_per_tensor(torch.ones(2), 1.0, 0, torch.qint8),
        "subclass": lambda: torch.ones(2).as_subclass(type("Marked", (torch.Tensor,), {})),
        "uninitialized": torch.nn.UninitializedParameter,
    }[kind]()
    with pytest.raises(TypeError, match=r"obj\['a'\] is "):
        mt.save({"a": value}, tmp_path / "file.pt", format="torch")


def test_numbers_that_are_too_long():
    with pytest.raises(ValueError, match=r"obj\['a'\] is a number of 2048 bits"):
        mt.save({"a": 1 << 2047}, io.BytesIO(), format="torch")


def test_a_tuple_that_contains_itself():
    inner: list = []
    value = (inner,)
    inner.append(value)
    with pytest.raises(ValueError, match=r"obj\[0\]\[0\] is a tuple that contains itself"):
        mt.save(value, io.BytesIO(), format="torch")


def test_containers_that_are_nested_too_deeply():
    deep: list = []
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(RecursionError, match="nested too deeply to be written"):
        mt.save(deep, io.BytesIO(), format="torch")
    del deep


def test_memory_that_no_file_can_say():
    memory = np.zeros(64, np.uint8)
    value = {"a": mt.from_numpy(memory[1:5]), "b": mt.from_numpy(memory[4:12].view(np.float32))}
    with pytest.raises(
        ValueError, match=r"obj\['b'\] shares memory with a tensor of another dtype"
    ):
        mt.save(value, io.BytesIO(), format="torch")


def test_a_format_that_there_is_not(tmp_path):
    with pytest.raises(ValueError, match="formats 'modtree' and 'torch', got 'zip'"):
        mt.save({}, tmp_path / "file.pt", format="zip")


# -- reading by map --------------------------------------------------------------------------------


@pytest.mark.parametrize("weights_only", [True, False])
def test_a_map_is_private_and_lasts(weights_only, tmp_path):
    path = tmp_path / "file.pt"
    mt.save({"a": mt.ones(4), "b": mt.tensor([True, False])}, path, format="torch")
    before = path.read_bytes()
    new = mt.load(path, mmap=True, weights_only=weights_only)
    new["a"] += 1
    assert path.read_bytes() == before and new["a"].tolist() == [2, 2, 2, 2]
    path.unlink()
    assert new["a"].tolist() == [2, 2, 2, 2] and new["b"].tolist() == [True, False]


def test_mapped_tensors_take_no_memory_of_their_own(tmp_path):
    path = tmp_path / "file.pt"
    mt.save({"a": mt.ones(1 << 24)}, path, format="torch")
    script = (
        "import resource, sys\n"
        "import modtree as mt\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        f"value = mt.load({str(path)!r}, mmap=True)['a']\n"
        "assert value[-1].item() == 1.0 and value.shape == (1 << 24,)\n"
        "print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)\n"
    )
    root = str(Path(mt.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "-c", script],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": root},
    )
    assert int(done.stdout) < (1 << 24) * 4 // 1024 // 4  # KiB: a quarter of the tensor


def test_a_map_takes_a_path():
    file = io.BytesIO()
    mt.save({"a": mt.ones(4)}, file, format="torch")
    file.seek(0)
    with pytest.raises(ValueError, match="f must be a file path in order to use mmap=True"):
        mt.load(file, mmap=True)


# -- whole or not at all ---------------------------------------------------------------------------


class Fails:
    def __reduce__(self):
        raise RuntimeError("no more")


@pytest.mark.parametrize("protocol", [2, 5])
def test_a_save_that_fails_leaves_the_old_file(protocol, tmp_path):
    path = tmp_path / "file"
    mt.save({"a": 1}, path)
    with pytest.raises(RuntimeError, match="no more"):
        mt.save({"large": mt.ones(1 << 16), "b": Fails()}, path, pickle_protocol=protocol)
    assert mt.load(path) == {"a": 1} and os.listdir(tmp_path) == ["file"]
