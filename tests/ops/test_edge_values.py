# SPDX-License-Identifier: BSD-3-Clause
"""Values and gradients where numbers end: at infinities, NaN and zeros, of few bits, of no
elements. What torch is asked for too, it gives.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import modtree as mt

INF, NAN = math.inf, math.nan


def same(result, expected):
    np.testing.assert_allclose(np.asarray(result), np.asarray(expected), rtol=1e-5, atol=1e-7)


def test_complex_numbers_of_infinite_parts(lib):
    z = lib.complex(lib.tensor([INF, 1.0]), lib.tensor([2.0, -INF]))
    assert z.real.tolist() == [INF, 1.0]
    assert z.imag.tolist() == [2.0, -INF]
    assert lib.polar(lib.tensor(INF), lib.tensor(1.0)).real == INF


def test_gradients_of_complex_numbers_in_their_parts(lib):
    a, b = (lib.tensor([v], dtype=lib.float64, requires_grad=True) for v in (2.0, 0.5))
    (lib.complex(a, b) * (3 - 1j)).real.sum().backward()
    assert (a.grad.item(), b.grad.item()) == (3.0, 1.0)
    a.grad = b.grad = None
    (lib.polar(a, b) * (3 - 1j)).real.sum().backward()
    same(a.grad, [3 * math.cos(0.5) + math.sin(0.5)])
    same(b.grad, [2 * (math.cos(0.5) - 3 * math.sin(0.5))])


def test_the_gradient_of_polar_is_its_derivative():
    size = mt.tensor([0.0, -1.0], requires_grad=True)
    mt.polar(size, mt.tensor([0.5, 0.5])).real.sum().backward()
    same(size.grad, [math.cos(0.5)] * 2)


def test_slopes_at_infinity(lib):
    x = lib.tensor([INF], requires_grad=True)
    lib.digamma(x).backward()
    assert x.grad.tolist() == [0.0]


def test_factors_of_float16_stay_in_float32(lib):
    x = lib.tensor([0.001, -2.0], dtype=lib.float16)
    assert (x * 1e5).tolist() == [100.0625, -INF]
    assert (x / 1e5).tolist() == [0.0, -2.002716064453125e-05]
    assert (1e5 / x * 0).isnan().tolist() == [True, False]
    assert x.mul_(1e5).tolist() == [100.0625, -INF]
    leaf = lib.tensor([1.0], dtype=lib.float16, requires_grad=True)
    (leaf * 65536.0 * 2.0**-10).backward()
    assert leaf.grad.isfinite().all()


def test_roots_of_minus_infinity_and_minus_zero(lib):
    assert lib.tensor([-INF], dtype=lib.float16).pow(0.5).tolist() == [INF]
    assert lib.tensor([-INF]).pow(0.5).isnan().all()
    assert lib.tensor([-0.0]).pow(-0.5).tolist() == [-INF]
    assert lib.tensor([4.0]).pow(-2).tolist() == [0.0625]


def test_no_power_has_no_slope():
    x = mt.zeros(1, requires_grad=True)
    (x**False).backward()
    assert x.grad.tolist() == [0.0]


def test_slope_of_acosh_on_its_branch_cut(lib):
    x = lib.tensor(complex(-2.5, -0.0), dtype=lib.complex128, requires_grad=True)
    lib.acosh(x).backward(lib.tensor(1 + 0j, dtype=lib.complex128))
    assert x.grad.real.item() < 0


def test_float16_is_rounded_in_float32(lib):
    x = lib.tensor([1.949, 3.0], dtype=lib.float16)
    assert lib.round(x, decimals=1).tolist() == [1.900390625, 3.0]


def test_numbers_whose_product_is_beyond_64_bits(lib):
    assert lib.add(lib.tensor([1]), 2**62, alpha=4).tolist() == [1]
    same(lib.add(lib.tensor([1.0]), 2**40, alpha=2**40), [2.0**80])


def test_factors_as_tensors_leave_the_dtype(lib):
    x = lib.tensor([2.0])
    assert lib.addcdiv(x, x, x, value=lib.tensor(2, dtype=lib.int64)).dtype == lib.float32


def test_weights_without_dimensions_make_floats_of_integers(lib):
    x = lib.lerp(lib.tensor([1]), lib.tensor([2]), lib.tensor(0.5))
    assert (x.dtype, x.tolist()) == (lib.float32, [1.5])


def test_bools_are_limited_by_one_tensor(lib):
    x, limit = lib.tensor([True, False]), lib.tensor([False, False])
    assert lib.clamp(x, max=limit).tolist() == [False, False]
    assert x.clamp_(min=limit).tolist() == [True, False]


def test_fill_casts_a_tensor(lib):
    x = lib.ones(1, dtype=lib.int8)
    assert x.fill_(lib.tensor(1000)).tolist() == [-24]


def test_numbers_are_copied(lib):
    x = lib.ones(2, dtype=lib.int8)
    assert x.copy_(300).tolist() == [44, 44]
    assert x.copy_(2.7).tolist() == [2, 2]
    with pytest.raises(OverflowError):
        x.copy_(2**70)
    leaf = lib.ones(2, requires_grad=True)
    y = leaf * 1
    y.copy_(3).sum().backward()
    assert leaf.grad.tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore")
def test_sequences_are_spaced_from_both_ends(lib):
    assert lib.linspace(-1.5, 2.7, 7, dtype=lib.int32).tolist() == [-1, 0, 0, 0, 1, 1, 2]
    assert lib.linspace(0, NAN, 1).tolist() == [0.0]
    assert lib.linspace(0, INF, 3)[0].isnan()


def test_a_mask_takes_values_behind_sizes_of_1(lib):
    x, values = lib.zeros(1, 3), lib.tensor([[5.0, 6.0]], requires_grad=True)
    x[lib.tensor([[True, False, True]])] = values
    assert x.tolist() == [[5.0, 0.0, 6.0]]
    x.sum().backward()
    assert values.grad.tolist() == [[1.0, 1.0]]


def test_bools_beside_ints_in_an_index_stay_in_their_place(lib):
    x = lib.zeros(3, 2, 4)
    assert x[1, :, True].shape == (2, 1, 4)
    assert x[-2, ..., False].shape == (2, 4, 0)
    assert x[1, :, True, [0, 1]].shape == (2, 2)


def test_a_source_without_dimensions_is_one_factor(lib):
    x, source = lib.tensor([3.0]), lib.tensor(2.0, requires_grad=True)
    x.scatter_reduce(0, lib.tensor([0]), source, "prod").sum().backward()
    assert source.grad.item() == 3.0


def test_nothing_is_scattered_without_indices(lib):
    source = lib.tensor(2.0, requires_grad=True)
    (lib.zeros(3).scatter_add(0, lib.zeros(0, dtype=lib.int64), source).sum()).backward()
    assert source.grad.item() == 0.0


@pytest.mark.parametrize("mode", ["sum", "prod", "amax"])
def test_nothing_is_reduced_without_indices(lib, mode):
    x, source = lib.ones(2, 2, requires_grad=True), lib.tensor(2.0, requires_grad=True)
    y = x.scatter_reduce(1, lib.zeros(0, dtype=lib.int64), source, mode)
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [[1.0, 1.0], [1.0, 1.0]]
    assert source.grad.item() == 0.0


@pytest.mark.parametrize("shape", [(0, 1, 2), (0,), (0, 5), (2, 0)])
def test_nothing_is_gathered_by_an_index_without_elements(lib, shape):
    x = lib.ones(2, 2, requires_grad=True)
    y = x.gather(0, lib.zeros(shape, dtype=lib.int64))
    assert y.shape == shape
    y.sum().backward()
    assert x.grad.tolist() == [[0.0, 0.0], [0.0, 0.0]]


@pytest.mark.filterwarnings("ignore:Casting complex")
def test_products_of_real_parts_have_their_gradient(lib):
    x = lib.tensor([2 + 1j, 3 - 4j], requires_grad=True)
    x.prod(dtype=lib.float32).backward()
    assert x.grad.tolist() == [3 + 0j, 2 + 0j]


@pytest.mark.filterwarnings("ignore:Casting complex")
def test_running_products_of_real_parts_have_their_gradient():
    """torch divides by the complex factors."""
    x = mt.tensor([2 + 1j, 3 - 4j], requires_grad=True)
    x.cumprod(0, dtype=mt.float32).sum().backward()
    assert x.grad.tolist() == [4 + 0j, 2 + 0j]


def test_a_value_to_scatter_may_be_a_tensor_of_one_element(lib):
    x = lib.zeros(1, 2).scatter(1, lib.tensor([[0, 1]]), value=lib.tensor(3))
    assert x.tolist() == [[3.0, 3.0]]


def test_a_list_of_lists_is_one_index():
    assert mt.arange(6).reshape(2, 3)[[[0, 1], [1, 0]]].shape == (2, 2, 3)


def test_a_size_to_broadcast_to_may_be_a_number(lib):
    assert lib.ones(1).broadcast_to(2).tolist() == [1.0, 1.0]


def test_nothing_is_copied_by_an_index_out_of_range(lib):
    x = lib.zeros(2, 0, requires_grad=True)
    x.index_copy(0, lib.tensor([0, 7]), lib.zeros(2, 0)).sum().backward()
    assert x.grad.shape == (2, 0)


def test_nothing_is_assigned_where_the_index_is_false(lib):
    x, value = lib.ones(2, requires_grad=True), lib.tensor(5.0, requires_grad=True)
    x[False] = value  # a leaf, which may not be written
    x[False] = lib.ones(7)
    y = x * 2
    y[False] = value
    y.sum().backward()
    assert y.tolist() == x.grad.tolist() == [2.0, 2.0]
    assert value.grad is None


def test_sums_of_nothing_are_0_whatever_the_factor(lib):
    x, nothing = lib.ones(1, 1), lib.ones(1, 0)
    assert lib.addmm(x, nothing, nothing.T, alpha=INF).tolist() == [[1.0]]


def test_the_slope_of_a_root_at_minus_zero(lib):
    x = lib.tensor([-0.0, 0.0], requires_grad=True)
    x.pow(0.5).sum().backward()
    assert x.grad.tolist() == [-INF, INF]


def test_what_is_not_contiguous_is_looked_up():
    x = mt.tensor([[1, 2], [3, 4]])
    assert mt.take_along_dim(x, mt.tensor([[0, 1], [2, 3]]).t()).tolist() == [1, 3, 2, 4]


def test_remainders_of_quotients_that_overflow():
    for count in (1, 100):
        x = mt.full((count,), 1e30).remainder(mt.full((count,), 1e-20))
        assert x.isfinite().all()


def test_views_of_nothing():
    assert mt.ones(2, 0).view(mt.int64).shape == (2, 0)


def test_repeated_no_times_has_a_gradient_of_zeros(lib):
    x = lib.ones(2, requires_grad=True)
    x.repeat(3, 0).sum().backward()
    assert x.grad.tolist() == [0.0, 0.0]
