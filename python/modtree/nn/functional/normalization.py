# SPDX-License-Identifier: BSD-3-Clause
"""Normalization of batches, instances, groups and last axes."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence

from modtree._C import as_tuple, bump_version
from modtree.nn.functional._common import need_constants, need_tensor
from modtree.numpy.ops import norm as norm_ops
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.dtypes import finfo, float32
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.tensor import Tensor

__all__ = [
    "batch_norm",
    "group_norm",
    "instance_norm",
    "layer_norm",
    "local_response_norm",
    "rms_norm",
]


def batch_norm(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel with mean 0 and variance 1, times ``weight`` plus ``bias``.

    Args:
        input: (N, C, ...), of a floating dtype.
        running_mean: (C). While training it moves towards the mean of the batch, in place; else it
            is the mean that is used.
        running_var: (C), likewise; of the batch it takes the unbiased variance.
        weight: (C).
        bias: (C).
        training: Use mean and variance of the batch.
        momentum: How far the running values move.
        eps: Added to the variance.

    ValueError when training with one value per channel.
    """
    if training and isinstance(input, Tensor):
        _need_several(input)
    if not eps > 0:
        _check_eps(training, eps)
    return normalize_batch(input, running_mean, running_var, weight, bias, training, momentum, eps)


def normalize_batch(
    input: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Tensor:
    """:func:`batch_norm` of one value per channel too."""
    need_tensor("batch_norm", input)
    if not input.numel():
        return normalize_nothing(input, weight, bias)
    need_constants("batch_norm", running_mean=running_mean, running_var=running_var)
    y = norm_ops.batch_norm(
        input, weight, bias, running_mean, running_var, bool(training), momentum, eps
    )
    if training:
        for running in (running_mean, running_var):
            if running is not None:
                bump_version(running)
    return y


def normalize_nothing(input: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    """torch looks at nothing else, neither at dtypes nor at statistics."""
    result = input.clone()
    if weight is not None and weight.numel():
        result = result * weight[0]
    return result if bias is None or not bias.numel() else result + bias[0]


def _check_eps(training: bool, eps: float) -> None:
    if training and eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    if eps < 0:
        raise ValueError(f"batch_norm eps must be non-negative, but got {eps}")


def _need_several(input: Tensor) -> None:
    shape = input.shape
    if not shape:
        raise IndexError("batch_norm: expected an input with a batch, got a scalar")
    if shape[0] * math.prod(shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {list(shape)}"
        )


def instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    """Each channel of each sample with mean 0 and variance 1, times ``weight`` plus ``bias``.

    Args:
        input: (N, C, ...), of a floating dtype.
        running_mean: (C). Moves towards the mean over the samples, in place; used when
            ``use_input_stats`` is False.
        running_var: (C), likewise.
        weight: (C).
        bias: (C).
        use_input_stats: Use mean and variance of the input.
        momentum: How far the running values move.
        eps: Added to the variance.

    ValueError when there is only one value per channel of a sample.
    """
    need_tensor("instance_norm", input)
    if not use_input_stats:
        _need_statistics(running_mean, running_var)
        if input.ndim < 2:
            raise IndexError(
                f"instance_norm: expected (batch, channels, ...), got shape {list(input.shape)}"
            )
        if not input.numel():
            return normalize_nothing(input, weight, bias)
    need_constants("instance_norm", running_mean=running_mean, running_var=running_var)
    if not use_input_stats:
        return norm_ops.batch_norm(
            input, weight, bias, running_mean, running_var, False, momentum, eps
        )
    if math.prod(input.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 spatial element when training, got input size "
            f"{list(input.shape)}"
        )
    if running_mean is not None or running_var is not None:
        _check_statistics(running_mean, running_var)
    if not input.numel():
        need_means(input, running_mean, running_var)
        return normalize_nothing(input, weight, bias)
    track_instances(input, running_mean, running_var, momentum)
    return norm_ops.group_norm(input, weight, bias, input.shape[1], eps)


def _need_statistics(running_mean: Tensor | None, running_var: Tensor | None) -> None:
    if running_mean is None or running_var is None:
        raise RuntimeError(
            "Expected running_mean and running_var to be defined when use_input_stats is false"
        )


def need_means(input: Tensor, *statistics: Tensor | None) -> None:
    """Means over the samples are taken where there are statistics, even of none."""
    tracked = [given for given in statistics if given is not None]
    for given in (input, *tracked) if tracked else ():
        if not (given.is_floating_point() or given.is_complex()):
            raise RuntimeError(
                f"instance_norm: expected a floating dtype to take the mean of, got {given.dtype}; "
                f"convert with .float()"
            )


def _check_statistics(running_mean: Tensor | None, running_var: Tensor | None) -> None:
    for given in (running_mean, running_var):
        if given is not None and given.ndim > 1:
            raise RuntimeError(
                f"instance_norm: statistics are vectors, got shape {list(given.shape)}"
            )
    if running_mean is None or running_var is None:
        raise ValueError("running_mean and running_var must either both be None or neither be None")


def track_instances(
    input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float
) -> None:
    if input.is_meta or (running_mean is None and running_var is None):
        return
    if 0 in input.shape[2:]:  # of nothing there are no statistics
        return
    with no_grad():
        axes = tuple(range(2, input.dim()))
        if running_mean is not None:
            running_mean.mul_(1 - momentum).add_(input.mean(axes).mean(0) * momentum)
        if running_var is not None:
            running_var.mul_(1 - momentum).add_(input.var(axes).mean(0) * momentum)


def group_norm(
    input: Tensor,
    num_groups: int,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Each group of channels of each sample with mean 0 and variance 1; ``weight`` and ``bias`` (C)
    are per channel.

    Args:
        input: (N, C, ...), of a floating dtype; C must be a multiple of ``num_groups``.
        num_groups: Number of groups.
        weight: (C).
        bias: (C).
        eps: Added to the variance.
    """
    need_tensor("group_norm", input)
    num_groups = operator.index(num_groups)
    if num_groups == 0 and input.ndim > 1:
        raise ZeroDivisionError("group_norm: expected num_groups to be positive, got 0")
    shape = input.shape
    if len(shape) > 1 and num_groups > 0:
        values = shape[0] * shape[1] // num_groups * math.prod(shape[2:])
        if values == 1:
            raise ValueError(
                f"Expected more than 1 value per channel when training, got input size "
                f"{list(shape)}"
            )
    return norm_ops.group_norm(input, weight, bias, num_groups, eps)


def layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
) -> Tensor:
    """Normalizes over the last axes, whose sizes are ``normalized_shape``: mean 0, biased variance
    1.

    Args:
        input: (..., *normalized_shape).
        normalized_shape: Sizes of the last axes.
        weight: A factor, of that shape.
        bias: Added after it, of that shape.
        eps: Added to the variance.
    """
    if isinstance(normalized_shape, int):
        raise TypeError("layer_norm(): argument 'normalized_shape' must be tuple of ints, not int")
    return norm_ops.layer_norm(input, weight, bias, as_tuple(normalized_shape), eps)


def _check_weight_of(shape: Sequence[int], weight: Tensor | None) -> None:
    if weight is not None and tuple(weight.shape) != tuple(shape):
        raise RuntimeError(
            f"Expected weight to be of same shape as normalized_shape, but got weight of shape "
            f"{list(weight.shape)} and normalized_shape = {list(shape)}"
        )


_FLOAT32_EPS = float(finfo(float32).eps)


def rms_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    eps: float | None = None,
) -> Tensor:
    """``x / sqrt(mean(x^2) + eps) * weight``, the mean over the last axes (Zhang and Sennrich,
    2019).

    Args:
        input: (..., *normalized_shape).
        normalized_shape: Sizes of the last axes.
        weight: A factor, of that shape.
        eps: Added to the mean square; None means the smallest step from 1 of the input's dtype.
    """
    need_tensor("rms_norm", input)
    if isinstance(normalized_shape, int):
        raise TypeError("rms_norm(): argument 'normalized_shape' must be tuple of ints, not int")
    if input.ndim < len(normalized_shape):
        _check_weight_of(normalized_shape, weight)
        raise ValueError(
            f"Input tensor must have at least {len(normalized_shape)} dimensions, but got "
            f"{input.ndim}"
        )
    floating = input.is_floating_point() or input.is_complex()
    if eps is None:
        # Of float16 it is that of float32, in which its mean is computed.
        half = input.dtype.name == "float16"
        eps = _FLOAT32_EPS if half else float(finfo(input.dtype).eps) if floating else 0.0
    if input.is_complex() or (weight is not None and weight.dtype != input.dtype and floating):
        norm_ops.check_normalized_sizes(input, weight, None, as_tuple(normalized_shape))
        axes = tuple(range(-len(normalized_shape), 0))
        scaled = input * (input.square().mean(axes, keepdim=True) + eps).rsqrt()
        return scaled if weight is None else (scaled * weight).to(input.dtype)
    return norm_ops.rms_norm(input, weight, as_tuple(normalized_shape), eps)


def local_response_norm(
    input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0
) -> Tensor:
    """``x / (k + alpha * mean of x^2 over neighbouring channels) ** beta``.

    Args:
        input: (N, C, ...).
        size: Number of channels in a neighbourhood.
        alpha: Factor of the mean.
        beta: Exponent.
        k: What is added to the mean.
    """
    need_tensor("local_response_norm", input)
    if input.dim() < 3:
        raise ValueError(
            f"Expected 3D or higher dimensionality input (got {input.dim()} dimensions)"
        )
    if input.numel() == 0:
        return input
    if size <= 0:
        raise RuntimeError(f"local_response_norm: expected size to be at least 1, got {size}")
    if not (input.is_floating_point() or input.dtype.name == "int64"):
        raise NotImplementedError(
            f'"local_response_norm" not implemented for {input.dtype}: convert with .float()'
        )
    none = (0, 0)
    widths = (none, (size // 2, (size - 1) // 2), *(none,) * (input.dim() - 2))
    squares = ops["pad"](input * input, widths, "constant", 0)
    near = squares.unfold(1, size, 1)
    mean = near.mean(-1) if input.is_floating_point() else near.sum(-1) // size
    return input / (mean * alpha + k) ** beta
