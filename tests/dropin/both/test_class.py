# SPDX-License-Identifier: BSD-3-Clause
"""The class ``torch.nn.Module`` as programs and tools look at it."""

from __future__ import annotations

import collections.abc
import inspect
import types
import typing

import pytest
from helpers.util import INTERNAL_KEYS

torch = pytest.importorskip("torch")
nn = torch.nn

#: As they are before any test runs: torch.compile puts others in the place of two of them.
METHODS = {
    name: value
    for name, value in vars(nn.Module).items()
    if inspect.isfunction(value) and name != "__annotate_func__"  # of the annotations, from 3.14 on
}
WALKS = [
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
]
STATE = list(INTERNAL_KEYS)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.plain = 3
        self.layer = nn.Linear(2, 2)
        self.register_buffer("count", torch.zeros(1))

    def forward(self, x):
        return self.layer(x) * self.plain


def test_it_is_the_native_class_where_it_is_meant(under_dropin):
    native = False
    if under_dropin:
        from modtree import _C

        native = nn.Module is _C.ModuleBase
    assert native == under_dropin


def test_what_kind_of_class_it_is():
    assert type(nn.Module) is type
    assert nn.Module.__mro__ == (nn.Module, object) and nn.Module.__bases__ == (object,)
    assert len(nn.Linear.mro()) == 3
    assert nn.Module.__module__ == "torch.nn.modules.module"
    assert nn.Module.__name__ == nn.Module.__qualname__ == "Module"
    assert nn.Module.__doc__.startswith("Base class for all neural network modules")
    assert torch.nn.modules.Module is torch.nn.modules.module.Module is nn.Module
    assert inspect.getmodule(nn.Module) is torch.nn.modules.module


def test_its_annotations():
    hints = typing.get_type_hints(nn.Module)
    assert hints["training"] is bool and {"_parameters", "_buffers", "_modules"} <= hints.keys()
    assert nn.Module.__annotations__["call_super_init"] is bool
    assert nn.Module.dump_patches is False and nn.Module.call_super_init is False
    assert nn.Module._version == 1 and nn.Module._compiled_call_impl is None


@pytest.mark.parametrize("name", METHODS)
def test_methods_are_python_functions(name):
    method = METHODS[name]
    assert isinstance(method, types.FunctionType)
    assert method.__module__ == "torch.nn.modules.module" and method.__code__.co_argcount
    # `__call__` and `forward` are other functions under a second name.
    if name not in ("__call__", "forward"):
        assert method.__name__ == name and method.__qualname__ == f"Module.{name}"
    assert list(inspect.signature(method).parameters)[0] == "self"
    assert inspect.getsource(method).lstrip().startswith("def ")


def test_signatures():
    init = inspect.signature(METHODS["__init__"])
    assert str(init) == "(self, *args: Any, **kwargs: Any) -> None"
    assert list(inspect.signature(nn.Module).parameters) == ["args", "kwargs"]
    assert list(inspect.signature(nn.Linear).parameters) == [
        *("in_features", "out_features", "bias", "device", "dtype")
    ]
    assert str(inspect.signature(Net)) == "()"
    assert list(inspect.signature(Net().train).parameters) == ["mode"]
    assert str(inspect.signature(Net().forward)) == "(x)"
    assert inspect.getfullargspec(nn.Module.train).args == ["self", "mode"]


def test_source_of_init_parses():
    import ast
    import textwrap

    source = ast.parse(textwrap.dedent(inspect.getsource(METHODS["__init__"])))
    assert isinstance(source.body[0], ast.FunctionDef)
    assert inspect.getsource(torch.nn.modules.module).startswith("# mypy")


@pytest.mark.parametrize("name", WALKS)
def test_walks_are_generators(name):
    walk = getattr(Net(), name)()
    assert inspect.isgenerator(walk) and isinstance(walk, types.GeneratorType)
    assert isinstance(walk, collections.abc.Generator) and iter(walk) is walk
    assert walk.__name__ == name and walk.__qualname__ == f"Module.{name}"
    assert inspect.getgeneratorstate(walk) == "GEN_CREATED"
    next(walk)
    walk.close()
    assert list(walk) == []
    assert inspect.isgeneratorfunction(getattr(nn.Module, name))


def test_repr():
    assert repr(nn.Module()) == str(nn.Module()) == "Module()"
    assert repr(nn.Sequential(nn.ReLU())) == "Sequential(\n  (0): ReLU()\n)"
    assert repr(Net()).splitlines()[1] == (
        "  (layer): Linear(in_features=2, out_features=2, bias=True)"
    )


def test_dict_of_an_instance():
    net = Net()
    assert list(net.__dict__) == [*STATE, "plain"] and net.__dict__ is vars(net)
    assert type(net._parameters) is type(net._modules) is type(net._buffers) is dict
    assert net._modules is net.__dict__["_modules"]
    assert net._non_persistent_buffers_set == set() and net._is_full_backward_hook is None
    net.__dict__["plain"] = 5
    assert net.plain == 5
    net._modules["other"] = nn.ReLU()
    assert isinstance(net.other, nn.ReLU)
    net._modules = {}
    assert list(net.children()) == [] and not hasattr(net, "layer")


def test_dir():
    names = dir(Net())
    assert {"plain", "layer", "count", "training", "_parameters", "forward"} <= set(names)
    assert names == sorted(names) and not any(name.isdigit() for name in dir(nn.Sequential(Net())))


def test_an_instance_without_init():
    net = Net.__new__(Net)
    assert net.__dict__ == {}
    for what in (lambda: net.layer, lambda: net(1), lambda: list(net.parameters())):
        with pytest.raises(AttributeError, match="'Net' object has no attribute"):
            what()
    with pytest.raises(AttributeError, match=r"cannot assign module before Module.__init__\(\)"):
        net.layer = nn.ReLU()
    net.plain = 1
    assert net.__dict__ == {"plain": 1}


def test_arguments_of_init():
    with pytest.raises(TypeError, match=r"Module.__init__\(\) takes 1 positional argument but 2"):
        nn.Module(3)
    with pytest.raises(TypeError, match="got an unexpected keyword argument 'a'"):
        nn.Module(a=3)
    with pytest.raises(TypeError, match=r"Linear.__init__\(\) missing 2 required positional"):
        nn.Linear()


def test_super_init_when_the_class_asks_for_it():
    class Holder:
        def __init__(self, value):
            self.value = value

    class Both(nn.Module, Holder):
        call_super_init = True

        def __init__(self):
            nn.Module.__init__(self, 7)

    assert Both().value == 7


def test_missing_attributes():
    net = Net()
    with pytest.raises(AttributeError, match="'Net' object has no attribute 'nothing'") as caught:
        net.nothing  # noqa: B018
    assert not hasattr(net, "nothing") and getattr(net, "nothing", 4) == 4
    assert caught.type is AttributeError
    with pytest.raises(NotImplementedError, match=r'Module \[Module\] is missing the required "fo'):
        nn.Module()(1)
