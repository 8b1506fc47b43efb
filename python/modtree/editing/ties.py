# SPDX-License-Identifier: BSD-3-Clause
"""What hangs at several places of a tree, and tensors over one memory."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np

from modtree.editing.walking import KINDS, TABLES, joined, registry, shape_of

# How long NumPy may think about whether two strided views meet.
_WORK: Any = 10_000


class Tie(NamedTuple):
    """Paths at which there is one object, or at which tensors have one memory."""

    kind: str
    """``"module"``, ``"parameter"``, ``"buffer"``, or ``"memory"`` for different tensors."""
    paths: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {' = '.join(path or 'the model itself' for path in self.paths)}"


def tie_report(model: Any) -> list[Tie]:
    """What hangs at several places. The tensors of a module that does are not listed again."""
    found, tensors = ties_and_tensors(model)
    return found + [Tie("memory", each) for each in _over_one_memory(tensors)]


def ties_and_tensors(model: Any) -> tuple[list[Tie], list[tuple[str, Any]]]:
    """What hangs at several places, and each tensor at its first one."""
    kinds: dict[int, str] = {id(model): "module"}
    paths: dict[int, list[str]] = {id(model): [""]}
    tensors: list[tuple[str, Any]] = []
    waiting = [("", model)]
    while waiting:
        path, module = waiting.pop()
        for table in TABLES[1:]:
            for name, tensor in registry(module, table).items():
                if tensor is not None:
                    kinds.setdefault(id(tensor), KINDS[table])
                    places = paths.setdefault(id(tensor), [])
                    places.append(joined(path, name))
                    if len(places) == 1:
                        tensors.append((places[0], tensor))
        below = []
        for name, child in registry(module, "_modules").items():
            if child is not None:
                kinds.setdefault(id(child), "module")
                places = paths.setdefault(id(child), [])
                places.append(joined(path, name))
                if len(places) == 1:
                    below.append((joined(path, name), child))
        waiting += reversed(below)
    found = [Tie(kinds[key], tuple(each)) for key, each in paths.items() if len(each) > 1]
    return found, tensors


# -- memory ----------------------------------------------------------------------------------------


@dataclass
class _Group:
    """Tensors that meet each other in memory."""

    stop: int
    arrays: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)


def _over_one_memory(tensors: list[tuple[str, Any]]) -> Iterable[tuple[str, ...]]:
    """The paths of different tensors that meet in memory."""
    spans: dict[str, list[tuple[int, int, int, Any]]] = {}
    for place, (_, tensor) in enumerate(tensors):
        array = memory_of(tensor)
        if array is not None:
            spans.setdefault(str(tensor.device), []).append((*span_of(array), place, array))
    for on_device in spans.values():
        open_: list[_Group] = []
        closed: list[_Group] = []
        for start, stop, place, array in sorted(on_device, key=lambda span: span[:3]):
            closed += [group for group in open_ if group.stop <= start]
            open_ = [group for group in open_ if group.stop > start]
            with_it = (g for g in open_ if any(meet(array, other) for other in g.arrays))
            group = next(with_it, None)
            if group is None:
                group = _Group(stop)
                open_.append(group)
            group.stop = max(group.stop, stop)
            group.arrays.append(array)
            group.places.append(place)
        for group in closed + open_:
            if len(group.places) > 1:
                yield tuple(tensors[place][0] for place in sorted(group.places))


def memory_of(tensor: Any) -> Any:
    """An array over the memory of a tensor, by which nothing is to be read: it does not keep the
    memory alive, and may be on a device. None where that cannot be told.
    """
    try:
        shape = shape_of(tensor)
        if shape is None or 0 in shape or not tensor.data_ptr():
            return None
        size = tensor.element_size()
        interface = {
            "data": (tensor.data_ptr(), True),
            "shape": tuple(shape),
            "strides": tuple(step * size for step in tensor.stride()),
            "typestr": f"|V{size}",
            "version": 3,
        }
    except Exception:  # sparse, quantized, wrapped, of a library without addresses
        return None
    return np.asarray(SimpleNamespace(__array_interface__=interface))


def span_of(array: Any) -> tuple[int, int]:
    """From where to where in memory an array is."""
    start = array.__array_interface__["data"][0]
    steps = [(n - 1) * s for n, s in zip(array.shape, array.strides, strict=True)]
    low = start + sum(step for step in steps if step < 0)
    return low, start + sum(step for step in steps if step > 0) + array.itemsize


def meet(one: Any, other: Any) -> bool:
    """True if two arrays have an element in common."""
    try:
        return np.shares_memory(one, other, max_work=_WORK)
    except np.exceptions.TooHardError:
        return np.may_share_memory(one, other)
