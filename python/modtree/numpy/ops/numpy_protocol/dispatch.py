# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's functions called with tensors."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree import _C
from modtree.numpy.ops import linalg_functions as linalg
from modtree.numpy.ops.numpy_protocol.reduce import numpy_reductions
from modtree.numpy.ops.numpy_protocol.shape import as_tensors, numpy_shapes
from modtree.numpy.ops.registry import by_function, functions

_Base = _C.TensorBase


def _plain(value: Any, name: str, has_gradient: bool = True) -> Any:
    """Arguments with arrays in place of tensors, at any depth of lists, tuples and dicts.

    A tensor that requires grad is refused where the result would have had a gradient.
    """
    if isinstance(value, _Base):
        if value.is_meta:
            raise NotImplementedError(
                f"np.{name} is not available for tensors on 'meta': they have no values"
            )
        if has_gradient and value.requires_grad and _C.is_grad_enabled():
            raise RuntimeError(
                f"np.{name} on a tensor that requires grad would lose its gradient: "
                f"{_instead(name)}call it on tensor.detach(), or under modtree.no_grad()"
            )
        return value._array_view  # the function may hand it to user code
    if isinstance(value, (list, tuple)):
        items = [_plain(item, name, has_gradient) for item in value]
        return items if isinstance(value, list) else tuple(items)
    if isinstance(value, dict):
        return {key: _plain(item, name, has_gradient) for key, item in value.items()}
    return value


def _instead(name: str) -> str:
    """What to call in place of a NumPy function that is not recorded, or not with these
    arguments.
    """
    if name in functions:
        return f"call modtree.{name}() with torch's arguments, or "
    if name in linalg.__all__:
        return f"call modtree.linalg.{name}() with torch's arguments, or "
    return "write it with recorded functions, or "


def _check_out(out: Any, name: str) -> None:
    for target in out if isinstance(out, tuple) else (out,):
        if target is not None and not isinstance(target, _Base):
            raise TypeError(
                f"np.{name}: out= must be a modtree.Tensor when an input is one (got "
                f"{type(target).__name__}); call it on tensor.detach().numpy() to fill an array"
            )


def _as_operand(value: Any) -> Any:
    """NumPy's functions take numbers where torch's take tensors only: they become arrays of the
    dtype that stands for them when they meet tensors.
    """
    kind = type(value)
    if kind is float or kind is int or kind is complex or kind is bool:
        return np.asarray(value, _C._result_type(value).dtype)
    return value


def call_ufunc(ufunc: Any, method: str, inputs: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What ``Tensor.__array_ufunc__`` does."""
    name = ufunc.__name__
    out = kwargs.pop("out", None)
    if out is not None:
        _check_out(out, name)
        if len(out) == 1 and method != "at":
            result = call_ufunc(ufunc, method, inputs, kwargs)
            return out[0].copy_(result)
        raise TypeError(f"np.{name}: out= with several tensors is not available")
    op = by_function.get(ufunc)
    if op is not None and method == "__call__" and not kwargs:
        return op(*map(_as_operand, inputs))
    if method not in ("__call__", "at"):
        result = _method_of_ufunc(ufunc, method, inputs, kwargs)
        if result is not NotImplemented:
            return result
        name = f"{name}.{method}"
    if method == "at":
        _C.check_inplace(inputs[0])
        target, *rest = inputs
        ufunc.at(target._array, *_plain(tuple(rest), name))
        _C.bump_version(target)
        return None
    with np.errstate(all="ignore"):
        result = getattr(ufunc, method)(*_plain(inputs, name), **_plain(kwargs, name))
    return _C.wrap(result, shared=True)


def call_function(function: Any, args: Any, kwargs: Any) -> Any:
    """What ``Tensor.__array_function__`` does."""
    name = function.__name__
    out = kwargs.get("out")
    if out is not None:
        _check_out(out, name)
        rest = {key: value for key, value in kwargs.items() if key != "out"}
        return out.copy_(call_function(function, args, rest))
    op = by_function.get(function)
    if op is not None:
        return op(*args, **kwargs)
    special = _SPECIAL.get(function)
    if special is not None:
        result = special(*args, **kwargs)
        if result is not NotImplemented:
            return result
    if function in _PLAIN_RESULT:
        with np.errstate(all="ignore"):
            return function(*_plain(args, name, False), **_plain(kwargs, name, False))
    recorded = function not in _NO_GRADIENT
    with np.errstate(all="ignore"):
        result = function(*_plain(args, name, recorded), **_plain(kwargs, name, recorded))
    return _C.wrap(result, shared=True)


def _copyto(dst: Any, src: Any, casting: Any = "same_kind", where: Any = True) -> None:
    if not isinstance(dst, _Base):
        np.copyto(dst, _plain(src, "copyto"), casting=casting, where=_plain(where, "copyto"))
        return
    _C.check_inplace(dst)
    np.copyto(dst._array, _plain(src, "copyto"), casting=casting, where=_plain(where, "copyto"))
    _C.bump_version(dst)


_SPECIAL = {**numpy_reductions, **numpy_shapes, np.copyto: _copyto}

# Their results are facts about arrays, not arrays.
_PLAIN_RESULT = {
    np.shape,
    np.ndim,
    np.size,
    np.allclose,
    np.array_equal,
    np.array_equiv,
    np.shares_memory,
    np.may_share_memory,
    np.result_type,
    np.can_cast,
    np.min_scalar_type,
    np.iscomplexobj,
    np.isrealobj,
    np.array_repr,
    np.array_str,
    np.array2string,
    np.save,
    np.savez,
    np.savetxt,
}

# Their results are indices, counts and truths, or constants: no gradient goes through them.
_NO_GRADIENT = {
    np.argpartition,
    np.argwhere,
    np.bincount,
    np.count_nonzero,
    np.digitize,
    np.flatnonzero,
    np.isclose,
    np.iscomplex,
    np.isin,
    np.isneginf,
    np.isposinf,
    np.isreal,
    np.lexsort,
    np.linalg.matrix_rank,
    np.nanargmax,
    np.nanargmin,
    np.nonzero,
    np.searchsorted,
    np.tril_indices_from,
    np.triu_indices_from,
}

_REDUCING = {
    np.add: np.sum,
    np.multiply: np.prod,
    np.maximum: np.max,
    np.minimum: np.min,
    np.logical_and: np.all,
    np.logical_or: np.any,
}
_ACCUMULATING = {np.add: np.cumsum, np.multiply: np.cumprod}


def _method_of_ufunc(ufunc: Any, method: str, inputs: Any, kwargs: dict[str, Any]) -> Any:
    """``np.add.reduce(t)`` and its kind as operations; NotImplemented where there is none."""
    if method == "outer" and len(inputs) == 2 and not kwargs and ufunc in by_function:
        a, b = as_tensors(inputs)
        return by_function[ufunc](a.reshape(tuple(a.shape) + (1,) * b.ndim), b)
    tables: dict[str, dict[Any, Any]] = {"reduce": _REDUCING, "accumulate": _ACCUMULATING}
    table = tables.get(method, {})
    function = table.get(ufunc)
    if function is None or len(inputs) > 1 or not isinstance(inputs[0], _Base):
        return NotImplemented
    if kwargs.get("where", True) is not True or kwargs.get("initial") is not None:
        return NotImplemented
    taken = {k: kwargs[k] for k in ("keepdims", "dtype") if kwargs.get(k) is not None}
    return call_function(function, inputs, {"axis": kwargs.get("axis", 0), **taken})
