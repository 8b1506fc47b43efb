# SPDX-License-Identifier: BSD-3-Clause
"""Backward hooks and the pass: exceptions, changes in place, parts of the graph, several passes,
lifetime.
"""

from __future__ import annotations

import copy
import gc
import weakref

import pytest
from helpers.backward_common import (
    doubles,
    gradient,
    leaf_input,
    lists,
    module_of,
    noting,
    tensor,
    two_outputs,
)
from helpers.support import raises, warns

# -- exceptions ------------------------------------------------------------------------------------


class Stop(Exception):
    pass


@pytest.mark.parametrize("where", ["forward", "pre", "full", "tensor"])
def test_exceptions_pass_through_and_leave_the_module_usable(impl, where):
    failing = [True]

    def fail_at(place):
        if where == place and failing:
            raise Stop(place)

    def forward(self, x):
        fail_at("forward")
        y = x * 2
        y.register_hook(lambda g: fail_at("tensor"))
        return y

    m = module_of(impl, forward)
    seen = []

    def pre(m, go):
        fail_at("pre")

    def full(m, gi, go):
        fail_at("full")
        seen.append((lists(gi), lists(go)))

    m.register_full_backward_pre_hook(pre)
    m.register_full_backward_hook(full)
    x = leaf_input(impl, 1.0)
    with raises(Stop, where):
        m(x).sum().backward()
    assert seen == [] and x.grad is None
    failing.clear()
    m(x).sum().backward()
    assert seen == [(([2.0],), ([1.0],))]
    assert x.grad.tolist() == [2.0]


def test_a_second_pass_after_an_exception(impl):
    m = doubles(impl)
    failing = [True]

    def full(m, gi, go):
        if failing:
            raise Stop

    m.register_full_backward_hook(full)
    x = leaf_input(impl, 1.0)
    out = m(x).sum()
    with raises(Stop):
        out.backward(retain_graph=True)
    failing.clear()
    out.backward()
    assert x.grad.tolist() == [2.0]


# -- changes in place ------------------------------------------------------------------------------

REFUSED = "is a view and is being modified inplace"
CHANGED = "is a view and its base or another view of its base has been modified inplace"


def hooked(m):
    m.register_full_backward_hook(lambda *a: None)
    return m


def test_forward_that_writes_into_its_input(impl):
    m = hooked(module_of(impl, lambda self, x: x.add_(1)))
    y = leaf_input(impl, 1.0) * 2
    with raises(RuntimeError, REFUSED, "custom Function"):
        m(y)
    assert y.tolist() == [2.0]
    with impl.lib.no_grad():
        assert m(y).tolist() == [3.0]


@pytest.mark.parametrize("change", ["add", "item", "part", "fill"])
def test_writing_into_an_output(impl, change):
    out = hooked(doubles(impl))(leaf_input(impl, 1.0, 2.0))
    with raises(RuntimeError, REFUSED):
        if change == "add":
            out += 1
        elif change == "item":
            out[0] = 1.0
        elif change == "part":
            out[:1].mul_(2)
        else:
            out.zero_()
    assert out.tolist() == [2.0, 4.0]
    with raises(RuntimeError, "Can't detach views in-place"):
        out.detach_()


def test_writing_into_one_of_several_outputs(impl):
    a, _ = hooked(two_outputs(impl))(leaf_input(impl, 1.0))
    with raises(RuntimeError, REFUSED, "multiple views"):
        a.add_(1)


def test_writing_into_a_clone_of_an_output(impl):
    m = doubles(impl)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(lists(go)))
    x = leaf_input(impl, 1.0)
    m(x).clone().mul_(5).sum().backward()
    assert seen == [([5.0],)] and x.grad.tolist() == [10.0]


def test_an_output_changed_outside_the_graph(impl):
    out = hooked(doubles(impl))(leaf_input(impl, 1.0))
    with impl.lib.no_grad():
        out.add_(1)
    with raises(RuntimeError, CHANGED):
        out.sum()


def test_forward_that_writes_into_a_constant_input(impl):
    def forward(self, x, b):
        b += 1
        return x * b

    m = hooked(module_of(impl, forward))
    b = tensor(impl, 1.0)
    x = leaf_input(impl, 3.0)
    m(x, b).sum().backward()
    assert b.tolist() == [2.0] and x.grad.tolist() == [2.0]


@pytest.mark.parametrize("several", [False, True])
def test_writing_into_an_input_that_a_function_returned(impl, several):
    class Same(impl.lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return (x, x * 1) if several else x

        @staticmethod
        def backward(ctx, g, *more):
            return g * 10

    x = leaf_input(impl, 1.0)
    middle = x * tensor(impl, 2.0)
    y = Same.apply(middle)
    y = y[0] if several else y
    assert y is not middle
    with raises(RuntimeError, REFUSED, "multiple views" if several else "custom Function"):
        y.mul_(tensor(impl, 3.0))
    (y * tensor(impl, 3.0)).sum().backward()
    assert x.grad.tolist() == [60.0]


def test_forward_that_makes_a_constant_input_part_of_the_graph(impl):
    def forward(self, x):
        x += self.w
        return x * x

    m = module_of(impl, forward, w=2.0)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append((gi, lists(go))))
    out = m(tensor(impl, 1.0)).sum()
    with warns(UserWarning, "no inputs require gradients"):
        out.backward()
    assert seen == [((None,), ([1.0],))]
    assert m.w.grad.item() == 6.0


