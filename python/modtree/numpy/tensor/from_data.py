# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of given values: tensor, as_tensor, asarray, from_numpy, frombuffer, complex."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree import _C
from modtree._C import as_dtype, from_array, own_array
from modtree.core.families import family_of
from modtree.core.type_names import no_tensor
from modtree.numpy.ops.out import write
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor.creation import numpy_dtype, scalar_dtype
from modtree.numpy.tensor.devices import contexts, device_in_force
from modtree.numpy.tensor.factory_arguments import checked

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Device, DType, Tensor

__all__ = [
    "as_tensor",
    "asarray",
    "complex",
    "from_dlpack",
    "from_numpy",
    "frombuffer",
    "tensor",
]


def _plain(data: Any) -> Any:
    """Nested sequences with tensors in them, as nested sequences of arrays."""
    if isinstance(data, _C.TensorBase):
        return data._array
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return data


def _first_scalar(data: Any) -> Any:
    while isinstance(data, (list, tuple)):
        if not data:
            return None
        data = data[0]
    return data


def _array_of(data: Any, dtype: Any, copy: bool) -> Any:
    """An array of the data; Python floats become the default dtype and ints int64."""
    if isinstance(data, _C.TensorBase):
        if data.is_meta:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        array = data._array
    elif isinstance(data, np.ndarray):
        array = np.asarray(data)  # a subclass might copy in a way of its own
    elif isinstance(data, np.generic):
        array = np.asarray(data)
    else:
        foreign = _foreign_array(data)
        if foreign is None:
            return _array_of_python(data, dtype)
        array = foreign
    if dtype is not None:
        array = array.astype(as_dtype(dtype).dtype, copy=copy)
    elif copy:
        array = array.copy()
    return array


def _foreign_array(data: Any) -> Any:
    """The values of a tensor of another library, or of anything that speaks NumPy's array
    protocols.
    """
    if isinstance(data, (int, float, builtins.complex, list, tuple, str, bytes)):
        return None
    family = family_of(data)
    if family is not None:
        return np.asarray(family.to_numpy(data))
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return np.asarray(data)
    if isinstance(data, (memoryview, bytearray)) or type(data).__module__ == "array":
        return np.asarray(data)
    return None


def _in_dtype(array: Any, dtype: Any) -> Any:
    """Python's numbers in a dtype of integers must lie in its range; real dtypes take no complex
    ones.
    """
    kind = array.dtype.kind
    if kind == "O" and dtype.kind not in "fc":
        raise ValueError("Overflow when unpacking long long: an int of the data is too large")
    if kind == "c" and dtype.kind not in "cb":
        raise TypeError(f"must be real number, not complex: a tensor of {dtype} was asked for")
    if kind in "iuf" and dtype.kind in "iu" and array.size:
        least, most = array.min(), array.max()
        limits = np.iinfo(dtype)
        lowest = -int(limits.max) if kind == "i" and dtype.kind == "u" else int(limits.min)
        if not (np.isfinite(least) and np.isfinite(most)) or not (
            lowest <= int(least) and int(most) <= limits.max
        ):
            raise RuntimeError(
                f"value cannot be converted to type {dtype} without overflow: the data reach from "
                f"{least} to {most}"
            )
        if kind == "f" and dtype.kind == "u" and least < 0:
            raise RuntimeError(
                f"value cannot be converted to type {dtype} without overflow: got {least}"
            )
    return array.astype(dtype, copy=False)


