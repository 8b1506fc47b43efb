# SPDX-License-Identifier: BSD-3-Clause
"""Checkpoint files of torch's own models, and what the errors of their loads say."""

from __future__ import annotations

import importlib
import re

import pytest
from helpers.needs import needs

import modtree as mt

torch = pytest.importorskip("torch")
nn = torch.nn


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(4)
        self.attn = nn.Linear(4, 4)

    def forward(self, x):
        return self.attn(self.norm(x))


class Net(nn.Module):
    def __init__(self, count=3, is_tied=False):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.layers = nn.ModuleList([Block() for _ in range(count)])
        self.bn = nn.BatchNorm1d(4)
        self.head = nn.Linear(4, 10, bias=False)
        if is_tied:
            self.head.weight = self.embed.weight

    def forward(self, words):
        x = self.embed(words)
        for layer in self.layers:
            x = layer(x)
        return self.head(self.bn(x))


def assert_same(model, other):
    states = [m.state_dict() for m in (model, other)]
    assert list(states[0]) == list(states[1])
    for key, value in states[0].items():
        assert torch.equal(value, states[1][key]), key


def assert_of_torch(model):
    assert all(type(p) is nn.Parameter for p in model.parameters())
    assert all(type(b) is torch.Tensor for b in model.buffers())
    model(torch.tensor([1, 2, 3])).sum().backward()
    torch.optim.SGD(model.parameters(), 0.1).step()


def prefixed(prefix, model):
    return {prefix + key: value for key, value in model.state_dict().items()}


# -- files -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("largest", [None, 200])
def test_a_file_and_back(safetensors, largest, tmp_path):
    model, other = Net(is_tied=True), Net(is_tied=True)
    mt.save_file(model, tmp_path / "model.safetensors", max_shard_size=largest)
    read = mt.load_file(tmp_path)
    assert read._metadata == model.state_dict()._metadata
    assert str(other.load_state_dict(mt.to_torch(read))) == "<All keys matched successfully>"
    assert_same(model, other)
    assert other.head.weight is other.embed.weight
    assert not mt.compare(model, tmp_path)


@pytest.mark.parametrize(
    "name", ["float32", pytest.param("bfloat16", marks=needs("ml_dtypes")), "float16"]
)
def test_a_model_on_meta_takes_the_tensors_of_a_file(safetensors, name, tmp_path):
    model = Net().to(getattr(torch, name))
    mt.save_file(model, tmp_path / "a.safetensors")
    with torch.device("meta"):
        other = Net()
    other.load_state_dict(mt.to_torch(mt.load_file(tmp_path / "a.safetensors")), assign=True)
    assert_same(model, other)
    assert_of_torch(other.float())


def test_a_file_of_torch(tmp_path):
    model, other = Net(is_tied=True), Net()
    torch.save({"model": model.state_dict(), "epoch": 3}, tmp_path / "a.pt")
    other.load_state_dict(mt.to_torch(mt.load_file(tmp_path / "a.pt")))
    assert_same(model, other)
    mt.save(model.state_dict(), tmp_path / "b.pt", format="torch")
    assert_same(model, other)
    other.load_state_dict(torch.load(tmp_path / "b.pt", weights_only=True))
    assert_same(model, other)


def test_the_library_reads_what_is_written(safetensors, tmp_path):
    library = importlib.import_module("safetensors.torch")
    model, other = Net(is_tied=True), Net(is_tied=True)
    mt.save_file(model, tmp_path / "a.safetensors")
    assert library.load_model(other, tmp_path / "a.safetensors") == (set(), [])
    assert_same(model, other)


def test_pictures_and_differences():
    model = Net()
    for draw in (mt.to_svg, mt.to_dot, mt.to_mermaid):
        assert "embed" in draw(model)
    found = mt.compare(model, Net(4))
    assert len(found.only_in_b) == 4 and not found.only_in_a
    assert not mt.compare(model, model.state_dict())


# -- on the native class ---------------------------------------------------------------------------


@pytest.fixture
def native(under_dropin):
    if not under_dropin:
        pytest.skip("the class of modtree has it, torch's has not")


@pytest.mark.parametrize("device", ["cpu", "meta"])
@pytest.mark.parametrize("assign", [False, True])
def test_a_state_dict_of_modtree_leaves_torch_in_place(native, device, assign):
    state = mt.from_torch(Net().float().state_dict())
    with torch.device(device):
        model = Net()
    if device == "meta" and not assign:
        with pytest.warns(UserWarning, match="no-op"):
            model.load_state_dict(state)
        return
    model.load_state_dict(state, assign=assign)
    assert torch.equal(model.embed.weight, torch.from_numpy(state["embed.weight"].numpy()))
    assert_of_torch(model)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "a.b."])
def test_a_prefix_is_explained_and_the_call_mends_it(native, prefix):
    model, source = Net(), Net()
    state = prefixed(prefix, source)
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict(state)
    text = str(caught.value)
    assert text.startswith(
        "Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict"
    )
    call = re.search(r"Try: (.*)\.$", text, re.MULTILINE)[1]
    exec(call, {"model": model, "state_dict": state, "re": re})
    assert_same(model, source)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda s: {"state_dict": s, "epoch": 3}, "the state dict under ['state_dict']"),
        (lambda s: {k: v for k, v in s.items() if k != "head.weight"}, "is the same tensor as"),
        (lambda s: {k.replace(".attn.", ".mix."): v for k, v in s.items()}, "'mix' is 'attn' now"),
        (lambda s: {k: v.numpy() for k, v in s.items()}, "torch.from_numpy(value)"),
        (lambda s: {k: v for k, v in s.items() if "layers.2" not in k}, "has 3 blocks in the mode"),
    ],
    ids="mapping tie part arrays layers".split(),
)
def test_other_causes(native, make, words):
    model, source = Net(is_tied=True), Net(is_tied=True)
    state = make(source.state_dict())
    with pytest.raises(RuntimeError) as caught:
        model.load_state_dict(state)
    assert words in str(caught.value)
    call = re.search(r"Try: (.*?)\.?$", str(caught.value), re.MULTILINE)[1]
    scope = {"model": model, "state_dict": state, "re": re, "torch": torch}
    if call == "build the model with 2":
        scope["model"] = model = Net(2, is_tied=True)
        model.load_state_dict(state)
    else:
        exec(call, scope)
    if "from_numpy" in words:
        model.load_state_dict(scope["state_dict"])
    assert torch.equal(model.layers[0].attn.weight, source.layers[0].attn.weight)


def test_rename_partial_and_dry_run(native):
    model, source = Net(4), Net(3)
    before = {key: value.clone() for key, value in model.state_dict().items()}
    state = prefixed("module.", source)
    report = model.load_state_dict(state, rename={"module.": ""}, dry_run=True)
    assert len(report.loaded) == len(state) and len(report.missing_keys) == 4
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())
    state["module.head.weight"] = torch.ones(2, 2)
    report = model.load_state_dict(state, rename={"module.": ""}, partial=True)
    assert list(report.skipped) == ["head.weight"]
    assert torch.equal(model.layers[2].attn.weight, source.layers[2].attn.weight)
    assert torch.equal(model.head.weight, before["head.weight"])
    assert_of_torch(model)
