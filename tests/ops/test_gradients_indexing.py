# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of lookups and replacements by index and mask, against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gradients import Case, away_from, suite, whole

import modtree as mt

torch = pytest.importorskip("torch")

CUBE = [((3, 4, 2),)]
BOTH = [((3, 4, 2),), ((3, 0, 2),)]
# Values that repeat, so that gradients meet.
REPEATED = [0, 2, 2, 1, 2]


def _mask(lib, *shape):
    return lib.tensor(np.arange(int(np.prod(shape))).reshape(shape) % 3 != 1)


INDICES = {
    "a vector": lambda lib, x: x[lib.tensor(REPEATED)],
    "a vector without repeats": lambda lib, x: x[lib.tensor([2, 0])],
    "a negative vector": lambda lib, x: x[lib.tensor([-1, 0, -3, -1])],
    "a matrix": lambda lib, x: x[lib.tensor([[0, 2], [2, 2], [1, 0]])],
    "an empty vector": lambda lib, x: x[lib.tensor([], dtype=lib.int64)],
    "int32": lambda lib, x: x[lib.tensor(REPEATED, dtype=lib.int32)],
    "a list": lambda lib, x: x[[0, 0, 2]],
    "a number in a tensor": lambda lib, x: x[lib.tensor(1)],
    "behind a slice": lambda lib, x: x[:, lib.tensor([1, 3, 1])],
    "behind an ellipsis": lambda lib, x: x[..., lib.tensor([1, 0, 1, 1])],
    "two vectors": lambda lib, x: x[lib.tensor([0, 1, 0]), lib.tensor([3, 1, 3])],
    "two that broadcast": lambda lib, x: x[lib.tensor([[0], [2]]), lib.tensor([1, 1, 3])],
    "two apart": lambda lib, x: x[lib.tensor([0, 1, 0]), :, lib.tensor([1, 0, 1])],
    "three vectors": lambda lib, x: x[lib.tensor([0, 0]), lib.tensor([1, 1]), lib.tensor([1, 1])],
    "with a new axis": lambda lib, x: x[lib.tensor([0, 1, 0]), None],
    "an integer and a vector": lambda lib, x: x[1, lib.tensor([0, 3, 3])],
    "a vector and an integer": lambda lib, x: x[lib.tensor([0, 2, 2]), 1],
    "a vector and a slice": lambda lib, x: x[lib.tensor([0, 2, 2]), 1:3],
    "a mask": lambda lib, x: x[_mask(lib, 3, 4, 2)],
    "a mask of the first": lambda lib, x: x[_mask(lib, 3)],
    "a mask of two": lambda lib, x: x[_mask(lib, 3, 4)],
    "a mask in the middle": lambda lib, x: x[:, _mask(lib, 4)],
    "a mask and an integer": lambda lib, x: x[_mask(lib, 3), 2],
    "a mask and a vector": lambda lib, x: x[_mask(lib, 3), lib.tensor([3, 3])],
    "a comparison": lambda lib, x: x[x > 0],
    "nothing": lambda lib, x: x[x > 9],
    "a bool": lambda lib, x: x[True],
    "integers alone": lambda lib, x: x[2, -1, 0],
}
ROWS = [
    Case("rows", lambda lib, x: x[lib.tensor(REPEATED)], [((3,),), ((3, 2),), ((3, 0),)]),
]
test_gradients_of_indices = suite([*(Case(name, f, CUBE) for name, f in INDICES.items()), *ROWS])


def _scattered(lib):
    return lib.tensor([[[0, 1], [1, 1]], [[0, 0], [1, 0]]])


