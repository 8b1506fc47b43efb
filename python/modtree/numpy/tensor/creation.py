# SPDX-License-Identifier: BSD-3-Clause
"""Tensors of one value or of none: zeros, ones, full, empty, and what factories share."""

from __future__ import annotations

import builtins
import math
import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree import _C
from modtree._C import as_dtype, as_tuple, get_default_dtype, own_array
from modtree.core.type_names import no_tensor
from modtree.numpy.tensor.devices import as_device, contexts, device_in_force
from modtree.numpy.tensor.factory_arguments import PLACE, checked, checked_arguments, parameters_of
from modtree.numpy.tensor.layouts import preserve_format
from modtree.numpy.tensor.memory_formats import check_format, in_format, in_order_of
from modtree.numpy.tensor.size import Size

if TYPE_CHECKING:
    from modtree.numpy.argument_types import (
        Device,
        DType,
        Generator,
        Number,
        Sizes,
        Tensor,
        memory_format,
    )

__all__ = [
    "empty",
    "empty_like",
    "empty_strided",
    "full",
    "full_like",
    "ones",
    "ones_like",
    "scalar_tensor",
    "zeros",
    "zeros_like",
]


_MOST_BYTES = np.iinfo(np.intp).max


def sizes_of(size: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    if len(size) == 1 and not isinstance(size[0], int) and hasattr(size[0], "__iter__"):
        size = as_tuple(size[0])
    try:
        sizes = tuple(operator.index(n) for n in size)
    except TypeError:
        raise TypeError(f"sizes must be integers, got {size!r}") from None
    if builtins.any(n < 0 for n in sizes):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(sizes)}")
    return sizes


def _are_plain_sizes(size: tuple[Any, ...]) -> bool:
    """Whether sizes_of() would give them as they are."""
    for n in size:
        if type(n) is not int or n < 0:
            return False
    return True


def numpy_dtype(dtype: Any) -> np.dtype:
    return (get_default_dtype() if dtype is None else as_dtype(dtype)).dtype


