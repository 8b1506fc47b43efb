# SPDX-License-Identifier: BSD-3-Clause
"""The global registration hooks: when they fire, what they see, what they may replace."""

from __future__ import annotations

import contextlib
import copy
import warnings

import pytest
from helpers.support import raises
from helpers.util import buffer, param, tensor

KINDS = ("parameter", "buffer", "module")


@contextlib.contextmanager
def hooked(impl, kind, *hooks):
    register = getattr(impl.module, f"register_module_{kind}_registration_hook")
    handles = [register(hook) for hook in hooks]
    try:
        yield handles
    finally:
        for handle in handles:
            handle.remove()


@contextlib.contextmanager
def recorded(impl, kind):
    """The calls of a hook of this kind, as (module, name, value)."""
    calls = []

    def hook(module, name, value):
        calls.append((module, name, value))

    with hooked(impl, kind, hook):
        yield calls


def good(impl, kind):
    return {"parameter": param, "buffer": tensor, "module": lambda i: i.nn.Module()}[kind](impl)


def register(m, kind, name, value):
    {"parameter": m.register_parameter, "buffer": m.register_buffer, "module": m.add_module}[kind](
        name, value
    )


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_fire_on_registration_before_the_name_is_visible(impl, kind):
    m = impl.nn.Module()
    value = good(impl, kind)
    seen = []

    def hook(module, name, got):
        seen.append((module, name, got, hasattr(module, name)))

    with hooked(impl, kind, hook):
        register(m, kind, "x", value)
    register(m, kind, "y", good(impl, kind))
    assert seen == [(m, "x", value, False)]
    assert m.x is value


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_fire_on_assignment(impl, kind):
    m = impl.nn.Module()
    value = buffer(impl) if kind == "buffer" else good(impl, kind)
    with recorded(impl, kind) as calls:
        m.x = value
    assert calls == [(m, "x", value)]


@pytest.mark.parametrize("kind", KINDS)
def test_none_entries(impl, kind):
    m = impl.nn.Module()
    with recorded(impl, kind) as calls:
        register(m, kind, "x", None)
        m.x = None
    expected = [] if kind == "parameter" else [(m, "x", None), (m, "x", None)]
    assert calls == expected


def test_every_assignment_of_an_existing_buffer_fires(impl):
    m = impl.nn.Module()
    m.register_buffer("b", tensor(impl))
    t = tensor(impl)
    with recorded(impl, "buffer") as calls:
        m.b = t
        m.b = None
        m.b = t
    assert calls == [(m, "b", t), (m, "b", None), (m, "b", t)]


@pytest.mark.parametrize("kind", KINDS)
def test_other_kinds_do_not_fire(impl, kind):
    m = impl.nn.Module()
    with recorded(impl, kind) as calls:
        for other in KINDS:
            if other != kind:
                register(m, other, other, good(impl, other))
        m.plain, m.none, m.tensor = 1, None, tensor(impl)
    assert calls == []


def test_direct_writes_and_container_edits_do_not_fire(impl):
    nn = impl.nn
    with recorded(impl, "module") as calls:
        items = nn.ModuleList([nn.Identity(), nn.Identity()])
        sequence = nn.Sequential(nn.Identity(), nn.Identity())
    assert [name for _, name, _ in calls] == ["0", "1", "0", "1"]
    m = nn.Module()
    with recorded(impl, "module") as calls:
        m._modules["x"] = nn.Identity()
        items.insert(0, nn.Identity())
        sequence.insert(1, nn.Identity())
        del items[0]
        del sequence[0]
    assert calls == []


def test_copies_and_conversions_do_not_fire(impl):
    m = impl.nn.Module()
    m.p, m.c = param(impl), impl.nn.Module()
    m.register_buffer("b", tensor(impl))
    with contextlib.ExitStack() as stack:
        calls = [stack.enter_context(recorded(impl, kind)) for kind in KINDS]
        copy.deepcopy(m)
        copy.copy(m)
        m.double()
        m.load_state_dict(m.state_dict())
    assert calls == [[], [], []]


def test_loading_with_assign_fires_for_parameters(impl):
    m = impl.nn.Module()
    m.p = param(impl)
    state = m.state_dict()
    with recorded(impl, "parameter") as calls:
        m.load_state_dict(state, assign=True)
    assert [(module, name) for module, name, _ in calls] == [(m, "p")]


@pytest.mark.parametrize("kind", KINDS)
def test_results_replace_the_value_in_order(impl, kind):
    m = impl.nn.Module()
    first, second, third = (good(impl, kind) for _ in range(3))
    seen = []

    def one(module, name, value):
        seen.append(value)
        return second

    def two(module, name, value):
        seen.append(value)

    def three(module, name, value):
        seen.append(value)
        return third

    with hooked(impl, kind, one, two, three):
        register(m, kind, "x", first)
    assert seen == [first, second, second]
    assert m.x is third