ALONG = [
    Case("gather", lambda lib, x: x.gather(1, lib.tensor([[[0, 3], [0, 1], [0, 3]]])), CUBE),
    Case("gather backwards", lambda lib, x: lib.gather(x, -1, _scattered(lib)), CUBE),
    Case("gather a number", lambda lib, x: lib.gather(x, 0, lib.tensor(0)), [((),)]),
    Case("gather nothing", lambda lib, x: x.gather(0, lib.zeros(0, 2, 1).long()), CUBE),
    Case("take_along_dim", lambda lib, x: lib.take_along_dim(x, x.argsort(1), 1), CUBE),
    Case(
        "take_along_dim, flat",
        lambda lib, x: lib.take_along_dim(x, lib.tensor([5, 0, 5])),
        CUBE,
        layouts=False,
    ),
    Case("index_select", lambda lib, x: x.index_select(0, lib.tensor(REPEATED)), BOTH),
    Case("index_select last", lambda lib, x: x.index_select(-1, lib.tensor([1, 1, 0])), BOTH),
    Case("index_select a number", lambda lib, x: x.index_select(0, lib.tensor([0])), [((),)]),
    Case(
        "index_add",
        lambda lib, x, y: x.index_add(0, lib.tensor(REPEATED), y, alpha=2),
        [((3, 2), (5, 2)), ((3,), (5,)), ((3, 0), (5, 0))],
        mixed=False,
    ),
    Case(
        "index_add last",
        lambda lib, x, y: lib.index_add(x, 1, lib.tensor(REPEATED), y),
        [((2, 3), (2, 5))],
        mixed=False,
    ),
    Case(
        "index_copy",
        lambda lib, x, y: x.index_copy(1, lib.tensor([3, 0]), y),
        [((3, 4), (3, 2))],
        mixed=False,
    ),
    Case("index_fill", lambda lib, x: x.index_fill(1, lib.tensor([3, 0]), 2.5), CUBE),
    Case(
        "scatter",
        lambda lib, x, y: x.scatter(1, lib.tensor([[0, 2], [3, 1]]), y),
        [((3, 4), (2, 2))],
        mixed=False,
    ),
    Case("scatter a value", lambda lib, x: lib.scatter(x, 2, _scattered(lib), 1.5), CUBE),
    Case(
        "scatter_add",
        lambda lib, x, y: x.scatter_add(0, lib.tensor([[0, 2, 0], [0, 1, 2]]), y),
        [((3, 4), (2, 3))],
        mixed=False,
    ),
    Case(
        "scatter_add to a vector",
        lambda lib, x, y: lib.scatter_add(x, 0, lib.tensor(REPEATED), y),
        [((3,), (5,))],
        mixed=False,
    ),
]
test_gradients_along_a_dimension = suite(ALONG)

# Without self, torch counts it among equal extreme values all the same, and so loses a part of the
# gradient: no ties with self here.
REDUCTIONS = [
    Case(
        f"{mode}, {'with' if include else 'without'} self",
        lambda lib, x, y, mode=mode, include=include: x.scatter_reduce(
            1, lib.tensor([[0, 2, 0], [3, 3, 3]]), y, mode, include_self=include
        ),
        [((2, 4), (2, 3)), ((3, 4), (2, 3))],
        [whole(-1, 3) if include else away_from(0.1, 0.9), whole(-1, 3)],
        twice=mode != "prod",
        mixed=False,
    )
    for mode in ("sum", "mean", "prod", "amax", "amin")
    for include in (True, False)
]
REDUCTIONS += [
    Case(
        f"product of factors that are not 0, {'with' if include else 'without'} self",
        lambda lib, x, y, include=include: x.scatter_reduce(
            0, lib.tensor([0, 3, 0]), y, "prod", include_self=include
        ),
        [((4,), (3,))],
        away_from(0.5, 2),
        mixed=False,
    )
    for include in (True, False)
]
test_gradients_of_scatter_reduce = suite(REDUCTIONS)


def test_equal_extreme_values_share_the_whole_gradient():
    x, y = mt.ones(2), mt.ones(4, requires_grad=True)
    index = mt.tensor([0, 0, 0, 1])
    x.scatter_reduce(0, index, y, "amax", include_self=False).sum().backward()
    assert y.grad.tolist() == pytest.approx([1 / 3, 1 / 3, 1 / 3, 1])


