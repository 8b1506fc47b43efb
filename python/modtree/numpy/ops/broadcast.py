# SPDX-License-Identifier: BSD-3-Clause
"""expand, broadcast_to, broadcast_tensors, meshgrid: elements repeated without a copy."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import as_tuple
from modtree.core.strides import strided_view
from modtree.numpy.ops.generic import as_ints
from modtree.numpy.ops.registry import define, derive, export, ops, unchanged
from modtree.numpy.tensor.size import Size

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Sizes, Tensor, Tensors


def _expand(x: Any, sizes: Any) -> Any:
    extra = len(sizes) - x.ndim
    if extra < 0:
        raise RuntimeError(
            f"expand({list(sizes)}): the number of sizes provided ({len(sizes)}) must be greater "
            f"or equal to the number of dimensions in the tensor ({x.ndim})"
        )
    target = []
    for i, size in enumerate(sizes):
        have = x.shape[i - extra] if i >= extra else None
        if size == -1:
            if have is None:
                raise RuntimeError(
                    f"expand({list(sizes)}): -1 isn't allowed in a leading, non-existing "
                    f"dimension {i}"
                )
            size = have
        elif have is not None and have not in (1, size):
            raise RuntimeError(
                f"The expanded size of the tensor ({size}) must match the existing size ({have}) "
                f"at non-singleton dimension {i}.  Target sizes: {list(sizes)}.  Tensor sizes: "
                f"{list(x.shape)}"
            )
        target.append(size)
    view = strided_view(
        x.reshape((1,) * extra + x.shape),
        target,
        [
            0 if n == 1 and t != 1 else s
            for n, t, s in zip(
                (1,) * extra + x.shape, target, (0,) * extra + x.strides, strict=True
            )
        ],
    )
    return view


define("expand", _expand, view=True)


def expand(input: Tensor, *sizes: int | Sizes, implicit: bool = False) -> Tensor:
    """Dimensions of size 1 repeated without copying; -1 keeps a size.

    Args:
        sizes: The sizes, one by one or as a sequence.
        implicit: Makes no difference.
    """
    return ops["expand"](input, as_ints(sizes))


def expand_as(input: Tensor, other: Tensor) -> Tensor:
    """expand() to the shape of other."""
    return ops["expand"](input, tuple(other.shape))


def _refuse_negative(shapes: list[tuple[int, ...]]) -> None:
    """A negative size is a ValueError, but for one behind sizes that do not fit."""
    common: dict[int, int] = {}
    for shape in shapes:
        for dim, size in enumerate(reversed(shape)):
            if size in (1, known := common.get(dim, 1)):
                continue
            if known != 1:
                raise RuntimeError(
                    f"Attempting to broadcast a dimension of length {size} at {-1 - dim}: "
                    f"{[list(s) for s in shapes]}"
                )
            if size < 0:
                raise ValueError("Attempting to broadcast a dimension with negative length!")
            common[dim] = size


def broadcast_shapes(*shapes: int | Sizes) -> Size:
    """The shape that tensors of these shapes have together."""
    given = [(s,) if isinstance(s, int) else as_tuple(s) for s in shapes]
    known = [tuple(map(operator.index, sizes)) for sizes in given]
    _refuse_negative(known)
    try:
        return Size(np.broadcast_shapes(*known))
    except ValueError:
        raise RuntimeError(
            f"Shape mismatch: objects cannot be broadcast to a single shape: "
            f"{[list(s) for s in known]}"
        ) from None


def broadcast_tensors(*tensors: Tensor) -> tuple[Tensor, ...]:
    """All tensors expanded to their common shape."""
    shape = tuple(broadcast_shapes(*(x.shape for x in tensors)))
    return tuple(ops["expand"](x, shape) for x in tensors)


def meshgrid(*tensors: Tensor | Tensors, indexing: str = "ij") -> tuple[Tensor, ...]:
    """Coordinate grids of 1-D tensors: views of them."""
    items: Any = (
        tensors[0] if len(tensors) == 1 and isinstance(tensors[0], (list, tuple)) else tensors
    )
    if not items:
        raise RuntimeError("meshgrid expects a non-empty TensorList")
    if indexing not in ("ij", "xy"):
        raise RuntimeError(
            f'meshgrid: indexing must be one of "xy" or "ij", but received: {indexing}'
        )
    for item in items:
        if item.dtype != items[0].dtype:
            raise RuntimeError(
                f"meshgrid expects all tensors to have the same dtype, got {items[0].dtype} and "
                f"{item.dtype}"
            )
        if item.ndim > 1:
            raise RuntimeError(
                f"meshgrid: Expected 0D or 1D tensor in the tensor list but got: {item.ndim}D"
            )
    shape = [item.numel() for item in items]
    rank = len(shape)
    grids = [
        ops["expand"](ops["reshape"](x, (1,) * i + (-1,) + (1,) * (rank - 1 - i)), tuple(shape))
        for i, x in enumerate(items)
    ]
    return tuple(g.swapaxes(0, 1) for g in grids) if indexing == "xy" and rank > 1 else tuple(grids)


def broadcast_to(input: Tensor, size: int | Sizes) -> Tensor:
    """A view with elements repeated along dimensions of size 1."""
    return ops["expand"](input, (size,) if isinstance(size, int) else as_tuple(size))


for _function in (expand, expand_as):
    export(_function.__name__, _function, function=False)

export("broadcast_to", broadcast_to)
export("broadcast_shapes", broadcast_shapes, method=False)
export("broadcast_tensors", broadcast_tensors, method=False)
export("meshgrid", meshgrid, method=False)


# -- derivatives -----------------------------------------------------------------------------------

derive("expand", unchanged)
