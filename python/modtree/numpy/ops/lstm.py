# SPDX-License-Identifier: BSD-3-Clause
"""One layer and direction of a long short-term memory over a whole sequence.

Gates come in torch's order: input, forget, cell, output.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import kernels
from modtree.numpy.ops.generic import Array, Spec, is_array
from modtree.numpy.ops.matrix_product import matmul, turned_for_products
from modtree.numpy.ops.recurrent import (
    Sizes,
    check_sequence,
    gradients,
    in_order,
    input_gradients,
    lstm_step,
    project,
    sequence_meta,
    step_sizes,
    weight_gradient,
)
from modtree.numpy.ops.registry import define, derive_jointly


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
    """(outputs, last hidden state, last cell state), and for the derivative: lists of gates, of
    cells, of outputs before the projection, of hidden states.
    """
    check_sequence("lstm", 4, x, [h0, c0], [w_ih, w_hh, b_ih, b_hh, w_hr])
    steps, batch = x.shape[:2]
    counts = step_sizes(sizes, reverse, steps, batch)
    bias = b_ih if b_hh is None else b_hh if b_ih is None else b_ih + b_hh
    from_input = project(x, w_ih, bias, reverse)
    turned = turned_for_products(w_hh)
    product = np.empty((batch, w_hh.shape[0]), x.dtype)
    gates, hidden, cells, free = [], [h0], [c0], []
    h, c = h0, c0
    for s in range(steps):
        n = batch if counts is None else counts[s]
        step = from_input[s, :n], matmul(h[:n], turned, out=product[:n]), c[:n]
        new_h, new_c, active = kernels.lstm_cell(*step)
        if w_hr is not None:
            free.append(new_h)
            new_h = matmul(new_h, w_hr.T)
        if n < batch:
            new_h, new_c = np.concatenate((new_h, h[n:])), np.concatenate((new_c, c[n:]))
        h, c = new_h, new_c
        gates.append(active)
        hidden.append(h)
        cells.append(c)
    # Copies: what is saved must not change when a result is changed in place.
    result = in_order(np.stack(hidden[1:]), reverse), h.copy(), c.copy()
    return result, (gates, cells, free, hidden)


def _lstm(*args: Any) -> tuple[Array, Array, Array]:
    return _lstm_recorded(*args)[0]


def _lstm_backward(
    needs: Any,
    g: Any,
    saved: Any,
    x: Array,
    h0: Any,
    c0: Any,
    w_ih: Array,
    w_hh: Array,
    b_ih: Any,
    b_hh: Any,
    w_hr: Array | None,
    reverse: bool,
    sizes: Sizes,
) -> tuple[Any, ...]:
    if not is_array(x):
        step = lstm_step([w_ih, w_hh, b_ih, b_hh], w_hr)
        arguments = [x, h0, c0, w_ih, w_hh, b_ih, b_hh, w_hr]
        return gradients(step, x, [h0, c0], w_ih, reverse, sizes, arguments, needs, g)
    gates, cells, free, hidden = saved
    steps, batch = x.shape[:2]
    counts = step_sizes(sizes, reverse, steps, batch)
    gy = None if g[0] is None else in_order(g[0], reverse)
    # Steps in which a sequence takes no part give zeros.
    dg = (np.empty if counts is None else np.zeros)((steps, batch, w_hh.shape[0]), x.dtype)
    dp = None if w_hr is None else np.zeros((steps, *h0.shape), x.dtype)
    dh = np.zeros(h0.shape, x.dtype) if g[1] is None else np.array(g[1])
    dc = np.zeros(c0.shape, x.dtype) if g[2] is None else np.array(g[2])
    for s in range(steps - 1, -1, -1):
        n = batch if counts is None else counts[s]
        if gy is not None:
            dh += gy[s]
        d = dh[:n]
        if dp is not None:
            dp[s, :n] = d
            d = matmul(d, w_hr)
        before, after = cells[s][:n], cells[s + 1][:n]
        dg[s, :n], rest = kernels.lstm_cell_backward(d, dc[:n], gates[s], before, after)
        if n == batch:
            dc = rest
        else:
            dc[:n] = rest
        matmul(dg[s, :n], w_hh, out=dh[:n])
    gx, gw, gb = input_gradients(needs, 3, dg, x, w_ih, b_ih, reverse)
    gu = weight_gradient(dg, np.stack(hidden[:-1])) if needs[4] else None
    gc = None
    if b_hh is not None and needs[6]:
        gc = dg.sum((0, 1)) if gb is None else gb
    gp = None if dp is None or not needs[7] else _projection_gradient(dp, free)
    return gx, dh, dc, gw, gu, gb, gc, gp


def _projection_gradient(dp: Array, free: list[Array]) -> Array:
    """Of the projection's weight; in step s, the first len(free[s]) sequences took part."""
    rows = [dp[s, : len(m)] for s, m in enumerate(free)]
    return matmul(np.concatenate(rows).T, np.concatenate(free))


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
derive_jointly("lstm", _lstm_backward, double_backward=True)
