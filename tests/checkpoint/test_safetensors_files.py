# SPDX-License-Identifier: BSD-3-Clause
"""save_file and load_file: everything that a state dict has comes back, and the library reads the
files too.
"""

from __future__ import annotations

import importlib
import os
import pickle
import random
import subprocess
import sys
from collections import OrderedDict

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn

safetensors = pytest.importorskip("safetensors")
pytest.importorskip("safetensors.numpy")

needs_ml_dtypes = needs("ml_dtypes")

PLAIN = ("bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64") + (
    "float16",
    "float32",
    "float64",
    "complex64",
)
STORED = (
    "bfloat16",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
)


def values(name, shape=(3, 5)):
    array = np.arange(15).reshape(shape) % 4
    return mt.from_numpy(array).to(getattr(mt, name))


def assert_equal(read, written):
    assert list(read) == list(written)
    for key, value in written.items():
        if isinstance(value, mt.Tensor):
            assert read[key].dtype == value.dtype
            assert tuple(read[key].shape) == tuple(value.shape)
            bits = [np.ascontiguousarray(t.numpy()).tobytes() for t in (read[key], value)]
            assert bits[0] == bits[1]
        else:
            assert read[key] == value and type(read[key]) is type(value)


def saved(state, tmp_path, **options):
    path = tmp_path / "a.safetensors"
    mt.save_file(state, path, **options)
    return path


def round_trip(state, tmp_path):
    return mt.load_file(saved(state, tmp_path))


@pytest.mark.parametrize(
    "name", [*PLAIN, *(pytest.param(n, marks=needs_ml_dtypes) for n in STORED)]
)
def test_every_dtype_comes_back_bit_for_bit(name, tmp_path):
    state = {"a": values(name), "scalar": values(name).reshape(-1)[3], "none": values(name)[:0]}
    assert_equal(round_trip(state, tmp_path), state)
    assert tuple(round_trip(state, tmp_path)["none"].shape) == (0, 5)


def test_the_library_reads_what_is_written(tmp_path):
    state = {n: values(n) for n in PLAIN if n != "complex64"}
    state["empty"], state["0-d"] = mt.zeros(0, 3), mt.tensor(2.5)
    read = safetensors.numpy.load_file(saved(state, tmp_path))
    assert read.keys() == state.keys()
    for key, value in state.items():
        np.testing.assert_array_equal(read[key], value.numpy(), strict=True)


def test_what_the_library_writes_is_read(tmp_path):
    arrays = {n: values(n).numpy() for n in PLAIN if n != "complex64"}
    safetensors.numpy.save_file(arrays, tmp_path / "a.safetensors", metadata={"who": "library"})
    read = mt.load_file(tmp_path / "a.safetensors")
    assert read.keys() == arrays.keys()
    for key, array in arrays.items():
        np.testing.assert_array_equal(read[key].numpy(), array, strict=True)
    with mt.checkpoints.open_checkpoint(tmp_path / "a.safetensors") as checkpoint:
        assert checkpoint.metadata == {"who": "library"}
        assert not hasattr(checkpoint.state_dict(), "_metadata")


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a.T,
        lambda a: a[::2, ::3],
        lambda a: a[::-1],
        lambda a: a[:, ::-1],
        lambda a: np.broadcast_to(a[0], (4, 6)),
        lambda a: a[1, 2],
        lambda a: a[:, 2:2],
        lambda a: a.astype(">f8"),
        lambda a: np.frombuffer(b"\0" + a.tobytes(), np.uint8)[1:].view(a.dtype).reshape(a.shape),
    ],
    ids="transposed strided reversed negative expanded scalar empty big-endian unaligned".split(),
)
def test_layouts_in_memory(view, tmp_path):
    array = np.asarray(view(np.arange(24.0).reshape(4, 6)))
    read = round_trip({"a": array}, tmp_path)["a"]
    np.testing.assert_array_equal(read.numpy(), array)
    assert read.numpy().flags.c_contiguous and read.numpy().flags.aligned


def test_values_behind_an_odd_number_of_bytes_are_aligned(tmp_path):
    arrays = {"a": np.zeros(3, np.uint8), "b": np.arange(4.0)}
    read = round_trip(arrays, tmp_path)
    assert list(read) == ["a", "b"]
    assert read["b"].numpy().ctypes.data % 8 == 0
    odd = header('{"a":{"dtype":"U8","shape":[3],"data_offsets":[0,3]},'
                 '"b":{"dtype":"F64","shape":[1],"data_offsets":[3,11]}}')  # fmt: skip
    (tmp_path / "odd.safetensors").write_bytes(odd + b"\1\2\3" + np.float64(1.5).tobytes())
    read = mt.load_file(tmp_path / "odd.safetensors")["b"].numpy()
    assert read.tolist() == [1.5] and read.flags.aligned


