# SPDX-License-Identifier: BSD-3-Clause
"""The object of which somebody wrote each part under a path."""

from __future__ import annotations

from typing import Any

from modtree.files.checkpoint.base import CheckpointError, shortened

__all__ = ["nested"]

_DEEPEST = 64


class _Items(dict[Any, Any]):
    """A container that is being made."""


def nested(parts: dict[tuple[Any, ...], Any], path: str) -> dict[Any, Any]:
    """Dicts in dicts, and lists where all keys of a container are numbers from 0 on.

    Args:
        parts: What is at the end of each path of keys and numbers.
        path: Of the file, for errors.

    Raises:
        CheckpointError: Something is to be a container and a value at once.
    """
    root = _Items()
    for place, value in parts.items():
        if len(place) > _DEEPEST:
            raise CheckpointError("containers are nested too deeply", path)
        holder: Any = root
        for key in place[:-1]:
            holder = holder.setdefault(key, _Items())
            if type(holder) is not _Items:
                break
        if type(holder) is not _Items or place[-1] in holder:
            text = ".".join(map(str, place))
            raise CheckpointError(f"two values are at the place {shortened(text)}", path)
        holder[place[-1]] = value
    made = _finished(root)
    return made if isinstance(made, dict) else dict(enumerate(made))


def _finished(value: Any) -> Any:
    if type(value) is not _Items:
        return value
    if value and all(type(key) is int for key in value):
        if value.keys() == set(range(len(value))):
            return [_finished(value[number]) for number in range(len(value))]
    return {key: _finished(item) for key, item in value.items()}
