# SPDX-License-Identifier: BSD-3-Clause
"""Arithmetic, comparison, rounding, exponential, trigonometric and other functions of single
elements.
"""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np

from modtree import _C
from modtree._C import TensorBase, as_dtype, kernels
from modtree._ops import masks
from modtree._ops.generic import (
    ZEROS,
    any_of,
    conj,
    is_real,
    like_first,
    native,
    operation,
    pick,
    select,
    steady,
    zeros,
)
from modtree._ops.registry import (
    define,
    derive,
    expose,
    inplace_of,
    not_differentiable,
    ops,
    unchanged,
)

# -- one operand -----------------------------------------------------------------------------------

_FLOATING = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "tanh": np.tanh,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "deg2rad": np.deg2rad,
    "rad2deg": np.rad2deg,
    "reciprocal": np.reciprocal,
}
_ARITH = {
    "square": np.square,
    "ceil": np.ceil,
    "floor": np.floor,
    "trunc": np.trunc,
    "conj": np.conjugate,
    "sign": np.sign,
}
_LOGICAL = {
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
    "signbit": np.signbit,
    "logical_not": np.logical_not,
}


def _rsqrt(x: Any) -> Any:
    return np.reciprocal(np.sqrt(x))


def _sigmoid(x: Any) -> Any:
    if native(x):
        return kernels.sigmoid(x)
    return np.reciprocal(1 + np.exp(np.negative(x)))


def _relu(x: Any) -> Any:
    return np.maximum(x, np.zeros((), x.dtype))


def _frac(x: Any) -> Any:
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f"\"frac\" not implemented for '{x.dtype}': convert with .float()"
        )
    return x - np.trunc(x)


def _sign(x: Any) -> Any:
    """NaN has no sign: it gives 0."""
    if x.dtype.kind != "f":
        return x if x.dtype.kind == "b" else np.sign(x)
    result = np.sign(x)
    # The sum is NaN where an element is: quicker than to look for it.
    if not math.isnan(np.add.reduce(result, None)):
        return result
    return np.where(np.isnan(x), np.zeros((), x.dtype), result)


def _rounding(function: Any) -> Any:
    def forward(x: Any) -> Any:
        return x.copy() if x.dtype.kind in "iub" else function(x)

    return forward


_ufunc: Any  # of one type after another
for _name, _ufunc in _FLOATING.items():
    define(_name, _ufunc, promote="floating", operands=1, numpy=_ufunc)
for _name, _ufunc in _ARITH.items():
    _forward: Any = _ufunc
    if _name in ("ceil", "floor", "trunc"):
        _forward = _rounding(_ufunc)
    elif _name == "sign":
        _forward = _sign
    define(_name, _forward, promote="arith", operands=1, numpy=_ufunc)
for _name, _ufunc in _LOGICAL.items():
    define(_name, _ufunc, promote="logical", operands=1, numpy=_ufunc)
define("rsqrt", _rsqrt, promote="floating", operands=1)
define("sigmoid", _sigmoid, promote="floating", operands=1)
define("relu", _relu, promote="arith", operands=1)
define("steady", lambda g, x: g.copy(), meta=like_first)
define("sgn", ops["sign"].forward, promote="arith", operands=1)
define("frac", _frac, promote="arith", operands=1)
for _name in ("erf", "erfc", "erfinv"):
    define(_name, getattr(_C, "_" + _name), promote="floating", operands=1)
define("neg", np.negative, promote="arith", operands=1, no_bool=True, numpy=np.negative)
define(
    "abs",
    np.absolute,
    promote="arith",
    operands=1,
    numpy=np.absolute,
    meta=lambda x: (x.shape, x.real.dtype),
)
define("bitwise_not", np.invert, promote="bitwise", operands=1, numpy=np.invert)

for _name in (*_FLOATING, *_ARITH, *_LOGICAL, "rsqrt", "sigmoid", "relu", "frac", "erf", "erfc"):
    expose(_name, ops[_name])
    if _name not in ("isnan", "isinf", "isfinite", "signbit"):
        expose(_name + "_", inplace_of(ops[_name]))
for _name in ("erfinv", "neg", "abs", "bitwise_not"):
    expose(_name, ops[_name])
    expose(_name + "_", inplace_of(ops[_name]))
