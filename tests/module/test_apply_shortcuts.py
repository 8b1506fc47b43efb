# SPDX-License-Identifier: BSD-3-Clause
"""``_apply``, ``zero_grad`` and ``requires_grad_`` where user code gets between the modules and
tensors that native code goes through without asking anything.
"""

from __future__ import annotations

import gc
import warnings
import weakref
from types import SimpleNamespace

import pytest
from helpers.free_threading import ends_at_once
from helpers.support import leaf, parameter_type, raises, values


def row(impl, count=4):
    """A parent of childless modules that nobody else holds, all of a class that is known."""

    class Leaf(impl.nn.Module):
        def __init__(self, start):
            super().__init__()
            self.w = impl.nn.Parameter(impl.lib.tensor([float(start)]))

    class Parent(impl.nn.Module):
        pass

    net = Parent()
    for i in range(count):
        net.add_module(f"c{i}", Leaf(i))
    net._apply(lambda t: t)
    net.zero_grad()
    return SimpleNamespace(net=net, Leaf=Leaf)


def at(number, action):
    """A function for ``_apply`` that gives tensors back, acts at the call with this number, and
    notes the first value of each tensor.
    """
    seen = []

    def fn(t):
        seen.append(values(t)[0])
        if len(seen) == number + 1:
            action(t)
        return t

    fn.seen = seen
    return fn


# -- _apply: the children change ------------------------------------------------------------------


def test_a_child_that_is_replaced_later_in_the_row(impl):
    r = row(impl)
    fn = at(0, lambda t: r.net._modules.__setitem__("c2", r.Leaf(20)))
    r.net._apply(fn)
    assert fn.seen == [0, 1, 20, 3]


def test_the_child_that_is_being_converted_is_replaced(impl):
    r = row(impl)
    old = weakref.ref(r.net.c1)
    alive = []

    def replace(t):
        r.net._modules["c1"] = r.Leaf(10)
        alive.append(old() is not None)

    fn = at(1, replace)
    r.net._apply(fn)
    assert fn.seen == [0, 1, 2, 3]
    assert alive == [True]
    gc.collect()
    assert old() is None


@pytest.mark.parametrize("change", ["del", "add"])
def test_the_number_of_children_changes(impl, change):
    r = row(impl)
    fn = at(1, lambda t: delattr(r.net, "c3") if change == "del" else r.net.add_module("c9", r.net))
    with raises(RuntimeError, "changed size"):
        r.net._apply(fn)
    assert fn.seen == [0, 1]


def test_a_child_with_several_names_is_converted_once(impl):
    r = row(impl)
    r.net.c3 = r.net.c1
    fn = at(9, None)
    r.net._apply(fn)
    assert fn.seen == [0, 1, 2]


def test_a_child_that_moves_on_is_converted_once(impl):
    r = row(impl)
    fn = at(1, lambda t: r.net._modules.__setitem__("c3", r.net._modules["c1"]))
    r.net._apply(fn)
    assert fn.seen == [0, 1, 2]


def test_a_childless_module_gets_a_child(impl):
    r = row(impl)
    fn = at(0, lambda t: r.net.c2.add_module("below", r.Leaf(20)))
    r.net._apply(fn)
    assert fn.seen == [0, 1, 20, 2, 3]


# -- _apply: overrides that come late -------------------------------------------------------------


@pytest.mark.parametrize("where", ["class", "instance", "__class__"])
def test_an_override_that_comes_in_the_middle(impl, where):
    r = row(impl)
    calls = []

    def own(*args):
        calls.append(len(fn.seen))

    class Other(r.Leaf):
        _apply = own

    def act(t):
        if where == "class":
            r.Leaf._apply = own
        elif where == "instance":
            object.__getattribute__(r.net.c2, "__dict__")["_apply"] = own
        else:
            r.net.c2.__class__ = Other

    fn = at(1, act)
    r.net._apply(fn)
    assert calls == ([2, 2] if where == "class" else [2])
    assert fn.seen == ([0, 1] if where == "class" else [0, 1, 3])


# -- _apply: the parameters change -----------------------------------------------------------------


def test_a_parameter_that_fn_replaces(impl):
    r = row(impl)
    new = impl.nn.Parameter(impl.lib.tensor([7.0]))
    fn = at(1, lambda t: r.net.c1._parameters.__setitem__("w", new))
    r.net._apply(fn)
    assert fn.seen == [0, 1, 2, 3]
    assert r.net.c1.w is new


@pytest.mark.parametrize("change", ["del", "add"])
def test_the_number_of_parameters_changes(impl, change):
    r = row(impl)
    r.net.c1.v = impl.nn.Parameter(impl.lib.tensor([1.5]))
    registry = r.net.c1._parameters

    def act(t):
        if change == "del":
            del registry["v"]
        else:
            registry["u"] = t

    fn = at(1, act)
    with raises(RuntimeError, "changed size"):
        r.net._apply(fn)
    assert fn.seen == [0, 1]


