# SPDX-License-Identifier: BSD-3-Clause
"""Linear algebra at its borders: the triangle that is read, zeros on a diagonal,
NaN, nothing, scalars with a dim, complex gradients, dtypes that are refused.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.same import differentiated, same

import modtree as mt

pytest.importorskip("torch")

FULL = np.array([[2.0, 9, -3], [0.5, 1.25, 7], [0.25, -1, 3]])
COMPLEX = FULL + 1j * np.array([[0, 1, 2], [-1, 0, 0.5], [3, 1, 0]])
HERMITIAN = COMPLEX @ COMPLEX.conj().T + np.eye(3)


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("a", [HERMITIAN, HERMITIAN.real.copy()])
@pytest.mark.parametrize("spoiled", [None, (0, 2), (2, 0), (1, 1)])
def test_cholesky(a, spoiled, upper):
    if spoiled is not None:
        a = a.copy()
        a[spoiled] = np.nan
    same(differentiated(lambda lib, x: lib.linalg.cholesky(x, upper=upper), a))


@pytest.mark.parametrize("uplo", ["L", "U"])
def test_gradients_of_eigenvectors_are_hermitian(uplo):
    def program(lib, x):
        values, vectors = lib.linalg.eigh(x, uplo)
        return (vectors * values.exp()) @ vectors.mH

    same(differentiated(program, HERMITIAN.real.copy()))


@pytest.mark.parametrize("matrix", [[[0.0]], [[1.0, 2], [2, 4]], [[0.0, 1], [0, 0]]])
def test_the_logarithm_of_a_determinant_of_0_has_a_gradient(matrix):
    x = mt.tensor(matrix, dtype=mt.float64, requires_grad=True)
    y = mt.slogdet(x)[1]
    y.backward()
    assert y.item() == -math.inf
    assert not np.isfinite(x.grad.numpy()).all()


def test_the_determinant_of_a_singular_matrix_has_its_cofactors_as_gradient():
    x = mt.tensor([[2.0, 1], [0, 0]], dtype=mt.float64, requires_grad=True)
    mt.linalg.det(x).backward()
    np.testing.assert_allclose(x.grad, [[0, 0], [-1, 2]], atol=1e-12)


@pytest.mark.parametrize("keepdim", [False, True])
@pytest.mark.parametrize("dim", [0, (0, 1), -1])
def test_complex_gradient_of_logsumexp(dim, keepdim):
    same(differentiated(lambda lib, x: lib.logsumexp(x, dim, keepdim), COMPLEX))


@pytest.mark.parametrize("shape", [(3,), (2, 3)])
def test_complex_gradient_of_linear(shape):
    w = COMPLEX[: len(shape)][0 if len(shape) == 1 else slice(None)].copy()
    same(differentiated(lambda lib, *x: lib.nn.functional.linear(*x), COMPLEX, w))


SIZES = [(0, 2), (2, 0), (0, 0), (3, 0, 2), (3, 2, 0)]


@pytest.mark.parametrize("ord", ["fro", "nuc", 1, -1, 2, -2, math.inf, -math.inf])
@pytest.mark.parametrize("size", SIZES)
def test_norms_of_no_elements(size, ord):
    same(lambda lib: lib.linalg.matrix_norm(lib.zeros(size), ord))


@pytest.mark.parametrize("dim", [None, -1, 0])
@pytest.mark.parametrize("ord", [0, 1, -1, 2, 2.5, math.inf, -math.inf])
@pytest.mark.parametrize("size", SIZES)
def test_norms_of_no_vectors(size, ord, dim):
    same(lambda lib: lib.linalg.vector_norm(lib.zeros(size), ord, dim))


@pytest.mark.parametrize(
    "program",
    [
        lambda lib: lib.linalg.norm(lib.ones(2, 3), 1, ()),
        lambda lib: lib.linalg.norm(lib.ones(2, 3), None, ()),
        lambda lib: lib.linalg.matrix_norm(lib.ones(2, 3), dim=(1,)),
        lambda lib: lib.linalg.matrix_norm(lib.ones(2, 3, dtype=lib.int64), 1),
        lambda lib: lib.linalg.cholesky(lib.eye(2, dtype=lib.float16)),
        lambda lib: lib.linalg.eigh(lib.eye(2, dtype=lib.int64)),
        lambda lib: lib.linalg.solve(lib.eye(2).expand(3, 2, 2), lib.ones(2), left=False),
        lambda lib: lib.cross(lib.ones(3, dtype=lib.bool), lib.ones(3, dtype=lib.bool)),
        lambda lib: lib.nn.functional.linear(*(lib.ones(1, 1, dtype=lib.bool),) * 2),
        lambda lib: lib.broadcast_tensors(lib.ones(2), lib.ones(3)),
    ],
)
def test_one_line(program):
    same(program)


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize(
    ("x", "y"),
    [
        ((0, 2), (4, 2)),
        ((3, 2), (0, 2)),
        ((0, 3, 2), (0, 4, 2)),
        ((3, 0), (4, 0)),
        ((2, 0, 2), (1, 3, 2)),
    ],
)
def test_distances_of_no_points(x, y, p):
    same(differentiated(lambda lib, *points: lib.cdist(*points, p=p), np.ones(x), np.ones(y)))


def test_the_phase_of_a_complex_logsumexp_is_the_principal_one():
    x = np.array([[0.656 + 4.656j, -1.471 + 0.871j], [0.1 - 1j, 3 + 9j]])
    same(differentiated(lambda lib, x: lib.logsumexp(x, 1), x))


@pytest.mark.parametrize("p", [300, -300, 1e300, 3, 2, 0])
def test_the_norm_of_one_number_does_not_overflow(p):
    x = np.array([[3.5], [-1]], np.float32)
    same(lambda lib: lib.linalg.vector_norm(lib.from_numpy(x), p, dim=1))
    if abs(p) <= 3:
        same(differentiated(lambda lib, x: lib.linalg.vector_norm(x, p, dim=1), x))


def test_householder_product_of_nothing_has_a_gradient():
    a = mt.zeros(2, 0, requires_grad=True)
    mt.linalg.householder_product(a, mt.zeros(0)).sum().backward()
    assert a.grad.shape == (2, 0)


def test_the_exponential_of_float16_is_finite():
    x = FULL.astype("float16") / 4
    expected = mt.linalg.matrix_exp(mt.from_numpy(x.astype("float32")))
    assert np.allclose(mt.linalg.matrix_exp(mt.from_numpy(x)), expected, rtol=1e-2)


@pytest.mark.parametrize(
    "line",
    [
        "m.norm(i, dtype=m.float64)",
        "m.norm(x, dtype=m.float32)",
        "m.norm(x, dtype=m.complex128)",
        "m.norm(c, dtype=m.float64)",
        "m.linalg.vector_norm(x.float(), dtype=m.float64)",
        "m.linalg.vector_norm(x, 1j)",
        "m.linalg.matrix_norm(x, 1, 0)",
        "m.linalg.matrix_norm(x, 0.5, (5, 6))",
        "m.linalg.matrix_norm(x.half(), 'nuc', dtype=m.float64)",
        "m.linalg.matrix_norm(i, dtype=m.float64)",
        "m.linalg.matrix_norm(x, dtype=m.float32)",
        "m.linalg.matrix_norm(m.ones(1, 0, requires_grad=True), 2).requires_grad",
        "m.linalg.matrix_norm(m.ones(0, 0, requires_grad=True), 1).requires_grad",
        "m.linalg.pinv(x, m.tensor([0.1]))",
        "m.linalg.pinv(x, m.tensor([[0.1], [0.9]]))",
        "m.linalg.pinv(x, m.tensor([0.1], requires_grad=True))",
        "m.linalg.pinv(x, m.tensor([1j]))",
        "m.linalg.pinv(m.stack([x, x]), m.ones(3))",
        "m.linalg.pinv(x[0])",
        "m.linalg.pinv(x[0], atol=0.5)",
        "m.linalg.pinv(m.ones(2, 0, 3), m.ones(7))",
        "m.linalg.solve(x, x[0, 0])",
        "m.linalg.solve(x[0], x, left=False)",
        "m.linalg.svd(x, driver='gesvd')",
    ],
)
def test_arguments_and_what_is_refused(line):
    arrays = {"x": FULL, "c": COMPLEX, "i": np.ones((3, 3), "int64")}
    same(lambda lib: eval(line, {"m": lib, **{k: lib.from_numpy(v) for k, v in arrays.items()}}))


@pytest.mark.parametrize("name", ["eigh", "svd"])
def test_a_loss_that_depends_on_phases_is_refused(name):
    def program(lib, x):
        vectors = getattr(lib.linalg, name)(x)[1 if name != "svd" else 0]
        return (vectors * lib.from_numpy(COMPLEX)).sum().abs()

    same(differentiated(program, HERMITIAN))


def test_the_gradient_of_qr_with_a_zero_on_the_diagonal_is_not_refused(lib):
    a = lib.tensor([[0.0, -1.5, 0.5]], dtype=lib.float64, requires_grad=True)
    (lib.linalg.qr(a)[1] ** 2).sum().backward()
    assert math.isnan(a.grad[0, 0])
    assert [round(abs(v), 6) for v in a.grad[0, 1:].tolist()] == [3.0, 1.0]
