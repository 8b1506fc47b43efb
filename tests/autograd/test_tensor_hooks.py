# SPDX-License-Identifier: BSD-3-Clause
"""Hooks on tensors: when they run, what they get, what they may return."""

from __future__ import annotations

import copy

import pytest
from helpers.hooks_common import Notes, leaf, pair
from helpers.support import raises


@pytest.fixture
def notes():
    return Notes()


# -- order and replacement -------------------------------------------------------------------------


def test_hooks_of_a_leaf_form_a_chain(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    x.register_hook(notes.hook("a", lambda g: g * 2))
    handle = x.register_hook(notes.hook("b"))
    x.register_hook(notes.hook("c", lambda g: g + 1))
    (x * pair(lib)).sum().backward()
    assert notes == [("a", [2.0, 2.0]), ("b", [4.0, 4.0]), ("c", [4.0, 4.0])]
    assert x.grad.tolist() == [5.0, 5.0]
    notes.clear()
    handle.remove()
    (x * pair(lib) + x).sum().backward()  # the sum of both ways arrives, once
    assert notes == [("a", [3.0, 3.0]), ("c", [6.0, 6.0])]
    assert x.grad.tolist() == [12.0, 12.0]


def test_hooks_of_a_tensor_in_the_graph(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.register_hook(notes.hook("y", lambda g: g * 3))
    x.register_hook(notes.hook("x"))
    (y.sum() + (y * y).sum()).backward()
    assert notes == [("y", [5.0, 9.0]), ("x", [30.0, 54.0])]
    assert x.grad.tolist() == [30.0, 54.0]


def test_hooks_registered_after_the_graph_was_built(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    out = y.sum()
    x.register_hook(notes.hook("x"))
    y.register_hook(notes.hook("y"))
    out.backward()
    assert notes == [("y", [1.0, 1.0]), ("x", [2.0, 2.0])]


def test_hook_of_the_root(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.register_hook(notes.hook("y", lambda g: g * 2))
    y.backward(pair(lib, 5.0))
    assert notes == [("y", [5.0, 5.0])] and x.grad.tolist() == [20.0, 20.0]
    x.register_hook(notes.hook("x", lambda g: g * 2))
    x.backward(pair(lib, 1.0))
    assert notes[1:] == [("x", [1.0, 1.0])] and x.grad.tolist() == [22.0, 22.0]


def test_each_of_several_results_has_its_hooks(lib, notes):
    x = leaf(lib, 2.0, 3.0)
    a, b = x.unbind(0)
    a.register_hook(notes.hook("a", lambda g: g * 10))
    b.register_hook(notes.hook("b"))
    (a * b).backward()
    assert notes == [("a", 3.0), ("b", 2.0)] and x.grad.tolist() == [30.0, 2.0]


def test_a_gradient_that_does_not_arrive_is_none(lib, notes):
    x = leaf(lib, 2.0, 3.0)
    a, b = x.unbind(0)
    a.register_hook(notes.hook("a"))
    b.register_hook(notes.hook("b"))
    b.retain_grad()
    a.backward()
    assert notes == [("a", 1.0), ("b", None)]
    assert b.grad is None and x.grad.tolist() == [1.0, 0.0]
    c, d = x.unbind(0)
    d.register_hook(lambda g: lib.tensor(1.0))
    with raises(RuntimeError, "can't replace a None gradient with a non-None value"):
        c.backward()


@pytest.mark.parametrize(
    ("returned", "kind", "text"),
    [
        (lambda g: [g], TypeError, "expected Variable, but hook returned 'list'"),
        (lambda g: (g,), TypeError, "expected Variable, but hook returned 'tuple'"),
        (lambda g: 3, TypeError, "expected Variable, but hook returned 'int'"),
        (lambda g: False, TypeError, "expected Variable, but hook returned 'bool'"),
        (lambda g: g[0], RuntimeError, "has changed the size of value"),
        (lambda g: g.reshape(1, 2), RuntimeError, "has changed the size of value"),
        (lambda g: g.double(), RuntimeError, "has changed the type of value"),
    ],
)
@pytest.mark.parametrize("on_leaf", [False, True])
def test_wrong_returns(lib, returned, kind, text, on_leaf):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    (x if on_leaf else y).register_hook(returned)
    with raises(kind, text):
        y.sum().backward()
    assert x.grad is None


def test_exceptions_of_hooks(lib):
    x = leaf(lib, 1.0, 2.0)

    def fails(grad):
        raise ValueError("boom")

    handle = x.register_hook(fails)
    out = (x * pair(lib)).sum()
    with raises(ValueError, "boom"):
        out.backward(retain_graph=True)
    assert x.grad is None
    handle.remove()
    out.backward()
    assert x.grad.tolist() == [2.0, 2.0]


def test_what_cannot_be_called(lib):
    x = leaf(lib, 1.0)
    x.register_hook(3)
    with raises(TypeError, "'int' object is not callable"):
        x.sum().backward()


def test_where_hooks_cannot_be(lib):
    text = "cannot register a hook on a tensor that doesn't require gradient"
    for register in ("register_hook", "register_post_accumulate_grad_hook"):
        with raises(RuntimeError, text):
            getattr(lib.tensor(1.0), register)(print)
    y = leaf(lib, 1.0) * lib.tensor([2.0])
    with raises(
        RuntimeError, "post accumulate grad hooks cannot be registered on non-leaf tensors"
    ):
        y.register_post_accumulate_grad_hook(print)


# -- what a hook gets ------------------------------------------------------------------------------


def test_gradients_are_tensors_on_the_graph_only_if_it_is_made(lib):
    seen = []
    x = leaf(lib, 1.0, 2.0)
    x.register_hook(
        lambda g: seen.append((type(g), g.requires_grad, g.dtype, lib.is_grad_enabled()))
    )
    (x * x).sum().backward()
    (g,) = lib.autograd.grad((x * x).sum(), x, create_graph=True)
    assert seen == [
        (lib.Tensor, False, lib.float32, False),
        (lib.Tensor, True, lib.float32, True),
    ]
    assert lib.autograd.grad(g.sum(), x)[0].tolist() == [2.0, 2.0]


def test_a_replacement_is_part_of_the_graph(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.register_hook(lambda g: g * x * x)
    (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    assert g.tolist() == [2.0, 8.0]
    assert lib.autograd.grad(g.sum(), x)[0].tolist() == [4.0, 8.0]


def test_captured_gradients_have_passed_the_hooks(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    x.register_hook(notes.hook("x", lambda g: g * 2))
    x.register_post_accumulate_grad_hook(lambda t: pytest.fail("nothing is accumulated"))
    y = x * pair(lib)
    y.register_hook(notes.hook("y", lambda g: g * 3))
    out = y.sum()
    assert lib.autograd.grad(out, y, retain_graph=True)[0].tolist() == [3.0, 3.0]
    assert notes == [("y", [1.0, 1.0])]
    assert lib.autograd.grad(out, x)[0].tolist() == [12.0, 12.0]
    assert notes[1:] == [("y", [1.0, 1.0]), ("x", [6.0, 6.0])]


def test_captured_gradients_on_the_way_to_others_have_passed_the_hooks(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.register_hook(lambda g: g * 3)
    grads = [g.tolist() for g in lib.autograd.grad(y.sum(), [y, x])]
    # torch takes the gradient of y before its hook here, and after it when y is asked for alone.
    assert grads == [[1.0, 1.0] if lib.__name__ == "torch" else [3.0, 3.0], [6.0, 6.0]]


def test_hooks_of_what_is_not_asked_for_do_not_run(lib):
    x, y = leaf(lib, 1.0), leaf(lib, 2.0)
    middle = y * lib.tensor([3.0])
    middle.register_hook(lambda g: pytest.fail("is not asked for"))
    out = (x * middle).sum()
    out.backward(inputs=[x])
    assert x.grad.tolist() == [6.0] and y.grad is None


@pytest.mark.parametrize(
    "expected", [[0, 1], [0, 1, 2], [0, 2, 4, 1, 3], [0, 2, 6, 5, 7, 4, 1, 3]], ids=len
)
def test_order_of_leaves(lib, notes, expected):
    # That of a heap in which all are equal.
    parts = [leaf(lib, 1.0) for _ in expected]
    for i, x in enumerate(parts):
        x.register_hook(lambda g, i=i: notes.append(i))
    lib.cat(parts).sum().backward()
    assert notes == expected


# -- retained gradients ----------------------------------------------------------------------------


@pytest.mark.parametrize("retain_first", [False, True])
def test_retained_gradients_have_passed_the_hooks(lib, retain_first):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    assert not y.retains_grad
    if retain_first:
        y.retain_grad()
    y.register_hook(lambda g: g * 3)
    if not retain_first:
        y.retain_grad()
    y.retain_grad()
    assert y.retains_grad
    out = y.sum()
    out.backward(retain_graph=True)
    assert y.grad.tolist() == [3.0, 3.0]
    out.backward()
    assert y.grad.tolist() == [6.0, 6.0] and x.grad.tolist() == [12.0, 12.0]


def test_retain_grad_of_leaves_and_constants(lib):
    x = leaf(lib, 1.0)
    x.retain_grad()
    assert not x.retains_grad
    with raises(RuntimeError, "can't retain_grad on Tensor that has requires_grad=False"):
        lib.tensor(1.0).retain_grad()


# -- changes in place ------------------------------------------------------------------------------


def test_hooks_from_before_and_after_a_change(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    y.register_hook(notes.hook("before"))
    y.retain_grad()
    y.mul_(pair(lib, 3.0))
    y.register_hook(notes.hook("after"))
    y.sum().backward()
    assert notes == [("after", [1.0, 1.0]), ("before", [3.0, 3.0])]
    assert y.grad.tolist() == [1.0, 1.0]  # of the tensor as it is now


def test_hooks_of_a_view_and_its_base_around_a_change(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)
    v = y[0]
    v.register_hook(notes.hook("view before"))
    y.register_hook(notes.hook("base before"))
    v.mul_(lib.tensor(3.0))
    v.register_hook(notes.hook("view after"))
    y.register_hook(notes.hook("base after"))
    (y.sum() + v).backward()
    assert notes == [("view after", 1.0), ("base after", [2.0, 1.0]), ("base before", [6.0, 1.0])]
    assert x.grad.tolist() == [12.0, 2.0]


def test_retained_gradients_of_a_view_and_its_base(lib):
    y = leaf(lib, 1.0, 2.0) * pair(lib)
    v = y.view(2)
    v.retain_grad()
    y.retain_grad()
    v.mul_(pair(lib, 3.0))
    (y.sum() + v.sum()).backward()
    assert y.grad.tolist() == [2.0, 2.0] and v.grad.tolist() == [1.0, 1.0]


def test_hook_of_a_leaf_that_is_changed_outside_the_graph(lib, notes):
    x = leaf(lib, 1.0, 2.0)
    x.register_hook(notes.hook("x"))
    with lib.no_grad():
        x.mul_(pair(lib))
    (x * x).sum().backward()
    assert notes == [("x", [4.0, 8.0])]


# -- hooks that change things ----------------------------------------------------------------------


def test_hooks_that_add_and_remove_hooks(lib, notes):
    x = leaf(lib, 1.0)
    handles = []

    def once(grad):
        notes.append("once")
        handles[0].remove()

    def adds(grad):
        notes.append("adds")
        x.register_hook(notes.hook("added"))

    handles.append(x.register_hook(once))
    removed_on_the_way = x.register_hook(notes.hook("next"))
    handles.append(removed_on_the_way)
    x.register_hook(adds)
    x.sum().backward()
    assert notes == ["once", ("next", [1.0]), "adds"]
    notes.clear()
    x.sum().backward()
    assert notes == [("next", [1.0]), "adds", ("added", [1.0])]


def test_handle_as_a_context(lib, notes):
    x = leaf(lib, 1.0)
    with x.register_hook(notes.hook("inside")) as handle:
        x.sum().backward()
    x.sum().backward()
    assert notes == [("inside", [1.0])]
    handle.remove()


def test_a_pass_inside_a_hook(lib):
    x = leaf(lib, 1.0, 2.0)
    y = x * pair(lib)

    def again(grad):
        with lib.enable_grad():
            (x * x).sum().backward()

    y.register_hook(again)
    y.sum().backward()
    assert x.grad.tolist() == [4.0, 6.0]


def test_copies_have_no_hooks(lib):
    x = leaf(lib, 1.0)
    x.register_hook(lambda g: pytest.fail("belongs to another tensor"))
    other = copy.deepcopy(x)
    other.sum().backward()
    assert other.grad.tolist() == [1.0]
