# SPDX-License-Identifier: BSD-3-Clause
"""Objects that run Python where native code may not expect it: each calls ``fire(place)``, and the
round decides whether something happens there.

There is one state for the process: rounds run one after the other, and classes at module level can
be pickled.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import modtree

DEEP = 150
ALARM = getattr(signal, "ITIMER_REAL", None)


class Stop(Exception):
    """What a trigger raises to see errors go through native code."""


class State:
    """What the running round may do when Python runs."""

    def __init__(self) -> None:
        self.number = 0
        self.armed = False
        self.left = 0  # how often something may still happen
        self.skip = 0  # how many chances pass before
        self.depth = 0
        self.meddle: Callable[[str], None] = lambda place: None
        self.group = "tree"  # what the running operation works on
        self.log: list[str] = []
        self.echo: int | None = None  # a file descriptor: what is written there outlives a crash

    def begin(self, number: int) -> None:
        self.number = number
        self.log.clear()
        if self.echo is not None:
            os.ftruncate(self.echo, 0)
            os.lseek(self.echo, 0, os.SEEK_SET)
            os.write(self.echo, b"%d\n" % number)

    def note(self, text: str) -> None:
        self.log.append(text)
        if self.echo is not None:
            os.write(self.echo, text.encode() + b"\n")


state = State()


def too_deep() -> bool:
    """CPython 3.11 ends the process when much runs while it makes a RecursionError, so a tree that
    contains itself is left in peace.
    """
    try:
        sys._getframe(DEEP)
    except ValueError:
        return False
    return True


def fire(place: str) -> None:
    if not state.armed or state.left <= 0 or state.depth >= 2:
        return
    if state.skip:
        state.skip -= 1
        return
    if too_deep():
        return
    state.left -= 1
    state.depth += 1
    try:
        state.meddle(place)
    finally:
        state.depth -= 1


# -- keys ------------------------------------------------------------------------------------------


class Key:
    """Has the hash of ``text``; ``answer`` says what a comparison gives."""

    def __init__(self, text: Any, answer: Any = False) -> None:
        self.text, self.answer, self.hash = text, answer, hash(text)

    def __hash__(self) -> int:
        fire("key hash")
        return self.hash

    def __eq__(self, other: object) -> Any:
        fire("key eq")
        return self.answer if isinstance(self.answer, bool) else self.text == other

    def __repr__(self) -> str:
        return f"Key({self.text!r})"


class Text(str):
    """A str with methods of its own: native lookups have to take the slow path."""

    def __hash__(self) -> int:
        fire("text hash")
        return str.__hash__(self)

    def __eq__(self, other: object) -> Any:
        fire("text eq")
        return str.__eq__(self, other)

    def __ne__(self, other: object) -> Any:
        fire("text ne")
        return str.__ne__(self, other)

    def startswith(self, *args: Any) -> Any:
        fire("text startswith")
        return str.startswith(self, *args)

    def __add__(self, other: Any) -> Any:
        fire("text add")
        return str.__add__(self, other)

    def __str__(self) -> str:
        fire("text str")
        return str.__str__(self)


# -- values ----------------------------------------------------------------------------------------


class Dying:
    """Fires when it dies, when it is copied, compared or asked for its truth."""

    def __del__(self) -> None:
        fire("del")

    def __deepcopy__(self, memo: Any) -> Dying:
        fire("deepcopy")
        return Dying()

    def __reduce_ex__(self, protocol: Any) -> Any:
        fire("reduce")
        return (Dying, ())

    def __eq__(self, other: object) -> bool:
        fire("value eq")
        return self is other

    __hash__ = object.__hash__

    def __repr__(self) -> str:
        fire("value repr")
        return "Dying()"

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        fire("value call")


class DyingParameter(modtree.nn.Parameter):
    def __del__(self) -> None:
        fire("parameter del")


class DyingTensor(modtree.Tensor):
    def __del__(self) -> None:
        fire("tensor del")

    def __eq__(self, other: object) -> Any:
        fire("tensor eq")
        return super().__eq__(other)

    def __hash__(self) -> int:
        fire("tensor hash")
        return super().__hash__()

    def __deepcopy__(self, memo: Any) -> Any:
        fire("tensor deepcopy")
        return super().__deepcopy__(memo)

    def clone(self, *args: Any, **kwargs: Any) -> Any:
        fire("tensor clone")
        return super().clone(*args, **kwargs)

    def detach(self) -> Any:
        fire("tensor detach")
        return super().detach()

    def __getattribute__(self, name: str) -> Any:
        fire("tensor getattribute")
        return super().__getattribute__(name)


class FunctionTensor(modtree.Tensor):
    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        fire("torch function")
        if hasattr(super(), "__torch_function__"):
            return super().__torch_function__(func, types, args, kwargs or {})
        return func(*args, **(kwargs or {}))


class FireArray(np.ndarray):
    def __array_finalize__(self, other: Any) -> None:
        fire("array finalize")

    def __del__(self) -> None:
        fire("array del")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        fire("array ufunc")
        inputs = tuple(np.asarray(x) if isinstance(x, FireArray) else x for x in inputs)
        return getattr(ufunc, method)(*inputs, **kwargs)


class ArrayLike:
    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        fire("array")
        return np.asarray(self.value, dtype)

    def __len__(self) -> int:
        fire("array len")
        return 2

    def __getitem__(self, index: Any) -> Any:
        fire("array getitem")
        return [1.0, 2.0][index]


class Number:
    """A number by its special methods only."""

    def __init__(self, value: int = 1) -> None:
        self.value = value

    def __index__(self) -> int:
        fire("index")
        return self.value

    def __int__(self) -> int:
        fire("int")
        return self.value

    def __float__(self) -> float:
        fire("float")
        return float(self.value)

    def __bool__(self) -> bool:
        fire("bool")
        return bool(self.value)

    def __len__(self) -> int:
        fire("len")
        return abs(self.value)

    def __eq__(self, other: object) -> Any:
        fire("number eq")
        return self.value == other

    def __hash__(self) -> int:
        fire("number hash")
        return hash(self.value)

    def __lt__(self, other: Any) -> Any:
        fire("number lt")
        return self.value < other


class FireInt(int):
    def __index__(self) -> int:
        fire("int index")
        return int.__index__(self)

    def __eq__(self, other: object) -> Any:
        fire("int eq")
        return int.__eq__(self, other)

    def __hash__(self) -> int:
        fire("int hash")
        return int.__hash__(self)

    def __bool__(self) -> bool:
        fire("int bool")
        return int.__bool__(self)


class FireFloat(float):
    def __float__(self) -> float:
        fire("float float")
        return float.__float__(self)

    def __bool__(self) -> bool:
        fire("float bool")
        return float.__bool__(self)


# -- collections -----------------------------------------------------------------------------------


def firing(base: type, *names: str) -> dict[str, Any]:
    """Methods of ``base`` by ``names``, each of which fires before and after."""

    def wrap(name: str) -> Callable[..., Any]:
        original = getattr(base, name)

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:
            fire(f"{base.__name__}.{name}")
            result = original(self, *args, **kwargs)
            fire(f"{base.__name__}.{name} after")
            return result

        return method

    return {name: wrap(name) for name in names if hasattr(base, name)}


MAPPING = (
    "__getitem__",
    "__setitem__",
    "__delitem__",
    "__contains__",
    "__iter__",
    "__len__",
    "keys",
    "values",
    "items",
    "get",
    "pop",
    "update",
    "copy",
    "setdefault",
    "clear",
    "__bool__",
)
SEQUENCE = ("__iter__", "__len__", "__getitem__", "__contains__", "append", "extend")


class FireDict(dict):
    locals().update(firing(dict, *MAPPING))


class FireOrderedDict(OrderedDict):
    locals().update(firing(OrderedDict, *MAPPING))


class FireList(list):
    locals().update(firing(list, *SEQUENCE))


class FireTuple(tuple):
    locals().update(firing(tuple, *SEQUENCE))


class FireSet(set):
    locals().update(firing(set, "__contains__", "__iter__", "__len__", "add", "discard", "update"))


def forwarding(name: str) -> Callable[..., Any]:
    def method(self: Any, *args: Any) -> Any:
        fire(f"mapping {name}")
        return getattr(self.entries, name)(*args)

    return method


class OwnMapping:
    """A mapping that is no dict at all."""

    def __init__(self, entries: Any = ()) -> None:
        self.entries = dict(entries)

    for _name in (*MAPPING[:-1], "__eq__", "__reversed__", "popitem"):
        locals()[_name] = forwarding(_name)
    __hash__ = object.__hash__


def steps(items: Any) -> Iterator[Any]:
    """A generator over ``items``."""
    for item in items:
        fire("generator")
        yield item


# -- classes ---------------------------------------------------------------------------------------


class Meta(type):
    def __getattribute__(cls, name: str) -> Any:
        fire("class getattribute")
        return type.__getattribute__(cls, name)

    def __instancecheck__(cls, instance: Any) -> bool:
        fire("instancecheck")
        return type.__instancecheck__(cls, instance)

    def __subclasscheck__(cls, other: Any) -> bool:
        fire("subclasscheck")
        return type.__subclasscheck__(cls, other)

    def mro(cls) -> Any:
        fire("mro")
        return type.mro(cls)

    def __hash__(cls) -> int:
        fire("class hash")
        return type.__hash__(cls)

    def __eq__(cls, other: object) -> Any:
        fire("class eq")
        return type.__eq__(cls, other)


class Descriptor:
    """A data descriptor that remembers nothing, or what it was given."""

    def __init__(self, value: Any = None) -> None:
        self.value = value

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        fire("descriptor get")
        if self.value is None:
            raise AttributeError("nothing here")
        return self.value

    def __set__(self, instance: Any, value: Any) -> None:
        fire("descriptor set")
        self.value = value

    def __delete__(self, instance: Any) -> None:
        fire("descriptor delete")
        self.value = None

    def __del__(self) -> None:
        fire("descriptor del")


class Getter:
    """A descriptor without ``__set__``."""

    def __get__(self, instance: Any, owner: Any = None) -> Any:
        fire("getter")
        raise AttributeError("nothing here")

    def __del__(self) -> None:
        fire("getter del")


# -- what runs at any moment -----------------------------------------------------------------------


def _collected(phase: str, info: Any) -> None:
    fire(f"gc {phase}")


#: Seconds from the end of a handler to the next signal, and how many signals a round gets.
ALARM_AFTER, ALARMS = 2e-5, 3000


def _alarm(number: int, frame: Any) -> None:
    global _alarms_left
    if _alarms_left <= 0:
        return  # it was on its way when its round ended
    fire("signal")
    # Set again by hand: on a slow machine a repeating timer would leave no time between two
    # handlers.
    _alarms_left -= 1
    if _alarms_left > 0 and state.left > 0:
        signal.setitimer(ALARM, ALARM_AFTER)


_alarms_left = 0


# The tool's own choices are left alone: a pool that is emptied while one of its members is chosen
# proves nothing.
OWN = ("random.py", "world.py", "meddling.py", "playing.py")


def _profile(frame: Any, event: str, argument: Any) -> None:
    if not frame.f_code.co_filename.endswith(OWN):
        fire(f"profile {event}")


class Ambient:
    """Collections at every allocation, a timer, a profile function: switched on for a round."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def __enter__(self) -> None:
        global _alarms_left
        if self.kind == "gc":
            gc.callbacks.append(_collected)
            gc.set_threshold(1, 1, 1)
        elif self.kind == "signal" and ALARM is not None:
            _alarms_left = ALARMS
            signal.signal(signal.SIGALRM, _alarm)
            signal.setitimer(ALARM, ALARM_AFTER)
        elif self.kind == "profile":
            sys.setprofile(_profile)

    def __exit__(self, *error: Any) -> None:
        global _alarms_left
        if self.kind == "gc":
            gc.set_threshold(700, 10, 10)
            gc.callbacks.remove(_collected)
        elif self.kind == "signal" and ALARM is not None:
            # The handler stays: CPython reports a signal that comes while it is taken away.
            _alarms_left = 0
            signal.setitimer(ALARM, 0)
        elif self.kind == "profile":
            sys.setprofile(None)


def watch(value: Any) -> Any:
    """A weak reference that fires when the value dies."""
    return weakref.ref(value, lambda ref: fire("weakref"))
