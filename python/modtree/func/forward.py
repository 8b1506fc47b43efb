# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives in a direction. The graph goes backward only: a product of the Jacobian with a vector
is the derivative of a product of a vector with the Jacobian, by that vector.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree._batching.level import materialized, plain
from modtree._ops.registry import ops
from modtree._pytree import flatten, unflatten
from modtree._tensor.batch_levels import levels
from modtree._tensor.creation import zeros, zeros_like
from modtree._tensor.grad_mode import enable_grad
from modtree.func._inputs import Inputs, chosen, gradients, replaced, tensors_of, with_aux

__all__ = ["jacfwd", "jvp", "linearize"]


class Pushforward:
    """The derivative of a function at a point, as a function of the direction."""

    def __init__(self, inputs: Inputs, outputs: list[Any]) -> None:
        self.inputs = inputs
        self.outputs = [materialized(o) for o in outputs]
        self.depth = len(levels())
        with enable_grad():
            self.dummies = [zeros_like(o).detach().requires_grad_() for o in self.outputs]
            self.pulled = gradients(self.outputs, inputs.handles, self.dummies, True)
        self.outside = inputs.outside(self.outputs)
        inputs.end()
        _C.end_leaves(tuple(_C.gradient_edge(plain(d))[0] for d in self.dummies))

    def along(self, tangents: Any) -> list[Any]:
        """The derivatives of the outputs in the direction of the tangents."""
        entered = levels()
        if len(entered) > self.depth:
            level = entered[-1]
            if any(map(level.holds, tangents)):
                one = level.map(lambda *t: tuple(self.along(t)), tuple(tangents), "jvp")
                return list(one)
            with level.left():
                return self.along(tangents)
        recorded = self.inputs.around and any(t.requires_grad for t in tangents)
        with enable_grad():
            found = gradients(self.pulled, self.dummies, tangents, self.outside or recorded, True)
        return found if self.outside or recorded else [g.detach() for g in found]


def _check_tangents(name: str, primals: Any, tangents: Any) -> list[Any]:
    """The leaves of the tangents, which must be as those of the primals."""
    structure = flatten(tangents)[1]
    known, expected = flatten(primals)
    if structure != expected:
        raise RuntimeError(
            f"{name}: Expected primals and tangents to have the same python structure. For "
            f"example, if primals is a tuple of 3 tensors, tangents also must be. Got primals "
            f"with structure {expected} and tangents with structure {structure}"
        )
    flat, _ = tensors_of(tangents, name)
    for primal, tangent in zip(known, flat, strict=True):
        if primal.shape != tangent.shape or primal.dtype != tangent.dtype:
            raise RuntimeError(
                f"{name}: a tangent of shape {list(tangent.shape)} and dtype {tangent.dtype} does "
                f"not go with a primal of shape {list(primal.shape)} and dtype {primal.dtype}"
            )
    return flat


def jvp(
    func: Callable[..., Any],
    primals: Any,
    tangents: Any,
    *,
    strict: bool = False,
    has_aux: bool = False,
) -> tuple[Any, ...]:
    """(value, derivative in the direction of the tangents); with ``has_aux`` (value, derivative,
    aux).

    Args:
        func: Takes the primals, returns tensors.
        primals: A tuple of arguments.
        tangents: A tuple nested as the primals are, of tensors of the same shapes.
        strict: Accepted.
        has_aux: The function returns (value, aux).

    Returns:
        The value, and the derivative, nested and shaped as the value.
    """
    name = "jvp(f, primals, tangents)"
    if not isinstance(primals, tuple) or not isinstance(tangents, tuple):
        raise RuntimeError(
            f"{name}: Expected primals and tangents to be a tuple. E.g. it should be valid to call "
            f"f(*primals)."
        )
    if not primals:
        raise RuntimeError(f"{name}: Expected at least one Tensor in primals")
    inputs = Inputs(primals, name)
    directions = _check_tangents(name, primals, tangents)
    with enable_grad():
        value, aux = with_aux(name, func, has_aux)(*inputs.tree)
    outputs, structure = tensors_of(value, name)
    along = Pushforward(inputs, outputs).along(directions)
    result = inputs.finished(value), unflatten(along, structure)
    return (*result, inputs.finished(aux)) if has_aux else result


def linearize(func: Callable[..., Any], *primals: Any) -> tuple[Any, Callable[..., Any]]:
    """(value, function of tangents that gives the derivative in their direction): the function is
    called once, however many directions there are.

    Args:
        func: Takes the primals, returns tensors.
        primals: Tensors, or nested dicts, lists and tuples of them.

    Returns:
        The value, and a function that takes tangents, nested and shaped as the primals, and returns
        what is nested and shaped as the value.
    """
    name = "linearize(f, *primals)"
    inputs = Inputs(primals, name)
    with enable_grad():
        value = func(*inputs.tree)
    outputs, structure = tensors_of(value, name)
    pushforward = Pushforward(inputs, outputs)

    def derivative(*tangents: Any) -> Any:
        directions = _check_tangents(name, primals, tangents)
        return unflatten(pushforward.along(directions), structure)

    return inputs.finished(value), derivative


def jacfwd(
    func: Callable[..., Any],
    argnums: Any = 0,
    has_aux: bool = False,
    *,
    chunk_size: int | None = None,
    randomness: str = "error",
) -> Callable[..., Any]:
    """The Jacobian of a function, one direction for each element of the arguments. It is nested as
    that of :func:`~modtree.func.jacrev`.

    Args:
        func: Returns tensors; with ``has_aux`` a tuple (tensors, anything).
        argnums: By which positional argument to derive, or by which ones.
        has_aux: The result is (Jacobian, aux).
        chunk_size: Accepted: directions are taken one by one.
        randomness: Accepted: the function is called once.

    Returns:
        A function of the same arguments, whose value is the Jacobian.
    """
    if chunk_size is not None and chunk_size <= 0:
        raise ValueError("jacfwd: `chunk_size` should be greater than 0.")
    call = with_aux("jacfwd(f)(*args)", func, has_aux)

    @functools.wraps(func)
    def jacobian(*args: Any, **kwargs: Any) -> Any:
        inputs = Inputs(chosen("jacfwd", argnums, args), "jacfwd(f)(*args)")
        with enable_grad():
            value, aux = call(*replaced(argnums, args, inputs.tree), **kwargs)
        outputs, structure = tensors_of(value, "jacfwd(f)(*args)")
        pushforward = Pushforward(inputs, outputs)
        columns = [_columns(pushforward, k) for k in range(len(inputs.handles))]
        blocks = [
            unflatten([column[i] for column in columns], inputs.structure)
            for i in range(len(outputs))
        ]
        tree = inputs.finished(unflatten(blocks, structure))
        return (tree, inputs.finished(aux)) if has_aux else tree

    return jacobian


def _columns(pushforward: Pushforward, k: int) -> list[Any]:
    """The Jacobian of each output by one input."""
    handles = pushforward.inputs.handles
    x = handles[k]
    count, shape = x.numel(), tuple(x.shape)
    found = []
    for i in range(count):
        basis = zeros(count, dtype=x.dtype, device=x.device)
        basis[i] = 1
        tangents = [
            basis.reshape(shape)
            if j == k
            else zeros(tuple(h.shape), dtype=h.dtype, device=h.device)
            for j, h in enumerate(handles)
        ]
        found.append(pushforward.along(tangents))
    return [
        ops["stack"]([row[i] for row in found], output.ndim).reshape((*output.shape, *shape))
        if found
        else zeros((*output.shape, *shape), dtype=output.dtype, device=output.device)
        for i, output in enumerate(pushforward.outputs)
    ]
