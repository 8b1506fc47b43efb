# SPDX-License-Identifier: BSD-3-Clause
"""Runs functions on modules whose arrays are others for that time, and finds what has changed."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from types import MethodType
from typing import Any, NamedTuple

import jax

from modtree import _C
from modtree.jax._state import mark_tracer, write
from modtree.jax._uses import Beside, is_same, lock, plain_attributes, tracers_in
from modtree.jax_arrays import family as arrays

# Places in what snapshot() gives for a module.
_TRAINING, _PARAMETERS, _BUFFERS, _NON_PERSISTENT, _MODULES = 0, 1, 2, 3, 16
_HOOKS = range(4, 16)


def split_call(args: tuple[Any, ...], kwargs: dict[str, Any], known: Any = None) -> Any:
    """The modules among arguments as a structure and leaves; other arguments are handed on."""
    with lock:
        return _C._split_modules((args, kwargs), known, True, 2)


def unbound(function: Any) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """A function that is called on a module, and the module: its leaves are arguments then."""
    if isinstance(function, _C.ModuleBase):
        return _call_module, (function,)
    if isinstance(function, MethodType) and isinstance(function.__self__, _C.ModuleBase):
        return function.__func__, (function.__self__,)
    return function, ()


def _call_module(module: Any, /, *args: Any, **kwargs: Any) -> Any:
    return module(*args, **kwargs)


def named(wrapper: Any, function: Any) -> Any:
    """The wrapper with the name and docstring of the function, where that has some."""
    return functools.update_wrapper(wrapper, function) if hasattr(function, "__name__") else wrapper


class _Change(NamedTuple):
    """What a function has changed in modules."""

    places: tuple[int, ...]
    indices: tuple[int, ...]
    values: list[Any]
    plain: list[tuple[Any, str, Any]]


_GONE: Any = object()


def run(
    split: Any,
    function: Callable[..., Any],
    leaves: Any,
    others: Any,
    *,
    once: bool,
    every: bool = False,
    traced: bool = True,
    trial: bool = False,
) -> tuple[Any, _Change]:
    """Calls a function on the modules of a split while they hold other leaves; they have their own
    back afterwards, whatever happens.

    Args:
        split: The modules and arguments.
        function: It is given the arguments with the very modules.
        leaves: What the modules hold for that time.
        others: The arguments without modules.
        once: The function runs once for many calls, so that it must not change plain attributes.
        every: Give all leaves as changed ones.
        traced: Whether the function has a trace of its own.
        trial: Another run follows, which counts: nothing stays changed after this one.
    """
    with lock:
        modules = split.modules
        before = split.snapshot()
        tree = {id(module) for module in modules}
        known_tracers = {id(tracer) for tracer in _tracers_of(before, tree)}
        beside = Beside(split, before, function)
        try:
            for value, own in zip(leaves, split.leaves, strict=True):
                mark_tracer(value, own)
            split.put(leaves)
            args, kwargs = split.structure.rebuild(modules, others)
            with beside:
                result = function(*args, **kwargs)
            change = _changes(split, leaves, before, known_tracers | tree, once, every)
            beside.check(_where, once, traced)
        except BaseException:
            beside.restore()
            raise
        finally:
            split.restore(before)
        if trial:
            beside.restore()
            return result, change
        for module, name, value in change.plain:
            if value is _GONE:
                _C.ModuleBase.__delattr__(module, name)
            else:
                _C.ModuleBase.__setattr__(module, name, value)
    return result, change


def _contents(entry: Any) -> dict[str, Any]:
    return {} if entry is None or entry[1] is None else entry[1]


def _where(split: Any, module: int, name: str) -> str:
    structure = split.structure
    root, path, *_ = structure.modules[module]
    full = f"{path}.{name}" if path else name
    if len(structure.roots) == 1:
        return full
    place, *rest = structure.roots[root][1:] or ("",)
    text = f"argument {place}" + "".join(f"[{key!r}]" for key in rest)
    return f"{full} ({text})"


def _changes(
    split: Any, leaves: Any, before: Any, known: set[int], once: bool, every: bool
) -> _Change:
    after = split.snapshot()
    places: list[int] = []
    indices: list[int] = []
    values: list[Any] = []
    plain: list[tuple[Any, str, Any]] = []
    index_of: dict[int, int] = {}
    place = 0
    entries = split.structure.places
    modules = split.modules
    for i, (old, new) in enumerate(zip(before, after, strict=True)):
        for slot, kind in ((_PARAMETERS, "parameter"), (_BUFFERS, "buffer")):
            now = _contents(new[slot])
            _check_names(split, i, _contents(old[slot]), now, kind)
            for value in now.values():
                leaf = entries[place][2]
                given = None if leaf < 0 else leaves[leaf]
                if value is not given or (every and leaf >= 0):
                    index = index_of.setdefault(id(value), len(values))
                    if index == len(values):
                        values.append(value)
                    places.append(place)
                    indices.append(index)
                place += 1
        children, now = _contents(old[_MODULES]), _contents(new[_MODULES])
        _check_names(split, i, children, now, "module")
        for name, child in now.items():
            if child is not children[name]:
                raise RuntimeError(
                    f"{_where(split, i, name)}: another module was put here inside a traced "
                    f"function; exchange modules outside of it"
                )
        _check_flags(split, i, old, new, once, plain, modules[i])
        _check_attributes(split, i, old, new, known, once, plain, modules[i])
    return _Change(tuple(places), tuple(indices), values, plain)


def _check_names(split: Any, module: int, old: Any, new: Any, kind: str) -> None:
    if list(old) == list(new):
        return
    for name in new:
        if name not in old:
            raise RuntimeError(
                f"{_where(split, module, name)}: a traced function cannot add {kind}s to a module; "
                f"register {name!r} before tracing"
            )
    for name in old:
        if name not in new:
            raise RuntimeError(
                f"{_where(split, module, name)}: the {kind} was removed inside a traced function; "
                f"remove it outside"
            )
    raise RuntimeError(
        f"{_where(split, module, next(iter(new)))}: the order of the {kind}s was changed inside a "
        f"traced function"
    )


def _check_flags(
    split: Any, i: int, old: Any, new: Any, once: bool, plain: list[Any], module: Any
) -> None:
    for slot in (_NON_PERSISTENT, *_HOOKS):
        if (old[slot] and old[slot][1]) != (new[slot] and new[slot][1]) and (
            _contents(old[slot]) or _contents(new[slot])
        ):
            raise RuntimeError(
                f"{_where(split, i, 'hooks')}: hooks were changed inside a traced function; "
                f"register and remove them outside"
            )
    if old[_TRAINING][0] is not new[_TRAINING][0]:
        if once:
            raise RuntimeError(
                f"{_where(split, i, 'training')}: the mode was changed from {old[_TRAINING][0]} to "
                f"{new[_TRAINING][0]} inside a traced function, which runs once for many calls; "
                f"call train() or eval() outside"
            )
        plain.append((module, "training", new[_TRAINING][0]))


def _check_attributes(
    split: Any,
    i: int,
    old: Any,
    new: Any,
    known: set[int],
    once: bool,
    plain: list[Any],
    module: Any,
) -> None:
    before, after = plain_attributes(old), plain_attributes(new)
    for name, value in after.items():
        was = before.get(name, _GONE)
        for tracer in tracers_in(value, set(known)):
            raise jax.errors.UnexpectedTracerError(
                f"{_where(split, i, name)}: a tracer was stored here inside a traced function "
                f"({tracer}). It stands for an array that is only known while the function runs: "
                f"make the attribute a buffer (register_buffer), or return the value"
            )
        if not is_same(was, value):
            if once:
                text = "set" if was is _GONE else f"changed from {was!r}"
                raise RuntimeError(
                    f"{_where(split, i, name)}: the attribute was {text} to {value!r} inside a "
                    f"traced function, which runs once for many calls; make it a buffer, or change "
                    f"it outside"
                )
            plain.append((module, name, value))
    for name in before:
        if name not in after:
            if once:
                raise RuntimeError(
                    f"{_where(split, i, name)}: the attribute was deleted inside a traced "
                    f"function, which runs once for many calls; delete it outside"
                )
            plain.append((module, name, _GONE))


def _tracers_of(snapshot: Any, tree: set[int]) -> Iterator[Any]:
    for entries in snapshot:
        for value in plain_attributes(entries).values():
            yield from tracers_in(value, set(tree))


# -- results ---------------------------------------------------------------------------------------


class Outcome:
    """The result of a traced function and what it has changed, as jax hands it through: arrays, and
    a plan of where they belong.
    """

    __slots__ = ("arrays", "plan")

    def __init__(self, arrays: tuple[Any, Any, Any], plan: Any) -> None:
        self.arrays = arrays
        self.plan = plan


class _Plan(NamedTuple):
    """Where the arrays of an :class:`Outcome` belong.

    Args:
        places: The places of the modules that were changed.
        indices: For each of them the index of its value.
        structure: That of the result; None where no module is in it.
        known: For each module of the result the index of the module that it is, or None for a new
            one.
        made: The leaves of the new modules, and whether they are trainable parameters.
    """

    places: tuple[int, ...]
    indices: tuple[int, ...]
    structure: Any
    known: tuple[int | None, ...]
    made: tuple[tuple[int, bool | None], ...]


jax.tree_util.register_pytree_node(
    Outcome,
    lambda outcome: (outcome.arrays, outcome.plan),
    lambda plan, given: Outcome(given, plan),
)


def outcome_of(split: Any, result: Any, change: _Change) -> Outcome:
    """The outcome of a call, to be returned from what jax traces."""
    with lock:
        found = _C._split_modules(result, None, False)
    structure = found.structure
    if not structure.roots:
        plan = _Plan(change.places, change.indices, None, (), ())
        return Outcome(([result], [], change.values), plan)
    index_of = {id(module): i for i, module in enumerate(split.modules)}
    known = tuple(index_of.get(id(module)) for module in found.modules)
    made: dict[int, bool | None] = {}
    leaves = found.leaves
    for module, _, leaf, is_parameter in structure.places:
        if leaf >= 0 and known[module] is None and leaf not in made:
            made[leaf] = arrays.family.requires_grad(leaves[leaf]) if is_parameter else None
    plan = _Plan(change.places, change.indices, structure, known, tuple(made.items()))
    return Outcome((found.others, [leaves[leaf] for leaf in made], change.values), plan)


def finished(split: Any, outcome: Outcome, *, writes: bool = True, fresh: bool = False) -> Any:
    """Puts back what the function has changed, all or none, and gives its result.

    Args:
        split: The modules and arguments.
        outcome: What the traced function has returned.
        writes: Whether changes are put back.
        fresh: The arrays have just been made, and nobody else has them.
    """
    others, made, values = outcome.arrays
    plan = outcome.plan
    if plan.places and writes:
        with lock:
            write(split, plan.places, plan.indices, values, fresh=fresh)
    structure = plan.structure
    if structure is None:
        return others[0]
    leaves: list[Any] = [None] * structure.leaf_count
    for (leaf, trainable), value in zip(plan.made, made, strict=True):
        leaves[leaf] = (
            value if trainable is None else arrays.family.make_parameter(value, trainable)
        )
    own = split.modules
    known = [None if i is None else own[i] for i in plan.known]
    return structure.rebuild(structure.make(leaves, known), others)
