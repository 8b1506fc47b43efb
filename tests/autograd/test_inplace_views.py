# SPDX-License-Identifier: BSD-3-Clause
"""as_strided, views in place, fill_diagonal_ and relatives: values and gradients are torch's."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.implementations import needs_torch

import modtree as mt

KINDS = ["modtree", pytest.param("torch", marks=needs_torch)]


@pytest.fixture(params=KINDS)
def lib(request):
    return importlib.import_module(request.param)


VIEWS = [
    ("unsqueeze_", (1,)),
    ("squeeze_", ()),
    ("squeeze_", (1,)),
    ("transpose_", (0, 2)),
    ("swapaxes_", (0, 1)),
    ("as_strided_", ((2, 2), (1, 2), 1)),
]


@pytest.mark.parametrize(("name", "args"), VIEWS)
def test_view_in_place(lib, name, args):
    x = lib.arange(6.0).reshape(2, 1, 3)
    expected = getattr(x, name[:-1])(*args)
    same = x.clone()
    assert getattr(same, name)(*args) is same
    assert same.tolist() == expected.tolist()
    x.squeeze_(1).t_()
    assert x.tolist() == [[0.0, 3.0], [1.0, 4.0], [2.0, 5.0]]


@pytest.mark.parametrize(("name", "args"), VIEWS)
def test_gradients_go_through(lib, name, args):
    w = lib.arange(6.0).reshape(2, 1, 3).requires_grad_()
    y = w * 3
    before = y.sum()
    getattr(y, name)(*args)
    factors = lib.arange(float(y.numel())).reshape(tuple(y.shape))
    (y * factors).sum().backward(retain_graph=True)
    picked = lib.arange(6.0).reshape(2, 1, 3)
    expected = np.zeros(6)
    places = getattr(picked, name[:-1])(*args).reshape(-1).long().tolist()
    np.add.at(expected, places, 3.0 * np.arange(len(places)))
    np.testing.assert_allclose(w.grad.reshape(-1).numpy(), expected, rtol=1e-5)
    before.backward()
    assert w.grad.reshape(-1).tolist() == (expected + 3).tolist()


def test_memory_stays_shared(lib):
    x = lib.zeros(2, 3)
    row = x[0]
    row.unsqueeze_(0)
    row.add_(1)
    x.t_()
    x[0, 1] = 5
    assert x.tolist() == [[1.0, 5.0], [1.0, 0.0], [1.0, 0.0]]
    assert row.tolist() == [[1.0, 1.0, 1.0]]


def test_a_view_of_a_recorded_tensor_stays_its_view(lib):
    w = lib.ones(2, 3, requires_grad=True)
    y = w * 2
    column = y[:, 0]
    column.unsqueeze_(1)
    column.mul_(10)
    y.sum().backward()
    assert y.tolist() == [[20.0, 2.0, 2.0]] * 2
    assert w.grad.tolist() == [[20.0, 2.0, 2.0]] * 2


def test_a_leaf_that_requires_grad_refuses(lib):
    leaf = lib.ones(2, 3, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        leaf.t_()
    with lib.no_grad():
        leaf.t_()
    assert tuple(leaf.shape) == (3, 2) and leaf.is_leaf


STRIDED = [
    ((2, 3), (3, 1), None),
    ((2, 2), (1, 2), 1),
    ((3, 4), (1, 1), 0),
    ((2, 0), (1, 1), None),
    ((), (), 3),
    ((2, 5), (0, 1), 2),
]


@pytest.mark.parametrize(("size", "stride", "offset"), STRIDED)
@pytest.mark.parametrize("layout", ["plain", "transposed", "part", "expanded"])
@needs_torch
def test_as_strided_is_torchs(size, stride, offset, layout):
    results = []
    for lib in (mt, importlib.import_module("torch")):
        base = lib.arange(12.0).double()
        leaf = base.requires_grad_()
        x = {
            "plain": lambda t: t.reshape(3, 4),
            "transposed": lambda t: t.reshape(3, 4).t(),
            "part": lambda t: t.reshape(3, 4)[:, 1:],
            "expanded": lambda t: t[:3].reshape(3, 1).expand(3, 4) + 0,
        }[layout](leaf * 1)
        view = lib.as_strided(x, size, stride, offset)
        weight = lib.arange(1.0, view.numel() + 1).double().reshape(size)
        (view * weight).sum().backward()
        results.append((view.tolist(), leaf.grad.tolist()))
    assert results[0] == results[1]


def test_as_strided_writes_to_the_memory(lib):
    x = lib.zeros(3, 3)
    lib.as_strided(x, (3,), (4,)).fill_(2)
    assert x.tolist() == [[2.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 2.0]]


def test_as_strided_stays_inside(lib):
    x = lib.zeros(6)
    for size, stride, offset in [((7,), (1,), None), ((2,), (1,), 5), ((2, 2), (5, 1), 0)]:
        with pytest.raises(RuntimeError, match="out of bounds"):
            lib.as_strided(x, size, stride, offset)
    with pytest.raises(RuntimeError, match="Negative strides"):
        lib.as_strided(x, (2,), (-1,))
    with pytest.raises(RuntimeError, match="mismatch in length of strides and shape"):
        lib.as_strided(x, (2,), (1, 1))


def test_changes_of_a_diagonal_are_changes_of_the_matrix(lib):
    w = lib.ones(2, 3, requires_grad=True)
    x = w * 2
    x.diagonal().mul_(5)
    lib.diagonal(x, 1).zero_()
    x.sum().backward()
    assert x.tolist() == [[10.0, 0.0, 2.0], [2.0, 10.0, 0.0]]
    assert w.grad.tolist() == [[10.0, 0.0, 2.0], [2.0, 10.0, 0.0]]


def test_sum_to_size(lib):
    x = lib.arange(12.0).reshape(2, 3, 2).requires_grad_()
    assert x.sum_to_size(3, 1).tolist() == [[14.0], [22.0], [30.0]]
    assert x.sum_to_size((2, 3, 2)).tolist() == x.tolist()
    x.sum_to_size(1).backward()
    assert x.grad.tolist() == [[[1.0] * 2] * 3] * 2
    with pytest.raises(RuntimeError, match="is not expandable to size"):
        x.sum_to_size(2, 2)


def test_answers_about_a_tensor(lib):
    x = lib.ones(2)
    assert x.is_cpu and not x.is_xpu and not x.is_nested and not x.is_neg() and not x.is_conj()
    assert x.resolve_conj().tolist() == lib.resolve_neg(x).tolist() == [1.0, 1.0]
    assert x.layout == lib.strided
    assert lib.is_signed(x) and not lib.is_signed(x.byte())
    assert lib.is_same_size(x, lib.zeros(2)) and not lib.is_same_size(x, lib.zeros(1))


def test_real_and_imag(lib):
    z = lib.tensor([1 + 2j, 3 - 4j])
    assert (lib.real(z).tolist(), lib.imag(z).tolist()) == ([1.0, 3.0], [2.0, -4.0])
    lib.imag(z).zero_()
    assert z.tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="imag is not implemented"):
        lib.imag(lib.ones(1))


@needs_torch
def test_a_result_that_is_needed_can_be_turned():
    for lib in (mt, importlib.import_module("torch")):
        w = lib.tensor([[1.0, 2.0]], requires_grad=True)
        y = w.exp()
        y.t_()
        if lib is mt:  # the values that the derivative needs are still there
            y.sum().backward()
            np.testing.assert_allclose(w.grad.numpy(), np.exp([[1.0, 2.0]]), rtol=1e-6)
        else:
            with pytest.raises(RuntimeError, match="modified by an inplace operation"):
                y.sum().backward()