@pytest.mark.parametrize("kind", KINDS)
def test_a_replacement_is_not_validated(impl, kind):
    m = impl.nn.Module()
    with hooked(impl, kind, lambda *a: "anything"):
        register(m, kind, "x", good(impl, kind))
    assert m.x == "anything"
    assert getattr(m, {"parameter": "_parameters", "buffer": "_buffers"}.get(kind, "_modules")) == {
        "x": "anything"
    }


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_leaves_the_name_free(impl, kind):
    m = impl.nn.Module()

    def hook(*args):
        raise LookupError("no")

    with hooked(impl, kind, hook), raises(LookupError, "no"):
        register(m, kind, "x", good(impl, kind))
    assert not hasattr(m, "x")
    register(m, kind, "x", good(impl, kind))
    assert hasattr(m, "x")


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_may_register_something_itself(impl, kind):
    m = impl.nn.Module()

    def hook(module, name, value):
        if name == "x":
            register(module, kind, "made_by_hook", good(impl, kind))

    with hooked(impl, kind, hook):
        register(m, kind, "x", good(impl, kind))
    registry = {"parameter": m._parameters, "buffer": m._buffers, "module": m._modules}[kind]
    assert list(registry) == ["made_by_hook", "x"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_may_take_the_name_itself(impl, kind):
    """The checks came before: the hook's entry is overwritten in place."""
    m = impl.nn.Module()
    registry = {"parameter": m._parameters, "buffer": m._buffers, "module": m._modules}[kind]

    def hook(module, name, value):
        registry[name] = "from the hook"

    value = good(impl, kind)
    with hooked(impl, kind, hook):
        register(m, kind, "x", value)
    assert m.x is value and list(registry) == ["x"]


@pytest.mark.parametrize("kind", KINDS)
def test_a_hook_may_rebind_the_registry(impl, kind):
    m = impl.nn.Module()
    key = {"parameter": "_parameters", "buffer": "_buffers", "module": "_modules"}[kind]

    def hook(module, name, value):
        setattr(module, key, {"kept": None})

    value = good(impl, kind)
    with hooked(impl, kind, hook):
        register(m, kind, "x", value)
    assert getattr(m, key) == {"kept": None, "x": value}


@pytest.mark.parametrize("kind", KINDS)
def test_handles(impl, kind):
    m = impl.nn.Module()
    calls = []
    register_hook = getattr(impl.module, f"register_module_{kind}_registration_hook")
    handle = register_hook(lambda *a: calls.append(1))
    assert isinstance(handle, impl.hooks.RemovableHandle)
    table = getattr(impl.module, f"_global_{kind}_registration_hooks")
    assert len(table) == 1
    register(m, kind, "a", good(impl, kind))
    handle.remove()
    handle.remove()
    register(m, kind, "b", good(impl, kind))
    assert calls == [1] and not table
    with register_hook(lambda *a: calls.append(2)):
        register(m, kind, "c", good(impl, kind))
    register(m, kind, "d", good(impl, kind))
    assert calls == [1, 2]


@pytest.mark.parametrize("kind", KINDS)
def test_direct_entries_of_the_global_table_fire(impl, kind):
    m = impl.nn.Module()
    calls = []
    table = getattr(impl.module, f"_global_{kind}_registration_hooks")
    table["mine"] = lambda module, name, value: calls.append(name)
    try:
        register(m, kind, "x", good(impl, kind))
    finally:
        del table["mine"]
    assert calls == ["x"]


def test_assigned_modules_fire_whatever_the_name(impl):
    m = impl.nn.Module()
    with recorded(impl, "module") as calls, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("a.b", "", "forward"):
            setattr(m, name, impl.nn.Module())
    assert [name for _, name, _ in calls] == ["a.b", "", "forward"]


def test_moving_a_name_to_a_parameter(impl):
    """What the hook sees of the entry that the parameter replaces: the name is not taken any
    more.
    """
    m = impl.nn.Module()
    m.x = impl.nn.Module()
    seen = []

    def hook(module, name, value):
        seen.append((name, value))

    p = param(impl)
    with hooked(impl, "parameter", hook):
        m.x = p
    assert seen == [("x", p)] and m.x is p and not m._modules


@pytest.mark.parametrize("kind", KINDS)
def test_hooks_may_remove_and_add_hooks(ours, kind):
    """torch stops with a RuntimeError when another hook is left to run."""
    calls = []
    with hooked(ours, kind) as handles:
        register_hook = getattr(ours.module, f"register_module_{kind}_registration_hook")

        def first(module, name, value):
            calls.append("first")
            handles[0].remove()
            handles.append(register_hook(lambda *_: calls.append("third")))

        handles.append(register_hook(first))
        handles.append(register_hook(lambda *_: calls.append("second")))
        m = ours.nn.Module()
        register(m, kind, "x", good(ours, kind))
        assert calls == ["first", "second"]
        register(m, kind, "y", good(ours, kind))
        assert calls == ["first", "second", "second", "third"]
