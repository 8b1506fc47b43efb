# SPDX-License-Identifier: BSD-3-Clause
"""Initializers of tensors on meta, which have nothing to fill."""

from __future__ import annotations

import sys

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
dispatch = pytest.importorskip("torch.utils._python_dispatch")
overrides = pytest.importorskip("torch.overrides")
fake = pytest.importorskip("torch._subclasses.fake_tensor")
proxies = pytest.importorskip("torch.fx.experimental.proxy_tensor")
testing = pytest.importorskip("torch._dynamo.testing")


def made(**kwargs):
    return torch.empty(3, 4, device="meta", **kwargs)


#: What changes a tensor in one operation.
FILLS = {
    "uniform_": lambda t: t.uniform_(),
    "uniform_ in bounds": lambda t: t.uniform_(-1, 2.0),
    "normal_": lambda t: t.normal_(),
    "normal_ by keywords": lambda t: t.normal_(mean=1, std=0.5),
    "zero_": lambda t: t.zero_(),
    "init.uniform_": lambda t: nn.init.uniform_(t, 0, 2),
    "init.normal_": lambda t: nn.init.normal_(t, std=0.02),
    "init.constant_": lambda t: nn.init.constant_(t, 3),
    "init.zeros_": nn.init.zeros_,
    "init.xavier_uniform_": nn.init.xavier_uniform_,
    "init.xavier_normal_": nn.init.xavier_normal_,
    "init.kaiming_uniform_": nn.init.kaiming_uniform_,
    "init.kaiming_normal_": nn.init.kaiming_normal_,
}


@pytest.mark.parametrize("fill", FILLS.values(), ids=FILLS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
def test_the_tensor_comes_back_one_version_later(fill, dtype):
    tensor = made(dtype=dtype)
    before = torch.get_rng_state()
    assert fill(tensor) is tensor
    assert tensor._version == 1
    assert torch.equal(before, torch.get_rng_state())


def test_a_parameter_and_its_data_share_no_version():
    parameter = nn.Parameter(made())
    parameter.data.normal_()
    assert parameter._version == 0
    with torch.no_grad():
        parameter.normal_()
    assert parameter._version == 1
    nn.init.normal_(parameter)
    assert parameter._version == 2


@pytest.mark.parametrize("fill", ["uniform_", "normal_"])
def test_a_leaf_that_needs_a_gradient_is_refused(fill):
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        FILLS[fill](nn.Parameter(made()))


@pytest.mark.parametrize("fill", ["uniform_", "normal_"])
def test_the_gradient_goes_no_further(fill):
    source = nn.Parameter(made())
    filled = FILLS[fill](source * 2)
    filled.sum().backward()
    assert source.grad.shape == (3, 4)


def test_a_negative_deviation_is_refused():
    for std in (-1.0, float("nan")):
        with pytest.raises(RuntimeError, match="std"):
            made().normal_(0, std)


@pytest.mark.parametrize("fill", ["uniform_", "normal_"])
def test_a_generator_draws_nothing(fill):
    generator = torch.Generator()
    before = generator.get_state()
    tensor = made()
    try:
        getattr(tensor, fill)(generator=generator)
    except (AssertionError, RuntimeError):  # versions of torch differ
        pass
    assert torch.equal(before, generator.get_state())


@pytest.mark.parametrize("fill", ["uniform_", "normal_"])
def test_a_view_is_filled_with_its_base(fill):
    base = made()
    view = base.t()
    assert FILLS[fill](view) is view
    assert base._version == view._version == 1
    assert view.stride() == (1, 4)


def test_integers_have_no_normal_distribution():
    with pytest.raises(RuntimeError, match="dtype"):
        made(dtype=torch.int64).normal_()


def names(operations):
    return [str(operation) for operation in operations]


def test_a_dispatch_mode_sees_the_operation():
    seen = []

    class Watch(dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    tensor = made()
    with Watch():
        tensor.normal_().uniform_()
    assert names(seen) == ["aten.normal_.default", "aten.uniform_.default"]


def test_a_function_mode_sees_the_operation():
    seen = []

    class Watch(overrides.TorchFunctionMode):
        def __torch_function__(self, function, types, args=(), kwargs=None):
            seen.append(function)
            return function(*args, **(kwargs or {}))

    tensor = made()
    with Watch():
        nn.init.uniform_(tensor)
        tensor.normal_()
    assert seen[0] is nn.init.uniform_
    assert seen[-1] is torch.Tensor.normal_


class Wrapped(torch.Tensor):
    """A subclass that does each operation on the tensor that it holds."""

    seen = []

    @staticmethod
    def __new__(cls, held):
        return torch.Tensor._make_wrapper_subclass(cls, held.shape, device=held.device)

    def __init__(self, held):
        self.held = held

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        cls.seen.append(function)
        function(args[0].held, *args[1:], **(kwargs or {}))
        return args[0]


def test_a_subclass_does_it_by_its_own_function():
    Wrapped.seen.clear()
    tensor = Wrapped(made())
    assert nn.init.normal_(tensor) is tensor
    assert names(Wrapped.seen) == ["aten.normal_.default"]


def test_under_vmap():
    with pytest.raises(RuntimeError, match="randomness"):
        torch.vmap(lambda t: t.normal_())(made())
    filled = torch.vmap(lambda t: t.normal_() + 1, randomness="different")(made())
    assert (filled.shape, filled.device.type) == ((3, 4), "meta")


def test_fake_tensors_are_filled():
    with fake.FakeTensorMode() as mode:
        tensor = torch.empty(3, 4)
        assert tensor.normal_() is tensor
        assert nn.init.kaiming_uniform_(tensor) is tensor
        on_meta = made()
        assert on_meta.uniform_() is on_meta
    assert isinstance(on_meta, fake.FakeTensor)
    assert on_meta.fake_mode is mode


def test_a_traced_graph_has_the_operation():
    def program(tensor):
        return nn.init.normal_(tensor.clone()).uniform_() + 1

    graph = proxies.make_fx(program)(made()).graph
    called = names(node.target for node in graph.nodes if node.op == "call_function")
    assert called[-3:] == ["aten.normal_.default", "aten.uniform_.default", "aten.add.Tensor"]


def test_a_layer_asks_the_function_that_a_user_put_there(monkeypatch):
    asked = []
    monkeypatch.setattr(nn.init, "kaiming_uniform_", lambda tensor, **_: asked.append(tensor))
    layer = nn.Linear(4, 3, device="meta")
    assert asked[0] is layer.weight
    assert layer.weight._version == 0


def test_a_filled_tensor_on_meta_is_not_seen_by_torchs_kernel(under_dropin):
    """What makes it fast: no other tensor is made."""
    tensor = made()
    tensor.normal_()
    calls = []
    sys.setprofile(lambda frame, event, arg: calls.append(frame))
    try:
        tensor.normal_()
    finally:
        sys.setprofile(None)
    assert (len(calls) < 40) == under_dropin


@pytest.mark.slow
def test_compiled_initializers_are_traced():
    counter = testing.CompileCounter()

    def program(tensor):
        return nn.init.kaiming_uniform_(tensor * 1) + nn.init.normal_(tensor * 2)

    compiled = torch.compile(program, backend=counter)
    torch.manual_seed(0)
    expected = program(torch.ones(3, 4))
    torch.manual_seed(0)
    assert torch.equal(compiled(torch.ones(3, 4)), expected)
    assert compiled(made()).device.type == "meta"
    assert counter.frame_count > 0
    torch._dynamo.reset()
