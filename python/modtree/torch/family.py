# SPDX-License-Identifier: BSD-3-Clause
"""torch tensors as leaves of a module tree; imported when the first of them is met.

The tree asks some of these questions once per entry of a tree, so most methods are static: a plain
function is what native code calls fastest (faster than an ``operator.methodcaller``).
"""

from __future__ import annotations

import importlib
import operator
import os
import sys
import types
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.nn.parameter import UninitializedTensorMixin  # type: ignore[attr-defined]
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.hooks import BackwardHook

from modtree import _C
from modtree.core import family as base
from modtree.core.families import family_of
from modtree.torch import facts as torch_facts

_Tensor = torch.Tensor
_Parameter = torch.nn.Parameter
_is_real_parameter = type.__instancecheck__.__get__(_Parameter)
_may_swap = torch._has_compatible_shallow_copy_type
_copy = _Tensor.copy_
_function_modes = torch._C._len_torch_function_stack
_dispatch_modes = torch._C._len_torch_dispatch_stack
_facts = torch_facts.facts_of(sys.modules["torch.nn.modules.module"])
_swaps_fake = _facts["swaps_fake"]
_swaps_without_grad = _facts["swaps_without_grad"]
_keeps_data_of_fake = _facts["keeps_data_of_fake"]


def _is_fake(tensor: Any) -> bool:
    # Nobody has such a tensor before this module was imported.
    home = sys.modules.get("torch._subclasses.fake_tensor")
    return home is not None and isinstance(tensor, home.FakeTensor)


def _are_apart(tensors: list[Any], sources: list[Any]) -> bool:
    """True if each of the tensors has a storage that no other tensor here has."""
    storages = [tensor.untyped_storage()._cdata for tensor in tensors]
    others = {source.untyped_storage()._cdata for source in sources}
    return len(set(storages)) == len(storages) and others.isdisjoint(storages)


def _make_buffer(data: Any, *, persistent: bool) -> Any:
    """What ``torch.nn.Buffer`` makes."""
    made = data.detach().requires_grad_(data.requires_grad)
    made.persistent = persistent
    made._is_buffer = True
    return made


# What torch's own copy of a parameter looks up.
_OF_A_COPY = {"id", "type", "data", "clone", "torch", "preserve_format", "requires_grad"}


def _parameter_copies() -> base.ParameterCopies | None:
    """None where ``Parameter.__deepcopy__`` is that of another torch, or of a program."""
    names = ("__deepcopy__", "__new__", "__init__", "_make_subclass")
    found = {
        name: next(vars(k)[name] for k in _Parameter.__mro__ if name in vars(k)) for name in names
    }
    function = found["__deepcopy__"]
    home = vars(sys.modules[_Parameter.__module__])
    own = [getattr(f, "__globals__", None) is home for f in (function, _Parameter.__new__)]
    if not all(own) or set(function.__code__.co_names) != _OF_A_COPY:
        return None
    return base.ParameterCopies(
        _Parameter,
        (_Tensor, _Parameter),
        _Tensor._make_subclass,
        torch.preserve_format,
        found,
    )


# Names that are not asked where a tensor is read natively, by the kind of what torch has there.
_GETTERS = ("shape", "is_meta", "requires_grad", "grad", "grad_fn", "dtype", "device", "data")
_METHODS = (
    "is_floating_point",
    "is_complex",
    "size",
    "dim",
    "stride",
    "data_ptr",
    "detach",
    "requires_grad_",
)
_MODES = {
    "_ZN2at4impl22PythonTorchFunctionTLS9stack_lenEv": _function_modes,
    "_ZN3c104impl20TorchDispatchModeTLS9stack_lenEv": _dispatch_modes,
}


def _tensor_access() -> base.TensorAccess | None:
    """None without a table of C functions in this torch, or with an attribute replaced."""
    attributes = {}
    for names, kind in (
        (_GETTERS, types.GetSetDescriptorType),
        (_METHODS, types.MethodDescriptorType),
    ):
        for name in names:
            homes = [c for c in _Parameter.__mro__ if name in vars(c)]
            if not homes or type(vars(homes[0])[name]) is not kind:
                return None
            attributes[name] = vars(homes[0])[name]
    if _Tensor not in _Parameter.__mro__ or not hasattr(_Tensor, "__dlpack_c_exchange_api__"):
        return None
    name = "libtorch_cpu.dylib" if sys.platform == "darwin" else "libtorch_cpu.so"
    return base.TensorAccess(
        _Tensor.__dlpack_c_exchange_api__,
        attributes,
        _MODES,
        _function_modes,
        "_ZN2at9functorch20functorchTLSAccessorEv",
        os.path.join(os.path.dirname(torch.__file__ or ""), "lib", name),
        torch.int8,
        torch.uint8,
        _Tensor.is_neg,
        _Tensor.is_conj,
        _Tensor.untyped_storage,
        torch.UntypedStorage.nbytes,
        torch.UntypedStorage.data_ptr,
    )