# -- several passes, parts of the graph ------------------------------------------------------------


def test_gradient_of_a_gradient(impl):
    seen = []
    m = noting(module_of(impl, lambda self, x: x**3), seen)
    x = leaf_input(impl, 2.0)
    (g,) = gradient(impl, m(x).sum(), x, create_graph=True)
    assert seen == [("pre", ([1.0],)), ("full", ([12.0],), ([1.0],))]
    seen.clear()
    (h,) = gradient(impl, g.sum(), x)
    assert h.tolist() == [12.0]
    assert seen == []  # this pass does not come from the output


def test_a_hook_that_makes_the_gradient_part_of_the_graph(impl):
    m = doubles(impl)
    m.register_full_backward_hook(lambda m, gi, go: (gi[0] * x,))
    x = leaf_input(impl, 3.0)
    (g,) = gradient(impl, m(x).sum(), x, create_graph=True)
    assert g.tolist() == [6.0] and g.requires_grad
    (h,) = gradient(impl, g.sum(), x)
    assert h.tolist() == [2.0]


@pytest.mark.parametrize("create_graph", [False, True])
def test_hooks_run_in_the_grad_mode_of_the_pass(impl, create_graph):
    m = doubles(impl)
    modes = []
    m.register_full_backward_pre_hook(lambda m, go: modes.append(impl.lib.is_grad_enabled()))
    m.register_full_backward_hook(lambda m, gi, go: modes.append(impl.lib.is_grad_enabled()))
    x = leaf_input(impl, 3.0)
    gradient(impl, m(x).sum(), x, create_graph=create_graph)
    assert modes == [create_graph] * 2


def test_only_a_part_of_the_gradients_is_wanted(impl):
    seen = []
    m = noting(module_of(impl, lambda self, x, y: x * self.w * y, w=2.0), seen)
    x, y = leaf_input(impl, 3.0), leaf_input(impl, 5.0)
    assert lists(gradient(impl, m(x, y).sum(), m.w)) == (15.0,)
    assert seen == [("pre", ([1.0],))]
    seen.clear()
    assert lists(gradient(impl, m(x, y).sum(), x)) == ([10.0],)
    assert [s[0] for s in seen] == ["pre", "full"]
    m(x, y).sum().backward(inputs=[y])
    assert lists((x.grad, y.grad, m.w.grad)) == (None, [6.0], None)


def test_one_module_called_twice(impl):
    seen = []
    m = noting(module_of(impl, lambda self, x: x * self.w, w=3.0), seen)
    m(m(leaf_input(impl, 1.0))).sum().backward()
    assert seen == [
        ("pre", ([1.0],)),
        ("full", ([3.0],), ([1.0],)),
        ("pre", ([3.0],)),
        ("full", ([9.0],), ([3.0],)),
    ]
    assert m.w.grad.item() == 6.0


def test_order_with_hooks_of_tensors_and_nodes(impl):
    m = doubles(impl)
    order = []
    m.register_full_backward_pre_hook(lambda m, go: order.append("module pre"))
    m.register_full_backward_hook(lambda m, gi, go: order.append("module"))
    x = leaf_input(impl, 1.0)
    out = m(x)
    assert out.grad_fn.name() == "BackwardHookFunctionBackward"
    out.grad_fn.register_hook(lambda gi, go: order.append("node"))
    out.grad_fn.register_prehook(lambda go: order.append("node pre"))
    out.register_hook(lambda g: order.append("tensor"))
    x.register_hook(lambda g: order.append("leaf"))
    x.register_post_accumulate_grad_hook(lambda t: order.append("accumulated"))
    out.sum().backward()
    assert order == [
        "tensor",
        "node pre",
        "module pre",
        "node",
        "module",
        "leaf",
        "accumulated",
    ]


def test_hooks_are_copied_with_the_module(impl):
    m = doubles(impl)
    seen = []
    m.register_full_backward_hook(lambda m, gi, go: seen.append(m))
    other = copy.deepcopy(m)
    other(leaf_input(impl, 1.0)).sum().backward()
    assert seen == [other]


# -- lifetime --------------------------------------------------------------------------------------


def test_the_graph_holds_module_and_hooks_no_longer_than_it_lives(impl):
    m = hooked(doubles(impl))
    ref = weakref.ref(m)
    out = m(leaf_input(impl, 1.0))
    del m
    gc.collect()
    assert ref() is not None
    out.sum().backward()
    del out
    gc.collect()
    assert ref() is None


def test_no_tensor_stays_when_the_graph_is_gone(impl):
    m = hooked(doubles(impl))
    x = leaf_input(impl, 1.0)
    middle = x * 2
    out = m(middle)
    refs = [weakref.ref(x), weakref.ref(middle), weakref.ref(out)]
    out.sum().backward()
    del x, middle, out
    gc.collect()
    assert [r() for r in refs] == [None] * 3
