# SPDX-License-Identifier: BSD-3-Clause
"""``Parameter``: construction, isinstance, copies, pickles and repr."""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.implementations import implementation, needs_torch
from helpers.support import dtype, raises, storage_shared, values


def modtree_types(impl):
    """The real classes behind the tensors: those of torch for torch leaves."""
    if impl.leaves == "torch":
        import torch

        return SimpleNamespace(Tensor=torch.Tensor, Parameter=torch.nn.Parameter)
    return SimpleNamespace(Tensor=impl.lib.Tensor, Parameter=impl.nn.Parameter)


def tensor_class(impl):
    """A tensor class of its own whose detach() keeps it."""
    base = modtree_types(impl).Tensor

    class Own(base):
        def detach(self):
            return self._make_subclass(type(self), super().detach(), False)

    def make(numbers):
        return base._make_subclass(Own, impl.lib.tensor(numbers), False)

    return Own, make


# -- construction ----------------------------------------------------------------------------------


def test_construction(impl):
    data = impl.lib.tensor([1.0, 2.0])
    data.note = "of the source"
    p = impl.nn.Parameter(data)
    assert type(p) is modtree_types(impl).Parameter
    assert p is not data and p.requires_grad is True and data.requires_grad is False
    assert p.is_leaf and p.grad is None and p.grad_fn is None
    assert storage_shared(p, data)
    assert not hasattr(p, "note")
    assert values(p) == [1.0, 2.0]


def test_requires_grad_flag(impl):
    data = impl.lib.tensor([1.0])
    assert impl.nn.Parameter(data, requires_grad=False).requires_grad is False
    assert impl.nn.Parameter(data, False).requires_grad is False
    assert impl.nn.Parameter(data=data, requires_grad=True).requires_grad is True


def test_default_is_an_empty_float_tensor(ours):
    p = ours.nn.Parameter()
    assert isinstance(p, ours.nn.Parameter)
    assert tuple(p.shape) == (0,) and dtype(p) == "float32" and p.requires_grad


def test_under_no_grad(impl):
    with impl.lib.no_grad():
        assert impl.nn.Parameter(impl.lib.tensor([1.0])).requires_grad


def test_parameter_of_a_parameter(impl):
    first = impl.nn.Parameter(impl.lib.tensor([1.0]), requires_grad=False)
    first.note = 1
    second = impl.nn.Parameter(first)
    assert second is not first and second.requires_grad and not first.requires_grad
    assert storage_shared(first, second)
    assert not hasattr(second, "note")


@pytest.mark.parametrize("flag", [0, 1, None, "text"])
def test_requires_grad_is_a_bool(impl, flag):
    if impl.name == "modtree-torch":
        pytest.skip("the class Parameter is one of the leaves' library")
    with raises(TypeError, "must be bool, not"):
        impl.nn.Parameter(impl.lib.ones(2), flag)
    with raises(TypeError, "must be bool, not"):
        impl.nn.UninitializedParameter(requires_grad=flag)


@pytest.mark.parametrize("numbers", [[1, 2], [True, False]], ids=["int", "bool"])
def test_only_floating_point_requires_grad(impl, numbers):
    data = impl.lib.tensor(numbers)
    with raises(RuntimeError, "Only Tensors of floating point and complex dtype can require"):
        impl.nn.Parameter(data)
    p = impl.nn.Parameter(data, requires_grad=False)
    assert values(p) == numbers and not p.requires_grad


def test_complex_may_require_grad(impl):
    assert impl.nn.Parameter(impl.lib.tensor([1 + 2j])).requires_grad


@pytest.mark.parametrize(
    "data", [3, 1.5, "text", [1.0], np.ones(2)], ids=lambda v: type(v).__name__
)
def test_not_a_tensor(impl, data):
    with raises(AttributeError, "detach"):
        impl.nn.Parameter(data)


@pytest.mark.parametrize("data", [np.ones(2), [1.0]], ids=lambda v: type(v).__name__)
def test_not_a_tensor_says_what_to_do(ours, data):
    name = type(data).__name__
    with raises(AttributeError, f"'{name}' object", "modtree.from_numpy", "modtree.tensor"):
        ours.nn.Parameter(data)


