# SPDX-License-Identifier: BSD-3-Clause
"""The binding of the native kernels: layouts, dtypes, ``out``, errors.

Their values are also checked in tests/cpp/test_kernels.cpp.
"""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from modtree._C import kernels

TOLERANCE = {"float32": 1e-6, "float64": 1e-12}


def exact_gelu(x):
    return np.vectorize(lambda v: 0.5 * v * math.erfc(-v / math.sqrt(2)), otypes=[float])(x)


def tanh_gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def layer_norm(x):
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5)


CASES = {
    "gelu": (kernels.gelu, exact_gelu),
    "gelu_tanh": (lambda x, **kw: kernels.gelu(x, tanh=True, **kw), tanh_gelu),
    "softmax": (kernels.softmax, softmax),
    "log_softmax": (kernels.log_softmax, lambda x: np.log(softmax(x))),
    "layer_norm": (kernels.layer_norm, layer_norm),
}

case = pytest.mark.parametrize(("kernel", "reference"), CASES.values(), ids=CASES)
dtypes = pytest.mark.parametrize("dtype", ["float32", "float64"])


def sample(dtype, shape=(3, 5, 67), seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 3).astype(dtype)


def layouts(x):
    padded = np.zeros((*x.shape[:-1], 2 * x.shape[-1]), x.dtype)
    padded[..., ::2] = x
    reverse = np.ascontiguousarray(x[..., ::-1])[..., ::-1]
    buffer = bytearray(b"\0" * (x.nbytes + 1))
    unaligned = np.frombuffer(buffer, x.dtype, x.size, offset=1).reshape(x.shape)
    unaligned[...] = x
    return {
        "contiguous": x,
        "fortran": np.asfortranarray(x),
        "strided": padded[..., ::2],
        "reversed": reverse,
        "swapped bytes": x.astype(x.dtype.newbyteorder()),
        "unaligned": unaligned,
        "read-only": np.broadcast_to(x, x.shape),
    }


@case
@dtypes
def test_values_in_every_layout(kernel, reference, dtype):
    x = sample(dtype)
    expected = reference(x.astype(np.float64))
    for name, array in layouts(x).items():
        got = kernel(array)
        assert got.dtype == dtype, name
        assert got.flags.c_contiguous, name
        np.testing.assert_allclose(
            got, expected, atol=TOLERANCE[dtype], rtol=TOLERANCE[dtype], err_msg=name
        )


@case
@dtypes
def test_out(kernel, reference, dtype):
    x = sample(dtype)
    expected = kernel(x)
    out = np.empty_like(x)
    assert kernel(x, out=out) is out
    np.testing.assert_array_equal(out, expected)
    assert kernel(x, out=x) is x
    np.testing.assert_array_equal(x, expected)


@case
def test_out_must_fit(kernel, reference):
    x = sample("float32", (4, 6))
    with pytest.raises(ValueError, match="C-contiguous array of the input's dtype"):
        kernel(x, out=np.empty((4, 6)))
    with pytest.raises(ValueError, match="C-contiguous"):
        kernel(x, out=np.empty((6, 4), "f4").T)
    with pytest.raises(ValueError, match="shape"):
        kernel(x, out=np.empty((6, 4), "f4"))
    with pytest.raises(ValueError, match="C-contiguous"):
        kernel(x, out=[1.0])
    unaligned = np.frombuffer(bytearray(x.nbytes + 1), x.dtype, x.size, offset=1).reshape(x.shape)
    with pytest.raises(ValueError, match="aligned"):
        kernel(x, out=unaligned)
    frozen = np.empty_like(x)
    frozen.flags.writeable = False
    with pytest.raises(ValueError, match="read-only"):
        kernel(x, out=frozen)


@case
@pytest.mark.parametrize("dtype", ["int64", "bool", "float16", "complex64", "O"])
def test_other_dtypes_are_refused(kernel, reference, dtype):
    with pytest.raises(TypeError, match=f"float32 or float64, got .*{np.dtype(dtype)}"):
        kernel(np.ones(3, dtype))


@case
def test_empty_arrays(kernel, reference):
    for shape in [(0, 3), (3, 0), (2, 0, 4)]:
        assert kernel(np.empty(shape, "f4")).shape == shape


def test_zero_dimensions():
    assert kernels.softmax(np.array(3.0)) == 1
    assert kernels.log_softmax(np.array(3.0)) == 0
    assert kernels.gelu(np.array(0.0)).shape == ()


