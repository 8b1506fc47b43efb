# SPDX-License-Identifier: BSD-3-Clause
"""modtree.nn.functional against torch: values, dtypes, shapes, errors."""

from __future__ import annotations

import math

import numpy as np
import pytest
from helpers.support import raises, warns

import modtree as mt
import modtree.nn.functional as F

torch = pytest.importorskip("torch")
TF = torch.nn.functional

TOLERANCE = {"float16": 5e-3, "float32": 1e-6, "float64": 1e-12}
floating = pytest.mark.parametrize("dtype", ["float32", "float64"])


def pair(shape, dtype="float32", seed=0, scale=1.0):
    """The same random numbers as a tensor of modtree and of torch."""
    array = np.asarray(np.random.default_rng(seed).standard_normal(shape) * scale, dtype)
    return mt.from_numpy(array.copy()), torch.from_numpy(array.copy())


def both(array):
    array = np.asarray(array)
    return mt.from_numpy(array.copy()), torch.from_numpy(array.copy())


def check(got, expected, tolerance=None):
    assert isinstance(got, mt.Tensor)
    assert str(got.dtype).rpartition(".")[2] == str(expected.dtype).rpartition(".")[2]
    assert tuple(got.shape) == tuple(expected.shape)
    if tolerance is None:
        tolerance = TOLERANCE.get(str(got.dtype).rpartition(".")[2], 0)
    np.testing.assert_allclose(
        got.detach().numpy(), expected.detach().numpy(), atol=tolerance, rtol=tolerance
    )


# -- linear --------------------------------------------------------------------------------------


@floating
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(
    "shape", [(5,), (4, 5), (2, 3, 5), (2, 1, 3, 5), (0, 5), (2, 0, 5), (2, 100, 5)]
)
def test_linear(dtype, bias, shape):
    x, tx = pair(shape, dtype)
    w, tw = pair((3, 5), dtype, 1)
    b, tb = pair((3,), dtype, 2) if bias else (None, None)
    got = F.linear(x, w, b)
    check(got, TF.linear(tx, tw, tb))
    assert got.is_contiguous()


def test_linear_layouts_and_other_dtypes():
    x, tx = pair((6, 2, 5))
    w, tw = pair((5, 3), seed=1)
    check(F.linear(x.transpose(0, 1), w.t()), TF.linear(tx.transpose(0, 1), tw.t()))
    check(F.linear(x[::2, :, ::1], w.t()), TF.linear(tx[::2, :, ::1], tw.t()))
    xi, txi = both(np.arange(10).reshape(2, 5))
    wi, twi = both(np.arange(15).reshape(3, 5))
    check(F.linear(xi, wi), TF.linear(txi, twi))
    w1, tw1 = pair(5, seed=3)
    check(F.linear(x, w1), TF.linear(tx, tw1))


def test_linear_bias_is_broadcast():
    x, tx = pair((4, 5))
    w, tw = pair((3, 5), seed=1)
    for shape in [(1,), (4, 3)]:
        b, tb = pair(shape, seed=2)
        check(F.linear(x, w, b), TF.linear(tx, tw, tb))
    with raises(RuntimeError, "bias", "(4,)"):
        F.linear(x, w, pair(4)[0])


def test_linear_leaves_its_arguments_alone():
    x, w, b = pair((4, 5))[0], pair((3, 5), seed=1)[0], pair(3, seed=2)[0]
    copies = [t.clone() for t in (x, w, b)]
    F.linear(x, w, b)
    for t, copy in zip((x, w, b), copies, strict=True):
        assert (t == copy).all()


def test_linear_errors():
    x, w = pair((4, 5))[0], pair((3, 2), seed=1)[0]
    with raises(RuntimeError, "mat1 and mat2 shapes cannot be multiplied (4x5 and 2x3)"):
        F.linear(x, w)
    with raises(RuntimeError, "mat1 and mat2 must have the same dtype", "float64", "float32"):
        F.linear(x.double(), pair((3, 5))[0])
    with raises(RuntimeError, "both arguments to linear need to be at least 1D"):
        F.linear(mt.tensor(2.0), w)


# -- embedding -----------------------------------------------------------------------------------


