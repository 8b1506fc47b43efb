# SPDX-License-Identifier: BSD-3-Clause
"""Windows, tensors over other memory, and small helpers: torch's values."""

from __future__ import annotations

import array

import numpy as np
import pytest

import modtree as mt

torch = pytest.importorskip("torch")

WINDOWS = ["hann_window", "hamming_window", "blackman_window", "bartlett_window", "kaiser_window"]


@pytest.mark.parametrize("name", WINDOWS)
@pytest.mark.parametrize("periodic", [True, False])
@pytest.mark.parametrize("n", [0, 1, 2, 7, 8])
def test_windows(name, periodic, n):
    ours, theirs = (getattr(lib, name)(n, periodic, dtype=lib.float64) for lib in (mt, torch))
    np.testing.assert_allclose(ours.numpy(), theirs.numpy(), rtol=1e-6, atol=1e-12)
    assert getattr(mt, name)(n).dtype == mt.float32
    with pytest.raises(RuntimeError):
        getattr(mt, name)(4, dtype=mt.int64)
    with pytest.raises(RuntimeError):
        getattr(mt, name)(-1)


def test_arguments_of_windows():
    for call in (
        lambda lib: lib.hamming_window(6, True, 0.6, 0.4, dtype=lib.float64),
        lambda lib: lib.kaiser_window(6, False, 5.0, dtype=lib.float64),
    ):
        ours, theirs = (call(lib).numpy() for lib in (mt, torch))
        np.testing.assert_allclose(ours, theirs, rtol=1e-6)


def test_other_memory():
    for lib in (mt, torch):
        numbers = array.array("d", [1.0, 2.0, 3.0])
        t = lib.frombuffer(numbers, dtype=lib.float64, count=2, offset=8)
        t[0] = 5
        assert numbers[1] == 5 and t.tolist() == [5.0, 3.0]
        values = np.arange(3.0)
        lib.from_dlpack(values)[1] = 7
        assert values.tolist() == [0.0, 7.0, 2.0]
    assert mt.from_dlpack(torch.ones(2)).tolist() == [1.0, 1.0]


def test_vander_of_too_many_columns_fails_at_once():
    with pytest.raises(MemoryError):
        mt.vander(mt.ones(3), 2**40)


CALLS = {
    "unravel_index": lambda lib, x: lib.unravel_index(lib.tensor([[5, 0], [11, 7]]), (3, 4)),
    "combinations": lambda lib, x: (lib.combinations(x), lib.combinations(x, 3, True)),
    "no combinations": lambda lib, x: (lib.combinations(x, 9),),
    # torch changes in place what the gradient of vander() needs.
    "vander": lambda lib, x: tuple(lib.vander(x.detach(), *a) for a in ((), (2,), (5, True), (0,))),
    "flip": lambda lib, x: (lib.flip(x, dims=(0,)), x.flip(0), lib.flip(x, [0]), x.flip(dims=[0])),
}


@pytest.mark.parametrize("name", CALLS)
def test_helpers(name):
    results = []
    for lib in (mt, torch):
        x = lib.from_numpy(np.array([0.5, -1.0, 2.0, 0.0])).requires_grad_()
        values = CALLS[name](lib, x)
        if values[0].requires_grad and values[0].numel():
            sum((v * v).sum() for v in values).backward()
        results.append(
            [v.detach().tolist() for v in values] + [None if x.grad is None else x.grad.tolist()]
        )
    assert results[0] == results[1]


def test_vander_can_be_derived():
    x = mt.tensor([2.0, -1.0]).requires_grad_()
    mt.vander(x, 4).sum().backward()
    assert x.grad.tolist() == [17.0, 2.0]


def test_errors():
    for lib in (mt, torch):
        with pytest.raises(RuntimeError, match="1D vector"):
            lib.combinations(lib.zeros(2, 2))
        with pytest.raises(RuntimeError, match="one-dimensional"):
            lib.vander(lib.zeros(2, 2))
