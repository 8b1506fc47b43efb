# SPDX-License-Identifier: BSD-3-Clause
"""addmm and its kin: the kinds of alpha and beta, dtypes and shapes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.same import same

SHAPES = {
    "addmm": ((2, 2), (2, 2), (2, 2)),
    "addmv": ((2,), (2, 2), (2,)),
    "addr": ((2, 2), (2,), (2,)),
    "addbmm": ((2, 2), (1, 2, 2), (1, 2, 2)),
    "baddbmm": ((1, 2, 2), (1, 2, 2), (1, 2, 2)),
}
FACTORS = (0.5, 1.0, 2, True, 1j, 300, 1e300, -(2**40), float("nan"), float("inf"))


def ones(lib, name, *dtypes):
    shapes = SHAPES[name]
    return [
        lib.from_numpy(np.ones(shape, dtype)) for shape, dtype in zip(shapes, dtypes, strict=True)
    ]


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("dtype", ["int64", "int8", "float32", "complex64"])
@pytest.mark.parametrize("which", ["alpha", "beta"])
def test_factors(name, dtype, which):
    for factor in FACTORS[:6] if dtype == "complex64" else FACTORS:
        for function in (name, name + "_"):
            same(
                lambda lib, f=function, v=factor: getattr(lib.Tensor, f)(
                    *ones(lib, name, dtype, dtype, dtype), **{which: v}
                )
            )


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize(
    "dtypes", [("float64", "float32"), ("int64", "float32"), ("float32", "int64")]
)
def test_dtypes_that_differ(name, dtypes):
    for function in (name, name + "_"):
        same(lambda lib, f=function: getattr(lib.Tensor, f)(*ones(lib, name, *dtypes, dtypes[1])))


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("which", ["alpha", "beta"])
def test_a_factor_of_0_takes_nan_away(name, which):
    def program(lib):
        start, first, second = ones(lib, name, *["float32"] * 3)
        (first if which == "alpha" else start).fill_(float("nan"))
        return getattr(lib, name)(start, first, second, **{which: 0})

    same(program)


@pytest.mark.parametrize("name", SHAPES)
def test_what_is_added_is_not_larger_than_the_product(name):
    def program(lib):
        start, *factors = ones(lib, name, *["float32"] * 3)
        return getattr(lib, name)(start.expand(3, 2, *start.shape), *factors)

    same(program)