@pytest.mark.parametrize("index_dtype", ["int64", "int32"])
def test_embedding(index_dtype):
    w, tw = pair((7, 4))
    for indices in (3, [0, 6, 6], [[1, 2], [3, 4], [5, 0]], np.zeros((2, 0), int)):
        i, ti = both(np.asarray(indices, index_dtype))
        check(F.embedding(i, w, padding_idx=-1), TF.embedding(ti, tw, padding_idx=-1))


def test_embedding_errors():
    w = pair((3, 2))[0]
    for bad in (3, -1):
        with raises(IndexError, "index out of range in self", str(bad)):
            F.embedding(mt.tensor([0, bad]), w)
    with raises(RuntimeError, "scalar types: Long, Int"):
        F.embedding(mt.tensor([0.0]), w)
    with raises(RuntimeError, "'weight' must be 2-D"):
        F.embedding(mt.tensor([0]), w[0])
    with raises(AssertionError, "Padding_idx must be within num_embeddings"):
        F.embedding(mt.tensor([0]), w, padding_idx=3)
    for lib in (mt, torch):  # the norms of a table without dimensions
        table = lib.tensor(1.0, requires_grad=True)
        with raises(RuntimeError):
            lib.nn.functional.embedding(lib.tensor([0]), table, max_norm=1.0)
        with raises(RuntimeError, "'weight' must be 2-D"):
            lib.nn.functional.embedding(lib.tensor([0]), table.detach(), 0)


@pytest.mark.parametrize("norm_type", [2.0, 1.0])
def test_embedding_max_norm_rewrites_the_rows_it_uses(norm_type):
    w, tw = pair((6, 3), scale=2)
    i, ti = both([[1, 4], [1, 5]])
    got = F.embedding(i, w, max_norm=1.0, norm_type=norm_type)
    check(got, TF.embedding(ti, tw, max_norm=1.0, norm_type=norm_type), 1e-6)
    check(w, tw, 1e-6)


# -- layer norm ----------------------------------------------------------------------------------


@floating
@pytest.mark.parametrize("affine", ["none", "weight", "bias", "both"])
@pytest.mark.parametrize("shape", [(5,), (3, 5)])
def test_layer_norm(dtype, affine, shape):
    x, tx = pair((2, 3, 5), dtype, scale=4)
    w, tw = pair(shape, dtype, 1) if affine in ("weight", "both") else (None, None)
    b, tb = pair(shape, dtype, 2) if affine in ("bias", "both") else (None, None)
    check(F.layer_norm(x, shape, w, b, 1e-3), TF.layer_norm(tx, shape, tw, tb, 1e-3))
    check(
        F.layer_norm(x.transpose(0, 1), x.transpose(0, 1).shape[1:]),
        TF.layer_norm(tx.transpose(0, 1), (2, 5)),
    )


def test_layer_norm_of_half_and_of_nothing():
    x, tx = pair((3, 8), "float16")
    check(F.layer_norm(x, (8,)), TF.layer_norm(tx, (8,)))
    check(F.layer_norm(mt.empty(0, 3), (3,)), TF.layer_norm(torch.empty(0, 3), (3,)))


def test_layer_norm_errors():
    x = pair((2, 3))[0]
    with raises(
        RuntimeError, "Given normalized_shape=[4], expected input with shape [*, 4]", "[2, 3]"
    ):
        F.layer_norm(x, (4,))
    with raises(RuntimeError, "at least 1-dimensional"):
        F.layer_norm(x, ())
    with raises(TypeError, "normalized_shape"):
        F.layer_norm(x, 3)
    with raises(RuntimeError, "Expected weight to be of same shape as normalized_shape"):
        F.layer_norm(x, (3,), mt.ones(2))
    with raises(RuntimeError, "share same datatype"):
        F.layer_norm(x, (3,), mt.ones(3, dtype=mt.float64))
    with raises(NotImplementedError, "int64"):
        F.layer_norm(mt.tensor([[1, 2]]), (2,))
    with raises(RuntimeError, "expected input with shape"):
        F.layer_norm(mt.tensor(1.0), (1,))


# -- pointwise -----------------------------------------------------------------------------------

POINTWISE = {
    "gelu": (F.gelu, TF.gelu),
    "gelu tanh": (
        lambda x: F.gelu(x, approximate="tanh"),
        lambda x: TF.gelu(x, approximate="tanh"),
    ),
    "relu": (F.relu, TF.relu),
    "silu": (F.silu, TF.silu),
    "sigmoid": (F.sigmoid, TF.sigmoid),
    "tanh": (F.tanh, TF.tanh),
}


