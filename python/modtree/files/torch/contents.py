# SPDX-License-Identifier: BSD-3-Clause
"""Where in the object of a file the state dict is, and which of its tensors share memory."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

from modtree.files.checkpoint.base import CheckpointError, View, shortened
from modtree.files.torch.records import TensorRecord

__all__ = ["find_state", "flat_state", "shared_entries"]

#: Under which of them programs keep the state dict, the first that is there counts.
_USUAL = ("state_dict", "model_state_dict", "model")
#: How deep dicts may be nested, and at how many places one may stand: files may come from anywhere.
_DEEPEST = _PLACES = 64


def find_state(obj: Any, is_tensor: Callable[[Any], bool], path: str) -> tuple[dict[Any, Any], str]:
    """The state dict in the object of a file: what stands under "state_dict", "model_state_dict" or
    "model", where that is a dict with tensors, or else the object itself.

    Args:
        obj: The object.
        is_tensor: Is this one?
        path: Of the file, for errors.

    Returns:
        The dict, and under which key it stands ("" for the object itself).

    Raises:
        CheckpointError: The object is no dict.
    """
    if not isinstance(obj, dict):
        raise CheckpointError(
            f"it holds {_article(obj)} where a state dict belongs; modtree.load() reads it", path
        )
    for name in _USUAL:
        if isinstance(obj.get(name), dict) and _has_tensors(obj[name], is_tensor):
            return obj[name], name
    return obj, ""


def _article(obj: Any) -> str:
    kind = "Tensor" if isinstance(obj, TensorRecord) else type(obj).__name__
    return f"{'an' if kind[0] in 'aeiouAEIOU' else 'a'} {kind}"


def _has_tensors(value: dict[Any, Any], is_tensor: Callable[[Any], bool]) -> bool:
    waiting, seen = [value], {id(value)}
    while waiting:
        for item in waiting.pop().values():
            if is_tensor(item):
                return True
            if isinstance(item, dict) and id(item) not in seen:
                seen.add(id(item))
                waiting.append(item)
    return False


def flat_state(
    state: dict[Any, Any], is_tensor: Callable[[Any], bool], path: str
) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """The entries of a state dict by their keys, tensors and others, and its ``_metadata``.

    A dict with tensors is a state dict, and its other entries are values. One without holds state
    dicts, several of them or one in parts: their keys are joined by dots.

    Raises:
        CheckpointError: Two entries have one key, or a key is no text.
    """
    flat: dict[str, Any] = {}
    entered: collections.Counter[int] = collections.Counter()
    versions: dict[str, Any] = {}

    def enter(part: dict[Any, Any], prefix: str, depth: int) -> None:
        is_nested = not any(is_tensor(value) for value in part.values())
        entered[id(part)] += 1
        if entered[id(part)] > _PLACES or depth > _DEEPEST:
            raise CheckpointError("a dict in it contains itself, or stands at many places", path)
        own = getattr(part, "_metadata", None)
        for name, local in own.items() if isinstance(own, dict) else ():
            versions[f"{prefix}{name}" if name else prefix[:-1]] = local
        for key, value in part.items():
            if type(key) not in (str, int):
                raise CheckpointError(f"{shortened(key)} is no key of a state dict", path)
            full = f"{prefix}{key}"
            if is_nested and isinstance(value, dict) and _has_tensors(value, is_tensor):
                enter(value, f"{full}.", depth + 1)
            elif full in flat:
                raise CheckpointError("two entries have this key", path, full)
            else:
                flat[full] = value

    enter(state, "", 0)
    return flat, versions or None


# -- shared memory ---------------------------------------------------------------------------------


def shared_entries(records: dict[str, TensorRecord]) -> tuple[dict[str, str], dict[str, View]]:
    """Which entries are the tensor of another one, and which lie in the memory of another one."""
    ties: dict[str, str] = {}
    by_storage: dict[str, list[tuple[str, TensorRecord]]] = {}
    first: dict[Any, str] = {}
    for key, record in records.items():
        kept = first.setdefault(_identity(key, record), key)
        if kept != key:
            ties[key] = kept
        elif record.storage is not None and record.nbytes:
            by_storage.setdefault(record.storage.key, []).append((key, record))
    views: dict[str, View] = {}
    for members in by_storage.values():
        if len(members) > 1:
            views.update(_views(members))
    views |= {key: views[kept] for key, kept in ties.items() if kept in views}
    return {key: kept for key, kept in ties.items() if kept not in views}, views


def _identity(key: str, record: TensorRecord) -> Any:
    if record.storage is None or not record.nbytes:
        return key
    if vars(record):  # attributes of its own
        return id(record)
    flags = record.is_parameter, record.requires_grad, bool(record.noted)
    return record.storage.key, record.dtype.name, record.place, flags


def _views(members: list[tuple[str, TensorRecord]]) -> dict[str, View]:
    """Parts of the largest of them whose elements lie one after the other."""
    whole = [(record.nbytes, key, record) for key, record in members if record.is_plain]
    if not whole:
        return {}
    _, of, base = max(whole, key=lambda item: item[0])
    count = base.nbytes // base.dtype.itemsize
    views = {}
    for key, record in members:
        if key == of or record.dtype != base.dtype or record.noted or vars(record):
            continue
        if record.is_parameter or record.requires_grad:
            continue
        offset = record.place.offset - base.place.offset
        if offset >= 0 and offset + record.reach <= count:
            views[key] = View(of, record.place.size, record.place.stride, offset)
    return views
