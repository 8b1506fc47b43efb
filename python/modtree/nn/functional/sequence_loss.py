# SPDX-License-Identifier: BSD-3-Clause
"""The loss of a sequence of labels whose places in the input are not known (connectionist temporal
classification).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from modtree import _C
from modtree.nn.functional._common import checked_reduction
from modtree.numpy.ops import ctc as ctc_ops
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["ctc_loss"]


def _numbers(values: Any) -> np.ndarray:
    array = values._array if isinstance(values, Tensor) else np.asarray(values)
    return array.astype(np.int64).reshape(-1)


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Tensor | Sequence[int],
    target_lengths: Tensor | Sequence[int],
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log probability of all ways to write the labels into the input, with blanks and
    repetitions (Graves et al., 2006).

    The gradient is that of this value; torch's differs by what log_softmax() before it takes away,
    so that gradients of logits agree.

    Args:
        log_probs: Logs of probabilities that sum to 1, (T, N, C) or (T, C).
        targets: Labels, (N, S), or those of all samples one after the other.
        input_lengths: How much of T each sample uses, (N).
        target_lengths: The number of labels of each, (N).
        blank: The class that stands for no label.
        reduction: "none", "sum", or "mean": of the losses over the number of labels.
        zero_infinity: A loss of 0, without gradient, where the labels do not fit into the input.

    Raises:
        RuntimeError: Lengths do not fit the tensors.
    """
    checked_reduction(reduction)
    if not log_probs.is_floating_point():
        raise NotImplementedError(f'"ctc_loss" not implemented for {log_probs.dtype}')
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(
            f"ctc_loss: expected log_probs of 2 or 3 dimensions, got shape {list(log_probs.shape)}"
        )
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.reshape(1, -1) if targets.ndim < 2 else targets
    steps, count, classes = log_probs.shape
    if isinstance(targets, Tensor) and targets.is_floating_point():
        raise RuntimeError(f"ctc_loss: expected targets of integers, got {targets.dtype}")
    used, lengths = _numbers(input_lengths), _numbers(target_lengths)
    if len(used) != count or len(lengths) != count:
        raise RuntimeError(
            f"ctc_loss: input_lengths and target_lengths must be of size batch_size {count}, got "
            f"{len(used)} and {len(lengths)}"
        )
    if used.max(initial=0) > steps or used.min(initial=0) < 0:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {steps}, but got {used.tolist()}"
        )
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range, got {blank} with {classes} classes")
    starts = np.zeros(count, np.int64)
    labels = targets._array
    if labels.ndim == 1:
        np.cumsum(lengths[:-1], out=starts[1:])
    else:
        starts += np.arange(count) * labels.shape[1]
    losses = ctc_ops.ctc_loss(
        log_probs, labels.reshape(-1), starts, lengths, used, blank, bool(zero_infinity)
    )
    if reduction == "mean":
        shares = np.maximum(lengths, 1).astype(losses._array.dtype)
        return (losses / _C.from_array(shares)).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if single else losses
