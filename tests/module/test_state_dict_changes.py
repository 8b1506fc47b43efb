# SPDX-License-Identifier: BSD-3-Clause
"""Modules that change while ``state_dict()`` takes their values: each step sees what is there
then.
"""

from __future__ import annotations

import gc
import random
from collections import OrderedDict

import pytest


def defined_state(module, state=None, prefix=""):
    """``state_dict()`` as a recursion over what the attributes are when they are read."""
    if state is None:
        state = OrderedDict()
        state._metadata = OrderedDict()
    state._metadata[prefix[:-1]] = local = {"version": module._version}
    for hook in module._state_dict_pre_hooks.values():
        hook(module, prefix, False)
    module._save_to_state_dict(state, prefix, False)
    for name, child in module._modules.items():
        if child is not None:
            defined_state(child, state, f"{prefix}{name}.")
    for hook in module._state_dict_hooks.values():
        hook(module, state, prefix, local)
    return state


class Value:
    """What a registry may hold in place of a tensor; its ``detach`` changes the tree."""

    def __init__(self, action=None):
        self.action = action

    def detach(self):
        if self.action:
            self.action()
        return 1


class Net:
    """Four leaves with two parameters and two buffers each, beside a module with a child. The
    action runs when a value of the leaf ``1`` is detached.
    """

    def __init__(self, impl, action, place):
        class Leaf(impl.nn.Module):
            pass

        self.impl, self.Leaf, self.log = impl, Leaf, []
        self.root = impl.nn.Module()
        for number in range(4):
            self.root.add_module(f"{number}", self.new_leaf())
        self.root.block = impl.nn.Module()
        self.root.block.inner = self.new_leaf()
        registry, key = place
        getattr(self.leaf, registry)[key] = Value(lambda: action(self))

    def new_leaf(self):
        leaf = self.Leaf()
        leaf._parameters |= {"v": Value(), "w": Value()}
        leaf._buffers |= {"r": Value(), "s": Value()}
        return leaf

    @property
    def leaf(self):
        return self.root._modules["1"]

    @property
    def following(self):
        return self.root._modules.get("2")

    def hook(self, *arguments):
        self.log.append((type(arguments[0]).__name__, *map(str, arguments[2:])))


def give_extra_state(net):
    net.Leaf.get_extra_state = lambda self: "extra"


def save_otherwise(net):
    net.Leaf._save_to_state_dict = lambda self, state, prefix, keep: state.update({prefix + "!": 1})


def shadow(net):
    net.following._save_to_state_dict = lambda state, prefix, keep: state.update({"?": prefix})


def expose(net):
    net.leaf.__dict__["_modules"]["late"] = net.new_leaf()


def lose_the_leaf(net):
    net.root._modules["1"] = None
    gc.collect()


def lose_its_registries(net):
    net.leaf._parameters = {}
    net.leaf._buffers = {"other": Value()}
    net.leaf._modules = OrderedDict(late=net.new_leaf())
    gc.collect()


ACTIONS = {
    "nothing": lambda net: None,
    "children": lambda net: net.leaf.add_module("late", net.new_leaf()),
    "children by the dict": expose,
    "another class": lambda net: setattr(net.leaf, "__class__", net.impl.nn.Module),
    "a parameter": lambda net: net.leaf._parameters.update(late=Value()),
    "a buffer": lambda net: net.leaf._buffers.update(late=Value()),
    "left out": lambda net: net.leaf._non_persistent_buffers_set.update("s"),
    "a hook after": lambda net: net.leaf._register_state_dict_hook(net.hook),
    "a hook before": lambda net: net.leaf.register_state_dict_pre_hook(net.hook),
    "a hook of the next": lambda net: net.following._register_state_dict_hook(net.hook),
    "children of the next": lambda net: net.following.add_module("late", net.new_leaf()),
    "the next away": lambda net: net.root._modules.update({"2": None}),
    "the next deleted": lambda net: net.root._modules.pop("2"),
    "itself away": lose_the_leaf,
    "its registries": lose_its_registries,
    "an extra state": give_extra_state,
    "another saving": save_otherwise,
    "another version": lambda net: setattr(net.Leaf, "_version", 7),
    "an odd version": lambda net: setattr(net.Leaf, "_version", "seven"),
    "a version of its own": lambda net: setattr(net.following, "_version", 5),
    "a method of its own": shadow,
}
PLACES = [("_parameters", "v"), ("_parameters", "w"), ("_buffers", "s")]


def outcome(impl, save, action, place):
    net = Net(impl, action, place)
    try:
        state = save(net.root)
    except RuntimeError as error:
        return str(error), net.log
    return list(state.items()), list(state._metadata.items()), net.log


@pytest.mark.slow(keep=8)
@pytest.mark.parametrize("place", PLACES, ids=lambda place: place[1])
@pytest.mark.parametrize("change", ACTIONS)
def test_a_change_at_a_value(impl, change, place):
    action = ACTIONS[change]
    found = outcome(impl, lambda root: root.state_dict(), action, place)
    assert found == outcome(impl, defined_state, action, place)


@pytest.mark.slow(keep=8)
@pytest.mark.parametrize("seed", range(60))
def test_several_changes_at_once(impl, seed):
    rng = random.Random(seed)
    chosen = rng.sample(list(ACTIONS.values()), 4)
    place = rng.choice(PLACES)

    def action(net):
        for act in chosen:
            if net.leaf is not None and net.following is not None:
                act(net)

    found = outcome(impl, lambda root: root.state_dict(), action, place)
    assert found == outcome(impl, defined_state, action, place)
