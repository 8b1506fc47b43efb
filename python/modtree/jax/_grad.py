# SPDX-License-Identifier: BSD-3-Clause
"""Gradients of functions that take modules, by the modules' parameters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax

from modtree import _C
from modtree.core.patterns import Patterns
from modtree.jax._state import State, states_of
from modtree.jax._tracing import finished, lock, named, outcome_of, run, split_call


class _Wanted:
    """The arrays by which one argument is differentiated.

    ``tree`` is the argument with a State of parameters in the place of each module.
    """

    def __init__(self, split: Any, value: Any, first_other: int, wrt: Patterns | None) -> None:
        with lock:
            self.split = _C._split_modules(value, None, True)
        states, _ = states_of(self.split, wrt)
        if self.split.structure.roots and not any(states):
            what = "a parameter that requires a gradient" + (f" and matches {wrt!r}" if wrt else "")
            raise ValueError(f"the argument does not have {what}")
        self.first_other = first_other
        index_of = {id(leaf): i for i, leaf in enumerate(split.leaves)}
        self.indices = [[index_of[id(leaf)] for leaf in state.values()] for state in states]
        self.tree = self._with_states(states, self.split.others)

    def _with_states(self, states: list[State], others: Any) -> Any:
        structure = self.split.structure
        stand_ins: list[Any] = [None] * len(structure.modules)
        roots = [i for i, module in enumerate(structure.modules) if module[1] == ""]
        for i, state in zip(roots, states, strict=True):
            stand_ins[i] = state
        return structure.rebuild(stand_ins, others)

    def put(self, tree: Any, leaves: list[Any], others: list[Any]) -> None:
        """Puts what jax gives in the place of ``tree`` among leaves and other arguments."""
        states: list[State] = []
        own: list[Any] = []
        self._collect(tree, self.tree, states, own)
        for state, indices in zip(states, self.indices, strict=True):
            for index, value in zip(indices, state.values(), strict=True):
                leaves[index] = value
        others[self.first_other : self.first_other + len(own)] = own

    def _collect(self, tree: Any, like: Any, states: list[State], own: list[Any]) -> None:
        if type(like) is State:
            if not any(like is known for known in states):
                states.append(tree)
        elif self._holds_state(like):
            keys = like if isinstance(like, dict) else range(len(like))
            for key in keys:
                self._collect(tree[key], like[key], states, own)
        else:
            own.append(tree)

    def _holds_state(self, value: Any) -> bool:
        if type(value) is State:
            return True
        if isinstance(value, dict):
            return any(map(self._holds_state, value.values()))
        return isinstance(value, (list, tuple)) and any(map(self._holds_state, value))


def value_and_grad(
    function: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    wrt: Patterns | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """``jax.value_and_grad`` by the parameters of the modules among the arguments.

    Gradients of a module are a :class:`State`: a dict by path, in the order of the tree, of the
    parameters whose ``requires_grad`` is True. Buffers that the function changes are put back into
    the module.

    Args:
        function: A function with a scalar result, or a tuple of one and more with ``has_aux``.
        argnums: The arguments by which it is differentiated: modules, arrays, or containers.
        has_aux: The function returns (result, more).
        wrt: Patterns of paths of the parameters that are wanted. None: all.
        options: For ``jax.value_and_grad``: ``holomorphic``, ``allow_int``.

    Returns:
        A function with the result (value, gradients), or ((value, more), gradients).
    """
    several = isinstance(argnums, tuple)
    numbers = argnums if isinstance(argnums, tuple) else (argnums,)

    def call(*args: Any, **kwargs: Any) -> Any:
        split = split_call(args, kwargs)
        firsts = _first_others(args)
        places = [n if n >= 0 else len(args) + n for n in numbers]
        for n, place in zip(numbers, places, strict=True):
            if not 0 <= place < len(args):
                raise TypeError(f"argnums={n}, but there are {len(args)} positional arguments")
        wanted = [_Wanted(split, args[place], firsts[place], wrt) for place in places]

        def inner(trees: Any) -> Any:
            leaves, others = list(split.leaves), list(split.others)
            for one, tree in zip(wanted, trees, strict=True):
                one.put(tree, leaves, others)
            result, change = run(split, function, leaves, others, once=False)
            value, more = result if has_aux else (result, None)
            return value, outcome_of(split, more, change)

        trees = tuple(one.tree for one in wanted)
        transformed = jax.value_and_grad(inner, has_aux=True, **options)
        (value, outcome), gradients = transformed(trees)
        more = finished(split, outcome)
        return (value, more) if has_aux else value, gradients if several else gradients[0]

    return named(call, function)


def grad(
    function: Callable[..., Any],
    argnums: int | tuple[int, ...] = 0,
    has_aux: bool = False,
    *,
    wrt: Patterns | None = None,
    **options: Any,
) -> Callable[..., Any]:
    """``jax.grad`` by the parameters of the modules among the arguments: :func:`value_and_grad`
    without the value.

    Args:
        function: A function with a scalar result, or a tuple of one and more with ``has_aux``.
        argnums: The arguments by which it is differentiated.
        has_aux: The function returns (result, more); the result is (gradients, more) then.
        wrt: Patterns of paths of the parameters that are wanted. None: all.
        options: For ``jax.value_and_grad``.
    """
    both = value_and_grad(function, argnums, has_aux, wrt=wrt, **options)

    def call(*args: Any, **kwargs: Any) -> Any:
        value, gradients = both(*args, **kwargs)
        return (gradients, value[1]) if has_aux else gradients

    return named(call, function)


def _first_others(args: tuple[Any, ...]) -> list[int]:
    """For each argument the index of its first value without modules."""
    firsts, count = [], 0
    for value in args:
        firsts.append(count)
        count += len(_C._split_modules(value, None, True).others)
    return firsts
