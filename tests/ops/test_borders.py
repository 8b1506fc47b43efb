# SPDX-License-Identifier: BSD-3-Clause
"""Operations at the borders of what they take: bools as numbers, numbers that do not fit, dtypes
without an order, scalars with a dimension, corners of derivatives. The same on torch.
"""

from __future__ import annotations

import math

import numpy as np
import pytest

import modtree as mt

ERRORS = {
    # bools as numbers
    "m.ones(2) - True": RuntimeError,
    "True - m.ones(2)": RuntimeError,
    "m.ones(2) - m.tensor([True, False])": RuntimeError,
    "m.tensor([1]).sub(m.tensor([True]), alpha=3)": RuntimeError,
    "m.tensor([1]).sub_(m.tensor([True]), alpha=3)": RuntimeError,
    "m.tensor([True]) - 1": RuntimeError,
    "m.ones(2).sub_(True)": RuntimeError,
    "m.sub(m.ones(2), m.ones(2), alpha=True)": RuntimeError,
    "m.add(m.ones(2), 1, alpha=1j)": RuntimeError,
    "m.add(m.tensor([1]), 1, alpha=1.5)": RuntimeError,
    "-m.tensor([True])": RuntimeError,
    # numbers where tensors belong
    "m.minimum(m.ones(1), 1.0)": TypeError,
    "m.maximum(1, m.ones(1))": TypeError,
    "m.atan2(m.ones(1), 1.0)": TypeError,
    "m.logaddexp(m.ones(1), 1)": TypeError,
    "m.exp(1.0)": TypeError,
    "m.sort(3.0)": TypeError,
    "m.sort([1.0])": TypeError,
    # numbers that do not fit
    "m.where(m.tensor([True]), 1e300, m.ones(1))": RuntimeError,
    "m.where(m.tensor([True]), 300, m.ones(1, dtype=m.int8))": RuntimeError,
    "m.clamp(m.ones(2), 1j)": RuntimeError,
    "m.clamp(m.ones(2), max=1e300)": RuntimeError,
    "m.ones(2).fill_(1j)": RuntimeError,
    "m.ones(2).fill_(1e300)": RuntimeError,
    "m.ones(2, dtype=m.int64).fill_(math.nan)": RuntimeError,
    "m.ones(2, dtype=m.int64).fill_(math.inf)": RuntimeError,
    "m.full((1,), 1j, dtype=m.float32)": RuntimeError,
    "m.full((1,), 1e300)": RuntimeError,
    "m.full_like(m.ones(1), 1j)": RuntimeError,
    "m.ones(1).new_full((1,), 1j)": RuntimeError,
    "m.scalar_tensor(1e300)": RuntimeError,
    "m.ones(1).masked_fill(m.tensor([True]), 1j)": RuntimeError,
    "m.ones(1).masked_fill_(m.tensor([True]), 1e300)": RuntimeError,
    "m.ones(1).masked_fill(m.tensor([True]), m.ones(1))": RuntimeError,
    "m.ones(2).index_fill(0, m.tensor([0]), 1j)": RuntimeError,
    "m.ones(2).scatter(0, m.tensor([0]), 1j)": RuntimeError,
    "m.ones(2).__setitem__(0, 1j)": RuntimeError,
    "m.ones(2).__setitem__(0, 1e300)": RuntimeError,
    "m.ones(2, dtype=m.int8).__setitem__(0, 300)": RuntimeError,
    "m.addcmul(m.ones(1), m.ones(1), m.ones(1), value=1j)": RuntimeError,
    "m.addcdiv(m.tensor([1]), m.tensor([1]), m.tensor([1]))": RuntimeError,
    "m.tensor([1j], dtype=m.float32)": TypeError,
    "m.tensor([300], dtype=m.uint8)": RuntimeError,
    "m.tensor([-1.5], dtype=m.uint8)": RuntimeError,
    "m.tensor([math.nan], dtype=m.int64)": RuntimeError,
    "m.tensor([2**70])": ValueError,
    "m.ones(1) + 2**70": OverflowError,
    "m.ones(1) == 2**70": OverflowError,
    # dtypes without an order, or without a kernel
    "m.tensor(1j) < m.tensor(1j)": NotImplementedError,
    "m.ones(2) < 1j": NotImplementedError,
    "m.maximum(m.tensor([1j]), m.ones(1))": RuntimeError,
    "m.sort(m.tensor([1j]))": RuntimeError,
    "m.amax(m.tensor([1j]))": NotImplementedError,
    "m.tensor([1j]).clamp(0)": NotImplementedError,
    "m.tensor([1j]).floor()": NotImplementedError,
    "m.abs(m.tensor([True]))": NotImplementedError,
    "m.argmax(m.tensor([True]))": RuntimeError,
    "~m.ones(1)": TypeError,
    # numbers of tensors
    "int(m.ones(2))": ValueError,
    "float(m.ones(0))": ValueError,
    "complex(m.ones(2))": ValueError,
    "m.ones(2).item()": RuntimeError,
    "int(m.tensor(1j))": RuntimeError,
    "float(m.tensor(1j))": RuntimeError,
    # scalars with a dimension
    "m.sort(m.tensor(1.0), dim=5)": IndexError,
    "m.argsort(m.tensor(1.0), dim=1)": IndexError,
    "m.topk(m.tensor(1.0), 1, dim=1)": IndexError,
    "m.cumsum(m.tensor(1.0), 1)": IndexError,
    "m.cumprod(m.tensor(1.0), -2)": IndexError,
    "m.flatten(m.tensor(1.0), 1)": IndexError,
    "m.roll(m.tensor(1.0), 1, 3)": IndexError,
    "m.argmax(m.tensor(1.0), dim=3)": IndexError,
    # shapes
    "m.tril(m.ones(2))": RuntimeError,
    "m.roll(m.ones(2, 2), (1, 2), (0,))": RuntimeError,
    "m.narrow(m.ones(2), 0, 5, 0)": IndexError,
    "m.hstack([])": RuntimeError,
    "m.isclose(m.ones(1), m.ones(1), rtol=-1.0)": RuntimeError,
    "m.linspace(0, 1, -1)": RuntimeError,
    "m.ones(2, dtype=m.int32).logit_()": RuntimeError,
    # dimensions one by one belong to methods
    "m.flip(m.ones(2), 0)": TypeError,
    "m.permute(m.ones(2), 0)": TypeError,
    "m.tile(m.ones(2), 2)": TypeError,
    "m.movedim(m.ones(2, 2), 0, (1,))": TypeError,
    "m.movedim(m.ones(2, 2), (0, 1), (1,))": RuntimeError,
    "m.flip(m.tensor(1.0), (5,))": IndexError,
    "m.ones(2, 2).sum((1, -1, 5))": IndexError,
    # indices
    "m.gather(m.ones(2), 0, m.tensor([0], dtype=m.int16))": RuntimeError,
    "m.take_along_dim(m.ones(2), m.tensor([0], dtype=m.int32), 0)": RuntimeError,
    "m.take_along_dim(m.ones(2), m.tensor([-1]))": RuntimeError,
    "m.take_along_dim(m.ones(2, 3), m.tensor([[0, 0]]), 0)": RuntimeError,
    "m.scatter(m.ones(3), 0, m.tensor([0, 0]), m.ones(1))": RuntimeError,
    "m.scatter_add(m.ones(2, 2), 0, m.tensor([0]), m.ones(2, 2))": RuntimeError,
    "m.scatter_add(m.ones(3), 0, m.tensor([0, 0, 0]), m.ones(1))": RuntimeError,
    "m.ones(2).index_add(0, m.tensor([0], dtype=m.int8), m.ones(1))": RuntimeError,
    "m.ones(2).index_add(0, m.tensor([[0]]), m.ones(1))": IndexError,
    "m.ones(2).index_add(0, m.tensor([-1]), m.ones(1))": IndexError,
    "m.ones(2).index_add(0, m.tensor([0]), m.ones(1).double())": RuntimeError,
    "m.tensor([1]).index_add(0, m.tensor([0]), m.tensor([1]), alpha=1j)": RuntimeError,
    "m.ones(2).index_copy(0, m.tensor([-1]), m.ones(1))": IndexError,
    "m.ones(2).index_copy(0, m.tensor([0], dtype=m.int32), m.ones(1))": RuntimeError,
    "m.ones(2, 2).index_copy(0, m.tensor([0]), m.ones(2))": IndexError,
    "m.ones(2).index_fill(0, m.tensor([0], dtype=m.int32), 1)": IndexError,
    "m.ones(2).index_fill(0, m.tensor([[0]]), 1)": RuntimeError,
    "m.ones(2).index_put((m.tensor([0]),), m.ones(1).double())": RuntimeError,
    "m.ones(2).index_put((m.tensor([0]), m.tensor([0])), m.ones(1))": IndexError,
    "m.ones(2).index_put((m.tensor([0.0]),), m.ones(1))": IndexError,
    "m.ones(2).index_put((m.tensor([0, 1]),), m.ones(1, 2))": RuntimeError,
    # products
    "m.addmm(m.ones(2, 2), m.ones(2, 2).double(), m.ones(2, 2).double())": RuntimeError,
    "m.addmm(m.ones(2, 2), m.ones(2, 2), m.ones(2, 2), beta=1j)": RuntimeError,
    "m.baddbmm(m.ones(1, 1, 1), m.ones(1), m.ones(1, 1, 1))": IndexError,
    # bools, whole numbers, dtypes
    "m.floor_divide(m.tensor([True]), m.tensor([True]))": NotImplementedError,
    "m.div(m.tensor([True]), m.tensor([True]), rounding_mode='trunc')": NotImplementedError,
    "m.fmod(m.tensor([True]), m.tensor([False]))": NotImplementedError,
    "m.pow(m.tensor([True]), m.tensor([True]))": NotImplementedError,
    "+m.tensor([True])": RuntimeError,
    "m.round(m.tensor([1]), decimals=1)": NotImplementedError,
    "m.ones(2).cumsum(0, dtype=m.bool)": NotImplementedError,
    "m.ones(2).cumsum_(0, dtype=m.float64)": RuntimeError,
    "m.lerp(m.ones(1), m.ones(1).double(), 0.5)": RuntimeError,
    "m.lerp(m.ones(1), m.ones(1), m.ones(1).double())": RuntimeError,
    "m.repeat_interleave(m.tensor([1.0]))": NotImplementedError,
    "m.sub(m.tensor([1], dtype=m.int32), 1, alpha=2**40)": RuntimeError,
    # sizes
    "m.split_with_sizes(m.ones(2), [3, -1])": RuntimeError,
    "m.tensor_split(m.tensor(1.0), 2)": RuntimeError,
    "m.tensor_split(m.ones(2), m.tensor([1], dtype=m.int32))": RuntimeError,
    "m.ones(3).unfold(0, 1, -1)": RuntimeError,
    "m.narrow(m.ones(2), 0, 0, -1)": RuntimeError,
    "m.meshgrid([])": RuntimeError,
    "m.arange(math.nan)": RuntimeError,
    "m.broadcast_shapes((1,), (-1,))": ValueError,
    "m.broadcast_shapes((2,), (-1,))": RuntimeError,
    "m.max(m.tensor([1j]))": NotImplementedError,
    "m.ones(2).repeat_interleave()": TypeError,
    "m.ones(1).masked_fill(m.tensor([True]), m.tensor(1j))": RuntimeError,
    "m.ones(0).index_add(0, m.tensor([0]), m.ones(1))": IndexError,
    "m.tensor([True]).square_()": RuntimeError,
    "m.zeros(0, dtype=m.bool) % m.tensor(False)": NotImplementedError,
    "m.zeros(2, 0, dtype=m.int64) // m.zeros(3, 1, dtype=m.int64)": RuntimeError,
    # masks and values of other shapes, where nothing is chosen
    "m.ones(3, 2)[m.zeros(0).bool()]": IndexError,
    "m.ones(3, 2)[m.zeros(3, 0).bool()]": IndexError,
    "m.ones(3, 2)[..., m.zeros(0).bool()]": IndexError,
    "m.ones(3, 2)[1, m.zeros(0).bool()]": IndexError,
    "m.ones(3, 2).__setitem__(m.zeros(0).bool(), 1)": IndexError,
    "m.ones(3, 2).index_put((m.zeros(0).bool(),), m.tensor(1.0))": IndexError,
    "m.ones(3, 2).index_put((m.tensor([0]), m.zeros(0).bool()), m.tensor(1.0))": IndexError,
    "m.ones(3).__setitem__([], m.ones(1, 2, 0))": RuntimeError,
    "m.ones(0).__setitem__([], m.ones(3, 0))": RuntimeError,
    "m.ones(3).index_put((m.zeros(0).long(),), m.ones(3, 2, 0))": RuntimeError,
    "m.ones(0).__setitem__([0], m.ones(2))": IndexError,
    "m.ones(0).index_put((m.tensor([0]),), m.ones(2))": IndexError,
    # tensors without dimensions as numbers
    "m.tensor([1]).masked_fill(m.tensor([True]), m.tensor(1j))": RuntimeError,
    # of a batch of nothing too
    "f.conv_transpose1d(m.ones(1, 1, 3), m.ones(1, 1, 3), None, 2, 0, -1)": RuntimeError,
    "f.conv_transpose2d(m.ones(0, 1, 3, 3), m.ones(1, 1, 3, 3), None, 2, 0, -1)": RuntimeError,
    "m.linalg.solve(m.eye(1), m.ones(1), left=False)": RuntimeError,
    "f.max_pool1d(m.ones(1, 9), 3, padding=2, dilation=3)": RuntimeError,
    "f.max_pool2d(m.ones(1, 9, 9), 3, padding=(0, 2), dilation=3)": RuntimeError,
    "f.cross_entropy(m.ones(0, 3, 2, 2), m.tensor(1))": RuntimeError,
    "f.instance_norm(m.ones(0), m.ones(1), m.ones(1), use_input_stats=False)": IndexError,
    "f.instance_norm(m.ones(0, 3, 2).byte(), m.zeros(3), m.ones(3))": RuntimeError,
    "m.instance_norm(m.ones(0, 1).byte(), None, None, m.ones(1), m.ones(1), True, 1, 1, False)": (
        RuntimeError
    ),
}


