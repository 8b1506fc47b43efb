# SPDX-License-Identifier: BSD-3-Clause
"""Linear maps, bilinear forms, tables looked up by integers and distances, against torch's."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gradients import Case, check, suite
from helpers.layers_common import (
    check_arguments,
    check_copies,
    check_description,
    check_run,
    check_where,
    convert,
    load,
    make,
    same,
)
from helpers.support import raises

import modtree as mt
from modtree import nn
from modtree.nn import functional as F

torch = pytest.importorskip("torch")

# -- linear and bilinear maps ----------------------------------------------------------------------

test_gradients = suite(
    [
        Case(
            "linear",
            lambda lib, x, w, b: lib.nn.functional.linear(x, w, b),
            [
                ((5,), (4, 5), (4,)),
                ((3, 5), (4, 5), (4,)),
                ((2, 3, 5), (4, 5), (4,)),
                ((0, 5), (4, 5), (4,)),
                ((200, 3), (2, 3), (2,)),
            ],
            mixed=False,
        ),
        Case(
            "linear no bias",
            lambda lib, x, w: lib.nn.functional.linear(x, w),
            [((3, 5), (4, 5)), ((2, 3, 5), (4, 5)), ((5,), (5,)), ((2, 3, 5), (5,))],
            mixed=False,
        ),
        Case(
            "bilinear",
            lambda lib, x, y, w, b: lib.nn.functional.bilinear(x, y, w, b),
            [
                ((3, 4), (3, 5), (2, 4, 5), (2,)),
                ((2, 3, 4), (2, 3, 5), (2, 4, 5), (2,)),
                ((4,), (5,), (1, 4, 5), (1,)),
            ],
            mixed=False,
        ),
        Case(
            "cosine_similarity",
            lambda lib, x, y: lib.nn.functional.cosine_similarity(x, y, -1),
            [((3, 4), (3, 4)), ((3, 4), (4,)), ((2, 1, 4), (3, 4)), ((4,), (4,))],
            mixed=False,
        ),
        Case(
            "cosine_similarity first",
            lambda lib, x, y: lib.nn.functional.cosine_similarity(x, y, 0, 0.5),
            [((3, 4), (3, 4))],
            mixed=False,
        ),
        Case(
            "pairwise_distance",
            lambda lib, x, y: lib.nn.functional.pairwise_distance(x, y),
            [((3, 4), (3, 4)), ((3, 4), (4,)), ((4,), (4,))],
            mixed=False,
        ),
        Case(
            "pairwise_distance 1",
            lambda lib, x, y: lib.nn.functional.pairwise_distance(x, y, 1.0, keepdim=True),
            [((3, 4), (3, 4))],
            mixed=False,
        ),
        Case(
            "pairwise_distance 3",
            lambda lib, x, y: lib.nn.functional.pairwise_distance(x, y, 3.0, 0.01),
            [((3, 4), (3, 4))],
            mixed=False,
        ),
    ]
)


def test_a_bias_that_is_broadcast():
    x, w, b = (
        np.random.default_rng(n).standard_normal(s) for n, s in enumerate([(3, 5), (4, 5), (3, 4)])
    )
    tensors = [mt.from_numpy(a).requires_grad_() for a in (x, w, b)]
    out = F.linear(*tensors)
    np.testing.assert_allclose(out.detach().numpy(), x @ w.T + b)
    (out * out).sum().backward()
    np.testing.assert_allclose(tensors[2].grad.numpy(), 2 * out.detach().numpy())


def test_cosine_of_nothing():
    check(
        lambda lib, x, y: lib.nn.functional.cosine_similarity(x, y, 1),
        np.zeros((2, 3)),
        np.ones((2, 3)),
    )


# -- embedding -------------------------------------------------------------------------------------

TABLE = np.random.default_rng(0).standard_normal((7, 4))
INDICES = {
    "some": np.array([[1, 2, 1], [6, 0, 1]]),
    "one": np.array(3),
    "none": np.zeros((2, 0), np.int64),
    "same": np.array([5, 5, 5, 5]),
    "different": np.array([3, 1, 0], np.int32),
    "many": np.random.default_rng(1).integers(0, 7, (30, 20)),
}


@pytest.mark.parametrize("by_frequency", [False, True])
@pytest.mark.parametrize("padding", [None, 1, -2])
@pytest.mark.parametrize("which", INDICES)
def test_gradients_of_embedding(which, padding, by_frequency):
    indices = INDICES[which]

    def look_up(lib, table):
        return lib.nn.functional.embedding(
            lib.from_numpy(indices.copy()), table, padding, scale_grad_by_freq=by_frequency
        )

    if which == "none":  # torch's backward pass fails, or stops the process
        table = mt.from_numpy(TABLE).requires_grad_()
        look_up(mt, table).sum().backward()
        assert (table.grad == 0).all()
        return
    check(look_up, TABLE)
    check(look_up, TABLE.astype("f4"), tolerance=1e-5)
    if not by_frequency:
        check(look_up, TABLE, twice=True)


def test_second_derivative_of_an_embedding_by_frequency():
    indices = mt.tensor([1, 1, 2, 5])
    table = mt.from_numpy(TABLE).requires_grad_()
    weights = mt.ones(4, 4, dtype=mt.float64).requires_grad_()
    out = F.embedding(indices, table, 5, scale_grad_by_freq=True)
    (grad,) = mt.autograd.grad(out, table, weights, create_graph=True)
    (second,) = mt.autograd.grad(grad.sum(), weights)
    assert second[:, 0].tolist() == [0.5, 0.5, 1.0, 0.0]


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}, {"scale_grad_by_freq": True}], ids=str)
def test_embedding_layer(options):
    ours, theirs = make("Embedding", (7, 4), options)
    check_run(ours, theirs, [INDICES["some"]])
    check_run(ours, theirs, [INDICES["some"]], dtype="float32")


def test_gradients_are_dense():
    for layer in (nn.Embedding(5, 3, sparse=True), nn.EmbeddingBag(5, 3, sparse=True)):
        layer(mt.tensor([[1, 1]])).sum().backward()
        assert tuple(layer.weight.grad.shape) == (5, 3)
        assert not layer.weight.grad.is_sparse


def test_half_precision():
    table = mt.from_numpy(TABLE).half().requires_grad_()
    F.embedding(mt.tensor([1, 1, 2]), table).sum().backward()
    assert table.grad.dtype is mt.float16
    assert table.grad[:, 0].tolist() == [0, 2, 1, 0, 0, 0, 0]


# -- bags ------------------------------------------------------------------------------------------

BAGS = {
    "rows": (np.array([[1, 2, 1], [6, 0, 5]]), None, False),
    "offsets": (np.array([1, 2, 1, 6, 0, 5, 5]), np.array([0, 3, 3, 4]), False),
    "one bag": (np.array([1, 2, 1]), np.array([0]), False),
    "last offset": (np.array([1, 2, 1, 6, 0]), np.array([0, 2, 5]), True),
    "empty at the end": (np.array([3, 3]), np.array([0, 2, 2]), False),
    "int32": (np.array([3, 1, 3], np.int32), np.array([0, 1], np.int32), False),
}


@pytest.mark.parametrize("padding", [None, 1, -1])
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
@pytest.mark.parametrize("which", BAGS)
def test_gradients_of_bags(which, mode, padding):
    indices, offsets, last = BAGS[which]

    def run(lib, table):
        return lib.nn.functional.embedding_bag(
            lib.from_numpy(indices.copy()),
            table,
            None if offsets is None else lib.from_numpy(offsets.copy()),
            mode=mode,
            include_last_offset=last,
            padding_idx=padding,
        )

    check(run, TABLE)
    check(run, TABLE.astype("f4"), tolerance=1e-5)


@pytest.mark.parametrize("padding", [None, 1])
@pytest.mark.parametrize("which", ["rows", "offsets", "last offset"])
def test_gradients_of_weighted_bags(which, padding):
    indices, offsets, last = BAGS[which]

    def run(lib, table, weights):
        return lib.nn.functional.embedding_bag(
            lib.from_numpy(indices.copy()),
            table,
            None if offsets is None else lib.from_numpy(offsets.copy()),
            mode="sum",
            per_sample_weights=weights,
            include_last_offset=last,
            padding_idx=padding,
        )

    check(run, TABLE, np.random.default_rng(2).standard_normal(indices.shape))


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_bags_by_frequency(mode):
    """As torch's embedding and a sum; its bags divide by the frequency of another index."""
    indices = np.array([[1, 1, 2], [2, 2, 2]])
    table = mt.from_numpy(TABLE).requires_grad_()
    bags = F.embedding_bag(mt.from_numpy(indices), table, mode=mode, scale_grad_by_freq=True)
    other = torch.from_numpy(TABLE.copy()).requires_grad_()
    looked_up = torch.nn.functional.embedding(
        torch.from_numpy(indices), other, scale_grad_by_freq=True
    )
    expected = looked_up.sum(1) if mode == "sum" else looked_up.mean(1)
    weights = np.array([[1.0], [3.0]])
    (bags * mt.from_numpy(weights)).sum().backward()
    (expected * torch.from_numpy(weights)).sum().backward()
    same(bags, expected, 1e-12)
    same(table.grad, other.grad, 1e-12)


