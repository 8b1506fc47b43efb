# SPDX-License-Identifier: BSD-3-Clause
"""SyncBatchNorm and smaller functions, against torch's."""

from __future__ import annotations

import inspect

import pytest
from helpers.layer_checks import Layer, suite
from helpers.support import raises

import modtree as mt

torch = pytest.importorskip("torch")

LAYERS = [
    Layer("SyncBatchNorm", (4, 3), (3,)),
    Layer("SyncBatchNorm", (4, 3, 5), (3, 1e-3, None), on_meta=False),
    Layer("SyncBatchNorm", (2, 3, 4, 5), (3,), {"affine": False}),
    Layer("SyncBatchNorm", (2, 3, 2, 2, 2), (3,), {"track_running_stats": False}),
    Layer("SyncBatchNorm", (4, 3), (3,), {"bias": False, "momentum": 0.3}),
]
_, _, test_checkpoint, test_outputs, test_gradients, test_meta = suite(LAYERS)


def test_the_batch_norm_of_several_processes_takes_any_rank_from_two(lib):
    with raises(ValueError, "expected at least 2D input (got 1D input)"):
        lib.nn.SyncBatchNorm(3)(lib.zeros(3))


def test_the_batch_norm_of_several_processes_has_the_arguments_of_the_others():
    mine, other = (inspect.signature(c) for c in (mt.nn.SyncBatchNorm, mt.nn.BatchNorm2d))
    assert mine == other and not hasattr(mt.nn.SyncBatchNorm, "convert_sync_batchnorm")


@pytest.mark.parametrize("shape", [(4, 0), (0,), (2, 3, 0), (0, 0)])
def test_linear_of_no_features(shape):
    results = []
    for lib in (mt, torch):
        x = lib.zeros(shape, requires_grad=True)
        weight = lib.zeros((2, 0), requires_grad=True)
        bias = lib.ones(2, requires_grad=True)
        y = lib.nn.functional.linear(x, weight, bias)
        y.sum().backward()
        grads = [tuple(t.grad.shape) for t in (x, weight)]
        results.append((y.tolist(), grads, bias.grad.tolist()))
    assert results[0] == results[1]
