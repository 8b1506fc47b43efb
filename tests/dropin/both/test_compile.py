# SPDX-License-Identifier: BSD-3-Clause
"""What ``torch.compile`` and ``torch.export`` trace through."""

from __future__ import annotations

import copy
import pickle
import sys
import types

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
dynamo = pytest.importorskip("torch._dynamo")
CompileCounter = pytest.importorskip("torch._dynamo.testing").CompileCounter

X = torch.arange(8.0).reshape(2, 4)

pytestmark = pytest.mark.filterwarnings(
    "ignore::DeprecationWarning",
    "ignore::FutureWarning",
    "ignore:The .grad attribute of a Tensor that is not a leaf:UserWarning",
)


@pytest.fixture(autouse=True)
def _start_anew():
    dynamo.reset()
    torch.manual_seed(0)
    yield
    dynamo.reset()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.rest = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        self.register_buffer("count", torch.ones(4))
        self.scale = 3

    def forward(self, x):
        return self.rest(self.layer(x)) + self.count * self.scale


def same_twice(program, *args, frames=1):
    """A program gives the same eager and compiled without a graph break, also a second time."""
    counter = CompileCounter()
    expected = [program(*args), program(*args)]
    compiled = torch.compile(program, backend=counter, fullgraph=True)
    for value in expected:
        torch.testing.assert_close(compiled(*args), value)
    assert counter.frame_count == frames


@pytest.mark.parametrize(
    "name", ["parameters", "buffers", "named_parameters", "named_buffers", "modules", "children"]
)
def test_walks(name):
    class Walks(Net):
        def forward(self, x):
            for value in getattr(self, name)():
                value = value[1] if isinstance(value, tuple) else value
                if isinstance(value, torch.Tensor):
                    x = x + value.sum()
                elif isinstance(value, nn.Linear):
                    x = value(x)
            return x

    same_twice(Walks(), X)


def test_walks_with_arguments_and_names():
    class Walks(Net):
        def forward(self, x):
            lengths = [len(name) for name, _ in self.named_parameters(prefix="p", recurse=False)]
            lengths += [len(name) for name, _ in self.named_modules(remove_duplicate=False)]
            return (
                x + sum(lengths) + next(self.parameters()).sum() + len(list(self.named_children()))
            )

    same_twice(Walks(), X)


def test_a_walk_that_was_bound_before():
    net = Net()
    walk, call = net.parameters, net.forward
    same_twice(lambda x: call(x) + len(list(walk())), X)


def test_methods_of_the_base_class():
    net = Net()

    def program(x):
        walked = len(list(nn.Module.parameters(net))) + len(dict(nn.Module.named_modules(net)))
        return x + walked + nn.Module.__call__(net, x) + net._call_impl(x) + net.__call__(x)

    same_twice(program, X)


def test_assignment_in_forward():
    class Assigns(Net):
        def forward(self, x):
            self.scale = self.scale + 1
            self.kept = x * self.scale
            return self.kept + 1

    net = Assigns()
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert compiled(X).equal(X * 4 + 1) and compiled(X).equal(X * 5 + 1)
    assert net.scale == 5 and net.kept.equal(X * 5)


def test_assignment_of_buffers_is_read_back():
    class Assigns(Net):
        def forward(self, x):
            self.count = self.count + 1
            return x * self.count

    net = Assigns()
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert compiled(X).equal(X * 2) and compiled(X).equal(X * 3)
    assert net.count.tolist() == [3.0] * 4 and list(net._buffers) == ["count"]


def test_change_of_buffers_in_place():
    class Changes(Net):
        def forward(self, x):
            self.count.add_(1)
            return x * self.count

    net = Changes()
    compiled = torch.compile(net, backend="eager", fullgraph=True)
    assert compiled(X).equal(X * 2) and compiled(X).equal(X * 3) and net.count[0] == 3


def test_deletion_and_registration_in_forward():
    class Changes(Net):
        def forward(self, x):
            self.passing = x + 1
            x = self.passing * 2
            del self.passing
            if not hasattr(self, "late"):
                self.add_module("late", nn.ReLU())
                self.register_buffer("kept", x)
            return self.late(x) + self.kept

    net = Changes()
    compiled = torch.compile(net, backend="eager")
    for _ in range(2):
        assert compiled(X).equal(4 * X + 4)
    assert list(net._modules) == ["layer", "rest", "late"] and not hasattr(net, "passing")
    assert list(net._buffers) == ["count", "kept"]


