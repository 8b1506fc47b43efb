# SPDX-License-Identifier: BSD-3-Clause
"""Random numbers with a derivative in their parameters: what the sample would have been, had the
same chance met slightly different parameters (Figurnov and others, 2018).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from modtree._ops.generic import like_first
from modtree._ops.incomplete_gamma import gamma_slope
from modtree._ops.registry import define, derive, ops

__all__ = ["beta_slope"]

_digamma = ops["digamma"].forward
_EPS = 2.0**-53
_TINY = 1e-300
_TERMS = 20000


def _standard_gamma(alpha: Any, bits: np.random.Generator) -> Any:
    """Numbers of scale 1; none is 0, whose logarithm nobody could use."""
    drawn = bits.standard_gamma(np.asarray(alpha, np.float64)).astype(alpha.dtype)
    return np.maximum(drawn, np.finfo(alpha.dtype).tiny)


def _dirichlet(alpha: Any, bits: np.random.Generator) -> Any:
    """Gamma-distributed numbers that are divided by their sum: as logarithms, since those of small
    concentrations are smaller than any floating number.
    """
    wide = np.asarray(alpha, np.float64)
    logs = np.log(bits.standard_gamma(wide + 1))
    with np.errstate(divide="ignore"):
        logs -= bits.standard_exponential(wide.shape) / wide
    shares = np.exp(logs - logs.max(-1, keepdims=True))
    shares /= shares.sum(-1, keepdims=True)
    info = np.finfo(alpha.dtype)
    return np.clip(shares.astype(alpha.dtype), info.tiny, 1 - info.epsneg)


define("standard_gamma", _standard_gamma, meta=like_first)
define("sample_dirichlet", _dirichlet, meta=like_first)


# -- derivatives -----------------------------------------------------------------------------------


class _Fraction:
    """The continued fraction of the incomplete beta function (Lentz's method) and its derivative in
    a parameter.
    """

    def __init__(self, a: Any) -> None:
        self.c, self.dc = np.ones_like(a), np.zeros_like(a)
        self.d, self.dd = np.ones_like(a), np.zeros_like(a)
        self.h, self.dh = np.ones_like(a), np.zeros_like(a)

    def step(self, factor: Any, slope: Any) -> Any:
        """Takes a numerator and its derivative; returns where nothing changed."""
        lower = 1 + factor * self.d
        lower = np.where(np.abs(lower) < _TINY, _TINY, lower)
        self.dd = -(slope * self.d + factor * self.dd) / (lower * lower)
        self.d = 1 / lower
        c = 1 + factor / self.c
        self.dc = (slope - factor * self.dc / self.c) / self.c
        self.c = np.where(np.abs(c) < _TINY, _TINY, c)
        ratio = self.c * self.d
        dratio = self.dc * self.d + self.c * self.dd
        self.dh = self.dh * ratio + self.h * dratio
        self.h = self.h * ratio
        settled = np.abs(ratio - 1) <= 4 * _EPS
        return settled & (np.abs(self.h * dratio) <= 4 * _EPS * np.abs(self.dh))


def _fraction(x: Any, a: Any, b: Any, in_first: bool) -> tuple[Any, Any]:
    """The probability below x divided by x (1 - x) / a times the density, and its derivative in a
    or in b.
    """
    fraction = _Fraction(a)
    # The first convergent, 1 / (1 + start).
    start = -(a + b) * x / (a + 1)
    slope = start * (1 / (a + b) - (1 / (a + 1) if in_first else 0))
    fraction.h = fraction.d = 1 / (1 + start)
    fraction.dh = fraction.dd = -slope * fraction.d * fraction.d
    for m in range(1, _TERMS):
        below = (a - 1 + 2 * m) * (a + 2 * m)
        even = m * (b - m) * x / below
        if in_first:
            slope = -even * (1 / (a - 1 + 2 * m) + 1 / (a + 2 * m))
        else:
            slope = m * x / below
        settled = fraction.step(even, slope)
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 1 + 2 * m))
        slope = odd / (a + b + m)
        if in_first:
            slope = slope + odd * (1 / (a + m) - 1 / (a + 2 * m) - 1 / (a + 1 + 2 * m))
        if (fraction.step(odd, slope) & settled).all():
            break
    return fraction.h, fraction.dh


def _beta_below(x: Any, a: Any, b: Any) -> Any:
    h, dh = _fraction(x, a, b, True)
    return -x / a * (h * (np.log(x) - _digamma(a + 1) + _digamma(a + b)) + dh)


def _beta_above(x: Any, a: Any, b: Any) -> Any:
    h, dh = _fraction(1 - x, b, a, False)
    return x / b * (h * (np.log(x) - _digamma(a) + _digamma(a + b)) + dh)


def beta_slope(x: Any, a: Any, b: Any) -> Any:
    """How a beta-distributed x moves with its first concentration while its probability stays,
    divided by 1 - x.
    """
    x, a, b = (np.asarray(v, np.float64) for v in np.broadcast_arrays(x, a, b))
    result = np.full(x.shape, np.nan)
    inside = (x > 0) & (x < 1) & (a > 0) & (b > 0)
    low = inside & (x < (a + 1) / (a + b + 2))
    with np.errstate(all="ignore"):
        for part, function in ((low, _beta_below), (inside & ~low, _beta_above)):
            if part.any():
                result[part] = function(x[part], a[part], b[part])
    return result


def _gamma_vjp(g: Any, out: Any, alpha: Any, _bits: Any) -> Any:
    return g * gamma_slope(alpha, out).astype(out.dtype)


def _dirichlet_vjp(g: Any, out: Any, alpha: Any, _bits: Any) -> Any:
    """Each share moves as a beta-distributed number does; the others make room in proportion."""
    wide = np.asarray(alpha, np.float64)
    slope = beta_slope(out, wide, wide.sum(-1, keepdims=True) - wide).astype(out.dtype)
    return slope * (g - (g * out).sum(-1, keepdims=True))


derive("standard_gamma", _gamma_vjp, double_backward=False)
derive("sample_dirichlet", _dirichlet_vjp, double_backward=False)
