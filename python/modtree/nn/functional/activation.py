# SPDX-License-Identifier: BSD-3-Clause
"""Activations."""

from __future__ import annotations

import warnings
from typing import Any

from modtree._C import as_dtype, fitted_number
from modtree.nn.functional._common import checked_dim, need_tensor
from modtree.numpy.argument_types import DType
from modtree.numpy.ops import activation as activation_ops
from modtree.numpy.tensor.creation import empty_like, zeros_like
from modtree.numpy.tensor.dtypes import finfo
from modtree.numpy.tensor.grad_mode import is_grad_enabled, no_grad
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "celu",
    "celu_",
    "elu",
    "elu_",
    "gelu",
    "glu",
    "gumbel_softmax",
    "hardshrink",
    "hardsigmoid",
    "hardswish",
    "hardtanh",
    "hardtanh_",
    "leaky_relu",
    "leaky_relu_",
    "log_softmax",
    "logsigmoid",
    "mish",
    "prelu",
    "relu",
    "relu6",
    "relu_",
    "rrelu",
    "rrelu_",
    "selu",
    "selu_",
    "sigmoid",
    "silu",
    "softmax",
    "softmin",
    "softplus",
    "softshrink",
    "softsign",
    "tanh",
    "tanhshrink",
    "threshold",
    "threshold_",
]

# Klambauer et al., 2017: with these, activations keep mean 0 and variance 1.
_SELU_ALPHA = 1.6732632423543772848170429916717
_SELU_SCALE = 1.0507009873554804934193349852946
#: What is below fits into float32.
_LARGE = 1e38


def _check_numbers(input: Tensor, *numbers: Any, of_integers: bool = False) -> None:
    """RuntimeError for numbers that are beyond the dtype; kernels of float16 take float32."""
    if not input.is_floating_point() and not of_integers:
        return  # what has no kernel for integers says so
    for number in numbers:
        if not -_LARGE < number < _LARGE:
            is_half = input.dtype.name == "float16"
            fitted_number(number, as_dtype("float32") if is_half else input.dtype)


def _run(operation: Any, input: Tensor, *options: Any, inplace: bool) -> Tensor:
    whole = operation in (activation_ops.hardtanh, activation_ops.threshold)
    _check_numbers(input, *options, of_integers=whole)
    return operation.inplace(input, *options) if inplace else operation(input, *options)


def _need_floating(name: str, input: Tensor) -> None:
    if not input.is_floating_point():
        raise NotImplementedError(
            f'"{name}" not implemented for {input.dtype}: expected a floating dtype'
        )


def gelu(input: Tensor, *, approximate: str = "none") -> Tensor:
    """``x * Phi(x)``, exact, or with ``approximate="tanh"`` its approximation by tanh."""
    if approximate not in ("none", "tanh"):
        raise RuntimeError(f"approximate argument must be either none or tanh, got {approximate!r}")
    return activation_ops.gelu(input, approximate == "tanh")


def relu(input: Tensor, inplace: bool = False) -> Tensor:
    """``max(x, 0)``."""
    return activation_ops.relu.inplace(input) if inplace else activation_ops.relu(input)


def relu_(input: Tensor) -> Tensor:
    """:func:`relu` in place."""
    return relu(input, inplace=True)


def relu6(input: Tensor, inplace: bool = False) -> Tensor:
    """``min(max(x, 0), 6)``."""
    return _run(activation_ops.hardtanh, input, 0.0, 6.0, inplace=inplace)


def hardtanh(
    input: Tensor, min_val: float = -1.0, max_val: float = 1.0, inplace: bool = False
) -> Tensor:
    """x limited to [min_val, max_val]; the gradient at the bounds is 0.

    Args:
        input: Values of any shape.
        min_val: The lower bound.
        max_val: The upper bound.
        inplace: Write into the input.
    """
    if min_val > max_val:
        raise ValueError(f"min_val cannot be greater than max_val, got {min_val} and {max_val}")
    return _run(activation_ops.hardtanh, input, min_val, max_val, inplace=inplace)


def hardtanh_(input: Tensor, min_val: float = -1.0, max_val: float = 1.0) -> Tensor:
    """:func:`hardtanh` in place.

    Args:
        input: Values of any shape.
        min_val: The lower bound.
        max_val: The upper bound.
    """
    # The larger bound comes second: all is max_val where the bounds cross.
    return _run(activation_ops.hardtanh, input, min_val, max_val, inplace=True)


