# SPDX-License-Identifier: BSD-3-Clause
"""where, clamp and the like: elements chosen by a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from modtree._C import TensorBase, as_dtype, kernels
from modtree.numpy.ops import masks
from modtree.numpy.ops.generic import native, select
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Number, Operand, Tensor


def _where(condition: Any, a: Any, b: Any) -> Any:
    if condition.dtype.kind != "b" and condition.dtype != np.uint8:
        raise RuntimeError(
            f"where expected condition to be a boolean tensor, but got a tensor with dtype "
            f"{condition.dtype}"
        )
    return masks.where(condition if condition.dtype.kind == "b" else condition != 0, a, b)


# Up to so many elements NumPy's functions cost less than the call of a kernel.
_SMALL = 1024


def _clamp(x: Any, low: Any, high: Any, out: Any = None) -> Any:
    if x.size > _SMALL and native(x) and not np.ndim(low) and not np.ndim(high):
        least, most = (
            -np.inf if low is None else float(low),
            np.inf if high is None else float(high),
        )
        if least <= most:
            return kernels.clamp(x, least, most, out)
    if low is not None:
        x = np.maximum(x, low)
    if high is not None:
        x = np.minimum(x, high)
    return x


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
define(
    "clamp",
    _clamp,
    promote="arith",
    operands=3,
    meta=lambda x, low, high: (x.shape, x.dtype),
    writes_into=True,
)


_BOOL = {np.dtype(bool), as_dtype(bool)}


@overload
def where(condition: Tensor, input: None = None, other: None = None) -> tuple[Tensor, ...]: ...
@overload
def where(condition: Tensor, input: Operand, other: Operand) -> Tensor: ...
def where(condition: Tensor, input: Operand | None = None, other: Operand | None = None) -> Any:
    """Elements of input where condition holds, else of other; with one argument the indices where
    it holds.

    Args:
        condition: A bool tensor.
        input: A tensor or a number.
        other: A tensor or a number.
    """
    if input is None and other is None:
        return ops["nonzero_tuple"](condition)
    try:
        return ops["where"](condition, input, other)
    except RuntimeError:
        _check_condition(condition)
        raise


def _check_condition(condition: Any) -> None:
    if not isinstance(condition, TensorBase):
        raise TypeError(
            f"where(): argument 'condition' must be Tensor, not {type(condition).__name__}"
        )


def clamp(
    input: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None
) -> Tensor:  # noqa: A002
    """Limits values to [min, max]; either may be None.

    Args:
        min: Lower limit, a number or a tensor.
        max: Upper limit; wins where it is below ``min``.
    """
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    try:
        return ops["clamp"](input, min, max)
    except NotImplementedError:
        if (op := _of_bools(input, min, max)) is None:
            raise
    return op(input, max if min is None else min)


def _of_bools(input: Any, low: Any, high: Any) -> Any:
    """Bools are limited by one tensor of bools only."""
    limit = high if low is None else low
    if low is not None and high is not None or not isinstance(limit, TensorBase):
        return None
    if input.dtype not in _BOOL or limit.dtype not in _BOOL:
        return None
    return ops["minimum" if low is None else "maximum"]


def clamp_(
    self: Tensor, min: Tensor | Number | None = None, max: Tensor | Number | None = None
) -> Tensor:  # noqa: A002
    """Limits values to [min, max], in place."""
    if min is None and max is None:
        raise RuntimeError("torch.clamp: At least one of 'min' or 'max' must not be None")
    try:
        return ops["clamp"].inplace(self, min, max)
    except NotImplementedError:
        if (op := _of_bools(self, min, max)) is None:
            raise
    return self.copy_(op(self, max if min is None else min))


def clamp_min(input: Tensor, min: Tensor | Number) -> Tensor:
    """Limits values to at least min."""
    return clamp(input, min=min)


def clamp_max(input: Tensor, max: Tensor | Number) -> Tensor:
    """Limits values to at most max."""
    return clamp(input, max=max)


def clamp_min_(self: Tensor, min: Tensor | Number) -> Tensor:
    """Limits values to at least min, in place."""
    return clamp_(self, min=min)


def clamp_max_(self: Tensor, max: Tensor | Number) -> Tensor:
    """Limits values to at most max, in place."""
    return clamp_(self, max=max)


export("where", where)
export("clamp", clamp)
export("clip", clamp)
export("clamp_", clamp_, function=False)
export("clip_", clamp_, function=False)
export("clamp_min", clamp_min)
export("clamp_max", clamp_max)
export("clamp_min_", clamp_min_, function=False)
export("clamp_max_", clamp_max_, function=False)


def _where_method(self: Tensor, condition: Tensor, other: Operand) -> Tensor:
    """Elements of this tensor where the condition holds, else of other.

    Args:
        condition: A bool tensor.
        other: A tensor or a number.
    """
    try:
        return ops["where"](condition, self, other)
    except RuntimeError:
        _check_condition(condition)
        raise


export("where", _where_method, function=False)


# -- derivatives -----------------------------------------------------------------------------------


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