@needs_torch
@pytest.mark.parametrize("as_argument", [False, True])
def test_torch_tensors_give_torchs_parameter(as_argument):
    import torch

    nn = implementation("modtree").nn
    data = torch.ones(2)
    p = nn.Parameter(data, requires_grad=as_argument)
    assert type(p) is torch.nn.Parameter and p.requires_grad is as_argument
    assert p.data_ptr() == data.data_ptr()
    assert isinstance(p, nn.Parameter) and not isinstance(data, nn.Parameter)
    assert not issubclass(torch.nn.Parameter, nn.Parameter)

    class Own(nn.Parameter):
        pass

    with raises(TypeError, "Own", "torch"):
        Own(data)


# -- classes of their own --------------------------------------------------------------------------


def subclass_of_parameter(impl):
    class Sub(modtree_types(impl).Parameter):
        pass

    return Sub


def test_subclass_of_parameter(impl):
    Sub = subclass_of_parameter(impl)
    p = Sub(impl.lib.tensor([1.0]))
    assert type(p) is Sub and p.requires_grad
    assert isinstance(p, impl.nn.Parameter)
    assert not isinstance(impl.nn.Parameter(impl.lib.tensor([1.0])), Sub)
    again = Sub(impl.nn.Parameter(impl.lib.tensor([2.0])), requires_grad=False)
    assert type(again) is Sub and not again.requires_grad


def test_parameter_of_a_parameter_subclass(impl):
    Sub = subclass_of_parameter(impl)
    with raises(RuntimeError, "requires that detach() returns an instance of the same type", "Sub"):
        impl.nn.Parameter(Sub(impl.lib.tensor([1.0])))


def test_tensor_class_is_kept(impl):
    Own, make = tensor_class(impl)
    data = make([1.0])
    p = impl.nn.Parameter(data)
    assert type(p) is Own and p is not data
    assert p._is_param is True and p.requires_grad
    assert isinstance(p, impl.nn.Parameter)
    assert not isinstance(p, subclass_of_parameter(impl))
    assert not isinstance(data, impl.nn.Parameter)
    assert storage_shared(p, data)


def test_marked_tensors_are_parameters(impl):
    Sub = subclass_of_parameter(impl)
    t = impl.lib.tensor([1.0])
    assert not isinstance(t, impl.nn.Parameter)
    t._is_param = True
    assert isinstance(t, impl.nn.Parameter) and not isinstance(t, Sub)
    assert not t.requires_grad
    t._is_param = False
    assert not isinstance(t, impl.nn.Parameter)


def test_marked_tensor_is_registered(impl):
    t = impl.lib.tensor([1.0])
    t._is_param = True
    m = impl.nn.Module()
    m.w = t
    assert m._parameters["w"] is t


@pytest.mark.parametrize(
    "value", [3, None, "text", np.ones(1), object()], ids=lambda v: type(v).__name__
)
def test_other_values_are_no_parameters(impl, value):
    assert not isinstance(value, impl.nn.Parameter)


def test_marked_objects_that_are_no_tensors(impl):
    class Marked:
        _is_param = True

    assert not isinstance(Marked(), impl.nn.Parameter)


def test_subclass_relations(impl):
    Sub = subclass_of_parameter(impl)
    types = modtree_types(impl)
    assert issubclass(Sub, types.Parameter) and issubclass(types.Parameter, types.Tensor)
    assert not issubclass(types.Tensor, impl.nn.Parameter)


# -- behaviour as a tensor -------------------------------------------------------------------------


def test_results_are_plain_tensors(impl):
    p = impl.nn.Parameter(impl.lib.tensor([[1.0, 2.0], [3.0, 4.0]]))
    plain = modtree_types(impl).Tensor
    for result in (p + 1, 2 * p, p.clone(), p.detach(), p[0], p.data, p.T, -p):
        assert type(result) is plain
        assert not isinstance(result, impl.nn.Parameter)


def test_hash_and_equality(impl):
    a = impl.nn.Parameter(impl.lib.tensor([1.0, 2.0]))
    b = impl.nn.Parameter(impl.lib.tensor([1.0, 5.0]))
    assert len({a, b, a}) == 2 and {a: 1}[a] == 1
    assert values(a == b) == [True, False]


def test_attributes_and_weak_references(impl):
    p = impl.nn.Parameter(impl.lib.tensor([1.0]))
    p.note = "kept"
    assert p.note == "kept" and p.__dict__ == {"note": "kept"}
    ref = weakref.ref(p)
    p.self = p
    del p
    gc.collect()
    assert ref() is None


