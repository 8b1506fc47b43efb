# SPDX-License-Identifier: BSD-3-Clause
"""Children that isinstance() takes for modules: mocks with a spec, proxies."""

from __future__ import annotations

import weakref
from unittest.mock import MagicMock, Mock, call, patch

import pytest
from helpers.support import raises
from helpers.util import param, tensor

import modtree as mt


def claiming(cls):
    """A class whose values say that they are of ``cls``."""

    class Claims:
        __class__ = property(lambda self: cls)

    return Claims


def test_a_mock_with_a_spec_is_a_child(impl):
    m = impl.nn.Module()
    m.assigned = Mock(spec=impl.nn.Module)
    m.add_module("added", MagicMock(spec=impl.nn.Linear))
    assert list(m._modules) == ["assigned", "added"]
    assert "assigned" not in m.__dict__
    assert m.get_submodule("assigned") is m.assigned is m._modules["assigned"]


def test_containers_take_mocks(impl):
    mocks = [Mock(spec=impl.nn.Module) for _ in range(3)]
    assert list(impl.nn.Sequential(impl.nn.ReLU(), *mocks)._modules) == ["0", "1", "2", "3"]
    modules = impl.nn.ModuleList(mocks[:1])
    modules.append(mocks[1])
    modules.extend(mocks[2:])
    assert list(modules._modules.values()) == mocks
    assert impl.nn.ModuleDict({"a": mocks[0]})._modules == {"a": mocks[0]}


def test_a_mock_replaces_a_child_for_a_while(impl):
    m = impl.nn.Module()
    m.child = child = impl.nn.ReLU()
    stand_in = Mock(spec=impl.nn.Module, return_value="mocked")
    with patch.object(m, "child", stand_in):
        assert m._modules == {"child": stand_in}
        assert m.child(1) == "mocked"
    assert m._modules == {"child": child}


def test_a_mock_without_a_spec_replaces_no_child(impl):
    m = impl.nn.Module()
    m.child = child = impl.nn.ReLU()
    with raises(TypeError, "as child module 'child'"):
        m.child = Mock()
    with raises(TypeError, "Mock is not a Module subclass"):
        m.add_module("other", Mock())
    m.plain = Mock()
    assert m._modules == {"child": child} and "plain" in m.__dict__


def test_the_methods_of_a_mock_are_called(impl):
    m = impl.nn.Module()
    m.child = child = MagicMock(spec=impl.nn.Module)
    child.named_modules.return_value = [("child.inner", impl.nn.ReLU())]
    assert [name for name, _ in m.named_modules()] == ["", "child.inner"]
    m.eval()
    m.double()
    m.apply(lambda _: None)
    assert m.state_dict() == {}
    assert child.train.call_args == call(False)
    assert [getattr(child, n).call_count for n in ("_apply", "apply", "state_dict")] == [1, 1, 1]


def test_a_proxy_is_a_child(impl):
    m, child = impl.nn.Module(), impl.nn.Module()
    m.child = proxy = weakref.proxy(child)
    assert m._modules["child"] is proxy and "child" not in m.__dict__


def test_a_proxy_of_what_is_gone_is_refused(impl):
    m = impl.nn.Module()
    proxy = weakref.proxy(impl.nn.Module())
    with pytest.raises(ReferenceError):
        m.child = proxy
    with pytest.raises(ReferenceError):
        m.add_module("child", proxy)
    assert not m._modules and "child" not in m.__dict__


def test_reports_take_mocks(ours):
    m = ours.nn.Sequential(ours.nn.ReLU())
    m.weight = param(ours)
    m.child = child = MagicMock(spec=ours.nn.Module)
    child._modules, child._load_state_dict_post_hooks = {}, {}
    assert not mt.check(m)
    state = m.state_dict()
    assert not mt.compare(m, m)
    assert list(m.load_state_dict(state, dry_run=True).loaded) == list(state)
    assert list(m.load_state_dict(state, partial=True).loaded) == list(state)
    assert m.child is child


