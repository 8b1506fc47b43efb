# SPDX-License-Identifier: BSD-3-Clause
"""Making tensors."""

from __future__ import annotations

import builtins
import operator
from typing import Any

import numpy as np

from modtree import _C
from modtree._C import as_dtype, get_default_dtype
from modtree._tensor.devices import as_device
from modtree._tensor.factory_arguments import PLACE, checked, checked_arguments, parameters_of
from modtree._tensor.layouts import preserve_format
from modtree._tensor.memory_formats import check_format, in_format, in_order_of
from modtree._tensor.random import bits_of, normal, uniform
from modtree.families import family_of

__all__ = [
    "arange",
    "as_tensor",
    "asarray",
    "complex",
    "empty",
    "empty_like",
    "empty_strided",
    "eye",
    "from_numpy",
    "full",
    "full_like",
    "linspace",
    "logspace",
    "ones",
    "ones_like",
    "rand",
    "rand_like",
    "randint",
    "randint_like",
    "randn",
    "randn_like",
    "randperm",
    "scalar_tensor",
    "tensor",
    "tril_indices",
    "triu_indices",
    "zeros",
    "zeros_like",
]

_from_array = _C.from_array
_int64 = np.dtype(np.int64)


def _sizes(size: tuple[Any, ...]) -> tuple[int, ...]:
    """Sizes given one by one or as one sequence."""
    if len(size) == 1 and not isinstance(size[0], int) and hasattr(size[0], "__iter__"):
        size = tuple(size[0])
    try:
        sizes = tuple(operator.index(n) for n in size)
    except TypeError:
        raise TypeError(f"sizes must be integers, got {size!r}") from None
    if builtins.any(n < 0 for n in sizes):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(sizes)}")
    return sizes


def _numpy_dtype(dtype: Any) -> np.dtype:
    return (get_default_dtype() if dtype is None else as_dtype(dtype)).dtype