@pytest.mark.parametrize("line", ERRORS)
def test_what_is_refused(lib, line):
    with pytest.raises(ERRORS[line]) as caught:
        eval(line, {"m": lib, "f": lib.nn.functional, "math": math})
    assert isinstance(caught.value, ERRORS[line])


# Values, each with its dtype.
RESULTS = {
    # a single power of integers, of an exponent that is none
    # numbers as tensors
    "m.nn.functional.celu(m.zeros(1), m.tensor(2.0, dtype=m.float64))": ([0.0], "float32"),
    # bytes as classes, where there are none
    "m.nn.functional.nll_loss(m.zeros(0, 3, 2), m.zeros(0, 2, dtype=m.uint8), reduction='sum')": (
        0.0,
        "float32",
    ),
    "m.tensor([True]) * True": ([True], "bool"),
    "m.ones(1) * True": ([1.0], "float32"),
    "m.ones(1, dtype=m.int8) / True": ([1.0], "float32"),
    "m.ones(1, dtype=m.uint8) + 2**63": ([1], "uint8"),
    "m.tensor([1]) + 2**63": ([-(2**63) + 1], "int64"),
    "m.tensor([-1], dtype=m.uint8)": ([255], "uint8"),
    "m.tensor([2**70], dtype=m.float64)": ([2.0**70], "float64"),
    "m.add(m.tensor([3.0]), m.tensor([2], dtype=m.uint8), alpha=-200)": ([-397.0], "float32"),
    "m.add(m.tensor([-4], dtype=m.int8), 1.0, alpha=300)": ([296.0], "float32"),
    "m.addcmul(m.tensor([0]), m.tensor([1]), m.tensor([4]), value=1.0)": ([4], "int64"),
    "m.mul(-1.5, 1j)": (-1.5j, "complex64"),
    "m.square(m.tensor([True]))": ([1], "int64"),
    "m.zeros(0, dtype=m.int32) // 0": ([], "int32"),
    "m.zeros(0, dtype=m.uint8) % m.tensor(0, dtype=m.uint8)": ([], "uint8"),
    "m.div(m.zeros(0, 1, dtype=m.int64), m.tensor([0, 0]), rounding_mode='trunc')": ([], "int64"),
    "m.zeros(0, dtype=m.bool).remainder(0)": ([], "int64"),
    "m.conj(m.tensor([True]))": ([True], "bool"),
    "m.trace(m.ones(2, 2, dtype=m.uint8))": (2, "int64"),
    "m.all(m.tensor([1, 0]), [])": ([True, False], "bool"),
    "m.roll(m.tensor([1, 0, 3]), 1, [])": ([3, 1, 0], "int64"),
    "m.linspace(0, 1j, 2)": ([0j, 1j], "complex64"),
    "m.arange(0.5, dtype=m.int64)": ([], "int64"),
    "m.cumsum(m.tensor(3.0), -1)": (3.0, "float32"),
    "m.repeat_interleave(m.tensor([1, 2]))": ([0, 1, 1], "int64"),
    "m.var(m.zeros(0, dtype=m.complex64)).isnan()": (True, "bool"),
    "m.logit(m.tensor([-3.0, 5.0]), 0.5)": ([0.0, 0.0], "float32"),
    "m.addmm(*[m.ones(1, 1, dtype=m.int8)] * 3, beta=2.5, alpha=1.7)": ([[3]], "int8"),
    "m.addmm(m.zeros(1), m.tensor([[math.inf]]), m.ones(1, 1), alpha=0)": ([[0.0]], "float32"),
    "m.add(m.tensor([False]), True, alpha=3)": ([True], "bool"),
    "m.addcmul(m.tensor([True]), m.tensor([1]), m.tensor([4]))": ([5], "int64"),
    "m.tensor(2).mT": (2, "int64"),
    "m.repeat_interleave(m.tensor([2, 0], dtype=m.int32))": ([0, 0], "int32"),
    "m.tensor(3, dtype=m.uint8).sum_to_size(())": (3, "int64"),
    "m.take_along_dim(m.tensor([1, 2]), m.tensor([-1]), 0)": ([2], "int64"),
    "m.tensor([1]).index_add(0, m.tensor([0]), m.tensor([2]), alpha=2.0)": ([5], "int64"),
    "m.zeros(1, 2).index_put((m.tensor([[True, False]]),), m.ones(1, 1))": (
        [[1.0, 0.0]],
        "float32",
    ),
    "m.arange(8).reshape(2, 2, 2)[:, m.tensor([0]), m.tensor(1)]": ([[1], [5]], "int64"),
    "m.arange(8).reshape(2, 2, 2)[[1], :, m.tensor(1)]": ([[5, 7]], "int64"),
    "m.ones(3, 0)[m.zeros(3, 0).bool()]": ([], "float32"),
    "m.ones(2, 0).index_put((m.zeros(2, 0).bool(),), m.tensor(1.0))": ([[], []], "float32"),
    "m.ones(1, 1).index_put((m.tensor(True), m.ones(1, 1).bool()), m.tensor(5.0))": (
        [[5.0]],
        "float32",
    ),
    "m.tensor([True, False]).copy_(m.tensor(1j))": ([True, True], "bool"),
    "m.tensor([5, 5]).copy_(m.tensor(2 + 1j))": ([2, 2], "int64"),
    "m.tensor([False]).masked_fill(m.tensor([True]), m.tensor(1j))": ([True], "bool"),
    "m.norm(m.tensor([300.0, 400.0]).half())": (500.0, "float16"),
    "m.norm(m.tensor([[3000.0, 4000.0]]).half(), dim=1)": ([5000.0], "float16"),
    "m.norm(m.tensor([2.0**-13, 0.0]).half())": (2.0**-13, "float16"),
    "f.normalize(m.tensor([[3000.0, 4000.0]]).half()) > 0.5": ([[True, True]], "bool"),
    "m.norm(m.full((1,), 2.0**100))": (2.0**100, "float32"),
    "f.embedding(m.zeros(0).long(), m.ones(1, 2).long(), None, 1)": ([], "int64"),
}