@floating
@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise(name, dtype):
    ours, theirs = POINTWISE[name]
    for shape in [(), (3,), (4, 0), (2, 3, 50)]:
        x, tx = pair(shape, dtype, scale=5)
        check(ours(x), theirs(tx))
    x, tx = pair((6, 5), dtype)
    check(ours(x.t()[:, ::2]), theirs(tx.t()[:, ::2]))


@pytest.mark.parametrize("name", POINTWISE)
def test_pointwise_special_values(name):
    ours, theirs = POINTWISE[name]
    # float64: torch's float32 GELU gives NaN at +inf in some builds.
    x, tx = both(np.array([math.inf, math.nan, 0.0, -0.0, 1e300, -1e300, 50.0, -50.0]))
    check(ours(x), theirs(tx))


def test_integers_and_bools():
    x, tx = both(np.array([1, -2]))
    check(F.relu(x), TF.relu(tx))
    check(F.sigmoid(x), torch.sigmoid(tx), 1e-6)
    for f in (F.gelu, F.silu):
        with pytest.raises(NotImplementedError, match="not implemented"):
            f(x)


@pytest.mark.parametrize("name", ["relu", "silu"])
def test_inplace(name):
    x, tx = pair((3, 4))
    before = x
    got = getattr(F, name)(x, inplace=True)
    assert got is before
    check(x, getattr(TF, name)(tx, inplace=True))


def test_relu_underscore():
    x = mt.tensor([1.0, -1.0])
    assert F.relu_(x) is x
    assert x.tolist() == [1.0, 0.0]


def test_gelu_approximate_is_checked():
    with raises(RuntimeError, "approximate argument must be either none or tanh"):
        F.gelu(mt.ones(2), approximate="erf")


# -- softmax -------------------------------------------------------------------------------------


@floating
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax(name, dtype):
    ours, theirs = getattr(F, name), getattr(TF, name)
    x, tx = pair((3, 4, 5), dtype, scale=10)
    for dim in (-3, -2, -1, 0, 1, 2):
        check(ours(x, dim), theirs(tx, dim))
    check(ours(x.transpose(0, 2), -1), theirs(tx.transpose(0, 2), -1))
    check(ours(mt.tensor(3.0), 0), theirs(torch.tensor(3.0), 0))
    check(ours(mt.empty(2, 0), 1), theirs(torch.empty(2, 0), 1))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_arguments(name):
    ours, theirs = getattr(F, name), getattr(TF, name)
    x, tx = both(np.array([[1, 2], [3, 5]]))
    check(ours(x, 0, dtype=mt.float64), theirs(tx, 0, dtype=torch.float64))
    with raises(NotImplementedError, "not implemented"):
        ours(x, 0)
    with raises(
        IndexError, "Dimension out of range (expected to be in range of [-2, 1], but got 2)"
    ):
        ours(mt.ones(2, 2), 2)


@pytest.mark.parametrize("ndim", [1, 2, 3, 4])
def test_softmax_without_dim_warns(ndim):
    x, tx = pair((2,) * ndim)
    with warns(UserWarning, "Implicit dimension choice for softmax has been deprecated") as caught:
        got = F.softmax(x)
    assert caught[0].filename == __file__
    with pytest.warns(UserWarning, match="Implicit"):
        check(got, TF.softmax(tx))


def test_masked_rows():
    x, tx = both(
        np.array([[-math.inf, 0.0, 1.0], [-math.inf] * 3, [math.nan, 0, 1], [math.inf, 0, 1]])
    )
    check(F.softmax(x, -1), TF.softmax(tx, -1))
    check(F.log_softmax(x, -1), TF.log_softmax(tx, -1))
    check(F.softmax(x, 0), TF.softmax(tx, 0))


# -- dropout -------------------------------------------------------------------------------------


def test_dropout():
    x = mt.ones(100_000)
    assert F.dropout(x, 0.3, training=False) is x
    assert (F.dropout(x, 1.0) == 0).all()
    mt.manual_seed(0)
    y = F.dropout(x, 0.3).numpy()
    assert set(np.unique(y)) == {np.float32(0), np.float32(1 / 0.7)}
    assert abs((y == 0).mean() - 0.3) < 0.01
    assert (x == 1).all()
    assert F.dropout(x, 0.3, inplace=True) is x
    assert abs((x.numpy() == 0).mean() - 0.3) < 0.01
    for p in (-0.1, 1.1):
        with raises(ValueError, f"dropout probability has to be between 0 and 1, but got {p}"):
            F.dropout(x, p)


