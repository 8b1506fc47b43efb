# SPDX-License-Identifier: BSD-3-Clause
"""``vmap``, ``scan``, ``remat``, ``eval_shape`` and pure calls with modules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax

from modtree import _C
from modtree.core.patterns import matching_paths
from modtree.jax._state import State, first_places
from modtree.jax._tracing import (
    Outcome,
    finished,
    lock,
    named,
    outcome_of,
    run,
    split_call,
    unbound,
)


def _pure(
    split: Any, function: Callable[..., Any], *, once: bool = False, trial: bool = False
) -> Callable[..., Outcome]:
    def call(leaves: Any, others: Any) -> Outcome:
        result, change = run(split, function, leaves, others, once=once, trial=trial)
        return outcome_of(split, result, change)

    return call


def remat(function: Callable[..., Any], **options: Any) -> Callable[..., Any]:
    """``jax.checkpoint`` for a function that takes modules, or a module: what it computes is
    computed again for its gradient.

    Args:
        function: The function, a module, or a method of a module.
        options: For ``jax.checkpoint``: ``policy``, ``prevent_cse``.
    """
    plain, bound = unbound(function)

    def call(*args: Any, **kwargs: Any) -> Any:
        split = split_call((*bound, *args), kwargs)
        outcome = jax.checkpoint(_pure(split, plain), **options)(split.leaves, split.others)
        return finished(split, outcome)

    return named(call, function)


def eval_shape(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``jax.eval_shape``: the result with shapes and dtypes in the place of arrays; new modules in
    it are on the meta device. Nothing is computed, and modules keep what they have.

    Args:
        function: The function, a module, or a method of a module.
        args: Its arguments.
        kwargs: Its keyword arguments.
    """
    plain, bound = unbound(function)
    split = split_call((*bound, *args), kwargs)
    outcome = jax.eval_shape(_pure(split, plain, once=True), split.leaves, split.others)
    return finished(split, outcome, writes=False)


def functional_call(
    module: Any,
    values: Mapping[str, Any],
    args: Any = (),
    kwargs: Mapping[str, Any] | None = None,
    *,
    changes: bool = False,
) -> Any:
    """Calls a module with other arrays than its own, which it keeps: a pure function of these.

    It can be given to ``jax.custom_vjp`` and the like.

    Args:
        module: The module.
        values: Path -> array, of some or all parameters and buffers.
        args: The positional arguments, or the only one.
        kwargs: The keyword arguments.
        changes: Also return a State of the parameters and buffers that the call has changed.
    """
    positional = args if isinstance(args, tuple) else (args,)
    with lock:
        split = _C._split_modules(((module, *positional), dict(kwargs or {})), None, True, 2)
        own = _C._split_modules(module, None, True)
    index_of = {id(leaf): i for i, leaf in enumerate(split.leaves)}
    own_leaves = own.leaves
    leaf_of = {
        path: index_of[id(own_leaves[leaf])]
        for _, path, leaf, _ in own.structure.places
        if leaf >= 0
    }
    leaves = split.leaves[:]
    for path, value in values.items():
        if path not in leaf_of:
            raise KeyError(
                f"{path!r} is not a parameter or buffer of {type(module).__name__}; "
                f"modtree.jax.state(module) has the paths"
            )
        leaves[leaf_of[path]] = value
    result, change = run(
        split,
        lambda module, /, *a, **k: module(*a, **k),
        leaves,
        split.others,
        once=False,
        traced=False,
    )
    if not changes:
        return result
    places = split.structure.places
    changed = State(
        (places[place][1], change.values[index])
        for place, index in zip(change.places, change.indices, strict=True)
    )
    return result, changed


# -- vmap ------------------------------------------------------------------------------------------