@pytest.mark.parametrize("name", ["embedding", "embedding_bag"])
def test_indices_changed_before_backward_are_an_error(name):
    for lib in (torch, mt):
        indices, table = lib.tensor([[0, 1]]), lib.zeros(5, 3, requires_grad=True)
        out = getattr(lib.nn.functional, name)(indices, table)
        indices.add_(1)
        with raises(RuntimeError, "modified by an inplace operation"):
            out.sum().backward()


def test_ties_of_a_maximum():
    check(
        lambda lib, t: lib.nn.functional.embedding_bag(
            lib.tensor([[0, 1, 2], [1, 2, 2]]), t, mode="max"
        ),
        np.round(TABLE) * 0 + np.array([1.0, 2, 3, 4]),
    )


LAYERS = {
    "Bilinear": ((2, 3, 4), {}),
    "Bilinear no bias": ((2, 3, 4), {"bias": False}),
    "EmbeddingBag": ((7, 4), {}),
    "EmbeddingBag all": (
        (7, 4),
        {
            "max_norm": 1.5,
            "norm_type": 1.0,
            "scale_grad_by_freq": True,
            "mode": "sum",
            "include_last_offset": True,
            "padding_idx": -2,
        },
    ),
    "CosineSimilarity": ((), {"dim": -1}),
    "PairwiseDistance": ((1.0,), {"keepdim": True}),
}
INPUTS = {
    "Bilinear": [np.ones((5, 2)), np.arange(15.0).reshape(5, 3)],
    "EmbeddingBag": [np.array([[1, 2], [3, 3]])],
    "EmbeddingBag all": [np.array([1, 2, 5, 3]), np.array([0, 2, 4]), None],
    "CosineSimilarity": [TABLE, TABLE[::-1].copy()],
    "PairwiseDistance": [TABLE, TABLE[::-1].copy()],
}


