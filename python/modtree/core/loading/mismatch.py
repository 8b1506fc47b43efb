# SPDX-License-Identifier: BSD-3-Clause
"""What a failed load found, and what it would find with other keys."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, TypeAlias

from modtree.core import families
from modtree.core.loading.rename import Rename, rename_function

Shape: TypeAlias = "tuple[int, ...] | None"

_SIZE_MISMATCH = re.compile(
    r"size mismatch for (.+): copying a param with shape (.+) from checkpoint, "
    r"the shape in current model is (.+?)\.?$"
)


def _no_tie(key: str) -> str | None:
    return None


def _never(key: str) -> bool:
    return False


class Mismatch(NamedTuple):
    """What a failed load found.

    Attributes:
        missing: keys of the model that the state dict lacks.
        unexpected: keys of the state dict that the model lacks.
        shapes: of each entry of the wrong shape, that in the checkpoint and that in the model.
        state_dict: the given mapping.
        own: the shape of each entry of the model by its key, in the order of the model.
        tie: gives the key of the state dict whose tensor in the model is that of a missing key, or
            None.
        is_passed_over: whether a load is silent about a key that the model lacks.
        is_none: whether the model has None under a key.
    """

    missing: list[str]
    unexpected: list[str]
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    state_dict: Mapping[str, Any]
    own: Mapping[str, Shape]
    tie: Callable[[str], str | None] = _no_tie
    is_passed_over: Callable[[str], bool] = _never
    is_none: Callable[[str], bool] = _never

    @property
    def is_empty(self) -> bool:
        return not self.missing and not self.unexpected and not self.shapes

    @property
    def turned(self) -> list[str]:
        """The entries that would fit transposed."""
        return [
            key for key, (saved, own) in self.shapes.items() if len(own) == 2 and saved == own[::-1]
        ]

    def model_shape(self, key: str) -> Shape:
        return self.own.get(key)


class KnownShape(NamedTuple):
    """Stands for a tensor in a mapping of which the values are not at hand."""

    shape: Shape
    dtype: str = ""


def dtypes_of(values: Mapping[str, Any]) -> dict[str, str]:
    """The names of the dtypes of all tensors that have one."""
    known = {key: value.dtype for key, value in values.items() if type(value) is KnownShape}
    for key, value in values.items():
        family = families.family_of_type(type(value))
        if type(key) is str and family is not None and not family.is_uninitialized(value):
            known[key] = family.dtype_name(value)
    return known


def shape_of(value: Any) -> Shape:
    """The shape of a tensor that has one; None of anything else."""
    if type(value) is KnownShape:
        return value.shape
    family = families.family_of_type(type(value))
    if family is None or family.is_uninitialized(value):
        return None
    return tuple(family.shape(value))


def library_of(tensor: Any) -> str:
    """The library that makes tensors for a module with this one."""
    family = families.family_of_type(type(tensor))
    return "torch" if family is not None and family.name == "torch" else "modtree"


def given_shapes(found: Mismatch) -> dict[str, Shape]:
    """The shapes in the state dict, in its order."""
    return {key: shape_of(value) for key, value in found.state_dict.items() if type(key) is str}


def mismatch_of(state_dict: Mapping[str, Any], found: Mismatch) -> Mismatch:
    """What the load of another mapping into the same model would find."""
    given = {key: value for key, value in state_dict.items() if type(key) is str}
    absent = set(found.missing)
    # What is in neither list is not an error of a load, such as the count of an older batch norm.
    missing = [
        key for key in found.own if key not in given and (key in absent or key in found.state_dict)
    ]
    missing += [key for key in found.missing if key not in found.own and key not in given]
    unexpected, shapes = [], {}
    for key, value in given.items():
        if key in found.own:
            saved, own = shape_of(value), found.own[key]
            if saved is not None and own is not None and saved != own:
                shapes[key] = saved, own
        elif key not in absent and not found.is_passed_over(key):
            unexpected.append(key)
    return found._replace(missing=missing, unexpected=unexpected, shapes=shapes, state_dict=given)


def renamed(found: Mismatch, rules: Rename) -> Mismatch:
    """What is left of a mismatch where the load renames keys: all of it where two would be one."""
    function = rename_function(rules)
    given: dict[str, Any] = {}
    unchanged = set()
    for key, value in found.state_dict.items():
        new = function(key) if type(key) is str else None
        if new is None:
            continue
        if new in given:
            return found
        given[new] = value
        if new == key:
            unchanged.add(key)
    left = mismatch_of(given, found)
    # Of keys that stay, the load knows best: hooks may take, or make, what the model does not have.
    not_expected, by_keys = set(found.unexpected), set(left.unexpected)
    return left._replace(
        unexpected=[key for key in given if key in (not_expected if key in unchanged else by_keys)],
        shapes={key: pair for key, pair in left.shapes.items() if key not in unchanged}
        | {key: pair for key, pair in found.shapes.items() if key in unchanged},
    )


def _shape(text: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", text))


def wrong_shapes(
    messages: Iterable[str],
) -> dict[str, tuple[tuple[int, ...], tuple[int, ...]]]:
    """Of the entries that these messages of a load name: the shape in the checkpoint, and that in
    the model.
    """
    matches = (_SIZE_MISMATCH.match(message) for message in messages)
    return {match[1]: (_shape(match[2]), _shape(match[3])) for match in matches if match}


def _without_numbers(path: str) -> str:
    return re.sub(r"(?<![^.])\d+(?![^.])", "*", path)


def by_module(keys: list[str]) -> list[str]:
    """The keys grouped by their modules; modules that differ in their numbers alone are one line,
    ``layers.*.norm (weight, bias) x 24``.
    """
    names: dict[str, list[str]] = {}
    for key in keys:
        module, _, name = key.rpartition(".")
        names.setdefault(module, []).append(name)
    groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for module, own in names.items():
        groups.setdefault((_without_numbers(module), tuple(own)), []).append(module)
    lines = []
    for (pattern, entries), modules in groups.items():
        path = modules[0] if len(modules) == 1 else pattern
        times = f" x {len(modules)}" if len(modules) > 1 else ""
        lines.append(f"{path or 'the root'} ({', '.join(entries)}){times}")
    return lines
