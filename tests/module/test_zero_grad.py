# SPDX-License-Identifier: BSD-3-Clause
"""``zero_grad``."""

from __future__ import annotations

import pytest
from helpers.support import leaf, quiet, raises, tree, values, warns


def with_grads(impl):
    net = tree(impl)
    for p in net.parameters():
        p.grad = impl.lib.ones(*p.shape) if len(p.shape) else impl.lib.tensor(1.0)
    return net


def test_drops_the_gradients(impl):
    net = with_grads(impl)
    assert net.zero_grad() is None
    assert [p.grad for p in net.parameters()] == [None] * 5


def test_can_zero_in_place(impl):
    net = with_grads(impl)
    net.head.weight.grad = None
    grads = [p.grad for p in net.parameters()]
    assert net.zero_grad(set_to_none=False) is None
    assert all(p.grad is g for p, g in zip(net.parameters(), grads, strict=True))
    assert values(net.gain.grad) == [0.0]
    assert values(net.body.scale.grad) == 0.0
    assert net.head.weight.grad is None


def test_positional_flag(impl):
    m = leaf(impl, "w")
    grad = m.w.grad = impl.lib.tensor([1.0, 2.0])
    m.zero_grad(False)
    assert m.w.grad is grad
    assert values(grad) == [0.0, 0.0]


def test_truthy_flags(impl):
    m = leaf(impl, "w")
    m.w.grad = impl.lib.tensor([1.0, 2.0])
    m.zero_grad(0)
    assert values(m.w.grad) == [0.0, 0.0]
    m.zero_grad("yes")
    assert m.w.grad is None


@pytest.mark.parametrize("method", ["zero_grad", "requires_grad_"])
def test_something_else_among_the_parameters(impl, method):
    m = impl.nn.Module()
    m._parameters["x"] = [1]
    with raises(TypeError, "unhashable"):
        getattr(m, method)()
    m._parameters["x"] = "text"
    with raises(AttributeError):
        getattr(m, method)()


def test_buffers_keep_their_gradients(impl):
    m = impl.nn.Module()
    b = impl.lib.tensor([1.0])
    b.requires_grad_(True)
    b.grad = impl.lib.tensor([2.0])
    m.register_buffer("b", b)
    m.zero_grad()
    assert values(m.b.grad) == [2.0]


def test_gradient_with_a_graph_is_cut_off(impl):
    m = leaf(impl, "w")
    with quiet():  # torch warns of the reference cycle
        (m.w**3).sum().backward(create_graph=True)
    grad = m.w.grad
    assert grad.grad_fn is not None
    m.zero_grad(set_to_none=False)
    assert m.w.grad is grad
    assert grad.grad_fn is None and not grad.requires_grad
    assert values(grad) == [0.0, 0.0]
    m.zero_grad()


def test_gradient_that_requires_gradients(impl):
    m = leaf(impl, "w")
    grad = m.w.grad = impl.lib.tensor([1.0, 1.0])
    grad.requires_grad_(True)
    m.zero_grad(set_to_none=False)
    assert grad.requires_grad is False
    assert values(grad) == [0.0, 0.0]


def test_uses_overridden_parameters(impl):
    class Own(impl.nn.Module):
        def parameters(self, recurse=True):
            return iter([self.a])

    m = Own()
    for name in "ab":
        setattr(m, name, impl.nn.Parameter(impl.lib.tensor([1.0])))
        getattr(m, name).grad = impl.lib.tensor([1.0])
    m.zero_grad()
    assert m.a.grad is None and m.b.grad is not None


def test_children_are_not_called(impl):
    class Own(impl.nn.Module):
        def zero_grad(self, set_to_none=True):
            raise AssertionError("not used by the parent")

    root = impl.nn.Module()
    root.child = Own()
    root.child.w = impl.nn.Parameter(impl.lib.tensor([1.0]))
    root.child.w.grad = impl.lib.tensor([1.0])
    root.zero_grad()
    assert root.child.w.grad is None


def test_class_that_answers_for_every_attribute(impl):
    class Own(impl.nn.Module):
        def __getattribute__(self, name):
            return super().__getattribute__(name)

        def __getattr__(self, name):
            raise AttributeError(name)

    m = Own()
    assert m.zero_grad() is None


def test_replica_warns_and_still_works(impl):
    m = leaf(impl, "w")
    m.w.grad = impl.lib.tensor([1.0, 1.0])
    m._is_replica = True
    with warns(UserWarning, "from a module created with nn.DataParallel() has no effect"):
        m.zero_grad()
    assert m.w.grad is None


def test_class_getattr_is_asked_whether_it_is_a_replica(impl):
    asked = []

    class Asked(impl.nn.Module):
        def __getattr__(self, name):
            asked.append(name)
            return super().__getattr__(name)

    m = Asked()
    asked.clear()
    m.zero_grad()
    assert asked == ["_is_replica"]

    class Replica(impl.nn.Module):
        def __getattr__(self, name):
            return name == "_is_replica" or super().__getattr__(name)

    with warns(UserWarning, "has no effect"):
        Replica().zero_grad()


def test_buffer_named_is_replica_warns(impl):
    m = impl.nn.Module()
    m.register_buffer("_is_replica", impl.lib.tensor(1.0))
    with warns(UserWarning, "has no effect"):
        m.zero_grad()
