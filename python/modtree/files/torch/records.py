# SPDX-License-Identifier: BSD-3-Clause
"""Files of torch without their tensors: what the pickle says of each, while nothing of the storages
is read.
"""

from __future__ import annotations

import copy
import io
import math
from collections.abc import Iterator
from typing import Any

from modtree import _C
from modtree._strides import reach
from modtree._tensor.parameter import Parameter
from modtree._tensor.tensor import Tensor
from modtree.files.pickled.names import BUILDERS, MAKERS, NAMES, check_sizes, set_attributes
from modtree.files.pickled.unpickle import Unpickler, UnpicklingError
from modtree.files.torch import arrays as torch_names
from modtree.files.torch.archive import open_archive
from modtree.files.torch.arrays import Layout, check_layout
from modtree.files.torch.storages import BYTES, Record, Storages

__all__ = ["TensorRecord", "read_records", "records_in", "resolved"]


class TensorRecord:
    """A tensor of which only the place is known.

    Attributes:
        storage: Its storage; None on meta.
        dtype: Its dtype.
        place: Where in the storage it lies.
        requires_grad: Its flag.
        noted: What torch notes of it: {"conj": True} and the like, or None.
        is_parameter: Whether it is a parameter.
    """

    __slots__ = ("__dict__", "dtype", "is_parameter", "noted", "place", "requires_grad", "storage")

    def __init__(
        self, storage: Record | None, dtype: Any, place: Layout, requires_grad: bool, noted: Any
    ) -> None:
        self.storage = storage
        self.dtype = dtype
        self.place = place
        self.requires_grad = requires_grad
        self.noted = noted
        self.is_parameter = False

    @property
    def nbytes(self) -> int:
        """The bytes of its elements; none on meta."""
        return math.prod(self.place.size) * self.dtype.itemsize if self.storage else 0

    @property
    def reach(self) -> int:
        """The elements of its storage from the first to the last that it uses."""
        return reach(self.place.size, self.place.stride)

    @property
    def is_plain(self) -> bool:
        """Do its elements lie in the file one after the other, as they are?"""
        step = 1
        for n, stride in zip(reversed(self.place.size), reversed(self.place.stride), strict=True):
            if n != 1 and stride != step:
                return False
            step *= n
        return self.storage is not None and not self.noted

    def tensor(self, storages: Storages) -> Any:
        """The tensor itself, with its attributes."""
        if self.storage is None:
            tensor = _C.make_subclass(Tensor, _C.empty_meta(self.place.size, self.dtype), False)
        else:
            make: Any = torch_names.tensor_of
            extra: tuple[Any, ...] = ()
            if self.storage.kind is BYTES:
                make, extra = torch_names.tensor_of_bytes, (self.dtype,)
            memory = storages.memory(self.storage)
            tensor = make(memory, *self.place, False, None, *extra, self.noted)
        if self.is_parameter:
            tensor = Parameter(tensor, self.requires_grad)
        elif self.requires_grad:
            tensor.requires_grad_(True)
        vars(tensor).update(resolved(vars(self), storages, {}))
        return tensor

    def pieces(self, storages: Storages, size: int) -> Iterator[Any]:
        """The bytes of a plain one, at most ``size`` at once."""
        assert self.storage is not None
        at = self.place.offset * self.dtype.itemsize
        return storages.pieces(self.storage, at, self.nbytes, size)


def resolved(value: Any, storages: Storages, done: dict[int, Any]) -> Any:
    """A value with tensors in the place of their records.

    Args:
        value: What a file holds.
        storages: Those of the file.
        done: What became of containers and records before.
    """
    if id(value) in done:
        return done[id(value)]
    if type(value) is TensorRecord:
        result = value.tensor(storages)
    elif isinstance(value, dict):
        result = copy.copy(value)
        done[id(value)] = result
        for key, item in value.items():
            result[key] = resolved(item, storages, done)
    elif type(value) is list:
        result = done[id(value)] = []
        result.extend(resolved(item, storages, done) for item in value)
    elif type(value) is tuple:
        result = tuple([resolved(item, storages, done) for item in value])
    else:
        return value
    done[id(value)] = result
    return result


# -- what the pickle calls -------------------------------------------------------------------------


