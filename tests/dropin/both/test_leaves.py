# SPDX-License-Identifier: BSD-3-Clause
"""Leaves of every kind: subclasses, meta, FakeTensor, lazy, parametrized, pruned, swapped."""

from __future__ import annotations

import copy
import io
import pickle

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

X = torch.arange(8.0).reshape(2, 4)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.ones(4))
        self.register_buffer("hidden", torch.ones(4), persistent=False)

    def forward(self, x):
        return self.layer(x) * self.count


class Marked(torch.Tensor):
    """A subclass that notes what runs on it."""

    log: list[str] = []

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        cls.log.append(getattr(function, "__name__", str(function)))
        return super().__torch_function__(function, types, args, kwargs or {})


# -- kinds of tensors ----------------------------------------------------------------------------


def test_tensor_subclasses():
    net = Net()
    net.layer.weight = nn.Parameter(torch.ones(4, 4).as_subclass(Marked))
    net.count = torch.ones(4).as_subclass(Marked)
    assert type(net.layer.weight) is Marked and isinstance(net.layer.weight, nn.Parameter)
    assert type(net.state_dict()["layer.weight"]) is Marked
    Marked.log.clear()
    net.load_state_dict({name: value + 1 for name, value in Net().state_dict().items()})
    assert "copy_" in Marked.log
    net.double()
    assert type(net.count) is Marked and net.layer.weight.dtype is torch.float64


def test_hash_that_is_patched_on_the_tensor_class(monkeypatch):
    asked = []
    own = torch.Tensor.__hash__
    monkeypatch.setattr(torch.Tensor, "__hash__", lambda t: asked.append(1) or own(t))
    net = Net()
    for use in (net.parameters, net.named_buffers, net.zero_grad):
        asked.clear()
        list(use() or ())
        assert asked


def test_meta():
    with torch.device("meta"):
        net = Net()
    assert net.layer.weight.is_meta and net.count.is_meta
    state = Net().state_dict()
    with pytest.warns(UserWarning, match="for layer.weight: copying from a non-meta parameter"):
        net.load_state_dict({"layer.weight": state["layer.weight"]}, strict=False)
    assert net.layer.weight.is_meta
    net.load_state_dict(state, assign=True)
    assert net.layer.weight.data_ptr() == state["layer.weight"].data_ptr() and net.hidden.is_meta
    assert isinstance(net.layer.weight, nn.Parameter) and net.layer.weight.requires_grad
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor; no data"):
        Net().to("meta").to("cpu")
    assert not Net().to("meta").to_empty(device="cpu").layer.weight.is_meta


def test_skip_init():
    layer = nn.utils.skip_init(nn.Linear, 3, 2)
    assert layer.weight.shape == (2, 3) and not layer.weight.is_meta


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

    with FakeTensorMode() as mode:
        net = Net()
        assert net(torch.ones(2, 4)).shape == (2, 4)
        net.load_state_dict(net.state_dict())
        assert isinstance(net.layer.weight, FakeTensor) and isinstance(net.count, FakeTensor)
    real = Net()
    fakes = {name: mode.from_tensor(value) for name, value in real.state_dict().items()}
    with mode:
        net.load_state_dict(fakes, assign=True)
    assert isinstance(net.layer.weight, FakeTensor) and not isinstance(real.count, FakeTensor)


def test_conversions():
    net = Net()
    weight, grad = net.layer.weight, torch.ones(4, 4)
    weight.grad = grad
    assert net.to(torch.float64) is net and net.layer.weight is weight
    assert weight.grad.dtype is net.count.dtype is torch.float64
    assert net.to("cpu", torch.float16, non_blocking=True).hidden.dtype is torch.float16
    net.register_buffer("index", torch.arange(3))
    assert (
        net.float().index.dtype is torch.int64
        and net.type(torch.float16).index.dtype is torch.float16
    )
    assert net.to(memory_format=torch.channels_last) is net
    with pytest.raises(TypeError, match="nn.Module.to only accepts floating point or complex"):
        net.to(torch.int8)
    with pytest.raises(TypeError):
        net.to("cpu", "cpu", "cpu", "cpu")
    assert Net().share_memory().layer.weight.is_shared()