def test_a_product_with_a_zero_has_only_a_first_derivative():
    x, y = mt.ones(3, requires_grad=True), mt.tensor([2.0, 3.0, 4.0], requires_grad=True)
    z = x * 2
    z.scatter_reduce_(0, mt.tensor([0, 0, 2]), y, "prod")
    assert z.tolist() == [12, 2, 8]
    (g,) = mt.autograd.grad((z * z).sum(), y, create_graph=False)
    assert g.tolist() == [2 * 12 * 6, 2 * 12 * 4, 2 * 8 * 2]
    y = mt.tensor([2.0, 0.0, 4.0], requires_grad=True)
    z = x.scatter_reduce(0, mt.tensor([0, 0, 2]), y, "prod")
    assert mt.autograd.grad(z.sum(), y, retain_graph=True)[0].tolist() == [0, 2, 1]
    with pytest.raises(RuntimeError, match="no second derivative"):
        mt.autograd.grad(z.sum(), y, create_graph=True)


PUT = [
    Case(
        "index_put",
        lambda lib, x, y: x.index_put((lib.tensor([0, 2]), lib.tensor([1, 3])), y),
        [((3, 4), (2,)), ((3, 4), ()), ((3, 4, 2), (1, 2))],
        mixed=False,
    ),
    Case(
        "index_put with a mask",
        lambda lib, x, y: lib.index_put(x, (_mask(lib, 3),), y),
        [((3, 4), (2, 4)), ((3, 4), (4,))],
        mixed=False,
    ),
    Case(
        "index_put that adds",
        lambda lib, x, y: x.index_put((lib.tensor(REPEATED),), y, True),
        [((3, 2), (5, 2)), ((3,), (5,)), ((3, 2), ())],
        mixed=False,
    ),
    Case("masked_select", lambda lib, x: x.masked_select(x > 0), [((),), ((2, 3),), ((0, 3),)]),
    Case(
        "masked_select, mask repeated",
        lambda lib, x: lib.masked_select(x, _mask(lib, 3)),
        [((2, 3),), ((2, 1),)],
    ),
    Case(
        "masked_scatter",
        lambda lib, x, y: x.masked_scatter(_mask(lib, 2, 3), y),
        [((2, 3), (4,)), ((2, 3), (3, 2))],
        mixed=False,
    ),
    Case(
        "masked_scatter, mask repeated",
        lambda lib, x, y: lib.masked_scatter(x, _mask(lib, 3), y),
        [((2, 3), (2, 2))],
        mixed=False,
    ),
    Case("masked_fill", lambda lib, x: x.masked_fill(x > 0, -1.0), [((),), ((2, 3),), ((0, 3),)]),
]
test_gradients_of_replacements = suite(PUT)


def _set(index, value):
    def change(lib, x, *rest):
        y = x * 1
        y[index(lib)] = value(lib, *rest)
        return y * y

    return change


IN_PLACE = [
    Case(
        "set a slice",
        _set(lambda lib: slice(1, 3), lambda lib, y: y),
        [((3, 4), (2, 4)), ((3, 4), (4,))],
        mixed=False,
    ),
    Case("set a number", _set(lambda lib: (0, 1), lambda lib: 3.0), [((3, 4),)]),
    Case(
        "set by a vector",
        _set(lambda lib: lib.tensor([2, 0]), lambda lib, y: y),
        [((3, 4), (2, 4)), ((3,), ())],
        mixed=False,
    ),
    Case(
        "set by a mask",
        _set(lambda lib: _mask(lib, 3, 4), lambda lib, y: y),
        [((3, 4), ()), ((3, 4), (8,))],
        mixed=False,
    ),
    Case(
        "set by an integer and a vector",
        _set(lambda lib: (1, lib.tensor([2, 0])), lambda lib, y: y),
        [((3, 4), (2,))],
        twice=False,
        mixed=False,
    ),
    Case(
        "set everything",
        _set(lambda lib: ..., lambda lib, y: y),
        [((3, 4), (3, 4))],
        twice=False,
        mixed=False,
    ),
    Case(
        "scatter_add_",
        lambda lib, x, y: (x * 2).scatter_add_(0, lib.tensor([[0, 2], [0, 1]]), y) ** 2,
        [((3, 2), (2, 2))],
        mixed=False,
    ),
    Case(
        "index_add_ to a view",
        lambda lib, x, y: _added(lib, x * 1, y),
        [((3, 2), (2,))],
        twice=False,
        mixed=False,
    ),
    Case(
        "masked_fill_",
        lambda lib, x: (x * 2).masked_fill_(_mask(lib, 3), 0.5) ** 2,
        [((2, 3),)],
    ),
]


