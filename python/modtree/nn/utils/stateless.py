# SPDX-License-Identifier: BSD-3-Clause
"""Calling a module with other parameters and buffers than its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

__all__ = ["functional_call"]


def _merged(given: Any) -> dict[str, Any]:
    if isinstance(given, Mapping):
        return dict(given)
    if not isinstance(given, Sequence):
        raise ValueError(
            f"Expected parameter_and_buffer_dicts to be a dict, or a list/tuple of dicts, but got {type(given)}"
        )
    merged: dict[str, Any] = {}
    for part in given:
        repeated = merged.keys() & part.keys()
        if repeated:
            raise ValueError(
                f"{sorted(repeated)} appeared in multiple dictionaries; behavior of functional call is ambiguous"
            )
        merged.update(part)
    return merged


def _places(module: Any) -> dict[str, tuple[dict[str, Any], str]]:
    """Name -> the registry that holds the tensor, and its name there; a shared tensor has all its names."""
    places = {}
    for prefix, owner in module.named_modules(remove_duplicate=False):
        for registry in (owner._parameters, owner._buffers):
            for name, value in registry.items():
                if value is not None:
                    places[f"{prefix}.{name}" if prefix else name] = (registry, name)
    return places


def functional_call(
    module: Any,
    parameter_and_buffer_dicts: Any,
    args: Any = None,
    kwargs: dict[str, Any] | None = None,
    *,
    tie_weights: bool = True,
    strict: bool = False,
) -> Any:
    """Calls a module with tensors in place of its parameters and buffers, which it has back afterwards.

    Gradients go to the tensors given. Buffers that the call replaces or changes in place are changed in what was given only.

    Args:
        module: The module to call.
        parameter_and_buffer_dicts: Name -> tensor, or several such dicts with different names. Plain attributes can be named too.
        args: The positional arguments: a tuple, or the only argument.
        kwargs: The keyword arguments.
        tie_weights: A tensor that the module has under several names is replaced under all of them when one is given.
        strict: The names given must be all the module has, and no others.

    Raises:
        RuntimeError: With ``strict``, a name is missing or unknown.
        ValueError: One name has several values.
    """
    given = _merged(parameter_and_buffer_dicts)
    places = _places(module)
    own = {name: registry[key] for name, (registry, key) in places.items()}
    if tie_weights:
        given = _with_ties(given, own)
    if strict:
        missing, unknown = own.keys() - given.keys(), given.keys() - own.keys()
        if missing or unknown:
            raise RuntimeError(
                f"functional_call with strict=True: missing keys {sorted(missing)}, unexpected keys {sorted(unknown)}"
            )
    for name in given.keys() - places.keys():  # plain attributes can be replaced too
        prefix, _, key = name.rpartition(".")
        places[name] = (module.get_submodule(prefix).__dict__, key)
        own[name] = places[name][0].get(key)
    positional = () if args is None else args if isinstance(args, tuple) else (args,)
    try:
        for name, value in given.items():
            registry, key = places[name]
            registry[key] = value
        return module(*positional, **(kwargs or {}))
    finally:
        for name in given:
            registry, key = places[name]
            if own[name] is None:
                registry.pop(key, None)
            else:
                registry[key] = own[name]


def _with_ties(given: dict[str, Any], own: dict[str, Any]) -> dict[str, Any]:
    names: dict[int, list[str]] = {}
    for name, value in own.items():
        names.setdefault(id(value), []).append(name)
    result = dict(given)
    for tied in names.values():
        values = {id(given[name]): given[name] for name in tied if name in given}
        if len(values) > 1:
            raise ValueError(
                f"functional_call got different values for {sorted(tied)}, which are one tensor; pass one of them, or tie_weights=False"
            )
        for name in tied if values else ():
            (result[name],) = values.values()
    return result
