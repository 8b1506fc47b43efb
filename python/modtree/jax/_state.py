# SPDX-License-Identifier: BSD-3-Clause
"""Arrays of a module by their paths, as jax and optax take them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import jax

from modtree import _C
from modtree.core.patterns import Patterns, matching_paths
from modtree.jax._uses import lock, use_all
from modtree.jax_arrays import family as arrays

#: What goes on from an array to the one that takes its place (:mod:`modtree.jax_arrays.family`).
MARKS = ("_is_param", "requires_grad", "_is_buffer", "persistent")


class State(dict[str, Any]):
    """A dict of arrays by path that jax takes for a pytree, with the paths as keys.

    Its order is that of the tree. Gradients and the states of optimizers come as one.
    """

    def __repr__(self) -> str:
        return f"State({super().__repr__()})"


def _flatten(given: State) -> tuple[tuple[Any, ...], tuple[str, ...]]:
    return tuple(given.values()), tuple(given)


def _flatten_with_keys(given: State) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    keyed = [(jax.tree_util.DictKey(path), value) for path, value in given.items()]
    return keyed, tuple(given)


def _unflatten(paths: tuple[str, ...], values: Iterable[Any]) -> State:
    return State(zip(paths, values, strict=True))


jax.tree_util.register_pytree_with_keys(State, _flatten_with_keys, _unflatten, _flatten)


def first_places(structure: Any) -> dict[int, tuple[int, str, bool]]:
    """Leaf -> (root, path, is_parameter) of the first place of each leaf."""
    roots = [module[0] for module in structure.modules]
    found: dict[int, tuple[int, str, bool]] = {}
    for module, path, leaf, is_parameter in structure.places:
        if leaf >= 0 and leaf not in found:
            found[leaf] = (roots[module], path, is_parameter)
    return found


def is_trainable(leaf: Any) -> bool:
    """True for an array that gradients are wanted of."""
    family = arrays.family
    return bool(family.owns(type(leaf)) and family.requires_grad(leaf))


def states_of(split: Any, wrt: Patterns | None = None) -> tuple[list[State], list[list[int]]]:
    """For each root the trainable parameters by path, and the indices of these leaves."""
    count = len(split.structure.roots)
    states = [State() for _ in range(count)]
    indices: list[list[int]] = [[] for _ in range(count)]
    leaves = split.leaves
    chosen = None
    places = first_places(split.structure)
    if wrt is not None:
        chosen = matching_paths(wrt, [path for _, path, _ in places.values()])
    for leaf, (root, path, is_parameter) in places.items():
        if is_parameter and is_trainable(leaves[leaf]) and (chosen is None or path in chosen):
            states[root][path] = leaves[leaf]
            indices[root].append(leaf)
    return states, indices


def _split(module: Any) -> Any:
    if not isinstance(module, _C.ModuleBase):
        raise TypeError(f"expected a module, got {type(module).__name__}")
    return _C._split_modules(module, None, True)


def parameters(module: Any, *, trainable: bool = True) -> State:
    """The parameters of a module by path, each array once.

    Args:
        module: The module.
        trainable: Without those whose ``requires_grad`` is False.
    """
    return _chosen(
        module, lambda leaf, is_parameter: is_parameter and (not trainable or is_trainable(leaf))
    )


def buffers(module: Any) -> State:
    """The buffers of a module by path, each array once."""
    return _chosen(module, lambda _, is_parameter: not is_parameter)


def state(module: Any) -> State:
    """The parameters and buffers of a module by path, each array once."""
    return _chosen(module, lambda *_: True)


def _chosen(module: Any, wanted: Any) -> State:
    with lock:
        split = _split(module)
    leaves = split.leaves
    return State(
        (path, leaves[leaf])
        for leaf, (_, path, is_parameter) in first_places(split.structure).items()
        if wanted(leaves[leaf], is_parameter)
    )


def write(
    split: Any,
    places: tuple[int, ...],
    indices: tuple[int, ...],
    values: Any,
    *,
    fresh: bool = False,
) -> None:
    """Puts values into places, all or none; they are marked as what they replace.

    Args:
        split: The modules.
        places: The places.
        indices: For each of them the index of its value.
        values: The values.
        fresh: Nobody else has these arrays, so that they themselves can be marked.
    """
    use_all(split.modules)
    if not fresh:
        split.write(places, indices, _marked(split, places, indices, values), ())
    elif split.write(places, indices, values, MARKS):
        structure_places, leaves = split.structure.places, split.leaves
        for place, index in zip(places, indices, strict=True):
            leaf = structure_places[place][2]
            if leaf >= 0:
                mark_tracer(values[index], leaves[leaf])


def _marked(split: Any, places: Any, indices: Any, values: Any) -> list[Any]:
    """The values with the marks of what they replace; arrays of the caller stay unmarked."""
    values, leaves, all_places = list(values), split.leaves, split.structure.places
    for index, place in dict(zip(indices, places, strict=True)).items():
        leaf, value = all_places[place][2], values[index]
        if leaf >= 0 and value is not leaves[leaf]:
            mark_tracer(value, leaves[leaf])
            values[index] = arrays.marked(value, arrays.marks_of(leaves[leaf]))
    return values


def mark_tracer(value: Any, like: Any) -> None:
    """Notes of a tracer what is noted of an array."""
    if value is not like and isinstance(value, jax.core.Tracer):
        noted = arrays.marks_of(like)
        if noted:
            arrays.mark(value, **noted)


def update(module: Any, values: Mapping[str, Any]) -> None:
    """Puts arrays into a module by their paths, all or none; ties follow.

    Args:
        module: The module.
        values: Path -> array, such as :func:`parameters` gives.

    Raises:
        KeyError: The module does not have a parameter or buffer of a path.
    """
    with lock:
        _update(module, values)


def _update(module: Any, values: Mapping[str, Any]) -> None:
    split = _split(module)
    leaf_of = {path: leaf for _, path, leaf, _ in split.structure.places}
    unknown = [path for path in values if path not in leaf_of]
    if unknown:
        raise KeyError(
            f"{unknown[0]!r} is not a parameter or buffer of {type(module).__name__}; "
            f"modtree.jax.state(module) has the paths"
        )
    given = list(values.values())
    index_of = {leaf_of[path]: i for i, path in enumerate(values) if leaf_of[path] >= 0}
    places, indices = [], []
    for i, (_, path, leaf, _) in enumerate(split.structure.places):
        index = index_of.get(leaf)
        if leaf < 0 and path in values:
            raise KeyError(f"{path!r} is None: assign to it first")
        if index is not None:
            places.append(i)
            indices.append(index)
    write(split, tuple(places), tuple(indices), given)


def apply_updates(module: Any, updates: Mapping[str, Any]) -> None:
    """Adds what an optimizer of optax gives to the parameters, which keep their dtypes.

    Args:
        module: The module.
        updates: Path -> array, or None for no update.
    """
    with lock:
        _apply_updates(module, updates)


def _apply_updates(module: Any, updates: Mapping[str, Any]) -> None:
    now = state(module)
    missing = [path for path in updates if path not in now]
    if missing:
        raise KeyError(
            f"{missing[0]!r} is not a parameter or buffer of {type(module).__name__}; "
            f"modtree.jax.state(module) has the paths"
        )
    update(
        module,
        {
            path: (now[path] + step).astype(now[path].dtype)
            for path, step in updates.items()
            if step is not None
        },
    )
