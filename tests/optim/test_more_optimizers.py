# SPDX-License-Identifier: BSD-3-Clause
"""Muon, SparseAdam, and what is particular to Rprop, ASGD and Adafactor."""

from __future__ import annotations

import importlib
import inspect
import itertools
import math

import numpy as np
import pytest
from helpers.implementations import needs_torch

import modtree as mt

SHAPES = [(3, 5), (5, 3), (4, 4), (1, 6)]


def parameters(lib, shapes=SHAPES, dtype="float64", seed=0):
    rng = np.random.default_rng(seed)
    return [lib.nn.Parameter(lib.tensor(rng.standard_normal(s).astype(dtype))) for s in shapes]


def step(lib, optimizer, params, steps, dtype="float64"):
    rng = np.random.default_rng(1)
    for _ in range(steps):
        for p in params:
            p.grad = lib.tensor(rng.standard_normal(tuple(p.shape)).astype(dtype))
        optimizer.step()


def array(t):
    return t.detach().numpy()


# -- Muon ------------------------------------------------------------------------------------------

MUON = [
    dict(zip(("nesterov", "adjust_lr_fn", "weight_decay"), values, strict=True))
    for values in itertools.product(
        [True, False], [None, "original", "match_rms_adamw"], [0.1, 0.0]
    )
] + [{"momentum": 0.5, "ns_steps": 3, "ns_coefficients": (2.0, -1.5, 0.5), "eps": 1e-3}]


