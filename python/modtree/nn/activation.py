# SPDX-License-Identifier: BSD-3-Clause
"""Activation functions of each value as modules; those along an axis are in ``softmax.py``."""

from __future__ import annotations

import warnings
from typing import Any

from modtree.core.module import Module
from modtree.nn import functional as F
from modtree.nn import init
from modtree.numpy.tensor.creation import empty
from modtree.numpy.tensor.parameter import Parameter
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "CELU",
    "ELU",
    "GELU",
    "SELU",
    "Hardshrink",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "LeakyReLU",
    "LogSigmoid",
    "Mish",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SiLU",
    "Sigmoid",
    "Softplus",
    "Softshrink",
    "Softsign",
    "Tanh",
    "Tanhshrink",
    "Threshold",
]


def _note(inplace: bool) -> str:
    return ", inplace=True" if inplace else ""


# -- with nothing to set, or only inplace ----------------------------------------------------------


class _Inplace(Module):
    inplace: bool

    def __init__(self, inplace: bool = False) -> None:
        super().__init__()
        self.inplace = inplace

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Tanh(Module):
    """Hyperbolic tangent.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanh(input)


class Sigmoid(Module):
    """``1 / (1 + exp(-x))``.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.sigmoid(input)


class LogSigmoid(Module):
    """``log(sigmoid(x))``, computed without overflow.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.logsigmoid(input)


class Softsign(Module):
    """``x / (1 + |x|)``.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softsign(input)


class Tanhshrink(Module):
    """``x - tanh(x)``.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.tanhshrink(input)


class ReLU(_Inplace):
    """``max(x, 0)``; ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.relu(input, inplace=self.inplace)


class SiLU(_Inplace):
    """``x * sigmoid(x)`` (Elfwing et al., 2017); ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.silu(input, inplace=self.inplace)


class Mish(_Inplace):
    """``x * tanh(softplus(x))`` (Misra, 2019); ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.mish(input, inplace=self.inplace)


class SELU(_Inplace):
    """ELU with the scale and alpha that keep mean 0 and variance 1 (Klambauer et al., 2017);
    ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.selu(input, self.inplace)


class Hardswish(_Inplace):
    """``x * relu6(x + 3) / 6`` (Howard et al., 2019); ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardswish(input, self.inplace)

    def extra_repr(self) -> str:
        return ""  # as torch prints it


class Hardsigmoid(_Inplace):
    """``relu6(x + 3) / 6``; ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardsigmoid(input, self.inplace)

    def extra_repr(self) -> str:
        return ""  # as torch prints it


# -- with numbers ----------------------------------------------------------------------------------


class GELU(Module):
    """``x * Phi(x)`` (Hendrycks and Gimpel, 2016); ``approximate="tanh"`` for its approximation by
    tanh.

    Shape:
        - input and output: any shape, the same.
    """

    approximate: str

    def __init__(self, approximate: str = "none") -> None:
        super().__init__()
        self.approximate = approximate

    def forward(self, input: Tensor) -> Tensor:
        return F.gelu(input, approximate=self.approximate)

    def extra_repr(self) -> str:
        return f"approximate={self.approximate!r}"


class LeakyReLU(Module):
    """x where it is positive, else ``negative_slope * x`` (Maas et al., 2013); ``inplace=True``
    writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    negative_slope: float
    inplace: bool

    def __init__(self, negative_slope: float = 1e-2, inplace: bool = False) -> None:
        super().__init__()
        self.negative_slope = negative_slope
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.leaky_relu(input, self.negative_slope, self.inplace)

    def extra_repr(self) -> str:
        return f"negative_slope={self.negative_slope}{_note(self.inplace)}"


class _Exponential(Module):
    alpha: float
    inplace: bool

    def __init__(self, alpha: float = 1.0, inplace: bool = False) -> None:
        super().__init__()
        self.alpha = alpha
        self.inplace = inplace

    def extra_repr(self) -> str:
        return f"alpha={self.alpha}{_note(self.inplace)}"


class ELU(_Exponential):
    """x where it is positive, else ``alpha * (exp(x) - 1)`` (Clevert et al., 2015);
    ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.elu(input, self.alpha, self.inplace)


class CELU(_Exponential):
    """x where it is positive, else ``alpha * (exp(x / alpha) - 1)`` (Barron, 2017);
    ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.celu(input, self.alpha, self.inplace)


class Softplus(Module):
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above the threshold.

    Shape:
        - input and output: any shape, the same.
    """

    beta: float
    threshold: float

    def __init__(self, beta: float = 1.0, threshold: float = 20.0) -> None:
        super().__init__()
        self.beta = beta
        self.threshold = threshold

    def forward(self, input: Tensor) -> Tensor:
        return F.softplus(input, self.beta, self.threshold)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, threshold={self.threshold}"


class _Shrink(Module):
    lambd: float

    def __init__(self, lambd: float = 0.5) -> None:
        super().__init__()
        self.lambd = lambd

    def extra_repr(self) -> str:
        return str(self.lambd)


class Hardshrink(_Shrink):
    """x where ``|x| > lambd``, else 0.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.hardshrink(input, self.lambd)


