# SPDX-License-Identifier: BSD-3-Clause
"""Which tensors of a state dict lie in the same memory: each part of it is written once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

import numpy as np

from modtree.files.checkpoint.base import View
from modtree.files.checkpoint.dtypes import FileDtype
from modtree.files.checkpoint.record import Record

__all__ = ["Sources", "Spans", "take_shared"]

#: Arrays of the values or of their bits by key, or tensors of a library that has them on another
#: device.
Sources = dict[str, Any]
_Tensors = dict[str, tuple[FileDtype, tuple[int, ...]]]


class Spans:
    """Where in memory tensors lie."""

    def __init__(self) -> None:
        self._keys: list[str] = []
        self._begins: list[int] = []
        self._sizes: list[int] = []
        self._elsewhere: list[str] = []

    def add(self, key: str, begin: int, size: int) -> None:
        """A tensor in main memory; without bytes it shares none."""
        if size:
            self._keys.append(key)
            self._begins.append(begin)
            self._sizes.append(size)

    def add_array(self, key: str, array: np.ndarray) -> None:
        """An array whose elements may lie anywhere."""
        if array.size:
            begin, end = np.lib.array_utils.byte_bounds(array)
            self.add(key, begin, end - begin)

    def add_elsewhere(self, key: str) -> None:
        """A tensor in the memory of another device."""
        self._elsewhere.append(key)

    def overlapping(self) -> list[str]:
        """The tensors that may share memory with another one: few of many."""
        if len(self._keys) < 2:
            return self._elsewhere
        begins = np.array(self._begins, np.uint64)
        order = np.argsort(begins, kind="stable")
        begins = begins[order]
        ends = begins + np.array(self._sizes, np.uint64)[order]
        is_inside = begins[1:] < np.maximum.accumulate(ends)[:-1]
        if not is_inside.any():
            return self._elsewhere
        is_shared = np.zeros(len(order), bool)
        is_shared[1:] |= is_inside
        is_shared[:-1] |= is_inside  # the one before is where a group begins, or within it
        places = np.sort(order[is_shared]).tolist()
        return [self._keys[place] for place in places] + self._elsewhere


def take_shared(keys: Iterable[str], tensors: _Tensors, sources: Sources, record: Record) -> None:
    """Takes out of ``tensors`` and ``sources`` what is written with another one of them, and enters
    it as a tie or a view.

    Args:
        keys: The tensors that may share memory, in their order.
        tensors: dtype and shape of all.
        sources: Their values.
        record: What the ties and views are added to.
    """
    rest = _take_ties(keys, tensors, sources, record)
    _take_views(rest, tensors, sources, record)
    for key, kept in list(record.ties.items()):
        if kept in record.views:  # what is tied to a view is this view, too
            record.views[key] = record.views[kept]
            del record.ties[key]


def _take_ties(
    keys: Iterable[str], tensors: _Tensors, sources: Sources, record: Record
) -> list[str]:
    """Leaves one key of each group with the same elements: the first in the order of their names,
    the choice of ``safetensors.torch``.
    """
    groups: dict[Any, list[str]] = defaultdict(list)
    for key in keys:
        groups[_identity(sources[key]), tensors[key][0]].append(key)
    rest = []
    for group in groups.values():
        kept = min(group)
        rest.append(kept)
        for key in group:
            if key != kept:
                record.ties[key] = kept
                del tensors[key], sources[key]
    return rest


def _identity(source: Any) -> Any:
    """Equal for tensors with the same elements of the same memory."""
    if isinstance(source, np.ndarray):
        return _address(source), source.shape, source.strides
    if hasattr(source, "data_ptr"):
        pointer = source.data_ptr() if source.numel() else id(source)
        return str(source.device), pointer, source.shape, source.stride()
    return id(source)


def _take_views(keys: Iterable[str], tensors: _Tensors, sources: Sources, record: Record) -> None:
    """Takes out tensors that lie in the memory of another one that is written as a whole."""
    spans = [
        (*np.lib.array_utils.byte_bounds(sources[key]), key)
        for key in keys
        if isinstance(sources[key], np.ndarray)
    ]
    spans.sort(key=lambda s: (s[0], -s[1], not sources[s[2]].flags.c_contiguous))
    whole: tuple[int, int, str] | None = None
    for span in spans:
        begin, end, key = span
        if whole is None or begin >= whole[1]:
            whole = span if sources[key].flags.c_contiguous else None
            continue
        if end <= whole[1] and tensors[key][0] is tensors[whole[2]][0]:
            view = _view(whole[2], sources[whole[2]], sources[key])
            if view is not None:
                record.views[key] = view
                del tensors[key], sources[key]


def _view(of: str, whole: np.ndarray, part: np.ndarray) -> View | None:
    size = whole.itemsize
    steps = (_address(part) - _address(whole), *part.strides)
    if any(step < 0 or step % size for step in steps):
        return None
    if part.size > whole.size:  # an expanded one
        return None
    return View(of, part.shape, tuple(step // size for step in steps[1:]), steps[0] // size)


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]
