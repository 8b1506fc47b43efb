# SPDX-License-Identifier: BSD-3-Clause
"""``modtree.check`` finds nothing in what is right: all layers, and real models."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest

import modtree as mt

EXAMPLES = Path(__file__).parents[2] / "examples"

BASES = {"Module", "RNNBase", "RNNCellBase", "Container"}

ARGUMENTS = {
    "AdaptiveLogSoftmaxWithLoss": (4, 10, [3, 5]),
    "Bilinear": (2, 3, 4),
    "ChannelShuffle": (2,),
    "Embedding": (5, 3),
    "EmbeddingBag": (5, 3),
    "GRU": (3, 4, 2),
    "LSTM": (3, 4, 2),
    "MultiheadAttention": (4, 2),
    "RNN": (3, 4, 2),
    "Transformer": (4, 2, 2, 2, 8),
    "TransformerDecoderLayer": (4, 2, 8),
    "TransformerEncoderLayer": (4, 2, 8),
    "Unflatten": (1, (2, 2)),
}
GUESSES = [(), (2,), (2, 2), (4, 4, 1)]


def layer(nn, name):
    cls = getattr(nn, name)
    if name in ("TransformerEncoder", "TransformerDecoder"):
        return cls(getattr(nn, f"{name}Layer")(4, 2, 8), 2)
    for arguments in (ARGUMENTS[name],) if name in ARGUMENTS else GUESSES:
        try:
            return cls(*arguments)
        except (TypeError, ValueError):
            continue
    raise AssertionError(f"no arguments are known for {name}")


def layer_names(nn):
    return [
        name
        for name, value in vars(nn).items()
        if isinstance(value, type) and issubclass(value, nn.Module) and name not in BASES
    ]


@pytest.mark.filterwarnings("ignore")
def test_each_layer(lib):
    names = layer_names(lib.nn)
    assert len(names) > 140
    findings = {name: mt.check(layer(lib.nn, name)) for name in names}
    assert {name: str(found) for name, found in findings.items() if found} == {}


@pytest.mark.filterwarnings("ignore")
def test_parametrized_normalized_and_pruned_layers(lib):
    nn = lib.nn
    new = importlib.import_module(f"{nn.__name__}.utils.parametrizations")
    prune = importlib.import_module(f"{nn.__name__}.utils.prune")
    layers = [nn.Linear(3, 3) for _ in range(7)]
    new.weight_norm(layers[0])
    new.spectral_norm(layers[1])
    new.orthogonal(layers[2])
    nn.utils.weight_norm(layers[3])
    nn.utils.spectral_norm(layers[4])
    prune.l1_unstructured(layers[5], "weight", 0.5)
    prune.random_unstructured(layers[5], "bias", 0.5)
    model = nn.Sequential(*layers)
    assert str(mt.check(model)) == "nothing found"
    model(lib.ones(2, 3)).sum().backward()
    assert str(mt.check(model, lib.ones(2, 3))) == "nothing found"


def transformer(nn, lib):
    model = nn.Transformer(8, 2, 2, 2, 16, batch_first=True)
    return model, (lib.ones(1, 4, 8), lib.ones(1, 3, 8))


def recurrent(nn, lib):
    return nn.LSTM(3, 4, 2, bidirectional=True), lib.ones(5, 1, 3)


def attention(nn, lib):
    return nn.MultiheadAttention(8, 2), (lib.ones(3, 1, 8),) * 3


def lazy(nn, lib):
    return nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d()), lib.ones(1, 3, 8, 8)


def normalized(nn, lib):
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4)), lib.ones(1, 3, 8, 8)


@pytest.mark.parametrize("is_trained", [True, False])
@pytest.mark.parametrize("make", [transformer, recurrent, attention, lazy, normalized])
def test_models_with_an_example(lib, make, is_trained):
    model, example = make(lib.nn, lib)
    if make is not lazy:  # whose parameters cannot be frozen yet
        model.requires_grad_(is_trained)
    assert str(mt.check(model)) == "nothing found"
    assert str(mt.check(model, example)) == "nothing found"


def test_the_sentence_embedder(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    minilm = importlib.import_module("minilm")
    config = minilm.BertConfig(
        vocab_size=50,
        hidden_size=24,
        num_hidden_layers=3,
        num_attention_heads=4,
        intermediate_size=40,
        max_position_embeddings=20,
    )
    model = minilm.BertModel(config)
    assert str(mt.check(model)) == "nothing found"
    ids = mt.zeros(2, 5, dtype=mt.int64)
    assert {finding.path for finding in mt.check(model, ids)} <= {"pooler"}  # embedding leaves it
    assert "0-2  x 3" in str(mt.summary(model, example=ids))
