# SPDX-License-Identifier: BSD-3-Clause
"""inverse, solve, det, cholesky, qr, svd, eigh, matrix_exp."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from modtree._C import TensorBase
from modtree.numpy.ops.generic import (
    adjoint,
    conj,
    eye,
    is_complex,
    like_first,
    operation,
    operation_of_list,
    real_dtype,
)
from modtree.numpy.ops.registry import define, derive


class LinAlgError(RuntimeError):
    """A matrix for which the operation has no result."""


def _check(name: str, x: Any, square: bool = True) -> None:
    if x.ndim < 2:
        raise RuntimeError(
            f"linalg.{name}: The input tensor A must have at least 2 dimensions, got shape "
            f"{list(x.shape)}"
        )
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"linalg.{name}: A must be batches of square matrices, but they are {x.shape[-2]} by "
            f"{x.shape[-1]} matrices"
        )
    need_precision(name, x.dtype)


def need_precision(name: str, dtype: Any) -> None:
    if dtype.kind not in "fc":
        raise NotImplementedError(
            f"linalg.{name}: Expected a floating point or complex tensor as input. Got "
            f"{dtype}; convert with .float()"
        )
    if dtype == np.float16 and name != "matrix_exp":
        raise NotImplementedError(f"linalg.{name}: Low precision dtypes not supported. Got Half")


def _matrix_operation(
    name: str, function: Callable[..., Any], square: bool = True
) -> Callable[..., Any]:
    """The function of NumPy with torch's checks and its kind of error."""

    def forward(x: Any, *args: Any) -> Any:
        _check(name, x, square)
        try:
            return function(x, *args)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.{name}: {error} (A has shape {list(x.shape)})") from None

    return forward


def _cholesky(x: Any, upper: bool = False) -> Any:
    result = adjoint(np.linalg.cholesky(adjoint(x))) if upper else np.linalg.cholesky(x)
    if np.isnan(result).any():
        raise np.linalg.LinAlgError("Matrix is not positive definite: it has NaN")
    return result


def _slogdet(x: Any) -> Any:
    return tuple(np.linalg.slogdet(x))


def _eigh(x: Any, uplo: str) -> Any:
    return tuple(np.linalg.eigh(x, uplo))


def _qr(x: Any, mode: str) -> Any:
    if mode == "r":
        return np.zeros(0, x.dtype), np.linalg.qr(x, "r")
    return tuple(np.linalg.qr(x, mode))


def _qr_meta(x: Any, mode: str) -> Any:
    *lead, m, n = x.shape
    k = m if mode == "complete" else min(m, n)
    q = (0,) if mode == "r" else (*lead, m, k)
    return [(q, x.dtype), ((*lead, k, n), x.dtype)]


def _svd(x: Any, full: bool) -> Any:
    return tuple(np.linalg.svd(x, full))


def _svd_meta(x: Any, full: bool) -> Any:
    *lead, m, n = x.shape
    k = min(m, n)
    return [
        ((*lead, m, m if full else k), x.dtype),
        ((*lead, k), real_dtype(x.dtype)),
        ((*lead, n if full else k, n), x.dtype),
    ]


def _svdvals(x: Any) -> Any:
    return np.linalg.svd(x, compute_uv=False)


def tolerance(values: Any, shape: Any, atol: Any, rtol: Any) -> Any:
    """What counts as zero among the singular values of matrices of this shape."""
    if rtol is None:
        rtol = max(shape[-2:]) * np.finfo(values.dtype).eps
        if atol is not None:
            rtol = np.where(np.asarray(atol) > 0, 0.0, rtol)
    return np.maximum(0.0 if atol is None else atol, rtol * values[..., :1])


