# SPDX-License-Identifier: BSD-3-Clause
"""``object.__setattr__``, ``__delattr__``, ``__getattribute__`` and ``__new__`` called on modules:
past the registries, as on any object.
"""

from __future__ import annotations

import copy
import copyreg
import dataclasses
import gc
import pickle
import random
import subprocess
import sys
import sysconfig
import textwrap
import types
import weakref

import pytest
from helpers.implementations import needs_torch
from helpers.support import raises
from helpers.util import INTERNAL_KEYS, buffer, names, one, param

from modtree import _C, nn

pytestmark = pytest.mark.skipif(
    not _C._exchange_object_methods(True), reason="this CPython keeps object's methods from modules"
)


def exposed(m):
    """The same module after somebody looked at its ``__dict__``."""
    m.__dict__  # noqa: B018
    return m


def modes(make):
    return make(), exposed(make())


# -- storing ---------------------------------------------------------------------------------------


def test_a_child_stays_out_of_the_registries(impl):
    for m in modes(impl.nn.Module):
        child, p = impl.nn.Module(), param(impl)
        assert object.__setattr__(m, "child", child) is None
        object.__setattr__(m, "p", p)
        assert m.child is child and m.p is p
        assert m.__dict__["child"] is child and m.__dict__["p"] is p
        assert list(m.children()) == [] and list(m.parameters()) == []
        assert list(m.state_dict()) == [] and repr(m) == "Module()"


def test_a_stored_name_shadows_a_registered_one(impl):
    for m in modes(impl.nn.Module):
        m.x = p = param(impl)
        object.__setattr__(m, "x", 3)
        assert m.x == 3 and m._parameters["x"] is p
        object.__delattr__(m, "x")
        assert m.x is p
        with raises(AttributeError):
            object.__delattr__(m, "x")
        assert m.x is p


@pytest.mark.parametrize("value", [False, "text", None])
def test_training_takes_effect(impl, value):
    for m in modes(impl.nn.Module):
        object.__setattr__(m, "training", value)
        assert m.training is value and m.__dict__["training"] is value
        m.train()
        assert m.training is True
        object.__setattr__(m, "training", False)
        assert impl.nn.Sequential(m).training is True and m.training is False


def test_forward_takes_effect(impl):
    class Own(impl.nn.Module):
        def forward(self, x):
            return "class"

    for m in modes(Own):
        assert m(1) == "class"
        object.__setattr__(m, "forward", lambda x: "instance")
        assert m(1) == "instance"
        object.__delattr__(m, "forward")
        assert m(1) == "class"


@pytest.mark.parametrize("name", ["train", "_apply", "named_parameters", "state_dict"])
def test_a_method_of_the_instance_takes_effect(impl, name):
    for m in modes(impl.nn.Module):
        calls = []

        def method(*args, m=m, calls=calls, **kwargs):
            calls.append(name)
            return getattr(type(m), name)(m, *args, **kwargs)

        root = impl.nn.Module()
        root.child = m
        object.__setattr__(m, name, method)
        root.eval(), root.float(), list(m.parameters()), root.state_dict()
        assert calls and set(calls) == {name}


@pytest.mark.parametrize("name", INTERNAL_KEYS)
def test_internal_entries_are_replaced_and_deleted(impl, name):
    for m in modes(impl.nn.Module):
        value = copy.copy(getattr(m, name))
        object.__setattr__(m, name, value)
        assert getattr(m, name) is value and m.__dict__[name] is value
        object.__delattr__(m, name)
        assert name not in m.__dict__
        with raises(AttributeError, name):
            getattr(m, name)
        with raises(AttributeError, name):
            object.__delattr__(m, name)
        object.__setattr__(m, name, value)
        assert getattr(m, name) is value


def test_registries_are_replaced(impl):
    for m in modes(impl.nn.Module):
        m.a = param(impl)
        object.__setattr__(m, "_parameters", {"b": param(impl, 2)})
        assert names(m.named_parameters()) == ["b"] and one(m.b) == 2
        with raises(AttributeError):
            m.a  # noqa: B018


