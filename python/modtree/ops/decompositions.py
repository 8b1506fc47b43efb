# SPDX-License-Identifier: BSD-3-Clause
"""Inverses and factors of matrices: the rows. What users call is in :mod:`modtree.linalg`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from modtree.ops.table import define


class LinAlgError(RuntimeError):
    """A matrix for which the operation has no result."""


def _check(name: str, x: Any, square: bool = True) -> None:
    if x.ndim < 2:
        raise RuntimeError(
            f"linalg.{name}: The input tensor A must have at least 2 dimensions, got shape {list(x.shape)}"
        )
    if square and x.shape[-1] != x.shape[-2]:
        raise RuntimeError(
            f"linalg.{name}: A must be batches of square matrices, but they are {x.shape[-2]} by {x.shape[-1]} matrices"
        )
    if x.dtype.kind not in "fc":
        raise RuntimeError(
            f"linalg.{name}: Expected a floating point or complex tensor as input. Got {x.dtype}; convert with .float()"
        )
    if x.dtype == np.float16:
        raise RuntimeError(f"linalg.{name}: Low precision dtypes not supported. Got Half")


def _matrix_row(name: str, function: Callable[..., Any], square: bool = True) -> Callable[..., Any]:
    """The function of NumPy with torch's checks and its kind of error."""

    def forward(x: Any, *args: Any) -> Any:
        _check(name, x, square)
        try:
            return function(x, *args)
        except np.linalg.LinAlgError as error:
            raise LinAlgError(f"linalg.{name}: {error} (A has shape {list(x.shape)})") from None

    return forward


_REAL = {np.dtype(np.complex64): np.dtype(np.float32), np.dtype(np.complex128): np.dtype(float)}


def _real(dtype: Any) -> Any:
    return _REAL.get(dtype, dtype)


def _same(x: Any, *args: Any) -> Any:
    return x.shape, x.dtype


def _slogdet(x: Any) -> Any:
    return tuple(np.linalg.slogdet(x))


def _eigh(x: Any, uplo: str) -> Any:
    return tuple(np.linalg.eigh(x, uplo))


def _eig(x: Any) -> Any:
    kind = np.result_type(x.dtype, np.complex64)
    return tuple(part.astype(kind) for part in np.linalg.eig(x))


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
        ((*lead, k), _real(x.dtype)),
        ((*lead, n if full else k, n), x.dtype),
    ]


def _svdvals(x: Any) -> Any:
    return np.linalg.svd(x, compute_uv=False)


def _pinv(x: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    u, s, vh = np.linalg.svd(x, full_matrices=False, hermitian=hermitian)
    if rtol is None:
        rtol = 0.0 if atol else max(x.shape[-2:]) * np.finfo(s.dtype).eps
    limit = np.maximum(atol or 0.0, rtol * s[..., :1])
    inverse = np.where(
        s > limit, np.reciprocal(np.where(s > limit, s, s.dtype.type(1))), s.dtype.type(0)
    )
    return (vh.conj().swapaxes(-1, -2) * inverse[..., None, :]) @ u.conj().swapaxes(-1, -2)


def is_vector(a: Any, b: Any) -> bool:
    """Are the right-hand sides vectors: one, or one for each matrix?"""
    return len(b.shape) == 1 or (
        len(b.shape) == len(a.shape) - 1 and tuple(b.shape) == tuple(a.shape[:-1])
    )


def _solve(a: Any, b: Any) -> Any:
    _check("solve", a)
    vector = is_vector(a, b)
    rows = b.shape[-1] if vector else b.shape[-2]
    if rows != a.shape[-1]:
        raise RuntimeError(
            f"linalg.solve: Incompatible shapes of A and B for the equation AX = B ({list(a.shape)} and "
            f"{list(b.shape)})"
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


# The coefficients of the [13/13] Pade approximant of exp; for a 1-norm up to the limit it is exact to double precision.
_PADE = (
    64764752532480000.0, 32382376266240000.0, 7771770303897600.0, 1187353796428800.0, 129060195264000.0, 10559470521600.0,
    670442572800.0, 33522128640.0, 1323241920.0, 40840800.0, 960960.0, 16380.0, 182.0, 1.0,
)  # fmt: skip
_PADE_LIMIT = 5.37


def _matrix_exp(x: Any) -> Any:
    if x.size == 0:
        return x.copy()
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


define("inverse", _matrix_row("inv", np.linalg.inv), meta=_same)
define("det", _matrix_row("det", np.linalg.det), meta=lambda x: (x.shape[:-2], x.dtype))
define(
    "slogdet",
    _matrix_row("slogdet", _slogdet),
    meta=lambda x: [(x.shape[:-2], x.dtype), (x.shape[:-2], _real(x.dtype))],
)
define("cholesky", _matrix_row("cholesky", np.linalg.cholesky), meta=_same)
define("solve", _solve, promote="same", operands=2, meta=_solve_meta)
define("qr", _matrix_row("qr", _qr, False), meta=_qr_meta)
define("svd", _matrix_row("svd", _svd, False), meta=_svd_meta)
define(
    "svdvals",
    _matrix_row("svdvals", _svdvals, False),
    meta=lambda x: ((*x.shape[:-2], min(x.shape[-2:])), _real(x.dtype)),
)
define(
    "eigh",
    _matrix_row("eigh", _eigh),
    meta=lambda x, uplo: [(x.shape[:-1], _real(x.dtype)), (x.shape, x.dtype)],
)
define("eig", _matrix_row("eig", _eig))
define(
    "pinv",
    _matrix_row("pinv", _pinv, False),
    meta=lambda x, *_: ((*x.shape[:-2], x.shape[-1], x.shape[-2]), x.dtype),
)
define("matrix_exp", _matrix_row("matrix_exp", _matrix_exp), meta=_same)
