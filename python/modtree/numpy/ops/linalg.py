# SPDX-License-Identifier: BSD-3-Clause
"""matmul, dot, outer, cross, trace and products that are added."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree._C import TensorBase, as_dtype, fitted_number
from modtree.numpy.ops.generic import adjoint, conj, operation, operation_of_list
from modtree.numpy.ops.matrix_product import matmul
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Number, Tensor


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
    if a.ndim > 2 and b.ndim <= 2:
        # One product instead of NumPy's loop over the leading dimensions.
        rows = a.reshape(math.prod(a.shape[:-1]), a.shape[-1])
        return _matmul(rows, b).reshape(*a.shape[:-1], *b.shape[1:])
    # A vector as a matrix is a product that the native kernel has.
    if b.ndim == 1 < a.ndim:
        return matmul(a, b[:, None])[:, 0]
    if a.ndim == 1 < b.ndim == 2 and b.flags.f_contiguous:
        return matmul(a[None], b)[0]
    return matmul(a, b)


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
            f"inconsistent tensor size, expected tensor [{a.shape[0]}] and src [{b.shape[0]}] to "
            "have the same number of elements"
        )
    return np.dot(a, b)


def _outer(a: Any, b: Any) -> Any:
    for name, x in (("self", a), ("vec2", b)):
        if x.ndim != 1:
            raise RuntimeError(f"outer: Expected 1-D argument {name}, but got {x.ndim}-D")
    return np.multiply.outer(a, b)


define("matmul", _matmul, promote="same", operands=2, meta=_matmul_meta, numpy=np.matmul)
define("dot", _dot, promote="same", operands=2, meta=lambda a, b: ((), a.dtype))
define(
    "outer",
    _outer,
    promote="arith",
    operands=2,
    meta=lambda a, b: ((*a.shape, *b.shape), a.dtype),
)


def _cross(a: Any, b: Any, axis: int) -> Any:
    if a.dtype.char == "?":
        raise NotImplementedError('"cross" not implemented for bool: convert with .float()')
    if a.ndim != b.ndim:
        raise RuntimeError("linalg.cross: inputs must have the same number of dimensions.")
    if a.shape[axis] != 3 or b.shape[axis] != 3:
        raise RuntimeError(
            f"linalg.cross: inputs dimension {axis} must have length 3. Got {a.shape[axis]} and "
            f"{b.shape[axis]}"
        )
    return np.cross(a, b, axis=axis)


def _trace(x: Any) -> Any:
    if x.ndim != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {x.ndim}")
    return np.trace(x, dtype=np.int64 if x.dtype.kind in "bui" else None)


define(
    "cross",
    _cross,
    promote="same",
    operands=2,
    meta=lambda a, b, axis: (np.broadcast_shapes(a.shape, b.shape), a.dtype),
)
define(
    "trace", _trace, meta=lambda x: ((), np.dtype(np.int64) if x.dtype.kind in "bui" else x.dtype)
)

_mm = ops["matmul"]


def _need(name: str, ndim: int, *tensors: Any) -> None:
    for tensor in tensors:
        if tensor.ndim != ndim:
            raise RuntimeError(
                f"{name}: expected {ndim}D tensors, got a {tensor.ndim}D one of shape "
                f"{list(tensor.shape)}"
            )


def mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two matrices."""
    _need("mm", 2, input, mat2)
    return _mm(input, mat2)


def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """Products of two batches of matrices."""
    _need("bmm", 3, input, mat2)
    if input.size(0) != mat2.size(0):
        raise RuntimeError(
            f"Expected size for first two dimensions of batch2 tensor to be: [{input.size(0)}, "
            f"{input.size(2)}] but got: [{mat2.size(0)}, {mat2.size(1)}]."
        )
    return _mm(input, mat2)


def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector."""
    if input.ndim == 0:
        raise IndexError("mv: expected a matrix, but got a tensor without dimensions")
    return _mv(input, vec)


def _mv(input: Any, vec: Any) -> Any:
    _need("mv", 2, input)
    _need("mv", 1, vec)
    return _mm(input, vec)


def _added(name: str, input: Any, beta: Any, alpha: Any, factors: Any, product: Any) -> Any:
    """beta * input + alpha * product of the factors, whose dtype all of them have."""
    kind = input.dtype
    alpha, beta = _plain(alpha), _plain(beta)
    if any(factor.dtype != kind for factor in factors):
        dtypes = ", ".join(str(t.dtype) for t in (input, *factors))
        raise RuntimeError(
            f"{name}: self and the factors must have the same dtype, but got {dtypes}: convert "
            f"with .to(dtype)"
        )
    wide = kind
    if kind.name == "float16":  # its kernels add up in float32
        wide = as_dtype("float32")
    alpha, beta = fitted_number(alpha, wide), fitted_number(beta, wide)
    if not factors[0].numel():  # a sum of nothing is 0 whatever the factor
        alpha = 1
    if kind.name == "float16":
        return _plus(input.to(wide), beta, _scaled(product.to(wide), alpha)).to(kind)
    if alpha == 0 and name != "baddbmm":  # BLAS multiplies nothing then, and so meets no NaN
        product = _zeroed(product)
    return _plus(input, beta, _scaled(product.to(kind), alpha))


def _plain(factor: Any) -> Any:
    """A tensor of one element counts as its number."""
    return factor.item() if isinstance(factor, TensorBase) else factor


def _zeroed(x: Any) -> Any:
    return x.masked_fill(x.new_ones((), dtype=as_dtype("bool")), 0)


def _scaled(value: Any, factor: Any) -> Any:
    return value if factor == 1 else value * factor


def _plus(input: Any, beta: Any, product: Any) -> Any:
    """beta * input + product; with beta 0 what is not finite in input does not count."""
    if input.shape != product.shape:
        input = ops["expand"](input, tuple(product.shape))
    if beta == 0:
        if not input.requires_grad:
            return product
        return _zeroed(input) + product
    return _scaled(input, beta) + product


def _check_batches(batch1: Any, batch2: Any) -> None:
    for batch, least in ((batch1, 2), (batch2, 3)):
        if batch.ndim < least:
            raise IndexError(
                f"expected batches of matrices (3 dimensions), got a tensor of shape "
                f"{list(batch.shape)}"
            )


def addmm(
    input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * mat1 @ mat2.

    Args:
        mat1: First factor.
        mat2: Second one.
        beta: A factor of ``input``.
        alpha: A factor of the product.
    """
    return _added("addmm", input, beta, alpha, (mat1, mat2), mm(mat1, mat2))