@pytest.mark.parametrize(
    "program",
    [
        lambda x: nn.Sequential(nn.ReLU(), nn.Tanh())(x),
        lambda x: [x := layer(x) for layer in nn.ModuleList([nn.ReLU(), nn.Tanh()])][-1],
        lambda x: nn.ModuleDict({"act": nn.ReLU()})["act"](x),
        lambda x: Made()(x),
    ],
    ids=["Sequential", "ModuleList", "ModuleDict", "own"],
)
def test_modules_that_are_made_inside(program):
    same_twice(program, X)


class Made(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.ReLU(), 2

    def forward(self, x):
        return self.inner(x) * self.scale


def test_containers():
    class Contains(nn.Module):
        def __init__(self):
            super().__init__()
            self.listed = nn.ModuleList(nn.Linear(4, 4) for _ in range(3))
            self.named = nn.ModuleDict({"a": nn.ReLU(), "b": nn.Tanh()})
            self.weights = nn.ParameterList([nn.Parameter(torch.ones(4)) for _ in range(2)])

        def forward(self, x):
            for layer in self.listed[1:]:
                x = layer(x)
            for i in range(len(self.listed)):
                x = self.listed[i](x)
            for name, layer in self.named.items():
                x = layer(x) + len(name)
            return (x + ("a" in self.named)) * self.weights[0] + sum(self.weights)

    same_twice(Contains(), X)


def test_training_and_eval_inside():
    def program(net, x):
        net.eval()
        x = net(x) + net.training
        return net.train()(x) + net.training

    same_twice(program, Net(), X)


def test_guards_see_what_changes():
    net, counter = Net(), CompileCounter()
    compiled = torch.compile(net, backend=counter)

    def right():
        return compiled(X).equal(net(X)) and counter.frame_count

    assert right() == 1
    net.layer.weight.data.zero_()
    assert right() == 1
    net.scale = 4
    assert right() == 2
    net.layer = nn.Identity()
    assert right() == 3
    net.rest.append(nn.Tanh())
    assert right() == 4
    net.rest[0].bias = None
    assert right() == 5
    net.rest[0].forward = types.MethodType(lambda self, x: x * 100, net.rest[0])
    assert right() == 6


def test_hooks_in_compiled_regions():
    net, log = Net(), []
    with net.layer.register_forward_hook(lambda module, args, result: result * 2):
        with net.register_forward_pre_hook(lambda module, args: (args[0] + 1,)):
            same_twice(lambda x: net(x), X)
    same_twice(lambda x: net(x), X)
    net.layer.register_full_backward_hook(lambda module, grad, out: log.append("backward"))
    net.rest.register_full_backward_pre_hook(lambda module, grad: log.append("before"))
    compiled = torch.compile(net, backend="eager")
    for _ in range(2):
        compiled(X.clone().requires_grad_()).sum().backward()
    assert log == ["before", "backward"] * 2


def test_a_removed_hook_is_a_reason_to_compile_again():
    with dynamo.config.patch(skip_nnmodule_hook_guards=False):
        net, counter = Net(), CompileCounter()
        handle = net.layer.register_forward_hook(lambda module, args, result: result * 2)
        compiled = torch.compile(lambda x: net(x) + 1, backend=counter)
        first = compiled(X)
        handle.remove()
        assert compiled(X).equal(net(X) + 1) and not first.equal(compiled(X))
        assert counter.frame_count == 2


def test_global_hooks_in_compiled_regions():
    register = torch.nn.modules.module.register_module_forward_hook
    with register(lambda module, args, result: result * 2 if type(module) is nn.Linear else None):
        net = Net()
        same_twice(lambda x: net(x), X)


def test_overrides_are_traced():
    class Own(Net):
        def __getattr__(self, name):
            return 5 if name == "magic" else super().__getattr__(name)

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "first":
                super().__setattr__("second", value)

        def __call__(self, x):
            return super().__call__(x) + 10

        def forward(self, x):
            self.first = x + 1
            return self.layer(self.second) * self.magic + self.count

    same_twice(Own(), X)


def test_reads_that_fail():
    class Reads(Net):
        def forward(self, x):
            found = hasattr(self, "layer") + hasattr(self, "nothing") * 10
            return x + found + getattr(self, "nothing", 100)

    same_twice(Reads(), X)


def test_lazy_modules():
    net = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2))
    compiled = torch.compile(net, backend="eager")
    assert compiled(X).equal(net(X)) and type(net[0]) is nn.Linear
    assert [tuple(p.shape) for p in net.parameters()] == [(3, 4), (3,), (2, 3), (2,)]


def test_functional_call():
    net = Net()
    doubled = {name: value.detach() * 2 for name, value in net.named_parameters()}
    same_twice(lambda values, x: torch.func.functional_call(net, values, (x,)), doubled, X)


