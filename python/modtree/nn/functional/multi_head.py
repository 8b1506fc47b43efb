# SPDX-License-Identifier: BSD-3-Clause
"""Multi-head attention as a function of its parameters."""

from __future__ import annotations

import math

from modtree.nn.functional import basic as F
from modtree.nn.functional.activation import softmax
from modtree.nn.functional.dropout import dropout
from modtree.numpy.ops.join import cat
from modtree.numpy.tensor.creation import zeros
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["multi_head_attention_forward"]

MINUS_INF = float("-inf")


def _fail(message: str) -> AssertionError:
    return AssertionError(f"multi_head_attention_forward: {message}")


def _is_batched(query: Tensor, key: Tensor, value: Tensor) -> bool:
    dims = query.dim(), key.dim(), value.dim()
    if dims not in ((3, 3, 3), (2, 2, 2)):
        raise _fail(
            "query, key and value must all be 3-D (a batch) or all 2-D (a single sequence), got "
            f"{dims[0]}-D, {dims[1]}-D and {dims[2]}-D"
        )
    return dims[0] == 3


def _additive(mask: Tensor | None, name: str, like: Tensor) -> Tensor | None:
    """The mask as numbers to add: -inf where a bool mask says "leave out"."""
    if mask is None:
        return None
    if mask.dtype is like.dtype or mask.is_floating_point():
        return mask.to(like.dtype)
    if str(mask.dtype).rpartition(".")[2] != "bool":
        raise _fail(f"only bool and floating types of {name} are supported, got {mask.dtype}")
    return zeros(mask.shape, dtype=like.dtype, device=mask.device).masked_fill_(mask, MINUS_INF)


def _pad_last(mask: Tensor, columns: int = 1) -> Tensor:
    extra = zeros((*mask.shape[:-1], columns), dtype=mask.dtype, device=mask.device)
    return cat([mask, extra], -1)


def _project(
    query: Tensor, key: Tensor, value: Tensor, weights: list[Tensor], bias: Tensor | None
) -> tuple[Tensor, ...]:
    biases = (None, None, None) if bias is None else bias.chunk(3)
    return tuple(
        F.linear(x, w, b) for x, w, b in zip((query, key, value), weights, biases, strict=True)
    )


def _project_packed(
    query: Tensor, key: Tensor, value: Tensor, weight: Tensor, bias: Tensor | None
) -> tuple[Tensor, ...]:
    if query is key and key is value:
        return tuple(F.linear(query, weight, bias).chunk(3, -1))
    return _project(query, key, value, list(weight.chunk(3)), bias)


