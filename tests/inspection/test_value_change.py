# SPDX-License-Identifier: BSD-3-Clause
"""By how much two arrays differ."""

from __future__ import annotations

import itertools
import math
import sys
import tracemalloc

import numpy as np
import pytest

from modtree.inspection.comparison.value_change import value_change

home = sys.modules[value_change.__module__]  # the package has the function under its name

NAN, INF = math.nan, math.inf
DTYPES = ["float16", "float32", "float64", "int8", "uint8", "int64", "uint64", "bool", "complex64"]


def numbers(dtype, size, seed):
    random = np.random.default_rng(seed)
    if dtype == "bool":
        return random.integers(0, 2, size).astype(bool)
    if dtype == "complex64":
        return (random.normal(size=size) + 1j * random.normal(size=size)).astype(dtype)
    return random.integers(0, 5, size).astype(dtype) / np.asarray(4).astype(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("rtol", "atol"), [(0.0, 0.0), (0.5, 0.0), (0.0, 0.3), (0.1, 0.25)])
def test_the_rule_of_allclose(dtype, rtol, atol):
    a, b = numbers(dtype, 200, 1).astype(dtype), numbers(dtype, 200, 2).astype(dtype)
    wide = complex if dtype == "complex64" else float
    x, y = a.astype(wide), b.astype(wide)
    expected = int((~np.isclose(x, y, rtol, atol)).sum())
    found = value_change(a, b, rtol, atol)
    assert expected and found.different == expected and found.elements == 200
    assert found.max_abs == np.abs(x - y).max()
    measured = (y != 0) & (x != y)
    assert found.max_rel == (np.abs(x - y)[measured] / np.abs(y[measured])).max()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (0,), (3, 0), (4, 5)])
def test_the_same(dtype, shape):
    a = np.ones(shape, dtype)
    assert value_change(a, a.copy()) is None
    assert value_change(a, a.copy(order="F")) is None


def test_nan_and_infinities():
    special = np.array([NAN, INF, -INF, 1.0])
    assert value_change(special, special.copy()) is None
    assert value_change(special, special.astype(np.float32)) is None
    for x, y in itertools.permutations(special, 2):
        found = value_change(np.array([x]), np.array([y]), rtol=10.0, atol=1e300)
        assert (found.different, found.max_abs) == (1, INF)


def test_signed_zeros_are_the_same_and_nan_has_many_bits():
    assert value_change(np.array([0.0]), np.array([-0.0])) is None
    other_nan = np.array([0x7FF8000000000001], np.uint64).view(float)
    assert value_change(np.array([NAN]), other_nan) is None


def test_relative_to_zeros():
    assert value_change(np.array([1.0]), np.array([0.0])).max_rel == INF
    assert value_change(np.array([1.0, 3.0]), np.array([0.0, 2.0])).max_rel == 0.5


@pytest.mark.parametrize("dtype", ["int8", "int64", "uint64"])
def test_integers_whose_difference_overflows(dtype):
    limits = np.iinfo(dtype)
    a, b = np.array([limits.min, 5], dtype), np.array([limits.max, 5], dtype)
    assert value_change(a, b).max_abs == float(int(limits.max) - int(limits.min))
    near = np.array([limits.max - 1], dtype), np.array([limits.max], dtype)
    assert value_change(*near).max_abs == 1.0


def test_dtypes_may_differ():
    assert value_change(np.array([1, 2]), np.array([1.0, 2.0])) is None
    assert value_change(np.array([1, 2]), np.array([1.0, 2.5])).max_abs == 0.5
    assert value_change(np.array([True]), np.array([1.0], np.float16)) is None
    assert value_change(np.array([1.0]), np.array([1.0 + 1j])).max_abs == 1.0


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "float8_e5m2"])
def test_the_dtypes_of_ml_dtypes(dtype, ml_dtypes):
    a = np.array([1.0, 2.0, NAN, 0.5]).astype(getattr(ml_dtypes, dtype))
    b = a.copy()
    assert value_change(a, b) is None and value_change(a, b.astype(np.float32)) is None
    b[1] = 4.0
    found = value_change(a, b)
    assert (found.different, found.max_abs, found.max_rel) == (1, 2.0, 0.5)


def test_what_is_not_contiguous():
    a = np.arange(24.0).reshape(4, 6)
    b = a.T.copy()
    assert value_change(a, b.T) is None
    b[2, 3] += 1
    assert value_change(a[::2, ::-1], b.T[::2, ::-1]) is None
    assert value_change(a[1::2], b.T[1::2]).different == 1


def test_piece_by_piece(monkeypatch):
    a = np.arange(100.0)
    b = a.copy()
    b[[0, 10, 39, 99]] += [1, 2, 3, 4]
    whole = value_change(a, b)
    monkeypatch.setattr(home, "_PIECE", 10)
    assert value_change(a, b) == whole and whole.different == 4


def test_memory_does_not_grow_with_the_arrays():
    a = np.zeros(16 << 20, np.float32)
    b = np.ones(16 << 20, np.float32)
    tracemalloc.start()
    try:
        assert value_change(a, b).different == a.size
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < a.nbytes
