# SPDX-License-Identifier: BSD-3-Clause
"""The seam: how families are found, and a third tensor library, written here, as leaves of a module
tree.
"""

from __future__ import annotations

import abc
import copy
import pickle
import subprocess
import sys
from contextlib import contextmanager
from types import ModuleType

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.support import raises

import modtree as mt
from modtree import families, nn
from modtree.core import families as lookup
from modtree.families import TensorFamily

# -- a tensor library on lists, with names of its own for everything -------------------------------


class Vector:
    """A one-dimensional tensor; several handles may share one list."""

    def __init__(self, numbers, kind="f32", wants=False):
        self.numbers = list(numbers)
        self.kind = kind
        self.wants = wants
        self.slope = None

    def handle(self, cls=None):
        other = (cls or Vector).__new__(cls or Vector)
        other.__dict__.update(numbers=self.numbers, kind=self.kind, wants=False, slope=None)
        return other


class Weight(Vector):
    """The library's kind of parameter."""


recording = [True]


class ListFamily(TensorFamily):
    name = "lists"
    tensor_type = Vector
    parameter_type = Weight

    def __init__(self):
        self.scopes = 0

    def is_meta(self, tensor):
        return False

    def is_floating_point(self, tensor):
        return tensor.kind[0] == "f"

    def is_complex(self, tensor):
        return False

    def shape(self, tensor):
        return (len(tensor.numbers),)

    def dtype_name(self, tensor):
        return {"f32": "float32", "f64": "float64", "i64": "int64"}[tensor.kind]

    def type_name(self, tensor):
        return f"lists.Vector[{tensor.kind}]"

    def requires_grad(self, tensor):
        return tensor.wants

    def set_requires_grad(self, tensor, flag):
        tensor.wants = flag

    def has_grad_fn(self, tensor):
        return False

    def grad(self, tensor):
        return tensor.slope

    def set_grad(self, tensor, grad):
        tensor.slope = grad

    def zero_grad(self, tensor, set_to_none):
        if set_to_none:
            tensor.slope = None
        elif tensor.slope is not None:
            tensor.slope.numbers[:] = [0.0] * len(tensor.slope.numbers)

    @contextmanager
    def _scope(self):
        self.scopes += 1
        recording.append(False)
        try:
            yield
        finally:
            recording.pop()

    def no_grad(self):
        return self._scope()

    def detach(self, tensor):
        return tensor.handle()

    def make_parameter(self, data, requires_grad):
        made = data.handle(Weight)
        made.wants = requires_grad
        return made

    def make_buffer(self, data, persistent):
        made = data.handle()
        made.persistent = persistent
        made._is_buffer = True
        return made

    def can_set_data(self, tensor, other):
        return isinstance(other, Vector)

    def set_data(self, tensor, other):
        tensor.numbers, tensor.kind = other.numbers, other.kind

    def copy_into(self, tensor, source):
        if isinstance(source, Vector):
            numbers = source.numbers
        else:
            numbers = families.family_of(source).to_numpy(source).tolist()
        convert = float if tensor.kind[0] == "f" else int
        tensor.numbers[:] = map(convert, numbers)

    def to_numpy(self, tensor):
        return np.array(tensor.numbers, dtype=self.dtype_name(tensor))

    def to(self, tensor, device, dtype, non_blocking, memory_format):
        name = None if dtype is None else str(dtype).rpartition(".")[2]
        if name is None or name == self.dtype_name(tensor):
            return tensor
        kind = {"float32": "f32", "float64": "f64", "int64": "i64"}[name]
        return Vector(tensor.numbers, kind, tensor.wants)

    def empty_like(self, tensor, device):
        return Vector([0] * len(tensor.numbers), tensor.kind)


lists = ListFamily()
families.register(__name__, lists)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(Vector([1.0, 2.0]))
        self.mean = nn.Buffer(Vector([0.5]))
        self.register_buffer("count", Vector([3], "i64"))
        self.inner = nn.Module()
        self.inner.v = Weight([4.0])


