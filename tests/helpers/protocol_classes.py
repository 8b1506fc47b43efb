# SPDX-License-Identifier: BSD-3-Clause
"""Classes of modules that each take part in one protocol of Python, and what comes of copies,
pickles and walks of their objects.

``outcomes`` says it for one module system, in numbers and texts, so that two of them can be
compared with ``==``. As a program this prints those of torch, for the class that it has.
"""

from __future__ import annotations

import contextlib
import copy
import copyreg
import json
import pickle
import sys
from collections import UserDict
from collections.abc import Callable, Iterator
from typing import Any

#: What methods of the classes note.
LOG: list[Any] = []


class Other:
    """No module."""


def noted(name: str, value: Any) -> Any:
    LOG.append(name)
    return value


def base(nn: Any, lib: Any) -> Any:
    class Net(nn.Module):
        on = False  # is the operation at work?

        def __init__(self, tag=None):
            super().__init__()
            self.tag = tag
            self.weight = nn.Parameter(lib.ones(2))
            self.register_buffer("count", lib.zeros(1))

    return Net


# -- classes with one member of their own ----------------------------------------------------------


def _new(made: Callable[[Any, Any], Any]) -> Callable[[Any, Any], dict[str, Any]]:
    """A ``__new__`` that gives ``made(Net, cls)`` while the operation is at work."""

    def members(nn: Any, Net: Any) -> dict[str, Any]:
        def new(cls, *args, **kwargs):
            LOG.append(("new", args, kwargs))
            return made(Net, cls) if cls.on else nn.Module.__new__(cls)

        return {"__new__": new}

    return members


def _with(**members: Any) -> Callable[[Any, Any], dict[str, Any]]:
    return lambda nn, Net: dict(members)


def _singleton(nn: Any, Net: Any) -> dict[str, Any]:
    def new(cls, *args):
        if "one" not in vars(cls):
            cls.one = nn.Module.__new__(cls)
        return cls.one

    return {"__new__": new}


def _new_with_arguments(**also: Any) -> Callable[[Any, Any], dict[str, Any]]:
    def members(nn: Any, Net: Any) -> dict[str, Any]:
        def new(cls, *args, **kwargs):
            LOG.append(("new", args, kwargs))
            return nn.Module.__new__(cls)

        return {"__new__": new, **also}

    return members


def _preset(Net: Any, cls: Any) -> Any:
    made = super(Net, cls).__new__(cls)
    made.__dict__["preset"] = 5
    return made


def _raise(Net: Any, cls: Any) -> Any:
    raise KeyError("no")


def _attribute_hook(hook: str, names: dict[str, Any]) -> Callable[[Any, Any], dict[str, Any]]:
    def members(nn: Any, Net: Any) -> dict[str, Any]:
        def read(self, name):
            if name in names:
                LOG.append(name)
                if names[name] is not None:
                    return names[name]
            return getattr(Net, hook)(self, name)

        return {hook: read}

    return members


def _setattr(nn: Any, Net: Any) -> dict[str, Any]:
    return {"__setattr__": lambda self, k, v: (LOG.append(k), Net.__setattr__(self, k, v))[1]}


def shown_dict(nn: Any, module: Any) -> Any:
    """``__dict__`` whatever the class has under that name."""
    home = next(c for c in nn.Module.__mro__ if "__dict__" in vars(c))
    return vars(home)["__dict__"].__get__(module)


def _part(nn: Any, module: Any) -> Any:
    shown = shown_dict(nn, module)
    return {k: v for k, v in shown.items() if k != "tag"} if type(module).on else shown


def _stored(name: str) -> Callable[[Any, Any], dict[str, Any]]:
    """A property with a setter under the name of an internal attribute."""

    def write(self, value):
        LOG.append(name)
        self.__dict__["_own"] = value

    return _with(**{name: property(lambda self: self.__dict__["_own"], write)})


