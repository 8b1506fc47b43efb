# SPDX-License-Identifier: BSD-3-Clause
"""Scaled dot-product attention."""

from __future__ import annotations

import math

import numpy as np

from ..._C import kernels
from ...ops.table import define
from ._common import Array, Spec, need_arrays, need_floating


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
    if causal:
        raise RuntimeError(
            "scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True"
        )
    if mask.dtype != np.bool_ and mask.dtype != np.float32 and mask.dtype != query.dtype:
        raise RuntimeError(
            "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
            f"attn_mask.dtype: {mask.dtype} and query.dtype: {query.dtype} instead."
        )


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


def _attention(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool, scale: float | None
) -> Array:
    """softmax(query key^T scale + mask) value; a row whose keys are all masked gives 0."""
    _check_attention(query, key, value, mask, causal)
    need_floating("scaled_dot_product_attention", query)
    if query.dtype == np.float16:
        if mask is not None and mask.dtype == np.float16:
            mask = mask.astype(np.float32)
        q, k, v = (a.astype(np.float32) for a in (query, key, value))
        return _attention(q, k, v, mask, causal, scale).astype(np.float16)
    if scale is None:
        scale = 1.0 / math.sqrt(query.shape[-1]) if query.shape[-1] else 1.0
    scores = np.matmul(query * query.dtype.type(scale), key.swapaxes(-1, -2))
    if mask is not None:
        shape = np.broadcast_shapes(scores.shape, mask.shape)
        if shape != scores.shape:
            scores = np.broadcast_to(scores, shape).copy()
    dead = _mask_scores(scores, mask, causal)
    weights = kernels.softmax(scores, out=scores)
    if dead is not None:
        np.copyto(weights, 0, where=dead)
    if query.ndim != 4 or weights.shape[:-2] != value.shape[:-2]:
        return np.matmul(weights, value)
    # (batch, heads, length, width) stored as (batch, length, heads, width): what callers reshape it to next.
    batch, heads, length, _ = weights.shape
    out = np.empty((batch, length, heads, value.shape[-1]), value.dtype).transpose(0, 2, 1, 3)
    return np.matmul(weights, value, out=out)


def _attention_meta(
    query: Array, key: Array, value: Array, mask: Array | None, causal: bool, scale: float | None
) -> Spec:
    _check_attention(query, key, value, mask, causal)
    return _attention_shape(query, key, value), query.dtype


attention = define("scaled_dot_product_attention", _attention, meta=_attention_meta)
