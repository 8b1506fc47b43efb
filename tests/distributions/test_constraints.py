# SPDX-License-Identifier: BSD-3-Clause
"""Constraints: which values they allow, their names and kinds."""

from __future__ import annotations

import numpy as np
import pytest

import modtree

NAN, INF = float("nan"), float("inf")
NUMBERS = [-2.0, -1.0, -0.0, 0.0, 0.3, 1.0, 1.5, 2.0, 5.0, NAN, INF, -INF]
ROWS = [[0.2, 0.8, 0.0], [0.0, 1.0, 0.0], [0.5, 0.6, 0.1], [2.0, 1.0, 0.0], [-0.5, 0.5, 1.0]]
MATRICES = [
    [[1.0, 0.0], [0.0, 1.0]],
    [[2.0, 0.5], [0.5, 1.0]],
    [[2.0, 0.0], [0.5, 1.0]],
    [[1.0, 0.0], [0.6, 0.8]],
    [[-1.0, 0.0], [0.6, 0.8]],
    [[1.0, 2.0], [2.0, 1.0]],
    [[1.0, 1.0], [1.0, 1.0]],
]

CONSTRAINTS = {
    "boolean": (lambda c, lib: c.boolean, NUMBERS),
    "real": (lambda c, lib: c.real, NUMBERS),
    "positive": (lambda c, lib: c.positive, NUMBERS),
    "nonnegative": (lambda c, lib: c.nonnegative, NUMBERS),
    "nonnegative_integer": (lambda c, lib: c.nonnegative_integer, NUMBERS[:-2]),
    "positive_integer": (lambda c, lib: c.positive_integer, NUMBERS[:-2]),
    "integer_interval": (lambda c, lib: c.integer_interval(0, 2), NUMBERS[:-2]),
    "unit_interval": (lambda c, lib: c.unit_interval, NUMBERS),
    "interval": (lambda c, lib: c.interval(-1, lib.tensor(1.5)), NUMBERS),
    "half_open_interval": (lambda c, lib: c.half_open_interval(-1, 1), NUMBERS),
    "greater_than": (lambda c, lib: c.greater_than(1), NUMBERS),
    "greater_than_eq": (lambda c, lib: c.greater_than_eq(1), NUMBERS),
    "less_than": (lambda c, lib: c.less_than(1), NUMBERS),
    "real_vector": (lambda c, lib: c.real_vector, [*ROWS, [1.0, NAN, 0.0]]),
    "independent": (lambda c, lib: c.independent(c.positive, 2), [ROWS, ROWS]),
    "independent-0": (lambda c, lib: c.independent(c.simplex, 0), ROWS),
    "one_hot": (lambda c, lib: c.one_hot, ROWS),
    "simplex": (lambda c, lib: c.simplex, ROWS),
    "multinomial": (lambda c, lib: c.multinomial(2), ROWS),
    "mixture": (lambda c, lib: c.MixtureSameFamilyConstraint(c.simplex), ROWS),
    "lower_triangular": (lambda c, lib: c.lower_triangular, MATRICES),
    "lower_cholesky": (lambda c, lib: c.lower_cholesky, MATRICES),
    "corr_cholesky": (lambda c, lib: c.corr_cholesky, MATRICES),
    "square": (lambda c, lib: c.square, MATRICES),
    "square-not": (lambda c, lib: c.square, ROWS),
    "symmetric": (lambda c, lib: c.symmetric, MATRICES),
    "symmetric-all": (lambda c, lib: c.symmetric, MATRICES[:2]),
    "positive_definite": (lambda c, lib: c.positive_definite, [MATRICES[i] for i in (0, 1, 5)]),
    "positive_semidefinite": (
        lambda c, lib: c.positive_semidefinite,
        [MATRICES[i] for i in (0, 1, 5)],
    ),
    "cat": (lambda c, lib: c.cat([c.positive, c.real], -1, [1, 2]), ROWS),
    "stack": (lambda c, lib: c.stack([c.positive, c.real, c.boolean], -1), ROWS),
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


def test_dependent(lib):
    c = lib.distributions.constraints
    assert c.is_dependent(c.dependent) and not c.is_dependent(c.real)
    for name in ("is_discrete", "event_dim"):
        with pytest.raises(NotImplementedError):
            getattr(c.dependent, name)
    known = c.dependent(is_discrete=True, event_dim=1)
    assert known.is_discrete and known.event_dim == 1
    with pytest.raises(ValueError, match="Cannot determine validity of dependent constraint"):
        c.dependent.check(lib.ones(1))


def test_dependent_property(lib):
    c = lib.distributions.constraints

    class Mine(lib.distributions.Distribution):
        @c.dependent_property(is_discrete=False, event_dim=0)
        def support(self):
            return c.interval(0, 3)

        @c.dependent_property
        def other(self):
            return c.real

    assert c.is_dependent(Mine.support) and Mine.support.event_dim == 0
    assert Mine.support.is_discrete is False
    assert Mine(validate_args=False).support.upper_bound == 3
    assert Mine(validate_args=False).other is c.real
    with pytest.raises(NotImplementedError):
        Mine.other.event_dim  # noqa: B018


def test_errors(lib):
    c = lib.distributions.constraints
    with pytest.raises(ValueError, match="Expected value.dim"):
        c.real_vector.check(lib.tensor(1.0))
    with pytest.raises(NotImplementedError):
        c.Constraint().check(lib.ones(1))
    with pytest.raises(AssertionError):
        c.independent(3, 1)
    with pytest.raises(AssertionError):
        c.cat([3])