MEMBERS: dict[str, Callable[[Any, Any], dict[str, Any]]] = {
    "nothing": _with(),
    "new: 42": _new(lambda Net, cls: 42),
    "new: None": _new(lambda Net, cls: None),
    "new: no module": _new(lambda Net, cls: Other()),
    "new: a module of another class": _new(lambda Net, cls: Net("other")),
    "new: presets": _new(_preset),
    "new: raises": _new(_raise),
    "new: singleton": _singleton,
    "new: wants an argument": lambda nn, Net: {"__new__": lambda cls, tag: nn.Module.__new__(cls)},
    "new: notes": _new_with_arguments(),
    "getnewargs": _new_with_arguments(__getnewargs__=lambda self: ("x",)),
    "getnewargs_ex": _new_with_arguments(__getnewargs_ex__=lambda self: (("x",), {"k": 1})),
    "getnewargs: no tuple": _with(__getnewargs__=lambda self: 3),
    "getstate: None": _with(__getstate__=lambda self: None),
    "getstate: empty": _with(__getstate__=lambda self: {}),
    "getstate: with slots": _with(__getstate__=lambda self: (self.__dict__.copy(), {"slot": 4})),
    "getstate: raises": _with(__getstate__=lambda self: 1 / 0),
    "setstate": _with(__setstate__=lambda self, state: self.__dict__.update(state, extra=1)),
    "setstate: None": _with(__setstate__=None),
    "setstate: static": _with(__setstate__=staticmethod(lambda state: LOG.append(len(state)))),
    "reduce: a name": _with(__reduce__=lambda self: "KEPT"),
    "reduce: a call": _with(__reduce__=lambda self: (type(self), ("again",))),
    "reduce: with a state": _with(__reduce__=lambda self: (type(self), ("again",), {"extra": 1})),
    "reduce: nonsense": _with(__reduce__=lambda self: 3),
    "reduce_ex": _with(__reduce_ex__=lambda self, p: noted(p, (type(self), ("again",)))),
    "reduce_ex: super": lambda nn, Net: {
        "__reduce_ex__": lambda self, p: noted(p, Net.__reduce_ex__(self, p))
    },
    "reduce_ex: None": _with(__reduce_ex__=None, __reduce__=lambda self: (type(self), ("r",))),
    "reduce_ex: property": _with(
        __reduce_ex__=property(lambda self: lambda protocol: (type(self), ("p",)))
    ),
    "copy": _with(__copy__=lambda self: "copied"),
    "copy: None": _with(__copy__=None),
    "deepcopy": _with(__deepcopy__=lambda self, memo: "copied"),
    "deepcopy: self": _with(__deepcopy__=lambda self, memo: self),
    "deepcopy: None": _with(__deepcopy__=None),
    "deepcopy: of the class": _with(__deepcopy__=classmethod(lambda cls, memo: cls.__name__)),
    "deepcopy: nonsense": _with(__deepcopy__=3),
    "getattr: gives a deepcopy": _attribute_hook(
        "__getattr__", {"__deepcopy__": lambda memo: "by getattr"}
    ),
    "getattr: sees": _attribute_hook(
        "__getattr__", {"__deepcopy__": None, "__getnewargs_ex__": None, "__getnewargs__": None}
    ),
    "getattribute": _attribute_hook(
        "__getattribute__", {"__deepcopy__": None, "__reduce_ex__": lambda protocol: (list, ())}
    ),
    "setattr": _setattr,
    "dict": lambda nn, Net: {"__dict__": property(lambda self: shown_dict(nn, self))},
    "dict: a part": lambda nn, Net: {"__dict__": property(lambda self: _part(nn, self))},
    "class": _with(__class__=property(lambda self: Other)),
    "training": _stored("training"),
    "_forward_hooks": _stored("_forward_hooks"),
    "a slot": _with(__slots__=("slot",)),
    "a slot for training": _with(__slots__=("training",)),
    "hash: None": _with(__hash__=None),
    "hash: raises": _with(__hash__=lambda self: 1 / 0),
    "eq": _with(__eq__=lambda self, other: True, __hash__=lambda self: 1),
    "bool": _with(__bool__=lambda self: 1 / 0),
    "len": _with(__len__=lambda self: 1 / 0),
    "iter": _with(__iter__=lambda self: iter("ab")),
}


# -- and their metaclasses -------------------------------------------------------------------------


def _read_new(cls: Any, name: str) -> Any:
    if name == "__new__" and type.__getattribute__(cls, "on"):
        return lambda cls: 42
    return type.__getattribute__(cls, name)


METACLASSES: dict[str, dict[str, Any]] = {
    "metaclass": {},
    "metaclass: call": {"__call__": lambda cls, *args: noted("call", type.__call__(cls, *args))},
    "metaclass: hash": {"__hash__": lambda cls: 7, "__eq__": lambda a, b: a is b},
    "metaclass: no hash": {"__eq__": lambda a, b: a is b},
    "metaclass: getattribute": {"__getattribute__": _read_new},
    "metaclass: instancecheck": {"__instancecheck__": lambda cls, value: False},
    "metaclass: deepcopy": {"__deepcopy__": lambda cls, memo: "a class"},
}

#: What is entered for the class in one of the tables of copyreg and copy.
TABLES: dict[str, tuple[dict[Any, Any], Any]] = {
    "copyreg: a call": (copyreg.dispatch_table, lambda m: (type(m), ("registered",))),
    "copyreg: a name": (copyreg.dispatch_table, lambda m: "KEPT"),
    "copyreg: None": (copyreg.dispatch_table, None),
    "copyreg: raises": (copyreg.dispatch_table, lambda m: 1 / 0),
    "copyreg: nonsense": (copyreg.dispatch_table, 3),
    "copy's own table": (copy._deepcopy_dispatch, lambda m, memo: "dispatched"),
}

