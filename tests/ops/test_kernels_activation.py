# SPDX-License-Identifier: BSD-3-Clause
"""Native activations and their gradients, against NumPy in float64."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.kernels_common import check, check_gradients, dtypes, numeric_gradient, sample, strided

from modtree._C import kernels

erfc = np.vectorize(math.erfc, otypes=[float])


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * erfc(-x / math.sqrt(2))


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x):
    return x * sigmoid(x)


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def log_softmax(x):
    return np.log(softmax(x))


# name: the reference, the kernel of the gradient, whether that takes the result in place of the
# input
GRADIENTS = {
    "gelu": (gelu, kernels.gelu_backward, False),
    "gelu_tanh": (
        gelu_tanh,
        lambda g, x, **kw: kernels.gelu_backward(g, x, tanh=True, **kw),
        False,
    ),
    "silu": (silu, kernels.silu_backward, False),
    "sigmoid": (sigmoid, kernels.sigmoid_backward, True),
    "tanh": (np.tanh, kernels.tanh_backward, True),
    "relu": (lambda x: np.maximum(x, 0), kernels.relu_backward, False),
    "softmax": (softmax, kernels.softmax_backward, True),
    "log_softmax": (log_softmax, kernels.log_softmax_backward, True),
}
gradient = pytest.mark.parametrize(
    ("reference", "kernel", "from_result"), GRADIENTS.values(), ids=GRADIENTS
)


def saved(reference, from_result, x):
    return np.asarray(reference(x.astype(np.float64)), x.dtype) if from_result else x


@pytest.mark.parametrize(
    ("kernel", "reference"),
    [(kernels.sigmoid, sigmoid), (kernels.silu, silu)],
    ids=["sigmoid", "silu"],
)
@dtypes
def test_values(kernel, reference, dtype):
    x = sample(dtype, (5, 67), scale=5)
    expected = reference(x.astype(np.float64))
    check(kernel(x), expected, dtype)
    check(kernel(strided(x)), expected, dtype)
    assert kernel(x, out=x) is x
    check(x, expected, dtype)
    with np.errstate(all="ignore"):
        special = np.array([np.inf, -np.inf, np.nan, 0, 200, -200] * 9, dtype)
        wanted = reference(special.astype(np.float64))
    np.testing.assert_allclose(kernel(special), wanted, atol=1e-30)
    assert kernel(np.empty((0, 3), dtype)).shape == (0, 3)
    with pytest.raises(TypeError, match="float32 or float64"):
        kernel(np.ones(3, "int64"))


@gradient
@dtypes
@pytest.mark.parametrize("shape", [(), (1,), (3, 5), (2, 3, 17), (0, 4), (4, 0)], ids=str)
def test_gradients(reference, kernel, from_result, dtype, shape):
    if shape == () and "softmax" in reference.__name__:
        pytest.skip("the reference has no axis to sum over")
    x = sample(dtype, shape, scale=2)
    g = sample(dtype, shape, seed=1)
    if x.size == 0:
        assert kernel(g, x).shape == shape
        return
    got = kernel(g, saved(reference, from_result, x))
    check_gradients([got], [numeric_gradient(reference, x, g)], dtype)


@gradient
@dtypes
def test_layouts_and_out(reference, kernel, from_result, dtype):
    y = saved(reference, from_result, sample(dtype, (4, 33)))
    g = sample(dtype, (4, 33), seed=1)
    expected = kernel(g, y)
    np.testing.assert_array_equal(kernel(strided(g), strided(y)), expected)
    np.testing.assert_array_equal(
        kernel(np.broadcast_to(g[:1], g.shape), y), kernel(np.repeat(g[:1], 4, 0), y)
    )
    for place in (g.copy(), y.copy()):
        pair = (place, y) if np.array_equal(place, g) else (g, place)
        assert kernel(*pair, out=place) is place
        np.testing.assert_array_equal(place, expected)


@gradient
def test_arguments_are_checked(reference, kernel, from_result):
    x = sample("float32", (4, 6))
    with pytest.raises(TypeError, match="g must be of float32 like the first array, got float64"):
        kernel(x.astype("f8"), x)
    with pytest.raises(ValueError, match=r"g must have shape \(4, 6\), got \(6, 4\)"):
        kernel(x.T, x)
    with pytest.raises(TypeError, match="g must be an array, got list"):
        kernel([1.0], x)
    with pytest.raises(TypeError, match="float32 or float64, got float16"):
        kernel(x.astype("f2"), x.astype("f2"))
    with pytest.raises(ValueError, match="out must"):
        kernel(x, x, out=np.empty((4, 7), "f4"))


@dtypes
def test_gradients_far_from_zero(dtype):
    x = np.array([-1e4, -90, -40, 40, 90, 1e4] * 6, dtype)
    g = np.ones_like(x)
    expected = np.where(x > 0, 1, 0)
    for kernel in (
        kernels.gelu_backward,
        lambda g, x: kernels.gelu_backward(g, x, tanh=True),
        kernels.silu_backward,
    ):
        np.testing.assert_allclose(kernel(g, x), expected, atol=1e-12)


@dtypes
def test_relu_gradient_at_0_and_nan(dtype):
    x = np.array([0.0, -0.0, np.nan, 1, -1, np.inf] * 7, dtype)
    np.testing.assert_array_equal(
        kernels.relu_backward(np.full_like(x, 3), x), [0, 0, 3, 3, 0, 3] * 7
    )


def test_a_masked_entry_of_softmax_gets_no_gradient():
    x = np.array([[-np.inf, 0.5, 2.0]])
    g = np.array([[3.0, -1.0, 2.0]])
    assert kernels.softmax_backward(g, kernels.softmax(x))[0, 0] == 0
    got = kernels.log_softmax_backward(g, kernels.log_softmax(x))
    assert got[0, 0] == 3
    assert np.isfinite(got).all()


@dtypes
def test_small_results_keep_their_relative_accuracy(dtype):
    x = np.linspace(-80, 0, 10_001).astype(dtype)[:, None]
    expected = sigmoid(x.astype("f8"))
    tolerance = {"float32": 4e-7, "float64": 1e-15}[dtype]
    np.testing.assert_allclose(kernels.sigmoid(x), expected, rtol=tolerance)
    np.testing.assert_allclose(kernels.silu(x), x * expected, rtol=tolerance)
    pairs = np.concatenate([x, np.zeros_like(x)], axis=1)
    np.testing.assert_allclose(kernels.softmax(pairs)[:, :1], expected, rtol=tolerance)
