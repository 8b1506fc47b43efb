# SPDX-License-Identifier: BSD-3-Clause
"""What the tests of the native kernels share."""

from __future__ import annotations

import numpy as np
import pytest

dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])

#: Of results against a float64 reference; gradients are compared with differences, which are less
#: exact.
TOLERANCE = {"float32": 2e-6, "float64": 1e-12}
GRADIENT_TOLERANCE = {"float32": 5e-6, "float64": 2e-8}


def sample(dtype, shape, seed=0, scale=1.0):
    return np.asarray(np.random.default_rng(seed).standard_normal(shape) * scale, dtype)


def numeric_gradient(function, x, g, step=1e-5):
    """Gradient of ``sum(g * function(x))`` by central differences in float64; None where ``x`` is
    None.
    """
    if x is None:
        return None
    x = x.astype(np.float64)
    g = g.astype(np.float64)
    gradient = np.empty_like(x)
    for place in np.ndindex(*x.shape):
        ends = []
        for sign in (1, -1):
            moved = x.copy()
            moved[place] += sign * step
            ends.append(np.sum(g * function(moved)))
        gradient[place] = (ends[0] - ends[1]) / (2 * step)
    return gradient


def check(got, expected, dtype, tolerance=TOLERANCE):
    assert got.dtype == dtype
    assert got.flags.c_contiguous
    np.testing.assert_allclose(got, expected, atol=tolerance[dtype], rtol=tolerance[dtype])


def check_gradients(got, expected, dtype):
    assert len(got) == len(expected)
    for a, b in zip(got, expected, strict=True):
        if b is None:
            assert a is None
        else:
            check(a, b, dtype, GRADIENT_TOLERANCE)


def as_float64(*arrays):
    return [None if a is None else a.astype(np.float64) for a in arrays]


def strided(x):
    """The same values in an array that is not contiguous."""
    return np.repeat(x, 2, axis=-1)[..., ::2] if x.ndim else x