def test_layer_norm_arguments():
    x = sample("float64", (4, 3, 5))
    w, b = sample("float64", (3, 5), 1), sample("float64", (3, 5), 2)
    expected = layer_norm(x.reshape(4, 15)).reshape(x.shape)
    np.testing.assert_allclose(kernels.layer_norm(x, 2), expected, atol=1e-12)
    np.testing.assert_allclose(kernels.layer_norm(x, 2, w), expected * w, atol=1e-12)
    np.testing.assert_allclose(kernels.layer_norm(x, 2, bias=b), expected + b, atol=1e-12)
    np.testing.assert_allclose(kernels.layer_norm(x, 2, w, b), expected * w + b, atol=1e-12)
    assert np.abs(kernels.layer_norm(x, 1, eps=1e6)).max() < 0.01
    with pytest.raises(ValueError, match="weight has 3 values, the normalized axes have 5"):
        kernels.layer_norm(x, 1, np.ones(3))
    for axes in (0, 4, -1):
        with pytest.raises(ValueError, match="axes"):
            kernels.layer_norm(x, axes)


@pytest.mark.parametrize("kernel", [kernels.softmax, kernels.log_softmax])
@dtypes
def test_softmax_of_special_values(kernel, dtype):
    inf, nan = np.inf, np.nan
    dead = -inf if kernel is kernels.log_softmax else 0.0
    for n in (1, 9):
        got = kernel(np.array([[-inf, 0.0, 1.0] * n], dtype))
        assert got[0, 0] == dead
        assert np.isfinite(got[0, 1])
        for row in ([inf, 0, 1], [nan, 0, 1], [-inf, -inf, -inf], [-inf, inf, 0]):
            assert np.isnan(kernel(np.array([row * n], dtype))).all(), row


@case
def test_denormal_numbers_still_work_in_this_process(kernel, reference):
    """Linking with -ffast-math would flush them to zero everywhere."""
    kernel(sample("float32"))
    assert np.float32(1e-40) * np.float32(0.5) != 0


@case
def test_kernels_run_in_threads(kernel, reference):
    x = sample("float32", (64, 128))
    expected = kernel(x)
    results = []

    def work():
        results.extend(np.array_equal(kernel(x), expected) for _ in range(20))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert results == [True] * 80


# -- memory ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("shift", [-1, 1, 3])
def test_results_that_overlap_the_input(shift):
    memory = np.ones(20, np.float32)
    x, out = memory[4:12], memory[4 + shift : 12 + shift]
    for call in (
        lambda: kernels.gelu(x, out=out),
        lambda: kernels.softmax(x, out=out),
        lambda: kernels.layer_norm(x, out=out),
        lambda: kernels.relu_backward(x, x.copy(), out=out),
        lambda: kernels.relu_backward(x.copy(), x, out=out),
        lambda: kernels.sgd_step(out, x, None, lr=0.1),
        lambda: kernels.sgd_step(out, x.copy(), x, lr=0.1, momentum=0.9),
    ):
        with pytest.raises(ValueError, match="must not share memory"):
            call()
    assert (memory == 1).all()
    kernels.gelu(x, out=x)


def test_columns_and_cells_that_overlap():
    memory = np.ones(64, np.float32)
    image, columns = memory[:16].reshape(1, 1, 4, 4), memory[8:44].reshape(1, 4, 9)
    with pytest.raises(ValueError, match="must not share memory"):
        kernels.im2col(image, (2, 2), out=columns)
    with pytest.raises(ValueError, match="must not share memory"):
        kernels.col2im(columns, (1, 1, 4, 4), (2, 2), out=image)
    gates, state = np.ones((1, 12), np.float32), np.ones((1, 3), np.float32)
    kernels.lstm_cell(gates, gates.copy(), state, (None, None, gates))
    for out in ((state, None, None), (None, gates[:, 1:4].copy(), gates[:, :12])):
        kernels.lstm_cell(gates, gates.copy(), state.copy(), out)
    with pytest.raises(ValueError, match="must not share memory"):
        kernels.lstm_cell(gates, gates.copy(), state, (state, None, None))
    with pytest.raises(ValueError, match="must not share memory"):
        kernels.lstm_cell(gates.copy(), gates, state, (None, None, gates))
    with pytest.raises(ValueError, match="another result"):
        kernels.gru_cell(
            gates[:, :9].copy(), gates[:, :9].copy(), state, (gates[:, 1:4], gates[:, :9])
        )


@pytest.mark.parametrize(
    "call",
    [
        lambda: kernels.im2col(
            np.ones((1, 16, 2, 2), np.float32), (1 << 30, 1 << 30), output=(1, 1)
        ),
        lambda: kernels.im2col(
            np.ones((0, 16, 2, 2), np.float32), (1 << 30, 1 << 30), output=(1, 1)
        ),
        lambda: kernels.col2im(
            np.ones((1, 0, 1), np.float32), (1, 16, 2, 2), (1 << 30, 1 << 30), output=(1, 1)
        ),
        lambda: kernels.max_pool_backward(
            np.ones((1, 1, 1), np.float32), np.zeros((1, 1, 1), int), (1 << 30, 1 << 30)
        ),
        lambda: kernels.scatter_add_rows(np.zeros(1, int), np.ones((1, 8), np.float32), 1 << 62),
    ],
    ids=["columns", "no images", "images", "pool", "rows"],
)
def test_sizes_whose_product_is_beyond_all_memory(call):
    with pytest.raises((ValueError, MemoryError)):
        call()
