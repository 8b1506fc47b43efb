# SPDX-License-Identifier: BSD-3-Clause
"""nn.utils.fusion."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from helpers.small_modules import array, values


def layers_of(lib, kind, bias, affine, features=3):
    dims = int(kind[-2]) if kind != "Linear" else 1
    if kind == "Linear":
        layer = lib.nn.Linear(4, 3, bias=bias)
        shape = (5, 4)
    else:
        layer = getattr(lib.nn, kind)(2, 3, 2, bias=bias)
        shape = (2, 2, *[5] * dims)
    bn = getattr(lib.nn, f"BatchNorm{dims}d")(features, affine=affine, eps=0.1)
    rng = np.random.default_rng(0)
    for each in (layer, bn):
        each.double()
        with lib.no_grad():
            for tensor in [*each.parameters(), *each.buffers()]:
                if tensor.is_floating_point():
                    tensor.copy_(lib.tensor(rng.uniform(0.5, 2, tuple(tensor.shape))))
    return layer.eval(), bn.eval(), lib.tensor(rng.standard_normal(shape))


KINDS = ["Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d"]


@pytest.mark.parametrize(("kind", "bias"), list(itertools.product(KINDS, [True, False])))
def test_one_layer_does_what_both_do(lib, kind, bias):
    layer, bn, x = layers_of(lib, kind, bias, affine=True)
    before = array(layer.weight).copy()
    if kind == "Linear":
        fused = lib.nn.utils.fuse_linear_bn_eval(layer, bn)
    else:
        fused = lib.nn.utils.fuse_conv_bn_eval(layer, bn, transpose="Transpose" in kind)
    assert type(fused) is type(layer) and fused is not layer
    np.testing.assert_allclose(array(fused(x)), array(bn(layer(x))))
    np.testing.assert_array_equal(array(layer.weight), before)
    assert isinstance(fused.weight, lib.nn.Parameter) and fused.weight.requires_grad
    assert isinstance(fused.bias, lib.nn.Parameter) and fused.bias.requires_grad == bias


def test_normalization_without_weights(lib):
    conv, bn, x = layers_of(lib, "Conv2d", bias=True, affine=False)
    fused = lib.nn.utils.fuse_conv_bn_eval(conv, bn)
    np.testing.assert_allclose(array(fused(x)), array(bn(conv(x))))


def test_dtypes_stay(lib):
    conv, bn, _ = layers_of(lib, "Conv2d", bias=True, affine=True)
    fused = lib.nn.utils.fuse_conv_bn_eval(conv.half(), bn)
    assert fused.weight.dtype == fused.bias.dtype == lib.float16


def test_errors_of_fusion(lib):
    conv, bn, _ = layers_of(lib, "Conv2d", bias=True, affine=True)
    linear, bn1, _ = layers_of(lib, "Linear", bias=True, affine=True)
    utils = lib.nn.utils
    for fuse, layer, norm in (
        (utils.fuse_conv_bn_eval, conv, bn),
        (utils.fuse_linear_bn_eval, linear, bn1),
    ):
        for each in (layer, norm):
            each.train()
            with pytest.raises(AssertionError, match="Fusion only for eval!"):
                fuse(layer, norm)
            each.eval()
    bn1 = lib.nn.BatchNorm1d(2).eval()
    with pytest.raises(AssertionError, match=r"linear.out_features=3 and bn.num_features=2"):
        utils.fuse_linear_bn_eval(linear, bn1)
    for fuse, layer, norm in (
        (utils.fuse_conv_bn_eval, conv, lib.nn.BatchNorm2d(3, track_running_stats=False)),
        (utils.fuse_linear_bn_eval, linear, lib.nn.BatchNorm1d(3, track_running_stats=False)),
    ):
        with pytest.raises(AssertionError, match="must not be None"):
            fuse(layer, norm.eval())


@pytest.mark.parametrize("transpose", [False, True])
def test_weights_alone(impl, transpose):
    utils = importlib.import_module(f"{impl.nn.__name__}.utils.fusion")
    shape = (2, 3, 4) if transpose else (3, 2, 4)
    weight = impl.nn.Parameter(values(impl, *shape))
    bias = impl.nn.Parameter(values(impl, 3, seed=1), requires_grad=False)
    mean, shift = values(impl, 3, seed=2), values(impl, 3, seed=3)
    var, stretch = values(impl, 3, seed=4).abs(), values(impl, 3, seed=5)
    new = utils.fuse_conv_bn_weights(weight, bias, mean, var, 0.1, stretch, shift, transpose)
    scale = array(stretch) / np.sqrt(array(var) + 0.1)
    around = scale[:, None] if transpose else scale[:, None, None]
    np.testing.assert_allclose(array(new[0]), array(weight) * around)
    np.testing.assert_allclose(array(new[1]), (array(bias - mean)) * scale + array(shift))
    assert all(isinstance(p, impl.nn.Parameter) for p in new)
    assert [p.requires_grad for p in new] == [True, False]
    new = utils.fuse_linear_bn_weights(
        weight[..., 0].mT if transpose else weight[..., 0], None, mean, var, 0.1, stretch, shift
    )
    assert tuple(new[0].shape) == (3, 2) and not new[1].requires_grad
    np.testing.assert_allclose(array(new[1]), -array(mean) * scale + array(shift))