class Softshrink(_Shrink):
    """x moved towards 0 by ``lambd``; 0 where ``|x| <= lambd``.

    Shape:
        - input and output: any shape, the same.
    """

    def forward(self, input: Tensor) -> Tensor:
        return F.softshrink(input, self.lambd)


class Hardtanh(Module):
    """x limited to [min_val, max_val]; ``inplace=True`` writes into the input. ``min_value`` and
    ``max_value`` are old names.

    Args:
        min_val: The lower bound.
        max_val: The upper bound.
        inplace: Write into the input.
        min_value: Deprecated: the old name of ``min_val``.
        max_value: Deprecated: the old name of ``max_val``.

    Shape:
        - input and output: any shape, the same.
    """

    min_val: float
    max_val: float
    inplace: bool

    def __init__(
        self,
        min_val: float = -1.0,
        max_val: float = 1.0,
        inplace: bool = False,
        min_value: float | None = None,
        max_value: float | None = None,
    ) -> None:
        super().__init__()
        if min_value is not None:
            _warn_of_old_name("min_value", "min_val")
            min_val = min_value
        if max_value is not None:
            _warn_of_old_name("max_value", "max_val")
            max_val = max_value
        self.min_val = min_val
        self.max_val = max_val
        self.inplace = inplace
        if not self.max_val > self.min_val:
            raise AssertionError(f"max_val ({max_val}) must be greater than min_val ({min_val})")

    def forward(self, input: Tensor) -> Tensor:
        return F.hardtanh(input, self.min_val, self.max_val, self.inplace)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}{_note(self.inplace)}"


def _warn_of_old_name(old: str, new: str) -> None:
    warnings.warn(
        f"keyword argument `{old}` is deprecated and renamed to `{new}`",
        FutureWarning,
        stacklevel=3,
    )


class ReLU6(Hardtanh):
    """``min(max(x, 0), 6)``; ``inplace=True`` writes into the input.

    Shape:
        - input and output: any shape, the same.
    """

    def __init__(self, inplace: bool = False) -> None:
        super().__init__(0.0, 6.0, inplace)

    def extra_repr(self) -> str:
        return "inplace=True" if self.inplace else ""


class Threshold(Module):
    """x where it is above the threshold, else ``value``; ``inplace=True`` writes into the input.

    Args:
        threshold: What values have to be above.
        value: What the others become.
        inplace: Write into the input.

    Shape:
        - input and output: any shape, the same.
    """

    threshold: float
    value: float
    inplace: bool

    def __init__(self, threshold: float, value: float, inplace: bool = False) -> None:
        super().__init__()
        self.threshold = threshold
        self.value = value
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.threshold(input, self.threshold, self.value, self.inplace)

    def extra_repr(self) -> str:
        return f"threshold={self.threshold}, value={self.value}{_note(self.inplace)}"


class RReLU(Module):
    """Leaky ReLU with a slope for each value, drawn from [lower, upper] while training, else their
    mean (Xu et al., 2015).

    Args:
        lower: The smallest slope.
        upper: The largest slope.
        inplace: Write into the input.

    Shape:
        - input and output: any shape, the same.
    """

    lower: float
    upper: float
    inplace: bool

    def __init__(
        self, lower: float = 1.0 / 8, upper: float = 1.0 / 3, inplace: bool = False
    ) -> None:
        super().__init__()
        self.lower = lower
        self.upper = upper
        self.inplace = inplace

    def forward(self, input: Tensor) -> Tensor:
        return F.rrelu(input, self.lower, self.upper, self.training, self.inplace)

    def extra_repr(self) -> str:
        return f"lower={self.lower}, upper={self.upper}{_note(self.inplace)}"


class PReLU(Module):
    """x where it is positive, else ``weight * x`` with learned slopes (He et al., 2015).

    Args:
        num_parameters: 1, or the number of channels (second axis of the input).
        init: Starting value of the slopes.
        device: Where they are made.
        dtype: Their dtype.

    Parameter: ``weight`` (num_parameters).

    Shape:
        - input and output: (N, C, ...) or any shape, the same.
    """

    num_parameters: int

    def __init__(
        self, num_parameters: int = 1, init: float = 0.25, device: Any = None, dtype: Any = None
    ) -> None:
        self.num_parameters = num_parameters
        super().__init__()
        self.init = init
        self.weight = Parameter(empty(num_parameters, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Sets all slopes to their starting value."""
        init.constant_(self.weight, self.init)

    def forward(self, input: Tensor) -> Tensor:
        return F.prelu(input, self.weight)

    def extra_repr(self) -> str:
        return f"num_parameters={self.num_parameters}"
