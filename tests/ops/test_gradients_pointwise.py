# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of element-wise operations, against torch's."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.gradients import (
    BINARY,
    TERNARY,
    Case,
    away_from,
    between,
    check,
    imaginary,
    of,
    suite,
    whole,
)

import modtree as mt

torch = pytest.importorskip("torch")

POINTS = [((8,),)]
PAIRS = [((8,), (8,))]
EDGES = of(0.0, -0.0, 1.0, -1.0, 0.5, 2.0, -2.0, 3.0)


def _one(names: str, sample, **options):
    return [
        Case(name, lambda lib, x, name=name: getattr(lib, name)(x), sample=sample, **options)
        for name in names.split()
    ]


ONE = [
    *_one(
        "exp expm1 sin cos tan atan sinh cosh tanh asinh sigmoid square neg erf",
        between(-2, 2),
    ),
    *_one("log log2 log10 log1p sqrt rsqrt", between(0.1, 3)),
    *_one("asin acos atanh erfinv", between(-0.95, 0.95)),
    *_one("acosh", between(1.1, 4)),
    *_one("reciprocal abs relu sign sgn ceil floor trunc round", away_from(0.3, 2)),
    Case("round to decimals", lambda lib, x: lib.round(x, decimals=1)),
    Case("nan_to_num", lambda lib, x: lib.nan_to_num(x)),
    Case(
        "nan_to_num of what is none",
        lambda lib, x: lib.nan_to_num(x, nan=2.0, posinf=3.0, neginf=-3.0),
        POINTS,
        of(1.0, math.nan, math.inf, -math.inf),
    ),
    Case("positive exponent", lambda lib, x: x**3),
    Case("square by exponent", lambda lib, x: x**2, sample=EDGES),
    Case("root by exponent", lambda lib, x: x**0.5, sample=between(0.1, 2)),
    Case("negative exponent", lambda lib, x: x**-1.5, sample=between(0.3, 2)),
    Case("exponent 0", lambda lib, x: x**0, sample=EDGES),
    Case("exponent 1", lambda lib, x: x**1, sample=EDGES),
    Case("power of a number", lambda lib, x: 2.5**x),
    # The second derivative is 0, for which torch has NaN.
    Case("power of 0", lambda lib, x: 0.0**x, sample=between(0.5, 2), twice=False),
    Case("number operands", lambda lib, x: (2 - x) * 3 / (x + 4) - x / 2 + 1),
    Case("number over tensor", lambda lib, x: 2 / x, sample=away_from(0.4, 2)),
    Case("clamp", lambda lib, x: lib.clamp(x, -1, 1)),
    Case("clamp at its bounds", lambda lib, x: lib.clamp(x, -1, 1), sample=EDGES),
    Case("clamp_min", lambda lib, x: x.clamp(min=0.5)),
    Case("clamp_max", lambda lib, x: x.clamp(max=0.5)),
    Case("remainder by a number", lambda lib, x: x % 0.7),
    Case("masked_fill", lambda lib, x: x.masked_fill(x > 0, 2.5)),
    Case("where with a number", lambda lib, x: lib.where(x > 0, x, 0.0)),
    *[
        Case(f"{name} at edges", lambda lib, x, name=name: getattr(lib, name)(x), sample=EDGES)
        for name in "abs relu sign sqrt square tanh".split()
    ],
]

TWO = [
    *[
        Case(name, lambda lib, x, y, name=name: getattr(lib, name)(x, y), BINARY)
        for name in "add sub mul atan2 logaddexp maximum minimum".split()
    ],
    *[
        Case(
            name,
            lambda lib, x, y, name=name: getattr(lib, name)(x, y),
            BINARY,
            (between(-2, 2), away_from(0.4, 2)),
        )
        for name in "div remainder fmod".split()
    ],
    Case("add with alpha", lambda lib, x, y: lib.add(x, y, alpha=2.5), BINARY, mixed=False),
    Case("sub with alpha", lambda lib, x, y: x.sub(y, alpha=3), BINARY),
    Case("pow", lambda lib, x, y: lib.pow(x, y), BINARY, (between(0.3, 2), between(-2, 2))),
    Case(
        "pow at edges",
        lambda lib, x, y: x**y,
        PAIRS,
        (of(0.0, 0.0, 0.0, 2.0, 1.0, -2.0, -2.0, 0.0), of(0.0, 1.0, 2.0, 0.0, 0.0, 2.0, 3.0, 0.5)),
        twice=False,
        layouts=False,
    ),
    *[
        Case(
            f"div rounded to {mode}",
            lambda lib, x, y, mode=mode: lib.div(x, y, rounding_mode=mode),
            BINARY,
            away_from(0.4, 2),
        )
        for mode in ("floor", "trunc")
    ],
    *[
        Case(
            f"{name} of equals",
            lambda lib, x, y, name=name: getattr(lib, name)(x, y),
            PAIRS,
            whole(0, 2),
        )
        for name in "maximum minimum atan2".split()
    ],
]

