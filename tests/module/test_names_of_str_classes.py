# SPDX-License-Identifier: BSD-3-Clause
"""A name of a class of str comes out of a tree as ``prefix + name`` in Python would make it: an
exact str, unless the class adds in a way of its own. Where the key itself is given, it is that key.
"""

from __future__ import annotations

import enum
import gc
import io
import pickle
import weakref
from collections import OrderedDict

import numpy as np
import pytest
from helpers.util import param, tensor


class Plain(str):
    pass


class Shown(str):
    def __str__(self):
        return "shown"

    def __format__(self, spec):
        return "formatted"


class Adds(str):
    def __add__(self, other):
        return Adds(f"<{str.__add__(self, other)}>")

    def __radd__(self, other):
        return Adds(f"[{other}{str.__str__(self)}]")


class Empty(str):
    def __bool__(self):
        return False


class Letter(str, enum.Enum):
    A = "a"
    P = "p."
    NONE = ""


CLASSES = pytest.mark.parametrize("of", [str, np.str_, Plain, Shown, Adds, Empty, Letter])
PREFIXES = pytest.mark.parametrize("text", ["", "p."])


def seen(names):
    """Names with their classes; the text is that of str itself."""
    return [(type(name), str.__str__(name)) for name in names]


def tree(i, key):
    root, child, leaf = i.nn.Module(), i.nn.Module(), i.nn.Module()
    root.add_module(key, child)
    child.register_parameter(key, param(i))
    child.add_module("leaf", leaf)
    leaf.register_buffer(key, tensor(i))
    return root


def dotted(prefix, *keys):
    for key in keys:
        prefix = prefix + ("." if prefix else "") + key
    return prefix


@CLASSES
@PREFIXES
def test_walks(impl, of, text):
    key, root = of("a"), tree(impl, of("a"))
    for prefix in (text, of(text)):
        modules = seen([prefix, dotted(prefix, key), dotted(prefix, key, "leaf")])
        assert seen(n for n, _ in root.named_modules(prefix=prefix)) == modules
        every = root.named_modules(prefix=prefix, remove_duplicate=False)
        assert seen(n for n, _ in every) == modules
        parameters = seen([dotted(prefix, key, key)])
        assert seen(n for n, _ in root.named_parameters(prefix=prefix)) == parameters
        own = root.a.named_parameters(prefix=prefix, recurse=False)
        assert seen(n for n, _ in own) == seen([dotted(prefix, key)])
        buffers = seen([dotted(prefix, key, "leaf", key)])
        assert seen(n for n, _ in root.named_buffers(prefix=prefix)) == buffers
        members = root._named_members(lambda m: m._parameters.items(), prefix=prefix)
        assert seen(n for n, _ in members) == parameters
    assert next(root.named_children())[0] is next(iter(root._modules))


@CLASSES
@PREFIXES
def test_state_dict(impl, of, text):
    key, root = of("a"), tree(impl, of("a"))
    for prefix in (text, of(text)):
        below = prefix + key + "."
        state = root.state_dict(prefix=prefix)
        assert seen(state) == seen([below + key, below + "leaf" + "." + key])
        assert seen(state._metadata) == seen(p[:-1] for p in (prefix, below, below + "leaf" + "."))
        own = {}
        root.a._save_to_state_dict(own, prefix, False)
        assert seen(own) == seen([prefix + key])


@CLASSES
def test_names_that_hooks_and_overrides_get(impl, of):
    got = []

    class Child(impl.nn.Module):
        def _save_to_state_dict(self, destination, prefix, keep_vars):
            got.append(prefix)
            super()._save_to_state_dict(destination, prefix, keep_vars)

        def _load_from_state_dict(self, state_dict, prefix, *rest):
            got.append(prefix)
            super()._load_from_state_dict(state_dict, prefix, *rest)

    root, key = impl.nn.Module(), of("a")
    root.add_module(key, Child())
    root.a.register_state_dict_pre_hook(lambda m, prefix, k: got.append(prefix))
    root.load_state_dict(root.state_dict())
    assert seen(got) == seen(["" + key + "."] * 3)


@CLASSES
def test_reports_of_a_load(impl, of):
    key, root = of("a"), tree(impl, of("a"))
    missing, unexpected = root.load_state_dict({key: 1}, strict=False)
    below = "" + key + "."
    assert seen(missing) == seen([below + key, below + "leaf" + "." + key])
    assert seen(unexpected) == seen([key])
    with pytest.raises(RuntimeError) as failed:
        root.load_state_dict({key: 1})
    quoted = ", ".join(f'"{k}"' for k in missing)
    assert f"Missing key(s) in state_dict: {quoted}. " in str(failed.value)
    assert f'Unexpected key(s) in state_dict: "{key}". ' in str(failed.value)


