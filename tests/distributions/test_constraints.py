# SPDX-License-Identifier: BSD-3-Clause
"""Constraints: which values they allow, their names and kinds."""

from __future__ import annotations

import numpy as np
import pytest

import modtree

NAN, INF = float("nan"), float("inf")
NUMBERS = [-2.0, -1.0, -0.0, 0.0, 0.3, 1.0, 1.5, 2.0, 5.0, NAN, INF, -INF]
ROWS = [[0.2, 0.8, 0.0], [0.0, 1.0, 0.0], [0.5, 0.6, 0.1], [2.0, 1.0, 0.0], [-0.5, 0.5, 1.0]]

CONSTRAINTS = {
    "boolean": (lambda c, lib: c.boolean, NUMBERS),
    "real": (lambda c, lib: c.real, NUMBERS),
    "positive": (lambda c, lib: c.positive, NUMBERS),
    "integer_interval": (lambda c, lib: c.integer_interval(0, 2), NUMBERS[:-2]),
    "unit_interval": (lambda c, lib: c.unit_interval, NUMBERS),
    "interval": (lambda c, lib: c.interval(-1, lib.tensor(1.5)), NUMBERS),
    "greater_than": (lambda c, lib: c.greater_than(1), NUMBERS),
    "less_than": (lambda c, lib: c.less_than(1), NUMBERS),
    "real_vector": (lambda c, lib: c.real_vector, [*ROWS, [1.0, NAN, 0.0]]),
    "independent": (lambda c, lib: c.independent(c.positive, 2), [ROWS, ROWS]),
    "independent-0": (lambda c, lib: c.independent(c.simplex, 0), ROWS),
    "simplex": (lambda c, lib: c.simplex, ROWS),
}


@pytest.mark.parametrize("name", CONSTRAINTS)
def test_check(name, torch):
    make, values = CONSTRAINTS[name]
    facts = []
    for lib in (modtree, torch):
        constraint = make(lib.distributions.constraints, lib)
        allowed = constraint.check(lib.tensor(values, dtype=lib.float64))
        facts.append(
            (
                np.asarray(allowed).tolist(),
                repr(constraint),
                constraint.event_dim,
                constraint.is_discrete,
            )
        )
    assert facts[0] == facts[1]


def test_errors(lib):
    c = lib.distributions.constraints
    with pytest.raises(ValueError, match="Expected value.dim"):
        c.real_vector.check(lib.tensor(1.0))
    with pytest.raises(NotImplementedError):
        c.Constraint().check(lib.ones(1))
