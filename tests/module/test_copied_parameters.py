# SPDX-License-Identifier: BSD-3-Clause
"""Copies and pickles of parameters in a tree, which native code makes where nobody has a say: what
programs put in the way counts at once, and what comes back is what the Python code gives.
"""

from __future__ import annotations

import copy
import gc
import io
import pickle
import sys
import weakref

import numpy as np
import pytest
from helpers.support import parameter_type, raises, storage_shared, values
from helpers.util import tensor

import modtree as mt
from modtree import nn
from modtree.overrides import TorchFunctionMode


def tree(impl, *numbers):
    root = impl.nn.Module()
    for i, number in enumerate(numbers or (1.0, 2.0)):
        root.register_parameter(f"p{i}", impl.nn.Parameter(tensor(impl, number)))
    return root


# -- what a program has a say in -------------------------------------------------------------------


@pytest.mark.parametrize("copied_before", [False, True])
def test_a_patched_deepcopy_of_the_class_is_called(impl, monkeypatch, copied_before):
    m = tree(impl)
    if copied_before:
        copy.deepcopy(m)
    kind, seen = parameter_type(impl), []
    original = kind.__deepcopy__

    def patched(self, memo):
        seen.append(self)
        return original(self, memo)

    monkeypatch.setattr(kind, "__deepcopy__", patched)
    copy.deepcopy(m)
    assert [id(p) for p in seen] == [id(p) for p in m.parameters()]
    monkeypatch.undo()
    seen.clear()
    assert values(copy.deepcopy(m).p1) == values(m.p1) and not seen


@pytest.mark.parametrize("name", ["clone", "data", "requires_grad"])
def test_what_the_copy_is_made_of_may_be_patched(impl, monkeypatch, name):
    m = tree(impl)
    copy.deepcopy(m)
    kind, seen = impl.lib.Tensor, []
    original = getattr(kind, name)
    if name == "clone":

        def patched(self, *args, **kwargs):
            seen.append(name)
            return original(self, *args, **kwargs)
    else:

        def read(self):
            seen.append(name)
            return original.__get__(self)

        patched = property(read, original.__set__)
    monkeypatch.setattr(kind, name, patched, raising=False)
    new = copy.deepcopy(m)
    monkeypatch.undo()
    assert len(seen) >= 2 and values(new.p0) == values(m.p0)


def test_a_patch_made_while_the_tree_is_copied_holds_for_the_rest(impl, monkeypatch):
    kind, seen = parameter_type(impl), []
    original = kind.__deepcopy__

    class Patches:
        def __deepcopy__(self, memo):
            monkeypatch.setattr(kind, "__deepcopy__", patched)
            return self

    def patched(self, memo):
        seen.append(self)
        return original(self, memo)

    m = tree(impl, 1.0)
    m.patches = Patches()
    m.child = tree(impl, 2.0)
    copy.deepcopy(m.child)
    copy.deepcopy([m.patches, m.child])
    assert [id(p) for p in seen] == [id(m.child.p0)]


def test_a_memo_that_knows_a_parameter_is_used(impl):
    m = tree(impl)
    other = impl.nn.Parameter(tensor(impl, 5.0))
    assert copy.deepcopy(m, {id(m.p0): other}).p0 is other


def test_the_memo_has_each_copy_and_keeps_each_original(impl):
    m, memo = tree(impl), {}
    original = m.p0
    new = copy.deepcopy(m, memo)
    assert memo[id(original)] is new.p0
    assert any(x is original for x in memo[id(memo)])
    gone = weakref.ref(original)
    del original, m
    gc.collect()
    assert gone() is not None  # its id stays its own as long as the memo is used


def test_a_subclass_of_parameter_is_copied_by_its_own_method(impl):
    class Sub(parameter_type(impl)):
        def __deepcopy__(self, memo):
            return self

    m = tree(impl)
    m.p0 = Sub(tensor(impl, 1.0))
    assert copy.deepcopy(m).p0 is m.p0


