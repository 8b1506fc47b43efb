# SPDX-License-Identifier: BSD-3-Clause
"""Registries and hook tables of classes that override one method of ``dict``, and what comes of
the operations on a module that has one.

``outcomes`` says it for one module system, in texts, so that two of them can be compared with
``==``. As a program this prints those of torch, for the class that it has.
"""

from __future__ import annotations

import copy
import functools
import json
import pickle
import sys
import warnings
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

REGISTRIES = ["_parameters", "_buffers", "_modules"]
HOOKS = [
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
]
TABLES = [*REGISTRIES, *HOOKS]

#: What hooks and methods of the tables note.
LOG: list[Any] = []


class Refused(Exception):
    """What a table raises."""


class Hook:
    _from_public_api = True  # one that torch registers for everybody

    def __init__(self, tag: str):
        self.tag = tag

    def __call__(self, *args: Any, **kwargs: Any) -> None:
        LOG.append((self.tag, len(args), len(kwargs)))

    def __deepcopy__(self, memo: Any) -> Any:
        return self


def _refuse(self: Any, *args: Any) -> Any:
    raise Refused


def _overrides(base: Any, extra: Callable[[], Any]) -> dict[str, tuple[str, Any]]:
    """How a table answers in another way than a dict: the method, and the function for it.
    ``extra`` makes a further value.
    """

    def rest(method: str) -> Any:
        return lambda self: list(getattr(base, method)(self))[1:]

    def renamed(self: Any, key: Any, value: Any) -> None:
        base.__setitem__(self, f"renamed_{key}", value)

    rows = {
        "items() leaves one out": ("items", rest("items")),
        "items() adds one": (
            "items",
            lambda self: [*base.items(self), ("ghost", extra())],
        ),
        "values() leaves one out": ("values", rest("values")),
        "keys() leaves one out": ("keys", rest("keys")),
        "iteration leaves one out": ("__iter__", lambda self: iter(rest("__iter__")(self))),
        "has nothing": ("__contains__", lambda self, key: False),
        "has everything": ("__contains__", lambda self, key: True),
        "has a ghost": (
            "__contains__",
            lambda self, key: key == "ghost" or base.__contains__(self, key),
        ),
        "gives another value": ("__getitem__", lambda self, key: extra()),
        "has no length": ("__len__", lambda self: 0),
        "is longer": ("__len__", lambda self: base.__len__(self) + 1),
        "is false": ("__bool__", lambda self: False),
        "is true": ("__bool__", lambda self: True),
        "stores under another name": ("__setitem__", renamed),
        "keeps what is deleted": ("__delitem__", lambda self, key: LOG.append("deleted")),
    }
    for method in (
        "items",
        "values",
        "keys",
        "__iter__",
        "__contains__",
        "__getitem__",
        "__len__",
        "__bool__",
        "__setitem__",
        "__delitem__",
    ):
        rows[f"{method} raises"] = (method, _refuse)
    return rows


def _class_of_table(base: Any, name: str, extra: Callable[[], Any]) -> Any:
    method, function = _overrides(base, extra)[name]
    cls = type("Table", (base,), {method: function, "__module__": __name__})
    globals()["Table"] = cls  # where pickle looks for it
    return cls


@functools.cache
def _classes(nn: Any, lib: Any) -> tuple[Any, Any]:
    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(lib.ones(2))
            self.register_parameter("bias", None)

        def forward(self, x):
            return x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(lib.ones(2))
            self.v = nn.Parameter(lib.ones(3))
            self.register_buffer("b", lib.ones(2))
            self.register_buffer("c", lib.zeros(1), persistent=False)
            self.register_buffer("d", lib.zeros(2))
            self.first = Part()
            self.second = nn.Sequential(Part(), nn.ReLU())

        def forward(self, x):
            return x * 2

    for cls in (Part, Net):
        cls.__module__, cls.__qualname__ = __name__, cls.__name__
    return Part, Net


def _net(nn: Any, lib: Any) -> Any:
    classes = _classes(nn, lib)
    globals().update({cls.__name__: cls for cls in classes})  # where pickle looks for them
    return classes[1]()


def _base_of(table: Any) -> Any:
    return OrderedDict if isinstance(table, OrderedDict) else dict


