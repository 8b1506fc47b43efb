# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of matrix products."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree.derivatives.both import adjoint, conj, row, row_of_many
from modtree.ops.einsum import Labels, sizes_of
from modtree.ops.table import derive

_matmul, _einsum, _cross = row("matmul"), row_of_many("einsum"), row("cross")
_expand, _getitem_backward = row("expand"), row("getitem_backward")
_diagonal_backward = row("diagonal_backward")


def _rows(x: Any) -> Any:
    """All leading dimensions as one."""
    shape = tuple(x.shape)
    return x if len(shape) == 2 else x.reshape((math.prod(shape[:-1]), shape[-1]))


def _matmul_left(g: Any, _out: Any, a_like: Any, b: Any) -> Any:
    if len(b.shape) == 1:
        return (g[..., None] if len(a_like.shape) > 1 else g) * conj(b)
    if len(a_like.shape) == 1:
        return _matmul(conj(b), g[..., None])[..., 0]
    return _matmul(g, adjoint(b))


def _matmul_right(g: Any, _out: Any, a: Any, b_like: Any) -> Any:
    if len(a.shape) == 1:
        if len(b_like.shape) == 1:
            return g * conj(a)
        return conj(a)[:, None] * g[..., None, :]
    if len(b_like.shape) == 1:
        return _matmul(conj(_rows(a).swapaxes(0, 1)), g.reshape((math.prod(g.shape),)))
    if len(b_like.shape) == 2:
        # One product over all leading dimensions, which also sums over them.
        return _matmul(conj(_rows(a).swapaxes(0, 1)), _rows(g))
    return _matmul(adjoint(a), g)


derive("matmul", _matmul_left, _matmul_right)
derive("dot", lambda g, _out, _a, b: g * conj(b), lambda g, _out, a, _b: g * conj(a))
derive(
    "outer",
    lambda g, _out, _a, b: _matmul(g, conj(b)),
    lambda g, _out, a, _b: _matmul(conj(a), g),
)
derive(
    "cross",
    lambda g, _out, _a, b, axis: _cross(conj(_wide(b, g)), g, axis),
    lambda g, _out, a, _b, axis: _cross(g, conj(_wide(a, g)), axis),
)


def _wide(x: Any, g: Any) -> Any:
    return x if tuple(x.shape) == tuple(g.shape) else _expand(x, tuple(g.shape))


def _trace_back(g: Any, _out: Any, x_like: Any) -> Any:
    shape = tuple(x_like.shape)
    return _diagonal_backward(_expand(g, (min(shape),)), shape, 0, 0, 1)


derive("trace", _trace_back)


def _einsum_back(
    g: Any, _out: Any, xs: Any, inputs: tuple[Labels, ...], output: Labels
) -> list[Any]:
    sizes = sizes_of(xs, inputs)
    return [_einsum_operand(g, i, xs, inputs, output, sizes) for i in range(len(xs))]


def _einsum_operand(
    g: Any,
    number: int,
    xs: Any,
    inputs: tuple[Labels, ...],
    output: Labels,
    sizes: dict[int, int],
) -> Any:
    """The same sum of products with the gradient in the operand's place."""
    shape, labels = tuple(xs[number].shape), inputs[number]
    others = [conj(x) for i, x in enumerate(xs) if i != number]
    other_labels = [x for i, x in enumerate(inputs) if i != number]
    known = set(output)
    for x, names in zip(others, other_labels, strict=True):
        known.update(n for n, size in zip(names, x.shape, strict=True) if size == sizes[n])
    once = tuple(dict.fromkeys(labels))
    size_here = dict(zip(labels, shape, strict=True))
    spread = {n for n in once if size_here[n] != sizes[n]}  # of size 1, broadcast in the forward
    target = tuple(n for n in once if n in known and n not in spread)
    result = _einsum([g, *others], (output, *other_labels), target)
    if target != once:
        result = result.reshape(tuple(sizes[n] if n in target else 1 for n in once))
        result = _expand(result, tuple(size_here[n] for n in once))
    if len(once) == len(labels):
        return result
    place = []  # the diagonal
    for n in labels:
        along = [1] * len(once)
        along[once.index(n)] = -1
        place.append(np.arange(size_here[n]).reshape(along))
    return _getitem_backward(result, shape, tuple(place))


derive("einsum", _einsum_back)
