# SPDX-License-Identifier: BSD-3-Clause
"""Attention and transformers against torch's: gradients, masks, stacks, checkpoints, errors."""

from __future__ import annotations

import numpy as np
import pytest
from helpers.gradients import Case, suite
from helpers.layers_common import (
    check_arguments,
    check_copies,
    check_description,
    check_run,
    check_where,
    load,
    make,
)
from helpers.support import raises

import modtree as mt
from modtree import nn
from modtree.nn import functional as F

torch = pytest.importorskip("torch")
from torch.nn.attention import SDPBackend, sdpa_kernel  # noqa: E402

# -- scaled dot-product attention ------------------------------------------------------------------


def attend(lib, q, k, v, **options):
    if lib is torch:  # its fused forms have no second derivatives
        with sdpa_kernel(SDPBackend.MATH):
            return torch.nn.functional.scaled_dot_product_attention(q, k, v, **options)
    return F.scaled_dot_product_attention(q, k, v, **options)


def kept(lib):
    """A mask of bools that leaves every query a key."""
    mask = np.random.default_rng(3).random((3, 4)) < 0.6
    mask[:, 0] = True
    return lib.from_numpy(mask)


QKV = [
    ((3, 5), (4, 5), (4, 2)),
    ((2, 3, 5), (2, 4, 5), (2, 4, 2)),
    ((2, 2, 3, 5), (2, 2, 4, 5), (2, 2, 4, 5)),
]

test_gradients_of_attention = suite(
    [
        Case("plain", attend, QKV, mixed=False),
        Case("scale", lambda lib, *x: attend(lib, *x, scale=0.3), QKV, mixed=False),
        Case("causal", lambda lib, *x: attend(lib, *x, is_causal=True), QKV, mixed=False),
        Case("bools", lambda lib, *x: attend(lib, *x, attn_mask=kept(lib)), QKV, mixed=False),
        Case(
            "numbers",
            lambda lib, q, k, v, m: attend(lib, q, k, v, attn_mask=m),
            [(*shapes, (3, 4)) for shapes in QKV] + [(*QKV[2], (2, 1, 3, 4))],
            mixed=False,
        ),
        Case(
            "shared keys",
            lambda lib, q, k, v: attend(lib, q, k, v, enable_gqa=True),
            [((2, 4, 3, 5), (2, 2, 3, 5), (2, 2, 3, 5))],
            mixed=False,
        ),
    ]
)


def test_a_query_without_keys_gets_no_gradient():
    mask = np.ones((3, 4), bool)
    mask[1] = False
    q, k, v = (mt.randn(n, 5, requires_grad=True) for n in (3, 4, 4))
    for given in (mt.from_numpy(mask), mt.from_numpy(np.where(mask, 0, -np.inf).astype("f4"))):
        out = F.scaled_dot_product_attention(q, k, v, attn_mask=given)
        assert out[1].tolist() == [0.0] * 5
        grads = mt.autograd.grad(out.sum(), (q, k, v))
        assert all(np.isfinite(g.numpy()).all() for g in grads)
        assert grads[0][1].tolist() == [0.0] * 5


@pytest.mark.parametrize("dims", [2, 3, 4])
def test_dropout_of_weights(dims):
    """Each weight is dropped or doubled, and its value's gradient with it."""
    mt.manual_seed(0)
    lead = (2,) * (dims - 2)
    q, k = mt.randn(*lead, 60, 8), mt.randn(*lead, 50, 8)
    eye = mt.eye(50).expand(*lead, 50, 50).clone().requires_grad_()
    weights = F.scaled_dot_product_attention(q, k, eye).detach().numpy()
    q.requires_grad_()
    out = F.scaled_dot_product_attention(q, k, eye, dropout_p=0.5)
    ratio = out.detach().numpy() / weights
    np.testing.assert_allclose(np.minimum(np.abs(ratio), np.abs(ratio - 2)), 0, atol=1e-4)
    assert 0.45 < (ratio > 1).mean() < 0.55
    gv, gq = mt.autograd.grad(out.sum(), (eye, q))
    dropped = out.detach().numpy().sum(-2)
    np.testing.assert_allclose(gv.numpy()[..., 0], dropped, rtol=1e-4)
    # Along q: of sum(2 w kept), by differences, with the same weights kept.
    keep = np.round(ratio / 2)

    def total(x):
        scores = x @ np.swapaxes(k.numpy().astype("f8"), -1, -2) / np.sqrt(8)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        return (p / p.sum(-1, keepdims=True) * keep * 2).sum()

    x = q.detach().numpy().astype("f8")
    step = np.random.default_rng(0).standard_normal(x.shape) * 1e-5
    expected = (total(x + step) - total(x - step)) / 2
    assert (gq.numpy() * step).sum() == pytest.approx(expected, rel=1e-2)