def test_data_can_be_swapped(impl):
    p = impl.nn.Parameter(impl.lib.tensor([1.0]))
    q = p
    p.data = impl.lib.tensor([1.0, 2.0, 3.0])
    assert p is q and values(p) == [1.0, 2.0, 3.0] and p.requires_grad


def test_repr(impl):
    p = impl.nn.Parameter(impl.lib.tensor([1.0, 2.0]))
    first, rest = repr(p).split("\n", 1)
    assert first == "Parameter containing:"
    assert rest.startswith("tensor([1., 2.]") and "requires_grad=True" in rest
    assert str(p) == repr(p)
    frozen = impl.nn.Parameter(impl.lib.tensor([1.0]), requires_grad=False)
    assert "requires_grad" not in repr(frozen)


# -- copies ----------------------------------------------------------------------------------------


def with_extras(impl):
    p = impl.nn.Parameter(impl.lib.tensor([1.0, 2.0]))
    p.note = ["kept"]
    p.grad = impl.lib.tensor([5.0, 6.0])
    return p


def test_deepcopy(impl):
    p = with_extras(impl)
    c = copy.deepcopy(p)
    assert type(c) is type(p) and c is not p
    assert values(c) == [1.0, 2.0] and c.requires_grad and c.is_leaf
    assert not storage_shared(c, p)
    assert c.grad is None and not hasattr(c, "note")
    assert not copy.deepcopy(impl.nn.Parameter(p, requires_grad=False)).requires_grad


def test_deepcopy_keeps_ties(impl):
    p = with_extras(impl)
    a, b = copy.deepcopy([p, p])
    assert a is b
    memo = {id(p): "known"}
    assert copy.deepcopy(p, memo) == "known"


def test_deepcopy_separates_views(impl):
    base = impl.lib.tensor([1.0, 2.0])
    a, b = copy.deepcopy([impl.nn.Parameter(base), impl.nn.Parameter(base)])
    assert not storage_shared(a, b)


def test_deepcopy_of_a_subclass(impl):
    Sub = subclass_of_parameter(impl)
    c = copy.deepcopy(Sub(impl.lib.tensor([1.0]), False))
    assert type(c) is Sub and not c.requires_grad


def test_shallow_copy(impl):
    p = with_extras(impl)
    c = copy.copy(p)
    assert c is not p and isinstance(c, impl.nn.Parameter) and c.requires_grad
    assert storage_shared(c, p)
    assert c.note is p.note and c.grad is None
    c.other = 1
    assert not hasattr(p, "other")


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(impl, protocol):
    p = with_extras(impl)
    for source, flag in ((p, True), (impl.nn.Parameter(p, requires_grad=False), False)):
        loaded = pickle.loads(pickle.dumps(source, protocol))
        assert type(loaded) is modtree_types(impl).Parameter
        assert values(loaded) == [1.0, 2.0] and loaded.requires_grad is flag
        assert loaded.grad is None and loaded.is_leaf
    loaded = pickle.loads(pickle.dumps(p, protocol))
    assert loaded.note == ["kept"]
    assert dtype(loaded) == "float32"


def test_pickle_keeps_one_object_one(impl):
    p = with_extras(impl)
    a, b = pickle.loads(pickle.dumps([p, p]))
    assert a is b
    base = impl.lib.tensor([1.0, 2.0])
    a, b = pickle.loads(pickle.dumps([impl.nn.Parameter(base), impl.nn.Parameter(base)]))
    assert not storage_shared(a, b)


class Owner:
    """Refers to the parameter that refers to it."""


def test_pickle_of_a_parameter_that_refers_to_itself():
    # torch rebuilds parameters with their attributes as arguments, so that this is an endless
    # recursion there.
    impl = implementation("modtree")
    p = impl.nn.Parameter(impl.lib.tensor([1.0]))
    p.owner = Owner()
    p.owner.weight = p
    loaded = pickle.loads(pickle.dumps(p))
    assert loaded.owner.weight is loaded


def subclass_at_module_level(impl):
    Sub = subclass_of_parameter(impl)
    Sub.__qualname__ = "Sub"
    globals()["Sub"] = Sub
    return Sub


def test_pickle_of_a_subclass_gives_a_parameter(impl):
    Sub = subclass_at_module_level(impl)
    loaded = pickle.loads(pickle.dumps(Sub(impl.lib.tensor([1.0]))))
    assert type(loaded) is modtree_types(impl).Parameter
