# SPDX-License-Identifier: BSD-3-Clause
"""Attention of jax arrays."""

from __future__ import annotations

import math
from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array
from modtree.jax_arrays.functions.dropout import dropout
from modtree.jax_arrays.functions.linear import linear


def scaled_dot_product_attention(
    query: Array,
    key: Array,
    value: Array,
    attn_mask: Array | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Array:
    if not 0 <= dropout_p <= 1:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    if enable_gqa:
        times = query.shape[-3] // key.shape[-3]
        key, value = (jnp.repeat(x, times, axis=-3) for x in (key, value))
    scale = 1.0 / math.sqrt(query.shape[-1]) if scale is None else scale
    scores = (query * scale) @ jnp.swapaxes(key, -1, -2)
    if is_causal:
        if attn_mask is not None:
            raise RuntimeError("expected attn_mask or is_causal, got both")
        attn_mask = jnp.tril(jnp.ones(scores.shape[-2:], bool))
    if attn_mask is not None:
        if attn_mask.dtype == jnp.bool_:
            attn_mask = jnp.where(attn_mask, 0, -jnp.inf).astype(scores.dtype)
        scores = scores + attn_mask
    weights = _weights(scores) if attn_mask is not None else jax.nn.softmax(scores, -1)
    return dropout(weights, dropout_p) @ value


def _weights(scores: Array) -> Array:
    """The softmax; a query whose keys are all masked gets 0."""
    is_masked = jnp.all(scores == -jnp.inf, -1, keepdims=True)
    return jnp.where(is_masked, 0, jax.nn.softmax(jnp.where(is_masked, 0, scores), -1))


def _additive(mask: Any, like: Array) -> Any:
    if mask is None or mask.dtype != jnp.bool_:
        return None if mask is None else mask.astype(like.dtype)
    return jnp.where(mask, -jnp.inf, 0).astype(like.dtype)


def _pad_last(mask: Any) -> Any:
    return None if mask is None else jnp.pad(mask, [(0, 0)] * (mask.ndim - 1) + [(0, 1)])


def multi_head_attention_forward(
    query: Array,
    key: Array,
    value: Array,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Array | None,
    in_proj_bias: Array | None,
    bias_k: Array | None,
    bias_v: Array | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Array,
    out_proj_bias: Array | None,
    training: bool = True,
    key_padding_mask: Array | None = None,
    need_weights: bool = True,
    attn_mask: Array | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Array | None = None,
    k_proj_weight: Array | None = None,
    v_proj_weight: Array | None = None,
    static_k: Array | None = None,
    static_v: Array | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Array, Array | None]:
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint: is_causal only says that attn_mask "
            "is the causal mask"
        )
    has_batch = query.ndim == 3
    if not has_batch:
        query, key, value = (x[:, None] for x in (query, key, value))
        key_padding_mask = None if key_padding_mask is None else key_padding_mask[None]
    length, batch, width = query.shape
    if width != embed_dim_to_check or width % num_heads:
        raise AssertionError(
            f"multi_head_attention_forward: expected a width of {embed_dim_to_check} that "
            f"{num_heads} heads divide, got {width}"
        )
    weights: Any = (q_proj_weight, k_proj_weight, v_proj_weight)
    if not use_separate_proj_weight:
        weights = jnp.split(in_proj_weight, 3)
    biases: Any = (None,) * 3 if in_proj_bias is None else jnp.split(in_proj_bias, 3)
    q, k, v = (linear(*each) for each in zip((query, key, value), weights, biases, strict=True))
    mask, padding = _additive(attn_mask, query), _additive(key_padding_mask, query)
    if bias_k is not None and bias_v is not None:
        k = jnp.concatenate([k, jnp.broadcast_to(bias_k, (1, batch, width))])
        v = jnp.concatenate([v, jnp.broadcast_to(bias_v, (1, batch, width))])
        mask, padding = _pad_last(mask), _pad_last(padding)
    head = width // num_heads

    def heads(x: Array, static: Array | None = None) -> Array:
        if static is not None:
            return static.reshape(batch, num_heads, static.shape[1], head)
        return x.reshape(x.shape[0], batch, num_heads, head).transpose(1, 2, 0, 3)

    q, k, v = heads(q), heads(k, static_k), heads(v, static_v)
    if add_zero_attn:
        k, v = (jnp.pad(x, [(0, 0), (0, 0), (0, 1), (0, 0)]) for x in (k, v))
        mask, padding = _pad_last(mask), _pad_last(padding)
    if mask is not None and mask.ndim == 3:
        mask = mask.reshape(batch, num_heads, *mask.shape[-2:])
    if padding is not None:
        padding = padding[:, None, None]
        mask = padding if mask is None else mask + padding
    scores = (q / math.sqrt(head)) @ jnp.swapaxes(k, -1, -2)
    scores = scores if mask is None else scores + mask
    # With the weights wanted, a query whose keys are all masked has nan, as in torch.
    chances = jax.nn.softmax(scores, -1) if mask is None or need_weights else _weights(scores)
    chances = dropout(chances, dropout_p, training)
    out = (chances @ v).transpose(2, 0, 1, 3).reshape(length, batch, width)
    out = linear(out, out_proj_weight, out_proj_bias)
    result = chances.mean(1) if average_attn_weights else chances
    if not has_batch:
        out, result = out[:, 0], result[0]
    return out, result if need_weights else None