def _make(make: Any, shape: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    """make(shape, numpy dtype) -> array, called for cpu only."""
    if device is not None and as_device(device).type == "meta":
        return _C.empty_meta(shape, get_default_dtype() if dtype is None else dtype, requires_grad)
    return _from_array(make(shape, _numpy_dtype(dtype)), requires_grad)


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


def _factory(name: str, make: Any, text: str, *keywords: str) -> Any:
    def create(
        *sizes: Any,
        size: Any = None,
        dtype: Any = None,
        device: Any = None,
        requires_grad: bool = False,
        generator: Any = None,
    ) -> Any:
        if size is not None:
            if sizes:
                raise TypeError(f"{name}() got multiple values for argument 'size'")
            sizes = (size,)
        shape = _sizes(sizes)
        return _make(
            lambda shape, dtype: make(shape, dtype, generator), shape, dtype, device, requires_grad
        )

    create.__name__ = create.__qualname__ = name
    create.__doc__ = text + _FACTORY_ARGS + (_GENERATOR_ARG if "generator" in keywords else "")
    return checked("size", "out", *PLACE, *keywords)(create)


def _float_only(name: str, dtype: np.dtype) -> None:
    if dtype.kind not in "fc":
        raise NotImplementedError(
            f"\"{name}\" not implemented for '{dtype}': ask for a floating dtype"
        )


def _rand(shape: Any, dtype: Any, generator: Any) -> Any:
    _float_only("rand", dtype)
    return uniform(bits_of(generator), shape, dtype)


def _randn(shape: Any, dtype: Any, generator: Any) -> Any:
    _float_only("randn", dtype)
    return normal(bits_of(generator), shape, dtype)


zeros = _factory("zeros", lambda shape, dtype, _: np.zeros(shape, dtype), "A tensor of zeros.")
ones = _factory("ones", lambda shape, dtype, _: np.ones(shape, dtype), "A tensor of ones.")
_empty = _factory(
    "empty", lambda shape, dtype, _: np.empty(shape, dtype), "A tensor whose values are not set."
)
rand = _factory("rand", _rand, "Random numbers, uniform in [0, 1).", "generator")
randn = _factory(
    "randn", _randn, "Random numbers from the standard normal distribution.", "generator"
)


def empty(*size: Any, memory_format: Any = None, **kwargs: Any) -> Any:
    """A tensor whose values are not set.

    Args:
        size: Sizes, one by one or as a sequence.
        memory_format: Order of the dimensions in memory.
        kwargs: ``dtype``, ``device``, ``requires_grad``, ``layout``, ``pin_memory``, ``out``.
    """
    result = _empty(*size, **kwargs)
    if memory_format is None:
        return result
    check_format("empty", memory_format)
    if memory_format is preserve_format:
        raise RuntimeError(
            "unsupported memory format Preserve: there is no tensor whose format could be kept"
        )
    needs_grad = result.requires_grad
    return in_format(result.detach(), memory_format).detach().requires_grad_(needs_grad)


empty.__signature__ = parameters_of(empty, ("out", "memory_format", *PLACE))  # type: ignore[attr-defined]


@checked("size", "fill_value", "out", *PLACE)
def full(
    size: Any,
    fill_value: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
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
        dtype = _scalar_dtype(fill_value)
    return _make(
        lambda shape, kind: np.full(shape, fill_value, kind),
        _sizes((size,)),
        dtype,
        device,
        requires_grad,
    )


def _scalar_dtype(value: Any) -> Any:
    if isinstance(value, (bool, np.bool_)):
        return "bool"
    if isinstance(value, (int, np.integer)):
        return "int64"
    if isinstance(value, (builtins.complex, np.complexfloating)):
        return "complex128" if get_default_dtype().itemsize == 8 else "complex64"
    return get_default_dtype()


def _like(input: Any, dtype: Any, device: Any) -> tuple[Any, Any]:
    if not isinstance(input, _C.TensorBase):
        raise TypeError(f"argument 'input' must be Tensor, not {type(input).__name__}")
    return input.dtype if dtype is None else dtype, input.device if device is None else device


_LIKE = frozenset(("memory_format", *PLACE))


def _like_factory(create: Any, name: str, text: str, *keywords: str) -> Any:
    allowed = _LIKE | frozenset(keywords)

    def like(input: Any, *args: Any, **kwargs: Any) -> Any:
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
    owns: dict[str, Any] = {
        "full_like": lambda input, fill_value: None,
        "randint_like": lambda input, low, high=None: None,
    }
    own = owns.get(name, lambda input: None)
    known = ("memory_format", *PLACE, *keywords)
    like.__signature__ = parameters_of(own, known)  # type: ignore[attr-defined]
    return like


_AS_INPUT = "with the shape, dtype and device of another tensor, in its order in memory."
zeros_like = _like_factory(zeros, "zeros_like", f"Zeros {_AS_INPUT}")
ones_like = _like_factory(ones, "ones_like", f"Ones {_AS_INPUT}")
empty_like = _like_factory(empty, "empty_like", f"Unset values {_AS_INPUT}")
rand_like = _like_factory(rand, "rand_like", f"rand() {_AS_INPUT}", "generator")
randn_like = _like_factory(randn, "randn_like", f"randn() {_AS_INPUT}", "generator")
full_like = _like_factory(full, "full_like", f"One value {_AS_INPUT}", "fill_value")


@checked("size", "stride", *PLACE)
def empty_strided(
    size: Any, stride: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """Unset values laid out with these strides (in elements).

    Args:
        size: The shape.
        stride: Elements from one index to the next, for each dimension.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    size, stride = _sizes((size,)), _sizes((stride,))

    def make(shape: Any, kind: Any) -> Any:
        extent = (
            1 + sum((n - 1) * s for n, s in zip(shape, stride, strict=True))
            if 0 not in shape
            else 0
        )
        flat = np.empty(extent, kind)
        return np.lib.stride_tricks.as_strided(flat, shape, [s * kind.itemsize for s in stride])

    return _make(make, size, dtype, device, requires_grad)


# -- from data -------------------------------------------------------------------------------------


def _plain(data: Any) -> Any:
    """Nested sequences with tensors in them, as nested sequences of arrays."""
    if isinstance(data, _C.TensorBase):
        return data._array
    if isinstance(data, (list, tuple)):
        return [_plain(item) for item in data]
    return data


def _first_scalar(data: Any) -> Any:
    while isinstance(data, (list, tuple)):
        if not data:
            return None
        data = data[0]
    return data


def _array_of(data: Any, dtype: Any, copy: bool) -> Any:
    """An array of the data; Python floats become the default dtype and ints int64."""
    if isinstance(data, _C.TensorBase):
        if data.is_meta:
            raise NotImplementedError("Cannot copy out of meta tensor; no data!")
        array = data._array
    elif isinstance(data, np.ndarray):
        array = data
    elif isinstance(data, np.generic):
        array = np.asarray(data)
    else:
        foreign = _foreign_array(data)
        if foreign is None:
            return _array_of_python(data, dtype)
        array = foreign
    if dtype is not None:
        array = array.astype(as_dtype(dtype).dtype, copy=copy)
    elif copy:
        array = array.copy()
    return array


def _foreign_array(data: Any) -> Any:
    """The values of a tensor of another library, or of anything that speaks NumPy's array
    protocols.
    """
    if isinstance(data, (int, float, builtins.complex, list, tuple, str, bytes)):
        return None
    family = family_of(data)
    if family is not None:
        return np.asarray(family.to_numpy(data))
    if hasattr(data, "__array__") or hasattr(data, "__array_interface__"):
        return np.asarray(data)
    if isinstance(data, (memoryview, bytearray)) or type(data).__module__ == "array":
        return np.asarray(data)
    return None


def _array_of_python(data: Any, dtype: Any) -> Any:
    if data is None:
        raise RuntimeError("Could not infer dtype of NoneType")
    if isinstance(data, (str, bytes)):
        raise TypeError(f"new(): invalid data type '{type(data).__name__}'")
    if isinstance(data, (int, float, builtins.complex)):
        return np.array(data, _numpy_dtype(_scalar_dtype(data) if dtype is None else dtype))
    if not isinstance(data, (list, tuple)):
        if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
            raise RuntimeError(f"Could not infer dtype of {type(data).__name__}")
        data = list(data)
    data = _plain(data)
    try:
        array = np.array(data)
    except ValueError as error:
        raise ValueError(f"expected sequences of equal length: {error}") from None
    if array.dtype.kind not in "biufc":
        bad = _first_scalar(data)
        if isinstance(bad, str) or array.dtype.kind in "US":
            raise ValueError("too many dimensions 'str'")
        raise TypeError(f"cannot make a tensor of {type(bad).__name__} values")
    if dtype is not None:
        return array.astype(as_dtype(dtype).dtype, copy=False)
    if array.size == 0:
        return array.astype(_numpy_dtype(None))
    if array.dtype == np.float64 and not isinstance(_first_scalar(data), (np.generic, np.ndarray)):
        return array.astype(_numpy_dtype(None))
    if array.dtype == np.complex128 and not isinstance(
        _first_scalar(data), (np.generic, np.ndarray)
    ):
        return array.astype(_numpy_dtype(_scalar_dtype(1j)))
    return array


@checked("data", "dtype", "device", "requires_grad", "pin_memory", or_none=False)
def tensor(
    data: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """A new tensor with a copy of the data: numbers, nested sequences, arrays, tensors.

    Args:
        data: The data.
        dtype: The dtype; that of the data without, the default one for Python's floats.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    if isinstance(data, _C.TensorBase) and data.is_meta:
        result = data.detach()._convert(dtype, device, True)
    else:
        result = _from_array(_array_of(data, dtype, copy=True))
        if device is not None:
            result = result._convert(None, device, False)
    return result.requires_grad_(True) if requires_grad else result


def as_tensor(data: Any, dtype: Any = None, device: Any = None) -> Any:
    """A tensor of the data that shares memory where that is possible.

    Args:
        data: Numbers, nested sequences, an array or a tensor.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
    """
    if isinstance(data, _C.TensorBase):
        return data._convert(dtype, device, False)
    result = _from_array(_array_of(data, dtype, copy=False))
    return result if device is None else result._convert(None, device, False)


@checked("obj", "dtype", "device", "copy", "requires_grad")
def asarray(
    obj: Any,
    *,
    dtype: Any = None,
    device: Any = None,
    copy: bool | None = None,
    requires_grad: bool = False,
) -> Any:
    """as_tensor(), or a copy with copy=True.

    Args:
        obj: Numbers, nested sequences, an array or a tensor.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        copy: True for a copy in any case, False for an error where one is needed.
        requires_grad: Record operations on the result.
    """
    result = tensor(obj, dtype=dtype, device=device) if copy else as_tensor(obj, dtype, device)
    return result.requires_grad_(True) if requires_grad else result


def from_numpy(array: np.ndarray) -> Any:
    """A tensor over the memory of an array."""
    if not isinstance(array, np.ndarray):
        raise TypeError(f"expected np.ndarray (got {type(array).__name__})")
    if builtins.min(array.strides, default=0) < 0:
        raise ValueError(
            "At least one stride in the given numpy array is negative, and tensors with negative "
            "strides are not "
            "currently supported. (You can probably work around this by making a copy of your "
            "array  with array.copy().)"
        )
    return _from_array(array)


@checked("s", *PLACE)
def scalar_tensor(
    value: Any, *, dtype: Any = None, device: Any = None, requires_grad: bool = False
) -> Any:
    """A 0-d tensor of the default dtype.

    Args:
        value: The number.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return full(
        (),
        value,
        dtype=get_default_dtype() if dtype is None else dtype,
        device=device,
        requires_grad=requires_grad,
    )


# -- ranges ----------------------------------------------------------------------------------------


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, (_C.TensorBase, np.generic)) else value


@checked("start", "end", "step", "out", *PLACE)
def arange(
    start: Any,
    end: Any = None,
    step: Any = 1,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """The numbers start, start + step, ... below end.

    Args:
        start: First number; with this argument alone the end.
        end: Where to stop; not included.
        step: Distance.
        dtype: The dtype; int64 or the default one, by the arguments, without.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    if end is None:
        start, end = 0, start
    start, end, step = _number(start), _number(end), _number(step)
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if (end - start) * step < 0:
        raise RuntimeError(
            f"upper bound and lower bound inconsistent with step sign: {start}, {end}, {step}"
        )
    if dtype is None:
        integral = builtins.all(isinstance(v, int) for v in (start, end, step))
        dtype = "int64" if integral else get_default_dtype()
    kind = _numpy_dtype(dtype)
    count = builtins.max(0, -int(-(end - start) // step)) if step else 0
    values = start + step * np.arange(count, dtype=_int64 if kind.kind in "iub" else np.float64)
    return _make(lambda _, kind: values.astype(kind), (count,), dtype, device, requires_grad)


@checked("start", "end", "steps", "out", *PLACE)
def linspace(
    start: Any,
    end: Any,
    steps: int,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """`steps` numbers from start to end, both included.

    Args:
        start: First number.
        end: Last number.
        steps: How many.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    start, end = _number(start), _number(end)
    return _make(
        lambda shape, kind: np.linspace(start, end, shape[0]).astype(kind),
        (int(steps),),
        dtype,
        device,
        requires_grad,
    )


@checked("start", "end", "steps", "base", "out", *PLACE)
def logspace(
    start: Any,
    end: Any,
    steps: int,
    base: float = 10.0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """base to the powers of linspace().

    Args:
        start: First exponent.
        end: Last exponent.
        steps: How many.
        base: The base.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return _make(
        lambda shape, kind: np.logspace(start, end, shape[0], base=base).astype(kind),
        (int(steps),),
        dtype,
        device,
        requires_grad,
    )


@checked("n", "m", "out", *PLACE)
def eye(
    n: int,
    m: int | None = None,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """The identity matrix.

    Args:
        n: Number of rows.
        m: Number of columns; as many without.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return _make(
        lambda shape, kind: np.eye(*shape, dtype=kind),
        (n, n if m is None else m),
        dtype,
        device,
        requires_grad,
    )


@checked("row", "col", "offset", *PLACE)
def tril_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Indices of a lower triangle, as two rows.

    Args:
        row: Number of rows.
        col: Number of columns.
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return _indices(
        "tril_indices", np.stack(np.tril_indices(row, offset, col)), dtype, device, requires_grad
    )


@checked("row", "col", "offset", *PLACE)
def triu_indices(
    row: int,
    col: int,
    offset: int = 0,
    *,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Indices of an upper triangle, as two rows.

    Args:
        row: Number of rows.
        col: Number of columns.
        offset: Which diagonal: 0 the main one, positive above it, negative below.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return _indices(
        "triu_indices", np.stack(np.triu_indices(row, offset, col)), dtype, device, requires_grad
    )


def _indices(name: str, values: Any, dtype: Any, device: Any, requires_grad: bool) -> Any:
    kind = "int64" if dtype is None else as_dtype(dtype)
    if kind not in ("int64", as_dtype("int64"), as_dtype("int32")):
        raise NotImplementedError(
            f'"{name}" not implemented for {kind}: indices are int64 or int32'
        )
    return _make(lambda _, kind: values.astype(kind), values.shape, kind, device, requires_grad)


def complex(real: Any, imag: Any) -> Any:  # noqa: A001
    """A complex tensor of its two parts."""
    return real + imag * 1j


# -- random ----------------------------------------------------------------------------------------


@checked("low", "high", "size", "generator", "out", *PLACE)
def randint(
    low: int,
    high: Any = None,
    size: Any = None,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """Random integers in [low, high).

    Args:
        low: Lower end; the upper one where ``high`` is not given.
        high: Upper end, not included.
        size: The shape.
        generator: Where random numbers come from; the default generator without.
        dtype: The dtype; int64 without.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    if size is None:
        low, high, size = 0, low, high
    if high <= low:
        raise RuntimeError(
            f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}"
        )

    def make(shape: Any, kind: Any) -> Any:
        return bits_of(generator).integers(low, high, shape, dtype=np.int64).astype(kind)

    return _make(make, _sizes((size,)), "int64" if dtype is None else dtype, device, requires_grad)


randint_like = _like_factory(
    lambda size, low, high=None, **kwargs: (
        randint(0, low, size, **kwargs) if high is None else randint(low, high, size, **kwargs)
    ),
    "randint_like",
    f"randint() {_AS_INPUT}",
    "generator",
    "low",
    "high",
)


@checked("n", "generator", "out", *PLACE)
def randperm(
    n: int,
    *,
    generator: Any = None,
    dtype: Any = None,
    device: Any = None,
    requires_grad: bool = False,
) -> Any:
    """The numbers 0..n-1 in random order.

    Args:
        n: How many numbers.
        generator: Where random numbers come from; the default generator without.
        dtype: The dtype; int64 without.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return _make(
        lambda shape, kind: bits_of(generator).permutation(shape[0]).astype(kind),
        (n,),
        "int64" if dtype is None else dtype,
        device,
        requires_grad,
    )
