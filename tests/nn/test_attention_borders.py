# SPDX-License-Identifier: BSD-3-Clause
"""Attention of batches that broadcast, of nothing, with NaN, and with an impossible dropout."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.same import differentiated, same

import modtree as mt
import modtree.nn.functional as F

torch = pytest.importorskip("torch")


def attention(lib, *tensors, **options):
    return lib.nn.functional.scaled_dot_product_attention(*tensors, **options)


@pytest.mark.parametrize("batch", [5, 1])
def test_several_values_for_the_same_weights(batch):
    rng = np.random.default_rng(0)
    same(differentiated(attention, *map(rng.standard_normal, [(3, 2), (4, 2), (batch, 4, 6)])))


def test_no_values_have_a_gradient():
    """The result has the batch of the values; torch's has the shape of the query."""
    q, k = mt.ones(3, 2, requires_grad=True), mt.ones(4, 2, requires_grad=True)
    y = F.scaled_dot_product_attention(q, k, mt.ones(0, 4, 5))
    assert y.shape == (0, 3, 5)
    y.sum().backward()
    assert not q.grad.any()
    assert not k.grad.any()


@pytest.mark.parametrize("dropout", [-0.5, 1.5, math.nan])
@pytest.mark.parametrize("grouped", [False, True])
@pytest.mark.parametrize("shape", [(0, 2, 4, 2), (0, 4, 2), (1, 2, 4, 2), (2, 4, 2)])
def test_an_impossible_dropout(dropout, grouped, shape):
    def program(lib):
        x = lib.ones(shape)
        return attention(lib, x, x, x, dropout_p=dropout, enable_gqa=grouped)

    same(program)


def test_masks_of_nothing_are_not_looked_at():
    def program(lib):
        x = lib.ones(0, 4, 2)
        mask = lib.ones(4, 4, dtype=lib.bool)
        return attention(lib, x, x, x, mask, is_causal=True)

    same(program)


def test_nan_stays_where_it_is_seen():
    x, odd = mt.ones(1, 1, 3, 2), mt.tensor([[[[1.0, 2.0], [math.nan, 1.0], [0.5, 1.0]]]])
    for shape in ((1, 1, 3, 2), (1, 3, 2), (3, 2)):
        one, nan = x.reshape(shape), odd.reshape(shape)
        of_key = F.scaled_dot_product_attention(one, nan, one, is_causal=True)
        assert of_key.isnan().any(-1).flatten().tolist() == [False, True, True]
        of_query = F.scaled_dot_product_attention(nan, one, one, is_causal=True)
        assert of_query.isnan().any(-1).flatten().tolist() == [False, True, False]


def test_a_negative_scale_sees_no_later_keys():
    x = mt.tensor([[[[1.0, 2.0], [3.0, -1.0]]]])
    result = F.scaled_dot_product_attention(x, x, x, is_causal=True, scale=-1.0)
    assert result[0, 0, 0].tolist() == [1.0, 2.0]
    assert not result.isnan().any()
