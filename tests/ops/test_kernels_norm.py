# SPDX-License-Identifier: BSD-3-Clause
"""Native layer, batch and group normalization and their gradients, against NumPy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.kernels_common import (
    as_float64,
    check,
    check_gradients,
    dtypes,
    numeric_gradient,
    sample,
    strided,
)

from modtree._C import kernels

EPS = 1e-3


def layer_norm(x, weight, bias, axes):
    over = tuple(range(-axes, 0))
    y = (x - x.mean(over, keepdims=True)) / np.sqrt(x.var(over, keepdims=True) + EPS)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def batch_norm(x, weight, bias, mean=None, var=None):
    over = (0, *range(2, x.ndim))
    shape = (1, -1) + (1,) * (x.ndim - 2)
    mean = x.mean(over) if mean is None else mean
    var = x.var(over) if var is None else var
    y = (x - mean.reshape(shape)) / np.sqrt(var.reshape(shape) + EPS)
    y = y if weight is None else y * weight.reshape(shape)
    return y if bias is None else y + bias.reshape(shape)


affine = pytest.mark.parametrize(
    "given", [(True, True), (True, False), (False, True), (False, False)], ids=str
)


def parameters(dtype, shape, given):
    return [
        sample(dtype, shape, seed) if there else None
        for seed, there in zip((1, 2), given, strict=True)
    ]


@affine
@dtypes
@pytest.mark.parametrize(
    ("shape", "axes"),
    [((4, 7), 1), ((2, 3, 5), 1), ((3, 2, 4), 2), ((6,), 1), ((70, 12), 1)],
    ids=str,
)
def test_layer_norm(shape, axes, dtype, given):
    x = sample(dtype, shape) + 2
    weight, bias = parameters(dtype, shape[-axes:], given)
    x64, weight64, bias64 = as_float64(x, weight, bias)
    out, mean, rstd = kernels.layer_norm_stats(x, axes, weight, bias, EPS)
    check(out, layer_norm(x64, weight64, bias64, axes), dtype)
    over = tuple(range(-axes, 0))
    check(mean, x64.mean(over), dtype)
    check(rstd, 1 / np.sqrt(x64.var(over) + EPS), dtype)
    # Not to the bit: in which order a row is summed depends on where in memory it lies.
    few = 8 * np.finfo(dtype).eps
    np.testing.assert_allclose(out, kernels.layer_norm(x, axes, weight, bias, EPS), few, few)

    g = sample(dtype, shape, 3)
    expected = [
        numeric_gradient(lambda v: layer_norm(v, weight64, bias64, axes), x, g),
        numeric_gradient(
            lambda v: layer_norm(x64, v, bias64, axes),
            np.ones(shape[-axes:]) if weight is None else weight,
            g,
        ),
        numeric_gradient(
            lambda v: layer_norm(x64, weight64, v, axes),
            np.ones(shape[-axes:]) if bias is None else bias,
            g,
        ),
    ]
    got = kernels.layer_norm_backward(g, x, mean, rstd, axes, weight)
    check_gradients(got, expected, dtype)
    again = kernels.layer_norm_backward(strided(g), strided(x), mean, rstd, axes, weight)
    for a, b in zip(got, again, strict=True):
        np.testing.assert_allclose(a, b, few, few)
    for wanted in ((True, False, False), (False, True, False), (False, False, True)):
        some = kernels.layer_norm_backward(g, x, mean, rstd, axes, weight, wanted)
        for a, b, there in zip(some, got, wanted, strict=True):
            assert (a is not None) == there
            if there:
                np.testing.assert_allclose(a, b, few, few)


def test_gradients_of_many_rows_stay_exact():
    """Ten thousand terms added one by one in float32 would be off by 1e-4."""
    g = np.full((10_000, 3), 0.1, "f4")
    x = sample("float32", (10_000, 3)) + 1
    mean, rstd = np.zeros(10_000, "f4"), np.ones(10_000, "f4")
    _, dweight, dbias = kernels.layer_norm_backward(g, x, mean, rstd)
    np.testing.assert_allclose(dbias, 1000, rtol=2e-6)
    np.testing.assert_allclose(dweight, (g.astype("f8") * x).sum(0), rtol=5e-6)
    zeros, ones = np.zeros(3, "f4"), np.ones(3, "f4")
    for array in (x, x.reshape(100, 100, 3).transpose(0, 2, 1)):
        _, dweight, dbias = kernels.batch_norm_backward(
            np.full(array.shape, 0.1, "f4"), array, zeros, ones
        )
        np.testing.assert_allclose(dbias, 1000, rtol=2e-6)
        np.testing.assert_allclose(dweight, (g.astype("f8") * x).sum(0), rtol=5e-6)


@dtypes
def test_layer_norm_of_nothing(dtype):
    for shape in [(0, 3), (3, 0)]:
        x = np.empty(shape, dtype)
        out, mean, rstd = kernels.layer_norm_stats(x)
        assert out.shape == shape
        assert mean.shape == rstd.shape == shape[:1]
        assert np.isfinite(mean).all()
        dx, dweight, dbias = kernels.layer_norm_backward(x, x, mean, rstd)
        assert dx.shape == shape
        np.testing.assert_array_equal(dweight, np.zeros(shape[1]))
        np.testing.assert_array_equal(dbias, np.zeros(shape[1]))


def test_layer_norm_backward_checks_its_arguments():
    x, row = np.ones((4, 3), "f4"), np.ones(4, "f4")
    with pytest.raises(ValueError, match=r"mean must have shape \(4,\), got \(3,\)"):
        kernels.layer_norm_backward(x, x, np.ones(3, "f4"), row)
    with pytest.raises(ValueError, match=r"weight must have shape \(3,\), got \(4,\)"):
        kernels.layer_norm_backward(x, x, row, row, 1, row)
    with pytest.raises(
        TypeError, match="rstd must be of float32 like the first array, got float64"
    ):
        kernels.layer_norm_backward(x, x, row, row.astype("f8"))
    with pytest.raises(ValueError, match="cannot normalize the last 3 axes"):
        kernels.layer_norm_backward(x, x, row, row, 3)


SHAPES = [(5, 3), (70, 2), (2, 3, 4), (3, 2, 4, 5), (4, 3, 1, 1), (2, 1, 40, 40)]


@affine
@dtypes
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_batch_norm(shape, dtype, given):
    x = sample(dtype, shape) + 2
    weight, bias = parameters(dtype, shape[1], given)
    x64, weight64, bias64 = as_float64(x, weight, bias)
    out, mean, var, rstd = kernels.batch_norm(x, weight, bias, EPS)
    over = (0, *range(2, x.ndim))
    check(out, batch_norm(x64, weight64, bias64), dtype)
    check(mean, x64.mean(over), dtype)
    check(var, x64.var(over), dtype)
    check(rstd, 1 / np.sqrt(x64.var(over) + EPS), dtype)
    check(kernels.batch_norm(strided(x), weight, bias, EPS)[0], out, dtype)

    if x.size > 500:
        return  # too many differences
    g = sample(dtype, shape, 3)
    ones = np.ones(shape[1])
    expected = [
        numeric_gradient(lambda v: batch_norm(v, weight64, bias64), x, g),
        numeric_gradient(
            lambda v: batch_norm(x64, v, bias64), ones if weight is None else weight, g
        ),
        numeric_gradient(lambda v: batch_norm(x64, weight64, v), ones if bias is None else bias, g),
    ]
    got = kernels.batch_norm_backward(g, x, mean, rstd, weight)
    check_gradients(got, expected, dtype)
    assert kernels.batch_norm_backward(g, x, mean, rstd, weight, wanted=(False, False, False)) == (
        None,
        None,
        None,
    )


@affine
@dtypes
@pytest.mark.parametrize("shape", SHAPES[:-1], ids=str)
def test_batch_norm_with_given_statistics(shape, dtype, given):
    x = sample(dtype, shape) + 2
    weight, bias = parameters(dtype, shape[1], given)
    mean, var = sample(dtype, shape[1], 4), np.abs(sample(dtype, shape[1], 5))
    x64, weight64, bias64, mean64, var64 = as_float64(x, weight, bias, mean, var)
    before = mean.copy(), var.copy()
    out, rstd = kernels.batch_norm_inference(x, mean, var, weight, bias, EPS)
    check(out, batch_norm(x64, weight64, bias64, mean64, var64), dtype)
    check(rstd, 1 / np.sqrt(var64 + EPS), dtype)
    np.testing.assert_array_equal((mean, var), before)

    g = sample(dtype, shape, 3)
    ones = np.ones(shape[1])
    expected = [
        numeric_gradient(lambda v: batch_norm(v, weight64, bias64, mean64, var64), x, g),
        numeric_gradient(
            lambda v: batch_norm(x64, v, bias64, mean64, var64),
            ones if weight is None else weight,
            g,
        ),
        numeric_gradient(
            lambda v: batch_norm(x64, weight64, v, mean64, var64), ones if bias is None else bias, g
        ),
    ]
    check_gradients(
        kernels.batch_norm_backward(g, x, mean, rstd, weight, training=False), expected, dtype
    )


def test_batch_norm_checks_its_arguments():
    x = np.ones((4, 3, 2), "f4")
    with pytest.raises(ValueError, match="at least 2 axes"):
        kernels.batch_norm(np.ones(3, "f4"))
    with pytest.raises(ValueError, match=r"weight must have shape \(3,\), got \(4,\)"):
        kernels.batch_norm(x, np.ones(4, "f4"))
    with pytest.raises(TypeError, match="var must be of float32"):
        kernels.batch_norm_inference(x, np.ones(3, "f4"), np.ones(3))
    with pytest.raises(ValueError, match=r"g must have shape \(4, 3, 2\)"):
        kernels.batch_norm_backward(x[:2], x, np.ones(3, "f4"), np.ones(3, "f4"))


def group_norm(x, groups, weight, bias):
    rows = x.reshape(x.shape[0], groups, -1)
    rows = rows - rows.mean(2, keepdims=True)
    y = (rows / np.sqrt((rows**2).mean(2, keepdims=True) + EPS)).reshape(x.shape)
    per_channel = (-1, *(1,) * (x.ndim - 2))
    y = y if weight is None else y * weight.reshape(per_channel)
    return y if bias is None else y + bias.reshape(per_channel)


@affine
@dtypes
@pytest.mark.parametrize(
    ("shape", "groups"),
    [((2, 6), 2), ((3, 4, 5), 4), ((2, 6, 3, 4), 3), ((1, 4, 37), 1), ((2, 4, 30, 41), 2)],
    ids=str,
)
def test_group_norm(shape, groups, dtype, given):
    x = sample(dtype, shape) + 2
    weight, bias = parameters(dtype, shape[1], given)
    x64, weight64, bias64 = as_float64(x, weight, bias)
    out, mean, rstd = kernels.group_norm(x, groups, weight, bias, EPS)
    rows = x64.reshape(shape[0], groups, -1)
    check(
        out, group_norm(x64, groups, weight64, bias64), dtype, {"float32": 5e-6, "float64": 1e-12}
    )
    check(mean, rows.mean(2), dtype)
    check(rstd, 1 / np.sqrt(rows.var(2) + EPS), dtype)
    check(kernels.group_norm(strided(x), groups, weight, bias, EPS)[0], out, dtype)

    g = sample(dtype, shape, 3)
    got = kernels.group_norm_backward(g, x, mean, rstd, weight)
    nothing = kernels.group_norm_backward(g, x, mean, rstd, weight, (False, False, False))
    assert nothing == (None, None, None)
    if x.size > 500:
        # Too many differences: the formula instead.
        grouped = (shape[0], groups, -1)
        normal = group_norm(x64, groups, None, None)
        per_channel = 1 if weight is None else weight64.reshape(-1, 1, 1)
        inner, y = (g * per_channel).reshape(grouped), normal.reshape(grouped)
        inner = inner - inner.mean(2, keepdims=True) - y * (inner * y).mean(2, keepdims=True)
        expected = (inner / np.sqrt(rows.var(2, keepdims=True) + EPS)).reshape(shape)
        np.testing.assert_allclose(got[0], expected, atol=1e-5 if dtype == "float32" else 1e-12)
        over = (0, *range(2, x.ndim))
        np.testing.assert_allclose(got[1], (g * normal).sum(over), rtol=1e-4, atol=1e-3)
        np.testing.assert_allclose(got[2], g.astype("float64").sum(over), rtol=1e-4, atol=1e-3)
        return
    ones = np.ones(shape[1])
    expected = [
        numeric_gradient(lambda v: group_norm(v, groups, weight64, bias64), x, g),
        numeric_gradient(
            lambda v: group_norm(x64, groups, v, bias64), ones if weight is None else weight, g
        ),
        numeric_gradient(
            lambda v: group_norm(x64, groups, weight64, v), ones if bias is None else bias, g
        ),
    ]
    check_gradients(got, expected, dtype)


def test_group_norm_of_nothing():
    out, mean, rstd = kernels.group_norm(np.ones((2, 4, 0)), 2)
    assert out.shape == (2, 4, 0) and not mean.any() and not rstd.any()
    got = kernels.group_norm_backward(out, out, mean, rstd)
    assert got[0].shape == out.shape and not got[1].any() and not got[2].any()


def test_group_norm_checks_its_arguments():
    x, statistics = np.ones((4, 6, 2), "f4"), np.ones((4, 3), "f4")
    with pytest.raises(ValueError, match="at least 2 axes"):
        kernels.group_norm(np.ones(3, "f4"), 1)
    for groups in (0, 4, -1):
        with pytest.raises(ValueError, match=f"cannot divide 6 channels into {groups} groups"):
            kernels.group_norm(x, groups)
    with pytest.raises(ValueError, match=r"weight must have shape \(6,\), got \(4,\)"):
        kernels.group_norm(x, 3, np.ones(4, "f4"))
    with pytest.raises(ValueError, match=r"g must have shape \(4, 6, 2\)"):
        kernels.group_norm_backward(x[:2], x, statistics, statistics)
    with pytest.raises(ValueError, match=r"rstd must have shape \(4, 3\), got \(4, 2\)"):
        kernels.group_norm_backward(x, x, statistics, statistics[:, :2])
    with pytest.raises(ValueError, match="into 0 groups"):
        kernels.group_norm_backward(x, x, statistics[0], statistics)
    with pytest.raises(TypeError, match="mean must be of float32"):
        kernels.group_norm_backward(x, x, statistics.astype("f8"), statistics)