def test_a_registry_that_is_exchanged(impl):
    r = row(impl)
    new = {"w": impl.nn.Parameter(impl.lib.tensor([7.0]))}
    fn = at(0, lambda t: r.net.c1.__dict__.__setitem__("_parameters", new))
    r.net._apply(fn)
    assert fn.seen == [0, 7, 2, 3]


def test_a_gradient_that_fn_sets(impl):
    r = row(impl)
    fn = at(1, lambda t: setattr(t, "grad", impl.lib.tensor([-5.0])))
    r.net._apply(fn)
    assert fn.seen == [0, 1, -5, 2, 3]
    assert values(r.net.c1.w.grad) == [-5.0]


def test_a_class_of_parameters_that_fn_gives(impl):
    class Own(parameter_type(impl)):
        pass

    r = row(impl)
    first = r.net.c1.w

    def change(t):
        t.__class__ = Own
        t.grad = impl.lib.tensor([-5.0])

    fn = at(1, change)
    r.net._apply(fn)
    r.net._apply(at(9, None))
    assert fn.seen == [0, 1, -5, 2, 3]
    assert r.net.c1.w is first
    assert type(first) is Own


def test_what_is_no_tensor_after_those_that_are(impl):
    r = row(impl)
    r.net.c2._parameters["w"] = 5
    fn = at(9, None)
    with raises(AttributeError):
        r.net._apply(fn if impl.lib.__name__ == "modtree" else lambda t: fn(t.data))
    assert fn.seen == [0, 1]


@pytest.mark.parametrize("kind", ["method", "builtin", "object", "partial"])
def test_functions_of_other_kinds(impl, kind):
    import functools

    r = row(impl)
    seen = []

    class Object:
        def __call__(self, t):
            seen.append(values(t)[0])
            return t

    fn = {
        "method": Object().__call__,
        "object": Object(),
        "partial": functools.partial(lambda o, t: o(t), Object()),
        "builtin": impl.lib.Tensor.detach,
    }[kind]
    kept = [c.w for c in r.net.children()]
    r.net._apply(fn)
    assert all(a is b.w for a, b in zip(kept, r.net.children(), strict=True))
    assert seen == ([] if kind == "builtin" else [0, 1, 2, 3])


def test_a_function_with_the_wrong_arguments(impl):
    with raises(TypeError, "positional argument"):
        row(impl).net._apply(lambda: None)


def test_the_grad_mode_after_an_error(impl):
    def fail(t):
        assert not impl.lib.is_grad_enabled()
        raise LookupError

    r = row(impl)
    with pytest.raises(LookupError):
        r.net._apply(at(2, fail))
    assert impl.lib.is_grad_enabled()


# -- how torch's tensors are asked for their gradient ----------------------------------------------


@pytest.fixture
def of_torch(impl):
    if impl.lib.__name__ != "torch":
        pytest.skip("only torch has these")
    return impl


def test_a_mode_answers_for_the_gradient(of_torch):
    import torch
    from torch.overrides import TorchFunctionMode

    r = row(of_torch)
    given = torch.tensor([-5.0])
    asked = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func == torch.Tensor.grad.__get__:
                asked.append(args[0])
                return given
            return func(*args, **(kwargs or {}))

    seen = []
    with Mode():
        r.net._apply(lambda t: (seen.append(t), t)[1])
    assert sum(t is given for t in seen) == 4
    assert len(asked) >= 4
    fn = at(9, None)
    r.net._apply(fn)
    assert fn.seen == [0, 1, 2, 3]


