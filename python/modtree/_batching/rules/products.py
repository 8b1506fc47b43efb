# SPDX-License-Identifier: BSD-3-Clause
"""Products of matrices, and what is computed from matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree._batching.rules.pointwise import aligned
from modtree._batching.tensor import batched
from modtree._ops.registry import ops

__all__ = ["RULES", "product"]


def product(level: Any, a: Any, b: Any) -> Any:
    """a @ b, with the batch as dimension 0."""
    one_row, one_column = a.ndim == 1, b.ndim == 1
    a = a.unsqueeze(0) if one_row else a
    b = b.unsqueeze(1) if one_column else b
    ndim = max(a.ndim, b.ndim)
    result = ops["matmul"](aligned(level, a, ndim), aligned(level, b, ndim))
    if one_column:
        result = result.squeeze(-1)
    return result.squeeze(-1 if one_column else -2) if one_row else result


def _matmul(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    return NotImplemented if kwargs or 0 in (a.ndim, b.ndim) else product(level, a, b)


def _dot(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    if a.ndim != 1 or b.ndim != 1 or a.shape != b.shape or a.dtype != b.dtype:
        return NotImplemented
    return product(level, a, b)


def _outer(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    a, b = args
    if a.ndim != 1 or b.ndim != 1:
        return NotImplemented
    return (a.unsqueeze(1) * b.unsqueeze(0))._full


def _linear(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    x, weight, bias = (*args, None)[:3]
    if kwargs or x.ndim == 0 or weight.ndim == 0 or x.dtype != weight.dtype:
        return NotImplemented
    if x.shape[-1] != weight.shape[-1]:
        return NotImplemented  # the error of one sample says what is wrong
    if not level.holds(weight) and not level.holds(bias):
        return op(x._full, *args[1:])
    result = x @ (weight if weight.ndim == 1 else weight.swapaxes(0, 1))
    return (result if bias is None else result + bias)._full


def _einsum(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    items, inputs, output = args
    label = 1 + max((n for labels in inputs for n in labels), default=-1)
    return op(
        [item._full if level.holds(item) else item for item in items],
        tuple(
            (label, *labels) if level.holds(item) else tuple(labels)
            for item, labels in zip(items, inputs, strict=True)
        ),
        (label, *output),
    )


def _of_matrices(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    """Of operations on the last two dimensions all others are batches."""
    if args[0].ndim < 2 or any(map(level.holds, args[1:])):
        return NotImplemented
    return op(args[0]._full, *args[1:], **kwargs)


def _solve(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    a, b, *rest = args
    if a.ndim < 2 or b.ndim != a.ndim:
        return NotImplemented
    return op(level.full_of(a), level.full_of(b), *rest, **kwargs)


def _attention(level: Any, op: Any, args: Any, kwargs: Any) -> Any:
    query, key, value, mask, causal, scale, *dropout = args
    if kwargs or (dropout and dropout[0]) or min(query.ndim, key.ndim, value.ndim) < 2:
        return NotImplemented
    ndim = max(query.ndim, key.ndim, value.ndim, 0 if mask is None else mask.ndim)
    if not any(map(level.holds, (query, key, value))):
        return NotImplemented
    # All have the batch: the derivative wants scores with all dimensions that the result has.
    tensors = [
        aligned(level, t if level.holds(t) else batched(level.full_of(t), level), ndim)
        for t in (query, key, value)
    ]
    return op(*tensors, None if mask is None else aligned(level, mask, ndim), causal, scale)


RULES: dict[str, Callable[..., Any]] = {
    "matmul": _matmul,
    "dot": _dot,
    "outer": _outer,
    "linear": _linear,
    "einsum": _einsum,
    "solve": _solve,
    "solve_triangular": _solve,
    "scaled_dot_product_attention": _attention,
    **dict.fromkeys(
        "inverse det slogdet cholesky qr svd svdvals eigh eig pinv matrix_exp".split(),
        _of_matrices,
    ),
}
