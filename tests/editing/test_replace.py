# SPDX-License-Identifier: BSD-3-Clause
"""``replace``, ``wrap`` and ``unwrap``: what hangs where afterwards, and after ``undo``."""

from __future__ import annotations

import copy
import pickle
import random

import pytest
from helpers.edited_models import inputs, random_tree, registries, stacked
from helpers.small_modules import array, linear

import modtree as mt


def wrapper(impl):
    class Wrapper(impl.nn.Module):
        def __init__(self, inner):
            super().__init__()
            self.inner = inner

        def forward(self, x):
            return self.inner(x)

    return Wrapper


def test_replace_puts_what_the_function_returns_and_undo_takes_it_back(impl):
    model = stacked(impl)
    before, calls = registries(model), []

    def identity(path, module):
        calls.append((path, module))
        return impl.nn.Identity()

    old = mt.find(model, "**.act").modules
    receipt = mt.find(model, "**.act").replace(identity)
    assert [path for path, _ in calls] == [f"layers.{i}.act" for i in range(4)]
    assert [module for _, module in calls] == old
    assert all(type(layer.act) is impl.nn.Identity for layer in model.layers)
    assert list(model.layers[0]._modules) == ["up", "act", "down"]
    assert [(c.kind, c.path, c.before, c.after) for c in receipt] == [
        ("replace", f"layers.{i}.act", old[i], model.layers[i].act) for i in range(4)
    ]
    assert not receipt.is_undone
    receipt.undo()
    assert registries(model) == before and receipt.is_undone
    receipt.undo()  # does nothing
    assert registries(model) == before


def test_the_end_of_a_block_undoes(impl):
    model = stacked(impl)
    before = registries(model)
    with mt.find(model, "**.act").replace(impl.nn.Identity) as receipt:
        assert len(receipt) == 4 and registries(model) != before
    assert registries(model) == before
    with pytest.raises(ZeroDivisionError), mt.find(model, "head").replace(impl.nn.Identity):
        raise ZeroDivisionError
    assert registries(model) == before


def test_a_module_at_several_places_is_replaced_once_at_all_of_them(impl):
    shared = impl.nn.Identity()
    model = impl.nn.Sequential(shared, impl.nn.Sequential(shared, impl.nn.Module()))
    model[1][1].again = shared
    made = []
    receipt = mt.find(model, "1.0").replace(lambda path, m: made.append(path) or linear(impl))
    assert made == ["1.0"] and model[0] is model[1][0] is model[1][1].again is not shared
    assert [change.path for change in receipt] == ["0", "1.0", "1.1.again"]
    receipt.undo()
    assert model[0] is model[1][0] is model[1][1].again is shared


def test_returning_the_module_itself_changes_nothing(impl):
    model = stacked(impl)
    before = registries(model)
    assert len(mt.find(model, "**").replace(lambda path, module: module)) == 0
    assert registries(model) == before


def test_modules_below_selected_ones_are_replaced_first(impl):
    model = impl.nn.Sequential(impl.nn.Sequential(impl.nn.Identity(), impl.nn.Identity()))
    seen = []

    def make(path, module):
        seen.append(path)
        return impl.nn.ModuleList(module.children()) if path == "0" else linear(impl)

    with mt.find(model, "**").replace(make):
        assert seen == ["0.0", "0.1", "0"]
        assert type(model[0]) is impl.nn.ModuleList
        assert [hasattr(m, "weight") for m in model[0]] == [True, True]
    assert type(model[0][0]) is impl.nn.Identity


class Expected(Exception):
    pass


@pytest.mark.parametrize("error", [Expected, KeyboardInterrupt])
def test_an_error_half_way_leaves_the_tree_as_it_was(impl, error):
    model = stacked(impl)
    before = registries(model)

    def make(path, module):
        if path == "layers.2.act":
            raise error
        return impl.nn.Identity()

    with pytest.raises(error):
        mt.find(model, "**.act").replace(make)
    assert registries(model) == before


