# SPDX-License-Identifier: BSD-3-Clause
"""The tensors of modtree that records are made into."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from modtree import _C
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.pickled.builder import Builder
from modtree.files.pickled.plain import set_attributes
from modtree.files.pickled.unpickle import Refused, UnpicklingError
from modtree.files.torch.records import (
    ARRAY,
    DeviceRecord,
    SizeRecord,
    TensorRecord,
    UninitializedRecord,
    replaced,
)
from modtree.numpy.tensor.devices import as_device, device
from modtree.numpy.tensor.parameter import Buffer, Parameter
from modtree.numpy.tensor.tensor import Size, Tensor
from modtree.numpy.tensor.uninitialized import UninitializedBuffer, UninitializedParameter


class TensorBuilder(Builder):
    """Makes tensors of modtree.

    Args:
        storages: Give the memory of those that are not arrays already.
    """

    dtypes = DTYPES
    classes = {
        "Tensor": Tensor,
        "Parameter": Parameter,
        "Buffer": Buffer,
        "UninitializedBuffer": UninitializedBuffer,
        "UninitializedParameter": UninitializedParameter,
    }
    with_state = (Tensor, Parameter, UninitializedBuffer, UninitializedParameter)

    def __init__(self, storages: Any = None) -> None:
        self._storages = storages

    def tensor(self, record: TensorRecord) -> Any:
        if record.source is None:
            made = _C.make_subclass(Tensor, _C.empty_meta(record.shape, record.dtype), False)
        else:
            made = _C.from_array(record.array(self._storages))
        if record.is_parameter:
            return Parameter(made, record.requires_grad)
        return made.requires_grad_(True) if record.requires_grad else made

    def is_tensor(self, value: Any) -> bool:
        return type(value) is Tensor

    def parameter(self, tensor: Any, requires_grad: bool) -> Any:
        return Parameter(tensor, requires_grad)

    def set_attributes(self, target: Any, state: Any) -> None:
        set_attributes(target, state)

    def uninitialized(self, kind: str, arguments: dict[str, Any]) -> Any:
        return self.classes[kind](**arguments)

    def size(self, sizes: tuple[int, ...]) -> Any:
        return Size(sizes)

    def device(self, name: str, index: int | None) -> Any:
        try:
            return as_device(name if index is None else f"{name}:{index}")
        except RuntimeError as error:
            raise Refused(f"the file contains the device {name!r}: {error}") from None

    def is_device(self, value: Any) -> bool:
        return isinstance(value, device)

    def jax_array(self, array: np.ndarray) -> Any:
        return _made_by_jax("array_of_numpy", array)

    def jax_key(self, algorithm: str, data: np.ndarray) -> Any:
        return _made_by_jax("key_of", algorithm, data)


def _made_by_jax(name: str, *arguments: Any) -> Any:
    """What a function makes that is imported when a file holds the first such value."""
    try:
        make = getattr(importlib.import_module("modtree.jax_arrays.family"), name)
    except ImportError:
        raise Refused("the file contains arrays of jax, which is not installed") from None
    try:
        return make(*arguments)
    except (TypeError, ValueError) as error:
        raise UnpicklingError(f"the file is damaged: an array of jax: {error}") from None


def with_tensors(value: Any, storages: Any) -> Any:
    """A value of a file with tensors, sizes and devices in the place of their records.

    Args:
        value: The value.
        storages: Those of the file.
    """
    builder = TensorBuilder(storages)
    done: dict[int, Any] = {}

    def made(record: Any) -> Any:
        if type(record) is SizeRecord:
            return Size(record)
        if type(record) is DeviceRecord:
            try:
                return builder.device(record.type, record.index)
            except Refused:  # one that only torch has
                return record
        if type(record) is UninitializedRecord:
            arguments = {key: replaced(v, made, done) for key, v in record.arguments.items()}
            return builder.uninitialized(record.kind, arguments)
        if record.kind == ARRAY:
            return record.array(storages)
        tensor = builder.tensor(record)
        if record.attributes:
            set_attributes(tensor, replaced(record.attributes, made, done))
        return tensor

    return replaced(value, made, done)
