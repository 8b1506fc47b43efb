# SPDX-License-Identifier: BSD-3-Clause
"""var, std, var_mean, std_mean."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.generic import count, kept, pick, real_dtype, total
from modtree.numpy.ops.reduce import (
    OVER_DIM,
    axis_of,
    mean_of_nothing,
    meta_of_reduction,
    require_float,
)
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Number, Sizes, Tensor


def _var(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 1) -> Any:
    require_float("var", x)
    n = count(x.shape, axis)
    work = x.astype(np.float32) if x.dtype == np.float16 else x
    if n == 0:
        float(correction)  # a number, as of others
        return mean_of_nothing(x.real, axis, keepdims)
    centred = work - np.add.reduce(work, axis, None, None, True) / n
    squares = (centred * centred.conj()).real if x.dtype.kind == "c" else centred * centred
    total = np.add.reduce(squares, axis, None, None, keepdims)
    divisor = float(max(n - correction, 0))
    if divisor == 0:
        warnings.warn(
            f"var()/std(): degrees of freedom is <= 0 ({n} elements with "
            f"correction={correction}): the result is not a "
            "number; use correction=0 or more elements",
            stacklevel=4,
        )
    result = total / divisor if divisor else total / total.dtype.type(0)
    return result.astype(np.float16) if x.dtype == np.float16 else result


def _std(x: Any, axis: Any = None, keepdims: bool = False, correction: float = 1) -> Any:
    return np.sqrt(_var(x, axis, keepdims, correction))


define("var", _var, meta=meta_of_reduction(real_dtype))
define("std", _std, meta=meta_of_reduction(real_dtype))


def _moment(name: str) -> Any:
    op = ops[name]

    def reduce(
        input: Tensor,
        dim: int | Sizes | None = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: Number | None = None,
    ) -> Tensor:
        if isinstance(dim, bool):  # var(unbiased)
            dim, unbiased = None, dim
        if correction is None:
            correction = 1 if unbiased is None else int(unbiased)
        return op(input, axis=axis_of(input, dim), keepdims=keepdim, correction=correction)

    reduce.__name__ = reduce.__qualname__ = name
    what = "The variance" if name == "var" else "The standard deviation"
    reduce.__doc__ = (
        f"{what} {OVER_DIM.format(more='; n - correction is the divisor')}"
        "    unbiased: Divide by n - 1, which is the default, or else by n.\n"
        "    correction: Divide by n - correction.\n"
    )
    return reduce


var = _moment("var")
std = _moment("std")
export("var", var)
export("std", std)


def _and_mean(name: str) -> Any:
    spread = var if name == "var" else std

    def reduce(
        input: Tensor,
        dim: int | Sizes | None = None,
        unbiased: bool | None = None,
        keepdim: bool = False,
        *,
        correction: Number | None = None,
    ) -> tuple[Tensor, Tensor]:
        axis = axis_of(input, None if isinstance(dim, bool) else dim)
        mean = ops["mean"](input, axis=axis, keepdims=keepdim)
        return spread(input, dim, unbiased, keepdim, correction=correction), mean

    reduce.__name__ = reduce.__qualname__ = f"{name}_mean"
    what = "Variance" if name == "var" else "Standard deviation"
    reduce.__doc__ = (
        f"{what} and mean.\n\n"
        "Args:\n"
        "    dim: One or several dimensions; all without.\n"
        "    unbiased: Divide by n - 1, which is the default, or else by n.\n"
        "    keepdim: Leave the dimension in the result, with size 1.\n"
        "    correction: Divide by n - correction.\n"
    )
    return reduce


export("var_mean", _and_mean("var"), method=False)
export("std_mean", _and_mean("std"), method=False)

# -- derivatives -----------------------------------------------------------------------------------


def _var_vjp(
    g: Any, _out: Any, x: Any, axis: Any = None, keepdims: bool = False, correction: Any = 1
) -> Any:
    n = count(tuple(x.shape), axis)
    centred = x - total(x, axis) / max(n, 1)
    free = n - correction
    g = kept(g, axis, keepdims, x.ndim)
    if free <= 0 and (axis is None or x.ndim == 0):
        # As in torch, without a degree of freedom all elements pull towards infinity.
        return pick(centred == 0, g * float("nan"), g * float("inf"))
    return g * (centred * (2 / free if free else float("inf")))


def _std_vjp(
    g: Any, out: Any, x: Any, axis: Any = None, keepdims: bool = False, correction: Any = 1
) -> Any:
    """Of a constant the gradient is 0."""
    flat = out == 0
    return _var_vjp(pick(flat, 0, g / pick(flat, 1, out * 2)), None, x, axis, keepdims, correction)


derive("var", _var_vjp)
derive("std", _std_vjp)
