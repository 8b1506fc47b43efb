# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of inverses and factors of matrices.

M^H is the conjugate transpose. The factors of eigh(), svd() and qr() are differentiated as if their free phases stood still; where
eigenvalues or singular values coincide the gradient of vectors is not finite.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._C import TensorBase
from modtree.derivatives.both import adjoint, conj, eye, is_complex, row, row_of_many
from modtree.ops.decompositions import is_vector
from modtree.ops.table import derive

_inverse, _solve, _svd = row("inverse"), row("solve"), row("svd")
_tril, _diagonal, _diagonal_backward = row("tril"), row("diagonal"), row("diagonal_backward")
_matrix_exp, _cat = row("matrix_exp"), row_of_many("cat")


def _diag(values: Any) -> Any:
    """Matrices with these diagonals."""
    shape = (*values.shape, values.shape[-1])
    return _diagonal_backward(values, shape, 0, -2, -1)


# -- inverses ----------------------------------------------------------------------------------------------------------


def _inverse_back(g: Any, out: Any, _x: Any) -> Any:
    turned = adjoint(out)
    return -(turned @ g @ turned)


def _det_back(g: Any, out: Any, x: Any) -> Any:
    scaled = g * conj(out)
    if isinstance(x, TensorBase) or np.all(out):
        return scaled[..., None, None] * adjoint(_inverse(x))
    # The cofactors exist for singular matrices too: products of all singular values but one.
    u, s, vh = np.linalg.svd(x)
    k = s.shape[-1]
    others = np.where(np.eye(k, dtype=bool), s.dtype.type(1), s[..., None, :]).prod(-1)
    phase = np.linalg.det(u) * np.linalg.det(vh)
    return (g * conj(phase))[..., None, None] * ((u * others[..., None, :]) @ vh)


def _slogdet_back(g: Any, out: Any, x: Any) -> Any:
    g_sign, g_log = g
    if is_complex(x) and g_sign is not None:
        turn = (conj(g_sign) * out[0]).imag * 1j
        weight = -turn if g_log is None else g_log - turn
    elif g_log is None:
        weight = (x * 0)[..., 0, 0] if x.shape[-1] else (x * 0).sum(axis=(-2, -1))
    else:
        weight = g_log
    return weight[..., None, None] * adjoint(_inverse(x))


def _solve_left(g: Any, out: Any, a: Any, b_like: Any) -> Any:
    back = _solve(adjoint(a), g)
    if is_vector(a, b_like):
        return -(back[..., :, None] * conj(out)[..., None, :])
    return -(back @ adjoint(out))


def _pinv_back(g: Any, out: Any, x: Any, atol: Any, rtol: Any, hermitian: bool) -> Any:
    p, ph, gh = out, adjoint(out), adjoint(g)
    along = gh @ p @ ph
    across = ph @ p @ gh
    return along - x @ (p @ along) + across - (across @ p) @ x - ph @ g @ ph


def _matrix_exp_back(g: Any, _out: Any, x: Any) -> Any:
    # The exponential of [[A, E], [0, A]] holds the derivative of exp(A) in the direction E in its corner.
    turned = adjoint(x)
    n = turned.shape[-1]
    top = _cat([turned, g], -1)
    bottom = _cat([turned * 0, turned], -1)
    return _matrix_exp(_cat([top, bottom], -2))[..., :n, n:]


derive("inverse", _inverse_back)
derive("det", _det_back)
derive("slogdet", _slogdet_back)
derive("solve", _solve_left, lambda g, _out, a, _b: _solve(adjoint(a), g))
derive("pinv", _pinv_back)
derive("matrix_exp", _matrix_exp_back)

# -- factors -----------------------------------------------------------------------------------------------------------


def _cholesky_back(g: Any, out: Any, _x: Any) -> Any:
    inverse = _inverse(out)
    lower = _tril(adjoint(out) @ g, 0)
    half = lower - _diag(_diagonal(lower, 0, -2, -1)) * 0.5
    whole = adjoint(inverse) @ half @ inverse
    return (whole + adjoint(whole)) * 0.5


def _qr_back(g: Any, out: Any, x: Any, mode: str) -> Any:
    g_q, g_r = g
    q, r = out
    m, n = x.shape[-2:]
    if mode == "r" and g_r is not None:
        raise RuntimeError(
            "The derivative of linalg.qr depends on Q, which is not computed when mode='r'. Please use "
            "linalg.qr(A, mode='reduced') if you are going to differentiate through linalg.qr"
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
    return adjoint(_solve(r, adjoint(top)))


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
    u, _, vh = _svd(x, False)
    return (u * g[..., None, :]) @ vh


def _eigh_back(g: Any, out: Any, _x: Any, uplo: str) -> Any:
    g_values, g_vectors = g
    values, vectors = out
    if g_vectors is None:
        return (vectors * g_values[..., None, :]) @ adjoint(vectors)
    gaps = values[..., None, :] - values[..., :, None] + eye(values.shape[-1], values)
    core = adjoint(vectors) @ g_vectors / gaps
    core = core - _diag(_diagonal(core, 0, -2, -1))
    if g_values is not None:
        core = core + _diag(g_values)
    return vectors @ core @ adjoint(vectors)


def _eig_back(g: Any, out: Any, x_like: Any) -> Any:
    g_values, g_vectors = g
    values, vectors = out
    turned = adjoint(vectors)
    if g_vectors is None:
        core = _diag(g_values)
    else:
        inner = turned @ g_vectors
        length = _diagonal(inner, 0, -2, -1).real
        inner = inner - turned @ (vectors * length[..., None, :])
        gaps = values[..., None, :] - values[..., :, None]
        core = inner / (conj(gaps) + eye(values.shape[-1], values))
        core = core - _diag(_diagonal(core, 0, -2, -1))
        if g_values is not None:
            core = core + _diag(g_values)
    result = _solve(turned, core @ turned)
    return result if is_complex(x_like) else result.real


derive("cholesky", _cholesky_back)
derive("qr", _qr_back)
derive("svd", _svd_back)
derive("svdvals", _svdvals_back)
derive("eigh", _eigh_back)
derive("eig", _eig_back)