# -- normalize -----------------------------------------------------------------------------------


@floating
@pytest.mark.parametrize("p", [2.0, 1.0, 3.0, math.inf, 0.5])
def test_normalize(p, dtype):
    x, tx = pair((3, 4, 5), dtype)
    x[0], tx[0] = 0, 0
    for dim in (0, 1, -1):
        check(F.normalize(x, p, dim), TF.normalize(tx, p, dim), 4 * TOLERANCE[dtype])


def test_normalize_out_and_errors():
    x, tx = pair((3, 4))
    out = mt.empty(3, 4)
    assert F.normalize(x, out=out) is out
    check(out, TF.normalize(tx))
    with raises(RuntimeError, "floating point or complex"):
        F.normalize(mt.tensor([[3, 4]]))


# -- attention -----------------------------------------------------------------------------------


def attention_inputs(dtype="float32", batch=(2, 3), length=4, source=6, width=5, value_width=7):
    shapes = [(*batch, length, width), (*batch, source, width), (*batch, source, value_width)]
    pairs = [pair(s, dtype, i) for i, s in enumerate(shapes)]
    return [p[0] for p in pairs], [p[1] for p in pairs]


@floating
@pytest.mark.parametrize("batch", [(), (2,), (2, 3), (2, 1, 3)])
@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("causal", [False, True])
def test_attention(dtype, batch, scale, causal):
    for length, source in [(4, 6), (6, 4), (1, 1)]:
        ours, theirs = attention_inputs(dtype, batch, length, source)
        check(
            F.scaled_dot_product_attention(*ours, is_causal=causal, scale=scale),
            TF.scaled_dot_product_attention(*theirs, is_causal=causal, scale=scale),
            2 * TOLERANCE[dtype],
        )


@floating
@pytest.mark.parametrize("shape", [(4, 6), (6,), (1, 1, 1, 6), (2, 1, 4, 6), (2, 3, 4, 6)])
@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_masks(dtype, shape, kind):
    ours, theirs = attention_inputs(dtype)
    keep = np.random.default_rng(5).random(shape) < 0.6
    mask = keep if kind == "bool" else np.where(keep, 0.5, -np.inf).astype(dtype)
    m, tm = both(mask)
    if len(shape) == 1:
        tm = tm.expand(4, 6)
    check(
        F.scaled_dot_product_attention(*ours, attn_mask=m),
        TF.scaled_dot_product_attention(*theirs, attn_mask=tm),
        2 * TOLERANCE[dtype],
    )


@pytest.mark.parametrize("kind", ["bool", "float"])
def test_attention_rows_without_keys_are_zero(kind):
    ours, theirs = attention_inputs()
    keep = np.ones((4, 6), bool)
    keep[1:3] = False
    m, tm = both(keep if kind == "bool" else np.where(keep, 0, -np.inf).astype("f4"))
    got = F.scaled_dot_product_attention(*ours, attn_mask=m)
    check(got, TF.scaled_dot_product_attention(*theirs, attn_mask=tm))
    assert (got[:, :, 1:3] == 0).all()


def test_attention_of_transposed_heads_and_half():
    for dtype in ("float32", "float16"):
        x, tx = pair((2, 5, 3, 4), dtype)
        got = F.scaled_dot_product_attention(*[x.transpose(1, 2)] * 3)
        check(got, TF.scaled_dot_product_attention(*[tx.transpose(1, 2)] * 3))
    flat = got.transpose(1, 2)
    assert flat.is_contiguous()  # the reshape that follows copies nothing


def test_attention_with_grouped_queries():
    q, tq = pair((2, 6, 4, 5))
    kv, tkv = pair((2, 2, 4, 5), seed=1)
    check(
        F.scaled_dot_product_attention(q, kv, kv, enable_gqa=True),
        TF.scaled_dot_product_attention(tq, tkv, tkv, enable_gqa=True),
    )
    with raises(RuntimeError, "multiple", "6 and 4"):
        F.scaled_dot_product_attention(q, *[mt.ones(2, 4, 4, 5)] * 2, enable_gqa=True)


