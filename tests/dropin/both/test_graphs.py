# SPDX-License-Identifier: BSD-3-Clause
"""torch.jit and torch.fx on modules."""

import copy
import io
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn
fx = pytest.importorskip("torch.fx")

X = torch.arange(8.0).reshape(2, 4)

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Net(nn.Module):
    scale: int

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.rest = nn.ModuleList([nn.ReLU(), nn.Tanh()])
        self.register_buffer("count", torch.ones(4))
        self.scale = 3

    def forward(self, x):
        x = self.layer(x) * self.scale + self.count
        for module in self.rest:
            x = module(x)
        return x


# -- torch.jit.trace -----------------------------------------------------------------------------


def test_trace():
    net = Net()
    traced = torch.jit.trace(net, (X,))
    assert traced(X).equal(net(X)) and isinstance(traced, nn.Module)
    assert list(traced.state_dict()) == list(net.state_dict())
    assert traced.layer.weight.equal(net.layer.weight)
    scopes = {node.scopeName() for node in traced.inlined_graph.nodes()}
    assert "__module.layer" in scopes


def test_trace_goes_through_slow_forward():
    log = []

    class Own(nn.Module):
        def _slow_forward(self, *args, **kwargs):
            log.append("slow")
            return super()._slow_forward(*args, **kwargs)

        def forward(self, x):
            return x + 1

    own = Own()
    own(X)
    assert log == []
    torch.jit.trace(own, (X,), check_trace=False)
    assert log == ["slow"]
    own(X)
    assert log == ["slow"] and torch._C._get_tracing_state() is None


def test_trace_of_a_function_with_hooks():
    net = Net()
    net.layer.register_forward_hook(lambda module, args, result: result * 2)
    net.requires_grad_(False)
    traced = torch.jit.trace(lambda x: net(x), (X,))
    assert traced(X).equal(net(X))


# -- torch.jit.script ----------------------------------------------------------------------------


def test_script():
    net = Net()
    scripted = torch.jit.script(net)
    assert scripted(X).equal(net(X)) and scripted.scale == 3
    assert [name for name, _ in scripted.named_parameters()] == ["layer.weight", "layer.bias"]
    assert [name for name, _ in scripted.named_modules()] == [
        *("", "layer", "rest", "rest.0", "rest.1")
    ]
    assert list(scripted.state_dict()) == list(net.state_dict())
    assert scripted.eval().training is False and scripted.layer.training is False
    scripted.double()
    assert scripted.layer.weight.dtype is torch.float64


def test_script_modules_as_modules():
    outer = nn.Sequential(torch.jit.script(Net()), nn.Linear(4, 2))
    assert outer(X).shape == (2, 2) and len(list(outer.parameters())) == 4
    assert [name for name, _ in outer.named_buffers()] == ["0.count"]
    assert outer.eval()[0].layer.training is False
    state = {name: value + 1 for name, value in outer.state_dict().items()}
    outer.load_state_dict(state)
    assert outer[0].count.tolist() == [2.0] * 4
    copied = copy.deepcopy(outer[0])
    assert copied(X).equal(outer[0](X)) and hasattr(copied, "layer")
    with pytest.raises(RuntimeError, match="requires_grad_ is not supported on ScriptModules"):
        outer[0].requires_grad_(False)
    outer.zero_grad()
    assert "layer" in repr(outer[0]) and not hasattr(outer[0], "nothing")


def test_script_saves_and_loads():
    net, file = Net(), io.BytesIO()
    torch.jit.save(torch.jit.script(net), file)
    file.seek(0)
    loaded = torch.jit.load(file)
    assert loaded(X).equal(net(X)) and list(loaded.state_dict()) == list(net.state_dict())


def test_script_module_written_by_hand():
    class Own(torch.jit.ScriptModule):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(4))
            self.inner = nn.ReLU()

        @torch.jit.script_method
        def forward(self, x):
            return self.inner(x) * self.weight

    own = Own()
    assert own(X).equal(X) and list(dict(own.named_parameters())) == ["weight"]
    assert [name for name, _ in own.named_children()] == ["inner"]


