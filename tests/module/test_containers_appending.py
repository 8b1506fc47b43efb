# SPDX-License-Identifier: BSD-3-Clause
"""Children that containers append natively: a class, an instance, a hook or a name that has a say
is heard as in the loop over ``add_module``, from any child on.
"""

from __future__ import annotations

import gc

import pytest
from helpers.containers_common import entries, tagger

KINDS = ["ModuleList", "Sequential"]


def children(impl, count, start=0):
    return [tagger(impl)(start + i) for i in range(count)]


def filled(impl, kind, modules):
    """A container of the modules; ``kind`` is a name or a class."""
    kind = getattr(impl.nn, kind) if isinstance(kind, str) else kind
    return kind(*modules) if issubclass(kind, impl.nn.Sequential) else kind(modules)


def appended(impl, container, modules):
    if isinstance(container, impl.nn.Sequential):
        container += impl.nn.Sequential(*modules)
    else:
        container += modules
    return container


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [0, 1, 9, 90, 200, 1030])
def test_names_and_order(impl, kind, count):
    container = filled(impl, kind, children(impl, count))
    assert list(entries(container).items()) == [(str(i), i) for i in range(count)]
    appended(impl, container, children(impl, 3, count))
    assert list(entries(container).items()) == [(str(i), i) for i in range(count + 3)]
    assert all(type(name) is str for name in container._modules)


@pytest.mark.parametrize("kind", KINDS)
def test_an_add_module_of_the_class_is_called(impl, kind):
    seen = []

    class Own(getattr(impl.nn, kind)):
        def add_module(self, name, module):
            seen.append(name)
            super().add_module(name, module)

    container = filled(impl, Own, children(impl, 2))
    appended(impl, container, children(impl, 1, 2))
    assert seen == ["0", "1", "2"] and len(container) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_a_patch_of_module_is_called_at_once(impl, kind, monkeypatch):
    seen = []
    original = impl.nn.Module.add_module

    def add_module(self, name, module):
        seen.append(name)
        original(self, name, module)

    filled(impl, kind, children(impl, 1))
    monkeypatch.setattr(impl.nn.Module, "add_module", add_module)
    container = filled(impl, kind, children(impl, 2))
    monkeypatch.undo()
    appended(impl, container, children(impl, 1, 2))
    assert seen == ["0", "1"] and len(container) == 3


@pytest.mark.parametrize("kind", KINDS)
def test_an_add_module_of_the_instance_is_called(impl, kind):
    container, seen = filled(impl, kind, children(impl, 1)), []
    container.add_module = lambda name, module: seen.append(name)
    appended(impl, container, children(impl, 1, 1))
    assert seen == ["1"] and len(container) == 1


@pytest.mark.parametrize("kind", KINDS)
def test_registration_hooks_are_called(impl, kind):
    seen = []

    def hook(module, name, child):
        seen.append(name)

    handle = impl.module.register_module_module_registration_hook(hook)
    filled(impl, kind, children(impl, 2))
    handle.remove()
    filled(impl, kind, children(impl, 1))
    assert seen == ["0", "1"]


@pytest.mark.parametrize("kind", KINDS)
def test_after_the_dict_was_looked_at(impl, kind):
    container = filled(impl, kind, children(impl, 1))
    assert "_modules" in container.__dict__
    appended(impl, container, children(impl, 2, 1))
    assert entries(container) == {"0": 0, "1": 1, "2": 2}


@pytest.mark.parametrize("where", ["class", "instance", "parameter", "buffer"])
def test_a_name_that_is_taken_elsewhere_is_refused(impl, where):
    class Own(impl.nn.ModuleList):
        pass

    container = Own(children(impl, 1))
    if where == "class":
        setattr(Own, "2", "taken")
    elif where == "instance":
        setattr(container, "2", "taken")
    elif where == "parameter":
        container.register_parameter("2", impl.nn.Parameter(impl.lib.zeros(1)))
    else:
        container.register_buffer("2", impl.lib.zeros(1))
    with pytest.raises(KeyError, match="attribute '2' already exists"):
        container.extend(children(impl, 3, 1))
    assert list(entries(container))[:1] == ["0"] and "2" not in container._modules


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [3, "text", object])
def test_what_is_no_module_is_refused(impl, kind, value):
    with pytest.raises(TypeError, match="is not a Module subclass"):
        filled(impl, kind, [*children(impl, 2), value, *children(impl, 1)])


