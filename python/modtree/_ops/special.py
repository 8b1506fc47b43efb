# SPDX-License-Identifier: BSD-3-Clause
"""erf, lgamma, digamma, polygamma, sinc, logit, xlogy, angle and other special functions."""

from __future__ import annotations

import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree import _C
from modtree._C import TensorBase, as_dtype, kernels
from modtree._ops.generic import (
    conj,
    in_kernel_dtype,
    is_real,
    operation,
    pick,
    select,
    wrap_dim,
    zeros,
)
from modtree._ops.registry import (
    define,
    derive,
    export,
    inplace_of,
    methods,
    ops,
)
from modtree._ops.signatures import like

if TYPE_CHECKING:
    from modtree._argument_types import DType, Operand, Tensor

# Bernoulli numbers B(2), B(4), ...: coefficients of the series for large arguments.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# From here on eight terms of the series are exact to double precision.
_LARGE = 12.0


def _digamma(x: Any) -> Any:
    """The derivative of lgamma."""
    return in_kernel_dtype(kernels.digamma, x)


def _polygamma(x: Any, n: int) -> Any:
    """The n-th derivative of digamma, from the sum of 1 / (x + k) ** (n + 1)."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n (got {n})")
    if n == 0:
        return _digamma(x)
    z = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        result = _zeta(n, np.where(z <= 0, 1, z))
        if (below := z <= 0).any():
            # The sum from minus to plus infinity has the period 1; less the terms before x.
            start = z - np.floor(z)
            sign = (-1.0) ** (n + 1)
            whole = _zeta(n, start) + sign * _zeta(n, 1 - start)
            result = np.where(below, whole - sign * _zeta(n, np.where(below, 1 - z, 1)), result)
    factorial = math.factorial(n) if n <= _MOST_FACTORIAL else math.inf
    with np.errstate(all="ignore"):
        return (factorial * (-1.0) ** (n + 1) * result).astype(x.dtype)


#: The last factorial below the largest double is that of 170.
_MOST_FACTORIAL = 170


def _zeta(n: int, z: Any) -> Any:
    """The sum of 1 / (z + k) ** (n + 1) for z from 0 on."""
    s = n + 1.0
    if n > _MOST_FACTORIAL:
        return z**-s  # times infinity: the other terms do not matter
    result = np.zeros_like(z)
    while (small := z < _LARGE + n).any():
        result += np.where(small, z**-s, 0)
        z = np.where(small, z + 1, z)
    # The rest of the sum by Euler and Maclaurin.
    power = z**-s
    result += z ** (1 - s) / n + power / 2
    factor = s / 2
    for k, number in enumerate(_BERNOULLI, 1):
        power = power / z if k == 1 else power / (z * z)
        result += number * factor * power
        factor *= (s + 2 * k - 1) * (s + 2 * k) / ((2 * k + 1) * (2 * k + 2))
    return result


def _sinc(x: Any) -> Any:
    return np.sinc(x.astype(np.float32) if x.dtype == np.float16 else x).astype(x.dtype)


def _logit(x: Any, eps: float | None) -> Any:
    if eps is not None:
        x = np.where(x < eps, x.dtype.type(eps), np.minimum(x, x.dtype.type(1 - eps)))
    return np.log(x / (1 - x))


def _xlogy(x: Any, y: Any) -> Any:
    """x * log(y), and 0 where x is 0 whatever y is, except NaN."""
    zero = (x == 0) & ~np.isnan(y)
    return np.where(zero, 0, x * np.log(np.where(zero, 1, y)))


def _angle(x: Any) -> Any:
    """Of a real number 0 or pi; torch lets NaN through."""
    result = np.angle(x).astype(x.real.dtype)
    return result if x.dtype.kind == "c" else np.where(np.isnan(x), x, np.where(x < 0, result, 0))


def _heaviside_of(x: Any, values: Any) -> Any:
    """NaN counts as not above 0."""
    return np.where(x == 0, values, (x > 0).astype(x.dtype))


define("lgamma", _C._lgamma, promote="floating", operands=1)
define("digamma", _digamma, promote="floating", operands=1)
define("polygamma", _polygamma, promote="floating", operands=1)
define("sinc", _sinc, promote="floating", operands=1, numpy=np.sinc)
define("logit", _logit, promote="floating", operands=1)
define("xlogy", _xlogy, promote="floating", operands=2)
define("logaddexp2", np.logaddexp2, promote="floating", operands=2, numpy=np.logaddexp2)
define("heaviside", _heaviside_of, promote="same", operands=2, numpy=np.heaviside)
define(
    "angle",
    _angle,
    promote="floating",
    operands=1,
    numpy=np.angle,
    meta=lambda x: (x.shape, x.real.dtype),
)


def polygamma(n: int, input: Tensor) -> Tensor:
    """The n-th derivative of digamma() (DLMF 5.15)."""
    return ops["polygamma"](input, n)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid(); with eps, of x limited to [eps, 1 - eps]. A
    negative eps is none.
    """
    return ops["logit"](input, None if eps is not None and eps < 0 else eps)


