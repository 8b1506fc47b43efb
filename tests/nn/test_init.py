# SPDX-License-Identifier: BSD-3-Clause
"""Starting values: modtree.nn.init on tensors of both libraries, and torch's own for comparison."""

from __future__ import annotations

import math
import warnings

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs
from helpers.support import quiet, raises, warns

import modtree as mt
from modtree.nn import init as ours_init


class Library:
    """One implementation of init with one library of tensors."""

    def __init__(self, name):
        self.name = name
        if name == "modtree":
            self.lib, self.init = mt, ours_init
        else:
            import torch

            self.lib = torch
            self.init = torch.nn.init if name == "torch" else ours_init

    def empty(self, *shape, dtype="float32", **kwargs):
        return self.lib.zeros(shape, dtype=getattr(self.lib, dtype), **kwargs)

    def generator(self, seed):
        return self.lib.Generator().manual_seed(seed)


@pytest.fixture(
    params=[
        "modtree",
        pytest.param("modtree-torch", marks=needs_torch),
        pytest.param("torch", marks=needs_torch),
    ]
)
def library(request):
    lib = Library(request.param)
    lib.lib.manual_seed(0)
    return lib


def array(t):
    return t.detach().double().numpy()


FANS = (200, 30, 3, 2)
FAN_IN, FAN_OUT = 30 * 6, 200 * 6

# name, arguments, expected (low, high) of a uniform distribution or standard deviation of a normal
# one
DISTRIBUTIONS = [
    ("uniform_", {}, (0, 1)),
    ("uniform_", {"a": -3, "b": 2}, (-3, 2)),
    ("normal_", {}, 1.0),
    ("normal_", {"mean": 0.0, "std": 0.2}, 0.2),
    ("xavier_uniform_", {}, math.sqrt(6 / (FAN_IN + FAN_OUT))),
    ("xavier_uniform_", {"gain": 2.5}, 2.5 * math.sqrt(6 / (FAN_IN + FAN_OUT))),
    ("xavier_normal_", {"gain": 2.0}, 2.0 * math.sqrt(2 / (FAN_IN + FAN_OUT))),
    ("kaiming_uniform_", {}, math.sqrt(6 / FAN_IN)),
    ("kaiming_uniform_", {"a": math.sqrt(5)}, math.sqrt(1 / FAN_IN)),
    ("kaiming_uniform_", {"mode": "fan_out", "nonlinearity": "relu"}, math.sqrt(6 / FAN_OUT)),
    ("kaiming_normal_", {"mode": "FAN_OUT", "nonlinearity": "tanh"}, 5 / 3 / math.sqrt(FAN_OUT)),
    ("kaiming_normal_", {"nonlinearity": "linear"}, 1 / math.sqrt(FAN_IN)),
]


@pytest.mark.parametrize(("name", "kwargs", "expected"), DISTRIBUTIONS)
def test_distribution(library, name, kwargs, expected):
    t = library.empty(*FANS)
    assert getattr(library.init, name)(t, **kwargs) is t
    values = array(t).ravel()
    if "uniform" in name:
        low, high = expected if isinstance(expected, tuple) else (-expected, expected)
        width = high - low
        assert values.min() >= low - 1e-6 * width
        assert values.max() <= high + 1e-6 * width
        assert values.min() < low + 0.001 * width
        assert values.max() > high - 0.001 * width
        deciles = np.quantile(values, np.linspace(0.1, 0.9, 9))
        np.testing.assert_allclose(
            deciles, low + width * np.linspace(0.1, 0.9, 9), atol=0.02 * width
        )
    else:
        assert abs(values.mean()) < 0.02 * expected
        assert abs(values.std() / expected - 1) < 0.02
        assert abs((values**4).mean() / values.std() ** 4 - 3) < 0.2


@pytest.mark.parametrize(
    ("mean", "std", "a", "b"),
    [(0, 1, -2, 2), (1, 0.5, 0.5, 3), (0, 1, 0.1, 0.2), (0.5, 3, -4, 6)],
)
def test_trunc_normal(library, mean, std, a, b):
    t = library.empty(50_000)
    assert library.init.trunc_normal_(t, mean, std, a, b) is t
    values = array(t)
    assert a - 1e-6 <= values.min() < values.max() <= b + 1e-6
    # Moments of the truncated distribution, by summing over a grid.
    z = np.linspace(a, b, 100_001)
    weight = np.exp(-(((z - mean) / std) ** 2) / 2)
    weight /= weight.sum()
    expected_mean = (weight * z).sum()
    expected_std = math.sqrt((weight * (z - expected_mean) ** 2).sum())
    assert abs(values.mean() - expected_mean) < 0.02 * expected_std
    assert abs(values.std() / expected_std - 1) < 0.02


def test_trunc_normal_far_from_the_mean(library):
    t = library.empty(2000)
    with warns(UserWarning, "mean is more than 2 std from [a, b]"):
        library.init.trunc_normal_(t, mean=5.0)
    values = array(t)
    assert -2 <= values.min()
    assert values.max() <= 2
    assert values.mean() > 1.6


