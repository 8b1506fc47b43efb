# SPDX-License-Identifier: BSD-3-Clause
"""geqrf and householder_product: orthogonal matrices as products of reflections."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from modtree.numpy.ops.decompositions import _check
from modtree.numpy.ops.linalg_functions import return_type
from modtree.numpy.ops.registry import define, derive, export, ops

if TYPE_CHECKING:
    from modtree.numpy.argument_types import Tensor

_geqrf_result = return_type("geqrf", "a", "tau")


def _geqrf(x: Any) -> Any:
    _check("geqrf", x, square=False)
    turned, tau = np.linalg.qr(x, "raw")
    return turned.swapaxes(-1, -2), tau


def _geqrf_meta(x: Any) -> Any:
    return [(x.shape, x.dtype), ((*x.shape[:-2], min(x.shape[-2:])), x.dtype)]


def _geqrf_back(_g: Any, _out: Any, _x: Any) -> Any:
    raise NotImplementedError(
        "the derivative for 'geqrf' is not implemented; linalg.qr has one for Q and R"
    )


define("geqrf", _geqrf, meta=_geqrf_meta)
derive("geqrf", _geqrf_back)


def geqrf(input: Tensor) -> Tensor:
    """The QR decomposition as LAPACK keeps it: R in the upper triangle of ``a``, below it the
    reflections, whose factors are ``tau``; :func:`householder_product` makes Q of both.

    Shape:
        - input: (..., M, N).
        - output: ``a`` (..., M, N) and ``tau`` (..., min(M, N)).
    """
    return _geqrf_result(*ops["geqrf"](input))


def householder_product(A: Any, tau: Any) -> Any:  # noqa: N803
    """The first columns of the product of the reflections I - tau_i v_i v_i^H, as many as A has: in
    their compact form I - V T V^H (Schreiber and Van Loan, 1989).

    Args:
        A: Holds v_i in its column i below the diagonal; 1 on it and 0 above are understood.
        tau: The factors, at most as many as A has columns.

    Shape:
        - A: (..., M, N), M at least N.
        - tau: (..., K), K at most N.
        - output: (..., M, N).
    """
    _check_product(A, tau)
    m, n, k = A.shape[-2], A.shape[-1], tau.shape[-1]
    unit = A.new_tensor(np.eye(m, n))
    # The product is I - V T V^H, where T is the inverse of diag(1 / tau) plus what is above the
    # diagonal of V^H V. Multiplied by tau, it holds for factors of 0 too.
    v = A[..., :k].tril(-1) + unit[:, :k]
    factors = tau.unsqueeze(-1)
    inner = factors * (v.mH @ v).triu(1) + A.new_tensor(np.eye(k))
    return unit - v @ ops["solve"](inner, factors * v[..., :n, :].mH)


def _check_product(a: Any, tau: Any) -> None:
    name = "linalg.householder_product"
    if a.ndim < 2:
        raise RuntimeError(f"{name}: input must have at least 2 dimensions, got {a.ndim}")
    if a.shape[-2] < a.shape[-1] or a.shape[-1] < tau.shape[-1]:
        raise RuntimeError(
            f"{name}: input.shape[-2] must be greater than or equal to input.shape[-1], and that "
            f"to tau.shape[-1], got shapes {list(a.shape)} and {list(tau.shape)}"
        )
    if tuple(tau.shape[:-1]) != tuple(a.shape[:-2]):
        raise RuntimeError(
            f"{name}: tau must have the batch dimensions of input, got shapes {list(a.shape)} and "
            f"{list(tau.shape)}"
        )
    if tau.dtype != a.dtype:
        raise RuntimeError(f"{name}: tau dtype {tau.dtype} does not match input dtype {a.dtype}")


export("geqrf", geqrf)