#: What the object has of its own.
INSTANCES: dict[str, tuple[str, Any]] = {
    "instance: deepcopy": ("__deepcopy__", lambda memo: "instance"),
    "instance: copy": ("__copy__", lambda: "instance"),
    "instance: reduce_ex": ("__reduce_ex__", lambda protocol: (list, ())),
    "instance: reduce": ("__reduce__", lambda: (list, ())),
    "instance: getstate": ("__getstate__", lambda: {"x": 1}),
    "instance: setstate": ("__setstate__", lambda state: LOG.append("set")),
    "instance: getnewargs": ("__getnewargs__", lambda: (1, 2)),
    "instance: getnewargs_ex": ("__getnewargs_ex__", lambda: ((), {"a": 1})),
}

NAMES = [*MEMBERS, *METACLASSES, *TABLES, *INSTANCES]


def _class(name: str, nn: Any, lib: Any) -> Any:
    Net = base(nn, lib)
    metaclass = type("Meta", (type,), METACLASSES[name]) if name in METACLASSES else type
    cls = metaclass("Own", (Net,), MEMBERS[name](nn, Net) if name in MEMBERS else {})
    cls.__module__, cls.__qualname__ = __name__, "Own"  # where pickle finds it
    globals()["Own"] = cls
    return cls


@contextlib.contextmanager
def _entered(name: str, cls: Any) -> Iterator[None]:
    table, function = TABLES.get(name, ({}, None))
    if name in TABLES:
        table[cls] = function
    try:
        yield
    finally:
        table.pop(cls, None)


# -- what is done with them ------------------------------------------------------------------------


def _pickled(protocol: int) -> Callable[[Any], Any]:
    return lambda m: pickle.loads(pickle.dumps(m, protocol))


OPERATIONS: dict[str, Callable[[Any], Any]] = {
    "deepcopy": copy.deepcopy,
    "deepcopy with another memo": lambda m: copy.deepcopy(m, UserDict()),
    "copy": copy.copy,
    "pickle 2": _pickled(2),
    "pickle 5": _pickled(5),
    "replica": lambda m: m._replicate_for_data_parallel(),
    "modules": lambda m: len(list(m.modules())),
    "parameters": lambda m: len(list(m.parameters())),
    "zero_grad": lambda m: m.zero_grad(),
    "requires_grad_": lambda m: m.requires_grad_(False),
    "train": lambda m: m.train(False),
    "state_dict": lambda m: list(m.state_dict()),
    "double": lambda m: m.double(),
}


def _place(nn: Any, module: Any, where: str) -> Any:
    if where == "root":
        return module
    root = nn.Module()
    if where == "child":
        root.child = module
    else:
        root.__dict__["plain"] = [module]
    return root


def describe(nn: Any, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [describe(nn, each) for each in value]
    if not issubclass(type(value), nn.Module):
        return value if isinstance(value, str | int) else type(value).__name__
    shown = dict(shown_dict(nn, value))

    def tensors(name: str) -> Any:
        entries = shown.pop(name, None) or {}
        return {
            k: v if v is None else [type(v).__name__, v.detach().tolist(), v.requires_grad]
            for k, v in entries.items()
        }

    return [
        type(value).__name__,
        tensors("_parameters"),
        tensors("_buffers"),
        {k: describe(nn, v) for k, v in (shown.pop("_modules", None) or {}).items()},
        {k: describe(nn, v) for k, v in sorted(shown.items()) if not callable(v)},
    ]


def outcome(nn: Any, lib: Any, name: str, where: str, operation: str) -> Any:
    """What the operation gives and leaves, or what it raises; and what was noted meanwhile."""
    cls = _class(name, nn, lib)
    module = cls("first")
    globals()["KEPT"] = module
    if name in INSTANCES:
        attribute, value = INSTANCES[name]
        shown_dict(nn, module)[attribute] = value
    root = _place(nn, module, where)
    cls.on = True
    LOG.clear()
    try:
        with _entered(name, cls):
            result = OPERATIONS[operation](root)
        found = [describe(nn, result), result is root, describe(nn, root)]
    except Exception as error:
        found = [type(error).__name__]
    return [*found, list(map(str, LOG))]


def outcomes(nn: Any, lib: Any, name: str) -> dict[str, Any]:
    return {
        f"{operation} of a {where}": outcome(nn, lib, name, where, operation)
        for where in ("root", "child", "part of a list")
        for operation in OPERATIONS
    }


if __name__ == "__main__":
    import torch

    json.dump({name: outcomes(torch.nn, torch, name) for name in NAMES}, sys.stdout)