@pytest.mark.parametrize("line", RESULTS)
@pytest.mark.filterwarnings("ignore")
def test_results(lib, line):
    result = eval(line, {"m": lib, "f": lib.nn.functional, "math": math})
    values, dtype = RESULTS[line]
    assert str(result.dtype).rpartition(".")[2] == dtype
    assert result.tolist() == values


@pytest.mark.parametrize("index", [(slice(None), [0, 1], slice(None), 1), ([0, 1], slice(1), 1)])
def test_numbers_as_tensors_beside_index_arrays(lib, index):
    """They come before the arrays, as ints do, and what they choose can be written."""
    x, y = lib.arange(36).reshape(2, 3, 3, 2), lib.arange(36).reshape(2, 3, 3, 2)
    as_tensors = (*index[:-1], lib.tensor(index[-1]))
    assert x[as_tensors].tolist() == y[index].tolist()
    x[as_tensors] = 100
    y[index] = 100
    assert x.tolist() == y.tolist()
    assert (x == 100).any()


@pytest.mark.filterwarnings("ignore:indexing with dtype")
@pytest.mark.parametrize("mask", [[0, 1, 2], [0, 0, 0], 1])
def test_bytes_are_masks(lib, mask):
    x = lib.arange(6).reshape(3, 2)
    bools = lib.tensor(mask).bool()
    assert x[lib.tensor(mask, dtype=lib.uint8)].tolist() == x[bools].tolist()


