# SPDX-License-Identifier: BSD-3-Clause
"""eq, lt and other comparisons, maximum and minimum, logical and bitwise operations of two tensors;
isclose, allclose, equal.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.generic import any_of, no_gradient, pick, select
from modtree.numpy.ops.registry import define, derive, export, inplace_of, not_differentiable, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor

_ufunc: Any  # of one type after another
for _name in ("maximum", "minimum"):
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
    "maximum minimum eq ne lt le gt ge logical_and logical_or logical_xor "
    "bitwise_and bitwise_or bitwise_xor bitwise_left_shift bitwise_right_shift"
).split():
    export(_name, ops[_name])
    export(_name + "_", inplace_of(ops[_name]), function=False)
for _alias, _name in {
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "not_equal": "ne",
}.items():
    export(_alias, ops[_name])


def isclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> Tensor:
    """|input - other| <= atol + rtol * |other|, element-wise.

    Args:
        other: A tensor of the same dtype.
        rtol: Tolerance relative to ``other``.
        atol: Absolute tolerance.
        equal_nan: NaN is close to NaN.
    """
    for name, tolerance in (("rtol", rtol), ("atol", atol)):
        if tolerance < 0:
            raise RuntimeError(f"{name} must be greater than or equal to zero, but got {tolerance}")
    return ops["isclose"](input, other, rtol, atol, equal_nan)


def _isclose(a: Any, b: Any, rtol: float, atol: float, equal_nan: bool) -> Any:
    return np.isclose(a, b, rtol=rtol, atol=atol, equal_nan=equal_nan)


define("isclose", _isclose, promote="same", operands=2)


def allclose(
    input: Tensor, other: Tensor, rtol: float = 1e-5, atol: float = 1e-8, equal_nan: bool = False
) -> bool:
    """Whether all elements are close.

    Args:
        other: A tensor of the same dtype.
        rtol: Tolerance relative to ``other``.
        atol: Absolute tolerance.
        equal_nan: NaN is close to NaN.
    """
    return bool(isclose(input, other, rtol, atol, equal_nan)._array.all())


def equal(input: Tensor, other: Tensor) -> bool:
    """Whether both have the same shape and the same values."""
    if input.is_meta or other.is_meta:
        raise NotImplementedError("equal() needs values, and a tensor on 'meta' has none")
    return input.shape == other.shape and bool(np.array_equal(input._array, other._array))


export("isclose", isclose)
export("allclose", allclose)
export("equal", equal)


# -- derivatives -----------------------------------------------------------------------------------


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


derive("maximum", *_shared(np.greater))
derive("minimum", *_shared(np.less))
for _name in ("eq", "ne", "lt", "le", "gt", "ge"):
    derive(_name, no_gradient, no_gradient)  # of eq_() and its kind: the results of eq() are bools
not_differentiable("logical_and", "logical_or", "logical_xor", "isclose")
not_differentiable(
    "bitwise_and", "bitwise_or", "bitwise_xor", "bitwise_left_shift", "bitwise_right_shift"
)
