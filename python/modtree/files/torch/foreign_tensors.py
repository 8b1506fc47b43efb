# SPDX-License-Identifier: BSD-3-Clause
"""Tensors that are not made here: sparse, quantized and nested ones, and those of dtypes that NumPy
does not have. Each is a stand-in that says what it is and has its plain parts by name.
"""

from __future__ import annotations

import math
from typing import Any

from modtree.files.pickled.builder import Builder
from modtree.files.pickled.stand_in import StandIn
from modtree.files.torch.records import TensorRecord, check_layout
from modtree.files.torch.storages import OTHER_STORAGES, Memory, Storage

__all__ = ["ForeignTensors", "described_nested", "described_tensor"]

_COMPRESSED = {
    "sparse_csr": ("crow_indices", "col_indices", "values"),
    "sparse_bsr": ("crow_indices", "col_indices", "values"),
    "sparse_csc": ("ccol_indices", "row_indices", "values"),
    "sparse_bsc": ("ccol_indices", "row_indices", "values"),
}
_INTEGERS = {"qint8": "int8", "quint8": "uint8", "qint32": "int32"}


class ForeignTensors:
    """The names of such tensors in torch's pickles.

    Args:
        builder: Makes their parts.

    Attributes:
        names: (module, name) -> function. They take stand-ins.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self.names: dict[tuple[str, str], Any] = {
            ("torch.serialization", "_get_layout"): self._layout,
            ("torch._utils", "_rebuild_sparse_tensor"): self._sparse,
            ("torch._utils", "_rebuild_qtensor"): self._quantized,
            ("torch._utils", "_rebuild_nested_tensor"): self._nested,
            **{("torch", name): kind for name, kind in OTHER_STORAGES.items()},
        }
        self.makers = {make: make for make in (self._layout, *self._makers())}

    def _makers(self) -> tuple[Any, ...]:
        return self._sparse, self._quantized, self._nested

    def _layout(self, *args: Any) -> StandIn:
        name = args[0] if len(args) == 1 else None
        if type(name) is str:
            return StandIn(name[:80])
        return StandIn("torch.serialization._get_layout", args)

    def _sparse(self, *args: Any) -> StandIn:
        made = StandIn("torch._utils._rebuild_sparse_tensor", args)
        if len(args) != 2 or type(args[0]) is not StandIn or type(args[1]) is not tuple:
            return made
        layout, data = args[0].kind.removeprefix("torch."), args[1]
        names = _COMPRESSED.get(layout, ("indices", "values"))
        if len(data) <= len(names) or (layout not in _COMPRESSED and layout != "sparse_coo"):
            return made
        parts = dict(zip(names, data, strict=False))
        shape, dtype = _shape(data[len(names)]), _dtype(parts["values"])
        text = f"sparse {layout.removeprefix('sparse_').upper()} tensor of {dtype} {shape}"
        return made.described(f"torch.{layout}", text, parts)

    def _quantized(self, *args: Any) -> StandIn:
        made = StandIn("torch._utils._rebuild_qtensor", args)
        storage = args[0].storage if args and type(args[0]) is Memory else args[0] if args else None
        if len(args) < 6 or type(storage) is not Storage or type(args[4]) is not tuple:
            return made
        integers = _INTEGERS.get(storage.kind.dtype)
        scheme = args[4][0] if args[4] else None
        if integers is None or type(scheme) is not StandIn:
            return made
        dtype = self._builder.dtypes[integers]
        offset, size, stride = args[1:4]
        place = check_layout(storage.length, dtype.itemsize, offset, size, stride, False)
        names = ["scale", "zero_point"]
        if "channel" in scheme.kind:
            names = ["scales", "zero_points", "axis"]
        parts = {"int_repr": self._builder.tensor(TensorRecord(storage, dtype, place, False))}
        parts.update(zip(names, args[4][1:], strict=False))
        text = f"quantized tensor of {storage.kind.dtype} {list(place.size)}"
        return made.described(scheme.kind, text, parts)

    def _nested(self, *args: Any) -> StandIn:
        made = StandIn("torch._utils._rebuild_nested_tensor", args)
        names = ("buffer", "sizes", "strides", "offsets")
        if len(args) != len(names):
            return made
        shape = getattr(args[1], "shape", None)
        count = f" of {shape[0]} tensors" if shape else ""
        text = f"nested tensor{count}, {_dtype(args[0])}"
        return made.described("torch.nested", text, dict(zip(names, args, strict=True)))


def described_tensor(made: StandIn) -> StandIn:
    """Says of a call that makes a tensor of a dtype that is not known here what it is."""
    args = made.args
    size = args[2] if len(args) > 4 and type(args[2]) is tuple else None
    named = [arg for arg in args[6:8] if type(arg) is StandIn]
    name = named[0].kind.removeprefix("torch.") if named else ""
    storage = args[0].storage if args and type(args[0]) is Memory else args[0] if args else None
    if not name and type(storage) is Storage:
        name = storage.kind.dtype
    if size is None or not name or not all(type(n) is int for n in size) or len(size) > 64:
        return made
    return made.described(f"torch.{name}", f"tensor of {name} {list(size)}", {})


def described_nested(made: StandIn) -> StandIn:
    """Says of a nested tensor of the jagged layout what it is."""
    parts = made.args[0] if len(made.args) == 1 else None
    if made.kind != "torch.nested._internal.nested_tensor.NestedTensor" or type(parts) is not dict:
        return made
    names = ("values", "offsets", "lengths")
    tensors = {name: parts[name] for name in names if parts.get(name) is not None}
    return made.described("torch.jagged", f"nested tensor, {_dtype(parts.get('values'))}", tensors)


def _shape(size: Any) -> str:
    fits = isinstance(size, tuple) and len(size) <= 64 and all(type(n) is int for n in size)
    return str(list(size)) if fits and math.prod(size) < 1 << 200 else ""


def _dtype(value: Any) -> str:
    name = getattr(value, "dtype", None)
    return str(getattr(name, "name", name)).removeprefix("torch.") if name is not None else "?"
