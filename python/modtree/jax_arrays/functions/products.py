# SPDX-License-Identifier: BSD-3-Clause
"""Products of vectors and matrices of jax arrays, with torch's names and arguments."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from modtree.jax_arrays.functions._common import Array


def matmul(input: Array, other: Array) -> Array:
    return jnp.matmul(input, other)


def _of_dimensions(name: str, *expected: tuple[Array, int]) -> None:
    for number, (array, ndim) in enumerate(expected, 1):
        if array.ndim != ndim:
            raise RuntimeError(
                f"{name}(): expected argument {number} to have {ndim} dimensions, got shape "
                f"{tuple(array.shape)}: use matmul() for others"
            )


def mm(input: Array, mat2: Array) -> Array:
    _of_dimensions("mm", (input, 2), (mat2, 2))
    return input @ mat2


def bmm(input: Array, mat2: Array) -> Array:
    _of_dimensions("bmm", (input, 3), (mat2, 3))
    if input.shape[0] != mat2.shape[0]:
        raise RuntimeError(
            f"bmm(): expected batches of one size, got {input.shape[0]} and {mat2.shape[0]}"
        )
    return input @ mat2


def mv(input: Array, vec: Array) -> Array:
    _of_dimensions("mv", (input, 2), (vec, 1))
    return input @ vec


def dot(input: Array, tensor: Array) -> Array:
    _of_dimensions("dot", (input, 1), (tensor, 1))
    return input @ tensor


def vdot(input: Array, other: Array) -> Array:
    return dot(jnp.conj(input), other)


def outer(input: Array, vec2: Array) -> Array:
    _of_dimensions("outer", (input, 1), (vec2, 1))
    return jnp.outer(input, vec2)


def _sum(input: Array, product: Array, beta: float, alpha: float) -> Array:
    # With beta 0, nan and inf of the input do not count.
    product = product if alpha == 1 else alpha * product
    return jnp.broadcast_to(product, product.shape) if beta == 0 else beta * input + product


def addmm(input: Array, mat1: Array, mat2: Array, *, beta: float = 1, alpha: float = 1) -> Array:
    return _sum(input, mm(mat1, mat2), beta, alpha)


def baddbmm(
    input: Array, batch1: Array, batch2: Array, *, beta: float = 1, alpha: float = 1
) -> Array:
    return _sum(input, bmm(batch1, batch2), beta, alpha)


def cross(input: Array, other: Array, dim: int | None = None) -> Array:
    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), -1)
    return jnp.cross(input, other, axis=dim)


def tensordot(a: Array, b: Array, dims: Any = 2) -> Array:
    return jnp.tensordot(a, b, dims)


def einsum(equation: str, *operands: Any) -> Array:
    parts: Sequence[Array] = (
        operands[0] if len(operands) == 1 and isinstance(operands[0], (tuple, list)) else operands
    )
    return jnp.einsum(equation, *parts)


def matrix_exp(input: Array) -> Array:
    return jax.scipy.linalg.expm(input)
