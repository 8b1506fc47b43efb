# SPDX-License-Identifier: BSD-3-Clause
"""One definition on NumPy, torch and jax: the models of examples/, from one safetensors file."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import modtree as mt
from modtree import families

jax = pytest.importorskip("jax")
jit = pytest.importorskip("modtree.jax").jit
torch = pytest.importorskip("torch")

EXAMPLES = Path(__file__).parents[3] / "examples"

pytestmark = pytest.mark.skipif(not EXAMPLES.is_dir(), reason="needs the source tree")

SMALL: dict[str, dict[str, Any]] = {
    "resnet": {"layers": (2, 2, 2, 2), "num_classes": 5, "width": 4},
    "lstm_lm": {"vocabulary": 13, "embedding": 6, "hidden": 7, "layers": 2},
    "gpt2": {"vocabulary": 17, "context": 12, "layers": 2, "heads": 2, "width": 8},
    "vit": {"image": 8, "patch": 4, "width": 12, "layers": 2, "heads": 3, "num_classes": 5},
}


@pytest.fixture
def examples(monkeypatch):
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(EXAMPLES / "ported"))
    return importlib.import_module("run")


def tensor(array: np.ndarray, name: str) -> Any:
    make = {"numpy": mt.tensor, "torch": torch.tensor, "jax": jax.numpy.asarray}
    return make[name](array)


def array(value: Any) -> np.ndarray:
    return np.asarray(families.family_of(value).to_numpy(value))


def data_for(name: str) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(0)
    if name in ("resnet", "vit"):
        size = 40 if name == "resnet" else 8
        images = rng.standard_normal((3, 3, size, size)).astype(np.float32)
        return images, rng.integers(5, size=3)
    shape = (9, 3) if name == "lstm_lm" else (2, 11)
    return (rng.integers(SMALL[name]["vocabulary"], size=shape),)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", sorted(SMALL))
def test_ported_models_give_the_same_in_all_families(examples, name, tmp_path):
    file = examples.load(name)
    mt.manual_seed(0)
    mt.save_file(file.build(**SMALL[name]), tmp_path / "model.safetensors")
    outputs, losses, states = {}, {}, {}
    for family in ("numpy", "torch", "jax"):
        with mt.default_family(family):
            model = file.build(**SMALL[name]).eval()
        model.load_state_dict(mt.load_file(tmp_path / "model.safetensors"))
        data = [tensor(x, family) for x in data_for(name)]
        run = jit if family == "jax" else lambda function: function
        result = run(lambda m, x: m(x))(model, data[0])
        outputs[family] = array(result[0] if isinstance(result, tuple) else result)
        losses[family] = array(run(file.loss)(model, *data))
        if name == "resnet":  # the running statistics move
            run(lambda m, x: m(x))(model.train(), data[0])
        states[family] = {k: array(v) for k, v in model.state_dict().items()}
    for other in ("torch", "jax"):
        np.testing.assert_allclose(outputs[other], outputs["numpy"], rtol=1e-4, atol=1e-5)
        np.testing.assert_allclose(losses[other], losses["numpy"], rtol=1e-4, atol=1e-5)
        assert states[other].keys() == states["numpy"].keys()
        for key, value in states["numpy"].items():
            np.testing.assert_allclose(states[other][key], value, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_gpt2_generates_the_same_text_in_all_families(examples):
    file = examples.load("gpt2")
    mt.manual_seed(1)
    model = file.build(**SMALL["gpt2"]).eval()
    start = np.array([[3, 1, 4]])
    texts = []
    for family in ("numpy", "torch", "jax"):
        mt.to_family(model, family)
        texts.append(array(model.generate(tensor(start, family), 6)).tolist())
    assert texts[0] == texts[1] == texts[2] and len(texts[0][0]) == 9


def test_minilm_gives_the_same_in_all_families(examples):
    minilm = importlib.import_module("minilm")
    config = minilm.BertConfig(
        vocab_size=20,
        hidden_size=12,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=16,
        max_position_embeddings=16,
    )
    mt.manual_seed(0)
    model = minilm.BertModel(config).eval()
    rng = np.random.default_rng(0)
    tokens = rng.integers(20, size=(2, 7))
    mask = np.array([[1] * 7, [1] * 4 + [0] * 3])
    results = {}
    for family in ("numpy", "torch", "jax"):
        mt.to_family(model, family)
        given = [tensor(x, family) for x in (tokens, mask)]
        results[family] = array(minilm.mean_pool(model(*given), given[1]))
    for other in ("torch", "jax"):
        np.testing.assert_allclose(results[other], results["numpy"], rtol=1e-4, atol=1e-5)


def test_a_jitted_model_gives_what_an_unjitted_one_does(examples):
    file = examples.load("vit")
    with mt.default_family("jax"):
        model = file.build(**SMALL["vit"]).eval()
    images = tensor(data_for("vit")[0], "jax")
    jitted = jit(lambda m, x: m(x))
    np.testing.assert_allclose(array(jitted(model, images)), array(model(images)), atol=1e-5)
