# SPDX-License-Identifier: BSD-3-Clause
"""Tensors with a tangent, as in torch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

# Of torch, about what it does itself.
pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated.:DeprecationWarning")


@pytest.fixture
def fwd(lib):
    return importlib.import_module(f"{lib.__name__}.autograd.forward_ad")


def test_a_tangent_goes_through_operations(lib, fwd):
    x, t = lib.tensor([1.0, 2.0]), lib.tensor([1.0, 0.5])
    with fwd.dual_level():
        dual = fwd.make_dual(x, t)
        assert fwd.unpack_dual(dual).tangent.tolist() == [1.0, 0.5]
        value, tangent = fwd.unpack_dual(lib.sin(dual) * dual)
    np.testing.assert_allclose(value, np.sin([1, 2]) * [1, 2], rtol=1e-6)
    slope = np.cos([1, 2]) * np.array([1, 2]) + np.sin([1, 2])
    np.testing.assert_allclose(tangent, slope * [1, 0.5], rtol=1e-6)
    assert not tangent.requires_grad


def test_several_duals_and_constants(lib, fwd):
    with fwd.dual_level():
        a = fwd.make_dual(lib.tensor([2.0]), lib.tensor([1.0]))
        b = fwd.make_dual(lib.tensor([3.0]), lib.tensor([10.0]))
        found = fwd.unpack_dual(a * b * lib.tensor([2.0]))
        assert found.primal.tolist() == [12.0]
        assert found.tangent.tolist() == [46.0]
        constant = fwd.unpack_dual(lib.tensor([1.0]))
        assert constant.tangent is None


def test_a_module_with_dual_parameters(lib, fwd):
    model = lib.nn.Linear(2, 1, bias=False)
    with lib.no_grad():
        model.weight.copy_(lib.tensor([[1.0, 2.0]]))
    with fwd.dual_level():
        weight = model.weight.detach()
        del model.weight
        model.weight = fwd.make_dual(weight, lib.tensor([[1.0, 1.0]]))
        out = fwd.unpack_dual(model(lib.tensor([[3.0, 4.0]])))
    assert out.primal.tolist() == [[11.0]]
    assert out.tangent.tolist() == [[7.0]]


def test_errors(lib, fwd):
    one = lib.tensor([1.0])
    with pytest.raises(RuntimeError, match="no level exists"):
        fwd.make_dual(one, one)
    with pytest.raises(RuntimeError, match="exit a forward AD level|Dual level must"):
        fwd.exit_dual_level()
    with fwd.dual_level():
        with pytest.raises(RuntimeError, match="Nested forward mode AD is not supported"):
            fwd.enter_dual_level()
        with pytest.raises(ValueError, match="Expected primal to be floating point"):
            fwd.make_dual(lib.tensor([1]), one)
        with pytest.raises(RuntimeError):
            fwd.make_dual(one, lib.ones(2))
    assert fwd.unpack_dual(one).tangent is None


def test_a_dual_tensor_requires_grad():
    modtree = importlib.import_module("modtree")
    with modtree.autograd.forward_ad.dual_level():
        x = modtree.autograd.forward_ad.make_dual(modtree.ones(2), modtree.ones(2))
        assert x.requires_grad
        with modtree.no_grad():
            assert modtree.autograd.forward_ad.unpack_dual(x * 2).tangent is None
