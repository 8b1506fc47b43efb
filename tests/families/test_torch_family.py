# SPDX-License-Identifier: BSD-3-Clause
"""torch tensors as leaves: what torch's own machinery (autograd, optimizers, utilities) expects of
a module tree.

Most tests run on torch.nn as well, with the same model: the trees must be interchangeable.
"""

from __future__ import annotations

import copy
import io
import pickle
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest
from helpers.support import raises, warns

torch = pytest.importorskip("torch")

from helpers.torch_models import both, make_classes  # noqa: E402

import modtree as mt  # noqa: E402
from modtree import families  # noqa: E402
from modtree import nn as mnn  # noqa: E402
from modtree.torch.family import as_torch, as_torch_device, as_torch_dtype  # noqa: E402

family = families.find(torch.Tensor)


KEYS = ["mean", "count", "first.weight", "first.bias", "second.weight", "second.bias"]


def pair():
    """A torch model and a modtree model with the same values."""
    torch.manual_seed(3)
    theirs = make_classes(torch.nn).Net()
    ours = make_classes(mnn).Net()
    ours.load_state_dict(theirs.state_dict())
    return ours, theirs


# -- registration ----------------------------------------------------------------------------------


def test_assignment(kit):
    net = kit.Net()
    assert [n for n, _ in net.named_parameters()] == KEYS[2:]
    assert [n for n, _ in net.named_buffers()] == ["mean", "count", "scratch"]
    assert all(type(p) is torch.nn.Parameter and p.requires_grad for p in net.parameters())
    assert isinstance(net.first.weight, kit.nn.Parameter)
    if hasattr(kit.nn, "Buffer"):
        assert isinstance(net.scratch, kit.nn.Buffer) and not isinstance(net.mean, kit.nn.Buffer)
    with raises(TypeError, "cannot assign 'torch.FloatTensor' as parameter 'weight'"):
        net.first.weight = torch.zeros(1)
    with raises(ValueError, "non-leaf"):
        net.first.weight = as_result(torch.nn.Parameter(torch.ones(1)))


def as_result(p):
    """A non-leaf that says it is a parameter."""
    result = p * 2
    result._is_param = True
    return result


def test_parameters_of_both_systems_are_the_same_kind(kit):
    m = kit.nn.Module()
    m.a = torch.nn.Parameter(torch.ones(1))
    m.b = mnn.Parameter(torch.ones(1))
    m.c = mnn.Buffer(torch.ones(1))
    assert list(m._parameters) == ["a", "b"]
    assert list(m._buffers) == ["c"] * hasattr(kit.nn, "Buffer")


def test_tensor_subclasses(kit):
    class Own(torch.Tensor):
        pass

    class OwnParameter(torch.nn.Parameter):
        pass

    m = kit.nn.Module()
    m.a = OwnParameter(torch.ones(2))
    m.b = kit.nn.Parameter(torch.ones(2).as_subclass(Own))
    m.register_buffer("c", torch.ones(2).as_subclass(Own))
    assert [type(p) for p in m.parameters()] == [OwnParameter, Own]
    assert type(m.state_dict()["c"]) is Own
    m.double()
    assert [type(p) for p in m.parameters()] == [OwnParameter, Own]
    assert m.b.dtype is torch.float64


# -- conversions -----------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_to_dtype_keeps_parameters(kit, dtype):
    net = kit.Net()
    old = list(net.parameters())
    assert net.to(dtype) is net
    assert all(a is b for a, b in zip(old, net.parameters(), strict=True))
    assert {p.dtype for p in net.parameters()} == {dtype} == {net.mean.dtype}
    assert net.count.dtype is torch.int64


def test_to_meta_and_to_empty(kit):
    net = kit.Net()
    weight = net.first.weight
    net.to("meta")
    assert net.first.weight is not weight and type(net.first.weight) is torch.nn.Parameter
    assert all(t.is_meta for t in (*net.parameters(), *net.buffers()))
    with raises(NotImplementedError, "Cannot copy out of meta tensor; no data!", "to_empty()"):
        net.to("cpu")
    net.to_empty(device="cpu")
    assert [p.shape for p in net.parameters()] == [(4, 3), (4,), (2, 4), (2,)]
    assert not any(t.is_meta for t in (*net.parameters(), *net.buffers()))


def test_gradients_are_converted(kit):
    net = kit.Net()
    net(torch.ones(1, 3)).sum().backward()
    grad = net.first.bias.grad
    net.double()
    assert net.first.bias.grad is grad and grad.dtype is torch.float64