# -- the third library in a tree -------------------------------------------------------------------


def test_parameter_of_a_third_library():
    data = Vector([1.0, 2.0])
    p = nn.Parameter(data)
    assert type(p) is Weight and p.numbers is data.numbers and p.wants
    assert isinstance(p, nn.Parameter) and not isinstance(data, nn.Parameter)
    assert not nn.Parameter(data, requires_grad=False).wants
    marked = Vector([1.0])
    marked._is_param = True
    assert isinstance(marked, nn.Parameter)


def test_buffer_of_a_third_library():
    data = Vector([1.0])
    b = nn.Buffer(data, persistent=False)
    assert type(b) is Vector and b.numbers is data.numbers and b.persistent is False
    assert isinstance(b, nn.Buffer) and not isinstance(data, nn.Buffer)


def test_assignment_registers():
    m = Net()
    assert list(m._parameters) == ["w"] and list(m._buffers) == ["mean", "count"]
    assert [n for n, _ in m.named_parameters()] == ["w", "inner.v"]
    assert list(m.parameters()) == [m.w, m.inner.v]
    assert list(m.buffers()) == [m.mean, m.count]
    m.plain = Vector([9.0])
    assert "plain" in vars(m) and "plain" not in m._buffers
    with raises(TypeError, "cannot assign 'lists.Vector[f32]' as parameter 'w'"):
        m.w = Vector([1.0])
    m.mean = Vector([7.0])
    assert m._buffers["mean"].numbers == [7.0]


def test_state_dict():
    m = Net()
    state = m.state_dict()
    assert list(state) == ["w", "mean", "count", "inner.v"]
    assert type(state["w"]) is Vector and state["w"] is not m.w
    assert state["w"].numbers is m.w.numbers
    assert m.state_dict(keep_vars=True)["w"] is m.w


def test_load_state_dict_copies():
    m, other = Net(), Net()
    other.w.numbers[:] = [10.0, 20.0]
    other.count.numbers[:] = [30]
    w, numbers = m.w, m.w.numbers
    scopes = lists.scopes
    assert m.load_state_dict(other.state_dict()) == ([], [])
    assert m.w is w and m.w.numbers is numbers and numbers == [10.0, 20.0]
    assert m.count.numbers == [30]
    assert lists.scopes > scopes and recording == [True]


def test_load_state_dict_from_another_library():
    m = Net()
    m.load_state_dict(
        {
            "w": mt.tensor([8.0, 9.0]),
            "mean": mt.tensor([1.5]),
            "count": mt.tensor([2.0]),
            "inner.v": Vector([6], "i64"),
        }
    )
    assert m.w.numbers == [8.0, 9.0]
    assert m.count.numbers == [2] and isinstance(m.count.numbers[0], int)
    assert m.inner.v.numbers == [6.0]


def test_load_into_another_library():
    m = nn.Module()
    m.w = nn.Parameter(mt.zeros(2))
    m.load_state_dict({"w": Vector([1.0, 2.0], "f64")})
    assert m.w.tolist() == [1.0, 2.0] and m.w.dtype is mt.float32


def test_to_family_needs_a_way_to_make_tensors_of_another_library():
    m = nn.Linear(1, 2)
    weight = m.weight
    with raises(TypeError, "weight: numpy's float32 cannot become a tensor of lists"):
        mt.to_family(m, "lists")
    assert m.weight is weight


def test_load_state_dict_errors():
    m = Net()
    state = m.state_dict()
    state["w"] = Vector([1.0, 2.0, 3.0])
    del state["mean"]
    with raises(RuntimeError, "size mismatch for w", "Missing key(s)", '"mean"'):
        m.load_state_dict(state)
    assert m.w.numbers == [1.0, 2.0]


