# SPDX-License-Identifier: BSD-3-Clause
"""``to_family`` and ``default_family``."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from helpers.needs import needs

import modtree as mt
import modtree.nn.functional as F
from modtree import families, nn

jax = pytest.importorskip("jax")
torch = pytest.importorskip("torch")
jnp = jax.numpy

FAMILIES = ("numpy", "torch", "jax")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(2, 3, 3)
        self.norm = nn.BatchNorm1d(3)
        self.head = nn.Linear(3, 4)
        self.tied = nn.Linear(3, 4)
        self.tied.weight = self.head.weight
        self.head.bias.requires_grad_(False)
        self.register_buffer("table", mt.arange(4), persistent=False)

    def forward(self, x):
        x = F.relu(self.norm(self.conv(x)))
        return self.head(mt.amax(x, -1)) + self.tied(mt.mean(x, dim=-1))


def values(model):
    return {
        name: np.array(families.family_of(t).to_numpy(t)) for name, t in model.state_dict().items()
    }


def address(tensor):
    if isinstance(tensor, jax.Array):
        return tensor.unsafe_buffer_pointer()
    return tensor.data_ptr()


@pytest.mark.parametrize("first", FAMILIES)
@pytest.mark.parametrize("second", FAMILIES)
def test_values_ties_and_flags_stay_on_the_way_there_and_back(first, second):
    net = mt.to_family(Net(), first)
    before = values(net)
    assert mt.to_family(net, second) is net
    kind = families.family_of(net.conv.weight)
    assert kind.name == second
    assert {families.family_of(t).name for t in [*net.parameters(), *net.buffers()]} == {second}
    assert net.tied.weight is net.head.weight and len(list(net.parameters())) == 7
    assert not kind.requires_grad(net.head.bias) and kind.requires_grad(net.conv.weight)
    assert net.table is not None and "table" not in net.state_dict()
    mt.to_family(net, first)
    after = values(net)
    assert before.keys() == after.keys()
    for name, array in before.items():
        np.testing.assert_array_equal(after[name], array)


@pytest.mark.parametrize("name", FAMILIES[:2])
def test_a_converted_model_trains(name):
    with mt.default_family("jax"):
        net = Net()
    mt.to_family(net, name)
    x = mt.ones(2, 2, 5) if name == "numpy" else torch.ones(2, 2, 5)
    net(x).sum().backward()
    lib = mt if name == "numpy" else torch
    lib.optim.SGD(net.parameters(), lr=0.1).step()
    assert net.conv.weight.grad is not None


def test_memory_is_shared_where_dlpack_allows_it():
    net = nn.Linear(30, 40)
    at = address(net.weight)
    mt.to_family(net, "torch")
    assert address(net.weight) == at
    mt.to_family(net, "numpy")
    assert address(net.weight) == at
    # torch's own memory begins where jax needs it to.
    net.weight = nn.Parameter(mt.from_torch(torch.rand(40, 30)))
    mt.to_family(net, "torch")
    at = address(net.weight)
    mt.to_family(net, "jax")
    assert address(net.weight) == at
    mt.to_family(net, "torch")
    assert address(net.weight) == at


@pytest.mark.parametrize("first", ["numpy", "torch"])
def test_new_arrays_are_not_committed_to_a_device(first):
    """As those of jax itself; a jitted step would be compiled for them and for its own results."""
    net = mt.to_family(mt.to_family(Net(), first), "jax")
    assert not any(leaf.committed for leaf in [*net.parameters(), *net.buffers()])


def test_bfloat16_stays():
    net = mt.to_family(nn.Linear(3, 4), "torch").to(torch.bfloat16)
    expected = net.weight.detach().float().numpy().copy()
    for name in ("jax", "torch", "jax"):
        mt.to_family(net, name)
        assert str(net.weight.dtype).endswith("bfloat16")
    np.testing.assert_array_equal(np.asarray(net.weight, np.float32), expected)


@needs("ml_dtypes")
def test_numpy_parameters_of_bfloat16_become_arrays_of_it():
    net = nn.Linear(3, 4).to(mt.bfloat16)
    mt.to_family(net, "jax")
    assert net.weight.dtype == jnp.bfloat16
    mt.to_family(net, "numpy")
    assert net.weight.dtype is mt.bfloat16


def test_gradients_go_from_numpy_to_torch():
    net = nn.Linear(2, 3)
    net(mt.ones(1, 2)).sum().backward()
    mt.to_family(net, "torch")
    assert net.weight.grad.tolist() == [[1.0, 1.0]] * 3


def test_nothing_changes_if_one_tensor_cannot_be_converted():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 4).double())
    leaves = list(net.parameters())
    with pytest.raises(TypeError, match=r"1\.weight.*float64.*jax_enable_x64"):
        mt.to_family(net, "jax")
    assert all(a is b for a, b in zip(leaves, net.parameters(), strict=True))
    lazy = nn.Sequential(nn.Linear(2, 3), nn.LazyLinear(3))
    with pytest.raises(ValueError, match=r"1\.weight.*shape"):
        mt.to_family(lazy, "torch")
    assert isinstance(lazy[0].weight, mt.Tensor)


def test_wrong_arguments_are_named():
    with pytest.raises(ValueError, match=r"jax, (\w+, )*numpy, torch, got 'tensorflow'"):
        mt.to_family(nn.Linear(2, 2), "tensorflow")
    with pytest.raises(TypeError, match="takes a module of modtree, got builtins.int"):
        mt.to_family(3, "jax")


def test_a_seed_gives_the_same_values_in_all_families():
    found = []
    for name in FAMILIES:
        mt.manual_seed(7)
        with mt.default_family(name):
            net = nn.Sequential(
                nn.LSTM(3, 4),
                nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2, 16), 2),
                nn.Embedding(5, 3, padding_idx=1),
            )
            net[2].weight.data[2] = 3.0
        assert {families.family_of(t).name for t in net.parameters()} == {name}
        found.append(values(net))
    for other in found[1:]:
        for key, array in found[0].items():
            np.testing.assert_array_equal(other[key], array)


def test_blocks_are_of_a_thread_and_nest():
    made = []
    with mt.default_family("jax"):
        outer = nn.Linear(2, 2)
        with mt.default_family("torch"):
            inner = nn.Linear(2, 2)
        thread = threading.Thread(target=lambda: made.append(nn.Linear(2, 2)))
        thread.start()
        thread.join()
    kinds = [families.family_of(m.weight).name for m in (outer, inner, *made)]
    assert kinds == ["jax", "torch", "numpy"]


def test_after_an_error_nothing_is_converted():
    with pytest.raises(KeyError), mt.default_family("jax"):
        net = nn.Linear(2, 2)
        raise KeyError
    assert isinstance(net.weight, mt.Tensor)


def test_initializing_arrays_in_place_is_refused_with_advice():
    with mt.default_family("jax"):
        net = nn.Linear(2, 2)
    with pytest.raises(TypeError, match="jax's tensors cannot change.*default_family"):
        net.reset_parameters()


def test_functions_of_gives_the_functions_of_the_library():
    x = np.ones((2, 3), np.float32)
    for value in (mt.tensor(x), torch.tensor(x), jnp.asarray(x)):
        functions = families.functions_of(value)
        assert type(functions.cat((value, value), 1)) is type(value)
        assert functions.relu(value).shape == (2, 3)
        assert functions.exp(value).shape == (2, 3)
    assert families.functions_of(nn.Linear(2, 2)).linear is F.linear
    with pytest.raises(TypeError, match="expected a tensor or a module"):
        families.functions_of(3)
