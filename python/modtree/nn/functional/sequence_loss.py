# SPDX-License-Identifier: BSD-3-Clause
"""The loss of a sequence of labels whose places in the input are not known (connectionist temporal
classification).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree import _C
from modtree._ops.functions import cat, logaddexp, logsumexp, stack
from modtree._tensor.creation import full, zeros_like
from modtree._tensor.tensor import Tensor
from modtree.nn.functional._common import checked_reduction

__all__ = ["ctc_loss"]

#: The log of what is impossible: finite, so that derivatives of sums of it are.
_NEVER = -1e30


def _numbers(values: Any) -> np.ndarray:
    array = values._array if isinstance(values, Tensor) else np.asarray(values)
    return array.astype(np.int64).reshape(-1)


def _with_blanks(targets: Tensor, lengths: np.ndarray, blank: int) -> np.ndarray:
    """(N, 2 * longest + 1): a blank before, between and after the labels of each."""
    labels = targets._array
    longest = int(lengths.max(initial=0))
    result = np.full((len(lengths), 2 * longest + 1), blank, np.int64)
    start = 0
    for row, length in enumerate(lengths):
        if labels.ndim == 1:
            own = labels[start : start + length]
            start += length
        else:
            own = labels[row, :length]
        result[row, 1 : 2 * length : 2] = own
    return result


def ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Minus the log probability of all ways to write the labels into the input, with blanks and
    repetitions.

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
    single = log_probs.ndim == 2
    if single:
        log_probs = log_probs.unsqueeze(1)
        targets = targets.reshape(1, -1) if targets.ndim < 2 else targets
    steps, count, classes = log_probs.shape
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
    labels = _with_blanks(targets, lengths, blank)
    width = labels.shape[1]
    index = _C.from_array(labels)
    # From two places before, over a blank between labels that differ.
    jump = np.zeros(labels.shape, bool)
    jump[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    no_jump = _C.from_array(~jump)

    def never(columns: int) -> Tensor:
        return full((count, columns), _NEVER, dtype=log_probs.dtype, device=log_probs.device)

    chances = log_probs.gather(2, index.expand(steps, count, width))
    first = np.arange(width)[None] < np.minimum(2, 2 * lengths + 1)[:, None]
    state = never(width) if not steps else chances[0].where(_C.from_array(first), never(width))
    for t in range(1, steps):
        ways = [state, cat([never(1), state[:, :-1]], 1)]
        if width > 2:
            ways.append(cat([never(2), state[:, :-2]], 1).masked_fill(no_jump, _NEVER))
        following = logsumexp(stack(ways), 0) + chances[t]
        state = following.where(_C.from_array((used > t)[:, None]), state)
    ends = _C.from_array(2 * lengths[:, None])
    last = state.gather(1, ends)
    before = state.gather(1, (ends - 1).clamp(min=0))
    before = before.masked_fill(ends == 0, _NEVER)
    losses = -logaddexp(last, before).squeeze(1)
    losses = losses.masked_fill(_C.from_array((used == 0) & (lengths == 0)), 0.0)
    impossible = (losses.detach() > -_NEVER / 2) | _C.from_array((used == 0) & (lengths > 0))
    losses = losses.masked_fill(impossible, 0.0 if zero_infinity else float("inf"))
    if reduction == "mean":
        return (losses / (zeros_like(losses) + _C.from_array(np.maximum(lengths, 1)))).mean()
    if reduction == "sum":
        return losses.sum()
    return losses.squeeze(0) if single else losses