def header(text):
    return len(text.encode()).to_bytes(8, "little") + text.encode()


DTYPES = [np.dtype(name) for name in PLAIN if name != "complex64"]


def random_leaf(rng, arrays):
    """An array with elements in any order, small or large; of its own or of another one's memory"""
    kind = rng.randrange(8)
    if kind == 0 and arrays:
        return rng.choice(arrays)
    if kind == 1 and arrays:
        array = rng.choice(arrays)
        return array[rng.randrange(3) :] if array.ndim else array[None]
    shape = [rng.choice((0, 1, 2, 3, 5)) for _ in range(rng.randrange(4))]
    if kind == 2:
        shape = [rng.choice((40_000, 70_000)), 2]
    dtype = rng.choice(DTYPES)
    array = (np.arange(np.prod(shape, dtype=int)) % 100).reshape(shape).astype(dtype)
    if kind == 3 and dtype.itemsize > 1:
        return array.astype(dtype.newbyteorder(">"))
    if kind == 4:
        return array.T
    return array[::-1] if kind == 5 and array.ndim else array


@pytest.mark.parametrize(
    "libraries", ["numpy", "modtree", pytest.param("all", marks=needs("torch"))]
)
@pytest.mark.parametrize("seed", range(6))
def test_many_tensors_of_all_kinds(libraries, seed, tmp_path):
    rng = random.Random(seed)
    torch = importlib.import_module("torch") if libraries == "all" else None
    arrays, state, parts = [], {}, "abcdefgh"
    for i in range(rng.choice((0, 1, 2, 300))):
        array = random_leaf(rng, arrays)
        arrays.append(array)
        key = f"{rng.choice(parts)}.{i}"
        which = rng.choice(("numpy", "modtree", "torch")) if libraries == "all" else libraries
        is_usual = array.dtype.isnative and all(step >= 0 for step in array.strides)
        if which == "torch" and is_usual and min(array.strides, default=1):
            state[key] = torch.from_numpy(array)
        else:
            state[key] = mt.from_numpy(array) if which == "modtree" and is_usual else array
    path = saved(state, tmp_path)
    read = mt.load_file(path)
    assert list(read) == list(state)
    for (key, value), array in zip(state.items(), arrays, strict=True):
        np.testing.assert_array_equal(read[key].numpy(), array, err_msg=key)
        assert str(read[key].dtype).rpartition(".")[2] == array.dtype.name, (key, type(value))
    written = safetensors.numpy.load_file(path)
    for key, array in written.items():
        np.testing.assert_array_equal(read[key].numpy(), array, strict=True)
    memory = {np.lib.array_utils.byte_bounds(a) for a in arrays if a.size}
    assert len([a for a in written.values() if a.size]) <= len(memory)


# -- a model ---------------------------------------------------------------------------------------


class WithExtraState(nn.Module):
    def __init__(self, extra):
        super().__init__()
        self.linear = nn.Linear(2, 2)
        self.extra = extra

    def get_extra_state(self):
        return self.extra

    def set_extra_state(self, state):
        self.extra = state


def tied_model():
    model = nn.Sequential(nn.Embedding(4, 3), nn.BatchNorm1d(3), nn.Linear(3, 4, bias=False))
    model[2].weight = model[0].weight
    return model


def test_a_model_comes_back_with_versions_and_order(tmp_path):
    model = nn.Sequential(tied_model(), WithExtraState({"step": 3}))
    written = model.state_dict()
    read = round_trip(model, tmp_path)
    assert_equal(read, written)
    assert read._metadata == written._metadata
    assert type(read._metadata) is OrderedDict
    other = nn.Sequential(tied_model(), WithExtraState(None))
    assert str(other.load_state_dict(read)) == "<All keys matched successfully>"
    assert_equal(other.state_dict(), written)


@pytest.mark.parametrize(
    "extra", [None, True, 3, -0.5, "text é", [1, [2]], {"a": {"b": None}}, float("inf"), {}]
)
def test_extra_state_comes_back(extra, tmp_path):
    read = round_trip(WithExtraState(extra), tmp_path)
    assert read["_extra_state"] == extra and type(read["_extra_state"]) is type(extra)