def _added(lib, x, y):
    x[:, 0].index_add_(0, lib.tensor([1, 1]), y)
    return x * x


test_gradients_of_changes_in_place = suite(IN_PLACE)


def test_scatter_uses_a_corner_of_a_larger_source():
    x, source = mt.zeros(3, 3, requires_grad=True), mt.ones(4, 5, requires_grad=True)
    for call in (x.scatter, x.scatter_add):
        source.grad = None
        call(0, mt.tensor([[0, 2], [1, 1]]), source).sum().backward()
        assert source.grad.tolist() == [[1, 1, 0, 0, 0]] * 2 + [[0] * 5] * 2


def test_a_product_of_scattered_values_has_no_derivative():
    x = mt.ones(3, requires_grad=True)
    y = x.scatter(0, mt.tensor([0, 0]), mt.tensor([2.0, 3.0]), reduce="multiply")
    with pytest.raises(RuntimeError, match="no derivative"):
        y.sum().backward()


@pytest.mark.parametrize("count", [1, 2, 7, 200])
def test_sums_of_many_rows_are_exact(count):
    rng = np.random.default_rng(count)
    index = rng.integers(-5, 5, count)
    rows = rng.standard_normal((count, 3, 2))
    weight = mt.zeros(5, 3, 2, dtype=mt.float64, requires_grad=True)
    (weight[mt.tensor(index)] * mt.tensor(rows)).sum().backward()
    expected = np.zeros((5, 3, 2))
    np.add.at(expected, index, rows)
    np.testing.assert_allclose(weight.grad.numpy(), expected, rtol=1e-13, atol=1e-13)


def test_half_precision_sums_do_not_stall():
    x = mt.zeros(2, dtype=mt.float16, requires_grad=True)
    x[:, None].expand(2, 1)[mt.zeros(4000).long(), mt.zeros(4000).long()].sum().backward()
    assert x.grad.tolist() == [4000, 0]


@pytest.mark.parametrize("lib", [mt, torch])
def test_a_value_fills_a_place_once(lib):
    value = lib.tensor(5.0, requires_grad=True)
    lib.zeros(3).index_fill(0, lib.tensor([1, 1, 0]), value).sum().backward()
    assert value.grad.item() == 2.0
    value.grad = None
    lib.tensor(1.0).index_fill(0, lib.tensor([0, 0]), value).backward()
    assert value.grad.item() == 1.0


def test_a_value_fills_a_place_once_in_second_derivatives():
    value = mt.tensor(5.0, requires_grad=True)
    y = mt.zeros(3).index_fill(0, mt.tensor([1, 1]), value) ** 3
    (slope,) = mt.autograd.grad(y.sum(), value, create_graph=True)
    assert mt.autograd.grad(slope, value)[0].item() == 30.0


def test_factors_beyond_the_index_have_no_gradient():
    x, source = (mt.tensor([2.0, 3.0], requires_grad=True) for _ in range(2))
    x.scatter_reduce(0, mt.tensor([0]), source, "prod").sum().backward()
    assert x.grad.tolist() == [2.0, 1.0]
    assert source.grad.tolist() == [2.0, 0.0]
