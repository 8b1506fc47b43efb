# SPDX-License-Identifier: BSD-3-Clause
"""``new_tensor``, ``new_zeros``, ``new_full``, ...: methods that make a tensor with the dtype and
device of another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from modtree.numpy.tensor import creation, from_data
from modtree.numpy.tensor.factory_arguments import PLACE, checked_arguments, parameters_of

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Device, DType, Number, Sizes, Tensor

_KEYWORDS = frozenset(("size", *PLACE))


def new_tensor(
    self: Tensor,
    data: Any,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """modtree.tensor() with the dtype and device of this tensor.

    Args:
        data: Numbers, nested sequences, an array or a tensor.
        dtype: Another dtype than this tensor's.
        device: Another device than this tensor's.
        requires_grad: Record operations on the result.
    """
    return from_data.tensor(
        data,
        dtype=self.dtype if dtype is None else dtype,
        device=self.device if device is None else device,
        requires_grad=requires_grad,
    )


def _new_like(self: Any, make: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """What the methods below have in common."""
    checked_arguments("new_" + make.__name__, _KEYWORDS, kwargs)
    kwargs = {k: v for k, v in kwargs.items() if v is not None}
    kwargs.setdefault("dtype", self.dtype)
    kwargs.setdefault("device", self.device)
    return make(*args, **kwargs)


def _of_sizes(make: Callable[..., Any], what: str) -> Callable[..., Any]:
    def new(self: Tensor, *size: int | Sizes, **kwargs: Any) -> Tensor:
        return _new_like(self, make, size, kwargs)

    new.__name__ = new.__qualname__ = "new_" + make.__name__
    new.__doc__ = f"""{what} with the dtype and device of this tensor.

    Args:
        size: Sizes, one by one or as a sequence.
        kwargs: ``dtype``, ``device``, ``requires_grad``.
    """
    return new


new_zeros = _of_sizes(creation.zeros, "Zeros")
new_ones = _of_sizes(creation.ones, "Ones")
new_empty = _of_sizes(creation.empty, "Unset values")


def new_full(self: Tensor, size: Sizes, fill_value: Tensor | Number, **kwargs: Any) -> Tensor:
    """One value with the dtype and device of this tensor.

    Args:
        size: The shape.
        fill_value: The value.
        kwargs: ``dtype``, ``device``, ``requires_grad``.
    """
    return _new_like(self, creation.full, (size, fill_value), kwargs)


def new_empty_strided(self: Tensor, size: Sizes, stride: Sizes, **kwargs: Any) -> Tensor:
    """Unset values with these strides, and the dtype and device of this tensor.

    Args:
        size: The shape.
        stride: Elements from one index to the next, for each dimension.
        kwargs: ``dtype``, ``device``, ``requires_grad``.
    """
    return _new_like(self, creation.empty_strided, (size, stride), kwargs)


_function: Any
for _function in (new_zeros, new_ones, new_empty, new_full, new_empty_strided):
    _function.__signature__ = parameters_of(_function, PLACE)