THREE = [
    Case("lerp", lambda lib, x, y, w: lib.lerp(x, y, w), TERNARY, mixed=False),
    Case("addcmul", lambda lib, x, y, z: lib.addcmul(x, y, z, value=2.5), TERNARY, mixed=False),
    Case(
        "addcdiv",
        lambda lib, x, y, z: lib.addcdiv(x, y, z, value=2.5),
        TERNARY,
        away_from(0.4, 2),
        mixed=False,
    ),
    Case("where", lambda lib, x, y, z: lib.where(x > 0, y, z), TERNARY),
    Case("clamp between tensors", lambda lib, x, y, z: lib.clamp(x, y, z), TERNARY, mixed=False),
    Case("clamp above a tensor", lambda lib, x, y: lib.clamp(x, min=y), BINARY, mixed=False),
    Case("clamp below a tensor", lambda lib, x, y: lib.clamp(x, max=y), BINARY, mixed=False),
    Case(
        "masked_fill with a tensor",
        lambda lib, x, y: x.masked_fill(x > 0, y),
        [((3,), ()), ((2, 3), ()), ((), ())],
        mixed=False,
    ),
]

COMPLEX = [
    Case(f"complex {case.name}", case.function, [((),), ((3,),)], imaginary)
    for case in [
        *_one(
            "exp expm1 sin cos tan sinh cosh tanh asinh atan log log2 log10 log1p sqrt rsqrt", None
        ),
        *_one("reciprocal square neg abs sgn sigmoid acosh", None),
    ]
] + [
    Case("complex conj", lambda lib, x: lib.conj(x) * 2, [((3,),)], imaginary),
    Case("complex parts", lambda lib, x: x.real * 2 + x.imag, [((3,),)], imaginary),
    *[
        Case(
            f"complex {name}",
            lambda lib, x, y, name=name: getattr(lib, name)(x, y),
            [((3,), (3,)), ((2, 3), ()), ((), (3,))],
            samples,
            mixed=False,
        )
        for name in "add sub mul div".split()
        for samples in [(imaginary, imaginary)]
    ],
    Case(
        "complex beside real",
        lambda lib, x, y: x * y - x / y,
        [((3,), (3,))],
        (imaginary, between(0.5, 2)),
        mixed=False,
    ),
    Case(
        "real beside complex",
        lambda lib, x, y: x * y - x / y,
        [((3,), (3,))],
        (between(0.5, 2), imaginary),
        mixed=False,
    ),
    Case("complex pow", lambda lib, x, y: x**y, [((3,), (3,))], imaginary, mixed=False),
    Case("complex number to a power", lambda lib, x: x**2, [((3,),)], imaginary),
    Case("complex number factor", lambda lib, x: x * (1 + 2j), [((3,),)], imaginary),
]

test_gradients = suite([*ONE, *TWO, *THREE, *COMPLEX])


@pytest.mark.parametrize(
    "function",
    [
        lambda lib, x: x > 0,
        lambda lib, x: x.isnan(),
        lambda lib, x: lib.isfinite(x),
        lambda lib, x: lib.logical_not(x),
        lambda lib, x: lib.isclose(x, x),
        lambda lib, x: lib.eq(x, 1),
    ],
)
def test_results_without_gradient(function):
    for lib in (mt, torch):
        assert not function(lib, lib.ones(3, requires_grad=True)).requires_grad


def test_numpy_functions_record_like_methods():
    x = np.random.default_rng(0).uniform(0.3, 1, (2, 3))
    t, u = mt.tensor(x, requires_grad=True), torch.tensor(x, requires_grad=True)
    (np.exp(t) * np.where(t > 0.5, np.sqrt(t), t) + np.clip(t, 0.4, 0.6)).sum().backward()
    (u.exp() * torch.where(u > 0.5, u.sqrt(), u) + u.clamp(0.4, 0.6)).sum().backward()
    np.testing.assert_allclose(t.grad.numpy(), u.grad.numpy())


def test_scalars_of_numpy_do_not_widen_gradients():
    x = mt.ones(3, requires_grad=True)
    ((x * np.float64(2)) ** np.float64(1.5) / np.float64(3)).sum().backward()
    assert x.grad.dtype == mt.float32