def scalar_dtype(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "int64"
    if isinstance(value, (builtins.complex, np.complexfloating)):
        return "complex128" if get_default_dtype().itemsize == 8 else "complex64"
    return get_default_dtype()


def make_at(make: Any, shape: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """make(shape, numpy dtype) -> array, called for cpu only."""
    if device is None and contexts:
        device = device_in_force()
    if device is not None and as_device(device).type == "meta":
        return _C.empty_meta(shape, get_default_dtype() if dtype is None else dtype, requires_grad)
    kind = numpy_dtype(dtype)
    try:
        array = make(shape, kind)
    except ValueError:
        need_storage(shape, kind)
        raise
    return own_array(array, requires_grad)


def need_storage(shape: Any, kind: np.dtype) -> None:
    """Raises the RuntimeError of a size in bytes that no number of 64 bits can say."""
    if math.prod(n for n in shape if n) * kind.itemsize > _MOST_BYTES:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")


_PLACE_ARGS = """\
    dtype: The dtype of the result.
    device: ``"cpu"`` or ``"meta"``.
    requires_grad: Record operations on the result.
"""
_GENERATOR_ARG = """\
    generator: Where random numbers come from; the default generator without.
"""
_FACTORY_ARGS = f"""

Args:
    sizes: Sizes, one by one or as a sequence.
    size: The same, by name.
{_PLACE_ARGS}"""
_LIKE_ARGS = f"""

Args:
    input: The tensor.
{_PLACE_ARGS}    memory_format: Order of the dimensions in memory; that of ``input`` without.
"""


_LIKE_KEYWORDS = {
    "generator": _GENERATOR_ARG,
    "fill_value": "    fill_value: The value.\n",
    "low": "    low: Lower end; the upper one where ``high`` is not given.\n",
    "high": "    high: Upper end, not included.\n",
}


def factory(name: str, make: Any, text: str, *keywords: str) -> Any:
    def create(
        *sizes: int | Sizes,
        size: Sizes | None = None,
        dtype: DType | None = None,
        device: Device | None = None,
        requires_grad: bool = False,
        generator: Generator | None = None,
    ) -> Tensor:
        if size is not None:
            if sizes:
                raise TypeError(f"{name}() got multiple values for argument 'size'")
            sizes = (size,)
        shape = sizes_of(sizes)
        return make_at(
            lambda shape, dtype: make(shape, dtype, generator), shape, dtype, device, requires_grad
        )

    create.__name__ = create.__qualname__ = name
    create.__doc__ = text + _FACTORY_ARGS + (_GENERATOR_ARG if "generator" in keywords else "")
    return checked("size", "out", *PLACE, *keywords)(create)


zeros = factory("zeros", lambda shape, dtype, _: np.zeros(shape, dtype), "A tensor of zeros.")
ones = factory("ones", lambda shape, dtype, _: np.ones(shape, dtype), "A tensor of ones.")
_empty = factory(
    "empty", lambda shape, dtype, _: np.empty(shape, dtype), "A tensor whose values are not set."
)


def empty(
    *size: int | Sizes,
    dtype: DType | None = None,
    device: Device | None = None,
    memory_format: memory_format | None = None,
    **kwargs: Any,
) -> Tensor:
    """A tensor whose values are not set.

    Args:
        size: Sizes, one by one or as a sequence.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        memory_format: Order of the dimensions in memory.
        kwargs: ``requires_grad``, ``layout``, ``pin_memory``, ``out``.
    """
    # Every parameter of a layer is made here: what needs no check goes by the checks.
    if device is None and memory_format is None and not kwargs and not contexts:
        shape: Any = size[0] if len(size) == 1 and type(size[0]) in (tuple, Size) else size
        if _are_plain_sizes(shape):
            kind = numpy_dtype(dtype)
            try:
                return own_array(np.empty(shape, kind))
            except ValueError:
                need_storage(shape, kind)
                raise
    result = _empty(*size, dtype=dtype, device=device, **kwargs)
    if memory_format is None:
        return result
    check_format("empty", memory_format)
    if memory_format is preserve_format:
        raise RuntimeError(
            "unsupported memory format Preserve: there is no tensor whose format could be kept"
        )
    needs_grad = result.requires_grad
    return in_format(result.detach(), memory_format).detach().requires_grad_(needs_grad)


_taken = ("out", "memory_format", *PLACE)
empty.__signature__ = parameters_of(empty, _taken)  # type: ignore[attr-defined]


@checked("size", "fill_value", "out", *PLACE)
def full(
    size: int | Sizes,
    fill_value: Tensor | Number,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A tensor of one value; its dtype follows the value when it is not given.

    Args:
        size: The shape.
        fill_value: The value.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    if isinstance(fill_value, _C.TensorBase):
        fill_value = fill_value.item()
    if dtype is None:
        dtype = scalar_dtype(fill_value)
    fill_value = _C.fitted_number(fill_value, dtype)
    return make_at(
        lambda shape, kind: np.full(shape, fill_value, kind),
        sizes_of((size,)),
        dtype,
        device,
        requires_grad,
    )


def _like(input: Any, dtype: Any, device: Any) -> tuple[Any, Any]:
    if not isinstance(input, _C.TensorBase):
        raise TypeError(f"argument 'input' must be Tensor, not {no_tensor(input)}")
    return input.dtype if dtype is None else dtype, input.device if device is None else device


_LIKE = frozenset(("memory_format", *PLACE))


def _of_input(input: Tensor) -> None: ...
def _of_value(input: Tensor, fill_value: Number) -> None: ...
def _of_ends(input: Tensor, low: int, high: int | None = None) -> None: ...


#: What the functions below take besides keywords, where that is not the tensor alone.
_OWN: dict[str, Any] = {"full_like": _of_value, "randint_like": _of_ends}


def like_factory(create: Any, name: str, text: str, *keywords: str) -> Any:
    allowed = _LIKE | frozenset(keywords)

    def like(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        checked_arguments(name, allowed, kwargs)
        memory_format = kwargs.pop("memory_format", None)
        if memory_format is not None:
            check_format(name, memory_format)
        needs_grad = kwargs.pop("requires_grad", False)
        dtype, device = _like(input, kwargs.pop("dtype", None), kwargs.pop("device", None))
        values = create(tuple(input.shape), *args, dtype=dtype, device=device, **kwargs)
        result = in_order_of(input, values, memory_format)
        return result.detach().requires_grad_(True) if needs_grad else result

    like.__name__ = like.__qualname__ = name
    like.__doc__ = text + _LIKE_ARGS + "".join(_LIKE_KEYWORDS[k] for k in keywords)
    own = _OWN.get(name, _of_input)
    known = ("memory_format", *PLACE, *keywords)
    like.__signature__ = parameters_of(own, known)  # type: ignore[attr-defined]
    return like


AS_INPUT = "with the shape, dtype and device of another tensor, in its order in memory."
zeros_like = like_factory(zeros, "zeros_like", f"Zeros {AS_INPUT}")
ones_like = like_factory(ones, "ones_like", f"Ones {AS_INPUT}")
empty_like = like_factory(empty, "empty_like", f"Unset values {AS_INPUT}")
full_like = like_factory(full, "full_like", f"One value {AS_INPUT}", "fill_value")


@checked("size", "stride", *PLACE)
def empty_strided(
    size: Sizes,
    stride: Sizes,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Unset values laid out with these strides (in elements).

    Args:
        size: The shape.
        stride: Elements from one index to the next, for each dimension.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    size, stride = sizes_of((size,)), sizes_of((stride,))

    def make(shape: Any, kind: Any) -> Any:
        extent = (
            1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
            if 0 not in shape
            else 0
        )
        need_storage((extent,), kind)
        flat = np.empty(extent, kind)
        return np.lib.stride_tricks.as_strided(flat, shape, [s * kind.itemsize for s in stride])

    return make_at(make, size, dtype, device, requires_grad)


@checked("s", *PLACE)
def scalar_tensor(
    s: Number,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """A 0-d tensor of the default dtype.

    Args:
        s: The number.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return full(
        (),
        s,
        dtype=get_default_dtype() if dtype is None else dtype,
        device=device,
        requires_grad=requires_grad,
    )
