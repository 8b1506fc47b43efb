# SPDX-License-Identifier: BSD-3-Clause
"""Operations on shapes and the order of elements, and those that join tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree._ops.generic import wrap_dim
from modtree._ops.registry import ops

__all__ = ["RULES"]


def _shift(axis: Any, ndim: int) -> Any:
    if isinstance(axis, (tuple, list)):
        return tuple(wrap_dim(d, ndim) + 1 for d in axis)
    return wrap_dim(axis, ndim) + 1


def _reshape(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, shape = args
    if -1 in shape and x.numel() == 0:
        return NotImplemented
    # view() too: a batch may lie in memory otherwise than each of its samples.
    return ops["reshape"](x._full, (level.size, *shape))


def _expand(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, sizes = args
    if len(sizes) < x.ndim:
        return NotImplemented
    lead = (1,) * (len(sizes) - x.ndim)
    if lead and -1 in sizes[: len(lead)]:
        return NotImplemented
    full = ops["reshape"](x._full, (level.size, *lead, *x.shape)) if lead else x._full
    return op(full, (level.size, *sizes))


def _permute(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, *rest = args
    order = rest[0] if rest else None
    if order is None:
        order = tuple(range(x.ndim))[::-1]
    return op(x._full, (0, *_shift(tuple(order), x.ndim)))


def _on_dims(*places: int) -> Callable[..., Any]:
    """A rule that moves the dimensions in these places behind the batch."""

    def rule(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
        x = args[0]
        if x.ndim == 0 or len(args) <= max(places) or kwargs:
            return NotImplemented
        if any(args[i] is None for i in places) or any(map(level.holds, args[1:])):
            return NotImplemented
        moved = [_shift(a, x.ndim) if i in places else a for i, a in enumerate(args)]
        return op(x._full, *moved[1:])

    return rule


def _unsqueeze(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, axis = args
    return op(x._full, wrap_dim(axis, x.ndim + 1) + 1)


def _squeeze(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, axes = args[0], args[1] if len(args) > 1 else None
    if axes is None:
        axes = tuple(i for i, n in enumerate(x.shape) if n == 1)
    elif x.ndim == 0:
        return NotImplemented
    axes = axes if isinstance(axes, (tuple, list)) else (axes,)
    gone = [d for d in _shift(axes, x.ndim) if x.shape[d - 1] == 1]
    kept = [n for i, n in enumerate(x._full.shape) if i not in gone]
    return ops["reshape"](x._full, tuple(kept)) if gone else op(x._full, ())


def _triangle(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    return NotImplemented if args[0].ndim < 2 else op(args[0]._full, *args[1:], **kwargs)


def _repeat(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, counts = args
    if len(counts) < x.ndim:
        return NotImplemented
    lead = (1,) * (len(counts) - x.ndim)
    return op(ops["reshape"](x._full, (level.size, *lead, *x.shape)), (1, *counts))


def _pad(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, widths, *rest = args
    if any(map(level.holds, rest)) or any(map(level.holds, kwargs.values())):
        return NotImplemented
    return op(x._full, ((0, 0), *widths), *rest, **kwargs)


def _cat(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    items, axis = args
    # An empty vector may stand beside tensors with more dimensions.
    if kwargs or len({item.ndim for item in items}) != 1 or items[0].ndim == 0:
        return NotImplemented
    return op([level.full_of(item) for item in items], wrap_dim(axis, items[0].ndim) + 1)


def _stack(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    items, axis = args
    if kwargs or not all(isinstance(item, _C.TensorBase) for item in items):
        return NotImplemented
    return op([level.full_of(item) for item in items], wrap_dim(axis, items[0].ndim + 1) + 1)


def _fill(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, value = args
    if level.holds(value):
        return NotImplemented
    return op(level.full_of(x), value)


def _contiguous(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    # NumPy gives a sample without dimensions one; the batch has one anyway.
    return op(args[0]._full, *args[1:], **kwargs)


def _of_first(rule: Callable[..., Any]) -> Callable[..., Any]:
    """A rule for when the batch is that of the first argument."""

    def apply(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
        return rule(level, op, args, kwargs) if level.holds(args[0]) else NotImplemented

    return apply


_RULES: dict[str, Callable[..., Any]] = {
    "view": _reshape,
    "reshape": _reshape,
    "expand": _expand,
    "permute": _permute,
    "swapaxes": _on_dims(1, 2),
    "movedim": _on_dims(1, 2),
    "unsqueeze": _unsqueeze,
    "squeeze": _squeeze,
    "diagonal": _on_dims(2, 3),
    "split": _on_dims(2),
    "unbind": _on_dims(1),
    "unfold": _on_dims(1),
    "flip": _on_dims(1),
    "roll": _on_dims(2),
    "tril": _triangle,
    "triu": _triangle,
    "repeat": _repeat,
    "pad": _pad,
    "contiguous": _contiguous,
}
RULES: dict[str, Callable[..., Any]] = {
    **{name: _of_first(rule) for name, rule in _RULES.items()},
    "cat": _cat,
    "stack": _stack,
    "fill": _fill,
}