@pytest.mark.filterwarnings("ignore:indexing with dtype")
def test_a_number_may_be_assigned_by_a_mask_of_bytes():
    x, mask = mt.zeros(3), mt.tensor([0, 1, 2], dtype=mt.uint8)
    x[mask] = 9
    assert x.tolist() == x.index_put((mask,), mt.tensor(9.0)).tolist() == [0.0, 9.0, 9.0]


def test_the_root_of_float16_is_not_rounded_before_its_reciprocal():
    """torch's vectorized kernel does the same, for eight elements and more."""
    x = np.linspace(0.001, 60000, 4096).astype(np.float16)
    exact = (1 / np.sqrt(x.astype(float))).astype(np.float16)
    assert mt.from_numpy(x).rsqrt().tolist() == exact.tolist()


def test_bools_are_sizes(lib):
    assert tuple(lib.broadcast_shapes([2], True)) == (2,)
    assert tuple(lib.broadcast_shapes([False], 1)) == (0,)


def test_bytes_as_a_mask_warn(lib):
    with pytest.warns(UserWarning, match="deprecated"):
        lib.ones(2)[lib.tensor([0, 1], dtype=lib.uint8)]


def test_a_number_as_a_tensor_chooses_a_view(lib):
    x = lib.ones(2, 2)
    x[lib.tensor(1)].zero_()
    assert x.tolist() == [[1.0, 1.0], [0.0, 0.0]]


