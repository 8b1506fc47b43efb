# SPDX-License-Identifier: BSD-3-Clause
"""Operations in place that compute in the tensor's own memory: values, versions and gradients are
those of the operation that makes a new tensor.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import modtree as mt

F = mt.nn.functional

#: Name -> (in place, into a new tensor) of x and of another tensor of its shape.
CHANGES: dict[str, tuple[Any, Any]] = {
    "relu": (lambda x, y: F.relu_(x), lambda x, y: F.relu(x)),
    "sigmoid": (lambda x, y: x.sigmoid_(), lambda x, y: x.sigmoid()),
    "silu": (lambda x, y: F.silu(x, inplace=True), lambda x, y: F.silu(x)),
    "leaky_relu": (lambda x, y: F.leaky_relu_(x, 0.1), lambda x, y: F.leaky_relu(x, 0.1)),
    "hardtanh": (lambda x, y: F.hardtanh_(x, -0.5, 0.7), lambda x, y: F.hardtanh(x, -0.5, 0.7)),
    "relu6": (lambda x, y: F.relu6(x, inplace=True), lambda x, y: F.relu6(x)),
    "hardswish": (lambda x, y: F.hardswish(x, inplace=True), lambda x, y: F.hardswish(x)),
    "hardsigmoid": (lambda x, y: F.hardsigmoid(x, inplace=True), lambda x, y: F.hardsigmoid(x)),
    "threshold": (lambda x, y: F.threshold_(x, 0.1, 0.3), lambda x, y: F.threshold(x, 0.1, 0.3)),
    "elu": (lambda x, y: F.elu(x, inplace=True), lambda x, y: F.elu(x)),
    "clamp": (lambda x, y: x.clamp_(-0.5, 0.5), lambda x, y: x.clamp(-0.5, 0.5)),
    "clamp by tensor": (lambda x, y: x.clamp_(min=y), lambda x, y: x.clamp(min=y)),
    "sign": (lambda x, y: x.sign_(), lambda x, y: x.sign()),
    "erf": (lambda x, y: x.erf_(), lambda x, y: x.erf()),
    "pow 2": (lambda x, y: x.pow_(2), lambda x, y: x.pow(2)),
    "pow 3": (lambda x, y: x.pow_(3), lambda x, y: x.pow(3)),
    "pow 4": (lambda x, y: x.pow_(4), lambda x, y: x.pow(4)),
    "lerp": (lambda x, y: x.lerp_(y, 0.25), lambda x, y: x.lerp(y, 0.25)),
    "lerp far": (lambda x, y: x.lerp_(y, 0.75), lambda x, y: x.lerp(y, 0.75)),
    "addcmul": (
        lambda x, y: x.addcmul_(y, y, value=0.5),
        lambda x, y: mt.addcmul(x, y, y, value=0.5),
    ),
    "addcmul row": (
        lambda x, y: x.addcmul_(y[:1], y[:, :1], value=2),
        lambda x, y: mt.addcmul(x, y[:1], y[:, :1], value=2),
    ),
    "addcdiv": (
        lambda x, y: x.addcdiv_(y, y + 4, value=0.5),
        lambda x, y: mt.addcdiv(x, y, y + 4, value=0.5),
    ),
}
changes = pytest.mark.parametrize("name", CHANGES)

#: How the tensor that is changed lies in memory; each has 40 x 60 values.
LAYOUTS: dict[str, Any] = {
    "contiguous": lambda v: mt.from_numpy(v.copy()),
    "transposed": lambda v: mt.from_numpy(np.ascontiguousarray(v.T)).t(),
    "every second": lambda v: mt.from_numpy(np.repeat(v, 2, axis=1))[:, ::2],
    "rows": lambda v: mt.from_numpy(np.concatenate([v, v, v]))[40:80],
    "backward in memory": lambda v: mt.from_numpy(v[::-1].copy()).flip(0),
}


def numbers(seed: int, dtype: str = "float32", shape: tuple[int, ...] = (40, 60)) -> Any:
    values = np.random.default_rng(seed).standard_normal(shape)
    values.flat[:5] = [0.0, -0.0, np.inf, -np.inf, np.nan]
    return values.astype(dtype)


def same(got: Any, expected: Any) -> None:
    assert got.dtype == expected.dtype
    np.testing.assert_array_equal(got.numpy(), expected.numpy())
    np.testing.assert_array_equal(np.signbit(got.numpy()), np.signbit(expected.numpy()))


@pytest.mark.filterwarnings("ignore")
@changes
@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
def test_values(name, layout, dtype):
    change, operation = CHANGES[name]
    x = LAYOUTS[layout](numbers(0, dtype))
    y = mt.from_numpy(numbers(1, dtype))
    expected = operation(x.clone(), y)
    place, strides, version = x.data_ptr(), x.stride(), x._version
    result = change(x, y)
    assert result is x
    assert (x.data_ptr(), x.stride(), x._version) == (place, strides, version + 1)
    same(x, expected)


@changes
@pytest.mark.parametrize("shape", [(), (1,), (3, 1), (40, 60), (0, 3)], ids=str)
def test_sizes(name, shape):
    change, operation = CHANGES[name]
    values = np.random.default_rng(2).standard_normal((2, *shape)).astype("float32")
    if name == "addcmul row" and len(shape) < 2:
        pytest.skip("has no rows")
    x, y = mt.tensor(values[0]), mt.tensor(values[1])
    expected = operation(x.clone(), y)
    same(change(x, y), expected)


@changes
def test_gradients(name):
    change, operation = CHANGES[name]
    values = [np.random.default_rng(i).standard_normal((40, 60)) for i in (0, 1, 2)]

    def gradients(run: Any) -> Any:
        x, y = (mt.tensor(v, requires_grad=True) for v in values[:2])
        run(x * 1, y * 1).backward(mt.tensor(values[2]))
        return [t.grad for t in (x, y) if t.grad is not None]

    for got, expected in zip(gradients(change), gradients(operation), strict=True):
        same(got, expected)


@changes
def test_what_was_saved_is_known_to_have_changed(name):
    x = mt.tensor(numbers(0, "float64"), requires_grad=True)
    hidden = x * 1
    saved = hidden * hidden
    CHANGES[name][0](hidden, mt.ones(40, 60, dtype=mt.float64))
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        saved.sum().backward()


@changes
def test_leaves_that_want_gradients_are_refused(name):
    x = mt.tensor(numbers(0), requires_grad=True)
    with pytest.raises(RuntimeError, match="leaf"):
        CHANGES[name][0](x, mt.ones(40, 60))
    same(x.detach(), mt.tensor(numbers(0)))
    assert x._version == 0


@changes
def test_expanded_tensors_are_refused(name):
    x = mt.tensor(numbers(0, shape=(1, 60)))
    with pytest.raises(RuntimeError, match="single memory location"):
        CHANGES[name][0](x.expand(40, 60), mt.ones(40, 60))
    same(x, mt.tensor(numbers(0, shape=(1, 60))))


@pytest.mark.filterwarnings("ignore")
@changes
def test_read_only_memory_is_not_written(name):
    values = numbers(0)
    values.flags.writeable = False
    x = mt.from_numpy(values)
    with pytest.raises((RuntimeError, ValueError), match="read-only"):
        CHANGES[name][0](x, mt.ones(40, 60))
    np.testing.assert_array_equal(values, numbers(0))


def test_operands_that_overlap():
    values = np.random.default_rng(0).standard_normal(5000).astype("float32")

    def both(change: Any) -> None:
        x = mt.tensor(values)
        expected = values.copy()
        copies = [mt.tensor(part) for part in (values[1:], values[:-1])]
        change(x[1:], x[:-1])
        change(*copies)
        expected[1:] = copies[0].numpy()
        np.testing.assert_array_equal(x.numpy(), expected)

    both(lambda x, y: x.addcmul_(y, y))
    both(lambda x, y: x.addcmul_(x, y))
    both(lambda x, y: x.addcdiv_(y, x))
    both(lambda x, y: x.lerp_(y, 0.3))
    both(lambda x, y: x.lerp_(y, 0.8))
    both(lambda x, y: x.lerp_(y, y))
    both(lambda x, y: x.clamp_(min=y))
    both(lambda x, y: x.pow_(y.abs()))


@pytest.mark.parametrize(
    "change",
    [
        lambda x, y: x.addcmul_(y, y),
        lambda x, y: x.addcdiv_(y, y),
        lambda x, y: x.lerp_(y, 0.25),
        lambda x, y: x.lerp_(y, 0.75),
        lambda x, y: x.clamp_(min=y),
    ],
)
def test_results_of_another_shape_are_refused(change):
    x = mt.ones(60)
    with pytest.raises(RuntimeError, match="shape"):
        change(x, mt.full((40, 60), 3.0))
    same(x, mt.ones(60))


def test_integers():
    x = mt.tensor(np.arange(-2000, 2000))
    for change, operation in (CHANGES["relu"], CHANGES["sign"], CHANGES["pow 2"]):
        y = x.clone()
        expected = operation(x, None)
        same(change(y, None), expected)
    with pytest.raises(RuntimeError, match="can't be cast"):
        x.clone().sigmoid_()
