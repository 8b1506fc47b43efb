# SPDX-License-Identifier: BSD-3-Clause
"""Activations where their derivatives bend: at the corners, at infinity, at NaN, and of dtypes
that they do not take.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from helpers.same import differentiated, same

import modtree as mt

torch = pytest.importorskip("torch")

PIECES = [
    ("relu", ()),
    ("relu6", ()),
    ("hardtanh", (-1.0, 2.0)),
    ("hardswish", ()),
    ("hardsigmoid", ()),
    ("hardshrink", (0.5,)),
    ("softshrink", (0.5,)),
    ("threshold", (0.5, 2.0)),
    ("leaky_relu", (0.0,)),
    ("leaky_relu", (-0.5,)),
]
CURVES = [
    ("elu", ()),
    ("elu", (0.5,)),
    ("elu", (-0.5,)),
    ("celu", (0.5,)),
    ("celu", (-2.0,)),
    ("selu", ()),
]
CORNERS = (0.0, -0.0, 6.0, 3.0, -3.0, 2.0, -1.0, 0.5, -0.5, 1.5, math.inf, -math.inf, math.nan)


def slope(lib, name, args, x, g, dtype, graph):
    # One element: in torch, what becomes of NaN depends on the place in a vector register.
    x = lib.tensor(x, dtype=getattr(lib, dtype), requires_grad=True)
    y = getattr(lib.nn.functional, name)(x, *args)
    g = lib.tensor(g, dtype=x.dtype)
    return float(lib.autograd.grad(y, x, g, create_graph=graph)[0].detach())


@pytest.mark.parametrize("graph", [False, True], ids=["", "graph"])
@pytest.mark.parametrize(
    ("name", "args", "dtype"),
    [
        *((*piece, dtype) for piece in PIECES for dtype in ("float64", "float32", "float16")),
        *((*curve, dtype) for curve in CURVES for dtype in ("float64", "float32")),
    ],
)
def test_the_gradient_at_corners(name, args, dtype, graph):
    for x, g in itertools.product(CORNERS, (1.0, -math.inf, math.nan)):
        ours, theirs = (slope(lib, name, args, x, g, dtype, graph) for lib in (mt, torch))
        np.testing.assert_allclose(ours, theirs, rtol=2e-3, atol=1e-7, err_msg=f"{x}, {g}")


# Beyond them torch's exp() overflows, where no threshold is between.
SOFTPLUS = [
    *itertools.product([1.0, -1.0, 0.0, math.nan], [2.0, math.inf, -math.inf, math.nan]),
    *itertools.product([math.inf, -math.inf], [2.0, -math.inf]),
]


@pytest.mark.parametrize(("beta", "threshold"), SOFTPLUS)
def test_softplus_with_odd_parameters(beta, threshold):
    for x in (-3.0, 0.0, 1.5, 3.0, math.nan):
        same(
            differentiated(
                lambda lib, x: lib.nn.functional.softplus(x, beta, threshold), np.array([x])
            )
        )


@pytest.mark.parametrize("name", ["softplus", "logsigmoid", "silu"])
@pytest.mark.parametrize("x", [-200.0, 200.0, -math.inf])
def test_the_second_derivative_far_out(name, x):
    results = []
    for lib in (mt, torch):
        leaf = lib.tensor(x, dtype=lib.float32, requires_grad=True)
        y = getattr(lib.nn.functional, name)(leaf)
        (g,) = lib.autograd.grad(y, leaf, create_graph=True)
        results.append(float(lib.autograd.grad(g, leaf)[0]))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("mish", ()),
        ("logsigmoid", ()),
        ("sigmoid", ()),
        ("softplus", (0.5, -1.5)),
        ("leaky_relu", (0.0,)),
        ("hardshrink", (0.5,)),
    ],
)
def test_half_precision_is_computed_in_single(name, args):
    x = np.array([6, -1.25, 20, math.inf, -7, 0.4, -1.02], np.float16)
    ours, theirs = (
        np.asarray(getattr(lib.nn.functional, name)(lib.from_numpy(x), *args))
        for lib in (mt, torch)
    )
    np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_half_precision_keeps_what_is_left_of_a_gradient(name):
    x = np.array([[-3.142, 3.857], [0.25, -6.5]], np.float16)
    slopes = []
    for library in (mt, torch):
        leaf = library.from_numpy(x.copy()).requires_grad_()
        result = getattr(library, name)(leaf, -1)
        result.backward(library.tensor([[0.54, -0.416], [1.0, 0.5]], dtype=library.half))
        slopes.append(leaf.grad.numpy())
    np.testing.assert_allclose(*slopes, rtol=1e-3)


@pytest.mark.parametrize("name", ["elu", "selu", "celu"])
def test_half_precision_keeps_the_slope_near_the_limit(name):
    x = np.linspace(-9, 0, 200).astype(np.float16)
    ours, theirs = (
        differentiated(lambda lib, x: getattr(lib.nn.functional, name)(x), x)(lib)
        for lib in (mt, torch)
    )
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_allclose(a.detach(), b.detach(), rtol=2e-3, atol=1e-7)


@pytest.mark.parametrize("name", ["elu", "celu"])
def test_an_infinite_factor_leaves_what_is_above(name):
    x = np.array([-1.0, 0.0, 2.0])
    same(differentiated(lambda lib, x: getattr(lib.nn.functional, name)(x, math.inf), x))


def test_prelu_of_infinite_slopes():
    results = []
    for lib in (mt, torch):
        x = lib.tensor([2.0, 0.0, -1.0, math.inf], requires_grad=True)
        w = lib.tensor([math.inf], requires_grad=True)
        y = lib.nn.functional.prelu(x, w)
        y.backward(lib.tensor([math.inf, 1.0, 1.0, 1.0]))
        results.append([t.detach().numpy() for t in (y, x.grad, w.grad)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int64", "complex64"])
@pytest.mark.parametrize(
    ("name", "args"),
    [
        *PIECES,
        *CURVES,
        ("hardtanh", (-0.5, 1.5)),
        ("hardtanh", (0.0, 2.5)),
        ("threshold", (math.nan, 1.0)),
        ("threshold", (0.0, -2.0)),
        ("threshold", (-1, 2)),
        ("threshold", (0.0, 300)),
        ("softshrink", (-1.0,)),
        ("softsign", ()),
        ("silu", ()),
        ("glu", (0,)),
    ],
)
def test_dtypes(name, args, dtype):
    outcomes = []
    for lib in (mt, torch):
        x = lib.tensor([0, 1, 3, 4], dtype=getattr(lib, dtype))
        try:
            y = getattr(lib.nn.functional, name)(x, *args)
        except RuntimeError as error:
            outcomes.append(type(error))
        else:
            outcomes.append((str(y.dtype).rpartition(".")[2], np.round(y.numpy(), 5).tolist()))
    assert outcomes[0] == outcomes[1]


def test_gradients_of_complex_silu_are_refused():
    for lib in (mt, torch):
        with pytest.raises(RuntimeError, match="automatic differentiation"):
            lib.nn.functional.silu(lib.tensor([1j], requires_grad=True))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", ["bool", "int64", "complex64"])
def test_softmax_of_nothing_takes_all_dtypes(name, dtype):
    for lib in (mt, torch):
        x = lib.zeros(2, 0, dtype=getattr(lib, dtype))
        y = getattr(lib.nn.functional, name)(x, dim=0)
        assert (tuple(y.shape), y.dtype) == ((2, 0), x.dtype)


def test_the_approximation_of_gelu_is_named():
    for lib in (mt, torch):
        with pytest.raises(TypeError):
            lib.nn.functional.gelu(lib.ones(1), "tanh")


def test_the_gradient_of_softsign_at_infinity_is_0():
    x = mt.tensor([math.inf, -math.inf], requires_grad=True)
    mt.nn.functional.softsign(x).backward(mt.ones(2))
    assert not x.grad.numpy().any()


def test_complex_silu_in_place_has_the_gradient_of_its_formula():
    slopes = []
    for inplace in (False, True):
        x = mt.tensor([1 + 1j, -2.5j], requires_grad=True)
        y = x * 2
        result = mt.nn.functional.silu(y, inplace=True) if inplace else y * y.sigmoid()
        assert (result is y) is inplace
        result.real.sum().backward()
        slopes.append(x.grad.numpy())
    np.testing.assert_allclose(*slopes)


@pytest.mark.parametrize(
    "line",
    [
        "f.hardtanh_(x.clone(), 2.0)",
        "f.hardtanh_(x.long(), 2, 1)",
        "f.softshrink(x, float('inf'))",
        "f.softshrink(x, float('nan'))",
        "f.softshrink(x.float(), 1e300)",
        "f.hardshrink(x.float(), 1e300)",
        "f.softplus(x.float(), 1e300)",
        "f.elu(x.float(), 1e300)",
        "f.celu(x.float(), -1e300)",
        "f.leaky_relu(x.float(), -1e300)",
        "f.threshold(x.float(), 0, 1e300)",
        "f.hardtanh(x.float(), max_val=1e300)",
        "f.hardtanh(x.to(m.int8), max_val=float('inf'))",
        "f.threshold(x.to(m.int8), 0, float('inf'))",
        "f.elu(x.long(), float('inf'))",
        "f.hardshrink(x.long(), float('nan'))",
        "f.softplus(x.long(), float('inf'))",
        "f.leaky_relu(x.long(), float('inf'))",
        "m.softmax(x[0], 1)",
        "m.softmax(x[:0], 5)",
        "m.log_softmax(x[:0], -3)",
    ],
)
def test_what_is_refused(line):
    x = np.array([-1.5, 0.25, 3])
    same(lambda lib: eval(line, {"m": lib, "f": lib.nn.functional, "x": lib.from_numpy(x)}))


def test_the_gradient_of_softsign_of_complex_numbers():
    x = np.array([1j, 0, 2 - 1j, -3])
    same(differentiated(lambda lib, x: lib.nn.functional.softsign(x), x))
