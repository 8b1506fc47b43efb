# SPDX-License-Identifier: BSD-3-Clause
"""Lines with one fault, and the type of the error: the same on torch."""

from __future__ import annotations

import math

import pytest

ERRORS = {
    # special functions
    "m.complex(m.tensor([1]), m.tensor([1]))": RuntimeError,
    "m.complex(m.ones(1), m.ones(1).double())": RuntimeError,
    "m.polar(m.tensor([1]), m.tensor([1]))": RuntimeError,
    "m.polar(m.ones(1), m.ones(1).double())": RuntimeError,
    "m.mvlgamma(m.ones(1), 0)": RuntimeError,
    "m.mvlgamma(m.tensor([True]), 1)": RuntimeError,
    "m.polygamma(0, m.tensor([1j]))": NotImplementedError,
    "m.polygamma(2, m.tensor([1j]))": NotImplementedError,
    "m.igamma(m.tensor([1]), m.tensor([1]))": NotImplementedError,
}


@pytest.mark.parametrize("line", ERRORS)
def test_what_is_refused(lib, line):
    with pytest.raises(ERRORS[line]) as caught:
        eval(line, {"m": lib, "math": math})
    assert isinstance(caught.value, ERRORS[line])