@pytest.mark.parametrize("result", [None, 3, "x"])
def test_what_is_not_a_module_is_refused_by_path(impl, result):
    model = stacked(impl)
    before = registries(model)
    with pytest.raises(TypeError, match=r"'layers.0.act': expected a module to put there, got "):
        mt.find(model, "**.act").replace(lambda path, module: result)
    with pytest.raises(TypeError, match="replace.. takes a function of path and module"):
        mt.find(model, "**.act").replace(result)
    assert registries(model) == before


def test_one_module_stands_for_one_alone(impl):
    model = stacked(impl)
    head = impl.nn.Identity()
    mt.find(model, "head").replace(head)
    assert model.head is head
    with pytest.raises(ValueError, match="got one Identity for 4 modules"):
        mt.find(model, "**.act").replace(head)


def test_the_root_cannot_be_replaced(impl):
    model = stacked(impl)
    with pytest.raises(ValueError, match="the model itself .Stacked. cannot be replaced in itself"):
        mt.find(model, ["", "**"]).replace(impl.nn.Identity)


def test_a_function_that_assigns_itself_is_told_so(impl):
    model = stacked(impl)

    def make(path, module):
        model.head = impl.nn.Identity()
        return impl.nn.Identity()

    with pytest.raises(RuntimeError, match="'head' was changed while modules were replaced"):
        mt.find(model, "head").replace(make)


def test_containers_of_all_kinds_keep_order_and_names(impl):
    nn = impl.nn
    model = nn.ModuleDict(
        {
            "list": nn.ModuleList([nn.Identity(), nn.Identity(), nn.Module()]),
            "sequential": nn.Sequential(nn.Identity(), nn.Identity()),
            "dict": nn.ModuleDict({"b": nn.Identity(), "a": nn.Identity()}),
        }
    )
    names = [name for name, _ in model.named_modules()]
    before = registries(model)
    with mt.find(model, nn.Identity).replace(lambda path, module: nn.Module()) as receipt:
        assert len(receipt) == 6 and [name for name, _ in model.named_modules()] == names
        assert list(model["dict"]) == ["b", "a"] and len(model["list"]) == 3
    assert registries(model) == before


def test_a_class_that_keeps_its_modules_elsewhere_hears_of_both(impl):
    class Keeper(impl.nn.Module):
        def __init__(self):
            super().__init__()
            object.__setattr__(self, "seen", {})
            self.inner = impl.nn.Identity()

        def __setattr__(self, name, value):
            super().__setattr__(name, value)
            self.seen[name] = value

    model = Keeper()
    old = model.inner
    with mt.find(model, "inner").replace(lambda path, module: impl.nn.Module()):
        assert model.seen["inner"] is model.inner is not old
    assert model.seen["inner"] is model.inner is old

    def fail(self, name, value):
        Keeper.__dict__["__setattr__"](self, name, value)
        raise Expected

    class Failing(Keeper):
        pass

    model = Failing()
    old = model.inner
    Failing.__setattr__ = fail
    with pytest.raises(Expected):
        mt.find(model, "inner").replace(lambda path, module: impl.nn.Module())
    assert model.inner is old


def test_like_carries_over_mode_and_hooks(impl):
    model, x = stacked(impl), inputs(impl)
    model.layers[0].act.eval()
    called = []

    def hook(module, args, kwargs, output):
        called.append(module)

    model.layers[0].act.register_forward_hook(hook, with_kwargs=True)
    model.layers[1].act.register_forward_pre_hook(lambda module, args: called.append(module))
    with mt.find(model, "**.act").replace(impl.nn.Identity, like=True):
        model(x)
        assert [layer.act.training for layer in model.layers] == [False, True, True, True]
        assert called == [model.layers[0].act, model.layers[1].act]
    called.clear()
    with mt.find(model, "**.act").replace(impl.nn.Identity):
        model(x)
        assert called == [] and model.layers[0].act.training


def test_like_leaves_the_hooks_of_a_wrapped_module_on_it(impl):
    model, x = stacked(impl), inputs(impl)
    called = []
    model.layers[0].act.eval().register_forward_hook(lambda m, args, output: called.append(m))
    Wrapper = wrapper(impl)
    with mt.find(model, "layers.0.act").replace(lambda path, m: Wrapper(m), like=True):
        model(x)
        assert called == [model.layers[0].act.inner] and not model.layers[0].act.training