def mvlgamma(input: Tensor, p: int) -> Tensor:
    """The logarithm of the multivariate gamma function of dimension p (DLMF 35.3.4)."""
    p = operator.index(p)
    if p < 1:
        raise RuntimeError(f"p has to be greater than or equal to 1, got {p}")
    values: Any = input + 0.0
    steps = (1 - values.new_ones(p).cumsum(0)) / 2
    return ops["lgamma"](values.unsqueeze(-1) + steps).sum(-1) + p * (p - 1) / 4 * math.log(math.pi)


def float_power(input: Tensor, exponent: Operand) -> Tensor:
    """input ** exponent, computed in double precision."""
    return ops["pow"](*(_double(v) for v in (input, exponent)))


def _double(value: Any) -> Any:
    if not isinstance(value, TensorBase):
        return value
    kind = as_dtype(np.complex128 if value.is_complex() else np.float64)
    return value.to(kind)  # type: ignore[attr-defined]


def ldexp(input: Tensor, other: Operand) -> Tensor:
    """input * 2 ** other."""
    if isinstance(input, TensorBase) and input.is_floating_point():
        if isinstance(other, TensorBase) and other.dtype.dtype.kind == "b":
            raise NotImplementedError("\"ldexp\" not implemented for 'Bool': convert with .int()")
        two: Any = input.new_full((), 2.0)
        return input * ops["pow"](two, other)
    return input * ops["pow"](2.0, other)


def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


def isposinf(input: Tensor) -> Tensor:
    """True where an element is plus infinity."""
    return ops["eq"](input, math.inf)


def isneginf(input: Tensor) -> Tensor:
    """True where an element is minus infinity."""
    return ops["eq"](input, -math.inf)


def _polygamma_method(self: Tensor, n: int) -> Tensor:
    """The n-th derivative of the digamma function of each element (DLMF 5.15)."""
    return ops["polygamma"](self, n)


for _name in ("digamma", "sinc", "xlogy", "heaviside"):
    export(_name, ops[_name])
    export(_name + "_", inplace_of(ops[_name]), function=False)
for _name in ("angle", "logaddexp2"):
    export(_name, ops[_name])
for _function in (logit, mvlgamma, float_power, ldexp):
    export(_function.__name__, _function)
export("lgamma", ops["lgamma"])
export("lgamma_", inplace_of(ops["lgamma"]))
export("polygamma", polygamma, method=False)
export("polygamma", _polygamma_method, function=False)
export("fix", ops["trunc"])
export("fix_", inplace_of(ops["trunc"]), function=False)
export("positive", positive)
export("isposinf", isposinf)
export("isneginf", isneginf)


#: Kinds of dtypes; a result is not written into a lower one.
_RANKS = {"b": 0, "i": 1, "u": 1, "f": 2, "c": 3}