@pytest.mark.parametrize("name", ["logaddexp", "logcumsumexp"])
def test_logarithms_of_sums_of_complex_numbers(lib, name):
    x = lib.tensor([1 + 2j, -3 + 1j, 5j], dtype=lib.complex128, requires_grad=True)

    def function(x):
        return lib.logcumsumexp(x, 0) if name == "logcumsumexp" else lib.logaddexp(x, x.flip(0))

    y = function(x)
    exact = np.exp(x.detach().numpy())
    exact = np.cumsum(exact) if name == "logcumsumexp" else exact + exact[::-1]
    np.testing.assert_allclose(y.detach().numpy(), np.log(exact))
    y.abs().sum().backward()
    with lib.no_grad():
        gained = (function(x + 1e-6 * x.grad).abs().sum() - y.abs().sum()).item()
    assert gained == pytest.approx((x.grad.abs() ** 2).sum().item() * 1e-6, rel=1e-3)


def test_indices_beyond_a_dimension_do_not_wrap_around():
    with pytest.raises(IndexError):
        mt.take_along_dim(mt.ones(2), mt.tensor([2]), 0)


@pytest.mark.parametrize("other", [True, False])
@pytest.mark.parametrize("function", ["x * b", "b * x", "x + b", "x / (b + 1)", "x ** b"])
def test_gradients_with_bools(lib, function, other):
    x = lib.tensor([2.0, 3.0], requires_grad=True)
    eval(function, {"x": x, "b": other}).sum().backward()
    y = lib.tensor([2.0, 3.0], requires_grad=True)
    eval(function, {"x": y, "b": int(other)}).sum().backward()
    assert x.grad.tolist() == y.grad.tolist()