def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """beta * input + alpha * batch1 @ batch2.

    Args:
        batch1: First factor.
        batch2: Second one.
        beta: A factor of ``input``.
        alpha: A factor of the product.
    """
    _check_batches(batch1, batch2)
    return _added("baddbmm", input, beta, alpha, (batch1, batch2), bmm(batch1, batch2))


def cross(input: Tensor, other: Tensor, dim: int | None = None) -> Tensor:
    """The cross product of 3-vectors along dim (the first dimension of size 3 when none is
    given).

    Args:
        other: A tensor that broadcasts with the first.
        dim: The dimension; may count from the end.
    """
    if dim is None:
        dim = next((i for i, n in enumerate(input.shape) if n == 3), None)
        if dim is None:
            raise RuntimeError(f"no dimension of size 3 in input of shape {list(input.shape)}")
    return ops["cross"](input, other, dim)


def vdot(input: Tensor, other: Tensor) -> Tensor:
    """The dot product of two vectors, the first one conjugated."""
    return ops["dot"](input.conj() if input.is_complex() else input, other)


for _function in (mm, bmm, mv, addmm, baddbmm, cross, vdot):
    export(_function.__name__, _function)
export("matmul", ops["matmul"])
export("dot", ops["dot"])
export("outer", ops["outer"])


def baddbmm_(
    self: Tensor, batch1: Tensor, batch2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """self = beta * self + alpha * batch1 @ batch2, in place."""
    return self.copy_(baddbmm(self, batch1, batch2, beta=beta, alpha=alpha))


export("baddbmm_", baddbmm_, function=False)
export("trace", ops["trace"])


def addmm_(
    self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Number = 1, alpha: Number = 1
) -> Tensor:
    """self = beta * self + alpha * mat1 @ mat2, in place."""
    return self.copy_(addmm(self, mat1, mat2, beta=beta, alpha=alpha))


export("addmm_", addmm_, function=False)


# -- derivatives -----------------------------------------------------------------------------------

_matmul_op, _einsum, _cross_op = (
    operation("matmul"),
    operation_of_list("einsum"),
    operation("cross"),
)
_expand, _getitem_backward = operation("expand"), operation("getitem_backward")
_diagonal_backward = operation("diagonal_backward")


def _rows(x: Any) -> Any:
    """All leading dimensions as one."""
    shape = tuple(x.shape)
    return x if len(shape) == 2 else x.reshape((math.prod(shape[:-1]), shape[-1]))


def _matmul_left(g: Any, _out: Any, a_like: Any, b: Any) -> Any:
    if len(b.shape) == 1:
        return (g[..., None] if len(a_like.shape) > 1 else g) * conj(b)
    if len(a_like.shape) == 1:
        return _matmul_op(conj(b), g[..., None])[..., 0]
    return _matmul_op(g, adjoint(b))


def _matmul_right(g: Any, _out: Any, a: Any, b_like: Any) -> Any:
    if len(a.shape) == 1:
        if len(b_like.shape) == 1:
            return g * conj(a)
        return conj(a)[:, None] * g[..., None, :]
    if len(b_like.shape) == 1:
        return _matmul_op(conj(_rows(a).swapaxes(0, 1)), g.reshape((math.prod(g.shape),)))
    if len(b_like.shape) == 2:
        # One product over all leading dimensions, which also sums over them.
        return _matmul_op(conj(_rows(a).swapaxes(0, 1)), _rows(g))
    return _matmul_op(adjoint(a), g)


derive("matmul", _matmul_left, _matmul_right)
derive("dot", lambda g, _out, _a, b: g * conj(b), lambda g, _out, a, _b: g * conj(a))
derive(
    "outer",
    lambda g, _out, _a, b: _matmul_op(g, conj(b)),
    lambda g, _out, a, _b: _matmul_op(conj(a), g),
)
derive(
    "cross",
    lambda g, _out, _a, b, axis: _cross_op(conj(_wide(b, g)), g, axis),
    lambda g, _out, a, _b, axis: _cross_op(g, conj(_wide(a, g)), axis),
)


def _wide(x: Any, g: Any) -> Any:
    return x if tuple(x.shape) == tuple(g.shape) else _expand(x, tuple(g.shape))


def _trace_back(g: Any, _out: Any, x_like: Any) -> Any:
    shape = tuple(x_like.shape)
    return _diagonal_backward(_expand(g, (min(shape),)), shape, 0, 0, 1)


derive("trace", _trace_back)