def test_wrap_and_unwrap(impl):
    model, x = stacked(impl), inputs(impl)
    before, y = registries(model), array(model(x))
    keys = list(model.state_dict())
    receipt = mt.find(model, "**.{up,down}").wrap(wrapper(impl))
    assert (array(model(x)) == y).all() and len(receipt) == 8
    assert [receipt(key) for key in keys] == list(model.state_dict())
    back = mt.find(model, "**.{up,down}").unwrap()
    assert registries(model) == before
    assert [back(receipt(key)) for key in keys] == keys
    back.undo()
    receipt.undo()
    assert registries(model) == before
    with pytest.raises(ValueError, match=r"'layers.0' .Block.: expected one child, got up, act, d"):
        mt.find(model, "layers.0").unwrap()
    with mt.find(model, "layers.0").unwrap("up"):
        assert array(model.layers[0].weight).shape == (4, 3)
    with pytest.raises(ValueError, match="expected a child 'upp', got up, act, down"):
        mt.find(model, "layers.0").unwrap("upp")


def test_undo_keeps_other_changes_and_refuses_conflicts(impl):
    model = stacked(impl)
    first = mt.find(model, "layers.0.act").replace(impl.nn.Identity)
    model.layers[0].more = impl.nn.Identity()
    second = mt.find(model, "layers.0.up").replace(impl.nn.Identity)
    first.undo()
    assert list(model.layers[0]._modules) == ["up", "act", "down", "more"]
    assert type(model.layers[0].up) is impl.nn.Identity
    third = mt.find(model, "layers.0.up").replace(lambda path, module: linear(impl))
    with pytest.raises(RuntimeError, match="'layers.0.up' was changed since this change; undo"):
        second.undo()
    assert model.layers[0].up is third.changes[0].after and not second.is_undone
    third.undo()
    second.undo()
    assert hasattr(model.layers[0].up, "weight")


def test_a_copy_in_the_middle_is_of_the_changed_tree(impl):
    model = stacked(impl)
    with mt.find(model, "**.act").replace(impl.nn.Identity):
        twin = copy.deepcopy(model)
    assert all(type(layer.act) is impl.nn.Identity for layer in twin.layers)
    assert not any(type(layer.act) is impl.nn.Identity for layer in model.layers)


def test_pickles_are_the_same_afterwards(lib):
    nn = lib.nn
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    before = pickle.dumps(model)
    with mt.find(model, nn.ReLU).replace(nn.GELU):
        assert pickle.dumps(model) != before
    assert pickle.dumps(model) == before


@pytest.mark.parametrize("seed", range(25))
def test_random_replacements_are_what_a_plain_loop_makes(impl, seed):
    """The same changes to a copy, by get_submodule and setattr; then both undone."""
    rng = random.Random(seed)
    model = random_tree(impl, rng)
    memo = {}
    twin = copy.deepcopy(model, memo)
    for index, (_, module) in enumerate(model.named_modules()):
        twin_of = memo[id(module)]
        module.number = twin_of.number = index
    before = registries(model)
    every = [path for path, _ in model.named_modules() if path]
    chosen = rng.sample(every, rng.randint(1, len(every)))
    made = {}

    def make(path, module):
        kind = rng.choice(("same", "new", "wrap"))
        new = module
        if kind != "same":
            new = impl.nn.Module()
            new.number = -1
            if kind == "wrap":
                new.inner = module
        made[path] = kind
        return new

    receipt = mt.find(model, "**", where=lambda path, m: path in chosen).replace(make)
    # The loop: in the order in which the function was called, at all places of each module.
    for path, kind in made.items():
        module = twin.get_submodule(path)
        places = [
            (parent, name)
            for parent in list(twin.modules())
            for name, child in parent._modules.items()
            if child is module
        ]
        new = module
        if kind != "same":
            new = impl.nn.Module()
            new.number = -1
            if kind == "wrap":
                new.inner = module
        for parent, name in places:
            if parent is not new:
                setattr(parent, name, new)

    def shape(root):
        walk = root.named_modules(remove_duplicate=False)
        return [(path, type(module).__name__, module.number) for path, module in walk]

    assert shape(model) == shape(twin)
    receipt.undo()
    assert registries(model) == before