def leaky_relu(input: Tensor, negative_slope: float = 0.01, inplace: bool = False) -> Tensor:
    """x where it is positive, else ``negative_slope * x``.

    Args:
        input: Values of any shape.
        negative_slope: The slope for negative values.
        inplace: Write into the input.
    """
    if not negative_slope >= 0:
        _check_pieces("leaky_relu", input, negative_slope, inplace)
        return input.where(input > 0, input * negative_slope)
    return _run(activation_ops.leaky_relu, input, negative_slope, inplace=inplace)


def leaky_relu_(input: Tensor, negative_slope: float = 0.01) -> Tensor:
    """:func:`leaky_relu` in place."""
    return leaky_relu(input, negative_slope, inplace=True)


def _check_pieces(name: str, input: Tensor, factor: float, inplace: bool) -> None:
    """Before a function whose result does not tell on which side of 0 the input was."""
    _need_floating(name, input)
    _check_numbers(input, factor)
    if inplace:
        raise RuntimeError(
            f"{name} in place with a negative factor cannot be differentiated: the result does not "
            "tell on which side of 0 the input was. Use inplace=False"
        )


def _elu(
    name: str, input: Tensor, alpha: float, scale: float, input_scale: float, inplace: bool
) -> Tensor:
    if not alpha >= 0:
        _check_pieces(name, input, alpha, inplace)
        below = (input.clamp(max=0) * input_scale).expm1() * (alpha * scale)
        return below.where(input <= 0, input * scale)
    return _run(activation_ops.elu, input, alpha, scale, input_scale, inplace=inplace)


def elu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else ``alpha * (exp(x) - 1)``.

    Args:
        input: Values of any shape.
        alpha: The limit for large negative values is ``-alpha``.
        inplace: Write into the input.
    """
    return _elu("elu", input, alpha, 1.0, 1.0, inplace)


def elu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """:func:`elu` in place."""
    return elu(input, alpha, inplace=True)


def selu(input: Tensor, inplace: bool = False) -> Tensor:
    """ELU with the scale and alpha that keep mean 0 and variance 1."""
    return _elu("selu", input, _SELU_ALPHA, _SELU_SCALE, 1.0, inplace)


def selu_(input: Tensor) -> Tensor:
    """:func:`selu` in place."""
    return selu(input, inplace=True)


def celu(input: Tensor, alpha: float = 1.0, inplace: bool = False) -> Tensor:
    """x where it is positive, else ``alpha * (exp(x / alpha) - 1)``.

    Args:
        input: Values of any shape.
        alpha: The limit for large negative values is ``-alpha``.
        inplace: Write into the input.
    """
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    alpha = float(alpha)
    inverse = 1.0 / alpha
    if not alpha > 0:
        return _elu("celu", input, alpha, 1.0, inverse, inplace)
    return _run(activation_ops.elu, input, alpha, 1.0, inverse, inplace=inplace)


def celu_(input: Tensor, alpha: float = 1.0) -> Tensor:
    """:func:`celu` in place."""
    return celu(input, alpha, inplace=True)


def silu(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * sigmoid(x)``."""
    if input.is_complex():
        if not inplace and input.requires_grad and is_grad_enabled():
            raise RuntimeError(
                "silu does not support automatic differentiation for outputs with complex dtype"
            )
        x = input.clone() if inplace else input  # the gradient needs the values of before
        product = x * activation_ops.sigmoid(x)
        return input.copy_(product) if inplace else product
    return _run(activation_ops.silu, input, inplace=inplace)


