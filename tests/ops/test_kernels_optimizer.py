# SPDX-License-Identifier: BSD-3-Clause
"""Native optimizer steps, against the formulas in NumPy and against torch.optim."""

from __future__ import annotations

import importlib
import itertools

import numpy as np
import pytest
from helpers.kernels_common import dtypes, sample, strided
from helpers.needs import needs

from modtree._C import kernels

N = 37
STEPS = 5


def product(**axes):
    """Keyword combinations with readable ids."""
    combinations = [
        dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())
    ]
    ids = [" ".join(f"{k}={v}" for k, v in c.items()) for c in combinations]
    return pytest.mark.parametrize("options", combinations, ids=ids)


def train(dtype, step):
    param = sample(dtype, N)
    for number in range(1, STEPS + 1):
        step(param, sample(dtype, N, number), number)
    return param


def run_sgd(dtype, lr, momentum, dampening, **options):
    buffer = np.full(N, np.nan, dtype) if momentum else None

    def step(param, grad, number):
        kernels.sgd_step(
            param,
            grad,
            buffer,
            lr=lr,
            momentum=momentum,
            dampening=dampening,
            first=number == 1,
            **options,
        )

    return train(dtype, step)


def run_adam(dtype, lr, betas, eps, amsgrad, **options):
    mean, square = np.zeros(N, dtype), np.zeros(N, dtype)
    largest = np.zeros(N, dtype) if amsgrad else None

    def step(param, grad, number):
        kernels.adam_step(
            param,
            grad,
            mean,
            square,
            largest,
            step=number,
            lr=lr,
            beta1=betas[0],
            beta2=betas[1],
            eps=eps,
            **options,
        )

    return train(dtype, step)


def run_rmsprop(dtype, centered, momentum, **options):
    square = np.zeros(N, dtype)
    mean = np.zeros(N, dtype) if centered else None
    buffer = np.zeros(N, dtype) if momentum else None

    def step(param, grad, number):
        kernels.rmsprop_step(param, grad, square, mean, buffer, momentum=momentum, **options)

    return train(dtype, step)


def run_torch(dtype, optimizer, **options):
    torch = importlib.import_module("torch")
    param = torch.nn.Parameter(torch.from_numpy(sample(dtype, N)))
    optimizer = getattr(torch.optim, optimizer)([param], foreach=False, **options)
    for number in range(1, STEPS + 1):
        param.grad = torch.from_numpy(sample(dtype, N, number))
        optimizer.step()
    return param.detach().numpy()


def compare(got, expected, dtype):
    tolerance = {"float32": 2e-6, "float64": 1e-14}[dtype]
    assert np.abs(got - sample(dtype, N)).max() > 1e-3
    np.testing.assert_allclose(got, expected, atol=tolerance, rtol=tolerance)


@needs("torch")
@dtypes
@product(
    momentum=[0.0, 0.9],
    dampening=[0.0, 0.3],
    nesterov=[False, True],
    weight_decay=[0.0, 0.1],
    maximize=[False, True],
)
def test_sgd_equals_torch(dtype, options):
    if options["nesterov"] and (options["dampening"] or not options["momentum"]):
        pytest.skip("torch refuses it")
    compare(run_sgd(dtype, 0.1, **options), run_torch(dtype, "SGD", lr=0.1, **options), dtype)


@needs("torch")
@dtypes
@product(
    amsgrad=[False, True],
    decoupled=[False, True],
    weight_decay=[0.0, 0.1],
    maximize=[False, True],
    betas=[(0.9, 0.999), (0.3, 0.4)],
)
def test_adam_equals_torch(dtype, options):
    options = {"lr": 0.05, "eps": 1e-8} | options
    got = run_adam(dtype, **options)
    compare(
        got, run_torch(dtype, "AdamW" if options.pop("decoupled") else "Adam", **options), dtype
    )


@needs("torch")
@dtypes
@product(
    centered=[False, True], momentum=[0.0, 0.9], weight_decay=[0.0, 0.1], maximize=[False, True]
)
def test_rmsprop_equals_torch(dtype, options):
    options = {"lr": 0.05, "alpha": 0.9, "eps": 1e-6} | options
    compare(run_rmsprop(dtype, **options), run_torch(dtype, "RMSprop", **options), dtype)


