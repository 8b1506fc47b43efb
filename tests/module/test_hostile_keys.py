# SPDX-License-Identifier: BSD-3-Clause
"""Keys that replace the very dict they are looked up in, and finalizers that use what is being
taken apart.

A key with the hash of the wanted name is compared with it, which may run any code. Each use ends in
a result or in a Python error, and the module works after a new ``__init__``. Not on torch: there
some of these end the process, in CPython's own attribute access.
"""

from __future__ import annotations

import copy
import gc
import pickle
import weakref
from collections import OrderedDict

import pytest
from helpers.hostile_keys import FAILURES, Key, assert_usable
from helpers.util import names, param, tensor


class Text(str):
    action = None

    def __hash__(self):
        if Text.action:
            Text.action()
        return str.__hash__(self)

    def __eq__(self, other):
        if Text.action:
            Text.action()
        return str.__eq__(self, other)


def attempt(use, *args):
    try:
        use(*args)
    except FAILURES as error:
        assert type(error) is not SystemError


REPLACE = {
    "new registry": lambda m, registry: setattr(m, registry, {}),
    "clear dict": lambda m, registry: m.__dict__.clear(),
    "new dict": lambda m, registry: setattr(m, "__dict__", {}),
    "init": lambda m, registry: m.__init__(),
}
USES = {
    "read": lambda m, name, i: getattr(m, name),
    "hasattr": lambda m, name, i: hasattr(m, name),
    "write": lambda m, name, i: setattr(m, name, 1),
    "write module": lambda m, name, i: setattr(m, name, i.nn.Module()),
    "write parameter": lambda m, name, i: setattr(m, name, param(i)),
    "delete": lambda m, name, i: delattr(m, name),
    "register": lambda m, name, i: m.register_buffer(name, tensor(i), persistent=False),
    "load": lambda m, name, i: m.load_state_dict({name: tensor(i)}),
    "state_dict": lambda m, name, i: m.state_dict(),
    "train": lambda m, name, i: m.train(),
    "call": lambda m, name, i: m(1),
    "walk": lambda m, name, i: list(m.named_parameters()),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("replace", REPLACE.values(), ids=REPLACE)
@pytest.mark.parametrize("registry", ["_parameters", "_buffers", "_modules"])
def test_a_registry_key_that_replaces_its_registry(ours, registry, replace, use):
    for name in ("x", "training"):
        m = ours.nn.Module()
        for other in ("_parameters", "_buffers", "_modules"):
            getattr(m, other)[Key(name, lambda m=m: replace(m, registry))] = None
        attempt(use, m, name, ours)
    assert_usable(ours, m)


@pytest.mark.parametrize("name", ["x", "_parameters", "training", "forward", "_forward_hooks"])
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("replace", ["clear dict", "new dict"])
def test_an_attribute_key_that_replaces_the_instance_dict(ours, replace, use, name):
    m = ours.nn.Module()
    entries = {k: v for k, v in m.__dict__.items() if k != name}
    entries[Key(name, lambda: REPLACE[replace](m, None))] = 1
    m.__dict__ = entries
    del entries
    attempt(use, m, name, ours)
    assert_usable(ours, m)


@pytest.mark.parametrize(
    "use",
    [
        lambda m: m.__dict__,
        lambda m: getattr(m, Text("x")),
        lambda m: setattr(m, Text("y"), 3),
        lambda m: delattr(m, Text("x")),
        lambda m: m.x,
        lambda m: m.__getstate__(),
        copy.copy,
        copy.deepcopy,
    ],
    ids=["dict", "read", "write", "delete", "plain read", "state", "copy", "deepcopy"],
)
@pytest.mark.parametrize(
    "action",
    [lambda m: m.__dict__, lambda m: setattr(m, "__dict__", {}), lambda m: m.__init__()],
    ids=["look", "new dict", "init"],
)
def test_a_str_subclass_as_name_that_changes_the_module(ours, action, use):
    m = ours.nn.Module()
    setattr(m, Text("x"), 1)
    setattr(m, Text("training"), 1)
    m.y = 2
    Text.action = lambda: action(m)
    try:
        attempt(use, m)
    finally:
        Text.action = None
    assert_usable(ours, m)


@pytest.mark.parametrize(
    "table", ["_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called"]
)
def test_a_hook_id_that_replaces_its_table(ours, table):
    class Echo(ours.nn.Module):
        def forward(self, x):
            return x

    m = Echo()
    m.register_forward_hook(lambda *a: None, with_kwargs=True, always_call=True)
    (number,) = m._forward_hooks
    entries = getattr(m, table)
    entries.clear()
    entries[Key(number, lambda: setattr(m, table, OrderedDict()))] = lambda *a: None
    del entries
    assert m(3) == 3


# -- finalizers ------------------------------------------------------------------------------------


def test_a_finalizer_that_uses_a_module_the_collector_has_cleared(ours):
    seen = []

    class Late:
        def __init__(self, action):
            self.action = action

        def __del__(self):
            self.action()

    class M(ours.nn.Module):
        def __del__(self):
            ref = weakref.ref(self)

            def look():
                m = ref()
                if m is None:
                    seen.append("gone")
                    return
                for use in USES.values():
                    attempt(use, m, "x", ours)
                seen.append(len(m.__dict__) >= 0)

            self.__dict__["late"] = Late(look)

    m = M()
    m.me = m
    del m
    gc.collect()
    gc.collect()
    assert seen


def test_a_long_chain_of_gradients_dies():
    import modtree

    t = modtree.zeros(1)
    for _ in range(200_000):
        t, t.grad = modtree.zeros(1), t
    first = weakref.ref(t)
    del t
    assert first() is None


# -- conversions and copies ------------------------------------------------------------------------


def test_ties_kept_while_the_registry_goes_away(ours):
    m = ours.nn.Module()
    m.a = param(ours)
    m._parameters["b"] = m.a

    def double_and_drop(t):
        m.__dict__.pop("_parameters", None)
        return t.double()

    attempt(lambda: m._apply(double_and_drop, preserve_ties=True))
    assert_usable(ours, m)


@pytest.mark.parametrize("where", ["attribute", "parameter"])
@pytest.mark.parametrize("copy_too", [False, True], ids=["original", "copy too"])
def test_deepcopy_of_something_that_looks_at_the_dict_of_its_owner(impl, where, copy_too):
    class Looks:
        def __deepcopy__(self, memo):
            assert m.__dict__
            if copy_too and id(m) in memo:
                assert memo[id(m)].__dict__ is not None
            return self

    class LooksToo(type(param(impl))):
        __deepcopy__ = Looks.__deepcopy__

    m = impl.nn.Module()
    m.a, m.c = param(impl), impl.nn.Module()
    m.c.shared = m.a
    if where == "attribute":
        m.looks = Looks()
    else:
        m.q = LooksToo(tensor(impl))
    m.z = 5
    other = copy.deepcopy(m)
    assert list(other.__dict__) == list(m.__dict__) and other.z == 5
    assert other.__dict__["_parameters"] is other._parameters is not m._parameters
    assert names(other.named_parameters()) == names(m.named_parameters())
    assert other.a is other.c.shared is not m.a
    other.new = param(impl)
    assert "new" in names(other.named_parameters()) and "new" not in names(m.named_parameters())


def test_clone_into_a_destination_with_odd_items(ours):
    class Odd(dict):
        def items(self):
            return [3]

    m = ours.nn.Module()
    m.p = param(ours)
    with pytest.raises(TypeError, match="pairs"):
        m.state_dict(destination=Odd(), clone=True)


@pytest.mark.filterwarnings("ignore:non-string key in the __dict__:RuntimeWarning")
@pytest.mark.parametrize("use", USES.values(), ids=USES)
@pytest.mark.parametrize("name", ["x", "__setattr__", "__delattr__", "__getattribute__"])
def test_a_key_behind_module_that_takes_the_class_from_the_module(ours, name, use):
    m, left = ours.nn.Module(), []
    m.x = 1

    def leave():
        if len(left) == 1:  # the write below looks for the name too
            left.append(True)
            m.__class__ = ours.nn.Identity
            gc.collect()

    behind = type("Behind", (), {Key(name, leave): None})
    m.__class__ = type("M", (ours.nn.Module, behind), {})
    del behind
    left.append(True)
    attempt(use, m, "x", ours)
    m.__class__ = ours.nn.Identity
    assert_usable(ours, m)


def test_an_operation_whose_table_cannot_be_imported(monkeypatch):
    import modtree

    monkeypatch.setitem(__import__("sys").modules, "modtree.numpy.ops.registry", None)
    with pytest.raises(pickle.PicklingError, match=r"modtree\.numpy\.ops\.registry"):
        pickle.dumps(modtree.Tensor.exp)


def test_an_error_of_an_argument_whose_text_cannot_be_had():
    import modtree

    class Mute:
        def __str__(self):
            raise OverflowError("no text")

    class Index:
        def __index__(self):
            raise ValueError(Mute())

    with pytest.raises((OverflowError, RuntimeError, ValueError, TypeError)):
        modtree.zeros(2, 2).sum(Index())
    with pytest.raises((OverflowError, RuntimeError, ValueError, TypeError)):
        modtree.zeros(2, 2).reshape(Index(), 4)
