# SPDX-License-Identifier: BSD-3-Clause
"""The loss of a sequence of labels whose places are not known, of jax arrays."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from modtree.jax_arrays.functions._common import Array, reduced, reduction_of

# In place of the logarithm of 0: sums of -inf do not have a gradient.
_NEVER = -1e30


def _labels_of(targets: Array, lengths: Array) -> Array:
    """Labels one after the other as (N, S)."""
    if isinstance(lengths, jax.core.Tracer):
        longest = targets.shape[0]
    else:
        longest = int(np.asarray(lengths).max(initial=0))
    if not longest:
        return jnp.zeros((lengths.shape[0], 0), targets.dtype)
    starts = jnp.cumsum(lengths) - lengths
    places = starts[:, None] + jnp.arange(longest)
    return jnp.take(targets, jnp.clip(places, 0, targets.shape[0] - 1))


def _one_loss(logs: Array, labels: Array, steps: Array, length: Array, blank: int) -> Array:
    """Of one sample: logs (T, C), labels (S)."""
    count = 2 * labels.shape[0] + 1
    states = jnp.full(count, blank, labels.dtype).at[1::2].set(labels)
    # A blank between two labels may be left out unless they are equal.
    before = jnp.concatenate([jnp.full(2, blank, labels.dtype), states])[:count]
    may_skip = (states != blank) & (states != before)

    def step(now: Array, given: tuple[Array, Array]) -> tuple[Array, None]:
        number, log = given
        padded = jnp.concatenate([jnp.full(2, _NEVER, now.dtype), now])
        skipped = jnp.where(may_skip, padded[:count], _NEVER)
        ways = jnp.stack([now, padded[1 : count + 1], skipped])
        after = jax.nn.logsumexp(ways, 0) + jnp.take(log, states)
        return jnp.where(number < steps, jnp.maximum(after, _NEVER), now), None

    # Before the first step nothing is written: the first blank and the first label can follow.
    start = jnp.full(count, _NEVER, logs.dtype).at[0].set(0)
    last, _ = jax.lax.scan(step, start, (jnp.arange(logs.shape[0]), logs))
    on_label = jnp.where(length > 0, last[jnp.maximum(2 * length - 1, 0)], _NEVER)
    # With neither a step nor a label the first state stands for both.
    return -jnp.logaddexp(last[2 * length], on_label)


def ctc_loss(
    log_probs: Array,
    targets: Array,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> Array:
    reduction = reduction_of(None, None, reduction)
    if log_probs.ndim not in (2, 3):
        raise RuntimeError(
            f"ctc_loss: expected log_probs of 2 or 3 dimensions, got shape {list(log_probs.shape)}"
        )
    single = log_probs.ndim == 2
    logs = log_probs[:, None] if single else log_probs
    total, count, classes = logs.shape
    if not 0 <= blank < classes:
        raise RuntimeError(f"blank must be in label range, got {blank} with {classes} classes")
    steps, lengths = (jnp.asarray(x).reshape(-1) for x in (input_lengths, target_lengths))
    if steps.shape != (count,) or lengths.shape != (count,):
        raise RuntimeError(
            f"ctc_loss: input_lengths and target_lengths must be of size batch_size {count}, got "
            f"{steps.size} and {lengths.size}"
        )
    if not isinstance(steps, jax.core.Tracer) and int(steps.max()) > total:
        raise RuntimeError(
            f"Expected input_lengths to have value at most {total}, but got {steps.tolist()}"
        )
    labels = jnp.asarray(targets)
    if labels.ndim == 1:
        labels = labels[None] if single else _labels_of(labels, lengths)
    losses = jax.vmap(_one_loss, (1, 0, 0, 0, None))(
        jnp.maximum(logs, _NEVER), jnp.clip(labels, 0, classes - 1), steps, lengths, blank
    )
    is_finite = losses < -_NEVER / 2
    losses = jnp.where(is_finite, losses, 0 if zero_infinity else jnp.inf)
    if reduction == "mean":
        return (losses / jnp.maximum(lengths, 1)).mean()
    return losses[0] if single and reduction == "none" else reduced(losses, reduction)