@needs_torch
@pytest.mark.parametrize("options", MUON, ids=str)
def test_muon_is_torchs_to_the_precision_of_bfloat16(options):
    import torch

    results = []
    for lib in (mt, torch):
        params = parameters(lib)
        before = [array(p).copy() for p in params]
        optimizer = lib.optim.Muon(params, lr=0.01, **options)
        step(lib, optimizer, params, 4)
        state = optimizer.state_dict()
        assert [list(s) for s in state["state"].values()] == [["momentum_buffer"]] * 4
        buffers = [s["momentum_buffer"].numpy() for s in state["state"].values()]
        changes = [array(p) - b for p, b in zip(params, before, strict=True)]
        results.append((changes, buffers, state["param_groups"]))
    for ours, theirs in zip(results[0][0], results[1][0], strict=True):
        assert np.linalg.norm(ours - theirs) < 0.03 * np.linalg.norm(theirs)
    for ours, theirs in zip(results[0][1], results[1][1], strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    assert results[0][2] == results[1][2]


def test_muon_iterates_in_the_precision_of_the_parameter():
    """With the coefficients of an iteration that converges, updates are orthogonal."""
    p = parameters(mt, [(4, 6)])[0]
    before = array(p).copy()
    optimizer = mt.optim.Muon(
        [p],
        lr=1.0,
        weight_decay=0.0,
        momentum=0.0,
        ns_coefficients=(1.875, -1.25, 0.375),
        ns_steps=60,
    )
    step(mt, optimizer, [p], 1)
    update = before - array(p)
    np.testing.assert_allclose(update @ update.T, np.eye(4), atol=1e-12)
    gradient = array(p.grad)
    u, _, vh = np.linalg.svd(gradient, full_matrices=False)
    np.testing.assert_allclose(update, u @ vh, atol=1e-12)
    p = parameters(mt, [(4, 6)], "float16")[0]
    step(mt, mt.optim.Muon([p], lr=0.1), [p], 2, "float16")
    assert p.dtype == mt.float16 and np.isfinite(array(p)).all()


def test_errors_of_muon(lib):
    muon = lib.optim.Muon
    for options, message in (
        ({"lr": -1}, "Learning rate should be >= 0 but is: -1"),
        ({"momentum": -1}, "momentum should be >= 0 but is: -1"),
        ({"weight_decay": -1}, "weight decay should be >= 0 but is: -1"),
        ({"adjust_lr_fn": "other"}, "Adjust learning rate function other is not supported"),
    ):
        with pytest.raises(ValueError, match=message):
            muon(parameters(lib), **options)
    with pytest.raises(ValueError, match="Muon only supports 2D parameters"):
        muon(parameters(lib, [(3,)]))
    for options, message in (
        ({"ns_steps": 100}, "Number of steps must be less than 100"),
        ({"ns_coefficients": (1.0, 2.0)}, "exactly 3 values"),
    ):
        params = parameters(lib)
        with pytest.raises(ValueError, match=message):
            step(lib, muon(params, **options), params, 1)
    p = lib.nn.Parameter(lib.ones(2, 2, dtype=lib.complex64))
    p.grad = lib.ones_like(p)
    with pytest.raises(RuntimeError, match="Muon does not support complex parameters"):
        muon([p]).step()


@needs_torch
def test_signature_and_defaults_of_muon():
    import torch

    mine, theirs = (lib.optim.Muon(parameters(lib)) for lib in (mt, torch))
    assert list(mine.defaults.items()) == list(theirs.defaults.items())
    signatures = [
        [(p.name, p.default) for p in inspect.signature(lib.optim.Muon).parameters.values()]
        for lib in (mt, torch)
    ]
    assert signatures[0] == signatures[1]


def test_muon_stays_at_its_best(lib):
    """It goes down, and its state goes on after loading."""
    target = lib.tensor(np.random.default_rng(0).standard_normal((6, 4)))
    p = lib.nn.Parameter(lib.zeros(6, 4, dtype=lib.float64))
    optimizer = lib.optim.Muon([p], lr=0.05, weight_decay=0.0)
    first = None
    for i in range(60):
        loss = (p - target).pow(2).sum()
        first = first or loss.item()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if i == 30:
            state = optimizer.state_dict()
            optimizer = lib.optim.Muon([p], lr=1.0)
            optimizer.load_state_dict(state)
    assert loss.item() < first / 20


# -- SparseAdam ------------------------------------------------------------------------------------


def test_sparse_adam_refuses_dense_gradients(lib):
    p = parameters(lib)[0]
    before = array(p).copy()
    optimizer = lib.optim.SparseAdam([p])
    optimizer.step()
    p.grad = lib.ones_like(p)
    with pytest.raises(RuntimeError, match="SparseAdam does not support dense gradients"):
        optimizer.step()
    np.testing.assert_array_equal(array(p), before)
    complex_one = lib.nn.Parameter(lib.ones(2, dtype=lib.complex64))
    with pytest.raises(ValueError, match=r"Complex params at indices \[\[0, 1\]\]"):
        lib.optim.SparseAdam([p, complex_one])


def test_sparse_adam_refuses_gradients_of_sparse_embeddings():
    table = mt.nn.Embedding(4, 2, sparse=True)
    table(mt.tensor([1, 2])).sum().backward()
    with pytest.raises(RuntimeError, match=r"those of Embedding\(sparse=True\) too"):
        mt.optim.SparseAdam(table.parameters()).step()


# -- others ----------------------------------------------------------------------------------------


def test_adafactor_refuses_complex_parameters(lib):
    p = lib.nn.Parameter(lib.ones(2, 2, dtype=lib.complex64))
    p.grad = lib.ones_like(p)
    with pytest.raises(RuntimeError, match="Adafactor does not support complex parameters"):
        lib.optim.Adafactor([p]).step()


def test_adafactor_passes_over_empty_parameters():
    p, q = parameters(mt, [(0, 2), (2, 2)])
    before = array(q).copy()
    step(mt, mt.optim.Adafactor([p, q]), [p, q], 2)
    assert tuple(p.shape) == (0, 2) and not np.array_equal(array(q), before)


def test_epsilon_of_adafactor_is_that_of_each_dtype():
    """Where gradients vanish, the update is the gradient over the parameter's own epsilon."""
    for first in ("float32", "float64"):
        params = [
            mt.nn.Parameter(mt.ones(1, dtype=getattr(mt, kind))) for kind in (first, "float64")
        ]
        for p in params:
            p.grad = mt.full_like(p, 2.0**-60)
        mt.optim.Adafactor(params, lr=1.0).step()
        moved = 1 - params[1].item()
        assert moved == pytest.approx(2.0**-60 / np.finfo(np.float64).eps, rel=1e-6)


@pytest.mark.parametrize("name", ["Rprop", "ASGD"])
def test_values_that_are_no_numbers(lib, name):
    p = lib.nn.Parameter(lib.tensor([1.0, 2.0, 3.0], dtype=lib.float64))
    optimizer = getattr(lib.optim, name)([p], lr=0.5)
    for _ in range(2):
        p.grad = lib.tensor([1.0, math.nan, math.inf], dtype=lib.float64)
        optimizer.step()
    expected = {"Rprop": [1 - 0.5 - 0.6, 2.0, 3 - 0.5 - 0.6], "ASGD": [None, math.nan, -math.inf]}
    for got, wanted in zip(p.tolist(), expected[name], strict=True):
        if wanted is not None:
            assert got == pytest.approx(wanted, nan_ok=True)


def test_files_are_where_torch_has_them(lib):
    for file, name in (
        ("rprop", "Rprop"),
        ("asgd", "ASGD"),
        ("_adafactor", "Adafactor"),
        ("_muon", "Muon"),
        ("sparse_adam", "SparseAdam"),
    ):
        module = importlib.import_module(f"{lib.__name__}.optim.{file}")
        assert getattr(module, name) is getattr(lib.optim, name)
