# SPDX-License-Identifier: BSD-3-Clause
"""Finds what a traced function changes beside its arguments: containers in plain attributes, and
modules that it reaches in another way.
"""

from __future__ import annotations

import functools
import importlib
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterator
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import jax

from modtree import _C

_Tracer = jax.core.Tracer

#: Held while modules hold tracers, and while leaves are taken from modules or put back: another
#: thread waits, so that it never meets a tracer of this one.
lock = threading.RLock()

_ATOMS = (bool, int, float, complex, str, bytes, type(None))
_CONTAINERS = (list, dict, set)

# Places in what snapshot() gives for a module.
_PARAMETERS, _BUFFERS, _ATTRIBUTES = 1, 2, 17

_SLOTS = (
    "training", "_parameters", "_buffers", "_non_persistent_buffers_set", "_backward_pre_hooks",
    "_backward_hooks", "_is_full_backward_hook", "_forward_hooks", "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called", "_forward_pre_hooks", "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks", "_state_dict_pre_hooks", "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks", "_modules",
)  # fmt: skip

_INTERNAL = frozenset(_SLOTS)

_core = importlib.import_module("jax._src.core")


def plain_attributes(entries: Any) -> dict[str, Any]:
    """The plain attributes in what snapshot() gives for a module."""
    return {n: v for n, v in _contents(entries[_ATTRIBUTES]).items() if n not in _INTERNAL}


def _contents(entry: Any) -> Any:
    return {} if entry is None or entry[1] is None else entry[1]


