# SPDX-License-Identifier: BSD-3-Clause
"""What each key of a state dict is for in a model: one answer for all reports."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from modtree.core import families
from modtree.core.foreign import state_of
from modtree.core.loading.mismatch import Shape, shape_of

_EXTRA_STATE = "_extra_state"
_MOST_TIES = 100_000  # keys among which the other name of a tied tensor is looked for


def _registry(state: Mapping[str, Any], name: str) -> dict[Any, Any]:
    found = state.get(name)
    return found if isinstance(found, dict) else {}


class ModelKeys:
    """The keys of a model by what they are for.

    Attributes:
        tensors: The tensors that a state dict of the model has, in its order.
        transient: Buffers that are not persistent.
        nones: Parameters, buffers and children that are None.
        extra_state: Keys of extra state, of modules that take one.
    """

    def __init__(self, model: Any) -> None:
        self.tensors: dict[str, Any] = {}
        self.transient: dict[str, Any] = {}
        self.nones: set[str] = set()
        self.extra_state: set[str] = set()
        self._children: set[str] = set()  # paths of those that are None
        for prefix, module in walk(model):
            self._read(prefix, module)

    def _read(self, prefix: str, module: Any) -> None:
        state = state_of(module)
        transient = state.get("_non_persistent_buffers_set") or ()
        for registry in ("_parameters", "_buffers"):
            for name, tensor in _registry(state, registry).items():
                key = f"{prefix}{name}"
                if tensor is None:
                    self.nones.add(key)
                elif registry == "_buffers" and name in transient:
                    self.transient[key] = tensor
                else:
                    self.tensors[key] = tensor
        if _takes_extra_state(type(module)):
            self.extra_state.add(prefix + _EXTRA_STATE)
        for name, child in _registry(state, "_modules").items():
            if child is None:
                self.nones.add(f"{prefix}{name}")
                self._children.add(f"{prefix}{name}")

    def shapes(self) -> dict[str, Shape]:
        """The shape of each tensor that a state dict has; None where it is not known yet."""
        return {key: shape_of(tensor) for key, tensor in self.tensors.items()}

    def none_above(self, key: Any) -> str | None:
        """The path of the child that is None where a key would lead below it: a load passes over
        such keys.
        """
        at = key.find(".") if self._children and isinstance(key, str) else -1
        while at >= 0:
            if key[:at] in self._children:
                return key[:at]
            at = key.find(".", at + 1)
        return None

    def has_reason(self, key: Any) -> bool:
        """True if the model knows the name of a key that its state dict does not have."""
        return key in self.transient or key in self.nones or self.none_above(key) is not None

    def why_not(self, key: Any) -> str:
        """Why the value of a key does not go into the model, which does not have such an entry."""
        above = self.none_above(key)
        if above is not None:
            return f"{above!r} is None in the model, and a load passes over what is below it"
        if key in self.transient:
            return "the model has it as a buffer that is not persistent, which a load leaves"
        if key in self.nones:
            return "it is None in the model"
        return "the model has no such entry"

    def on_meta(self) -> list[str]:
        """The keys of the tensors that are on meta, those that are not persistent too."""
        return [
            key
            for key, tensor in (*self.tensors.items(), *self.transient.items())
            if is_meta(tensor)
        ]

    def transient_on_meta(self) -> list[str]:
        """Those of them that no checkpoint has, so that a load leaves them without values."""
        return [key for key, tensor in self.transient.items() if is_meta(tensor)]

    def tie_finder(self, given: Iterable[Any]) -> Callable[[str], str | None]:
        """A function of a key of the model: the given key with the same tensor in the model."""
        known: dict[int, str] = {}

        def tie(key: str) -> str | None:
            if key not in self.tensors:
                return None
            if not known:
                for other in itertools.islice(given, _MOST_TIES):
                    if type(other) is str and other in self.tensors:
                        known.setdefault(id(self.tensors[other]), other)
            return known.get(id(self.tensors[key]))

        return tie


def is_meta(value: Any) -> bool:
    """True for a tensor on meta."""
    family = families.family_of_type(type(value))
    return family is not None and not family.is_uninitialized(value) and family.is_meta(value)


def _takes_extra_state(cls: type) -> bool:
    """True if ``set_extra_state`` is more than what all modules inherit."""
    for base in cls.__mro__:
        if "set_extra_state" in vars(base):
            return base.__module__ not in ("modtree.core.module", "torch.nn.modules.module")
    return False


def walk(model: Any) -> Iterator[tuple[str, Any]]:
    """All modules with the beginning of their keys, a module in several places at each of them."""
    waiting: list[tuple[str, Any, frozenset[int]]] = [("", model, frozenset())]
    while waiting:
        prefix, module, above = waiting.pop()
        yield prefix, module
        inside = above | {id(module)}
        children = [
            (f"{prefix}{name}.", child, inside)
            for name, child in _registry(state_of(module), "_modules").items()
            if child is not None and id(child) not in inside
        ]
        waiting += reversed(children)