def _tensor_of(
    storage: Any,
    offset: Any,
    size: Any,
    stride: Any,
    requires_grad: Any,
    _hooks: Any = None,
    metadata: Any = None,
) -> Any:
    if type(storage) is not Record:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    kind = storage.kind
    dtype = _C._dtypes.get(kind.dtype) or _C._stored_dtypes[kind.dtype]
    return _record(storage, dtype, (offset, size, stride), requires_grad, metadata)


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
    if type(storage) is not Record or storage.kind is not BYTES:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    return _record(storage, _checked(dtype), (offset, size, stride), requires_grad, metadata)


def _record(
    storage: Record, dtype: Any, place: tuple[Any, Any, Any], requires_grad: Any, metadata: Any
) -> TensorRecord:
    count = storage.length * storage.kind.stored.itemsize // dtype.itemsize
    layout = check_layout(count, dtype.itemsize, *place, requires_grad)
    wanted = metadata if type(metadata) is dict else {}
    noted = {name: True for name in ("conj", "neg") if wanted.get(name) is True}
    return TensorRecord(storage, dtype, layout, requires_grad, noted or None)


def _checked(dtype: Any) -> Any:
    if type(dtype) is not _C.dtype:
        raise UnpicklingError("the file is damaged: a tensor without a dtype")
    return dtype


def _meta_tensor(dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
    if type(requires_grad) is not bool or type(stride) is not tuple:
        raise UnpicklingError("the file is damaged: a tensor without a dtype")
    check_sizes(size, _checked(dtype).itemsize)
    return TensorRecord(None, dtype, Layout(0, tuple(size), stride), requires_grad, None)


def _parameter_of(data: Any, requires_grad: Any, _hooks: Any = None, state: Any = None) -> Any:
    if type(data) is not TensorRecord or type(requires_grad) is not bool:
        raise UnpicklingError("the file is damaged: a parameter that is not made of a tensor")
    result = TensorRecord(data.storage, data.dtype, data.place, requires_grad, data.noted)
    result.is_parameter = True
    if state is not None:
        _set_state(result, state)
    return result


def _tensor_with_attributes(make: Any, kind: Any, arguments: Any, state: Any) -> Any:
    if make not in (_tensor_of, _tensor_of_bytes, _meta_tensor) or kind is not Tensor:
        raise UnpicklingError(
            "Weights only load failed: the file contains a tensor of a class of its own"
        )
    if type(arguments) is not tuple:
        raise UnpicklingError("the file is damaged: a call whose arguments are no tuple")
    result = make(*arguments)
    _set_state(result, state)
    return result


def _set_state(record: TensorRecord, state: Any) -> None:
    """What is no attribute of a tensor's class."""
    probe = _C.make_subclass(
        Parameter if record.is_parameter else Tensor, _C.empty_meta((), _C._dtypes["float32"])
    )
    set_attributes(probe, state)
    vars(record).update(state)


_REBUILDERS = {
    "_rebuild_tensor_v2": _tensor_of,
    "_rebuild_tensor_v3": _tensor_of_bytes,
    "_rebuild_parameter": _parameter_of,
    "_rebuild_parameter_with_state": _parameter_of,
    "_rebuild_meta_tensor_no_storage": _meta_tensor,
}
_NAMES = {
    **NAMES,
    **torch_names.NAMES,
    **{("torch._utils", name): make for name, make in _REBUILDERS.items()},
    ("torch._tensor", "_rebuild_from_type_v2"): _tensor_with_attributes,
}
_MAKERS = {
    **MAKERS,
    **torch_names.MAKERS,
    **{make: make for make in (*_REBUILDERS.values(), _tensor_with_attributes)},
}


def read_records(file: Any) -> tuple[Any, Storages]:
    """The object in a file of torch, with records in the place of tensors, and the storages that
    can make tensors of them, over a map of the file.

    Args:
        file: Open for reading bytes, on a disk. It stays open as long as tensors are made.

    Raises:
        UnpicklingError: The archive is damaged, or its pickle contains what is not allowed.
    """
    storages = Storages(open_archive(file, mapped=True))
    return records_in(io.BytesIO(storages.pickled), storages, {}), storages


def records_in(stream: Any, storages: Any, options: dict[str, Any]) -> Any:
    """The object of a pickle with records in the place of tensors.

    Args:
        stream: What to read.
        storages: Answers persistent ids by its ``record``.
        options: For the unpickler.

    Raises:
        UnpicklingError: The pickle is damaged, or contains what is not allowed.
    """
    return Unpickler(stream, _NAMES, _MAKERS, BUILDERS, storages.record, **options).load()