def written_after(name: str, function: Any) -> Any:
    """The method that writes what a function of self gives into self."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        # The backward pass may need the old values.
        result = function(self.clone(), *args, **kwargs)
        if _RANKS[result.dtype.dtype.kind] > _RANKS[self.dtype.dtype.kind]:
            raise RuntimeError(
                f"result type {result.dtype} can't be cast to the desired output type {self.dtype} "
                f"(in {name})"
            )
        return self.copy_(result)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = f"{name[:-1]}() in place."
    return like(method, function)


def float_power_(self: Tensor, exponent: Operand) -> Tensor:
    """float_power() in place, of a tensor in double precision."""
    complex_too = self.is_complex() or isinstance(exponent, complex)
    if isinstance(exponent, TensorBase):
        complex_too = complex_too or exponent.is_complex()
    needed = as_dtype(np.complex128 if complex_too else np.float64)
    if self.dtype != needed:
        raise RuntimeError(
            f"the base given to float_power_ has dtype {self.dtype} but the operation's result "
            f"requires dtype {needed}"
        )
    return _float_power_(self, exponent)


_float_power_ = written_after("float_power_", float_power)
export("float_power_", float_power_, function=False)
for _function in (logit, mvlgamma, ldexp):
    _name = _function.__name__ + "_"
    export(_name, written_after(_name, _function), function=False)
export("polygamma_", written_after("polygamma_", methods["polygamma"]), function=False)
export("nan_to_num_", written_after("nan_to_num_", methods["nan_to_num"]), function=False)


def _scan_in_place(name: str) -> Any:
    write = written_after(name, methods[name[:-1]])

    def method(self: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
        wrap_dim(dim, self.ndim)
        if dtype is not None and as_dtype(dtype) != self.dtype:
            raise RuntimeError(
                f"Bad in-place call: input tensor dtype {self.dtype} and output tensor dtype "
                f"{as_dtype(dtype)} should match (in {name})"
            )
        return write(self, dim, dtype=self.dtype)

    method.__name__ = method.__qualname__ = name
    method.__doc__ = write.__doc__
    return like(method, methods[name[:-1]])


for _name in ("cumsum_", "cumprod_"):
    export(_name, _scan_in_place(_name), function=False)
for _alias, _name in {
    "negative": "neg",
    "absolute": "abs",
    "multiply": "mul",
    "arctan2": "atan2",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
}.items():
    export(_alias + "_", inplace_of(ops[_name]), function=False)
export("divide_", methods["div_"], function=False)
export("subtract_", methods["sub_"], function=False)


# -- derivatives -----------------------------------------------------------------------------------

_digamma_op, _polygamma_op = operation("digamma"), operation("polygamma")
_logcumsumexp = operation("logcumsumexp")

derive("lgamma", lambda g, _out, x: g * _digamma_op(x))
derive("digamma", lambda g, _out, x: g * _polygamma_op(x, 1))
derive("polygamma", lambda g, _out, x, n: g * _polygamma_op(x, n + 1))


def _sinc_vjp(g: Any, _out: Any, x: Any) -> Any:
    angle = x * math.pi
    flat = angle * angle == 0
    angle = pick(flat, 1, angle)
    slope = (np.cos(angle) * angle - np.sin(angle)) / (angle * angle) * math.pi
    return select(~flat, g * conj(slope))


def _logit_vjp(g: Any, _out: Any, x: Any, eps: float | None) -> Any:
    """Limited values get no gradient; outside (0, 1) there is none to have."""
    if eps is None:
        inside, outside = (x >= 0) & (x <= 1), math.nan
    else:
        inside, outside = (x >= eps) & (x <= 1 - eps), 0
    # + 0.0 makes zeros of one sign: the slope is infinite upwards at both ends.
    return pick(inside, g / (x * (1 - x) + 0.0), outside)


def _xlogy_vjp(g: Any, _out: Any, x: Any, y: Any) -> Any:
    settled = (x == 0) & (y <= 0)
    return g * pick(settled, 0, np.log(pick(settled, 1, y)))


derive("sinc", _sinc_vjp)
derive("logit", _logit_vjp)
derive("xlogy", _xlogy_vjp, lambda g, _out, x, y: g * (x / y))
derive(
    "logaddexp2",
    lambda g, _out, a, b: g / (1 + np.exp2(b - a)),
    lambda g, _out, a, b: g / (1 + np.exp2(a - b)),
)


def _heaviside(*_args: Any) -> Any:
    raise NotImplementedError(
        "heaviside() has no derivative: call it on tensor.detach(), or under modtree.no_grad()"
    )


derive("heaviside", _heaviside, _heaviside)


def _angle_vjp(g: Any, _out: Any, x: Any) -> Any:
    if is_real(x):
        return zeros(g)
    square = (x * conj(x)).real
    return pick(square == 0, 0, g * (x * 1j) / pick(square == 0, 1, square))


derive("angle", _angle_vjp)
