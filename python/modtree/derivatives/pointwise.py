# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of the element-wise operations.

Where a function has no derivative, torch's convention holds: clamp() passes the gradient at its bounds, maximum() shares it between equals, abs()
and sign() are flat at 0. Gradients of complex functions are multiplied by the conjugate of the derivative.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import TensorBase, as_dtype, kernels
from modtree.derivatives.both import ZEROS, any_of, conj, is_real, row, select, where, zeros
from modtree.ops.by_kernel import native
from modtree.ops.table import derive, not_differentiable, unchanged

_LN2, _LN10 = math.log(2), math.log(10)
_DEGREE = math.pi / 180
_BOOL = {np.dtype(bool), as_dtype(bool)}
_ERF = 2 / math.sqrt(math.pi)

_sign = row("sgn")

# -- one operand -------------------------------------------------------------------------------------------------------

derive("exp", lambda g, out, _x: g * out.conj())
derive("exp2", lambda g, out, _x: g * out.conj() * _LN2)
derive("expm1", lambda g, out, _x: g * (out.conj() + 1))
derive("log", lambda g, _out, x: g / x.conj())
derive("log2", lambda g, _out, x: g / (x.conj() * _LN2))
derive("log10", lambda g, _out, x: g / (x.conj() * _LN10))
derive("log1p", lambda g, _out, x: g / (x.conj() + 1))
derive("sqrt", lambda g, out, _x: g / (out.conj() * 2))
derive("rsqrt", lambda g, out, _x: g * (out * out * out).conj() * -0.5)
derive("reciprocal", lambda g, out, _x: -g * (out * out).conj())
derive("square", lambda g, _out, x: g * (x.conj() * 2))
derive("sin", lambda g, _out, x: g * np.cos(x).conj())
derive("cos", lambda g, _out, x: -g * np.sin(x).conj())
derive("tan", lambda g, out, _x: g * (out * out + 1).conj())
derive("asin", lambda g, _out, x: g / np.sqrt(1 - x * x).conj())
derive("acos", lambda g, _out, x: -g / np.sqrt(1 - x * x).conj())
derive("atan", lambda g, _out, x: g / (x * x + 1).conj())
derive("sinh", lambda g, _out, x: g * np.cosh(x).conj())
derive("cosh", lambda g, _out, x: g * np.sinh(x).conj())


def _tanh(g: Any, out: Any, _x: Any) -> Any:
    if native(g, out):
        return kernels.tanh_backward(g, out)
    return g * (1 - out * out).conj()


def _sigmoid(g: Any, out: Any, _x: Any) -> Any:
    if native(g, out):
        return kernels.sigmoid_backward(g, out)
    return g * (out * (1 - out)).conj()


derive("tanh", _tanh)
derive("asinh", lambda g, _out, x: g / np.sqrt(x * x + 1).conj())
derive("atanh", lambda g, _out, x: g / (1 - x * x).conj())
derive("sigmoid", _sigmoid)
derive("deg2rad", lambda g, _out, _x: g * _DEGREE)
derive("rad2deg", lambda g, _out, _x: g * (1 / _DEGREE))
derive("neg", lambda g, _out, _x: -g)
derive("conj", lambda g, _out, _x: g.conj())
derive("frac", unchanged)
derive("erf", lambda g, _out, x: g * (np.exp(-(x * x)) * _ERF))
derive("erfc", lambda g, _out, x: g * (np.exp(-(x * x)) * -_ERF))
derive("erfinv", lambda g, out, _x: g * (np.exp(out * out) / _ERF))
derive("abs", lambda g, _out, x: g * _sign(x))


def _acosh(g: Any, _out: Any, x: Any) -> Any:
    # Of a complex number the two roots have branch cuts of their own.
    root = np.sqrt(x * x - 1) if is_real(x) else np.sqrt(x - 1) * np.sqrt(x + 1)
    return g / root.conj()


derive("acosh", _acosh)


def _relu(g: Any, out: Any, _x: Any) -> Any:
    if native(g, out):
        return kernels.relu_backward(g, out)
    # Not g * (out > 0): an infinite gradient must not become NaN where the output is 0, and NaN lets it through.
    if isinstance(out, np.ndarray) and out.size <= 1024:
        zero = ZEROS[out.dtype]
        return np.where(out <= zero, zero, g)
    return select(~(out <= 0), g)


def _sign_gradient(g: Any, out: Any, x: Any) -> Any:
    """The sign of a complex number turns with its angle: only the part of g across it counts."""
    if is_real(x):
        return zeros(g)
    size = np.absolute(x)
    along = (g * out.conj()).real
    return where(size == 0, 0, (g - out * along) / where(size == 0, 1, size))


derive("relu", _relu)
derive("sign", _sign_gradient)
derive("sgn", _sign_gradient)
for _name in ("ceil", "floor", "trunc", "round"):
    derive(_name, lambda g, _out, _x, *_args: zeros(g))
derive("nan_to_num", lambda g, _out, x, *_args: g * np.isfinite(x))
not_differentiable("isnan", "isinf", "isfinite", "signbit", "logical_not", "bitwise_not")

# -- two operands ------------------------------------------------------------------------------------------------------


def _none(g: Any, *_rest: Any) -> Any:
    return zeros(g)


