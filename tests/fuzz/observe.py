# SPDX-License-Identifier: BSD-3-Clause
"""Values, modules and worlds without their implementation, so that two worlds can be compared with
``==``.
"""

from __future__ import annotations

import itertools
import types
from typing import Any

import numpy as np

REGISTRIES = ("_parameters", "_buffers", "_modules")
HOOK_TABLES = (
    "_backward_pre_hooks",
    "_backward_hooks",
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
INTERNAL = (
    *("training", *REGISTRIES, "_non_persistent_buffers_set", "_is_full_backward_hook"),
    *HOOK_TABLES,
)
# Of what an iterator gives; torch ends in a RecursionError before, where a tree with a cycle is
# walked for ever.
MOST = 5000
FIRST_ID = 1_000_000
PLAIN = {type(None), bool, int, str, bytes, complex}


class Observer:
    """Shows values of one world; objects that are no members of its slots are numbered in the order
    in which they are met.

    One observer is made for each look: what it has numbered stays alive as long as it.
    """

    def __init__(self, world: Any, shallow: bool = False) -> None:
        self.world, self.shallow = world, shallow
        self.known = {}
        for kind, slots in world.slots.items():
            for i, value in enumerate(slots):
                if value is not None:
                    self.known.setdefault(id(value), (kind, i))
        self.met: dict[int, int] = {}
        self.storages: dict[int, int] = {}
        self.alive: list[Any] = []

    def show(self, value: Any) -> Any:
        kind = type(value)
        if kind in PLAIN:
            return value
        if kind is list:
            return [self.show(v) for v in value]
        known = self.known.get(id(value))
        if known is not None:
            return known
        if kind is dict:
            return self._mapping(value)
        if kind is float:
            return f"{value:.4g}"
        impl = self.world.impl
        if isinstance(value, impl.nn.Module):
            return self._module(value)
        if isinstance(value, impl.lib.Tensor):
            return self._numbered(value, "tensor", self.tensor)
        if isinstance(value, dict):
            return self._mapping(value)
        if isinstance(value, (list, tuple)):
            return self._row(value)
        if isinstance(value, (set, frozenset)):
            return (type(value).__name__, sorted(map(repr, map(self.show, value))))
        if isinstance(value, BaseException):
            return ("exception", type(value).__name__, str(value)[:60])
        return self._other(value)

    def _other(self, value: Any) -> Any:
        if isinstance(value, type):
            return ("class", value.__name__)
        if type(value).__name__ in ("_WrappedHook", "WrappedHook", "PublicStateDictHook"):
            value = value.hook
        name = getattr(value, "__name__", None)
        if isinstance(value, types.MethodType):
            return ("method", name, self.show(value.__self__))
        if isinstance(value, (types.GeneratorType, types.MappingProxyType)):
            return type(value).__name__
        if type(value).__name__ in ("dtype", "device"):
            return str(value).rpartition(".")[2]
        if callable(value):
            return ("callable", name if name and name[-1:].isdigit() else None)
        if type(value).__name__ == "RemovableHandle":
            return ("handle", value.hooks_dict_ref() is not None, len(value.extra_dict_ref))
        return ("object", type(value).__name__)

    def _row(self, value: Any) -> Any:
        kind = type(value).__name__
        if kind == "Size":
            return ("Size", *value)
        items = [self.show(v) for v in value]
        return items if kind == "list" else (kind, *items)

    def _mapping(self, value: dict[Any, Any]) -> Any:
        # Whether a registry is a dict or an OrderedDict is not looked at; the metadata of a state
        # dict is part of it.
        number = self._number(value)
        items = [(self._key(k), self.show(v)) for k, v in value.items()] if number[1] else None
        metadata = None if type(value) is dict else getattr(value, "_metadata", None)
        return ("dict", number[0], items, None if metadata is None else self._metadata(metadata))

    def _metadata(self, metadata: Any) -> Any:
        """Without the flag that torch leaves in its caller's dict (docs/compat.md)."""
        flag = "assign_to_params_buffers"
        return [
            (
                k,
                {n: self.show(x) for n, x in v.items() if n != flag}
                if isinstance(v, dict)
                else self.show(v),
            )
            for k, v in metadata.items()
        ]

    def _key(self, key: Any) -> Any:
        # Hook tables have process-wide numbers as keys.
        return "id" if type(key) is int and key >= FIRST_ID else self.show(key)

    def _number(self, value: Any) -> tuple[int, bool]:
        number = self.met.get(id(value))
        if number is not None:
            return number, False
        self.alive.append(value)
        self.met[id(value)] = len(self.met)
        return len(self.met) - 1, True

    def _numbered(self, value: Any, label: str, content: Any) -> Any:
        number, new = self._number(value)
        return (label, number, content(value)) if new else (label, number)

    def _module(self, value: Any) -> Any:
        if self.shallow:
            return type(value).__name__
        return self._numbered(value, type(value).__name__, self.module)

    # -- tensors -----------------------------------------------------------------------------------

    def tensor(self, value: Any) -> Any:
        """Everything visible of a tensor; memory by the order in which it is met."""
        impl = self.world.impl
        if is_uninitialized(value):
            return (type(value).__name__, dtype(value), value.requires_grad)
        kind = "Parameter" if isinstance(value, impl.nn.Parameter) else "Tensor"
        out = [kind, dtype(value), tuple(value.shape), bool(value.requires_grad), value.is_leaf]
        if value.device.type == "meta":
            return (*out, "meta")
        plain = value.detach()
        out.append(numbers(plain))
        if 0 not in value.shape:
            out.append(self.storages.setdefault(address(plain), len(self.storages)))
            self.alive.append(plain)
        if value.is_leaf and value.grad is not None:
            out.append(self.show(value.grad))
        extra = {k: v for k, v in getattr(value, "__dict__", {}).items() if k[:1] != "_"}
        if extra:
            out.append(self.show(extra))
        return tuple(out)

    # -- modules -----------------------------------------------------------------------------------

    def attempt(self, fn: Any) -> Any:
        try:
            return self.show(fn())
        except Exception as error:
            return ("raised", type(error).__name__)

    def module(self, m: Any) -> Any:
        """What a look at one module shows; how deep a look, the program says: looking may change
        how a module is stored.
        """
        look = self.world.look
        if look == "walks":
            return self._by_walks(m)
        out = [self.attempt(lambda: m.training)]
        if look == "dict":
            out.append(self.attempt(lambda: self.items(m)))
        else:
            out += [self.attempt(lambda r=r: getattr(m, r)) for r in REGISTRIES]
            out.append(self.attempt(lambda: m._non_persistent_buffers_set))
            out += [self.attempt(lambda: m._is_full_backward_hook)]
            out.append(self.attempt(lambda: [list(getattr(m, t).values()) for t in HOOK_TABLES]))
        return out

    def items(self, m: Any) -> Any:
        """The plain entries of ``__dict__`` in their order, then the internal ones; ``_is_...``
        stays among the plain ones.
        """
        entries = m.__dict__
        inner = {k: entries[k] for k in INTERNAL if k in entries}
        return [[(k, v) for k, v in entries.items() if k not in inner], list(inner.items())]

    def _by_walks(self, m: Any) -> Any:
        impl = self.world.impl
        walk = impl.nn.Module  # an override in the class is looked at by steps
        return [
            self.attempt(lambda: m.training),
            self.attempt(lambda: first(walk.named_children(m))),
            self.attempt(lambda: first(walk._named_members(m, own_parameters, recurse=False))),
            self.attempt(lambda: first(walk._named_members(m, own_buffers, recurse=False))),
        ]

    def slots(self) -> Any:
        """Every module and tensor of the world's slots."""
        world = self.world
        out = {}
        for i, m in enumerate(world.modules):
            out[f"modules[{i}]"] = (type(m).__name__, self.module(m))
        for kind in ("params", "tensors"):
            for i, value in enumerate(getattr(world, kind)):
                out[f"{kind}[{i}]"] = self.tensor(value)
        # docs/compat.md, "removing a global `with_kwargs` hook": the flags of hooks that are gone
        # are not looked at.
        flags = world.impl.module._global_forward_hooks_with_kwargs
        hooks = [t for t in world.global_tables() if t is not flags]
        out["globals"] = [self.show(list(t.values())) for t in hooks]
        return out


def own_parameters(m: Any) -> Any:
    return m._parameters.items()


def own_buffers(m: Any) -> Any:
    return m._buffers.items()


def first(items: Any, count: int = MOST) -> list[Any]:
    return list(itertools.islice(items, count))


def dtype(value: Any) -> str:
    return str(value.dtype).rpartition(".")[2]


def is_uninitialized(value: Any) -> bool:
    return type(value).__name__.startswith("Uninitialized")


def numbers(plain: Any) -> Any:
    """The values, floats to 4 digits: what libraries round differently is not looked at here."""

    def short(x: Any) -> Any:
        if isinstance(x, list):
            return [short(y) for y in x]
        return f"{x:.4g}" if isinstance(x, (float, complex)) else x

    try:
        return short(plain.tolist())
    except TypeError:  # bfloat16 has no Python numbers in some libraries
        return short(np.asarray(plain.float()).tolist())


def address(plain: Any) -> int:
    pointer = getattr(plain, "data_ptr", None)
    if pointer is not None:
        return pointer()
    return np.asarray(plain).__array_interface__["data"][0]