@pytest.mark.parametrize("size", [10, 5000])
def test_what_a_mask_drops_stays_dropped_when_it_is_infinite(size):
    x = np.arange(size) - size / 2
    for function in (
        lambda lib, x: x.relu().sqrt(),
        lambda lib, x: lib.where(x > 0, 1 / lib.where(x > 0, x, 0.0), x),
        lambda lib, x: x.masked_fill(x <= 0, 0.0).sqrt(),
        lambda lib, x: x.clamp(min=0).sqrt(),
        lambda lib, x: lib.maximum(x, lib.zeros(size, dtype=x.dtype)).sqrt(),
    ):
        check(function, x)


INPLACE = [
    lambda lib, x: x.exp_(),
    lambda lib, x: x.sin_(),
    lambda lib, x: x.mul_(x + 1),
    lambda lib, x: x.pow_(3).tanh_(),
    lambda lib, x: x.div_(2.5).add_(x, alpha=2),
    lambda lib, x: x.clamp_(-0.5, 0.5),
    lambda lib, x: x.masked_fill_(x > 0, 2.0),
    lambda lib, x: x.relu_(),
    lambda lib, x: x.addcmul_(x * 2, x + 1, value=0.5),
    lambda lib, x: x.lerp_(lib.ones(3, dtype=x.dtype), 0.3),
    lambda lib, x: x.sigmoid_(),
    lambda lib, x: x.abs_().rsqrt_(),
    lambda lib, x: x.remainder_(0.7),
    lambda lib, x: x.sub_(x[:1].clone()).square_(),
]


@pytest.mark.parametrize("change", INPLACE)
def test_methods_that_write_in_place(change):
    x = np.random.default_rng(0).uniform(0.2, 1, (4, 3)) * np.resize([1, -1], (4, 3))
    check(lambda lib, x: change(lib, x * 1.0) * 2, x, twice=True)


@pytest.mark.parametrize(
    "change",
    [
        lambda x: x.exp_().mul_(2),
        lambda x: x.sigmoid_().log_(),
        lambda x: x.relu_().sqrt_(),
        lambda x: x.mul_(x),
        lambda x: (x * x, x.add_(1))[0],
    ],
)
def test_changes_of_what_the_backward_pass_needs_are_refused(change):
    for lib in (mt, torch):
        x = lib.ones(3, requires_grad=True)
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            change(x * 2.0).sum().backward()


EXTREME = [0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 0.5, -2.5, 3.0, 1e-300, 1e300]


@pytest.mark.parametrize(
    "name",
    (
        "exp expm1 log log2 log10 log1p sqrt rsqrt sin cos tan asin acos atan sinh cosh "
        "tanh asinh acosh atanh "
        "sigmoid square neg abs sign sgn ceil floor trunc round reciprocal relu erf "
        "erfinv lgamma"
    ).split(),
)
def test_infinities_zeros_and_nan(name):
    check(lambda lib, x: getattr(lib, name)(x), np.array(EXTREME))


@pytest.mark.parametrize(
    "name",
    ("add sub mul div pow remainder fmod atan2 logaddexp maximum minimum").split(),
)
def test_pairs_of_infinities_zeros_and_nan(name):
    x, y = np.meshgrid(EXTREME[:-2], EXTREME[:-2])
    check(lambda lib, x, y: getattr(lib, name)(x, y), x, y)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64", "int64", "uint8"])
def test_masks_on_large_arrays_choose_what_numpy_chooses(dtype):
    rng = np.random.default_rng(0)
    for shapes in (
        [(100, 80)] * 3,
        [(100, 80), (), (100, 80)],
        [(80,), (100, 80), (100, 1)],
        [(5000, 1), (5000, 1), (1, 3)],
        [(100, 80), (), ()],
    ):
        mask = rng.integers(0, 2, shapes[0]).astype(bool)
        a, b = (np.asarray(rng.normal(size=shape) * 9).astype(dtype) for shape in shapes[1:])
        if dtype == "float32" and a.size > 3:
            a.reshape(-1)[:4] = [np.nan, np.inf, -np.inf, -0.0]
        ours = mt.where(mt.tensor(mask), mt.tensor(a), mt.tensor(b))
        assert ours.numpy().dtype == np.dtype(dtype)
        np.testing.assert_array_equal(ours.numpy(), np.where(mask, a, b))
    a, mask = rng.normal(size=(100, 80)), rng.integers(0, 2, (100, 80)).astype(bool)
    ours = mt.where(mt.tensor(mask).T, mt.tensor(a).T, mt.tensor(-a).T)
    np.testing.assert_array_equal(ours.numpy(), np.where(mask.T, a.T, -a.T))