def test_layouts_gradients_and_attributes(impl):
    m = tree(impl)
    wide = impl.lib.zeros(3, 2).t()
    m.p0 = impl.nn.Parameter(wide)
    m.p0.note = "lost"
    m.p0.grad = impl.lib.ones(2, 3)
    m.p1 = impl.nn.Parameter(tensor(impl, 1.0), requires_grad=False)
    m.p2 = impl.nn.Parameter(impl.lib.zeros(0, 3))
    new = copy.deepcopy(m)
    assert tuple(new.p0.stride()) == (1, 2) and new.p0.grad is None
    assert not hasattr(new.p0, "note")
    assert not new.p1.requires_grad and tuple(new.p2.shape) == (0, 3)
    assert all(p.is_leaf and type(p) is parameter_type(impl) for p in new.parameters())
    assert not storage_shared(new.p0, m.p0)


def test_a_copy_starts_with_a_version_of_its_own(impl):
    m = tree(impl)
    with impl.lib.no_grad():
        m.p0.add_(1)
    new = copy.deepcopy(m)
    before = m.p0._version
    with impl.lib.no_grad():
        new.p0.add_(1)
    assert m.p0._version == before


def test_a_copy_of_a_meta_parameter_is_one(impl):
    m = tree(impl)
    m.p0 = impl.nn.Parameter(impl.lib.empty(3, device="meta"))
    assert copy.deepcopy(m).p0.is_meta


def test_a_function_mode_sees_the_copies():
    class Names(TorchFunctionMode):
        def __init__(self):
            super().__init__()
            self.seen = []

        def __torch_function__(self, func, types, args=(), kwargs=None):
            self.seen.append(getattr(func, "__name__", ""))
            return func(*args, **(kwargs or {}))

    m = nn.Linear(2, 2)
    with Names() as mode:
        copy.deepcopy(m)
    assert mode.seen.count("clone") == 2


# -- pickles ---------------------------------------------------------------------------------------


def again(value, protocol=pickle.HIGHEST_PROTOCOL):
    return pickle.loads(pickle.dumps(value, protocol))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize(
    "array",
    [
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.arange(6, dtype=np.float64).reshape(2, 3).T,
        np.arange(6, dtype=np.float16)[::2],
        np.array(1.5, np.complex64),
        np.zeros((0, 3), np.float32),
        np.arange(4000, dtype=np.float32),
        np.array([True, False]),
        np.arange(3, dtype=np.uint8),
    ],
    ids=["rows", "columns", "strided", "scalar", "empty", "large", "bool", "bytes"],
)
def test_values_come_back(array, protocol):
    p = nn.Parameter(mt.from_numpy(array), requires_grad=array.dtype.kind in "fc")
    new = again(p, protocol)
    assert type(new) is nn.Parameter and new.requires_grad is p.requires_grad
    assert new.dtype is p.dtype and new.shape == p.shape
    assert np.array_equal(new.detach().numpy(), array)
    with mt.no_grad():
        new.zero_()  # memory of its own, which may be written to
    assert np.array_equal(p.detach().numpy(), array)


def test_read_only_values_come_back_as_they_did():
    array = np.arange(3, dtype=np.float32)
    array.flags.writeable = False
    p = nn.Parameter(mt.from_numpy(np.zeros(3, np.float32)))
    p.data = mt._C.from_array(array)
    assert values(again(p)) == [0.0, 1.0, 2.0]


def test_large_values_may_stay_where_they_are():
    p, buffers = nn.Parameter(mt.zeros(5000)), []
    stream = pickle.dumps(p, 5, buffer_callback=buffers.append)
    assert len(buffers) == 1 and len(stream) < 500
    new = pickle.loads(stream, buffers=buffers)
    with mt.no_grad():
        p[0] = 7.0
    assert new[0] == 7.0


