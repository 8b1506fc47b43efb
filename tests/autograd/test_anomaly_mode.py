# SPDX-License-Identifier: BSD-3-Clause
"""detect_anomaly: where the operation was called whose backward fails, as in torch."""

from __future__ import annotations

import warnings

import pytest


@pytest.fixture
def modes(lib):
    yield lib.autograd
    lib.autograd.set_detect_anomaly(False)


def root_of_negative(lib):
    x = lib.tensor([-1.0, 4.0], requires_grad=True)
    return x, lib.sqrt(x) * 2  # the culprit


def test_the_call_that_made_nan_is_named(lib, modes):
    with pytest.warns(UserWarning, match="Anomaly Detection has been enabled"):
        context = modes.detect_anomaly()
    with context:
        _, y = root_of_negative(lib)
        with (
            pytest.warns(UserWarning, match=r"(?s)Error detected in SqrtBackward0.*the culprit"),
            pytest.raises(
                RuntimeError, match="'SqrtBackward0' returned nan values in its 0th outp"
            ),
        ):
            y.sum().backward()
    assert not lib.is_anomaly_enabled()


def test_without_information_of_the_forward_pass(lib, modes):
    _, y = root_of_negative(lib)
    with (
        modes.set_detect_anomaly(True),
        pytest.warns(UserWarning, match="No forward pass information available"),
        pytest.raises(RuntimeError, match="returned nan values"),
    ):
        y.sum().backward()


def test_nan_may_be_let_through(lib, modes):
    with modes.set_detect_anomaly(True, check_nan=False):
        assert lib.is_anomaly_enabled()
        assert not lib.is_anomaly_check_nan_enabled()
        x, y = root_of_negative(lib)
        y.sum().backward()
    assert x.grad.isnan().tolist() == [True, False]


def test_an_error_in_backward_is_explained(lib, modes):
    class Fails(lib.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            raise KeyError("lost")

    with (
        modes.set_detect_anomaly(True),
        pytest.warns(UserWarning, match=r"(?s)Error detected in FailsBackward.*Fails\.apply"),
        pytest.raises(KeyError, match="lost"),
    ):
        Fails.apply(lib.ones(1, requires_grad=True)).backward()


def test_the_calculation_that_induced_it_is_named(lib, modes):
    with modes.set_detect_anomaly(True):
        x = lib.tensor([0.0], requires_grad=True)
        y = x**1.5
        (g,) = lib.autograd.grad(y.sum(), x, create_graph=True)
        with (
            pytest.warns(UserWarning) as given,
            pytest.raises(RuntimeError, match="returned nan values"),
        ):
            (g * g.detach()).sum().backward()
    texts = [str(w.message) for w in given]
    assert any("Error detected in " in text for text in texts)
    assert any("Previous calculation was induced by PowBackward0" in text for text in texts)


def test_in_place_changes_of_views(lib, modes):
    with modes.set_detect_anomaly(True):
        x = lib.tensor([-1.0, 4.0], requires_grad=True)
        y = x * 1
        y[:1].sqrt_()
        with (
            pytest.warns(UserWarning, match="Error detected in .*CopySlices"),
            pytest.raises(RuntimeError, match="CopySlices' returned nan values in its 0th"),
        ):
            y.sum().backward()


def test_modes_are_put_back(lib, modes):
    assert not lib.is_anomaly_enabled()
    with modes.set_detect_anomaly(True):
        with modes.set_detect_anomaly(False):
            assert not lib.is_anomaly_enabled()
        assert lib.is_anomaly_enabled()
    assert not lib.is_anomaly_enabled()
    modes.set_detect_anomaly(True)
    assert lib.is_anomaly_enabled()


def test_gradients_are_as_usual(lib, modes):
    with modes.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        x = lib.tensor([1.0, 4.0], requires_grad=True)
        (lib.sqrt(x) * x).sum().backward()
    assert x.grad.tolist() == [1.5, 3.0]


def test_a_warning_that_is_an_error(lib, modes):
    with modes.set_detect_anomaly(True), warnings.catch_warnings():
        warnings.simplefilter("error")
        _, y = root_of_negative(lib)
        with pytest.raises((UserWarning, RuntimeError)):
            y.sum().backward()