class TorchFamily(base.TensorFamily):
    name = "torch"
    tensor_type = _Tensor
    own_comparison = base.comparison_of(_Tensor)
    parameter_type = _Parameter
    has_common_names = True
    parameter_copies = _parameter_copies()
    tensor_access = _tensor_access()
    functions = ("modtree.torch.functions", "torch.nn.functional", "torch")

    # -- what a tensor is --------------------------------------------------------------------------

    @staticmethod
    def is_parameter(tensor: Any) -> bool:
        return _is_real_parameter(tensor) or bool(getattr(tensor, "_is_param", False))

    @staticmethod
    def is_buffer(tensor: Any) -> bool:
        return bool(getattr(tensor, "_is_buffer", False))

    # A bound builtin: the real isinstance() without a frame.
    is_uninitialized = staticmethod(type.__instancecheck__.__get__(UninitializedTensorMixin))
    is_meta: Any = staticmethod(operator.attrgetter("is_meta"))
    shape: Any = staticmethod(operator.attrgetter("shape"))

    def type_name(self, tensor: Any) -> str:
        if self.is_uninitialized(tensor):  # refuses to be asked for its type()
            return f"torch.nn.parameter.{type(tensor).__name__}"
        return tensor.type()

    # -- gradients ---------------------------------------------------------------------------------

    requires_grad: Any = staticmethod(operator.attrgetter("requires_grad"))
    grad: Any = staticmethod(operator.attrgetter("grad"))

    @staticmethod
    def zero_grad(tensor: Any, set_to_none: bool) -> None:
        grad = tensor.grad
        if grad is None:
            return
        if set_to_none:
            tensor.grad = None
            return
        if grad.grad_fn is not None:
            grad.detach_()
        else:
            grad.requires_grad_(False)
        grad.zero_()

    no_grad = staticmethod(torch.no_grad)
    is_grad_enabled = staticmethod(torch.is_grad_enabled)
    set_grad_enabled = staticmethod(torch._C._set_grad_enabled)

    # -- handles and storage -----------------------------------------------------------------------

    @staticmethod
    def detach(tensor: Any) -> Any:
        return tensor.detach()

    @staticmethod
    def make_parameter(data: Any, requires_grad: bool) -> Any:
        return _Parameter(data, requires_grad)

    @staticmethod
    def make_buffer(data: Any, persistent: bool) -> Any:
        make = getattr(torch.nn, "Buffer", _make_buffer)  # since torch 2.5
        return make(data, persistent=persistent)

    @staticmethod
    def can_set_data(tensor: Any, other: Any) -> bool:
        return (
            # torch's function reads the memory of what only says so as if it were a tensor.
            issubclass(type(tensor), _Tensor)
            and issubclass(type(other), _Tensor)
            and _may_swap(tensor, other)
            and not (type(other) is not _Tensor and _keeps_data_of_fake and _is_fake(other))
        )

    @staticmethod
    def set_data(tensor: Any, other: Any) -> None:
        tensor.data = other

    @staticmethod
    def must_swap_contents(tensor: Any, other: Any) -> bool:
        # A subclass may consist of several tensors, which `.data` does not reach.
        return is_traceable_wrapper_subclass(other) or (_swaps_fake and _is_fake(tensor))

    get_overwrite_module_params_on_conversion = staticmethod(
        torch.__future__.get_overwrite_module_params_on_conversion
    )
    get_swap_module_params_on_conversion = staticmethod(
        torch.__future__.get_swap_module_params_on_conversion
    )

    @staticmethod
    def copy_into(tensor: Any, source: Any) -> None:
        if not isinstance(source, _Tensor):
            source = as_torch(source)
        tensor.copy_(source)

    @staticmethod
    def copy_all(tensors: list[Any], sources: list[Any]) -> bool:
        # Modes see each copy, and so does a method that a program puts in the place of torch's.
        # Away from the CPU copies may be made at the same time, which shows where one tensor is
        # in the memory of another.
        if _function_modes() or _dispatch_modes() or _Tensor.copy_ is not _copy:
            return False
        if not tensors[0].is_cpu and not _are_apart(tensors, sources):
            return False
        torch._foreach_copy_(tensors, sources)
        return True

    @staticmethod
    def to_numpy(tensor: Any) -> Any:
        tensor = tensor.detach()
        if tensor.dtype in _WITHOUT_NUMPY:
            tensor = tensor.float()
        return tensor.cpu().resolve_conj().resolve_neg().numpy()

    @staticmethod
    def converted(source: Any) -> Any:
        other = family_of(source)
        tensor = as_torch(source)
        if other is not None and other.is_parameter(source):
            return torch.nn.Parameter(tensor, other.requires_grad(source))
        return tensor

    @staticmethod
    def from_dlpack(source: Any, family: base.TensorFamily) -> Any:
        if family.name == "numpy":
            exchange = importlib.import_module("modtree.numpy.torch_exchange")
            return exchange.ToTorch()(source, "x")
        if family.name == "jax":
            with warnings.catch_warnings():
                # Such memory may not be written to; what does is the new owner.
                warnings.simplefilter("ignore")
                return torch.from_dlpack(source)
        return None

    # -- conversions -------------------------------------------------------------------------------

    @staticmethod
    def to(tensor: Any, device: Any, dtype: Any, non_blocking: bool, memory_format: Any) -> Any:
        device, dtype = as_torch_device(device), as_torch_dtype(dtype)
        if memory_format is None:
            return tensor.to(device, dtype, non_blocking)
        return tensor.to(device, dtype, non_blocking, memory_format=memory_format)

    @staticmethod
    def empty_like(tensor: Any, device: Any) -> Any:
        return torch.empty_like(tensor, device=as_torch_device(device))

    @staticmethod
    def stack(tensors: Any) -> Any:
        return torch.stack(list(tensors))

    @staticmethod
    def share_memory(tensor: Any) -> Any:
        return tensor.share_memory_()

    # -- exchange of contents ----------------------------------------------------------------------

    @staticmethod
    def swap_tensors(tensor: Any, other: Any) -> None:
        if _swaps_without_grad:
            torch.utils.swap_tensors(tensor, other)
            return
        with torch.enable_grad():
            torch.utils.swap_tensors(tensor, other)

    @staticmethod
    def module_load(tensor: Any, source: Any, assign: bool) -> Any:
        if not isinstance(source, _Tensor):
            source = as_torch(source)
        return tensor.module_load(source, assign=assign)

    # -- backward hooks ----------------------------------------------------------------------------

    @staticmethod
    def backward_tap(
        module: Any,
        backward_hooks: Sequence[Callable[..., Any]],
        backward_pre_hooks: Sequence[Callable[..., Any]],
    ) -> Any:
        return BackwardHook(module, backward_hooks, backward_pre_hooks)