def _describe(nn: Any, value: Any) -> Any:
    """The modules below, by what their tables really hold."""
    if isinstance(value, nn.Module):
        entries = {}
        for name in REGISTRIES:
            table = vars(value)[name]
            held = _base_of(table).items(table)
            entries[name] = [type(table).__name__, [(k, _describe(nn, v)) for k, v in held]]
        sizes = [(n, dict.__len__(vars(value)[n])) for n in HOOKS if dict.__len__(vars(value)[n])]
        training = vars(value).get("training")
        return [type(value).__name__, training, entries, sizes]
    if hasattr(value, "requires_grad"):
        has_grad = value.grad is not None
        return [tuple(value.shape), float(value.sum()), bool(value.requires_grad), has_grad]
    if isinstance(value, dict):
        return [(k, _describe(nn, v)) for k, v in _base_of(value).items(value)]
    if isinstance(value, (list, tuple)):
        return [_describe(nn, v) for v in value]
    is_plain = isinstance(value, (str, int, type(None)))
    return str(value) if is_plain else type(value).__name__


def _place(nn: Any, lib: Any, slot: str, base: Any, name: str) -> Any:
    net = _net(nn, lib)
    extra = {
        "_parameters": lambda: nn.Parameter(lib.zeros(2)),
        "_buffers": lambda: lib.zeros(2),
        "_modules": nn.ReLU,
    }.get(slot, lambda: Hook("ghost"))
    table = _class_of_table(base, name, extra)()
    if slot in REGISTRIES:
        entries = dict(getattr(net, slot))
    elif slot.endswith(("_with_kwargs", "_always_called")):
        flagged = slot.replace("_with_kwargs", "").replace("_always_called", "")
        getattr(net, flagged).update({1: Hook("one"), 2: Hook("two")})
        entries = {1: True}
    else:
        entries = {1: Hook("one"), 2: Hook("two")}
    for key, value in entries.items():
        base.__setitem__(table, key, value)
    if slot == "_backward_hooks":
        net._is_full_backward_hook = True
    setattr(net, slot, table)
    return net


# -- operations ------------------------------------------------------------------------------------


def _zero_grad(nn: Any, lib: Any, net: Any) -> Any:
    for value in _base_of(net._parameters).values(net._parameters):
        value.grad = lib.ones(*value.shape)
    return net.zero_grad()


def _state(lib: Any) -> dict[str, Any]:
    sizes = {"w": 2, "v": 3, "b": 2, "d": 2, "first.weight": 2, "second.0.weight": 2}
    return {key: lib.ones(size) * 7 for key, size in sizes.items()}


def _odd_state(lib: Any) -> dict[str, Any]:
    state = _state(lib)
    del state["w"]
    return {**state, "ghost": lib.ones(2), "first.more": lib.ones(1), "gone.x": lib.ones(1)}


def _load_own(nn: Any, lib: Any, net: Any) -> Any:
    lists: list[list[str]] = [[], [], []]
    net._load_from_state_dict(_odd_state(lib), "", {}, True, *lists)
    return lists


def _registered(method: str) -> Callable[[Any, Any, Any], Any]:
    def operation(nn: Any, lib: Any, net: Any) -> Any:
        handle = getattr(net, method)(lambda *args: LOG.append("new"))
        try:
            return net(lib.ones(2))
        finally:
            handle.remove()

    return operation


def _saved(nn: Any, lib: Any, net: Any) -> Any:
    into: dict[str, Any] = {}
    net._save_to_state_dict(into, "of.", False)
    return into