def test_before_init(impl):
    made = impl.nn.Module.__new__(impl.nn.Module)
    object.__setattr__(made, "early", 1)
    object.__setattr__(made, "_modules", {})
    assert made.early == 1 and made._modules == {} and list(made.children()) == []
    with raises(AttributeError):
        made.training  # noqa: B018
    impl.nn.Module.__init__(made)
    assert made.early == 1 and made.training is True


def test_descriptors_of_the_class_come_first(impl):
    class Own(impl.nn.Module):
        @property
        def value(self):
            return self.__dict__["kept"]

        @value.setter
        def value(self, value):
            self.__dict__["kept"] = value

        @property
        def fixed(self):
            return 1

    for m in modes(Own):
        object.__setattr__(m, "value", param(impl))
        assert m.value is m.__dict__["kept"] and "value" not in m.__dict__
        with raises(AttributeError):
            object.__setattr__(m, "fixed", 2)
        with raises(AttributeError):
            object.__delattr__(m, "fixed")


def test_slots(impl):
    class Own(impl.nn.Module):
        __slots__ = ("child",)

    for m in modes(Own):
        child = impl.nn.Module()
        object.__setattr__(m, "child", child)
        assert m.child is child and "child" not in m.__dict__ and list(m.children()) == []
        object.__delattr__(m, "child")
        with raises(AttributeError):
            m.child  # noqa: B018


def test_dict_and_class_are_assigned(impl):
    class Own(impl.nn.Module):
        def forward(self, x):
            return x + 1

    class Mixin:
        pass

    class Mixed(Mixin, impl.nn.Module):
        pass

    for m in modes(impl.nn.Module):
        m.p = param(impl)
        object.__setattr__(m, "__class__", Own)
        assert m(1) == 2 and names(m.named_parameters()) == ["p"]
        object.__setattr__(m, "__dict__", {"training": 3})
        assert m.training == 3
        with raises(AttributeError):
            m._parameters  # noqa: B018
        with raises(TypeError):
            object.__setattr__(m, "__dict__", 3)
        with raises(TypeError):
            object.__setattr__(m, "__class__", int)
    for m in modes(Mixed):
        m.p = p = param(impl)
        object.__setattr__(m, "__dict__", {**m.__dict__, "x": 1})
        assert m.p is p and m.x == 1


def test_a_dict_that_was_assigned_takes_the_attributes(impl):
    m, attributes = impl.nn.Module(), dict(impl.nn.Module().__dict__)
    m.__dict__ = attributes
    child = impl.nn.Module()
    object.__setattr__(m, "child", child)
    assert attributes["child"] is child
    object.__delattr__(m, "child")
    assert "child" not in attributes


# -- classes ---------------------------------------------------------------------------------------


def test_frozen_dataclass(impl):
    @dataclasses.dataclass(frozen=True, eq=False)
    class Own(impl.nn.Module):
        size: int
        child: object

        def __post_init__(self):
            super().__init__()

        def forward(self, x):
            return x * self.size

    child = impl.nn.Module()
    m = Own(3, child)
    assert (m.size, m.child, m(2)) == (3, child, 6) and list(m.children()) == []
    with raises(dataclasses.FrozenInstanceError):
        m.size = 4
    with raises(dataclasses.FrozenInstanceError):
        del m.size
    object.__setattr__(m, "size", 4)
    assert m(2) == 8
    with raises(dataclasses.FrozenInstanceError):
        m.train(False)
    object.__setattr__(m, "training", False)
    assert m.training is False
    new = copy.deepcopy(m)
    assert new.size == 4 and new.child is not child
    assert dataclasses.replace(m, size=5).size == 5


def test_frozen_dataclass_with_fields_of_the_class_hash(impl):
    @dataclasses.dataclass(frozen=True)
    class Own(impl.nn.Module):
        size: int

        def __post_init__(self):
            super().__init__()

    assert Own(2) == Own(2) and hash(Own(2)) == hash((2,)) and {Own(2): 1}[Own(2)] == 1


def test_a_class_with_its_own_setattr(impl):
    class Own(impl.nn.Module):
        def __setattr__(self, name, value):
            if name.startswith("_own"):
                object.__setattr__(self, name, value)
            else:
                super().__setattr__(name, value)

        def __delattr__(self, name):
            if name.startswith("_own"):
                object.__delattr__(self, name)
            else:
                super().__delattr__(name)

    for m in modes(Own):
        m._own, m.child = impl.nn.Module(), impl.nn.Module()
        assert names(m.named_children()) == ["child"] and m.__dict__["_own"] is m._own
        del m._own, m.child
        assert names(m.named_children()) == [] and "_own" not in m.__dict__


