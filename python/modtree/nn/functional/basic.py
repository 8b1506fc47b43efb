# SPDX-License-Identifier: BSD-3-Clause
"""Functions of single layers: products with weights, tables, norms and distances of
vectors, attention.
"""

from __future__ import annotations

from typing import Any

from modtree._C import _result_type as result_type
from modtree.nn.functional import normalization
from modtree.nn.functional._common import need_tensor
from modtree.numpy.ops import attention as attention_ops
from modtree.numpy.ops import embedding as embedding_ops
from modtree.numpy.ops import linear as linear_ops
from modtree.numpy.ops.broadcast import broadcast_tensors
from modtree.numpy.ops.generic import rows_of
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "bilinear",
    "cosine_similarity",
    "embedding",
    "linear",
    "normalize",
    "pairwise_distance",
    "scaled_dot_product_attention",
]


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``input @ weight.T + bias``; the weight has shape (out_features, in_features) or
    (in_features,).

    Args:
        input: (..., in_features).
        weight: (out_features, in_features) or (in_features).
        bias: (out_features) or ().

    Returns:
        (..., out_features), or (...) for a weight of one axis.
    """
    return linear_ops.linear(input, weight, bias)


def bilinear(input1: Tensor, input2: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """``x1 A x2`` for each matrix A of the weight, plus the bias.

    Args:
        input1: (..., in1).
        input2: (..., in2), with the same leading axes.
        weight: (out, in1, in2).
        bias: (out).
    """
    need_tensor("bilinear", input1, input2, weight)
    kind = weight.dtype
    if not input1.dtype == input2.dtype == kind or (bias is not None and bias.dtype != kind):
        given = ", ".join(str(t.dtype) for t in (input1, input2, weight, bias) if t is not None)
        raise RuntimeError(f"bilinear(): expected tensors of one dtype, but got {given}")
    lead = tuple(input1.shape[:-1])
    if input1.ndim != input2.ndim or lead != tuple(input2.shape[:-1]):
        raise RuntimeError(
            "bilinear(): input batch dimensions do not match: got "
            f"{list(input1.shape)} and {list(input2.shape)}"
        )
    for number, vectors in enumerate((input1, input2), 1):
        if vectors.size(-1) != weight.size(number):
            raise RuntimeError(
                f"bilinear(): input{number} size does not match weight size: got "
                f"{vectors.shape[-1]} but expected {weight.shape[number]}"
            )
    if weight.ndim != 3:
        raise RuntimeError(
            f"bilinear(): expected a weight of 3 dimensions, but got shape {list(weight.shape)}"
        )
    out, in1, in2 = weight.shape
    if bias is not None and bias.size(0) != out:
        raise RuntimeError(
            f"bilinear(): bias size does not match weight size: got {bias.shape[0]} but expected "
            f"{out}"
        )
    x1, x2 = rows_of(input1), rows_of(input2)
    # All matrices at once: (n, in1) by (in1, out * in2), then a product with x2 for each n.
    half = (x1 @ weight.permute(1, 0, 2).reshape(in1, out * in2)).reshape(len(x1), out, in2)
    result = (half @ x2.unsqueeze(-1)).reshape(*lead, out)
    return result if bias is None else result + bias


def embedding(
    input: Tensor,
    weight: Tensor,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """Rows of ``weight`` chosen by the integers in ``input``.

    Args:
        input: Indices of dtype int64 or int32, any shape.
        weight: The table, (number of rows, width).
        padding_idx: The row that gets no gradient; may count from the end.
        max_norm: Rows that are looked up and have a larger norm are scaled down to it first, in
            ``weight`` itself.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide the gradient of a row by how often it was looked up.
        sparse: Accepted for compatibility; gradients are dense.
    """
    count = weight.size(0) if weight.ndim or padding_idx else 0
    if padding_idx and not -count <= padding_idx < count:  # torch does not look at 0
        raise AssertionError(
            f"Padding_idx must be within num_embeddings: got {padding_idx}, the table has "
            f"{count} row{'' if count == 1 else 's'}"
        )
    if weight.ndim != 2:
        derived = weight.requires_grad and max_norm is None
        error = IndexError if not weight.ndim and derived else RuntimeError
        raise error(f"'weight' must be 2-D, got shape {list(weight.shape)}")
    if max_norm is not None:
        renormalize_rows(input, weight, max_norm, norm_type)
    if padding_idx is not None and count:
        padding_idx = padding_idx % count
    return embedding_ops.embedding(input, weight, padding_idx, scale_grad_by_freq)


def renormalize_rows(input: Tensor, weight: Tensor, max_norm: float, norm_type: float) -> None:
    with no_grad():
        if input.is_meta or weight.is_meta:
            return
        used = input.reshape(-1)
        if not used.numel():
            return  # whatever the table is of
        chosen = embedding_ops.embedding(used, weight)
        norm = chosen.norm(norm_type, 1, keepdim=True)
        scale = (max_norm / (norm + 1e-7)).masked_fill((norm > max_norm).logical_not(), 1.0)
        weight.detach()[used] = chosen * scale


def normalize(
    input: Tensor, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: Tensor | None = None
) -> Tensor:
    """``x / max(norm(x, p), eps)`` along ``dim``.

    Args:
        input: Values of any shape.
        p: The norm.
        dim: The axis of the vectors, or several.
        eps: Norms count as at least this.
        out: Takes the result.
    """
    need_tensor("normalize", input)
    norm = input.norm(p, dim, keepdim=True)
    result = input / norm.clamp(min=eps)
    return result if out is None else out.copy_(result)


def cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Tensor:
    """``x1 x2 / (max(|x1|, eps) * max(|x2|, eps))`` along ``dim``: the cosine of an angle.

    Args:
        x1: Vectors along ``dim``.
        x2: Vectors; the two broadcast.
        dim: The axis of the vectors.
        eps: Norms count as at least this.
    """
    need_tensor("cosine_similarity", x1, x2)
    if not eps >= 0:
        raise RuntimeError(f"eps must be non-negative, got: {eps}")
    common = result_type(x1, x2)
    if not common.is_floating_point:
        raise RuntimeError(
            f"expected common dtype to be floating point, yet common dtype is {common}: "
            "cosine_similarity takes real tensors, of which one is floating"
        )
    # Along dim too: a vector that is repeated there is longer.
    x1, x2 = broadcast_tensors(
        *(x if x.dtype.is_floating_point else x.to(common) for x in (x1, x2))
    )
    # The norm's gradient at 0 is 0, and the bound, which gradients do not see, keeps the quotient
    # finite there.
    n1, n2 = (x.norm(2, dim, keepdim=True).clone() for x in (x1, x2))
    with no_grad():
        n1.clamp_(min=eps)
        n2.clamp_(min=eps)
    return ((x1 / n1) * (x2 / n2)).sum(dim)


def pairwise_distance(
    x1: Tensor, x2: Tensor, p: float = 2.0, eps: float = 1e-6, keepdim: bool = False
) -> Tensor:
    """The p-norm of ``x1 - x2 + eps`` along the last axis.

    Args:
        x1: Vectors, (..., D).
        x2: Vectors; the two broadcast.
        p: The norm.
        eps: Added to the differences, so that the gradient is finite where they are 0.
        keepdim: Keep the last axis, with size 1.
    """
    need_tensor("pairwise_distance", x1, x2)
    return (x1 - x2 + float(eps)).norm(p, -1, keepdim=keepdim)


def scaled_dot_product_attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    *,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Tensor:
    """``softmax(query @ key.T * scale + mask) @ value`` over the last two axes.

    Args:
        query: (..., L, E).
        key: (..., S, E).
        value: (..., S, Ev).
        attn_mask: Broadcast to (..., L, S). Of dtype bool, True means "takes part"; of a floating
            dtype, it is added. A query whose keys are all masked gets 0.
        dropout_p: Probability of dropping an attention weight. Applied whatever the mode of a
            module is.
        is_causal: Query i sees the keys 0 to i.
        scale: Default ``1 / sqrt(E)``.
        enable_gqa: Repeat the heads of key and value (axis -3) to the number of heads of the query.
    """
    if enable_gqa:
        key, value = (_repeat_heads(query, kv) for kv in (key, value))
    dropout = float(dropout_p) if 0 < dropout_p <= 1 else 0.0
    result = attention_ops.attention(query, key, value, attn_mask, is_causal, scale, dropout)
    nothing = attention_ops.of_nothing(query, key, value)
    if enable_gqa and min(query.ndim, key.ndim, value.ndim) < 3 and not nothing:
        raise IndexError("scaled_dot_product_attention: enable_gqa needs an axis of heads")
    # torch's kernel of four dimensions refuses negative ones too; none looks at them for nothing.
    refused = not 0 <= dropout_p <= 1 if query.ndim == 4 else dropout_p > 1
    if refused and not nothing:
        raise RuntimeError(f"dropout probability has to be between 0 and 1, but got {dropout_p}")
    return result


def _repeat_heads(query: Tensor, kv: Tensor) -> Tensor:
    if min(query.ndim, kv.ndim) < 3:
        return kv  # without heads
    heads, own = query.shape[-3], kv.shape[-3]
    if heads == own:
        return kv
    if own == 0 or heads % own:
        raise RuntimeError(
            "scaled_dot_product_attention: enable_gqa needs the number of query heads to be a "
            f"multiple of the heads of key and value, got {heads} and {own}"
        )
    lead, tail = kv.shape[:-3], kv.shape[-2:]
    spread = kv.unsqueeze(-3).expand(*lead, own, heads // own, *tail)
    return spread.reshape(*lead, heads, *tail)


def __getattr__(name: str) -> Any:
    if name == "layer_norm":  # pickles of earlier versions name it here
        return normalization.layer_norm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