expose("sgn", ops["sgn"])
expose("sgn_", inplace_of(ops["sgn"]), function=False)
expose("negative", ops["neg"])
expose("absolute", ops["abs"])
for _name in ("sin", "cos", "tan", "sinh", "cosh", "tanh"):
    if not _name.endswith("tanh"):
        expose("arc" + _name, ops["a" + _name])
expose("arctanh", ops["atanh"])


def _round(x: Any, decimals: int) -> Any:
    return x.copy() if x.dtype.kind in "iub" else np.round(x, decimals)


define("round", _round, promote="arith", operands=1)


def round(input: Any, *, decimals: int = 0) -> Any:  # noqa: A001
    """Rounds half to even, to a number of decimals."""
    return ops["round"](input, decimals)


expose("round", round)
expose("round_", lambda self, *, decimals=0: ops["round"].inplace(self, decimals))

# -- two operands ----------------------------------------------------------------------------------

define("add", np.add, promote="arith", operands=2, numpy=np.add)
define("sub", np.subtract, promote="arith", operands=2, no_bool=True, numpy=np.subtract)
define("mul", np.multiply, promote="arith", operands=2, numpy=np.multiply)
define("true_divide", np.true_divide, promote="floating", operands=2, numpy=np.true_divide)


def _typed(function: Any) -> Any:
    """NumPy's function where its answer for bools would be a small integer: torch's keeps the
    dtype.
    """

    def forward(a: Any, b: Any) -> Any:
        result = function(a, b)
        return result if a.dtype.kind != "b" else result.astype(a.dtype)

    return forward


def _power(a: Any, b: Any) -> Any:
    """Integers wrap around; a negative exponent array gives what 1 / a ** b truncates to."""
    kind = a.dtype.kind
    if kind == "f" and b.ndim == 0:
        # The usual exponents have shorter ways, which torch takes too.
        short = _SHORT_POWERS.get(b.item())
        return np.power(a, b) if short is None else short(a)
    if kind == "b":
        return np.logical_or(a, np.logical_not(b))
    if kind == "i" and b.ndim and (b < 0).any():
        a, b = np.broadcast_arrays(a, b)
        odd = np.where(b % 2 == 0, a * a, a)
        return np.where(
            b < 0, np.where(np.abs(a) == 1, odd, 0), np.power(a, np.maximum(b, 0))
        ).astype(a.dtype)
    return np.power(a, b)


_SHORT_POWERS: dict[float, Any] = {2.0: np.square, 3.0: lambda a: a * a * a, 0.5: np.sqrt}


define(
    "floor_divide",
    np.floor_divide,
    promote="arith",
    operands=2,
    check_zero=True,
    numpy=np.floor_divide,
)
define(
    "remainder",
    np.remainder,
    promote="arith",
    operands=2,
    check_zero=True,
    numpy=np.remainder,
)
define("fmod", np.fmod, promote="arith", operands=2, check_zero=True, numpy=np.fmod)
define("pow", _power, promote="arith", operands=2, numpy=np.power)
define("atan2", np.arctan2, promote="floating", operands=2, numpy=np.arctan2)
define("hypot", np.hypot, promote="arith", operands=2, numpy=np.hypot)
define("logaddexp", np.logaddexp, promote="arith", operands=2, numpy=np.logaddexp)
define("copysign", np.copysign, promote="floating", operands=2, numpy=np.copysign)
define("nextafter", np.nextafter, promote="arith", operands=2, numpy=np.nextafter)
for _name in ("maximum", "minimum", "fmax", "fmin"):
    define(_name, getattr(np, _name), promote="arith", operands=2, numpy=getattr(np, _name))
for _name, _ufunc in {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}.items():
    define(_name, _ufunc, promote="compare", operands=2, numpy=_ufunc)
for _name in ("logical_and", "logical_or", "logical_xor"):
    define(_name, getattr(np, _name), promote="logical", operands=2, numpy=getattr(np, _name))
for _name, _ufunc in {
    "bitwise_and": np.bitwise_and,
    "bitwise_or": np.bitwise_or,
    "bitwise_xor": np.bitwise_xor,
    "bitwise_left_shift": np.left_shift,
    "bitwise_right_shift": np.right_shift,
}.items():
    define(_name, _ufunc, promote="bitwise", operands=2, numpy=_ufunc)