def test_everything_dropped():
    q = mt.randn(3, 4, requires_grad=True)
    out = F.scaled_dot_product_attention(q, q, q, dropout_p=1.0)
    out.sum().backward()
    assert (out == 0).all()
    assert (q.grad == 0).all()


# -- multi-head attention --------------------------------------------------------------------------

RNG = np.random.default_rng(0)
X, SOURCE = RNG.standard_normal((4, 3, 8)), RNG.standard_normal((6, 3, 8))
NARROW = RNG.standard_normal((6, 3, 5))
MASK = np.where(RNG.random((4, 6)) < 0.3, -np.inf, RNG.standard_normal((4, 6)))
MASK[:, 0] = 0
BOOLS = np.isinf(MASK)
PADDING = np.zeros((3, 6), bool)
PADDING[1, 4:] = True


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize(
    ("options", "given"),
    [
        ({}, {}),
        ({"bias": False}, {}),
        ({"add_bias_kv": True, "add_zero_attn": True}, {"key_padding_mask": PADDING}),
        ({}, {"attn_mask": BOOLS, "key_padding_mask": PADDING}),
        ({}, {"attn_mask": MASK}),
        ({"kdim": 5, "vdim": 5}, {}),
    ],
    ids=str,
)
def test_multi_head_attention(options, given, need_weights):
    ours, theirs = make("MultiheadAttention", (8, 2), options)
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.2)
    source = NARROW if "kdim" in options else SOURCE
    kwargs = {"need_weights": need_weights, **given}
    check_run(ours, theirs, [X, source, source], kwargs)
    check_run(ours, theirs, [X, source, source], {**kwargs, "average_attn_weights": False})


def test_self_attention():
    ours, theirs = make("MultiheadAttention", (8, 2), {"batch_first": True})
    load(ours.double(), theirs.double())

    def run(lib, module):
        x = lib.from_numpy(X.copy()).requires_grad_()
        out = module(x, x, x)[0]
        (out * out).sum().backward()
        return [
            out.detach().numpy(),
            x.grad.numpy(),
            *(p.grad.numpy() for p in module.parameters()),
        ]

    for mine, other in zip(run(mt, ours), run(torch, theirs), strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-9, atol=1e-10)


# -- layers and stacks -----------------------------------------------------------------------------

LAYERS = {
    "plain": {},
    "gelu": {"activation": "gelu", "batch_first": True},
    "norm first": {"norm_first": True, "bias": False},
    "all": {"norm_first": True, "batch_first": True, "layer_norm_eps": 1e-3, "dropout": 0.0},
}
layer = pytest.mark.parametrize("label", LAYERS)
SRC, TGT = RNG.standard_normal((5, 3, 8)), RNG.standard_normal((4, 3, 8))
CAUSAL = np.triu(np.full((5, 5), -np.inf), 1)
SRC_PADDING = np.zeros((3, 5), bool)
SRC_PADDING[2, 3:] = True


def first(options, x):
    return np.ascontiguousarray(x.swapaxes(0, 1)) if options.get("batch_first") else x


def quiet(theirs):
    """Without dropout, but not in eval(): there torch takes its fused path, which has no gradients
    and other rules for padding.
    """
    for m in theirs.modules():
        if isinstance(m, (torch.nn.Dropout, nn.Dropout)):
            m.p = 0.0
        if isinstance(m, (torch.nn.MultiheadAttention, nn.MultiheadAttention)):
            m.dropout = 0.0
    return theirs


