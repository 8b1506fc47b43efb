# SPDX-License-Identifier: BSD-3-Clause
"""Functions with a derivative of one's own, on modtree and on torch."""

from __future__ import annotations

from typing import Any

import pytest
from helpers.support import quiet, raises, values


def function(lib: Any, forward: Any, backward: Any, **more: Any) -> Any:
    members = {"forward": staticmethod(forward), "backward": staticmethod(backward), **more}
    return type("Mine", (lib.autograd.Function,), members).apply


def leaf(lib: Any, *numbers: float) -> Any:
    return lib.tensor(list(numbers), requires_grad=True)


def square_forward(ctx: Any, x: Any) -> Any:
    ctx.save_for_backward(x)
    return x * x


def square_backward(ctx: Any, g: Any) -> Any:
    (x,) = ctx.saved_tensors
    return g * 2 * x


def test_first_and_second_derivative(lib):
    square = function(lib, square_forward, square_backward)
    x = leaf(lib, 3.0)
    y = square(x)
    assert y.requires_grad and y.grad_fn.name() == "MineBackward"
    (first,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    assert (values(first), values(second)) == ([6.0], [2.0])


def test_saved_result(lib):
    def forward(ctx, x):
        out = x.exp()
        ctx.save_for_backward(out, None)
        return out

    def backward(ctx, g):
        out, nothing = ctx.saved_tensors
        assert nothing is None
        return g * out

    exp = function(lib, forward, backward)
    x = leaf(lib, 0.0)
    (first,) = lib.autograd.grad(exp(x).sum(), x, create_graph=True)
    (second,) = lib.autograd.grad(first.sum(), x)
    assert values(first) == values(second) == [1.0]


def test_setup_context(lib):
    def setup(ctx, inputs, output):
        ctx.factor = inputs[1]

    scale = function(
        lib,
        lambda x, factor: x * factor,
        lambda ctx, g: (g * ctx.factor, None),
        setup_context=staticmethod(setup),
    )
    x = leaf(lib, 3.0)
    scale(x, 4).sum().backward()
    assert values(x.grad) == [4.0]


def test_needs_input_grad(lib):
    seen = []

    def backward(ctx, g):
        seen.append(ctx.needs_input_grad)
        return g, None, g

    add = function(lib, lambda ctx, x, k, y: x + y, backward)
    x = leaf(lib, 1.0)
    add(x, 2, lib.ones(1)).sum().backward()
    assert seen == [(True, False, False)] and values(x.grad) == [1.0]


def test_several_outputs_and_zeros(lib):
    seen = []

    def backward(ctx, a, b):
        seen.append((values(a), None if b is None else values(b)))
        return a * 2

    both = function(lib, lambda ctx, x: (x * 2, x * 3), backward)
    x = leaf(lib, 1.0)
    both(x)[0].sum().backward()
    assert seen == [([1.0], [0.0])] and values(x.grad) == [2.0]

    def forward(ctx, x):
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    seen.clear()
    function(lib, forward, backward)(x)[0].sum().backward()
    assert seen == [([1.0], None)]


def test_non_differentiable(lib):
    def forward(ctx, x):
        where = x > 0
        signs = x.sign()
        ctx.mark_non_differentiable(where, signs)
        return x * 1, where, signs

    f = function(lib, forward, lambda ctx, g, *rest: g)
    out, where, signs = f(leaf(lib, 1.0))
    assert out.requires_grad and not where.requires_grad and not signs.requires_grad


def test_change_in_place(lib):
    def forward(ctx, x):
        ctx.mark_dirty(x)
        x.mul_(2)
        return x

    double = function(lib, forward, lambda ctx, g: g * 2)
    x = leaf(lib, 1.0, 2.0)
    y = x * 1
    out = double(y)
    assert out is y and values(y) == [2.0, 4.0]
    base = x * 1
    double(base[0])
    (y.sum() + base.sum()).backward()
    assert values(x.grad) == [4.0, 3.0]
    with raises(RuntimeError, "leaf Variable that requires grad"):
        double(leaf(lib, 1.0))


def test_input_returned_as_it_is(lib):
    same = function(lib, lambda ctx, x: x, lambda ctx, g: g * 10)
    x = leaf(lib, 1.0)
    y = same(x)
    assert y is not x and y.grad_fn.name() == "MineBackward" and x.is_leaf
    y.sum().backward()
    assert values(x.grad) == [10.0]


def test_input_returned_where_nothing_is_recorded(lib):
    """A view that was made under no_grad, whatever the mode of the call."""
    same = function(lib, lambda ctx, x: x, lambda ctx, g: g)
    for recording in (True, False):
        x = lib.ones(2)
        with lib.set_grad_enabled(recording):
            y = same(x)
        assert y is not x and y._base is x and not y.requires_grad
        x.add_(1)
        assert values(y) == [2.0, 2.0]
        x.mul_(leaf(lib, 1.0))
        with raises(RuntimeError, "A view was created in no_grad mode"):
            y.grad_fn  # noqa: B018
        with raises(RuntimeError, "A view was created in no_grad mode"):
            y.add_(1)


def test_no_gradient_wanted(lib):
    square = function(lib, square_forward, square_backward)
    assert not square(lib.ones(1)).requires_grad
    with lib.no_grad():
        assert not square(leaf(lib, 1.0)).requires_grad


def test_nothing_is_recorded_inside(lib):
    modes = []

    def forward(ctx, x):
        modes.append(lib.is_grad_enabled())
        return x * 2

    def backward(ctx, g):
        modes.append(lib.is_grad_enabled())
        return g

    f = function(lib, forward, backward)
    f(leaf(lib, 1.0)).sum().backward()
    with quiet():
        f(leaf(lib, 1.0)).sum().backward(create_graph=True)
    assert modes == [False, False, False, True]


def test_once_differentiable(lib):
    from importlib import import_module

    once = import_module(f"{lib.__name__}.autograd.function").once_differentiable
    square = function(lib, square_forward, once(square_backward))
    x = leaf(lib, 3.0)
    square(x).sum().backward()
    assert values(x.grad) == [6.0]
    (first,) = lib.autograd.grad(square(x).sum(), x, create_graph=True)
    with pytest.raises(RuntimeError):
        first.sum().backward()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_gradients(lib, count):
    f = function(lib, lambda ctx, x, y: x + y, lambda ctx, g: (g,) * count)
    with raises(RuntimeError, "returned an incorrect number of gradients (expected 2, got"):
        f(leaf(lib, 1.0), leaf(lib, 1.0)).sum().backward()


def test_more_nones_than_arguments(lib):
    f = function(lib, lambda ctx, x: x * 1, lambda ctx, g: (g, None, None))
    x = leaf(lib, 1.0)
    f(x).sum().backward()
    assert values(x.grad) == [1.0]


@pytest.mark.parametrize("junk", [3, "text", object()])
def test_junk_gradients(lib, junk):
    f = function(lib, lambda ctx, x: x * 1, lambda ctx, g: junk)
    with pytest.raises((TypeError, RuntimeError)):
        f(leaf(lib, 1.0)).sum().backward()


def test_gradient_of_another_shape(lib):
    f = function(lib, lambda ctx, x: x * 1, lambda ctx, g: lib.ones(5))
    with raises(RuntimeError, "returned an invalid gradient", "shape"):
        f(leaf(lib, 1.0, 2.0)).sum().backward()


def test_none_gradient(lib):
    f = function(lib, lambda ctx, x: x * 1, lambda ctx, g: None)
    x = leaf(lib, 1.0)
    f(x).sum().backward()
    assert x.grad is None


def test_saved_tensor_changed_in_place(lib):
    square = function(lib, square_forward, square_backward)
    y = leaf(lib, 1.0) * 1
    out = square(y)
    y.add_(1)
    with raises(RuntimeError, "modified by an inplace operation"):
        out.sum().backward()


def test_second_pass(lib):
    square = function(lib, square_forward, square_backward)
    out = square(leaf(lib, 1.0)).sum()
    out.backward()
    with raises(RuntimeError, "Trying to backward through the graph a second time"):
        out.backward()


def test_errors_come_through(lib):
    def fail(*args):
        raise KeyError("mine")

    with pytest.raises(KeyError):
        function(lib, fail, fail)(leaf(lib, 1.0))
    with pytest.raises(KeyError):
        function(lib, lambda ctx, x: x * 1, fail)(leaf(lib, 1.0)).sum().backward()


def test_missing_methods(lib):
    class Empty(lib.autograd.Function):
        pass

    with pytest.raises(NotImplementedError):
        Empty.apply(leaf(lib, 1.0))


def test_a_view_that_forward_returned_and_its_base_changed(lib):
    """A lost history is an error, also where the base itself needs no gradient, and before forward
    runs.
    """
    calls = []
    both = function(lib, lambda ctx, x, y: (x, y * 2), lambda ctx, a, b: (a, b * 2))
    double = function(lib, lambda ctx, x: calls.append(1) or x * 2, lambda ctx, g: g * 2)
    x = lib.ones(2)
    view, _ = both(x, leaf(lib, 1.0))
    assert view.grad_fn is not None
    x.add_(1)
    for use in (lambda: view.grad_fn, lambda: double(view), lambda: view + 1):
        with raises(RuntimeError, "its base or another view of its base has been modified inplace"):
            use()
    assert calls == []


def test_backward_to_a_result_runs_what_made_it(lib):
    """For the input itself that would not be needed; its hooks and what it saved are used up with
    it.
    """
    calls = []
    double = function(lib, lambda ctx, x: x * 2, lambda ctx, g: calls.append(1) or g * 2)
    x = leaf(lib, 1.0, 2.0)
    y = double(x)
    with quiet():
        (y * 3).sum().backward(inputs=[y])
    assert calls == [1] and values(y.grad) == [3.0, 3.0] and x.grad is None
    assert lib.autograd.grad((double(x) * 3).sum(), [x])[0] is not None and calls == [1, 1]
    z = double(x)
    lib.autograd.grad((z * 3).sum(), [z])
    assert calls == [1, 1]