def test_gradient_of_a_quotient_by_true(lib):
    x = lib.tensor([2.0], requires_grad=True)
    (x / True).backward()
    assert x.grad.tolist() == [1.0]


# Functions and the points at which the slope is compared.
CORNERS = [0.0, -0.0, 0.5, -0.5, 1.0, -1.0, 3.0, -3.0, 6.0, 20.0, 1e4, -1e4]
ACTIVATIONS = (
    "relu6 hardtanh hardswish hardsigmoid relu leaky_relu elu celu selu softplus softshrink "
    "hardshrink silu mish gelu logsigmoid"
).split()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("again", [False, True])
def test_corners_of_activations(lib, name, dtype, again, torch):
    """An infinite gradient stays out of where the slope is 0, and no corner gives NaN."""
    slopes = []
    for m in (torch, lib):
        x = m.tensor(CORNERS, dtype=getattr(m, dtype), requires_grad=True)
        y = getattr(m.nn.functional, name)(x)
        (slope,) = m.autograd.grad(y, x, m.ones_like(y), create_graph=again)
        slopes.append(slope.detach().numpy().astype(float))
    np.testing.assert_allclose(slopes[1], slopes[0], rtol=1e-2, atol=1e-3)
    assert np.isfinite(slopes[1]).all()


@pytest.mark.parametrize("dtype", ["float16", "float32"])
@pytest.mark.parametrize(
    "name", ["relu6", "hardtanh", "hardsigmoid", "hardshrink", "softshrink", "hardswish"]
)
def test_infinite_gradients_at_corners(lib, name, dtype):
    flat = {"hardsigmoid": 4.0, "hardswish": -4.0, "hardshrink": 0.1, "softshrink": 0.1}
    x = lib.tensor([flat.get(name, -2.0)], dtype=getattr(lib, dtype), requires_grad=True)
    y = getattr(lib.nn.functional, name)(x)
    (slope,) = lib.autograd.grad(y, x, lib.full_like(y, math.inf))
    assert slope.tolist() == [0.0]


