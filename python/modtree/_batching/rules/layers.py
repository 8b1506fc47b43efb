# SPDX-License-Identifier: BSD-3-Clause
"""Operations of layers and losses: the batch joins that of the layer, or its channels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree._batching.rules.pointwise import aligned_all
from modtree._batching.tensor import batched
from modtree._ops.registry import ops

__all__ = ["RULES"]


def _layer_norm(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, weight, bias, shape, eps = args
    if not level.holds(x) or tuple(x.shape[x.ndim - len(shape) :]) != tuple(shape):
        return NotImplemented
    if not level.holds(weight) and not level.holds(bias):
        return op(x._full, weight, bias, shape, eps)
    result = batched(op(x._full, None, None, shape, eps), level)
    result = result if weight is None else result * weight
    return (result if bias is None else result + bias)._full


def _rms_norm(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, weight, shape, eps = args
    if not level.holds(x) or tuple(x.shape[x.ndim - len(shape) :]) != tuple(shape):
        return NotImplemented
    if not level.holds(weight):
        return op(x._full, weight, shape, eps)
    return (batched(op(x._full, None, shape, eps), level) * weight)._full


def _group_norm(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, weight, bias, *rest = args
    if not level.holds(x) or x.ndim < 2 or level.holds(weight) or level.holds(bias):
        return NotImplemented
    return _unfolded(level, x, op(_folded(level, x), weight, bias, *rest, **kwargs))


def _batch_norm(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    mean, var, training = args[3:6]
    if training and any(r is not None and not level.holds(r) for r in (mean, var)):
        raise RuntimeError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which "
            "will be updated in place, were not batched. Give vmap running values for each "
            "sample, use a layer with track_running_stats=False, or call eval()"
        )
    return NotImplemented


def _folded(level: Any, x: Any) -> Any:
    """(batch, N, ...) as (batch * N, ...)."""
    n, *rest = x.shape
    return ops["reshape"](x._full, (level.size * n, *rest))


def _unfolded(level: Any, x: Any, result: Any) -> Any:
    if isinstance(result, tuple):
        return tuple(_unfolded(level, x, part) for part in result)
    return ops["reshape"](result, (level.size, x.shape[0], *result.shape[1:]))


def _convolution(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, weight, bias, *options, groups = args
    if kwargs or x.ndim < 3 or weight.ndim != x.ndim:
        return NotImplemented
    if not level.holds(weight) and not level.holds(bias):
        return _unfolded(level, x, op(_folded(level, x), *args[1:]))
    result = _by_groups(level, op, x, weight, options, groups)
    if bias is not None:
        result = result + bias.reshape(-1, *(1,) * (x.ndim - 2))
    return result._full


def _by_groups(level: Any, op: Any, x: Any, weight: Any, options: Any, groups: int) -> Any:
    """Each sample has a weight of its own: samples are groups of channels."""
    size = level.size
    n, channels, *sizes = x.shape
    wide = ops["movedim"](level.full_of(x), 0, 1)
    wide = ops["reshape"](wide, (n, size * channels, *sizes))
    kernels = level.full_of(weight)
    kernels = ops["reshape"](kernels, (size * weight.shape[0], *weight.shape[1:]))
    result = op(wide, kernels, None, *options, size * groups)
    result = ops["reshape"](result, (n, size, result.shape[1] // size, *result.shape[2:]))
    return batched(ops["movedim"](result, 1, 0), level)


def _planes(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Over the last axes; all others are batches."""
    if kwargs or not level.holds(args[0]) or any(map(level.holds, args[1:])):
        return NotImplemented
    return op(args[0]._full, *args[1:])


def _fold_first(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """The first dimension is the layer's batch."""
    x = args[0]
    if kwargs or not level.holds(x) or x.ndim < 2 or any(map(level.holds, args[1:])):
        return NotImplemented
    return _unfolded(level, x, op(_folded(level, x), *args[1:]))


def _reduced(values: Any, reduction: str) -> Any:
    return values if reduction == "none" else getattr(values, reduction)()


def _pointwise_loss(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, y, reduction, *options = args
    if kwargs or x.dtype != y.dtype or reduction not in ("none", "mean", "sum"):
        return NotImplemented
    # The weight of binary_cross_entropy.
    x, y, *options = aligned_all(level, [x, y, *options])
    values = batched(op(x, y, "none", *options), level)
    return _reduced(values, reduction)._full


def _class_loss(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, target, weight, ignore, reduction, *options = args
    if kwargs or weight is not None or x.ndim < 1 or target.ndim != x.ndim - 1:
        return NotImplemented
    if x.ndim > 1 and target.shape[0] != x.shape[0]:
        return NotImplemented
    if reduction not in ("none", "mean", "sum"):
        return NotImplemented
    logits, index = batched(level.full_of(x), level), batched(level.full_of(target), level)
    if x.ndim > 1:
        values = op(_folded(level, logits), _folded(level, index), None, ignore, "none", *options)
        values = _unfolded(level, target, values)
    else:
        values = op(logits._full, index._full, None, ignore, "none", *options)
    values = batched(values, level)
    if reduction != "mean":
        return _reduced(values, reduction)._full
    return (values.sum() / (index != ignore).sum().to(values.dtype))._full


RULES: dict[str, Callable[..., Any]] = {
    "layer_norm": _layer_norm,
    "rms_norm": _rms_norm,
    "group_norm": _group_norm,
    "batch_norm": _batch_norm,
    "convolution": _convolution,
    "conv_transpose": _fold_first,
    "max_pool": _planes,
    "avg_pool": _planes,
    "max_pool_with_indices": _planes,
    "unfold_windows": _fold_first,
    "fold_windows": _fold_first,
    **dict.fromkeys(
        (
            "mse_loss l1_loss smooth_l1_loss huber_loss binary_cross_entropy "
            "binary_cross_entropy_with_logits"
        ).split(),
        _pointwise_loss,
    ),
    "nll_loss": _class_loss,
    "cross_entropy": _class_loss,
}