def test_an_extra_state_that_nobody_takes_is_reported_by_its_own_name(impl):
    unexpected = impl.nn.Module().load_state_dict({Plain("_extra_state"): 1}, strict=False)[1]
    assert seen(unexpected) == seen(["_extra_state"])


@pytest.mark.parametrize("of", [str, np.str_, Plain, Shown, Empty, Letter])
def test_loads_what_it_saved(impl, of):
    source, target = tree(impl, of("a")), tree(impl, of("a"))
    assert [list(found) for found in target.load_state_dict(source.state_dict())] == [[], []]


@CLASSES
def test_repr(impl, of):
    key, root = of("a"), impl.nn.Module()
    child = impl.nn.Sequential(impl.nn.Module())
    root.add_module(key, child)
    shown = repr(child).replace("\n", "\n  ")
    assert repr(root) == "Module(\n  " + "\n  ".join(["(" + key + "): " + shown]) + "\n)"


@CLASSES
def test_containers(impl, of):
    key = of("a")
    modules = impl.nn.ModuleDict({key: impl.nn.Module()})
    chain = impl.nn.Sequential(OrderedDict([(key, impl.nn.Module())]))
    parameters = impl.nn.ParameterDict({key: param(impl)})
    assert seen(modules) == seen(modules.keys()) == seen(chain._modules) == seen([key])
    for container in (modules, chain):
        assert seen(n for n, _ in container.named_children()) == seen([key])
        assert seen(n for n, _ in container.named_modules()) == seen(["", "" + key])
    assert seen(parameters.state_dict()) == seen(["" + key])
    assert seen(n for n, _ in parameters.named_parameters()) == seen(["" + key])


def test_a_state_dict_is_pickled_without_classes_of_names(impl):
    m = impl.nn.Module()
    m.register_buffer(np.str_("a"), tensor(impl))
    assert b"numpy.str_" not in pickle.dumps({k: 1 for k in m.state_dict()})
    assert b"str_" not in pickle.dumps(list(m.state_dict()))
    file = io.BytesIO()
    impl.lib.save(m.state_dict(), file)
    file.seek(0)
    assert list(impl.lib.load(file)) == ["a"]


def test_what_a_class_of_str_adds_must_be_a_str(ours):
    class Number(str):
        def __radd__(self, other):
            return 3

    root = ours.nn.Module()
    root.add_module(Number("a"), ours.nn.Module())
    root.register_parameter(Number("p"), param(ours))
    for use in (
        lambda: list(root.named_modules()),
        lambda: list(root.named_parameters()),
        root.state_dict,
    ):
        with pytest.raises(TypeError, match="must be str, got int"):
            use()


@pytest.mark.slow
def test_adding_names_may_change_the_tree(ours):
    class Clears(str):
        def __radd__(self, other):
            root._modules.clear()
            root._parameters.clear()
            child._parameters.clear()
            gc.collect()
            return other + str(self)

    for use in (
        lambda m: list(m.named_modules()),
        lambda m: list(m.named_modules(remove_duplicate=False)),
        lambda m: list(m.named_parameters()),
        lambda m: m.state_dict(),
        lambda m: m.load_state_dict({}, strict=False),
    ):
        root, child = ours.nn.Module(), ours.nn.Module()
        root.add_module(Clears("a"), child)
        child.register_parameter(Clears("p"), param(ours))
        child.register_parameter(Clears("q"), param(ours))
        try:
            use(root)
        except RuntimeError as error:
            assert "during iteration" in str(error)


def test_no_memo_keeps_a_name_with_attributes(ours):
    watched = []

    def walk():
        root, key = ours.nn.Module(), Plain("a")
        key.root = root
        root.add_module(key, ours.nn.Module())
        root.a.register_parameter(key, param(ours))
        watched.append(weakref.ref(root))
        list(root.named_modules()), list(root.named_parameters(prefix=key))
        root.load_state_dict(root.state_dict())
        root.state_dict(prefix=key)
        setattr(root, key, None), getattr(root, key), hasattr(root, Plain("zzz"))

    walk()
    gc.collect()
    assert watched[0]() is None