@dtypes
def test_formulas(dtype):
    """The same without torch."""
    param, mean, square = sample("float64", N), np.zeros(N), np.zeros(N)
    for number in range(1, STEPS + 1):
        g = sample("float64", N, number)
        mean, square = 0.9 * mean + 0.1 * g, 0.99 * square + 0.01 * g * g
        param -= 0.05 * (mean / (1 - 0.9**number)) / (np.sqrt(square / (1 - 0.99**number)) + 1e-8)
    got = run_adam(dtype, 0.05, (0.9, 0.99), 1e-8, False)
    np.testing.assert_allclose(got, param, atol={"float32": 2e-6, "float64": 1e-13}[dtype])

    param, buffer = sample("float64", N), 0
    for number in range(1, STEPS + 1):
        g = sample("float64", N, number)
        buffer = 0.9 * buffer + g
        param -= 0.1 * buffer
    np.testing.assert_allclose(
        run_sgd(dtype, 0.1, 0.9, 0.0), param, atol={"float32": 2e-6, "float64": 1e-14}[dtype]
    )

    param, square = sample("float64", N), np.zeros(N)
    for number in range(1, STEPS + 1):
        g = sample("float64", N, number)
        square = 0.9 * square + 0.1 * g * g
        param -= 0.05 * g / (np.sqrt(square) + 1e-6)
    got = run_rmsprop(dtype, False, 0.0, lr=0.05, alpha=0.9, eps=1e-6)
    np.testing.assert_allclose(got, param, atol={"float32": 2e-6, "float64": 1e-13}[dtype])


def test_shapes_and_layouts():
    param, grad = sample("float64", (4, 5)), sample("float64", (4, 5), 1)
    expected = param - 0.1 * grad
    kernels.sgd_step(param, strided(grad), None, lr=0.1)
    np.testing.assert_allclose(param, expected, rtol=1e-14)
    kernels.sgd_step(np.zeros((0, 3)), np.zeros((0, 3)), None, lr=0.1)
    scalar = np.array(1.0)
    kernels.sgd_step(scalar, np.array(2.0), None, lr=0.25)
    assert scalar == 0.5


def test_arrays_to_change_must_fit():
    param, grad, mean, square = np.zeros((4, 4, 5), "f4")

    def adam(param=param, grad=grad, mean=mean, square=square):
        kernels.adam_step(
            param, grad, mean, square, None, step=1, lr=0.1, beta1=0.9, beta2=0.99, eps=1e-8
        )

    adam()
    with pytest.raises(ValueError, match="param must be C-contiguous, aligned and writeable"):
        adam(param=np.zeros((5, 4), "f4").T)
    frozen = np.zeros((4, 5), "f4")
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="exp_avg must be C-contiguous, aligned and writeable"):
        adam(mean=frozen)
    with pytest.raises(TypeError, match="exp_avg_sq must be an array of float32"):
        adam(square=np.zeros((4, 5)))
    with pytest.raises(ValueError, match="exp_avg must have 20 values, got 19"):
        adam(mean=np.zeros(19, "f4"))
    with pytest.raises(ValueError, match=r"grad must have shape \(4, 5\), got \(20,\)"):
        adam(grad=np.zeros(20, "f4"))
    with pytest.raises(TypeError, match="grad must be of float32"):
        adam(grad=np.zeros((4, 5)))
    with pytest.raises(TypeError, match="exp_avg must be an array of float32"):
        adam(mean=None)
    with pytest.raises(TypeError, match="float32 or float64, got int64"):
        kernels.sgd_step(np.zeros(3, int), np.zeros(3, int), None, lr=0.1)
    assert not param.any()


@dtypes
def test_without_decay_an_infinite_parameter_stays(dtype):
    param = np.full(9, np.inf, dtype)
    kernels.sgd_step(param, np.ones(9, dtype), None, lr=0.1)
    assert (param == np.inf).all()
