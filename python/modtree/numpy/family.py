# SPDX-License-Identifier: BSD-3-Clause
"""modtree's own tensors as leaves of a module tree.

The tree asks the native family (``csrc/numpy/tensor/numpy_family.cpp``), which answers without
Python; what is here is for what is asked a few times per program, and for tensors of classes that
users derive.
"""

from __future__ import annotations

import contextlib
import importlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from modtree import _C, _imports
from modtree.core import families
from modtree.core import family as base
from modtree.numpy.ops.registry import ops
from modtree.numpy.tensor import creation, from_data, typed
from modtree.numpy.tensor.devices import as_device
from modtree.numpy.tensor.grad_mode import no_grad
from modtree.numpy.tensor.memory_formats import to_format
from modtree.numpy.tensor.module_tap import ModuleTap
from modtree.numpy.tensor.parameter import Buffer, Parameter, _reduce_parameter
from modtree.numpy.tensor.tensor import Tensor
from modtree.numpy.tensor.uninitialized import UninitializedTensorMixin

_imports.refuse_second(__name__)


class NumpyFamily(base.TensorFamily):
    name = "numpy"
    tensor_type = Tensor
    own_comparison = base.comparison_of(Tensor)
    parameter_type = Parameter
    functions = ("modtree.nn.functional", "modtree")

    # A bound builtin: the real isinstance() without a frame.
    is_uninitialized = staticmethod(type.__instancecheck__.__get__(UninitializedTensorMixin))

    def is_meta(self, tensor: Any) -> bool:
        return tensor.is_meta

    def dtype_name(self, tensor: Any) -> str:
        return tensor.dtype.name

    def type_name(self, tensor: Any) -> str:
        return typed.type_name(tensor)

    def no_grad(self) -> Any:
        return no_grad()

    def make_parameter(self, data: Any, requires_grad: bool) -> Any:
        return Parameter(data, requires_grad)

    def make_buffer(self, data: Any, persistent: bool) -> Any:
        return Buffer(data, persistent=persistent)

    def can_set_data(self, tensor: Any, other: Any) -> bool:
        if not issubclass(type(tensor), Tensor):  # it only says so
            return False
        return isinstance(other, Tensor) and other.is_meta == tensor.is_meta

    def to_numpy(self, tensor: Any) -> Any:
        return tensor.detach().numpy()

    def converted(self, source: Any) -> Any:
        family = families.family_of(source)
        if family is None:
            return source
        if family.is_meta(source):
            name = family.dtype_name(source)
            dtype = _C._dtypes.get(name) or _C._stored_dtypes[name]
            tensor = creation.empty(tuple(family.shape(source)), dtype=dtype, device="meta")
        else:
            tensor = self._over_memory(source, family)
        if family.is_parameter(source) and not isinstance(tensor, Parameter):
            return Parameter(tensor, family.requires_grad(source))
        return tensor

    def _over_memory(self, source: Any, family: base.TensorFamily) -> Any:
        if family.name == "torch":
            exchange = importlib.import_module("modtree.numpy.torch_exchange")
            with contextlib.suppress(TypeError, ValueError):  # on another device, a subclass
                return exchange.tensor_from_torch(source, "x")
        array = np.asarray(family.to_numpy(source))
        # Leaves are written to, and arrays of jax may not be.
        return _C.from_array(array if array.flags.writeable else array.copy())

    def to(
        self, tensor: Any, device: Any, dtype: Any, non_blocking: bool, memory_format: Any
    ) -> Any:
        place = None if device is None else as_device(device)
        return to_format(tensor._convert(dtype, place, False), memory_format, tensor)

    def empty_like(self, tensor: Any, device: Any) -> Any:
        return creation.empty_like(tensor, device=None if device is None else as_device(device))

    def stack(self, tensors: Any) -> Any:
        return ops["stack"](list(tensors), 0)

    def share_memory(self, tensor: Any) -> Any:
        return tensor.share_memory_()

    def swap_tensors(self, tensor: Any, other: Any) -> None:
        _C.swap_contents(tensor, other)
        kinds = type(tensor), type(other)
        try:
            other.__class__, tensor.__class__ = kinds
        except TypeError:  # layouts of their own
            other.__class__, tensor.__class__ = reversed(kinds)
            _C.swap_contents(tensor, other)
            raise

    def module_load(self, tensor: Any, source: Any, assign: bool) -> Any:
        if assign:
            if isinstance(source, Tensor):
                return source.detach()
            if families.family_of(source) is None:
                return from_data.tensor(source, device="cpu")
            return self.converted(source).detach()
        result = tensor.detach().clone()
        result.copy_(source)
        return result

    def backward_tap(
        self,
        module: Any,
        backward_hooks: Sequence[Callable[..., Any]],
        backward_pre_hooks: Sequence[Callable[..., Any]],
    ) -> Any:
        return ModuleTap(module, backward_hooks, backward_pre_hooks)


family = NumpyFamily()
_C._install(Parameter=Parameter, numpy_family=family, reduce_parameter=_reduce_parameter)
