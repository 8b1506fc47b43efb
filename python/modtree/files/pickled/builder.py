# SPDX-License-Identifier: BSD-3-Clause
"""What a reader makes of the tensors in a pickle: their records, or tensors of a library."""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np

from modtree import _C
from modtree.files.pickled.plain import require
from modtree.files.pickled.stand_in import StandIn
from modtree.files.torch.records import (
    DeviceRecord,
    SizeRecord,
    TensorRecord,
    UninitializedRecord,
    set_attributes_of_record,
)

__all__ = ["Builder", "RecordBuilder"]


class Builder(abc.ABC):
    """Makes the objects of a library. What comes is checked; the caller of a reader chooses which
    builder it has.

    Attributes:
        dtypes: The dtypes by torch's names; each has an ``itemsize``.
        classes: What the names of classes stand for: ``Tensor``, ``Parameter``, ``Buffer``,
            ``UninitializedParameter`` and ``UninitializedBuffer``.
        with_state: The types of what takes attributes.
    """

    dtypes: Mapping[str, Any]
    classes: Mapping[str, Any]
    with_state: tuple[Any, ...]

    @abc.abstractmethod
    def tensor(self, record: TensorRecord) -> Any:
        """The tensor of a record."""

    @abc.abstractmethod
    def is_tensor(self, value: Any) -> bool:
        """Did :meth:`tensor` make it, as a plain tensor?"""

    @abc.abstractmethod
    def parameter(self, tensor: Any, requires_grad: bool) -> Any:
        """A parameter over the memory of a tensor."""

    @abc.abstractmethod
    def set_attributes(self, target: Any, state: Any) -> None:
        """Gives a tensor attributes that its class does not define."""

    @abc.abstractmethod
    def uninitialized(self, kind: str, arguments: dict[str, Any]) -> Any:
        """A parameter or buffer without a shape."""

    @abc.abstractmethod
    def size(self, sizes: tuple[int, ...]) -> Any:
        """A size."""

    @abc.abstractmethod
    def device(self, name: str, index: int | None) -> Any:
        """A device."""

    def is_device(self, value: Any) -> bool:
        """Did :meth:`device` make it?"""
        return type(value) is type(self.device("cpu", None))

    def jax_array(self, array: np.ndarray) -> Any:
        """An array of jax of a dtype that tensors do not have."""
        text = f"array of {array.dtype.name} {list(array.shape)}"
        return StandIn("jax.Array", ()).described("jax.Array", text, {"values": array})

    def jax_key(self, algorithm: str, data: np.ndarray) -> Any:
        """An array of jax's keys of random numbers."""
        text = f"keys of {algorithm:.80} {list(data.shape[:-1])}"
        return StandIn("jax.random.key", ()).described("jax.random.key", text, {"data": data})


class ClassName:
    """Stands for a class of tensors that a file names."""

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"‹{self.__name__}›"


class RecordBuilder(Builder):
    """Leaves tensors in the file: no library is needed."""

    dtypes = {**_C._dtypes, **_C._stored_dtypes}
    classes = {
        name: ClassName(name)
        for name in (
            "Tensor",
            "Parameter",
            "Buffer",
            "UninitializedParameter",
            "UninitializedBuffer",
        )
    }
    with_state = (TensorRecord,)

    def tensor(self, record: TensorRecord) -> TensorRecord:
        return record

    def is_tensor(self, value: Any) -> bool:
        return type(value) is TensorRecord and not value.is_parameter

    def parameter(self, tensor: TensorRecord, requires_grad: bool) -> TensorRecord:
        return tensor.as_parameter(requires_grad)

    def set_attributes(self, target: TensorRecord, state: Any) -> None:
        set_attributes_of_record(target, state)

    def uninitialized(self, kind: str, arguments: dict[str, Any]) -> UninitializedRecord:
        return UninitializedRecord(kind, arguments)

    def size(self, sizes: tuple[int, ...]) -> SizeRecord:
        return SizeRecord(sizes)

    def device(self, name: str, index: int | None) -> DeviceRecord:
        kind, colon, number = name.partition(":")
        if colon:
            require(index is None and number.isdecimal() and len(number) < 10, "a device")
            index = int(number)
        return DeviceRecord(kind, index)