@pytest.mark.parametrize("assign", [False, True])
def test_errors_of_loads(assign):
    net, state = Net(), Net().state_dict()
    state["layer.weight"] = torch.ones(3, 3)
    state["extra"] = torch.ones(1)
    del state["count"]
    with pytest.raises(RuntimeError) as caught:
        net.load_state_dict(state, assign=assign)
    assert str(caught.value) == (
        "Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "count". \n'
        '\tUnexpected key(s) in state_dict: "extra". \n'
        "\tsize mismatch for layer.weight: copying a param with shape torch.Size([3, 3]) from "
        "checkpoint, the shape in current model is torch.Size([4, 4])."
    )
    with pytest.raises(TypeError, match="Expected state_dict to be dict-like, got"):
        net.load_state_dict([])


def test_state_dict_is_an_ordered_dict_with_metadata():
    import collections

    net = Net()
    state = net.state_dict()
    assert type(state) is collections.OrderedDict
    assert state._metadata == {"": {"version": 1}, "layer": {"version": 1}}
    assert list(net.state_dict(prefix="p.")) == ["p.count", "p.layer.weight", "p.layer.bias"]
    assert not state["layer.weight"].requires_grad
    assert net.state_dict(keep_vars=True)["layer.weight"] is net.layer.weight
    destination = {}
    with pytest.warns(FutureWarning, match="Positional args are being deprecated"):
        assert net.state_dict(destination) is destination
    file = io.BytesIO()
    torch.save(state, file)
    file.seek(0)
    loaded = torch.load(file, weights_only=True)
    assert loaded._metadata == state._metadata and list(loaded) == list(state)


def test_extra_state():
    class Own(Net):
        def get_extra_state(self):
            return {"steps": 3}

        def set_extra_state(self, state):
            self.steps = state["steps"]

    own = Own()
    state = own.state_dict()
    assert list(state) == ["count", "_extra_state", "layer.weight", "layer.bias"]
    Own().load_state_dict(state)
    own.load_state_dict(state)
    assert own.steps == 3


# -- lazy modules --------------------------------------------------------------------------------


def test_lazy_modules():
    net = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    assert type(net[0].weight) is nn.UninitializedParameter and net[0].has_uninitialized_params()
    assert repr(net[0]) == "LazyLinear(in_features=0, out_features=3, bias=True)"
    pickled = pickle.loads(pickle.dumps(net))
    assert isinstance(net.state_dict()["0.weight"], nn.UninitializedParameter)
    for lazy in (net, pickled):
        assert lazy(X).shape == (2, 3) and type(lazy[0]) is nn.Linear
        assert type(lazy[1]) is nn.BatchNorm1d and type(lazy[0].weight) is nn.Parameter
        assert lazy[0]._forward_pre_hooks == {} and not hasattr(lazy[0], "_initialize_hook")
        assert lazy.double()[1].running_mean.dtype is torch.float64
    other = nn.Sequential(nn.LazyLinear(3), nn.LazyBatchNorm1d())
    other.load_state_dict(net.state_dict())
    assert other[0].weight.shape == (3, 4)


def test_lazy_modules_refuse_what_they_cannot():
    layer = nn.LazyLinear(3)
    with pytest.raises(ValueError, match="uninitialized parameter"):
        layer.weight + 1
    with pytest.raises(RuntimeError, match="Can't share memory on an uninitialized"):
        layer.share_memory()
    layer.half()
    assert layer.weight.dtype is torch.float16


# -- parametrizations, pruning, functional calls -------------------------------------------------


class Double(nn.Module):
    def forward(self, x):
        return x * 2

    def right_inverse(self, x):
        return x / 2


def test_parametrize():
    from torch.nn.utils import parametrize

    layer = nn.Linear(4, 4)
    before, cls = layer.weight.detach().clone(), type(layer)
    parametrize.register_parametrization(layer, "weight", Double())
    assert type(layer).__name__ == "ParametrizedLinear" and isinstance(layer, cls)
    assert layer.weight.equal(before) and layer.parametrizations.weight.original.equal(before / 2)
    assert list(dict(layer.named_parameters())) == ["bias", "parametrizations.weight.original"]
    layer.weight = torch.ones(4, 4)
    assert layer.weight.equal(torch.ones(4, 4)) and "weight" not in layer._parameters
    copied = copy.deepcopy(layer)
    assert copied.weight.equal(layer.weight) and copied(X).equal(layer(X))
    with pytest.raises(RuntimeError, match="Serialization of parametrized modules is only supp"):
        pickle.dumps(layer)
    with parametrize.cached():
        assert layer.weight is layer.weight
    layer.double().load_state_dict(layer.state_dict())
    parametrize.remove_parametrizations(layer, "weight")
    assert type(layer) is cls and isinstance(layer.weight, nn.Parameter)


