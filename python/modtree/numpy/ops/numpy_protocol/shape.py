# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's functions that move, join and pick elements, as operations of the table: they record like
methods.

They take NumPy's own argument names. Where an argument asks for what no operation does
(``order="F"``, ``mode="clip"``), they leave the call to NumPy itself by returning NotImplemented;
:mod:`modtree.numpy.ops.numpy_protocol.dispatch` refuses it where it would lose a gradient.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modtree import _C
from modtree._C import as_tuple
from modtree.numpy.ops.registry import functions, ops

#: NumPy function -> the function for tensors. It returns NotImplemented where NumPy's own has to
#: do.
numpy_shapes: dict[Any, Callable[..., Any]] = {}


def as_tensor(value: Any) -> Any:
    """Itself, or an array (or what makes one) as a tensor."""
    return value if isinstance(value, _C.TensorBase) else _C.from_array(np.asarray(value))


def as_tensors(values: Any) -> list[Any]:
    """Each of them as a tensor; a tensor stands for its slices."""
    # A tuple of one moment: what runs in between may change a list of the caller.
    return [as_tensor(v) for v in as_tuple(values)]


def _means(*names: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            found = getattr(np, name, None)  # some are new in NumPy 2
            if found is not None:
                numpy_shapes[found] = function
        return function

    return enter


# -- views -----------------------------------------------------------------------------------------


@_means("transpose")
def _transpose(a: Any, axes: Any = None) -> Any:
    return ops["permute"](a) if axes is None else ops["permute"](a, tuple(int(x) for x in axes))


@_means("reshape")
def _reshape(
    a: Any, shape: Any = None, order: str = "C", *, newshape: Any = None, **rest: Any
) -> Any:
    shape = newshape if shape is None else shape
    if order not in ("C", "A") or any(v is not None for v in rest.values()):
        return NotImplemented
    return functions["reshape"](a, (shape,) if isinstance(shape, int) else as_tuple(shape))


@_means("ravel")
def _ravel(a: Any, order: str = "C") -> Any:
    return a.reshape(-1) if order in ("C", "A") else NotImplemented


@_means("swapaxes")
def _swapaxes(a: Any, axis1: int, axis2: int) -> Any:
    return ops["swapaxes"](a, axis1, axis2)


@_means("moveaxis")
def _moveaxis(a: Any, source: Any, destination: Any) -> Any:
    return ops["movedim"](a, source, destination)


@_means("expand_dims")
def _expand_dims(a: Any, axis: Any) -> Any:
    axes = (axis,) if isinstance(axis, int) else as_tuple(axis)
    ndim = a.ndim + len(axes)
    new = {x % ndim for x in axes}
    if len(new) < len(axes) or any(not -ndim <= x < ndim for x in axes):
        raise ValueError(
            f"np.expand_dims: axis {axis} does not name {len(axes)} positions in a result of "
            f"{ndim} dimensions"
        )
    sizes = iter(tuple(a.shape))
    return a.reshape([1 if i in new else next(sizes) for i in range(ndim)])


@_means("squeeze")
def _squeeze(a: Any, axis: Any = None) -> Any:
    if axis is None:
        return ops["squeeze"](a, None)
    axes = [x % max(a.ndim, 1) for x in ((axis,) if isinstance(axis, int) else axis)]
    if any(a.shape[x] != 1 for x in axes if a.ndim):
        raise ValueError(
            f"cannot select an axis to squeeze out which has size not equal to one: axis {axis} of "
            f"shape {tuple(a.shape)}"
        )
    return ops["squeeze"](a, axes)


@_means("broadcast_to")
def _broadcast_to(array: Any, shape: Any, subok: bool = False) -> Any:
    return ops["expand"](array, (shape,) if isinstance(shape, int) else as_tuple(shape))


@_means("broadcast_arrays")
def _broadcast_arrays(*args: Any, subok: bool = False) -> Any:
    return functions["broadcast_tensors"](*as_tensors(args))


@_means("diagonal")
def _diagonal(a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1) -> Any:
    return ops["diagonal"](a, offset, axis1, axis2)


@_means("real")
def _real(val: Any) -> Any:
    return val.real if val.is_complex() else val


@_means("imag")
def _imag(val: Any) -> Any:
    return val.imag if val.is_complex() else val.new_zeros(tuple(val.shape))


# -- pieces ----------------------------------------------------------------------------------------


def _sections(value: Any) -> Any:
    return int(value) if np.ndim(value) == 0 else [int(v) for v in value]


@_means("split")
def _split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    sections = _sections(indices_or_sections)
    if isinstance(sections, int) and ary.shape[axis] % sections:
        raise ValueError("array split does not result in an equal division: use np.array_split()")
    return list(functions["tensor_split"](ary, sections, axis))


@_means("array_split")
def _array_split(ary: Any, indices_or_sections: Any, axis: int = 0) -> Any:
    return list(functions["tensor_split"](ary, _sections(indices_or_sections), axis))


@_means("take")
def _take(a: Any, indices: Any, axis: Any = None, out: Any = None, mode: str = "raise") -> Any:
    if mode != "raise":
        return NotImplemented
    if axis is None:
        return a.reshape(-1)[indices]
    return a[(slice(None),) * (axis % a.ndim) + (indices,)]


# -- joins and copies ------------------------------------------------------------------------------


@_means("concatenate")
def _concatenate(arrays: Any, axis: Any = 0, out: Any = None, **kwargs: Any) -> Any:
    if kwargs:
        return NotImplemented
    items = as_tensors(arrays)
    if axis is None:
        return ops["cat"]([t.reshape(-1) for t in items], 0)
    return ops["cat"](items, axis)


@_means("stack")
def _stack(arrays: Any, axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    return NotImplemented if kwargs else ops["stack"](as_tensors(arrays), axis)


for _name in ("vstack", "hstack"):
    numpy_shapes[getattr(np, _name)] = lambda tup, _f=functions[_name], **kwargs: (
        NotImplemented if kwargs else _f(as_tensors(tup))
    )


@_means("tile")
def _tile(A: Any, reps: Any) -> Any:  # noqa: N803
    return functions["tile"](A, (reps,) if isinstance(reps, int) else as_tuple(reps))


@_means("repeat")
def _repeat(a: Any, repeats: Any, axis: Any = None) -> Any:
    return ops["repeat_interleave"](a, repeats, axis)


@_means("flip")
def _flip(m: Any, axis: Any = None) -> Any:
    axes = range(m.ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return ops["flip"](m, as_tuple(axes))


@_means("roll")
def _roll(a: Any, shift: Any, axis: Any = None) -> Any:
    return ops["roll"](a, shift, axis)


@_means("tril")
def _tril(m: Any, k: int = 0) -> Any:
    return ops["tril"](m, k)


@_means("triu")
def _triu(m: Any, k: int = 0) -> Any:
    return ops["triu"](m, k)


@_means("diag")
def _diag(v: Any, k: int = 0) -> Any:
    return ops["diag"](v, k)


@_means("copy")
def _copy(a: Any, order: str = "K", subok: bool = False) -> Any:
    return a.clone()


# -- constants of the same shape -------------------------------------------------------------------


def _like(name: str) -> Callable[..., Any]:
    """zeros_like() and its kind: no gradient goes through them."""
    function = getattr(np, name)

    def make(a: Any, *args: Any, **kwargs: Any) -> Any:
        if a.is_meta:
            return getattr(a, "new_" + name.removesuffix("_like"))(tuple(a.shape))
        if args and isinstance(args[0], _C.dtype):
            args = (args[0].dtype, *args[1:])
        if isinstance(kwargs.get("dtype"), _C.dtype):
            kwargs["dtype"] = kwargs["dtype"].dtype
        return _C.own_array(function(a._array, *args, **kwargs))

    return make


for _name in ("zeros_like", "ones_like", "empty_like"):
    numpy_shapes[getattr(np, _name)] = _like(_name)


@_means("full_like")
def _full_like(a: Any, fill_value: Any, dtype: Any = None, **kwargs: Any) -> Any:
    if isinstance(fill_value, _C.TensorBase) or kwargs:
        return NotImplemented
    kind = a.dtype if dtype is None else _C.as_dtype(dtype)
    return a.new_full(tuple(a.shape), fill_value, dtype=kind)
