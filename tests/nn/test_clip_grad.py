# SPDX-License-Identifier: BSD-3-Clause
"""Gradients clipped by norm and by value, with leaves of both libraries and on torch."""

from __future__ import annotations

import importlib
import math

import numpy as np
import pytest
from helpers.implementations import needs_torch

import modtree as mt

VALUES = [[[3.0, -4.0], [0.5, 0.0]], [12.0], 2.0]


def params(impl, dtype=None, values=VALUES):
    """Parameters with these gradients, and one without."""
    lib = impl.lib
    out = []
    for value in values:
        grad = lib.tensor(value, dtype=dtype or lib.float64)
        p = impl.nn.Parameter(lib.zeros_like(grad))
        p.grad = grad
        out.append(p)
    return [*out, impl.nn.Parameter(lib.zeros(2))]


def grads(ps):
    return [p.grad.tolist() for p in ps if p.grad is not None]


def expected_norm(order):
    flat = np.concatenate([np.ravel(v) for v in VALUES])
    return float(np.linalg.norm(flat, order))


@pytest.mark.parametrize("order", [2.0, 1, 3, 0.5, math.inf, 2])
def test_norm(impl, order):
    ps = params(impl)
    before = grads(ps)
    total = impl.nn.utils.clip_grad_norm_(ps, 2.0, norm_type=order)
    assert tuple(total.shape) == () and total.dtype == impl.lib.float64
    assert total.item() == pytest.approx(expected_norm(order), rel=1e-13)
    factor = 2.0 / (expected_norm(order) + 1e-6)
    for new, old in zip(grads(ps), before, strict=True):
        np.testing.assert_allclose(new, np.multiply(old, factor), rtol=1e-13)
    assert ps[-1].grad is None


def test_small_gradients_stay(impl):
    ps = params(impl)
    before = grads(ps)
    impl.nn.utils.clip_grad_norm_(iter(ps), 1e3)
    assert grads(ps) == before


def test_gradients_stay_the_same_tensors(impl):
    ps = params(impl)
    held = [p.grad for p in ps]
    impl.nn.utils.clip_grad_norm_(ps, 0.1)
    impl.nn.utils.clip_grad_value_(ps, 0.01)
    assert all(p.grad is g for p, g in zip(ps, held, strict=True))


def test_one_tensor(impl):
    p = params(impl)[0]
    assert impl.nn.utils.clip_grad_norm_(p, 1.0, math.inf).item() == 4.0
    assert abs(p.grad).max().item() == pytest.approx(1.0, rel=1e-6)


def test_float32_stays_float32(impl):
    ps = params(impl, impl.lib.float32)
    total = impl.nn.utils.clip_grad_norm_(ps, 1.0)
    assert total.dtype == impl.lib.float32
    assert all(p.grad.dtype == impl.lib.float32 for p in ps if p.grad is not None)
    assert impl.nn.utils.get_total_norm([p.grad for p in ps[:-1]]).item() == pytest.approx(
        1.0, rel=1e-5
    )


def test_complex_gradients(impl):
    lib = impl.lib
    p = impl.nn.Parameter(lib.zeros(2, dtype=lib.complex128))
    p.grad = lib.tensor([3 + 4j, 12j], dtype=lib.complex128)
    total = impl.nn.utils.clip_grad_norm_([p], 1.3)
    assert total.item() == pytest.approx(13.0) and total.dtype == lib.float64
    assert p.grad[0].item() == pytest.approx(0.3 + 0.4j, rel=1e-6)


def test_no_gradients(impl):
    ps = [impl.nn.Parameter(impl.lib.ones(2))]
    assert impl.nn.utils.clip_grad_norm_(ps, 1.0).item() == 0.0
    if not impl.is_torch:  # torch raises an error that asks to be reported
        impl.nn.utils.clip_grad_value_(ps, 1.0)
    impl.nn.utils.clip_grads_with_norm_(ps, 1.0, impl.lib.tensor(3.0))
    assert ps[0].grad is None