def mish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * tanh(softplus(x))``."""
    return _run(activation_ops.mish, input, inplace=inplace)


def sigmoid(input: Tensor) -> Tensor:
    """``1 / (1 + exp(-x))``."""
    return activation_ops.sigmoid(input)


def tanh(input: Tensor) -> Tensor:
    """Hyperbolic tangent."""
    return input.tanh()


def softplus(input: Tensor, beta: float = 1, threshold: float = 20) -> Tensor:
    """``log(1 + exp(beta * x)) / beta``; x itself where ``beta * x`` is above the threshold.

    Args:
        input: Values of any shape.
        beta: How sharp the bend at 0 is.
        threshold: From which ``beta * x`` on the function is x, for stability.
    """
    need_tensor("softplus", input)
    _check_numbers(input, beta, threshold)
    return activation_ops.softplus(input, beta, threshold)


def softsign(input: Tensor) -> Tensor:
    """``x / (1 + |x|)``."""
    need_tensor("softsign", input)
    if input.dtype.name == "bool":
        raise NotImplementedError('"abs" not implemented for bool: convert with .float()')
    return activation_ops.softsign(input)


def logsigmoid(input: Tensor) -> Tensor:
    """``log(sigmoid(x))``, computed without overflow."""
    return activation_ops.logsigmoid(input)


def hardswish(input: Tensor, inplace: bool = False) -> Tensor:
    """``x * relu6(x + 3) / 6``."""
    return _run(activation_ops.hardswish, input, inplace=inplace)


def hardsigmoid(input: Tensor, inplace: bool = False) -> Tensor:
    """``relu6(x + 3) / 6``."""
    return _run(activation_ops.hardsigmoid, input, inplace=inplace)


def hardshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x where ``|x| > lambd``, else 0."""
    need_tensor("hardshrink", input)
    _check_numbers(input, lambd)
    return activation_ops.hardshrink(input, lambd)


def softshrink(input: Tensor, lambd: float = 0.5) -> Tensor:
    """x moved towards 0 by ``lambd``; 0 where ``|x| <= lambd``."""
    need_tensor("softshrink", input)
    _need_floating("softshrink", input)
    if not 0 <= lambd <= finfo(input.dtype).max:
        raise RuntimeError(f"softshrink: lambda must be finite and not negative, but found {lambd}")
    return activation_ops.softshrink(input, lambd)


def tanhshrink(input: Tensor) -> Tensor:
    """``x - tanh(x)``."""
    return input - input.tanh()


def threshold(input: Tensor, threshold: float, value: float, inplace: bool = False) -> Tensor:
    """x where it is above the threshold, else ``value``.

    Args:
        input: Values of any shape.
        threshold: What values have to be above.
        value: What the others become.
        inplace: Write into the input.
    """
    return _run(activation_ops.threshold, input, threshold, value, inplace=inplace)


def threshold_(input: Tensor, threshold_: float, value: float) -> Tensor:
    """:func:`threshold` in place.

    Args:
        input: Values of any shape.
        threshold_: What values have to be above.
        value: What the others become.
    """
    return threshold(input, threshold_, value, inplace=True)


def prelu(input: Tensor, weight: Tensor) -> Tensor:
    """x where it is positive, else ``weight * x``.

    Args:
        input: (N, C, ...) or any shape.
        weight: One slope, or C slopes for the channels, which are the second axis (of a 1-D input:
            there is one channel).
    """
    need_tensor("prelu", input, weight)
    if weight.dtype is not input.dtype:
        raise RuntimeError(
            f"prelu: Type promoting not supported. Got {input.dtype} and {weight.dtype}"
        )
    if weight.dim() > 1:
        raise RuntimeError(
            f"prelu: Expected `weight` to be a scalar or 1D tensor, but got: ndim = {weight.dim()}"
        )
    if weight.numel() != 1:
        if input.dim() == 0:
            raise RuntimeError("Not allow zero-dim input tensor.")
        channels = input.shape[1] if input.dim() >= 2 else 1
        if channels != weight.numel():
            raise RuntimeError(
                "Mismatch of parameter numbers and input channel size. Found parameter numbers = "
                f"{weight.numel()} and channel size = {channels}."
            )
    if weight.dim() and input.dim() != 1:
        shape = (1, -1, *(1,) * (input.dim() - 2)) if input.dim() >= 2 else ()
        weight = weight.reshape(shape)
    return activation_ops.prelu(input, weight)


def rrelu(
    input: Tensor,
    lower: float = 1.0 / 8,
    upper: float = 1.0 / 3,
    training: bool = False,
    inplace: bool = False,
) -> Tensor:
    """Leaky ReLU with a slope for each value, drawn from [lower, upper] while training, else their
    mean.

    Args:
        input: Values of any shape.
        lower: The smallest slope.
        upper: The largest slope.
        training: Draw the slopes.
        inplace: Write into the input.
    """
    need_tensor("rrelu", input)
    if not training:
        return leaky_relu(input, (lower + upper) / 2, inplace)
    with no_grad():
        slopes = empty_like(input).uniform_(lower, upper)
        factor = slopes.masked_fill(input > 0, 1.0)
    return input.mul_(factor) if inplace else input * factor