for _name in (
    "mul true_divide floor_divide remainder fmod pow atan2 hypot logaddexp copysign nextafter "
    "maximum minimum fmax "
    "fmin eq ne lt le gt ge logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor "
    "bitwise_left_shift bitwise_right_shift"
).split():
    expose(_name, ops[_name])
    expose(_name + "_", inplace_of(ops[_name]))
for _alias, _name in {
    "multiply": "mul",
    "arctan2": "atan2",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
}.items():
    expose(_alias, ops[_name])

_add, _sub, _mul, _div = ops["add"], ops["sub"], ops["mul"], ops["true_divide"]


def add(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """input + alpha * other.

    Args:
        other: A tensor that broadcasts with ``input``, or a number.
        alpha: A factor of ``other``.
    """
    return _add(input, other if alpha == 1 else _mul(other, alpha))


def sub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """input - alpha * other.

    Args:
        other: A tensor that broadcasts with ``input``, or a number.
        alpha: A factor of ``other``.
    """
    return _sub(input, other if alpha == 1 else _mul(other, alpha))


def add_(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """self += alpha * other, in place."""
    return _add.inplace(self, other if alpha == 1 else _mul(other, alpha))


def sub_(self: Any, other: Any, *, alpha: Any = 1) -> Any:
    """self -= alpha * other, in place."""
    return _sub.inplace(self, other if alpha == 1 else _mul(other, alpha))


def rsub(input: Any, other: Any, *, alpha: Any = 1) -> Any:
    """other - alpha * input.

    Args:
        other: A tensor that broadcasts with ``input``, or a number.
        alpha: A factor of ``input``.
    """
    return sub(other, input, alpha=alpha)


def _rounded_quotient(input: Any, other: Any, mode: str) -> Any:
    if mode == "floor":
        return ops["floor_divide"](input, other)
    if mode == "trunc":
        return ops["trunc_divide"](input, other)
    raise RuntimeError(
        f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found {mode!r}"
    )


def _trunc_divide(a: Any, b: Any) -> Any:
    if a.dtype.kind in "iu":
        quotient = np.floor_divide(a, b)
        return quotient + ((quotient < 0) & (quotient * b != a)).astype(a.dtype)
    return np.trunc(np.true_divide(a, b))


define("trunc_divide", _trunc_divide, promote="arith", operands=2, check_zero=True)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """input / other; whole quotients with rounding_mode "floor" or "trunc".

    Args:
        other: A tensor that broadcasts with ``input``, or a number.
        rounding_mode: None, ``"floor"`` or ``"trunc"`` (towards zero).
    """
    if rounding_mode is None:
        return _div(input, other)
    return _rounded_quotient(input, other, rounding_mode)


def div_(self: Any, other: Any, *, rounding_mode: str | None = None) -> Any:
    """self /= other, in place."""
    if rounding_mode is None:
        return _div.inplace(self, other)
    name = {"floor": "floor_divide", "trunc": "trunc_divide"}.get(rounding_mode)
    return ops[name].inplace(self, other) if name else _rounded_quotient(self, other, rounding_mode)


_function: Any  # of one type after another
for _function in (add, sub, rsub, div):
    expose(_function.__name__, _function)
expose("subtract", sub)
expose("divide", div)
for _function in (add_, sub_, div_):
    expose(_function.__name__, _function, function=False)

# -- more operands ---------------------------------------------------------------------------------


def _where(condition: Any, a: Any, b: Any) -> Any:
    if condition.dtype.kind != "b" and condition.dtype != np.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype}"
        )
    return masks.where(condition if condition.dtype.kind == "b" else condition != 0, a, b)


def _clamp(x: Any, low: Any, high: Any) -> Any:
    if low is not None:
        x = np.maximum(x, low)
    if high is not None:
        x = np.minimum(x, high)
    return x


def _masked_fill(x: Any, mask: Any, value: Any) -> Any:
    if mask.dtype.kind != "b":
        raise RuntimeError(
            f"masked_fill only supports boolean masks, but got mask with dtype {mask.dtype}"
        )
    return masks.where(mask, np.asarray(value).astype(x.dtype), x)


