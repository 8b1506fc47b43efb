# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's reductions, and its other functions of values that are no ufuncs, as operations of the
table: they record like methods.

NumPy's defaults hold (``np.var`` divides by n). What an operation cannot do, arguments such as
``where=`` or ``initial=`` and integer means, is left to NumPy itself, which loses the gradient:
:mod:`modtree.numpy.ops.numpy_protocol.dispatch` refuses where there is one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modtree._C import TensorBase, as_dtype
from modtree.numpy.ops.reduce import axis_of
from modtree.numpy.ops.registry import functions, ops

#: NumPy function -> the function for tensors. It returns NotImplemented where NumPy's own has to
#: do.
numpy_reductions: dict[Any, Callable[..., Any]] = {}


def _floating(x: Any) -> bool:
    return isinstance(x, TensorBase) and (x.is_floating_point() or x.is_complex())


def _keeps(keepdims: Any) -> bool:
    return keepdims is not np._NoValue and bool(keepdims)


def _reduction(name: str, only_floating: bool, has_dtype: bool) -> Callable[..., Any]:
    op = ops[name]

    def reduce(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        keepdims: Any = False,
        **rest: Any,
    ) -> Any:
        if rest or not isinstance(a, TensorBase) or (only_floating and not _floating(a)):
            return NotImplemented
        if has_dtype:
            kind = None if dtype is None else as_dtype(dtype).dtype
            return op(a, axis=axis_of(a, axis), keepdims=_keeps(keepdims), dtype=kind)
        return op(a, axis=axis_of(a, axis), keepdims=_keeps(keepdims))

    return reduce


def _place(name: str) -> Callable[..., Any]:
    op = ops[name]

    def reduce(
        a: Any, axis: Any = None, out: Any = None, keepdims: Any = False, **rest: Any
    ) -> Any:
        if rest or not isinstance(a, TensorBase):
            return NotImplemented
        return op(a, axis=axis_of(a, axis), keepdims=_keeps(keepdims))

    return reduce


def _moment(name: str) -> Callable[..., Any]:
    op = ops[name]

    def reduce(
        a: Any,
        axis: Any = None,
        dtype: Any = None,
        out: Any = None,
        ddof: Any = 0,
        keepdims: Any = False,
        **rest: Any,
    ) -> Any:
        if rest or dtype is not None or not _floating(a):
            return NotImplemented
        return op(a, axis=axis_of(a, axis), keepdims=_keeps(keepdims), correction=ddof)

    return reduce


def _scan(name: str) -> Callable[..., Any]:
    op = ops[name]

    def scan(a: Any, axis: Any = None, dtype: Any = None, out: Any = None) -> Any:
        kind = None if dtype is None else as_dtype(dtype).dtype
        return op(a.reshape(-1), 0, dtype=kind) if axis is None else op(a, axis, dtype=kind)

    return scan


def _where(condition: Any, x: Any = None, y: Any = None) -> Any:
    if x is None and y is None:
        return NotImplemented
    return ops["where"](condition, x, y)


def _clip(
    a: Any,
    a_min: Any = None,
    a_max: Any = None,
    out: Any = None,
    *,
    min: Any = None,
    max: Any = None,  # noqa: A002
) -> Any:
    low, high = (min if a_min is None else a_min), (max if a_max is None else a_max)
    return ops["clamp"](a, low, high)


def _take_along_axis(arr: Any, indices: Any, axis: Any = -1) -> Any:
    return functions["take_along_dim"](arr, indices, axis)


def _sort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, **rest: Any) -> Any:
    if rest or order is not None:
        return NotImplemented
    return functions["sort"](a.reshape(-1) if axis is None else a, -1 if axis is None else axis)[0]


def _argsort(a: Any, axis: Any = -1, kind: Any = None, order: Any = None, **rest: Any) -> Any:
    if rest or order is not None:
        return NotImplemented
    flat = axis is None
    return ops["argsort"](a.reshape(-1) if flat else a, -1 if flat else axis, False)


def _nan_to_num(
    x: Any, copy: bool = True, nan: Any = 0.0, posinf: Any = None, neginf: Any = None
) -> Any:
    return functions["nan_to_num"](x, nan, posinf, neginf) if copy else NotImplemented


def _round(a: Any, decimals: int = 0, out: Any = None) -> Any:
    return ops["round"](a, decimals)


def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    """Vector norms, and those of matrices that are the same."""
    if not _floating(x):
        return NotImplemented
    ndim = x.ndim if axis is None else 1 if isinstance(axis, int) else len(axis)
    if ord is not None and ndim != 1 and not (ord == "fro" and ndim == 2):
        return NotImplemented
    return ops["norm"](x, axis_of(x, axis), keepdims, 2 if ord is None else ord)


def _count_nonzero(a: Any, axis: Any = None, *, keepdims: Any = False) -> Any:
    """A tensor with every NumPy; some give a Python int without an axis."""
    if keepdims or not isinstance(a, TensorBase):
        return NotImplemented
    return ops["count_nonzero"](a, axis=axis_of(a, axis))


for _name, _function in {"sum": np.sum, "prod": np.prod, "mean": np.mean}.items():
    numpy_reductions[_function] = _reduction(_name, _name == "mean", True)
for _name, _numpy in {"amax": (np.max, np.amax), "amin": (np.min, np.amin)}.items():
    for _function in _numpy:
        numpy_reductions[_function] = _place(_name)
for _name in ("argmax", "argmin", "all", "any"):
    numpy_reductions[getattr(np, _name)] = _place(_name)
for _name in ("var", "std"):
    numpy_reductions[getattr(np, _name)] = _moment(_name)
for _name in ("cumsum", "cumprod"):
    numpy_reductions[getattr(np, _name)] = _scan(_name)
numpy_reductions.update(
    {
        np.where: _where,
        np.clip: _clip,
        np.take_along_axis: _take_along_axis,
        np.sort: _sort,
        np.argsort: _argsort,
        np.nan_to_num: _nan_to_num,
        np.round: _round,
        np.linalg.norm: _norm,
        np.count_nonzero: _count_nonzero,
    }
)
