# SPDX-License-Identifier: BSD-3-Clause
"""What native code remembers of a class and a name never outlives a change of either: reads, writes
and train() after the class, the object or its dicts were changed, in ways that keep addresses, tags
and table places busy.
"""

from __future__ import annotations

import collections
import random
import sys

import pytest

import modtree as mt


def parameter(impl, size):
    return impl.nn.Parameter(impl.lib.zeros(size))


def module_class(impl):
    class Net(impl.nn.Module):
        pass

    return Net


def filled(impl, kind=None):
    m = (kind or module_class(impl))()
    m.weight = parameter(impl, 2)
    m.child = impl.nn.Module()
    m.register_buffer("count", impl.lib.tensor(3))
    m.plain = "plain"
    return m


NAMES = ["weight", "child", "count", "plain", "training"]


def read_often(m, name):
    found = [getattr(m, name) for _ in range(3)]
    assert found[0] is found[1] is found[2]
    return found[0]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("where", ["class", "base", "mixin"])
@pytest.mark.parametrize("kind", ["property", "value", "function"])
def test_a_class_attribute_that_comes_and_goes(impl, name, where, kind):
    class Mixin:
        pass

    class Base(impl.nn.Module):
        pass

    class Net(Base, Mixin):
        pass

    m = filled(impl, Net)
    before = read_often(m, name)
    owner = {"class": Net, "base": Base, "mixin": Mixin}[where]
    added = {"property": property(lambda self: "got"), "value": "got", "function": lambda self: 1}
    setattr(owner, name, added[kind])
    in_dict = name in m.__dict__  # plain attributes and training: not hidden by what has no setter
    for _ in range(3):
        found = getattr(m, name)
        if kind == "property":
            assert found == "got"
        elif in_dict:
            assert found is before
        else:
            assert found == "got" or found() == 1
    delattr(owner, name)
    assert read_often(m, name) is before


@pytest.mark.parametrize("name", NAMES)
def test_the_class_of_an_object_changes(impl, name):
    class One(impl.nn.Module):
        pass

    class Two(impl.nn.Module):
        pass

    Two.__getattr__ = lambda self, name: "asked"
    m = filled(impl, One)
    before = read_often(m, name)
    m.__class__ = Two
    for _ in range(3):
        assert getattr(m, name) is before if name in m.__dict__ else getattr(m, name) == "asked"
    m.__class__ = One
    assert read_often(m, name) is before


@pytest.mark.parametrize("name", NAMES)
def test_methods_that_read_are_patched_later(impl, name):
    Net = module_class(impl)
    m = filled(impl, Net)
    before = read_often(m, name)
    Net.__getattribute__ = lambda self, name: "asked"
    assert getattr(m, name) == "asked"
    del Net.__getattribute__
    assert read_often(m, name) is before
    Net.__getattr__ = lambda self, name: "asked"
    found = getattr(m, name)
    assert found is before if name in ("plain", "training") else found == "asked"
    del Net.__getattr__
    assert read_often(m, name) is before


def test_equal_names_that_are_other_strings(impl):
    class Text(str):
        pass

    m = filled(impl)
    for name in NAMES:
        before = read_often(m, name)
        for other in ("".join(list(name)), Text(name), sys.intern("".join(list(name)))):
            assert getattr(m, other) is before
    odd = "we" + "".join(["i", "ght2"])
    setattr(m, odd, 5)
    assert m.weight2 == 5 and getattr(m, "weight" + str(2)) == 5


def test_writes_after_the_class_got_a_descriptor(impl):
    Net = module_class(impl)
    m = Net()
    written = []
    for _ in range(3):
        m.plain = 1
    Net.plain = property(lambda self: "got", lambda self, value: written.append(value))
    m.plain = 2
    assert (m.plain, written, m.__dict__["plain"]) == ("got", [2], 1)
    del Net.plain
    m.plain = 3
    assert m.plain == 3 and written == [2]


def test_parameters_after_the_class_got_an_attribute(impl):
    Net = module_class(impl)
    m = Net()
    for _ in range(3):
        m.weight = parameter(impl, 2)
    Net.other = 1
    with pytest.raises(KeyError, match="already exists"):
        m.other = parameter(impl, 2)
    Net.weight = "hidden"
    m.weight = parameter(impl, 3)
    assert m.weight == "hidden" and list(m._parameters) == ["weight"]


def test_a_virtual_method_as_attribute_still_overrides(impl):
    m = filled(impl)
    m.forward = lambda x: x + 1
    assert m(1) == 2
    m.train = lambda mode=True: "own"
    parent = impl.nn.Sequential(m)
    parent.eval()
    assert m.training and not parent.training
    m.extra_repr = lambda: "told"
    assert "told" in repr(m)


@pytest.mark.parametrize("count", [3, 40, 90, 200])
def test_registries_of_many_names(impl, count):
    """Tables with deleted places, of one and two bytes an index."""
    m = module_class(impl)()
    draw = random.Random(count)
    expected = {}
    for _ in range(6 * count):
        name = f"name{draw.randrange(count)}"
        kind = draw.choice(["parameter", "plain", "child", "delete"])
        if kind == "delete":
            if expected.pop(name, None) is not None:
                delattr(m, name)
            continue
        if name in m._parameters or name in m._modules:
            delattr(m, name)  # neither takes the place of the other
        if kind == "parameter":
            value = parameter(impl, 1)
        else:
            value = impl.nn.Module() if kind == "child" else object()
        setattr(m, name, value)
        expected[name] = value
        for key in (name, f"name{draw.randrange(count)}"):
            assert getattr(m, key, None) is expected.get(key)
    for number in range(count):
        assert getattr(m, f"name{number}", None) is expected.get(f"name{number}")


