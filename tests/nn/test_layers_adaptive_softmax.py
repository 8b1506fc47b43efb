# SPDX-License-Identifier: BSD-3-Clause
"""AdaptiveLogSoftmaxWithLoss against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.layers_common import (
    check_arguments,
    check_copies,
    check_description,
    check_run,
    check_where,
    load,
    make,
    same,
)
from helpers.support import raises

import modtree as mt

torch = pytest.importorskip("torch")

ARGUMENTS = [
    ((8, 20, [5, 9]), {}),
    ((8, 20, [5, 9, 15]), {"div_value": 1.5, "head_bias": True}),
    ((16, 12, (3,)), {}),
    ((6, 6, [1, 2, 3, 4, 5]), {"div_value": 1.0}),
    ((3, 10, [4, 6]), {}),  # the second projection is empty
]


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS, ids=str)
@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
def test_layer(args, kwargs):
    ours, theirs = make("AdaptiveLogSoftmaxWithLoss", args, kwargs)
    check_arguments("AdaptiveLogSoftmaxWithLoss")
    check_description(ours, theirs)
    check_copies(ours)
    check_where("AdaptiveLogSoftmaxWithLoss", args, kwargs)
    rng = np.random.default_rng(0)
    features, classes = args[:2]
    x = rng.standard_normal((40, features))
    everywhere = rng.permutation(np.arange(40) % classes)
    targets = [everywhere, np.full(40, classes - 1), np.zeros(40, np.int64), everywhere % 2]
    for target in targets:
        for dtype in ("float64", "float32"):
            check_run(ours, theirs, [x, target], dtype=dtype)
    check_run(ours, theirs, [x[:1], np.array([classes - 1])])
    for target in (0, classes - 1):
        check_run(ours, theirs, [x[0], np.array(target)])


@pytest.mark.parametrize(("args", "kwargs"), ARGUMENTS[:4], ids=str)
def test_all_probabilities_and_the_likeliest(args, kwargs):
    ours, theirs = make("AdaptiveLogSoftmaxWithLoss", args, kwargs)
    ours, theirs = ours.double(), theirs.double()
    with torch.no_grad():
        for value in theirs.parameters():
            value.normal_(0, 1)
    load(ours, theirs)
    x = np.random.default_rng(3).standard_normal((30, args[0]))
    mine, other = (lib.from_numpy(x) for lib in (mt, torch))
    same(ours.log_prob(mine), theirs.log_prob(other), 1e-9)
    np.testing.assert_allclose(ours.log_prob(mine).exp().sum(1).tolist(), np.ones(30))
    assert ours.predict(mine).tolist() == theirs.predict(other).tolist()
    assert ours.predict(mine).tolist() == ours.log_prob(mine).argmax(1).tolist()
    for rows in (slice(0, 1), slice(0, 0)):
        assert ours.predict(mine[rows]).tolist() == theirs.predict(other[rows]).tolist()


def test_it_learns():
    """Gradients reach the head and every cluster, also under a second derivative."""
    mt.manual_seed(0)
    layer = mt.nn.AdaptiveLogSoftmaxWithLoss(4, 9, [3, 6], div_value=2.0, dtype=mt.float64)
    x = mt.randn(12, 4, dtype=mt.float64, requires_grad=True)
    output, loss = layer(x, mt.arange(12) % 9)
    assert output.shape == (12,) and loss.shape == ()
    assert mt.allclose(loss, -output.mean())
    (gradient,) = mt.autograd.grad(loss, x, create_graph=True)
    gradient.square().sum().backward()
    assert all(float(p.grad.abs().sum()) > 0 for p in layer.parameters())
    target = mt.arange(12) % 9
    assert mt.autograd.gradgradcheck(lambda t: layer(t, target).loss, x)
    before = layer.head.weight.tolist()
    layer.reset_parameters()
    assert layer.head.weight.tolist() != before


@pytest.mark.parametrize("cutoffs", [[5, 3], [0, 3], [3, 3], [3, 10], [2.5], [-1, 2]], ids=str)
def test_wrong_cutoffs(lib, cutoffs):
    with raises(ValueError, "cutoffs should be a sequence of unique, positive"):
        lib.nn.AdaptiveLogSoftmaxWithLoss(4, 10, cutoffs)


def test_errors(lib):
    with raises(ValueError, "cutoffs should be a sequence of length larger than 0"):
        lib.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [])
    layer = lib.nn.AdaptiveLogSoftmaxWithLoss(4, 10, [5])
    x, target = lib.zeros(3, 4), lib.tensor([0, 1, 2])
    for wrong in (10, -1):
        with raises(RuntimeError, "Target values should be in [0, 9], but values in range ["):
            layer(x, lib.tensor([0, 1, wrong]))
    with raises(RuntimeError, "should have the same size in the batch dimension"):
        layer(x[:2], target)
    with raises(RuntimeError, "1D target tensor expects 2D input tensors"):
        layer(lib.zeros(3), target)
    with raises(RuntimeError, "0D target tensor expects 1D input tensors"):
        layer(x, target[0])
    with raises(RuntimeError, "0D or 1D target tensor expected, multi-target not supported"):
        layer(x, target.reshape(3, 1))
