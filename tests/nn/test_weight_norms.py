# SPDX-License-Identifier: BSD-3-Clause
"""nn.utils.weight_norm and spectral_norm: names, values, gradients and steps are torch's."""

from __future__ import annotations

import copy

import numpy as np
import pytest
from helpers.small_modules import linear, values

import modtree as mt

torch = pytest.importorskip("torch")

pytestmark = pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")

LAYERS = {
    "Linear": ((4, 3), (2, 4)),
    "Conv1d": ((2, 3, 3), (2, 2, 7)),
    "Conv2d": ((2, 3, 3), (2, 2, 5, 5)),
    "ConvTranspose2d": ((2, 3, 3), (2, 2, 4, 4)),
}


def pair(kind, wrap):
    """The wrapped layer in both libraries, with one state."""
    args, _ = LAYERS[kind]
    layers = []
    for lib in (mt, torch):
        layers.append(wrap(lib, getattr(lib.nn, kind)(*args).double()))
    ours, theirs = layers
    state = {k: mt.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}
    assert list(ours.state_dict()) == list(state)
    ours.load_state_dict(state)
    return layers


def assert_same(ours, theirs):
    np.testing.assert_allclose(
        ours.detach().numpy(), theirs.detach().numpy(), rtol=1e-10, atol=1e-12
    )


def train_alike(kind, layers):
    x = np.random.default_rng(0).standard_normal(LAYERS[kind][1])
    optimizers = [
        lib.optim.SGD(layer.parameters(), lr=0.1)
        for lib, layer in zip((mt, torch), layers, strict=True)
    ]
    for _ in range(3):
        outs = []
        for lib, layer, optimizer in zip((mt, torch), layers, optimizers, strict=True):
            outs.append(layer(lib.from_numpy(x)))
            optimizer.zero_grad()
            outs[-1].pow(2).mean().backward()
            optimizer.step()
        assert_same(*outs)
        names = [[n for n, _ in layer.named_parameters()] for layer in layers]
        assert names[0] == names[1]
        for p, q in zip(*(layer.parameters() for layer in layers), strict=True):
            assert_same(p.grad, q.grad)
    for p, q in zip(*(layer.state_dict().values() for layer in layers), strict=True):
        assert_same(p, q)
    for layer in layers:
        layer.eval()
    assert_same(*(layer(lib.from_numpy(x)) for lib, layer in zip((mt, torch), layers, strict=True)))


@pytest.mark.parametrize("dim", [0, 1, None])
@pytest.mark.parametrize("kind", LAYERS)
def test_weight_norm(kind, dim):
    layers = pair(kind, lambda lib, layer: lib.nn.utils.weight_norm(layer, dim=dim))
    train_alike(kind, layers)
    for lib, layer in zip((mt, torch), layers, strict=True):
        lib.nn.utils.remove_weight_norm(layer)
    assert [n for n, _ in layers[0].named_parameters()] == [
        n for n, _ in layers[1].named_parameters()
    ]
    assert_same(layers[0].weight, layers[1].weight)


@pytest.mark.parametrize("iterations", [1, 3])
@pytest.mark.parametrize("kind", LAYERS)
def test_spectral_norm(kind, iterations):
    layers = pair(
        kind, lambda lib, layer: lib.nn.utils.spectral_norm(layer, n_power_iterations=iterations)
    )
    train_alike(kind, layers)
    for lib, layer in zip((mt, torch), layers, strict=True):
        lib.nn.utils.remove_spectral_norm(layer)
    assert list(layers[0].state_dict()) == list(layers[1].state_dict())
    assert_same(layers[0].weight, layers[1].weight)


def test_new_weights_are_the_old_ones():
    for lib in (mt, torch):
        layer = lib.nn.Linear(3, 2)
        before = layer.weight.detach().clone()
        lib.nn.utils.weight_norm(layer)
        np.testing.assert_allclose(layer.weight.detach().numpy(), before.numpy(), rtol=1e-6)
        layer = lib.nn.utils.spectral_norm(lib.nn.Linear(3, 2).double(), n_power_iterations=60)
        layer(lib.ones(1, 3).double())
        largest = np.linalg.norm(layer.weight.detach().numpy(), 2)
        assert largest == pytest.approx(1.0, abs=1e-6)


