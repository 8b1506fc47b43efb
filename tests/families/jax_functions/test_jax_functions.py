# SPDX-License-Identifier: BSD-3-Clause
"""Functions of nn.functional on jax arrays against torch: values and gradients, random shapes."""

from __future__ import annotations

import warnings
import zlib
from typing import Any

import numpy as np
import pytest
from helpers.jax_cases import CASES, Draw

import modtree.nn.functional as F

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")

ROUNDS = 2


def is_inexact(value: Any) -> bool:
    return isinstance(value, np.ndarray) and value.dtype.kind == "f"


def flat(result: Any) -> list[Any]:
    parts = result if isinstance(result, tuple) else (result,)
    return [part for part in parts if part is not None]


def of_torch(name: str, args: Any, kwargs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The results, and the gradients of all floating arguments for the sum with factors."""
    leaves: list[Any] = []

    def tensor(value: Any) -> Any:
        if not isinstance(value, np.ndarray):
            return value
        made = torch.tensor(value)
        if is_inexact(value):
            leaves.append(made.requires_grad_())
        return made

    args = [tensor(a) for a in args]
    kwargs = {k: tensor(v) for k, v in kwargs.items()}
    constants = set(CONSTANT.get(name, ()))
    for i in constants:
        if torch.is_tensor(args[i]):
            args[i].requires_grad_(False)
        leaves = [leaf for leaf in leaves if leaf.requires_grad]
    for key in UNDERIVED:
        if key in kwargs and torch.is_tensor(kwargs[key]):
            kwargs[key].requires_grad_(False)
    leaves = [leaf for leaf in leaves if leaf.requires_grad]
    results = flat(getattr(torch.nn.functional, name)(*args, **kwargs))
    total = sum((r * factors(r.shape)).sum() for r in results if r.is_floating_point())
    if torch.is_tensor(total) and total.requires_grad:
        total.backward()
    grads = [np.zeros(x.shape) if x.grad is None else x.grad.numpy() for x in leaves]
    return [r.detach().numpy() for r in results], grads


def factors(shape: Any) -> Any:
    return torch.linspace(0.5, 1.5, int(np.prod(shape))).reshape(tuple(shape))


# Arguments that torch has no gradient for.
UNDERIVED = ("weight", "pos_weight", "_random_samples")
CONSTANT = {"batch_norm": (1, 2), "binary_cross_entropy": (2,), "soft_margin_loss": (1,)}


def of_jax(name: str, args: Any, kwargs: Any) -> tuple[list[np.ndarray], list[np.ndarray]]:
    places = [i for i, a in enumerate(args) if is_inexact(a) and i not in CONSTANT.get(name, ())]
    keys = [k for k, v in kwargs.items() if is_inexact(v) and k not in UNDERIVED]
    arrays = [jax.numpy.asarray(a) if isinstance(a, np.ndarray) else a for a in args]
    named = {k: jax.numpy.asarray(v) if isinstance(v, np.ndarray) else v for k, v in kwargs.items()}

    def total(leaves: Any) -> Any:
        given, more = list(arrays), dict(named)
        for i, leaf in zip(places, leaves, strict=False):
            given[i] = leaf
        more |= dict(zip(keys, leaves[len(places) :], strict=True))
        results = flat(getattr(F, name)(*given, **more))
        inexact = [r for r in results if jax.numpy.issubdtype(r.dtype, jax.numpy.floating)]
        value = sum((r * jax.numpy.asarray(factors(r.shape).numpy())).sum() for r in inexact)
        return jax.numpy.asarray(value, "float32"), results

    leaves = [arrays[i] for i in places] + [named[k] for k in keys]
    if not leaves:
        return [np.asarray(r) for r in total([])[1]], []
    # One program compiles faster than its operations one by one.
    (_, results), grads = jax.jit(jax.value_and_grad(total, has_aux=True))(leaves)
    return [np.asarray(r) for r in results], [np.asarray(g) for g in grads]


def close(ours: Any, theirs: Any) -> None:
    assert len(ours) == len(theirs)
    for a, b in zip(ours, theirs, strict=True):
        assert a.shape == b.shape
        np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.slow(keep=40)
@pytest.mark.parametrize("key", sorted(CASES))
def test_values_and_gradients_are_those_of_torch(key):
    name = key.partition(":")[0]
    for number in range(ROUNDS):
        args, kwargs = CASES[key](Draw(zlib.crc32(key.encode()) + number))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            expected = of_torch(name, args, kwargs)
            got = of_jax(name, args, kwargs)
        close(got[0], expected[0])
        close(got[1], expected[1])


@pytest.mark.parametrize("number", range(4))
def test_ctc_loss_and_its_gradients_by_logits_are_those_of_torch(number):
    d = Draw(number)
    steps, count, classes = d.int(3, 8), d.int(1, 3), d.int(2, 4)
    logits = d.x(steps, count, classes)
    lengths = d.rng.integers(0, 4, count)
    used = d.rng.integers(1, steps + 1, count)
    labels = d.ids(classes - 1, count, 3) + 1
    if number % 2:  # one after the other
        labels = np.concatenate([row[:n] for row, n in zip(labels, lengths, strict=True)])
    more = {"reduction": d.one_of("none", "sum", "mean"), "zero_infinity": True}
    x = torch.tensor(logits, requires_grad=True)
    expected = torch.nn.functional.ctc_loss(
        x.log_softmax(-1), torch.tensor(labels), torch.tensor(used), torch.tensor(lengths), **more
    )
    expected.sum().backward()

    def loss(x):
        logs = F.log_softmax(x, -1)
        got = F.ctc_loss(logs, jax.numpy.asarray(labels), used, lengths, **more)
        return got.sum(), got

    grads, got = jax.jit(jax.grad(loss, has_aux=True))(jax.numpy.asarray(logits))
    close([np.asarray(got)], [expected.detach().numpy()])
    close([np.asarray(grads)], [x.grad.numpy()])


def test_ctc_loss_of_labels_that_do_not_fit_is_infinite():
    logs = F.log_softmax(jax.numpy.zeros((2, 4)), -1)
    loss = F.ctc_loss(logs, jax.numpy.array([1, 1]), [2], [2], reduction="none")
    assert loss.shape == () and np.isinf(loss)
    with pytest.raises(RuntimeError, match="value at most 2"):
        F.ctc_loss(logs, jax.numpy.array([1, 1]), [3], [2])


@pytest.mark.parametrize("mean", [0, 100, 1000])
def test_norms_are_exact_where_the_mean_is_large(mean):
    """One pass over the values would have an error of 0.5 at a mean of 1000."""
    x = np.random.default_rng(0).normal(mean, 1, (16, 256)).astype(np.float32)
    exact = torch.nn.functional.layer_norm(torch.tensor(x, dtype=torch.float64), (256,)).numpy()
    found = np.asarray(jax.jit(lambda x: F.layer_norm(x, (256,)))(jax.numpy.asarray(x)))
    assert np.abs(found - exact).max() < 2e-6 * max(mean, 1)
