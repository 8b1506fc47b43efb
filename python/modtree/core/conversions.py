# SPDX-License-Identifier: BSD-3-Clause
"""The methods of Module that convert a whole tree: each describes one conversion and hands it to
``_apply``.
"""

from __future__ import annotations

import builtins
import importlib
import itertools
import re
import sys
import warnings
from typing import Any, TypeVar

import numpy as np

from modtree import _C
from modtree.core.families import family_of, is_device

_M = TypeVar("_M", bound=_C.ModuleBase)


def _convert(self: Any, scope: str, **what: Any) -> Any:
    """Runs one conversion; ``preserve_ties`` converts a tensor with several names once and keeps it
    one object.
    """
    preserve_ties = what.pop("preserve_ties", False)
    conversion = _C.Conversion(scope, **what)
    return self._apply(_C.KeepTies(conversion) if preserve_ties else conversion)


# -- to --------------------------------------------------------------------------------------------


def _is_tensor(value: Any) -> bool:
    return family_of(value) is not None


def _is_dtype(value: Any) -> bool:
    """A dtype of any library, or a class that NumPy takes for one."""
    if isinstance(value, builtins.type):
        known = issubclass(value, (np.generic, builtins.float, complex, int))
        return known or isinstance(getattr(value, "dtype", None), np.dtype)  # those of jax.numpy
    return builtins.type(value).__name__ == "dtype" or isinstance(value, np.dtype)


_DEVICE_TYPES = frozenset(
    "cpu cuda ipu xpu mkldnn opengl opencl ideep hip ve fpga maia xla lazy vulkan mps meta hpu "
    "mtia privateuseone".split()
)


def _check_device(device: Any) -> None:
    """Whether a device is meant at all; if a tensor can go there is for its library to say."""
    if device is None or isinstance(getattr(device, "type", None), str):
        return
    if is_device(device):
        return
    if isinstance(device, bool) or not isinstance(device, (str, int)):
        raise TypeError(f"to() expected a device, a dtype or a tensor, got {device!r:.80}")
    try:
        _check_device_name(device)
    except RuntimeError:
        difflib = importlib.import_module("difflib")  # slow to import
        near = difflib.get_close_matches(str(device), _DTYPES, 1)
        if not near:
            raise
        raise RuntimeError(
            f"to() expected a device or a dtype, got {device!r:.80}: did you mean the dtype "
            f"{near[0]}? Give the dtype itself, not its name"
        ) from None


def _check_device_name(device: str | int) -> None:
    torch = sys.modules.get("torch")
    if torch is not None:  # it knows of accelerators, and of backends that were given a name
        torch.device(device)
    elif isinstance(device, int):
        raise RuntimeError(f"to(): device {device} is an accelerator's number, and there is none")
    else:
        match = _DEVICE.fullmatch(device)
        if match is None:
            raise RuntimeError(f"Invalid device string: {device!r:.80}")
        if match[1] not in _DEVICE_TYPES:
            raise RuntimeError(
                f"Expected one of {', '.join(sorted(_DEVICE_TYPES))} device type at start of "
                f"device string: {device:.80}"
            )


_DTYPES = (
    "bfloat16 bool complex64 complex128 double float float16 float32 float64 half int int8 int16 "
    "int32 int64 long uint8"
).split()
_DEVICE = re.compile(r"([^:]+)(?::(?:0|[1-9][0-9]*))?", re.ASCII)
_FORMS = {
    "tensor": ("tensor", "non_blocking"),
    "dtype": ("dtype", "non_blocking"),
    "device": ("device", "dtype", "non_blocking"),
}


def _form_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[str, ...]:
    if "tensor" in kwargs or (args and _is_tensor(args[0])):
        return _FORMS["tensor"]
    return _FORMS["dtype" if args and _is_dtype(args[0]) else "device"]


