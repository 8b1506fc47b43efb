# SPDX-License-Identifier: BSD-3-Clause
# A number may be complex, until arange() has refused it.
# mypy: disable-error-code="arg-type, operator"
"""Sequences and unit matrices: arange, linspace, eye."""

from __future__ import annotations

import builtins
import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree import _C
from modtree._C import as_dtype, fitted_number, get_default_dtype
from modtree.numpy.tensor.creation import make_at, need_storage, numpy_dtype, scalar_dtype
from modtree.numpy.tensor.factory_arguments import PLACE, checked

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Device, DType, Number, Tensor

__all__ = ["arange", "eye", "linspace"]

_int64 = np.dtype(np.int64)


def _number(value: Any) -> Any:
    if isinstance(value, _C.TensorBase) and value.ndim:
        raise RuntimeError("start and end must be numbers or tensors without dimensions")
    return value.item() if isinstance(value, (_C.TensorBase, np.generic)) else value


@checked("start", "end", "step", "out", *PLACE)
def arange(
    start: Number,
    end: Number | None = None,
    step: Number = 1,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The numbers start, start + step, ... below end.

    Args:
        start: First number; with this argument alone the end.
        end: Where to stop; not included.
        step: Distance.
        dtype: The dtype; int64 or the default one, by the arguments, without.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    if end is None:
        start, end = 0, start
    start, end, step = _number(start), _number(end), _number(step)
    if dtype is not None and numpy_dtype(dtype).kind in "bc":
        raise NotImplementedError(f"\"arange\" not implemented for '{dtype}'")
    if any(isinstance(v, complex) for v in (start, end, step)):
        raise RuntimeError(f"arange: real numbers expected, got {start}, {end}, {step}")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if not abs(step) > 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign: {start}, {end}, {step}"
        )
    if dtype is None:
        integral = builtins.all(isinstance(v, int) for v in (start, end, step))
        dtype = "int64" if integral else get_default_dtype()
    kind = numpy_dtype(dtype)
    if kind == _int64:
        start, end, step = (int(fitted_number(v, dtype)) for v in (start, end, step))
        if step == 0:
            raise RuntimeError("step must be nonzero")
    count = builtins.max(0, -int(-(end - start) // step)) if step else 0
    need_storage((count,), kind)
    if kind.kind in "iub":
        start, step = int(start), int(step)
    values = start + step * np.arange(count, dtype=_int64 if kind.kind in "iub" else np.float64)
    return make_at(lambda _, kind: values.astype(kind), (count,), dtype, device, requires_grad)


def _ends(name: str, start: Any, end: Any, steps: int, dtype: Any) -> tuple[Any, Any, Any]:
    """Both ends as numbers, and the dtype."""
    start, end = _number(start), _number(end)
    if isinstance(start, complex) or isinstance(end, complex):
        if dtype is None:
            dtype = scalar_dtype(1j)
        elif numpy_dtype(dtype).kind != "c":
            raise RuntimeError(f"{name}(): complex numbers can't be safely cast to {dtype}")
    if steps < 0:
        raise RuntimeError(f"number of steps must be non-negative, got {steps}")
    return start, end, dtype


def _spaced(name: str, start: Any, end: Any, steps: int, kind: Any) -> Any:
    """From either end, which the dtype must have, to the middle."""
    if steps == 0:
        return np.zeros(0)
    start = fitted_number(start, as_dtype(kind))
    if steps == 1:
        return np.array([start])
    if kind.kind == "b":
        raise NotImplementedError(f"\"{name}\" not implemented for 'Bool'")
    end = fitted_number(end, as_dtype(kind))
    step, places = (end - start) / (steps - 1), np.arange(steps)
    with np.errstate(all="ignore"):
        from_end = end - step * (steps - 1 - places)
        return np.where(places < steps // 2, start + step * places, from_end)


@checked("start", "end", "steps", "out", *PLACE)
def linspace(
    start: Number,
    end: Number,
    steps: int,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """`steps` numbers from start to end, both included.

    Args:
        start: First number.
        end: Last number.
        steps: How many.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    start, end, dtype = _ends("linspace", start, end, steps, dtype)
    return make_at(
        lambda shape, kind: _spaced("linspace", start, end, shape[0], kind).astype(kind),
        (int(steps),),
        dtype,
        device,
        requires_grad,
    )


@checked("n", "m", "out", *PLACE)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """The identity matrix.

    Args:
        n: Number of rows.
        m: Number of columns; as many without.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    _check_sizes(n=n, m=n if m is None else m)
    return make_at(
        lambda shape, kind: np.eye(*shape, dtype=kind),
        (n, n if m is None else m),
        dtype,
        device,
        requires_grad,
    )


def _check_sizes(**sizes: int) -> None:
    for name, size in sizes.items():
        if size < 0:
            raise RuntimeError(f"{name} must be non-negative, got {size}")