def test_extra_state_may_be_a_tensor(tmp_path):
    model = WithExtraState(mt.arange(3))
    assert round_trip(model, tmp_path)["_extra_state"].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("extra", "what"),
    [
        ((1, 2), "has no tuple"),
        ({1: 2}, "has no dict with a key such as 1"),
        ([{3}], "has no set"),
        ({"a": mt.zeros(1)}, "has no Tensor"),
        (b"x", "has no bytes"),
        (OrderedDict(a=1), "has no OrderedDict"),
    ],
)
def test_extra_state_that_json_cannot_say(extra, what, tmp_path):
    with pytest.raises(mt.CheckpointError, match=what) as caught:
        saved(WithExtraState(extra), tmp_path)
    assert caught.value.tensor == "_extra_state"
    assert os.listdir(tmp_path) == []


def test_ties_are_one_tensor_again_and_written_once(tmp_path):
    path = saved(tied_model(), tmp_path)
    read = mt.load_file(path)
    assert list(read) == list(tied_model().state_dict())
    read["0.weight"].fill_(5)
    assert read["2.weight"].tolist() == [[5.0] * 3] * 4
    with safetensors.safe_open(path, "numpy") as file:
        assert sorted(file.keys()) == [k for k in sorted(read) if k != "2.weight"]
        assert file.metadata()["2.weight"] == "0.weight"
        assert file.metadata()["format"] == "pt"


def test_views_share_memory_again(tmp_path):
    flat = mt.arange(12.0)
    state = {"first": flat[:4], "flat": flat, "grid": flat[2:].view(2, 5).T, "apart": mt.ones(2)}
    read = round_trip(state, tmp_path)
    assert_equal(read, state)
    read["flat"].fill_(7)
    assert read["first"].tolist() == [7.0] * 4 and read["grid"].tolist() == [[7.0] * 2] * 5
    assert read["apart"].tolist() == [1.0, 1.0]


@pytest.mark.parametrize("ending", ["safetensors", "pt"])
def test_a_view_under_several_keys_is_one_tensor_again(ending, tmp_path):
    flat = mt.arange(12.0)
    part = flat[2:6]
    state = {"part": part, "flat": flat, "again": part, "alike": flat[2:6], "last": flat}
    path = tmp_path / f"a.{ending}"
    if ending == "pt":
        mt.save(state, path, format="torch")
    else:
        mt.save_file(state, path)
    for other in ("safetensors", "pt", "safetensors"):
        read = mt.load_file(path)
        assert_equal(read, state)
        assert read["part"] is read["again"] and read["flat"] is read["last"]
        read["flat"].fill_(7)
        assert read["part"].tolist() == read["alike"].tolist() == [7.0] * 4
        meta = mt.load_file(path, device="meta")
        assert [tuple(t.shape) for t in meta.values()] == [tuple(t.shape) for t in state.values()]
        before, path = path, tmp_path / f"b{ending}.{other}"
        mt.checkpoints.convert(before, path)


def test_views_of_memory_that_no_tensor_covers_come_back_apart(tmp_path):
    flat = mt.arange(12.0)
    state = {"a": flat[:6], "b": flat[3:], "odd": flat[1::2], "wide": flat[:1].expand(30)}
    assert_equal(round_trip(state, tmp_path), state)


def test_a_large_expanded_view_is_no_view_of_a_small_tensor(tmp_path):
    small = mt.arange(3.0)
    state = {"small": small, "wide": small.expand(50, 3)}
    path = saved(state, tmp_path)
    assert_equal(mt.load_file(path), state)
    assert set(safetensors.numpy.load_file(path)) == {"small", "wide"}


def test_a_tie_of_an_older_writer_is_read(tmp_path):
    safetensors.numpy.save_file(
        {"a": np.ones(3)}, tmp_path / "a.safetensors", metadata={"b": "a", "format": "a", "x": "y"}
    )
    read = mt.load_file(tmp_path / "a.safetensors")
    assert list(read) == ["a", "b"] and read["b"] is read["a"]


def test_metadata(tmp_path):
    path = saved({"a": mt.ones(1)}, tmp_path, metadata={"step": "3", "best": "a", "format": "np"})
    with safetensors.safe_open(path, "numpy") as file:
        assert {"step": "3", "best": "a", "format": "np"}.items() <= file.metadata().items()
    with mt.checkpoints.open_checkpoint(path) as checkpoint:
        assert checkpoint.metadata == {"step": "3", "best": "a", "format": "np"}
    assert list(mt.load_file(path)) == ["a"]  # "best" is no tie


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        ({"step": 3}, TypeError, "metadata maps text to text, got 'step': 3"),
        ({"modtree": "x"}, ValueError, "the name 'modtree' is taken"),
        ({"2.weight": "x"}, ValueError, "the name '2.weight' is taken"),
    ],
)
def test_metadata_that_cannot_be_written(metadata, error, message, tmp_path):
    with pytest.raises(error, match=message):
        saved(tied_model(), tmp_path, metadata=metadata)


