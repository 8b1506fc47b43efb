# SPDX-License-Identifier: BSD-3-Clause
"""Parameters and buffers whose shape is not known yet: what lazy modules hold until their first
call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from modtree import _imports
from modtree._C import _has_compatible_shallow_copy_type
from modtree.numpy.tensor import creation
from modtree.numpy.tensor.parameter import Parameter
from modtree.numpy.tensor.tensor import Tensor

if TYPE_CHECKING:
    from typing_extensions import Self

_imports.refuse_second(__name__)


class UninitializedTensorMixin:
    """What tensors without a shape have in common: they can be moved and converted, filled in by
    :meth:`materialize`, and refuse everything else.
    """

    __module__ = "modtree.nn.parameter"  # the name in pickles and in repr

    #: The class of the tensor once it has a shape.
    cls_to_become: ClassVar[type]

    if TYPE_CHECKING:  # what comes from the tensor beside this class
        data: Any
        requires_grad: bool

    _allowed_methods: ClassVar[list[Any]] = [
        Tensor.__hash__,
        Tensor.size,
        Tensor.copy_,
        Tensor.is_complex,
        Tensor.is_floating_point,
        Tensor.half,
        Tensor.float,
        Tensor.double,
        Tensor.char,
        Tensor.short,
        Tensor.int,
        Tensor.long,
        Tensor.cuda,
        Tensor.cpu,
        Tensor.to,
        Tensor.get_device,
        _has_compatible_shallow_copy_type,
    ]

    def materialize(self, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Gives the tensor a shape, and with it values that are not set; it stays the same object
        and becomes an ordinary parameter or buffer.

        Args:
            shape: The shape.
            device: Where; where it says it is by default.
            dtype: The dtype; its own by default.
        """
        data = self.data
        self.data = creation.empty(
            shape,
            dtype=data.dtype if dtype is None else dtype,
            device=data.device if device is None else device,
        )
        self.__class__ = self.cls_to_become

    @property
    def shape(self) -> NoReturn:
        """Not known yet."""
        raise RuntimeError(
            "Can't access the shape of an uninitialized parameter or buffer: it has none before "
            "the first call of its module, or materialize(). When load_state_dict() says this, "
            "the checkpoint was saved before that call and the module here was called already."
        )

    def share_memory_(self) -> NoReturn:
        """Refused: there are no values to share."""
        raise RuntimeError(
            "Can't share memory on an uninitialized parameter or buffer: call the module once, "
            "which gives it values, and share_memory() after that."
        )

    def __repr__(self) -> str:
        return f"<{type(self).__name__}>"

    def _arguments(self) -> dict[str, Any]:
        """What makes another one like it."""
        data = self.data
        return {
            "requires_grad": self.requires_grad,
            "device": data.device,
            "dtype": data.dtype,
        }

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        known = memo.get(id(self))
        if known is not None:
            return known
        result = memo[id(self)] = type(self)(**self._arguments())
        return result

    def __copy__(self) -> Any:
        result = type(self)(**self._arguments())
        result.__dict__.update(self.__dict__)
        return result

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        arguments = (type(self), self._arguments())
        attributes = self.__dict__
        if not attributes:
            return _rebuild_uninitialized, arguments
        return _rebuild_uninitialized, arguments, dict(attributes)

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        self.__dict__.update(attributes)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        # A method-wrapper is what reads or writes an attribute.
        if func in cls._allowed_methods or type(func).__name__ == "method-wrapper":
            return super().__torch_function__(func, types, args, kwargs or {})  # type: ignore[misc]
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}: {cls.__name__} has neither a "
            f"shape nor values before the first call of its lazy module, or materialize(shape). "
            f"Call the module with an example batch first."
        )


class UninitializedParameter(UninitializedTensorMixin, Parameter):  # type: ignore[misc]
    """A parameter without a shape; :meth:`materialize` makes it a :class:`Parameter`.

    Args:
        requires_grad: Whether gradients are computed for it.
        device: Where it is to be.
        dtype: The dtype it is to have; the default dtype when it is None.
    """

    __module__ = "modtree.nn.parameter"

    cls_to_become = Parameter

    def __new__(cls, requires_grad: bool = True, device: Any = None, dtype: Any = None) -> Self:
        data = creation.empty(0, device=device, dtype=dtype)
        return Tensor._make_subclass(cls, data, requires_grad)


class UninitializedBuffer(UninitializedTensorMixin, Tensor):
    """A buffer without a shape; :meth:`materialize` makes it a plain tensor that is still marked as
    a buffer.

    Args:
        requires_grad: Whether gradients are computed for it.
        device: Where it is to be.
        dtype: The dtype it is to have; the default dtype when it is None.
        persistent: Whether the buffer is a part of the module's ``state_dict``.
    """

    __module__ = "modtree.nn.parameter"

    cls_to_become = Tensor
    persistent: bool

    def __new__(
        cls,
        requires_grad: bool = False,
        device: Any = None,
        dtype: Any = None,
        persistent: bool = True,
    ) -> Self:
        data = creation.empty(0, device=device, dtype=dtype)
        buffer = Tensor._make_subclass(cls, data, requires_grad)
        buffer.persistent = persistent
        buffer._is_buffer = True  # type: ignore[attr-defined]
        return buffer

    def _arguments(self) -> dict[str, Any]:
        # What a conversion made has no mark of its own.
        return {**super()._arguments(), "persistent": getattr(self, "persistent", True)}


def _rebuild_uninitialized(cls: type, arguments: dict[str, Any]) -> Any:
    return cls(**arguments)
