# SPDX-License-Identifier: BSD-3-Clause
"""The tensor: an ndarray with torch's methods, a gradient slot and a device."""

from __future__ import annotations

import copy
import copyreg
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar, overload

import numpy as np

import modtree.numpy.ops  # noqa: F401  # enters all operations into the registry
import modtree.numpy.tensor.sampling  # noqa: F401  # enters the methods that draw
from modtree import _C, _imports
from modtree.core.handles import RemovableHandle
from modtree.numpy.ops import registry
from modtree.numpy.ops.numpy_protocol.dispatch import call_function, call_ufunc
from modtree.numpy.ops.overridable import overridable, overridable_property
from modtree.numpy.ops.strided import copy_with_memory
from modtree.numpy.tensor import creation, dtypes, from_data, new_methods, shared, typed
from modtree.numpy.tensor.devices import as_device, device
from modtree.numpy.tensor.layouts import strided
from modtree.numpy.tensor.memory_formats import check_format, to_format
from modtree.numpy.tensor.printing import numbers, tensor_text
from modtree.numpy.tensor.size import Size
from modtree.numpy.tensor.to_arguments import parse_to

if TYPE_CHECKING:
    from typing_extensions import Self

    from modtree.numpy.argument_types import Device, DType, Number, Sizes, memory_format
    from modtree.numpy.argument_types import layout as _layout

__all__ = ["Size", "Tensor", "is_tensor"]

_imports.refuse_second(__name__)

_T = TypeVar("_T")