def test_gradient_of_nan_through_hardtanh(lib):
    x = lib.tensor([math.nan], dtype=lib.float64, requires_grad=True)
    lib.nn.functional.relu6(x).backward()
    assert x.grad.tolist() == [1.0]


def test_numbers_beside_tensors_in_functions_of_numpy():
    """NumPy's functions take numbers where torch's take tensors only."""
    assert np.maximum(mt.zeros(2), 1.0).tolist() == [1.0, 1.0]
    assert np.arctan2(mt.zeros(2), 1).dtype == mt.float32


@pytest.mark.parametrize("function", ["floor_divide", "div"])
def test_the_smallest_integer_by_minus_1(function):
    """torch's process stops."""
    x = mt.tensor([-(2**31)], dtype=mt.int32)
    how = {"rounding_mode": "trunc"} if function == "div" else {}
    assert getattr(mt, function)(x, -1, **how).tolist() == [-(2**31)]
    assert mt.fmod(x, -1).tolist() == mt.remainder(x, -1).tolist() == [0]


def test_a_view_of_the_same_dtype_has_a_gradient():
    x = mt.ones(2, requires_grad=True)
    x.view(mt.float32).sum().backward()
    assert x.grad.tolist() == [1.0, 1.0]


@pytest.mark.parametrize("x", [math.inf, -math.inf])
def test_slope_of_acosh_at_complex_infinity(lib, x):
    leaf = lib.tensor(x, dtype=lib.complex128, requires_grad=True)
    lib.acosh(leaf).backward(lib.ones_like(leaf))
    assert leaf.grad.item() == 0
