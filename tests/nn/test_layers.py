# SPDX-License-Identifier: BSD-3-Clause
"""Layers against torch's: arguments, names, order, repr, starting values, outputs from torch's
checkpoints.
"""

from __future__ import annotations

import inspect
import math
import pickle

import numpy as np
import pytest
from helpers.support import raises

import modtree as mt
from modtree import nn

torch = pytest.importorskip("torch")

LAYERS = {
    "Linear": ((5, 3), {}),
    "Linear no bias": ((5, 3), {"bias": False}),
    "Identity": ((1, "any"), {"thing": 2}),
    "Embedding": ((5, 3), {}),
    "Embedding all": (
        (5, 3),
        {
            "padding_idx": -2,
            "max_norm": 1.5,
            "norm_type": 1.0,
            "scale_grad_by_freq": True,
            "sparse": True,
        },
    ),
    "LayerNorm": ((4,), {}),
    "LayerNorm list": (([2, 3],), {"eps": 1e-3}),
    "LayerNorm no bias": ((4,), {"bias": False}),
    "LayerNorm plain": (((2, 3),), {"elementwise_affine": False}),
    "GELU": ((), {}),
    "GELU tanh": (("tanh",), {}),
    "ReLU": ((), {}),
    "ReLU inplace": ((True,), {}),
    "SiLU": ((), {}),
    "SiLU inplace": ((), {"inplace": True}),
    "Tanh": ((), {}),
    "Sigmoid": ((), {}),
    "Softmax": ((), {}),
    "Softmax dim": ((-1,), {}),
    "LogSoftmax": ((1,), {}),
    "Dropout": ((), {}),
    "Dropout inplace": ((0.2, True), {}),
    "Flatten": ((), {}),
    "Flatten some": ((0, 1), {}),
    "MultiheadAttention": ((8, 2), {}),
    "MultiheadAttention no bias": ((8, 2), {"bias": False}),
    "MultiheadAttention widths": ((8, 2), {"kdim": 3, "vdim": 5}),
    "MultiheadAttention all": (
        (8, 2),
        {
            "dropout": 0.1,
            "add_bias_kv": True,
            "add_zero_attn": True,
            "kdim": 3,
            "batch_first": True,
        },
    ),
}

layer = pytest.mark.parametrize("case", LAYERS)


def make(case, lib):
    args, kwargs = LAYERS[case]
    return getattr(lib, case.split()[0])(*args, **kwargs)


def copy_of(theirs, ours):
    ours.load_state_dict(
        {k: mt.from_numpy(v.numpy().copy()) for k, v in theirs.state_dict().items()}, strict=True
    )
    return ours


def check(got, expected, tolerance=1e-6):
    assert tuple(got.shape) == tuple(expected.shape)
    got, expected = got.detach().numpy(), expected.detach().numpy()
    assert got.dtype == expected.dtype
    np.testing.assert_allclose(got, expected, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("name", sorted({case.split()[0] for case in LAYERS}))
def test_arguments_are_torchs(name):
    def arguments(cls):
        found = list(inspect.signature(cls.__init__).parameters.values())
        named = [p for p in found if p.kind == p.POSITIONAL_OR_KEYWORD and p.name != "self"]
        return [(p.name, p.default) for p in named]

    assert arguments(getattr(nn, name)) == arguments(getattr(torch.nn, name))


@layer
def test_repr_and_names(case):
    ours, theirs = make(case, nn), make(case, torch.nn)
    assert repr(ours) == repr(theirs)
    assert list(ours.state_dict()) == list(theirs.state_dict())
    assert list(ours._parameters) == list(theirs._parameters)
    assert [type(v) is type(None) for v in ours._parameters.values()] == [
        v is None for v in theirs._parameters.values()
    ]
    plain = [k for k in theirs.__dict__ if not k.startswith("_")]
    assert [k for k in ours.__dict__ if not k.startswith("_")] == plain
    for name in plain:
        assert getattr(ours, name) == getattr(theirs, name), name


@layer
def test_a_torch_checkpoint_loads(case):
    theirs = make(case, torch.nn)
    ours = copy_of(theirs, make(case, nn))
    for name, value in theirs.state_dict().items():
        check(ours.state_dict()[name], value, 0)


@layer
def test_pickle(case):
    ours = make(case, nn)
    again = pickle.loads(pickle.dumps(ours))
    assert repr(again) == repr(ours)
    for a, b in zip(ours.parameters(), again.parameters(), strict=True):
        assert (a == b).all()


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in LAYERS
        if c.split()[0] in ("Linear", "Embedding", "LayerNorm", "MultiheadAttention")
    ],
)
def test_device_and_dtype(case):
    args, kwargs = LAYERS[case]
    cls = getattr(nn, case.split()[0])
    double = cls(*args, **kwargs, dtype=mt.float64)
    assert all(p.dtype is mt.float64 for p in double.parameters())
    mt.manual_seed(7)
    before = mt.get_rng_state()
    meta = cls(*args, **kwargs, device="meta")
    assert all(p.is_meta for p in meta.parameters())
    assert mt.get_rng_state() == before
    assert list(meta.state_dict()) == list(double.state_dict())


