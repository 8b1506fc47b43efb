# SPDX-License-Identifier: BSD-3-Clause
"""reshape, view, flatten, squeeze and other shapes of the same elements; contiguous; views as
another dtype or as the parts of complex numbers.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import as_dtype, dtype
from modtree.numpy.ops.generic import as_ints, operation, wrap_dim
from modtree.numpy.ops.registry import define, derive, export, not_differentiable, ops, unchanged
from modtree.numpy.tensor.layouts import contiguous_format, preserve_format
from modtree.numpy.tensor.memory_formats import check_format, in_format

if TYPE_CHECKING:
    from modtree.numpy.argument_types import DType, Sizes, Tensor, memory_format


def _squeeze(x: Any, axes: Any) -> Any:
    return x.reshape(
        [n for i, n in enumerate(x.shape) if not (n == 1 and (axes is None or i in axes))]
    )


define("alias", lambda x: x[...], view=True)  # what as_subclass() records
define("view", np.ndarray.reshape, view=True, strict_view=True)
define("reshape", np.ndarray.reshape, view=True)
define("view_dtype", lambda x, kind: x.view(kind), view=True)

define("squeeze", _squeeze, view=True)
define("unsqueeze", lambda x, axis: x[(slice(None),) * axis + (None,)], view=True)

define("contiguous", np.ascontiguousarray, view=True)


def _view_as_real(x: Any) -> Any:
    if x.dtype.kind != "c":
        raise RuntimeError(f"view_as_real is only supported for complex tensors, got {x.dtype}")
    return x.reshape((*x.shape, 1)).view(x.real.dtype)


def _view_as_complex(x: Any) -> Any:
    if x.dtype.kind != "f" or x.shape[-1:] != (2,) or x.strides[-1] != x.itemsize:
        raise RuntimeError(
            "view_as_complex: expected real numbers whose last dimension has size 2 and stride 1, "
            f"got {x.dtype} of shape {list(x.shape)}"
        )
    return x.view(np.result_type(x.dtype, np.complex64))[..., 0]


define("view_as_real", _view_as_real, view=True)
define("view_as_complex", _view_as_complex, view=True)
define("real", lambda x: x.real, view=True)
define("imag", lambda x: x.imag, view=True)


def view(input: Tensor, *shape: int | Sizes, dtype: DType | None = None) -> Tensor:
    """The same memory in another shape, or read as another dtype.

    Args:
        shape: Sizes, one by one or as a sequence, of which one may be -1; or a dtype.
        dtype: The dtype to read the memory as.
    """
    if dtype is not None or (len(shape) == 1 and (isinstance(shape[0], _dtype))):
        kind = as_dtype(shape[0] if dtype is None else dtype)
        if kind is input.dtype:
            return ops["view"](input, tuple(input.shape))
        return ops["view_dtype"](input, kind.dtype)
    return _reshaped(_view_op, input, as_ints(shape))


_dtype = dtype
_view_op, _reshape_op = ops["view"], ops["reshape"]


def _reshaped(op: Any, input: Any, shape: tuple[int, ...]) -> Any:
    try:
        return op(input, shape)
    except RuntimeError:
        known = [n for n in shape if n != -1]
        size = input.numel()
        if len(known) == len(shape):
            fits = math.prod(known) == size
        else:
            fits = (
                len(known) == len(shape) - 1 and math.prod(known) and size % math.prod(known) == 0
            )
        if fits and min(known, default=0) >= 0:
            raise
        raise RuntimeError(f"shape '{list(shape)}' is invalid for input of size {size}") from None


def reshape(input: Tensor, *shape: int | Sizes) -> Tensor:
    """Another shape: a view where possible, else a copy."""
    return _reshaped(_reshape_op, input, as_ints(shape))


def _reshape_function(input: Tensor, shape: Sizes) -> Tensor:
    """Another shape: a view where possible, else a copy."""
    return _reshaped(_reshape_op, input, as_ints((shape,)))


def flatten(input: Tensor, start_dim: int = 0, end_dim: int = -1) -> Tensor:
    """Joins the dimensions start_dim..end_dim into one.

    Args:
        start_dim: The first dimension of those joined.
        end_dim: The last one.
    """
    if input.ndim == 0:
        wrap_dim(start_dim, 0), wrap_dim(end_dim, 0)
        return _reshape_function(input, (1,))
    start, end = wrap_dim(start_dim, input.ndim), wrap_dim(end_dim, input.ndim)
    if start > end:
        raise RuntimeError("flatten() has invalid args: start_dim cannot come after end_dim")
    shape = tuple(input.shape)
    joined = 1
    for size in shape[start : end + 1]:
        joined *= size
    if start == end:
        return input
    return ops["reshape"](input, (*shape[:start], joined, *shape[end + 1 :]))


def unflatten(input: Tensor, dim: int, sizes: Sizes) -> Tensor:
    """Splits one dimension into several.

    Args:
        dim: The dimension; may count from the end.
        sizes: Their sizes; one may be -1.
    """
    dim = wrap_dim(dim, input.ndim)
    shape = tuple(input.shape)
    sizes = list(sizes)
    if not sizes:
        raise RuntimeError("unflatten: sizes must be non-empty")
    if not shape:
        raise RuntimeError("unflatten: a tensor without dimensions cannot be split")
    known = math.prod(size for size in sizes if size != -1)
    if -1 in sizes and known:
        sizes[sizes.index(-1)] = shape[dim] // known
    if math.prod(sizes) != shape[dim] or min(sizes) < 0:
        raise RuntimeError(
            f"unflatten: Provided sizes {sizes} don't multiply up to the size of dim {dim} "
            f"({shape[dim]}) in the input tensor"
        )
    return ops["view"](input, (*shape[:dim], *sizes, *shape[dim + 1 :]))


def squeeze(input: Tensor, dim: int | Sizes | None = None) -> Tensor:
    """Without the dimensions of size 1 (or without those of dim)."""
    axes = None
    if dim is not None:
        axes = [wrap_dim(d, input.ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
        if len(set(axes)) < len(axes):
            raise RuntimeError(f"a dim appears multiple times in the list of dims {list(dim)}")
    return ops["squeeze"](input, axes)


def unsqueeze(input: Tensor, dim: int) -> Tensor:
    """With a dimension of size 1 at dim."""
    return ops["unsqueeze"](input, wrap_dim(dim, input.ndim + 1))


def view_as_real(input: Tensor) -> Tensor:
    """Complex numbers as pairs of real ones, in a new last dimension."""
    return ops["view_as_real"](input)


def view_as_complex(input: Tensor) -> Tensor:
    """Pairs of real numbers, in the last dimension, as complex ones."""
    return ops["view_as_complex"](input)


def contiguous(input: Tensor, memory_format: memory_format = contiguous_format) -> Tensor:
    """Itself when its memory is in C order (or in the order of the format), else a copy that is."""
    if memory_format is contiguous_format or (
        memory_format is preserve_format and input.is_contiguous()
    ):
        return input if input.is_contiguous() else ops["contiguous"](input)
    check_format("contiguous", memory_format)
    if memory_format is preserve_format:
        raise RuntimeError("preserve memory format is unsupported by the contiguous operator")
    return in_format(input, memory_format)


def widened(tensor: Any, ndim: int) -> Any:
    """The tensor with at least so many dimensions, new ones in front."""
    shape = tuple(tensor.shape)
    if len(shape) >= ndim:
        return tensor
    return ops["reshape"](tensor, (1,) * (ndim - len(shape)) + shape)


def view_as(self: Tensor, other: Tensor) -> Tensor:
    """view() with the shape of another tensor."""
    return ops["view"](self, tuple(other.shape))


def reshape_as(self: Tensor, other: Tensor) -> Tensor:
    """reshape() to the shape of another tensor."""
    return ops["reshape"](self, tuple(other.shape))


def ravel(input: Tensor) -> Tensor:
    """All elements in one dimension; a view where that is possible."""
    return ops["reshape"](input, (-1,))


for _function in (flatten, unflatten, squeeze, unsqueeze, view_as_real, view_as_complex):
    export(_function.__name__, _function)
for _function in (view, reshape, contiguous):
    export(_function.__name__, _function, function=False)

export("reshape", _reshape_function, method=False)
export("view_as", view_as, function=False)
export("reshape_as", reshape_as, function=False)
export("ravel", ravel)


# -- derivatives -----------------------------------------------------------------------------------

_contiguous = operation("contiguous")
_as_complex, _as_real = operation("view_as_complex"), operation("view_as_real")


def _reshape_back(g: Any, _out: Any, x_like: Any, *_: Any) -> Any:
    return g.reshape(tuple(x_like.shape))


derive("alias", unchanged)
derive("view", _reshape_back)
derive("reshape", _reshape_back)
derive("squeeze", _reshape_back)
derive("unsqueeze", _reshape_back)
derive("contiguous", unchanged)
derive("real", unchanged)
# Of a complex number two real ones are as much as one complex one: the gradient is the pair.
derive("view_as_real", lambda g, _out, _x: _as_complex(_contiguous(g)))
derive("view_as_complex", lambda g, _out, _x: _as_real(g))
derive("imag", lambda g, _out, _x: g * 1j)

# The bits of a number say nothing of its neighbours.
not_differentiable("view_dtype")