def _pinv(x: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False, hermitian=hermitian)
    limit = tolerance(s, x.shape, atol, rtol)
    inverse = np.where(
        s > limit, np.reciprocal(np.where(s > limit, s, s.dtype.type(1))), s.dtype.type(0)
    )
    return (vh.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ u.conj().swapaxes(-1, -2)


def is_vector(a: Any, b: Any) -> bool:
    """Whether the right-hand sides are vectors: one, or one for each matrix."""
    return len(b.shape) == 1 or (
        len(b.shape) == len(a.shape) - 1 and tuple(b.shape) == tuple(a.shape[:-1])
    )


def _solve(a: Any, b: Any) -> Any:
    _check("solve", a)
    vector = is_vector(a, b)
    rows = b.shape[-1] if vector else b.shape[-2]
    if rows != a.shape[-1]:
        raise RuntimeError(
            "linalg.solve: Incompatible shapes of A and B for the equation AX = B "
            f"({list(a.shape)} and {list(b.shape)})"
        )
    try:
        if vector:
            return np.linalg.solve(a, b[..., None])[..., 0]
        return np.linalg.solve(a, b)
    except np.linalg.LinAlgError as error:
        raise LinAlgError(f"linalg.solve: {error} (A has shape {list(a.shape)})") from None


def _solve_meta(a: Any, b: Any) -> Any:
    if is_vector(a, b):
        return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-1]), b.shape[-1]), b.dtype
    return (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype


def _solve_triangular(a: Any, b: Any, upper: bool) -> Any:
    _check("solve_triangular", a)
    if b.ndim < 2 or b.shape[-2] != a.shape[-1]:
        raise RuntimeError(
            f"linalg.solve_triangular: Incompatible shapes of A and B for the equation AX = B "
            f"({list(a.shape)} and {list(b.shape)})"
        )
    a = np.triu(a) if upper else np.tril(a)
    if np.diagonal(a, 0, -2, -1).all():
        with contextlib.suppress(np.linalg.LinAlgError):  # of an underflow
            return np.linalg.solve(a, b)
    # A zero on the diagonal divides: the result has infinities and NaN, and is no error.
    result = np.empty((*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]), b.dtype)
    size = a.shape[-1]
    for i in reversed(range(size)) if upper else range(size):
        done = slice(i + 1, None) if upper else slice(i)
        known = (a[..., i : i + 1, done] @ result[..., done, :])[..., 0, :]
        result[..., i, :] = (b[..., i, :] - known) / a[..., i, i, None]
    return result


# The coefficients of the [13/13] Pade approximant of exp; for a 1-norm up to the limit it is exact
# to double precision.
_PADE = (
    64764752532480000.0,
    32382376266240000.0,
    7771770303897600.0,
    1187353796428800.0,
    129060195264000.0,
    10559470521600.0,
    670442572800.0,
    33522128640.0,
    1323241920.0,
    40840800.0,
    960960.0,
    16380.0,
    182.0,
    1.0,
)
_PADE_LIMIT = 5.37


def _matrix_exp(x: Any) -> Any:
    if x.size == 0:
        return x.copy()
    if x.dtype == np.float16:
        return _matrix_exp(x.astype(np.float32)).astype(np.float16)
    size = np.abs(x).sum(-2).max()
    squarings = (
        max(int(np.ceil(np.log2(size / _PADE_LIMIT))), 0) if np.isfinite(size) and size else 0
    )
    kind = x.dtype.type
    a = x / kind(2.0**squarings)
    unit = np.eye(x.shape[-1], dtype=x.dtype)
    a2 = a @ a
    power, odd, even = np.broadcast_to(unit, a.shape), 0, 0
    for i in range(0, len(_PADE), 2):
        even = even + power * kind(_PADE[i])
        odd = odd + power * kind(_PADE[i + 1])
        power = power @ a2
    odd = a @ odd
    result = np.linalg.solve(even - odd, even + odd)
    for _ in range(squarings):
        result = result @ result
    return result


