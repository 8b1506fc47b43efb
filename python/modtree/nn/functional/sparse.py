# SPDX-License-Identifier: BSD-3-Clause
"""Bags of embeddings, and one-hot vectors."""

from __future__ import annotations

import numpy as np

from modtree._C import from_array
from modtree.nn.functional._common import need_tensor
from modtree.nn.functional.basic import renormalize_rows
from modtree.numpy.ops import embedding as embedding_ops
from modtree.numpy.tensor.creation import need_storage
from modtree.numpy.tensor.ranges import arange
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["embedding_bag", "one_hot"]


def embedding_bag(
    input: Tensor,
    weight: Tensor,
    offsets: Tensor | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: Tensor | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> Tensor:
    """Sums, means or maxima of rows of ``weight`` over bags of indices.

    Args:
        input: Indices: (B, N), B bags of N; or (n), all bags one after the other.
        weight: The table, (number of rows, width).
        offsets: Where each bag starts in a 1-D input.
        max_norm: Rows that are looked up and have a larger norm are scaled down to it first, in
            ``weight`` itself.
        norm_type: The p of that norm.
        scale_grad_by_freq: Divide the gradient of a row by how often it was looked up; not for
            "max".
        mode: "sum", "mean" or "max".
        sparse: Accepted for compatibility; gradients are dense.
        per_sample_weights: A factor for each index, of the input's shape; for "sum" only.
        include_last_offset: The last offset is the end of the last bag.
        padding_idx: Indices of this value are left out, also of the number a mean divides by; may
            count from the end.

    Returns:
        (B, width); an empty bag gives zeros.
    """
    need_tensor("embedding_bag", input, weight)
    if weight.ndim != 2:
        raise ValueError(f"weight has to be a 2D Tensor, but got Tensor of dimension {weight.ndim}")
    if per_sample_weights is not None and input.shape != per_sample_weights.shape:
        raise ValueError(
            f"embedding_bag: If per_sample_weights ({per_sample_weights.shape}) is not None, then "
            f"it must have the same shape as the input ({input.shape})"
        )
    if input.dim() == 2:
        if offsets is not None:
            raise ValueError(
                "if input is 2D, then offsets has to be None, as input is treated is a mini-batch "
                f"of fixed length sequences. However, found offsets of type {type(offsets)}"
            )
        bags, size = input.shape
        offsets = arange(0, bags, device=input.device) * size
        input = input.reshape(-1)
        if per_sample_weights is not None:
            per_sample_weights = per_sample_weights.reshape(-1)
    elif input.dim() == 1:
        if offsets is None:
            raise ValueError("offsets has to be a 1D Tensor but got None: a 1D input needs them")
        if offsets.dim() != 1:
            raise ValueError(f"offsets has to be a 1D Tensor, got {offsets.dim()}D")
        if include_last_offset:
            if not offsets.numel():
                raise RuntimeError(
                    "include_last_offset: number of offset should be at least 1, got none"
                )
            offsets = offsets[:-1]
    else:
        raise ValueError(
            f"input has to be 1D or 2D Tensor, but got Tensor of dimension {input.dim()}"
        )
    if mode not in ("sum", "mean", "max"):
        raise ValueError("mode has to be one of sum, mean or max")
    if mode == "max" and scale_grad_by_freq:
        raise ValueError("max mode does not support scaling the gradient by the frequency")
    if per_sample_weights is not None and mode != "sum":
        raise NotImplementedError(
            "embedding_bag: per_sample_weights was not None. per_sample_weights is only supported "
            f"for mode='sum' (got mode='{mode}')."
        )
    if not weight.is_floating_point():
        raise NotImplementedError(
            f"embedding_bag: expected a weight of a floating dtype, but got {weight.dtype}"
        )
    count = weight.shape[0]
    if padding_idx is not None:
        if not -count <= padding_idx < count:
            raise RuntimeError(
                f"padding_idx must be within the number of embeddings, -{count} through "
                f"{count - 1}, but got {padding_idx}"
            )
        padding_idx %= count
    if max_norm is not None:
        renormalize_rows(input, weight, max_norm, norm_type)
    return embedding_ops.embedding_bag(
        input, weight, offsets, per_sample_weights, mode, padding_idx, scale_grad_by_freq
    )


def one_hot(tensor: Tensor, num_classes: int = -1) -> Tensor:
    """Class numbers (int64, any shape) as vectors of 0 and a single 1: (..., num_classes).

    Without ``num_classes`` there are as many as the largest number needs.
    """
    need_tensor("one_hot", tensor)
    values = tensor._array
    if values.dtype != np.int64:
        raise RuntimeError(
            "one_hot is only applicable to index tensor of type LongTensor, got "
            f"{tensor.dtype}: convert with .long()"
        )
    if not values.size and num_classes <= 0:
        raise RuntimeError("Can not infer total number of classes from empty tensor.")
    if values.size and values.min() < 0:
        raise RuntimeError(f"Class values must be non-negative, got {values.min()}.")
    if num_classes == -1:
        num_classes = int(values.max()) + 1
    elif num_classes < 1:
        raise RuntimeError(f"num_classes should be positive, got {num_classes}")
    elif values.size and values.max() >= num_classes:
        raise RuntimeError(
            f"Class values must be smaller than num_classes, got {values.max()} of {num_classes}."
        )
    need_storage((*values.shape, num_classes), values.dtype)
    result = np.zeros(values.size * num_classes, np.int64)
    result[np.arange(0, result.size, num_classes) + values.reshape(-1)] = 1
    return from_array(result.reshape(*values.shape, num_classes))
