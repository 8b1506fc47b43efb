# SPDX-License-Identifier: BSD-3-Clause
"""lgamma, digamma, logit, and methods that write what a function gives into their tensor."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import as_dtype, kernels
from modtree.numpy.ops.generic import (
    in_kernel_dtype,
    operation,
    pick,
    wrap_dim,
)
from modtree.numpy.ops.registry import (
    define,
    derive,
    export,
    inplace_of,
    methods,
    ops,
)
from modtree.numpy.ops.signatures import like

if TYPE_CHECKING:
    from modtree.numpy.argument_types import DType, Tensor

# Bernoulli numbers B(2), B(4), ...: coefficients of the series for large arguments.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# From here on eight terms of the series are exact to double precision.
_LARGE = 12.0


def _lgamma(x: Any) -> Any:
    return in_kernel_dtype(kernels.lgamma, x)


def _digamma(x: Any) -> Any:
    """The derivative of lgamma."""
    return in_kernel_dtype(kernels.digamma, x)


def _polygamma(x: Any, n: int) -> Any:
    """The n-th derivative of digamma, from the sum of 1 / (x + k) ** (n + 1)."""
    z = np.asarray(x, np.float64)
    with np.errstate(all="ignore"):
        result = _zeta(n, np.where(z <= 0, 1, z))
        if (below := z <= 0).any():
            # The sum from minus to plus infinity has the period 1; less the terms before x.
            start = z - np.floor(z)
            sign = (-1.0) ** (n + 1)
            whole = _zeta(n, start) + sign * _zeta(n, 1 - start)
            result = np.where(below, whole - sign * _zeta(n, np.where(below, 1 - z, 1)), result)
    with np.errstate(all="ignore"):
        return (math.factorial(n) * (-1.0) ** (n + 1) * result).astype(x.dtype)


def _zeta(n: int, z: Any) -> Any:
    """The sum of 1 / (z + k) ** (n + 1) for z from 0 on."""
    s = n + 1.0
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


def _logit(x: Any, eps: float | None) -> Any:
    if eps is not None:
        x = np.where(x < eps, x.dtype.type(eps), np.minimum(x, x.dtype.type(1 - eps)))
    return np.log(x / (1 - x))


define("lgamma", _lgamma, promote="floating", operands=1)
define("digamma", _digamma, promote="floating", operands=1)
define("polygamma", _polygamma, promote="floating", operands=1)
define("logit", _logit, promote="floating", operands=1)


def logit(input: Tensor, eps: float | None = None) -> Tensor:
    """log(x / (1 - x)), the inverse of sigmoid(); with eps, of x limited to [eps, 1 - eps]. A
    negative eps is none.
    """
    return ops["logit"](input, None if eps is not None and eps < 0 else eps)


def positive(input: Tensor) -> Tensor:
    """The tensor itself."""
    return input


export("digamma", ops["digamma"])
export("digamma_", inplace_of(ops["digamma"]), function=False)
export("logit", logit)
export("positive", positive)
export("lgamma", ops["lgamma"])
export("lgamma_", inplace_of(ops["lgamma"]), function=False)


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


export("logit_", written_after("logit_", logit), function=False)
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
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
}.items():
    export(_alias + "_", inplace_of(ops[_name]), function=False)
export("divide_", methods["div_"], function=False)
export("subtract_", methods["sub_"], function=False)


# -- derivatives -----------------------------------------------------------------------------------

_digamma_op, _polygamma_op = operation("digamma"), operation("polygamma")

derive("lgamma", lambda g, _out, x: g * _digamma_op(x))
derive("digamma", lambda g, _out, x: g * _polygamma_op(x, 1))
derive("polygamma", lambda g, _out, x, n: g * _polygamma_op(x, n + 1))


def _logit_vjp(g: Any, _out: Any, x: Any, eps: float | None) -> Any:
    """Limited values get no gradient; outside (0, 1) there is none to have."""
    if eps is None:
        inside, outside = (x >= 0) & (x <= 1), math.nan
    else:
        inside, outside = (x >= eps) & (x <= 1 - eps), 0
    # + 0.0 makes zeros of one sign: the slope is infinite upwards at both ends.
    return pick(inside, g / (x * (1 - x) + 0.0), outside)


derive("logit", _logit_vjp)
