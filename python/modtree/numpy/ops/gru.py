# SPDX-License-Identifier: BSD-3-Clause
"""One layer and direction of gated recurrent units over a whole sequence.

Gates come in torch's order: reset, update, new. The reset gate acts on the hidden product, its bias
included.
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
    gru_step,
    in_order,
    input_gradients,
    project,
    sequence_meta,
    step_sizes,
    weight_gradient,
)
from modtree.numpy.ops.registry import define, derive_jointly


def _gru_recorded(
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    reverse: bool,
    sizes: Sizes,
) -> tuple[tuple[Array, Array], Any]:
    """(outputs, last state), and for the derivative: lists of gates, of the hidden parts before
    them, of states.
    """
    check_sequence("gru", 3, x, [h0], [w_ih, w_hh, b_ih, b_hh])
    steps, batch = x.shape[:2]
    counts = step_sizes(sizes, reverse, steps, batch)
    from_input = project(x, w_ih, b_ih, reverse)
    turned = turned_for_products(w_hh)
    gates, parts, hidden = [], [], [h0]
    h = h0
    for s in range(steps):
        n = batch if counts is None else counts[s]
        part = matmul(h[:n], turned)
        if b_hh is not None:
            part += b_hh
        new, active = kernels.gru_cell(from_input[s, :n], part, h[:n])
        h = new if n == batch else np.concatenate((new, h[n:]))
        gates.append(active)
        parts.append(part)
        hidden.append(h)
    # Copies: what is saved must not change when a result is changed in place.
    return (in_order(np.stack(hidden[1:]), reverse), h.copy()), (gates, parts, hidden)


def _gru(*args: Any) -> tuple[Array, Array]:
    return _gru_recorded(*args)[0]


def _gru_backward(
    needs: Any,
    g: Any,
    saved: Any,
    x: Array,
    h0: Any,
    w_ih: Array,
    w_hh: Array,
    b_ih: Any,
    b_hh: Any,
    reverse: bool,
    sizes: Sizes,
) -> tuple[Any, ...]:
    if not is_array(x):
        step = gru_step([w_ih, w_hh, b_ih, b_hh])
        arguments = [x, h0, w_ih, w_hh, b_ih, b_hh]
        return gradients(step, x, [h0], w_ih, reverse, sizes, arguments, needs, g)
    gates, parts, hidden = saved
    steps, batch = x.shape[:2]
    counts = step_sizes(sizes, reverse, steps, batch)
    gy = None if g[0] is None else in_order(g[0], reverse)
    # The gates' gradients as the inputs and as the hidden states see them; zeros where a sequence
    # takes no part.
    shape = (steps, batch, w_hh.shape[0])
    dx, dy = ((np.empty if counts is None else np.zeros)(shape, x.dtype) for _ in range(2))
    dh = np.zeros(h0.shape, x.dtype) if g[1] is None else np.array(g[1])
    for s in range(steps - 1, -1, -1):
        n = batch if counts is None else counts[s]
        if gy is not None:
            dh += gy[s]
        dx[s, :n], dy[s, :n], rest = kernels.gru_cell_backward(
            dh[:n], gates[s], parts[s], hidden[s][:n]
        )
        np.add(matmul(dy[s, :n], w_hh), rest, out=dh[:n])
    gx, gw, gb = input_gradients(needs, 2, dx, x, w_ih, b_ih, reverse)
    gu = weight_gradient(dy, np.stack(hidden[:-1])) if needs[3] else None
    gc = dy.sum((0, 1)) if b_hh is not None and needs[5] else None
    return gx, dh, gw, gu, gb, gc


def _gru_meta(
    x: Array, h0: Array, w_ih: Array, w_hh: Array, b_ih: Any, b_hh: Any, *_: Any
) -> list[Spec]:
    check_sequence("gru", 3, x, [h0], [w_ih, w_hh, b_ih, b_hh])
    return sequence_meta(x, [h0], w_hh.shape[1])


gru = define("gru", _gru, meta=_gru_meta, record=_gru_recorded)
derive_jointly("gru", _gru_backward, double_backward=True)
