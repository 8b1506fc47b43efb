# SPDX-License-Identifier: BSD-3-Clause
"""Gradients, and products of vectors with Jacobians."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree._pytree import flatten, unflatten
from modtree._tensor.grad_mode import enable_grad
from modtree.func._inputs import Inputs, chosen, gradients, replaced, tensors_of, with_aux

__all__ = ["grad", "grad_and_value", "vjp"]


def grad(func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False) -> Callable[..., Any]:
    """The gradient of a function with one number as its value.

    Args:
        func: Returns a 0-d tensor; with ``has_aux`` a tuple (tensor, anything).
        argnums: By which positional argument to derive, or by which ones: then the result is a
            tuple. Arguments may be nested dicts, lists and tuples of tensors.
        has_aux: The result is (gradient, aux).

    Returns:
        A function of the same arguments; its tensors have the shapes of the arguments derived by.
    """
    both = _grad_and_value("grad", func, argnums, has_aux)

    @functools.wraps(func)
    def gradient(*args: Any, **kwargs: Any) -> Any:
        found, value = both(*args, **kwargs)
        return (found, value[1]) if has_aux else found

    return gradient


def grad_and_value(
    func: Callable[..., Any], argnums: Any = 0, has_aux: bool = False
) -> Callable[..., Any]:
    """(gradient, value) of a function with one number as its value; with ``has_aux`` (gradient,
    (value, aux)). Arguments as for :func:`grad`.

    Args:
        func: Returns a 0-d tensor; with ``has_aux`` a tuple (tensor, anything).
        argnums: By which positional argument to derive, or by which ones.
        has_aux: The function returns something else too.

    Returns:
        A function of the same arguments; the gradients have the shapes of the arguments derived by,
        the value is a 0-d tensor.
    """
    return functools.wraps(func)(_grad_and_value("grad_and_value", func, argnums, has_aux))


def _grad_and_value(name: str, func: Any, argnums: Any, has_aux: bool) -> Callable[..., Any]:
    call = with_aux(f"{name}(f)(*args)", func, has_aux)

    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        inputs = Inputs(chosen(name, argnums, args), f"{name}(f)(*args)")
        with enable_grad():
            value, aux = call(*replaced(argnums, args, inputs.tree), **kwargs)
            _check_scalar(name, value)
            again = inputs.outside([value])
            found = gradients([value], inputs.handles, [None], again, again or has_aux)
        found = inputs.finished(unflatten(found, inputs.structure))
        value = inputs.finished(value)
        aux = inputs.finished(aux)
        inputs.end()
        return found, (value, aux) if has_aux else value

    return both


def _check_scalar(name: str, value: Any) -> None:
    if not isinstance(value, _C.TensorBase):
        raise RuntimeError(
            f"{name}(f)(*args): Expected f(*args) to return a Tensor, got {type(value)}"
        )
    if value.ndim != 0:
        raise RuntimeError(
            f"{name}(f)(*args): Expected f(*args) to return a scalar Tensor, got tensor with "
            f"{value.ndim} dims. Maybe you wanted to use vjp instead?"
        )


def vjp(func: Callable[..., Any], *primals: Any, has_aux: bool = False) -> tuple[Any, ...]:
    """(value, function that gives products of a vector with the Jacobian); with ``has_aux`` (value,
    function, aux).

    Args:
        func: Takes the primals, returns tensors.
        primals: Tensors, or nested dicts, lists and tuples of them.
        has_aux: The function returns (value, aux).

    Returns:
        The value, and a function that takes a vector nested and shaped as the value and returns a
        tuple: for each primal what is nested and shaped as it is.
    """
    name = "vjp(f, *primals)"
    inputs = Inputs(primals, name)
    with enable_grad():
        value, aux = with_aux(name, func, has_aux)(*inputs.tree)
    outputs, structure = tensors_of(value, name)
    single = len(primals) == 1

    def product(
        cotangents: Any, retain_graph: bool = True, create_graph: bool | None = None
    ) -> Any:
        weights, given = flatten(cotangents)
        if given != structure:
            raise RuntimeError(
                f"Expected pytree structure of cotangents to be the same as pytree structure of "
                f"outputs to the function. cotangents: {given}, primal output: {structure}"
            )
        found = _pulled_back(outputs, inputs, weights, retain_graph, create_graph)
        tree = unflatten(found, inputs.structure)
        return tree if not single else (tree[0],)

    finished = inputs.finished(value)
    inputs.end()
    return (finished, product, inputs.finished(aux)) if has_aux else (finished, product)


def _pulled_back(
    outputs: Any, inputs: Inputs, weights: Any, retain: bool, create_graph: Any
) -> list[Any]:
    if create_graph is None:
        recorded = inputs.around and any(w.requires_grad for w in weights)
        create_graph = recorded or inputs.outside(outputs)
    with enable_grad():
        found = gradients(outputs, inputs.handles, weights, create_graph, retain or create_graph)
    if not create_graph:
        return found
    known = [w for w in weights if w.requires_grad]
    return found if known else inputs.finished(found)
