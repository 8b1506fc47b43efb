# SPDX-License-Identifier: BSD-3-Clause
"""Derivatives of the special functions and of running sums of exponentials."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from modtree.derivatives.both import backwards, conj, is_real, row, select, where, zeros
from modtree.ops.table import derive, not_differentiable

_digamma, _polygamma = row("digamma"), row("polygamma")
_logcumsumexp = row("logcumsumexp")

derive("lgamma", lambda g, _out, x: g * _digamma(x))
derive("digamma", lambda g, _out, x: g * _polygamma(x, 1))
derive("polygamma", lambda g, _out, x, n: g * _polygamma(x, n + 1))


def _sinc(g: Any, _out: Any, x: Any) -> Any:
    angle = x * math.pi
    flat = angle * angle == 0
    angle = where(flat, 1, angle)
    slope = (np.cos(angle) * angle - np.sin(angle)) / (angle * angle) * math.pi
    return select(~flat, g * slope)


def _logit(g: Any, _out: Any, x: Any, eps: float | None) -> Any:
    """Limited values get no gradient; outside (0, 1) there is none to have."""
    if eps is None:
        inside, outside = (x >= 0) & (x <= 1), math.nan
    else:
        inside, outside = (x >= eps) & (x <= 1 - eps), 0
    # + 0.0 makes zeros of one sign: the slope is infinite upwards at both ends.
    return where(inside, g / (x * (1 - x) + 0.0), outside)


def _xlogy(g: Any, _out: Any, x: Any, y: Any) -> Any:
    settled = (x == 0) & (y <= 0)
    return g * where(settled, 0, np.log(where(settled, 1, y)))


derive("sinc", _sinc)
derive("logit", _logit)
derive("xlogy", _xlogy, lambda g, _out, x, y: g * (x / y))
derive(
    "logaddexp2",
    lambda g, _out, a, b: g / (1 + np.exp2(b - a)),
    lambda g, _out, a, b: g / (1 + np.exp2(a - b)),
)


def _heaviside(*_args: Any) -> Any:
    raise NotImplementedError(
        "heaviside() has no derivative: call it on tensor.detach(), or under modtree.no_grad()"
    )


derive("heaviside", _heaviside, _heaviside)


def _angle(g: Any, _out: Any, x: Any) -> Any:
    if is_real(x):
        return zeros(g)
    square = (x * conj(x)).real
    return where(square == 0, 0, g * (x * 1j) / where(square == 0, 1, square))


derive("angle", _angle)


def _logcumsumexp_gradient(g: Any, out: Any, x: Any, axis: int) -> Any:
    """The sum over j >= i of g[j] * exp(x[i] - out[j]), in logarithms, for g above and below 0 apart."""
    if x.ndim == 0:
        return g

    def part(sign: int) -> Any:
        wanted = g * sign > 0
        logs = where(wanted, np.log(where(wanted, g * sign, 1)) - out, -math.inf)
        return np.exp(backwards(_logcumsumexp(backwards(logs, axis), axis), axis) + x)

    return part(1) - part(-1)


derive("logcumsumexp", _logcumsumexp_gradient)
not_differentiable("cummax_places", "cummin_places")
not_differentiable("bincount", "histc", "searchsorted", "isin", "gcd", "lcm")
not_differentiable("mode_places", "nanmedian_places")


def _unique_consecutive(*_args: Any) -> Any:
    raise NotImplementedError(
        "unique_consecutive() has no derivative: call it on tensor.detach(), or under modtree.no_grad()"
    )


derive("unique_consecutive", _unique_consecutive)
