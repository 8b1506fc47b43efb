# SPDX-License-Identifier: BSD-3-Clause
"""Lines with one fault, and the type of the error: the same on torch."""

from __future__ import annotations

import math

import pytest

import modtree as mt

ERRORS = {
    "m.nn.functional.rms_norm(m.ones(1, 2).int(), (2,), m.ones(2))": NotImplementedError,
    "m.nn.functional.max_unpool2d(m.ones(2, 2), m.ones(2, 2).long(), 1, 1, 5)": ValueError,
    "m.nn.functional.max_unpool2d(m.ones(1, 2, 2), m.ones(1, 2, 2).long(), 1, 1, 5)": ValueError,
    # special functions
    "m.complex(m.tensor([1]), m.tensor([1]))": RuntimeError,
    "m.complex(m.ones(1), m.ones(1).double())": RuntimeError,
    "m.polar(m.tensor([1]), m.tensor([1]))": RuntimeError,
    "m.polar(m.ones(1), m.ones(1).double())": RuntimeError,
    # numbers that do not fit
    "m.tensor([2], dtype=m.int8) ** 300": RuntimeError,
    "m.tensor([2], dtype=m.uint8) ** -1": RuntimeError,
    "m.ones(1).half() ** 70000": RuntimeError,
    "m.ones(1, dtype=m.uint8).fill_(-0.5)": RuntimeError,
    "m.ones(1, dtype=m.uint8).masked_fill(m.tensor([True]), m.tensor(-0.5))": RuntimeError,
    "m.ones(1).masked_fill(m.tensor([True]), m.tensor(1e300, dtype=m.float64))": RuntimeError,
    "m.tensor([1]).index_fill(0, m.tensor([0]), m.tensor(math.nan))": RuntimeError,
    "m.tensor([True]).index_fill(0, m.tensor([0]), 1j)": RuntimeError,
    "m.linspace(0, 300, 3, dtype=m.uint8)": RuntimeError,
    "m.linspace(0, 1j, 3, dtype=m.float32)": RuntimeError,
    # dtypes
    "m.clamp(m.tensor([True]), True)": NotImplementedError,
    "m.tensor([1]).lerp_(m.tensor([1]), 0.5)": NotImplementedError,
    "m.linspace(0, 1, 2, dtype=m.bool)": NotImplementedError,
    "m.arange(3, dtype=m.bool)": NotImplementedError,
    "m.tensor([1j]).scatter_reduce(0, m.tensor([0]), m.tensor([1j]), 'amax')": NotImplementedError,
    "m.tensor([True]).scatter_reduce(0, m.tensor([0]), m.tensor([True]), 'mean')": (
        NotImplementedError
    ),
    "m.ones(1).scatter(0, m.tensor([0]), m.tensor([True]), reduce='multiply')": RuntimeError,
    # dimensions and shapes
    "m.mean(m.zeros(0), 5)": IndexError,
    "m.squeeze(m.ones(1, 2), (0, 0))": RuntimeError,
    "m.unflatten(m.tensor(1), 0, [1])": RuntimeError,
    "m.unflatten(m.ones(0, 2), 1, (3, 3))": RuntimeError,
    "m.unflatten(m.ones(2), 0, (-1, -1))": RuntimeError,
    "m.broadcast_shapes(3, (-1, 0))": RuntimeError,
    "m.broadcast_shapes((-1, 3), (-1,))": ValueError,
    "m.cat((m.ones(1), m.ones(1, 1)), -2)": IndexError,
    "m.stack((m.ones(()), m.ones(3, 1)), -2)": IndexError,
    "m.sort((m.ones(1),))": TypeError,
    # indices
    "m.ones(2)[m.tensor([0], dtype=m.int8)]": IndexError,
    "m.ones(2).__setitem__(m.tensor([0], dtype=m.int16), 1)": IndexError,
    "m.ones(2).__setitem__(m.tensor([0]), m.tensor([1]))": RuntimeError,
    "m.ones(2).__setitem__([0, 1], m.tensor([1, 2]))": RuntimeError,
    "m.ones(2).__setitem__(m.tensor([True, True]), m.tensor([1, 2]))": RuntimeError,
    "m.tensor([1]).__setitem__(m.tensor([True]), m.tensor(1j))": RuntimeError,
    "m.ones(2, 2).__setitem__(m.ones(2, 2) > 0, m.ones(2, 2))": RuntimeError,
    "m.tensor(1.0).__setitem__((), m.ones(2))": RuntimeError,
    "m.ones(3).index_copy(0, m.tensor([0, 1]), m.ones(1))": IndexError,
    "m.ones(3).index_copy(0, m.tensor(0), m.ones(3))": IndexError,
    "m.ones(3, 2).index_copy(0, m.tensor([0]), m.ones(()))": RuntimeError,
    "m.ones(3, 2).index_copy(0, m.tensor([0]), m.ones(1, 3))": RuntimeError,
    "m.ones(1).index_add(0, m.tensor([0]), m.ones(()))": RuntimeError,
    "m.index_select(m.tensor(1.0), 0, m.tensor([0, 0]))": RuntimeError,
    "m.ones(2).index_put((m.tensor(1),), m.ones(0, 3))": RuntimeError,
    "m.ones(1, 1).index_put((m.tensor([[True]]),), m.ones(1, 1), True)": RuntimeError,
    "m.scatter_reduce(m.ones(3), 0, m.tensor([0, 1, 1]), m.ones(1), 'prod')": RuntimeError,
}


@pytest.mark.parametrize("line", ERRORS)
def test_what_is_refused(lib, line):
    with pytest.raises(ERRORS[line]) as caught:
        eval(line, {"m": lib, "math": math})
    assert isinstance(caught.value, ERRORS[line])


def test_dimensions_of_nothing_are_looked_at():
    with pytest.raises(IndexError):
        mt.roll(mt.zeros(0), 1, 5)