# -- starting values -------------------------------------------------------------------------------


def test_linear_starts_within_its_bounds_weight_first():
    mt.manual_seed(3)
    m = nn.Linear(16, 400)
    bound = 1 / math.sqrt(16)
    for value in (m.weight.detach().numpy(), m.bias.detach().numpy()):
        assert np.abs(value).max() <= bound
        assert np.abs(value).max() > 0.98 * bound
    assert abs(m.weight.detach().numpy().std() - bound / math.sqrt(3)) < 0.01
    mt.manual_seed(3)
    weight = nn.init.uniform_(mt.empty(400, 16), -bound, bound)
    bias = nn.init.uniform_(mt.empty(400), -bound, bound)
    np.testing.assert_allclose(m.weight.detach().numpy(), weight.numpy(), rtol=1e-6)
    np.testing.assert_allclose(m.bias.detach().numpy(), bias.numpy(), rtol=1e-6)


def test_linear_without_inputs_warns():
    with pytest.warns(UserWarning, match="zero-element tensors is a no-op"):
        m = nn.Linear(0, 3)
    assert m.bias.tolist() == [0.0, 0.0, 0.0]


def test_other_starting_values():
    mt.manual_seed(0)
    weight = nn.Embedding(300, 100, padding_idx=3).weight.detach().numpy()
    assert (weight[3] == 0).all()
    assert abs(np.delete(weight, 3, 0).std() - 1) < 0.02
    norm = nn.LayerNorm(6)
    assert norm.weight.tolist() == [1.0] * 6
    assert norm.bias.tolist() == [0.0] * 6
    m = nn.MultiheadAttention(32, 4, add_bias_kv=True)
    bound = math.sqrt(6 / (4 * 32))
    assert 0.95 * bound < np.abs(m.in_proj_weight.detach().numpy()).max() <= bound
    assert (m.in_proj_bias == 0).all()
    assert (m.out_proj.bias == 0).all()
    assert not (m.bias_k == 0).any()
    assert all(p.requires_grad for p in m.parameters())


def test_embedding_over_a_given_table():
    table = mt.randn(4, 3)
    m = nn.Embedding.from_pretrained(table, padding_idx=1)
    assert not m.weight.requires_grad
    assert (m.weight == table).all()
    assert m.padding_idx == 1
    assert nn.Embedding.from_pretrained(table, freeze=False).weight.requires_grad
    with raises(AssertionError, "2-dimensional"):
        nn.Embedding.from_pretrained(table[0])
    with raises(AssertionError, "Shape of weight does not match num_embeddings and embedding_dim"):
        nn.Embedding(3, 3, _weight=table)


@pytest.mark.parametrize("padding_idx", [5, -6])
def test_padding_idx_is_checked(padding_idx):
    with raises(AssertionError, "Padding_idx must be within num_embeddings"):
        nn.Embedding(5, 3, padding_idx=padding_idx)


