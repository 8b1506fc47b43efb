# SPDX-License-Identifier: BSD-3-Clause
"""What a failed load found, and what it would find with other keys."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from modtree import families
from modtree._module.loading.rename import Rename, rename_function

__all__ = ["Mismatch", "renamed", "shape_of"]


def _no_tie(key: str) -> str | None:
    return None


class Mismatch(NamedTuple):
    """What a failed load found.

    Attributes:
        missing: keys of the model that the state dict lacks.
        unexpected: keys of the state dict that the model lacks.
        shapes: of each entry of the wrong shape, that in the checkpoint and that in the model.
        state_dict: the given mapping.
        model_shape: gives the shape of an entry of the model by its key, or None.
        tie: gives the key of the state dict whose tensor in the model is that of a missing key, or
            None.
    """

    missing: list[str]
    unexpected: list[str]
    shapes: dict[str, tuple[tuple[int, ...], tuple[int, ...]]]
    state_dict: Mapping[str, Any]
    model_shape: Callable[[str], tuple[int, ...] | None]
    tie: Callable[[str], str | None] = _no_tie

    @property
    def is_empty(self) -> bool:
        return not self.missing and not self.unexpected and not self.shapes


def shape_of(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor that has one; None of anything else."""
    family = families.family_of(value)
    if family is None or family.is_uninitialized(value):
        return None
    return tuple(family.shape(value))


def renamed(found: Mismatch, rules: Rename) -> Mismatch:
    """What is left of a mismatch where the load renames keys: all of it where two would be one."""
    function = rename_function(rules)
    waiting = dict.fromkeys(found.missing)
    unexpected: dict[str, None] = {}
    shapes = dict(found.shapes)
    given: dict[str, Any] = {}
    lost = []
    not_expected = set(found.unexpected)
    for key, value in found.state_dict.items():
        new = function(key) if type(key) is str else None
        if new is None:
            continue
        if new in given:
            return found
        given[new] = value
        if key not in not_expected:
            if new != key:
                lost.append(key)
                unexpected[new] = None
            continue
        own = found.model_shape(new)
        if new not in waiting and own is None:  # else a hook put it into a state dict without it
            unexpected[new] = None
            continue
        waiting.pop(new, None)
        saved = shape_of(value)
        if saved is not None and own is not None and saved != own:
            shapes[new] = saved, own
    missing = [*waiting, *(key for key in lost if key not in given)]
    return found._replace(
        missing=missing, unexpected=list(unexpected), shapes=shapes, state_dict=given
    )