def _leaf_axes(split: Any, value: Any, axis: Any) -> dict[int, Any]:
    """Leaf of the split -> the axis over which it is mapped, for one argument with modules."""
    own = _C._split_modules(value, None, True)
    index_of = {id(leaf): i for i, leaf in enumerate(split.leaves)}
    leaves = own.leaves
    paths = {leaf: path for leaf, (_, path, _) in first_places(own.structure).items()}
    if isinstance(axis, Mapping):
        axes: dict[int, Any] = dict.fromkeys(paths)
        for pattern, one in axis.items():
            chosen = matching_paths(pattern, paths.values())
            if not chosen:
                raise ValueError(f"in_axes: {pattern!r} does not match any parameter or buffer")
            axes.update({leaf: one for leaf, path in paths.items() if path in chosen})
    elif axis is None or isinstance(axis, int):
        axes = dict.fromkeys(paths, axis)
    else:
        raise TypeError(
            f"in_axes of an argument with modules: expected an int, None, or a dict of patterns of "
            f"paths, got {axis!r}"
        )
    return {index_of[id(leaves[leaf])]: one for leaf, one in axes.items()}


def vmap(
    function: Callable[..., Any], in_axes: Any = 0, out_axes: Any = 0, **options: Any
) -> Callable[..., Any]:
    """``jax.vmap`` for a function that takes modules.

    A module whose axis is None is the same for all; with an axis, its arrays have one more
    dimension, as those of an ensemble. A dict of patterns of paths says it for some arrays. What
    the function changes in mapped arrays is put back with the dimension.

    Args:
        function: The function.
        in_axes: The mapped axis of each argument, or of all.
        out_axes: That of the results.
        options: For ``jax.vmap``: ``axis_name``, ``axis_size``, ``spmd_axis_name``.
    """

    def call(*args: Any, **kwargs: Any) -> Any:
        axes = in_axes if isinstance(in_axes, (tuple, list)) else (in_axes,) * len(args)
        if len(axes) != len(args):
            raise ValueError(f"vmap: in_axes has {len(axes)} items for {len(args)} arguments")
        split = split_call(args, kwargs)
        leaf_axes: dict[int, Any] = {}
        other_axes: list[Any] = []
        given = [*zip(args, axes, strict=True), *((value, 0) for value in kwargs.values())]
        for value, axis in given:
            own = _C._split_modules(value, None, True)
            if own.structure.roots:
                for leaf, one in _leaf_axes(split, value, axis).items():
                    leaf_axes.setdefault(leaf, one)
                other_axes += [None if isinstance(axis, Mapping) else axis] * len(own.others)
            else:
                other_axes.append(axis)
        axes_of_leaves = [leaf_axes.get(i) for i in range(len(split.leaves))]
        outcome = _mapped(split, function, axes_of_leaves, other_axes, out_axes, options)
        return finished(split, outcome)

    return named(call, function)


def _mapped(
    split: Any, function: Any, leaf_axes: Any, other_axes: Any, out_axes: Any, options: Any
) -> Outcome:
    def pure(leaves: Any, others: Any, trial: bool = False) -> Any:
        outcome = _pure(split, function, trial=trial)(leaves, others)
        plans.append(outcome.plan)
        return outcome.arrays

    plans: list[Any] = []
    in_axes = (leaf_axes, other_axes)
    # What is changed is known from a first trace; the axes of results must be known before.
    trial = jax.vmap(functools.partial(pure, trial=True), in_axes, 0, **options)
    jax.eval_shape(trial, split.leaves, split.others)
    plan = plans[-1]
    places = split.structure.places
    axis_of: dict[int, Any] = {}
    path_of: dict[int, str] = {}
    for place, index in zip(plan.places, plan.indices, strict=True):
        leaf = places[place][2]
        axis_of.setdefault(index, leaf_axes[leaf] if leaf >= 0 else None)
        path_of.setdefault(index, places[place][1])
    changed = [axis_of[i] for i in range(len(axis_of))]
    try:
        others_out = [out_axes] if plan.structure is None else out_axes
        arrays = jax.vmap(pure, in_axes, (others_out, out_axes, changed), **options)(
            split.leaves, split.others
        )
    except ValueError as error:
        alone = [path_of[i] for i, axis in enumerate(changed) if axis is None]
        if alone and "out_axes" in str(error):
            raise ValueError(
                f"vmap: {', '.join(alone)}: changed inside the function to a value for each "
                f"sample, while the module is the same for all (in_axes None); give the module an "
                f"axis, call eval() on it, or take the mean over axis_name"
            ) from error
        raise
    return Outcome(arrays, plans[-1])


