# SPDX-License-Identifier: BSD-3-Clause
"""The native product of matrices, against NumPy's in double precision."""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt
from modtree._C import kernels
from modtree.numpy.ops.matrix_product import matmul

native = pytest.mark.skipif(
    not kernels.has_wide_products(), reason="NumPy multiplies on this machine"
)


def contiguous(x):
    return np.ascontiguousarray(x)


def transposed(x):
    return np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2)


def apart(x):
    return np.repeat(np.repeat(x, 2, axis=-1), 3, axis=-2)[..., ::3, ::2]


def backwards(x):
    return np.ascontiguousarray(x[..., ::-1, ::-1])[..., ::-1, ::-1]


def fortran(x):
    return np.asfortranarray(x)


LAYOUTS = (contiguous, transposed, apart, backwards, fortran)


def check(a, b, dtype, **options):
    got = kernels.matmul(a, b, **options)
    expected = np.matmul(a.astype(np.float64), b.astype(np.float64))
    if options.get("bias") is not None:
        expected = expected + options["bias"]
    assert got.dtype == dtype and got.shape == expected.shape
    depth = a.shape[-1]
    tolerance = (3e-6 if dtype == np.float32 else 1e-14) * (2.0 + depth**0.5)
    np.testing.assert_allclose(got, expected, rtol=0, atol=tolerance)
    return got


@native
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", [(5, 7, 11), (40, 33, 50), (3, 40, 70), (70, 900, 20)], ids=str)
def test_layouts(shape, dtype):
    random = np.random.default_rng(0)
    rows, depth, columns = shape
    a = random.standard_normal((rows, depth)).astype(dtype)
    b = random.standard_normal((depth, columns)).astype(dtype)
    bias = random.standard_normal(columns).astype(dtype)
    for lay_a in LAYOUTS:
        for lay_b in LAYOUTS:
            check(lay_a(a), lay_b(b), dtype)
            check(lay_a(a), lay_b(b), dtype, bias=bias)


@native
def test_random_shapes():
    random = np.random.default_rng(1)
    for _ in range(600):
        dtype = random.choice([np.float32, np.float64])
        rows, depth, columns = (int(random.integers(0, random.choice([6, 60]))) for _ in range(3))
        lead = tuple(random.integers(1, 4, size=random.integers(0, 3)))
        lead_a = tuple(1 if random.random() < 0.3 else n for n in lead)
        lead_b = lead[random.integers(0, len(lead) + 1) :]
        a = random.choice(LAYOUTS)(random.standard_normal((*lead_a, rows, depth)).astype(dtype))
        b = random.choice(LAYOUTS)(random.standard_normal((*lead_b, depth, columns)).astype(dtype))
        if kernels.matmul(a, b) is None:
            # One row or column, or many tiny products.
            assert min(rows, columns) <= 1 or (lead and rows * depth * columns < 1 << 10)
        else:
            check(a, b, dtype)
        assert np.allclose(matmul(a, b), np.matmul(a, b), atol=1e-4)


@native
def test_into_an_array():
    random = np.random.default_rng(2)
    a, b = random.standard_normal((2, 3, 20, 30)), random.standard_normal((2, 3, 30, 10))
    whole = np.full((2, 20, 3, 10), np.nan)
    out = whole.transpose(0, 2, 1, 3)
    assert check(a, b, np.float64, out=out) is out
    assert not np.isnan(whole).any()


@native
def test_what_numpy_does():
    random = np.random.default_rng(3)
    a, b = (random.standard_normal(s).astype(np.float32) for s in ((20, 30), (30, 40)))
    square = random.standard_normal((30, 30)).astype(np.float32)
    for first, second in (
        (a, b.astype(np.float64)),
        (a.astype(np.complex64), b.astype(np.complex64)),
        (a.astype(">f4"), b.astype(">f4")),
        (a, b[:, 0]),
        (a[0], b),
        (a[:1], b),
        (np.ones((5000, 3), np.float32), np.ones((3, 4), np.float32)),
        (a.astype(int), b.astype(int)),
        (a.astype([("x", "f4"), ("y", "u1")])["x"], b),
    ):
        assert kernels.matmul(first, second) is None
        np.testing.assert_allclose(matmul(first, second), first @ second, rtol=1e-4, atol=1e-4)
    assert kernels.matmul(a, a) is None and kernels.matmul(a, mt.from_numpy(b)) is None
    locked = np.empty((20, 40), np.float32)
    locked.flags.writeable = False
    for out in (locked, np.empty((40, 20), np.float32).T, np.empty((20, 40)), np.empty((20, 41))):
        assert kernels.matmul(a, b, out=out) is None
    # The result overlaps what is read.
    expected = square @ square
    assert kernels.matmul(square, square, out=square) is None
    np.testing.assert_allclose(matmul(square, square, square), expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(ValueError, match="bias must have shape"):
        kernels.matmul(a, b, np.ones(39, np.float32))
    with pytest.raises(TypeError, match="bias must be of float32"):
        kernels.matmul(a, b, np.ones(40))


@native
def test_values_that_are_no_numbers():
    a, b = np.ones((9, 20), np.float32), np.ones((20, 50), np.float32)
    a[3, 4], b[7, 30] = np.nan, np.inf
    got = kernels.matmul(a, b)
    expected = np.full((9, 50), 20.0)
    expected[:, 30] = np.inf
    expected[3] = np.nan
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("batch", [1, 2, 5, 8, 9, 40])
def test_linear(lib, batch):
    random = np.random.default_rng(batch)
    x = lib.from_numpy(random.standard_normal((batch, 70))).requires_grad_()
    layer = lib.nn.Linear(70, 33).double()
    y = layer(x)
    y.square().sum().backward()
    weight, bias = (p.detach().numpy() for p in (layer.weight, layer.bias))
    rows = x.detach().numpy()
    expected = rows @ weight.T + bias
    np.testing.assert_allclose(y.detach().numpy(), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(x.grad.numpy(), 2 * expected @ weight, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(
        layer.weight.grad.numpy(), 2 * expected.T @ rows, rtol=1e-12, atol=1e-12
    )


def test_products_with_vectors(lib):
    random = np.random.default_rng(4)
    for shape in ((5, 7), (60, 90), (3, 4, 7), (2, 0), (0, 3), (2, 3, 0), (1, 1)):
        m, v = random.standard_normal(shape), random.standard_normal(2 * shape[-1])[::2]
        u = random.standard_normal(shape[-2])
        pairs = [(m, v)]
        if m.ndim == 2:
            pairs += [(u, m), (v, m.T), (u, transposed(m)), (m.T, u)]
        for a, b in pairs:
            x, y = (lib.from_numpy(p.copy()).requires_grad_() for p in (a, b))
            product = x @ y
            expected = a @ b
            assert tuple(product.shape) == expected.shape
            np.testing.assert_allclose(product.detach().numpy(), expected, atol=1e-12)
            product.sum().backward()
            ones = np.ones_like(expected)
            if b.ndim == 1:
                grads = ones[..., None] * b, np.tensordot(ones, a, ones.ndim)
            else:
                grads = b @ ones, np.multiply.outer(a, ones)
            for leaf, grad in zip((x, y), grads, strict=True):
                np.testing.assert_allclose(leaf.grad.numpy(), grad, atol=1e-12)