def test_constructor_errors():
    for p in (-0.5, 2):
        with raises(ValueError, f"dropout probability has to be between 0 and 1, but got {p}"):
            nn.Dropout(p)
    with raises(AssertionError, "embed_dim must be divisible by num_heads"):
        nn.MultiheadAttention(8, 3)
    with raises(ValueError, "embed_dim and num_heads must be greater than 0"):
        nn.MultiheadAttention(0, 1)


# -- outputs ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize(
    ("case", "shape"),
    [
        ("Linear", (2, 3, 5)),
        ("Linear no bias", (5,)),
        ("Identity", (2, 3)),
        ("LayerNorm", (2, 3, 4)),
        ("LayerNorm list", (4, 2, 3)),
        ("LayerNorm no bias", (3, 4)),
        ("LayerNorm plain", (2, 3)),
        ("GELU", (3, 4)),
        ("GELU tanh", (3, 4)),
        ("ReLU", (3, 4)),
        ("ReLU inplace", (3, 4)),
        ("SiLU", (3, 4)),
        ("SiLU inplace", (3, 4)),
        ("Tanh", (3, 4)),
        ("Sigmoid", (3, 4)),
        ("Softmax dim", (3, 4)),
        ("LogSoftmax", (3, 4)),
        ("Flatten", (2, 3, 4)),
        ("Flatten some", (2, 3, 4)),
    ],
)
def test_outputs(case, shape, dtype):
    theirs = make(case, torch.nn).to(getattr(torch, dtype))
    ours = copy_of(theirs, make(case, nn).to(getattr(mt, dtype)))
    x = np.random.default_rng(0).standard_normal(shape).astype(dtype)
    check(
        ours(mt.from_numpy(x.copy())),
        theirs(torch.from_numpy(x.copy())),
        1e-6 if dtype == "float32" else 1e-12,
    )


@pytest.mark.parametrize("case", ["Embedding", "Embedding all"])
def test_embedding_outputs(case):
    theirs = make(case, torch.nn)
    ours = copy_of(theirs, make(case, nn))
    indices = np.array([[0, 3], [4, 4]])
    check(ours(mt.from_numpy(indices)), theirs(torch.from_numpy(indices)))
    check(ours.weight, theirs.weight)


def test_dropout_follows_the_mode():
    mt.manual_seed(0)
    m = nn.Dropout(0.5)
    x = mt.ones(1000)
    assert 300 < (m(x) == 0).sum().item() < 700
    assert m.eval()(x) is x


def test_softmax_without_dim_warns_at_the_caller():
    with pytest.warns(UserWarning, match="Implicit dimension choice") as caught:
        nn.Softmax()(mt.ones(2, 2))
    assert caught[0].filename == __file__


# -- multi-head attention --------------------------------------------------------------------------


def attention_pair(**kwargs):
    theirs = torch.nn.MultiheadAttention(8, 2, **kwargs).eval()
    with torch.no_grad():
        for p in theirs.parameters():
            p.add_(torch.randn(p.shape, generator=torch.Generator().manual_seed(p.numel())) * 0.3)
    return copy_of(theirs, nn.MultiheadAttention(8, 2, **kwargs).eval()), theirs


def sequences(batch_first=False, batch=3, length=4, source=6, widths=(8, 8, 8)):
    rng = np.random.default_rng(0)
    out = []
    for size, width in zip((length, source, source), widths, strict=True):
        shape = (size, width) if batch is None else (size, batch, width)
        if batch_first and batch is not None:
            shape = (batch, size, width)
        out.append(rng.standard_normal(shape).astype("f4"))
    return out


