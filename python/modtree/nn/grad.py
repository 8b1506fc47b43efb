# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of convolutions as functions, for programs that write a backward of their own."""

from __future__ import annotations

from typing import Any

from modtree._C import is_grad_enabled
from modtree._tensor.creation import zeros
from modtree._tensor.grad_mode import enable_grad
from modtree._tensor.tensor import Tensor
from modtree.autograd.engine import grad
from modtree.nn import functional as F

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
]


def _gradient(n: int, of_input: bool, sizes: Any, other: Any, grad_output: Any, how: Any) -> Tensor:
    # A convolution is linear in both: where it is derived does not matter.
    keep = is_grad_enabled()
    with enable_grad():
        x = zeros(tuple(sizes), dtype=grad_output.dtype, requires_grad=True)
        pair = (x, other) if of_input else (other, x)
        result = getattr(F, f"conv{n}d")(*pair, None, *how)
        return grad(result, x, grad_output, create_graph=keep)[0]


def conv1d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of ``conv1d`` in its input.

    Args:
        input_size: The shape of the input.
        weight: The weight of the convolution.
        grad_output: The gradient of its result.
        stride: As of the convolution, like all that follow.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    how = (stride, padding, dilation, groups)
    return _gradient(1, True, input_size, weight, grad_output, how)


def conv1d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of ``conv1d`` in its weight.

    Args:
        input: The input of the convolution.
        weight_size: The shape of the weight.
        grad_output: The gradient of the result.
        stride: As of the convolution, like all that follow.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    how = (stride, padding, dilation, groups)
    return _gradient(1, False, weight_size, input, grad_output, how)


def conv2d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of ``conv2d`` in its input.

    Args:
        input_size: The shape of the input.
        weight: The weight of the convolution.
        grad_output: The gradient of its result.
        stride: As of the convolution, like all that follow.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    how = (stride, padding, dilation, groups)
    return _gradient(2, True, input_size, weight, grad_output, how)


def conv2d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of ``conv2d`` in its weight.

    Args:
        input: The input of the convolution.
        weight_size: The shape of the weight.
        grad_output: The gradient of the result.
        stride: As of the convolution, like all that follow.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    how = (stride, padding, dilation, groups)
    return _gradient(2, False, weight_size, input, grad_output, how)


def conv3d_input(
    input_size: Any,
    weight: Tensor,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of ``conv3d`` in its input.

    Args:
        input_size: The shape of the input.
        weight: The weight of the convolution.
        grad_output: The gradient of its result.
        stride: As of the convolution, like all that follow.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    how = (stride, padding, dilation, groups)
    return _gradient(3, True, input_size, weight, grad_output, how)


def conv3d_weight(
    input: Tensor,
    weight_size: Any,
    grad_output: Tensor,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Tensor:
    """The gradient of ``conv3d`` in its weight.

    Args:
        input: The input of the convolution.
        weight_size: The shape of the weight.
        grad_output: The gradient of the result.
        stride: As of the convolution, like all that follow.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    how = (stride, padding, dilation, groups)
    return _gradient(3, False, weight_size, input, grad_output, how)
