# SPDX-License-Identifier: BSD-3-Clause
"""User code that changes the tree while the tree is at work: ``__del__``, ``__eq__``, ``__hash__``,
properties, hooks, iterators.

Where torch has a result, ours is the same; elsewhere a Python error is fine and a crash is not.
"""

from __future__ import annotations

import gc
import itertools
import weakref
from collections import OrderedDict

import pytest
from helpers.free_threading import FREE_THREADED
from helpers.implementations import HAS_TORCH, implementation
from helpers.support import raises
from helpers.util import names, param, small_tree, tensor


class Dying:
    """Calls back when it dies."""

    def __init__(self, callback):
        self.callback = callback

    def __del__(self):
        self.callback()


def dying_module(impl, callback):
    class Dies(impl.nn.Module):
        def __del__(self):
            callback()

    return Dies()


# -- __del__ during a write ------------------------------------------------------------------------


def test_the_old_value_dies_after_the_new_one_is_in_place(impl):
    m = impl.nn.Module()
    seen = []
    m.x = Dying(lambda: seen.append(m.x))
    m.x = "new"
    assert seen == ["new"]
    m.c = dying_module(impl, lambda: seen.append(m.c))
    new = impl.nn.Module()
    m.c = new
    assert seen == ["new", new]
    m.c = dying_module(impl, lambda: seen.append("c" in m._modules))
    del m.c
    assert seen[2:] == [False]


@pytest.mark.parametrize(
    "change",
    [
        lambda m, i: m._modules.clear(),
        lambda m, i: setattr(m, "c", i.nn.Module()),
        lambda m, i: setattr(m, "_modules", {}),
        lambda m, i: [setattr(m, f"x{k}", i.nn.Module()) for k in range(50)],
        lambda m, i: m.__dict__.clear(),
        lambda m, i: delattr(m, "_modules"),
        lambda m, i: m.__init__(),
    ],
    ids=["clear", "write again", "rebind", "grow", "clear dict", "drop registry", "init"],
)
@pytest.mark.parametrize(
    "how", ["module", "none", "parameter", "delete", "direct", "rebind", "init"]
)
def test_a_dying_child_that_changes_its_parent(request, impl, change, how):
    if FREE_THREADED and request.node.callspec.id.endswith("parameter-write again"):
        pytest.skip("the child ends after the call: then its name is a parameter's")
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()
    m.c = dying_module(impl, lambda: change(m, impl))
    actions = {
        "module": lambda: setattr(m, "c", impl.nn.Module()),
        "none": lambda: setattr(m, "c", None),
        "parameter": lambda: setattr(m, "c", param(impl)),
        "delete": lambda: delattr(m, "c"),
        "direct": lambda: m._modules.pop("c") and None,
        "rebind": lambda: setattr(m, "_modules", {}),
        "init": lambda: m.__init__(),
    }
    try:
        actions[how]()
    except (AttributeError, KeyError, RuntimeError) as error:
        assert str(error)
    for walk in (lambda: list(m.named_modules()), lambda: m.c, lambda: dir(m)):
        try:
            walk()
        except (AttributeError, RuntimeError) as error:
            assert str(error)
    m.__init__()
    m.fresh = impl.nn.Module()
    assert names(m.named_modules()) == ["", "fresh"]


def test_a_dying_parameter_attribute_that_changes_the_registry(impl):
    m = impl.nn.Module()
    m.p = param(impl)
    m.p.tag = Dying(lambda: m._parameters.clear())
    m.p = param(impl)
    assert list(m.parameters()) == []
    m.p = param(impl)
    m.p.tag = Dying(lambda: setattr(m, "p", "plain from __del__"))
    del m.p
    assert m.__dict__.get("p") == "plain from __del__"


def test_a_module_revived_by_its_own_death(impl):
    kept = []

    class Phoenix(impl.nn.Module):
        def __del__(self):
            kept.append(self)

    m = Phoenix()
    m.p, m.c, m.x = param(impl), impl.nn.Module(), [1]
    m.register_buffer("b", tensor(impl), persistent=False)
    ref = weakref.ref(m.c)
    del m
    gc.collect()
    m = kept.pop()
    assert m.x == [1] and names(m.named_parameters()) == ["p"] and m.c is ref()
    m.d = impl.nn.Module()
    assert names(m.named_modules()) == ["", "c", "d"]


