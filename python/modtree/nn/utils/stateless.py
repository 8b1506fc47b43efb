# SPDX-License-Identifier: BSD-3-Clause
"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from modtree import _C
from modtree.core import families
from modtree.core.undo import plain_methods

__all__ = ["functional_call"]


def _merged(given: Any) -> dict[str, Any]:
    if isinstance(given, dict):
        return given
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, Sequence):
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but "
            f"got {type(given)}"
        )
    merged: dict[str, Any] = {}
    for part in given:
        repeated = merged.keys() & part.keys()
        if repeated:
            raise ValueError(
                f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional "
                f"call is ambiguous"
            )
        merged.update(part)
    return merged


_ABSENT: Any = object()


def _check_tensor(value: Any, what: str) -> None:
    if value is not _ABSENT and value is not None and families.family_of(value) is None:
        raise TypeError(f"{what} is not an instance of Tensor: {type(value).__name__}")


class _Exchange:
    """Puts tensors into a module by their paths and gives what was there before."""

    def __init__(self, module: Any) -> None:
        self.owners: dict[str, Any] = {"": module}

    def owner(self, path: str) -> Any:
        if path not in self.owners:
            parent, _, name = path.rpartition(".")
            module = self.owner(parent)
            try:
                child = getattr(module, name)
            except AttributeError as error:
                raise AttributeError(f"{module._get_name()} has no attribute `{name}`") from error
            if not isinstance(child, _C.ModuleBase):
                raise TypeError(f"`{path}` is not an nn.Module: {type(child).__name__}")
            self.owners[path] = child
        return self.owners[path]

    def one(self, path: str, value: Any, before: dict[str, Any]) -> None:
        """Puts one tensor in place, and what was there into ``before`` first."""
        prefix, _, name = path.rpartition(".")
        owner = self.owner(prefix)
        _check_tensor(value, f"the value for {path!r}")
        if name == "":
            raise KeyError(f'tensor name can\'t be empty string "" (in {path!r})')
        for registry in (owner._parameters, owner._buffers):
            if name in registry:
                before[path] = registry[name]
                if value is _ABSENT:
                    del registry[name]
                else:
                    registry[name] = value
                return
        old = getattr(owner, name, _ABSENT)
        _check_tensor(old, f"attribute `{path}`")
        before[path] = old
        if value is not _ABSENT:
            setattr(owner, name, value)
        elif old is not _ABSENT:
            delattr(owner, name)

    def all(self, values: dict[str, Any]) -> dict[str, Any]:
        """Exchanges all or none."""
        before: dict[str, Any] = {}
        try:
            for path, value in values.items():
                self.one(path, value, before)
        except BaseException:
            self.back(before)
            raise
        return before

    def back(self, before: dict[str, Any]) -> dict[str, Any]:
        """Puts all back, also where the module's own ``__setattr__`` refuses some; what was there
        until now.
        """
        after: dict[str, Any] = {}
        errors: list[BaseException] = []
        for path, value in before.items():
            try:
                self.one(path, value, after)
            except BaseException as error:
                errors.append(error)
                prefix, _, name = path.rpartition(".")
                owner = self.owner(prefix)
                if value is not _ABSENT:
                    plain_methods(owner).__setattr__(owner, name, value)
                elif hasattr(owner, name):
                    plain_methods(owner).__delattr__(owner, name)
        if errors:
            raise errors[0]
        return after


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with tensors in place of its parameters and buffers, which it has back
    afterwards.

    Gradients go to the tensors given. Buffers that the call replaces or changes in place are
    changed in what was given only.

    Args:
        module: The module to call.
        parameter_and_buffer_dicts: Name -> tensor, or several such dicts with different names.
            Plain attributes can be named too.
        args: The positional arguments: a tuple, or the only argument.
        kwargs: The keyword arguments.
        tie_weights: A tensor that the module has under several names is replaced under all of them
            when one is given.
        strict: The names given must be all the module has, and no others.

    Raises:
        RuntimeError: With ``strict``, a name is missing or unknown.
        ValueError: One name has several values.
    """
    given = _merged(parameter_and_buffer_dicts)
    values = _with_ties(given, _own_tensors(module)) if tie_weights else given
    if strict:
        _check_names(values, _own_tensors(module))
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    exchange = _Exchange(module)
    before = exchange.all(values)
    try:
        return module(*positional, **(kwargs or {}))
    finally:
        after = exchange.back(before)
        if (
            given is parameter_and_buffer_dicts
        ):  # what the call has put in a tensor's place belongs to the caller
            given.update({name: after[name] for name in given if name in after})


def _own_tensors(module: Any) -> dict[str, Any]:
    own = dict(module.named_parameters(remove_duplicate=False))
    own.update(module.named_buffers(remove_duplicate=False))
    return own


def _check_names(values: dict[str, Any], own: dict[str, Any]) -> None:
    missing, unknown = own.keys() - values.keys(), values.keys() - own.keys()
    if missing or unknown:
        raise RuntimeError(
            f"functional_call with strict=True: missing keys {sorted(missing)}, unexpected keys "
            f"{sorted(unknown)}"
        )


def _with_ties(given: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    names: dict[int, list[str]] = {}
    for name, value in own.items():
        names.setdefault(id(value), []).append(name)
    result = dict(given)
    for tied in names.values():
        values = {id(given[name]): given[name] for name in tied if name in given}
        if len(values) > 1:
            raise ValueError(
                f"functional_call got different values for {sorted(tied)}, which are one tensor; "
                f"pass one of them, or tie_weights=False"
            )
        for name in tied if values else ():
            (result[name],) = values.values()
    return result
