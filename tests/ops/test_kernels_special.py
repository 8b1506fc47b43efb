# SPDX-License-Identifier: BSD-3-Clause
"""Native functions of single elements, against the math library and NumPy, in every layout."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.kernels_common import dtypes, sample

from modtree._C import kernels

NAN, INF = math.nan, math.inf
SPECIAL = [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0]

layouts = pytest.mark.parametrize(
    "layout",
    [
        lambda x: x,
        lambda x: x.T,
        lambda x: x[::-1, ::2],
        lambda x: np.broadcast_to(x[:1], x.shape),
        lambda x: np.asfortranarray(x)[:, None].swapaxes(0, 2),
        lambda x: x[:0],
        lambda x: x[:1, 0].reshape(()),
    ],
    ids=["contiguous", "transposed", "strided", "broadcast", "permuted", "empty", "scalar"],
)


def in_double(function, *arrays):
    """The values of a function of floats, rounded to the dtype of the arrays."""
    values = np.vectorize(function, otypes=[float])(*(a.astype(float) for a in arrays))
    return values.astype(arrays[0].dtype)


def within_ulps(got, expected, ulps):
    assert got.dtype == expected.dtype
    assert got.shape == expected.shape
    same = (got == expected) | (np.isnan(got) & np.isnan(expected))
    with np.errstate(invalid="ignore"):
        apart = np.abs(got.astype(float) - expected) / np.spacing(np.abs(expected))
        assert (same | (apart <= ulps)).all(), np.nanmax(np.where(same, 0, apart))


@dtypes
@pytest.mark.parametrize("scale", [1e-6, 0.3, 1.0, 4.0, 12.0])
@pytest.mark.parametrize("name", ["erf"])
def test_error_functions_are_exact_to_a_few_ulp(name, scale, dtype):
    x = sample(dtype, 3001, scale=scale)
    within_ulps(getattr(kernels, name)(x), in_double(getattr(math, name), x), 4)


@dtypes
def test_erfinv_is_the_inverse_of_erf(dtype):
    x = np.concatenate([np.linspace(-0.999, 0.999, 1001), [0.99999, -0.99999, 1e-7]]).astype(dtype)
    y = kernels.erfinv(x)
    back = in_double(math.erf, y)
    # One ulp of y is so much of erf(y).
    slope = 2 / math.sqrt(math.pi) * np.exp(-(y.astype(float) ** 2))
    room = 4 * np.spacing(np.abs(y)) * slope + 2 * np.spacing(np.abs(x))
    assert (np.abs(back.astype(float) - x) <= room).all()


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("erf", [0.0, -0.0, 1, -1, NAN, math.erf(1), -math.erf(1)]),
        ("erfinv", [0.0, -0.0, NAN, NAN, NAN, INF, -INF]),
        ("digamma", [-INF, INF, INF, NAN, NAN, -0.5772156649015329, NAN]),
    ],
)
def test_special_values(name, expected):
    # As many as vectors hold, and one alone.
    got = getattr(kernels, name)(np.array(SPECIAL * 9))
    np.testing.assert_allclose(got, expected * 9, rtol=1e-15)
    assert np.signbit(got[1]) == np.signbit(expected[1])
    for x, y in zip(SPECIAL, expected, strict=True):
        np.testing.assert_allclose(getattr(kernels, name)(np.array(x)), y, rtol=1e-15)


@dtypes
def test_digamma_has_the_slope_of_lgamma(dtype):
    x = np.array([0.1, 0.5, 1.4616, 2, 7.3, 50, 1e6, -0.3, -3.7, -20.25], dtype)
    step = 1e-6
    slopes = [
        (math.lgamma(v + h) - math.lgamma(v - h)) / (2 * h)
        for v in x.astype(float)
        for h in [step * max(1, abs(v))]
    ]
    np.testing.assert_allclose(kernels.digamma(x), slopes, rtol=1e-5, atol=1e-6)


@dtypes
@pytest.mark.parametrize(("name", "ufunc"), [("fmod", np.fmod), ("remainder", np.remainder)])
def test_remainders_are_exact(name, ufunc, dtype):
    rng = np.random.default_rng(0)
    x = np.concatenate([rng.normal(size=500) * 10.0**k for k in (-3, 0, 3, 12)])
    x = np.concatenate([x, rng.integers(-20, 20, 500), np.repeat(SPECIAL, 7)]).astype(dtype)
    y = np.concatenate([rng.normal(size=2000), rng.integers(-4, 5, 500), SPECIAL * 7])
    y = y.astype(dtype)
    with np.errstate(all="ignore"):
        expected = ufunc(x, y)
    np.testing.assert_array_equal(getattr(kernels, name)(x, y), expected)
    with np.errstate(all="ignore"):
        bits = rng.integers(0, 2**63, 4000).view(np.float64).astype(dtype)
        expected = ufunc(bits[:2000], bits[2000:])
    np.testing.assert_array_equal(getattr(kernels, name)(bits[:2000], bits[2000:]), expected)


@dtypes
def test_logaddexp_does_not_overflow(dtype):
    x, y = (sample(dtype, 4001, seed, 20) for seed in (0, 1))
    x[:7], y[:7] = SPECIAL, [1000, -INF, INF, -INF, 1, NAN, -1]
    with np.errstate(invalid="ignore"):
        expected = np.logaddexp(x.astype(float), y).astype(dtype)
    np.testing.assert_allclose(kernels.logaddexp(x, y), expected, rtol=4 * np.finfo(dtype).eps)


MAPS = {
    "clamp": (lambda x, a, b: np.clip(x, a, b), (-0.5, 0.75)),
    "hardswish": (lambda x: x * np.clip(x + 3, 0, 6) / 6, ()),
    "hardsigmoid": (lambda x: np.clip(x + 3, 0, 6) / 6, ()),
    "softplus": (lambda x, a, b: np.where(a * x > b, x, np.logaddexp(0, a * x) / a), (2.0, 3.0)),
    "threshold": (lambda x, a, b: np.where(x <= a, b, x), (0.25, -7.0)),
    "hardshrink": (lambda x, a: np.where(np.abs(x) <= a, 0, x), (0.5,)),
    "softshrink": (lambda x, a: x - np.clip(x, -a, a), (0.5,)),
    "leaky_relu": (lambda x, a: np.where(x > 0, x, x * a), (0.125,)),
    "sign": (np.sign, ()),
}


@dtypes
@layouts
@pytest.mark.parametrize("name", MAPS)
def test_maps_keep_shape_and_order_of_memory(name, layout, dtype):
    reference, numbers = MAPS[name]
    x = layout(sample(dtype, (40, 30), scale=3))
    got = getattr(kernels, name)(x, *numbers)
    expected = reference(x.astype(float), *numbers)
    np.testing.assert_allclose(got, expected, rtol=4 * np.finfo(dtype).eps, atol=1e-30)
    assert got.shape == x.shape
    assert got.dtype == dtype
    if x.flags.c_contiguous or x.flags.f_contiguous:
        assert got.strides == np.positive(x).strides
    assert not np.shares_memory(got, x)


@dtypes
@pytest.mark.parametrize("name", [n for n in MAPS if n != "sign"])
def test_maps_let_nan_through(name, dtype):
    x = np.full(33, np.nan, dtype)
    assert np.isnan(getattr(kernels, name)(x, *MAPS[name][1])).all()
    assert not kernels.sign(x).any()


BACKWARD = {
    "hardswish_backward": ("hardswish", ()),
    "softplus_backward": ("softplus", (2.0, 3.0)),
    "threshold_backward": ("threshold", (0.25, -7.0)),
    "leaky_relu_backward": ("leaky_relu", (0.125,)),
}


@dtypes
@layouts
@pytest.mark.parametrize("name", BACKWARD)
def test_gradients_of_maps(name, layout, dtype):
    forward, numbers = BACKWARD[name]
    x, g = (layout(sample(dtype, (40, 30), seed, 3)) for seed in (0, 1))
    got = getattr(kernels, name)(g, x, *numbers)
    step = 1e-6
    wide = x.astype(np.float64)
    ends = [getattr(kernels, forward)(np.asarray(wide + h), *numbers) for h in (step, -step)]
    slope = (ends[0] - ends[1]) / (2 * step)
    smooth = np.abs(slope) < 100  # not where a step of threshold() lies in between
    np.testing.assert_allclose(got[smooth], (g * slope)[smooth], rtol=1e-4, atol=2e-6)


def test_gradients_at_edges():
    g = np.full(5, 2.0)
    edge = np.array([-1.0, 1.0, 0.0, NAN, -0.0])
    np.testing.assert_array_equal(kernels.between(g, edge, -1.0, 1.0), [0, 0, 2, 2, 2])
    np.testing.assert_array_equal(kernels.shrink_backward(g, edge, 1.0), [0, 0, 0, 2, 0])
    np.testing.assert_array_equal(
        kernels.hardsigmoid_backward(g, np.array([0.0, 1.0, 0.5, NAN, -0.0])), [0, 0, 2 / 6, 0, 0]
    )
    ends = kernels.hardswish_backward(np.full(4, INF), np.array([-3.0, 3.0, -4.0, 4.0]))
    np.testing.assert_array_equal(ends, [0, INF, 0, INF])


@dtypes
def test_pairs_of_different_layouts(dtype):
    x, y = sample(dtype, (30, 40)), sample(dtype, (40, 30), 1).T
    expected = kernels.huber(x, np.ascontiguousarray(y), 0.5, 0.5)
    np.testing.assert_array_equal(kernels.huber(x, y, 0.5, 0.5), expected)
    row = np.broadcast_to(x[:1], x.shape)
    np.testing.assert_array_equal(
        kernels.huber(row, y, 0.5, 0.5), kernels.huber(np.array(row), np.array(y), 0.5, 0.5)
    )
    d = np.abs(x.astype(float) - y)
    np.testing.assert_allclose(
        expected, np.where(d < 0.5, d * d, d - 0.25), rtol=1e-5, atol=2 * np.finfo(dtype).eps
    )


def test_arguments_that_do_not_fit():
    x = np.zeros((2, 3))
    for call in (
        lambda: kernels.fmod(x, np.zeros((3, 2))),
        lambda: kernels.between(x, np.zeros(2), 0.0, 1.0),
    ):
        with pytest.raises(ValueError, match="of one shape, got"):
            call()
    with pytest.raises(TypeError, match="of one dtype, got float64 and float32"):
        kernels.fmod(x, np.zeros((2, 3), np.float32))
    with pytest.raises(TypeError, match="float32 or float64, got int64"):
        kernels.erf(np.zeros(2, np.int64))


def test_swapped_bytes_and_misaligned_memory():
    x = sample("float64", 20)
    swapped = x.astype(">f8")
    np.testing.assert_array_equal(kernels.clamp(swapped, -0.5, 0.5), np.clip(x, -0.5, 0.5))
    misaligned = np.zeros(161, np.uint8)[1:].view(np.float64)
    misaligned[:] = x
    np.testing.assert_array_equal(kernels.clamp(misaligned, -0.5, 0.5), np.clip(x, -0.5, 0.5))
