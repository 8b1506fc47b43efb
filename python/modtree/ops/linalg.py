# SPDX-License-Identifier: BSD-3-Clause
"""Matrix products and what belongs to them."""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree.ops.table import define, expose, ops


def _matmul(a: Any, b: Any) -> Any:
    if a.ndim == 0 or b.ndim == 0:
        raise RuntimeError(
            f"both arguments to matmul need to be at least 1D, but they are {a.ndim}D and {b.ndim}D"
        )
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise RuntimeError(
            f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and "
            f"{'x'.join(map(str, b.shape))})"
        )
    if a.ndim > 2 and b.ndim == 2:
        # One product instead of NumPy's loop over the leading dimensions.
        return (a.reshape(-1, a.shape[-1]) @ b).reshape(*a.shape[:-1], b.shape[-1])
    return np.matmul(a, b)


def _matmul_meta(a: Any, b: Any) -> Any:
    lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    rows = a.shape[-2:-1]
    columns = b.shape[-1:] if b.ndim > 1 else ()
    return (*lead, *rows, *columns), a.dtype


def _dot(a: Any, b: Any) -> Any:
    if a.ndim != 1 or b.ndim != 1:
        raise RuntimeError(f"1D tensors expected, but got {a.ndim}D and {b.ndim}D tensors")
    if a.shape != b.shape:
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src [{b.shape[0]}] to have the same "
            "number of elements"
        )
    return np.dot(a, b)


define("matmul", _matmul, promote="same", operands=2, meta=_matmul_meta, numpy=np.matmul)
define("dot", _dot, promote="same", operands=2, meta=lambda a, b: ((), a.dtype))
define(
    "outer",
    lambda a, b: np.multiply.outer(a, b),
    promote="arith",
    operands=2,
    meta=lambda a, b: ((*a.shape, *b.shape), a.dtype),
)
define(
    "einsum",
    lambda equation, *xs: np.einsum(equation, *xs, optimize=len(xs) > 2 or "optimal"),
)
define("kron", np.kron, promote="arith", operands=2)
define(
    "cross",
    lambda a, b, axis: np.cross(a, b, axis=axis),
    promote="arith",
    operands=2,
)
define("trace", np.trace)
define("qr", lambda x, mode: tuple(np.linalg.qr(x, mode)))
define("svd", lambda x, full: tuple(np.linalg.svd(x, full)))
define("inverse", np.linalg.inv)
define("det", np.linalg.det)
define("cholesky", np.linalg.cholesky)
define("solve", np.linalg.solve, promote="same", operands=2)

_mm = ops["matmul"]


def _need(name: str, ndim: int, *tensors: Any) -> None:
    for tensor in tensors:
        if tensor.ndim != ndim:
            raise RuntimeError(
                f"{name}: expected {ndim}D tensors, got a {tensor.ndim}D one of shape {list(tensor.shape)}"
            )


def mm(input: Any, mat2: Any) -> Any:
    """The product of two matrices."""
    _need("mm", 2, input, mat2)
    return _mm(input, mat2)


def bmm(input: Any, mat2: Any) -> Any:
    """Products of two batches of matrices."""
    _need("bmm", 3, input, mat2)
    if input.size(0) != mat2.size(0):
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{input.size(0)}, {input.size(2)}] but "
            f"got: [{mat2.size(0)}, {mat2.size(1)}]."
        )
    return _mm(input, mat2)


def mv(input: Any, vec: Any) -> Any:
    """A matrix times a vector."""
    _need("mv", 2, input)
    _need("mv", 1, vec)
    return _mm(input, vec)


def _scaled(value: Any, factor: Any) -> Any:
    return value if factor == 1 else value * factor


def addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * input + alpha * mat1 @ mat2."""
    product = _scaled(mm(mat1, mat2), alpha)
    return product if beta == 0 else _scaled(input, beta) + product


def baddbmm(input: Any, batch1: Any, batch2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * input + alpha * batch1 @ batch2."""
    product = _scaled(bmm(batch1, batch2), alpha)
    return product if beta == 0 else _scaled(input, beta) + product


def addmv(input: Any, mat: Any, vec: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """beta * input + alpha * mat @ vec."""
    product = _scaled(mv(mat, vec), alpha)
    return product if beta == 0 else _scaled(input, beta) + product


def einsum(equation: str, *operands: Any) -> Any:
    """Sums of products, as the equation says: einsum("ij,jk->ik", a, b)."""
    if len(operands) == 1 and isinstance(operands[0], (list, tuple)):
        operands = tuple(operands[0])
    return ops["einsum"](equation.replace(" ", ""), *operands)


def cross(input: Any, other: Any, dim: int = -1) -> Any:
    """The cross product of 3-vectors along dim."""
    return ops["cross"](input, other, dim)


def tensordot(a: Any, b: Any, dims: Any = 2) -> Any:
    """Contracts dimensions of two tensors."""
    return ops["tensordot"](a, b, dims)


define("tensordot", lambda a, b, axes: np.tensordot(a, b, axes), promote="same", operands=2)


for _function in (mm, bmm, mv, addmm, baddbmm, addmv, cross):
    expose(_function.__name__, _function)
expose("matmul", ops["matmul"])
expose("dot", ops["dot"])
expose("outer", ops["outer"])
expose("ger", ops["outer"])
expose(
    "inner",
    lambda input, other: (input * other).sum(-1) if input.ndim == 1 else _mm(input, other.mT),
)
expose("trace", ops["trace"])
expose("det", ops["det"])
expose("inverse", ops["inverse"])
expose("kron", ops["kron"])
expose("einsum", einsum, method=False)
expose("tensordot", tensordot, method=False)
expose(
    "addmm_",
    lambda self, mat1, mat2, *, beta=1, alpha=1: self.copy_(
        addmm(self, mat1, mat2, beta=beta, alpha=alpha)
    ),
    function=False,
)
