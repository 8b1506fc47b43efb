# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of inverses, factors and norms of matrices, against torch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.gradients import Case, imaginary, suite

import modtree as mt

torch = pytest.importorskip("torch")

# -- inverses and equations ------------------------------------------------------------------------

SQUARE = [((3, 3),), ((2, 4, 4),), ((1, 1),), ((0, 3, 3),)]
SQUARES = [((3, 3),), ((2, 4, 4),), ((1, 1),)]


def regular(rng, shape):
    """Matrices far from singular, with eigenvalues apart."""
    n = shape[-1]
    return rng.uniform(-0.5, 0.5, shape) + np.diag(np.arange(1, n + 1) * 1.5)


def regular_complex(rng, shape):
    return regular(rng, shape) + 1j * rng.uniform(-0.5, 0.5, shape)


def any_numbers(rng, shape):
    return rng.standard_normal(shape)


def _symmetric(x):
    return x + x.mT


def _positive(x):
    return x @ x.mT


SOLVE = [
    ((3, 3), (3,)),
    ((3, 3), (3, 2)),
    ((2, 3, 3), (2, 3)),
    ((2, 3, 3), (2, 3, 1)),
    ((2, 3, 3), (3, 4)),
    ((3, 3), (2, 3, 4)),
    ((3, 3), (3, 0)),
]
SOLVERS = [regular, any_numbers]
INVERSES = [
    Case("inv", lambda lib, x: lib.linalg.inv(x), SQUARE, regular),
    Case("inverse of a complex", lambda lib, x: x.inverse(), SQUARE, regular_complex, twice=False),
    Case("det", lambda lib, x: lib.linalg.det(x), SQUARES, regular),
    Case("det of none", lambda lib, x: x.det(), SQUARE, regular, twice=False),
    Case("det of a complex", lambda lib, x: lib.det(x), SQUARE, regular_complex, twice=False),
    Case("slogdet", lambda lib, x: lib.linalg.slogdet(x), SQUARE, regular),
    Case(
        "slogdet of a complex", lambda lib, x: lib.slogdet(x), SQUARES, regular_complex, twice=False
    ),
    Case("logabsdet", lambda lib, x: lib.slogdet(x)[1], SQUARE, regular),
    Case("solve", lambda lib, a, b: lib.linalg.solve(a, b), SOLVE, SOLVERS, mixed=False),
    Case(
        "solve a complex",
        lambda lib, a, b: lib.linalg.solve(a, b),
        SOLVE[:5],
        [regular_complex, imaginary],
        mixed=False,
        twice=False,
    ),
    Case(
        "solve from the right",
        lambda lib, a, b: lib.linalg.solve(a, b, left=False),
        [((3, 3), (2, 3))],
        SOLVERS,
        mixed=False,
    ),
    Case(
        "pinv",
        lambda lib, x: lib.linalg.pinv(x),
        [((3, 3),), ((2, 4),), ((2, 4, 3),)],
        any_numbers,
        tolerance=1e-8,
    ),
    Case(
        "pinv of a complex",
        lambda lib, x: lib.linalg.pinv(x),
        [((2, 4),), ((4, 3),)],
        imaginary,
        twice=False,
        tolerance=1e-8,
        single=False,
    ),
    Case(
        "matrix_power of the inverse",
        lambda lib, x: lib.linalg.matrix_power(x, -2),
        SQUARES,
        regular,
    ),
    Case(
        "householder_product",
        lambda lib, a, tau: lib.linalg.householder_product(a, tau),
        [((4, 3), (3,)), ((4, 3), (2,)), ((2, 3, 3), (2, 3))],
        any_numbers,
        mixed=False,
        tolerance=1e-8,
    ),
    Case(
        "householder_product of a complex",
        lambda lib, a, tau: lib.linalg.householder_product(a, tau),
        [((4, 3), (3,))],
        imaginary,
        mixed=False,
        twice=False,
        tolerance=1e-8,
    ),
    Case("matrix_exp", lambda lib, x: lib.linalg.matrix_exp(x), SQUARES, any_numbers),
    Case(
        "matrix_exp of larger numbers",
        lambda lib, x: lib.matrix_exp(x * 4),
        SQUARES,
        regular,
        single=False,
        tolerance=1e-8,
    ),
]
test_gradients_of_inverses = suite(INVERSES)


# -- factors ---------------------------------------------------------------------------------------


FACTORS = [
    Case("cholesky", lambda lib, x: lib.linalg.cholesky(_positive(x)), SQUARE, regular),
    Case(
        "upper cholesky",
        lambda lib, x: lib.linalg.cholesky(_positive(x), upper=True),
        SQUARES,
        regular,
    ),
    Case(
        "cholesky of a complex",
        lambda lib, x: lib.linalg.cholesky(x @ x.mH),
        SQUARES,
        regular_complex,
        twice=False,
    ),
    Case(
        "singular values of svd",
        lambda lib, x: lib.linalg.svd(x, full_matrices=False)[1],
        [((3, 2),)],
        any_numbers,
    ),
    Case(
        "squares of eigenvectors",
        lambda lib, x: lib.linalg.eigh(_symmetric(x))[1] ** 2,
        SQUARES,
        regular,
        tolerance=1e-7,
    ),
]
test_gradients_of_factors = suite(FACTORS)


def _signs_taken_out(q, r):
    """Q and R are unique up to signs: the products are unique."""
    return q @ q.mT, r * r, q[..., :1] * r[..., :1, :1]


