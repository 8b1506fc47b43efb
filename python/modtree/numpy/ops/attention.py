# SPDX-License-Identifier: BSD-3-Clause
"""Scaled dot-product attention."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree._C import kernels, wrap
from modtree.numpy.ops.generic import Array, Spec, is_array, need_arrays, need_floating
from modtree.numpy.ops.matrix_product import matmul
from modtree.numpy.ops.registry import define, derive_jointly
from modtree.numpy.tensor.random import bits_of


def _check_attention(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool
) -> None:
    masks = () if mask is None else (mask,)
    need_arrays("scaled_dot_product_attention", query, key, value, *masks)
    if min(query.ndim, key.ndim, value.ndim) < 2:
        raise RuntimeError(
            "Expected query, key, and value to all be at least 2 dimensional, but got query.dim: "
            f"{query.ndim} key.dim: {key.ndim} and value.dim: {value.ndim} instead."
        )
    if not query.dtype == key.dtype == value.dtype:
        raise RuntimeError(
            "Expected query, key, and value to have the same dtype, but got query.dtype: "
            f"{query.dtype} key.dtype: {key.dtype} and value.dtype: {value.dtype} instead."
        )
    if query.shape[-1] != key.shape[-1] or key.shape[-2] != value.shape[-2]:
        raise RuntimeError(
            "scaled_dot_product_attention: query and key must agree in their last axis, key and "
            f"value in the one before; got {query.shape}, {key.shape} and {value.shape}"
        )
    if mask is None:
        return
    if causal and not of_nothing(query, key, value):
        raise RuntimeError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    if mask.dtype != np.bool_ and mask.dtype != np.float32 and mask.dtype != query.dtype:
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {mask.dtype} and query.dtype: {query.dtype} instead."
        )


def of_nothing(query: Any, key: Any, value: Any) -> bool:
    """No queries, keys or values: torch looks at nothing else then."""
    return 0 in (*query.shape[:-1], *key.shape[:-1], *value.shape)


def _attention_shape(query: Array, key: Array, value: Array) -> tuple[int, ...]:
    batch = np.broadcast_shapes(query.shape[:-2], key.shape[:-2], value.shape[:-2])
    return batch + (query.shape[-2], value.shape[-1])


def _mask_scores(scores: Array, mask: Array | None, causal: bool) -> Array | None:
    """Adds the mask in place; returns which rows have no key left, or None when none can be."""
    if causal:
        shape = scores.shape[-2:]
        np.copyto(scores, -np.inf, where=~np.tri(*shape, dtype=np.bool_))
        return None
    if mask is None:
        return None
    if mask.dtype == np.bool_:
        np.copyto(scores, -np.inf, where=~mask)
        dead: Array = ~np.any(mask, axis=-1, keepdims=True)
    else:
        scores += mask.astype(scores.dtype, copy=False)
        dead = np.all(np.isneginf(mask), axis=-1, keepdims=True)
    return dead if dead.any() else None


def _scale_of(query: Any, scale: float | None) -> float:
    if scale is not None:
        return scale
    return 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0


def _recorded(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    causal: bool,
    scale: float | None,
    dropout: float = 0.0,
) -> tuple[Array, tuple[Array, Array | None]]:
    """The result, and for the derivative: the weights, and what dropout multiplied them by.

    softmax(query key^T scale + mask) value; a row whose keys are all masked gives 0.
    """
    _check_attention(query, key, value, mask, causal)
    if query.dtype.kind in "iub" and of_nothing(query, key, value):
        dtype = np.dtype(np.int64) if query.dtype.kind == "b" else query.dtype
        return np.zeros(_attention_shape(query, key, value), dtype), (query, None)
    need_floating("scaled_dot_product_attention", query)
    if query.dtype == np.float16:
        if mask is not None and mask.dtype == np.float16:
            mask = mask.astype(np.float32)
        q, k, v = (a.astype(np.float32) for a in (query, key, value))
        out, saved = _recorded(q, k, v, mask, causal, scale, dropout)
        return out.astype(np.float16), saved
    scores = matmul(query * query.dtype.type(_scale_of(query, scale)), key.swapaxes(-1, -2))
    if mask is not None:
        shape = np.broadcast_shapes(scores.shape, mask.shape)
        if shape != scores.shape:
            scores = np.broadcast_to(scores, shape).copy()
    scores = np.ascontiguousarray(scores)  # what matmul makes has the layout of its operands
    dead = _mask_scores(scores, mask, causal)
    weights = kernels.softmax(scores, out=scores)
    if dead is not None:
        np.copyto(weights, 0, where=dead)
    kept = _kept(weights, dropout) if dropout else None
    used = weights if kept is None else weights * kept
    if query.ndim != 4 or weights.shape[:-2] != value.shape[:-2]:
        out = matmul(used, value)
        return out, (weights, kept)
    # (batch, heads, length, width) stored as (batch, length, heads, width): what callers reshape it
    # to next.
    batch, heads, length, _ = weights.shape
    out = np.empty((batch, length, heads, value.shape[-1]), value.dtype).transpose(0, 2, 1, 3)
    matmul(used, value, out=out)
    return out, (weights, kept)


def _kept(weights: Array, dropout: float) -> Array:
    """0 with probability ``dropout``, else 1 / (1 - dropout)."""
    if dropout == 1.0:
        return np.zeros_like(weights)
    drawn = bits_of(None).random(weights.shape, dtype=np.float32) >= dropout
    return drawn * weights.dtype.type(1.0 / (1.0 - dropout))


def _attention(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    causal: bool,
    scale: float | None,
    dropout: float = 0.0,
) -> Array:
    return _recorded(query, key, value, mask, causal, scale, dropout)[0]


def _attention_backward(
    needs: Any,
    g: Any,
    saved: Any,
    query: Any,
    key: Any,
    value: Any,
    mask: Any,
    causal: bool,
    scale: float | None,
    dropout: float = 0.0,
) -> tuple[Any, ...]:
    weights, kept = saved
    if not is_array(g):
        weights, kept = _on_tensors(saved, query, key, mask, causal, scale)
    elif g.dtype == np.float16:
        halves = (a.astype(np.float32) for a in (g, query, key, value))
        g, query, key, value = halves
    used = weights if kept is None else weights * kept
    gv = matmul(used.swapaxes(-1, -2), g) if needs[2] else None
    if not (needs[0] or needs[1] or needs[3]):
        return None, None, gv, None
    gs = matmul(g, value.swapaxes(-1, -2))
    if kept is not None:
        gs = gs * kept
    if is_array(g):
        gs = np.ascontiguousarray(gs)
        if gs.shape != weights.shape:  # several batches of values for the same weights
            weights = np.ascontiguousarray(np.broadcast_to(weights, gs.shape))
        gs = kernels.softmax_backward(gs, weights, out=gs)
    else:
        gs = (gs - (gs * weights).sum(-1)[..., None]) * weights
    factor = _scale_of(query, scale)
    gq = matmul(gs, key) * factor if needs[0] else None
    gk = matmul(gs.swapaxes(-1, -2), query * factor) if needs[1] else None
    return gq, gk, gv, gs if needs[3] else None


def _on_tensors(
    saved: Any, query: Any, key: Any, mask: Any, causal: bool, scale: float | None
) -> tuple[Any, Any]:
    """What :func:`_recorded` saves, computed again as tensors that know where they come from."""
    kept = None if saved[1] is None else wrap(saved[1])
    scores = matmul(query * _scale_of(query, scale), key.swapaxes(-1, -2))
    if causal:
        scores = scores.masked_fill(wrap(~np.tri(*scores.shape[-2:], dtype=np.bool_)), -math.inf)
    elif mask is not None:
        plain = mask._array
        if plain.dtype == np.bool_:
            scores = scores.masked_fill(~mask, -math.inf)
            dead = ~plain.any(-1, keepdims=True)
        else:
            scores = scores + mask
            dead = np.isneginf(plain).all(-1, keepdims=True)
        if dead.any():
            live = wrap(~dead)
            return scores.masked_fill(~live, 0.0).softmax(-1) * live, kept
    return scores.softmax(-1), kept


def _attention_meta(
    query: Array,
    key: Array,
    value: Array,
    mask: Array | None,
    causal: bool,
    scale: float | None,
    dropout: float = 0.0,
) -> Spec:
    _check_attention(query, key, value, mask, causal)
    return _attention_shape(query, key, value), query.dtype


attention = define(
    "scaled_dot_product_attention", _attention, meta=_attention_meta, record=_recorded
)
derive_jointly("scaled_dot_product_attention", _attention_backward, double_backward=True)