OPERATIONS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "named_parameters": lambda nn, lib, m: list(m.named_parameters()),
    "own named_parameters": lambda nn, lib, m: list(m.named_parameters(recurse=False)),
    "parameters": lambda nn, lib, m: list(m.parameters()),
    "named_buffers": lambda nn, lib, m: list(m.named_buffers()),
    "named_children": lambda nn, lib, m: [k for k, _ in m.named_children()],
    "named_modules": lambda nn, lib, m: [k for k, _ in m.named_modules()],
    "modules": lambda nn, lib, m: [type(c).__name__ for c in m.modules()],
    "eval": lambda nn, lib, m: m.eval() is m,
    "apply": lambda nn, lib, m: m.apply(lambda c: LOG.append(type(c).__name__)) is m,
    "_apply": lambda nn, lib, m: m._apply(lambda t: t + 1) is m,
    "to": lambda nn, lib, m: m.to(lib.float64) is m,
    "zero_grad": _zero_grad,
    "requires_grad_": lambda nn, lib, m: m.requires_grad_(False) is m,
    "state_dict": lambda nn, lib, m: list(m.state_dict().items()),
    "state_dict into a dict": lambda nn, lib, m: m.state_dict(destination={}, prefix="to."),
    "_save_to_state_dict": _saved,
    "load": lambda nn, lib, m: list(m.load_state_dict(_state(lib))),
    "load with assign": lambda nn, lib, m: list(m.load_state_dict(_state(lib), assign=True)),
    "lenient load": lambda nn, lib, m: list(m.load_state_dict(_odd_state(lib), strict=False)),
    "_load_from_state_dict": _load_own,
    "call": lambda nn, lib, m: m(lib.ones(2)),
    "call with keywords": lambda nn, lib, m: m(x=lib.ones(2)),
    "call for a gradient": lambda nn, lib, m: m(lib.ones(2, requires_grad=True)).sum().backward(),
    "repr": lambda nn, lib, m: repr(m),
    "dir": lambda nn, lib, m: [n for n in dir(m) if n in ("w", "v", "b", "c", "first", "second")],
    "copy": lambda nn, lib, m: copy.copy(m),
    "deepcopy": lambda nn, lib, m: copy.deepcopy(m),
    "pickle": lambda nn, lib, m: pickle.loads(pickle.dumps(m)),
    "get_submodule": lambda nn, lib, m: type(m.get_submodule("second.0")).__name__,
    "get_buffer": lambda nn, lib, m: m.get_buffer("b"),
}
_OF_HOOKS = {
    f"register_{kind}": _registered(f"register_{kind}")
    for kind in (
        "forward_hook",
        "forward_pre_hook",
        "full_backward_hook",
        "full_backward_pre_hook",
        "state_dict_post_hook",
        "state_dict_pre_hook",
        "load_state_dict_pre_hook",
        "load_state_dict_post_hook",
    )
}
_VALUES: dict[str, Callable[[Any, Any], Any]] = {
    "a parameter": lambda nn, lib: nn.Parameter(lib.zeros(1)),
    "a tensor": lambda nn, lib: lib.zeros(1),
    "a module": lambda nn, lib: nn.ReLU(),
    "None": lambda nn, lib: None,
    "a number": lambda nn, lib: 5,
}
_OF_NAMES: dict[str, Callable[[Any, Any, Any], Any]] = {}
for _name in ("w", "b", "first", "ghost"):
    _OF_NAMES |= {
        f"read {_name}": lambda nn, lib, m, n=_name: getattr(m, n),
        f"has {_name}": lambda nn, lib, m, n=_name: hasattr(m, n),
        f"delete {_name}": lambda nn, lib, m, n=_name: delattr(m, n),
        f"register_parameter {_name}": lambda nn, lib, m, n=_name: m.register_parameter(
            n, nn.Parameter(lib.zeros(1))
        ),
        f"register_buffer {_name}": lambda nn, lib, m, n=_name: m.register_buffer(
            n, lib.zeros(1), persistent=False
        ),
        f"add_module {_name}": lambda nn, lib, m, n=_name: m.add_module(n, nn.ReLU()),
        **{
            f"set {_name} to {kind}": lambda nn, lib, m, n=_name, v=make: setattr(m, n, v(nn, lib))
            for kind, make in _VALUES.items()
        },
    }


def _outcome(nn: Any, lib: Any, slot: str, base: Any, name: str, operation: Any) -> list[Any]:
    net = _place(nn, lib, slot, base, name)
    LOG.clear()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _describe(nn, operation(nn, lib, net))
    except Exception as error:
        # What a failed change leaves is of another test: torch leaves it half done.
        return [type(error).__name__, list(LOG)]
    return [found, list(LOG), _describe(nn, net)]


def outcomes(nn: Any, lib: Any, slot: str) -> dict[str, str]:
    """By table and operation: what it gives, or what it raises; what was noted; what it leaves."""
    base = dict if slot in REGISTRIES else OrderedDict
    operations = {**OPERATIONS, **(_OF_NAMES if slot in REGISTRIES else _OF_HOOKS)}
    return {
        f"a table that {name}: {operation}": repr(
            _outcome(nn, lib, slot, base, name, operations[operation])
        )
        for name in _overrides(base, object)
        for operation in operations
    }


if __name__ == "__main__":
    import torch

    json.dump({slot: outcomes(torch.nn, torch, slot) for slot in TABLES}, sys.stdout)
