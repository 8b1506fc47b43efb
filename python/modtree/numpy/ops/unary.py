# SPDX-License-Identifier: BSD-3-Clause
"""Functions of single elements of one tensor: rounding, exponentials, logarithms, trigonometry,
activations such as relu, tests such as isnan.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import kernels
from modtree.numpy.ops.generic import (
    ZEROS,
    into_in_kernel_dtype,
    is_real,
    like_first,
    native,
    operation,
    pick,
    select,
    steady,
    zeros,
)
from modtree.numpy.ops.registry import (
    define,
    derive,
    export,
    inplace_of,
    not_differentiable,
    ops,
    unchanged,
)

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor

_FLOATING = {
    "exp": np.exp,
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
    "logical_not": np.logical_not,
}


# Up to so many elements NumPy's functions cost less than the call of a kernel.
_SMALL = 1024


def _with_kernel(kernel: Any) -> Any:
    return lambda x, out=None: into_in_kernel_dtype(kernel, x, out=out)


def _rsqrt(x: Any) -> Any:
    if x.dtype == np.float16:  # of a root that is not rounded
        return _rsqrt(x.astype(np.float32)).astype(np.float16)
    return np.reciprocal(np.sqrt(x))


def _sigmoid(x: Any, out: Any = None) -> Any:
    if native(x):
        return kernels.sigmoid(x, out)
    if x.dtype == np.float16:
        return kernels.sigmoid(x.astype(np.float32)).astype(np.float16)
    return np.reciprocal(1 + np.exp(np.negative(x)))


def _relu(x: Any, out: Any = None) -> Any:
    if x.size > _SMALL and native(x):
        return kernels.clamp(x, 0.0, math.inf, out)
    return np.maximum(x, np.zeros((), x.dtype), out=out)


def _sign(x: Any, out: Any = None) -> Any:
    """NaN has no sign: it gives 0."""
    if native(x):
        return kernels.sign(x, out=out)
    if x.dtype.kind != "f":
        return x if x.dtype.kind == "b" else np.sign(x)
    result = np.sign(x)
    # The sum is NaN where an element is: quicker than to look for it.
    if not math.isnan(np.add.reduce(result, None)):
        return result
    return np.where(np.isnan(x), np.zeros((), x.dtype), result)


def _conj(x: Any) -> Any:
    return np.conjugate(x) if x.dtype.kind == "c" else x.copy()


def _square(x: Any) -> Any:
    """Bools count as numbers."""
    return np.square(x.astype(np.int64) if x.dtype.kind == "b" else x)


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
    elif _name == "conj":
        _forward = _conj
    elif _name == "square":
        _forward = _square
    define(
        _name,
        _forward,
        promote="arith",
        operands=1,
        numpy=_ufunc,
        writes_into=_forward is _sign,
    )
for _name, _ufunc in _LOGICAL.items():
    define(_name, _ufunc, promote="logical", operands=1, numpy=_ufunc)
define("rsqrt", _rsqrt, promote="floating", operands=1)
define("sigmoid", _sigmoid, promote="floating", operands=1, writes_into=True)
define("relu", _relu, promote="arith", operands=1, writes_into=True)
define("steady", lambda g, x: g.copy(), meta=like_first)
define("sgn", ops["sign"].forward, promote="arith", operands=1, writes_into=True)
for _name in ("erf", "erfinv"):
    define(
        _name,
        _with_kernel(getattr(kernels, _name)),
        promote="floating",
        operands=1,
        writes_into=True,
    )
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

for _name in (*_FLOATING, *_ARITH, *_LOGICAL, "rsqrt", "sigmoid", "relu", "erf"):
    export(_name, ops[_name])
    if _name not in ("isnan", "isinf", "isfinite"):
        export(_name + "_", inplace_of(ops[_name]), function=_name == "relu")
for _name in ("erfinv", "neg", "abs", "bitwise_not"):
    export(_name, ops[_name])
    export(_name + "_", inplace_of(ops[_name]), function=False)
export("sgn", ops["sgn"])
export("sgn_", inplace_of(ops["sgn"]), function=False)
export("negative", ops["neg"])
export("absolute", ops["abs"])


def _round(x: Any, decimals: int) -> Any:
    if decimals and x.dtype == np.float16:
        return np.round(x.astype(np.float32), decimals).astype(np.float16)
    return x.copy() if x.dtype.kind in "iub" else np.round(x, decimals)


define("round", _round, promote="arith", operands=1)


def round(input: Tensor, *, decimals: int | None = None) -> Tensor:  # noqa: A001
    """Rounds half to even, to a number of decimals, which integers do not have."""
    return ops["round"](input, _decimals(input, decimals))


def round_(self: Tensor, *, decimals: int | None = None) -> Tensor:
    """Rounds half to even, in place."""
    return ops["round"].inplace(self, _decimals(self, decimals))


def _decimals(x: Any, decimals: Any) -> int:
    if decimals is not None and x.dtype.dtype.kind in "iu":
        raise NotImplementedError(
            f"\"round\" to decimals not implemented for '{x.dtype}': integers have none"
        )
    return decimals or 0


export("round", round)
export("round_", round_, function=False)

define(
    "nan_to_num",
    lambda x, nan, posinf, neginf: np.nan_to_num(x, nan=nan or 0.0, posinf=posinf, neginf=neginf),
    meta=lambda x, *_: (x.shape, x.dtype),
)


def nan_to_num(
    input: Tensor,
    nan: float | None = None,
    posinf: float | None = None,
    neginf: float | None = None,
) -> Tensor:
    """Replaces NaN and infinities by numbers.

    Args:
        nan: In place of NaN; 0 without.
        posinf: In place of inf; the largest number of the dtype without.
        neginf: In place of -inf; the lowest number of the dtype without.
    """
    return ops["nan_to_num"](input, nan, posinf, neginf)


export("nan_to_num", nan_to_num)


# -- derivatives -----------------------------------------------------------------------------------

_LN2, _LN10 = math.log(2), math.log(10)
_ERF = 2 / math.sqrt(math.pi)
_sign_op = operation("sgn")

derive("exp", lambda g, out, _x: g * out.conj())
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
derive("neg", lambda g, _out, _x: -g)
derive("conj", lambda g, _out, _x: g.conj())
derive("erf", lambda g, _out, x: g * (np.exp(-(x * x)) * _ERF))
derive("erfinv", lambda g, out, _x: g * (np.exp(out * out) / _ERF))
derive("abs", lambda g, _out, x: g * _sign_op(x))


def _acosh(g: Any, _out: Any, x: Any) -> Any:
    if is_real(x):
        return g / np.sqrt(x * x - 1)
    # The two roots have branch cuts of their own; x - 1 would keep an imaginary part of -0. Their
    # product would be NaN at infinity, that of their reciprocals is 0.
    return g * ((1 / np.sqrt(x + -1)) * (1 / np.sqrt(x + 1))).conj()


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
not_differentiable("isnan", "isinf", "isfinite", "logical_not", "bitwise_not")