def test_memory_format(kit):
    m = kit.nn.Module()
    m.image = kit.nn.Parameter(torch.ones(1, 2, 3, 3))
    m.flat = kit.nn.Parameter(torch.ones(2))
    m.to(memory_format=torch.channels_last)
    assert m.image.is_contiguous(memory_format=torch.channels_last)


def test_share_memory(kit):
    net = kit.Net()
    assert net.share_memory() is net
    assert all(t.is_shared() for t in (*net.parameters(), *net.buffers()))


def test_modtree_dtypes_and_devices_are_translated():
    m = make_classes(mnn).Net()
    m.to(mt.float64)
    assert m.first.weight.dtype is torch.float64
    m.to(mt.device("meta"))
    assert m.first.weight.is_meta


# -- state dicts -----------------------------------------------------------------------------------


def test_state_dict(kit):
    net = kit.Net()
    state = net.state_dict()
    assert list(state) == KEYS
    for value in state.values():
        assert type(value) is torch.Tensor and not value.requires_grad
    assert state["first.weight"].data_ptr() == net.first.weight.data_ptr()
    assert net.state_dict(keep_vars=True)["first.weight"] is net.first.weight


def test_state_dict_goes_through_torch_save(kit):
    net, other = kit.Net(), kit.Net()
    file = io.BytesIO()
    torch.save(dict(net.state_dict()), file)
    file.seek(0)
    assert other.load_state_dict(torch.load(file, weights_only=True)) == ([], [])
    assert torch.equal(other.first.weight, net.first.weight)


def test_load_state_dict_keeps_parameters(kit):
    net = kit.Net()
    old = list(net.parameters())
    other = kit.Net().double()
    net.load_state_dict(other.state_dict())
    assert all(a is b for a, b in zip(old, net.parameters(), strict=True))
    assert torch.equal(net.first.weight, other.first.weight.float())
    assert net.first.weight.dtype is torch.float32 and net.first.weight.requires_grad


def test_load_state_dict_assign(kit):
    net = kit.Net()
    state = kit.Net().double().state_dict()
    net.load_state_dict(state, assign=True)
    assert type(net.first.weight) is torch.nn.Parameter and net.first.weight.requires_grad
    assert net.first.weight.data_ptr() == state["first.weight"].data_ptr()
    assert net.mean is state["mean"]


def test_load_errors(kit):
    net = kit.Net()
    state = net.state_dict()
    state["first.weight"] = torch.zeros(3, 4)
    state["second.bias"] = "text"
    with raises(
        RuntimeError,
        "size mismatch for first.weight",
        "torch.Size([3, 4])",
        "torch.Size([4, 3])",
        'While copying the parameter named "second.bias"',
    ):
        net.load_state_dict(state)


def test_load_into_meta_warns(kit):
    net = kit.Net()
    state = net.state_dict()
    net.to("meta")
    with warns(UserWarning, "which is a no-op"):
        net.load_state_dict(state)


def test_checkpoints_move_between_the_systems():
    ours, theirs = pair()
    x = torch.randn(5, 3)
    assert torch.equal(ours(x), theirs(x))
    make_classes(torch.nn).Net().load_state_dict(ours.state_dict())
    assert list(ours.state_dict()) == list(theirs.state_dict())


# -- copies ----------------------------------------------------------------------------------------

_classes = make_classes(mnn)
Dense, Net = _classes.Dense, _classes.Net
Dense.__qualname__, Net.__qualname__ = "Dense", "Net"
Dense.__module__ = Net.__module__ = __name__


def test_deepcopy(kit):
    net = kit.Net()
    net.second.bias = net.first.bias
    net.first.weight.grad = torch.ones(4, 3)
    copied = copy.deepcopy(net)
    assert copied.first.weight is not net.first.weight
    assert torch.equal(copied.first.weight, net.first.weight)
    assert copied.second.bias is copied.first.bias
    assert copied.first.weight.grad is None


@pytest.mark.filterwarnings("ignore:You are using .torch.load. with:FutureWarning")
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickle(protocol):
    net = Net()
    net.second.bias = net.first.bias
    loaded = pickle.loads(pickle.dumps(net, protocol))
    assert type(loaded.first.weight) is torch.nn.Parameter
    assert torch.equal(loaded.first.weight, net.first.weight)
    assert loaded.second.bias is loaded.first.bias
    assert list(loaded.state_dict()) == list(net.state_dict())


