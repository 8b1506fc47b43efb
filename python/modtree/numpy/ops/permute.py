# SPDX-License-Identifier: BSD-3-Clause
"""permute, transpose, movedim and other orders of the dimensions."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.generic import as_ints, of_sequence, operation, wrap_dim
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Ints, Sizes, Tensor

define("permute", np.ndarray.transpose, view=True)
define("swapaxes", np.ndarray.swapaxes, view=True)

define("movedim", np.moveaxis, view=True)

_swapaxes = ops["swapaxes"]


def permute(input: Tensor, *dims: int | Sizes) -> Tensor:
    """The dimensions in another order."""
    order = as_ints(dims)
    if len(order) != input.ndim:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the "
            f"length of the desired ordering of dimensions i.e. input.dim() = {input.ndim} is not "
            f"equal to len(dims) = {len(order)}"
        )
    return ops["permute"](input, order)


def transpose(input: Tensor, dim0: int, dim1: int) -> Tensor:
    """Two dimensions exchanged.

    Args:
        dim0: One dimension.
        dim1: The other.
    """
    if input.ndim == 0:
        return input[...] if wrap_dim(dim0, 0) == wrap_dim(dim1, 0) else input
    return _swapaxes(input, dim0, dim1)


def t(input: Tensor) -> Tensor:
    """The transpose of a matrix; vectors and scalars as they are."""
    if input.ndim > 2:
        raise RuntimeError(f"t() expects a tensor with <= 2 dimensions, but self is {input.ndim}D")
    return ops["permute"](input)


def movedim(input: Tensor, source: Ints, destination: Ints) -> Tensor:
    """Moves dimensions to other positions.

    Args:
        source: One or several dimensions.
        destination: Where each of them goes.
    """
    sequence = isinstance(source, (tuple, list))
    if sequence != isinstance(destination, (tuple, list)):
        raise TypeError(
            f"movedim(): source and destination must both be ints or both be tuples of ints, got "
            f"{type(source).__name__} and {type(destination).__name__}"
        )
    if sequence and len(source) != len(destination):
        raise RuntimeError(
            f"movedim: Invalid source or destination dims: source ({list(source)} dims) should "
            f"contain the same number of dims as destination ({list(destination)} dims)"
        )
    if input.ndim == 0:
        both: Any = (source, destination)
        for dim in (*both[0], *both[1]) if sequence else both:
            wrap_dim(dim, 0)
        return input[...]
    return ops["movedim"](input, source, destination)


export("permute", permute, function=False)
export("permute", of_sequence("permute", permute), method=False)
for _function in (transpose, t, movedim):
    export(_function.__name__, _function)
export("swapaxes", transpose)
export("moveaxis", movedim)


# -- derivatives -----------------------------------------------------------------------------------

_permute, _movedim = operation("permute"), operation("movedim")


def _permute_back(g: Any, _out: Any, x_like: Any, order: Any = None) -> Any:
    if order is None:
        return _permute(g)
    ndim = len(x_like.shape)
    inverse = [0] * ndim
    for position, axis in enumerate(order):
        inverse[axis % ndim] = position
    return _permute(g, tuple(inverse))


derive("permute", _permute_back)
derive("swapaxes", lambda g, _out, _x, a, b: g.swapaxes(a, b))
derive("movedim", lambda g, _out, _x, source, target: _movedim(g, target, source))
