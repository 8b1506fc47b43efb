# SPDX-License-Identifier: BSD-3-Clause
"""``object.__getattribute__``, ``__new__`` and other methods of ``object`` called on modules."""

from __future__ import annotations

import copyreg
import pickle
import sys

import pytest
from helpers.internals import needs_object_methods
from helpers.pickled_modules import importable
from helpers.support import modes, raises
from helpers.util import INTERNAL_KEYS, names, param

pytestmark = needs_object_methods


# -- reading and making ----------------------------------------------------------------------------


def test_getattribute_reads_the_class_and_the_dict(impl):
    class Own(impl.nn.Module):
        kind = "class"

        @property
        def twice(self):
            return 2

    for m in modes(Own):
        m.p, m.plain = param(impl), 3
        get = object.__getattribute__
        assert get(m, "_parameters") is m._parameters and get(m, "training") is True
        assert (get(m, "plain"), get(m, "kind"), get(m, "twice")) == (3, "class", 2)
        assert get(m, "forward").__self__ is m and get(m, "__class__") is Own
        with raises(AttributeError, "'Own' object has no attribute 'p'"):
            get(m, "p")
        assert get(m, "__dict__") is m.__dict__ and list(get(m, "__dict__")) == [
            *INTERNAL_KEYS,
            "plain",
        ]


@pytest.mark.parametrize("name", INTERNAL_KEYS)
def test_getattribute_reads_internal_entries(impl, name):
    m = impl.nn.Module()
    value = object.__getattribute__(m, name)
    assert value is getattr(m, name) and m.__dict__[name] is value
    assert object.__getattribute__(m, name) is value


def test_getattribute_of_a_class_attribute_with_an_internal_name(impl):
    class Own(impl.nn.Module):
        training = "class"

        @property
        def _buffers(self):
            return "property"

        @_buffers.setter
        def _buffers(self, value):
            pass

    m = Own()
    assert object.__getattribute__(m, "_buffers") == "property"
    assert object.__getattribute__(m, "training") is True


def test_getattribute_behind_a_mixin(impl):
    class Mixin:
        pass

    class Mixed(Mixin, impl.nn.Module):
        pass

    assert list(object.__getattribute__(Mixed(), "__dict__")) == list(INTERNAL_KEYS)


def test_new(impl):
    class Own(impl.nn.Module):
        pass

    class WithNew(impl.nn.Module):
        def __new__(cls, *args):
            made = object.__new__(cls)
            made.__dict__["early"] = args
            return made

        def __init__(self, *args):
            super().__init__()

    made = object.__new__(Own)
    assert type(made) is Own and made.__dict__ == {}
    made.__init__()
    made.p = param(impl)
    assert names(made.named_parameters()) == ["p"]
    assert WithNew(1, 2).early == (1, 2)
    # As for any class, arguments are for __init__ when there is one, and for nobody when there is a
    # __new__.
    assert object.__new__(Own, 1, x=2).__dict__ == {}
    with raises(TypeError, "__new__() takes exactly one argument"):
        object.__new__(WithNew, 1)
    with raises(TypeError, "__new__() takes exactly one argument"):
        object.__new__(WithNew, x=1)


def test_new_of_an_abstract_class(impl):
    import abc

    class Own(impl.nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self, x): ...

    with raises(TypeError, "abstract"):
        object.__new__(Own)


def test_new_in_every_way_to_call_it(impl):
    import functools

    cls = type("Own", (impl.nn.Module,), {})
    arguments, keywords = (cls,), {}
    for made in (
        object.__new__(cls),
        object.__new__(*arguments, **keywords),
        functools.partial(object.__new__, cls)(),
        next(map(object.__new__, [cls])),
        super(impl.nn.Module, cls).__new__(cls),
        copyreg.__newobj__(cls),
        copyreg._reconstructor(cls, object, None),
    ):
        assert type(made) is cls and made.__dict__ == {}


def test_the_other_methods_of_object(impl):
    m = impl.nn.Module()
    m.p, m.x = param(impl), 1
    assert object.__init__(m) is None and m.x == 1
    with raises(TypeError, "object.__init__() takes exactly one argument"):
        object.__init__(m, 1)
    made, (cls,), state, *rest = object.__reduce_ex__(m, 2)
    assert made is copyreg.__newobj__ and cls is type(m) and rest == [None, None]
    assert state.keys() == m.__dict__.keys() and state["_parameters"] is m._parameters
    assert {"p", "x", "training", "forward"} <= {*object.__dir__(m), *dir(m)}


@pytest.mark.skipif(sys.version_info < (3, 11), reason="object has no __getstate__ yet")
def test_getstate_of_object(ours):
    m = ours.nn.Module()
    m.x = 1
    assert object.__getstate__(m) == {"x": 1}
    assert [*m.__getstate__()] == [*INTERNAL_KEYS, "x"] == [*m.__dict__]
    assert object.__getstate__(m).keys() == m.__dict__.keys()


def test_reduction_in_protocol_0(ours):
    m = ours.nn.Module()
    for reduce in (lambda: object.__reduce_ex__(m, 0), lambda: object.__reduce__(m)):
        with raises(TypeError, "takes 1 positional argument"):
            reduce()
    assert type(pickle.loads(pickle.dumps(m, 0))) is type(m)


def NeedsArgument(Module):
    class NeedsArgument(Module):
        def __new__(cls, value):
            return super().__new__(cls)

        def __init__(self, value):
            super().__init__()
            self.value = value

    return NeedsArgument


@pytest.mark.parametrize("protocol", [0, 1])
def test_the_first_protocols_do_not_call_new_of_the_class(impl, protocol):
    m = importable(impl, NeedsArgument)(3)
    new = pickle.loads(pickle.dumps(m, protocol))
    assert type(new) is type(m) and new.value == 3
    function, args, _state = m.__reduce_ex__(protocol)
    assert function is copyreg._reconstructor and args == (type(m), object, None)
    assert impl.nn.Module().__reduce_ex__(protocol)[0] is copyreg._reconstructor
