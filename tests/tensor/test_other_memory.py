# SPDX-License-Identifier: BSD-3-Clause
"""Tensors over other memory, and the ways to name the dimensions of flip()."""

from __future__ import annotations

import array

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")


def test_other_memory():
    for lib in (mt, torch):
        numbers = array.array("d", [1.0, 2.0, 3.0])
        t = lib.frombuffer(numbers, dtype=lib.float64, count=2, offset=8)
        t[0] = 5
        assert numbers[1] == 5 and t.tolist() == [5.0, 3.0]
        values = np.arange(3.0)
        lib.from_dlpack(values)[1] = 7
        assert values.tolist() == [0.0, 7.0, 2.0]
    assert mt.from_dlpack(torch.ones(2)).tolist() == [1.0, 1.0]


def test_flip_takes_its_dimensions_in_four_ways():
    results = []
    for lib in (mt, torch):
        x = lib.from_numpy(np.array([0.5, -1.0, 2.0, 0.0])).requires_grad_()
        values = (lib.flip(x, dims=(0,)), x.flip(0), lib.flip(x, [0]), x.flip(dims=[0]))
        sum((v * v).sum() for v in values).backward()
        results.append([*(v.detach().tolist() for v in values), x.grad.tolist()])
    assert results[0] == results[1]