@pytest.mark.parametrize("parametrized", ["parametrize", "weight_norm"])
def test_parametrizations(parametrized):
    net = Net()
    if parametrized == "parametrize":
        nn.utils.parametrize.register_parametrization(net.layer, "weight", nn.Tanh())
    else:
        nn.utils.weight_norm(net.layer)
    compiled = torch.compile(net, backend="eager")
    for _ in range(2):
        assert compiled(X).equal(net(X))


def test_gradients():
    net = Net()
    other = copy.deepcopy(net)
    torch.compile(net, backend="aot_eager")(X).sum().backward()
    other(X).sum().backward()
    for one, two in zip(net.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, two.grad)


def test_the_optimized_module():
    net = Net()
    compiled = torch.compile(net, backend="eager")
    compiled.scale = 7
    assert net.scale == 7 and compiled._orig_mod is net and compiled.layer is net.layer
    assert isinstance(compiled, nn.Module) and not hasattr(compiled, "nothing")
    assert list(compiled.state_dict())[0] == "_orig_mod.count"
    assert compiled.eval() is compiled and net.training is False and compiled.training is False
    assert copy.deepcopy(compiled)(X).equal(net(X))


def test_compile_of_a_module_in_place():
    net, counter, log = Net(), CompileCounter(), []
    expected = net(X)
    net.compile(backend=counter)
    assert net(X).equal(expected) and counter.frame_count == 1
    net.register_forward_hook(lambda *args: log.append("hook"))
    net(X)
    assert log == ["hook"] and net._compiled_call_impl is not None
    assert copy.deepcopy(net)._compiled_call_impl is None


def test_export():
    net = Net().eval()
    program = torch.export.export(net, (X,))
    torch.testing.assert_close(program.module()(X), net(X))
    assert program.state_dict.keys() == net.state_dict().keys()
    assert program.graph_signature.inputs_to_parameters["p_layer_weight"] == "layer.weight"
    batch = torch.export.Dim("batch", min=2)
    dynamic = torch.export.export(net, (X,), dynamic_shapes=({0: batch},))
    torch.testing.assert_close(dynamic.module()(torch.ones(5, 4)), net(torch.ones(5, 4)))


def test_our_own_code_is_not_compiled():
    net = Net()
    net.layer.register_full_backward_hook(lambda *args: None)
    dynamo.utils.counters.clear()
    torch.compile(lambda x: net.layer(x + len(net.layer._backward_hooks)), backend="eager")(X)
    reasons = [reason.split("\n")[0] for reason in dynamo.utils.counters["graph_break"]]
    assert reasons in ([], ["Module-level backwards hooks require compiled autograd."])


def test_one_compilation_for_all_instances():
    counter = CompileCounter()
    compiled = torch.compile(lambda net, x: net(x), backend=counter)

    def run_all(net):
        again = pickle.loads(pickle.dumps(net))
        for made in (net, Net(), copy.deepcopy(net), copy.copy(net), again, copy.deepcopy(again)):
            assert compiled(made, X).equal(made(X))

    before = Net()
    run_all(Net())
    run_all(before)
    assert counter.frame_count == 1


def test_a_module_that_takes_a_class_that_was_compiled():
    class Other(nn.Module):
        pass

    counter = CompileCounter()
    compiled = torch.compile(lambda net, x: net(x), backend=counter)
    compiled(Net(), X)
    other = Other()
    for name, child in Net().named_children():
        other.add_module(name, child)
    other.register_buffer("count", torch.ones(4))
    other.scale = 3
    other.__class__ = Net
    assert compiled(other, X).equal(other(X))
    assert counter.frame_count == 1


def test_a_compilation_leaves_other_modules_as_they_are(under_dropin):
    """Copying runs no Python code before, and none after."""
    tree = nn.Sequential(nn.Tanh(), nn.Tanh())

    def calls():
        called = []
        sys.setprofile(lambda frame, event, arg: event == "call" and called.append(frame))
        try:
            copy.deepcopy(tree)
            nn.Module()
        finally:
            sys.setprofile(None)
        return len(called)

    before = calls()
    same_twice(lambda x: x + 1, X)
    assert (max(before, calls()) < 10) == under_dropin


class TenTimes:
    def __getattribute__(self, name):
        value = super().__getattribute__(name)
        return 10 * value if name == "scale" else value


@pytest.mark.parametrize("bases", [(TenTimes, nn.Module), (nn.Module, TenTimes)])
def test_reads_of_a_class_around_module(bases):
    class Scaled(*bases):
        def __init__(self):
            super().__init__()
            self.scale = 3

        def forward(self, x):
            return x * self.scale

    m = Scaled()
    compiled = torch.compile(m, backend="eager")
    for _ in range(2):
        torch.testing.assert_close(compiled(X), 30 * X)