# -- gradients -------------------------------------------------------------------------------------


def test_gradients_equal_torchs():
    ours, theirs = pair()
    x = torch.randn(5, 3)
    for net in (ours, theirs):
        net(x).square().sum().backward()
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a.grad, b.grad)
    ours.zero_grad(set_to_none=False)
    assert all(not p.grad.any() for p in ours.parameters())
    ours.zero_grad()
    assert all(p.grad is None for p in ours.parameters())
    ours.requires_grad_(False)
    assert not any(p.requires_grad for p in ours.parameters())


def test_backward_hooks_through_autograd():
    seen = {}
    ours, theirs = pair()
    for name, net in (("ours", ours), ("theirs", theirs)):
        calls = seen[name] = []
        for child in (net.first, net.second):
            child.register_full_backward_pre_hook(lambda m, go: (go[0] * 2,))
            child.register_full_backward_hook(
                lambda m, gi, go, calls=calls: calls.append(
                    [None if g is None else g.tolist() for g in (*gi, *go)]
                )
            )
        x = torch.full((1, 3), 0.25, requires_grad=True)
        net(x).sum().backward()
        calls.append(x.grad.tolist())
    assert len(seen["ours"]) == 3
    assert seen["ours"] == seen["theirs"]


@pytest.mark.parametrize("name", ["SGD", "Adam", "RMSprop"])
def test_optimizers_step_the_parameters(name):
    ours, theirs = pair()
    x, y = torch.randn(8, 3), torch.randn(8, 2)
    losses = {}
    for net in (ours, theirs):
        optimizer = getattr(torch.optim, name)(net.parameters(), lr=0.01)
        losses[net] = []
        for _ in range(4):
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            optimizer.step()
            losses[net].append(loss.item())
    assert losses[ours] == losses[theirs]
    assert losses[ours][-1] < losses[ours][0]
    for a, b in zip(ours.parameters(), theirs.parameters(), strict=True):
        assert torch.equal(a, b)