# -- scan ------------------------------------------------------------------------------------------


def scan(
    function: Callable[..., Any],
    init: Any,
    xs: Any = None,
    length: int | None = None,
    **options: Any,
) -> tuple[Any, Any]:
    """``jax.lax.scan`` with modules in the carry, in the inputs, or in both.

    The parameters and buffers of modules in the carry go from step to step, and those of modules in
    the inputs have a dimension in front over which the scan goes, as the layers of a stack. What is
    changed is put back into the very modules.

    Args:
        function: Called with (carry, x); returns (carry, y) with the same modules in the carry.
        init: The first carry.
        xs: The inputs.
        length: The number of steps, without inputs.
        options: For ``jax.lax.scan``: ``reverse``, ``unroll``.
    """
    split = split_call((init, xs), {})
    carried = _C._split_modules(init, None, True)
    own = {id(leaf) for leaf in carried.leaves}
    leaves, others = split.leaves, split.others
    in_carry = [i for i, leaf in enumerate(leaves) if id(leaf) in own]
    in_xs = [i for i, leaf in enumerate(leaves) if id(leaf) not in own]
    count = len(carried.others)
    places = split.structure.places
    plan: list[Any] = []

    def step(carry: Any, x: Any) -> Any:
        given: list[Any] = [None] * len(leaves)
        for indices, values in ((in_carry, carry[0]), (in_xs, x[0])):
            for i, value in zip(indices, values, strict=True):
                given[i] = value
        result, change = run(split, function, given, [*carry[1], *x[1]], once=True)
        if not (isinstance(result, tuple) and len(result) == 2):
            raise TypeError(
                f"scan: the function must return (carry, y), got {type(result).__name__}"
            )
        after = _C._split_modules(result[0], None, True)
        if [id(m) for m in after.modules] != [id(m) for m in carried.modules] or len(
            after.others
        ) != count:
            raise TypeError(
                "scan: the carry that the function returns must have the modules of the one that "
                "it was given, at the same places"
            )
        stacked: dict[int, int] = {}
        for place, index in zip(change.places, change.indices, strict=True):
            _, path, leaf, _ = places[place]
            if leaf < 0 or change.values[index] is None:
                raise RuntimeError(f"scan: {path}: None and an array cannot take turns in a scan")
            if leaf in in_carry:
                given[leaf] = change.values[index]
            else:
                stacked[place] = index
        plan[:] = [tuple(stacked)]
        more = [change.values[index] for index in stacked.values()]
        y = outcome_of(split, result[1], change._replace(places=(), indices=(), values=[]))
        return ([given[i] for i in in_carry], after.others), (y, more)

    start = ([leaves[i] for i in in_carry], others[:count])
    inputs = ([leaves[i] for i in in_xs], others[count:])
    (last, other_last), (y, more) = jax.lax.scan(step, start, inputs, length, **options)
    (stacked,) = plan
    value_of = dict(zip(in_carry, last, strict=True))
    written = [i for i, (_, _, leaf, _) in enumerate(places) if leaf in value_of]
    values = [value_of[places[i][2]] for i in written] + list(more)
    all_places = (*written, *stacked)
    change = Outcome(
        ([None], [], values),
        y.plan._replace(places=all_places, indices=tuple(range(len(values))), structure=None),
    )
    finished(split, change)
    return carried.structure.rebuild(carried.modules, other_last), finished(split, y, writes=False)
