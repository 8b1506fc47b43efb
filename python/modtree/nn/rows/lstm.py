# SPDX-License-Identifier: BSD-3-Clause
"""One layer and direction of a long short-term memory over a whole sequence.

Gates come in torch's order: input, forget, cell, output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from ...ops.table import define, derive_jointly
from ._common import Array, Spec
from .recurrent import (
    Sizes,
    check_sequence,
    in_order,
    input_gradients,
    output_gradients,
    project,
    sequence_meta,
    step_sizes,
    weight_gradient,
)


def _squash(gates: Array, scale: Array, shift: Array) -> None:
    """Sigmoid of three gates and tanh of one, as one tanh: sigmoid(x) = tanh(x / 2) / 2 + 1/2. The halves are in the weights already."""
    np.tanh(gates, out=gates)
    gates *= scale
    gates += shift


def _lstm_recorded(
    x: Array,
    h0: Array,
    c0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    w_hr: Array | None,
    reverse: bool,
    sizes: Sizes,
) -> tuple[tuple[Array, Array, Array], Any]:
    """(outputs, last hidden state, last cell state), and the gates, cells, their tanh, hidden states, values before the projection."""
    check_sequence("lstm", 4, x, [h0, c0], [w_ih, w_hh, b_ih, b_hh, w_hr])
    steps, batch = x.shape[:2]
    width = w_ih.shape[0] // 4
    counts = step_sizes(sizes, reverse, steps, batch)
    scale = np.full(4 * width, 0.5, x.dtype)
    scale[2 * width : 3 * width] = 1
    shift = 1 - scale
    shift[2 * width : 3 * width] = 0
    bias = b_ih if b_hh is None else b_hh if b_ih is None else b_ih + b_hh
    gates = project(x, w_ih * scale[:, None], None if bias is None else bias * scale, reverse)
    turned = np.multiply(w_hh.T, scale, order="C")  # contiguous: a product up to 1.7 times faster
    hidden = np.empty((steps + 1, batch, h0.shape[1]), x.dtype)
    cells = np.empty((steps + 1, batch, width), x.dtype)
    bent = np.empty((steps, batch, width), x.dtype)
    free = None if w_hr is None else np.empty((steps, batch, width), x.dtype)
    hidden[0], cells[0] = h0, c0
    product = np.empty((batch, 4 * width), x.dtype)
    added = np.empty((batch, width), x.dtype)
    for s in range(steps):
        n = batch if counts is None else counts[s]
        now = gates[s, :n]
        now += np.matmul(hidden[s, :n], turned, out=product[:n])
        _squash(now, scale, shift)
        cell = np.multiply(now[:, width : 2 * width], cells[s, :n], out=cells[s + 1, :n])
        cell += np.multiply(now[:, :width], now[:, 2 * width : 3 * width], out=added[:n])
        tanh = np.tanh(cell, out=bent[s, :n])
        if free is None:
            np.multiply(now[:, 3 * width :], tanh, out=hidden[s + 1, :n])
        else:
            np.multiply(now[:, 3 * width :], tanh, out=free[s, :n])
            np.matmul(free[s, :n], w_hr.T, out=hidden[s + 1, :n])
        if n < batch:
            hidden[s + 1, n:], cells[s + 1, n:] = hidden[s, n:], cells[s, n:]
    result = in_order(hidden[1:], reverse), hidden[-1].copy(), cells[-1].copy()
    return result, (gates, cells, bent, hidden, free)


def _lstm(
    x: Array,
    h0: Array,
    c0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    w_hr: Array | None,
    reverse: bool,
    sizes: Sizes,
) -> tuple[Array, Array, Array]:
    return _lstm_recorded(x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr, reverse, sizes)[0]


def _slopes(gates: Array, cells: Array, bent: Array) -> tuple[Array, Array, Array]:
    """For all steps: the factors from the cell's gradient to those of the first three gates, from the hidden state's gradient to that of the
    output gate, and from it to the cell's."""
    steps, batch, width = bent.shape
    i, f, c, o = np.moveaxis(gates.reshape(steps, batch, 4, width), 2, 0)
    inner = np.empty((steps, batch, 3, width), bent.dtype)
    inner[:, :, 0] = i * (1 - i) * c
    inner[:, :, 1] = f * (1 - f) * cells[:-1]
    inner[:, :, 2] = i * (1 - c * c)
    return inner, o * (1 - o) * bent, o * (1 - bent * bent)


def _lstm_backward(
    needs: Any,
    g: Any,
    saved: Any,
    x: Array,
    h0_like: Any,
    c0_like: Any,
    w_ih: Array,
    w_hh: Array,
    b_ih_like: Any,
    b_hh_like: Any,
    w_hr: Array | None,
    reverse: bool,
    sizes: Sizes,
) -> tuple[Any, ...]:
    gates, cells, bent, hidden, free = saved
    steps, batch, width = bent.shape
    counts = step_sizes(sizes, reverse, steps, batch)
    gy = output_gradients(g[0], hidden[1:].shape, x.dtype, reverse)
    inner, outer, carry = _slopes(gates, cells, bent)
    # Steps in which a sequence takes no part must give zeros.
    dg = (np.empty if counts is None else np.zeros)((steps, batch, 4, width), x.dtype)
    dp = None if w_hr is None else np.zeros(hidden[1:].shape, x.dtype)
    dh = np.zeros(h0_like.shape, x.dtype) if g[1] is None else np.array(g[1])
    dc = np.zeros(c0_like.shape, x.dtype) if g[2] is None else np.array(g[2])
    for s in range(steps - 1, -1, -1):
        n = batch if counts is None else counts[s]
        h, c, d = dh[:n], dc[:n], dg[s, :n]
        dh += gy[s]
        m = h
        if dp is not None:
            dp[s, :n] = h
            m = np.matmul(h, w_hr)
        c += m * carry[s, :n]
        np.multiply(c[:, None], inner[s, :n], out=d[:, :3])
        np.multiply(m, outer[s, :n], out=d[:, 3])
        c *= gates[s, :n, width : 2 * width]
        np.matmul(d.reshape(n, 4 * width), w_hh, out=h)
    dg = dg.reshape(steps, batch, 4 * width)
    gx, gw, gb = input_gradients(needs, 3, dg, x, w_ih, b_ih_like, reverse)
    gu = weight_gradient(dg, hidden[:-1]) if needs[4] else None
    gc = None
    if b_hh_like is not None and needs[6]:
        gc = dg.sum((0, 1)) if gb is None else gb
    gp = None if dp is None or not needs[7] else weight_gradient(dp, free)
    return gx, dh, dc, gw, gu, gb, gc, gp


def _lstm_meta(
    x: Array,
    h0: Array,
    c0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Any,
    b_hh: Any,
    w_hr: Any,
    *_: Any,
) -> list[Spec]:
    check_sequence("lstm", 4, x, [h0, c0], [w_ih, w_hh, b_ih, b_hh, w_hr])
    return sequence_meta(x, [h0, c0], h0.shape[1])


lstm = define("lstm", _lstm, meta=_lstm_meta, record=_lstm_recorded)
derive_jointly("lstm", _lstm_backward)
