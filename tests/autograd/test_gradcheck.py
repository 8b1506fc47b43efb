# SPDX-License-Identifier: BSD-3-Clause
"""autograd.gradcheck, autograd.Variable and func.functional_call; the same tests run on torch."""

from __future__ import annotations

import importlib

import numpy as np
import pytest
from helpers.implementations import needs_torch

KINDS = ["modtree", pytest.param("torch", marks=needs_torch)]


@pytest.fixture(params=KINDS)
def lib(request):
    importlib.import_module(f"{request.param}.func")
    return importlib.import_module(request.param)


def sample(lib, *shape, dtype=np.float64):
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        values = values + 1j * values[::-1]
    return lib.from_numpy(np.asarray(values, dtype)).requires_grad_()


def broken(lib, factor=2.0):
    class Broken(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * (2 if g.abs().sum() == 0 else factor)

    return Broken.apply


def test_right_derivatives_pass(lib):
    x, y = sample(lib, 3), sample(lib, 2, 3)
    assert lib.autograd.gradcheck(lambda x, y: (x * y).exp(), (x, y))
    assert lib.autograd.gradcheck(lambda x: (x.sin(), x[:2] * 3), x)
    assert lib.autograd.gradcheck(broken(lib, 2.0), x)
    assert lib.autograd.gradgradcheck(lambda x, y: (x * y).exp(), (x, y))


def test_complex(lib):
    z = sample(lib, 3, dtype=np.complex128)
    assert lib.autograd.gradcheck(lambda z: z * z.conj() + z**2, z)
    assert lib.autograd.gradcheck(lambda z: z.abs(), z)


def test_wrong_derivatives_fail(lib):
    x = sample(lib, 3)
    with pytest.raises(
        RuntimeError, match="Jacobian mismatch for output 0 with respect to input 0"
    ):
        lib.autograd.gradcheck(broken(lib, 2.1), x)
    assert not lib.autograd.gradcheck(broken(lib, 2.1), x, raise_exception=False)
    assert lib.autograd.gradcheck(broken(lib, 2.1), x, atol=0.5)


def test_wrong_second_derivatives_fail(lib):
    class Cube(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x**3

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 3 * (x * x.detach())

    x = sample(lib, 3)
    assert lib.autograd.gradcheck(Cube.apply, x)
    assert not lib.autograd.gradgradcheck(Cube.apply, x, raise_exception=False)


def test_an_input_must_require_grad(lib):
    with pytest.raises(ValueError, match="at least one input tensor to require gradient"):
        lib.autograd.gradcheck(lambda x: x, lib.ones(2).double())


@pytest.mark.parametrize(
    ("check", "option"),
    [
        ("gradcheck", "check_batched_grad"),
        ("gradcheck", "check_batched_forward_grad"),
        ("gradcheck", "check_forward_ad"),
        ("gradgradcheck", "check_batched_grad"),
        ("gradgradcheck", "check_fwd_over_rev"),
    ],
)
def test_checks_that_need_batches_or_forward_mode_are_refused(check, option):
    modtree = importlib.import_module("modtree")
    run = getattr(modtree.autograd, check)
    x = sample(modtree, 2)
    assert run(modtree.exp, x, **{option: False})
    with pytest.raises(NotImplementedError, match=f"{option} needs vmap or forward mode"):
        run(modtree.exp, x, **{option: True})


def test_variable(lib):
    variable = lib.autograd.Variable(lib.ones(2), requires_grad=True)
    assert isinstance(variable, lib.Tensor) and isinstance(lib.ones(1), lib.autograd.Variable)
    assert variable.requires_grad and variable.is_leaf
    assert not lib.autograd.Variable(variable * 2).requires_grad


def test_grad_takes_only_inputs(lib):
    x = lib.ones(2, requires_grad=True)
    (g,) = lib.autograd.grad((x * 3).sum(), x, None, True, False, True, True)
    assert g.tolist() == [3.0, 3.0]


def small(lib):
    return lib.nn.Sequential(
        lib.nn.Linear(2, 3), lib.nn.BatchNorm1d(3), lib.nn.Linear(3, 1)
    ).double()


def test_functional_call_uses_what_is_given(lib):
    model = small(lib)
    own = dict(model.named_parameters())
    x = sample(lib, 4, 2)
    given = {name: (p * 2).detach().requires_grad_() for name, p in own.items()}
    out = lib.func.functional_call(model, given, (x,))
    reference = small(lib)
    reference.load_state_dict({**model.state_dict(), **given})
    reference[1].reset_running_stats()
    expected = reference(x)
    np.testing.assert_allclose(out.detach().numpy(), expected.detach().numpy(), rtol=1e-14)
    out.sum().backward()
    expected.sum().backward()
    for name, p in reference.named_parameters():
        np.testing.assert_allclose(given[name].grad.numpy(), p.grad.numpy(), rtol=1e-12, atol=1e-12)
    assert all(p.grad is None for p in model.parameters())
    assert dict(model.named_parameters()).keys() == own.keys()
    assert all(a is b for a, b in zip(model.parameters(), own.values(), strict=True))


def test_functional_call_with_non_leaves_is_derived_through(lib):
    model = lib.nn.Linear(2, 1).double()
    x = sample(lib, 4, 2)
    params = dict(model.named_parameters())
    loss = lib.func.functional_call(model, params, x).pow(2).mean()
    grads = lib.autograd.grad(loss, list(params.values()), create_graph=True)
    stepped = {n: p - 0.1 * g for (n, p), g in zip(params.items(), grads, strict=True)}
    lib.func.functional_call(model, stepped, (x,)).sum().backward()
    w, b = (np.array(p.detach().numpy()) for p in params.values())
    a = x.detach().numpy()
    # d/dw of sum(a @ (w - 0.1 dL/dw) + b - 0.1 dL/db), L quadratic
    hessian = (
        np.block([[2 * a.T @ a, 2 * a.sum(0)[:, None]], [2 * a.sum(0)[None], np.full((1, 1), 8.0)]])
        / 4
    )
    direct = np.append(a.sum(0), 4.0)
    expected = direct - 0.1 * hessian @ direct
    got = np.append(model.weight.grad.numpy(), model.bias.grad.numpy())
    np.testing.assert_allclose(got, expected, rtol=1e-12)
    assert w.shape == (1, 2) and b.shape == (1,)


def test_functional_call_restores_after_an_error(lib):
    model = lib.nn.Linear(2, 1)
    weight = model.weight
    with pytest.raises(RuntimeError):
        lib.func.functional_call(model, {"weight": lib.ones(1, 5)}, (lib.ones(2),))
    assert model.weight is weight


def test_functional_call_changes_given_buffers_only(lib):
    model = small(lib)
    before = model[1].running_mean.tolist()
    given = {"1.running_mean": lib.ones(3).double()}
    lib.func.functional_call(model, given, (sample(lib, 4, 2),))
    assert model[1].running_mean.tolist() == before
    assert given["1.running_mean"].tolist() != [1.0, 1.0, 1.0]


def test_functional_call_ties(lib):
    model = lib.nn.Sequential(lib.nn.Linear(2, 2, bias=False), lib.nn.Linear(2, 2, bias=False))
    model[1].weight = model[0].weight
    x = lib.ones(1, 2)
    double = lib.eye(2) * 2
    assert lib.func.functional_call(model, {"0.weight": double}, (x,)).tolist() == [[4.0, 4.0]]
    with pytest.raises(ValueError):
        lib.func.functional_call(model, {"0.weight": double, "1.weight": lib.eye(2)}, (x,))
    both = [{"0.weight": double}, {"1.weight": lib.eye(2)}]
    got = lib.func.functional_call(model, both, (x,), tie_weights=False)
    assert got.tolist() == [[2.0, 2.0]]


def test_functional_call_names(lib):
    model, x = lib.nn.Linear(2, 1), lib.ones(2)
    with pytest.raises(RuntimeError, match="bias"):
        lib.func.functional_call(model, {"weight": lib.ones(1, 2)}, (x,), strict=True)
    assert lib.func.functional_call(model, {"other": x}, (x,)).shape == (1,)
    assert not hasattr(model, "other")
    with pytest.raises(ValueError, match="in multiple dictionaries"):
        lib.func.functional_call(model, ({"weight": x}, {"weight": x}), (x,))


def test_functional_call_takes_tensors_alone(lib):
    model = lib.nn.Linear(2, 1)
    model.plain, model.text = lib.ones(1), "text"
    x = lib.ones(1, 2)
    before = list(model.__dict__)
    for name, value in (("weight", model), ("text", x), ("weight", 3)):
        with pytest.raises(TypeError, match="is not an instance of"):
            lib.func.functional_call(model, {"bias": lib.zeros(1), name: value}, (x,))
        assert model.bias.requires_grad
    for name, error in (("a.b", AttributeError), ("plain.b", TypeError), ("", KeyError)):
        with pytest.raises(error):
            lib.func.functional_call(model, {name: x}, (x,))
    lib.func.functional_call(model, {"plain": x, "new": None}, (x,))
    assert list(model.__dict__) == before and model.plain.tolist() == [1.0]


def test_functional_call_gives_back_what_the_call_put_there(lib):
    class Counts(lib.nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("n", lib.zeros(1))

        def forward(self):
            self.n = self.n + 1

    model, given = Counts(), {"n": lib.full((1,), 5.0)}
    lib.func.functional_call(model, given)
    assert given["n"].tolist() == [6.0] and model.n.tolist() == [0.0]
    given = ({"n": lib.full((1,), 5.0)},)
    lib.func.functional_call(model, given)
    assert given[0]["n"].tolist() == [5.0]
