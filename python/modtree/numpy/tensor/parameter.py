# SPDX-License-Identifier: BSD-3-Clause
"""``Parameter`` and ``Buffer``: tensors that register themselves when they are assigned to a
module.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from modtree import _C, _imports
from modtree._C import _disabled_torch_function_impl
from modtree.core.families import TensorFamily, family_of, is_parameter
from modtree.numpy.tensor.devices import device_in_force
from modtree.numpy.tensor.tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

_imports.refuse_second(__name__)


class _ParameterMeta(type(Tensor)):  # type: ignore[misc]
    """Makes ``isinstance(x, Parameter)`` true for parameters of every tensor family."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        if cls is not Parameter:
            return False
        return is_parameter(instance)


class _BufferMeta(type(Tensor)):  # type: ignore[misc]
    """Makes ``isinstance(x, Buffer)`` true for the tensors that ``Buffer(...)`` returned."""

    def __instancecheck__(cls, instance: Any) -> bool:
        if type.__instancecheck__(cls, instance):
            return True
        if cls is not Buffer:
            return False
        family = family_of(instance)
        return family is not None and bool(family.is_buffer(instance))


class Parameter(Tensor, metaclass=_ParameterMeta):
    """A tensor that a module registers as a parameter when it is assigned to an attribute::

        module.weight = Parameter(mt.zeros(3, 4))

    The new parameter shares the storage of ``data`` and is a leaf of its own: the graph behind
    ``data`` is left behind. Results of operations on parameters are plain tensors.

    A tensor of another library gives that library's kind of parameter (``torch.nn.Parameter`` for
    torch, a marked array for jax), and tensors of a class of their own keep it and are marked with
    ``_is_param``;
    ``isinstance(p, Parameter)`` holds for all of them.

    Args:
        data: The tensor; an empty one of size 0 by default.
        requires_grad: Whether gradients are computed for it, also when it is made under
            ``no_grad()``.
    """

    __module__ = "modtree.nn.parameter"  # the name in pickles and in repr

    __torch_function__ = _disabled_torch_function_impl  # type: ignore[assignment]

    def __new__(cls, data: Any = None, requires_grad: bool = True) -> Self:
        if data is None:
            data = _nothing()
        kind = type(data)
        if kind is Tensor or kind is Parameter:
            return Tensor._make_subclass(cls, data, requires_grad)
        family = family_of(data)
        if family is not None and not isinstance(data, Tensor):
            return _foreign(cls, Parameter, family).make_parameter(data, requires_grad)
        parameter = _detach(data, "Parameter").requires_grad_(requires_grad)
        if type(parameter) is not kind:
            raise RuntimeError(
                f"Creating a Parameter from an instance of type {kind.__name__} requires that "
                "detach() returns an instance of the same type, but it returned a "
                f"{type(parameter).__name__}. Override detach(), or pass the plain tensor that it "
                "returns."
            )
        parameter._is_param = True
        return parameter

    def __deepcopy__(self, memo: dict[int, Any]) -> Parameter:
        known = memo.get(id(self))
        if known is not None:
            return known
        result = memo[id(self)] = type(self)(self.data.clone(), self.requires_grad)
        return result

    __copy__ = Tensor.__copy__  # not by what pickle is told below

    # Native: the bytes in one step, or what `_reduce_parameter` says.
    __reduce_ex__ = _C.TensorBase._reduce_parameter  # type: ignore[assignment]

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)

    def __repr__(self) -> str:
        return f"Parameter containing:\n{super().__repr__()}"


#: The type of a parameter that a layer may be made without; its attribute is None then. It is Any
#: besides, so that programs may compare it with None, and use it where they know that it is there.
OptionalParameter: TypeAlias = "Parameter | Any"


class Buffer(Tensor, metaclass=_BufferMeta):
    """Marks a tensor so that a module registers it as a buffer when it is assigned to an
    attribute::

        module.mean = Buffer(mt.zeros(3))

    ``Buffer(data)`` returns a plain tensor that shares the storage of ``data``; it is never an
    object of this class, but ``isinstance(b, Buffer)`` tells the marked ones from others.

    Args:
        data: The tensor; an empty one of size 0 by default.
        persistent: Whether the buffer is a part of the module's ``state_dict``.
    """

    __module__ = "modtree.nn.parameter"  # the name in pickles and in repr

    persistent: bool

    def __new__(cls, data: Any = None, *, persistent: bool = True) -> Any:
        if data is None:
            data = _nothing()
        family = family_of(data)
        if family is not None and not isinstance(data, Tensor):
            return _foreign(cls, Buffer, family).make_buffer(data, persistent)
        buffer = _detach(data, "Buffer").requires_grad_(data.requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True
        return buffer


def _nothing() -> Tensor:
    """No values, on the device in force."""
    place = device_in_force()
    return Tensor() if place is None else Tensor().to(place)


def _reduce_parameter(self: Parameter, protocol: Any) -> tuple[Any, ...]:
    arguments = (self.data, self.requires_grad)
    attributes = self.__dict__
    if not attributes:
        return _rebuild_parameter, arguments
    return _rebuild_parameter, arguments, dict(attributes)


def _rebuild_parameter(data: Any, requires_grad: bool) -> Parameter:
    return Parameter(data, requires_grad)


#: Where a pickle that has the bytes leads.
_parameter_of_bytes = _C._parameter_of_bytes


def _foreign(cls: type, own: type, family: TensorFamily) -> TensorFamily:
    """The family that makes the parameter or buffer; a subclass of ours cannot hold tensors of
    another library.
    """
    if cls is not own:
        raise TypeError(
            f"{cls.__name__} is a kind of modtree tensor and cannot hold a tensor of "
            f"{family.name}: derive it from {family.name}'s own {own.__name__}, or pass a "
            "modtree.Tensor"
        )
    return family


def _detach(data: Any, what: str) -> Any:
    try:
        detach = data.detach
    except AttributeError:
        raise AttributeError(
            f"'{type(data).__name__}' object has no attribute 'detach': {what}() takes a tensor. "
            "Wrap arrays with modtree.from_numpy(array) and other numbers with "
            "modtree.tensor(values)."
        ) from None
    return detach()
