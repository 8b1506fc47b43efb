# SPDX-License-Identifier: BSD-3-Clause
"""The process-wide registries and switches."""

from __future__ import annotations

import collections

import pytest
from helpers.support import future, raises

REGISTRIES = [
    "_global_buffer_registration_hooks",
    "_global_module_registration_hooks",
    "_global_parameter_registration_hooks",
    "_global_backward_pre_hooks",
    "_global_backward_hooks",
    "_global_forward_pre_hooks",
    "_global_forward_hooks",
    "_global_forward_hooks_always_called",
    "_global_forward_hooks_with_kwargs",
]
FUNCTIONS = {
    "register_module_parameter_registration_hook": "_global_parameter_registration_hooks",
    "register_module_buffer_registration_hook": "_global_buffer_registration_hooks",
    "register_module_module_registration_hook": "_global_module_registration_hooks",
    "register_module_forward_pre_hook": "_global_forward_pre_hooks",
    "register_module_forward_hook": "_global_forward_hooks",
    "register_module_full_backward_pre_hook": "_global_backward_pre_hooks",
    "register_module_full_backward_hook": "_global_backward_hooks",
    "register_module_backward_hook": "_global_backward_hooks",
}


@pytest.mark.parametrize("name", REGISTRIES)
def test_registries_are_empty_ordered_dicts(impl, name):
    assert type(getattr(impl.module, name)) is collections.OrderedDict
    assert len(getattr(impl.module, name)) == 0


def test_full_backward_switch_starts_undecided(impl):
    assert impl.module._global_is_full_backward_hook is None


@pytest.mark.parametrize("name", FUNCTIONS)
def test_register_functions(impl, name):
    table = getattr(impl.module, FUNCTIONS[name])

    def hook(*args):
        return None

    handle = getattr(impl.module, name)(hook)
    assert type(handle) is impl.hooks.RemovableHandle
    assert dict(table) == {handle.id: hook}
    handle.remove()
    assert len(table) == 0


def test_public_names(impl):
    assert set(impl.module.__all__) == {"Module", *FUNCTIONS}
    assert impl.module.Module is impl.nn.Module


def test_has_any_global_hook(impl):
    assert not impl.module._has_any_global_hook()
    for name in FUNCTIONS:
        if "registration" in name:
            continue
        if name == "register_module_backward_hook":
            impl.module._global_is_full_backward_hook = None
        with getattr(impl.module, name)(lambda *a: None):
            assert impl.module._has_any_global_hook()
        assert not impl.module._has_any_global_hook()


def test_extra_state_suffix(impl):
    assert impl.module._EXTRA_STATE_KEY_SUFFIX == "_extra_state"


def test_kinds_of_global_backward_hooks_exclude_each_other(impl):
    g = impl.module
    with (
        g.register_module_full_backward_hook(lambda *a: None),
        raises(
            RuntimeError,
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook",
        ),
    ):
        g.register_module_backward_hook(lambda *a: None)
    assert len(g._global_backward_hooks) == 0
    g._global_is_full_backward_hook = None
    with (
        g.register_module_backward_hook(lambda *a: None),
        raises(
            RuntimeError,
            "Cannot use both regular backward hooks and full backward hooks as a global Module "
            "hook",
        ),
    ):
        g.register_module_full_backward_hook(lambda *a: None)


@pytest.mark.parametrize("name", ["overwrite", "swap"])
def test_conversion_switches(impl, name):
    flags = future(impl)
    get = getattr(flags, f"get_{name}_module_params_on_conversion")
    set_ = getattr(flags, f"set_{name}_module_params_on_conversion")
    assert get() is False
    set_(True)
    try:
        assert get() is True
    finally:
        set_(False)
    assert get() is False


@pytest.mark.parametrize(
    ("name", "value"),
    [("parameter", "parameter"), ("buffer", "tensor"), ("module", "module")],
)
def test_registration_hooks_fire_for_every_module(impl, name, value):
    nn = impl.nn
    made = {
        "parameter": nn.Parameter(impl.lib.tensor([1.0])),
        "tensor": impl.lib.tensor([1.0]),
        "module": nn.Identity(),
    }[value]
    seen = []
    m = nn.Module()
    with getattr(impl.module, f"register_module_{name}_registration_hook")(
        lambda *a: seen.append(a)
    ):
        getattr(
            m,
            {"parameter": "register_parameter", "buffer": "register_buffer"}.get(
                name, "add_module"
            ),
        )("x", made)
    assert seen == [(m, "x", made)] or [tuple(map(id, s[::2])) for s in seen] == [(id(m), id(made))]
    assert m.x is made
    m2 = nn.Module()
    m2.add_module("x", nn.Identity())
    assert len(seen) == 1


def test_registration_hook_replaces_the_value(impl):
    nn = impl.nn
    other = nn.Identity()
    with impl.module.register_module_module_registration_hook(lambda m, n, v: other):
        m = nn.Module()
        m.x = nn.Identity()
    assert m.x is other