def test_empty_generator_warns(impl):
    with pytest.warns(UserWarning, match="`parameters` is an empty generator"):
        impl.nn.utils.clip_grad_norm_((p for p in []), 1.0)


@pytest.mark.parametrize("bad", [math.inf, math.nan])
def test_non_finite(impl, bad):
    ps = params(impl, values=[[1.0, bad], [2.0]])
    with pytest.raises(RuntimeError, match="is non-finite"):
        impl.nn.utils.clip_grad_norm_(ps, 1.0, error_if_nonfinite=True)
    assert ps[1].grad.item() == 2.0
    impl.nn.utils.clip_grad_norm_(ps, 1.0)
    assert math.isnan(ps[1].grad.item()) if math.isnan(bad) else ps[1].grad.item() == 0.0


def test_value(impl):
    ps = params(impl)
    impl.nn.utils.clip_grad_value_(ps, 2.5)
    assert grads(ps) == [[[2.5, -2.5], [0.5, 0.0]], [2.5], 2.0]
    impl.nn.utils.clip_grad_value_(ps[1], 1)
    assert grads(ps)[1] == [1.0]


def test_total_norm(impl):
    lib = impl.lib
    total = impl.nn.utils.get_total_norm
    assert total(lib.tensor([3.0, 4.0])).item() == 5.0
    assert total([]).item() == 0.0
    assert total([lib.zeros(0), lib.tensor([-2.0])]).item() == 2.0
    with pytest.raises(RuntimeError, match="non-finite"):
        total([lib.tensor([math.nan])], error_if_nonfinite=True)


def test_clipping_does_not_record(impl):
    ps = params(impl)
    impl.nn.utils.clip_grad_norm_(ps, 0.5)
    impl.nn.utils.clip_grad_value_(ps, 0.1)
    assert not any(p.grad.requires_grad for p in ps if p.grad is not None)


def test_transposed_gradient(impl):
    p = impl.nn.Parameter(impl.lib.zeros(3, 2))
    p.grad = impl.lib.ones(2, 3).t()
    assert impl.nn.utils.clip_grad_norm_(p, 1.0).item() == pytest.approx(6**0.5)
    assert p.grad.sum().item() == pytest.approx(6**0.5, rel=1e-5)


def test_what_is_no_tensor():
    with pytest.raises(TypeError, match="expected tensors, got int"):
        mt.nn.utils.get_total_norm([3])
    with pytest.raises(RuntimeError, match="int64; convert with"):
        mt.nn.utils.get_total_norm([mt.tensor([3])])


@needs_torch
def test_two_libraries():
    import torch

    with pytest.raises(TypeError, match="several libraries: numpy, torch"):
        mt.nn.utils.get_total_norm([mt.ones(1), torch.ones(1)])


def test_the_old_name(impl):
    utils = importlib.import_module(f"{impl.nn.__name__}.utils.clip_grad")
    p = impl.nn.Parameter(impl.lib.zeros(2))
    p.grad = impl.lib.tensor([3.0, 4.0])
    with pytest.warns(FutureWarning, match="in favor of"):
        norm = utils.clip_grad_norm([p], 1.0)
    assert float(norm) == 5
    assert p.grad.tolist() == pytest.approx([0.6, 0.8])


@pytest.mark.parametrize("norm_type", [2.0, 3.0])
def test_gradients_of_float16_whose_squares_overflow(norm_type):
    weight = mt.nn.Parameter(mt.zeros(2).half())
    weight.grad = mt.tensor([300.0, 400.0]).half()
    total = mt.nn.utils.clip_grad_norm_([weight], 1.0, norm_type)
    assert total.item() == pytest.approx((300**norm_type + 400**norm_type) ** (1 / norm_type), 1e-3)
    assert weight.grad.tolist() == pytest.approx([300 / total.item(), 400 / total.item()], 1e-2)
