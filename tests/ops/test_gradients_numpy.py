# SPDX-License-Identifier: BSD-3-Clause
"""NumPy's functions on tensors: values as NumPy gives them, gradients as finite differences say,
and refusals where a gradient would be lost.
"""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt

MATRIX = np.array([[2.0, -1.0, 0.5], [0.25, 3.0, -2.0]])
SQUARE = np.array([[3.0, 0.5, -0.25], [0.75, 2.0, 0.5], [-0.5, 0.25, 4.0]])
CUBE = np.linspace(-1.3, 2.1, 24).reshape(2, 3, 4)
VECTOR = np.array([0.5, -1.5, 2.5])
POSITIVE = SQUARE @ SQUARE.T

# How it is called, and with which arrays; each argument gets a gradient.
CALLS = {
    "transpose": (lambda x: np.transpose(x), CUBE),
    "transpose, axes": (lambda x: np.transpose(x, axes=(2, 0, 1)), CUBE),
    "reshape": (lambda x: np.reshape(x, (4, 6)), CUBE),
    "reshape to one": (lambda x: np.reshape(x, -1), CUBE),
    "ravel": (lambda x: np.ravel(x), CUBE),
    "swapaxes": (lambda x: np.swapaxes(x, 0, 2), CUBE),
    "moveaxis": (lambda x: np.moveaxis(x, 0, -1), CUBE),
    "moveaxis of two": (lambda x: np.moveaxis(x, [0, 1], [2, 0]), CUBE),
    "expand_dims": (lambda x: np.expand_dims(x, 1), MATRIX),
    "expand_dims of two": (lambda x: np.expand_dims(x, (0, -1)), MATRIX),
    "squeeze": (lambda x: np.squeeze(x), VECTOR[None, :, None]),
    "squeeze, axis": (lambda x: np.squeeze(x, axis=0), VECTOR[None, :, None]),
    "broadcast_to": (lambda x: np.broadcast_to(x, (4, 2, 3)), MATRIX),
    "broadcast_arrays": (lambda x, y: np.broadcast_arrays(x, y), MATRIX, VECTOR),
    "diagonal": (lambda x: np.diagonal(x, 1), MATRIX),
    "split": (lambda x: np.split(x, 3, axis=1), MATRIX),
    "split at": (lambda x: np.split(x, [1, 3], axis=-1), CUBE),
    "array_split": (lambda x: np.array_split(x, 3, axis=2), CUBE),
    "concatenate": (lambda x, y: np.concatenate((x, y), axis=0), MATRIX, MATRIX + 1),
    "concatenate, flat": (lambda x, y: np.concatenate([x, y], axis=None), MATRIX, VECTOR),
    "concatenate with an array": (lambda x: np.concatenate([x, MATRIX], 1), MATRIX),
    "stack": (lambda x, y: np.stack((x, y), axis=-1), MATRIX, MATRIX * 2),
    "vstack": (lambda x, y: np.vstack((x, y)), MATRIX, VECTOR),
    "hstack": (lambda x, y: np.hstack((x, y)), VECTOR, VECTOR * 2),
    "tile": (lambda x: np.tile(x, (2, 1, 3)), MATRIX),
    "tile a vector": (lambda x: np.tile(x, 2), VECTOR),
    "repeat": (lambda x: np.repeat(x, 2), MATRIX),
    "repeat, axis": (lambda x: np.repeat(x, [1, 0, 2], axis=1), MATRIX),
    "flip": (lambda x: np.flip(x), CUBE),
    "flip, axis": (lambda x: np.flip(x, axis=1), CUBE),
    "roll": (lambda x: np.roll(x, 2), MATRIX),
    "roll, axis": (lambda x: np.roll(x, (1, 2), axis=(0, 1)), MATRIX),
    "tril": (lambda x: np.tril(x, k=-1), SQUARE),
    "triu": (lambda x: np.triu(x), SQUARE),
    "diag": (lambda x: np.diag(x, k=1), VECTOR),
    "diag of a matrix": (lambda x: np.diag(x), SQUARE),
    "copy": (lambda x: np.copy(x), MATRIX),
    "take": (lambda x: np.take(x, [[0, 5], [5, 1]]), MATRIX),
    "take, axis": (lambda x: np.take(x, np.array([2, 0, 2]), axis=1), MATRIX),
    "take_along_axis": (
        lambda x: np.take_along_axis(x, np.array([[2, 0], [1, 1]]), axis=1),
        MATRIX,
    ),
    "where": (lambda x, y: np.where(MATRIX > 0, x, y), MATRIX, VECTOR),
    "clip": (lambda x: np.clip(x, -0.75, 1.0), MATRIX),
    "sum": (lambda x: np.sum(x, axis=(0, 2), keepdims=True), CUBE),
    "mean": (lambda x: np.mean(x, axis=1), CUBE),
    "cumsum": (lambda x: np.cumsum(x, axis=1), CUBE),
    "cumsum, flat": (lambda x: np.cumsum(x), MATRIX),
    "matmul": (lambda x, y: np.matmul(x, y), MATRIX, SQUARE),
    "linalg.norm": (lambda x: np.linalg.norm(x), MATRIX),
    "linalg.norm of rows": (lambda x: np.linalg.norm(x, ord=3, axis=1), MATRIX),
    "add.reduce": (lambda x: np.add.reduce(x), MATRIX),
    "multiply.reduce": (lambda x: np.multiply.reduce(x, axis=1), MATRIX),
    "maximum.reduce": (lambda x: np.maximum.reduce(x, axis=None), MATRIX),
    "add.accumulate": (lambda x: np.add.accumulate(x, axis=1), MATRIX),
    "subtract.outer": (lambda x, y: np.subtract.outer(x, y), MATRIX, VECTOR),
}


