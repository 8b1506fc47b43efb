# SPDX-License-Identifier: BSD-3-Clause
"""What forward functions and derivatives share: functions of arrays in backward, of tensors in a
backward that is recorded itself.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_tuple, from_array
from modtree.core.type_names import no_tensor
from modtree.numpy.ops import masks
from modtree.numpy.ops.registry import ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Ints, Tensor

# Below this size a filled copy costs less than NumPy's broadcast_to().
_COPY_BELOW = 4096
#: Zero of each dtype, as an array: NumPy takes longer to convert a number.
ZEROS = {np.dtype(kind): np.zeros((), kind) for kind in "efdFD"}


def as_ints(values: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    if len(values) == 1 and isinstance(values[0], (tuple, list)):
        values = as_tuple(values[0])
    for value in values:
        if type(value) is not int:
            return tuple(operator.index(v) for v in values)
    return values


def of_sequence(name: str, method: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a method that takes dimensions one by one too: it takes them as a
    sequence.
    """

    def function(input: Tensor, dims: Ints) -> Tensor:
        if not isinstance(dims, (tuple, list)):
            raise TypeError(
                f"{name}(): argument 'dims' (position 2) must be tuple of ints, not "
                f"{type(dims).__name__}"
            )
        return method(input, dims)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = method.__doc__
    return function


def wrap_dim(dim: int, ndim: int) -> int:
    """A dimension counted from the start, after a check; a scalar has one too."""
    limit = max(ndim, 1)
    if not -limit <= dim < limit:
        raise IndexError(
            f"Dimension out of range (expected to be in range of [{-limit}, {limit - 1}], but "
            f"got {dim})"
        )
    return dim % limit


def like_first(x: Any, *args: Any, **kwargs: Any) -> Any:
    """The rule for meta tensors of what keeps the shape and dtype of its first argument."""
    return x.shape, x.dtype


_REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(float)}


def real_dtype(dtype: Any) -> Any:
    """The dtype of the real part."""
    return _REAL.get(dtype, dtype)


def operation(name: str) -> Callable[..., Any]:
    """An operation as a function of arrays or of tensors: what its first argument is decides.

    It is looked up when it is called first: files of operations use each other's in both
    directions.
    """
    op: Any = None
    forward: Any = None

    def call(x: Any, *args: Any, **kwargs: Any) -> Any:
        nonlocal op, forward
        if op is None:
            op = ops[name]
            forward = op.forward
        return (op if isinstance(x, TensorBase) else forward)(x, *args, **kwargs)

    return call


def operation_of_list(name: str) -> Callable[..., Any]:
    """The same for an operation whose first argument is a list: what the first of the list is
    decides.
    """

    def call(items: list[Any], *args: Any) -> Any:
        op = ops[name]
        return (op if isinstance(items[0], TensorBase) else op.forward)(items, *args)

    return call


_sum = operation("sum")
_expand = operation("expand")


def conj(x: Any) -> Any:
    """The complex conjugate of an array, a tensor or a number; what is real comes back as it is."""
    if x.__class__ is float or x.__class__ is int:
        return x
    return x.conjugate() if x.__class__ is complex else x.conj()


def is_real(x: Any) -> bool:
    """Whether the dtype is not a complex one."""
    return not x.is_complex() if isinstance(x, TensorBase) else x.dtype.kind != "c"


def pick(condition: Any, a: Any, b: Any) -> Any:
    """numpy.where."""
    if isinstance(condition, TensorBase) or isinstance(a, TensorBase) or isinstance(b, TensorBase):
        return ops["where"](condition, a, b)
    return np.where(condition, a, b)


def select(mask: Any, g: Any) -> Any:
    """g where the mask holds, 0 elsewhere, also where g is infinite or NaN there."""
    if isinstance(g, TensorBase):
        return ops["where"](mask, g, 0)
    if g.size < masks.LARGE:
        return np.where(mask, g, ZEROS[g.dtype])
    return masks.keep(mask, g)


def steady(g: Any, x: Any) -> Any:
    """A gradient whose own derivative in x is 0 everywhere: it is on the graph if x is."""
    return g if isinstance(g, np.ndarray) else ops["steady"](g, x)