def test_any_value_may_say_its_class(impl):
    class Asked:
        def __getattribute__(self, name):
            return impl.nn.Linear if name == "__class__" else super().__getattribute__(name)

    m = impl.nn.Module()
    m.property = claiming(impl.nn.Module)()
    m.asked = Asked()
    m.other = claiming(int)()
    m.none = claiming(None)()
    assert list(m._modules) == ["property", "asked"]
    assert m.__dict__["other"] == m.other


def test_a_class_may_begin_to_say_another(impl):
    class Value:
        pass

    m, value = impl.nn.Module(), Value()
    m.value = value
    assert m.__dict__["value"] is value
    del m.value
    Value.__getattribute__ = lambda self, name: (
        impl.nn.Module if name == "__class__" else object.__getattribute__(self, name)
    )
    m.value = value
    assert m._modules == {"value": value} and "value" not in m.__dict__


def test_what_the_question_raises_is_raised(impl):
    class Raises:
        @property
        def __class__(self):
            raise RuntimeError("no class today")

    m = impl.nn.Module()
    m.child = child = impl.nn.ReLU()
    for name in ("child", "other"):
        with raises(RuntimeError, "no class today"):
            setattr(m, name, Raises())
        with raises(RuntimeError, "no class today"):
            m.add_module(name, Raises())
    assert m._modules == {"child": child} and "other" not in m.__dict__


def test_the_question_may_change_the_module(impl):
    m = impl.nn.Module()
    m.old = impl.nn.ReLU()

    class Changes:
        @property
        def __class__(self):
            if m._modules.pop("old", None):
                m._modules = {}
                m.register_buffer("value", None)
                m.flag = param(impl)
            return impl.nn.Module

    m.value = value = Changes()
    assert m._modules == {"value": value} and "value" not in m._buffers
    assert list(m._parameters) == ["flag"]


# --- parameters, buffers and tensors


class StandsFor:
    """Says that it is of the class of another object, and passes everything on to that."""

    def __init__(self, other):
        object.__setattr__(self, "other", other)

    @property
    def __class__(self):
        return type(self.other)

    def __getattr__(self, name):
        return getattr(self.other, name)

    def __setattr__(self, name, value):
        setattr(self.other, name, value)


def stand_in(impl, make, of):
    if impl.leaves == "jax":
        pytest.skip("an array is a parameter by its mark, not by its class")
    return make(of)


@pytest.fixture(params=[StandsFor, weakref.proxy], ids=["object", "proxy"])
def make(request):
    return request.param


def test_what_stands_for_a_parameter_is_one(impl, make):
    p = param(impl)
    value = stand_in(impl, make, p)
    m = impl.nn.Module()
    m.register_buffer("buffer", tensor(impl))
    m.assigned = m.buffer = value
    m.register_parameter("registered", value)
    assert list(m._parameters) == ["assigned", "buffer", "registered"]
    assert not m._buffers and "assigned" not in m.__dict__
    assert m.get_parameter("assigned") is m.assigned is value
    entries = impl.nn.ParameterList([value]), impl.nn.ParameterDict({"a": value})
    assert [list(each._parameters.values()) for each in entries] == [[value]] * 2


def test_walks_over_what_stands_for_a_parameter(impl, make):
    p = param(impl)
    m = impl.nn.Module()
    m.p = stand_in(impl, make, p)
    assert list(m.state_dict()) == ["p"]
    if make is weakref.proxy:
        with pytest.raises(TypeError, match="unhashable"):
            list(m.parameters())
        return
    assert list(m.parameters()) == [m.p]
    m.requires_grad_(False)
    assert p.requires_grad is False
    p.grad = tensor(impl)
    m.zero_grad()
    assert p.grad is None


