# SPDX-License-Identifier: BSD-3-Clause
"""softmax, log_softmax."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import kernels
from modtree.numpy.ops.generic import is_array, like_first, native, total, wrap_dim
from modtree.numpy.ops.reduce import SCALAR_NAMES
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import DType, Tensor


def _along(kernel: Any, otherwise: Any, x: Any, axis: int) -> Any:
    """A kernel along the last axis; along others NumPy's functions, which go through the memory in
    order.
    """
    if x.ndim == 0 or 0 in x.shape:
        wrap_dim(axis, x.ndim)
        if 0 in x.shape:
            return x.copy()  # of any dtype
    dtype = x.dtype
    if dtype.kind != "f":
        _refuse_softmax(dtype)
    if dtype == np.float16:
        return _along(kernel, otherwise, x.astype(np.float32), axis).astype(np.float16)
    if x.ndim == 0 or axis in (-1, x.ndim - 1):
        return kernel(x)
    return otherwise(x - np.maximum.reduce(x, axis, None, None, True, -np.inf), axis)


def _normalized_exp(x: Any, axis: int) -> Any:
    np.exp(x, out=x)
    x /= np.add.reduce(x, axis, None, None, True)
    return x


def _less_log_sum_exp(x: Any, axis: int) -> Any:
    x -= np.log(np.add.reduce(np.exp(x), axis, None, None, True))
    return x


def _softmax(x: Any, axis: int) -> Any:
    return _along(kernels.softmax, _normalized_exp, x, axis)


def _log_softmax(x: Any, axis: int) -> Any:
    return _along(kernels.log_softmax, _less_log_sum_exp, x, axis)


def _refuse_softmax(dtype: Any) -> None:
    raise NotImplementedError(
        f"\"softmax\" not implemented for '{SCALAR_NAMES.get(dtype.kind, dtype)}': "
        f"convert with .float()"
    )


define("softmax", _softmax, meta=like_first)

define("log_softmax", _log_softmax, meta=like_first)


def softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """exp(x) / sum(exp(x)) along dim.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    return ops["softmax"](input if dtype is None else input.to(dtype), dim)


def log_softmax(input: Tensor, dim: int, dtype: DType | None = None) -> Tensor:
    """log(softmax(x)) along dim, computed without overflow.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    return ops["log_softmax"](input if dtype is None else input.to(dtype), dim)


for _function in (softmax, log_softmax):
    export(_function.__name__, _function)

# -- derivatives -----------------------------------------------------------------------------------


def _in_single(vjp: Any, g: Any, out: Any, axis: int) -> Any:
    """Of float16: what is left of two near terms must not be rounded before."""
    return vjp(g.astype(np.float32), out.astype(np.float32), None, axis).astype(np.float16)


def _softmax_vjp(g: Any, out: Any, _x: Any, axis: int) -> Any:
    if native(g, out) and axis in (-1, out.ndim - 1):
        return kernels.softmax_backward(g, out)
    if is_array(g) and g.dtype == np.float16:
        return _in_single(_softmax_vjp, g, out, axis)
    weighted = g * out
    return weighted - out * _along_vjp(weighted, axis)


def _log_softmax_vjp(g: Any, out: Any, _x: Any, axis: int) -> Any:
    if native(g, out) and axis in (-1, out.ndim - 1):
        return kernels.log_softmax_backward(g, out)
    if is_array(g) and g.dtype == np.float16:
        return _in_single(_log_softmax_vjp, g, out, axis)
    return g - np.exp(out) * _along_vjp(g, axis)


def _along_vjp(x: Any, axis: int) -> Any:
    return total(x, axis) if x.ndim else x


derive("softmax", _softmax_vjp)
derive("log_softmax", _log_softmax_vjp)
