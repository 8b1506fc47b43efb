# SPDX-License-Identifier: BSD-3-Clause
"""Native LSTM and GRU cells (without their matrix products) and their gradients, against NumPy in
float64.
"""

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

shapes = pytest.mark.parametrize(("batch", "size"), [(3, 5), (1, 1), (2, 17)], ids=str)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(gates, c):
    i, f, g, o = np.split(gates, 4, axis=1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def gru(x, y, h):
    (xr, xz, xn), (yr, yz, yn) = np.split(x, 3, axis=1), np.split(y, 3, axis=1)
    z = sigmoid(xz + yz)
    return (1 - z) * np.tanh(xn + sigmoid(xr + yr) * yn) + z * h


@shapes
@dtypes
def test_lstm_cell(batch, size, dtype):
    x, y = (sample(dtype, (batch, 4 * size), seed) for seed in (0, 1))
    c = sample(dtype, (batch, size), 2)
    x64, y64, c64 = as_float64(x, y, c)
    expected = lstm(x64 + y64, c64)
    h, after, gates = kernels.lstm_cell(x, y, c)
    check(h, expected[0], dtype)
    check(after, expected[1], dtype)
    for a, b in zip(
        kernels.lstm_cell(strided(x), strided(y), strided(c)), (h, after, gates), strict=True
    ):
        np.testing.assert_array_equal(a, b)

    dh, dc = (sample(dtype, (batch, size), seed) for seed in (3, 4))
    for both in ((dh, dc), (dh, None), (None, dc)):
        zero = np.zeros((batch, size))
        g = np.stack([zero if v is None else v for v in both])
        gradients = [
            numeric_gradient(lambda v: np.stack(lstm(v + y64, c64)), x64, g),
            numeric_gradient(lambda v: np.stack(lstm(x64 + y64, v)), c64, g),
        ]
        check_gradients(kernels.lstm_cell_backward(*both, gates, c, after), gradients, dtype)


@shapes
@dtypes
def test_gru_cell(batch, size, dtype):
    x, y = (sample(dtype, (batch, 3 * size), seed) for seed in (0, 1))
    h = sample(dtype, (batch, size), 2)
    x64, y64, h64 = as_float64(x, y, h)
    after, gates = kernels.gru_cell(x, y, h)
    check(after, gru(x64, y64, h64), dtype)
    for a, b in zip(
        kernels.gru_cell(strided(x), strided(y), strided(h)), (after, gates), strict=True
    ):
        np.testing.assert_array_equal(a, b)

    g = sample(dtype, (batch, size), 3)
    gradients = [
        numeric_gradient(lambda v: gru(v, y64, h64), x64, g),
        numeric_gradient(lambda v: gru(x64, v, h64), y64, g),
        numeric_gradient(lambda v: gru(x64, y64, v), h64, g),
    ]
    check_gradients(kernels.gru_cell_backward(g, gates, y, h), gradients, dtype)


@dtypes
def test_cells_at_all_sizes_of_values(dtype):
    """tanh keeps its relative accuracy near 0 and its limits far away."""
    values = np.concatenate([np.logspace(-6, 3, 200), -np.logspace(-6, 3, 200), [0]])
    n = len(values)
    x = np.zeros((1, 3 * n), dtype)
    x[0, n : 2 * n] = -1000  # no update: h is the tanh
    x[0, 2 * n :] = values
    h, _ = kernels.gru_cell(x, np.zeros_like(x), np.zeros((1, n), dtype))
    np.testing.assert_allclose(
        h[0], np.tanh(x[0, 2 * n :].astype("f8")), rtol={"float32": 1e-6, "float64": 1e-14}[dtype]
    )
    c = np.zeros((1, n), dtype)
    x = np.tile(values, 4)[None].astype(dtype)
    _, after, gates = kernels.lstm_cell(x, np.zeros_like(x), c)
    i, _, g, _ = np.split(gates.astype("f8"), 4, axis=1)
    np.testing.assert_allclose(after, i * g, rtol=1e-6)
    with np.errstate(over="ignore"):
        wanted = sigmoid(x[:, :n].astype("f8"))
    np.testing.assert_allclose(i, wanted, rtol=1e-6, atol=1e-37)


def test_arguments_are_checked():
    x, c = np.zeros((2, 12)), np.zeros((2, 3))
    with pytest.raises(ValueError, match=r"from_hidden must have shape \(2, 12\), got \(2, 3\)"):
        kernels.lstm_cell(x, c, c)
    with pytest.raises(ValueError, match=r"from_input must have shape \(2, 9\), got \(2, 12\)"):
        kernels.gru_cell(x, x, c)
    with pytest.raises(ValueError, match=r"the state must have shape \(batch, size\), got \(3,\)"):
        kernels.lstm_cell(x, x, c[0])
    with pytest.raises(ValueError, match=r"dc must have shape \(2, 3\)"):
        kernels.lstm_cell_backward(None, c[:1], x, c, c)
    with pytest.raises(TypeError, match="dh must be of float64 like the first array, got float32"):
        kernels.gru_cell_backward(c.astype("f4"), np.zeros((2, 9)), np.zeros((2, 9)), c)
    assert kernels.lstm_cell(np.zeros((0, 12)), np.zeros((0, 12)), np.zeros((0, 3)))[0].shape == (
        0,
        3,
    )


@dtypes
def test_results_into_given_arrays(dtype):
    x, y, c = sample(dtype, (2, 12)), sample(dtype, (2, 12), 1), sample(dtype, (2, 3), 2)
    expected = kernels.lstm_cell(x, y, c)
    out = np.empty((2, 3), dtype), np.empty((2, 3), dtype), x.copy()
    for a, b in zip(kernels.lstm_cell(out[2], y, c, out), out, strict=True):
        assert a is b
    for a, b in zip(out, expected, strict=True):
        np.testing.assert_array_equal(a, b)
    x, y = x[:, :9].copy(), y[:, :9].copy()
    expected = kernels.gru_cell(x, y, c)
    h = np.empty((2, 3), dtype)
    new, gates = kernels.gru_cell(x, y, c, (h, None))
    assert new is h
    np.testing.assert_array_equal(h, expected[0])
    np.testing.assert_array_equal(gates, expected[1])
    with pytest.raises(ValueError, match=r"out must have shape \(2, 3\), got \(3, 2\)"):
        kernels.gru_cell(x, y, c, (np.empty((3, 2), dtype), None))
    with pytest.raises(ValueError, match="out must have 6 values, got 3"):
        kernels.gru_cell(x, y, c, (np.empty(3, dtype), None))
    with pytest.raises(ValueError, match="out must be C-contiguous, aligned and writeable"):
        kernels.gru_cell(x, y, c, (np.empty((3, 2), dtype).T, None))
