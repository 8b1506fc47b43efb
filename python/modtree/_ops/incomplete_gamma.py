# SPDX-License-Identifier: BSD-3-Clause
"""The incomplete gamma functions, and how their values move with their parameters.

Everything here is computed in float64, from sums and continued fractions that are derived in a
parameter term by term (DLMF 8.7 and 8.9). They end when no element changes any more.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from modtree import _C
from modtree._ops.generic import any_of, operation, pick
from modtree._ops.registry import define, derive, export, ops
from modtree._ops.special import written_after

if TYPE_CHECKING:
    from modtree._argument_types import Operand, Tensor

__all__ = ["gamma_slope"]

_digamma, _erfc = ops["digamma"].forward, ops["erfc"].forward
_EPS = 2.0**-53
_TINY = 1e-300
# Terms of a sum; with parameter a some ten times the root of a are needed.
_TERMS = 20000
# From here on the slope comes from an expansion around the normal distribution, and from the other
# one on the value.
_LARGE = 1e4
_LARGER = 1e6


def _series(a: Any, x: Any) -> tuple[Any, Any]:
    """The sum of x**n / ((a + 1) ... (a + n)) over n, and its derivative in a."""
    term, total = np.ones_like(a), np.ones_like(a)
    log_slope, slope = np.zeros_like(a), np.zeros_like(a)
    for n in range(1, _TERMS):
        term = term * (x / (a + n))
        log_slope -= 1 / (a + n)
        total += term
        slope += term * log_slope
        if (np.abs(term * log_slope) <= _EPS * np.abs(slope)).all() and (a + n > x).all():
            break
    return total, slope


def _fraction(a: Any, x: Any) -> tuple[Any, Any]:
    """The upper part of the distribution divided by x times its density, as a continued fraction
    (Lentz's method), and its derivative in a.
    """
    b = x + 1 - a
    c, dc = np.full_like(a, 1 / _TINY), np.zeros_like(a)
    d = 1 / b
    dd = d * d
    h, dh = d, dd
    for n in range(1, _TERMS):
        factor, b = -n * (n - a), b + 2
        lower = factor * d + b
        dd = -(n * d + factor * dd - 1) / (lower * lower)
        d = 1 / np.where(np.abs(lower) < _TINY, _TINY, lower)
        dc = -1 + (n - factor * dc / c) / c
        c = b + factor / c
        c = np.where(np.abs(c) < _TINY, _TINY, c)
        step, dstep = c * d, dc * d + c * dd
        dh = dh * step + h * dstep
        h = h * step
        if (np.abs(step - 1) <= 4 * _EPS).all() and (
            np.abs(h * dstep) <= 4 * _EPS * np.abs(dh)
        ).all():
            break
    return h, dh


def _log_density(a: Any, x: Any) -> Any:
    return (a - 1) * np.log(x) - x - _C._lgamma(a)


def _by_part(a: Any, x: Any, below: Any, above: Any) -> Any:
    """below(a, x) where the sum is the good way, above(a, x) where the fraction is."""
    a, x = (np.asarray(v, np.float64) for v in np.broadcast_arrays(a, x))
    result = np.full(a.shape, np.nan)
    inside = (a > 0) & (x > 0) & np.isfinite(x) & np.isfinite(a)
    low = inside & (x < a + 1)
    for part, function in ((low, below), (inside & ~low, above)):
        if part.any():
            result[part] = function(a[part], x[part])
    return result


def _lower(a: Any, x: Any) -> Any:
    return np.exp(_log_density(a, x)) * x / a * _series(a, x)[0]


def _upper(a: Any, x: Any) -> Any:
    return np.exp(_log_density(a, x)) * x * _fraction(a, x)[0]


def _distance(m: Any) -> Any:
    """m - log(1 + m)."""
    near = np.where(np.abs(m) < 0.01, m, 0)
    series = sum((-near) ** k / k for k in range(2, 10))
    return np.where(near == m, series, m - np.log1p(m))


def _of_large(a: Any, x: Any, upper: bool) -> Any:
    """By Temme's expansion around the normal distribution (DLMF 8.12), of which two terms are exact
    enough; both in powers of the distance, as they only matter where it is small.
    """
    m = (x - a) / a
    distance = np.sign(m) * np.minimum(np.sqrt(2 * _distance(m)), 1)
    sign = 1 if upper else -1
    first = -1 / 3 + distance * (1 / 12 - distance * (2 / 135 - distance / 864))
    second = -1 / 540 - distance / 288
    rest = np.exp(-a * distance * distance / 2) / np.sqrt(2 * np.pi * a) * (first + second / a)
    return _erfc(np.asarray(sign * distance * np.sqrt(a / 2))) / 2 + sign * rest


def _incomplete(a: Any, x: Any, upper: bool) -> Any:
    """Either function, with its values at the borders: of the distribution at 0, and of a
    distribution whose concentration is 0.
    """
    kind = np.result_type(a, x)
    with np.errstate(all="ignore"):
        if upper:
            result = _by_part(a, x, lambda a, x: 1 - _lower(a, x), _upper)
        else:
            result = _by_part(a, x, _lower, lambda a, x: 1 - _upper(a, x))
        if (large := a > _LARGER).any():
            values = _of_large(np.asarray(a, np.float64), np.asarray(x, np.float64), upper)
            result = np.where(large & (x > 0), values, result)
        # NaN beside a limit that settles the value has no part in it.
        all_below = ((a == 0) & (x > 0)) | (np.isposinf(x) & ~(a < 0) & ~np.isinf(a))
        none_below = ((x == 0) & ~(a <= 0)) | (np.isposinf(a) & ~(x < 0) & ~np.isinf(x))
        result = np.where(all_below, float(not upper), result)
        return np.where(none_below, float(upper), result).astype(kind)


def _slope_below(a: Any, x: Any) -> Any:
    total, slope = _series(a, x)
    return -x / a * (total * (np.log(x) - _digamma(a + 1)) + slope)


def _slope_above(a: Any, x: Any) -> Any:
    h, dh = _fraction(a, x)
    return x * (h * (np.log(x) - _digamma(a)) + dh)


def _slope_of_large(a: Any, x: Any) -> Any:
    """By the expansion of Cornish and Fisher: x is a polynomial in a normal number z whose
    coefficients are powers of the root of a.
    """
    root = np.sqrt(a)
    # The start is Wilson's and Hilferty's: the third root is nearly normal.
    z = 3 * root * (np.cbrt(x / a) - 1 + 1 / (9 * a))
    for _ in range(3):
        z2 = z * z
        value = a + root * z + (z2 - 1) / 3 + z * (z2 - 7) / (36 * root)
        value -= (3 * z2 * z2 + 7 * z2 - 16) / (810 * a)
        slope = root + 2 * z / 3 + (3 * z2 - 7) / (36 * root)
        z = z - (value - x) / slope
    z2 = z * z
    return (
        1
        + z / (2 * root)
        - z * (z2 - 7) / (72 * a * root)
        + (3 * z2 * z2 + 7 * z2 - 16) / (810 * a * a)
    )


def gamma_slope(a: Any, x: Any) -> Any:
    """How a gamma-distributed x moves with its concentration a while its probability stays."""
    with np.errstate(all="ignore"):
        a, x = (np.asarray(v, np.float64) for v in np.broadcast_arrays(a, x))
        large = a > _LARGE
        result = _by_part(np.where(large, 1, a), x, _slope_below, _slope_above)
        if large.any():
            result = np.where(large, _slope_of_large(a, x), result)
    return result


define("igamma", lambda a, x: _incomplete(a, x, False), promote="floating", operands=2)
define("igammac", lambda a, x: _incomplete(a, x, True), promote="floating", operands=2)
define(
    "gamma_slope", lambda a, x: gamma_slope(a, x).astype(x.dtype), promote="floating", operands=2
)


def igamma(input: Tensor, other: Operand) -> Tensor:
    """The lower incomplete gamma function, regularized: the probability that a gamma-distributed
    number of concentration ``input`` is below ``other``.
    """
    return ops["igamma"](input, other)


def igammac(input: Tensor, other: Operand) -> Tensor:
    """The upper incomplete gamma function, regularized: 1 - igamma(input, other)."""
    return ops["igammac"](input, other)


for _function in (igamma, igammac):
    export(_function.__name__, _function)
    _name = _function.__name__ + "_"
    export(_name, written_after(_name, _function), function=False)


# -- derivatives -----------------------------------------------------------------------------------

_lgamma, _slope = operation("lgamma"), operation("gamma_slope")


def _density(a: Any, x: Any) -> Any:
    large = (a > _LARGER) & (a < math.inf)
    if not any_of(large):
        return np.exp((a - 1) * np.log(x) - x - _lgamma(a))
    # Of large numbers the difference keeps no digit: by Stirling's formula.
    m = pick(large, (x - a) / a, 0)
    far = np.sqrt(pick(large, a, 1) / (2 * math.pi)) / x * np.exp(-a * (m - np.log1p(m)))
    a = pick(large, 1, a)
    return pick(large, far, np.exp((a - 1) * np.log(x) - x - _lgamma(a)))


derive(
    "igamma",
    lambda g, _out, a, x: -g * _density(a, x) * _slope(a, x),
    lambda g, _out, a, x: g * _density(a, x),
)
derive(
    "igammac",
    lambda g, _out, a, x: g * _density(a, x) * _slope(a, x),
    lambda g, _out, a, x: -g * _density(a, x),
)


def _no_second_derivative(*_args: Any) -> Any:
    raise NotImplementedError(
        "a second derivative of igamma() or igammac() in their first argument is not available"
    )


derive("gamma_slope", _no_second_derivative, _no_second_derivative)