def test_attention_dropout():
    mt.manual_seed(0)
    q = mt.zeros(1, 200, 4)
    v = mt.ones(1, 200, 3)
    y = F.scaled_dot_product_attention(q, mt.zeros(1, 200, 4), v, dropout_p=0.5).numpy()
    assert len(np.unique(y)) > 5
    assert abs(y.mean() - 1) < 0.05
    assert (F.scaled_dot_product_attention(q, q, v, dropout_p=1.0) == 0).all()


def test_attention_errors():
    (q, k, v), _ = attention_inputs()
    with raises(RuntimeError, "Explicit attn_mask should not be set when is_causal=True"):
        F.scaled_dot_product_attention(q, k, v, mt.ones(4, 6).bool(), is_causal=True)
    with raises(RuntimeError, "Expected attn_mask dtype to be bool or float", "int64"):
        F.scaled_dot_product_attention(q, k, v, mt.ones(4, 6).long())
    with raises(RuntimeError, "at least 2 dimensional"):
        F.scaled_dot_product_attention(q[0, 0, 0], k, v)
    with raises(RuntimeError, "same dtype", "float64"):
        F.scaled_dot_product_attention(q, k.double(), v)
    with raises(RuntimeError, "last axis"):
        F.scaled_dot_product_attention(q, v, v)


def test_causal_attention_of_longer_queries_is_defined():
    q, kv = mt.zeros(5, 3), mt.arange(2).float().unsqueeze(1)
    got = F.scaled_dot_product_attention(q, mt.ones(2, 3), kv, is_causal=True)
    assert got.flatten().tolist() == [0.0, 0.5, 0.5, 0.5, 0.5]


# -- what is different from torch ----------------------------------------------------------------


def test_gelu_of_infinity_is_infinity():
    for dtype in (mt.float32, mt.float64):
        x = mt.full((40,), math.inf, dtype=dtype)
        assert (F.gelu(x) == math.inf).all()


def test_tensors_of_another_library_run_in_that_library():
    x = torch.rand(2, 2) - 0.5
    assert torch.equal(F.linear(x, x), torch.nn.functional.linear(x, x))
    assert torch.equal(F.embedding(x.long(), x), torch.nn.functional.embedding(x.long(), x))
    assert torch.equal(F.gelu(x), torch.nn.functional.gelu(x))
    assert torch.equal(F.softmax(x, 0), torch.nn.functional.softmax(x, 0))
    assert torch.equal(mt.cat((x, x), dim=1), torch.cat((x, x), dim=1))


def test_tensors_of_two_libraries_are_refused_by_name():
    x = torch.ones(2, 2)
    w = mt.ones(2, 2)
    with raises(TypeError, "linear(): expected tensors of one library, got input (torch.Tensor)"):
        F.linear(x, w)
    with raises(TypeError, "linear(): expected tensors of one library, got bias (torch.Tensor)"):
        F.linear(w, w, x)
    with pytest.raises(RuntimeError) as failed:
        F.linear(x, torch.ones(2, 3))
    assert failed.value.__context__ is None
    with raises(TypeError, "expected tensors of one library"):
        F.embedding(x.long(), w)
    with raises(TypeError, "expected tensors of one library, got key (torch.Tensor) of torch"):
        F.scaled_dot_product_attention(w, x, w)
    with raises(TypeError, "got list"):
        F.linear([1.0], w)


# -- meta ----------------------------------------------------------------------------------------


def test_meta_tensors_give_shapes():
    x = mt.empty(2, 3, 8, device="meta")
    w = mt.empty(5, 8, device="meta")
    indices = mt.empty(2, 4, dtype=mt.int64, device="meta")
    results = [
        (F.linear(x, w, mt.empty(5, device="meta")), (2, 3, 5)),
        (F.embedding(indices, w), (2, 4, 8)),
        (F.layer_norm(x, (8,)), (2, 3, 8)),
        (F.gelu(x), (2, 3, 8)),
        (F.silu(x), (2, 3, 8)),
        (F.relu(x), (2, 3, 8)),
        (F.softmax(x, -1), (2, 3, 8)),
        (F.scaled_dot_product_attention(x, x, x), (2, 3, 8)),
        (F.dropout(x), (2, 3, 8)),
        (F.normalize(x), (2, 3, 8)),
    ]
    for got, shape in results:
        assert got.is_meta
        assert tuple(got.shape) == shape
    with raises(RuntimeError, "cannot be multiplied"):
        F.linear(x, mt.empty(5, 7, device="meta"))