def _parse_to(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any, bool, Any]:
    """(device, dtype, non_blocking, memory_format) from the three call forms of ``to``."""
    memory_format = kwargs.pop("memory_format", None)
    if memory_format is not None and builtins.type(memory_format).__name__ != "memory_format":
        raise TypeError(f"to() expected a memory format, got {memory_format!r:.80}")
    names = _form_of(args, kwargs)
    if "copy" in kwargs or len(args) == len(names) + 1:
        raise RuntimeError(".to() does not accept copy argument")
    if len(args) > len(names):
        raise TypeError(
            f"to() takes at most {len(names)} positional arguments ({', '.join(names)}), got "
            f"{len(args)}"
        )
    given = dict(zip(names, args, strict=False))
    for name, value in kwargs.items():
        if name not in names:
            raise TypeError(
                f"to() got an unexpected keyword argument '{name}' beside "
                f"{', '.join(given) or 'others'}"
            )
        if name in given:
            raise TypeError(f"to() got multiple values for argument '{name}'")
        given[name] = value
    non_blocking = given.get("non_blocking", False)
    if not isinstance(non_blocking, bool):
        raise TypeError(f"to() expected a bool as non_blocking, got {non_blocking!r:.80}")
    if "tensor" in given:
        if not _is_tensor(given["tensor"]):
            raise TypeError(f"to() expected a tensor, got {builtins.type(given['tensor'])}")
        return given["tensor"].device, given["tensor"].dtype, non_blocking, memory_format
    device, dtype = given.get("device"), given.get("dtype")
    _check_device(device)
    if dtype is not None and not _is_dtype(dtype):
        raise TypeError(f"to() expected a dtype, got {builtins.type(dtype)}: {dtype!r:.80}")
    return device, dtype, non_blocking, memory_format


