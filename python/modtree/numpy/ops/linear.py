# SPDX-License-Identifier: BSD-3-Clause
"""linear: a matrix product and a bias."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import kernels
from modtree.numpy.ops.generic import Array, Spec, broadcasts_to, conj, need_arrays, rows_of, sizes
from modtree.numpy.ops.matrix_product import matmul
from modtree.numpy.ops.registry import define, derive_jointly

# Up to so many rows, OpenBLAS multiplies weight by input.T up to 1.8 times faster than input by
# weight.T (measured with 16 and 128 rows and the sizes of MiniLM), which pays for the transposed
# copy.
_FEW_ROWS = 128
_BOOL = np.dtype(np.bool_)
_KERNEL_DTYPES = (np.dtype(np.float32), np.dtype(np.float64))


def _check_linear(x: Array, weight: Array, bias: Array | None) -> None:
    need_arrays("linear", x, weight, *(() if bias is None else (bias,)))
    if x.ndim == 0 or weight.ndim == 0:
        raise RuntimeError(
            "both arguments to linear need to be at least 1D, "
            f"but they are {x.ndim}D and {weight.ndim}D"
        )
    if weight.ndim > 2:
        raise RuntimeError(f"linear: the weight must be 1-D or 2-D, got shape {weight.shape}")
    if x.shape[-1] != weight.shape[-1]:
        rows = math.prod(x.shape[:-1])
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({rows}x{x.shape[-1]} and "
            f"{sizes(weight.shape[::-1])}): linear got an input whose last axis has "
            f"{x.shape[-1]} values, its weight takes {weight.shape[-1]}"
        )
    dtype = x.dtype
    if dtype is _BOOL:
        raise NotImplementedError("linear is not implemented for bool: convert with .float()")
    if dtype != weight.dtype or (bias is not None and bias.dtype != dtype):
        dtypes = f"{x.dtype}, {weight.dtype}" + (f" and {bias.dtype}" if bias is not None else "")
        raise RuntimeError(
            f"mat1 and mat2 must have the same dtype, but linear got {dtypes}. Convert the input "
            "or the module with .to(dtype)"
        )


def _linear(x: Array, weight: Array, bias: Array | None = None) -> Array:
    _check_linear(x, weight, bias)
    # One matrix product instead of one for each entry of the leading axes.
    rows = x if x.ndim == 2 else rows_of(x)
    shape = x.shape[:-1] + weight.shape[:-1]
    if (
        bias is not None
        and bias.shape != weight.shape[:-1]
        and not broadcasts_to(bias.shape, shape)
    ):
        raise RuntimeError(
            f"linear: a bias of shape {bias.shape} does not fit an output of {shape}"
        )
    if rows.ndim == weight.ndim == 2 and (bias is None or bias.shape == weight.shape[:1]):
        y = kernels.matmul(rows, weight.T, bias)
        if y is not None:
            return y.reshape(shape)
    if (
        rows.ndim == weight.ndim == 2
        and len(rows) <= _FEW_ROWS
        and (bias is None or bias.ndim == 1)
    ):
        y = np.matmul(weight, rows.T)
        if y.dtype in _KERNEL_DTYPES and (bias is None or len(bias) == len(y)):
            return kernels.transpose_add(y, bias).reshape(shape)
        y = np.ascontiguousarray(y.T) if bias is None else np.add(y.T, bias, order="C")
        return y.reshape(shape)
    y = np.matmul(rows, weight.T)
    if bias is None:
        return y.reshape(shape)
    if bias.ndim > 1:
        return y.reshape(shape) + bias
    y += bias
    return y.reshape(shape)


def _linear_meta(x: Array, weight: Array, bias: Array | None = None) -> Spec:
    _check_linear(x, weight, bias)
    return x.shape[:-1] + weight.shape[:-1], x.dtype


def _linear_backward(
    needs: Any, g: Any, _out: Any, x: Any, weight: Any, bias_like: Any = None
) -> tuple[Any, Any, Any]:
    if weight.ndim == 1:
        column = g.reshape((*g.shape, 1))
        gw = rows_of(column * conj(x)).sum(0) if needs[1] else None
        return column * conj(weight) if needs[0] else None, gw, g
    rows = rows_of(g)
    gx = matmul(rows, conj(weight)).reshape(x.shape) if needs[0] else None
    gw = matmul(rows.T, rows_of(conj(x))) if needs[1] else None
    gb = None
    if len(needs) > 2 and needs[2]:
        gb = rows.sum(0) if bias_like.ndim == 1 else g
    return gx, gw, gb


linear = define("linear", _linear, meta=_linear_meta)
derive_jointly("linear", _linear_backward, double_backward=True)