def any_of(mask: Any) -> bool:
    """Whether the mask holds anywhere."""
    if isinstance(mask, TensorBase):
        return bool(mask.any())  # type: ignore[attr-defined]
    return bool(np.count_nonzero(mask))


def backwards(x: Any, axis: int) -> Any:
    """x in reverse order along an axis."""
    if isinstance(x, TensorBase):
        return ops["flip"](x, (axis,))
    return x[(slice(None),) * (axis % x.ndim) + (slice(None, None, -1),)]


def zeros(x: Any) -> Any:
    """Zeros like x."""
    if isinstance(x, TensorBase):
        return x.new_zeros(x.shape)  # type: ignore[attr-defined]
    return np.zeros(x.shape, x.dtype)


def no_gradient(g: Any, *_rest: Any) -> Any:
    """The derivative of steps, which is zero wherever they have one."""
    return zeros(g)


def zeros_of(shape: Any, like: Any) -> Any:
    """Zeros of a shape, of the dtype of another array."""
    if isinstance(like, TensorBase):
        return like.new_zeros(tuple(shape))  # type: ignore[attr-defined]
    return np.zeros(shape, like.dtype)


def eye(size: int, like: Any) -> Any:
    """The unit matrix, of the dtype of another array."""
    if isinstance(like, TensorBase):
        return from_array(np.eye(size, dtype=like.dtype.dtype))
    return np.eye(size, dtype=like.dtype)


def is_complex(x: Any) -> bool:
    """Whether it has a complex dtype."""
    return x.is_complex() if isinstance(x, TensorBase) else x.dtype.kind == "c"


def adjoint(x: Any) -> Any:
    """Matrices transposed and conjugated."""
    x = x.swapaxes(-1, -2)
    return x.conj() if is_complex(x) else x


def ones(x: Any) -> Any:
    """Ones like x."""
    if isinstance(x, TensorBase):
        return x.new_ones(x.shape)  # type: ignore[attr-defined]
    return np.ones(x.shape, x.dtype)


def numbers(mask: Any, like: Any) -> Any:
    """A mask as ones and zeros of the dtype of another array."""
    if isinstance(mask, TensorBase):
        return mask.to(like.dtype)  # type: ignore[attr-defined]
    return mask.astype(like.dtype)


def expand(g: Any, shape: tuple[int, ...]) -> Any:
    """g, broadcast to a shape."""
    if g.shape == shape:
        return g
    if isinstance(g, TensorBase):
        return _expand(g, shape)
    if math.prod(shape) >= _COPY_BELOW:
        return np.broadcast_to(g, shape)
    result = np.empty(shape, g.dtype)
    result[...] = g
    return result


def kept(g: Any, axis: Any, keepdims: bool, ndim: int) -> Any:
    """The result of a reduction over an axis, with the dimensions it lost back as 1."""
    if keepdims or axis is None:
        return g
    shape = list(g.shape)
    for a in sorted((axis,) if isinstance(axis, int) else (a % ndim for a in axis)):
        shape.insert(a if a >= 0 else a + ndim, 1)
    return g.reshape(shape)


def cat(items: list[Any], axis: int) -> Any:
    """The items, one after the other along an axis."""
    if isinstance(items[0], TensorBase):
        return ops["cat"](items, axis)
    return np.concatenate(items, axis)


def total(x: Any, axis: Any) -> Any:
    """The sum over an axis, which stays with size 1."""
    if isinstance(x, TensorBase):
        return _sum(x, axis=axis, keepdims=True)
    return np.add.reduce(x, axis, None, None, True)


def count(shape: tuple[int, ...], axis: Any) -> int:
    """How many elements a reduction over an axis brings together."""
    if axis is None:
        return math.prod(shape)
    if isinstance(axis, int):
        return shape[axis]
    return math.prod(shape[a] for a in axis)


Array = np.ndarray[Any, np.dtype[Any]]
Spec = tuple[tuple[int, ...], Any]


def in_kernel_dtype(kernel: Callable[[Array], Array], x: Array) -> Array:
    """Runs a kernel for float32 and float64 also on float16."""
    if x.dtype == np.float16:
        return kernel(x.astype(np.float32)).astype(np.float16)
    return kernel(x)


