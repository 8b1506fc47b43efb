# SPDX-License-Identifier: BSD-3-Clause
"""A layer and the batch normalization behind it as one layer, for evaluation."""

from __future__ import annotations

import copy
from typing import Any

from modtree.nn.utils._library import family_of, library_of

__all__ = [
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
]


def _check_eval(layer: Any, bn: Any) -> None:
    if layer.training or bn.training:
        raise AssertionError("Fusion only for eval! Call .eval() on both first")
    if bn.running_mean is None or bn.running_var is None:
        raise AssertionError(
            "bn.running_mean and bn.running_var must not be None: without them the layer uses "
            "statistics of its batch"
        )


def _fused(
    weight: Any, bias: Any, mean: Any, var: Any, eps: float, stretch: Any, shift: Any, shape: Any
) -> tuple[Any, Any]:
    """Weight and bias of the layer, whose channels are a weight's dimension that is not 1 in
    ``shape``.
    """
    library = library_of(weight)
    needed = [weight.requires_grad, bias is not None and bias.requires_grad]
    kinds = [weight.dtype, weight.dtype if bias is None else bias.dtype]
    scale = (var + eps).rsqrt()
    if stretch is not None:
        scale = scale * stretch
    bias = library.zeros_like(mean) if bias is None else bias
    shift = library.zeros_like(mean) if shift is None else shift
    parts = [weight * scale.reshape(shape), (bias - mean) * scale + shift]
    weight, bias = (
        family_of(part).make_parameter(part.to(dtype=kind), flag)
        for part, kind, flag in zip(parts, kinds, needed, strict=True)
    )
    return weight, bias


def fuse_conv_bn_weights(
    conv_w: Any,
    conv_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
    transpose: bool = False,
) -> tuple[Any, Any]:
    """Weight and bias of a convolution that does what a convolution and a normalization do.

    Args:
        conv_w: The weight of the convolution.
        conv_b: Its bias, or None.
        bn_rm: The running mean.
        bn_rv: The running variance.
        bn_eps: What is added to the variance.
        bn_w: The weight of the normalization, or None.
        bn_b: Its bias, or None.
        transpose: It is a transposed convolution.
    """
    shape = [1] * conv_w.ndim
    shape[1 if transpose else 0] = -1
    return _fused(conv_w, conv_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, shape)


def fuse_linear_bn_weights(
    linear_w: Any,
    linear_b: Any,
    bn_rm: Any,
    bn_rv: Any,
    bn_eps: float,
    bn_w: Any,
    bn_b: Any,
) -> tuple[Any, Any]:
    """Weight and bias of a linear layer that does what a linear layer and a normalization do.

    Args:
        linear_w: The weight of the linear layer.
        linear_b: Its bias, or None.
        bn_rm: The running mean.
        bn_rv: The running variance.
        bn_eps: What is added to the variance.
        bn_w: The weight of the normalization, or None.
        bn_b: Its bias, or None.
    """
    return _fused(linear_w, linear_b, bn_rm, bn_rv, bn_eps, bn_w, bn_b, (-1, 1))


def fuse_conv_bn_eval(conv: Any, bn: Any, transpose: bool = False) -> Any:
    """A convolution that does what a convolution and the batch normalization behind it do.

    Args:
        conv: The convolution, in eval mode; stays as it is.
        bn: The normalization, in eval mode.
        transpose: It is a transposed convolution.

    Raises:
        AssertionError: One of them is in training mode, or there are no running statistics.

    Example:
        >>> conv, bn = nn.Conv2d(2, 3, 3).eval(), nn.BatchNorm2d(3).eval()
        >>> x = mt.randn(1, 2, 5, 5)
        >>> fused = nn.utils.fuse_conv_bn_eval(conv, bn)
        >>> mt.allclose(fused(x), bn(conv(x)), atol=1e-5)
        True
    """
    _check_eval(conv, bn)
    fused = copy.deepcopy(conv)
    fused.weight, fused.bias = fuse_conv_bn_weights(
        fused.weight,
        fused.bias,
        bn.running_mean,
        bn.running_var,
        bn.eps,
        bn.weight,
        bn.bias,
        transpose,
    )
    return fused


def fuse_linear_bn_eval(linear: Any, bn: Any) -> Any:
    """A linear layer that does what a linear layer and the batch normalization behind it do.

    Args:
        linear: The linear layer, in eval mode; stays as it is.
        bn: The normalization, in eval mode, of as many features, or of one.

    Raises:
        AssertionError: One of them is in training mode, there are no running statistics, or the
            numbers of features do not fit.
    """
    if bn.num_features not in (linear.out_features, 1):
        raise AssertionError(
            f"To fuse, linear.out_features == bn.num_features or bn.num_features == 1, got "
            f"linear.out_features={linear.out_features} and bn.num_features={bn.num_features}"
        )
    _check_eval(linear, bn)
    fused = copy.deepcopy(linear)
    fused.weight, fused.bias = fuse_linear_bn_weights(
        fused.weight, fused.bias, bn.running_mean, bn.running_var, bn.eps, bn.weight, bn.bias
    )
    return fused
