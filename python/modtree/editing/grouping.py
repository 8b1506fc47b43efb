# SPDX-License-Identifier: BSD-3-Clause
"""Groups of parameters for optimizers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from modtree.core.families import family_of

#: The key that names a group; optimizers keep keys that they do not know.
_NAME = "name"
_REST = "left over"


class ParamGroups(list[dict[str, Any]]):
    """Groups for an optimizer: a list of dicts, each parameter once.

    Args:
        groups: The groups.
        paths: The paths of the parameters of each group.
        left_over: The paths of trainable parameters that are in no group.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        paths: Sequence[Sequence[str]],
        left_over: Sequence[str],
    ) -> None:
        super().__init__(groups)
        self.paths = [list(each) for each in paths]
        self.left_over = list(left_over)

    def __repr__(self) -> str:
        lines = [f"ParamGroups: {len(self)} group{'' if len(self) == 1 else 's'}"]
        for group, paths in zip(self, self.paths, strict=False):
            options = [f"{k}={v!r}" for k, v in group.items() if k not in ("params", _NAME)]
            text = ", ".join([_some(paths), *options])
            lines.append(f"  {group.get(_NAME, 'group')}: {text}")
        if self.left_over:
            lines.append(f"  in no group: {_some(self.left_over)}")
        return "\n".join(lines)


def _some(paths: Sequence[str]) -> str:
    number = f"{len(paths)} parameter{'' if len(paths) == 1 else 's'}"
    return f"{number} ({', '.join(paths[:2])}{', ...' if len(paths) > 2 else ''})"


def grouped(
    every: Sequence[tuple[str, Any]],
    groups: Sequence[tuple[str, Sequence[tuple[str, Any]], Mapping[str, Any]]],
    rest: Mapping[str, Any] | None,
) -> ParamGroups:
    """Each trainable parameter in the first group that has it.

    Args:
        every: Paths and parameters of the model.
        groups: Name, parameters and options of each group.
        rest: The options of a last group of all that is left over; None for no such group.
    """
    taken: set[int] = set()
    made: list[dict[str, Any]] = []
    paths: list[list[str]] = []

    def add(name: str, leaves: Sequence[tuple[str, Any]], options: Mapping[str, Any]) -> None:
        own = [(path, p) for path, p in leaves if id(p) not in taken and _is_trainable(p)]
        taken.update(id(p) for _, p in own)
        if own:
            made.append({"params": [p for _, p in own], _NAME: name, **options})
            paths.append([path for path, _ in own])

    for name, leaves, options in groups:
        add(name, leaves, options)
    if rest is not None:
        add(_REST, every, rest)
    left = [path for path, p in every if id(p) not in taken and _is_trainable(p)]
    return ParamGroups(made, paths, left)


def _is_trainable(parameter: Any) -> bool:
    family = family_of(parameter)
    return family is not None and bool(family.requires_grad(parameter))