def into_in_kernel_dtype(
    kernel: Callable[..., Array], x: Array, *args: Any, out: Array | None
) -> Array:
    """Likewise for a kernel that may write into ``out``; ignored where the dtype is none of its."""
    if x.dtype == np.float16:
        return kernel(x.astype(np.float32), *args).astype(np.float16)
    return kernel(x, *args, out=out)


def slope_in_kernel_dtype(kernel: Callable[..., Array], g: Array, x: Array, *args: Any) -> Array:
    """Likewise for a kernel that gets a gradient and a value."""
    if x.dtype == np.float16:
        return kernel(g.astype(np.float32), x.astype(np.float32), *args).astype(np.float16)
    return kernel(g, x, *args)


def need_arrays(name: str, *arguments: Any) -> None:
    """Tensors have become arrays before they come here; what has not is no tensor of ours."""
    for x in arguments:
        if not isinstance(x, np.ndarray):
            raise TypeError(
                f"{name}: expected a modtree.Tensor, got {no_tensor(x)}. The layers of modtree.nn "
                f"compute on NumPy tensors"
            )


def need_floating(name: str, x: Array) -> None:
    need_arrays(name, x)
    if x.dtype.kind != "f":
        raise NotImplementedError(
            f'"{name}" not implemented for {x.dtype}: expected a floating dtype'
        )


def rows_of(x: Any, kept: int = 1) -> Any:
    """x with all but its last dimensions as one: a reshape with -1 could not tell how many rows
    there are when one of the last sizes is 0.
    """
    shape = tuple(x.shape)
    lead = len(shape) - kept
    return x if lead == 1 else x.reshape((math.prod(shape[:lead]), *shape[lead:]))


def as_dtype_of(x: Array, value: Any) -> Any:
    """A number for a tensor of integers, which truncates it; an error where it does not fit."""
    if isinstance(value, complex):
        raise RuntimeError(f"value cannot be converted to type {x.dtype}, got {value}")
    if x.dtype.kind not in "iu":
        return value
    limits = np.iinfo(x.dtype)
    # A negative integer, but not a negative float, wraps around in an unsigned dtype.
    low = -limits.max if isinstance(value, int) and not limits.min else limits.min
    if not low <= value <= limits.max:
        raise RuntimeError(
            f"value cannot be converted to type {x.dtype} without overflow, got {value}"
        )
    return np.asarray(int(value)).astype(x.dtype)


def is_array(x: Any) -> bool:
    """False where a derivative runs on tensors, for the derivative of a gradient."""
    return isinstance(x, np.ndarray)


def on_arrays_or_tensors(op: Any) -> Callable[..., Any]:
    """The operation as a derivative calls it: arrays give an array, tensors are recorded."""
    forward = op.forward

    def call(x: Any, *args: Any) -> Any:
        return forward(x, *args) if isinstance(x, np.ndarray) else op(x, *args)

    return call


def sizes(shape: tuple[int, ...]) -> str:
    return "x".join(map(str, shape))


def broadcasts_to(shape: tuple[int, ...], target: tuple[int, ...]) -> bool:
    """Whether a tensor of ``shape`` can be repeated to fill ``target``."""
    tail = target[len(target) - len(shape) :]
    return len(shape) <= len(target) and all(a in (1, b) for a, b in zip(shape, tail, strict=True))


def same_meta(x: Array, *args: Any) -> Spec:
    """Shape and dtype of the first argument: for everything pointwise."""
    return x.shape, x.dtype


def native(first: Any, *others: Any) -> bool:
    """Whether kernels take these values together."""
    if type(first) is not np.ndarray or first.dtype.char not in "fd":
        return False
    return all(type(x) is np.ndarray and x.dtype == first.dtype for x in others)


def shared_evenly(g: Any, out: Any, x: Any, *_args: Any, **_kwargs: Any) -> Any:
    """The VJP of an extreme or a median of all elements: shared by those that equal the result,
    which may be NaN.
    """
    equal = x == out
    if not any_of(equal):
        equal = np.isnan(x)
    equal = numbers(equal, x)
    return g * (equal / total(equal, None))
