# SPDX-License-Identifier: BSD-3-Clause
"""Special functions that NumPy does not have."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree.ops.table import define, expose, inplace_of, ops

# Bernoulli numbers B(2), B(4), ...: coefficients of the series for large arguments.
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510)
# From here on eight terms of the series are exact to double precision.
_LARGE = 12.0


def _digamma(x: Any) -> Any:
    """The derivative of lgamma: by recurrence up to where its series holds, by reflection below 0."""
    work = np.asarray(x, np.float64)
    negative = work < 0.5
    z = np.where(negative, 1 - work, work)
    result = np.zeros_like(z)
    for _ in range(int(_LARGE)):
        small = z < _LARGE
        result -= np.where(small, 1 / z, 0)
        z = np.where(small, z + 1, z)
    inverse = 1 / (z * z)
    series = np.zeros_like(z)
    for k in range(len(_BERNOULLI), 0, -1):
        series = (series + _BERNOULLI[k - 1] / (2 * k)) * inverse
    result += np.log(z) - 0.5 / z - series
    # The fraction alone, as pi * x would lose the digits behind the point.
    part = work - np.round(work)
    reflected = result - math.pi / np.tan(math.pi * part)
    result = np.where(negative, np.where(part == 0, np.nan, reflected), result)
    result = np.where(work == 0, np.copysign(np.inf, -work), result)
    return result.astype(x.dtype)


def _polygamma(x: Any, n: int) -> Any:
    """The n-th derivative of digamma, from the sum of 1 / (x + k) ** (n + 1); NaN below -1000, where the sum is long."""
    if n < 0:
        raise RuntimeError(f"polygamma(n, x) does not support negative n (got {n})")
    if n == 0:
        return _digamma(x)
    z = np.asarray(x, np.float64)
    z = np.where(z < -1000, np.nan, z)
    s = n + 1.0
    result = np.zeros_like(z)
    while (small := z < _LARGE + n).any():
        result += np.where(small, z**-s, 0)
        z = np.where(small, z + 1, z)
    # The rest of the sum by Euler and Maclaurin.
    power = z**-s
    result += z * power / n + power / 2
    factor = s / 2
    for k, number in enumerate(_BERNOULLI, 1):
        power = power / z if k == 1 else power / (z * z)
        result += number * factor * power
        factor *= (s + 2 * k - 1) * (s + 2 * k) / ((2 * k + 1) * (2 * k + 2))
    return (math.factorial(n) * (-1.0) ** (n + 1) * result).astype(x.dtype)


define("digamma", _digamma, promote="floating", operands=1)
define("polygamma", _polygamma, promote="floating", operands=1)
define("sgn", np.sign, promote="arith", operands=1)


def polygamma(n: int, input: Any) -> Any:
    """The n-th derivative of digamma()."""
    return ops["polygamma"](input, n)


for _name in ("digamma", "sgn"):
    expose(_name, ops[_name])
    expose(_name + "_", inplace_of(ops[_name]))
expose("polygamma", polygamma, method=False)
expose("polygamma", lambda self, n: ops["polygamma"](self, n), function=False)
