# SPDX-License-Identifier: BSD-3-Clause
"""Modules as objects of Python: the methods of ``object``, classes and bases, bound methods."""

from __future__ import annotations

import abc
import copy
import dataclasses
import functools
import gc
import inspect
import operator
import pickle
import types
import typing
import weakref

import pytest

torch = pytest.importorskip("torch")
nn = torch.nn

T = typing.TypeVar("T")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return x + 1


class Twice(Net):
    def forward(self, x):
        return x * 2

    def __getattr__(self, name):
        return name if name.startswith("any_") else super().__getattr__(name)


class Other(nn.Module):
    def __setattr__(self, name, value):
        super().__setattr__(name, value)
        self.__dict__["last"] = name

    def __call__(self, x):
        return "called"


# -- the methods of object -----------------------------------------------------------------------


def test_object_setattr_goes_past_the_registries():
    net = Net()
    object.__setattr__(net, "layer", 5)
    assert net.layer == 5 and isinstance(net._modules["layer"], nn.Linear)
    object.__delattr__(net, "layer")
    assert isinstance(net.layer, nn.Linear)
    with pytest.raises(AttributeError):
        object.__getattribute__(net, "layer")
    assert object.__getattribute__(net, "_modules") is net._modules
    object.__setattr__(net, "_modules", {})
    assert list(net.children()) == []


def test_object_new():
    net = object.__new__(Net)
    assert type(net) is Net and net.__dict__ == {}
    nn.Module.__init__(net)
    net.layer = nn.ReLU()
    assert list(net._modules) == ["layer"] and net(1) == 2


def test_class_assignment():
    net = Net()
    for cls, result in ((Twice, 6), (Net, 4), (type("Made", (Net,), {}), 4), (Twice, 6)):
        net.__class__ = cls
        assert net(3) == result and type(net) is cls
        assert hasattr(net, "any_thing") == (cls is Twice)
        net.other = nn.ReLU()
        assert list(net._modules) == ["layer", "other"]
    net.__class__ = Other
    net.name = 1
    assert net(3) == "called" and net.last == "name"
    with pytest.raises(TypeError):
        net.__class__ = int


def test_class_assignment_as_fsdp_does_it():
    class Mixin:
        def unshard(self):
            return "unsharded"

    net = Net()
    cls = type(net)
    net.__class__ = type(f"FSDP{cls.__name__}", (Mixin, cls), {"__deepcopy__": None})
    assert net.unshard() == "unsharded" and net(1) == 2 and net.state_dict().keys()
    assert isinstance(net, Net) and net.eval().training is False


# -- further bases -------------------------------------------------------------------------------


class Plain:
    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.from_plain = 1

    def hello(self):
        return "hello"


class Slots:
    __slots__ = ()


class PlainFirst(Plain, Net):
    pass


class PlainLast(Net, Plain):
    pass


class WithSlots(Slots, Net):
    __slots__ = ("own",)


class Generic(Net, typing.Generic[T]):
    pass


class Abstract(Net, abc.ABC):
    @abc.abstractmethod
    def must(self): ...


class Concrete(Abstract):
    def must(self):
        return 1


@dataclasses.dataclass(eq=False)
class Data(nn.Module):
    width: int = 2

    def __post_init__(self):
        super().__init__()
        self.layer = nn.Linear(self.width, 2)


@pytest.mark.parametrize(
    "cls", [PlainFirst, PlainLast, WithSlots, Generic, Generic[int], Concrete, Data]
)
def test_further_bases(cls):
    made = cls()
    assert list(dict(made.named_parameters())) == ["layer.weight", "layer.bias"]
    again = pickle.loads(pickle.dumps(made))
    assert type(again) is type(made) and again.layer.weight.equal(made.layer.weight)
    assert made.double().layer.weight.dtype is torch.float64
    made.layer = None
    assert list(made.parameters()) == [] and list(made.__dict__)[0:1]


def test_what_further_bases_bring():
    assert PlainFirst().hello() == PlainLast().hello() == "hello" and PlainFirst().from_plain == 1
    with_slots = WithSlots()
    with_slots.own = 4
    assert with_slots.own == 4 and "own" not in with_slots.__dict__
    with pytest.raises(TypeError, match="abstract"):
        Abstract()
    assert Data(3).layer.in_features == 3 and repr(Data()) == "Data(width=2)"


# -- bound methods -------------------------------------------------------------------------------

BOUND = ["parameters", "named_modules", "train", "state_dict", "_apply", "forward", "add_module"]