def rrelu_(
    input: Tensor, lower: float = 1.0 / 8, upper: float = 1.0 / 3, training: bool = False
) -> Tensor:
    """:func:`rrelu` in place.

    Args:
        input: Values of any shape.
        lower: The smallest slope.
        upper: The largest slope.
        training: Draw the slopes.
    """
    return rrelu(input, lower, upper, training, inplace=True)


def glu(input: Tensor, dim: int = -1) -> Tensor:
    """``a * sigmoid(b)``, where a and b are the halves of the input along ``dim``."""
    need_tensor("glu", input)
    if input.dim() == 0:
        raise RuntimeError(
            "glu does not support scalars because halving size must be even: got a 0-D input"
        )
    size = input.shape[checked_dim(dim, input.dim())]
    if size % 2:
        raise RuntimeError(
            f"Halving dimension must be even, but dimension {dim % input.dim()} is size {size}"
        )
    _need_floating("glu", input)
    a, b = input.split(size // 2, dim) if size else (input, input)
    return a * activation_ops.sigmoid(b)


def _implicit_dim(name: str, ndim: int, stacklevel: int) -> int:
    warnings.warn(
        f"Implicit dimension choice for {name} has been deprecated. "
        "Change the call to include dim=X as an argument.",
        stacklevel=stacklevel,
    )
    return 0 if ndim in (0, 1, 3) else 1


def _along(
    name: str, operation: Any, input: Tensor, dim: int | None, stacklevel: int, dtype: Any
) -> Tensor:
    need_tensor(name, input)
    if dim is None:
        dim = _implicit_dim(name, input.dim(), stacklevel + 1)
    if dtype is not None:
        input = input.to(dtype)
    return operation(input, checked_dim(dim, input.dim()))


def softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """``exp(x) / sum(exp(x))`` along ``dim``; the input is converted to ``dtype`` first.

    Args:
        input: Values of any shape.
        dim: The axis; chosen by the number of axes, with a warning, when None.
        _stacklevel: Whose call that warning names.
        dtype: What the input is converted to first.
    """
    return _along("softmax", activation_ops.softmax, input, dim, _stacklevel, dtype)


def softmin(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """:func:`softmax` of ``-x``.

    Args:
        input: Values of any shape.
        dim: The axis; chosen by the number of axes, with a warning, when None.
        _stacklevel: Whose call that warning names.
        dtype: What the input is converted to first.
    """
    need_tensor("softmin", input)
    return _along("softmin", activation_ops.softmax, -input, dim, _stacklevel, dtype)


def log_softmax(
    input: Tensor, dim: int | None = None, _stacklevel: int = 3, dtype: DType | None = None
) -> Tensor:
    """``log(softmax(x))`` along ``dim``, computed without forming the softmax.

    Args:
        input: Values of any shape.
        dim: The axis; chosen by the number of axes, with a warning, when None.
        _stacklevel: Whose call that warning names.
        dtype: What the input is converted to first.
    """
    return _along("log_softmax", activation_ops.log_softmax, input, dim, _stacklevel, dtype)


def gumbel_softmax(
    logits: Tensor, tau: float = 1, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Tensor:
    """Samples that are nearly one-hot (Gumbel-softmax; Jang et al., 2016), or with ``hard`` one-hot
    but with the gradient of the soft ones.

    Args:
        logits: Log probabilities, not normalized, any shape.
        tau: The temperature: the lower, the nearer to one-hot.
        hard: Return one-hot samples.
        eps: Without effect; torch has it.
        dim: The axis of the classes.
    """
    need_tensor("gumbel_softmax", logits)
    with no_grad():
        noise = -empty_like(logits).exponential_().log()
    soft = softmax((logits + noise) / tau, dim)
    if not hard:
        return soft
    with no_grad():
        chosen = soft.detach().argmax(dim, keepdim=True)
        sample = zeros_like(soft).scatter_(dim, chosen, 1.0)
    return sample - soft.detach() + soft
