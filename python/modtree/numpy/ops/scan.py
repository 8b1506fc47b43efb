# SPDX-License-Identifier: BSD-3-Clause
"""Scans: cumsum, cumprod, logcumsumexp."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_dtype, kernels
from modtree.numpy.ops.arithmetic import complex_logaddexp
from modtree.numpy.ops.generic import (
    any_of,
    backwards,
    cat,
    conj,
    is_complex,
    like_first,
    native,
    operation,
    pick,
    total,
    wrap_dim,
)
from modtree.numpy.ops.reduce import integral_to_int64
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import DType, Tensor


def _scan(function: Any, product: bool) -> Any:
    def forward(x: Any, axis: int, dtype: Any = None) -> Any:
        axis = wrap_dim(axis, x.ndim)
        if native(x) and x.ndim and (dtype is None or dtype == x.dtype):
            return kernels.scan(x, axis, product)
        target = integral_to_int64(x.dtype) if dtype is None else np.dtype(dtype)
        if target.kind == "b" and x.size and x.ndim:
            raise NotImplementedError(
                f"\"{'cumprod' if product else 'cumsum'}\" not implemented for 'Bool'"
            )
        return x.astype(target) if x.ndim == 0 else function(x, axis, target)

    return forward


def _scan_meta(x: Any, axis: int, dtype: Any = None) -> Any:
    return x.shape, dtype or integral_to_int64(x.dtype)


define("cumsum", _scan(np.add.accumulate, False), meta=_scan_meta)
define("cumprod", _scan(np.multiply.accumulate, True), meta=_scan_meta)


def cumsum(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running sum along dim.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    return ops["cumsum"](input, dim, dtype=None if dtype is None else as_dtype(dtype).dtype)


def cumprod(input: Tensor, dim: int, *, dtype: DType | None = None) -> Tensor:
    """Running product along dim.

    Args:
        dim: The dimension; may count from the end.
        dtype: Convert to this dtype first.
    """
    wanted = None if dtype is None else as_dtype(dtype)
    if wanted is not None and input.is_complex() and not wanted.is_complex:
        input = input.to(wanted)  # whose factors the gradient multiplies
    return ops["cumprod"](input, dim, dtype=None if wanted is None else wanted.dtype)


def _logcumsumexp_forward(x: Any, axis: int) -> Any:
    if x.ndim == 0:
        return x.copy()
    if x.dtype.kind != "c":
        return np.logaddexp.accumulate(x, axis)
    result = x.copy()
    rows = np.moveaxis(result, axis, 0)
    for i in range(1, len(rows)):
        rows[i] = complex_logaddexp(rows[i - 1], rows[i])
    return result


define(
    "logcumsumexp",
    _logcumsumexp_forward,
    promote="floating",
    operands=1,
    meta=like_first,
)


def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """log(cumsum(exp(x))) along dim, computed without overflow."""
    return ops["logcumsumexp"](input, wrap_dim(dim, input.ndim))


for _function in (cumsum, cumprod, logcumsumexp):
    export(_function.__name__, _function)

# -- derivatives -----------------------------------------------------------------------------------

_cumprod, _cumsum = operation("cumprod"), operation("cumsum")
_logcumsumexp = operation("logcumsumexp")


def _running_total_from_end(x: Any, axis: int) -> Any:
    if native(x):
        return kernels.scan(x, axis, False, True)
    return backwards(_cumsum(backwards(x, axis), axis), axis)


def _cumsum_gradient(g: Any, _out: Any, x_like: Any, axis: int, dtype: Any = None) -> Any:
    return g if x_like.ndim == 0 else _running_total_from_end(g, axis)


def _cumprod_gradient(g: Any, out: Any, x: Any, axis: int, dtype: Any = None) -> Any:
    """d out[j] / d x[i] is out[j] / x[i] for j >= i, and by hand for the first zero of a row; after
    it all is 0.
    """
    if x.ndim == 0:
        return g
    zero = x == 0
    if not any_of(zero):
        return _running_total_from_end(g * conj(out), axis) / conj(x)
    if isinstance(x, TensorBase):
        return _cumprod_one_by_one(g, x, axis)
    first = zero & (np.cumsum(zero, axis) == 1)
    without = np.cumprod(np.where(first, 1, x), axis)
    at_first = _running_total_from_end(g * conj(without), axis)
    before = _running_total_from_end(g * conj(out), axis) / np.where(zero, 1, conj(x))
    return np.where(first, at_first, before)


def _cumprod_one_by_one(g: Any, x: Any, axis: int) -> Any:
    """The gradient without a division by x, so that its own derivative is right at several zeros
    too.
    """
    pieces = []
    for i in range(x.shape[axis]):
        rest = x.shape[axis] - i
        at = x.narrow(axis, i, 1)
        others = cat(
            [x.narrow(axis, 0, i), at.new_ones(at.shape), x.narrow(axis, i + 1, rest - 1)], axis
        )
        products = _cumprod(others, axis).narrow(axis, i, rest)
        pieces.append(total(g.narrow(axis, i, rest) * conj(products), axis))
    return cat(pieces, axis)


derive("cumsum", _cumsum_gradient)
derive("cumprod", _cumprod_gradient)


def _logcumsumexp_gradient(g: Any, out: Any, x: Any, axis: int) -> Any:
    """The sum over j >= i of g[j] * exp(x[i] - out[j]), in logarithms, for g above and below 0
    apart.
    """
    if x.ndim == 0:
        return g
    if is_complex(x):
        # In logarithms of complex numbers every sign is a phase.
        zero = g == 0
        logs = pick(zero, -math.inf, np.log(pick(zero, 1, g)) - conj(out))
        sums = np.exp(backwards(_logcumsumexp(backwards(logs, axis), axis), axis) + conj(x))
        return pick(sums != sums, 0, sums)

    def part(sign: int) -> Any:
        wanted = g * sign > 0
        logs = pick(wanted, np.log(pick(wanted, g * sign, 1)) - out, -math.inf)
        return np.exp(backwards(_logcumsumexp(backwards(logs, axis), axis), axis) + x)

    return part(1) - part(-1)


derive("logcumsumexp", _logcumsumexp_gradient)
