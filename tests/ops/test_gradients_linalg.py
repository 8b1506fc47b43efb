# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of matrix products and einsum, against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gradients import Case, check, imaginary, suite

import modtree as mt

torch = pytest.importorskip("torch")

PRODUCTS = [
    ((3,), (3,)),
    ((2, 3), (3,)),
    ((3,), (3, 2)),
    ((2, 3), (3, 4)),
    ((5, 2, 3), (3, 4)),
    ((5, 2, 3), (3,)),
    ((3,), (5, 3, 2)),
    ((2, 3), (5, 3, 4)),
    ((5, 2, 3), (5, 3, 4)),
    ((5, 1, 2, 3), (6, 3, 4)),
    ((1, 2, 3), (5, 3, 4)),
    ((2, 5, 2, 3), (3, 4)),
    ((2, 0), (0, 4)),
    ((2, 3, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((0, 2, 3), (3, 4)),
    ((0,), (0,)),
]
MATRICES = [
    Case("matmul", lambda lib, a, b: lib.matmul(a, b), PRODUCTS, mixed=False),
    Case("@", lambda lib, a, b: a @ b, PRODUCTS[3:6], mixed=False),
    Case(
        "complex matmul", lambda lib, a, b: a @ b, PRODUCTS[:9], imaginary, mixed=False, twice=False
    ),
    Case("mm", lambda lib, a, b: a.mm(b), [((2, 3), (3, 4))], mixed=False),
    Case(
        "bmm",
        lambda lib, a, b: lib.bmm(a, b),
        [((5, 2, 3), (5, 3, 4)), ((0, 2, 3), (0, 3, 4))],
        mixed=False,
    ),
    Case("mv", lambda lib, a, b: a.mv(b), [((2, 3), (3,)), ((0, 3), (3,))], mixed=False),
    Case("dot", lambda lib, a, b: a.dot(b), [((3,), (3,)), ((0,), (0,))], mixed=False),
    Case(
        "complex dot",
        lambda lib, a, b: lib.dot(a, b),
        [((3,), (3,))],
        imaginary,
        mixed=False,
        twice=False,
    ),
    Case(
        "vdot",
        lambda lib, a, b: lib.vdot(a, b),
        [((3,), (3,))],
        imaginary,
        mixed=False,
        twice=False,
    ),
    Case("outer", lambda lib, a, b: lib.outer(a, b), [((3,), (2,)), ((0,), (2,))]),
    Case(
        "complex outer", lambda lib, a, b: lib.outer(a, b), [((3,), (2,))], imaginary, twice=False
    ),
    Case(
        "cross",
        lambda lib, a, b: lib.cross(a, b, dim=-1),
        [((3,), (3,)), ((4, 3), (1, 3))],
        mixed=False,
    ),
    Case(
        "cross along the first",
        lambda lib, a, b: lib.cross(a, b, dim=0),
        [((3, 2), (3, 2))],
        mixed=False,
    ),
    Case(
        "addmm",
        lambda lib, x, a, b: lib.addmm(x, a, b, beta=2, alpha=3),
        [((4,), (2, 3), (3, 4)), ((2, 4), (2, 3), (3, 4))],
        mixed=False,
    ),
    Case(
        "addmm without the first",
        lambda lib, x, a, b: x.addmm(a, b, beta=0),
        [((2, 4), (2, 3), (3, 4))],
        mixed=False,
        twice=False,
    ),
    Case(
        "baddbmm",
        lambda lib, x, a, b: lib.baddbmm(x, a, b, beta=0.5),
        [((2, 4), (5, 2, 3), (5, 3, 4))],
        mixed=False,
    ),
    Case("matrix_power", lambda lib, x: lib.linalg.matrix_power(x, 5), [((3, 3),), ((2, 2, 2),)]),
    Case("matrix_power 1", lambda lib, x: lib.matrix_power(x, 1), [((3, 3),)]),
    Case(
        "multi_dot",
        lambda lib, a, b, c: lib.linalg.multi_dot([a, b, c]),
        [((2, 5), (5, 1), (1, 3)), ((5,), (5, 2), (2,)), ((4, 2), (2, 5), (5,))],
        mixed=False,
    ),
]
test_gradients_of_products = suite(MATRICES)

EQUATIONS = [
    ("ij,jk->ik", (2, 3), (3, 4)),
    ("ij,jk", (2, 3), (3, 4)),
    ("bij,bjk->bik", (5, 2, 3), (5, 3, 4)),
    ("ij->ji", (2, 3)),
    ("ij->", (2, 3)),
    ("ij->j", (2, 3)),
    ("ii->i", (3, 3)),
    ("ii", (3, 3)),
    ("iij->ij", (3, 3, 2)),
    ("iji,j->", (3, 2, 3), (2,)),
    ("i,j->ij", (3,), (2,)),
    ("i,i->", (3,), (3,)),
    (",->", (), ()),
    (",i->i", (), (3,)),
    ("i,->", (3,), ()),
    ("ij,ij->i", (2, 3), (2, 3)),
    ("ij,kl->", (2, 3), (4, 5)),
    ("ij,jk,kl->il", (2, 3), (3, 4), (4, 2)),
    ("i,j,k->kji", (2,), (3,), (4,)),
    ("bn,anm,bm->ba", (2, 3), (5, 3, 4), (2, 4)),
    ("ab,bc,ca->", (2, 3), (3, 4), (4, 2)),
    ("bhid,bhjd->bhij", (2, 3, 4, 5), (2, 3, 6, 5)),
    ("...ij,...jk->...ik", (5, 2, 3), (5, 3, 4)),
    ("...ij,...jk", (2, 3), (5, 3, 4)),
    ("...,...", (2, 3), (3,)),
    ("i...->...", (2, 3, 4)),
    ("i...j->j...i", (2, 3, 4)),
    ("...i->i", (2, 3, 4)),
    ("...ii->...i", (2, 3, 3)),
    ("ij,jk->ik", (2, 1), (3, 4)),
    ("i,i->i", (1,), (3,)),
    ("ii,ij->j", (3, 3), (1, 4)),
    ("...i,...i->...", (2, 1, 3), (4, 3)),
    ("ij,jk->ik", (2, 0), (0, 3)),
    ("ij,jk->ik", (0, 2), (2, 3)),
    ("Aa,aB->AB", (2, 3), (3, 4)),
    (" i j , j k -> i k ", (2, 3), (3, 4)),
]  # fmt: skip
EINSUMS = [
    Case(
        f"{equation} {shapes}",
        lambda lib, *xs, e=equation: lib.einsum(e, *xs),
        [tuple(shapes)],
        mixed=False,
    )
    for equation, *shapes in EQUATIONS
]
test_gradients_of_einsum = suite(
    [
        *EINSUMS,
        Case("a list", lambda lib, a, b: lib.einsum("ij,j", [a, b]), [((2, 3), (3,))], mixed=False),
        Case(
            "numbers for letters",
            lambda lib, a, b: lib.einsum(a, [0, 1], b, [1, 2], [2, 0]),
            [((2, 3), (3, 4))],
            mixed=False,
        ),
        Case(
            "complex",
            lambda lib, a, b: lib.einsum("ij,jk->ki", a, b),
            [((2, 3), (3, 4))],
            imaginary,
            mixed=False,
            twice=False,
        ),
        Case("an operand twice", lambda lib, a: lib.einsum("ij,kj->ik", a, a), [((2, 3),)]),
        Case(
            "tensordot",
            lambda lib, a, b: lib.tensordot(a, b),
            [((2, 3, 4), (3, 4, 5))],
            mixed=False,
        ),
        Case(
            "tensordot over lists",
            lambda lib, a, b: lib.tensordot(a, b, dims=([2, 0], [1, -1])),
            [((2, 3, 4), (5, 4, 2))],
            mixed=False,
        ),
        Case(
            "tensordot over none",
            lambda lib, a, b: lib.tensordot(a, b, 0),
            [((2,), (3,))],
            mixed=False,
        ),
    ]
)


def test_einsum_of_a_view_has_memory_of_its_own():
    x = mt.ones(2, 3)
    y = mt.einsum("ij->ji", x)
    y.zero_()
    assert x.sum().item() == 6


def test_gradients_of_a_wide_linear_product():
    check(lambda lib, x, w: x @ w, np.ones((2, 3, 4)).cumsum().reshape(2, 3, 4), np.ones((4, 5)))
