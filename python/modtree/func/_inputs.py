# SPDX-License-Identifier: BSD-3-Clause
"""What a function is derived by, and how its results leave the graph again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from modtree import _C
from modtree._pytree import Structure, flatten, tree_map, unflatten
from modtree._tensor.creation import zeros_like
from modtree._tensor.engine import grad
from modtree.core import families

__all__ = ["Inputs", "chosen", "gradients", "replaced", "tensors_of"]


def tensors_of(tree: Any, where: str) -> tuple[list[Any], Structure]:
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


def chosen(name: str, argnums: Any, args: tuple[Any, ...]) -> Any:
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


def replaced(argnums: Any, args: tuple[Any, ...], values: Any) -> tuple[Any, ...]:
    """The arguments with others in the places that ``argnums`` names."""
    result = list(args)
    if isinstance(argnums, int):
        argnums, values = (argnums,), (values,)
    for place, value in zip(argnums, values, strict=True):
        result[place] = value
    return tuple(result)


class Inputs:
    """Handles of the tensors that a function is derived by. They stand on the graph of what is
    around, where that is recorded; gradients stop at them otherwise.
    """

    def __init__(self, tree: Any, where: str) -> None:
        flat, self.structure = tensors_of(tree, where)
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
        """The function has been derived: for what is around, the handles are no leaves."""
        _C.end_leaves(self._own)

    @property
    def tree(self) -> Any:
        """The handles as the tensors were given."""
        return unflatten(self.handles, self.structure)

    def outside(self, values: Any) -> bool:
        """Do the values depend on something that is recorded around the function?"""
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


def gradients(
    outputs: Any, inputs: Any, weights: Any, create_graph: bool, retain_graph: bool = True
) -> list[Any]:
    """autograd.grad() with zeros where nothing depends on an input."""
    pairs = [(o, w) for o, w in zip(outputs, weights, strict=True) if o.requires_grad]
    found: Any = [None] * len(inputs)
    if pairs and inputs:
        found = grad(
            [o for o, _ in pairs],
            inputs,
            [w for _, w in pairs],
            retain_graph=retain_graph,
            create_graph=create_graph,
            allow_unused=True,
        )
    return [zeros_like(x) if g is None else g for x, g in zip(inputs, found, strict=True)]


def with_aux(name: str, function: Callable[..., Any], has_aux: bool) -> Callable[..., Any]:
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