def test_a_mode_that_fn_enters(of_torch):
    import torch
    from torch.overrides import TorchFunctionMode

    r = row(of_torch)
    asked = []

    class Mode(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func == torch.Tensor.grad.__get__:
                asked.append(float(args[0].data[0]))
            return func(*args, **(kwargs or {}))

    mode = Mode()
    fn = at(2, lambda t: mode.__enter__())
    try:
        r.net._apply(fn)
    finally:
        mode.__exit__(None, None, None)
    assert sorted(set(asked)) == [2.0, 3.0]


def test_a_property_in_the_place_of_grad(of_torch, monkeypatch):
    import torch

    r = row(of_torch)
    r.net.zero_grad()
    given = torch.tensor([-5.0])
    monkeypatch.setattr(torch.Tensor, "grad", property(lambda self: given), raising=False)
    seen = []
    r.net._apply(lambda t: (seen.append(t), t)[1])
    assert sum(t is given for t in seen) == 4
    monkeypatch.undo()
    fn = at(9, None)
    r.net._apply(fn)
    assert fn.seen == [0, 1, 2, 3]


@pytest.mark.parametrize("operation", ["_apply", "zero_grad"])
def test_a_parameter_that_is_no_leaf_warns(of_torch, operation):
    import torch

    r = row(of_torch)
    w = r.net.c1.w
    w.requires_grad_(False)
    w.mul_(torch.ones(1, requires_grad=True))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        r.net._apply(lambda t: t) if operation == "_apply" else r.net.zero_grad()
    assert ["not a leaf" in str(c.message) for c in caught] == [True]


# -- zero_grad and requires_grad_ ------------------------------------------------------------------


def grads(net):
    return [p.grad is not None for p in net.parameters()]


@pytest.mark.parametrize("place", range(4))
def test_zero_grad_finds_the_one_that_has_a_gradient(impl, place):
    r = row(impl)
    below = leaf(impl, "v")
    r.net.c1.below = below
    r.net.get_submodule(f"c{place}").w.grad = impl.lib.tensor([1.0])
    below.v.grad = impl.lib.tensor([1.0, 1.0])
    r.net.zero_grad()
    assert not any(grads(r.net))


@ends_at_once
def test_zero_grad_when_the_end_of_a_gradient_changes_the_tree(impl):
    r = row(impl)
    grad = impl.lib.tensor([1.0])
    late = impl.lib.tensor([2.0])

    class Witness:
        def __del__(self):
            r.net.c3.w.grad = late
            r.net._modules["c2"] = r.Leaf(20)

    grad.witness = Witness()
    r.net.c0.w.grad = grad
    del grad
    r.net.zero_grad()
    gc.collect()
    assert values(r.net.c2.w) == [20.0]
    assert not any(grads(r.net))


def test_zero_grad_through_shared_modules_and_cycles(impl):
    r = row(impl)
    r.net.c0.up = r.net.c1
    r.net.c1.up = r.net.c0
    r.net.c2.up = r.net.c1
    r.net.zero_grad()
    r.net.c1.w.grad = impl.lib.tensor([1.0])
    r.net.zero_grad()
    assert not any(grads(r.net))


def test_a_diamond_of_many_levels_ends(impl):
    lower = leaf(impl, "w")
    for _ in range(60):
        upper = impl.nn.Module()
        upper.a, upper.b = lower, lower
        lower = upper
    lower.zero_grad()
    lower.requires_grad_(False)
    assert [p.requires_grad for p in lower.parameters()] == [False]


def test_zero_grad_asks_an_override_below(impl):
    r = row(impl)
    calls = []

    class Own(impl.nn.Module):
        def named_modules(self, *args, **kwargs):
            calls.append(1)
            return super().named_modules(*args, **kwargs)

    r.net.c4 = Own()
    r.net.zero_grad()
    r.net.requires_grad_(True)
    assert len(calls) == 2


def test_a_key_that_is_no_str(impl):
    r = row(impl)
    r.net._modules[5] = r.Leaf(5)
    for operation in (r.net.zero_grad, r.net.requires_grad_):
        with pytest.raises(TypeError):
            operation()


def test_a_parameter_that_is_no_tensor(impl):
    r = row(impl)
    r.net.c2._parameters["w"] = 5
    for operation in (r.net.zero_grad, r.net.requires_grad_):
        with pytest.raises(AttributeError):
            operation()


def test_requires_grad_stops_at_what_cannot_have_it(impl):
    r = row(impl)
    r.net.requires_grad_(False)
    whole = impl.nn.Parameter(impl.lib.tensor([1]), requires_grad=False)
    r.net.c2._parameters["w"] = whole
    with raises(RuntimeError, "floating point"):
        r.net.requires_grad_()
    assert [p.requires_grad for p in r.net.parameters()] == [True, True, False, False]
    r.net.requires_grad_(False)
    assert not any(p.requires_grad for p in r.net.parameters())


def test_requires_grad_of_what_is_no_bool(impl):
    with raises(TypeError, "must be bool"):
        row(impl).net.requires_grad_(1)


def test_requires_grad_of_a_subclass_with_its_own(impl):
    calls = []

    class Own(parameter_type(impl)):
        def requires_grad_(self, requires_grad=True):
            calls.append(requires_grad)
            return super().requires_grad_(requires_grad)

    r = row(impl)
    r.net.c1.w = Own(impl.lib.tensor([1.0]))
    r.net.requires_grad_(False)
    r.net.requires_grad_(True)
    assert calls == [False, True]


def test_operations_in_a_large_tree(impl):
    """Where what comes next is brought near: several classes, some without parameters."""
    r = row(impl, 1500)
    for i in range(0, 1500, 7):
        r.net._modules[f"c{i}"] = impl.nn.Identity() if i % 2 else leaf(impl, "a", "b")
    for i in range(3, 1500, 11):
        r.net._modules[f"c{i}"] = None
    r.net.c1499 = impl.nn.Sequential(impl.nn.Linear(1, 1))
    count = sum(1 for _ in r.net.parameters())
    seen = []
    r.net._apply(lambda t: (seen.append(t), t)[1])
    assert len(seen) == count
    for p in seen:
        p.grad = p.detach()
    r.net.zero_grad()
    assert not any(grads(r.net))
    r.net.requires_grad_(False)
    assert not any(p.requires_grad for p in seen)
    seen.clear()
    kept = r.net.c1401.w

    def fn(t):
        seen.append(t)
        r.net._modules["c1401"] = r.Leaf(1)  # the one that was looked at ahead dies
        return t

    r.net._apply(fn)
    assert len(seen) == count
    assert not any(t is kept for t in seen)