define("inverse", _matrix_operation("inv", np.linalg.inv), meta=like_first)
define("det", _matrix_operation("det", np.linalg.det), meta=lambda x: (x.shape[:-2], x.dtype))
define(
    "slogdet",
    _matrix_operation("slogdet", _slogdet),
    meta=lambda x: [(x.shape[:-2], x.dtype), (x.shape[:-2], real_dtype(x.dtype))],
)
define("cholesky", _matrix_operation("cholesky", _cholesky), meta=like_first)
define("solve", _solve, promote="same", operands=2, meta=_solve_meta)
define(
    "solve_triangular",
    _solve_triangular,
    promote="same",
    operands=2,
    meta=lambda a, b, *_: (
        (*np.broadcast_shapes(a.shape[:-2], b.shape[:-2]), *b.shape[-2:]),
        b.dtype,
    ),
)
define("qr", _matrix_operation("qr", _qr, False), meta=_qr_meta)
define("svd", _matrix_operation("svd", _svd, False), meta=_svd_meta)
define(
    "svdvals",
    _matrix_operation("svdvals", _svdvals, False),
    meta=lambda x: ((*x.shape[:-2], min(x.shape[-2:])), real_dtype(x.dtype)),
)
define(
    "eigh",
    _matrix_operation("eigh", _eigh),
    meta=lambda x, uplo: [(x.shape[:-1], real_dtype(x.dtype)), (x.shape, x.dtype)],
)
define(
    "pinv",
    _matrix_operation("pinv", _pinv, False),
    meta=lambda x, *_: ((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype),
)
define("matrix_exp", _matrix_operation("matrix_exp", _matrix_exp), meta=like_first)


# -- derivatives -----------------------------------------------------------------------------------

_inverse, _solve_op, _svd_op = operation("inverse"), operation("solve"), operation("svd")
_substitute, _triu = operation("solve_triangular"), operation("triu")
_tril, _diagonal, _diagonal_backward = (
    operation("tril"),
    operation("diagonal"),
    operation("diagonal_backward"),
)
_matrix_exp_op, _cat = operation("matrix_exp"), operation_of_list("cat")


def _diag(values: Any) -> Any:
    """Matrices with these diagonals."""
    shape = (*values.shape, values.shape[-1])
    return _diagonal_backward(values, shape, 0, -2, -1)


# -- inverses --------------------------------------------------------------------------------------


def _inverse_back(g: Any, out: Any, _x: Any) -> Any:
    turned = adjoint(out)
    return -(turned @ g @ turned)


def _det_back(g: Any, out: Any, x: Any) -> Any:
    scaled = g * conj(out)
    if isinstance(x, TensorBase) or np.all(out):
        return scaled[..., None, None] * adjoint(_inverse(x))
    # The cofactors exist for singular matrices too.
    return g[..., None, None] * _cofactors(x)


def _cofactors(x: Any) -> Any:
    """The conjugates of all cofactors: products of all singular values but one."""
    u, s, vh = np.linalg.svd(x)
    k = s.shape[-1]
    others = np.where(np.eye(k, dtype=bool), s.dtype.type(1), s[..., None, :]).prod(-1)
    phase = np.linalg.det(u) * np.linalg.det(vh)
    return conj(phase)[..., None, None] * ((u * others[..., None, :]) @ vh)


def _slogdet_back(g: Any, out: Any, x: Any) -> Any:
    g_sign, g_log = g
    if is_complex(x) and g_sign is not None:
        turn = (conj(g_sign) * out[0]).imag * 1j
        weight = -turn if g_log is None else g_log - turn
    elif g_log is None:
        weight = (x * 0)[..., 0, 0] if x.shape[-1] else (x * 0).sum(axis=(-2, -1))
    else:
        weight = g_log
    return weight[..., None, None] * adjoint(_inverse_or_infinity(x))


def _inverse_or_infinity(x: Any) -> Any:
    """The inverse; of singular matrices the quotient of their adjugate and 0."""
    try:
        return _inverse(x)
    except LinAlgError:
        if isinstance(x, TensorBase):
            raise
    flat = x.reshape((math.prod(x.shape[:-2]), *x.shape[-2:]))
    result = np.empty_like(flat)
    for i, matrix in enumerate(flat):
        try:
            result[i] = np.linalg.inv(matrix)
        except np.linalg.LinAlgError:
            result[i] = adjoint(_cofactors(matrix)) / np.zeros((), x.dtype)
    return result.reshape(x.shape)


def _solve_left(g: Any, out: Any, a: Any, b_like: Any) -> Any:
    back = _solve_op(adjoint(a), g)
    if is_vector(a, b_like):
        return -(back[..., :, None] * conj(out)[..., None, :])
    return -(back @ adjoint(out))


def _pinv_back(g: Any, out: Any, x: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    p, ph, gh = out, adjoint(out), adjoint(g)
    along = gh @ p @ ph
    across = ph @ p @ gh
    return along - x @ (p @ along) + across - (across @ p) @ x - ph @ g @ ph


def _matrix_exp_back(g: Any, _out: Any, x: Any) -> Any:
    # The exponential of [[A, E], [0, A]] holds the derivative of exp(A) in the direction E in its
    # corner.
    turned = adjoint(x)
    n = turned.shape[-1]
    top = _cat([turned, g], -1)
    bottom = _cat([turned * 0, turned], -1)
    return _matrix_exp_op(_cat([top, bottom], -2))[..., :n, n:]


derive("inverse", _inverse_back)
derive("det", _det_back)
derive("slogdet", _slogdet_back)


def _solve_triangular_left(g: Any, out: Any, a: Any, _b: Any, upper: bool) -> Any:
    whole = -(_substitute(adjoint(a), g, not upper) @ adjoint(out))
    return _triu(whole, 0) if upper else _tril(whole, 0)


derive(
    "solve_triangular",
    _solve_triangular_left,
    lambda g, _out, a, _b, upper: _substitute(adjoint(a), g, not upper),
)
derive("solve", _solve_left, lambda g, _out, a, _b: _solve_op(adjoint(a), g))
derive("pinv", _pinv_back)
derive("matrix_exp", _matrix_exp_back)

# -- factors ---------------------------------------------------------------------------------------


def _cholesky_back(g: Any, out: Any, _x: Any, upper: bool = False) -> Any:
    if upper:
        g, out = adjoint(g), adjoint(out)
    inverse = _inverse(out)
    # The diagonal keeps its imaginary part, as in torch.
    inner = adjoint(out) @ g
    whole = _tril(inner, 0) + adjoint(_tril(inner, -1))
    return adjoint(inverse) @ whole @ inverse * 0.5


def _qr_back(g: Any, out: Any, x: Any, mode: str) -> Any:
    g_q, g_r = g
    q, r = out
    m, n = x.shape[-2:]
    if mode == "r" and g_r is not None:
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please "
            "use linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr"
        )
    if mode == "complete" and m > n:
        raise RuntimeError(
            "The QR decomposition is not differentiable when mode='complete' and nrows > ncols."
        )
    if m >= n:
        return _qr_tall(g_q, g_r, q, r)
    # The columns beyond the square part are Q^H times theirs.
    rest = x[..., m:]
    g_rest = None if g_r is None else g_r[..., m:]
    if g_rest is not None:
        through = rest @ adjoint(g_rest)
        g_q = through if g_q is None else g_q + through
    square = _qr_tall(g_q, None if g_r is None else g_r[..., :m], q, r[..., :m])
    last = rest * 0 if g_rest is None else q @ g_rest
    return _cat([square, last], -1)


def _qr_tall(g_q: Any, g_r: Any, q: Any, r: Any) -> Any:
    inner = 0
    if g_r is not None:
        inner = r @ adjoint(g_r)
    if g_q is not None:
        inner = inner - adjoint(g_q) @ q
    lower = _tril(inner, -1)
    diagonal = _diagonal(inner, 0, -2, -1)
    whole = lower + adjoint(lower) + _diag(diagonal.real if is_complex(diagonal) else diagonal)
    top = q @ whole if g_q is None else g_q + q @ whole
    return adjoint(_substitute(r, adjoint(top), True))


def _check_phases(name: str, *turns: Any) -> None:
    """Vectors come up to a factor of absolute value 1: what depends on it has no derivative. The
    parts of the gradient along these factors are the given numbers, which must add up to 0.
    """
    arrays = [np.asarray(t.detach() if isinstance(t, TensorBase) else t) for t in turns]
    first, second = arrays[0], -arrays[1] if len(arrays) > 1 else np.zeros_like(arrays[0])
    if not np.allclose(first, second, rtol=1e-2, atol=1e-2):
        raise RuntimeError(
            f"{name}_backward: The vectors in the complex case are specified up to multiplication "
            "by e^{i phi}. The specified loss function depends on this quantity, so it is "
            "ill-defined."
        )


def _svd_back(g: Any, out: Any, _x: Any, full: bool) -> Any:
    g_u, g_s, g_vh = g
    u, s, vh = out
    k = s.shape[-1]
    m, n = u.shape[-2], vh.shape[-1]
    if full:  # the vectors beyond the k-th belong to no singular value
        u, vh = u[..., :, :k], vh[..., :k, :]
        g_u = None if g_u is None else g_u[..., :, :k]
        g_vh = None if g_vh is None else g_vh[..., :k, :]
    if g_u is None and g_vh is None:
        return (u * g_s[..., None, :]) @ vh
    row, column = s[..., None, :], s[..., :, None]
    # On the diagonal the skew parts vanish, but for the phases of complex vectors.
    gaps = (row - column) * (row + column) + eye(k, s)
    core: Any = 0
    in_u = in_v = None
    if is_complex(u):
        parts = [] if g_u is None else [adjoint(u) @ g_u]
        parts += [] if g_vh is None else [vh @ adjoint(g_vh)]
        _check_phases("svd", *(_diagonal(part, 0, -2, -1).imag for part in parts))
    if g_u is not None:
        in_u = adjoint(u) @ g_u
        skew = in_u - adjoint(in_u)
        core = skew / gaps * row
        if is_complex(u):
            turn = _diagonal(skew, 0, -2, -1)
            core = core + _diag(turn / (s * 2) - turn * s)
    if g_vh is not None:
        in_v = vh @ adjoint(g_vh)
        core = core + column * ((in_v - adjoint(in_v)) / gaps)
        if is_complex(u):
            turn = _diagonal(in_v - adjoint(in_v), 0, -2, -1)
            core = core - _diag(turn * s)
    if g_s is not None:
        core = core + _diag(g_s)
    result = u @ core @ vh
    if g_u is not None and m > k:
        result = result + ((g_u - u @ in_u) / row) @ vh
    if g_vh is not None and n > k:
        result = result + u @ ((g_vh - adjoint(in_v) @ vh) / column)
    return result


def _svdvals_back(g: Any, _out: Any, x: Any) -> Any:
    u, _, vh = _svd_op(x, False)
    return (u * g[..., None, :]) @ vh


def _eigh_back(g: Any, out: Any, _x: Any, uplo: str) -> Any:
    g_values, g_vectors = g
    values, vectors = out
    if g_vectors is None:
        return (vectors * g_values[..., None, :]) @ adjoint(vectors)
    gaps = values[..., None, :] - values[..., :, None] + eye(values.shape[-1], values)
    core = adjoint(vectors) @ g_vectors / gaps
    if is_complex(core):
        _check_phases("linalg_eigh", _diagonal(core, 0, -2, -1).imag)
    core = core - _diag(_diagonal(core, 0, -2, -1))
    if g_values is not None:
        core = core + _diag(g_values)
    whole = vectors @ core @ adjoint(vectors)
    return (whole + adjoint(whole)) * 0.5


derive("cholesky", _cholesky_back)
derive("qr", _qr_back)
derive("svd", _svd_back)
derive("svdvals", _svdvals_back)
derive("eigh", _eigh_back)