def test_a_folder_takes_model_safetensors(tmp_path):
    mt.save_file(tied_model(), tmp_path)
    assert os.listdir(tmp_path) == ["model.safetensors"]
    assert list(mt.load_file(tmp_path)) == list(tied_model().state_dict())


def test_meta_tensors_of_a_file(tmp_path):
    read = mt.load_file(saved(tied_model(), tmp_path), device="meta")
    written = tied_model().state_dict()
    assert {k: (v.dtype, v.shape) for k, v in read.items()} == {
        k: (v.dtype, v.shape) for k, v in written.items()
    }
    assert all(tensor.is_meta for tensor in read.values())
    with pytest.raises((RuntimeError, ValueError, AssertionError, NotImplementedError)):
        mt.load_file(tmp_path / "a.safetensors", device="cuda")


# -- what cannot be written ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("state", "message"),
    [
        ({"a": mt.zeros(1), "b": mt.zeros(1, dtype=mt.complex128)}, "have no complex128"),
        ({"b": mt.zeros(1, device="meta")}, "on the meta device and has no values"),
        ({"b": np.array(["x"])}, "have no str"),
        ({"b": np.array([None])}, "have no object"),
        ({"__metadata__": mt.zeros(1)}, "keeps this name for itself"),
        ({"b\udc80": mt.zeros(1)}, r"UTF-8, which has no '\\udc80'"),
        ({3: mt.zeros(1)}, "keys must be str, got 3"),
    ],
)
def test_what_cannot_be_written(state, message, tmp_path):
    (tmp_path / "a.safetensors").write_bytes(b"old")
    with pytest.raises(mt.CheckpointError, match=message) as caught:
        saved(state, tmp_path)
    assert caught.value.file == str(tmp_path / "a.safetensors")
    if "b" in state:
        assert caught.value.tensor == "b"
    assert (tmp_path / "a.safetensors").read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["a.safetensors"]


def test_what_is_no_state_dict(tmp_path):
    with pytest.raises(TypeError, match="expected a module or a state dict, got list"):
        saved([mt.zeros(1)], tmp_path)


def test_uninitialized_parameters_are_named(tmp_path):
    with pytest.raises(mt.CheckpointError, match="not initialized") as caught:
        saved(nn.LazyLinear(3), tmp_path)
    assert caught.value.tensor == "weight"


def test_the_error_survives_pickling():
    error = mt.CheckpointError("too short", "a.safetensors", "weight")
    again = pickle.loads(pickle.dumps(error))
    assert str(again) == str(error) == "a.safetensors: tensor 'weight': too short"
    assert (again.reason, again.file, again.tensor) == ("too short", "a.safetensors", "weight")
    assert isinstance(error, ValueError)


def test_load_names_the_function_for_such_files(tmp_path):
    path = saved({"a": mt.ones(1)}, tmp_path)
    with pytest.raises(pickle.UnpicklingError, match="modtree.load_file"):
        mt.load(path)


# -- without ml_dtypes -----------------------------------------------------------------------------

WITHOUT = """
import sys
sys.modules["ml_dtypes"] = None
import modtree as mt
state = mt.load_file(sys.argv[1])
assert state["a"].dtype == mt.float32, state["a"].dtype
assert state["a"].tolist() == [0.5, -3.0, float("inf")], state["a"]
assert state["c"].shape == () and state["c"].item() == 0.5, state["c"]
with mt.checkpoints.open_checkpoint(sys.argv[2]) as checkpoint:
    assert checkpoint.entries["b"].dtype == "float8_e5m2"
    try:
        checkpoint.tensor("b")
    except mt.CheckpointError as error:
        assert error.tensor == "b" and "pip install ml_dtypes" in str(error), error
    else:
        raise AssertionError("no error")
"""


def test_bfloat16_without_ml_dtypes_is_widened(tmp_path):
    bits = (np.array([0.5, -3.0, np.inf], np.float32).view(np.uint32) >> 16).astype("<u2")
    head = header(
        '{"a":{"dtype":"BF16","shape":[3],"data_offsets":[0,6]},'
        '"c":{"dtype":"BF16","shape":[],"data_offsets":[6,8]}}'
    )
    (tmp_path / "a.safetensors").write_bytes(head + bits.tobytes() + bits[:1].tobytes())
    head = header('{"b":{"dtype":"F8_E5M2","shape":[1],"data_offsets":[0,1]}}')
    (tmp_path / "b.safetensors").write_bytes(head + b"\0")
    files = [str(tmp_path / "a.safetensors"), str(tmp_path / "b.safetensors")]
    subprocess.run([sys.executable, "-c", WITHOUT, *files], check=True)