QR = [
    Case(
        "qr",
        lambda lib, x: _signs_taken_out(*lib.linalg.qr(x)),
        [((3, 3),), ((4, 2),), ((2, 3, 2),)],
        any_numbers,
        tolerance=1e-8,
    ),
    Case(
        "wide qr",
        lambda lib, x: _signs_taken_out(*lib.linalg.qr(x)),
        [((2, 4),), ((2, 2, 3),)],
        any_numbers,
        tolerance=1e-8,
    ),
    Case(
        "r of qr",
        lambda lib, x: lib.linalg.qr(x)[1] ** 2,
        [((3, 3),), ((4, 2),), ((2, 4),)],
        any_numbers,
        tolerance=1e-8,
    ),
    Case(
        "q of qr",
        lambda lib, x: lib.linalg.qr(x)[0] ** 2,
        [((3, 3),), ((4, 2),), ((2, 4),)],
        any_numbers,
        tolerance=1e-8,
    ),
    Case(
        "complex qr",
        lambda lib, x: [part.abs() for part in lib.linalg.qr(x)],
        [((3, 3),), ((4, 2),)],
        imaginary,
        twice=False,
        tolerance=1e-8,
    ),
]
test_gradients_of_qr = suite(QR)


def _vectors(lib, u, s, vh):
    """What does not depend on the phases of singular vectors."""
    return (u.abs() ** 2 if u.is_complex() else u * u), s, (u * s[..., None, :]) @ vh


SVD = [
    Case(
        "svd",
        lambda lib, x: _vectors(lib, *lib.linalg.svd(x, full_matrices=False)),
        [((3, 3),), ((4, 2),), ((2, 4),), ((2, 3, 2),)],
        any_numbers,
        tolerance=1e-7,
    ),
    Case(
        "right vectors of svd",
        lambda lib, x: lib.linalg.svd(x, full_matrices=False)[2] ** 2,
        [((3, 3),), ((4, 2),), ((2, 4),)],
        any_numbers,
        tolerance=1e-7,
    ),
    Case(
        "left vectors of svd",
        lambda lib, x: lib.linalg.svd(x, full_matrices=False)[0] ** 2,
        [((3, 3),), ((4, 2),), ((2, 4),)],
        any_numbers,
        tolerance=1e-7,
    ),
    Case(
        "complex svd",
        lambda lib, x: _vectors(lib, *lib.linalg.svd(x, full_matrices=False)),
        [((3, 3),), ((4, 2),), ((2, 4),)],
        imaginary,
        twice=False,
        tolerance=1e-8,
        single=False,
    ),
]
test_gradients_of_svd = suite(SVD)


# -- norms -----------------------------------------------------------------------------------------

ORDERS = ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf]
NORMS = [
    *[
        Case(
            f"matrix_norm {p}",
            lambda lib, x, p=p: lib.linalg.matrix_norm(x, p),
            [((3, 2),), ((2, 3, 3),)],
            any_numbers,
            tolerance=1e-8,
        )
        for p in ORDERS
    ],
    *[
        Case(
            f"matrix_norm {p} of other dims",
            lambda lib, x, p=p: lib.linalg.matrix_norm(x, p, (0, 2), True),
            [((3, 2, 2),)],
            any_numbers,
            tolerance=1e-8,
        )
        for p in ORDERS
    ],
    *[
        Case(
            f"vector_norm {p}",
            lambda lib, x, p=p: lib.linalg.vector_norm(x, p, -1),
            [((3,),), ((2, 3),)],
            any_numbers,
            tolerance=1e-8,
        )
        for p in (1, 2, 3, 0.5, math.inf, -math.inf)
    ],
    Case(
        "norm of all",
        lambda lib, x: lib.linalg.norm(x),
        [((),), ((3,),), ((2, 3),), ((2, 3, 2),)],
        any_numbers,
    ),
    Case(
        "norm with an order for matrices",
        lambda lib, x: lib.linalg.norm(x, "nuc"),
        [((2, 3),)],
        any_numbers,
    ),
    Case(
        "norm with an order for vectors",
        lambda lib, x: lib.linalg.norm(x, 3, 1),
        [((2, 3),)],
        any_numbers,
    ),
]
test_gradients_of_norms = suite(NORMS)


# -- what has no gradient --------------------------------------------------------------------------


@pytest.mark.parametrize("rank", [0, 1, 2])
def test_the_determinant_of_a_singular_matrix_has_a_gradient(rank):
    rng = np.random.default_rng(rank)
    matrix = rng.standard_normal((3, rank)) @ rng.standard_normal((rank, 3))
    if rank == 0:
        matrix = np.zeros((3, 3))
    x = mt.tensor(matrix, requires_grad=True)
    mt.linalg.det(x).backward()
    cofactors = [
        [
            (-1) ** (i + j) * np.linalg.det(np.delete(np.delete(matrix, i, 0), j, 1))
            for j in range(3)
        ]
        for i in range(3)
    ]
    np.testing.assert_allclose(x.grad.numpy(), cofactors, atol=1e-12)


def test_qr_refuses_what_has_no_derivative():
    x = mt.tensor(np.random.default_rng(0).standard_normal((4, 2)), requires_grad=True)
    with pytest.raises(RuntimeError, match="mode='r'"):
        mt.linalg.qr(x, "r")[1].sum().backward()
    with pytest.raises(RuntimeError, match="not differentiable"):
        mt.linalg.qr(x, "complete")[0].sum().backward()


def test_singular_matrices_are_errors():
    for call in (mt.linalg.inv, mt.linalg.cholesky, lambda x: mt.linalg.solve(x, mt.ones(2))):
        with pytest.raises(mt.linalg.LinAlgError, match="linalg"):
            call(mt.zeros(2, 2))


def test_geqrf_has_no_derivative():
    for lib in (mt, torch):
        a, _ = lib.geqrf(lib.ones(3, 2, requires_grad=True))
        with pytest.raises(NotImplementedError, match="derivative for 'geqrf' is not implemented"):
            a.sum().backward()
