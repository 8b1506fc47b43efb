# SPDX-License-Identifier: BSD-3-Clause
"""Kernels give the same bits with any number of threads."""

from __future__ import annotations

import numpy as np
import pytest

import modtree as mt
from modtree._C import kernels

F = mt.nn.functional
#: More than once each: threads that are in each other's way are so now and then only.
COUNTS = (2, 3, 5) * 4
random = np.random.default_rng(0)


def array(*shape, dtype=np.float32):
    return random.standard_normal(shape).astype(dtype)


def tensor(*shape, grad=False):
    return mt.from_numpy(array(*shape)).requires_grad_(grad)


@pytest.fixture(autouse=True)
def threads():
    before = mt.get_num_threads()
    yield
    mt.set_num_threads(before)


def same_bits(run):
    """What ``run`` returns, arrays or tensors, for each number of threads."""

    def bits():
        found = run()
        found = found if isinstance(found, (tuple, list)) else [found]
        arrays = [x.detach().numpy() if isinstance(x, mt.Tensor) else x for x in found]
        bits = [(x.shape, x.dtype, x.tobytes()) for x in arrays]
        for x in arrays:
            if x.dtype.kind == "f" and x.flags.writeable:
                x.fill(np.nan)  # the next result may lie there: what no thread writes shows
        return bits

    mt.set_num_threads(1)
    expected = bits()
    for count in COUNTS:
        mt.set_num_threads(count)
        assert bits() == expected, f"other bits with {count} threads"


MAPS = ["gelu", "sigmoid", "silu", "erf", "erfinv", "lgamma", "digamma", "softplus", "leaky_relu"]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("size", [300_001, 2**19])
@pytest.mark.parametrize("name", MAPS)
def test_maps(name, size, dtype):
    x = array(size, dtype=dtype)
    extra = (0.1, 20.0) if name in ("softplus", "leaky_relu") else ()
    same_bits(lambda: getattr(kernels, name)(x, *extra))


@pytest.mark.parametrize("name", ["logaddexp", "fmod", "remainder", "huber", "between"])
def test_maps_of_pairs(name):
    x, y = array(700_001), array(700_001)
    extra = (0.5, 1.5) if name in ("huber", "between") else ()
    same_bits(lambda: getattr(kernels, name)(x, y, *extra))


IN_PLACE = ["gelu", "sigmoid", "silu", "softmax", "log_softmax", "erf", "clamp", "hardswish"]


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place(name):
    x = array(601, 1003)

    def run():
        out = x.copy()
        return getattr(kernels, name)(out, out=out)

    same_bits(run)


NAMES = ["sigmoid", "tanh", "silu", "gelu", "relu", "softmax", "log_softmax"]


@pytest.mark.parametrize("name", NAMES)
def test_gradients(name):
    g, y = array(601, 1003), np.abs(array(601, 1003))
    same_bits(lambda: getattr(kernels, f"{name}_backward")(g, y))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape", [(1001, 300), (3, 100_003), (40_000, 7)])
def test_rows(name, shape):
    x = array(*shape)
    same_bits(lambda: getattr(kernels, name)(x))


@pytest.mark.parametrize("shape", [(1001, 300), (40_000, 7)])
def test_layer_norm(shape):
    x, weight, bias = array(*shape), array(shape[1]), array(shape[1])
    same_bits(lambda: kernels.layer_norm_stats(x, 1, weight, bias, 1e-5))


def norm_step(run, *shapes):
    inputs = [tensor(*shape, grad=True) for shape in shapes]

    def step():
        out = run(*inputs)
        return [out, *mt.autograd.grad((out * out).sum(), inputs)]

    return step


@pytest.mark.parametrize("shape", [(4000, 64), (200, 1500), (65, 5001), (9001, 33)])
def test_layer_norm_backward(shape):
    size = shape[1:]
    same_bits(norm_step(lambda x, w, b: F.layer_norm(x, size, w, b), shape, size, size))


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("shape", [(1, 67, 60, 60), (9, 33, 31, 31), (5000, 70), (300, 2001)])
def test_batch_norm(training, shape):
    mean, var = mt.zeros(shape[1]), mt.ones(shape[1])

    def run(x, w, b):
        return F.batch_norm(x, mean.clone(), var.clone(), w, b, training)

    same_bits(norm_step(run, shape, (shape[1],), (shape[1],)))


@pytest.mark.parametrize("groups", [1, 3, 33])
def test_group_norm(groups):
    run = norm_step(lambda x, w, b: F.group_norm(x, groups, w, b), (7, 33, 40, 40), (33,), (33,))
    same_bits(run)


