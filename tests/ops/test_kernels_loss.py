# SPDX-License-Identifier: BSD-3-Clause
"""Native cross-entropy and the sum of rows by index, against NumPy in float64."""

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


def cross_entropy(x, targets, weight, ignore_index, smoothing):
    shifted = x - x.max(1, keepdims=True)
    log_p = shifted - np.log(np.exp(shifted).sum(1, keepdims=True))
    weight = np.ones(x.shape[1]) if weight is None else weight
    kept = targets != ignore_index
    at = np.where(kept, targets, 0)
    loss = -(1 - smoothing) * weight[at] * log_p[np.arange(len(x)), at]
    loss -= smoothing / x.shape[1] * (weight * log_p).sum(1)
    return np.where(kept, loss, 0)


@dtypes
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("ignore_index", [-100, 2])
@pytest.mark.parametrize("shape", [(6, 5), (3, 1), (4, 33)], ids=str)
def test_cross_entropy(shape, ignore_index, smoothing, weighted, dtype):
    x = sample(dtype, shape, scale=3)
    targets = np.random.default_rng(1).integers(0, shape[1], shape[0])
    targets[1] = ignore_index
    weight = np.abs(sample(dtype, shape[1], 2)) if weighted else None
    arguments = (targets, weight, ignore_index, smoothing)
    x64, weight64 = as_float64(x, weight)
    arguments64 = (targets, weight64, ignore_index, smoothing)
    loss, logsumexp = kernels.cross_entropy(x, *arguments)
    check(loss, cross_entropy(x64, *arguments64), dtype)
    check(logsumexp, np.log(np.exp(x64).sum(1)), dtype)
    assert loss[1] == 0

    g = sample(dtype, shape[0], 3)
    expected = numeric_gradient(lambda v: cross_entropy(v, *arguments64), x, g)
    got = kernels.cross_entropy_backward(g, x, targets, logsumexp, *arguments[1:])
    check_gradients([got], [expected], dtype)
    np.testing.assert_array_equal(got[1], np.zeros(shape[1]))
    again = kernels.cross_entropy_backward(
        strided(g), strided(x), targets.astype("int32"), logsumexp, *arguments[1:]
    )
    np.testing.assert_array_equal(again, got)


def test_cross_entropy_of_large_logits():
    """The small difference survives although the logits have no digits left for it."""
    x = np.array([[1e6, 1e6 + 1]], "f4")
    loss, _ = kernels.cross_entropy(x, np.array([0]))
    np.testing.assert_allclose(loss, np.log1p(np.e), rtol=1e-6)
    loss, _ = kernels.cross_entropy(np.array([[-np.inf, 3.0]]), np.array([0]))
    assert loss == np.inf


def test_targets_are_checked():
    x, good = np.zeros((2, 3)), np.zeros(2, "int64")
    loss, logsumexp = kernels.cross_entropy(x, good)
    for bad in (3, -1, 2**40, -(2**63)):
        with pytest.raises(
            IndexError, match=f"Target {bad} is out of bounds: the number of classes is 3"
        ):
            kernels.cross_entropy(x, np.array([0, bad]))
        with pytest.raises(IndexError, match="out of bounds"):
            kernels.cross_entropy_backward(loss, x, np.array([0, bad]), logsumexp)
    with pytest.raises(TypeError, match="targets must be an array of integers, got float64"):
        kernels.cross_entropy(x, np.zeros(2))
    with pytest.raises(ValueError, match=r"targets must have shape \(2,\), got \(3,\)"):
        kernels.cross_entropy(x, np.zeros(3, int))
    with pytest.raises(ValueError, match=r"logits must have shape \(rows, classes\)"):
        kernels.cross_entropy(np.zeros(3), good)
    with pytest.raises(ValueError, match=r"weight must have shape \(3,\)"):
        kernels.cross_entropy(x, good, np.ones(2))
    with pytest.raises(IndexError, match="number of classes is 0"):
        kernels.cross_entropy(np.zeros((2, 0)), good)
    assert kernels.cross_entropy(np.zeros((0, 3)), np.zeros(0, int))[0].shape == (0,)


@dtypes
@pytest.mark.parametrize("shape", [(7,), (2, 5), (0,), ()], ids=str)
def test_scatter_add_rows(shape, dtype):
    indices = np.random.default_rng(0).integers(0, 4, shape)
    g = sample(dtype, (*shape, 5), 1)
    expected = np.zeros((4, 5))
    np.add.at(expected, indices, g.astype("f8"))
    check(kernels.scatter_add_rows(indices, g, 4), expected, dtype)
    check(kernels.scatter_add_rows(indices.astype("int32"), strided(g), 4), expected, dtype)
    expected[2] = 0
    check(kernels.scatter_add_rows(indices, g, 4, skip=2), expected, dtype)


def test_indices_are_checked():
    g = np.ones((2, 3))
    for bad in (4, -1, -(2**62)):
        with pytest.raises(
            IndexError, match=f"index {bad} is out of range: the number of rows is 4"
        ):
            kernels.scatter_add_rows(np.array([0, bad]), g, 4)
    with pytest.raises(IndexError, match="out of range"):
        kernels.scatter_add_rows(np.array([0, 2**63 + 1], "uint64"), g, 4)
    np.testing.assert_array_equal(
        kernels.scatter_add_rows(np.array([0, 9]), g, 2, skip=9), [[1] * 3, [0] * 3]
    )
    with pytest.raises(ValueError, match="shape of indices and one axis more"):
        kernels.scatter_add_rows(np.array([0, 1, 2]), g, 4)
    with pytest.raises(ValueError, match="shape of indices and one axis more"):
        kernels.scatter_add_rows(np.array(0), np.array(1.0), 4)
    with pytest.raises(TypeError, match="indices must be an array of integers"):
        kernels.scatter_add_rows(np.array([0.0, 1.0]), g, 4)
    with pytest.raises(ValueError, match="must not be negative"):
        kernels.scatter_add_rows(np.zeros(0, int), np.ones((0, 3)), -1)
