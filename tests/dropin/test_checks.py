# SPDX-License-Identifier: BSD-3-Clause
"""What the drop-in relies on in torch's file of Module, and how it names what is otherwise."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import modtree

torch = pytest.importorskip("torch")
file = torch.nn.modules.module
VERSION = torch.__version__


@pytest.fixture(scope="module")
def checks():
    """The file alone: its package cannot be imported after torch."""
    path = Path(modtree.__file__).parent / "torch" / "dropin" / "_checks.py"
    spec = importlib.util.spec_from_file_location("checks", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def without(name):
    return lambda patches: patches.delattr(file, name)


def no_method(name):
    return lambda patches: patches.delattr(file.Module, name)


def method(name, function):
    return lambda patches: patches.setattr(file.Module, name, function)


def with_more_state(patches):
    original = file.Module.__init__

    def init(self, *args, **kwargs):
        original(self)
        object.__setattr__(self, "_new_hooks", {})

    patches.setattr(file.Module, "__init__", init)


def with_another_base(patches):
    patches.setattr(file, "Module", type("Module", (file.Module,), {}))


def with_another_table(*methods):
    """A kind of hooks that modtree does not know, asked in these methods."""

    def change(patches):
        patches.setattr(file, "_global_step_hooks", {}, raising=False)
        for name in methods:
            parameters = "self, *args, **kwargs"
            made = {}
            exec(f"def {name}({parameters}): return _global_step_hooks", made)  # noqa: S102
            patches.setattr(file.Module, name, made[name])

    return change


CHANGES = [
    (without("_global_forward_hooks"), "torch.nn.modules.module has no _global_forward_hooks"),
    (without("RemovableHandle"), "torch.nn.modules.module has no RemovableHandle"),
    (no_method("zero_grad"), "Module has no method zero_grad"),
    (method("eval", property(lambda self: None)), "Module has no method eval"),
    (
        method("_apply", lambda self, function, recurse=True: self),
        "Module._apply takes (self function recurse), not (self fn recurse)",
    ),
    (
        method("_slow_forward", lambda self, *input, scope=None, **kwargs: None),
        "Module._slow_forward takes (self *input scope **kwargs), not (self *input **kwargs)",
    ),
    (
        method("train", lambda self, *, mode=True, **rest: self),
        "Module.train takes (self mode **rest), not (self mode)",
    ),
    (
        method("__call__", lambda self, *args, **kwargs: None),
        "Module.__call__ is not Module._wrapped_call_impl",
    ),
    (with_more_state, "a new Module has other internal attributes (_new_hooks)"),
    (with_another_table("_call_impl"), "Module._call_impl asks the table _global_step_hooks"),
    (with_another_base, "torch.nn.modules.module.Module is no class of its own"),
]


UNKNOWN = [
    (
        method("_apply", lambda self, fn, recurse=True, more=1: self),
        {"_apply"},
        "Module._apply takes (self fn recurse more), not (self fn recurse)",
    ),
    (
        method("train", lambda self, mode=True, *, deep=True: self),
        {"train"},
        "Module.train takes (self mode deep), not (self mode)",
    ),
    (
        with_another_table(),
        set(),
        "torch.nn.modules.module has a table _global_step_hooks",
    ),
]


@pytest.mark.parametrize(("change", "left", "reason"), UNKNOWN, ids=[u[2] for u in UNKNOWN])
def test_what_a_later_torch_adds_is_left_to_it(checks, monkeypatch, change, left, reason):
    change(monkeypatch)
    with pytest.warns(UserWarning) as warned:
        assert checks.check(file) == left
    (warning,) = warned
    said = str(warning.message)
    assert said.startswith(f"modtree.dropin does not know everything in this torch ({VERSION}; ")
    assert reason in said and "torch's own code runs for it" in said


def test_this_torch_is_known(checks):
    assert checks.check(file) == set()
    assert torch.__version__.startswith(checks.REFERENCE_VERSION)


@pytest.mark.parametrize(("change", "reason"), CHANGES, ids=[reason for _, reason in CHANGES])
def test_what_is_otherwise_is_named(checks, monkeypatch, change, reason):
    change(monkeypatch)
    with pytest.raises(ImportError) as caught:
        checks.check(file)
    said = str(caught.value)
    assert said.startswith(f"modtree.dropin does not know this torch ({torch.__version__};")
    assert reason in said and "Nothing was changed" in said and "`modtree run --off`" in said