def test_packed_dtypes_are_listed(tmp_path):
    head = header('{"a":{"dtype":"F4","shape":[2,3],"data_offsets":[0,3]}}')
    (tmp_path / "a.safetensors").write_bytes(head + b"abc")
    with mt.checkpoints.open_checkpoint(tmp_path / "a.safetensors") as checkpoint:
        entry = checkpoint.entries["a"]
        assert (entry.dtype, entry.shape, entry.nbytes) == ("float4_e2m1fn", (2, 3), 3)
        with pytest.raises(mt.CheckpointError, match="float4_e2m1fn are not supported"):
            checkpoint.tensor("a")


# -- torch -----------------------------------------------------------------------------------------


@needs_torch
@pytest.mark.parametrize(
    "name", [*PLAIN, *(pytest.param(n, marks=needs_ml_dtypes) for n in STORED)]
)
def test_leaves_of_torch(name, tmp_path):
    import safetensors.torch
    import torch

    dtype = getattr(torch, name)
    base = (torch.arange(15) % 4).reshape(3, 5)
    source = base.to(torch.float32).to(dtype) if name.startswith("float8") else base.to(dtype)
    state = {"a": source, "t": source.t(), "s": source[0, 1].clone(), "e": source[:0].clone()}
    path = saved({k: v.clone() for k, v in state.items()}, tmp_path)
    for key, read in safetensors.torch.load_file(path).items():
        assert read.dtype == dtype and read.shape == state[key].shape
        bits = [t.reshape(-1).view(torch.uint8) for t in (read, state[key])]
        assert bits[0].equal(bits[1])
    other = tmp_path / "b.safetensors"
    safetensors.torch.save_file({k: v.contiguous().clone() for k, v in state.items()}, other)
    assert_equal(mt.load_file(path), {k: mt.load_file(other)[k] for k in state})


@needs_torch
def test_a_torch_model_with_ties_goes_through_both_libraries(tmp_path):
    import safetensors.torch
    import torch

    def make():
        model = torch.nn.Sequential(torch.nn.Embedding(4, 3), torch.nn.Linear(3, 4, bias=False))
        model[1].weight = model[0].weight
        return model

    model = make()
    path = saved(model, tmp_path)
    other = make()
    assert safetensors.torch.load_model(other, path) == (set(), [])
    assert other[1].weight.equal(model[0].weight)
    safetensors.torch.save_model(model, tmp_path / "b.safetensors")
    read = mt.load_file(tmp_path / "b.safetensors")
    assert set(read) == {"0.weight", "1.weight"} and read["0.weight"] is read["1.weight"]


@needs_torch
def test_modules_with_leaves_of_torch_take_the_file(tmp_path):
    import torch

    def make():
        model = nn.Module()
        model.weight = nn.Parameter(torch.arange(6.0).reshape(2, 3).bfloat16())
        model.register_buffer("seen", torch.tensor(3))
        return model

    path = saved(make(), tmp_path)
    model = make()
    with torch.no_grad():
        model.weight.zero_()
    model.load_state_dict(mt.load_file(path))
    assert isinstance(model.weight, torch.Tensor) and model.weight.dtype == torch.bfloat16
    assert model.weight.equal(make().weight) and model.seen.item() == 3


@needs_torch
@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda torch: torch.eye(2).to_sparse(), "dense tensors only"),
        (lambda torch: torch.empty(2, device="meta"), "on the meta device"),
        (lambda torch: torch.zeros(1, dtype=torch.complex128), "have no complex128"),
    ],
)
def test_torch_tensors_that_cannot_be_written(make, message, tmp_path):
    import torch

    with pytest.raises(mt.CheckpointError, match=message) as caught:
        saved({"a": torch.ones(1), "b": make(torch)}, tmp_path)
    assert caught.value.tensor == "b"


@needs_torch
def test_conjugated_and_negated_tensors_of_torch(tmp_path):
    import torch

    source = torch.tensor([1 + 2j, 3 - 1j])
    read = round_trip({"c": source.conj(), "n": source.conj().imag}, tmp_path)
    assert read["c"].tolist() == [1 - 2j, 3 + 1j] and read["n"].tolist() == [-2.0, 1.0]
