# SPDX-License-Identifier: BSD-3-Clause
"""Where random functions on jax arrays get their keys from."""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt
import modtree.nn.functional as F
from modtree import nn
from modtree.families import functions_of

jax = pytest.importorskip("jax")
jit = pytest.importorskip("modtree.jax").jit

from modtree.jax_arrays.functions import hold_key, keys  # noqa: E402

ONES = jax.numpy.ones((4, 50))


def same(a, b):
    return bool((a == b).all())


def test_dropout_scales_what_it_keeps():
    with keys(0):
        y = np.asarray(F.dropout(ONES, 0.2))
    assert set(np.unique(y)) == {0.0, np.float32(1.25)} and 0.6 < (y > 0).mean() < 0.95
    assert same(F.dropout(ONES, 0.5, training=False), ONES)


def test_channels_are_dropped_whole():
    with keys(0):
        y = F.dropout2d(jax.numpy.ones((3, 20, 2, 2)))
    assert same(y, y[:, :, :1, :1] * jax.numpy.ones((2, 2)))


def test_an_explicit_key_decides():
    dropout = functions_of(ONES).dropout
    key = jax.random.key(1)
    assert same(dropout(ONES, key=key), dropout(ONES, key=key))


def test_a_block_of_keys_gives_each_draw_another_one():
    with keys(3):
        first, second = F.dropout(ONES), F.dropout(ONES)
    with keys(jax.random.PRNGKey(3)):
        again = F.dropout(ONES)
    assert same(first, again) and not same(first, second)


def test_modtrees_generator_seeds_what_is_not_traced():
    mt.manual_seed(0)
    first, second = F.dropout(ONES), F.dropout(ONES)
    mt.manual_seed(0)
    assert same(first, F.dropout(ONES)) and not same(first, second)


def test_a_traced_function_without_a_key_is_an_error_with_the_path():
    net = nn.Sequential(nn.Identity(), nn.Dropout(0.5))
    with pytest.raises(RuntimeError, match=r"1: dropout\(\): a traced function needs a key"):
        jit(lambda m, x: m(x))(net, ONES)


def test_a_held_key_moves_on_in_jitted_calls_and_is_saved():
    net = hold_key(nn.Sequential(nn.Dropout(0.5), nn.Dropout(0.5)), 5)
    call = jit(lambda m, x: m(x))
    saved = net.state_dict()
    first, second = call(net, ONES), call(net, ONES)
    assert not same(first, second)
    net.load_state_dict(saved)
    assert same(call(net, ONES), first)
    net.load_state_dict(saved)
    assert same(net(ONES), first)
