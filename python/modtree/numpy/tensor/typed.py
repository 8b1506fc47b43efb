# SPDX-License-Identifier: BSD-3-Clause
"""``FloatTensor``, ``LongTensor``, ...: constructors by dtype, from before factories took
``dtype=``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from modtree import _C
from modtree.numpy.tensor import creation, from_data

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Device, Tensor

_NAMES = {dtype._type_name: dtype for dtype in _C._dtypes.values()}


def type_name(tensor: Any) -> str:
    """The name of the type of a tensor, such as ``"modtree.FloatTensor"``."""
    place = "modtree.meta" if tensor.is_meta else "modtree"
    return f"{place}.{tensor.dtype._type_name}"


class Typed(type):
    """``isinstance(t, FloatTensor)``: a tensor of that dtype."""

    dtype: Any

    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, _C.TensorBase) and instance.dtype == cls.dtype


def _typed(name: str, dtype: Any) -> type:
    def make(cls: Any, *args: Any) -> Any:
        return new(creation.empty(0, dtype=dtype, device="cpu"), *args)

    text = f"Tensors of {dtype}: of sizes (values are not set), or of a sequence's values."
    return Typed(name, (), {"__new__": make, "dtype": dtype, "__doc__": text})


def new(self: Tensor, *args: Any, device: Device | None = None) -> Tensor:
    """A tensor of this one's dtype: ``new(2, 3)`` of sizes (values are not set), ``new([1, 2])`` of
    values.
    """
    if device is None:
        device = self.device
    if not args:
        return creation.empty(0, dtype=self.dtype, device=device)
    first = args[0]
    if len(args) == 1 and isinstance(first, _C.TensorBase):
        return first.detach().to(self.dtype)
    if len(args) == 1 and hasattr(first, "numel"):  # a Size
        return creation.empty(first, dtype=self.dtype, device=device)
    if len(args) == 1 and hasattr(first, "__len__"):
        return from_data.tensor(first, dtype=self.dtype, device=device)
    return creation.empty(*args, dtype=self.dtype, device=device)


for _name, _dtype in _NAMES.items():
    globals()[_name] = _typed(_name, _dtype)

__all__ = list(_NAMES)


def set_default_tensor_type(kind: Any) -> None:
    """The dtype of ``FloatTensor`` or ``DoubleTensor`` (the class or its name) becomes the default
    floating dtype.
    """
    name = kind.rpartition(".")[2] if isinstance(kind, str) else kind.__name__
    if name not in _NAMES:
        raise TypeError(f"invalid type name {kind!r}: expected one such as 'modtree.FloatTensor'")
    _C.set_default_dtype(_NAMES[name])


__all__ += ["set_default_tensor_type"]