def _lerp(start: Any, end: Any, weight: Any) -> Any:
    """From the nearer end, so that weight 1 gives exactly ``end``."""
    step = end - start
    near = np.abs(weight) < 0.5
    if near.ndim == 0:
        return start + weight * step if near else end - step * (1 - weight)
    return np.where(near, start + weight * step, end - step * (1 - weight))


define(
    "where",
    _where,
    promote="arith",
    first=1,
    operands=2,
    meta=lambda c, a, b: (
        np.broadcast_shapes(c.shape, np.shape(a), np.shape(b)),
        np.result_type(a, b),
    ),
)
define("clamp", _clamp, promote="arith", operands=3, meta=lambda x, low, high: (x.shape, x.dtype))
define(
    "masked_fill",
    _masked_fill,
    meta=lambda x, m, v: (np.broadcast_shapes(x.shape, m.shape), x.dtype),
)
define("lerp", _lerp, promote="arith", operands=3)
define("addcmul", lambda x, a, b, v: x + v * a * b, promote="arith", operands=3)
define("addcdiv", lambda x, a, b, v: x + v * (a / b), promote="arith", operands=3)
define(
    "nan_to_num",
    lambda x, nan, posinf, neginf: np.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf),
    meta=lambda x, *_: (x.shape, x.dtype),
)


def where(condition: Any, input: Any = None, other: Any = None) -> Any:
    """Elements of input where condition holds, else of other; with one argument the indices where
    it holds.

    Args:
        condition: A bool tensor.
        input: A tensor or a number.
        other: A tensor or a number.
    """
    if input is None and other is None:
        return ops["nonzero_tuple"](condition)
    return ops["where"](condition, input, other)