def test_the_wrapper_of_a_model(impl):
    """As torch.compile's: its own module beside the registries, everything else from inside."""

    class Wrapper(impl.nn.Module):
        def __init__(self, inner):
            super().__init__()
            object.__setattr__(self, "_inner", inner)

        def __getattr__(self, name):
            return getattr(self._inner, name)

        def forward(self, *args):
            return self._inner(*args)

    class Inner(impl.nn.Module):
        def forward(self, x):
            return x + 1

    m = Wrapper(Inner())
    m._inner.p = param(impl)
    assert m.p is m._inner.p and m(1) == 2 and list(m.parameters()) == []
    assert list(copy.deepcopy(m).__dict__) == [*INTERNAL_KEYS, "_inner"]


def test_past_module_come_the_methods_of_object(impl):
    class Own(impl.nn.Module):
        def __setattr__(self, name, value):
            if name.startswith("_own"):
                super(impl.nn.Module, self).__setattr__(name, value)
            else:
                super().__setattr__(name, value)

        def __delattr__(self, name):
            if name.startswith("_own"):
                super(impl.nn.Module, self).__delattr__(name)
            else:
                super().__delattr__(name)

    for m in modes(Own):
        m._own, m.child = impl.nn.Module(), impl.nn.Module()
        assert names(m.named_children()) == ["child"] and m.__dict__["_own"] is m._own
        past = super(impl.nn.Module, m)
        assert past.__getattribute__("_own") is m._own
        assert past.__getattribute__("_modules") is m._modules
        with raises(AttributeError, "child"):
            past.__getattribute__("child")
        del m._own, m.child
        assert names(m.named_children()) == [] and "_own" not in m.__dict__


@pytest.mark.parametrize("taken", ["__setattr__", "__delattr__", "__getattribute__"])
def test_a_class_may_take_the_methods_of_object(impl, taken):
    class Own(impl.nn.Module):
        locals()[taken] = getattr(object, taken)

        def forward(self, x):
            return "class"

    class Below(Own):
        pass

    for make in (Own, Below, lambda: copy.deepcopy(Own()), lambda: copy.copy(Below())):
        for m in modes(make):
            m.child, m.plain = impl.nn.Module(), 3
            # One slot serves both: a class with one of the two from object has CPython's way for
            # the other.
            registered = names(m.named_children())
            assert registered == ([] if taken == "__setattr__" else ["child"])
            m.training = False
            assert m.__dict__["training"] is False and m.training is False
            assert m.train().training is True
            m.forward = lambda x: "instance"
            assert m(1) == "instance" and m.plain == 3
            assert m._parameters == {} and list(m.state_dict()) == []
            del m.forward
            assert m(1) == "class"


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


# -- wrong arguments, other objects ----------------------------------------------------------------


def test_wrong_arguments(impl):
    m = impl.nn.Module()
    for method in (object.__setattr__, object.__delattr__, object.__getattribute__):
        for arguments in ((), (m,), (m, "a", 1, 2), (m, "a", 1, 2, 3)):
            with raises(TypeError):
                method(*arguments)
        with raises(TypeError):
            method(m, name="x")
    for name in (1, None, b"x", ("x",)):
        for call in (
            lambda name=name: object.__setattr__(m, name, 1),
            lambda name=name: object.__delattr__(m, name),
            lambda name=name: object.__getattribute__(m, name),
        ):
            with raises(TypeError, "attribute name must be string"):
                call()
    for arguments in ((), (1,), (m,), (None,)):
        with raises(TypeError):
            object.__new__(*arguments)


