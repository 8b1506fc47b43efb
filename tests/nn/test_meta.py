# SPDX-License-Identifier: BSD-3-Clause
"""Models on meta: every layer there and from there (skip_init, to_empty), and a large one."""

from __future__ import annotations

import importlib
import inspect
import tracemalloc
import warnings

import numpy as np
import pytest
from helpers.implementations import needs_torch
from helpers.needs import needs

import modtree as mt
from modtree import nn

# Values for the arguments that layers cannot do without, by name.
ARGUMENTS = {
    "bias": True,
    "d_model": 4,
    "embed_dim": 4,
    "embedding_dim": 3,
    "hidden_size": 3,
    "in1_features": 2,
    "in2_features": 3,
    "in_channels": 2,
    "in_features": 4,
    "input_size": 2,
    "kernel_size": 2,
    "mode": "LSTM",
    "nhead": 2,
    "normalized_shape": 3,
    "num_channels": 4,
    "num_chunks": 4,
    "num_classes": 5,
    "num_embeddings": 5,
    "num_features": 3,
    "num_groups": 2,
    "num_heads": 2,
    "out_channels": 2,
    "out_features": 3,
}
TRACKED = {"affine": True, "track_running_stats": True}
OPTIONS = {  # where the defaults are large, or leave out all tensors
    "InstanceNorm1d": TRACKED,
    "InstanceNorm2d": TRACKED,
    "InstanceNorm3d": TRACKED,
    "Transformer": {"d_model": 4, "nhead": 2, "dim_feedforward": 5},
    "TransformerDecoderLayer": {"dim_feedforward": 5},
    "TransformerEncoderLayer": {"dim_feedforward": 5},
}
RECURRENT = {name: (2, 3) for name in ("GRU", "LSTM", "RNN")}


def classes():
    found = {n: getattr(nn, n) for n in nn.__all__}
    return {n: c for n, c in found.items() if inspect.isclass(c) and issubclass(c, nn.Module)}


def parameters_of(cls):
    return inspect.signature(cls).parameters.values()


WITH_DEVICE = [
    n for n, c in classes().items() if n in RECURRENT or "device" in inspect.signature(c).parameters
]
#: These name a device in their constructor; the recurrent ones take it among their keywords.
NAMING = [n for n in WITH_DEVICE if "device" in inspect.signature(getattr(nn, n)).parameters]
LAZY = tuple(n for n in WITH_DEVICE if n.startswith("Lazy"))