def _array_of_python(data: Any, dtype: Any) -> Any:
    if data is None:
        raise RuntimeError("Could not infer dtype of NoneType")
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, (int, float, builtins.complex)):
        if dtype is None and (
            type(data) is float or (type(data) is int and data.bit_length() < 63)
        ):
            return np.array(data, numpy_dtype(scalar_dtype(data)))  # which has room for it
        return _in_dtype(
            np.array(data), numpy_dtype(scalar_dtype(data) if dtype is None else dtype)
        )
    if not isinstance(data, (list, tuple)):
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
        data = list(data)
    data = _plain(data)
    try:
        array = np.array(data)
    except ValueError as error:
        raise ValueError(f"expected sequences of equal length: {error}") from None
    if array.dtype.kind not in "biufc":
        bad = _first_scalar(data)
        if isinstance(bad, int):
            if dtype is not None and numpy_dtype(dtype).kind in "fc":
                return array.astype(numpy_dtype(dtype))
            raise ValueError("Overflow when unpacking long long: an int of the data is too large")
        if isinstance(bad, str) or array.dtype.kind in "US":
            raise ValueError("too many dimensions 'str'")
        raise TypeError(f"cannot make a tensor of {type(bad).__name__} values")
    if dtype is not None:
        return _in_dtype(array, as_dtype(dtype).dtype)
    if array.size == 0:
        return array.astype(numpy_dtype(None))
    if array.dtype == np.float64 and not isinstance(_first_scalar(data), (np.generic, np.ndarray)):
        return array.astype(numpy_dtype(None))
    if array.dtype == np.complex128 and not isinstance(
        _first_scalar(data), (np.generic, np.ndarray)
    ):
        return array.astype(numpy_dtype(scalar_dtype(1j)))
    return array


@checked("data", "dtype", "device", "requires_grad", "pin_memory", or_none=False)
def tensor(
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A new tensor with a copy of the data: numbers, nested sequences, arrays, tensors.

    Args:
        data: The data.
        dtype: The dtype; that of the data without, the default one for Python's floats.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    if device is None and contexts:
        device = device_in_force()
    if isinstance(data, _C.TensorBase) and data.is_meta:
        result = data.detach()._convert(dtype, device, True)
    else:
        result = own_array(_array_of(data, dtype, copy=True))
        if device is not None:
            result = result._convert(None, device, False)
    return result.requires_grad_(True) if requires_grad else result


def as_tensor(data: Any, dtype: DType | None = None, device: Device | None = None) -> Tensor:
    """A tensor of the data that shares memory where that is possible.

    Args:
        data: Numbers, nested sequences, an array or a tensor.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
    """
    if device is None and contexts:
        device = device_in_force()
    if isinstance(data, _C.TensorBase):
        return data._convert(dtype, device, False)
    result = from_array(_array_of(data, dtype, copy=False))
    return result if device is None else result._convert(None, device, False)


@checked("obj", "dtype", "device", "copy", "requires_grad")
def asarray(
    obj: Any,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """as_tensor(), or a copy with copy=True.

    Args:
        obj: Numbers, nested sequences, an array or a tensor.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        copy: True for a copy in any case, False for an error where one is needed.
        requires_grad: Record operations on the result.
    """
    result = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    return result.requires_grad_(True) if requires_grad else result


def from_numpy(array: np.ndarray) -> Tensor:
    """A tensor over the memory of an array."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {no_tensor(array)})")
    if builtins.min(array.strides, default=0) < 0:
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not currently supported. (You can probably work around this by making a "
            "copy of your array  with array.copy().)"
        )
    return from_array(array)


def complex(real: Tensor, imag: Tensor, *, out: Tensor | None = None) -> Tensor:  # noqa: A001
    """A complex tensor of its two parts.

    Args:
        real: The real part.
        imag: The imaginary part.
        out: A tensor that the result is written into.
    """
    result = ops["complex"](real, imag)
    return result if out is None else write("complex", "same", result, out)


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A tensor over the memory of a buffer, such as bytearray or array.array.

    Args:
        buffer: An object with the buffer protocol.
        dtype: How to read its bytes.
        count: Number of elements; all with -1.
        offset: Bytes to leave out at its start.
        requires_grad: Record operations on the result.
    """
    array = np.frombuffer(buffer, numpy_dtype(dtype), count, offset)
    return from_numpy(array).requires_grad_(requires_grad)


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor over the memory of an array of another library, by DLPack."""
    return from_numpy(np.from_dlpack(ext_tensor))
