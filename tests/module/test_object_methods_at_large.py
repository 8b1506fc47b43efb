# SPDX-License-Identifier: BSD-3-Clause
"""What the methods of ``object`` that take modules leave as it is: wrong arguments, other objects,
ownership; and random programs.
"""

from __future__ import annotations

import dataclasses
import gc
import random
import subprocess
import sys
import sysconfig
import textwrap
import types
import weakref

import pytest
from helpers.implementations import needs_torch
from helpers.internals import needs_object_methods
from helpers.support import raises
from helpers.util import buffer, names, one

from modtree import _C, nn

pytestmark = needs_object_methods


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
