# SPDX-License-Identifier: BSD-3-Clause
"""The functions of layers that are others at torch's top than in ``nn.functional``, with their
arguments in another order for the most part.
"""

from __future__ import annotations

import math
from typing import Any

from modtree.nn import functional
from modtree.nn.functional import (
    adaptive_max_pool1d_with_indices as adaptive_max_pool1d,  # at the top it gives both
)
from modtree.nn.functional.normalization import (
    need_means,
    normalize_batch,
    normalize_nothing,
    track_instances,
)
from modtree.numpy.argument_types import Sizes, Tensor
from modtree.numpy.ops import norm as norm_ops

__all__ = [
    "adaptive_max_pool1d",
    "batch_norm",
    "embedding",
    "group_norm",
    "instance_norm",
    "layer_norm",
]


def embedding(
    weight: Tensor,
    indices: Tensor,
    padding_idx: int = -1,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> Tensor:
    """nn.functional.embedding() with the table first; -1 stands for no padding index."""
    return functional.embedding(
        indices,
        weight,
        # An index beyond the table is that of no row.
        padding_idx if weight.ndim == 2 and 0 <= padding_idx < weight.size(0) else None,
        scale_grad_by_freq=scale_grad_by_freq,
        sparse=sparse,
    )


def _need_channels(name: str, input: Any) -> None:
    if input.ndim < 2:
        raise IndexError(f"{name}: expected (batch, channels, ...), got shape {list(input.shape)}")


def batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """nn.functional.batch_norm() with weight and bias first."""
    return normalize_batch(input, running_mean, running_var, weight, bias, training, momentum, eps)


def instance_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    use_input_stats: bool,
    momentum: float,
    eps: float,
    cudnn_enabled: bool = False,
) -> Tensor:
    """nn.functional.instance_norm() with weight and bias first, also of images of one pixel."""
    if use_input_stats or not (running_mean is None or running_var is None):
        _need_channels("instance_norm", input)
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        if not input.numel():
            need_means(input, running_mean, running_var)
            return normalize_nothing(input, weight, bias)
        pixels = input.reshape(*input.shape[:2], -1)
        track_instances(pixels, running_mean, running_var, momentum)
        return norm_ops.group_norm(input, weight, bias, input.shape[1], eps)
    return functional.instance_norm(
        input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps
    )


def layer_norm(
    input: Tensor,
    normalized_shape: Sizes,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = False,
) -> Tensor:
    """nn.functional.layer_norm()."""
    return functional.layer_norm(input, normalized_shape, weight, bias, eps)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enabled: bool = False,
) -> Tensor:
    """nn.functional.group_norm(), also of groups of one value."""
    _need_channels("group_norm", input)
    return norm_ops.group_norm(input, weight, bias, num_groups, eps)
