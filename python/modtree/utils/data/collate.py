# SPDX-License-Identifier: BSD-3-Clause
"""Samples made into batches of tensors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np

from modtree._C import as_tuple
from modtree.numpy.ops.functions import stack
from modtree.numpy.tensor.dtypes import float64
from modtree.numpy.tensor.from_data import as_tensor, tensor
from modtree.numpy.tensor.tensor import Tensor

__all__ = ["collate", "default_collate", "default_collate_fn_map", "default_convert"]


def default_convert(data: Any) -> Any:
    """The data with arrays as tensors, inside of dicts, lists and tuples too; tuples become lists.
    Nothing is stacked.
    """
    if isinstance(data, Tensor):
        return data
    if isinstance(data, np.ndarray | np.generic):
        return data if _is_text(data) else as_tensor(data)
    if isinstance(data, Mapping):
        return _like_mapping(data, {key: default_convert(data[key]) for key in data})
    if isinstance(data, tuple) and hasattr(data, "_fields"):
        return type(data)(*map(default_convert, data))
    if isinstance(data, Sequence) and not isinstance(data, str | bytes):
        return _like_sequence(data, [default_convert(item) for item in data])
    return data


def _is_text(array: Any) -> bool:
    return array.dtype.kind in "SUaO"


def _like_mapping(like: Any, values: dict[Any, Any]) -> Any:
    """The values in a mapping of the same class, or a dict where that cannot be made."""
    try:
        if isinstance(like, MutableMapping):
            clone = copy.copy(like)  # keeps what the class has besides its items
            clone.update(values)
            return clone
        return type(like)(values)
    except TypeError:
        return values


def _like_sequence(like: Any, values: list[Any]) -> Any:
    """The values in a sequence of the same class; in a list for a tuple and where that cannot be
    made.
    """
    if isinstance(like, tuple):
        return values
    try:
        if isinstance(like, MutableSequence):
            clone = copy.copy(like)
            for i, value in enumerate(values):
                clone[i] = value
            return clone
        return type(like)(values)
    except TypeError:
        return values


def collate(
    batch: Sequence[Any], *, collate_fn_map: Mapping[Any, Callable[..., Any]] | None = None
) -> Any:
    """Samples made into a batch: leaves by the functions of a table, containers by collating what
    is at the same place.

    Args:
        batch: samples of one structure.
        collate_fn_map: ``{type or types: function(batch, *, collate_fn_map)}``; the type of the
            first sample decides, exactly if it is in the table, else the first entry of which it is
            an instance.

    Raises:
        TypeError: samples of a kind that is not in the table.
        RuntimeError: lists of different lengths.
    """
    first = batch[0]
    cls = type(first)
    table = {} if collate_fn_map is None else collate_fn_map
    function = table.get(cls) or next(
        (f for kinds, f in table.items() if isinstance(first, kinds)), None
    )
    if function is not None:
        return function(batch, collate_fn_map=collate_fn_map)
    if isinstance(first, Mapping):
        values = {
            key: collate([sample[key] for sample in batch], collate_fn_map=collate_fn_map)
            for key in first
        }
        return _like_mapping(first, values)
    if isinstance(first, tuple) and hasattr(first, "_fields"):
        fields = zip(*as_tuple(batch), strict=False)
        return cls(*(collate(column, collate_fn_map=collate_fn_map) for column in fields))
    if isinstance(first, Sequence):
        if any(len(sample) != len(first) for sample in batch):
            raise RuntimeError(
                "each element in list of batch should be of equal size, got lengths "
                f"{sorted({len(sample) for sample in batch})}"
            )
        columns = [
            collate(column, collate_fn_map=collate_fn_map)
            for column in zip(*as_tuple(batch), strict=True)
        ]
        return _like_sequence(first, columns)
    raise TypeError(_message(cls))


def _message(found: Any) -> str:
    return (
        f"default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; "
        f"found {found}"
    )


def _tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return stack(list(batch), 0)


def _arrays(batch: Any, *, collate_fn_map: Any = None) -> Any:
    if _is_text(batch[0]):
        raise TypeError(_message(batch[0].dtype))
    return collate([as_tensor(array) for array in batch], collate_fn_map=collate_fn_map)


def _scalars(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return as_tensor(np.array(batch))


def _floats(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return tensor(batch, dtype=float64)


def _integers(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return tensor(batch)


def _as_is(batch: Any, *, collate_fn_map: Any = None) -> Any:
    return batch


#: How :func:`default_collate` joins leaves, by type. Entries may be added.
default_collate_fn_map: dict[Any, Callable[..., Any]] = {
    Tensor: _tensors,
    np.ndarray: _arrays,
    (np.bool_, np.number, np.object_): _scalars,
    float: _floats,
    int: _integers,
    str: _as_is,
    bytes: _as_is,
}


def default_collate(batch: Sequence[Any]) -> Any:
    """Samples made into a batch: tensors and arrays are stacked, numbers become tensors (floats
    float64), text stays a list.
    """
    return collate(batch, collate_fn_map=default_collate_fn_map)
