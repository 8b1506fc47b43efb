# SPDX-License-Identifier: BSD-3-Clause
"""What the pickles of torch's tensors name and call, with torch: imported when a file names the
first of them.
"""

from __future__ import annotations

from typing import Any

import torch
from modtree.files.pickled.names import check_bools, make_size, set_attributes
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.torch.arrays import check_layout
from modtree.files.torch.leaf_storage import storage_in

__all__ = ["MAKERS", "NAMES"]

_DTYPES = {name: value for name, value in vars(torch).items() if isinstance(value, torch.dtype)}


class _Bytes:
    """The bytes of a storage, and what numbers they are."""

    def __init__(self, data: bytearray, dtype: torch.dtype) -> None:
        self.data = data
        self.dtype = dtype


def _bytes_of(data: Any) -> _Bytes:
    kind, numbers = storage_in(data)
    return _Bytes(numbers, _DTYPES[kind.dtype])


def _tensor_of(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    _hooks: Any = None,
    metadata: Any = None,
) -> Any:
    dtype = storage.dtype if type(storage) is _Bytes else None
    return _tensor_of_bytes(storage, offset, size, stride, requires_grad, None, dtype, metadata)


def _tensor_of_bytes(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    _hooks: Any = None,
    dtype: Any = None,
    metadata: Any = None,
) -> Any:
    if type(storage) is not _Bytes:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    _check_dtype(dtype)
    count = len(storage.data) // dtype.itemsize
    place = check_layout(count, dtype.itemsize, offset, size, stride, requires_grad)
    if dtype is torch.bool:
        check_bools(storage.data)
    used = memoryview(storage.data)[: count * dtype.itemsize]
    whole = torch.frombuffer(used, dtype=torch.uint8).view(dtype) if count else torch.empty(0)
    view = whole.to(dtype).as_strided(place.size, place.stride, place.offset)
    return _noted(view, metadata).requires_grad_(requires_grad)


def _noted(view: Any, metadata: Any) -> Any:
    """With what torch only notes: that it is to be read conjugated, or negated."""
    wanted = metadata if type(metadata) is dict else {}
    view = view.conj() if wanted.get("conj") is True else view
    return torch._neg_view(view) if wanted.get("neg") is True else view


def _parameter_of(data: Any, requires_grad: Any, _hooks: Any = None) -> Any:
    if type(data) is not torch.Tensor or type(requires_grad) is not bool:
        raise UnpicklingError("the file is damaged: a parameter that is not made of a tensor")
    return torch.nn.Parameter(data, requires_grad)


def _parameter_with_attributes(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    parameter = _parameter_of(data, requires_grad, hooks)
    set_attributes(parameter, state)
    return parameter


def _meta_tensor(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    _check_dtype(dtype)
    place = check_layout(1 << 62, dtype.itemsize, 0, size, stride, requires_grad)
    tensor = torch.empty_strided(place.size, place.stride, dtype=dtype, device="meta")
    return tensor.requires_grad_(requires_grad)


def _tensor_with_attributes(make: Any, kind: Any, arguments: Any, state: Any) -> Any:
    if make not in (_tensor_of, _tensor_of_bytes, _meta_tensor) or kind is not torch.Tensor:
        raise UnpicklingError(
            "Weights only load failed: the file contains a tensor of a class of its own; save it "
            "as a plain tensor (as_subclass(torch.Tensor))"
        )
    if type(arguments) is not tuple:
        raise UnpicklingError("the file is damaged: a call whose arguments are no tuple")
    tensor = make(*arguments)
    set_attributes(tensor, state)
    return tensor


def _size(sizes: Any = ()) -> Any:
    return torch.Size(make_size(sizes))


def _device(name: Any, index: Any = None) -> Any:
    if type(name) is not str or len(name) > 100 or type(index) not in (int, type(None)):
        raise UnpicklingError("the file is damaged: the name of a device")
    return torch.device(name) if index is None else torch.device(name, index)


def _check_dtype(dtype: Any) -> None:
    if type(dtype) is not torch.dtype:
        raise UnpicklingError("the file is damaged: a tensor without a dtype")


_REBUILDERS = {
    "_rebuild_tensor_v2": _tensor_of,
    "_rebuild_tensor_v3": _tensor_of_bytes,
    "_rebuild_parameter": _parameter_of,
    "_rebuild_parameter_with_state": _parameter_with_attributes,
    "_rebuild_meta_tensor_no_storage": _meta_tensor,
}
NAMES: dict[tuple[str, str], Any] = {
    **{("torch._utils", name): make for name, make in _REBUILDERS.items()},
    ("torch._tensor", "_rebuild_from_type_v2"): _tensor_with_attributes,
    ("torch.storage", "_load_from_bytes"): _bytes_of,
    ("torch", "Tensor"): torch.Tensor,
    ("torch", "Size"): _size,
    ("torch", "device"): _device,
    **{("torch", name): dtype for name, dtype in _DTYPES.items()},
}
MAKERS = {
    make: make
    for make in (*_REBUILDERS.values(), _tensor_with_attributes, _bytes_of, _size, _device)
}
