# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers as functions of their parameters: one layer in one direction over a whole
sequence.

``weights`` are the input weight, the hidden weight and the two biases (or None). ``sizes`` says how
many sequences, the first ones, take part in each step; None: all.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from modtree._ops import gru as gru_ops
from modtree._ops import lstm as lstm_ops
from modtree._ops import recurrent as recurrent_ops
from modtree._tensor.dtypes import float16, float32
from modtree._tensor.tensor import Tensor


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
    if x.dtype is float16:  # the sums of many steps need more digits

        def wide(t: Tensor | None) -> Tensor | None:
            return None if t is None else t.to(float32)

        inputs: Any = wide(x)
        both: Any = [wide(s) for s in states], [wide(w) for w in weights]
        results = recurrence(mode, inputs, both[0], both[1], wide(projection), reverse, sizes)
        return tuple(r.to(float16) for r in results)
    if mode == "LSTM":
        return lstm_ops.lstm(x, *states, *weights, projection, reverse, sizes)
    if mode == "GRU":
        return gru_ops.gru(x, *states, *weights, reverse, sizes)
    return recurrent_ops.rnn(x, *states, *weights, mode == "RNN_RELU", reverse, sizes)