def multi_head_attention_forward(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    embed_dim_to_check: int,
    num_heads: int,
    in_proj_weight: Tensor | None,
    in_proj_bias: Tensor | None,
    bias_k: Tensor | None,
    bias_v: Tensor | None,
    add_zero_attn: bool,
    dropout_p: float,
    out_proj_weight: Tensor,
    out_proj_bias: Tensor | None,
    training: bool = True,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    use_separate_proj_weight: bool = False,
    q_proj_weight: Tensor | None = None,
    k_proj_weight: Tensor | None = None,
    v_proj_weight: Tensor | None = None,
    static_k: Tensor | None = None,
    static_v: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Projects, attends in ``num_heads`` heads, projects back (Vaswani et al., 2017).

    Masks say what to leave out: True, or -inf, which is added.

    Args:
        query: (L, N, E), or (L, E) without a batch.
        key: (S, N, E of the keys), or without N.
        value: (S, N, E of the values), or without N.
        embed_dim_to_check: E.
        num_heads: Number of heads; divides E.
        in_proj_weight: (3 E, E): for query, key and value, one below the other.
        in_proj_bias: (3 E).
        bias_k: A key that is appended to all, (1, 1, E).
        bias_v: Its value.
        add_zero_attn: Append a key and a value of zeros.
        dropout_p: Probability of dropping an attention weight.
        out_proj_weight: (E, E).
        out_proj_bias: (E).
        training: False drops nothing.
        key_padding_mask: (N, S) or (S).
        need_weights: Return the attention weights too.
        attn_mask: (L, S) or (N * num_heads, L, S).
        use_separate_proj_weight: Take the next three instead of ``in_proj_weight``.
        q_proj_weight: (E, E).
        k_proj_weight: (E, E of the keys).
        v_proj_weight: (E, E of the values).
        static_k: Takes the place of the projected keys, (N * num_heads, S, E / num_heads).
        static_v: Takes the place of the projected values, likewise.
        average_attn_weights: Average the weights over the heads.
        is_causal: ``attn_mask`` is the causal mask (it must be given all the same).

    Returns:
        (L, N, E) or (L, E), and the attention weights, (N, L, S) or (L, S), with an axis of heads
        in front of L unless they are averaged; or None.
    """
    batched = _is_batched(query, key, value)
    if is_causal and attn_mask is None:
        raise RuntimeError(
            "Need attn_mask if specifying the is_causal hint: is_causal only says that attn_mask "
            "is the causal mask"
        )
    if not batched:
        same = query is key and key is value
        query = query.unsqueeze(1)
        key, value = (query, query) if same else (key.unsqueeze(1), value.unsqueeze(1))
        if key_padding_mask is not None:
            key_padding_mask = key_padding_mask.unsqueeze(0)
    length, batch, width = query.shape
    if width != embed_dim_to_check:
        raise _fail(f"was expecting embedding dimension of {embed_dim_to_check}, but got {width}")
    if width % num_heads:
        raise _fail(f"embed_dim {width} not divisible by num_heads {num_heads}")
    if tuple(key.shape[:2]) != tuple(value.shape[:2]):
        raise _fail(
            f"key's sequence and batch dims {tuple(key.shape[:2])} do not match value's "
            f"{tuple(value.shape[:2])}"
        )
    mask = _additive(attn_mask, "attn_mask", query)
    padding = _additive(key_padding_mask, "key_padding_mask", query)

    if use_separate_proj_weight:
        given = {"q": q_proj_weight, "k": k_proj_weight, "v": v_proj_weight}
        weights = [w for w in given.values() if w is not None]
        if len(weights) != 3:
            missing = next(name for name, w in given.items() if w is None)
            raise _fail(f"use_separate_proj_weight is True but {missing}_proj_weight is None")
        q, k, v = _project(query, key, value, weights, in_proj_bias)
    else:
        if in_proj_weight is None:
            raise _fail("use_separate_proj_weight is False but in_proj_weight is None")
        q, k, v = _project_packed(query, key, value, in_proj_weight, in_proj_bias)

    source = k.shape[0]
    if mask is not None:
        expected = (length, source) if mask.dim() == 2 else (batch * num_heads, length, source)
        if mask.dim() not in (2, 3) or tuple(mask.shape) != expected:
            raise RuntimeError(
                f"The shape of the attn_mask is {tuple(mask.shape)}, but should be "
                f"{(length, source)} or {(batch * num_heads, length, source)}."
            )
    if padding is not None and tuple(padding.shape) != (batch, source):
        raise _fail(
            f"expecting key_padding_mask shape of {(batch, source)}, but got {tuple(padding.shape)}"
        )

    if bias_k is not None and bias_v is not None:
        k = cat([k, bias_k.expand(1, batch, width)], 0)
        v = cat([v, bias_v.expand(1, batch, width)], 0)
        mask = None if mask is None else _pad_last(mask)
        padding = None if padding is None else _pad_last(padding)

    head = width // num_heads
    q = q.reshape(length, batch, num_heads, head).permute(1, 2, 0, 3)
    k = _heads(k, static_k, batch, num_heads, head)
    v = _heads(v, static_v, batch, num_heads, head)
    if add_zero_attn:
        k, v = (
            cat([x, zeros((batch, num_heads, 1, head), dtype=x.dtype, device=x.device)], 2)
            for x in (k, v)
        )
        mask = None if mask is None else _pad_last(mask)
        padding = None if padding is None else _pad_last(padding)

    causal = is_causal and padding is None and not need_weights
    if mask is not None and not causal:
        mask = mask.reshape(batch, num_heads, *mask.shape[-2:]) if mask.dim() == 3 else mask
    if padding is not None:
        padding = padding.reshape(batch, 1, 1, padding.shape[-1])
        mask = padding if mask is None else mask + padding
    dropout_p = dropout_p if training else 0.0
    probabilities = None
    if need_weights:
        scores = (q * (1.0 / math.sqrt(head))) @ k.transpose(-2, -1)
        probabilities = softmax(scores if mask is None else scores + mask, -1)
        probabilities = dropout(probabilities, dropout_p)
        out = probabilities @ v
    else:
        out = F.scaled_dot_product_attention(
            q, k, v, None if causal else mask, dropout_p, is_causal=causal
        )
    out = out.permute(2, 0, 1, 3).reshape(length, batch, width)
    out = F.linear(out, out_proj_weight, out_proj_bias)
    if probabilities is not None and average_attn_weights:
        probabilities = probabilities.mean(dim=1)
    if not batched:
        out = out.squeeze(1)
        probabilities = None if probabilities is None else probabilities.squeeze(0)
    return out, probabilities


def _heads(x: Tensor, static: Tensor | None, batch: int, heads: int, head: int) -> Tensor:
    """(S, N, E) as (N, heads, S, head), or the given (N * heads, S, head) in its place."""
    if static is None:
        return x.reshape(x.shape[0], batch, heads, head).permute(1, 2, 0, 3)
    if static.dim() != 3 or static.shape[0] != batch * heads or static.shape[2] != head:
        raise _fail(
            f"expecting static_k and static_v of shape {(batch * heads, 'S', head)}, got "
            f"{tuple(static.shape)}"
        )
    return static.reshape(batch, heads, static.shape[1], head)
