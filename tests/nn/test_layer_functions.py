# SPDX-License-Identifier: BSD-3-Clause
"""The functions of layers at the package's top take torch's arguments and give its values."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")


def arrays(*shapes):
    rng = np.random.default_rng(0)
    return [rng.standard_normal(shape) for shape in shapes]


CASES = {
    "adaptive_avg_pool1d": ([(2, 3, 8)], (4,)),
    "avg_pool1d": ([(2, 3, 8)], (2, 2, 1)),
    "bilinear": ([(4, 2), (4, 3), (5, 2, 3), (5,)], ()),
    "celu": ([(3,)], (0.5,)),
    "channel_shuffle": ([(1, 4, 2, 2)], (2,)),
    "conv1d": ([(2, 4, 9), (6, 2, 3), (6,)], (2, 1, 1, 2)),
    "conv2d": ([(2, 4, 7, 7), (6, 2, 3, 3), (6,)], (2, 1, 1, 2)),
    "conv_transpose2d": ([(2, 4, 5, 5), (4, 3, 3, 3), (3,)], (2, 1, 1)),
    "cosine_similarity": ([(3, 4), (3, 4)], (0,)),
    "dropout": ([(3, 4)], (0.5, False)),
    "hardshrink": ([(9,)], (0.4,)),
    "max_pool1d": ([(2, 3, 8)], (2, 2)),
    "max_pool2d": ([(2, 3, 8, 8)], (3, 2, 1)),
    "pairwise_distance": ([(3, 4), (3, 4)], (1.0,)),
    "pixel_shuffle": ([(1, 4, 2, 2)], (2,)),
    "pixel_unshuffle": ([(1, 1, 4, 4)], (2,)),
    "prelu": ([(2, 3), (3,)], ()),
    "rms_norm": ([(2, 3)], ((3,),)),
    "selu": ([(5,)], ()),
    "threshold": ([(5,)], (0.1, 2.0)),
}


@pytest.mark.parametrize("name", CASES)
def test_same_arguments(name):
    shapes, rest = CASES[name]
    results = []
    for lib in (mt, torch):
        inputs = [lib.from_numpy(a).requires_grad_() for a in arrays(*shapes)]
        out = getattr(lib, name)(*inputs, *rest)
        (out * out).sum().backward()
        results.append([t.detach().numpy() for t in (out, *(x.grad for x in inputs))])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["batch_norm", "instance_norm"])
@pytest.mark.parametrize("training", [True, False])
def test_normalization_with_weight_first(name, training):
    results = []
    for lib in (mt, torch):
        x, weight, bias = (lib.from_numpy(a) for a in arrays((4, 3, 5), (3,), (3,)))
        mean, var = lib.zeros(3).double(), lib.ones(3).double() * 2
        out = getattr(lib, name)(x, weight, bias, mean, var, training, 0.2, 1e-3, False)
        results.append([t.numpy() for t in (out, mean, var)])
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


def test_other_normalizations():
    for call in (
        lambda lib, x, w, b: lib.layer_norm(x, (4,), w, b, 1e-3, False),
        lambda lib, x, w, b: lib.group_norm(x.t(), 2, w, b, 1e-3, False),
    ):
        ours, theirs = (
            call(lib, *(lib.from_numpy(a) for a in arrays((4, 4), (4,), (4,)))).numpy()
            for lib in (mt, torch)
        )
        np.testing.assert_allclose(ours, theirs, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("padding", [-1, 2])
def test_embedding_with_the_table_first(padding):
    results = []
    for lib in (mt, torch):
        (table,) = (lib.from_numpy(a).requires_grad_() for a in arrays((5, 3)))
        out = lib.embedding(table, lib.tensor([[0, 2], [2, 4]]), padding)
        out.sum().backward()
        results.append((out.tolist(), table.grad.tolist()))
    assert results[0] == results[1]


def test_others_at_the_top_are_the_functional_ones():
    module = importlib.import_module("modtree.nn.functional.at_top")
    for name in module.__all__:
        assert getattr(mt, name) is not getattr(mt.nn.functional, name)
        assert hasattr(torch, name)
    assert mt.conv2d is mt.nn.functional.conv2d and mt.celu_ is mt.nn.functional.celu_
