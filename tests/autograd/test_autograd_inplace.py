# SPDX-License-Identifier: BSD-3-Clause
"""Changing tensors in place while operations are recorded, on modtree and on torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from helpers.support import quiet, raises, values, warns

import modtree as mt


def leaf(lib: Any, shape: tuple[int, ...] = (2, 3)) -> Any:
    numbers = np.linspace(0.1, 0.9, int(np.prod(shape))).reshape(shape)
    return lib.tensor(numbers, requires_grad=True)


def add_to(x: Any, y: Any) -> None:
    x += y


def assign(x: Any, index: Any, value: Any) -> None:
    x[index] = value


def times(x: Any, index: Any, value: Any) -> None:
    x[index] *= value


CHANGES = {
    "add_": lambda lib, x, y: x.add_(y),
    "sub_ alpha": lambda lib, x, y: x.sub_(y, alpha=2),
    "mul_": lambda lib, x, y: x.mul_(y),
    "div_": lambda lib, x, y: x.div_(y + 2),
    "+=": lambda lib, x, y: add_to(x, y),
    "tanh_": lambda lib, x, y: x.tanh_(),
    "exp_": lambda lib, x, y: x.exp_(),
    "sigmoid_": lambda lib, x, y: x.sigmoid_(),
    "sqrt_": lambda lib, x, y: x.sqrt_(),
    "neg_": lambda lib, x, y: x.neg_(),
    "relu_": lambda lib, x, y: x.relu_(),
    "clamp_": lambda lib, x, y: x.clamp_(0.3, 0.6),
    "pow_": lambda lib, x, y: x.pow_(2),
    "zero_": lambda lib, x, y: x.zero_(),
    "fill_": lambda lib, x, y: x.fill_(0.5),
    "copy_": lambda lib, x, y: x.copy_(y),
    "lerp_": lambda lib, x, y: x.lerp_(y, 0.25),
    "masked_fill_": lambda lib, x, y: x.masked_fill_(x > 0.4, 2.0),
    "x[0] =": lambda lib, x, y: assign(x, 0, y[0]),
    "x[0] = number": lambda lib, x, y: assign(x, 0, 3.0),
    "x[:, 1] =": lambda lib, x, y: assign(x, (slice(None), 1), y[:, 0]),
    "x[...] =": lambda lib, x, y: assign(x, ..., y),
    "x[::2] *=": lambda lib, x, y: times(x, slice(None, None, 2), 3.0),
    "x[[0, 1]] =": lambda lib, x, y: assign(x, [1, 0], y),
    "x[mask] =": lambda lib, x, y: assign(x, x > 0.4, 0.25),
    "x[tensor] =": lambda lib, x, y: assign(x, lib.tensor([1]), y[:1]),
    "x[0] += 1": lambda lib, x, y: add_to(x[0], 1),
    "x.t() row": lambda lib, x, y: x.t()[0].mul_(2),
    "reshape then add_": lambda lib, x, y: x.reshape(-1)[1:3].add_(y.reshape(-1)[:2]),
    "view of a view": lambda lib, x, y: x[1:].t()[0:2].unsqueeze(0).mul_(y[0, 0]),
    "chain": lambda lib, x, y: x.mul_(2).add_(y).tanh_(),
    "diagonal": lambda lib, x, y: x.diagonal().mul_(3),
}


def outcome(lib: Any, name: str, target: str) -> list[Any]:
    x, y = leaf(lib), leaf(lib)
    middle = x * 1.5
    if target == "view":
        changed = middle[:, :]
    elif target == "whole":
        changed = middle
    else:
        changed = y * 1  # another history, so that only y is reached through it
    CHANGES[name](lib, changed, y)
    (middle * middle.detach() + changed).sum().backward()
    results = [middle, changed, x.grad, y.grad]
    return [None if t is None else t.detach().numpy() for t in results]


@pytest.mark.parametrize("target", ["whole", "view"])
@pytest.mark.parametrize("name", CHANGES)
def test_gradients_equal_torchs(name, target, torch):
    import modtree

    for ours, theirs in zip(
        outcome(modtree, name, target), outcome(torch, name, target), strict=True
    ):
        assert (ours is None) == (theirs is None)
        if ours is not None:
            np.testing.assert_allclose(ours, theirs, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", CHANGES)
def test_leaf_is_refused(lib, name):
    x, y = leaf(lib), leaf(lib)
    before = values(x)
    with raises(
        RuntimeError, "leaf Variable that requires grad is being used in an in-place operation"
    ):
        CHANGES[name](lib, x, y)
    assert values(x) == before and x._version == 0
    with lib.no_grad():
        CHANGES[name](lib, x, y)
    assert x._version > 0 and x.is_leaf and x.requires_grad


def test_leaf_without_grad_becomes_a_result(lib):
    x, y = lib.zeros(2, 3, dtype=lib.float64), leaf(lib)
    x.add_(y)
    assert x.requires_grad and not x.is_leaf
    x.sum().backward()
    assert values(y.grad) == [[1.0] * 3] * 2


def test_view_of_a_plain_base(lib):
    base, y = lib.zeros(2, 3, dtype=lib.float64), leaf(lib, (3,))
    row = base[0]
    row.add_(y)
    assert base.requires_grad and not base.is_leaf and row.requires_grad
    assert base.grad_fn.name().endswith("CopySlices")
    assert row.grad_fn.name().startswith("AsStrided")
    (base.sum() + row.sum()).backward()
    assert values(y.grad) == [2.0] * 3


def test_other_views_see_the_change(lib):
    x = leaf(lib)
    base = x * 1
    a, b = base[0], base[:, 0]
    a.mul_(10)
    b.sum().backward()
    assert values(x.grad) == [[10.0, 0.0, 0.0], [1.0, 0.0, 0.0]]


def test_change_of_the_base_reaches_views(lib):
    x = leaf(lib)
    base = x * 1
    part = base[0]
    expanded = base[0].expand(4, 3)
    base.mul_(3)
    (part.sum() + expanded.sum()).backward()
    np.testing.assert_allclose(values(x.grad), [[15.0] * 3, [0.0] * 3])


def test_views_of_many_are_refused(lib):
    x = leaf(lib)
    for pieces in ((x * 1).unbind(0), (x * 1).split(1), (x * 1).chunk(2)):
        with raises(RuntimeError, "output of a function that returns multiple views"):
            pieces[0].mul_(2)
    base = x * 1
    piece = base.unbind(0)[0]
    base.mul_(2)
    with raises(RuntimeError, "output of a function that returns multiple views"):
        (piece * 2).sum().backward()


def test_expanded_memory_is_refused(lib):
    for tensor in (lib.zeros(3), leaf(lib, (3,)) * 1):
        wide = tensor.expand(2, 3)
        for change in (lambda t: t.add_(1), lambda t: t.copy_(lib.ones(2, 3)), lambda t: t.tanh_()):
            with raises(RuntimeError, "unsupported operation", "single memory location"):
                change(wide)


def test_parts_of_expanded_memory(lib):
    for tensor in (lib.zeros(3), leaf(lib, (3,)) * 1):
        wide = tensor.expand(2, 3)
        for index in (..., slice(None), (slice(None), 0)):
            with raises(RuntimeError, "unsupported operation", "single memory location"):
                wide[index] = 1.0
        wide[0] = 5.0
        wide[1:, 0] = 7.0
        assert values(tensor) == [7.0, 5.0, 5.0]


def test_masked_fill_of_expanded_memory(lib):
    wide = lib.zeros(3).expand(2, 3)
    mask = lib.tensor([[True, False, False], [False, False, True]])
    with warns(UserWarning, "Use of masked_fill_ on expanded tensors is deprecated"):
        assert wide.masked_fill_(mask, 5.0) is wide
    assert values(wide) == [[5.0, 0.0, 5.0]] * 2
    if lib is not mt:  # whose backward() would write into expanded memory
        return
    x = leaf(lib, (3,))
    base = x * 1
    with quiet():
        base.expand(2, 3).masked_fill_(mask, 5.0)
    (base * lib.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert values(x.grad) == [0.0, 2.0, 0.0]


def test_index_changes_of_expanded_memory_are_refused():
    for change in (
        lambda t: t.index_fill_(0, mt.tensor([0]), 1.0),
        lambda t: t.index_put_((mt.tensor([0]),), mt.tensor(1.0)),
    ):
        with raises(RuntimeError, "unsupported operation", "single memory location"):
            change(mt.zeros(3).expand(2, 3))


def test_writing_into_a_part_keeps_nothing(lib):
    x, y = leaf(lib, (3,)), lib.zeros(2, 3)
    y[0] = x
    y.sum().backward()
    if lib is mt:
        y.sum().backward()
        assert values(x.grad) == [2.0, 2.0, 2.0]
    else:
        with raises(RuntimeError, "backward through the graph a second time"):
            y.sum().backward()


def test_a_list_in_an_index_may_change_later(lib):
    x, y, place = leaf(lib, (3,)), leaf(lib, (1,)), [0, 2]
    read = x[place]
    written = lib.zeros(3, dtype=x.dtype)
    written[place] = y
    place[:] = [1, 1]
    (read.sum() + (written * lib.tensor([1.0, 10.0, 100.0])).sum()).backward()
    assert values(x.grad) == [1.0, 0.0, 1.0] and values(y.grad) == [101.0]
    for result in (read, written):
        with raises(RuntimeError, "backward through the graph a second time"):
            result.sum().backward()


def test_version_counts(lib):
    x = lib.zeros(3)
    y, d, part = x.view(3), x.detach(), x[1:]
    assert x._version == 0
    x.add_(1)
    part[0] = 5
    d.mul_(2)
    assert x._version == y._version == d._version == part._version == 3
    x.data.add_(1)
    assert x._version == 3
    assert x.clone()._version == 0


SAVED = {
    "input of mul": (lambda lib, x, w: x * w, "x", "Mul"),
    "input of sin": (lambda lib, x, w: x.sin(), "x", "Sin"),
    "result of exp": (lambda lib, x, w: x.exp(), "out", "Exp"),
    "result of tanh": (lambda lib, x, w: x.tanh(), "out", "Tanh"),
    "input of matmul": (lambda lib, x, w: x @ w.t(), "w", "M"),
    "input of pow": (lambda lib, x, w: x**3, "x", "Pow"),
}


@pytest.mark.parametrize("name", SAVED)
@pytest.mark.parametrize("how", ["itself", "view", "detached"])
def test_change_of_something_saved(lib, name, how):
    function, which, text = SAVED[name]
    x, w = leaf(lib) * 1, leaf(lib) * 1
    out = function(lib, x, w)
    target = {"x": x, "w": w, "out": out}[which]
    if how == "detached":
        target.detach().add_(1)
    elif how == "view":
        target[0].add_(1)
    else:
        target.add_(1)
    texts = ["has been modified by an inplace operation", "expected version 0 instead"]
    if lib.__name__ != "torch":
        texts.append(text)
    with raises(RuntimeError, *texts):
        out.sum().backward()


def test_change_that_is_not_counted(lib):
    x = leaf(lib, (3,)) * 1
    out = (x * x).sum()
    x.data.zero_()
    out.backward()


def test_change_of_something_not_saved(lib):
    x = leaf(lib, (3,))
    y = x * 1
    out = y + 1
    y.zero_()
    out.sum().backward()
    assert values(x.grad) == [1.0] * 3


def test_saved_index_changed(lib):
    x, index = leaf(lib, (3,)), lib.tensor([0, 2])
    out = x[index].sum()
    index.zero_()
    with raises(RuntimeError, "modified by an inplace operation"):
        out.backward()


def test_retained_grad_moves_with_the_change(lib):
    x = leaf(lib, (3,))
    y = x * 1
    y.retain_grad()
    y.mul_(2)
    y.sum().backward()
    assert values(y.grad) == [1.0] * 3 and values(x.grad) == [2.0] * 3


def test_failed_change_leaves_everything(lib):
    x = leaf(lib, (3,))
    y = x * 1
    with pytest.raises(RuntimeError):
        y.add_(lib.ones(4))
    with pytest.raises(RuntimeError):
        y.copy_(lib.ones(4))
    assert y._version == 0
    y.sum().backward()
    assert values(x.grad) == [1.0] * 3


def test_value_of_one_element_into_one_place(lib):
    x, y = lib.zeros(3, dtype=lib.float64), leaf(lib, (1,))
    x[1] = y
    x[2:] = y.reshape(1, 1)
    x.sum().backward()
    assert values(y.grad) == [2.0]


def test_long_chain_of_changes(lib):
    x = leaf(lib, (4,))
    y = x * 1
    for i in range(2000):
        y[i % 4] += 0.5
    y.sum().backward()
    assert values(x.grad) == [1.0] * 4


def test_the_sum_of_gradients_is_written_into_one_that_is_on_a_graph(lib):
    x = leaf(lib, (2,))
    y = (x * x).sum()
    with quiet():
        y.backward(create_graph=True)
    grad, version = x.grad, x.grad._version
    y.backward()
    assert x.grad is grad and grad.requires_grad and grad._version == version + 1
    assert values(grad) == pytest.approx([0.4, 3.6])


def test_detach_keeps_the_mark_of_a_retained_grad(lib):
    y = leaf(lib, (2,)) * 1
    y.retain_grad()
    assert y.detach_().retains_grad and y.is_leaf and not y.requires_grad


@pytest.mark.parametrize("change", ["base", "part"])
def test_gradients_of_gradients_that_depend_on_nothing(lib, change):
    """The derivative of a part is no function of the values."""
    x, y = leaf(lib, (3,)), leaf(lib, ())
    if change == "base":
        part = x[::2]
        with lib.no_grad():
            x.mul_(2)
    else:
        part = lib.zeros(3, dtype=lib.float64)
        part[1:] = y
    with quiet():
        part.sum().backward(create_graph=True)
    grad = (x if change == "base" else y).grad
    assert not grad.requires_grad
    assert values(grad) == ([1.0, 0.0, 1.0] if change == "base" else 2.0)


def test_gradients_of_gradients_through_a_part_that_depends_on_values(lib):
    x, y = leaf(lib, (3,)), leaf(lib, (1,))
    base = x * 1
    base[1:].mul_(y)
    with quiet():
        base.sum().backward(create_graph=True)
    assert y.grad.requires_grad


def test_a_view_without_history_is_not_saved(lib):
    x = leaf(lib)
    y = x.tanh()
    with lib.no_grad():
        view = y.t()
    z = leaf(lib, (3, 2))
    out = (z / (view * view + 1)).sum()
    y.zero_()
    out.backward()
    assert z.grad is not None and x.grad is None


@pytest.mark.parametrize("shape", [(0,), (2, 0)])
def test_parts_of_nothing_are_views(lib, shape):
    x = leaf(lib, shape) * 1
    parts = x.chunk(2, -1)
    assert all(part is not x and part._base is x for part in parts)
    with raises(RuntimeError, "is a view and is being modified inplace"):
        parts[0].neg_()


def test_the_result_from_a_view_without_history_is_saved(lib):
    x = leaf(lib)
    with lib.no_grad():
        view = x.t()
    y = view.exp()
    with lib.no_grad():
        y.mul_(2)
    with raises(RuntimeError, "modified by an inplace operation"):
        y.sum().backward()