def test_load_state_dict_assign():
    m = Net()
    state = {k: Vector([5.0] * len(v.numbers), "f64") for k, v in m.state_dict().items()}
    m.load_state_dict(state, assign=True)
    assert type(m.w) is Weight and m.w.numbers is state["w"].numbers and m.w.wants
    assert m.mean is state["mean"]


def test_apply_keeps_parameters():
    m = Net()
    w = m.w
    w.slope = Vector([1.0, 1.0])
    slope = w.slope
    m._apply(lambda t: Vector([2 * x for x in t.numbers], t.kind))
    assert m.w is w and w.numbers == [2.0, 4.0] and w.wants
    assert w.slope is slope and slope.numbers == [2.0, 2.0]
    assert m.mean.numbers == [1.0] and m.count.numbers == [6]


@pytest.mark.parametrize("how", ["double", "to"])
def test_conversions(how):
    m = Net()
    w = m.w
    assert (m.double() if how == "double" else m.to(mt.float64)) is m
    assert m.w is w
    assert [t.kind for t in (m.w, m.mean, m.count, m.inner.v)] == ["f64", "f64", "i64", "f64"]


def test_gradient_flags():
    m = Net()
    m.w.slope = Vector([1.0, 1.0])
    m.zero_grad(set_to_none=False)
    assert m.w.slope.numbers == [0.0, 0.0]
    m.zero_grad()
    assert m.w.slope is None
    assert m.requires_grad_(False) is m
    assert [p.wants for p in m.parameters()] == [False, False]


def test_copies():
    m = Net()
    for copied in (copy.deepcopy(m), pickle.loads(pickle.dumps(m))):
        assert list(copied.state_dict()) == list(m.state_dict())
        assert type(copied.w) is Weight and copied.w.numbers == [1.0, 2.0]
        assert copied.w.numbers is not m.w.numbers


def test_backward_hooks_let_values_pass():
    class Double(nn.Module):
        def forward(self, x):
            return Vector([2 * n for n in x.numbers])

    m = Double()
    m.register_full_backward_hook(lambda *args: None)
    x = Vector([1.0])
    assert m(x).numbers == [2.0]


def test_one_tree_with_several_libraries():
    m = Net()
    m.other = nn.Parameter(mt.tensor([1.0]))
    assert [n for n, _ in m.named_parameters()] == ["w", "other", "inner.v"]
    m.double()
    assert m.w.kind == "f64" and m.other.dtype is mt.float64
    m.load_state_dict(copy.deepcopy(m).state_dict())


# -- finding families ------------------------------------------------------------------------------


def test_find():
    assert families.find(Vector) is lists is families.find(Weight)
    assert families.family_of(Weight([1.0])) is lists
    assert families.find(mt.Tensor).name == "numpy"
    assert families.find(nn.Parameter).name == "numpy"
    for kind in (int, type, list, np.ndarray, np.float32, nn.Module, Net, ListFamily):
        assert families.find(kind) is None
    assert families.family_of(nn.Module()) is None


@needs_torch
def test_find_torch():
    import torch

    family = families.find(torch.Tensor)
    assert family.name == "torch"

    class Own(torch.Tensor):
        pass

    for kind in (torch.nn.Parameter, torch.nn.parameter.UninitializedBuffer, Own):
        assert families.find(kind) is family
    for kind in (torch.dtype, torch.device, torch.nn.Linear, torch.Size):
        assert families.find(kind) is None


def test_find_does_not_ask_odd_metaclasses():
    class Meta(type):
        __hash__ = None

        def __getattribute__(cls, name):
            raise ZeroDivisionError(name)

        def __eq__(cls, other):
            raise ZeroDivisionError

        def __instancecheck__(cls, instance):
            raise ZeroDivisionError

    class Odd(metaclass=Meta):
        pass

    class NoModule:
        __module__ = property(lambda self: 1 / 0)

    assert families.find(Odd) is None
    assert families.family_of(Odd()) is None
    assert families.find(NoModule) is None
    m = nn.Module()
    m.odd = odd = Odd()
    assert m.odd is odd