@pytest.mark.parametrize("label", LAYERS)
def test_layers(label):
    name = label.split()[0]
    args, kwargs = LAYERS[label]
    ours, theirs = make(name, args, kwargs)
    check_arguments(name)
    check_description(ours, theirs)
    check_copies(ours)
    for dtype in ("float64", "float32"):
        check_run(*make(name, args, kwargs), INPUTS.get(label, INPUTS[name]), dtype=dtype)
    if list(ours.parameters()):
        check_where(name, args, kwargs)


def test_rows_of_bags_are_limited_in_the_table():
    ours, theirs = make("EmbeddingBag", *LAYERS["EmbeddingBag all"])
    load(ours, theirs)
    for lib, m in ((mt, ours), (torch, theirs)):
        m(*convert(lib, INPUTS["EmbeddingBag all"]))
    same(ours.weight, theirs.weight, 1e-6)


def test_bags_over_a_given_table():
    table = mt.randn(4, 3)
    m = nn.EmbeddingBag.from_pretrained(table, mode="sum", padding_idx=1)
    assert not m.weight.requires_grad
    assert (m.weight == table).all()
    assert (m.mode, m.padding_idx) == ("sum", 1)
    assert nn.EmbeddingBag.from_pretrained(table, freeze=False).weight.requires_grad
    with raises(AssertionError, "2-dimensional"):
        nn.EmbeddingBag.from_pretrained(table[0])
    with raises(AssertionError, "Shape of weight does not match num_embeddings and embedding_dim"):
        nn.EmbeddingBag(3, 3, _weight=table)
    with raises(AssertionError, "padding_idx must be within num_embeddings"):
        nn.EmbeddingBag(3, 3, padding_idx=3)


def test_starting_values():
    mt.manual_seed(0)
    m = nn.Bilinear(16, 30, 20)
    for p in m.parameters():
        assert 0.9 / 4 < np.abs(p.detach().numpy()).max() <= 1 / 4
    bag = nn.EmbeddingBag(300, 100, padding_idx=3).weight.detach().numpy()
    assert (bag[3] == 0).all()
    assert abs(np.delete(bag, 3, 0).std() - 1) < 0.02


# -- one-hot ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("classes", [-1, 5])
@pytest.mark.parametrize("values", [[0, 2, 1], [[1, 3], [0, 0]], 2], ids=str)
def test_one_hot(values, classes):
    mine = F.one_hot(mt.tensor(values), classes)
    other = torch.nn.functional.one_hot(torch.tensor(values), classes)
    assert mine.dtype is mt.int64
    np.testing.assert_array_equal(mine.numpy(), other.numpy())


def test_one_hot_of_nothing():
    assert tuple(F.one_hot(mt.zeros(0, 2, dtype=mt.int64), 3).shape) == (0, 2, 3)


