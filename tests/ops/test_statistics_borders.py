# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of nothing, of one element, and with more degrees of freedom taken than there are."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.same import differentiated, same


@pytest.mark.parametrize("name", ["mode", "nanmedian", "median"])
@pytest.mark.parametrize(
    ("shape", "args"),
    [((0,), (0,)), ((0, 3), (0,)), ((0, 3), (1,)), ((0, 3), (-1, True)), ((3, 0), (1,))],
)
def test_the_middle_of_nothing(name, shape, args):
    same(lambda lib: getattr(lib.zeros(shape), name)(*args))


@pytest.mark.parametrize("name", ["median", "nanmedian"])
@pytest.mark.parametrize("keepdim", [False, True])
def test_keepdim_needs_a_dim(name, keepdim):
    same(lambda lib: getattr(lib.ones(2, 3), name)(keepdim=keepdim))
    same(lambda lib: getattr(lib, name)(lib.ones(2, 3), 1, keepdim=keepdim))


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [2, 3, 5])
@pytest.mark.parametrize("dim", [None, 1, (0, 1)])
def test_gradients_without_a_degree_of_freedom(name, correction, dim):
    x = np.array([[1, 2], [3, 5.5]], np.float32)
    same(differentiated(lambda lib, x: getattr(lib, name)(x, dim, correction=correction), x))


@pytest.mark.parametrize("name", ["var", "std"])
def test_gradients_of_complex_numbers_without_a_degree_of_freedom(name):
    x = np.array([1 + 1j, 2, -3j])
    same(differentiated(lambda lib, x: getattr(lib, name)(x, correction=3), x))


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_moments_of_no_complex_numbers(name, shape):
    same(differentiated(lambda lib, x: getattr(lib, name)(x, 0), np.zeros(shape, "complex64")))


@pytest.mark.parametrize("value", [2.0, np.nan, np.inf, 1 + np.nan * 1j])
@pytest.mark.parametrize("step", [1, 2.5])
def test_the_integral_of_one_point(value, step):
    same(differentiated(lambda lib, y: lib.trapezoid(y, dx=step), np.array([value])))