@pytest.mark.parametrize("name", BOUND)
def test_a_bound_method(name):
    net, other = Net(), Net()
    method = getattr(net, name)
    assert method == getattr(net, name) and hash(method) == hash(getattr(net, name))
    assert method != getattr(other, name) and method != name
    assert method.__self__ is net and method.__func__ is getattr(Net, name)
    assert inspect.ismethod(method) and isinstance(method, types.MethodType)
    assert inspect.isroutine(method) and not inspect.isfunction(method) and callable(method)
    assert method.__name__ == name and method.__qualname__ == getattr(Net, name).__qualname__
    assert method.__module__ == getattr(Net, name).__module__
    assert method.__doc__ == getattr(Net, name).__doc__
    assert method.__code__ is getattr(Net, name).__code__
    assert repr(method).startswith(f"<bound method {method.__qualname__} of Net(")
    assert (
        list(inspect.signature(method).parameters)
        == (list(inspect.signature(getattr(Net, name)).parameters)[1:])
    )
    assert inspect.unwrap(method) == method and inspect.getsource(method)


@pytest.mark.parametrize("name", BOUND)
def test_a_bound_method_equals_one_that_was_made(name):
    net = Net()
    method, made = getattr(net, name), types.MethodType(getattr(Net, name), net)
    assert method == made and made == method and hash(method) == hash(made)
    assert made in {method} and {made: 1}[method] == 1
    assert type(method)(getattr(Net, name), net) == method


@pytest.mark.parametrize("name", BOUND)
def test_the_type_of_a_bound_method_checks_its_arguments(name):
    kind = type(getattr(Net(), name))
    assert kind(len, [1])() == 1
    for arguments in ((3, Net()), (len, None), (len,), ()):
        with pytest.raises(TypeError):
            kind(*arguments)
    with pytest.raises(TypeError):
        kind(len, [1], key=1)


@pytest.mark.parametrize("name", BOUND)
def test_copies_of_a_bound_method(name):
    net = Net()
    method = getattr(net, name)
    for again in (pickle.loads(pickle.dumps(method)), copy.deepcopy(method)):
        assert again.__name__ == name and type(again.__self__) is Net
        assert again.__self__ is not net
    assert copy.copy(method).__self__ is net


def test_weak_references_to_bound_methods():
    net = Net()
    weak = weakref.WeakMethod(net.train)
    assert weak() == net.train and weak()(False) is net
    method = net.parameters
    direct = weakref.ref(method)
    assert direct() is method
    del method
    assert direct() is None
    del net
    gc.collect()
    assert weak() is None


def test_bound_methods_in_use():
    net = Net()
    assert functools.partial(net.named_parameters, prefix="p")
    names = [name for name, _ in functools.partial(net.named_parameters, prefix="p")()]
    assert names == ["p.layer.weight", "p.layer.bias"]
    assert operator.methodcaller("train", mode=False)(net).training is False
    wrapped = functools.wraps(net.train)(lambda: None)
    assert wrapped.__name__ == "train" and wrapped.__wrapped__ == net.train
    assert nn.Module.train(net, True) is net and net.training
    with pytest.raises(AttributeError):
        net.train.anything = 1
    with pytest.raises(TypeError):
        net.train(1, 2, 3)
    with pytest.raises(TypeError):
        net.train(wrong=1)
    keep = net.train
    del net
    gc.collect()
    assert keep(False).training is False


# -- references ----------------------------------------------------------------------------------


def test_weak_references():
    net = Net()
    weak, tables = weakref.ref(net), weakref.ref(net._forward_hooks)
    keys, finished = weakref.WeakKeyDictionary({net: 1}), []
    weakref.finalize(net, finished.append, 1)
    assert weak() is net and tables() is net._forward_hooks and keys[net] == 1
    net.itself = net.forward
    del net
    gc.collect()
    assert weak() is tables() is None and len(keys) == 0 and finished == [1]


def test_copy_shares_what_torch_shares():
    net = Net()
    net.layer.register_forward_hook(operator.eq)
    shallow, deep = copy.copy(net), copy.deepcopy(net)
    assert shallow._modules is net._modules and list(shallow.__dict__) == list(net.__dict__)
    shallow.plain = 1
    assert not hasattr(net, "plain")
    assert deep.layer is not net.layer and deep.layer.weight.equal(net.layer.weight)
    assert list(deep.layer._forward_hooks.values()) == [operator.eq]
    memo = {}
    assert copy.deepcopy(net, memo) is copy.deepcopy(net, memo)
