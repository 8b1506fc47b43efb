# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of convolutions as functions, for programs that write a backward of their own."""

from __future__ import annotations

from typing import Any, Protocol

from modtree._C import as_tuple, is_grad_enabled
from modtree._tensor.creation import zeros
from modtree._tensor.engine import grad
from modtree._tensor.grad_mode import enable_grad
from modtree._tensor.tensor import Tensor
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
        x = zeros(as_tuple(sizes), dtype=grad_output.dtype, requires_grad=True)
        pair = (x, other) if of_input else (other, x)
        result = getattr(F, f"conv{n}d")(*pair, None, *how)
        return grad(result, x, grad_output, create_graph=keep)[0]


class _OfInput(Protocol):
    def __call__(
        self,
        input_size: Any,
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor: ...


class _OfWeight(Protocol):
    def __call__(
        self,
        input: Tensor,
        weight_size: Any,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor: ...


def _of_input(n: int) -> _OfInput:
    def gradient(
        input_size: Any,
        weight: Tensor,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        how = (stride, padding, dilation, groups)
        return _gradient(n, True, input_size, weight, grad_output, how)

    return _described(
        gradient,
        f"conv{n}d_input",
        f"""The gradient of ``conv{n}d`` in its input.

    Args:
        input_size: The shape of the input.
        weight: The weight of the convolution.
        grad_output: The gradient of its result.
""",
    )


def _of_weight(n: int) -> _OfWeight:
    def gradient(
        input: Tensor,
        weight_size: Any,
        grad_output: Tensor,
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Tensor:
        how = (stride, padding, dilation, groups)
        return _gradient(n, False, weight_size, input, grad_output, how)

    return _described(
        gradient,
        f"conv{n}d_weight",
        f"""The gradient of ``conv{n}d`` in its weight.

    Args:
        input: The input of the convolution.
        weight_size: The shape of the weight.
        grad_output: The gradient of the result.
""",
    )


def _described(function: Any, name: str, text: str) -> Any:
    function.__name__ = function.__qualname__ = name
    function.__doc__ = f"""{text}        stride: As of the convolution, like all that follow.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    return function


conv1d_input, conv1d_weight = _of_input(1), _of_weight(1)
conv2d_input, conv2d_weight = _of_input(2), _of_weight(2)
conv3d_input, conv3d_weight = _of_input(3), _of_weight(3)
