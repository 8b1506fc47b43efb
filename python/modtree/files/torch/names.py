# SPDX-License-Identifier: BSD-3-Clause
"""What the pickles of torch's tensors name and call: one reader for all forms of its files and all
libraries. Every argument is checked here, and a builder makes the tensors.
"""

from __future__ import annotations

import math
from typing import Any

from modtree.files.pickled.builder import Builder, OwnNames
from modtree.files.pickled.plain import BUILDERS, MAKERS, NAMES, check_sizes, require
from modtree.files.pickled.stand_in import StandIn, TolerantUnpickler
from modtree.files.pickled.unpickle import Refused, Unpickler, UnpicklingError
from modtree.files.torch.records import Layout, TensorRecord, check_gradient, check_layout
from modtree.files.torch.storages import BYTES, OTHER_STORAGES, STORAGES, Memory, Storage

# -- tensors that are not made here ----------------------------------------------------------------

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
        made = self._layout, self._sparse, self._quantized, self._nested
        self.makers: dict[Any, Any] = {make: make for make in made}

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


# -- tensors ---------------------------------------------------------------------------------------


class TorchNames:
    """The names in torch's pickles.

    Args:
        builder: Makes the tensors.

    Attributes:
        names: (module, name) -> object.
        makers: Object -> function that checks its arguments.
        take_stand_ins: Those of them that know what to do with a stand-in.
    """

    def __init__(self, builder: Builder) -> None:
        self._builder = builder
        self._dtype_type = type(builder.dtypes["float32"])
        makers = {
            "_rebuild_tensor_v2": self._tensor,
            "_rebuild_tensor_v3": self._tensor_of_bytes,
            "_rebuild_parameter": self._parameter,
            "_rebuild_parameter_with_state": self._parameter,
            "_rebuild_meta_tensor_no_storage": self._meta_tensor,
        }
        self.names: dict[tuple[str, str], Any] = {
            **{("torch._utils", name): make for name, make in makers.items()},
            ("torch._tensor", "_rebuild_from_type_v2"): self._tensor_with_attributes,
            ("torch", "Tensor"): builder.classes["Tensor"],
            ("torch.storage", "UntypedStorage"): BYTES,
            ("torch", "Size"): builder.checked_size,
            ("torch", "device"): builder.checked_device,
            **{("torch", name): storage for name, storage in STORAGES.items()},
            **{("torch", name): dtype for name, dtype in builder.dtypes.items()},
        }
        checked = builder.checked_size, builder.checked_device
        made = (*makers.values(), self._tensor_with_attributes, *checked)
        self.makers = {make: make for make in made}
        self.take_stand_ins = frozenset([self._tensor_with_attributes])

    def _tensor(
        self,
        storage: Any,
        offset: Any,
        size: Any,
        stride: Any,
        requires_grad: Any,
        _hooks: Any = None,
        metadata: Any = None,
    ) -> Any:
        """Of a storage of numbers."""
        source = _storage_of(storage)
        dtype = self._builder.dtypes.get(source.kind.dtype)
        if dtype is None:
            raise Refused(f"a tensor of {source.kind.dtype}")
        return self._made(source, dtype, (offset, size, stride), requires_grad, metadata)

    def _tensor_of_bytes(
        self,
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
        source = _storage_of(storage)
        if source.kind is not BYTES:
            raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
        self._check_dtype(dtype)
        return self._made(source, dtype, (offset, size, stride), requires_grad, metadata)

    def _made(
        self, source: Storage, dtype: Any, place: tuple[Any, ...], requires_grad: Any, noted: Any
    ) -> Any:
        count = source.length * source.kind.stored.itemsize // dtype.itemsize
        offset, size, stride = place
        layout = check_layout(count, dtype.itemsize, offset, size, stride, requires_grad)
        check_gradient(dtype, requires_grad)
        wanted = noted if type(noted) is dict else {}
        flags = {name: True for name in ("conj", "neg") if wanted.get(name) is True}
        record = TensorRecord(source, dtype, layout, requires_grad, flags or None)
        return self._builder.tensor(record)

    def _check_dtype(self, dtype: Any) -> None:
        require(type(dtype) is self._dtype_type, "a tensor without a dtype")

    def _meta_tensor(self, dtype: Any, size: Any, stride: Any, requires_grad: Any) -> Any:
        require(type(requires_grad) is bool and type(stride) is tuple, "a tensor without a dtype")
        self._check_dtype(dtype)
        check_sizes(size, dtype.itemsize)
        require(len(stride) == len(size), "the strides of a tensor")
        require(all(type(n) is int and 0 <= n < 1 << 62 for n in stride), "the strides of a tensor")
        check_gradient(dtype, requires_grad)
        record = TensorRecord(None, dtype, Layout(0, tuple(size), stride), requires_grad)
        return self._builder.tensor(record)

    def _parameter(
        self, data: Any, requires_grad: Any, _hooks: Any = None, state: Any = None
    ) -> Any:
        if not self._builder.is_tensor(data) or type(requires_grad) is not bool:
            raise UnpicklingError("the file is damaged: a parameter that is not made of a tensor")
        check_gradient(data.dtype, requires_grad)
        parameter = self._builder.parameter(data, requires_grad)
        if state is not None:
            self._builder.set_attributes(parameter, state)
        return parameter

    def _tensor_with_attributes(self, make: Any, kind: Any, arguments: Any, state: Any) -> Any:
        known = make in (self._tensor, self._tensor_of_bytes, self._meta_tensor)
        if type(kind) is StandIn and type(arguments) is tuple:
            return self._tensor_of_class(make if known else None, kind, arguments, state)
        if not known or kind is not self._builder.classes["Tensor"]:
            raise Refused(
                "Weights only load failed: the file contains a tensor of a class of its own; save "
                "it as a plain tensor (as_subclass(torch.Tensor))"
            )
        if type(arguments) is not tuple:
            raise UnpicklingError("the file is damaged: a call whose arguments are no tuple")
        tensor = make(*arguments)
        self._builder.set_attributes(tensor, state)
        return tensor

    def _tensor_of_class(
        self, make: Any, kind: StandIn, arguments: tuple[Any, ...], state: Any
    ) -> Any:
        """The plain tensor in a tensor of a class that is not looked for; a stand-in of one that is
        made of several.
        """
        if make is None or any(type(argument) is StandIn for argument in arguments):
            made = StandIn(kind.kind, arguments)
            made.set_state(state)
            return described_nested(made)
        tensor = make(*arguments)
        if type(tensor) is TensorRecord:
            tensor.kind = kind.kind
        return tensor


def _storage_of(value: Any) -> Storage:
    if type(value) is Memory:
        return value.storage
    if type(value) is not Storage:
        raise UnpicklingError("the file is damaged: a tensor that is not made of a storage")
    return value


def torch_unpickler(
    stream: Any, builder: Builder, storage: Any, options: dict[str, Any], tolerant: bool
) -> Unpickler:
    """An unpickler for a pickle of torch.

    Args:
        stream: What to read.
        builder: Makes the tensors.
        storage: Answers persistent ids.
        options: For the unpickler.
        tolerant: Whether stand-ins are made of what is not allowed.
    """
    own, torchs = OwnNames(builder), TorchNames(builder)
    foreign = ForeignTensors(builder) if tolerant else None
    tables: tuple[Any, ...] = (
        {**NAMES, **own.names, **torchs.names, **(foreign.names if foreign else {})},
        {**MAKERS, **own.makers, **torchs.makers, **(foreign.makers if foreign else {})},
        {**BUILDERS, **own.builders},
    )
    if foreign:
        takes = {**foreign.makers, **dict.fromkeys(torchs.take_stand_ins)}.__contains__
        return TolerantUnpickler(
            stream, *tables, storage, takes=takes, describe=_described, **options
        )
    names, makers, builders = tables
    return Unpickler(stream, names, makers, builders, storage, **options)


def _described(made: StandIn) -> StandIn:
    """A tensor of a dtype that is not known here, in words."""
    is_tensor = made.kind.startswith("torch._utils._rebuild_tensor")
    return described_tensor(made) if is_tensor else made