def _parts(result):
    return list(result) if isinstance(result, (tuple, list)) else [result]


@pytest.mark.parametrize("name", CALLS)
def test_numpy_functions_record_like_methods(name):
    call, *arrays = CALLS[name]
    expected = [np.asarray(part) for part in _parts(call(*arrays))]
    tensors = [mt.tensor(a, requires_grad=True) for a in arrays]
    found = _parts(call(*tensors))
    assert len(found) == len(expected)
    for mine, numpys in zip(found, expected, strict=True):
        assert type(mine) is mt.Tensor and tuple(mine.shape) == numpys.shape
        np.testing.assert_allclose(mine.detach().numpy(), numpys, rtol=1e-12, atol=1e-12)
    rng = np.random.default_rng(1)
    weights = [rng.uniform(0.5, 1.5, part.shape) for part in expected]
    total = sum((part * mt.tensor(w)).sum() for part, w in zip(found, weights, strict=True))
    total.backward()

    def loss(values):
        return sum((w * p).sum() for w, p in zip(weights, _parts(call(*values)), strict=True))

    for i, tensor in enumerate(tensors):
        numeric = np.zeros(arrays[i].shape)
        for place in np.ndindex(arrays[i].shape):
            ends = []
            for step in (1e-6, -1e-6):
                moved = [a.copy() for a in arrays]
                moved[i][place] += step
                ends.append(loss(moved))
            numeric[place] = (ends[0] - ends[1]) / 2e-6
        assert tensor.grad.dtype is mt.float64
        np.testing.assert_allclose(tensor.grad.numpy(), numeric, rtol=2e-6, atol=2e-7)


@pytest.mark.parametrize("name", CALLS)
def test_numpy_functions_keep_float32(name):
    call, *arrays = CALLS[name]
    tensors = [mt.tensor(a, dtype=mt.float32, requires_grad=True) for a in arrays]
    found = _parts(call(*tensors))
    mixed = any(part.dtype is not mt.float32 for part in found)
    assert mixed == ("with an array" in name), name
    sum(part.sum() for part in found).backward()
    assert all(t.grad.dtype is mt.float32 for t in tensors)