def _with_named_dtype(
    self: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with a dtype in the place of its name, where the library of the first tensor
    has names for dtypes.
    """
    named = [value for value in (*args[:1], kwargs.get("dtype")) if isinstance(value, str)]
    if not named or named[0].partition(":")[0] in _DEVICE_TYPES:
        return args, kwargs
    leaf = next(itertools.chain(self.parameters(), self.buffers()), None)
    family = family_of(leaf)
    dtypes = {} if family is None else {name: family.dtype_named(name) for name in named}
    if args and isinstance(args[0], str) and dtypes.get(args[0]) is not None:
        args = (dtypes[args[0]], *args[1:])
    if isinstance(kwargs.get("dtype"), str) and dtypes.get(kwargs["dtype"]) is not None:
        kwargs = {**kwargs, "dtype": dtypes[kwargs["dtype"]]}
    return args, kwargs


def _dtype_kind(dtype: Any) -> str:
    """'floating', 'complex' or 'other', for a dtype of any library."""
    if getattr(dtype, "is_floating_point", False):
        return "floating"
    if getattr(dtype, "is_complex", False):
        return "complex"
    known = getattr(dtype, "dtype", dtype)
    kind = getattr(known, "kind", None)
    if kind is None and isinstance(dtype, builtins.type):
        kind = np.dtype(dtype).kind
    if kind == "V" and known.name.startswith(("float", "bfloat")):  # of the package ml_dtypes
        return "floating"
    return {"f": "floating", "c": "complex"}.get(kind or "", "other")


def to(self: _M, *args: Any, preserve_ties: bool = False, **kwargs: Any) -> _M:
    """Moves and casts the parameters and buffers of the tree, in place.

    Call forms: ``to(device=None, dtype=None, non_blocking=False)``, ``to(dtype,
    non_blocking=False)``, ``to(tensor, non_blocking=False)`` (takes its device and dtype);
    ``memory_format=`` for 4-D and 5-D tensors. The dtype is applied to floating-point and complex
    tensors only.

    Args:
        preserve_ties: a tensor registered under several names stays one tensor even where it has to
            be replaced.

    Raises:
        TypeError: the dtype is neither floating-point nor complex.
        NotImplementedError: a meta tensor would have to be moved to a device with storage.
    """
    args, kwargs = _with_named_dtype(self, args, kwargs)
    device, dtype, non_blocking, memory_format = _parse_to(args, kwargs)
    if dtype is not None:
        kind = _dtype_kind(dtype)
        if kind == "other":
            raise TypeError(
                "nn.Module.to only accepts floating point or complex dtypes, but got desired "
                f"dtype={dtype}"
            )
        if kind == "complex":
            warnings.warn(
                "Complex modules are a new feature under active development whose design may "
                "change, and some modules might not work as expected when using complex tensors as "
                "parameters or buffers.",
                stacklevel=2,
            )
    return _convert(
        self,
        "inexact",
        device=device,
        dtype=dtype,
        non_blocking=non_blocking,
        memory_format=memory_format,
        hint=True,
        preserve_ties=preserve_ties,
    )


def to_empty(self: _M, *, device: Any, recurse: bool = True, preserve_ties: bool = False) -> _M:
    """Gives every parameter and buffer new storage of the same shape and dtype; the values are
    undefined.

    Args:
        device: where; None keeps the device of each tensor.
        recurse: children too.
        preserve_ties: a tensor registered under several names stays one tensor.
    """

    def empty_like(tensor: Any) -> Any:
        family = family_of(tensor)
        if family is None:
            raise TypeError(f"to_empty() needs tensors, got {builtins.type(tensor)}")
        return family.empty_like(tensor, device)

    return self._apply(_C.KeepTies(empty_like) if preserve_ties else empty_like, recurse=recurse)


# -- devices and dtypes ----------------------------------------------------------------------------


def cpu(self: _M) -> _M:
    """Moves all parameters and buffers to the CPU."""
    return _convert(self, "all", device="cpu")


def _to_accelerator(kind: str, self: Any, device: Any = None) -> Any:
    """Moves all parameters and buffers to an accelerator of torch; ``device`` is an index or a
    device.
    """
    if device is None:
        device = kind
    elif isinstance(device, int):
        device = f"{kind}:{device}"
    return _convert(self, "all", device=device)


def cuda(self: _M, device: Any = None) -> _M:
    """Moves all parameters and buffers (torch tensors) to a CUDA device."""
    return _to_accelerator("cuda", self, device)


def xpu(self: _M, device: Any = None) -> _M:
    """Moves all parameters and buffers (torch tensors) to an XPU device."""
    return _to_accelerator("xpu", self, device)


def ipu(self: _M, device: Any = None) -> _M:
    """Moves all parameters and buffers (torch tensors) to an IPU device."""
    return _to_accelerator("ipu", self, device)


def mtia(self: _M, device: Any = None) -> _M:
    """Moves all parameters and buffers (torch tensors) to an MTIA device."""
    return _to_accelerator("mtia", self, device)


def float(self: _M) -> _M:
    """Casts all floating-point parameters and buffers to float32."""
    return _convert(self, "floating", dtype="float32")


def double(self: _M) -> _M:
    """Casts all floating-point parameters and buffers to float64."""
    return _convert(self, "floating", dtype="float64")


def half(self: _M) -> _M:
    """Casts all floating-point parameters and buffers to float16."""
    return _convert(self, "floating", dtype="float16")


def bfloat16(self: _M) -> _M:
    """Casts all floating-point parameters and buffers to bfloat16; NumPy
    tensors, for storing, with the package ml_dtypes.
    """
    return _convert(self, "floating", dtype="bfloat16")


def type(self: _M, dst_type: Any) -> _M:
    """Casts all parameters and buffers, integer ones too."""

    def cast(tensor: Any) -> Any:
        family = family_of(tensor)
        if family is not None and family.immutable:
            return family.to(tensor, None, dst_type, False, None)
        return tensor.type(dst_type)

    return self._apply(cast)


def share_memory(self: _M) -> _M:
    """Moves the storage of all parameters and buffers to shared memory, where their library can do
    that.
    """

    def share(tensor: Any) -> Any:
        family = family_of(tensor)
        if family is None:
            raise AttributeError(
                f"{tensor.__class__.__name__!r} object has no attribute 'share_memory_': only "
                f"tensors can be shared"
            )
        return family.share_memory(tensor)

    return self._apply(share)


def _replicate_for_data_parallel(self: Any) -> Any:
    """A shallow replica: its own registries, no parameters, everything else shared."""
    replica = self.__new__(builtins.type(self))
    replica.__dict__ = self.__dict__.copy()
    replica._parameters = {}
    replica._buffers = replica._buffers.copy()
    replica._modules = replica._modules.copy()
    replica._is_replica = True
    return replica