def clamp(input: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    """Limits values to [min, max]; either may be None.

    Args:
        min: Lower limit, a number or a tensor.
        max: Upper limit; wins where it is below ``min``.
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    return ops["clamp"](input, min, max)


def clamp_(self: Any, min: Any = None, max: Any = None) -> Any:  # noqa: A002
    """Limits values to [min, max], in place."""
    return ops["clamp"].inplace(self, min, max)


def masked_fill(input: Any, mask: Any, value: Any) -> Any:
    """input with value where mask holds.

    Args:
        mask: A bool tensor that broadcasts with ``input``.
        value: A number, or a tensor without dimensions.
    """
    return ops["masked_fill"](input, mask, value)


def masked_fill_(self: Any, mask: Any, value: Any) -> Any:
    """Sets the elements where mask holds, in place.

    Args:
        mask: A bool tensor that broadcasts with this one.
        value: A number, or a tensor without dimensions.
    """
    is_mask = isinstance(mask, TensorBase) and mask.dtype in _BOOL
    if is_mask and 0 in self._array.strides and not self.is_meta:
        _fill_expanded(self, mask, value)
        return self
    return ops["masked_fill"].inplace(self, mask, value)


def _fill_expanded(tensor: Any, mask: Any, value: Any) -> None:
    """Writes each place in memory once; several elements of ``tensor`` may stand for it."""
    part, array = tensor, tensor._array
    mask = mask.expand(tensor.shape)
    for dim, (size, step) in enumerate(zip(array.shape, array.strides, strict=True)):
        if step == 0 and size > 1:
            part, mask = part.narrow(dim, 0, 1), mask.any(dim, keepdim=True)
    if part is not tensor:
        warnings.warn(
            "Use of masked_fill_ on expanded tensors is deprecated: fill a clone() of it",
            stacklevel=3,
        )
    ops["masked_fill"].inplace(part, mask, value)


def addcmul(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    """input + value * tensor1 * tensor2.

    Args:
        tensor1: First factor; broadcasts with ``input``.
        tensor2: Second one.
        value: A factor of the product.
    """
    return ops["addcmul"](input, tensor1, tensor2, value)


def addcdiv(input: Any, tensor1: Any, tensor2: Any, *, value: Any = 1) -> Any:
    """input + value * tensor1 / tensor2.

    Args:
        tensor1: The dividend; broadcasts with ``input``.
        tensor2: The divisor.
        value: A factor of the quotient.
    """
    return ops["addcdiv"](input, tensor1, tensor2, value)


def nan_to_num(input: Any, nan: Any = None, posinf: Any = None, neginf: Any = None) -> Any:
    """Replaces NaN and infinities by numbers.

    Args:
        nan: In place of NaN; 0 without.
        posinf: In place of inf; the largest number of the dtype without.
        neginf: In place of -inf; the lowest number of the dtype without.
    """
    return ops["nan_to_num"](input, nan, posinf, neginf)


def isclose(
    input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Any:
    """|input - other| <= atol + rtol * |other|, element-wise.

    Args:
        other: A tensor of the same dtype.
        rtol: Tolerance relative to ``other``.
        atol: Absolute tolerance.
        equal_nan: NaN is close to NaN.
    """
    return ops["isclose"](input, other, rtol, atol, equal_nan)


def _isclose(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    return np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


define("isclose", _isclose, promote="same", operands=2)

expose("where", where)
expose("clamp", clamp)
expose("clip", clamp)
expose("clamp_", clamp_, function=False)
expose("clip_", clamp_, function=False)
expose("clamp_min", lambda input, min: clamp(input, min=min))  # noqa: A006
expose("clamp_max", lambda input, max: clamp(input, max=max))  # noqa: A006
expose("clamp_min_", lambda self, min: clamp_(self, min=min), function=False)
expose("clamp_max_", lambda self, max: clamp_(self, max=max), function=False)
expose("masked_fill", masked_fill)
expose("masked_fill_", masked_fill_, function=False)
expose("lerp", ops["lerp"])
expose("lerp_", inplace_of(ops["lerp"]), function=False)
expose("addcmul", addcmul)
expose("addcdiv", addcdiv)
expose(
    "addcmul_",
    lambda self, tensor1, tensor2, *, value=1: ops["addcmul"].inplace(
        self, tensor1, tensor2, value
    ),
    function=False,
)
expose(
    "addcdiv_",
    lambda self, tensor1, tensor2, *, value=1: ops["addcdiv"].inplace(
        self, tensor1, tensor2, value
    ),
    function=False,
)
expose("nan_to_num", nan_to_num)
expose("isclose", isclose)


def _where_method(self: Any, condition: Any, other: Any) -> Any:
    """Elements of this tensor where the condition holds, else of other.

    Args:
        condition: A bool tensor.
        other: A tensor or a number.
    """
    return ops["where"](condition, self, other)


def allclose(
    input: Any, other: Any, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Are all elements close?

    Args:
        other: A tensor of the same dtype.
        rtol: Tolerance relative to ``other``.
        atol: Absolute tolerance.
        equal_nan: NaN is close to NaN.
    """
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


def equal(input: Any, other: Any) -> bool:
    """Same shape and same values?"""
    if input.is_meta or other.is_meta:
        raise NotImplementedError("equal() needs values, and a tensor on 'meta' has none")
    return input.shape == other.shape and bool(np.array_equal(input._array, other._array))


expose("where", _where_method, function=False)
expose("allclose", allclose)
expose("equal", equal)


# -- derivatives -----------------------------------------------------------------------------------

_LN2, _LN10 = math.log(2), math.log(10)
_DEGREE = math.pi / 180
_BOOL = {np.dtype(bool), as_dtype(bool)}
_ERF = 2 / math.sqrt(math.pi)

_sign_op = operation("sgn")

# -- one operand -----------------------------------------------------------------------------------

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


def _sigmoid_vjp(g: Any, out: Any, _x: Any) -> Any:
    if native(g, out):
        return kernels.sigmoid_backward(g, out)
    return g * (out * (1 - out)).conj()


derive("tanh", _tanh)
derive("asinh", lambda g, _out, x: g / np.sqrt(x * x + 1).conj())
derive("atanh", lambda g, _out, x: g / (1 - x * x).conj())
derive("sigmoid", _sigmoid_vjp)
derive("deg2rad", lambda g, _out, _x: g * _DEGREE)
derive("rad2deg", lambda g, _out, _x: g * (1 / _DEGREE))
derive("neg", lambda g, _out, _x: -g)
derive("conj", lambda g, _out, _x: g.conj())
derive("frac", unchanged)
derive("erf", lambda g, _out, x: g * (np.exp(-(x * x)) * _ERF))
derive("erfc", lambda g, _out, x: g * (np.exp(-(x * x)) * -_ERF))
derive("erfinv", lambda g, out, _x: g * (np.exp(out * out) / _ERF))
derive("abs", lambda g, _out, x: g * _sign_op(x))


def _acosh(g: Any, _out: Any, x: Any) -> Any:
    # Of a complex number the two roots have branch cuts of their own.
    root = np.sqrt(x * x - 1) if is_real(x) else np.sqrt(x - 1) * np.sqrt(x + 1)
    return g / root.conj()


derive("acosh", _acosh)


def _relu_vjp(g: Any, out: Any, _x: Any) -> Any:
    if native(g, out):
        return kernels.relu_backward(g, out)
    # Not g * (out > 0): an infinite gradient must not become NaN where the output is 0, and NaN
    # lets it through.
    if isinstance(out, np.ndarray) and out.size <= 1024:
        zero = ZEROS[out.dtype]
        return np.where(out <= zero, zero, g)
    return steady(select(~(out <= 0), g), out)


def _sign_gradient(g: Any, out: Any, x: Any) -> Any:
    """The sign of a complex number turns with its angle: only the part of g across it counts."""
    if is_real(x):
        return zeros(g)
    size = np.absolute(x)
    along = (g * out.conj()).real
    return pick(size == 0, 0, (g - out * along) / pick(size == 0, 1, size))


derive("relu", _relu_vjp)
derive("steady", unchanged, lambda g, _out, _g, _x: zeros(g))
derive("sign", _sign_gradient)
derive("sgn", _sign_gradient)
for _name in ("ceil", "floor", "trunc", "round"):
    derive(_name, lambda g, _out, _x, *_args: zeros(g))
derive("nan_to_num", lambda g, _out, x, *_args: g * np.isfinite(x))
not_differentiable("isnan", "isinf", "isfinite", "signbit", "logical_not", "bitwise_not")

# -- two operands ----------------------------------------------------------------------------------


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
    return pick(b == 0, 0, g * conj(b * np.power(a, b - 1)))


def _pow_exponent(g: Any, out: Any, a: Any, b: Any) -> Any:
    """0 ** b does not change with b, except where b is negative."""
    settled = (a == 0) & (b.real >= 0)
    return pick(settled, 0, g * conj(out * np.log(pick(settled, 1, a))))


derive("pow", _pow_base, _pow_exponent)


def _atan2_scale(a: Any, b: Any) -> Any:
    """1 / (a^2 + b^2), and 0 at the origin, where the angle has no direction to change in."""
    square = a * a + b * b
    origin = square == 0
    return pick(origin, 0, 1 / pick(origin, 1, square))


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
    return pick(a == 0, 0, g * (out / pick(a == 0, 1, a)))


derive("copysign", _copysign, _none)


derive("nextafter", unchanged, _none)


def _halved(g: Any, equal: Any) -> Any:
    return pick(equal, g / 2, g) if any_of(equal) else g


def _shared(more: Any) -> tuple[Any, Any]:
    """Of two operands the one for which ``more`` holds gets the gradient; equals get half of it
    each.
    """
    return (
        lambda g, _out, a, b: select(~more(b, a), _halved(g, a == b)),
        lambda g, _out, a, b: select(~more(a, b), _halved(g, a == b)),
    )


def _first(at_least: Any) -> tuple[Any, Any]:
    """The same for fmax() and fmin(): of equals the first gets it all, and NaN gets nothing beside
    a number.
    """

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

# -- more operands ---------------------------------------------------------------------------------


def _truth(condition: Any) -> Any:
    """The condition of where(), which may be of uint8."""
    return condition if condition.dtype in _BOOL else condition != 0


derive(
    "where",
    None,
    lambda g, _out, condition, _a, _b: select(_truth(condition), g),
    lambda g, _out, condition, _a, _b: select(~_truth(condition), g),
)


def _clamp_vjp(g: Any, _out: Any, x: Any, low: Any, high: Any) -> Any:
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


derive("clamp", _clamp_vjp, _clamp_low, _clamp_high)
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