def is_same(one: Any, other: Any) -> bool:
    """The same object, or an equal number or string, also in tuples."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if type(one) is tuple:
        return len(one) == len(other) and all(map(is_same, one, other))
    if type(one) in (float, complex):
        return repr(one) == repr(other)
    return type(one) in _ATOMS and one == other


def tracers_in(value: Any, seen: set[int]) -> Iterator[Any]:
    """Tracers in a plain attribute, also in containers and in modules that are not registered.

    Args:
        value: The attribute.
        seen: The ids of objects that are not looked at; more are added.
    """
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if id(value) in seen:
            continue
        if isinstance(value, _Tracer):
            yield value
        elif isinstance(value, (*_CONTAINERS, tuple, frozenset)):
            seen.add(id(value))
            waiting += _items(value)
        elif isinstance(value, _C.ModuleBase):
            seen.add(id(value))
            waiting += [*value.parameters(), *value.buffers()]


def _items(container: Any) -> list[Any]:
    """What is in a container, in its order, whatever its class makes of that."""
    if isinstance(container, OrderedDict):
        return [x for item in OrderedDict.items(container) for x in item]
    if isinstance(container, dict):
        return [x for item in dict.items(container) for x in item]
    return [*(tuple.__iter__(container) if isinstance(container, tuple) else _plain(container))]


def _plain(container: Any) -> Any:
    if isinstance(container, list):
        return list.__iter__(container)
    kind = set if isinstance(container, set) else frozenset
    return kind.__iter__(container)


def _refill(container: Any, items: list[Any]) -> None:
    if isinstance(container, list):
        list.__setitem__(container, slice(None), items)
    elif isinstance(container, set):
        set.clear(container)
        set.update(container, items)
    else:
        kind = OrderedDict if isinstance(container, OrderedDict) else dict
        kind.clear(container)
        for key, value in zip(items[::2], items[1::2], strict=True):
            kind.__setitem__(container, key, value)


def use_all(modules: list[Any]) -> None:
    """Tells the function that watches this thread, if there is one, that modules are used."""
    watcher = _C._watch_uses(None)
    if watcher is not None:
        _C._watch_uses(watcher)
        for module in modules:
            watcher(module, False)


class _Held(NamedTuple):
    """A container, and what was in it."""

    container: Any
    items: list[Any]
    split: Any
    module: int
    name: str

    def is_changed(self) -> bool:
        now = _items(self.container)
        if isinstance(self.container, set):
            return {id(x) for x in now} != {id(x) for x in self.items}
        return len(now) != len(self.items) or not all(map(is_same, now, self.items))


class _Used(NamedTuple):
    """A module that is not among the arguments, and what it held."""

    root: Any
    split: Any
    snapshot: Any


class Beside:
    """What plain attributes of modules lead to, and modules that a function uses without having
    them as arguments. All have their contents back where the function fails.
    """

    def __init__(self, split: Any, snapshot: Any, function: Callable[..., Any]) -> None:
        modules = split.modules
        use_all(modules)
        self._function = function
        self._known = set(map(id, modules))
        self._met: set[int] = set()
        self._containers: list[_Held] = []
        self._used: list[_Used] = []
        self._outer: Callable[[Any, bool], None] | None = None
        self._add_containers(split, snapshot)

    def __enter__(self) -> Beside:
        self._outer = _C._watch_uses(self._note)
        return self

    def __exit__(self, *_: Any) -> None:
        _C._watch_uses(self._outer)

    def _note(self, module: Any, is_new: bool) -> None:
        if self._outer is not None:
            self._outer(module, is_new)
        if id(module) in self._known:
            return
        self._known.add(id(module))
        if is_new:
            return
        try:
            split = _C._split_modules(module, None, True)
        except Exception:
            return  # it is being made, or has registries that cannot be read
        snapshot = split.snapshot()
        self._used.append(_Used(module, split, snapshot))
        self._known.update(map(id, split.modules))
        self._add_containers(split, snapshot)

    def _add_containers(self, split: Any, snapshot: Any) -> None:
        for module, entries in enumerate(snapshot):
            for name, value in plain_attributes(entries).items():
                waiting = [value]
                while waiting:
                    value = waiting.pop()
                    if id(value) in self._met or not isinstance(value, (*_CONTAINERS, tuple)):
                        continue
                    self._met.add(id(value))
                    items = _items(value)
                    waiting += items
                    if not isinstance(value, tuple):
                        self._containers.append(_Held(value, items, split, module, name))

    def restore(self) -> None:
        """Puts all back."""
        for held in self._containers:
            if held.is_changed():
                _refill(held.container, held.items)
        for used in self._used:
            used.split.restore(used.snapshot)

    def check(self, where: Callable[[Any, int, str], str], once: bool, traced: bool) -> None:
        """RuntimeError or UnexpectedTracerError where the function has changed what it must not.

        Args:
            where: Gives the path of an attribute of an argument.
            once: The function runs once for many calls: it must not change anything.
            traced: Tracers of the function's own trace are of no use after it.
        """
        outer = set() if once else _outer_traces()
        for used in self._used if once or traced else ():
            for index, (old, new) in enumerate(
                zip(used.snapshot, used.split.snapshot(), strict=True)
            ):
                for name, what, tracer in _differences(old, new, outer):
                    if once or tracer is not None:
                        raise _captured(self._path(used, index, name), what, tracer)
        of_used = {id(used.split): used for used in self._used}
        for held in self._containers:
            if once and held.is_changed():
                used_one = of_used.get(id(held.split))
                if used_one is not None:
                    path = self._path(used_one, held.module, held.name)
                    raise _captured(path, "the attribute was changed in place", None)
                raise RuntimeError(
                    f"{where(held.split, held.module, held.name)}: the attribute was changed in "
                    f"place inside a traced function, which runs once for many calls; make it a "
                    f"buffer, or change it outside"
                )

    def _path(self, used: _Used, module: int, name: str) -> str:
        root = _name_of(self._function, used.root) or type(used.root).__name__
        inner = used.split.structure.modules[module][1]
        return ".".join(filter(None, (root, inner, name)))


def _captured(path: str, what: str, tracer: Any) -> Exception:
    kind = RuntimeError if tracer is None else jax.errors.UnexpectedTracerError
    return kind(
        f"{path}: {what} inside a traced function, which is not given the module: pass the module "
        f"to the function as an argument, so that the change is put back into it"
    )


def _differences(old: Any, new: Any, outer: set[int]) -> Iterator[tuple[str, str, Any]]:
    """What differs between two snapshots of a module: name, text, and a tracer that is stored
    there, or None.
    """
    for slot, name in enumerate(_SLOTS):
        before, after = old[slot], new[slot]
        if slot in (_PARAMETERS, _BUFFERS):
            kind = "parameter" if slot == _PARAMETERS else "buffer"
            was, now = _contents(before), _contents(after)
            for key in [*now, *(key for key in was if key not in now)]:
                if key not in now or key not in was or now[key] is not was[key]:
                    yield key, f"the {kind} was changed", _leaked(now.get(key), outer)
            if list(was) != list(now):
                yield name, f"the order of {kind}s was changed", None
        elif slot == 0:
            if (before and before[0]) is not (after and after[0]):
                yield name, "the mode was changed", None
        elif _listed(before) != _listed(after):
            yield name, f"{name} was changed", None
    was, now = plain_attributes(old), plain_attributes(new)
    for key in [*now, *(key for key in was if key not in now)]:
        if key not in now or key not in was or not is_same(was[key], now[key]):
            yield key, "the attribute was changed", _leaked(now.get(key), outer)
        elif (tracer := _leaked(now[key], outer)) is not None:
            yield key, "a tracer was stored", tracer


def _listed(entry: Any) -> Any:
    contents = _contents(entry)
    if isinstance(contents, dict):
        return [(key, id(value)) for key, value in contents.items()]
    return contents


def _leaked(value: Any, outer: set[int]) -> Any:
    """A tracer in a value that is of no use after the trace, or None."""
    for tracer in tracers_in(value, set()):
        if id(getattr(tracer, "_trace", None)) not in outer:
            return tracer
    return None


def _outer_traces() -> set[int]:
    """The ids of the traces around the innermost one, whose tracers may be kept."""
    found: set[int] = set()
    context = getattr(_core, "trace_ctx", None)
    trace = getattr(getattr(context, "trace", None), "parent_trace", None)
    while trace is not None and id(trace) not in found:
        found.add(id(trace))
        trace = getattr(trace, "parent_trace", None)
    return found


# -- names -----------------------------------------------------------------------------------------


def _name_of(function: Any, module: Any) -> str | None:
    """The name under which a function reaches a module: of a variable, or of what is in one."""
    waiting = list(_variables(function))
    seen: set[int] = set()
    while waiting:
        name, value = waiting.pop(0)
        if value is module:
            return name
        if id(value) in seen or len(seen) > 10_000:
            continue
        seen.add(id(value))
        if isinstance(value, dict):
            waiting += [(f"{name}[{key!r}]", item) for key, item in dict.items(value)]
        elif isinstance(value, (list, tuple)):
            waiting += [(f"{name}[{i}]", item) for i, item in enumerate(value)]
        elif hasattr(value, "__wrapped__"):
            waiting.append((name, value.__wrapped__))
        elif isinstance(value, (FunctionType, MethodType, functools.partial)):
            waiting += _variables(value)
        elif not isinstance(value, (type, type(_core))) and isinstance(
            getattr(value, "__dict__", None), dict
        ):
            waiting += [(f"{name}.{key}", item) for key, item in vars(value).items()]
    return None


def _variables(function: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(function, functools.partial):
        yield from ((f"args[{i}]", value) for i, value in enumerate(function.args))
        yield from function.keywords.items()
        yield from _variables(function.func)
    elif isinstance(function, MethodType):
        yield "self", function.__self__
        yield from _variables(function.__func__)
    elif isinstance(function, FunctionType):
        code = function.__code__
        for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
            try:
                yield name, cell.cell_contents
            except ValueError:
                continue  # not set yet
        defaults = function.__defaults__ or ()
        positional = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
        yield from zip(positional, defaults, strict=True)
        yield from (function.__kwdefaults__ or {}).items()
        names = function.__globals__
        yield from ((name, names[name]) for name in code.co_names if name in names)
