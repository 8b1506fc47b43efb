# SPDX-License-Identifier: BSD-3-Clause
"""pdist against torch's: values, gradients, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.gradients import Case, suite, whole
from helpers.support import raises

import modtree as mt

torch = pytest.importorskip("torch")

SHAPES = [((5, 3),), ((2, 4),), ((1, 4),), ((4, 0),), ((4, 1),)]
POWERS = (0, 0.5, 1, 1.5, 2, 3, math.inf)


def pdist(p):
    return lambda lib, x: lib.nn.functional.pdist(x, p)


CASES = [Case(f"pdist {p}", pdist(p), SHAPES, twice=False) for p in POWERS]
# Rows that are equal, and differences of 0.
CASES += [Case(f"pdist {p} of ties", pdist(p), SHAPES, whole(0, 2), twice=False) for p in POWERS]
test_gradients = suite(CASES)


def test_it_is_a_part_of_cdist():
    x = mt.randn(6, 3, dtype=mt.float64)
    rows, columns = np.triu_indices(6, 1)
    np.testing.assert_allclose(mt.pdist(x).numpy(), mt.cdist(x, x).numpy()[rows, columns])
    assert mt.nn.functional.pdist is mt.pdist


@pytest.mark.parametrize("rows", [63, 64, 65, 66, 129])
@pytest.mark.parametrize("p", [1, 2, 3, math.inf])
def test_many_rows(rows, p):
    """The kernel takes some rows at once."""
    points = np.random.default_rng(rows).standard_normal((rows, 3))
    weights = np.random.default_rng(0).standard_normal(rows * (rows - 1) // 2)
    found = []
    for lib in (mt, torch):
        x = lib.from_numpy(points.copy()).requires_grad_()
        distances = lib.pdist(x, p)
        (distances * lib.from_numpy(weights)).sum().backward()
        found.append((distances.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


def test_half_precision():
    x = mt.randn(70, 3, dtype=mt.float64).half().requires_grad_()
    wide = x.detach().float().requires_grad_()
    distances = mt.pdist(x)
    assert distances.dtype is mt.float16
    np.testing.assert_array_equal(distances.detach(), mt.pdist(wide).detach().half())
    distances.sum().backward()
    mt.pdist(wide).sum().backward()
    np.testing.assert_allclose(x.grad, wide.grad, rtol=2e-3, atol=2e-3)


@pytest.mark.parametrize("p", POWERS[:-1])
def test_infinite_points(p):
    """Differences on the diagonal, which are no pairs, take no part."""
    found = []
    for lib in (mt, torch):
        x = lib.tensor([[math.inf, 1.0], [0.0, 2.0], [1.0, 4.0]], dtype=lib.float64)
        x.requires_grad_()
        distances = lib.pdist(x, p)
        distances.sum().backward()
        found.append((distances.detach().numpy(), x.grad.numpy()))
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_allclose(ours, theirs)
    alone = mt.tensor([[math.inf]], requires_grad=True)
    mt.pdist(alone, p).sum().backward()
    assert alone.grad.tolist() == [[0.0]]


def test_no_rows():
    """torch's backward divides by zero there, and the process ends."""
    x = mt.zeros(0, 4, requires_grad=True)
    mt.pdist(x).sum().backward()
    assert x.grad.shape == (0, 4)


def test_small_distances_of_large_numbers():
    x = mt.tensor([[1e8, 0.0], [1e8 + 1, 0.0]], dtype=mt.float64)
    assert mt.pdist(x).tolist() == [1.0]


def test_without_values():
    found = mt.pdist(mt.empty(7, 2, device="meta", dtype=mt.float64))
    assert found.is_meta and found.shape == (21,) and found.dtype is mt.float64


def test_nan():
    x = np.array([[0.0, np.nan], [1, 2], [3, 4]])
    for p in POWERS[1:]:
        results = [lib.pdist(lib.from_numpy(x), p).numpy() for lib in (mt, torch)]
        np.testing.assert_allclose(*results)


def test_errors(lib):
    with raises(RuntimeError, "pdist only supports 2D tensors, got: 3D"):
        lib.pdist(lib.zeros(2, 3, 4))
    with raises(RuntimeError, "pdist only supports floating-point dtypes"):
        lib.pdist(lib.zeros(2, 3, dtype=lib.int64))
    with raises(RuntimeError, "pdist only supports non-negative p values"):
        lib.pdist(lib.zeros(2, 3), -1.0)
    with pytest.raises(TypeError, match="pdist"):
        lib.pdist([[1.0, 2.0]])