# dtypes that NumPy does not name, and that float32 holds exactly.
_WITHOUT_NUMPY = {getattr(torch, name) for name in _C._stored_dtypes if hasattr(torch, name)}


_STORED = {str(dtype).rpartition(".")[2] for dtype in _WITHOUT_NUMPY}


def as_torch(value: Any) -> torch.Tensor:
    """A torch tensor with the values of a tensor of any family; shares memory where that is
    possible.
    """
    family = family_of(value)
    if family is None:
        raise TypeError(
            f"cannot copy from '{type(value).__name__}' into a torch tensor: expected a tensor "
            f"of torch or of a library with a registered family (modtree.families.register)"
        )
    if family.name == "torch":
        return value
    if family.is_meta(value):
        dtype = getattr(torch, family.dtype_name(value))
        return torch.empty(tuple(family.shape(value)), dtype=dtype, device="meta")
    array = np.asarray(family.to_numpy(value))
    if not array.flags.writeable or not array.dtype.isnative or min(array.strides, default=0) < 0:
        array = array.astype(array.dtype.newbyteorder("="), order="C", copy=True)
    if array.dtype.name in _STORED:  # NumPy's dtypes of another package
        kind = getattr(torch, array.dtype.name)
        plain = np.ascontiguousarray(array).view(f"u{array.dtype.itemsize}")
        return torch.from_numpy(plain).view(kind).reshape(array.shape)
    return torch.from_numpy(array)


def as_torch_dtype(dtype: Any) -> torch.dtype | None:
    """The torch dtype of that name: of a dtype of torch, modtree or NumPy; None for None."""
    if dtype is None or isinstance(dtype, torch.dtype):
        return dtype
    if isinstance(dtype, type) and issubclass(dtype, np.generic):
        dtype = np.dtype(dtype)
    name = str(dtype).rpartition(".")[2]
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise TypeError(f"torch has no dtype named like {dtype!r}; pass a torch.dtype")
    return found


def as_torch_device(device: Any) -> Any:
    """A device as torch takes it: its own kinds as they are, others by their name."""
    if device is None or isinstance(device, (torch.device, str, int)):
        return device
    return torch.device(str(device))


family = TorchFamily()
