# SPDX-License-Identifier: BSD-3-Clause
"""Windows of signals, tensors over other memory, and small helpers with indices."""

from __future__ import annotations

import itertools
import operator
from typing import Any

import numpy as np

from modtree import _C
from modtree._argument_types import Device, DType, Sizes, Tensor
from modtree._C import as_tuple
from modtree._ops.functions import cat
from modtree._tensor.creation import make_at, numpy_dtype
from modtree._tensor.dtypes import int64
from modtree._tensor.from_data import from_numpy, tensor

__all__ = [
    "bartlett_window",
    "blackman_window",
    "combinations",
    "from_dlpack",
    "frombuffer",
    "hamming_window",
    "hann_window",
    "kaiser_window",
    "unravel_index",
    "vander",
]

# -- windows ---------------------------------------------------------------------------------------


def _window(
    make: Any, window_length: int, periodic: bool, dtype: Any, device: Any, requires_grad: bool
) -> Any:
    """make(points) -> values; a periodic window is one point longer, and its last point is left
    out.
    """
    if window_length < 0:
        raise RuntimeError(f"a window needs a length of at least 0, got {window_length}")

    def values(shape: Any, kind: np.dtype) -> Any:
        if kind.kind != "f":
            error = NotImplementedError if kind.kind == "c" else RuntimeError
            raise error(f"a window needs a floating dtype, got {kind}")
        (n,) = shape
        if n < 2:
            return np.ones(n, kind)
        return make(n + 1)[:-1].astype(kind) if periodic else make(n).astype(kind)

    return make_at(values, (int(window_length),), dtype, device, requires_grad)


def _real(given: Any) -> float:
    return float(given + 0)  # float() alone takes strings


def _of_length(make: Any, name: str, what: str) -> Any:
    def window(
        window_length: int,
        periodic: bool = True,
        *,
        dtype: DType | None = None,
        device: Device | None = None,
        requires_grad: bool = False,
    ) -> Tensor:
        return _window(make, window_length, periodic, dtype, device, requires_grad)

    window.__name__ = window.__qualname__ = name
    window.__doc__ = f"""{what}

    Args:
        window_length: Number of points.
        periodic: Leave out the last point, for a window that repeats.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    return window


hann_window = _of_length(np.hanning, "hann_window", "A raised cosine from 0 to 0.")
blackman_window = _of_length(np.blackman, "blackman_window", "Blackman's sum of two cosines.")
bartlett_window = _of_length(np.bartlett, "bartlett_window", "A triangle from 0 to 0.")


def hamming_window(
    window_length: int,
    periodic: bool = True,
    alpha: float = 0.54,
    beta: float = 0.46,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """alpha - beta * cosine.

    Args:
        window_length: Number of points.
        periodic: Leave out the last point, for a window that repeats.
        alpha: The mean.
        beta: The height of the cosine.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """

    alpha, beta = _real(alpha), _real(beta)

    def make(n: int) -> Any:
        return alpha - beta * np.cos(2 * np.pi * np.arange(n) / (n - 1))

    return _window(make, window_length, periodic, dtype, device, requires_grad)


def kaiser_window(
    window_length: int,
    periodic: bool = True,
    beta: float = 12.0,
    *,
    dtype: DType | None = None,
    device: Device | None = None,
    requires_grad: bool = False,
) -> Tensor:
    """Kaiser's window of shape beta.

    Args:
        window_length: Number of points.
        periodic: Leave out the last point, for a window that repeats.
        beta: The shape: larger values give a narrower window.
        dtype: The dtype of the result.
        device: ``"cpu"`` or ``"meta"``.
        requires_grad: Record operations on the result.
    """
    beta = _real(beta)
    return _window(
        lambda n: np.kaiser(n, beta), window_length, periodic, dtype, device, requires_grad
    )


# -- other memory ----------------------------------------------------------------------------------


def frombuffer(
    buffer: Any, *, dtype: DType, count: int = -1, offset: int = 0, requires_grad: bool = False
) -> Tensor:
    """A tensor over the memory of a buffer, such as bytearray or array.array.

    Args:
        buffer: An object with the buffer protocol.
        dtype: How to read its bytes.
        count: Number of elements; all with -1.
        offset: Bytes to leave out at its start.
        requires_grad: Record operations on the result.
    """
    array = np.frombuffer(buffer, numpy_dtype(dtype), count, offset)
    return from_numpy(array).requires_grad_(requires_grad)


def from_dlpack(ext_tensor: Any) -> Tensor:
    """A tensor over the memory of an array of another library, by DLPack."""
    return from_numpy(np.from_dlpack(ext_tensor))


# -- indices ---------------------------------------------------------------------------------------


def unravel_index(indices: Tensor, shape: int | Sizes) -> tuple[Tensor, ...]:
    """For flat indices the index along each dimension of a shape."""
    if indices.dtype.dtype.kind not in "iu":
        raise TypeError(f"expected 'indices' to be integer dtype, but got {indices.dtype}")
    if isinstance(shape, _C.TensorBase):
        raise TypeError("expected 'shape' to be int or sequence of ints, but got a Tensor")
    sizes = (shape,) if isinstance(shape, int) else tuple(map(operator.index, as_tuple(shape)))
    if min(sizes, default=0) < 0:
        raise ValueError(f"'shape' cannot have negative values, but got {sizes}")
    rest, parts = indices._array.astype(np.int64), []
    for size in reversed(sizes):
        if size == 0 and rest.size:
            raise RuntimeError("ZeroDivisionError: a dimension of size 0 has no indices")
        rest, part = np.divmod(rest, size) if size else (rest, rest)
        parts.append(_C.from_array(np.asarray(part)))
    return tuple(reversed(parts))


def combinations(input: Tensor, r: int = 2, with_replacement: bool = False) -> Tensor:
    """All choices of r elements of a vector, in order: (choices, r).

    Args:
        r: How many of the elements.
        with_replacement: An element may be chosen again.
    """
    if input.ndim != 1:
        raise RuntimeError(f"Expect a 1D vector, but got shape {list(input.shape)}")
    choose = itertools.combinations_with_replacement if with_replacement else itertools.combinations
    if r < 0:
        raise RuntimeError(f"Expect a non-negative number, but got {r}")
    if r == 0:
        return input.new_empty((0,))
    rows = list(choose(range(input.shape[0]), r))
    return input[tensor(rows, dtype=int64, device="cpu").reshape(len(rows), r)]


def vander(x: Tensor, N: int | None = None, increasing: bool = False) -> Tensor:  # noqa: N803
    """The powers of a vector's elements as columns, N of them, the highest first unless
    ``increasing``.

    Args:
        x: A vector.
        N: Number of columns; as many as elements without.
        increasing: The lowest power first.
    """
    if x.ndim != 1:
        raise RuntimeError(f"x must be a one-dimensional tensor, got {x.ndim} dimensions")
    count = x.shape[0] if N is None else N
    if count < 0:
        raise RuntimeError(f"N must be non-negative, got {count}")
    if not (x.is_floating_point() or x.is_complex()):
        x = x.to(int64)
    if count <= 1:
        return x.new_ones(x.shape[0], count)
    rising = x.unsqueeze(1).expand(x.shape[0], count - 1).cumprod(1)
    powers = cat([x.new_ones(x.shape[0], 1), rising], 1)
    return powers if increasing else powers.flip(1)