def test_errors():
    for lib in (mt, torch):
        utils = lib.nn.utils
        layer = utils.weight_norm(lib.nn.Linear(2, 2))
        with pytest.raises(RuntimeError, match="Cannot register two weight_norm hooks"):
            utils.weight_norm(layer)
        layer = utils.spectral_norm(lib.nn.Linear(2, 2))
        with pytest.raises(RuntimeError, match="Cannot register two spectral_norm hooks"):
            utils.spectral_norm(layer)
        with pytest.raises(ValueError, match="n_power_iterations"):
            utils.spectral_norm(lib.nn.Linear(2, 2), n_power_iterations=0)
        with pytest.raises(ValueError, match="not found"):
            utils.remove_weight_norm(lib.nn.Linear(2, 2))
        with pytest.raises(ValueError, match="not found"):
            utils.remove_spectral_norm(lib.nn.Linear(2, 2))


def test_copies_are_independent():
    layer = mt.nn.utils.spectral_norm(mt.nn.Linear(3, 3))
    other = copy.deepcopy(layer)
    x = mt.ones(1, 3)
    before = other.weight_u.tolist()
    layer(x)
    assert other.weight_u.tolist() == before != layer.weight_u.tolist()
    other(x)
    assert other(x).tolist() == layer(x).tolist()


# -- with the tensors of any library ---------------------------------------------------------------


@pytest.mark.parametrize("wrapper", ["weight_norm", "spectral_norm"])
def test_tensors_of_any_library(impl, wrapper):
    utils = impl.nn.utils
    layer = linear(impl)
    before = layer.weight.detach().clone()
    getattr(utils, wrapper)(layer)
    x = values(impl, 4, 3, seed=2)
    for _ in range(30):
        out = layer(x)
    out.sum().backward()
    size = 1.0 if wrapper == "weight_norm" else np.linalg.norm(before.numpy(), 2)
    np.testing.assert_allclose(layer.weight.detach().numpy(), before.numpy() / size, rtol=1e-6)
    assert all(p.grad is not None for p in layer.parameters())
    getattr(utils, f"remove_{wrapper}")(layer)
    assert isinstance(layer.weight, impl.nn.Parameter)
    assert sorted(layer.state_dict()) == ["bias", "scale", "weight"]


def test_weight_norm_is_deprecated(impl):
    with pytest.warns(FutureWarning, match="parametrizations.weight_norm"):
        impl.nn.utils.weight_norm(linear(impl))


def test_version_of_spectral_norm(impl):
    layer = impl.nn.utils.spectral_norm(linear(impl))
    assert layer.state_dict()._metadata[""]["spectral_norm"] == {"weight.version": 1}


def earliest_state(impl, layer):
    """A state dict from before ``v`` was kept."""
    layer(values(impl, 2, 3))
    state = layer.state_dict()
    state["weight"] = layer.weight.detach().clone()
    del state["weight_v"]
    del state._metadata[""]["spectral_norm"]
    return state


def test_spectral_norm_loads_the_earliest_state_dicts(impl):
    layer, other = (impl.nn.utils.spectral_norm(linear(impl)) for _ in range(2))
    with impl.lib.no_grad():
        layer.weight_orig.mul_(3)
    state = earliest_state(impl, layer)
    other.load_state_dict(state)
    x = values(impl, 2, 3, seed=4)
    np.testing.assert_allclose(
        other.eval()(x).detach().numpy(), layer.eval()(x).detach().numpy(), rtol=1e-10
    )
    state = earliest_state(impl, layer)
    del state["weight_u"]
    with pytest.raises(RuntimeError, match=r"Missing key.*weight_u"):
        other.load_state_dict(state)
    state = layer.state_dict()
    del state._metadata[""]["spectral_norm"]
    other.load_state_dict(state)


def test_removed_spectral_norm_leaves_no_hook(ours):
    layer = ours.nn.utils.spectral_norm(linear(ours))
    ours.nn.utils.remove_spectral_norm(layer)
    assert not layer._load_state_dict_pre_hooks and not layer._state_dict_hooks
    assert "spectral_norm" not in layer.state_dict()._metadata[""]
