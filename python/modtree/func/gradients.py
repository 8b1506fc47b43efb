# SPDX-License-Identifier: BSD-3-Clause
"""Gradients, and products of vectors with Jacobians, of functions."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree.core import families
from modtree.core.pytree import Structure, flatten, tree_map, unflatten
from modtree.numpy.tensor import engine
from modtree.numpy.tensor.creation import zeros_like
from modtree.numpy.tensor.grad_mode import enable_grad

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
    call = _with_aux(f"{name}(f)(*args)", func, has_aux)

    def both(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        inputs = _Inputs(_chosen(name, argnums, args), f"{name}(f)(*args)")
        with enable_grad():
            value, aux = call(*_replaced(argnums, args, inputs.tree), **kwargs)
            _check_scalar(name, value)
            again = inputs.outside([value])
            found = _gradients([value], inputs.handles, [None], again, again or has_aux)
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
    inputs = _Inputs(primals, name)
    with enable_grad():
        value, aux = _with_aux(name, func, has_aux)(*inputs.tree)
    outputs, structure = _tensors_of(value, name)
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
    outputs: Any, inputs: _Inputs, weights: Any, retain: bool, create_graph: Any
) -> list[Any]:
    """The products of the weights with the Jacobian."""
    if create_graph is None:
        recorded = inputs.around and any(w.requires_grad for w in weights)
        create_graph = recorded or inputs.outside(outputs)
    with enable_grad():
        found = _gradients(outputs, inputs.handles, weights, create_graph, retain or create_graph)
    if not create_graph:
        return found
    known = [w for w in weights if w.requires_grad]
    return found if known else inputs.finished(found)


def _tensors_of(tree: Any, where: str) -> tuple[list[Any], Structure]:
    """The leaves of a tree that must be tensors."""
    flat, structure = flatten(tree)
    for value in flat:
        if isinstance(value, _C.TensorBase):
            continue
        family = families.family_of(value)
        other = (
            ": use the functions of that library for its tensors (of torch, torch.func)"
            if family is not None
            else ""
        )
        raise RuntimeError(
            f"{where}: expected only Tensors, or nested dicts, lists and tuples of them, got "
            f"{type(value)}{other}"
        )
    return flat, structure


def _chosen(name: str, argnums: Any, args: tuple[Any, ...]) -> Any:
    """The arguments that ``argnums`` names, in a tuple where it is one."""
    if isinstance(argnums, int) and not isinstance(argnums, bool):
        return args[_place(name, argnums, args)]
    if not isinstance(argnums, tuple):
        raise RuntimeError(f"{name}: argnum must be int or Tuple[int, ...], got: {argnums!r}")
    if not argnums:
        raise RuntimeError(f"{name}: argnums must be non-empty, got argnums={argnums}")
    places = [_place(name, n, args) for n in argnums]
    if len(set(places)) < len(places):
        raise RuntimeError(f"{name}: argnums elements must be unique, got argnums={argnums}")
    return tuple(args[i] for i in places)


def _place(name: str, argnum: Any, args: tuple[Any, ...]) -> int:
    if not isinstance(argnum, int):
        raise RuntimeError(f"{name}: argnum must be int or Tuple[int, ...], got: {argnum!r}")
    if not -len(args) <= argnum < len(args):
        raise RuntimeError(f"{name}: Got argnum={argnum}, but only {len(args)} positional inputs")
    return argnum % len(args)


def _replaced(argnums: Any, args: tuple[Any, ...], values: Any) -> tuple[Any, ...]:
    """The arguments with others in the places that ``argnums`` names."""
    result = list(args)
    if isinstance(argnums, int):
        argnums, values = (argnums,), (values,)
    for place, value in zip(argnums, values, strict=True):
        result[place] = value
    return tuple(result)


class _Inputs:
    """Handles of the tensors that a function is derived by. They are on the graph of the code
    around the function if that is recorded; otherwise gradients stop at them.
    """

    def __init__(self, tree: Any, where: str) -> None:
        flat, self.structure = _tensors_of(tree, where)
        self.around = _C.is_grad_enabled()
        self.handles = [self._handle(value) for value in flat]
        self._own = tuple(_C.gradient_edge(x)[0] for x in self.handles if x.is_leaf)

    def _handle(self, value: Any) -> Any:
        if not (value.is_floating_point() or value.is_complex()):
            raise RuntimeError(
                f"only Tensors of floating point and complex dtype can require gradients, got an "
                f"input of {value.dtype}"
            )
        if self.around and value.requires_grad:
            return value.view_as(value)
        return value.detach().requires_grad_()

    def end(self) -> None:
        """Ends the derivation: for the code around the function, the handles are not leaves."""
        _C.end_leaves(self._own)

    @property
    def tree(self) -> Any:
        """The handles as the tensors were given."""
        return unflatten(self.handles, self.structure)

    def outside(self, values: Any) -> bool:
        """True if the values depend on something that is recorded around the function."""
        if not self.around:
            return False
        return _C.reaches_other_leaves(tuple(v for v in values if v.requires_grad), self._own)

    def finished(self, tree: Any) -> Any:
        """Results as they leave: off the graph, unless they depend on what is around."""

        def finish(value: Any) -> Any:
            if not isinstance(value, _C.TensorBase) or not value.requires_grad:
                return value
            return value if self.outside([value]) else value.detach()

        return tree_map(finish, tree)


def _gradients(
    outputs: Any, inputs: Any, weights: Any, create_graph: bool, retain_graph: bool = True
) -> list[Any]:
    """autograd.grad() with zeros where nothing depends on an input."""
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
    found: Any = [None] * len(inputs)
    if pairs and inputs:
        found = engine.grad(
            [o for o, _ in pairs],
            inputs,
            [w for _, w in pairs],
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=True,
        )
    return [zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def _with_aux(name: str, function: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
    """A function that returns (result, aux)."""

    def call(*args: Any, **kwargs: Any) -> tuple[Any, Any]:
        result = function(*args, **kwargs)
        if not has_aux:
            return result, None
        if not (isinstance(result, tuple) and len(result) == 2):
            raise RuntimeError(
                f"{name}: output of function f should be a tuple: (output, aux) if has_aux is "
                f"True, got {type(result)}"
            )
        return result

    return call