def arguments(name):
    if name in RECURRENT:
        return RECURRENT[name], {}
    needed = [
        p.name
        for p in parameters_of(getattr(nn, name))
        if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return (), {n: ARGUMENTS[n] for n in needed} | OPTIONS.get(name, {})


def make(lib, name, **kwargs):
    args, own = arguments(name)
    return getattr(lib.nn, name)(*args, **own, **kwargs)


def described(module):
    """Names, shapes, dtypes and kinds of all there is in a module."""
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    return {
        name: (
            None if nn.parameter.is_lazy(t) else tuple(t.shape),
            str(t.dtype).rpartition(".")[2],
            t.requires_grad,
        )
        for name, t in tensors.items()
    }


def tensors_of(module):
    return [*module.parameters(), *module.buffers()]


@pytest.mark.parametrize("name", WITH_DEVICE)
def test_layers_in_a_block(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        real = make(mt, name)
        with mt.device("meta"):
            layer = make(mt, name)
    assert tensors_of(layer)
    assert all(t.is_meta for t in tensors_of(layer))
    assert described(layer) == described(real)


@pytest.mark.parametrize("name", [n for n in WITH_DEVICE if n not in LAZY])
def test_layers_get_memory_and_values(name):
    real = make(mt, name)
    layer = make(mt, name, device="meta").to_empty(device="cpu")
    assert described(layer) == described(real)
    assert not any(t.is_meta for t in tensors_of(layer))
    layer.load_state_dict(real.state_dict())
    for key, value in real.state_dict().items():
        np.testing.assert_array_equal(layer.state_dict()[key].numpy(), value.numpy())


@pytest.mark.parametrize("name", [n for n in NAMING if n not in LAZY])
def test_every_layer_skips_its_initialization(name):
    mt.manual_seed(0)
    expected = mt.rand(2).tolist()
    mt.manual_seed(0)
    args, kwargs = arguments(name)
    layer = nn.utils.skip_init(getattr(nn, name), *args, **kwargs)
    assert mt.rand(2).tolist() == expected
    assert type(layer) is getattr(nn, name)
    assert described(layer) == described(make(mt, name))
    assert not any(t.is_meta for t in tensors_of(layer))


@pytest.mark.parametrize("name", LAZY)
def test_lazy_layers_have_nothing_to_skip(name):
    args, kwargs = arguments(name)
    with pytest.raises(ValueError, match="uninitialized parameter"):
        nn.utils.skip_init(getattr(nn, name), *args, **kwargs)


@needs_torch
@pytest.mark.parametrize("name", sorted(classes()))
def test_layers_that_can_skip_are_torchs(name):
    import torch

    theirs = getattr(torch.nn, name)
    assert (name in NAMING) == ("device" in inspect.signature(theirs).parameters)
    if name not in NAMING and not inspect.isabstract(theirs):
        for lib in (mt, torch):
            with pytest.raises(RuntimeError, match="Module must support a 'device' arg"):
                lib.nn.utils.skip_init(getattr(lib.nn, name), 3)


def test_to_empty_of_one_module_alone(impl):
    model = impl.nn.Sequential()
    model.own = impl.nn.Parameter(impl.lib.zeros(2, device="meta"))
    model.below = impl.nn.Module()
    model.below.weight = impl.nn.Parameter(impl.lib.zeros(3, device="meta"))
    model.below.register_buffer("mean", impl.lib.zeros(3, device="meta"))
    assert model.to_empty(device="cpu", recurse=False) is model
    assert not model.own.is_meta
    assert [t.is_meta for t in (model.below.weight, model.below.mean)] == [True, True]
    model.to_empty(device="cpu")
    assert not any(t.is_meta for t in [*model.parameters(), *model.buffers()])
    with pytest.raises(TypeError):
        model.to_empty("cpu")
    with pytest.raises(TypeError):
        model.to_empty()


# -- a large model ---------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.q_proj = nn.Linear(width, width, bias=False)
        self.k_proj = nn.Linear(width, width, bias=False)
        self.v_proj = nn.Linear(width, width, bias=False)
        self.o_proj = nn.Linear(width, width, bias=False)


class FeedForward(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.gate_proj = nn.Linear(width, hidden, bias=False)
        self.up_proj = nn.Linear(width, hidden, bias=False)
        self.down_proj = nn.Linear(hidden, width, bias=False)


class Block(nn.Module):
    def __init__(self, width, hidden):
        super().__init__()
        self.self_attn = Attention(width)
        self.mlp = FeedForward(width, hidden)
        self.input_layernorm = nn.RMSNorm(width)
        self.post_attention_layernorm = nn.RMSNorm(width)


class Llama(nn.Module):
    """The modules of Llama 2, by the names of its checkpoints."""

    def __init__(self, width=4096, hidden=11008, depth=32, words=32000):
        super().__init__()
        self.model = nn.Module()
        self.model.embed_tokens = nn.Embedding(words, width)
        self.model.layers = nn.ModuleList(Block(width, hidden) for _ in range(depth))
        self.model.norm = nn.RMSNorm(width)
        self.lm_head = nn.Linear(width, words, bias=False)


def test_seven_billion_parameters_take_no_memory():
    tracemalloc.start()
    try:
        with mt.device("meta"):
            model = Llama()
        allocated = tracemalloc.get_traced_memory()[1]  # NumPy tells of its memory too
    finally:
        tracemalloc.stop()
    assert sum(p.numel() for p in model.parameters()) == 6_738_415_616
    assert all(p.is_meta for p in model.parameters())
    assert allocated < 4 << 20
    assert model.half().lm_head.weight.dtype == mt.float16
    assert sum(p.nbytes for p in model.parameters()) == 2 * 6_738_415_616


@needs("safetensors")
def test_a_model_on_meta_is_loaded_from_files(tmp_path):
    safetensors = importlib.import_module("safetensors.numpy")
    sizes = (8, 12, 2, 16)
    trained = Llama(*sizes)
    state = {k: v.numpy() for k, v in trained.state_dict().items()}
    for number, part in enumerate(np.array_split(np.array(list(state)), 3)):
        safetensors.save_file({k: state[k] for k in part}, tmp_path / f"model-{number}.safetensors")

    with mt.device("meta"):
        model = Llama(*sizes)
    found = {
        key: mt.from_numpy(array)
        for path in sorted(tmp_path.iterdir())
        for key, array in safetensors.load_file(path).items()
    }
    given = dict(found)
    assert str(model.load_state_dict(found, assign=True)) == "<All keys matched successfully>"
    assert not any(p.is_meta for p in model.parameters())
    assert all(isinstance(p, nn.Parameter) and p.requires_grad for p in model.parameters())
    for key, value in model.state_dict().items():
        np.testing.assert_array_equal(value.numpy(), state[key])
        assert np.shares_memory(value.numpy(), given[key].numpy())
    words = model.lm_head(model.model.norm(model.model.embed_tokens(mt.tensor([1, 2]))))
    assert tuple(words.shape) == (2, 16)


def test_loading_into_meta_without_assign_warns(impl):
    m = impl.nn.Module()
    m.weight = impl.nn.Parameter(impl.lib.zeros(2, device="meta"))
    with pytest.warns(UserWarning, match="which is a no-op"):
        m.load_state_dict({"weight": impl.lib.ones(2)})
    assert m.weight.is_meta


@needs_torch
def test_checkpoints_of_torch_are_assigned_to_a_model_on_meta(tmp_path):
    import torch

    theirs = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    torch.save(theirs.state_dict(), tmp_path / "model.pt")
    with mt.device("meta"):
        model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    model.load_state_dict(mt.load(tmp_path / "model.pt"), assign=True)
    assert not any(t.is_meta for t in tensors_of(model))
    model.eval()
    theirs.eval()
    x = np.ones((2, 3), np.float32)
    np.testing.assert_allclose(
        model(mt.from_numpy(x)).detach().numpy(),
        theirs(torch.from_numpy(x)).detach().numpy(),
        rtol=1e-5,
    )