def test_exports_ignored_methods_and_hooks():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.Linear(4, 4)

        @torch.jit.export
        def twice(self, x):
            return self.layer(x) * 2

        @torch.jit.ignore
        def python(self, x):
            return x

        def forward(self, x):
            return self.layer(x)

    scripted = torch.jit.script(Own())
    assert scripted.twice(X).equal(scripted(X) * 2)


def one_more(self, args: tuple[torch.Tensor], result: torch.Tensor) -> torch.Tensor:
    return result + 1


def test_script_of_a_module_with_a_hook():
    net = nn.Sequential(nn.ReLU())
    net.register_forward_hook(one_more)
    assert torch.jit.script(net)(X).equal(X + 1)


with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)

    @torch.jit.interface
    class Interface(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            pass


class Half(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x / 2


class Double(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


class OfInterface(nn.Module):
    act: Interface

    def __init__(self):
        super().__init__()
        self.act = Half()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.act.forward(x)


def test_interface():
    scripted = torch.jit.script(OfInterface())
    assert scripted(X).equal(X / 2)
    scripted.act = torch.jit.script(Double())
    assert scripted(X).equal(X * 2)


def test_interface_with_more_bases_is_refused():
    class Base(nn.Module):
        pass

    with pytest.raises(RuntimeError, match="does not support inheritance yet"):

        @torch.jit.interface
        class Wrong(Base):
            def forward(self, x: torch.Tensor) -> torch.Tensor:
                pass


def test_freeze():
    net = Net().eval()
    frozen = torch.jit.freeze(torch.jit.script(net))
    assert frozen(X).equal(net(X)) and not hasattr(frozen, "layer")


# -- torch.fx ------------------------------------------------------------------------------------


def test_symbolic_trace():
    net = Net()
    graph = fx.symbolic_trace(net)
    assert graph(X).equal(net(X)) and type(graph).__name__ == "Net"
    called = [node.target for node in graph.graph.nodes if node.op == "call_module"]
    assert called == ["layer", "rest.0", "rest.1"]
    assert list(graph.state_dict()) == ["count", "layer.weight", "layer.bias"]
    assert "self.layer(x)" in graph.code
    for again in (copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert again(X).equal(net(X)) and isinstance(again, fx.GraphModule)


def test_tracer_sees_calls_and_attributes():
    class Tracer(fx.Tracer):
        def is_leaf_module(self, module, name):
            return isinstance(module, nn.Tanh)

    net = Net()
    graph = Tracer().trace(net)
    kinds = [node.op for node in graph.nodes]
    assert kinds.count("get_attr") == 3 and kinds.count("call_module") == 1
    made = fx.GraphModule(net, graph)
    assert made(X).equal(net(X)) and net(X).shape == (2, 4)
    # The tracer patches the class while it runs, and takes that back.
    assert nn.Module.__call__.__code__.co_name == "_wrapped_call_impl"
    assert nn.Module.__getattr__.__module__ == "torch.nn.modules.module"


def test_graph_modules_are_edited():
    graph = fx.symbolic_trace(Net())
    graph.add_submodule("added.inner", nn.ReLU())
    assert isinstance(graph.get_submodule("added.inner"), nn.ReLU)
    for node in graph.graph.nodes:
        if node.target == "rest.1":
            node.target = "added.inner"
    graph.recompile()
    graph.delete_all_unused_submodules()
    assert [name for name, _ in graph.named_modules()] == [
        *("", "layer", "rest", "rest.0", "added", "added.inner")
    ]
    assert graph(X).equal((graph.layer(X) * 3 + 1).relu())


def test_errors_in_a_graph_module_are_those_of_its_code():
    graph = fx.symbolic_trace(Net())
    with pytest.raises(RuntimeError, match="mat1 and mat2"):
        graph(torch.ones(2, 7))


def test_wrapped_calls_of_graph_modules():
    graph = fx.symbolic_trace(Net())
    log = []
    graph.register_forward_hook(lambda *args: log.append("hook"))
    graph(X)
    assert log == ["hook"] and "__call__" in vars(type(graph))


def test_interpreter_and_transformer():
    net = Net()
    graph = fx.symbolic_trace(net)
    assert fx.Interpreter(graph).run(X).equal(net(X))
    assert fx.Transformer(graph).transform()(X).equal(net(X))


def test_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    net = Net()
    assert make_fx(net)(X)(X).equal(net(X))