@pytest.mark.parametrize("registry", ["_parameters", "_buffers", "_modules"])
def test_keys_of_odd_types_in_a_registry(impl, registry):
    class Key:
        def __init__(self, text):
            self.text = text

        def __hash__(self):
            return hash(self.text)

        def __eq__(self, other):
            return other == self.text

    class Text(str):
        pass

    value = impl.nn.Module() if registry == "_modules" else parameter(impl, 1)
    for key in (Key("weight"), Text("weight")):
        m = module_class(impl)()
        for _ in range(2):
            assert not hasattr(m, "weight")
        getattr(m, registry)[key] = value
        assert m.weight is value
    m = module_class(impl)()
    setattr(m, registry, collections.OrderedDict(other=value))
    assert m.other is value and not hasattr(m, "weight")


def test_more_classes_and_names_than_are_remembered(impl):
    """Places of the cache are taken by others again and again."""
    classes = [type(f"C{i}", (impl.nn.Module,), {}) for i in range(70)]
    modules = [c() for c in classes]
    for i, m in enumerate(modules):
        for j in range(i % 5, 70, 5):
            setattr(m, f"name{j}", (i, j))
    for repeat in range(2):
        for j in range(70):
            for i, m in enumerate(modules):
                assert getattr(m, f"name{j}", None) == ((i, j) if j % 5 == i % 5 else None)
        for i, c in enumerate(classes):
            if i % 7 == repeat:
                setattr(c, f"name{i}", None)
                delattr(c, f"name{i}")


def test_a_class_that_changes_too_often_for_a_tag(impl):
    Net = module_class(impl)
    m = filled(impl, Net)
    before = m.weight
    for i in range(1100):
        Net.other = i
        assert m.other == i
    Net.weight = property(lambda self: "got")
    assert m.weight == "got"
    del Net.weight
    assert m.weight is before


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of _clear_type_cache, from 3.13 on
def test_tags_that_are_given_out_anew(impl):
    """CPython 3.10 counts from the start again after sys._clear_type_cache()."""
    clear = getattr(sys, "_clear_internal_caches", None) or sys._clear_type_cache

    class Layer(impl.nn.Module):
        pass

    m, calls = Layer(), []
    clear()
    assert not hasattr(m, "nothing")
    m.train()
    clear()
    Layer.train = lambda self, mode=True: calls.append(mode) or self
    Layer.nothing = 1
    assert m.nothing == 1
    impl.nn.Sequential(m).eval()
    assert calls == [False]


# --- train() of a module without children


class Equal:
    """Equal to everything of its kind."""

    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 1


def test_train_of_leaves_that_equal_each_other(impl):
    class Leaf(Equal, impl.nn.Module):
        pass

    parent = impl.nn.Module()
    for i in range(3):
        setattr(parent, f"child{i}", Leaf())
    parent.eval()
    assert [c.training for c in parent._modules.values()] == [False, True, True]


def test_train_of_leaves_that_something_is_different_about(impl):
    calls = []

    class Own(impl.nn.Module):
        def train(self, mode=True):
            calls.append(mode)
            return super().train(mode)

    class Writes(impl.nn.Module):
        def __setattr__(self, name, value):
            calls.append((name, value))
            super().__setattr__(name, value)

    class Property(impl.nn.Module):
        training = property(lambda self: "got", lambda self, value: calls.append(("set", value)))

    kinds = [impl.nn.Module, Own, Writes, Property]
    children = {kind.__name__: kind() for kind in kinds}
    named = impl.nn.Module()
    del named.training
    named.register_parameter("training", None)
    children["named"] = named
    instance = impl.nn.Module()
    instance.train = lambda mode=True: calls.append(("instance", mode))
    children["instance"] = instance
    odd = impl.nn.Module()
    odd.training = "odd"
    children["odd"] = odd
    parent = impl.nn.Module()
    for name, child in children.items():
        parent._modules[name] = child
    calls.clear()
    with pytest.raises(TypeError, match="training"):
        parent.eval()  # a parameter of that name takes no bool
    del parent._modules["named"]
    calls.clear()
    parent.eval()
    assert calls == [False, ("training", False), ("set", False), ("instance", False)]
    assert children["Module"].training is False is children["Own"].training
    assert children["Writes"].training is False is odd.training
    assert instance.training is True and children["Property"].training == "got"


def test_train_of_one_leaf_under_several_names(impl):
    leaf = impl.nn.Module()
    tree = impl.nn.Module()
    tree.a = leaf
    tree.b = impl.nn.Sequential(leaf, leaf)
    tree.c = leaf
    tree.eval()
    assert not leaf.training
    tree.train()
    assert all(m.training for m in tree.modules())


@pytest.mark.parametrize("name", ["a.b", ""])
def test_a_name_that_no_registry_takes_stays_refused(impl, name):
    m = filled(impl)
    for _ in range(3):
        setattr(m, name, "plain")
        assert read_often(m, name) == "plain"
    delattr(m, name)
    for _ in range(3):
        with pytest.raises(KeyError, match="parameter name can"):
            setattr(m, name, parameter(impl, 1))
        assert not hasattr(m, name)


def test_a_class_whose_values_become_parameters():
    class Sub(mt.Tensor):
        pass

    m = mt.nn.Module()
    value = mt.zeros(2).as_subclass(Sub)
    for _ in range(3):
        m.x = value
    assert "x" not in m._parameters
    Sub.__bases__ = (mt.nn.Parameter,)
    del m.x
    for _ in range(3):
        m.x = value
    assert m._parameters["x"] is value
    Sub.__bases__ = (mt.Tensor,)
    other = mt.nn.Module()
    other.x = value
    assert "x" not in other._parameters
