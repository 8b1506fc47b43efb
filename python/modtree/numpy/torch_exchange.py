# SPDX-License-Identifier: BSD-3-Clause
"""One tensor between modtree and torch, over the same memory; imported when it is first needed."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from modtree import _C
from modtree.core.families import family_named, family_of
from modtree.core.family_conversions import converted_leaf
from modtree.numpy.tensor.parameter import Parameter
from modtree.numpy.tensor.tensor import Tensor

#: Unsigned integers of NumPy and torch, by size: the bytes of dtypes that only one of them has.
_PLAIN = {1: torch.uint8, 2: torch.uint16, 4: torch.uint32, 8: torch.uint64}
_STORED = {getattr(torch, name) for name in _C._stored_dtypes if hasattr(torch, name)}
_Parameter = torch.nn.Parameter


class ToTorch:
    """Converts tensors of one object: those that share memory share a storage."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[Any, Any]] = {}  # address -> (owner, its storage)

    def __call__(self, value: Any, place: str) -> Any:
        """A tensor of torch for one of another library; every other value as it is.

        Args:
            value: Anything.
            place: What to call it in errors.
        """
        kind = type(value)
        if not isinstance(value, _C.TensorBase):
            return _of_another_library(value, place)
        if kind is not Tensor and kind is not Parameter:
            raise TypeError(f"to_torch: {place} is {_odd(value)}")
        tensor = self._over_memory(value, place)
        if kind is Parameter:
            return _Parameter(tensor, bool(value.requires_grad))
        return tensor.requires_grad_(bool(value.requires_grad))

    def _over_memory(self, value: Any, place: str) -> Any:
        dtype = getattr(torch, value.dtype.name, None)
        if not isinstance(dtype, torch.dtype):
            raise TypeError(f"to_torch: {place} is of {value.dtype.name}, which this torch has not")
        shape, stride = tuple(value.shape), value.stride()
        if value.is_meta:
            return torch.empty_strided(shape, stride, dtype=dtype, device="meta")
        array = value._array
        if not array.size:
            return torch.empty_strided(shape, stride, dtype=dtype)
        _check_sharable(array, place)
        storage, start = self._storage(array)
        offset, rest = divmod(_address(array) - start, array.itemsize)
        if rest:  # of memory that holds numbers of several dtypes
            storage, offset = _bytes_of(array), 0
        return torch.empty(0, dtype=dtype).set_(storage, offset, shape, stride)

    def _storage(self, array: np.ndarray) -> tuple[Any, int]:
        """The storage over the memory that an array is a part of, and where it begins."""
        owner = array
        base: Any = array.base
        while base is not None:
            if isinstance(base, torch.Tensor):  # it came from torch
                storage = base.untyped_storage()
                return storage, storage.data_ptr()
            owner = base if isinstance(base, np.ndarray) else owner
            base = getattr(base, "base", None)
        if not (owner.flags.forc and owner.flags.writeable):
            return _bytes_of(array), _address(array)
        known = self._storages.get(id(owner))
        if known is None:
            known = self._storages[id(owner)] = owner, _bytes_of(owner)
        return known[1], _address(owner)


def _of_another_library(value: Any, place: str) -> Any:
    family = family_of(value)
    if family is None or family.name == "torch":
        return value
    return converted_leaf(
        value, family, family_named("torch"), bool(family.is_parameter(value)), f"to_torch: {place}"
    )


def _address(array: np.ndarray) -> int:
    return array.__array_interface__["data"][0]


def _bytes_of(array: np.ndarray) -> Any:
    """A storage over all memory from the first element of an array to the last."""
    reached = sum((n - 1) * s for n, s in zip(array.shape, array.strides, strict=True))
    first = array[(slice(0, 1),) * array.ndim].reshape(1).view(np.uint8)
    flat = np.lib.stride_tricks.as_strided(first, (reached + array.itemsize,), (1,))
    return torch.from_numpy(flat).untyped_storage()


def _check_sharable(array: np.ndarray, place: str) -> None:
    if not array.flags.writeable:
        raise ValueError(
            f"to_torch: {place} lies in memory that may not be written to, which torch has not: "
            f"clone() it"
        )
    if any(step < 0 or step % array.itemsize for step in array.strides):
        raise ValueError(
            f"to_torch: {place} has the strides {array.strides} in bytes, which torch has not: "
            f"clone() it"
        )


def _odd(value: Any) -> str:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    family = family_of(value)
    if family is not None and family.is_uninitialized(value):
        return f"a {kind}, which has no shape yet: call the model once"
    return f"a tensor of the class {kind}: pass a plain tensor"


def tensor_from_torch(value: Any, place: str) -> Any:
    """A tensor of modtree for one of torch; every other value as it is.

    Args:
        value: Anything.
        place: What to call it in errors.
    """
    if not isinstance(value, torch.Tensor):
        return value
    kind = type(value)
    if kind is not torch.Tensor and kind is not _Parameter:
        raise TypeError(f"from_torch: {place} is {_odd(value)}")
    _check_readable(value, place)
    requires_grad = bool(value.requires_grad)
    tensor = _of_torch(value.detach(), place)
    if kind is _Parameter:
        return Parameter(tensor, requires_grad)
    return tensor.requires_grad_(requires_grad) if requires_grad else tensor


def _check_readable(value: Any, place: str) -> None:
    wrong = None
    if value.layout is not torch.strided or value.is_nested:
        wrong = f"has the layout {value.layout}", "to_dense()"
    elif value.is_quantized:
        wrong = "is quantized", "dequantize()"
    elif value.device.type not in ("cpu", "meta"):
        wrong = f"lies on {value.device}", "cpu()"
    elif value.is_conj():
        wrong = "is only noted as conjugated", "resolve_conj()"
    elif value.is_neg():
        wrong = "is only noted as negated", "resolve_neg()"
    if wrong is not None:
        raise ValueError(
            f"from_torch: {place} {wrong[0]}, which cannot be shared with NumPy: pass what its "
            f"{wrong[1]} gives"
        )


def _of_torch(value: Any, place: str) -> Any:
    name = str(value.dtype).rpartition(".")[2]
    known = _C._dtypes.get(name) or _C._stored_dtypes.get(name)
    if known is None:
        raise TypeError(f"from_torch: {place} is of {value.dtype}, which modtree has not")
    if value.is_meta:
        return _C.empty_meta(tuple(value.shape), known)
    try:
        dtype: Any = known.dtype
    except TypeError as error:
        raise TypeError(f"from_torch: {place}: {error}") from None
    if value.dtype in _STORED:
        return _C.from_array(value.view(_PLAIN[value.element_size()]).numpy().view(dtype))
    return _C.from_array(value.numpy())
