# SPDX-License-Identifier: BSD-3-Clause
"""Activations against torch's: functions, gradients, modules, in place, errors."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gradients import Case, away_from, between, of, suite
from helpers.layers_common import (
    check_arguments,
    check_copies,
    check_description,
    check_run,
    check_where,
    make,
)
from helpers.support import raises

import modtree as mt
from modtree import nn
from modtree.nn import functional as F

torch = pytest.importorskip("torch")

#: Both sides of every kink, and the kinks.
POINTS = of(0, 0.5, -0.5, 1, -1, 3, -3, 6, -6, 0.3, -0.2, 2.5, -2.7, 5.5, -7, 25, -25, 60, -60)
SHAPES = [((),), ((0,),), ((19,),), ((2, 0),), ((4, 10),)]


#: Away from 0: the second derivative of a kink that bends the other way is nobody's.
SIDES = away_from(0.1, 3)


def case(name, *args, twice=True, label="", tolerance=1e-9, sample=POINTS, **kwargs):
    def function(lib, x):
        return getattr(lib.nn.functional, name)(x, *args, **kwargs)

    title = f"{name}{label}"
    return Case(title, function, SHAPES, sample, twice=twice, tolerance=tolerance)


test_gradients = suite(
    [
        case("gelu"),
        case("gelu", approximate="tanh", label=" tanh"),
        case("silu"),
        case("mish"),
        case("relu"),
        case("relu6"),
        case("hardtanh"),
        case("hardtanh", -0.5, 2.5, label=" bounds"),
        case("leaky_relu"),
        case("leaky_relu", 0.3, label=" slope"),
        case("leaky_relu", -0.3, label=" negative", sample=SIDES),
        case("elu"),
        case("elu", 1.7, label=" alpha"),
        case("elu", -0.7, label=" negative", sample=SIDES),
        case("selu"),
        case("celu", 2.0),
        case("celu", -2.0, label=" negative", sample=SIDES),
        case("sigmoid"),
        case("tanh"),
        case("softplus"),
        case("softplus", 2.0, 3.0, label=" beta"),
        case("softsign"),
        case("logsigmoid"),
        case("hardswish"),
        # torch's own derivative multiplies by 1/6 rounded to float32.
        case("hardsigmoid", twice=False, tolerance=1e-7),
        case("hardshrink", 0.4),
        case("softshrink", 0.4),
        case("tanhshrink"),
        case("threshold", 0.4, 7.0),
        case("rrelu"),
    ]
)

MATRICES = [((2, 4),), ((3, 4, 2),), ((2, 0),)]
test_gradients_along_an_axis = suite(
    [
        Case("softmax", lambda lib, x: lib.nn.functional.softmax(x, -1), MATRICES),
        Case("softmin", lambda lib, x: lib.nn.functional.softmin(x, 0), MATRICES),
        Case("log_softmax", lambda lib, x: lib.nn.functional.log_softmax(x, 1), MATRICES),
        Case("glu", lambda lib, x: lib.nn.functional.glu(x, 1), MATRICES),
        Case("glu first", lambda lib, x: lib.nn.functional.glu(x, 0), [((4, 3),)]),
    ]
)
test_gradients_of_prelu = suite(
    [
        Case(
            "prelu",
            lambda lib, x, w: lib.nn.functional.prelu(x, w),
            [
                ((), ()),
                ((5,), (1,)),
                ((2, 3), (3,)),
                ((2, 3, 4), (3,)),
                ((2, 3, 4), (1,)),
                ((0, 2), (2,)),
            ],
            [between(-2, 2), between(-1, 1)],
            mixed=False,
        )
    ]
)

MODULES = {
    "CELU": ((2.0,), {"inplace": True}),
    "ELU": ((), {}),
    "ELU all": ((0.7, True), {}),
    "GLU": ((), {}),
    "Hardshrink": ((0.3,), {}),
    "Hardsigmoid": ((), {}),
    "Hardswish": ((True,), {}),
    "Hardtanh": ((-2.0, 1.5), {"inplace": True}),
    "LeakyReLU": ((), {}),
    "LeakyReLU all": ((0.2,), {"inplace": True}),
    "LogSigmoid": ((), {}),
    "Mish": ((), {}),
    "Mish inplace": ((True,), {}),
    "PReLU": ((), {}),
    "PReLU channels": ((4,), {"init": 0.1}),
    "RReLU": ((0.1, 0.3), {}),
    "ReLU6": ((), {}),
    "ReLU6 inplace": ((True,), {}),
    "SELU": ((True,), {}),
    "Softmax2d": ((), {}),
    "Softmin": ((1,), {}),
    "Softplus": ((2.0, 5.0), {}),
    "Softshrink": ((), {}),
    "Softsign": ((), {}),
    "Tanhshrink": ((), {}),
    "Threshold": ((0.2, 3.0), {"inplace": True}),
}
module = pytest.mark.parametrize("label", MODULES)


@pytest.mark.parametrize("name", sorted({label.split()[0] for label in MODULES}))
def test_arguments(name):
    check_arguments(name)


@module
def test_description(label):
    args, kwargs = MODULES[label]
    ours, theirs = make(label.split()[0], args, kwargs)
    check_description(ours, theirs)
    check_copies(ours)


@module
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_runs(label, dtype):
    args, kwargs = MODULES[label]
    ours, theirs = make(label.split()[0], args, kwargs)
    if hasattr(theirs, "inplace"):
        ours.inplace = theirs.inplace = False  # the input is a leaf
    x = np.random.default_rng(0).uniform(-4, 4, (2, 4, 3, 2))
    tolerance = 1e-7 if label == "Hardsigmoid" and dtype == "float64" else None
    check_run(ours.eval(), theirs.eval(), [x], dtype=dtype, tolerance=tolerance)


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("relu", ()),
        ("relu6", ()),
        ("hardtanh", (-0.5, 0.5)),
        ("leaky_relu", (0.1,)),
        ("elu", (0.7,)),
        ("selu", ()),
        ("celu", (1.5,)),
        ("silu", ()),
        ("mish", ()),
        ("hardswish", ()),
        ("hardsigmoid", ()),
        ("threshold", (0.1, 2.0)),
        ("rrelu", ()),
    ],
)
def test_in_place(name, args):
    x = np.random.default_rng(1).uniform(-4, 4, (5, 4))

    def run(lib):
        leaf = lib.from_numpy(x.copy()).requires_grad_()
        middle = leaf * 1.5
        result = getattr(lib.nn.functional, name)(middle, *args, inplace=True)
        assert result is middle
        (result * result).sum().backward()
        return result.detach().numpy(), leaf.grad.numpy()

    tolerance = 1e-7 if name == "hardsigmoid" else 1e-12
    for mine, other in zip(run(mt), run(torch), strict=True):
        np.testing.assert_allclose(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(
    "name, args",
    [
        ("relu", ()),
        ("relu6", ()),
        ("leaky_relu", ()),
        ("hardtanh", ()),
        ("hardshrink", ()),
        ("softshrink", ()),
        ("threshold", (0.5, 2.0)),
        ("rrelu", ()),
        ("prelu", (0.25,)),
    ],
)
@pytest.mark.parametrize("lib", [mt, torch], ids=["modtree", "torch"])
def test_gradients_of_straight_pieces_are_on_the_graph(lib, name, args):
    """A penalty on gradients works also where they do not change."""
    x = lib.tensor([-2.0, 0.25, 0.75], requires_grad=True)
    args = tuple(lib.tensor([a]) for a in args) if name == "prelu" else args
    out = getattr(lib.nn.functional, name)(x, *args)
    (slope,) = lib.autograd.grad(out.sum(), x, create_graph=True)
    assert slope.requires_grad
    (slope * slope).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0, 0.0]


def test_in_place_on_a_leaf_is_refused():
    leaf = mt.zeros(3, requires_grad=True)
    with raises(RuntimeError, "a leaf Variable that requires grad"):
        F.leaky_relu(leaf, inplace=True)


@pytest.mark.parametrize(
    "name", ["relu_", "elu_", "selu_", "celu_", "leaky_relu_", "hardtanh_", "rrelu_"]
)
def test_functions_that_write_into_their_input(name):
    x = mt.tensor([-2.0, 0.5, 3.0])
    expected = getattr(torch.nn.functional, name)(torch.tensor([-2.0, 0.5, 3.0]))
    assert getattr(F, name)(x) is x
    np.testing.assert_allclose(x.numpy(), expected.numpy(), rtol=1e-6)
    y = mt.tensor([-2.0, 0.5])
    assert F.threshold_(y, 0.0, 9.0) is y
    assert y.tolist() == [9.0, 0.5]


def test_the_slope_of_hardsigmoid_is_a_sixth():
    x = mt.zeros(3, dtype=mt.float64, requires_grad=True)
    F.hardsigmoid(x).sum().backward()
    assert x.grad.tolist() == [1 / 6] * 3


def test_random_slopes():
    mt.manual_seed(0)
    x = mt.full((4000,), -1.0, requires_grad=True)
    y = F.rrelu(x, 0.1, 0.3, training=True)
    assert -0.3 <= y.min().item() < -0.29
    assert -0.11 < y.max().item() <= -0.1
    y.sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), -y.detach().numpy(), rtol=1e-6)
    layer = nn.RReLU()
    assert not (layer(x) == layer.eval()(x)).all()


def test_gumbel_softmax():
    mt.manual_seed(0)
    logits = mt.tensor([0.0, 1.0, 3.0], requires_grad=True)
    batch = logits.expand(3000, 3)
    soft = F.gumbel_softmax(batch, tau=0.5)
    np.testing.assert_allclose(soft.sum(-1).detach().numpy(), 1, rtol=1e-5)
    hard = F.gumbel_softmax(batch, hard=True)
    rounded = np.round(hard.detach().numpy(), 5)
    assert set(np.unique(rounded)) == {0.0, 1.0}
    expected = np.exp([0, 1, 3]) / np.exp([0, 1, 3]).sum()
    np.testing.assert_allclose(rounded.mean(0), expected, atol=0.04)
    (hard * mt.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert (logits.grad != 0).all()


def test_prelu_starts_at_init_where_asked():
    check_where("PReLU", (3,), {})
    assert nn.PReLU(3, init=0.4).weight.tolist() == [pytest.approx(0.4)] * 3


def test_old_names_of_the_bounds_warn():
    with pytest.warns(FutureWarning, match="`min_value` is deprecated and renamed to `min_val`"):
        assert nn.Hardtanh(min_value=0.5).min_val == 0.5
    with pytest.warns(FutureWarning, match="`max_value` is deprecated and renamed to `max_val`"):
        assert nn.Hardtanh(max_value=0.5).max_val == 0.5


def test_dim_left_out_warns_at_the_caller():
    for layer in (nn.Softmin(), nn.LogSoftmax()):
        with pytest.warns(UserWarning, match="Implicit dimension choice") as caught:
            layer(mt.ones(2, 2))
        assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="Implicit dimension choice") as caught:
        F.softmin(mt.ones(2, 2))
    assert caught[0].filename == __file__


def test_whole_numbers():
    x = np.array([-9, 0, 3, 9])
    for name, args in (
        ("hardtanh", (-2, 2)),
        ("relu6", ()),
        ("softsign", ()),
        ("threshold", (1, 5)),
    ):
        mine = getattr(F, name)(mt.from_numpy(x), *args).numpy()
        other = getattr(torch.nn.functional, name)(torch.from_numpy(x), *args).numpy()
        assert mine.dtype == other.dtype
        np.testing.assert_allclose(mine, other, rtol=1e-6)
    for name in (
        "gelu",
        "leaky_relu",
        "softplus",
        "mish",
        "hardswish",
        "elu",
        "logsigmoid",
        "silu",
    ):
        with raises(NotImplementedError, "int64"):
            getattr(F, name)(mt.from_numpy(x))


def test_meta():
    x = mt.empty(4, 6, device="meta")
    for label, (args, kwargs) in MODULES.items():
        kwargs = {k: v for k, v in kwargs.items() if k != "inplace"}
        layer = getattr(nn, label.split()[0])(*args, **kwargs).eval()
        if any(True for _ in layer.parameters()):
            layer = layer.to("meta")
            shape = (2, 4, 3)
        else:
            shape = (2, 4, 6, 2)
        y = layer(mt.empty(shape, device="meta"))
        assert y.is_meta
        wanted = shape[:-1] + (1,) if label == "GLU" else shape
        assert tuple(y.shape) == wanted, label
    assert F.gelu(x).is_meta


def test_errors():
    x = mt.ones(4, 3)
    with raises(AssertionError, "max_val (1) must be greater than min_val (2)"):
        nn.Hardtanh(2, 1)
    with raises(ValueError, "min_val cannot be greater than max_val"):
        F.hardtanh(x, 2, 1)
    with raises(RuntimeError, "ZeroDivisionError: alpha cannot be 0 for CELU"):
        F.celu(x, 0.0)
    with raises(RuntimeError, "lambda", "-1"):
        F.softshrink(x, -1)
    with raises(RuntimeError, "Halving dimension must be even, but dimension 1 is size 3"):
        F.glu(x)
    with raises(RuntimeError, "glu does not support scalars"):
        F.glu(mt.tensor(1.0))
    with raises(ValueError, "Softmax2d: expected input to be 3D or 4D, got 2D instead"):
        nn.Softmax2d()(x)
    with raises(RuntimeError, "parameter numbers = 2 and channel size = 3"):
        F.prelu(x, mt.ones(2))
    with raises(RuntimeError, "scalar or 1D tensor", "ndim = 2"):
        F.prelu(x, mt.ones(1, 1))
    with raises(RuntimeError, "Type promoting not supported"):
        F.prelu(x, mt.ones(1, dtype=mt.float64))
    with raises(RuntimeError, "in place with a negative factor"):
        F.leaky_relu(x, -1.0, inplace=True)
    with raises(TypeError, "glu: expected a modtree.Tensor, got list"):
        F.glu([1.0])