def test_torch_is_not_imported_for_a_type_that_claims_to_be_its():
    code = """
import sys
import modtree as mt
from modtree import families, nn

class Fake:
    __module__ = "torch.nn.parameter"

m = nn.Module()
m.fake = Fake()
m.w = nn.Parameter(mt.zeros(2))
m.load_state_dict(m.state_dict())
assert families.find(Fake) is None
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_register_a_module_or_its_name(monkeypatch):
    home = ModuleType("home_of_a_family")
    home.family = ListFamily()
    monkeypatch.setitem(sys.modules, "home_of_a_family", home)
    monkeypatch.setattr(lookup, "_families", dict(lookup._families))

    class One(Vector):
        __module__ = "library_one.tensors"

    class Two(Vector):
        __module__ = "library_two"

    monkeypatch.setitem(sys.modules, "library_two", ModuleType("library_two"))
    families.register("library_one", home)
    families.register("library_two", "home_of_a_family")
    assert families.find(One) is home.family
    assert families.find(Two) is home.family
    assert families.find(Vector) is lists


def test_register_after_a_value_was_met(monkeypatch):
    class Late(Vector):
        __module__ = "late_library"

    m = nn.Module()
    monkeypatch.setattr(
        lookup, "_families", {k: v for k, v in lookup._families.items() if v != lists}
    )
    m.first = Late([1.0])
    with raises(TypeError, "cannot assign"):
        m.register_buffer("b", Late([1.0]))
    families.register("late_library", lists)
    m.register_buffer("b", Late([1.0]))
    assert list(m._buffers) == ["b"]


def test_a_type_is_registered_with_an_abstract_tensor_class(monkeypatch):
    Abstract = abc.ABCMeta("Abstract", (), {"__module__": "abstract_library"})

    class Other(Vector):
        __module__ = "abstract_library"

    class AbstractFamily(ListFamily):
        tensor_type = Abstract

    monkeypatch.setattr(lookup, "_families", {})
    families.register("abstract_library", AbstractFamily())
    m = nn.Module()
    with raises(TypeError, "cannot assign"):
        m.register_buffer("b", Other([1.0]))
    assert families.family_of(Other([1.0])) is families.find(Other) is None
    Abstract.register(Other)
    m.register_buffer("b", Other([1.0]))
    assert families.family_of(m.b) is families.find(Other)


def test_register_refuses_other_things():
    with raises(ValueError, "top-level module", "'a.b'"):
        families.register("a.b", lists)
    with raises(ValueError, "top-level module"):
        families.register("", lists)
    with raises(TypeError, "TensorFamily", "int"):
        families.register("numbers", 3)


def test_module_without_a_family_is_named(monkeypatch):
    home = ModuleType("home_of_nothing")
    home.family = "no family"
    monkeypatch.setitem(sys.modules, "home_of_nothing", home)
    monkeypatch.setitem(sys.modules, "library_three", ModuleType("library_three"))
    monkeypatch.setattr(lookup, "_families", dict(lookup._families))
    families.register("library_three", "home_of_nothing")

    class Three:
        __module__ = "library_three"

    with raises(TypeError, "home_of_nothing.family"):
        families.find(Three)


def test_default_answers_speak_torchs_names():
    class Torchlike:
        requires_grad = True
        grad_fn = None
        grad = None
        is_meta = False
        shape = (2,)
        dtype = "lib.float32"

    family = TensorFamily()
    family.parameter_type = Torchlike
    t = Torchlike()
    assert family.requires_grad(t) and not family.has_grad_fn(t) and not family.is_buffer(t)
    assert family.is_parameter(t) and not family.is_uninitialized(t) and not family.is_meta(t)
    assert family.shape(t) == (2,) and family.dtype_name(t) == "float32"
    family.set_grad(t, 5)
    assert family.grad(t) == 5
    assert family.no_grad() is None and family.backward_tap(None, [], []) is None