@pytest.mark.parametrize("copied_before", [False, True])
def test_a_patched_reduction_of_the_class_is_used(impl, monkeypatch, copied_before):
    m = tree(impl)
    if copied_before:
        again(m)
    kind, seen = parameter_type(impl), []
    original = kind.__reduce_ex__

    def patched(self, protocol):
        seen.append(self)
        return original(self, protocol)

    monkeypatch.setattr(kind, "__reduce_ex__", patched)
    again(m)
    assert len(seen) == 2


def test_a_patched_reduction_of_tensors_is_used(monkeypatch):
    m = nn.Linear(2, 2)
    again(m)
    seen, original = [], mt.Tensor.__reduce_ex__

    def patched(self, protocol):
        seen.append(type(self))
        return original(self, protocol)

    monkeypatch.setattr(mt.Tensor, "__reduce_ex__", patched)
    again(m)
    assert seen == [mt.Tensor, mt.Tensor]


def test_a_patched_constructor_makes_what_is_loaded(monkeypatch):
    data = pickle.dumps(nn.Linear(2, 2))
    made, original = [], nn.Parameter.__new__

    def patched(cls, *args, **kwargs):
        made.append(cls)
        return original(cls, *args, **kwargs)

    monkeypatch.setattr(nn.Parameter, "__new__", staticmethod(patched))
    pickle.loads(data)
    assert made == [nn.Parameter, nn.Parameter]


def test_a_dispatch_table_comes_first():
    class Own(pickle.Pickler):
        dispatch_table = {nn.Parameter: lambda p: (float, (p.item(),))}  # noqa: RUF012

    file = io.BytesIO()
    Own(file).dump([nn.Parameter(mt.tensor(2.5))])
    assert pickle.loads(file.getvalue()) == [2.5]


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((b"1234", "float33", (1,), True), "dtype"),
        ((b"1234", 3, (1,), True), "dtype"),
        ((b"1234", "bfloat17", (1,), True), "dtype"),
        ((b"1234", "float32", [1], True), "shape"),
        ((b"1234", "float32", (-1,), True), "shape"),
        ((b"1234", "float32", (1 << 62, 1 << 62), True), "shape"),
        ((b"1234", "float32", (1 << 80,), True), "shape"),
        ((b"1234", "float32", (1.0,), True), "shape"),
        ((b"1234", "float32", (1,) * 100, True), "shape"),
        ((b"1234", "float32", (1,), 1), "requires_grad"),
        ((b"12345", "float32", (1,), True), "needs 4 bytes"),
        ((b"", "float32", (1,), True), "needs 4 bytes"),
    ],
)
def test_damaged_descriptions_are_refused(arguments, text):
    with raises(ValueError, "damaged", text):
        mt._C._parameter_of_bytes(*arguments)


def test_arguments_of_other_kinds_are_refused():
    with raises(TypeError):
        mt._C._parameter_of_bytes(None, "float32", (1,), True)
    with raises(TypeError):
        mt._C._parameter_of_bytes(b"1234", "float32", (1,))
    with raises(RuntimeError, "floating point"):
        mt._C._parameter_of_bytes(b"1234", "int32", (1,), True)


@pytest.mark.parametrize("size", [3, 5000])
def test_memory_of_the_caller_is_read_or_kept(size):
    data = bytearray(4 * size)
    before = sys.getrefcount(data)
    p = mt._C._parameter_of_bytes(data, "float32", (size,), False)
    q = mt._C._parameter_of_bytes(bytes(data), "float32", (size,), False)
    held = sys.getrefcount(data)
    with mt.no_grad():
        p.fill_(1.0)
        q.fill_(1.0)
    del data
    assert held >= before and values(p) == values(q) == [1.0] * size


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_load_takes_the_pickles_and_checks_them(tmp_path, protocol):
    file = tmp_path / "file"
    file.write_bytes(pickle.dumps({"w": nn.Parameter(mt.ones(3), False)}, protocol))
    assert values(mt.load(file)["w"]) == [1.0, 1.0, 1.0]
    damaged = file.read_bytes().replace(b"float32", b"float64")
    if protocol >= 3:
        file.write_bytes(damaged)
        with raises(pickle.UnpicklingError):
            mt.load(file)