@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm", "orthogonal"])
def test_parametrizations_of_torch(name):
    layer = getattr(nn.utils.parametrizations, name)(nn.Linear(4, 4))
    layer(X).sum().backward()
    assert all(parameter.grad is not None for parameter in layer.parameters())
    other = getattr(nn.utils.parametrizations, name)(nn.Linear(4, 4))
    other.load_state_dict(layer.state_dict())
    torch.testing.assert_close(other.eval()(X), layer.eval()(X))


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("name", ["weight_norm", "spectral_norm"])
def test_norms_by_hooks(name):
    layer = getattr(nn.utils, name)(nn.Linear(4, 4))
    first = layer.eval()(X)
    assert "weight" not in layer._parameters and len(layer._forward_pre_hooks) == 1
    assert pickle.loads(pickle.dumps(layer))(X).equal(first)
    getattr(nn.utils, f"remove_{name}")(layer)
    assert "weight" in layer._parameters and len(layer._forward_pre_hooks) == 0
    torch.testing.assert_close(layer(X), first)


def test_prune():
    from torch.nn.utils import prune

    layer = nn.Linear(4, 4)
    prune.l1_unstructured(layer, "weight", amount=0.5)
    assert list(layer._buffers) == ["weight_mask"] and "weight" in layer.__dict__
    assert int((layer.weight == 0).sum()) == 8 and prune.is_pruned(layer)
    assert not layer.weight.is_leaf and layer(X).shape == (2, 4)
    prune.random_structured(layer, "weight", amount=1, dim=0)
    assert list(layer._parameters) == ["bias", "weight_orig"]
    prune.remove(layer, "weight")
    assert list(layer._parameters) == ["bias", "weight"] and not layer._forward_pre_hooks


def test_functional_call():
    net = Net()
    parameters = {name: value.detach() * 0 for name, value in net.named_parameters()}
    buffers = {"count": torch.full((4,), 2.0)}
    assert torch.func.functional_call(net, (parameters, buffers), (X,)).equal(X * 0)
    assert net.count.tolist() == [1.0] * 4 and isinstance(net.layer.weight, nn.Parameter)
    stacked = torch.func.stack_module_state([Net(), Net()])

    def call(parameters, buffers):
        return torch.func.functional_call(net, (parameters, buffers), (X,))

    assert torch.func.vmap(call)(*stacked).shape == (2, 2, 4)
    grads = torch.func.grad(lambda p: torch.func.functional_call(net, p, (X,)).sum())(parameters)
    assert grads["layer.bias"].tolist() == [2.0] * 4


def test_replicas():
    net = Net()
    net.layer.register_forward_hook(lambda *args: None)
    replica = net._replicate_for_data_parallel()
    assert replica._is_replica is True and replica._parameters == {}
    assert replica._modules == net._modules and replica._modules is not net._modules
    assert replica._buffers == net._buffers and replica._buffers is not net._buffers
    replica.layer = net.layer._replicate_for_data_parallel()
    replica.layer.weight = net.layer.weight.detach()
    assert "weight" in replica.layer.__dict__ and "weight" in net.layer._parameters
    with pytest.warns(
        UserWarning, match="Calling .zero_grad.. from a module created with nn.DataP"
    ):
        replica.zero_grad()


def test_swapped_tensors():
    net = Net()
    weight, new = net.layer.weight, nn.Parameter(torch.zeros(4, 4))
    torch.utils.swap_tensors(net.layer.weight, new)
    assert net.layer.weight is weight and weight.equal(torch.zeros(4, 4))


def test_averaged_models():
    from torch.optim.swa_utils import AveragedModel

    net = Net()
    averaged = AveragedModel(net)
    net.layer.weight.data.add_(1)
    averaged.update_parameters(net)
    averaged.update_parameters(net)
    assert int(averaged.n_averaged) == 2 and averaged(X).shape == (2, 4)
    assert list(averaged.state_dict())[0] == "n_averaged"
