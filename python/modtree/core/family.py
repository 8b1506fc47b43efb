# SPDX-License-Identifier: BSD-3-Clause
"""What the module tree may ask of a tensor library: the seam between the two.

A family is one object of a subclass of :class:`TensorFamily`. The tree (C++) looks it up by the
type of a value, keeps it for ever, and asks it instead of looking into a tensor. The methods below
are all that it asks; ``csrc/core/family/family.h`` has the same list.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np


class ParameterCopies(NamedTuple):
    """What ``Parameter.__deepcopy__`` of a library does, where it is what torch's does: makes a
    parameter of a clone of the data.

    Args:
        parameter_type: The class; instances of classes below it are copied by their own method.
        plain_types: The classes of data of which ``make`` makes a parameter; other data go to the
            constructor.
        make: Called with the class, the data and ``requires_grad``.
        memory_format: The argument of ``clone``.
        deciding: What the class has under the names that decide what a copy is; where one of these
            is replaced, the method is called.
    """

    parameter_type: type
    plain_types: tuple[type, ...]
    make: Callable[[type, Any, bool], Any]
    memory_format: Any
    deciding: dict[str, Any]


class TensorAccess(NamedTuple):
    """How native code reads tensors of a library without their Python names.

    Args:
        exchange: The capsule with DLPack's table of C functions (``__dlpack_c_exchange_api__``).
        attributes: What ``tensor_type`` and ``parameter_type`` have under the names that the table
            answers instead, and under those of the C functions that native code calls itself:
            where a program replaces one of these, nothing is read natively.
        modes: Functions that count what is to see every question to a tensor on this thread, by the
            symbol of the C++ function behind each; nothing is read while one is not zero.
        function_modes: The one of these functions whose modes see the attributes of tensors; the
            others see operations only.
        transforms: The symbol of the C++ function that tells where the state of function transforms
            on this thread is kept.
        library: The path of the shared library with those symbols.
        int8: The dtype of signed bytes; the table says the same of integers of fewer bits.
        uint8: The dtype of unsigned bytes.
        is_neg: Whether a tensor is noted as negated.
        is_conj: Whether a tensor is noted as conjugated.
        untyped_storage: The storage of a tensor.
        storage_nbytes: The size of a storage.
        storage_address: The address of a storage.
    """

    exchange: Any
    attributes: dict[str, Any]
    modes: dict[str, Callable[[], int]]
    function_modes: Callable[[], int]
    transforms: str
    library: str
    int8: Any
    uint8: Any
    is_neg: Callable[[Any], bool]
    is_conj: Callable[[Any], bool]
    untyped_storage: Callable[[Any], Any]
    storage_nbytes: Callable[[Any], int]
    storage_address: Callable[[Any], int]


def comparison_of(cls: type) -> tuple[Any, Any]:
    """What replaces ``hash()`` and ``==`` in the class: tensors with these are told apart by
    their addresses.
    """
    found = [next(vars(k)[name] for k in cls.__mro__ if name in vars(k)) for name in _COMPARISON]
    return found[0], found[1]


_COMPARISON = ("__hash__", "__eq__")


class TensorFamily:
    """Answers the tree's questions about the tensors of one library.

    The default methods speak the attribute names that torch made common (``x.requires_grad``,
    ``x.data``, ``x.copy_(y)``, ...), so that a family for a library with such tensors overrides
    little.
    """

    #: Short name, for messages: ``"numpy"``, ``"torch"``.
    name: str
    #: The class of all tensors of the library.
    tensor_type: type
    #: ``comparison_of(tensor_type)`` as the library has it, for one that programs may patch; None:
    #: what the type has.
    own_comparison: tuple[Any, Any] | None = None
    #: The class made by :meth:`make_parameter`.
    parameter_type: type
    #: True when the tensors have torch's attributes with torch's meaning: ``shape``, ``is_meta``,
    #: ``requires_grad``, ``grad``, ``grad_fn``, ``data``, ``_is_param``, ``_is_buffer``,
    #: ``is_floating_point()``, ``is_complex()``, ``detach()``, ``copy_()``, ``requires_grad_()``,
    #: and the two classes above do not have lazy tensors. Native code then asks the tensor instead
    #: of calling the method of the family.
    has_common_names: bool = False
    #: True when a tensor without a mark can be a parameter: where ``register_parameter`` is given
    #: one, and where one is assigned to the name of a parameter. Under a new name it is a plain
    #: attribute unless :meth:`is_parameter` says that it is marked.
    bare_parameters: bool = False
    #: True when tensors never change. ``load_state_dict``, ``to()`` and the like then put another
    #: tensor into the registries, once for all names of a tensor: see :meth:`filled`.
    immutable: bool = False
    #: True when tensors are told apart by their addresses, whatever their classes say of ``==`` and
    #: ``hash()`` (which may compare values, or be missing).
    told_by_address: bool = False
    #: How native code makes the copies of ``copy.deepcopy``; None: the parameters' own method does.
    parameter_copies: ParameterCopies | None = None
    #: How native code reads tensors of the two classes above; None: by their names alone.
    tensor_access: TensorAccess | None = None
    #: Modules with functions on the library's tensors, by torch's names and with torch's arguments.
    #: Layers and ``nn.functional`` run on the first of them that has a function.
    functions: tuple[str, ...] = ()

    def owns(self, cls: type) -> bool:
        """True if a type that derives from one of the library's is one of its tensors."""
        return issubclass(cls, self.tensor_type)

    # -- what a tensor is --------------------------------------------------------------------------

    def is_parameter(self, tensor: Any) -> bool:
        """True for a parameter, by its class or by a truthy ``_is_param``."""
        # Parameter classes answer isinstance() by asking this method.
        if type.__instancecheck__(self.parameter_type, tensor):
            return True
        return bool(getattr(tensor, "_is_param", False))

    def is_buffer(self, tensor: Any) -> bool:
        """True if ``Buffer`` made it, which sets a truthy ``_is_buffer``."""
        return bool(getattr(tensor, "_is_buffer", False))

    def is_uninitialized(self, tensor: Any) -> bool:
        """True for a lazy tensor whose shape is not known yet."""
        return False

    def is_meta(self, tensor: Any) -> bool:
        """True for a tensor with a shape and a dtype but without storage."""
        return tensor.is_meta

    def is_floating_point(self, tensor: Any) -> bool:
        """True if the dtype is a floating one, not complex."""
        return tensor.is_floating_point()

    def is_complex(self, tensor: Any) -> bool:
        """True if the dtype is complex."""
        return tensor.is_complex()

    def shape(self, tensor: Any) -> tuple[int, ...]:
        """The size of each dimension."""
        return tensor.shape

    def dtype_name(self, tensor: Any) -> str:
        """The dtype without a library's name: ``"float32"``."""
        return str(tensor.dtype).rpartition(".")[2]

    def type_name(self, tensor: Any) -> str:
        """How error messages call the type of this tensor, for example ``"torch.FloatTensor"``."""
        raise NotImplementedError

    # -- gradients ---------------------------------------------------------------------------------

    def requires_grad(self, tensor: Any) -> bool:
        """True if operations on it are recorded."""
        return tensor.requires_grad

    def set_requires_grad(self, tensor: Any, flag: bool) -> None:
        """Switches that on or off, in place."""
        tensor.requires_grad_(flag)

    def has_grad_fn(self, tensor: Any) -> bool:
        """True for a non-leaf, which a recorded operation computed."""
        return tensor.grad_fn is not None

    def grad(self, tensor: Any) -> Any:
        """Its gradient, or None."""
        return tensor.grad

    def set_grad(self, tensor: Any, grad: Any) -> None:
        """Replaces its gradient."""
        tensor.grad = grad

    def zero_grad(self, tensor: Any, set_to_none: bool) -> None:
        """Drops the gradient, or cuts it off its graph and zeroes it in place."""
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

    def no_grad(self) -> AbstractContextManager[Any] | None:
        """A context under which nothing is recorded, or None when the library records nothing."""
        return None

    #: Instead of :meth:`no_grad`, the library's switch of this thread: functions
    #: ``is_grad_enabled()`` and ``set_grad_enabled(flag)``. Native code uses them when both are
    #: there, which is cheaper than a context manager.
    is_grad_enabled: Callable[[], bool] | None = None
    set_grad_enabled: Callable[[bool], Any] | None = None

    # -- handles and storage -----------------------------------------------------------------------

    def detach(self, tensor: Any) -> Any:
        """A tensor over the same storage that nothing is recorded for."""
        return tensor.detach()

    def make_parameter(self, data: Any, requires_grad: bool) -> Any:
        """A new parameter sharing storage with ``data``."""
        raise NotImplementedError

    def make_buffer(self, data: Any, persistent: bool) -> Any:
        """A new plain tensor sharing storage with ``data`` that is marked as a buffer."""
        raise NotImplementedError

    def can_set_data(self, tensor: Any, other: Any) -> bool:
        """True if ``tensor.data = other`` is possible."""
        raise NotImplementedError

    def set_data(self, tensor: Any, other: Any) -> None:
        """Gives the tensor the storage and dtype of another one; the object stays the same."""
        tensor.data = other

    def must_swap_contents(self, tensor: Any, other: Any) -> bool:
        """True if a conversion of a parameter to ``other`` exchanges the contents of the two,
        whatever ``modtree.__future__`` says. Not asked where both are of ``tensor_type`` or
        ``parameter_type`` themselves.
        """
        return False

    #: The library's own switches of how converted tensors take the place of the old ones; they
    #: count for its tensors as those of ``modtree.__future__`` do for all. None: it has no such
    #: switch.
    get_overwrite_module_params_on_conversion: Callable[[], bool] | None = None
    get_swap_module_params_on_conversion: Callable[[], bool] | None = None

    def copy_into(self, tensor: Any, source: Any) -> None:
        """Copies values with conversion of dtype; ``source`` may be a tensor of another family."""
        tensor.copy_(source)

    def filled(self, tensor: Any, source: Any, as_it_is: bool) -> Any:
        """What takes the place of an immutable tensor when ``source`` is loaded: a new object of
        this family with the values of that, marked as the tensor is.

        Args:
            tensor: What the module holds.
            source: The value in the state dict, which may be of another family.
            as_it_is: Keep dtype and device of the source (``assign=True``), not of the tensor.
        """
        raise NotImplementedError(f"{self.name} tensors are not immutable: copy_into() fills them")

    def in_place_of(self, value: Any, tensor: Any) -> Any:
        """What a module stores when a value without a mark is assigned to the name of a parameter:
        what is noted of that one goes on. Asked where ``bare_parameters`` is true.
        """
        return value

    def takes_source(self, value: Any) -> bool:
        """True if ``load_state_dict`` reads tensors of this family from such a value, which is not
        a tensor of any family. It must have a ``shape``.
        """
        return False

    #: ``copy_all(tensors, sources)`` makes many copies of :meth:`copy_into` in one call and returns
    #: True; or returns False, when they must be made one by one. The tensors are different ones,
    #: all of ``tensor_type`` or ``parameter_type`` itself. None where a library has nothing
    #: quicker than one copy after the other.
    copy_all: Callable[[list[Any], list[Any]], bool] | None = None

    def to_numpy(self, tensor: Any) -> Any:
        """The values as an ``ndarray``, sharing memory if that is possible: how values cross from
        one family to another.
        """
        return np.asarray(self.detach(tensor))

    def converted(self, source: Any) -> Any:
        """What ``load_state_dict(assign=True)`` puts in the place of a tensor of this family when
        it is given one of another: a tensor of this one over the same memory, or with a copy of
        the values where libraries cannot share it. As it is where a family does not say more.
        """
        return source

    def from_dlpack(self, source: Any, family: TensorFamily) -> Any:
        """A tensor over the memory of one of another family, where DLPack can share it; None for
        :meth:`converted` to make it.
        """
        return None

    # -- conversions -------------------------------------------------------------------------------

    def to(
        self, tensor: Any, device: Any, dtype: Any, non_blocking: bool, memory_format: Any
    ) -> Any:
        """A tensor on that device, of that dtype (None: as it is); the same object when nothing
        changes.

        ``dtype`` may be of another library: families translate by name.

        Args:
            tensor: The tensor.
            device: A device, None for the same.
            dtype: A dtype, also of another library.
            non_blocking: The caller's wish, as torch has it.
            memory_format: An order of dimensions, or None.
        """
        raise NotImplementedError

    def dtype_named(self, name: str) -> Any:
        """The dtype that ``to()`` may be given by this name; None where the library has dtypes for
        that only, or no such dtype.
        """
        return None

    def is_device(self, value: Any) -> bool:
        """True for a device of the library, and for the name of one that torch does not have."""
        return False

    def empty_like(self, tensor: Any, device: Any) -> Any:
        """A tensor of the same shape and dtype with unset values, on a device."""
        raise NotImplementedError

    def stack(self, tensors: Any) -> Any:
        """Tensors of one shape as one, with their number as its first dimension; recorded."""
        raise NotImplementedError(f"{type(self).__name__} does not say how tensors are stacked")

    def zeros(self, shape: tuple[int, ...], dtype: Any, like: Any) -> Any:
        """Zeros on the device of another tensor of the family.

        Args:
            shape: The lengths of the dimensions.
            dtype: One of the library; None: that of ``like``.
            like: The other tensor.
        """
        raise NotImplementedError(
            f"modtree does not know how to make tensors of the family {self.name!r}"
        )

    def library(self, caller: str) -> Any:
        """The package with torch's functions for tensors of the family, which helpers such as
        ``clip_grad_norm_`` call; ``caller`` is the helper, for the error of a library that lacks
        them.
        """
        return importlib.import_module(self.tensor_type.__module__.partition(".")[0])

    def call_for_shapes(
        self, modules: Sequence[Any], call: Callable[..., Any], args: Any, kwargs: Any
    ) -> bool:
        """Calls a function with stand-ins that have shapes and no values, for the tensors of this
        family in the arguments and in the registries of the modules, which are then as before.

        Args:
            modules: Those whose registries get stand-ins for the time of the call.
            call: The function.
            args: Its arguments.
            kwargs: Its keyword arguments.

        Returns:
            False if nothing was done, as the library has no such way, or the function asks for
            values.
        """
        return False

    def share_memory(self, tensor: Any) -> Any:
        """Moves the storage to shared memory and returns the tensor."""
        raise NotImplementedError(f"{self.name} tensors cannot be moved to shared memory")

    # -- exchange of contents (modtree.__future__) -------------------------------------------------

    def swap_tensors(self, tensor: Any, other: Any) -> None:
        """Exchanges the contents of two tensors; the Python identity of both stays."""
        raise NotImplementedError

    def module_load(self, tensor: Any, source: Any, assign: bool) -> Any:
        """What swap mode stores in place of ``tensor`` when ``source`` is loaded.

        Args:
            tensor: What the module holds.
            source: The value in the state dict.
            assign: Keep ``source`` itself, not a copy of its values.
        """
        raise NotImplementedError

    # -- backward hooks ----------------------------------------------------------------------------

    def backward_tap(
        self,
        module: Any,
        backward_hooks: Sequence[Callable[..., Any]],
        backward_pre_hooks: Sequence[Callable[..., Any]],
    ) -> Any:
        """An object with ``setup_input_hook(args)`` and ``setup_output_hook(output)`` for one call
        of ``module``.

        Both return their argument with its tensors passed through an identity that reports
        gradients to the hooks. None when the library does not have gradients.

        Args:
            module: The module that is called.
            backward_hooks: Its full backward hooks, in order.
            backward_pre_hooks: Its backward pre-hooks, in order.
        """
        return None
