# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers as functions of their parameters: one layer in one direction over a whole
sequence.

``weights`` are the input weight, the hidden weight and the two biases (or None). ``sizes`` says how
many sequences, the first ones, take part in each step; None: all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree.core.families import functions_of
from modtree.numpy.ops import gru as gru_ops
from modtree.numpy.ops import lstm as lstm_ops
from modtree.numpy.ops import recurrent as recurrent_ops
from modtree.numpy.ops.linear import linear
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.creation import zeros
from modtree.numpy.tensor.dtypes import float16, float32
from modtree.numpy.tensor.elsewhere import run_elsewhere
from modtree.numpy.tensor.tensor import Tensor


def zeros_of(x: Tensor, *shape: int) -> Tensor:
    """Zeros as the states of before the first step, for an input."""
    if not isinstance(x, Tensor):
        return functions_of(x).new_zeros(x, shape)
    return zeros(shape, dtype=x.dtype, device=x.device)


def recurrence(
    mode: str,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    projection: Tensor | None = None,
    reverse: bool = False,
    sizes: tuple[int, ...] | None = None,
) -> tuple[Tensor, ...]:
    """The outputs of all steps, (time, batch, width), and the last states.

    Args:
        mode: "LSTM", "GRU", "RNN_TANH" or "RNN_RELU".
        x: (time, batch, input width).
        states: The hidden state (batch, width); of an LSTM the cell state too.
        weights: See above.
        projection: Of an LSTM: the weight of the projection.
        reverse: Run from the last step to the first.
        sizes: See above.
    """
    if not isinstance(x, Tensor):
        return run_elsewhere(recurrence, mode, x, states, weights, projection, reverse, sizes)
    if x.dtype is float16:  # the sums of many steps need more digits
        given = [x, *states, *(w for w in (*weights, projection) if w is not None)]
        if any(t.dtype is not float16 for t in given):
            dtypes = ", ".join(str(t.dtype) for t in given)
            raise RuntimeError(f"recurrent layers: expected tensors of one dtype, got {dtypes}")

        def wide(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.to(float32)

        inputs: Any = wide(x)
        both: Any = [wide(s) for s in states], [wide(w) for w in weights]
        results = recurrence(mode, inputs, both[0], both[1], wide(projection), reverse, sizes)
        return tuple(r.to(float16) for r in results)
    if not x.is_floating_point():
        return _step_by_step(mode, x, states, weights, projection, reverse, sizes)
    if mode == "LSTM":
        return lstm_ops.lstm(x, *states, *weights, projection, reverse, sizes)
    if mode == "GRU":
        return gru_ops.gru(x, *states, *weights, reverse, sizes)
    return recurrent_ops.rnn(x, *states, *weights, mode == "RNN_RELU", reverse, sizes)


def _step_by_step(
    mode: str,
    x: Tensor,
    states: Sequence[Tensor],
    weights: Sequence[Tensor | None],
    projection: Tensor | None,
    reverse: bool,
    sizes: tuple[int, ...] | None,
) -> tuple[Tensor, ...]:
    """The same of complex numbers and integers, which the native kernels do not know."""
    if sizes is not None:
        raise NotImplementedError(
            f"packed sequences of {x.dtype} are not implemented: expected a floating dtype"
        )
    steps = range(x.shape[0])
    if not steps:
        raise RuntimeError("Expected sequence length to be larger than 0 in RNN")
    if mode in ("LSTM", "GRU") and not x.is_complex():
        raise NotImplementedError(f"{mode} of {x.dtype} is not implemented: its gates are floating")
    outputs: dict[int, Tensor] = {}
    now = list(states)
    for t in reversed(steps) if reverse else steps:
        now = _step(mode, x[t], now, weights)
        if projection is not None:
            now[0] = linear(now[0], projection)
        outputs[t] = now[0]
    return (ops["stack"]([outputs[t] for t in steps], 0), *now)


def _step(
    mode: str, x: Tensor, states: Sequence[Tensor], weights: Sequence[Tensor | None]
) -> list[Tensor]:
    w_input, w_hidden, b_input, b_hidden = weights
    inner, h = linear(x, w_input, b_input), states[0]
    outer = linear(h, w_hidden, b_hidden)
    if mode == "LSTM":
        i, f, g, o = (inner + outer).chunk(4, -1)
        cell = f.sigmoid() * states[1] + i.sigmoid() * g.tanh()
        return [o.sigmoid() * cell.tanh(), cell]
    if mode == "GRU":
        (r, z, n), (hr, hz, hn) = inner.chunk(3, -1), outer.chunk(3, -1)
        new = (n + (r + hr).sigmoid() * hn).tanh()
        return [(h - new) * (z + hz).sigmoid() + new]
    total = inner + outer
    return [total.relu() if mode == "RNN_RELU" else total.tanh()]