def test_a_refused_extension_takes_back_what_it_added(impl):
    if impl.is_torch:
        pytest.skip("torch keeps what came before the error")
    container = filled(impl, "ModuleList", children(impl, 2))
    with pytest.raises(TypeError):
        container.extend([*children(impl, 2, 2), 3])
    assert entries(container) == {"0": 0, "1": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_none_is_kept(impl, kind):
    container = filled(impl, kind, [*children(impl, 1), None])
    assert list(container._modules) == ["0", "1"] and container._modules["1"] is None


def test_a_list_with_names_of_its_own_goes_on_by_its_length(impl):
    container = filled(impl, "ModuleList", children(impl, 1))
    container.add_module("last", tagger(impl)(1))
    container.extend(children(impl, 2, 2))
    assert list(container._modules) == ["0", "last", "2", "3"]


def test_a_sequential_that_has_a_child_before_its_own_counts_from_zero(impl):
    class First(impl.nn.Module):
        def __init__(self):
            super().__init__()
            self.extra = tagger(impl)("extra")

    class Both(impl.nn.Sequential, First):
        call_super_init = True

    container = Both(*children(impl, 2))
    assert set(container._modules) >= {"0", "1"}


def test_another_mapping_in_the_place_of_the_registry(impl):
    class Notes(dict):
        def __setitem__(self, name, value):
            set_by.append(name)
            super().__setitem__(name, value)

    set_by: list[str] = []
    container = filled(impl, "ModuleList", children(impl, 1))
    container.__dict__["_modules"] = Notes(container._modules)
    container.extend(children(impl, 2, 1))
    assert set_by == ["1", "2"]


def test_keys_that_compare_in_python_and_change_the_list(impl):
    """A key with the hash of a name runs its __eq__ in the middle of the append."""

    class Key:
        def __init__(self, name):
            self.hash = hash(name)

        def __hash__(self):
            return self.hash

        def __eq__(self, other):
            if not done and other == "2":
                done.append(other)
                container.__dict__["_modules"] = dict(container._modules)
                gc.collect()
            return False

    done: list[str] = []
    container = filled(impl, "ModuleList", children(impl, 1))
    container._modules[Key("2")] = tagger(impl)(1)
    container.extend(children(impl, 2, 2))
    assert done and len(container._modules) in (3, 4)


def test_an_iterable_that_appends_to_the_list_itself(impl):
    container = impl.nn.ModuleList()

    def modules():
        for child in children(impl, 3):
            yield child
            if len(container) == 0:
                container.append(tagger(impl)("from within"))

    if impl.is_torch:
        pytest.skip("torch numbers before it asks for the next module")
    container.extend(modules())
    assert list(container._modules) == ["0", "1", "2", "3"]
    assert list(entries(container).values()) == ["from within", 0, 1, 2]


@pytest.mark.parametrize("container", ["ModuleList", "Sequential"])
def test_positions_come_from_the_length_that_a_class_gives(impl, container):
    class Own(getattr(impl.nn, container)):
        length = 0

        def __len__(self):
            return self.length

    m = Own()
    m.add_module("bias", impl.nn.Identity())
    m.append(impl.nn.Identity())
    m.length = 5
    m += impl.nn.Sequential(impl.nn.Identity(), impl.nn.Identity())
    m.length = 10
    m.extend([impl.nn.Identity()])
    assert list(m._modules) == ["bias", "0", "5", "6", "10"]


def test_repeating_reads_and_writes_by_the_length_that_a_class_gives(impl):
    class First(impl.nn.Sequential):
        def __len__(self):
            return 2

    m = First(impl.nn.Identity(), impl.nn.ReLU(), impl.nn.Tanh())
    del m._modules["2"]
    m.add_module("head", impl.nn.Tanh())
    m *= 2
    assert list(m._modules) == ["0", "1", "head", "2", "3"] and m._modules["3"] is m._modules["1"]
