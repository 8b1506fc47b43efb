# SPDX-License-Identifier: BSD-3-Clause
"""Native kernels along one axis, against NumPy: scans, selections, elements at an index."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kernels_common import dtypes, sample

from modtree._C import kernels

AXES = [((0,), 0), ((7,), 0), ((3, 0, 2), 1), ((21, 9), 1), ((21, 9), 0), ((9, 70), 0)]
AXES += [((3, 5, 4), 1), ((3, 5, 4), -1), ((1, 1), 0)]
axes = pytest.mark.parametrize(("shape", "axis"), AXES, ids=str)
layouts = pytest.mark.parametrize(
    "layout",
    [lambda x: x, lambda x: np.asfortranarray(x), lambda x: np.repeat(x, 2, -1)[..., ::2]],
    ids=["contiguous", "fortran", "strided"],
)


@dtypes
@axes
@layouts
@pytest.mark.parametrize("product", [False, True])
def test_scan(product, layout, shape, axis, dtype):
    x = sample(dtype, shape, scale=0.5) + product
    running = np.cumprod if product else np.cumsum
    expected = running(x.astype(float), axis).astype(dtype)
    got = kernels.scan(layout(x), axis, product)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps, atol=1e-14)
    backwards = kernels.scan(layout(x), axis, product, True)
    again = np.flip(running(np.flip(x.astype(float), axis), axis), axis)
    np.testing.assert_allclose(backwards, again, rtol=4 * np.finfo(dtype).eps, atol=1e-14)


def test_sums_of_floats_go_on_in_double():
    x = np.full(3_000_000, 0.1, np.float32)
    assert abs(kernels.scan(x, 0)[-1] - 300_000) < 0.1
    assert abs(kernels.scan(np.repeat(x[:, None], 2, 1), 0)[-1, 0] - 300_000) < 0.1


def stable_order(x, axis, largest):
    """NaN is the largest; of equals the first comes first."""
    if not largest:
        return np.argsort(x, axis, kind="stable")
    order = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.flip(x.shape[axis] - 1 - order, axis)


@dtypes
@axes
@layouts
@pytest.mark.parametrize("largest", [False, True])
def test_top_indices(largest, layout, shape, axis, dtype):
    x = sample(dtype, shape).round(1)
    x[x > 1.2] = np.nan
    x[(x > 0.4) & (x < 0.6)] = np.inf
    x[np.abs(x) < 0.3] *= 0  # zeros of both signs
    order = stable_order(x, axis, largest)
    for k in {0, 1, x.shape[axis] // 2, x.shape[axis]} & set(range(x.shape[axis] + 1)):
        got = kernels.top_indices(layout(x), k, axis, largest)
        assert got.dtype == np.int64
        np.testing.assert_array_equal(got, np.take(order, range(k), axis))


@dtypes
def test_top_of_a_long_row(dtype):
    x = sample(dtype, (2, 20_000))
    for k in (1, 5, 100, 7000):
        got = kernels.top_indices(x, k, 1, True)
        np.testing.assert_array_equal(got, stable_order(x, 1, True)[:, :k])
    rising = np.arange(3000, dtype=dtype)  # each one is better than all before
    np.testing.assert_array_equal(kernels.top_indices(rising, 3, 0, True), [2999, 2998, 2997])


def test_selections_out_of_range():
    x = np.zeros((3, 4))
    for call in (
        lambda: kernels.top_indices(x, 5, 1, True),
        lambda: kernels.top_indices(x, -1, 1, True),
    ):
        with pytest.raises(IndexError, match="out of range for an axis of size 4"):
            call()
    with pytest.raises(ValueError, match="no axis 2"):
        kernels.scan(x, 2)
    with pytest.raises(ValueError, match="no axis 0"):
        kernels.scan(np.array(1.0), 0)


# -- by index --------------------------------------------------------------------------------------

NUMBERS = ["bool", "int8", "float16", "int32", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", NUMBERS)
@pytest.mark.parametrize("axis", [0, 1, 2, -1])
@layouts
def test_gather_and_assign(layout, axis, dtype):
    rng = np.random.default_rng(0)
    x = layout(rng.integers(0, 100, (4, 5, 6)).astype(dtype))
    shape = [3, 4, 5]
    shape[axis] = 7
    index = rng.integers(0, x.shape[axis], shape)
    for given in (index, np.asfortranarray(index), index.astype(np.int32), index[:, ::-1]):
        corner = x[tuple(slice(None) if i == axis % 3 else slice(n) for i, n in enumerate(shape))]
        expected = np.take_along_axis(corner, given, axis)
        np.testing.assert_array_equal(kernels.gather(x, axis, given), expected)
    source = rng.integers(0, 100, (7, 7, 7)).astype(dtype)[::-1]
    got = kernels.scatter(x, axis, index, source, "assign")
    expected = x.copy()
    for place in np.ndindex(*shape):
        to = list(place)
        to[axis] = index[place]
        expected[tuple(to)] = source[place]
    np.testing.assert_array_equal(got, expected)
    assert not np.shares_memory(got, x)


@dtypes
@pytest.mark.parametrize("mode", ["add", "multiply", "amax", "amin"])
@layouts
def test_scatter(layout, mode, dtype):
    rng = np.random.default_rng(0)
    x, source = (layout(rng.standard_normal((5, 6)).astype(dtype)) for _ in range(2))
    source[1, 1] = np.nan
    index = rng.integers(0, 5, (4, 6))
    ufunc = {"add": np.add, "multiply": np.multiply, "amax": np.maximum, "amin": np.minimum}[mode]
    expected = x.copy()
    ufunc.at(expected, (index, np.arange(6)), source[:4])
    got = kernels.scatter(x, 0, index, source, mode)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps)
    own = np.array(x)
    assert kernels.scatter(own, 0, index, source, mode, True) is own
    np.testing.assert_array_equal(own, got)


def test_indices_out_of_range_are_refused():
    x = np.arange(6.0).reshape(2, 3)
    for wrong in (-1, 3, 2**62):
        index = np.array([[0, 1, wrong]])
        assert kernels.gather(x, 1, index) is None
        assert kernels.scatter(x, 1, index, np.ones((1, 3)), "add") is None
        assert kernels.scatter(x, 1, index, np.ones((1, 3)), "assign") is None
    assert kernels.gather(np.zeros((0, 3)), 0, np.zeros((1, 3), int)) is None
    assert kernels.gather(np.zeros((0, 3)), 0, np.zeros((0, 3), int)).shape == (0, 3)


def test_arguments_that_do_not_fit():
    x, index = np.zeros((2, 3)), np.zeros((2, 3), int)
    for call in (
        lambda: kernels.gather(x, 0, np.zeros((1, 4), int)),
        lambda: kernels.gather(x, 0, np.zeros(3, int)),
        lambda: kernels.scatter(x, 0, index, np.zeros((1, 3)), "add"),
        lambda: kernels.scatter(x, 0, index, x, "mean"),
    ):
        with pytest.raises(ValueError, match=r"fit|axes|mode"):
            call()
    for call in (
        lambda: kernels.gather(x, 0, x),
        lambda: kernels.gather(np.array([[None]]), 0, index),
        lambda: kernels.scatter(x, 0, index, x.astype(np.float32), "add"),
        lambda: kernels.scatter(index, 0, index, index, "add"),
        lambda: kernels.scatter(x.astype(">f8"), 0, index, x.astype(">f8"), "add"),
    ):
        with pytest.raises(TypeError):
            call()
    fixed = np.zeros((2, 3))
    fixed.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernels.scatter(fixed, 0, index, x, "add", True)


def test_many_rows_of_nothing():
    """So many that a loop over them would not end."""
    x = np.empty((1 << 58, 1, 0), np.float32)
    for got in (
        kernels.scan(x, 1),
        kernels.top_indices(x, 1, 1, True),
    ):
        assert got.shape == x.shape


def test_an_empty_result_takes_no_memory_for_its_long_axis():
    x = np.empty((0, (1 << 32) - 1), np.float32)
    assert kernels.top_indices(x, 1 << 31, 1, True).shape == (0, 1 << 31)


def test_a_result_beyond_all_memory_is_refused():
    index = np.empty((0, (1 << 60) - 1), np.int64)
    with pytest.raises(ValueError, match="is not possible"):
        kernels.gather(np.zeros((1, 1), np.complex128), 0, index)


def test_what_a_subclass_says_is_a_copy_is_not_trusted():
    class Doubled(np.ndarray):
        def copy(self, order="C"):
            return np.zeros(self.shape, np.complex128)

    x, index, source = np.ones(3).view(Doubled), np.array([2, 0]), np.array([5.0, 7.0])
    got = kernels.scatter(x, 0, index, source, "assign")
    assert type(got) is np.ndarray
    assert (got.dtype, got.tolist()) == (np.float64, [7.0, 1.0, 5.0])


def test_complex_numbers_where_only_a_float_may_be():
    memory = np.arange(10, dtype=np.float32)
    start = 1 if memory.ctypes.data % 8 == 0 else 0
    x = memory[start : start + 8].view(np.complex64)
    assert x.flags.aligned
    index = np.array([3, 1])
    np.testing.assert_array_equal(kernels.gather(x, 0, index), x[index])
    got = kernels.scatter(x, 0, index, x[:2], "assign")
    np.testing.assert_array_equal(got, [x[0], x[1], x[2], x[0]])
    with pytest.raises(ValueError, match="not aligned"):
        kernels.scatter(x, 0, index, x[:2], "assign", True)
