# SPDX-License-Identifier: BSD-3-Clause
"""Classes of modules beside the plain ones: mixins in front, other metaclasses, a __new__,
generics, dataclasses, proxies.
"""

from __future__ import annotations

import abc
import contextlib
import copy
import dataclasses
import functools
import gc
import inspect
import sys
import types
import typing
import weakref

import pytest
from helpers.internals import needs_object_methods
from helpers.support import raises
from helpers.util import INTERNAL_KEYS, buffer, names, one, param

try:
    import attrs
except ImportError:
    attrs = None

# -- bases -----------------------------------------------------------------------------------------


class Mixin:
    """Brings CPython's own ``__dict__`` when it stands in front."""


def mixed(impl):
    class Mixed(Mixin, impl.nn.Module):
        def forward(self, x):
            return x + 1

    return Mixed


def test_dict_behind_a_mixin(impl):
    m = mixed(impl)()
    m.p, m.plain = param(impl), 3
    assert list(m.__dict__) == [*INTERNAL_KEYS, "plain"]
    assert vars(m) is m.__dict__
    m.__dict__["_parameters"]["q"] = param(impl)
    assert names(m.named_parameters()) == ["p", "q"]


def test_dict_behind_a_mixin_is_assigned(impl):
    m, other = mixed(impl)(), mixed(impl)()
    m.p = param(impl)
    other.__dict__ = dict(m.__dict__)
    assert other.p is m.p and other.training is True
    assert names(other.named_parameters()) == ["p"]
    other.__dict__["_parameters"] = {}
    assert names(other.named_parameters()) == []
    assert other(1) == 2


def test_dict_behind_a_mixin_cannot_be_deleted_half(impl):
    m = mixed(impl)()
    m.p = param(impl)
    # CPython's own descriptor refuses, Module's makes an empty dict.
    with contextlib.suppress(TypeError):
        del m.__dict__
    assert isinstance(m.__dict__, dict)


def test_dict_of_an_instance_that_came_from_another_class(impl):
    m = impl.nn.Module()
    m.p = param(impl)
    m.__class__ = mixed(impl)
    assert list(m.__dict__) == list(INTERNAL_KEYS)
    assert m(1) == 2


def test_dict_behind_a_generic_mixin_with_getattr(impl):
    T = typing.TypeVar("T")

    class Holder(typing.Generic[T]):
        pass

    class Own(Holder[int], impl.nn.Module):
        def __getattr__(self, name):
            return 42 if name == "answer" else super().__getattr__(name)

    m = Own()
    m.p = param(impl)
    assert m.answer == 42 and one(m.p) == 1.0
    assert list(m.__dict__) == list(INTERNAL_KEYS)


def test_dict_property_of_a_class_is_its_own(impl):
    class Own(impl.nn.Module):
        @property
        def __dict__(self):
            return {"mine": 1}

    assert Own().__dict__ == {"mine": 1}


@pytest.mark.parametrize("first", [True, False])
def test_abstract_classes(impl, first):
    bases = (abc.ABC, impl.nn.Module) if first else (impl.nn.Module, abc.ABC)

    class Base(*bases):
        @abc.abstractmethod
        def forward(self, x): ...

    class Own(Base):
        def forward(self, x):
            return x * 2

    with raises(TypeError, "abstract"):
        Base()
    assert Own()(2) == 4
    assert list(Own().__dict__) == list(INTERNAL_KEYS)


def test_metaclass_with_a_call(impl):
    class Meta(type):
        def __call__(cls, *args, **kwargs):
            made = super().__call__(*args, **kwargs)
            made.post = True
            return made

    class Own(impl.nn.Module, metaclass=Meta):
        def __init__(self, size):
            super().__init__()
            self.size = size

    m = Own(3)
    assert m.post and m.size == 3
    assert copy.deepcopy(m).size == 3


def test_generic_remembers_its_parameters(impl):
    T = typing.TypeVar("T")

    class Own(impl.nn.Module, typing.Generic[T]):
        def __init__(self, value: T):
            super().__init__()
            self.value = value

    m = Own[int](3)
    assert m.__orig_class__ == Own[int] and type(m) is Own


def test_new_gets_no_arguments(impl):
    class Passes(impl.nn.Module):
        def __new__(cls, *args):
            return super().__new__(cls, *args)

        def __init__(self, value):
            super().__init__()

    with raises(TypeError, "__new__() takes exactly one argument"):
        Passes(3)

    class Drops(Passes):
        def __new__(cls, *args):
            made = super().__new__(cls)
            made.early = args
            return made

    assert Drops(3).early == (3,)
    assert impl.nn.Module.__new__(mixed(impl), 3).__dict__ == {}


# -- dataclasses -----------------------------------------------------------------------------------