CONVOLUTIONS = [
    # batch, groups, inputs, outputs, size, kernel, stride, padding, dilation
    (1, 1, 64, 64, 28, 3, 1, 1, 1),
    (1, 1, 512, 96, 7, 3, 1, 1, 1),  # panels that threads share
    (1, 1, 300, 33, 9, 3, 1, 1, 1),
    (16, 1, 16, 17, 16, 3, 1, 1, 1),  # by images
    (3, 1, 48, 40, 30, 3, 2, 1, 1),
    (1, 1, 3, 64, 112, 7, 2, 3, 1),
    (1, 1, 64, 64, 40, 1, 1, 0, 1),
    (2, 4, 64, 64, 20, 3, 1, 2, 2),  # by groups
    (1, 1, 900, 64, 8, 1, 1, 0, 1),
    (5, 1, 64, 64, 8, 3, 1, 1, 1),  # panels of two vectors
    (1, 1, 16, 16, 64, 3, 1, 1, 1),  # vectors that are read where they are
    (1, 1, 64, 64, 16, 3, 1, 1, 1),
    (40, 1, 16, 20, 14, 3, 1, 1, 1),  # images end within a vector
    (1, 1, 64, 40, 60, 3, 1, 1, 1),  # strips of an image
    (1, 1, 16, 20, 51, 3, 1, 4, 4),  # pieces of an image: rows that are no whole vectors
    (3, 1, 24, 16, 70, 5, 2, 2, 1),  # of several images
    (1, 2, 32, 48, 45, 3, 1, 1, 1),  # of groups
    (1, 1, 200, 16, 64, 3, 1, 1, 1),  # of several strips each
]


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("case", CONVOLUTIONS, ids=str)
def test_convolutions(case, dtype):
    n, groups, c, o, size, kernel, stride, padding, dilation = case
    x, w = array(n, c, size, size, dtype=dtype), array(o, c // groups, kernel, kernel, dtype=dtype)
    b = array(o, dtype=dtype)
    out = (size + 2 * padding - dilation * (kernel - 1) - 1) // stride + 1
    pairs = [(v, v) for v in (stride, padding, dilation)]

    def run():
        # The result is likely to take this memory: what no thread writes must not look right
        # because the result before was there.
        np.full((n, o, out, out), np.nan, dtype)
        return kernels.convolution(x, w, b, *pairs, groups, (out, out))

    same_bits(run)


@pytest.mark.parametrize("batch", [1, 6])
def test_depthwise(batch):
    x, w = tensor(batch, 67, 40, 40, grad=True), tensor(134, 1, 3, 3, grad=True)
    ones = mt.ones(batch, 134, 20, 20)

    def step():
        y = F.conv2d(x, w, None, 2, 1, groups=67)
        return [y, *mt.autograd.grad(y, [x, w], ones)]

    same_bits(step)


def test_columns():
    x = array(3, 40, 50, 50)
    pairs = [(v, v) for v in (3, 2, 1, 1)]
    columns = kernels.im2col(x, *pairs)
    same_bits(lambda: kernels.im2col(x, *pairs))
    same_bits(lambda: kernels.col2im(columns, x.shape, *pairs))


@pytest.mark.parametrize("size", [12, 60])
def test_max_pool(size):
    x = tensor(8, 70, size, size, grad=True)

    def step():
        y, places = F.max_pool2d(x, 3, 2, 1, return_indices=True)
        return [y, places, *mt.autograd.grad(y.sum(), [x])]

    same_bits(step)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("shape", [(13, 500, 130), (9001, 90, 1), (2, 300, 1000)])
def test_scans(axis, shape):
    x = tensor(*shape)
    same_bits(lambda: [x.cumsum(axis), (x * 0.1 + 1).cumprod(axis)])


def test_selections():
    x = tensor(901, 700)
    index = mt.from_numpy(random.integers(0, 700, (901, 500)))
    same_bits(lambda: [*x.topk(9), *x.topk(3, 0), x.gather(1, index)])


def test_a_wrong_index_of_a_piece():
    x = tensor(901, 700)
    index = random.integers(0, 700, (901, 500))
    index[850, 3] = 700
    for count in (1, 3):
        mt.set_num_threads(count)
        with pytest.raises((IndexError, RuntimeError)):
            x.gather(1, mt.from_numpy(index))


def test_embedding_gradient():
    weight = tensor(50, 300, grad=True)
    index = mt.from_numpy(random.integers(0, 50, 5000))
    same_bits(lambda: mt.autograd.grad(F.embedding(index, weight).square().sum(), [weight]))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_distances(p):
    x, y = tensor(203, 60), tensor(407, 60)
    same_bits(lambda: mt.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist"))


@pytest.mark.parametrize("p", [0.0, 1.0, 2.0, 3.0, float("inf")])
def test_gradients_of_distances(p):
    x, y, g = tensor(130, 75, grad=True), tensor(211, 75, grad=True), tensor(130, 211)

    def step():
        far = mt.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")
        return mt.autograd.grad(far, [x, y], g)

    same_bits(step)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_ctc_loss(dtype):
    scores = mt.from_numpy(array(40, 23, 12, dtype=dtype)).requires_grad_()
    labels = mt.from_numpy(random.integers(1, 12, (23, 15)))
    steps, lengths = random.integers(30, 41, 23), random.integers(0, 16, 23)

    def step():
        loss = F.ctc_loss(
            scores.log_softmax(2), labels, tuple(steps), tuple(lengths), reduction="none"
        )
        return [loss, *mt.autograd.grad(loss.sum(), [scores])]

    same_bits(step)


# Shape, axis: the parts are of the first axis, of the last, of neither.
SCATTERS = [((900, 301), 1), ((301, 900), 0), ((7, 50, 900), 1), ((300_000,), 0)]


@pytest.mark.parametrize("mode", ["assign", "add", "multiply", "amax", "amin"])
@pytest.mark.parametrize(("shape", "axis"), SCATTERS, ids=str)
def test_scatter(shape, axis, mode):
    x, source = array(*shape), array(*shape)
    index = random.integers(0, shape[axis] // 3, shape)
    same_bits(lambda: kernels.scatter(x, axis, index, source, mode, False))
    turned, spread = np.asfortranarray(x), np.asfortranarray(source)
    same_bits(lambda: kernels.scatter(turned, axis, index, spread, mode, False))


def test_scatter_with_an_index_out_of_range():
    x, index = array(900, 300), random.integers(0, 300, (900, 300))
    index[899, 299] = 300
    for count in (1, 2, 5):
        mt.set_num_threads(count)
        assert kernels.scatter(x, 1, index, x, "add", False) is None


@pytest.mark.parametrize("shape", [(1, 3, 200, 190), (7, 5, 60, 61)])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_grid_sample(mode, shape):
    x, grid = tensor(*shape, grad=True), (tensor(shape[0], 151, 133, 2) * 0.7).requires_grad_()

    def step():
        y = F.grid_sample(x, grid, mode, align_corners=False)
        return [y, *mt.autograd.grad(y.square().sum(), [x, grid])]

    same_bits(step)


def test_grid_sample_of_volumes():
    x, grid = tensor(2, 3, 20, 21, 22), tensor(2, 31, 33, 17, 3) * 0.7
    same_bits(lambda: F.grid_sample(x, grid, align_corners=True))


def test_cross_entropy():
    x = tensor(3001, 100, grad=True)
    target = mt.from_numpy(random.integers(0, 100, 3001))

    def step():
        loss = F.cross_entropy(x, target, label_smoothing=0.1, reduction="none")
        return [loss, *mt.autograd.grad(loss.sum(), [x])]

    same_bits(step)


@pytest.mark.parametrize("name", ["lstm_cell", "gru_cell"])
def test_cells(name):
    gates = 4 if name == "lstm_cell" else 3
    x, y, state = array(300, gates * 200), array(300, gates * 200), array(300, 200)
    same_bits(lambda: getattr(kernels, name)(x, y, state))


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("SGD", {"momentum": 0.9, "nesterov": True}),
        ("Adam", {"amsgrad": True}),
        ("AdamW", {}),
        ("RMSprop", {"centered": True, "momentum": 0.5}),
    ],
)
def test_optimizers(name, options):
    start, gradient = tensor(701, 1003), tensor(701, 1003)

    def steps():
        weight = mt.nn.Parameter(start.clone())
        optimizer = getattr(mt.optim, name)([weight], lr=0.1, **options)
        for _ in range(2):
            weight.grad = gradient
            optimizer.step()
        return weight

    same_bits(steps)


@pytest.mark.skipif(not kernels.has_wide_products(), reason="NumPy multiplies on this machine")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("sizes", [(300, 200, 150), (40, 900, 400), (3, 500, 3000)], ids=str)
def test_products_of_matrices(sizes, dtype):
    rows, depth, columns = sizes
    x, y = array(rows, depth, dtype=dtype), array(depth, columns, dtype=dtype)
    turned, other = np.asfortranarray(x), np.asfortranarray(y)
    bias = array(columns, dtype=dtype)
    same_bits(lambda: kernels.matmul(x, other, bias))
    same_bits(lambda: kernels.matmul(turned, other))
    same_bits(lambda: kernels.matmul(turned, y))


@pytest.mark.skipif(not kernels.has_wide_products(), reason="NumPy multiplies on this machine")
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_several_products_of_matrices(dtype):
    x, y = array(6, 50, 60, dtype=dtype), array(60, 70, dtype=dtype)
    same_bits(lambda: kernels.matmul(x, y))


def test_transposed_sum():
    x, bias = array(700, 901), array(700)
    same_bits(lambda: kernels.transpose_add(x, bias))