def test_what_numpy_functions_give_without_gradients():
    x = mt.tensor(MATRIX, requires_grad=True)
    assert np.zeros_like(x).tolist() == [[0] * 3] * 2 and not np.zeros_like(x).requires_grad
    assert np.ones_like(x, dtype=mt.float32).dtype is mt.float32
    assert np.full_like(x, 2.5).tolist() == [[2.5] * 3] * 2
    assert [i.tolist() for i in np.nonzero(x > 1)] == [[0, 1], [0, 1]]
    assert np.argmax(x).item() == 4 and np.count_nonzero(x > 0).item() == 4
    assert (
        np.count_nonzero(x > 0, 1).tolist() == np.count_nonzero(x.detach().numpy() > 0, 1).tolist()
    )
    kept = np.count_nonzero(x > 0, 0, keepdims=True)
    assert kept.tolist() == np.count_nonzero(x.detach().numpy() > 0, 0, keepdims=True).tolist()
    assert np.searchsorted(mt.tensor([1.0, 2.0], requires_grad=True), 1.5) == 1
    assert np.linalg.matrix_rank(x) == 2
    assert np.shape(x) == (2, 3) and np.iscomplexobj(x) is False


@pytest.mark.parametrize(
    "call",
    [
        lambda x: np.transpose(a=x, axes=None),
        lambda x: np.concatenate((x, x), axis=1),
        lambda x: np.flip(m=x, axis=0),
        lambda x: np.tile(A=x, reps=2),
        lambda x: np.split(ary=x, indices_or_sections=3)[0],
        lambda x: np.swapaxes(a=x, axis1=0, axis2=1),
        lambda x: np.roll(a=x, shift=1),
    ],
)
def test_arguments_have_the_names_of_numpy(call):
    x = mt.tensor(POSITIVE, requires_grad=True)
    np.testing.assert_allclose(call(x).detach().numpy(), call(POSITIVE), rtol=1e-12)
    call(x).sum().backward()
    assert x.grad.shape == x.shape


REFUSED = {
    "a function without an operation": (
        lambda x: np.convolve(x[0], x[1]),
        "convolve.*recorded functions",
    ),
    "an argument without an operation": (
        lambda x: np.sum(x, where=MATRIX > 0),
        r"modtree\.sum\(\)",
    ),
    "another order": (lambda x: np.reshape(x, (3, 2), order="F"), r"modtree\.reshape\(\)"),
    "another mode": (lambda x: np.pad(x, 1, mode="mean"), "lose its gradient"),
    "convolve": (lambda x: np.convolve(x[0], x[1]), "lose its gradient"),
    "linear algebra": (lambda x: np.linalg.svd(x)[1], r"modtree\.linalg\.svd\(\)"),
    "another ufunc": (lambda x: np.cbrt(x), "lose its gradient"),
    "a ufunc's method": (lambda x: np.add.reduceat(x, [0, 1]), r"add\.reduceat.*lose"),
    "an array made of it": (lambda x: np.array(x), r"detach\(\)\.numpy\(\)"),
    "a list": (lambda x: np.array([x[0, 0], x[0, 1]]), "detach"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_would_lose_a_gradient_says_what_to_call(name):
    call, message = REFUSED[name]
    x = mt.tensor(MATRIX, requires_grad=True)
    with pytest.raises(RuntimeError, match=message):
        call(x)
    call(x.detach())
    if "lose" in message or "modtree" in message:
        with mt.no_grad():
            call(x)


def test_numpy_functions_pass_meta_tensors_through():
    x = mt.empty(2, 3, device="meta", requires_grad=True)
    for call, shape in (
        (lambda: np.transpose(x), (3, 2)),
        (lambda: np.concatenate([x, x]), (4, 3)),
    ):
        assert call().is_meta and tuple(call().shape) == shape
    with pytest.raises(NotImplementedError, match="meta"):
        np.convolve(x[0], x[1])