def test_dataclass_with_eq_is_unhashable(impl):
    @dataclasses.dataclass
    class Own(impl.nn.Module):
        size: int

        def __post_init__(self):
            super().__init__()
            self.p = param(impl)

    m = Own(2)
    assert repr(m) == f"{Own.__qualname__}(size=2)" and m == Own(2)
    for walk in (m.modules, m.parameters):
        with raises(TypeError, "unhashable"):
            list(walk())
    assert m.train(False).training is False and m.float() is m
    assert list(m.state_dict()) == ["p"]
    assert copy.deepcopy(m).size == 2
    assert dataclasses.replace(m, size=3).size == 3


def test_dataclass_without_eq(impl):
    @dataclasses.dataclass(eq=False)
    class Own(impl.nn.Module):
        size: int

        def __post_init__(self):
            super().__init__()
            self.p = param(impl)

    m = Own(2)
    assert names(m.named_parameters()) == ["p"] and m.train(False).training is False


# -- tools of the standard library -----------------------------------------------------------------


def test_weak_references_and_finalizers(impl):
    m, calls = mixed(impl)(), []
    weakref.finalize(m, calls.append, 1)
    table = weakref.WeakKeyDictionary({m: 1})
    method = weakref.WeakMethod(m.forward)
    del m
    gc.collect()
    assert calls == [1] and not table and method() is None


@pytest.mark.parametrize(
    "name", ["parameters", "named_children", "children", "train", "eval", "state_dict", "_apply"]
)
def test_methods_of_module_are_bound_methods(impl, name):
    class Own(impl.nn.Module):
        pass

    m, function = Own(), getattr(impl.nn.Module, name)
    method = getattr(m, name)
    assert method.__self__ is m and method.__func__ is getattr(m, name).__func__
    assert method == getattr(m, name) == types.MethodType(method.__func__, m)
    assert method != getattr(Own(), name) and inspect.isroutine(method)
    assert hash(method) == hash(getattr(m, name)) and repr(method).startswith("<bound method Mod")
    assert method.__name__ == function.__name__ == name and method.__doc__ == function.__doc__
    assert method.__qualname__ == function.__qualname__
    of_class, of_instance = (list(inspect.signature(f).parameters) for f in (function, method))
    assert of_class == ["self", *of_instance]
    copied = copy.deepcopy(method)
    assert type(copied.__self__) is Own and copied.__self__ is not m
    weak = weakref.WeakMethod(method)
    del method
    assert weak() == getattr(m, name)
    del m
    gc.collect()
    assert weak() is None


def test_a_method_in_an_attribute_is_copied_with_its_module(impl):
    m = impl.nn.Module()
    m.stop = m.eval
    again = copy.deepcopy(m)
    assert again.stop() is again and (again.training, m.training) == (False, True)


@pytest.mark.parametrize("many", [0, 20])
def test_arguments_of_bound_methods(impl, many):
    class Own(impl.nn.Module):
        pass

    m = Own()
    keywords = {f"name{i}": None for i in range(many)}
    assert m.eval(*()).training is False and m.train(**{"mode": True}).training is True
    for method in (m.eval, m.children, m.train):
        with pytest.raises(TypeError):
            method(1, 2, **keywords)
    assert [list(children) for children in map(type(m).children, [m, m])] == [[], []]


def test_cached_property_and_caches_on_methods(impl):
    class Own(impl.nn.Module):
        runs = 0

        @functools.cached_property
        def heavy(self):
            type(self).runs += 1
            return 5

        @functools.lru_cache  # noqa: B019 (what is tested)
        def cached(self, x):
            type(self).runs += 1
            return x

        @functools.singledispatchmethod
        def forward(self, x):
            return "other"

        @forward.register
        def _(self, x: int):
            return "int"

    m = Own()
    assert (m.heavy, m.heavy, m.cached(1), m.cached(1), Own.runs) == (5, 5, 1, 1, 2)
    assert (m(3), m("x")) == ("int", "other")
    assert copy.deepcopy(m).__dict__["heavy"] == 5


def test_modules_are_callables_for_functools(impl):
    m = mixed(impl)()
    assert list(map(m, [1, 2])) == [2, 3]
    assert functools.partial(m, 1)() == 2
    assert functools.reduce(lambda x, f: f(x), [m, m], 0) == 2
    assert inspect.ismethod(m.forward) and callable(m)


# -- who is asked for __deepcopy__ -----------------------------------------------------------------


def test_a_class_can_ask_whether_a_deepcopy_is_defined(impl):
    """As a parametrization does, which then copies ``__dict__`` although pickling is refused."""

    class Own(impl.nn.Module):
        def __getstate__(self):
            raise RuntimeError("only through state_dict()")

        if not hasattr(impl.nn.Module, "__deepcopy__"):

            def __deepcopy__(self, memo):
                new = self.__new__(type(self))
                memo[id(self)] = new
                new.__dict__ = copy.deepcopy(self.__dict__, memo)
                return new

    m = Own()
    m.p, m.again = param(impl), None
    m.child = Own()
    m.child.p = m.p
    new = copy.deepcopy(m)
    assert new.child.p is new.p is not m.p and type(new.child) is Own


class Proxy:
    """Forwards what it has not to the module inside."""

    def __init__(self, module):
        self.module = module

    def __getattr__(self, name):
        if name == "module":
            raise AttributeError(name)
        return getattr(self.module, name)