derive("add", unchanged, unchanged)
derive("sub", unchanged, lambda g, _out, _a, _b: -g)
derive(
    "mul",
    lambda g, _out, _a, b: g * conj(b),
    lambda g, _out, a, _b: g * conj(a),
)
derive(
    "true_divide",
    lambda g, _out, _a, b: g / conj(b),
    lambda g, _out, a, b: -g * conj((a / b) / b),
)
derive("floor_divide", _none, _none)
derive("trunc_divide", _none, _none)
derive("remainder", unchanged, lambda g, _out, a, b: -g * np.floor_divide(a, b))
derive("fmod", unchanged, lambda g, _out, a, b: -g * np.trunc(a / b))


def _pow_base(g: Any, _out: Any, a: Any, b: Any) -> Any:
    """Where the exponent is 0 the gradient is 0, also at 0 ** 0."""
    if b.ndim == 0 and not (isinstance(b, TensorBase) and b.requires_grad):
        number = b.item()
        if number == 2:
            return g * (a.conj() * 2)
        return zeros(g) if number == 0 else g * conj(a ** (number - 1) * number)
    return where(b == 0, 0, g * conj(b * np.power(a, b - 1)))


def _pow_exponent(g: Any, out: Any, a: Any, b: Any) -> Any:
    """0 ** b does not change with b, except where b is negative."""
    settled = (a == 0) & (b.real >= 0)
    return where(settled, 0, g * conj(out * np.log(where(settled, 1, a))))


derive("pow", _pow_base, _pow_exponent)


def _atan2_scale(a: Any, b: Any) -> Any:
    """1 / (a^2 + b^2), and 0 at the origin, where the angle has no direction to change in."""
    square = a * a + b * b
    origin = square == 0
    return where(origin, 0, 1 / where(origin, 1, square))


derive(
    "atan2",
    lambda g, _out, a, b: g * (b * _atan2_scale(a, b)),
    lambda g, _out, a, b: -g * (a * _atan2_scale(a, b)),
)
derive(
    "hypot",
    lambda g, out, a, _b: g * (a / out),
    lambda g, out, _a, b: g * (b / out),
)
derive(
    "logaddexp",
    lambda g, _out, a, b: g / (1 + np.exp(b - a)),
    lambda g, _out, a, b: g / (1 + np.exp(a - b)),
)


def _copysign(g: Any, out: Any, a: Any, _b: Any) -> Any:
    return where(a == 0, 0, g * (out / where(a == 0, 1, a)))


derive("copysign", _copysign, _none)


derive("nextafter", unchanged, _none)


def _halved(g: Any, equal: Any) -> Any:
    return where(equal, g / 2, g) if any_of(equal) else g


def _shared(more: Any) -> tuple[Any, Any]:
    """Of two operands the one for which ``more`` holds gets the gradient; equals get half of it each."""
    return (
        lambda g, _out, a, b: select(~more(b, a), _halved(g, a == b)),
        lambda g, _out, a, b: select(~more(a, b), _halved(g, a == b)),
    )


def _first(at_least: Any) -> tuple[Any, Any]:
    """The same for fmax() and fmin(): of equals the first gets it all, and NaN gets nothing beside a number."""

    def chosen(a: Any, b: Any) -> Any:
        return at_least(a, b) | np.isnan(b)

    return (
        lambda g, _out, a, b: select(chosen(a, b), g),
        lambda g, _out, a, b: select(~chosen(a, b), g),
    )


derive("maximum", *_shared(np.greater))
derive("minimum", *_shared(np.less))
derive("fmax", *_first(np.greater_equal))
derive("fmin", *_first(np.less_equal))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    derive(_name, _none, _none)  # of eq_() and its kind: the results of eq() are bools
not_differentiable("logical_and", "logical_or", "logical_xor", "isclose")
not_differentiable(
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"
)

# -- more operands -----------------------------------------------------------------------------------------------------


def _truth(condition: Any) -> Any:
    """The condition of where(), which may be of uint8."""
    return condition if condition.dtype in _BOOL else condition != 0


derive(
    "where",
    None,
    lambda g, _out, condition, _a, _b: select(_truth(condition), g),
    lambda g, _out, condition, _a, _b: select(~_truth(condition), g),
)


def _clamp(g: Any, _out: Any, x: Any, low: Any, high: Any) -> Any:
    if low is None:
        return select(x <= high, g)
    if high is None:
        return select(x >= low, g)
    return select((x >= low) & (x <= high), g)


def _clamp_low(g: Any, _out: Any, x: Any, low: Any, high: Any) -> Any:
    below = x < low
    return select(below if high is None else below & (low < high), g)


def _clamp_high(g: Any, _out: Any, x: Any, low: Any, high: Any) -> Any:
    above = x > high
    return select(above if low is None else above | (high < low), g)


derive("clamp", _clamp, _clamp_low, _clamp_high)
derive(
    "masked_fill",
    lambda g, _out, _x, mask, _value: select(~mask, g),
    None,
    lambda g, _out, _x, mask, _value: select(mask, g),
)
derive(
    "lerp",
    lambda g, _out, _start, _end, weight: g * conj(1 - weight),
    lambda g, _out, _start, _end, weight: g * conj(weight),
    lambda g, _out, start, end, _weight: g * (end - start).conj(),
)
derive(
    "addcmul",
    unchanged,
    lambda g, _out, _x, _a, b, v: g * (v * b).conj(),
    lambda g, _out, _x, a, _b, v: g * (v * a).conj(),
)
derive(
    "addcdiv",
    unchanged,
    lambda g, _out, _x, _a, b, v: g * (v / b).conj(),
    lambda g, _out, _x, a, b, v: -g * (v * a / (b * b)).conj(),
)
