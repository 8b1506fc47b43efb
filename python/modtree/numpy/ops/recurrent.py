# SPDX-License-Identifier: BSD-3-Clause
"""rnn: a layer over a whole sequence, and its double backward step by step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modtree.numpy.ops.generic import Array, Spec, is_array, need_arrays, need_floating, rows_of
from modtree.numpy.ops.join import cat, stack
from modtree.numpy.ops.matrix_product import matmul, turned_for_products
from modtree.numpy.ops.registry import define, derive_jointly
from modtree.numpy.tensor.engine import grad

#: (what the input gives to the gates, the states before) -> the states after, the hidden state
#: first.
Step = Callable[[Any, list[Any]], list[Any]]


def lstm_step(weights: list[Any], projection: Any) -> Step:
    _, w_hh, b_ih, b_hh = weights

    def step(from_input: Any, states: list[Any]) -> list[Any]:
        h, c = states
        i, f, new, o = _biased(from_input, b_ih, b_hh, h @ w_hh.T).chunk(4, 1)
        c = f.sigmoid() * c + i.sigmoid() * new.tanh()
        h = o.sigmoid() * c.tanh()
        return [h if projection is None else h @ projection.T, c]

    return step


def gru_step(weights: list[Any]) -> Step:
    _, w_hh, b_ih, b_hh = weights

    def step(from_input: Any, states: list[Any]) -> list[Any]:
        (h,) = states
        x_r, x_z, x_n = _biased(from_input, b_ih).chunk(3, 1)
        h_r, h_z, h_n = _biased(h @ w_hh.T, b_hh).chunk(3, 1)
        new = (x_n + (x_r + h_r).sigmoid() * h_n).tanh()
        return [new + (x_z + h_z).sigmoid() * (h - new)]

    return step


def rnn_step(weights: list[Any], relu: bool) -> Step:
    _, w_hh, b_ih, b_hh = weights

    def step(from_input: Any, states: list[Any]) -> list[Any]:
        total = _biased(from_input, b_ih, b_hh, states[0] @ w_hh.T)
        return [total.relu() if relu else total.tanh()]

    return step


def _biased(values: Any, *more: Any) -> Any:
    for other in more:
        if other is not None:
            values = values + other
    return values


def gradients(
    step: Step,
    x: Any,
    states: list[Any],
    weight: Any,
    reverse: bool,
    sizes: tuple[int, ...] | None,
    arguments: list[Any],
    needs: Any,
    g: Any,
) -> tuple[Any, ...]:
    """Recorded gradients of the wanted ones among the operation's arguments.

    Args:
        step: One of the functions above.
        x: (time, batch, width).
        states: The first states.
        weight: The input weight.
        reverse: From the last step to the first.
        sizes: How many sequences take part in each step.
        arguments: The operation's arguments that are tensors, or None, in order.
        needs: Which of them want a gradient.
        g: The gradients of outputs and last states, None for those that got none.
    """
    steps, batch = x.shape[:2]
    outputs: list[Any] = [None] * steps
    for t in reversed(range(steps)) if reverse else range(steps):
        n = batch if sizes is None else sizes[t]
        after = step(x[t, :n] @ weight.T, [s[:n] for s in states])
        states = [a if n == batch else cat([a, s[n:]]) for a, s in zip(after, states, strict=True)]
        outputs[t] = states[0]
    results = [stack(outputs), *states]
    followed = [(r, q) for r, q in zip(results, g, strict=True) if q is not None]
    wanted = [a for a, need in zip(arguments, needs, strict=False) if need]
    found = iter(
        grad(
            [r for r, _ in followed],
            wanted,
            [q for _, q in followed],
            create_graph=True,
            allow_unused=True,
        )
    )
    return tuple(next(found) if need else None for need in needs[: len(arguments)])


Sizes = tuple[int, ...] | None


def check_sequence(
    name: str, gates: int, x: Array, states: list[Array], weights: list[Array | None]
) -> None:
    """Shapes and dtypes fit; ``weights``: input weight, hidden weight, the biases."""
    given = [w for w in weights if w is not None]
    need_arrays(name, x, *states, *given)
    need_floating(name, x)
    w_ih, w_hh = given[:2]
    if x.shape[-1] != w_ih.shape[1]:
        raise RuntimeError(
            f"input.size(-1) must be equal to input_size. Expected {w_ih.shape[1]}, got "
            f"{x.shape[-1]}"
        )
    if w_ih.shape[0] != w_hh.shape[0] or w_ih.shape[0] % gates:
        raise RuntimeError(
            f"{name}: weights of shapes {w_ih.shape} and {w_hh.shape} do not belong together"
        )
    for other in (*states, *given):
        if other.dtype != x.dtype:
            raise RuntimeError(
                f"{name}: input, hidden state and weights must have the same dtype, got {x.dtype} "
                f"and {other.dtype}. Convert the input or the module with .to(dtype)"
            )


def in_order(x: Array, reverse: bool) -> Array:
    """Time order as the order of computation, and back."""
    return x[::-1] if reverse else x


def step_sizes(sizes: Sizes, reverse: bool, steps: int, batch: int) -> Sizes:
    """None where all sequences take part in all steps."""
    if sizes is None or all(n == batch for n in sizes):
        return None
    return sizes[::-1] if reverse else sizes


def project(x: Array, weight: Array, bias: Array | None, reverse: bool) -> Array:
    """x weight^T + bias for all steps: a new (steps, batch, rows of the weight)."""
    steps, batch, _ = x.shape
    flat = matmul(rows_of(x), weight.T)
    if bias is not None:
        flat += bias
    out = flat.reshape(steps, batch, weight.shape[0])
    # Steps in order of computation without a copy: what reads them goes one by one.
    return in_order(out, reverse)


def weight_gradient(g: Array, x: Array) -> Array:
    """Sum over steps and batch of the outer products."""
    return matmul(rows_of(g).T, rows_of(x))


def sequence_meta(x: Array, states: list[Array], width: int) -> list[Spec]:
    return [((*x.shape[:2], width), x.dtype), *((s.shape, x.dtype) for s in states)]


def input_gradients(
    needs: Any, first: int, dg: Array, x: Array, w_ih: Array, b_ih: Array | None, reverse: bool
) -> tuple[Any, Any, Any]:
    """Gradients of the inputs, of their weight and of its bias, from those of the gates.

    ``first`` is the index of the weight among the operation's arguments; the hidden weight and
    the two biases come after it.
    """
    flat = in_order(dg, reverse)  # time order
    gx = matmul(rows_of(flat), w_ih).reshape(x.shape) if needs[0] else None
    gw = weight_gradient(flat, x) if needs[first] else None
    gb = dg.sum((0, 1)) if b_ih is not None and needs[first + 2] else None
    return gx, gw, gb


# -- the plain recurrence --------------------------------------------------------------------------


def _rnn_recorded(
    x: Array,
    h0: Array,
    w_ih: Array,
    w_hh: Array,
    b_ih: Array | None,
    b_hh: Array | None,
    relu: bool,
    reverse: bool,
    sizes: Sizes,
) -> tuple[tuple[Array, Array], list[Array]]:
    """(outputs, last state), and all states."""
    check_sequence("rnn", 1, x, [h0], [w_ih, w_hh, b_ih, b_hh])
    steps, batch = x.shape[:2]
    counts = step_sizes(sizes, reverse, steps, batch)
    bias = b_ih if b_hh is None else b_hh if b_ih is None else b_ih + b_hh
    pre = project(x, w_ih, bias, reverse)
    turned = turned_for_products(w_hh)
    hidden = [h0]
    for s in range(steps):
        n = batch if counts is None else counts[s]
        now = matmul(hidden[s][:n], turned)
        now += pre[s, :n]
        if relu:
            np.maximum(now, 0, out=now)
        else:
            np.tanh(now, out=now)
        hidden.append(now if n == batch else np.concatenate((now, hidden[s][n:])))
    # Copies: what is saved must not change when a result is changed in place.
    return (in_order(np.stack(hidden[1:]), reverse), hidden[-1].copy()), hidden


def _rnn(*args: Any) -> tuple[Array, Array]:
    return _rnn_recorded(*args)[0]


def _rnn_backward(
    needs: Any,
    g: Any,
    hidden: Any,
    x: Array,
    h0: Any,
    w_ih: Array,
    w_hh: Array,
    b_ih: Any,
    b_hh: Any,
    relu: bool,
    reverse: bool,
    sizes: Sizes,
) -> tuple[Any, ...]:
    if not is_array(x):
        step = rnn_step([w_ih, w_hh, b_ih, b_hh], relu)
        arguments = [x, h0, w_ih, w_hh, b_ih, b_hh]
        return gradients(step, x, [h0], w_ih, reverse, sizes, arguments, needs, g)
    steps, batch = x.shape[:2]
    counts = step_sizes(sizes, reverse, steps, batch)
    gy = None if g[0] is None else in_order(g[0], reverse)
    states = np.stack(hidden)
    # As in relu, NaN lets a gradient through.
    slope = (~(states[1:] <= 0)).astype(x.dtype) if relu else 1 - np.square(states[1:])
    dg = np.zeros(slope.shape, x.dtype) if counts is not None else np.empty(slope.shape, x.dtype)
    dh = np.zeros(h0.shape, x.dtype) if g[1] is None else np.array(g[1])
    for s in range(steps - 1, -1, -1):
        n = batch if counts is None else counts[s]
        if gy is not None:
            dh += gy[s]
        np.multiply(dh[:n], slope[s, :n], out=dg[s, :n])
        matmul(dg[s, :n], w_hh, out=dh[:n])
    gx, gw, gb = input_gradients(needs, 2, dg, x, w_ih, b_ih, reverse)
    gu = weight_gradient(dg, states[:-1]) if needs[3] else None
    gc = None
    if b_hh is not None and needs[5]:
        gc = dg.sum((0, 1)) if gb is None else gb
    return gx, dh, gw, gu, gb, gc


def _rnn_meta(
    x: Array, h0: Array, w_ih: Array, w_hh: Array, b_ih: Any, b_hh: Any, *_: Any
) -> list[Spec]:
    check_sequence("rnn", 1, x, [h0], [w_ih, w_hh, b_ih, b_hh])
    return sequence_meta(x, [h0], w_hh.shape[1])


rnn = define("rnn", _rnn, meta=_rnn_meta, record=_rnn_recorded)
derive_jointly("rnn", _rnn_backward, double_backward=True)