def pair(name, *args, **kwargs):
    ours, theirs = make(name, args, kwargs)
    return quiet(ours), quiet(theirs)


@pytest.mark.parametrize(
    "name", ["TransformerEncoderLayer", "TransformerDecoderLayer", "Transformer"]
)
def test_arguments(name):
    check_arguments(name)


@pytest.mark.parametrize("name", ["TransformerEncoder", "TransformerDecoder"])
def test_arguments_of_stacks(name):
    check_arguments(name)


@layer
@pytest.mark.parametrize("name", ["TransformerEncoderLayer", "TransformerDecoderLayer"])
def test_description(name, label):
    ours, theirs = make(name, (8, 2, 16), LAYERS[label])
    check_description(ours, theirs)
    check_copies(ours)
    check_where(name, (8, 2, 16), LAYERS[label])


@layer
@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_encoder_layer(label, dtype):
    options = LAYERS[label]
    src = first(options, SRC)
    for kwargs in (
        {},
        {"src_mask": CAUSAL},
        {"src_mask": CAUSAL, "is_causal": True},
        {"src_key_padding_mask": SRC_PADDING},
        {"src_mask": np.isinf(CAUSAL), "src_key_padding_mask": SRC_PADDING},
    ):
        check_run(*pair("TransformerEncoderLayer", 8, 2, 16, **options), [src], kwargs, dtype=dtype)
    check_run(*pair("TransformerEncoderLayer", 8, 2, 16, **options), [SRC[:, 0]])


@layer
def test_decoder_layer(label):
    options = LAYERS[label]
    inputs = [first(options, TGT), first(options, SRC)]
    for kwargs in (
        {},
        {"tgt_mask": CAUSAL[:4, :4], "tgt_is_causal": True},
        {"tgt_mask": CAUSAL[:4, :4], "memory_mask": CAUSAL[:4]},
        {"tgt_key_padding_mask": SRC_PADDING[:, :4], "memory_key_padding_mask": SRC_PADDING},
    ):
        check_run(*pair("TransformerDecoderLayer", 8, 2, 16, **options), inputs, kwargs)
    check_run(*pair("TransformerDecoderLayer", 8, 2, 16, **options), [TGT[:, 0], SRC[:, 0]])


@pytest.mark.parametrize("final", [False, True], ids=["", "norm"])
def test_stacks(final):
    def encoder(lib):
        one = lib.TransformerEncoderLayer(8, 2, 16, 0.0)
        return lib.TransformerEncoder(one, 2, lib.LayerNorm(8) if final else None, False)

    def decoder(lib):
        one = lib.TransformerDecoderLayer(8, 2, 16, 0.0)
        return lib.TransformerDecoder(one, 2, lib.LayerNorm(8) if final else None)

    check_description(encoder(nn), encoder(torch.nn))
    check_description(decoder(nn), decoder(torch.nn))
    check_copies(encoder(nn))
    for kwargs in (
        {},
        {"mask": CAUSAL},
        {"mask": CAUSAL, "is_causal": True},
        {"src_key_padding_mask": SRC_PADDING},
    ):
        check_run(encoder(nn), encoder(torch.nn), [SRC], kwargs)
    for kwargs in (
        {},
        {"tgt_mask": CAUSAL[:4, :4]},
        {"tgt_mask": CAUSAL[:4, :4], "tgt_is_causal": True},
    ):
        check_run(decoder(nn), decoder(torch.nn), [TGT, SRC], kwargs)


def test_padding_is_computed_in_eval_mode_too():
    """torch may leave zeros where padding was, on its fused path."""
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True), 2)
    x, padding = mt.randn(3, 5, 8), mt.from_numpy(SRC_PADDING)
    trained = encoder(x, src_key_padding_mask=padding)
    with mt.no_grad():
        out = encoder.eval()(x, src_key_padding_mask=padding)
    assert (out == trained).all()
    assert (out[2, 3:] != 0).all()


