# SPDX-License-Identifier: BSD-3-Clause
"""Statistics of nothing, of one element, and with more degrees of freedom taken than there are."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.same import differentiated, same

import modtree as mt

pytest.importorskip("torch")


@pytest.mark.parametrize("name", ["var", "std"])
@pytest.mark.parametrize("correction", [2, 3, 5])
@pytest.mark.parametrize("dim", [None, 1, (0, 1)])
def test_gradients_without_a_degree_of_freedom(name, correction, dim):
    x = np.array([[1, 2], [3, 5.5]], np.float32)
    same(differentiated(lambda lib, x: getattr(lib, name)(x, dim, correction=correction), x))


@pytest.mark.parametrize("name", ["var", "std"])
def test_gradients_of_complex_numbers_without_a_degree_of_freedom(name):
    x = np.array([1 + 1j, 2, -3j])
    same(differentiated(lambda lib, x: getattr(lib, name)(x, correction=3), x))


@pytest.mark.parametrize("name", ["var", "std", "var_mean", "std_mean"])
@pytest.mark.parametrize("shape", [(0,), (0, 3)])
def test_moments_of_no_complex_numbers(name, shape):
    same(differentiated(lambda lib, x: getattr(lib, name)(x, 0), np.zeros(shape, "complex64")))


def test_logsumexp_over_an_empty_list():
    x = mt.tensor([[1.0, 2], [3, 4]])
    assert mt.equal(mt.logsumexp(x, []), mt.logsumexp(x, (0, 1)))


@pytest.mark.parametrize(
    "line",
    [
        "m.cdist(x.long(), x.long())",
        "m.cdist(x, x.float())",
        "m.cdist(x[0], x, compute_mode='other')",
        "m.nn.functional.cosine_similarity(x, x, eps=-1)",
        "m.nn.functional.cosine_similarity(x, x, 5, eps=-1)",
        "m.nn.functional.cosine_similarity(x[:, 0], x[0, 0].float(), 0).element_size()",
        "m.nn.functional.pairwise_distance(x.long(), x.long(), eps=0)",
        "m.nn.functional.pairwise_distance(x, x, eps=2**70)",
    ],
)
def test_arguments_and_what_is_refused(line):
    x = np.array([[0.5, -1.5, 2], [0, 1, 1]])
    same(lambda lib: eval(line, {"m": lib, "x": lib.from_numpy(x)}))
