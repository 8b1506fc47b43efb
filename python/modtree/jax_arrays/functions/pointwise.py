# SPDX-License-Identifier: BSD-3-Clause
"""Element-wise functions of jax arrays, by torch's names and with the names of its arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax.scipy import special

from modtree.jax_arrays.functions._common import Array


def _of_one(function: Callable[..., Any]) -> Callable[[Array], Array]:
    # The functions of jax.numpy call their argument x, and take no keyword.
    def pointwise(input: Array) -> Array:
        return function(input)

    return pointwise


def _of_two(function: Callable[..., Any]) -> Callable[[Any, Any], Array]:
    def pointwise(input: Any, other: Any) -> Array:
        return function(input, other)

    return pointwise


def _inexact(x: Array) -> Array:
    return x if jnp.issubdtype(x.dtype, jnp.inexact) else x.astype(jnp.float32)


def _reciprocal(x: Array) -> Array:
    return 1 / _inexact(x)


def _rsqrt(x: Array) -> Array:
    return jax.lax.rsqrt(_inexact(x))


abs = _of_one(jnp.abs)
acos = _of_one(jnp.arccos)
acosh = _of_one(jnp.arccosh)
asin = _of_one(jnp.arcsin)
asinh = _of_one(jnp.arcsinh)
atan = _of_one(jnp.arctan)
atanh = _of_one(jnp.arctanh)
bitwise_not = _of_one(jnp.bitwise_not)
ceil = _of_one(jnp.ceil)
conj = _of_one(jnp.conj)
cos = _of_one(jnp.cos)
cosh = _of_one(jnp.cosh)
digamma = _of_one(special.digamma)
erf = _of_one(special.erf)
erfinv = _of_one(special.erfinv)
exp = _of_one(jnp.exp)
expm1 = _of_one(jnp.expm1)
floor = _of_one(jnp.floor)
imag = _of_one(jnp.imag)
isfinite = _of_one(jnp.isfinite)
isinf = _of_one(jnp.isinf)
isnan = _of_one(jnp.isnan)
lgamma = _of_one(special.gammaln)
log = _of_one(jnp.log)
log10 = _of_one(jnp.log10)
log1p = _of_one(jnp.log1p)
log2 = _of_one(jnp.log2)
logical_not = _of_one(jnp.logical_not)
neg = _of_one(jnp.negative)
reciprocal = _of_one(_reciprocal)
rsqrt = _of_one(_rsqrt)
real = _of_one(jnp.real)
sgn = _of_one(jnp.sign)
sign = _of_one(jnp.sign)
sin = _of_one(jnp.sin)
sinh = _of_one(jnp.sinh)
sqrt = _of_one(jnp.sqrt)
square = _of_one(jnp.square)
tan = _of_one(jnp.tan)
trunc = _of_one(jnp.trunc)

atan2 = _of_two(jnp.arctan2)
bitwise_and = _of_two(jnp.bitwise_and)
bitwise_left_shift = _of_two(jnp.left_shift)
bitwise_or = _of_two(jnp.bitwise_or)
bitwise_right_shift = _of_two(jnp.right_shift)
bitwise_xor = _of_two(jnp.bitwise_xor)
eq = _of_two(jnp.equal)
floor_divide = _of_two(jnp.floor_divide)
fmod = _of_two(jnp.fmod)
ge = _of_two(jnp.greater_equal)
gt = _of_two(jnp.greater)
le = _of_two(jnp.less_equal)
logaddexp = _of_two(jnp.logaddexp)
logical_and = _of_two(jnp.logical_and)
logical_or = _of_two(jnp.logical_or)
logical_xor = _of_two(jnp.logical_xor)
lt = _of_two(jnp.less)
maximum = _of_two(jnp.maximum)
minimum = _of_two(jnp.minimum)
mul = _of_two(jnp.multiply)
ne = _of_two(jnp.not_equal)
remainder = _of_two(jnp.remainder)
true_divide = _of_two(jnp.true_divide)


def add(input: Any, other: Any, *, alpha: float = 1) -> Array:
    return jnp.add(input, other if alpha == 1 else alpha * other)


def sub(input: Any, other: Any, *, alpha: float = 1) -> Array:
    return jnp.subtract(input, other if alpha == 1 else alpha * other)


def div(input: Any, other: Any, *, rounding_mode: str | None = None) -> Array:
    if rounding_mode is None:
        return jnp.true_divide(input, other)
    if rounding_mode == "floor":
        return jnp.floor_divide(input, other)
    if rounding_mode != "trunc":
        raise RuntimeError(
            f"div expected rounding_mode to be one of None, 'trunc', or 'floor' but found "
            f"{rounding_mode!r}"
        )
    dtype = jnp.result_type(input, other)
    return jnp.trunc(jnp.true_divide(input, other)).astype(dtype)


def pow(input: Any, exponent: Any) -> Array:
    return jnp.power(input, exponent)


def round(input: Array, *, decimals: int = 0) -> Array:
    return jnp.round(input, decimals)


def clamp(input: Array, min: Any = None, max: Any = None) -> Array:
    if min is None and max is None:
        raise RuntimeError("clamp: expected at least one of 'min' or 'max', got neither")
    return jnp.clip(input, min, max)


def clamp_min(input: Array, min: Any) -> Array:
    return clamp(input, min)


def clamp_max(input: Array, max: Any) -> Array:
    return clamp(input, max=max)


def lerp(input: Array, end: Array, weight: Any) -> Array:
    return input + weight * (end - input)


def addcmul(input: Array, tensor1: Array, tensor2: Array, *, value: float = 1) -> Array:
    return input + value * tensor1 * tensor2


def addcdiv(input: Array, tensor1: Array, tensor2: Array, *, value: float = 1) -> Array:
    return input + value * tensor1 / tensor2


def logit(input: Array, eps: float | None = None) -> Array:
    x = input if eps is None else jnp.clip(input, eps, 1 - eps)
    return special.logit(x)


def nan_to_num(
    input: Array, nan: float = 0.0, posinf: float | None = None, neginf: float | None = None
) -> Array:
    return jnp.nan_to_num(input, nan=nan, posinf=posinf, neginf=neginf)


def isclose(
    input: Array, other: Array, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Array:
    return jnp.isclose(input, other, rtol, atol, equal_nan)