def test_trunc_normal_far_out_has_no_outliers():
    """Where torch's float32 inverse error function gives out, values stay distributed as they
    should.
    """
    mt.manual_seed(0)
    with quiet():
        values = array(ours_init.trunc_normal_(mt.empty(100_000), 0, 1, 5, 100))
    assert abs(values.mean() - 5.1865) < 0.01
    assert values.max() < 9


def test_constants(library):
    t = library.empty(3, 2)
    assert library.init.constant_(t, 2.5) is t
    assert (array(t) == 2.5).all()
    assert (array(library.init.ones_(t)) == 1).all()
    assert (array(library.init.zeros_(t)) == 0).all()
    whole = library.init.constant_(library.empty(2, dtype="int64"), 2.7)
    assert array(whole).tolist() == [2, 2]


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (4, 2), (0, 2)])
def test_eye(library, shape):
    t = library.init.uniform_(library.empty(*shape))
    assert library.init.eye_(t) is t
    assert array(t).tolist() == np.eye(*shape).tolist()


@pytest.mark.parametrize(
    ("shape", "groups"),
    [((3, 3, 3), 1), ((4, 2, 3, 4), 2), ((6, 2, 1, 3, 5), 3), ((2, 5, 4), 1), ((4, 1, 2), 4)],
)
def test_dirac(library, shape, groups):
    t = library.init.uniform_(library.empty(*shape))
    assert library.init.dirac_(t, groups) is t
    expected = np.zeros(shape)
    each = shape[0] // groups
    for group in range(groups):
        for d in range(min(each, shape[1])):
            expected[(group * each + d, d, *(n // 2 for n in shape[2:]))] = 1
    assert array(t).tolist() == expected.tolist()


@pytest.mark.parametrize("shape", [(4, 4), (3, 7), (7, 3), (4, 2, 3), (20, 3, 2)])
def test_orthogonal(library, shape):
    t = library.empty(*shape, dtype="float64")
    assert library.init.orthogonal_(t, gain=2.0) is t
    matrix = array(t).reshape(shape[0], -1)
    product = matrix @ matrix.T if matrix.shape[0] <= matrix.shape[1] else matrix.T @ matrix
    np.testing.assert_allclose(product, 4 * np.eye(len(product)), atol=1e-10)


def test_orthogonal_is_uniform_over_rotations(library):
    """The sign fix: without it, QR prefers one sign of the diagonal."""
    first = [array(library.init.orthogonal_(library.empty(2, 2)))[0, 0] for _ in range(300)]
    assert 100 < sum(v > 0 for v in first) < 200


@pytest.mark.parametrize(("sparsity", "zeros"), [(0.0, 0), (0.1, 1), (0.5, 4), (1.0, 7)])
def test_sparse(library, sparsity, zeros):
    t = library.empty(7, 50)
    assert library.init.sparse_(t, sparsity, std=0.1) is t
    values = array(t)
    assert ((values == 0).sum(0) == zeros).all()
    if zeros < 7:
        assert abs(values[values != 0].std() / 0.1 - 1) < 0.15
    if 0 < zeros < 7:
        assert len({tuple(np.flatnonzero(column)) for column in (values.T == 0)}) > 1


# -- in general ------------------------------------------------------------------------------------

CALLS = {
    "uniform_": {},
    "normal_": {},
    "trunc_normal_": {},
    "xavier_uniform_": {},
    "xavier_normal_": {},
    "kaiming_uniform_": {},
    "kaiming_normal_": {},
    "orthogonal_": {},
}
ALL = {
    **CALLS,
    "sparse_": {"sparsity": 0.5},
    "eye_": {},
    "ones_": {},
    "zeros_": {},
    "constant_": {"val": 3},
}


@pytest.mark.parametrize("name", CALLS)
def test_generator(library, name):
    function = getattr(library.init, name)
    before = library.lib.get_rng_state()
    a = function(library.empty(4, 5), generator=library.generator(7))
    b = function(library.empty(4, 5), generator=library.generator(7))
    c = function(library.empty(4, 5), generator=library.generator(8))
    assert (a == b).all()
    assert not (a == c).all()
    after = library.lib.get_rng_state()
    assert before == after if isinstance(before, dict) else (before == after).all()


@pytest.mark.parametrize("name", ALL)
def test_meta_tensors_draw_nothing(library, name):
    t = library.empty(4, 4, device="meta")
    before = library.lib.get_rng_state()
    assert getattr(library.init, name)(t, **ALL[name]) is t
    assert t.is_meta
    after = library.lib.get_rng_state()
    assert before == after if isinstance(before, dict) else (before == after).all()
    assert library.init.dirac_(library.empty(2, 2, 2, device="meta")).is_meta


@needs_torch
def test_a_tensor_of_torch_on_meta_gets_no_values(monkeypatch):
    """torch would make other tensors on meta to fill one."""
    import torch

    for name in ("uniform_", "normal_"):
        t = torch.empty(4, 4, device="meta")
        fill = getattr(ours_init, name)
        monkeypatch.setattr(torch.Tensor, name, None)
        assert fill(t)._version == 1
        monkeypatch.undo()
        with raises(TypeError):
            fill(t, generator=3)


@pytest.mark.parametrize("name", ALL)
def test_parameters_stay_leaves(library, name):
    nn = mt.nn if library.name == "modtree" else library.lib.nn
    p = nn.Parameter(library.empty(4, 4))
    assert getattr(library.init, name)(p, **ALL[name]) is p
    assert p.requires_grad
    assert p.grad_fn is None


@pytest.mark.parametrize("name", ALL)
def test_non_contiguous(library, name):
    base = library.empty(6, 8)
    view = base.t()[:4, :4]
    getattr(library.init, name)(view, **ALL[name])
    assert (array(base)[4:] == 0).all()
    assert (array(base)[:, 4:] == 0).all()
    if name != "zeros_":
        assert (array(view) != 0).any()


@pytest.mark.parametrize("name", CALLS)
def test_integers_are_refused(library, name):
    with pytest.raises(NotImplementedError):
        getattr(library.init, name)(library.empty(3, 3, dtype="int64"))


@pytest.mark.parametrize(
    "name", ["xavier_uniform_", "xavier_normal_", "kaiming_uniform_", "kaiming_normal_"]
)
def test_fans_need_two_dimensions(library, name):
    function = getattr(library.init, name)
    with raises(
        ValueError, "Fan in and fan out can not be computed for tensor with fewer than 2 dimensions"
    ):
        function(library.empty(3))
    if name.startswith("xavier"):
        with raises(ZeroDivisionError):
            function(library.empty(0, 0))
        assert tuple(function(library.empty(0, 3)).shape) == (0, 3)
    else:
        with warns(UserWarning, "zero-element tensors is a no-op"):
            function(library.empty(0, 3))
        with raises(ValueError, "Mode fan not supported"):
            function(library.empty(2, 3), mode="fan")
        with raises(ValueError, "Unsupported nonlinearity gelu"):
            function(library.empty(2, 3), nonlinearity="gelu")


def test_shape_errors(library):
    with raises(ValueError, "Only tensors with 2 dimensions are supported"):
        library.init.eye_(library.empty(3))
    with raises(ValueError, "Only tensors with 2 dimensions are supported"):
        library.init.sparse_(library.empty(3, 3, 3), 0.5)
    with raises(ValueError, "Only tensors with 3, 4, or 5 dimensions are supported"):
        library.init.dirac_(library.empty(3, 3))
    with raises(ValueError, "dim 0 must be divisible by groups"):
        library.init.dirac_(library.empty(3, 3, 3), 2)
    with raises(ValueError, "Only tensors with 2 or more dimensions are supported"):
        library.init.orthogonal_(library.empty(3))
    t = library.empty(0, 3)
    assert library.init.orthogonal_(t) is t


GAIN_ONE = ["linear", "sigmoid", "conv1d", "conv2d", "conv3d"]
GAIN_ONE += [f"conv_transpose{n}d" for n in (1, 2, 3)]


def test_gains(library):
    gain = library.init.calculate_gain
    for name in GAIN_ONE:
        assert gain(name) == 1
        assert type(gain(name)) is int
        assert gain(name, "ignored") == 1
    assert gain("tanh") == 5 / 3
    assert gain("relu") == math.sqrt(2)
    assert gain("selu") == 0.75
    assert gain("leaky_relu") == math.sqrt(2 / (1 + 0.01**2))
    assert gain("leaky_relu", 0) == math.sqrt(2)
    assert gain("leaky_relu", 0.2) == math.sqrt(2 / 1.04)
    for bad in (True, "0.1"):
        with raises(ValueError, f"negative_slope {bad} not a valid number"):
            gain("leaky_relu", bad)
    for name in ("identity", "gelu", "ReLU", "conv4d"):
        with raises(ValueError, f"Unsupported nonlinearity {name}"):
            gain(name)


@pytest.mark.parametrize(
    ("name", "args"),
    [(n[:-1], ()) for n in CALLS if n != "trunc_normal_"]
    + [("constant", (4,)), ("eye", ()), ("sparse", (0.5,)), ("dirac", ())],
)
def test_deprecated_names(library, name, args):
    t = library.empty(4, 4, 4) if name == "dirac" else library.empty(4, 4)
    with warns(FutureWarning, f"`nn.init.{name}` is now deprecated in favor of `nn.init.{name}_`."):
        assert getattr(library.init, name)(t, *args) is t
    assert (array(t) != 0).any()


@needs("torch")
def test_public_names_are_torchs():
    import torch.nn.init

    def public(module):
        return {n for n in dir(module) if n.endswith("_") and not n.startswith("_")}

    assert public(ours_init) == public(torch.nn.init)


def test_the_warning_points_at_the_caller():
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        ours_init.kaiming_uniform_(mt.empty(0, 3))
        ours_init.trunc_normal_(mt.empty(2), mean=9.0)
        ours_init.uniform(mt.empty(2))
    assert [w.filename for w in caught] == [__file__] * 3


def test_a_value_that_is_no_tensor():
    with pytest.raises(AttributeError), quiet():
        ours_init.uniform_(None)