def test_a_cycle_revived_by_the_collector(impl):
    kept = []

    class Phoenix(impl.nn.Module):
        def __del__(self):
            kept.append(self)

    m = Phoenix()
    m.child = impl.nn.Module()
    m.child.up = m
    m.p = param(impl)
    del m
    gc.collect()
    m = kept.pop()
    assert m.child.up is m and names(m.named_parameters()) == ["p"]
    assert names(m.named_modules()) == ["", "child"]


# -- __eq__ and __hash__ during a walk -------------------------------------------------------------


@pytest.mark.parametrize("method", ["__eq__", "__hash__"])
@pytest.mark.parametrize(
    "change",
    [
        lambda m, i: m._modules.clear(),
        lambda m, i: setattr(m, "_modules", {}),
        lambda m, i: m._modules.update({f"x{k}": i.nn.Module() for k in range(40)}),
        lambda m, i: setattr(m, "a", None),
        lambda m, i: m.__dict__.clear(),
    ],
    ids=["clear", "rebind", "grow", "replace", "clear dict"],
)
@pytest.mark.parametrize(
    "walk",
    [
        "named_modules",
        "named_children",
        "parameters",
        "train",
        "apply",
        "memo",
        "state_dict",
        "repr",
    ],
)
def test_comparing_modules_changes_the_tree(impl, method, change, walk):
    m = impl.nn.Module()
    left = [1]  # one change is enough, and none before the walk starts

    def meddle():
        if armed and left:
            left.pop()
            change(m, impl)

    class Meddler(impl.nn.Module):
        def __hash__(self):
            if method == "__hash__":
                meddle()
            return 1

        def __eq__(self, other):
            if method == "__eq__":
                meddle()
            return self is other

    armed = False
    m.a, m.b, m.c = Meddler(), Meddler(), Meddler()
    m.a.p, m.c.p = param(impl), param(impl)
    armed = True
    actions = {
        "named_modules": lambda: names(m.named_modules()),
        "named_children": lambda: names(m.named_children()),
        "parameters": lambda: len(list(m.parameters())),
        "train": lambda: m.train() is m,
        "apply": lambda: m.apply(lambda x: None) is m,
        "memo": lambda: names(m.named_modules({m.a} if method == "__eq__" else set())),
        "state_dict": lambda: list(m.state_dict()),
        "repr": lambda: len(repr(m)) > 0,
    }
    try:
        assert actions[walk]() is not None
    except (RuntimeError, AttributeError) as error:
        assert str(error)
    armed = False
    m.__init__()
    assert names(m.named_modules()) == [""]


# -- properties and getters ------------------------------------------------------------------------