def run_both(ours, theirs, arrays, **kwargs):
    def convert(lib, value):
        return lib.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value

    # One object stays one object: self attention takes another path.
    def call(module, lib):
        seen = {id(a): convert(lib, a) for a in arrays}
        converted = {k: convert(lib, v) for k, v in kwargs.items()}
        return module(*(seen[id(a)] for a in arrays), **converted)

    got, expected = call(ours, mt), call(theirs, torch)
    check(got[0], expected[0], 2e-6)
    assert (got[1] is None) == (expected[1] is None)
    if got[1] is not None:
        check(got[1], expected[1], 2e-6)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"bias": False},
        {"batch_first": True},
        {"add_bias_kv": True},
        {"add_zero_attn": True},
        {"add_bias_kv": True, "add_zero_attn": True, "batch_first": True},
        {"kdim": 3, "vdim": 5},
        {"kdim": 3, "add_zero_attn": True, "bias": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("need_weights", [True, False])
def test_attention_variants(options, need_weights):
    ours, theirs = attention_pair(**options)
    widths = (8, options.get("kdim", 8), options.get("vdim", 8))
    first = options.get("batch_first", False)
    with torch.no_grad():
        run_both(ours, theirs, sequences(first, widths=widths), need_weights=need_weights)
        run_both(
            ours,
            theirs,
            sequences(first, widths=widths),
            need_weights=need_weights,
            average_attn_weights=False,
        )
        run_both(ours, theirs, sequences(batch=None, widths=widths), need_weights=need_weights)
        if widths == (8, 8, 8):
            x = sequences(first)[0]
            run_both(ours, theirs, [x, x, x], need_weights=need_weights)


@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("kind", ["bool", "float"])
@pytest.mark.parametrize("options", [{}, {"add_bias_kv": True, "add_zero_attn": True}], ids=str)
def test_attention_masks(options, kind, need_weights):
    ours, theirs = attention_pair(**options)

    def mask(*shape):
        drop = np.random.default_rng(4).random(shape) < 0.3
        drop[..., 0] = False
        return drop if kind == "bool" else np.where(drop, -np.inf, 0.25).astype("f4")

    arrays = sequences()
    with torch.no_grad():
        for kwargs in (
            {"attn_mask": mask(4, 6)},
            {"attn_mask": mask(6, 4, 6)},
            {"key_padding_mask": mask(3, 6)},
            {"attn_mask": mask(4, 6), "key_padding_mask": mask(3, 6)},
            {"attn_mask": mask(6, 4, 6), "key_padding_mask": mask(3, 6)},
        ):
            run_both(ours, theirs, arrays, need_weights=need_weights, **kwargs)
        single = sequences(batch=None)
        run_both(ours, theirs, single, need_weights=need_weights, key_padding_mask=mask(6))
        causal = np.triu(np.ones((4, 4), bool), 1)
        x = sequences(source=4)
        run_both(ours, theirs, x, need_weights=need_weights, attn_mask=causal, is_causal=True)


def test_attention_errors():
    ours, _ = attention_pair()
    q, k, v = (mt.from_numpy(a) for a in sequences())
    with raises(RuntimeError, "Need attn_mask if specifying the is_causal hint"):
        ours(q, k, v, is_causal=True)
    with raises(RuntimeError, "The shape of the attn_mask is (4, 5), but should be (4, 6)"):
        ours(q, k, v, attn_mask=mt.zeros(4, 5))
    with raises(AssertionError, "key_padding_mask", "(3, 6)", "(3, 5)"):
        ours(q, k, v, key_padding_mask=mt.zeros(3, 5))
    with raises(AssertionError, "embedding dimension of 8, but got 7"):
        ours(q[..., :7], k, v)
    with raises(AssertionError, "3-D", "2-D"):
        ours(q[0], k, v)
    with raises(AssertionError, "bool and floating", "int64"):
        ours(q, k, v, attn_mask=mt.zeros(4, 6, dtype=mt.int64))


def test_attention_dropout_only_while_training():
    mt.manual_seed(0)
    ours = nn.MultiheadAttention(8, 2, dropout=0.5)
    q, k, v = (mt.from_numpy(a) for a in sequences())
    assert not (ours(q, k, v)[0] == ours(q, k, v)[0]).all()
    ours.eval()
    assert (ours(q, k, v)[0] == ours(q, k, v)[0]).all()
