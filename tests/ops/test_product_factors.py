# SPDX-License-Identifier: BSD-3-Clause
"""addmm and its kin: the kinds of alpha and beta, dtypes and shapes that do not fit."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.same import differentiated, same

pytest.importorskip("torch")

SHAPES = {
    "addmm": ((2, 2), (2, 2), (2, 2)),
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


@pytest.mark.parametrize(
    "equation", ["ij->i", "ii", "ij,jk->ik", "ij,kl->il", "ij,j->", "i...->...", "ij->ij"]
)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "bool", "int64"])
def test_sums_of_integers_in_einsum_are_int64(equation, dtype):
    terms = equation.partition("->")[0].split(",")
    shapes = [(2,) * len(term.replace("...", "x")) for term in terms]
    same(lambda lib: lib.einsum(equation, *[lib.from_numpy(np.ones(s, dtype)) for s in shapes]))


@pytest.mark.parametrize("equation", ["i,j->ij", ",j->", "i,i->i", "i,i->", "ij,jk->ik"])
def test_einsum_of_several_dtypes(equation):
    ranks = [len(term) for term in equation.partition("->")[0].split(",")]
    arrays = [np.ones((2,) * n, d) for n, d in zip(ranks, ("float32", "float64"), strict=True)]
    same(lambda lib: lib.einsum(equation, *map(lib.from_numpy, arrays)))
    if equation == "i,j->ij":
        same(differentiated(lambda lib, *x: lib.einsum(equation, *x), *arrays))


def test_what_einsum_refuses():
    same(lambda lib: lib.einsum("ij,jk->ik", []))
    same(lambda lib: lib.einsum("ii", lib.ones(2, 1)))


@pytest.mark.parametrize(
    "line",
    [
        "m.tensordot(b, b)",
        "m.tensordot(b, b, 0)",
        "m.mv(s, s)",
        "m.matmul(x, 1)",
        "x @ 1",
        "2.0 @ x",
        "m.addmm(h, h, h, beta=2**40)",
        "m.baddbmm(h[None], h[None], h[None], alpha=-(2**31) - 1)",
        "m.nn.functional.bilinear(x, x, x)",
        "m.nn.functional.bilinear(x, x, s)",
        "m.nn.functional.bilinear(x, x, x[None], s.reshape(1).double())",
        "m.nn.functional.bilinear(x, x[0], x[None])",
        "m.nn.functional.bilinear(x, x, x[None].double())",
    ],
)
def test_dtypes_and_shapes_of_products(line):
    names = {
        "x": np.ones((2, 2), "float32"),
        "h": np.full((2, 2), 1.5, "float16"),
        "b": np.ones((2, 2), "bool"),
        "s": np.float32(2.0).reshape(()),
    }
    same(
        lambda lib: eval(line, {"m": lib, **{k: lib.from_numpy(v) for k, v in names.items()}}),
    )