def test_a_property_that_deletes_the_entry_it_shadows(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            self._parameters.pop("x", None)
            raise AttributeError("gone")

    m = M()
    m._parameters["x"] = param(impl)
    with pytest.raises(AttributeError):
        _ = m.x


def test_a_property_that_clears_the_instance_dict(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            self.__dict__.clear()
            return "x"

    m = M()
    m.p = param(impl)
    assert m.x == "x"
    with raises(AttributeError, "'_parameters'"):
        _ = m._parameters


def test_an_existence_check_that_registers_the_name_itself(impl):
    class M(impl.nn.Module):
        @property
        def x(self):
            self._modules["x"] = "from the getter"
            raise AttributeError("x")

    m = M()
    try:
        m.register_buffer("x", tensor(impl))
    except KeyError:
        assert m._modules == {"x": "from the getter"}
    else:
        assert "x" in m._buffers


def test_a_getattr_that_rebinds_the_registry_during_registration(impl):
    class M(impl.nn.Module):
        def __getattr__(self, name):
            if name == "x":
                self.__dict__["_buffers"] = {"other": None}
            return super().__getattr__(name)

    m = M()
    m.register_buffer("x", tensor(impl))
    assert list(m._buffers) == ["other", "x"]


def test_a_str_subclass_as_name_whose_hash_meddles(impl):
    m = impl.nn.Module()
    m.a, m.b = impl.nn.Module(), impl.nn.Module()

    armed = True

    class Name(str):
        def __hash__(self):
            if armed:
                m._modules.clear()
            return str.__hash__(self)

        def __eq__(self, other):
            if armed:
                m._modules.clear()
            return str.__eq__(self, other)

    new = impl.nn.Module()
    setattr(m, Name("a"), new)
    armed = False
    assert list(m._modules) == ["a"] and m.a is new


# -- consumers of iterators ------------------------------------------------------------------------

EDITS = {
    "clear": lambda m, i: m._modules.clear(),
    "rebind": lambda m, i: setattr(m, "_modules", {}),
    "grow": lambda m, i: m._modules.update({f"n{k}": i.nn.Module() for k in range(30)}),
    "delete one": lambda m, i: m._modules.pop("right", None) and None,
    "none": lambda m, i: m._modules.update(right=None),
    "junk": lambda m, i: m._modules.update(right=3),
    "drop": lambda m, i: m.__dict__.pop("_modules", None) and None,
    "no dict": lambda m, i: m.__dict__.clear(),
    "new dict": lambda m, i: setattr(m, "__dict__", {}),
    "parameters": lambda m, i: [x._parameters.clear() for x in list(m.modules())] and None,
    "unhashable": lambda m, i: m._parameters.update(scale=[]),
    "ordered": lambda m, i: setattr(m, "_modules", OrderedDict(m._modules)),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
@pytest.mark.parametrize(
    "method",
    [
        "parameters",
        "named_parameters",
        "named_buffers",
        "named_children",
        "modules",
        "named_modules",
    ],
)
def test_the_consumer_edits_what_it_walks(impl, method, edit):
    """Step by step the same as torch: the walk is run with the edit after each number of steps."""

    def run(which, after):
        m = small_tree(which)
        out = []
        walk = getattr(m, method)()
        try:
            for i, item in enumerate(walk):
                out.append(item[0] if isinstance(item, tuple) else type(item).__name__[:6])
                if i == after:
                    edit(m, which)
        except Exception as error:
            out.append(type(error).__name__)
        return out

    oracle = implementation("torch") if HAS_TORCH else impl
    for after in range(4):
        assert run(impl, after) == run(oracle, after)


def test_a_walk_that_walks_itself(impl):
    """Advancing an iterator from inside its own step must be refused, not crash."""
    m = small_tree(impl)
    inner = []

    def override(memo, prefix, remove_duplicate):
        try:
            inner.append(next(walk))
        except (ValueError, StopIteration, RuntimeError) as error:
            inner.append(type(error).__name__)
        return iter(())

    m.left.named_modules = override
    walk = m.named_modules()
    found = names(walk)
    assert found[0] == "" and inner and inner[0] in ("ValueError", "RuntimeError")


def test_a_walk_closed_from_inside_its_own_step(impl):
    m = small_tree(impl)
    errors = []

    def override(memo, prefix, remove_duplicate):
        try:
            walk.close()
        except (ValueError, RuntimeError) as error:
            errors.append(error)
        return iter(())

    m.left.named_modules = override
    walk = m.named_modules()
    list(walk)
    assert len(errors) == 2  # at `left` and again at `again`


def test_get_members_fn_that_edits_the_tree(impl):
    m = small_tree(impl)

    def members(module):
        module._modules.clear()
        m.__dict__["_modules"].clear()
        return [("x", object())]

    found = names(m._named_members(members))
    assert found == ["x"]


def test_members_that_edit_the_tree_while_being_iterated(impl):
    m = small_tree(impl)

    def members(module):
        for i in range(3):
            module.__dict__["_modules"] = {}
            yield f"x{i}", object()

    assert names(m._named_members(members)) == ["x0", "x1", "x2"]


# -- hooks, apply, conversions ---------------------------------------------------------------------


def test_apply_may_edit_the_module_it_is_given(impl):
    m = small_tree(impl)

    def fn(module):
        module.extra = impl.nn.Module()
        module.register_parameter("late", param(impl))

    m.apply(fn)
    assert "extra" in names(m.named_children()) and "left.late" in names(m.named_parameters())
    assert not hasattr(m.left.extra, "extra")


def test_apply_that_edits_the_parent_while_it_is_walked(impl):
    m = small_tree(impl)

    def fn(module):
        if module is not m:
            m._modules[f"n{len(m._modules)}"] = impl.nn.Module()

    with raises(RuntimeError, "changed size during iteration"):
        m.apply(fn)


def test_conversion_that_edits_the_registry_it_is_in(impl):
    m = small_tree(impl)
    count = itertools.count()

    def fn(t):
        m.left._parameters[f"n{next(count)}"] = None
        return t

    with raises(RuntimeError, "changed size during iteration"):
        m._apply(fn)
    list(m.parameters())


def test_train_with_a_setattr_that_edits_the_tree(impl):
    class M(impl.nn.Module):
        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            if name == "training" and hasattr(self, "_modules"):
                self._modules.clear()

    m = M()
    m.a, m.b = M(), M()
    m.a.c = M()
    m.eval()
    assert not m.training and names(m.named_modules()) == [""]


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_forward_edits_the_tree_around_it(impl, edit):
    class M(impl.nn.Module):
        def forward(self, x):
            edit(self, impl)
            return x

    m = M()
    m.left, m.right = impl.nn.Module(), impl.nn.Module()
    m.scale = param(impl)
    assert m(3) == 3


def test_a_hook_that_removes_every_hook(impl):
    class M(impl.nn.Module):
        def forward(self, x):
            return x

    m = M()
    calls = []

    def hook(module, *args):
        calls.append(1)
        module._forward_hooks.clear()
        module._forward_pre_hooks.clear()

    for _ in range(3):
        m.register_forward_pre_hook(hook)
        m.register_forward_hook(hook)
    try:
        m(1)
    except RuntimeError as error:
        assert "during iteration" in str(error)
    assert calls
    m._forward_hooks.clear()
    m._forward_pre_hooks.clear()
    assert m(2) == 2


def test_a_registration_hook_that_edits_everything(impl):
    m = impl.nn.Module()
    m.a = impl.nn.Module()

    def hook(module, name, value):
        module.__dict__.clear()

    handle = impl.module.register_module_module_registration_hook(hook)
    try:
        with pytest.raises(AttributeError):
            m.b = impl.nn.Module()
            _ = m.b
            list(m.modules())
    except KeyError:
        pass
    finally:
        handle.remove()
    m.__init__()
    assert names(m.named_modules()) == [""]


def test_state_dict_pre_hook_that_edits_the_tree(impl):
    m = small_tree(impl)

    def hook(module, prefix, keep_vars):
        module._modules.pop("right", None)
        module.fresh = param(impl)

    m.register_state_dict_pre_hook(hook)
    found = list(m.state_dict())
    assert "fresh" in found and not any(k.startswith("right") for k in found)


def test_repr_that_edits_the_tree(impl):
    m = small_tree(impl)

    class Meddler(impl.nn.Module):
        def extra_repr(self):
            m._modules.clear()
            return "x"

    m._modules["z"] = Meddler()
    m._modules["zz"] = impl.nn.Module()
    with raises(RuntimeError, "changed size during iteration"):
        repr(m)
    assert repr(m) == "Module()"


def test_deleting_while_the_collector_runs(impl):
    gc.collect()
    threshold = gc.get_threshold()
    gc.set_threshold(1, 1, 1)
    try:
        for _ in range(20):
            m = small_tree(impl)
            m.me = m
            m.left.up = m
            list(m.named_parameters())
            m.__dict__["x"] = m
            del m
    finally:
        gc.set_threshold(*threshold)
    gc.collect()


# -- errors on the way -----------------------------------------------------------------------------


class Unclear:
    """Its truth cannot be had, and asking for it runs code that cannot go on with an error set."""

    def __bool__(self):
        raise ValueError(str([*range(3)]))


@pytest.mark.parametrize(
    "call",
    [
        lambda m, u: m.named_parameters("", u, u),
        lambda m, u: m.named_buffers(recurse=u, remove_duplicate=u),
        lambda m, u: m._named_members(lambda x: [], "", u, u),
        lambda m, u: m.load_state_dict({}, u, u),
        lambda m, u: m.state_dict(keep_vars=u, clone=u),
        lambda m, u: m._save_to_state_dict({}, "", u),
        lambda m, u: m._apply(lambda t: t, u, preserve_ties=u),
    ],
    ids=["parameters", "buffers", "members", "load", "save", "save own", "apply"],
)
def test_two_arguments_whose_truth_cannot_be_had(ours, call):
    with pytest.raises(ValueError, match="0, 1, 2"):
        call(small_tree(ours), Unclear())


def test_a_child_whose_comparison_fails_after_the_classes_changed(ours):
    """The lookup in a class that has just changed must not drop the error of the comparison before
    it.
    """

    class Child(ours.nn.Module):
        def __hash__(self):
            type(self).changed = True
            raise ValueError("no hash")

    m = ours.nn.Module()
    m.a, m.b = Child(), Child()
    m._modules["c"] = m.a
    for walk in (m.train, lambda: m.apply(lambda x: None), lambda: m.double()):
        with pytest.raises(ValueError, match="no hash"):
            walk()