def test_protection_of_other_objects_stays():
    native = type(_C._dtypes["float32"])
    for cls in (int, type, dict, native, types.FunctionType):
        with raises(TypeError):
            object.__setattr__(cls, "x", 1)
        with raises(TypeError):
            object.__delattr__(cls, "__name__")

    class Meta(type):
        pass

    class Own(metaclass=Meta):
        pass

    with raises(TypeError, "can't apply this __setattr__"):
        object.__setattr__(Own, "x", 1)
    with raises(TypeError, "can't apply this __delattr__"):
        object.__delattr__(Own, "x")
    with raises(TypeError, "requires a 'type' object"):
        type.__setattr__(Own(), "x", 1)
    for cls in (int, dict, Exception):
        with raises(TypeError, "is not safe, use"):
            object.__new__(cls)
    with raises(TypeError, "requires a"):
        nn.Module.__setattr__(Own(), "x", 1)


def test_other_objects_behave_as_before():
    class Plain:
        pass

    class Slots:
        __slots__ = ("a",)

    class WithMethods:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value * 2)

        def __delattr__(self, name):
            super().__delattr__(name)

        def __getattribute__(self, name):
            return super().__getattribute__(name)

    class WithNew:
        def __new__(cls, value):
            made = super().__new__(cls)
            made.value = value
            return made

    plain, slots, own = object.__new__(Plain), object.__new__(Slots), WithMethods()
    object.__setattr__(plain, "a", 1)
    object.__setattr__(slots, "a", 1)
    own.a = 1
    assert (plain.a, slots.a, own.a) == (1, 1, 2)
    assert object.__getattribute__(plain, "a") == object.__getattribute__(slots, "a") == 1
    for one_of in (plain, slots, own):
        object.__delattr__(one_of, "a")
        with raises(AttributeError):
            object.__delattr__(one_of, "a")
        with raises(AttributeError):
            object.__getattribute__(one_of, "a")
    with raises(AttributeError):
        object.__setattr__(slots, "b", 1)
    assert WithNew(3).value == 3
    with raises(TypeError, "object.__new__() takes exactly one argument"):
        object.__new__(WithNew, 3)
    with raises(TypeError):
        object.__new__(Plain, 3)
    with raises(dataclasses.FrozenInstanceError):
        dataclasses.make_dataclass("Frozen", ["a"], frozen=True)(1).a = 2
    namespace = types.SimpleNamespace()
    object.__setattr__(namespace, "a", 1)
    assert namespace.a == 1


