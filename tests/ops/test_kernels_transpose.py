# SPDX-License-Identifier: BSD-3-Clause
"""The native transpose with a bias, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from modtree._C import kernels

SHAPES = ((0, 3), (3, 0), (1, 1), (5, 40), (16, 16), (33, 17), (48, 64))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_transpose_add(shape, dtype):
    random = np.random.default_rng(0)
    x, bias = random.standard_normal(shape).astype(dtype), random.standard_normal(shape[0])
    bias = bias.astype(dtype)
    for layout in (x, x.T.copy().T, np.repeat(x, 2, axis=1)[:, ::2]):
        result = kernels.transpose_add(layout, bias)
        assert result.dtype == dtype and result.flags.c_contiguous
        np.testing.assert_array_equal(result, x.T + bias)
        np.testing.assert_array_equal(kernels.transpose_add(layout), x.T)


def test_what_does_not_fit_is_refused():
    x = np.ones((3, 4), np.float32)
    with pytest.raises(ValueError, match="matrix"):
        kernels.transpose_add(np.ones(3, np.float32))
    with pytest.raises(ValueError, match="bias must have shape"):
        kernels.transpose_add(x, np.ones(4, np.float32))
    with pytest.raises(TypeError, match="bias must be of float32"):
        kernels.transpose_add(x, np.ones(3))
    with pytest.raises(TypeError, match="float32 or float64"):
        kernels.transpose_add(np.ones((3, 4), int))
