# SPDX-License-Identifier: BSD-3-Clause
"""Layers and functions of batches, lengths and widths of 0; vectors that broadcast."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.same import differentiated, same

import modtree as mt

pytest.importorskip("torch")


def module(make, *shapes, **options):
    """The results of a layer and the gradients of its inputs; weights are all 0.1."""

    def program(lib, *inputs):
        layer = make(lib)
        for weight in layer.parameters():
            lib.nn.init.constant_(weight, 0.1)
        results = layer(*inputs, **options)
        flat = results if isinstance(results, tuple) else (results,)
        flat = [y for x in flat for y in (x if isinstance(x, tuple) else (x,))]
        gradients = [*layer.buffers()]
        return [y for y in flat if y is not None] + gradients

    return differentiated(program, *(np.zeros(shape, np.float32) for shape in shapes))


LAYERS = {
    "attention": (lambda lib: lib.nn.MultiheadAttention(4, 2), [(3, 0, 4)] * 3),
    "attention, batch first": (
        lambda lib: lib.nn.MultiheadAttention(4, 2, batch_first=True),
        [(0, 3, 4)] * 3,
    ),
    "attention, no queries": (
        lambda lib: lib.nn.MultiheadAttention(4, 2),
        [(0, 2, 4), (3, 2, 4), (3, 2, 4)],
    ),
    "encoder layer": (lambda lib: lib.nn.TransformerEncoderLayer(4, 2, 8, 0.0), [(3, 0, 4)]),
    "decoder layer": (
        lambda lib: lib.nn.TransformerDecoderLayer(4, 2, 8, 0.0),
        [(3, 0, 4), (2, 0, 4)],
    ),
    "batch norm 1d": (lambda lib: lib.nn.BatchNorm1d(3), [(0, 3)]),
    "batch norm 1d, no length": (lambda lib: lib.nn.BatchNorm1d(3), [(2, 3, 0)]),
    "batch norm 2d": (lambda lib: lib.nn.BatchNorm2d(3), [(0, 3, 2, 2)]),
    "layer norm": (lambda lib: lib.nn.LayerNorm(3), [(0, 3)]),
    "bilinear": (lambda lib: lib.nn.Bilinear(2, 3, 4), [(0, 2), (0, 3)]),
    "linear": (lambda lib: lib.nn.Linear(2, 3), [(0, 2)]),
    "conv": (lambda lib: lib.nn.Conv2d(2, 3, 2), [(0, 2, 4, 4)]),
    "transposed conv": (lambda lib: lib.nn.ConvTranspose1d(2, 3, 2), [(0, 2, 4)]),
    "gru cell": (lambda lib: lib.nn.GRUCell(2, 3), [(0, 2)]),
    "lstm cell": (lambda lib: lib.nn.LSTMCell(2, 3), [(0, 2)]),
    "max pool": (lambda lib: lib.nn.MaxPool2d(2), [(0, 2, 4, 4)]),
    "mean pool": (lambda lib: lib.nn.AvgPool1d(2), [(0, 2, 4)]),
    "adaptive pool": (lambda lib: lib.nn.AdaptiveAvgPool2d(2), [(0, 2, 4, 4)]),
    "upsample": (lambda lib: lib.nn.Upsample(scale_factor=2.3), [(0, 2, 4)]),
    "unfold": (lambda lib: lib.nn.Unfold(2), [(0, 2, 4, 4)]),
    "fold": (lambda lib: lib.nn.Fold((4, 4), 2), [(0, 8, 9)]),
    "distance": (lambda lib: lib.nn.PairwiseDistance(), [(0, 3), (0, 3)]),
    "cosine": (lambda lib: lib.nn.CosineSimilarity(), [(0, 3), (0, 3)]),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers(name):
    make, shapes = LAYERS[name]
    same(module(make, *shapes))


def masked_attention(lib, x, **options):
    attention = lib.nn.MultiheadAttention(4, 2)
    padding, mask = lib.zeros(0, 3, dtype=lib.bool), lib.zeros(0, 3, 3, dtype=lib.bool)
    return attention(x, x, x, key_padding_mask=padding, attn_mask=mask, **options)


def test_attention_of_no_samples_with_masks():
    same(differentiated(masked_attention, np.zeros((3, 0, 4), np.float32)))


def test_more_than_in_torch_works_on_nothing():
    x = mt.zeros(3, 0, 4, requires_grad=True)
    out, _ = masked_attention(mt, x, need_weights=False)
    out.sum().backward()
    assert x.grad.shape == (3, 0, 4)
    for name, size in (("pixel_shuffle", (0, 4, 2, 2)), ("channel_shuffle", (0, 4, 2))):
        x = mt.zeros(size, requires_grad=True)
        getattr(mt.nn.functional, name)(x, 2).sum().backward()
        assert x.grad.shape == size
    assert not mt.nn.functional.bilinear(mt.ones(4, 0), mt.ones(4, 3), mt.ones(2, 0, 3)).any()


def test_a_batch_of_0_leaves_the_statistics_alone():
    norm = mt.nn.BatchNorm1d(3)
    norm(mt.zeros(0, 3)).sum().backward()
    assert norm.running_mean.tolist() == [0, 0, 0]
    assert norm.running_var.tolist() == [1, 1, 1]
    assert not norm.weight.grad.numpy().any()


@pytest.mark.parametrize("shape", [(3, 0), (0, 2), (0, 0)])
def test_tables_of_no_width(shape):
    def program(lib, table):
        return lib.nn.functional.embedding(lib.zeros(2 if shape[0] else 0, dtype=lib.int64), table)

    same(differentiated(program, np.zeros(shape)))


def test_padding_of_a_table_of_no_rows():
    def program(lib, table):
        return lib.nn.functional.embedding(lib.zeros(0, dtype=lib.int64), table, 0)

    same(differentiated(program, np.zeros((0, 2), np.float32)))


def test_bilinear_without_results():
    arrays = np.ones((4, 2)), np.ones((4, 3)), np.ones((0, 2, 3))
    same(differentiated(lambda lib, *x: lib.nn.functional.bilinear(*x), *arrays))


X, Y = np.array([[1.0, 2, 3]]), np.array([[1.0, -2, 0.5], [4, 5, 6]])


@pytest.mark.parametrize("dim", [0, 1, -1, -2])
@pytest.mark.parametrize(
    ("x", "y"),
    [(X, Y), (Y, X), (Y, X[0]), (Y, np.array(2.0)), (Y[:, :1].copy(), Y), (X, np.zeros((0, 3)))],
)
def test_cosines_of_vectors_that_broadcast(x, y, dim):
    same(differentiated(lambda lib, *v: lib.nn.functional.cosine_similarity(*v, dim=dim), x, y))


@pytest.mark.parametrize("other", ["int64", "float32", "bool", "complex128"])
def test_cosines_of_two_dtypes(other):
    for x in (Y, Y.astype(np.int64)):
        same(
            differentiated(
                lambda lib, *v: lib.nn.functional.cosine_similarity(*v), x, Y.astype(other)
            )
        )


def test_a_row_of_nan_is_not_scaled():
    def program(lib):
        table = lib.tensor([[3.0, 4.0], [2.0, float("nan")]])
        return lib.nn.functional.embedding(lib.tensor([0, 1]), table, max_norm=1.0), table

    same(program)


@pytest.mark.parametrize(
    "program",
    [
        lambda lib: lib.nn.functional.unfold(lib.ones(2, 0, 3, 3), 2),
        lambda lib: lib.nn.functional.unfold(lib.ones(2, 1, 3, 3, dtype=lib.int64), 2),
        lambda lib: lib.nn.functional.fold(lib.ones(2, 0, 4), (3, 3), 2),
        lambda lib: lib.nn.functional.fold(lib.ones(2, 4, 4, dtype=lib.int64), (3, 3), 2),
        lambda lib: lib.nn.functional.affine_grid(lib.ones(0, 2, 3), (0, 1, 2, 2)),
        lambda lib: lib.nn.functional.affine_grid(lib.ones(1, 2, 3), (1, 1, 0, 2)),
        lambda lib: lib.nn.functional.affine_grid(lib.ones(1, 2, 3).long(), (1, 1, 2, 2)),
        lambda lib: lib.nn.functional.grid_sample(lib.ones(1, 1, 0, 2), lib.ones(1, 2, 2, 2)),
        lambda lib: lib.nn.functional.grid_sample(lib.ones(0, 1, 2, 2), lib.ones(0, 2, 2, 2)),
    ],
)
def test_images_of_no_pixels(program):
    same(program)


def test_local_response_needs_a_neighbourhood():
    same(lambda lib: lib.nn.functional.local_response_norm(lib.ones(1, 2, 3), 0))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
@pytest.mark.parametrize(
    ("shape", "pad"),
    [
        ((0, 3), (0, 0)),
        ((0, 3), (1, 0)),
        ((2, 0), (0, 0)),
        ((1, 0, 3), (1, 0)),
        ((0, 2, 3), (1, 0)),
        ((1, 2, 0), (0, 0)),
        ((0, 3, 3), (1, 0, 0, 1)),
        ((1, 0, 3, 3), (1, 0, 0, 1)),
        ((0, 1, 3, 3), (1, 0, 0, 1)),
        ((0, 3, 3, 3), (1, 0) * 3),
    ],
)
def test_the_border_of_nothing(shape, pad, mode):
    same(lambda lib: lib.nn.functional.pad(lib.zeros(shape), pad, mode))


def test_borders_of_bools():
    for mode in ("reflect", "replicate", "circular"):
        x = np.array([[True, False, True]])
        same(lambda lib, m=mode, x=x: lib.nn.functional.pad(lib.from_numpy(x), (1, 1), m))


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("kind", ["avg", "max"])
@pytest.mark.parametrize(
    ("lead", "size", "parts"),
    [((0, 2), 3, 2), ((1, 0), 3, 2), ((0,), 3, 2), ((1, 2), 0, 2), ((1, 2), 3, 2.5)],
)
def test_parts_of_nothing(n, kind, lead, size, parts):
    same(
        lambda lib: getattr(lib.nn.functional, f"adaptive_{kind}_pool{n}d")(
            lib.ones(*lead, *(size,) * n), parts
        )
    )


@pytest.mark.parametrize("n", [1, 2, 3])
@pytest.mark.parametrize("dtype", ["int64", "int32", "bool", "complex64"])
@pytest.mark.parametrize("name", ["adaptive_avg_pool", "adaptive_max_pool", "avg_pool", "max_pool"])
def test_pooling_of_other_numbers(n, dtype, name):
    x = (np.arange(2 * 3**n) * 5 % 7 - 3).reshape(1, 2, *(3,) * n).astype(dtype)
    same(lambda lib: getattr(lib.nn.functional, f"{name}{n}d")(lib.from_numpy(x), 2))


@pytest.mark.parametrize("options", [{}, {"ceil_mode": True}, {"padding": 1, "stride": 1}])
@pytest.mark.parametrize("divisor", [None, 3, -3])
@pytest.mark.parametrize("counted", [False, True])
def test_means_of_integers_are_cut_off(options, divisor, counted):
    x = (np.arange(25) * 5 % 23 - 11).reshape(1, 5, 5)
    options = {**options, "divisor_override": divisor, "count_include_pad": counted}
    same(lambda lib: lib.nn.functional.avg_pool2d(lib.from_numpy(x), 2, **options))


def test_parts_of_none_have_a_gradient():
    for n in (1, 2, 3):
        x = mt.ones(1, 2, *(3,) * n, requires_grad=True)
        getattr(mt.nn.functional, f"adaptive_avg_pool{n}d")(x, 0).sum().backward()
        assert not x.grad.any()


@pytest.mark.parametrize(
    ("x", "w", "options"),
    [
        ((0, 1, 2), (1, 1, 3), {}),
        ((0, 2, 3), (4, 1, 5), {"groups": 2}),
        ((0, 2, 3), (2, 2, 5), {"padding": 1, "stride": 2}),
        ((0, 2, 3), (2, 2, 2), {"dilation": 5}),
        ((1, 2, 3), (2, 2, 5), {}),
    ],
)
def test_kernels_larger_than_no_samples(x, w, options):
    same(
        differentiated(
            lambda lib, *v: lib.nn.functional.conv1d(*v, **options), np.ones(x), np.ones(w)
        )
    )


def test_a_convolution_of_no_channels():
    F = mt.nn.functional
    x, weight = mt.ones(2, 0, 3), mt.ones(4, 0, 2)
    assert F.conv1d(x, weight).tolist() == mt.zeros(2, 4, 2).tolist()


def test_unshuffled_nothing_has_its_shape():
    x = mt.zeros(9, 0, 6)
    assert mt.nn.functional.pixel_unshuffle(x, 3).shape == (81, 0, 2)


def test_circles_by_negative_numbers():
    x = mt.arange(6.0).reshape(1, 1, 6)
    padded = mt.nn.functional.pad(x, (-1, 2), "circular")
    assert padded.tolist() == [[[1, 2, 3, 4, 5, 1, 2]]]
