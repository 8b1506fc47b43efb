# SPDX-License-Identifier: BSD-3-Clause
"""What a reader makes of the tensors in a pickle: their records, or tensors of a library; and the
names in the pickles of modtree's own tensors.
"""

from __future__ import annotations

import abc
from collections.abc import Mapping
from typing import Any

import numpy as np

from modtree import _C
from modtree.files.checkpoint.dtypes import DTYPES
from modtree.files.pickled.plain import (
    array_of_state,
    array_over,
    known_dtype,
    reconstruct,
    require,
)
from modtree.files.pickled.stand_in import in_words
from modtree.files.torch.records import (
    DeviceRecord,
    SizeRecord,
    TensorRecord,
    UninitializedRecord,
    check_gradient,
    check_layout,
    record_of_array,
    set_attributes_of_record,
)


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
        """Whether :meth:`tensor` made it, as a plain tensor."""

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

    def checked_size(self, sizes: Any = ()) -> Any:
        """The size that a file names."""
        require(type(sizes) is tuple and all(type(n) is int for n in sizes), "sizes")
        return self.size(sizes)

    def checked_device(self, name: Any, index: Any = None) -> Any:
        """The device that a file names."""
        require(type(name) is str and len(name) < 100, "the name of a device")
        require(index is None or type(index) is int, "the index of a device")
        return self.device(name, index)

    def is_device(self, value: Any) -> bool:
        """Whether :meth:`device` made it."""
        return type(value) is type(self.device("cpu", None))

    def jax_array(self, array: np.ndarray) -> Any:
        """An array of jax of a dtype that tensors do not have."""
        text = f"array of {array.dtype.name} {list(array.shape)}"
        return in_words("jax.Array", text, {"values": array})

    def jax_key(self, algorithm: str, data: np.ndarray) -> Any:
        """An array of jax's keys of random numbers."""
        text = f"keys of {algorithm:.80} {list(data.shape[:-1])}"
        return in_words("jax.random.key", text, {"data": data.tobytes()})


class ClassName:
    """Stands for a class of tensors that a file names."""

    __slots__ = ("__name__",)

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"‹{self.__name__}›"


class RecordBuilder(Builder):
    """Leaves tensors in the file: no library is needed."""

    dtypes = DTYPES
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


# -- the names of modtree's pickles ----------------------------------------------------------------

_PARAMETER = "modtree.numpy.tensor.parameter"
_TENSOR = "modtree.numpy.tensor.tensor"
_UNINITIALIZED = ("UninitializedBuffer", "UninitializedParameter")