class Tensor(_C.TensorBase):
    """A multi-dimensional array of numbers with torch's interface, holding its values in a NumPy
    array.

    Made by :func:`modtree.tensor`, :func:`modtree.zeros`, ... and by operations. ``Tensor(2, 3)``
    makes one with these sizes whose values are not set, ``Tensor([1, 2])`` one of the default dtype
    with these values.

    A tensor is a handle: ``t.data = other`` gives it another array, and it stays the same object.
    NumPy's functions work on it and give tensors: ``np.exp(t)``.
    """

    __module__ = "modtree"  # the name in pickles and in repr

    def __new__(cls, *args: Any, **kwargs: Any) -> Self:
        self = _C.TensorBase.__new__(cls)
        if cls is Tensor:
            _fill_from_constructor(self, args, kwargs)
        else:
            with _C.DisableTorchFunctionSubclass():
                _fill_from_constructor(self, args, kwargs)
        return self

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        pass

    @staticmethod
    def _make_subclass(cls: type[_T], data: Tensor, require_grad: bool = False) -> _T:
        """A new object of a class of tensors that shares the memory of ``data``."""
        if type(require_grad) is not bool:
            raise TypeError(
                f"_make_subclass(): argument 'require_grad' must be bool, not "
                f"{type(require_grad).__name__}"
            )
        return _C.make_subclass(cls, data, require_grad)

    @staticmethod
    def _make_wrapper_subclass(cls: type, *args: Any, **kwargs: Any) -> Any:
        """Refused: there is no ``__torch_dispatch__`` that would compute for such an object."""
        raise NotImplementedError(
            f"{cls.__name__}: a tensor without memory of its own needs __torch_dispatch__, which "
            f"modtree does not have. Hold the data in an attribute of a class with "
            f"__torch_function__, or make the object with Tensor._make_subclass(cls, data)."
        )

    # -- text --------------------------------------------------------------------------------------

    def __repr__(self) -> str:
        return tensor_text(self)

    def __format__(self, spec: str) -> str:
        if self.ndim == 0 and not self.is_meta:
            return format(self.item(), spec)
        return object.__format__(self, spec)

    # -- conversion --------------------------------------------------------------------------------

    @overload
    def to(
        self,
        dtype: DType,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: memory_format | None = None,
    ) -> Tensor: ...
    @overload
    def to(
        self,
        device: Device | None = None,
        dtype: DType | None = None,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: memory_format | None = None,
    ) -> Tensor: ...
    @overload
    def to(
        self,
        tensor: Tensor,
        non_blocking: bool = False,
        copy: bool = False,
        *,
        memory_format: memory_format | None = None,
    ) -> Tensor: ...
    def to(self, *args: Any, **kwargs: Any) -> Tensor:
        """This tensor with another dtype or on another device; itself when nothing changes.

        Called as ``to(dtype)``, ``to(device, dtype=None)`` or ``to(other)``, each with
        ``non_blocking=False, copy=False`` and ``memory_format=``.
        """
        memory_format = kwargs.pop("memory_format", None)
        if memory_format is not None:
            check_format("to", memory_format)
        kind, place, copy = parse_to(args, kwargs)
        return to_format(self._convert(kind, place, copy), memory_format, self)

    @overload
    def type(self, dtype: None = None, non_blocking: bool = False) -> str: ...
    @overload
    def type(self, dtype: DType, non_blocking: bool = False) -> Tensor: ...
    def type(self, dtype: DType | None = None, non_blocking: bool = False) -> Any:
        """The name of its type ("modtree.FloatTensor"), or this tensor with another dtype."""
        if dtype is None:
            return typed.type_name(self)
        if isinstance(dtype, typed.Typed):
            return self._convert(dtype.dtype, None, False)
        if isinstance(dtype, str):
            name = dtype.rpartition(".")[2]
            for known in (*_C._dtypes.values(), *_C._stored_dtypes.values()):
                if known._type_name == name:
                    return self._convert(known, None, False)
            raise ValueError(
                f"invalid type: '{dtype}'; expected a name such as 'modtree.FloatTensor'"
            )
        return self._convert(dtype, None, False)

    def type_as(self, other: Tensor) -> Tensor:
        """This tensor with the dtype and device of another."""
        return self._convert(other.dtype, other.device, False)

    def bfloat16(self) -> Tensor:
        """This tensor with dtype bfloat16, for storing: needs the package ml_dtypes."""
        return self._convert("bfloat16", None, False)

    def cpu(self, memory_format: memory_format | None = None) -> Tensor:
        """This tensor in main memory."""
        check_format("cpu", memory_format, or_none=True)
        return to_format(self._convert(None, device("cpu"), False), memory_format, self)

    def cuda(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Refused: there is no such device."""
        raise RuntimeError("NumPy tensors live in main memory only: there is no cuda device")

    def numpy(self, *, force: bool = False) -> np.ndarray[Any, Any]:
        """A new array over the memory of this tensor, whose shape, dtype and flags are its own."""
        if force:
            return self.detach().cpu()._array_view
        view = self._plain_view
        if view is not None:
            return view
        if self.is_meta:
            raise TypeError("can't convert a tensor on 'meta' to an array: it has no values")
        if self.requires_grad:
            raise RuntimeError(
                "Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() "
                "instead."
            )
        return self._array_view

    def tolist(self) -> Any:
        """The values as nested lists of Python numbers."""
        if self.is_meta:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        return numbers(self._array).tolist()

    # -- NumPy's protocols -------------------------------------------------------------------------

    __array_priority__ = 1000

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        array = self.numpy()
        if dtype is not None and np.dtype(dtype) != array.dtype:
            if copy is False:
                raise ValueError(
                    f"an array of {np.dtype(dtype)} cannot be made of {array.dtype} without a copy"
                )
            return array.astype(dtype)
        return array.copy() if copy else array

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        return call_ufunc(ufunc, method, inputs, kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return call_function(function, args, kwargs)

    def __dlpack__(self, **kwargs: Any) -> Any:
        if self.is_meta:
            raise BufferError("Cannot pack tensors on meta: they have no values")
        return self.numpy().__dlpack__(**kwargs)

    def __dlpack_device__(self) -> tuple[Any, int]:
        if self.is_meta:
            raise ValueError("Unknown device type meta for Dlpack: such tensors have no values")
        return self.numpy().__dlpack_device__()

    # -- layout ------------------------------------------------------------------------------------

    @overload
    def stride(self, dim: None = None) -> tuple[int, ...]: ...
    @overload
    def stride(self, dim: int) -> int: ...
    def stride(self, dim: int | None = None) -> Any:
        """Distances between neighbours, in elements."""
        array = self._array
        if self.is_meta or (not array.size and array.flags.c_contiguous):
            strides, step = [], 1
            for size in reversed(array.shape):
                strides.append(step)
                step *= max(size, 1)
            steps = tuple(reversed(strides))
        else:
            steps = tuple(s // array.itemsize for s in array.strides)
        return steps if dim is None else steps[dim]

    def storage_offset(self) -> int:
        """Distance of the first element from the start of the memory, in elements."""
        if self.is_meta:
            return 0
        owner = _C.owner_of(self._array)
        start = self._array.__array_interface__["data"][0] - owner.__array_interface__["data"][0]
        return start // self._array.itemsize

    @property
    def T(self) -> Tensor:  # noqa: N802
        """All dimensions in reverse order."""
        return registry.ops["permute"](self)

    @property
    def mT(self) -> Tensor:  # noqa: N802
        """The last two dimensions exchanged; a scalar as it is."""
        if self.ndim == 0:
            return self[...]
        if self.ndim < 2:
            raise RuntimeError(
                f"tensor.mT is only supported on matrices or batches of matrices. Got "
                f"{self.ndim}-D tensor."
            )
        return registry.ops["swapaxes"](self, -2, -1)

    @property
    def mH(self) -> Tensor:  # noqa: N802
        """The conjugate transposes of matrices."""
        return self.mT.conj() if self.is_complex() else self.mT

    @property
    def H(self) -> Tensor:  # noqa: N802
        """The conjugate transpose of a matrix; the conjugate of a scalar."""
        if self.ndim not in (0, 2):
            raise RuntimeError(
                f"tensor.H is only supported on matrices (2-D tensors). Got {self.ndim}-D tensor."
            )
        return self.mH

    @property
    def real(self) -> Tensor:
        """The real parts of complex numbers, as a view; a real tensor itself."""
        return registry.ops["real"](self)

    @property
    def imag(self) -> Tensor:
        """The imaginary parts of complex numbers, as a view.

        Raises:
            RuntimeError: The dtype is not complex.
        """
        if not self.is_complex():
            raise RuntimeError("imag is not implemented for tensors with non-complex dtypes.")
        return registry.ops["imag"](self)

    @property
    def itemsize(self) -> int:
        """Bytes of an element."""
        return self.element_size()

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.numel() * self.element_size()

    @property
    def layout(self) -> _layout:
        """How values are kept: always ``modtree.strided``."""
        return strided

    @property
    def names(self) -> tuple[None, ...]:
        """None for each dimension: they have no names."""
        return (None,) * self.ndim

    def get_device(self) -> int:
        """The number of the accelerator that holds the values: -1."""
        return -1

    def is_signed(self) -> bool:
        """True if the dtype can hold negative numbers."""
        return self.dtype.is_signed

    def is_pinned(self) -> bool:
        """Is the memory pinned? Never."""
        return False

    def is_shared(self) -> bool:
        """True if the memory is shared with other processes."""
        return shared.is_shared(self)

    def share_memory_(self) -> Tensor:
        """Moves the values into memory that is shared with child processes, in place."""
        if self.is_meta:
            raise RuntimeError("_share_fd_: only available on CPU; a meta tensor has no values")
        shared.share(self)
        return self

    def is_same_size(self, other: Tensor) -> bool:
        """True if both have the same shape."""
        return self.shape == other.shape

    # -- gradients ---------------------------------------------------------------------------------

    def register_hook(self, hook: Callable[[Tensor], Any]) -> RemovableHandle:
        """Calls ``hook(grad)`` whenever the gradient of this tensor is computed; a tensor that it
        returns takes the gradient's place.
        """
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        return _register(self._hook_table(), hook)

    def register_post_accumulate_grad_hook(self, hook: Callable[[Tensor], None]) -> RemovableHandle:
        """Calls ``hook(tensor)`` after a gradient was added to the ``grad`` of this leaf."""
        if not self.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        if not self.is_leaf:
            raise RuntimeError(
                "post accumulate grad hooks cannot be registered on non-leaf tensors"
            )
        return _register(self._post_accumulate_table(), hook)

    # -- in place ----------------------------------------------------------------------------------

    def fill_(self, value: Tensor | Number) -> Tensor:
        """Sets all elements."""
        _C.check_inplace(self, value)
        number = value
        if isinstance(value, Tensor):
            if value.ndim:
                raise RuntimeError(
                    f"fill_ only supports 0-dimension value tensor but got tensor with "
                    f"{value.ndim} dimensions."
                )
            number = 0 if self.is_meta else value.detach().to(self.dtype).item()
        else:
            number = _C.fitted_number(number, self.dtype)
        if not self.is_meta:
            self._array[...] = number
        _C.overwritten(self, value)
        return self

    def set_(self, source: Tensor) -> Tensor:
        """Makes this a handle of the memory of another tensor."""
        self.data = source
        return self

    def resize_(self, *size: int | Sizes) -> Tensor:
        """Another shape; elements that fit keep their values."""
        _C.check_inplace(self)
        fresh = creation.zeros(*size, dtype=self.dtype, device=self.device)
        if not self.is_meta:
            count = min(fresh.numel(), self.numel())
            fresh._array.reshape(-1)[:count] = self._array.reshape(-1)[:count]
        self.data = fresh
        return self

    def apply_(self, function: Callable[[Any], Any]) -> Tensor:
        """Replaces each element by what the function makes of it."""
        _C.check_inplace(self)
        flat = [function(v) for v in self._array.reshape(-1).tolist()]
        self._array[...] = np.array(flat, self._array.dtype).reshape(self._array.shape)
        _C.overwritten(self)
        return self

    # -- siblings ----------------------------------------------------------------------------------

    new = typed.new
    new_tensor = new_methods.new_tensor
    new_zeros = new_methods.new_zeros
    new_ones = new_methods.new_ones
    new_empty = new_methods.new_empty
    new_full = new_methods.new_full
    new_empty_strided = new_methods.new_empty_strided

    # -- containers' protocols ---------------------------------------------------------------------

    def __iter__(self) -> Iterator[Tensor]:
        if self.dim() == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __contains__(self, element: Tensor | Number) -> bool:
        if not isinstance(element, (Tensor, int, float, complex, bool, np.generic)):
            raise RuntimeError(
                f"Tensor.__contains__ only supports Tensor or scalar, but you passed in a "
                f"{type(element)}."
            )
        return bool((self == element).any())

    def __reversed__(self) -> Tensor:
        return self if self.ndim == 0 else self.flip(0)

    def __complex__(self) -> complex:
        if self.numel() != 1:
            raise ValueError("only one element tensors can be converted to Python scalars")
        return complex(self.item())

    def __dir__(self) -> list[str]:
        return sorted({*object.__dir__(self), *self.__dict__})

    # -- copies ------------------------------------------------------------------------------------

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = self.__dict__ or None
        if self.is_meta:
            return (
                _rebuild_meta,
                (type(self), tuple(self.shape), self.dtype, self.requires_grad),
                state,
            )
        # An array object of its own: handles that share storage come back independent, as torch's
        # do.
        return _rebuild, (type(self), self._array_view, self.requires_grad), state

    def __setstate__(self, state: Any) -> None:
        if state:
            self.__dict__.update(state)

    def __copy__(self) -> Tensor:
        reduced = _reduced_by_class(self)
        if reduced is not None:
            return self if isinstance(reduced, str) else copy.copy(_Reduced(reduced))
        result = _C.make_subclass(type(self), self, self.requires_grad)
        result.__dict__.update(self.__dict__)
        return result

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        known = memo.get(id(self))
        if known is not None:
            return known
        if not self.is_leaf:
            raise RuntimeError(
                "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
                "protocol at the moment. Use detach() first"
            )
        plain = (
            self.detach() if self.is_meta else _C.from_array(copy_with_memory(self._array, memo))
        )
        result = _C.make_subclass(type(self), plain, self.requires_grad)
        memo[id(self)] = result
        if self.grad is not None:
            result.grad = copy.deepcopy(self.grad, memo)
        result.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return result


def _register(table: dict[int, Any], hook: Any) -> Any:
    handle = RemovableHandle(table)
    table[handle.id] = hook
    return handle


def is_tensor(obj: Any) -> bool:
    """True if it is a modtree tensor."""
    return isinstance(obj, Tensor)


def _fill_from_constructor(self: Tensor, args: Any, kwargs: Any) -> None:
    """Tensor(), Tensor(2, 3), Tensor([1., 2.]), Tensor(other)."""
    place = kwargs.pop("device", None)
    if kwargs:
        raise TypeError(f"new() received an invalid keyword argument '{next(iter(kwargs))}'")
    if not args:
        values = None
    elif len(args) == 1 and isinstance(args[0], Tensor):
        values = args[0].detach()
    elif len(args) == 1 and isinstance(args[0], Size):
        values = creation.empty(*args, device="cpu")
    elif len(args) == 1 and not isinstance(args[0], (int, np.integer)):
        values = from_data.tensor(args[0], dtype=dtypes.get_default_dtype(), device="cpu")
    else:
        values = creation.empty(*args, device="cpu")
    if place is not None and as_device(place).type == "meta":
        raise RuntimeError(
            "legacy constructor expects device type: cpu but device type: meta was passed"
        )
    if values is not None:
        self.data = values


class _Reduced:
    """What ``copy.copy`` takes for an object that reduces to this."""

    def __init__(self, reduction: Any) -> None:
        self._reduction = reduction

    def __reduce_ex__(self, protocol: Any) -> Any:
        return self._reduction


def _reduced_by_class(tensor: Tensor) -> Any:
    """What a subclass, or a function registered with ``copyreg``, wants copies to be made of; None
    where neither has a say.
    """
    cls = type(tensor)
    function = copyreg.dispatch_table.get(cls)
    if function is not None:
        return function(tensor)
    for home in cls.__mro__:
        if "__copy__" in vars(home):
            return None
        if "__reduce_ex__" in vars(home) or "__reduce__" in vars(home):
            return tensor.__reduce_ex__(4)
    return None


def _rebuild(cls: type, array: np.ndarray, requires_grad: bool) -> Tensor:
    """Where a pickled tensor comes back."""
    return _C.make_subclass(cls, _C.from_array(array), requires_grad)


def _rebuild_meta(cls: type, sizes: Any, dtype: Any, requires_grad: bool) -> Tensor:
    return _C.make_subclass(cls, _C.empty_meta(sizes, dtype), requires_grad)


# What runs in every class as it stands: making and restoring objects, and what only leads to other
# methods.
_NOT_OVERRIDABLE = frozenset(
    ("__new__", "__init__", "__setstate__", "__copy__", "__iter__", "__dir__")
)


def _make_overridable() -> None:
    for name, value in list(vars(Tensor).items()):
        if isinstance(value, FunctionType) and name not in _NOT_OVERRIDABLE:
            setattr(Tensor, name, overridable(value))
        elif isinstance(value, property):
            setattr(Tensor, name, overridable_property(value))


def _install_methods() -> None:
    for name, value in registry.methods.items():
        if name not in Tensor.__dict__:
            setattr(Tensor, name, value)
    _make_overridable()


_install_methods()
_C._install(Tensor=Tensor, Size=Size)
