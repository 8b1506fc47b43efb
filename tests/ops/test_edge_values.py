# SPDX-License-Identifier: BSD-3-Clause
"""Values and gradients where numbers end: at infinities, NaN and zeros, of few bits, of no
elements. What torch is asked for too, it gives.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import modtree as mt

INF, NAN = math.inf, math.nan


def same(result, expected):
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5, atol=1e-7)


def test_complex_numbers_of_infinite_parts(lib):
    z = lib.complex(lib.tensor([INF, 1.0]), lib.tensor([2.0, -INF]))
    assert z.real.tolist() == [INF, 1.0]
    assert z.imag.tolist() == [2.0, -INF]
    assert lib.polar(lib.tensor(INF), lib.tensor(1.0)).real == INF


def test_gradients_of_complex_numbers_in_their_parts(lib):
    a, b = (lib.tensor([v], dtype=lib.float64, requires_grad=True) for v in (2.0, 0.5))
    (lib.complex(a, b) * (3 - 1j)).real.sum().backward()
    assert (a.grad.item(), b.grad.item()) == (3.0, 1.0)
    a.grad = b.grad = None
    (lib.polar(a, b) * (3 - 1j)).real.sum().backward()
    same(a.grad, [3 * math.cos(0.5) + math.sin(0.5)])
    same(b.grad, [2 * (math.cos(0.5) - 3 * math.sin(0.5))])


def test_the_gradient_of_polar_is_its_derivative():
    size = mt.tensor([0.0, -1.0], requires_grad=True)
    mt.polar(size, mt.tensor([0.5, 0.5])).real.sum().backward()
    same(size.grad, [math.cos(0.5)] * 2)


def test_incomplete_gamma_functions_of_limits(lib):
    """NaN beside a limit that settles the value has no part in it."""
    a = lib.tensor([NAN, NAN, INF, INF, 0.0, -1.0])
    x = lib.tensor([INF, 0.0, NAN, INF, NAN, INF])
    same(lib.igamma(a, x), [1.0, 0.0, 0.0, NAN, NAN, NAN])
    same(lib.igammac(a, x), [0.0, 1.0, 1.0, NAN, NAN, NAN])


def test_incomplete_gamma_functions_of_large_numbers(lib):
    a = lib.tensor([2e6, 1e10, 1e30], dtype=lib.float64)
    x = lib.tensor([2e6 + 1e3, 1e10 - 1e5, 1e30], dtype=lib.float64)
    # in mpmath: gammainc(a, x, regularized=True)
    same(lib.igammac(a, x), [0.23971344, 0.84134474, 0.5])


def test_incomplete_gamma_functions_of_integers_beside_floats(lib):
    x = lib.igamma(lib.tensor([1]), lib.tensor([1.0]))
    assert x.dtype == lib.float32
    same(x, [1 - math.exp(-1)])


def test_slopes_at_infinity(lib):
    x = lib.tensor([INF], requires_grad=True)
    lib.digamma(x).backward()
    assert x.grad.tolist() == [0.0]


def test_slope_of_mvlgamma_at_minus_zero(lib):
    x = lib.tensor([-0.0], requires_grad=True)
    lib.mvlgamma(x, 1).backward()
    assert x.grad.tolist() == [-INF]
