# SPDX-License-Identifier: BSD-3-Clause
"""The entries of a state dict as files take them: tensors as bytes, what shares memory once."""

from __future__ import annotations

import math
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from modtree._checkpoint.base import CheckpointError, View, bytes_of, shortened
from modtree._checkpoint.dtypes import BY_NAME, FileDtype
from modtree._checkpoint.record import Record
from modtree._module.parameter import Parameter
from modtree._tensor.tensor import Tensor
from modtree.families import family_of

__all__ = ["Leaf", "leaves_of"]

#: Types with nothing to find out about.
_PLAIN = (Tensor, Parameter)


@dataclass(eq=False)
class Leaf:
    """A tensor to be written.

    Attributes:
        dtype: Its dtype in the file.
        shape: Its shape.
        source: An array of its values or of their bits, or a tensor of a library that has them on
            another device.
        memory: Equal for tensors with the same elements of the same memory.
    """

    dtype: FileDtype
    shape: tuple[int, ...]
    source: Any
    memory: Any

    @property
    def nbytes(self) -> int:
        return math.prod(self.shape) * self.dtype.bits // 8

    def data(self) -> memoryview:
        """The bytes as a file has them; a copy only where the elements are not in that order."""
        array = self.source if isinstance(self.source, np.ndarray) else _bits(self.source.cpu())
        if array.dtype.byteorder == ">" or (sys.byteorder == "big" and array.dtype.isnative):
            array = array.byteswap()
        return bytes_of(array)


def leaves_of(state: Mapping[str, Any], path: str) -> tuple[dict[str, Leaf], Record]:
    """The tensors of a state dict that a file has to hold, and what else it holds.

    Args:
        state: The state dict.
        path: Of the file to be written, for errors.

    Raises:
        CheckpointError: An entry cannot be written.
    """
    leaves: dict[str, Leaf] = {}
    record = Record(versions=getattr(state, "_metadata", None))
    for place, (key, value) in enumerate(state.items()):
        if type(key) is not str:
            raise CheckpointError(f"keys must be str, got {shortened(key)}", path)
        leaf = _leaf(value, key, path)
        if leaf is None:
            record.values[key] = value
            record.places[key] = place
        else:
            leaves[key] = leaf
    order = {key: place for place, key in enumerate(state)} if leaves else {}
    _find_ties(leaves, record)
    _find_views(leaves, record)
    for key in (*record.ties, *record.views):
        record.places[key] = order[key]
    return leaves, record


def _leaf(value: Any, key: str, path: str) -> Leaf | None:
    if type(value) in _PLAIN:
        name, source = value.dtype.name, None if value.is_meta else value._array
    elif isinstance(value, np.ndarray):
        name, source = value.dtype.name, value
    else:
        family = family_of(value)
        if family is None:
            return None
        if family.is_uninitialized(value):
            raise CheckpointError("the parameter is not initialized: run the model once", path, key)
        name = family.dtype_name(value)
        source = None if family.is_meta(value) else _source(value, family, key, path)
    if source is None:
        raise CheckpointError(
            "the tensor is on the meta device and has no values: give it some first, with "
            "to_empty() or load_state_dict(assign=True)",
            path,
            key,
        )
    dtype = BY_NAME.get(name)
    if dtype is None or dtype.bits < 8:
        raise CheckpointError(
            f"safetensors files have no {name}: convert the tensor, or write with modtree.save()",
            path,
            key,
        )
    memory: Any = id(source)
    if isinstance(source, np.ndarray):
        memory = (source.__array_interface__["data"][0], source.shape, source.strides, name)
    elif hasattr(source, "data_ptr"):
        memory = (str(source.device), source.data_ptr(), source.shape, source.stride(), name)
    return Leaf(dtype, tuple(source.shape), source, memory)


def _source(value: Any, family: Any, key: str, path: str) -> Any:
    """The bits of a tensor of torch, or the tensor where they are on another device; the array of
    a tensor of another library.
    """
    if family.name != "torch":
        return np.asarray(family.to_numpy(value))
    value = value.detach()
    if value.layout is not sys.modules["torch"].strided or value.is_quantized:
        raise CheckpointError(
            f"safetensors files have dense tensors only, and this is one of {value.layout} and "
            f"{value.dtype}: convert it with .to_dense() or .dequantize()",
            path,
            key,
        )
    value = value.resolve_conj().resolve_neg()
    try:
        return _bits(value) if value.is_cpu else value
    except (RuntimeError, TypeError, NotImplementedError, KeyError) as error:
        raise CheckpointError(
            f"the values of the {type(value).__name__} cannot be reached: {error}", path, key
        ) from error


def _bits(value: Any) -> np.ndarray:
    """A tensor of torch in main memory as an array; as integers of the size of its elements where
    NumPy has no such dtype.
    """
    try:
        return value.numpy()
    except TypeError:
        torch = sys.modules["torch"]
        return value.view({1: torch.uint8, 2: torch.int16}[value.element_size()]).numpy()


# -- what shares memory ----------------------------------------------------------------------------


def _find_ties(leaves: dict[str, Leaf], record: Record) -> None:
    """Leaves one key of each group with the same elements: the first in the order of their names,
    the choice of ``safetensors.torch``.
    """
    keys: dict[Any, list[str]] = defaultdict(list)
    for key, leaf in leaves.items():
        if leaf.nbytes:
            keys[leaf.memory].append(key)
    for group in keys.values():
        if len(group) > 1:
            kept = min(group)
            for key in group:
                if key != kept:
                    record.ties[key] = kept
                    del leaves[key]


def _find_views(leaves: dict[str, Leaf], record: Record) -> None:
    """Takes out tensors that lie in the memory of another one that is written as a whole."""
    spans = []
    for key, leaf in leaves.items():
        if isinstance(leaf.source, np.ndarray) and leaf.nbytes:
            spans.append((*np.lib.array_utils.byte_bounds(leaf.source), key))
    spans.sort(key=lambda s: (s[0], -s[1], not leaves[s[2]].source.flags.c_contiguous))
    whole: tuple[int, int, str] | None = None
    for span in spans:
        begin, end, key = span
        if whole is None or begin >= whole[1]:
            whole = span if leaves[key].source.flags.c_contiguous else None
            continue
        view = _view(whole[2], leaves[whole[2]], leaves[key]) if end <= whole[1] else None
        if view is not None:
            record.views[key] = view
            del leaves[key]


def _view(of: str, whole: Leaf, part: Leaf) -> View | None:
    size = whole.source.itemsize
    own, other = (leaf.source.__array_interface__["data"][0] for leaf in (whole, part))
    steps = (other - own, *part.source.strides)
    if part.dtype is not whole.dtype or any(step < 0 or step % size for step in steps):
        return None
    if part.source.size > whole.source.size:  # an expanded one
        return None
    return View(of, part.shape, tuple(step // size for step in steps[1:]), steps[0] // size)
