# SPDX-License-Identifier: BSD-3-Clause
"""Equations with triangles under vmap."""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt

A = np.tril(np.arange(1.0, 19).reshape(2, 3, 3)) + np.eye(3)
B = np.arange(12.0).reshape(2, 3, 2)


@pytest.mark.parametrize(
    "function",
    [
        lambda a, b: mt.linalg.solve_triangular(a, b, upper=False),
        lambda a, b: mt.cholesky_solve(b, a),
        lambda a, b: mt.cholesky_inverse(a),
        lambda a, b: mt.linalg.cholesky(a @ a.mT, upper=True),
    ],
)
def test_each_matrix_is_solved_alone(function):
    a, b = mt.tensor(A), mt.tensor(B)
    ours = mt.func.vmap(function)(a, b)
    alone = np.stack([np.asarray(function(x, y)) for x, y in zip(a, b, strict=True)])
    np.testing.assert_allclose(ours, alone)
