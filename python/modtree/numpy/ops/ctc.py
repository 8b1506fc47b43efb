# SPDX-License-Identifier: BSD-3-Clause
"""ctc_loss of each sample: a kernel, and the same made of other operations for derivatives of its
gradient.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import from_array, kernels
from modtree.numpy.ops.composed import gradients_of
from modtree.numpy.ops.functions import cat, logaddexp, logsumexp, stack
from modtree.numpy.ops.generic import Array, Spec, is_array, need_floating
from modtree.numpy.ops.registry import define, derive

#: The log of what is impossible: finite, so that derivatives of sums of it are.
_NEVER = -1e30


def _ctc_loss(
    log_probs: Array,
    labels: Array,
    starts: Array,
    lengths: Array,
    used: Array,
    blank: int,
    zero_infinity: bool,
) -> Array:
    """Of each sample, (N).

    Args:
        log_probs: (T, N, C).
        labels: One after the other.
        starts: Where those of each sample begin.
        lengths: How many each has.
        used: How much of T each uses.
        blank: The class that stands for no label.
        zero_infinity: 0 in place of infinity.
    """
    need_floating("ctc_loss", log_probs)
    x = log_probs.astype(np.float32) if log_probs.dtype == np.float16 else log_probs
    losses = kernels.ctc(x, labels, starts, lengths, used, blank)
    if zero_infinity:
        losses[np.isinf(losses)] = 0
    return losses.astype(log_probs.dtype, copy=False)


def _meta(log_probs: Array, *_rest: Any) -> Spec:
    return (log_probs.shape[1],), log_probs.dtype


def _gradient(
    g: Any,
    _out: Any,
    log_probs: Any,
    labels: Any,
    starts: Any,
    lengths: Any,
    used: Any,
    blank: int,
    zero_infinity: bool,
) -> Any:
    labels, starts, lengths, used = (
        getattr(v, "_array", v) for v in (labels, starts, lengths, used)
    )
    if is_array(g):
        x = log_probs.astype(np.float32) if log_probs.dtype == np.float16 else log_probs
        g = g.astype(x.dtype, copy=False)
        return kernels.ctc(x, labels, starts, lengths, used, blank, g)[1]

    def composed(x: Any) -> Any:
        return _composed(x, labels, starts, lengths, used, blank, zero_infinity)

    return gradients_of(composed, (log_probs,), (True,), g)[0]


ctc_loss = define("ctc_loss", _ctc_loss, meta=_meta)
derive("ctc_loss", _gradient)


# -- of other operations ---------------------------------------------------------------------------


def _with_blanks(labels: Array, starts: Array, lengths: Array, blank: int) -> Array:
    """(N, 2 * longest + 1): a blank before, between and after the labels of each."""
    longest = int(lengths.max(initial=0))
    result = np.full((len(lengths), 2 * longest + 1), blank, np.int64)
    for row, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        result[row, 1 : 2 * length : 2] = labels[start : start + length]
    return result


def _composed(
    log_probs: Any,
    all_labels: Array,
    starts: Array,
    lengths: Array,
    used: Array,
    blank: int,
    zero_infinity: bool,
) -> Any:
    steps, count, _ = log_probs.shape
    labels = _with_blanks(all_labels, starts, lengths, blank)
    width = labels.shape[1]
    index = from_array(labels)
    # From two places before, over a blank between labels that differ.
    jump = np.zeros(labels.shape, bool)
    jump[:, 2:] = (labels[:, 2:] != blank) & (labels[:, 2:] != labels[:, :-2])
    no_jump = from_array(~jump)

    def never(columns: int) -> Any:
        return log_probs.new_full((count, columns), _NEVER)

    chances = log_probs.gather(2, index.expand(steps, count, width))
    first = np.arange(width)[None] < np.minimum(2, 2 * lengths + 1)[:, None]
    state = never(width) if not steps else chances[0].where(from_array(first), never(width))
    for t in range(1, steps):
        ways = [state, cat([never(1), state[:, :-1]], 1)]
        if width > 2:
            ways.append(cat([never(2), state[:, :-2]], 1).masked_fill(no_jump, _NEVER))
        following = logsumexp(stack(ways), 0) + chances[t]
        state = following.where(from_array((used > t)[:, None]), state)
    ends = from_array(2 * lengths[:, None])
    last = state.gather(1, ends)
    before = state.gather(1, (ends - 1).clamp(min=0))
    before = before.masked_fill(ends == 0, _NEVER)
    losses = -logaddexp(last, before).squeeze(1)
    losses = losses.masked_fill(from_array((used == 0) & (lengths == 0)), 0.0)
    impossible = (losses.detach() > -_NEVER / 2) | from_array((used == 0) & (lengths > 0))
    return losses.masked_fill(impossible, 0.0 if zero_infinity else float("inf"))