@pytest.mark.skipif(
    sys.version_info < (3, 11),
    reason="object has no __getstate__ yet: copy asks the proxy, which forwards to the module's",
)
def test_deepcopy_of_a_proxy_is_a_proxy(impl):
    m = impl.nn.Module()
    m.p = param(impl)
    new = copy.deepcopy(Proxy(m))
    assert type(new) is Proxy and type(new.module) is type(m)
    assert new.module.p is not m.p and one(new.p) == 1.0


def test_deepcopy_of_a_module_that_forwards_attributes(impl):
    class Wrapper(impl.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def __getattr__(self, name):
            try:
                return super().__getattr__(name)
            except AttributeError:
                return getattr(super().__getattr__("inner"), name)

    m = Wrapper(impl.nn.Module())
    m.inner.register_buffer("b", buffer(impl))
    for new in (copy.deepcopy(m), copy.copy(m)):
        assert type(new) is Wrapper and one(new.b) == one(m.b)


# -- classes with slots ----------------------------------------------------------------------------


def test_the_class_shows_what_instances_have_beside_slots(impl):
    shown = vars(impl.nn.Module)
    for name in ("__dict__", "__weakref__"):
        assert inspect.isgetsetdescriptor(shown[name]) and shown[name].__name__ == name
    # Not initialized: once torch._dynamo is loaded, torch's __init__ makes a weak reference itself.
    m = impl.nn.Module.__new__(impl.nn.Module)
    assert m.__weakref__ is None and shown["__dict__"].__get__(m) is m.__dict__
    reference = weakref.ref(m)
    assert m.__weakref__ is reference
    with raises(AttributeError):
        m.__weakref__ = None


def with_slots(Module):
    @attrs.define(eq=False)
    class Own(Module):
        size: int = 3

        def __attrs_pre_init__(self):
            super().__init__()

    return Own


@pytest.mark.skipif(attrs is None, reason="needs attrs")
def test_attrs_define(impl):
    Own = with_slots(impl.nn.Module)

    @attrs.define(eq=False)
    class Further(Own):
        pass

    for cls in (Own, Further):
        m = cls(size=4)
        m.p = param(impl)
        assert m.size == 4 and "size" not in vars(m) and "__weakref__" not in cls.__slots__
        assert weakref.ref(m)() is m and list(m.state_dict()) == ["p"]


@needs_object_methods  # attrs restores slots by object.__setattr__
@pytest.mark.skipif(attrs is None, reason="needs attrs")
def test_attrs_with_slots_are_copied(impl):
    Own = with_slots(impl.nn.Module)
    for cls in (Own, attrs.define(eq=False)(type("Further", (Own,), {}))):
        m = cls(size=4)
        m.p = param(impl)
        assert copy.deepcopy(m).size == 4


def test_dataclasses_with_slots(impl):
    @dataclasses.dataclass(eq=False, slots=True)
    class Own(impl.nn.Module):
        size: int = 3

        def __new__(cls, *args):
            new = impl.nn.Module.__new__(cls)
            impl.nn.Module.__init__(new)
            return new

    m = Own(4)
    assert (m.size, m.training) == (4, True) and "size" not in vars(m)


@pytest.mark.parametrize("slots", [("__weakref__",), ("__dict__",), ("__dict__", "__weakref__")])
def test_slots_that_a_module_has_already_are_refused(impl, slots):
    with raises(TypeError, "slot disallowed: "):
        type("Own", (impl.nn.Module,), {"__slots__": slots})


# -- assigning to __class__ ------------------------------------------------------------------------


def test_class_is_assigned_among_modules(impl):
    class Own(impl.nn.Module):
        pass

    class Slotless(impl.nn.Module):
        __slots__ = ()

    m = Own()
    m.p = param(impl)
    for cls in (impl.nn.Module, Slotless, impl.nn.Identity, Own):
        m.__class__ = cls
        assert type(m) is cls and list(m.state_dict()) == ["p"]


# -- what a native class cannot do (docs/compat.md) ------------------------------------------------


class Plain:
    pass


class Slotted:
    __slots__ = ("slot",)


def test_class_is_not_assigned_between_modules_and_plain_objects(ours):
    m, plain = ours.nn.Module(), Plain()
    with raises(TypeError, "object layout differs"):
        plain.__class__ = ours.nn.Module
    with raises(TypeError, "object layout differs"):
        m.__class__ = Plain
    assert type(m) is ours.nn.Module and type(plain) is Plain


@pytest.mark.parametrize("other", [dict, list, int, Exception, Slotted])
def test_bases_with_a_layout_of_their_own_are_refused(ours, other):
    with raises(TypeError, "lay-out conflict"):
        type("Own", (ours.nn.Module, other), {})


def test_attributes_set_before_init_come_last(ours):
    class Own(ours.nn.Module):
        def __init__(self):
            self.early = 1
            super().__init__()

    assert list(Own().__dict__) == [*INTERNAL_KEYS, "early"]
