# SPDX-License-Identifier: BSD-3-Clause
"""Sizes whose product has no room in 64 bits: torch's RuntimeError."""

from __future__ import annotations

import importlib

import pytest
from helpers.implementations import params

_SIZE = 1 << 40

_MAKE = {
    "empty": lambda lib: lib.empty(_SIZE, _SIZE),
    "zeros": lambda lib: lib.zeros(_SIZE, _SIZE),
    "ones": lambda lib: lib.ones((_SIZE, _SIZE)),
    "full": lambda lib: lib.full((_SIZE, _SIZE), 1.0),
    "rand": lambda lib: lib.rand(_SIZE, _SIZE),
    "meta": lambda lib: lib.empty(_SIZE, _SIZE, device="meta"),
    "meta-bytes": lambda lib: lib.empty(1 << 31, 1 << 30, device="meta"),
    "no-elements": lambda lib: lib.empty(0, _SIZE, _SIZE),
    "expand": lambda lib: lib.ones(1).expand(_SIZE, _SIZE),
    "expand-meta": lambda lib: lib.ones(1, device="meta").expand(_SIZE, _SIZE),
    "expand-no-elements": lambda lib: lib.ones(0).expand(_SIZE, _SIZE, 0),
    "broadcast": lambda lib: lib.broadcast_to(lib.ones(1), (_SIZE, _SIZE)),
    "meta-sum": lambda lib: lib.empty(_SIZE, 1, device="meta") + lib.empty(1, _SIZE, device="meta"),
    "meta-product": lambda lib: (
        lib.empty(_SIZE, 1, device="meta") @ lib.empty(1, _SIZE, device="meta")
    ),
    "sum": lambda lib: lib.ones(1, 1).expand(_SIZE, 1) + lib.ones(1, 1).expand(1, _SIZE),
    "as_strided": lambda lib: lib.ones(1).as_strided((_SIZE, _SIZE), (0, 0)),
    "strides": lambda lib: lib.ones(4).as_strided((2, 2), (1 << 62, 1 << 62)),
    "offset": lambda lib: lib.ones(4).as_strided((2, 2), (1, 1), (1 << 63) - 1),
    "empty_strided": lambda lib: lib.empty_strided((2, 2), (1 << 62, 1 << 62)),
    "arange": lambda lib: lib.arange(1e19),
    "arange-integers": lambda lib: lib.arange(1 << 62),
    "linspace": lambda lib: lib.linspace(0, 1, 1 << 62),
    "eye": lambda lib: lib.eye(_SIZE, _SIZE),
    "randperm": lambda lib: lib.randperm(1 << 62),
    "new_empty": lambda lib: lib.ones(1).new_empty(_SIZE, _SIZE),
    "resize": lambda lib: lib.ones(1).resize_(_SIZE, _SIZE),
    "repeat_interleave": lambda lib: lib.ones(4).repeat_interleave(1 << 62),
    "one_hot": lambda lib: lib.nn.functional.one_hot(lib.tensor([0]), 1 << 62),
    "linear": lambda lib: lib.nn.Linear(_SIZE, _SIZE),
    "linear-meta": lambda lib: lib.nn.Linear(_SIZE, _SIZE, device="meta"),
}


@pytest.mark.parametrize("name", params("modtree", "torch"))
@pytest.mark.parametrize("make", _MAKE)
def test_sizes_that_overflow_are_a_runtime_error(name, make):
    with pytest.raises(RuntimeError):
        _MAKE[make](importlib.import_module(name))


@pytest.mark.parametrize("counts", [[1 << 62] * 4, [1, 1, 1, 1 << 61]])
def test_counts_of_repetitions_whose_sum_overflows(counts):
    mt = importlib.import_module("modtree")
    with pytest.raises(RuntimeError, match="Storage size calculation overflowed"):
        mt.ones(4).repeat_interleave(mt.tensor(counts))


def test_repetitions_that_fit():
    mt = importlib.import_module("modtree")
    t = mt.arange(3)
    assert t.repeat_interleave(2).tolist() == [0, 0, 1, 1, 2, 2]
    assert t.repeat_interleave(mt.tensor([0, 2, 1])).tolist() == [1, 1, 2]
    assert mt.ones(2, 3).repeat_interleave(2, 1).shape == (2, 6)
    assert mt.ones(0).repeat_interleave(1 << 62).shape == (0,)