def test_copies_of_a_layer_start_alike_and_live_apart():
    one = nn.TransformerEncoderLayer(8, 2, 16)
    stack = nn.TransformerEncoder(one, 2)
    a, b = (m.linear1.weight for m in stack.layers)
    assert a is not b
    assert (a == b).all()
    assert one.linear1.weight is not a


@pytest.mark.parametrize("label", ["plain", "all"])
def test_transformer(label):
    options = {**LAYERS[label], "dropout": 0.0}
    args = (8, 2, 2, 1, 16)
    ours, theirs = make("Transformer", args, options)
    check_description(ours, theirs)
    check_copies(ours)
    inputs = [first(options, SRC), first(options, TGT)]
    for kwargs in (
        {},
        {"tgt_mask": CAUSAL[:4, :4]},
        {
            "src_mask": CAUSAL,
            "tgt_mask": CAUSAL[:4, :4],
            "tgt_is_causal": True,
            "src_is_causal": True,
        },
        {"src_key_padding_mask": SRC_PADDING, "memory_key_padding_mask": SRC_PADDING},
    ):
        check_run(*pair("Transformer", *args, **options), inputs, kwargs)
    check_run(*pair("Transformer", *args, **options), [SRC[:, 0], TGT[:, 0]])


def test_transformer_of_parts():
    class Echo(nn.Module):
        def forward(self, tgt, memory, **kwargs):
            return tgt + memory.sum()

    decoder = Echo()
    model = nn.Transformer(8, 2, 1, 1, 16, custom_decoder=decoder)
    assert model.decoder is decoder
    assert tuple(model(mt.randn(5, 3, 8), mt.randn(4, 3, 8)).shape) == (4, 3, 8)


def test_starting_values():
    model = nn.Transformer(16, 2, 1, 1, 32)
    for name, p in model.named_parameters():
        if p.dim() > 1:
            bound = np.sqrt(6 / sum(p.shape))
            assert 0.9 * bound < np.abs(p.detach().numpy()).max() <= bound, name


def test_causal_masks():
    mine = nn.Transformer.generate_square_subsequent_mask(4)
    other = torch.nn.Transformer.generate_square_subsequent_mask(4)
    np.testing.assert_array_equal(mine.numpy(), other.numpy())
    double = nn.Transformer.generate_square_subsequent_mask(3, dtype=mt.float64)
    assert double.dtype is mt.float64


def test_activations_of_a_layer():
    for activation, code in ((F.relu, 1), (nn.ReLU(), 1), ("gelu", 2), (nn.GELU(), 2), (F.silu, 0)):
        made = nn.TransformerEncoderLayer(8, 2, activation=activation)
        assert made.activation_relu_or_gelu == code
    module = nn.TransformerDecoderLayer(8, 2, activation=nn.PReLU())
    assert "activation.weight" in module.state_dict()


def test_dropout_while_training():
    mt.manual_seed(0)
    model = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.5)
    x = mt.randn(5, 3, 8)
    assert not (model(x) == model(x)).all()
    model.eval()
    assert (model(x) == model(x)).all()


def test_meta():
    model = nn.Transformer(8, 2, 1, 1, 16, device="meta")
    out = model(mt.empty(5, 3, 8, device="meta"), mt.empty(4, 3, 8, device="meta"))
    assert out.is_meta
    assert tuple(out.shape) == (4, 3, 8)


def test_errors():
    for lib in (torch, mt):
        model = lib.nn.Transformer(8, 2, 1, 1, 16, batch_first=True)
        with raises(RuntimeError, "the batch number of src and tgt must be equal"):
            model(lib.zeros(3, 5, 8), lib.zeros(2, 4, 8))
        with raises(RuntimeError, "the feature number of src and tgt must be equal to d_model"):
            model(lib.zeros(3, 5, 8), lib.zeros(3, 4, 7))
        with raises(RuntimeError, "activation should be relu/gelu, not tanh"):
            lib.nn.TransformerEncoderLayer(8, 2, activation="tanh")
        with raises(RuntimeError, "Need attn_mask if specifying the is_causal hint"):
            lib.nn.TransformerEncoderLayer(8, 2)(lib.zeros(5, 3, 8), is_causal=True)