class OwnNames:
    """The names in modtree's pickles.

    Args:
        builder: Makes the tensors.

    Attributes:
        names: (module, name) -> object.
        makers: Object -> function that checks its arguments.
        builders: What takes a state.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._classes = {id(kind): name for name, kind in builder.classes.items()}
        self.names: dict[tuple[str, str], Any] = {
            ("modtree", "device"): builder.checked_device,
            ("modtree.numpy.tensor.dtypes", "_dtype_by_name"): known_dtype,
            (_PARAMETER, "_rebuild_parameter"): self._parameter,
            (_PARAMETER, "_parameter_of_bytes"): self._parameter_of_bytes,
            ("modtree.numpy.tensor.uninitialized", "_rebuild_uninitialized"): self._uninitialized,
            ("modtree", "Size"): builder.checked_size,
            (_TENSOR, "_rebuild"): self._tensor,
            (_TENSOR, "_rebuild_meta"): self._meta_tensor,
            ("jax._src.array", "_reconstruct_array"): self._jax_array,
            ("modtree.jax_arrays.family", "_rebuild"): self._jax_parameter,
            ("modtree.jax_arrays.family", "_rebuild_key"): self._jax_key,
            ("modtree.jax_arrays.family", "_rebuild_shape"): self._jax_shape,
            ("modtree.jax_arrays.family", "ParameterShape"): self._jax_parameter_shape,
        }
        self.makers = {value: value for value in self.names.values()}
        for name, kind in builder.classes.items():
            home = "modtree" if name == "Tensor" else "modtree.nn.parameter"
            self.names[home, name] = kind
        self.builders = dict.fromkeys(builder.with_state, builder.set_attributes)

    def _kind(self, kind: Any, *expected: str) -> str:
        name = self._classes.get(id(kind), "")
        require(name in expected, "a class that is no class of tensors")
        return name

    def _tensor(self, kind: Any, array: Any, requires_grad: Any) -> Any:
        is_parameter = self._kind(kind, "Tensor", "Parameter") == "Parameter"
        require(type(requires_grad) is bool, "requires_grad is no bool")
        require(type(array) is np.ndarray, "a tensor that is not made of an array")
        # An array over bytes never changes.
        own = array if array.flags.writeable else array.copy(order="K")
        record = record_of_array(own, requires_grad)
        record.is_parameter = is_parameter
        return self._builder.tensor(record)

    def _meta_tensor(self, kind: Any, sizes: Any, dtype: Any, requires_grad: Any) -> Any:
        is_parameter = self._kind(kind, "Tensor", "Parameter") == "Parameter"
        require(isinstance(dtype, _C.dtype), "a tensor without a dtype")
        strides = (0,) * len(sizes) if isinstance(sizes, tuple) else None
        place = check_layout(1, dtype.itemsize, 0, sizes, strides, requires_grad)
        check_gradient(dtype, requires_grad)
        record = TensorRecord(None, dtype, place, requires_grad)
        record.is_parameter = is_parameter
        return self._builder.tensor(record)

    def _parameter(self, data: Any, requires_grad: Any) -> Any:
        require(self._builder.is_tensor(data), "a class that is no class of tensors")
        require(type(requires_grad) is bool, "requires_grad is no bool")
        check_gradient(data.dtype, requires_grad)
        return self._builder.parameter(data, requires_grad)

    def _jax_array(self, function: Any, arguments: Any, state: Any, of_type: Any) -> Any:
        """An array of jax, whose pickles have a NumPy array in pieces."""
        require(
            function is reconstruct and type(arguments) is tuple, "the start of an array of jax"
        )
        reconstruct(*arguments)
        require(type(of_type) is dict, "the type of an array of jax")
        array = array_of_state(state)
        if array.dtype.name in DTYPES:
            return self._builder.tensor(record_of_array(array, False))
        require(array.dtype.kind == "V", "the dtype of an array of jax")
        return self._builder.jax_array(array)

    def _jax_key(self, algorithm: Any, data: Any, marks: Any) -> Any:
        require(type(algorithm) is str and type(data) is np.ndarray, "a key of jax")
        require(type(marks) is dict, "the marks of a key of jax")
        return self._builder.jax_key(algorithm, data)

    def _jax_shape(self, shape: Any, dtype: Any) -> Any:
        return self._jax_meta(shape, dtype, False, "Tensor")

    def _jax_parameter_shape(self, shape: Any, dtype: Any, requires_grad: Any) -> Any:
        return self._jax_meta(shape, dtype, requires_grad, "Parameter")

    def _jax_meta(self, shape: Any, dtype: Any, requires_grad: Any, kind: str) -> Any:
        require(isinstance(dtype, np.dtype), "a shape of jax without a dtype")
        known = known_dtype(dtype.name)
        return self._meta_tensor(self._builder.classes[kind], shape, known, requires_grad)

    def _jax_parameter(self, marks: Any, function: Any, arguments: Any) -> Any:
        require(function == self._jax_array and type(arguments) is tuple, "a parameter of jax")
        require(type(marks) is dict, "the marks of a parameter of jax")
        return self._parameter(self._jax_array(*arguments), marks.get("requires_grad"))

    def _parameter_of_bytes(self, data: Any, dtype: Any, shape: Any, requires_grad: Any) -> Any:
        array = array_over(data, known_dtype(dtype).dtype, shape, "C")
        return self._tensor(self._builder.classes["Parameter"], array, requires_grad)

    def _uninitialized(self, kind: Any, arguments: Any) -> Any:
        require(type(arguments) is dict, "arguments of a class without a shape")
        name = self._kind(kind, *_UNINITIALIZED)
        for argument, value in arguments.items():
            fits = {
                "requires_grad": type(value) is bool,
                "device": self._builder.is_device(value),
                "dtype": isinstance(value, _C.dtype),
                "persistent": type(value) is bool and name == "UninitializedBuffer",
            }
            require(fits.get(argument), "an argument of a class without a shape")
        return self._builder.uninitialized(name, arguments)
