# SPDX-License-Identifier: BSD-3-Clause
"""Operations along dimensions, and over all of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree._ops.generic import wrap_dim
from modtree._ops.registry import ops

__all__ = ["RULES"]

#: Name -> place of the argument ``axis``; several dimensions, or None for all.
_OVER = {
    name: 1
    for name in ("sum prod mean var std logsumexp amax amin all any count_nonzero norm").split()
}
#: Those for one dimension, or None.
_OVER_ONE = {"argmax": 1, "argmin": 1}
#: Name -> place of the argument that is one dimension.
_ALONG = {
    "cumsum": 1,
    "cumprod": 1,
    "softmax": 1,
    "log_softmax": 1,
    "argsort": 1,
    "logcumsumexp": 1,
    "cummax_indices": 1,
    "cummin_indices": 1,
    "topk_indices": 2,
    "median_index": 1,
    "mode_indices": 1,
    "nanmedian_indices": 1,
}


def _with(args: Any, kwargs: Any, place: int, name: str, value: Any) -> tuple[list[Any], Any]:
    """The arguments with another value in one place."""
    if name in kwargs or len(args) <= place:
        return list(args), {**kwargs, name: value}
    return [*args[:place], value, *args[place + 1 :]], kwargs


def _axis_of(args: Any, kwargs: Any, place: int) -> Any:
    return kwargs["axis"] if "axis" in kwargs else args[place] if len(args) > place else None


def _over(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    place = _OVER[op.__name__]
    x = args[0]
    axis = _axis_of(args, kwargs, place)
    full = x._full
    axes: tuple[int, ...]
    if x.ndim == 0:
        full, axes = full.unsqueeze(1), (1,)
        kwargs = {k: v for k, v in kwargs.items() if k != "keepdims"}
        if len(args) > place + 1:
            args = (*args[: place + 1], False, *args[place + 2 :])
    elif axis is None:
        axes = tuple(range(1, x.ndim + 1))
    elif isinstance(axis, (tuple, list)):
        axes = tuple(wrap_dim(d, x.ndim) + 1 for d in axis)
    else:
        axes = (wrap_dim(axis, x.ndim) + 1,)
    args, kwargs = _with(args, kwargs, place, "axis", axes)
    return op(full, *args[1:], **kwargs)


def _over_one(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, place = args[0], _OVER_ONE[op.__name__]
    axis = _axis_of(args, kwargs, place)
    if x.ndim == 0 or (axis is None and (len(args) > place + 1 or kwargs.get("keepdims"))):
        return NotImplemented
    if axis is None:
        full, axis = ops["reshape"](x._full, (level.size, x.numel())), 1
    else:
        full, axis = x._full, wrap_dim(axis, x.ndim) + 1
    args, kwargs = _with(args, kwargs, place, "axis", axis)
    return op(full, *args[1:], **kwargs)


def _along(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, place = args[0], _ALONG[op.__name__]
    if x.ndim == 0 or "axis" in kwargs or len(args) <= place:
        return NotImplemented
    axis = wrap_dim(args[place], x.ndim) + 1
    return op(x._full, *args[1:place], axis, *args[place + 1 :], **kwargs)


def _extreme(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, index, axis, keepdims = args
    if x.ndim == 0:
        return NotImplemented
    return op(level.full_of(x), level.full_of(index), wrap_dim(axis, x.ndim) + 1, keepdims)


def _of_first(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for when the batch is that of the first argument."""

    def apply(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
        return rule(level, op, args, kwargs) if level.holds(args[0]) else NotImplemented

    return apply


_RULES: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(_OVER, _over),
    **dict.fromkeys(_OVER_ONE, _over_one),
    **dict.fromkeys(_ALONG, _along),
}
RULES: dict[str, Callable[..., Any]] = {
    **{name: _of_first(rule) for name, rule in _RULES.items()},
    "max": _extreme,
    "min": _extreme,
}