@pytest.mark.skipif(
    sys.maxsize < 2**32
    or hasattr(sys, "gettotalrefcount")
    or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="offsets of the common build",
)
def test_new_classes_keep_their_native_slots(ours):
    """A class that CPython gave the slow slot would look a wrapper up for every write."""
    import ctypes

    def slots(cls):
        words = ctypes.cast(id(cls), ctypes.POINTER(ctypes.c_void_p))
        return words[144 // 8], words[152 // 8]  # tp_getattro, tp_setattro

    class Plain:
        pass

    class WithSetattr:
        def __setattr__(self, name, value):
            object.__setattr__(self, name, value)

    class Below(WithSetattr):
        __setattr__ = object.__setattr__

    class Own(ours.nn.Module):
        pass

    assert slots(Plain) == slots(Below) == slots(object)
    assert slots(WithSetattr) != slots(object)
    Own()  # the reading slot is put back when the first is made
    assert slots(Own)[1] == slots(ours.nn.Module)[1] == slots(_C.ModuleBase)[1]
    assert slots(Own)[0] == slots(_C.ModuleBase)[0]
    assert slots(type("Meta", (type,), {})) == slots(type)


def test_without_the_exchange_cpython_refuses_clearly():
    """What is left where CPython's records are not the expected ones."""
    program = """
        import sys
        from modtree import _C, nn

        assert _C._exchange_object_methods(False) is False
        assert _C._exchange_object_methods(False) is False
        m = nn.Module()
        calls = [lambda: object.__new__(nn.Module)]
        if sys.version_info < (3, 13):
            calls += [lambda: object.__setattr__(m, "x", 1), lambda: object.__delattr__(m, "x")]
        for call in calls:
            try:
                call()
            except TypeError as error:
                assert "can't apply this" in str(error) or "is not safe, use" in str(error), error
            else:
                raise AssertionError("not refused")
        assert nn.Module.__new__(nn.Module).__dict__ == {}
        assert _C._exchange_object_methods(True) is True
        object.__setattr__(m, "child", nn.Module())
        assert list(m.children()) == []
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True)


# -- ownership -------------------------------------------------------------------------------------


def test_values_are_released(ours):
    m = ours.nn.Module()
    child = ours.nn.Module()
    ref = weakref.ref(child)
    object.__setattr__(m, "child", child)
    del child
    assert object.__getattribute__(m, "child") is ref()
    object.__setattr__(m, "child", m)  # a cycle
    assert ref() is None
    ref = weakref.ref(m)
    del m
    gc.collect()
    assert ref() is None


def test_a_value_that_looks_at_the_module_while_it_dies(ours):
    m = ours.nn.Module()

    class Dying:
        def __del__(self):
            seen.append(dict(m.__dict__).get("x"))
            object.__setattr__(m, "_modules", {})

    for name in ("x", "training"):
        seen: list = []
        object.__setattr__(m, name, Dying())
        object.__setattr__(m, name, 1)
        object.__setattr__(m, name, Dying())
        object.__delattr__(m, name)
        assert len(seen) == 2 and m._modules == {}


def shown(value):
    if hasattr(value, "tag"):
        return f"child {value.tag}"
    if isinstance(value, dict):
        return {k: shown(v) for k, v in value.items()}
    return value if isinstance(value, (int, str, type(None))) else "method"


def outcome(operation, *arguments):
    try:
        return shown(operation(*arguments))
    except (AttributeError, TypeError, KeyError, NotImplementedError) as error:
        return type(error).__name__


def random_operations(module_class, seed, compact):
    """What 400 operations on modules of the class give, and their dicts; without a look at these in
    compact mode.
    """
    rng = random.Random(seed)

    class Own(module_class):
        __slots__ = ("slot",)
        constant = "class"

        def forward(self):
            return "class"

    children = [module_class() for _ in range(3)]
    for child in children:
        child.tag = children.index(child)
    operations = [
        (3, object.__setattr__, True),
        (2, object.__delattr__, False),
        (1, setattr, True),
        (1, delattr, False),
        (1, object.__getattribute__, False),
        (1, getattr, False),
        (1, lambda m, name: dict(m.named_children()), False),
        (1, lambda m, name: m(), False),
    ]
    weights = [weight for weight, _, _ in operations]
    attributes = ["a", "b", "slot", "constant", "forward", "training", "_modules", "_buffers"]
    m = Own()
    for _ in range(400):
        _, operation, takes_value = rng.choices(operations, weights)[0]
        name = rng.choice(attributes)
        value = rng.choice([1, None, "text", True, *children])
        if name == "_modules":
            value = {rng.choice("ab"): children[0]}
        elif name == "_buffers":
            value = {}
            if operation in (object.__delattr__, delattr):
                continue  # without it torch fails half-way through the assignment of a child
        result = outcome(operation, m, name, *[value] * takes_value)
        yield operation, name, shown(value), result, None if compact else shown(m.__dict__)
        if rng.random() < 0.05:
            yield shown(m.__dict__)
            m = Own()


@needs_torch
@pytest.mark.parametrize("compact", [True, False])
def test_random_operations_agree_with_torch(compact):
    from torch.nn import Module as TorchModule

    done: list = []
    for seed in range(40):
        ours, theirs = (random_operations(cls, seed, compact) for cls in (nn.Module, TorchModule))
        for mine, other in zip(ours, theirs, strict=True):
            if mine[1:] != other[1:] if isinstance(mine, tuple) else mine != other:
                raise AssertionError((seed, mine, other, done[-8:]))
            done.append(mine)
    assert len(done) > 10_000


@needs_torch
def test_torch_itself_is_as_before():
    import torch

    m = torch.nn.Module()
    child = torch.nn.Module()
    object.__setattr__(m, "child", child)
    assert m.child is child and list(m.children()) == []
    object.__delattr__(m, "child")
    assert type(object.__new__(torch.nn.Module)) is torch.nn.Module


def test_buffers_stay_in_their_registry(impl):
    m = impl.nn.Module()
    m.register_buffer("b", buffer(impl))
    object.__setattr__(m, "b", 1)
    assert names(m.named_buffers()) == ["b"] and m.b == 1 and list(m.state_dict()) == ["b"]
    object.__delattr__(m, "b")
    assert one(m.b) == 1.0
