# SPDX-License-Identifier: BSD-3-Clause
"""Linear and bilinear layers."""

from __future__ import annotations

import math
from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn import init
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.parameter import OptionalParameter, Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["Bilinear", "Identity", "Linear"]


class Identity(Module):
    """Returns its input; takes and ignores any arguments.

    Example:
        >>> x = mt.ones(3)
        >>> nn.Identity(54, unused=True)(x) is x
        True

    Shape:
        - input and output: any shape, the same.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()

    def forward(self, input: Any) -> Any:
        return input


class Linear(Module):
    """``x @ weight.T + bias`` on the last axis.

    Args:
        in_features: Size of the last axis of the input.
        out_features: Size of the last axis of the output.
        bias: False leaves the bias out (``layer.bias`` is None).
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters: ``weight`` (out_features, in_features) and ``bias`` (out_features), both uniform in
    plus or minus ``1 / sqrt(in_features)``.

    Shape:
        - input: (..., in_features).
        - output: (..., out_features).
    """

    in_features: int
    out_features: int
    weight: Tensor
    bias: OptionalParameter

    def __init__(
        self,
        in_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        self.in_features = in_features
        self.out_features = out_features
        self.weight = Parameter(empty((out_features, in_features), device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters anew: the weight first, then the bias."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))  # bound 1 / sqrt(in_features)
        if self.bias is not None:
            bound = 1 / math.sqrt(self.in_features) if self.in_features > 0 else 0
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor) -> Tensor:
        return F.linear(input, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}"
        )


class NonDynamicallyQuantizableLinear(Linear):
    """What attention calls its output projection, so that a printed model reads as in torch."""


class Bilinear(Module):
    """``x1 A x2 + b`` with a matrix A and a number b for each output.

    Args:
        in1_features: Size of the last axis of the first input.
        in2_features: Size of the last axis of the second input.
        out_features: Size of the last axis of the output.
        bias: False leaves the bias out (``layer.bias`` is None).
        device: Where the parameters are made.
        dtype: Their dtype.

    Parameters: ``weight`` (out_features, in1_features, in2_features) and ``bias`` (out_features),
    both uniform in plus or minus ``1 / sqrt(in1_features)``.

    Shape:
        - input1 and input2: (..., in1_features) and (..., in2_features).
        - output: (..., out_features).
    """

    in1_features: int
    in2_features: int
    out_features: int
    weight: Tensor
    bias: OptionalParameter

    def __init__(
        self,
        in1_features: int,
        in2_features: int,
        out_features: int,
        bias: bool = True,
        device: Any = None,
        dtype: Any = None,
    ) -> None:
        super().__init__()
        if in1_features <= 0:
            raise ValueError(f"in1_features must be > 0, but got (in1_features={in1_features})")
        self.in1_features = in1_features
        self.in2_features = in2_features
        self.out_features = out_features
        shape = (out_features, in1_features, in2_features)
        self.weight = Parameter(empty(shape, device=device, dtype=dtype))
        if bias:
            self.bias = Parameter(empty(out_features, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters anew: the weight first, then the bias."""
        bound = 1 / math.sqrt(self.weight.size(1))
        init.uniform_(self.weight, -bound, bound)
        if self.bias is not None:
            init.uniform_(self.bias, -bound, bound)

    def forward(self, input1: Tensor, input2: Tensor) -> Tensor:
        return F.bilinear(input1, input2, self.weight, self.bias)

    def extra_repr(self) -> str:
        return (
            f"in1_features={self.in1_features}, in2_features={self.in2_features}, "
            f"out_features={self.out_features}, bias={self.bias is not None}"
        )
