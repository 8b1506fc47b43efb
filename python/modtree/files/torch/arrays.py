# SPDX-License-Identifier: BSD-3-Clause
"""What the pickles in torch's files name and call, and the functions that make tensors of their
arguments after checking them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from modtree import _C
from modtree._strides import reach
from modtree._tensor.parameter import Parameter
from modtree._tensor.tensor import Size, Tensor, _rebuild_meta
from modtree.files.pickled.names import check_bools, check_sizes, make_device, set_attributes
from modtree.files.pickled.unpickle import UnpicklingError
from modtree.files.torch.storages import BYTES, STORAGES, Memory

__all__ = ["MAKERS", "NAMES", "Layout", "check_layout", "tensor_of", "tensor_of_bytes"]

#: NumPy's number for the first dtype of another package: those have no buffers.
_FIRST_OF_OTHERS = 256


class Layout(NamedTuple):
    """Where in a storage a tensor lies, in elements."""

    offset: int
    size: tuple[int, ...]
    stride: tuple[int, ...]


def check_layout(
    count: int, itemsize: int, offset: Any, size: Any, stride: Any, requires_grad: Any
) -> Layout:
    """The place of a tensor, which lies in its storage.

    Args:
        count: The values of the storage.
        itemsize: The bytes of each.
        offset: The first element.
        size: The sizes of the dimensions.
        stride: Elements from one index to the next, for each dimension.
        requires_grad: Checked as well.

    Raises:
        UnpicklingError: It does not, or an argument is of another type.
    """
    if type(requires_grad) is not bool:
        raise UnpicklingError("the file is damaged: requires_grad is no bool")
    check_sizes(size, itemsize)
    numbers = (offset, *stride) if type(stride) is tuple else (None,)
    if len(numbers) != len(size) + 1 or not all(type(n) is int for n in numbers):
        raise UnpicklingError("the file is damaged: the strides of a tensor")
    if min(numbers) < 0 or offset + reach(size, stride) > count:
        raise UnpicklingError(
            f"a tensor of size {tuple(size)} and strides {tuple(stride)} at {offset} does not "
            f"fit the {count} values it is to be made of"
        )
    return Layout(offset, tuple(size), stride)


def tensor_of(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    _hooks: Any = None,
    metadata: Any = None,
) -> Any:
    """Of a storage of numbers: the arguments of torch's ``_rebuild_tensor_v2``."""
    if type(storage) is not Memory:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    check_layout(storage.size, storage.itemsize, offset, size, stride, requires_grad)
    # Where there is no step, its length means nothing, but NumPy computes with it.
    steps = [
        s * storage.itemsize if 0 not in size and (n > 1 or s <= storage.size) else 0
        for n, s in zip(size, stride, strict=True)
    ]
    view = _view(storage.view(np.ndarray), offset, size, steps)
    return _C.from_array(_resolved(view, metadata, storage), requires_grad)


def _view(flat: np.ndarray, offset: int, size: Any, steps: list[int]) -> np.ndarray:
    """A view that knows whose memory it is; NumPy checks once more that it fits."""
    plain: Any = flat.view(f"u{flat.itemsize}") if flat.dtype.num >= _FIRST_OF_OTHERS else flat
    view: np.ndarray = np.ndarray(size, plain.dtype, plain, offset * flat.itemsize, steps)
    return view.view(flat.dtype)


