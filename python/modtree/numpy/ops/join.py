# SPDX-License-Identifier: BSD-3-Clause
"""cat, stack, hstack, vstack."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.generic import operation, wrap_dim, zeros_of
from modtree.numpy.ops.registry import define, derive, export, ops
from modtree.numpy.ops.shape import widened

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor, Tensors


def _cat_meta(items: Any, axis: int) -> Any:
    items = [i for i in items if i.shape != (0,)] or items[:1]
    shape = list(items[0].shape)
    shape[axis] = sum(i.shape[axis] for i in items)
    return shape, items[0].dtype


def _cat(items: Any, axis: int) -> Any:
    if any(i.ndim == 0 for i in items):
        raise RuntimeError(
            "zero-dimensional tensor (at position 0) cannot be concatenated; use stack()"
        )
    # torch skips empty 1-D tensors whatever the rank of the others.
    rest = [i for i in items if i.shape != (0,)] or items[:1]
    shapes = {
        (*i.shape[: axis % i.ndim], *i.shape[axis % i.ndim + 1 :])
        for i in rest
        if -i.ndim <= axis < i.ndim
    }
    if len(shapes) > 1 or len({i.ndim for i in rest}) > 1:
        wrap_dim(axis, rest[0].ndim)
        raise RuntimeError(
            f"Sizes of tensors must match except in dimension {axis}. Got "
            f"{[list(i.shape) for i in rest]}"
        )
    return np.concatenate(rest, axis=axis)


def _stack_meta(items: Any, axis: int) -> Any:
    shape = list(items[0].shape)
    shape.insert(axis if axis >= 0 else axis + len(shape) + 1, len(items))
    return shape, items[0].dtype


def _stack(items: Any, axis: int) -> Any:
    if not items:
        raise RuntimeError("stack expects a non-empty TensorList")
    if len({i.shape for i in items}) > 1:
        wrap_dim(axis, items[0].ndim + 1)
        raise RuntimeError(
            f"stack expects each tensor to be equal size, but got {[list(i.shape) for i in items]}"
        )
    return np.stack(items, axis=axis)


define("cat", _cat, promote="arith", operands=-1, meta=_cat_meta)
define("stack", _stack, promote="arith", operands=-1, meta=_stack_meta)


def cat(tensors: Tensors, dim: int = 0, *, axis: int | None = None) -> Tensor:
    """Joins tensors along a dimension.

    Args:
        tensors: Tensors whose other dimensions agree.
        dim: The dimension; may count from the end.
        axis: NumPy's name of ``dim``.
    """
    if not isinstance(tensors, (list, tuple)):
        tensors = list(tensors)
    if not tensors:
        raise ValueError("cat(): expected a non-empty list of Tensors")
    return ops["cat"](tensors, dim if axis is None else axis)


def stack(tensors: Tensors, dim: int = 0) -> Tensor:
    """Joins tensors along a new dimension."""
    if not isinstance(tensors, (list, tuple)):
        tensors = list(tensors)
    return ops["stack"](tensors, dim)


def _some(name: str, tensors: Any) -> list[Any]:
    items = list(tensors)
    if not items:
        raise RuntimeError(f"{name} expects a non-empty TensorList")
    return items


def hstack(tensors: Tensors) -> Tensor:
    """Joins along the second dimension; 1-D tensors along the only one."""
    items = [widened(t, 1) for t in _some("hstack", tensors)]
    return cat(items, 0 if items[0].ndim == 1 else 1)


def vstack(tensors: Tensors) -> Tensor:
    """Joins along the first dimension; 1-D tensors as rows."""
    return cat([widened(t, 2) for t in _some("vstack", tensors)], 0)


for _function in (
    cat,
    stack,
    hstack,
    vstack,
):
    export(_function.__name__, _function, method=False)
export("concat", cat, method=False)
export("concatenate", cat, method=False)

# -- derivatives -----------------------------------------------------------------------------------

_split = operation("split")
_unbind = operation("unbind")


def _cat_back(g: Any, _out: Any, items_like: Any, axis: int) -> Any:
    # Those that cat() skips are empty, and so are their gradients.
    skipped = [tuple(x.shape) == (0,) and len(g.shape) > 1 for x in items_like]
    sizes = [0 if skip else x.shape[axis] for x, skip in zip(items_like, skipped, strict=True)]
    pieces = _split(g, sizes, axis)
    return [
        zeros_of((0,), g) if skip else piece for piece, skip in zip(pieces, skipped, strict=True)
    ]


derive("cat", _cat_back)
derive("stack", lambda g, _out, _items, axis: list(_unbind(g, axis)))