def test_loads_into_what_stands_for_a_parameter(impl, make):
    p = impl.nn.Parameter(impl.lib.zeros(2))
    m = impl.nn.Module()
    m.p = value = stand_in(impl, make, p)
    m.load_state_dict({"p": impl.lib.ones(2)})
    assert p.tolist() == [1, 1] and m.p is value
    with pytest.raises(RuntimeError, match="size mismatch for p"):
        m.load_state_dict({"p": impl.lib.ones(3)})
    m.load_state_dict({"p": impl.lib.zeros(2)}, assign=True)
    assert p.tolist() == [1, 1] and m.p.tolist() == [0, 0]
    assert type(m._parameters["p"]) is type(p)


def test_conversions_of_a_proxy_of_a_parameter(impl):
    if impl.name == "torch":
        pytest.skip("torch reads the memory of the proxy as if it were a tensor's")
    p = param(impl)
    m = impl.nn.Module()
    m.p = stand_in(impl, weakref.proxy, p)
    m.double()
    assert type(m.p) is type(p) and m.p.dtype is impl.lib.float64
    assert p.dtype is impl.lib.float32


def test_conversions_to_a_proxy_of_a_tensor(impl):
    if impl.name == "torch" or impl.leaves == "jax":
        pytest.skip("torch reads the memory of the proxy; an array is a parameter by its mark")
    m = impl.nn.Module()
    m.register_buffer("buffer", tensor(impl))
    m.p = param(impl)
    p, made = m.p, []

    def convert(t):
        made.append(t)
        return weakref.proxy(made[-1])

    with pytest.raises(RuntimeError, match="detach"):
        m._apply(convert)
    assert m.p is p and m.p.tolist() == m.buffer.tolist()


def test_what_stands_for_a_tensor_may_be_a_buffer(impl, make):
    t = tensor(impl)
    value = stand_in(impl, make, t)
    m = impl.nn.Module()
    m.register_buffer("buffer", value)
    m.register_buffer("other", None)
    m.plain = m.other = value
    assert list(m._buffers.values()) == [value, value] and m.__dict__["plain"] is value
    with raises(TypeError, "to parameter 'p'"):
        m.register_parameter("p", value)
    m.p = param(impl)
    with raises(TypeError, "as parameter 'p'"):
        m.p = value
    assert list(m.state_dict()) == ["p", "buffer", "other"]


def test_what_stands_for_a_buffer_is_one(impl, make):
    if impl.leaves == "jax":
        pytest.skip("arrays say nothing of themselves")
    t = impl.nn.Buffer(tensor(impl))
    m = impl.nn.Module()
    m.buffer = value = make(t)
    assert list(m._buffers.values()) == [value]


def test_a_mock_with_the_spec_of_a_parameter(impl):
    m = impl.nn.Module()
    m.p = p = stand_in(impl, lambda _: Mock(spec=impl.nn.Parameter, grad_fn=None), None)
    m.register_parameter("q", p)
    assert list(m._parameters) == ["p", "q"] and list(m.parameters()) == [p]
    m.zero_grad()
    m.requires_grad_(False)
    p.requires_grad_.assert_called_with(False)


def test_a_tensor_of_a_class_that_says_parameter(impl):
    if impl.leaves == "jax":
        pytest.skip("arrays have no subclasses")

    class Says(impl.lib.Tensor):
        __class__ = property(lambda self: type(param(impl)))

    m = impl.nn.Module()
    m.p = value = tensor(impl).as_subclass(Says)
    assert isinstance(value, impl.nn.Parameter) and m._parameters == {"p": value}


def test_reports_look_at_each_value_for_itself(ours):
    if ours.leaves == "jax":
        pytest.skip("arrays have no class of their own")
    m = ours.nn.Module()
    m._parameters["other"] = StandsFor(object())
    m.p = StandsFor(param(ours))
    assert "1 + ?" in str(mt.summary(m))  # one is known, and one is not