def tensor_of_bytes(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    _hooks: Any = None,
    dtype: Any = None,
    metadata: Any = None,
) -> Any:
    """Of a storage of bytes, for dtypes that have no storage of their own."""
    if type(storage) is not Memory or storage.dtype != np.uint8:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    if type(dtype) is not _C.dtype:
        raise UnpicklingError("the file is damaged: a tensor without a dtype")
    try:
        kind = dtype.dtype
    except TypeError as error:
        raise UnpicklingError(f"the file contains numbers of {dtype.name}: {error}") from None
    copies_left = storage.copies_left
    if kind.kind == "b":
        if storage.is_mapped:  # NumPy relies on what a bool is, and a file may change
            storage.copies_left = copies_left = copies_left - storage.size
            if copies_left < 0:
                raise UnpicklingError("the file has too many tensors of bools in one storage")
            swapped, storage = storage.is_swapped, storage.copy()
            storage.is_swapped = swapped
        check_bools(storage.view(np.ndarray).data)
    if kind.itemsize > 1 and storage.is_swapped:
        raise UnpicklingError(f"the file has numbers of {dtype} in another byte order")
    typed: Any = storage[: storage.size // kind.itemsize * kind.itemsize].view(kind)
    typed.copies_left = copies_left
    return tensor_of(typed, offset, size, stride, requires_grad, _hooks, metadata)


def _resolved(view: np.ndarray, metadata: Any, storage: Memory) -> np.ndarray:
    """Carries out what torch only notes: that a tensor is to be read conjugated, or negated."""
    wanted = metadata if type(metadata) is dict else {}
    if not (wanted.get("conj") is True or wanted.get("neg") is True):
        return view
    storage.copies_left -= view.size
    if storage.copies_left < 0:
        raise UnpicklingError("the file has too many conjugated tensors of one storage")
    view = view.conj() if wanted.get("conj") is True else view
    return np.negative(view) if wanted.get("neg") is True else view


def _parameter_of(data: Any, requires_grad: Any, _hooks: Any = None) -> Any:
    if type(data) is not Tensor or type(requires_grad) is not bool:
        raise UnpicklingError("the file is damaged: a parameter that is not made of a tensor")
    return Parameter(data, requires_grad)


def _parameter_with_attributes(data: Any, requires_grad: Any, hooks: Any, state: Any) -> Any:
    parameter = _parameter_of(data, requires_grad, hooks)
    set_attributes(parameter, state)
    return parameter


def _meta_tensor(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    if type(dtype) is not _C.dtype or type(requires_grad) is not bool:
        raise UnpicklingError("the file is damaged: a tensor without a dtype")
    check_sizes(size, dtype.itemsize)
    return _rebuild_meta(Tensor, size, dtype, requires_grad)


def _tensor_with_attributes(make: Any, kind: Any, arguments: Any, state: Any) -> Any:
    if make not in (tensor_of, tensor_of_bytes, _meta_tensor) or kind is not Tensor:
        raise UnpicklingError(
            "Weights only load failed: the file contains a tensor of a class of its own; save it "
            "as a plain tensor (as_subclass(torch.Tensor))"
        )
    if type(arguments) is not tuple:
        raise UnpicklingError("the file is damaged: a call whose arguments are no tuple")
    tensor = make(*arguments)
    set_attributes(tensor, state)
    return tensor


_REBUILDERS = {
    "_rebuild_tensor_v2": tensor_of,
    "_rebuild_tensor_v3": tensor_of_bytes,
    "_rebuild_parameter": _parameter_of,
    "_rebuild_parameter_with_state": _parameter_with_attributes,
    "_rebuild_meta_tensor_no_storage": _meta_tensor,
}
MAKERS = {make: make for make in (*_REBUILDERS.values(), _tensor_with_attributes, make_device)}
NAMES: dict[tuple[str, str], Any] = {
    **{("torch._utils", name): make for name, make in _REBUILDERS.items()},
    ("torch._tensor", "_rebuild_from_type_v2"): _tensor_with_attributes,
    ("torch", "Tensor"): Tensor,
    ("torch.storage", "UntypedStorage"): BYTES,
    ("torch", "Size"): Size,
    ("torch", "device"): make_device,
    **{("torch", name): storage for name, storage in STORAGES.items()},
    **{("torch", name): dtype for name, dtype in _C._dtypes.items()},
    **{("torch", name): dtype for name, dtype in _C._stored_dtypes.items()},
}