def test_conversion_after_the_optimizer_was_made(kit):
    net = kit.Net()
    optimizer = torch.optim.SGD(net.parameters(), lr=1.0)
    net.double()
    net(torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    before = net.second.bias.detach().clone()
    optimizer.step()
    assert torch.equal(net.second.bias.detach(), before - 1)


def test_utilities_of_torch(kit):
    net = kit.Net()
    utils = torch.nn.utils
    vector = utils.parameters_to_vector(net.parameters())
    assert vector.shape == (26,)
    utils.vector_to_parameters(torch.ones(26), net.parameters())
    assert net.first.bias.tolist() == [1.0] * 4
    net(torch.ones(1, 3)).sum().backward()
    assert utils.clip_grad_norm_(net.parameters(), 1e-3) > 1e-3
    if hasattr(utils, "get_total_norm"):  # of newer torches
        assert utils.get_total_norm([p.grad for p in net.parameters()]) < 1.1e-3
    utils.clip_grad_value_(net.parameters(), 1e-5)
    assert max(p.grad.abs().max() for p in net.parameters()) <= 1.1e-5
    torch.nn.init.zeros_(net.first.weight)
    assert not net.first.weight.any()


# -- uninitialized parameters ----------------------------------------------------------------------


def test_uninitialized_parameters(kit):
    m = kit.nn.Module()
    m.w = torch.nn.parameter.UninitializedParameter()
    m.register_buffer("b", torch.nn.parameter.UninitializedBuffer())
    assert mt.nn.parameter.is_lazy(m.w) and mt.nn.parameter.is_lazy(m.b)
    assert not mt.nn.parameter.is_lazy(torch.ones(1)) and not mt.nn.parameter.is_lazy(3)
    w = m.w
    m.double()
    assert m.w is w and w.dtype is torch.float64
    m.zero_grad()
    w.materialize((2, 3))
    assert m.w.shape == (2, 3) and type(w) is torch.nn.Parameter


def uninitialized(kit):
    m = kit.nn.Module()
    m.w = torch.nn.parameter.UninitializedParameter()
    m.register_parameter("v", torch.nn.parameter.UninitializedParameter(requires_grad=False))
    m.register_buffer("b", torch.nn.parameter.UninitializedBuffer())
    return m


def test_uninitialized_parameters_keep_their_slot_through_conversions(kit):
    m = uninitialized(kit)
    before = [*m.parameters(), *m.buffers()]
    m.to(torch.bfloat16).half().cpu().train().zero_grad()
    assert [id(t) for t in m.parameters()] == [id(t) for t in before[:2]]
    assert {t.dtype for t in m.parameters()} == {torch.float16}
    assert repr(m) == "Module()" and [name for name, _ in m.named_parameters()] == ["w", "v"]
    m.to("meta")
    assert [tuple(p.shape) for p in m.parameters()] == [(0,), (0,)]


@pytest.mark.parametrize(
    "operation",
    [
        lambda m: m.state_dict(),
        lambda m: m.type(torch.float64),
        lambda m: m.requires_grad_(),
        lambda m: m.to_empty(device="cpu"),
        lambda m: copy.deepcopy(m),  # the buffer
    ],
    ids=["state_dict", "type", "requires_grad_", "to_empty", "deepcopy"],
)
def test_what_uninitialized_tensors_refuse(kit, operation):
    with raises(ValueError, "Attempted to use an uninitialized parameter in"):
        operation(uninitialized(kit))


def test_uninitialized_tensors_cannot_be_shared_with_other_processes(kit):
    with raises(RuntimeError, "Can't share memory on an uninitialized parameter or buffer"):
        uninitialized(kit).share_memory()


def test_bfloat16_of_uninitialized_tensors():
    """torch refuses the method and takes ``to(torch.bfloat16)``; to ours both are the same."""
    with raises(ValueError, "Attempted to use an uninitialized parameter in"):
        uninitialized(SimpleNamespace(nn=torch.nn)).bfloat16()
    m = uninitialized(SimpleNamespace(nn=mnn))
    assert m.bfloat16().w.dtype is torch.bfloat16


def test_uninitialized_slots_in_checkpoints(kit):
    m, net = uninitialized(kit), kit.Net()
    with raises(RuntimeError, "While copying the parameter named"):
        m.load_state_dict({"w": torch.ones(2), "v": torch.ones(2), "b": torch.ones(2)})
    state = net.state_dict()
    state["first.weight"] = m.w
    with raises(RuntimeError, "Can't access the shape of an uninitialized parameter or buffer"):
        net.load_state_dict(state)


def test_materialize_keeps_the_slot(kit):
    m = uninitialized(kit)
    w, b = m.w, m.b
    w.materialize((2, 3), dtype=torch.float64)
    b.materialize((4,))
    assert m.w is w and m.b is b and list(m._parameters) == ["w", "v"]
    assert (tuple(m.w.shape), tuple(m.b.shape), m.w.dtype) == ((2, 3), (4,), torch.float64)


# -- utilities that write into the registries ------------------------------------------------------


def test_pruning(kit):
    prune = import_module("torch.nn.utils.prune")
    net = kit.Net()
    layer, weight = net.first, net.first.weight
    prune.l1_unstructured(layer, "weight", amount=3)
    prune.l1_unstructured(layer, "weight", amount=2)
    assert list(layer._parameters) == ["bias", "weight_orig"]
    assert list(layer._buffers) == ["weight_mask"] and len(layer._forward_pre_hooks) == 1
    net(torch.ones(1, 3)).sum().backward()
    assert weight.grad is not None and int((layer.weight == 0).sum()) == 5
    assert "first.weight_orig" in net.state_dict() and prune.is_pruned(net)
    prune.remove(layer, "weight")
    assert layer.weight is weight and list(layer._parameters) == ["bias", "weight"]
    assert not layer._forward_pre_hooks and int((weight == 0).sum()) == 5


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_norms_of_the_older_kind(kit):
    utils = torch.nn.utils
    net, x = kit.Net(), torch.ones(2, 3)
    before = net(x)
    utils.weight_norm(net.first)
    assert list(net.first._parameters) == ["bias", "weight_g", "weight_v"]
    assert torch.allclose(net(x), before)
    with raises(RuntimeError, "Cannot register two weight_norm hooks"):
        utils.weight_norm(net.first)
    utils.remove_weight_norm(net.first)
    assert torch.allclose(net(x), before) and list(net.first._parameters) == ["bias", "weight"]
    utils.spectral_norm(net.second)
    net(x).sum().backward()
    assert net.state_dict()._metadata["second"]["spectral_norm"] == {"weight.version": 1}
    other = kit.Net()
    utils.spectral_norm(other.second)
    other.load_state_dict(net.state_dict())
    assert torch.allclose(other.eval()(x), net.eval()(x))


# -- both libraries in one tree --------------------------------------------------------------------


def test_tree_of_both():
    m = both()
    assert [n for n, _ in m.named_parameters()] == ["a", "b"]
    a, b = m.a, m.b
    m.to(torch.float64)
    assert m.a is a and a.dtype is torch.float64
    assert m.b is b and b.dtype is mt.float64
    m.to(mt.float32)
    assert a.dtype is torch.float32 and b.dtype is mt.float32
    assert (m.c.dtype, m.d.dtype) == (mt.int64, torch.int64)
    state = m.state_dict()
    assert [type(v) for v in state.values()] == [torch.Tensor, mt.Tensor, mt.Tensor, torch.Tensor]
    copied = copy.deepcopy(m)
    assert copied.a.tolist() == [1.0, 2.0] and copied.b.tolist() == [3.0, 4.0]
    m.zero_grad()


def test_load_across_libraries():
    m = both()
    m.load_state_dict(
        {
            "a": mt.tensor([10.0, 20.0], dtype=mt.float64),
            "b": torch.tensor([30, 40]),
            "c": torch.tensor([50.0]),
            "d": mt.tensor([60], dtype=mt.int32),
        }
    )
    assert m.a.tolist() == [10.0, 20.0] and type(m.a) is torch.nn.Parameter
    assert m.b.tolist() == [30.0, 40.0] and m.b.dtype is mt.float32
    assert m.c.tolist() == [50] and m.d.tolist() == [60]
    with raises(RuntimeError, "size mismatch for a"):
        m.load_state_dict({"a": mt.zeros(3)}, strict=False)


def test_load_bfloat16_into_numpy_leaves():
    m = mnn.Module()
    m.w = mnn.Parameter(mt.zeros(2))
    m.load_state_dict({"w": torch.tensor([1.5, 2.5], dtype=torch.bfloat16, requires_grad=True)})
    assert m.w.tolist() == [1.5, 2.5]


def test_apply_may_change_the_library():
    m = both()
    m._apply(lambda t: t if isinstance(t, mt.Tensor) else mt.from_numpy(t.detach().numpy()))
    assert isinstance(m.a, mt.Tensor) and isinstance(m.a, mnn.Parameter)
    assert m.a.tolist() == [1.0, 2.0] and m.a.requires_grad
    assert isinstance(m.d, mt.Tensor)


# -- the family itself -----------------------------------------------------------------------------


def test_copy_from_other_arrays():
    readonly = np.arange(3.0)
    readonly.flags.writeable = False
    for source in (
        mt.from_numpy(np.arange(3.0)),
        mt.tensor([2.0, 1.0, 0.0]).flip(0),
        mt.tensor([0, 1, 2]),
        mt.tensor([0.0, 1.0, 2.0], dtype=mt.float16),
    ):
        target = torch.full((3,), 9.0)
        family.copy_into(target, source)
        assert target.tolist() == [0.0, 1.0, 2.0]
    with raises(TypeError, "cannot copy from 'ndarray' into a torch tensor", "register"):
        family.copy_into(torch.zeros(3), readonly)
    t = mt.tensor([1.0, 2.0])
    assert np.shares_memory(as_torch(t).numpy(), np.asarray(t))
    assert as_torch(mt.zeros(2, 3, device="meta")).is_meta


def test_questions():
    p = torch.nn.Parameter(torch.ones(2, 3))
    assert family.shape(p) == (2, 3) and family.requires_grad(p) and not family.has_grad_fn(p)
    assert family.has_grad_fn(p * 2) and family.dtype_name(p) == "float32"
    assert family.type_name(p) == "torch.FloatTensor"
    assert family.type_name(torch.tensor(1)) == "torch.LongTensor"
    lazy = torch.nn.parameter.UninitializedParameter()
    assert "UninitializedParameter" in family.type_name(lazy)
    assert family.can_set_data(p, torch.zeros(1))
    assert not family.can_set_data(p, torch.zeros(1, device="meta"))
    assert not family.can_set_data(p, np.zeros(1))
    assert family.to_numpy(torch.tensor([1 + 2j]).conj()).tolist() == [1 - 2j]


def test_names_of_dtypes_and_devices():
    assert as_torch_dtype(np.float32) is as_torch_dtype(np.dtype("float32")) is torch.float32
    assert as_torch_dtype(torch.bfloat16) is torch.bfloat16 and as_torch_dtype(None) is None
    with raises(TypeError, "no dtype named like", "float31"):
        as_torch_dtype("float31")
    assert as_torch_device("cpu") == "cpu" and as_torch_device(None) is None
    assert as_torch_device(mt.device("meta")) == torch.device("meta")
