# SPDX-License-Identifier: BSD-3-Clause
"""Distributions for tests: how each is made, of which parameters, and values it can have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Case:
    """One distribution: ``make(lib.distributions, *parameters)``."""

    name: str
    make: Callable[..., Any]
    parameters: tuple[Any, ...]
    values: Any

    def tensors(self, lib: Any, requires_grad: bool = False) -> list[Any]:
        return [
            lib.tensor(np.array(p, np.float64)).requires_grad_(requires_grad)
            for p in self.parameters
        ]

    def build(self, lib: Any, requires_grad: bool = False) -> tuple[Any, list[Any]]:
        tensors = self.tensors(lib, requires_grad)
        return self.make(lib.distributions, *tensors), tensors


def plain(name: str) -> Callable[..., Any]:
    return lambda d, *parameters: getattr(d, name)(*parameters)


def _logits(name: str) -> Callable[..., Any]:
    return lambda d, logits: getattr(d, name)(logits=logits)


_LOC, _SCALE = [0.3, -1.0, 2.0], [0.5, 1.5, 1.0]
_REAL = [[0.1, -2.0, 3.0], [1.0, 0.5, 2.5]]
_UNIT = [[0.2, 0.5, 0.9], [0.01, 0.75, 0.33]]
_PROBS = [0.2, 0.5, 0.9]
_ROWS = [[0.2, 0.3, 0.5], [0.6, 0.1, 0.3]]
_LOGITS = [[0.2, -1.3, 0.5], [1.6, 0.1, -2.0]]

CASES = [
    Case("Normal", plain("Normal"), (_LOC, _SCALE), _REAL),
    Case("Normal-broadcast", plain("Normal"), ([[0.0], [1.0]], _SCALE), _REAL),
    Case("Uniform", plain("Uniform"), ([0.0, -1.0, 0.1], [1.0, 2.0, 0.95]), _UNIT[0]),
    Case("Bernoulli", plain("Bernoulli"), (_PROBS,), [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    Case("Bernoulli-logits", _logits("Bernoulli"), (_LOC,), [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]]),
    Case("Categorical", plain("Categorical"), (_ROWS,), [[0.0, 2.0], [1.0, 1.0]]),
    Case("Categorical-logits", _logits("Categorical"), (_LOGITS,), [[0.0, 2.0], [1.0, 1.0]]),
    Case(
        "Independent",
        lambda d, loc, scale: d.Independent(d.Normal(loc, scale), 1),
        (_REAL, _SCALE),
        _REAL,
    ),
    Case(
        "Independent-0",
        lambda d, probs: d.Independent(d.Bernoulli(probs), 0),
        (_PROBS,),
        [[0.0, 1.0, 1.0], [1.0, 0.0, 0.0]],
    ),
    Case(
        "TransformedDistribution",
        lambda d, loc, scale: d.TransformedDistribution(
            d.Normal(loc, scale),
            [d.AffineTransform(1.0, -2.0), d.TanhTransform(), d.AffineTransform(-1.0, 3.0)],
        ),
        (_LOC, _SCALE),
        [[0.1, -0.9, 1.5], [1.9, 0.0, -0.3]],
    ),
    Case(
        "TransformedDistribution-vectors",
        lambda d, loc, scale, shift: d.TransformedDistribution(
            d.Independent(d.Normal(loc, scale), 1),
            [d.AffineTransform(shift, 2.0), d.TanhTransform()],
        ),
        (_LOC, _SCALE, [[0.1], [0.4]]),
        [[0.1, -0.9, 0.5], [0.9, 0.0, -0.3]],
    ),
    Case(
        "TransformedDistribution-inverse",
        lambda d, low, high: d.TransformedDistribution(
            d.Uniform(low, high), [d.TanhTransform().inv, d.AffineTransform(0.5, 2.0).inv]
        ),
        ([-0.5, 0.0, -0.9], [0.4, 0.95, 0.9]),
        [-0.3, 0.2, 0.35],
    ),
]
