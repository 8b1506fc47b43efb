# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's products and ``numpy.linalg`` as operations of the table: they record like methods. See
:mod:`modtree._ops.numpy_protocol.shape`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modtree._C import _result_type
from modtree._ops import linalg_functions as linalg
from modtree._ops.numpy_protocol.reduce import numpy_reductions
from modtree._ops.numpy_protocol.shape import as_tensors
from modtree._ops.registry import functions, ops

#: NumPy function -> the function for tensors. It returns NotImplemented where NumPy's own has to
#: do.
numpy_linalg: dict[Any, Callable[..., Any]] = {}


def _means(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            home, _, last = name.rpartition(".")
            found = getattr(np.linalg if home else np, last, None)  # some are new in NumPy 2
            if found is not None:
                numpy_linalg[found] = function
        return function

    return enter


def _same_dtype(*values: Any) -> list[Any]:
    """Tensors of the dtype in which they meet: NumPy's products take several dtypes, torch's do
    not.
    """
    tensors = as_tensors(values)
    if len({t.dtype for t in tensors}) > 1:
        kind = _result_type(*tensors)
        tensors = [t.to(kind) for t in tensors]
    return tensors


# -- products --------------------------------------------------------------------------------------


@_means("dot")
def _dot(a: Any, b: Any, out: Any = None) -> Any:
    a, b = _same_dtype(a, b)
    if a.ndim == 0 or b.ndim == 0:
        return a * b
    if b.ndim <= 2:
        return ops["matmul"](a, b)
    return functions["tensordot"](a, b, ([-1], [-2]))


@_means("vdot")
def _vdot(a: Any, b: Any) -> Any:
    a, b = _same_dtype(a, b)
    return functions["vdot"](a.reshape(-1), b.reshape(-1))


@_means("inner")
def _inner(a: Any, b: Any) -> Any:
    return functions["inner"](*_same_dtype(a, b))


@_means("outer", "linalg.outer")
def _outer(a: Any, b: Any, out: Any = None) -> Any:
    a, b = as_tensors((a, b))
    return ops["outer"](a.reshape(-1), b.reshape(-1))


@_means("tensordot", "linalg.tensordot")
def _tensordot(a: Any, b: Any, axes: Any = 2) -> Any:
    if not isinstance(axes, int):
        axes = [[x] if isinstance(x, int) else list(x) for x in axes]
    return functions["tensordot"](*_same_dtype(a, b), axes)


@_means("einsum")
def _einsum(*operands: Any, out: Any = None, optimize: Any = False, **kwargs: Any) -> Any:
    if kwargs:
        return NotImplemented
    if isinstance(operands[0], str):
        return functions["einsum"](operands[0], *_same_dtype(*operands[1:]))
    count = len(operands) // 2
    tensors = iter(_same_dtype(*operands[: 2 * count : 2]))
    pairs = [next(tensors) if i % 2 == 0 and i < 2 * count else x for i, x in enumerate(operands)]
    return functions["einsum"](*pairs)


@_means("kron")
def _kron(a: Any, b: Any) -> Any:
    return functions["kron"](*as_tensors((a, b)))


@_means("cross")
def _cross(
    a: Any, b: Any, axisa: int = -1, axisb: int = -1, axisc: int = -1, axis: Any = None
) -> Any:
    a, b = _same_dtype(a, b)
    if axis is not None:
        axisa = axisb = axisc = axis
    if a.shape[axisa] != 3 or b.shape[axisb] != 3:
        return NotImplemented
    a, b = functions["broadcast_tensors"](
        ops["movedim"](a, axisa, -1), ops["movedim"](b, axisb, -1)
    )
    return ops["movedim"](ops["cross"](a, b, -1), -1, axisc)


@_means("linalg.cross")
def _linalg_cross(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    return _cross(x1, x2, axis=axis)


@_means("linalg.matmul")
def _matmul(x1: Any, x2: Any) -> Any:
    return ops["matmul"](*_same_dtype(x1, x2))


@_means("linalg.vecdot")
def _vecdot(x1: Any, x2: Any, *, axis: int = -1) -> Any:
    return linalg.vecdot(*as_tensors((x1, x2)), dim=axis)


@_means("linalg.multi_dot")
def _multi_dot(arrays: Any, *, out: Any = None) -> Any:
    return linalg.multi_dot(_same_dtype(*arrays))


@_means("trace")
def _trace(
    a: Any, offset: int = 0, axis1: int = 0, axis2: int = 1, dtype: Any = None, out: Any = None
) -> Any:
    return NotImplemented if dtype is not None else ops["diagonal"](a, offset, axis1, axis2).sum(-1)


@_means("linalg.trace")
def _linalg_trace(x: Any, *, offset: int = 0, dtype: Any = None) -> Any:
    return _trace(x, offset, -2, -1, dtype)


@_means("linalg.diagonal")
def _linalg_diagonal(x: Any, *, offset: int = 0) -> Any:
    return ops["diagonal"](x, offset, -2, -1)


@_means("linalg.matrix_transpose")
def _matrix_transpose(x: Any) -> Any:
    return x.mT


# -- inverses and factors --------------------------------------------------------------------------


def _of_matrix(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda a: function(a)


for _name in ("inv", "det", "slogdet", "eig", "eigvals"):
    _means("linalg." + _name)(_of_matrix(getattr(linalg, _name)))


@_means("linalg.svdvals")
def _svdvals(x: Any) -> Any:
    return linalg.svdvals(x)


@_means("linalg.matrix_power")
def _matrix_power(a: Any, n: int) -> Any:
    return linalg.matrix_power(a, n)


@_means("linalg.tensorinv")
def _tensorinv(a: Any, ind: int = 2) -> Any:
    return linalg.tensorinv(a, ind)


@_means("linalg.solve")
def _solve(a: Any, b: Any) -> Any:
    a, b = _same_dtype(a, b)
    # NumPy takes only a single vector as one.
    return ops["solve"](a, b) if b.ndim == 1 else ops["solve"](*_matrices(a, b))


def _matrices(a: Any, b: Any) -> tuple[Any, Any]:
    if b.ndim == a.ndim - 1 and tuple(b.shape) == tuple(a.shape[:-1]):
        b = b.unsqueeze(0)
    return a, b


@_means("linalg.tensorsolve")
def _tensorsolve(a: Any, b: Any, axes: Any = None) -> Any:
    a, b = _same_dtype(a, b)
    return linalg.tensorsolve(a, b, axes)


@_means("linalg.cholesky")
def _cholesky(a: Any, *, upper: bool = False) -> Any:
    return linalg.cholesky(a, upper=upper)


@_means("linalg.qr")
def _qr(a: Any, mode: str = "reduced") -> Any:
    if mode not in ("reduced", "complete", "r"):
        return NotImplemented
    result = linalg.qr(a, mode)
    return result[1] if mode == "r" else result


@_means("linalg.svd")
def _svd(
    a: Any, full_matrices: bool = True, compute_uv: bool = True, hermitian: bool = False
) -> Any:
    if hermitian:
        return NotImplemented
    return linalg.svd(a, full_matrices) if compute_uv else linalg.svdvals(a)


@_means("linalg.eigh")
def _eigh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803
    return linalg.eigh(a, UPLO)


@_means("linalg.eigvalsh")
def _eigvalsh(a: Any, UPLO: str = "L") -> Any:  # noqa: N803
    return linalg.eigvalsh(a, UPLO)


@_means("linalg.pinv")
def _pinv(a: Any, rcond: Any = None, hermitian: bool = False, *, rtol: Any = np._NoValue) -> Any:
    if rcond is not None and np.ndim(rcond):
        return NotImplemented
    default = 1e-15 if rtol is np._NoValue else rtol
    return linalg.pinv(a, rtol=default if rcond is None else rcond, hermitian=hermitian)


# -- norms -----------------------------------------------------------------------------------------


@_means("linalg.norm")
def _norm(x: Any, ord: Any = None, axis: Any = None, keepdims: bool = False) -> Any:  # noqa: A002
    result = numpy_reductions[np.linalg.norm](x, ord, axis, keepdims)
    if result is not NotImplemented or not (x.is_floating_point() or x.is_complex()):
        return result
    dims = (-2, -1) if axis is None and x.ndim == 2 else axis
    if dims is None or isinstance(dims, int) or len(dims) != 2:
        return NotImplemented
    return linalg.matrix_norm(x, ord, dims, keepdims)


@_means("linalg.matrix_norm")
def _matrix_norm(x: Any, *, keepdims: bool = False, ord: Any = "fro") -> Any:  # noqa: A002
    return linalg.matrix_norm(x, ord, (-2, -1), keepdims)


@_means("linalg.vector_norm")
def _vector_norm(x: Any, *, axis: Any = None, keepdims: bool = False, ord: Any = 2) -> Any:
    return linalg.vector_norm(x, ord, axis, keepdims)


@_means("linalg.cond")
def _cond(x: Any, p: Any = None) -> Any:
    return linalg.cond(x, p)