# -- errors ----------------------------------------------------------------------------------------

ATTEMPTS = {
    "no offsets": (ValueError, "offsets has to be a 1D Tensor", lambda f, t: f(t([1, 2]))),
    "offsets of rows": (
        ValueError,
        "offsets has to be a 1D Tensor",
        lambda f, t: f(t([1, 2]), t([[0]])),
    ),
    "2D and offsets": (
        ValueError,
        "if input is 2D, then offsets has to be None",
        lambda f, t: f(t([[1, 2]]), t([0])),
    ),
    "3D": (ValueError, "input has to be 1D or 2D Tensor", lambda f, t: f(t([[[1]]]))),
    "first offset": (RuntimeError, "offsets[0] has to be 0", lambda f, t: f(t([1, 2]), t([1]))),
    "last offset": (RuntimeError, "offsets[-1]", lambda f, t: f(t([1, 2]), t([0, 3]))),
    "range": (RuntimeError, "9", lambda f, t: f(t([9]), t([0]))),
    "mode": (
        ValueError,
        "mode has to be one of sum, mean or max",
        lambda f, t: f(t([1]), t([0]), mode="x"),
    ),
    "max by frequency": (
        ValueError,
        "max mode does not support scaling the gradient by the frequency",
        lambda f, t: f(t([1]), t([0]), mode="max", scale_grad_by_freq=True),
    ),
    "weights of a mean": (
        NotImplementedError,
        "per_sample_weights is only supported for mode='sum' (got mode='mean')",
        lambda f, t: f(t([1]), t([0]), per_sample_weights=t([1.0])),
    ),
    "size of weights": (
        ValueError,
        "it must have the same shape as the input",
        lambda f, t: f(t([1]), t([0]), mode="sum", per_sample_weights=t([1.0, 2.0])),
    ),
    "dtype of weights": (
        RuntimeError,
        "per_sample_weights",
        lambda f, t: f(t([1]), t([0]), mode="sum", per_sample_weights=t([1.0]).double()),
    ),
    "padding": (
        RuntimeError,
        "padding_idx must be within the number of embeddings",
        lambda f, t: f(t([1]), t([0]), padding_idx=7),
    ),
}


@pytest.mark.parametrize("what", ATTEMPTS)
def test_errors_of_bags(what):
    kind, text, attempt = ATTEMPTS[what]
    for lib in (torch, mt):
        table = lib.zeros(5, 3)

        def call(indices, *args, lib=lib, table=table, **kwargs):
            return lib.nn.functional.embedding_bag(indices, table, *args, **kwargs)

        with raises(kind, text):
            attempt(call, lib.tensor)


def test_other_errors():
    for lib in (torch, mt):
        f = lib.nn.functional
        with raises(RuntimeError, "bilinear(): input batch dimensions do not match"):
            f.bilinear(lib.ones(2, 3), lib.ones(3, 3), lib.ones(2, 3, 3))
        with raises(RuntimeError, "size does not match weight size: got 2", "expected 3"):
            f.bilinear(lib.ones(2, 3), lib.ones(2, 2), lib.ones(2, 3, 3))
        with raises(ValueError, "in1_features must be > 0, but got (in1_features=0)"):
            lib.nn.Bilinear(0, 2, 3)
        with raises(RuntimeError, "one_hot is only applicable to index tensor of type LongTensor"):
            f.one_hot(lib.ones(3))
        with raises(RuntimeError, "Class values must be non-negative."[:-1]):
            f.one_hot(lib.tensor([-1]))
        with raises(RuntimeError, "Class values must be smaller than num_classes"):
            f.one_hot(lib.tensor([3]), 2)
        with raises(RuntimeError, "Can not infer total number of classes from empty tensor."):
            f.one_hot(lib.zeros(0, dtype=lib.int64))
        with raises(
            RuntimeError, "expected common dtype to be floating point, yet common dtype is"
        ):
            f.cosine_similarity(lib.tensor([1]), lib.tensor([1]), 0)


def test_meta():
    table = mt.empty(5, 3, device="meta")
    indices = mt.empty(2, 4, dtype=mt.int64, device="meta")
    assert tuple(F.embedding(indices, table).shape) == (2, 4, 3)
    assert tuple(F.embedding_bag(indices, table).shape) == (2, 3)
    m = nn.Bilinear(2, 3, 4, device="meta")
    assert tuple(m(mt.empty(5, 2, device="meta"), mt.empty(5, 3, device="meta")).shape) == (5, 4)
    x = mt.empty(5, 2, device="meta")
    assert tuple(nn.CosineSimilarity()(x, x).shape) == (5,)
    assert tuple(nn.PairwiseDistance()(x, x).shape) == (5,)
