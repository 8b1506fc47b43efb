# SPDX-License-Identifier: BSD-3-Clause
"""autograd.functional equals torch's; mixed precision is off."""

from __future__ import annotations

import importlib

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")

FUNCTIONS = {
    "one": (lambda x: x.exp() * x.sum(), [(3,)]),
    "matrix": (lambda x: x @ x.mT, [(2, 3)]),
    "two inputs": (lambda x, y: (x * y).sum(1), [(2, 3), (3,)]),
    "two outputs": (lambda x, y: (x.sin() * y, y**3), [(3,), (3,)]),
    "unused": (lambda x, y: x * 2, [(2,), (3,)]),
    "number": (lambda x: (x**3).sum(), [(4,)]),
    "number of two": (lambda x, y: (x**2).sum() * (y**3).sum(), [(2,), (2, 1)]),
}


def nested(value):
    if isinstance(value, tuple):
        return tuple(nested(v) for v in value)
    return value.detach().numpy()


def assert_same(ours, theirs):
    ours, theirs = nested(ours), nested(theirs)

    def compare(a, b):
        assert isinstance(a, tuple) == isinstance(b, tuple)
        if isinstance(a, tuple):
            assert len(a) == len(b)
            for x, y in zip(a, b, strict=True):
                compare(x, y)
        else:
            assert a.dtype == b.dtype
            np.testing.assert_allclose(a, b, rtol=1e-12, atol=1e-12, strict=True)

    compare(ours, theirs)


def inputs_of(lib, shapes, seed=0, grad=False):
    rng = np.random.default_rng(seed)
    made = tuple(lib.from_numpy(rng.standard_normal(s)).requires_grad_(grad) for s in shapes)
    return made[0] if len(made) == 1 else made


def run(lib, name, case, **options):
    function, shapes = FUNCTIONS[case]
    functional = importlib.import_module(f"{lib.__name__}.autograd.functional")
    inputs = inputs_of(lib, shapes)
    if name in ("vjp", "jvp", "hvp", "vhp"):
        if name == "vjp":
            out = function(*inputs) if isinstance(inputs, tuple) else function(inputs)
            shapes = [tuple(o.shape) for o in (out if isinstance(out, tuple) else (out,))]
        return getattr(functional, name)(function, inputs, inputs_of(lib, shapes, 1), **options)
    return getattr(functional, name)(function, inputs, **options)


@pytest.mark.parametrize("case", FUNCTIONS)
@pytest.mark.parametrize("name", ["jacobian", "vjp", "jvp"])
def test_first_derivatives(name, case):
    assert_same(run(mt, name, case), run(torch, name, case))


@pytest.mark.parametrize("case", ["number", "number of two"])
@pytest.mark.parametrize("name", ["hessian", "vhp", "hvp"])
def test_second_derivatives(name, case):
    assert_same(run(mt, name, case), run(torch, name, case))


@pytest.mark.parametrize("name", ["jacobian", "vjp", "jvp", "hessian", "vhp"])
def test_results_can_be_derived(name):
    grads = []
    for lib in (mt, torch):
        functional = importlib.import_module(f"{lib.__name__}.autograd.functional")
        x = inputs_of(lib, [(4,)], grad=True)
        arguments = (x,)
        if name in ("jvp", "vhp"):
            arguments = (x, x.detach() * 2)
        result = getattr(functional, name)(lambda x: (x**3).sum(), *arguments, create_graph=True)
        last = result[-1] if isinstance(result, tuple) else result
        (last**2).sum().backward()
        grads.append(x.grad.numpy())
        plain = getattr(functional, name)(lambda x: (x**3).sum(), *arguments)
        plain = plain[-1] if isinstance(plain, tuple) else plain
        assert not plain.requires_grad
    np.testing.assert_allclose(*grads, rtol=1e-12)


def test_errors():
    for lib in (mt, torch):
        functional = importlib.import_module(f"{lib.__name__}.autograd.functional")
        x = inputs_of(lib, [(3,)])
        for call, error in [
            (
                lambda f=functional, x=x: f.jacobian(lambda a, b: a, (x, x), strict=True),
                RuntimeError,
            ),
            (lambda f=functional, x=x: f.hessian(lambda a: a * 2, x), RuntimeError),
            (lambda f=functional, x=x: f.vjp(lambda a: a * 2, x), RuntimeError),
            (lambda f=functional, x=x: f.jvp(lambda a: a * 2, x, x[:2]), RuntimeError),
            (lambda f=functional: f.jacobian(lambda a: a * 2, 3.0), TypeError),
        ]:
            with pytest.raises(error):
                call()


def test_mixed_precision_is_off():
    model = mt.nn.Linear(2, 1)
    optimizer = mt.optim.SGD(model.parameters(), lr=0.1)
    scaler = mt.amp.GradScaler("cuda", enabled=False)
    before = model.weight.clone()
    with mt.autocast(device_type="cuda", dtype=mt.float16, enabled=False):
        loss = model(mt.ones(3, 2)).mean()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    assert model.weight.grad.tolist() == [[1.0, 1.0]]
    scaler.step(optimizer)
    scaler.update()
    np.testing.assert_allclose((before - model.weight).detach().numpy(), 0.1, rtol=1e-5)
    assert not scaler.is_enabled() and scaler.get_scale() == 1.0 and scaler.state_dict() == {}
    for make in (mt.amp.GradScaler, lambda: mt.autocast("cpu")):
        with pytest.warns(UserWarning, match="disabled"):
            make()


@pytest.mark.filterwarnings("ignore:.*is deprecated.:DeprecationWarning")  # of torch, by itself
def test_the_strategy_that_goes_backward(lib):
    functional, strategy = lib.autograd.functional, "reverse-mode"
    x = lib.tensor([1.0, 2.0])
    found = functional.jacobian(lambda a: a * a.sum(), x, vectorize=True, strategy=strategy)
    assert found.tolist() == [[4.0, 1.0], [2.0, 5.0]]
    found = functional.hessian(
        lambda a: (a**3).sum(), x, vectorize=True, outer_jacobian_strategy=strategy
    )
    assert found.tolist() == [[6.0, 0.0], [0.0, 12.0]]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"strategy": "sideways"}, AssertionError, "Expected strategy to be either"),
        ({"strategy": "forward-mode"}, NotImplementedError, "vectorize=True|reverse-mode"),
        (
            {"strategy": "forward-mode", "vectorize": True, "create_graph": True},
            NotImplementedError,
            "`create_graph=True` and|reverse-mode",
        ),
        ({"strict": True, "vectorize": True}, RuntimeError, "`strict=True` and `vectorized=True`"),
    ],
)
def test_strategies_that_are_refused(lib, options, error, message):
    with pytest.raises(error, match=message):
        lib.autograd.functional.jacobian(lambda a: a * 2, lib.ones(2), **options)


def test_forward_mode_is_refused():
    functional, options = mt.autograd.functional, {"vectorize": True}
    with pytest.raises(NotImplementedError, match="derivatives only go backward"):
        functional.jacobian(lambda a: a * 2, mt.ones(2), strategy="forward-mode", **options)
    with pytest.raises(NotImplementedError, match="derivatives only go backward"):
        functional.hessian(
            lambda a: (a**3).sum(), mt.ones(2), outer_jacobian_strategy="forward-mode", **options
        )
