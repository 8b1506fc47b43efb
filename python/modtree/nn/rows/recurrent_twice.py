# SPDX-License-Identifier: BSD-3-Clause
"""Recurrent layers written with operations on tensors, step by step: what derivatives of their derivatives go through.

The rows compute derivatives on arrays. Where those must be differentiated again, the layer is computed once more here, and the gradient of
that is recorded.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

#: (what the input gives to the gates, the states before) -> the states after, the hidden state first.
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
    """Recorded gradients of the wanted ones among the row's arguments.

    Args:
        step: One of the functions above.
        x: (time, batch, width).
        states: The first states.
        weight: The input weight.
        reverse: From the last step to the first.
        sizes: How many sequences take part in each step.
        arguments: The row's arguments that are tensors, or None, in order.
        needs: Which of them want a gradient.
        g: The gradients of outputs and last states, None for those that got none.
    """
    from ...autograd import grad
    from ...ops.joining import cat, stack

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
