# SPDX-License-Identifier: BSD-3-Clause
"""utils.checkpoint: results and gradients equal those of a plain call; the same tests run on
torch.
"""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.implementations import needs_torch

KINDS = ["modtree", pytest.param("torch", marks=needs_torch)]


@pytest.fixture(params=KINDS)
def lib(request):
    importlib.import_module(f"{request.param}.utils.checkpoint")
    return importlib.import_module(request.param)


def values(tensors):
    return [None if t is None else np.array(t.detach().numpy()) for t in tensors]


def model_of(lib):
    nn = lib.nn
    model = nn.Sequential(*(nn.Sequential(nn.Linear(3, 3), nn.Tanh()) for _ in range(4))).double()
    rng = np.random.default_rng(0)
    with lib.no_grad():
        for p in model.parameters():
            p.copy_(lib.from_numpy(rng.standard_normal(tuple(p.shape))))
    return model


def gradients(lib, model, call, x_needs_grad=True):
    x = lib.from_numpy(np.random.default_rng(1).standard_normal((2, 3)))
    x.requires_grad_(x_needs_grad)
    model.zero_grad()
    out = call(x)
    (out**2).sum().backward()
    return values([out, x.grad, *(p.grad for p in model.parameters())])


def assert_same(a, b):
    assert len(a) == len(b)
    for x, y in zip(a, b, strict=True):
        if x is None or y is None:
            assert x is y
        else:
            np.testing.assert_allclose(x, y, rtol=1e-14, atol=1e-14)


@pytest.mark.parametrize("x_needs_grad", [True, False])
def test_gradients_are_those_of_a_plain_call(lib, x_needs_grad):
    model = model_of(lib)
    plain = gradients(lib, model, model, x_needs_grad)
    assert all(g is not None for g in plain[2:])

    def one_by_one(x):
        for layer in model:
            x = lib.utils.checkpoint.checkpoint(layer, x, use_reentrant=False)
        return x

    def whole(x):
        return lib.utils.checkpoint.checkpoint(model, x, use_reentrant=False)

    def in_segments(x):
        return lib.utils.checkpoint.checkpoint_sequential(model, 3, x, use_reentrant=False)

    for call in (one_by_one, whole, in_segments):
        assert_same(gradients(lib, model, call, x_needs_grad), plain)


def test_reentrant_form(lib):
    model = model_of(lib)
    plain = gradients(lib, model, model)
    assert_same(
        gradients(
            lib, model, lambda x: lib.utils.checkpoint.checkpoint(model, x, use_reentrant=True)
        ),
        plain,
    )


def test_function_runs_again_and_keeps_nothing(lib):
    calls = []

    def square(x):
        calls.append(lib.is_grad_enabled())
        return x * x

    x = lib.tensor([3.0], requires_grad=True)
    y = lib.utils.checkpoint.checkpoint(square, x, use_reentrant=False)
    assert calls == [True]
    y.backward()
    assert calls == [True, True]
    assert x.grad.tolist() == [6.0]


def test_without_gradients_it_is_a_plain_call(lib):
    with lib.no_grad():
        y = lib.utils.checkpoint.checkpoint(
            lambda x: x * 2, lib.ones(2, requires_grad=True), use_reentrant=False
        )
    assert y.tolist() == [2.0, 2.0] and not y.requires_grad


def test_nested_arguments_and_results(lib):
    a, b = (lib.tensor([v], requires_grad=True) for v in (2.0, 3.0))

    def f(pair, *, scale):
        return {"product": pair[0] * pair[1], "scaled": [pair[0] * scale, "text"]}

    out = lib.utils.checkpoint.checkpoint(f, (a, b), scale=b, use_reentrant=False)
    assert out["scaled"][1] == "text"
    (out["product"] + out["scaled"][0] * 10).backward()
    assert (a.grad.tolist(), b.grad.tolist()) == ([33.0], [22.0])


def test_tensors_from_outside_get_gradients(lib):
    a = lib.tensor([2.0], requires_grad=True)
    outside = a.exp()
    y = lib.utils.checkpoint.checkpoint(lambda x: x * outside, a, use_reentrant=False)
    (y + outside).sum().backward()
    np.testing.assert_allclose(a.grad.numpy(), [np.exp(2.0) * 4], rtol=1e-6)


def test_random_numbers_are_the_same_both_times(lib):
    drop = lib.nn.Dropout(0.5)
    x = lib.ones(100, requires_grad=True)
    y = lib.utils.checkpoint.checkpoint(drop, x, use_reentrant=False)
    after = lib.rand(3)
    y.sum().backward()
    assert x.grad.tolist() == y.tolist()
    assert 0 < (y.detach() == 0).sum().item() < 100
    assert lib.rand(3).tolist() != after.tolist()  # the second run did not turn the stream back


def test_second_derivatives(lib):
    x = lib.tensor([2.0], requires_grad=True)
    y = lib.utils.checkpoint.checkpoint(lambda x: x**3, x, use_reentrant=False)
    (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
    (h,) = lib.autograd.grad(g.sum(), x)
    assert (g.tolist(), h.tolist()) == ([12.0], [12.0])


def test_other_shapes_the_second_time(lib):
    sizes = iter([2, 3])
    x = lib.tensor(1.0, requires_grad=True)
    y = lib.utils.checkpoint.checkpoint(
        lambda x: x.expand(next(sizes)).exp(), x, use_reentrant=False
    )
    with pytest.raises(RuntimeError) as caught:
        y.sum().backward()
    assert type(caught.value).__name__ == "CheckpointError"


@needs_torch
def test_the_reentrant_form_has_no_restrictions():
    for name in ("modtree", "torch"):
        lib = importlib.import_module(name)
        checkpoint = importlib.import_module(f"{name}.utils.checkpoint").checkpoint
        layer = lib.nn.Linear(2, 1)
        if name == "torch":
            with pytest.warns(UserWarning, match="None of the inputs have requires_grad=True"):
                out = checkpoint(layer, lib.ones(1, 2), use_reentrant=True)
            assert not out.requires_grad
        else:
            checkpoint(layer, lib.ones(1, 2), use_reentrant=True).sum().backward()
            assert layer.weight.grad.tolist() == [[1.0, 1.0]]
