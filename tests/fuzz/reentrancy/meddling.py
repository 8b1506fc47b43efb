# SPDX-License-Identifier: BSD-3-Clause
"""What a trigger does where it fires, and the triggers themselves being put in place. Each is
``function(world, rng)``.
"""

from __future__ import annotations

import contextlib
import gc
import random
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import operations
import triggers
from triggers import fire
from world import GLOBAL_TABLES, INTERNAL, NAMES, OVERRIDES, REGISTRIES, TABLES, World, overriding

import modtree
from modtree import _C, nn

Action = Callable[[World, random.Random], Any]
PLANTS: list[Action] = []
# By what they touch. Those of the operation that runs are taken more often than others.
MEDDLING: dict[str, list[Action]] = {"tree": [], "tensors": []}


def meddling(*groups: str) -> Callable[[Action], Action]:
    def add(function: Action) -> Action:
        for group in groups:
            MEDDLING[group].append(function)
        return function

    return add


def plant(function: Action) -> Action:
    PLANTS.append(function)
    return function


def registry(w: World, rng: random.Random) -> Any:
    return getattr(w.module(rng), rng.choice(REGISTRIES))


def change_mapping(w: World, rng: random.Random, mapping: Any) -> None:
    """One random edit of a dict."""
    what = rng.randrange(6)
    keys = list(mapping)
    if what == 0:
        mapping.clear()
    elif what == 1 and keys:
        mapping.pop(rng.choice(keys), None)
    elif what == 2:
        for i in range(rng.choice((1, 3, 40))):
            mapping[f"n{i}"] = w.value(rng)
    elif what == 3 and keys:
        mapping[rng.choice(keys)] = w.value(rng)
    elif what == 4:
        mapping[w.name(rng)] = w.value(rng)
    elif keys:
        mapping[rng.choice(keys)] = None


# -- the tree --------------------------------------------------------------------------------------


@meddling("tree")
def write_attribute(w, rng):
    setattr(w.module(rng), w.name(rng), w.value(rng))


@meddling("tree")
def delete_attribute(w, rng):
    delattr(w.module(rng), w.name(rng))


@meddling("tree")
def change_registry(w, rng):
    change_mapping(w, rng, registry(w, rng))


@meddling("tree")
def change_own_registry(w, rng):
    change_mapping(w, rng, getattr(w.modules[0], rng.choice(REGISTRIES)))


@meddling("tree")
def replace_registry(w, rng):
    m, name = w.module(rng), rng.choice(REGISTRIES)
    setattr(m, name, w.mapping(rng, getattr(m, name) if rng.random() < 0.5 else ()))


@meddling("tree")
def replace_registries_everywhere(w, rng):
    for m in w.modules:
        for name in REGISTRIES:
            with contextlib.suppress(Exception):
                setattr(m, name, {})


@meddling("tree")
def change_instance_dict(w, rng):
    entries = w.module(rng).__dict__
    what = rng.randrange(5)
    if what == 0:
        entries.clear()
    elif what == 1:
        entries.pop(rng.choice(INTERNAL), None)
    elif what == 2:
        entries[rng.choice(INTERNAL)] = rng.choice((None, 3, {}, [], set(), OrderedDict(), "x"))
    elif what == 3:
        entries[rng.choice(OVERRIDES)] = lambda *a, **k: None
    else:
        entries.update({f"n{i}": i for i in range(40)})


@meddling("tree")
def replace_instance_dict(w, rng):
    m = w.module(rng)
    m.__dict__ = {} if rng.random() < 0.5 else dict(m.__dict__)


@meddling("tree")
def initialize_again(w, rng):
    m = w.module(rng)
    nn.Module.__init__(m) if rng.random() < 0.5 else m.__init__()


@meddling("tree")
def set_state(w, rng):
    w.module(rng).__setstate__(w.module(rng).__dict__)


@meddling("tree", "tensors")
def forget_references(w, rng):
    """The native code may hold the only references from here on."""
    w.modules[rng.randrange(2) :] = []
    w.tensors[1:] = []
    w.params.clear()
    w.graph.clear()
    w.walks.clear()


@meddling("tree", "tensors")
def forget_one(w, rng):
    pool = rng.choice((w.modules, w.tensors, w.params, w.graph, w.dicts, w.lists, w.kept))
    if pool:
        pool.pop(rng.randrange(len(pool)))


@meddling("tree", "tensors")
def collect(w, rng):
    gc.collect()


@meddling("tree", "tensors")
def run_an_operation(w, rng):
    operations.run_one(w, rng)


@meddling("tree")
def go_on_with_a_walk(w, rng):
    if w.walks:
        walk = rng.choice(w.walks)
        rng.choice((lambda: next(walk), walk.close, lambda: list(walk)))()


# -- classes ---------------------------------------------------------------------------------------


@meddling("tree")
def delete_from_a_class(w, rng):
    cls = rng.choice(w.classes)
    names = [n for n in vars(cls) if isinstance(n, str) and n not in ("__dict__", "__weakref__")]
    delattr(cls, w.focus if w.focus in names else rng.choice(names))


@meddling("tree")
def delete_planted_from_classes(w, rng):
    for cls in w.classes:
        for name in [n for n in vars(cls) if n in OVERRIDES or n in NAMES]:
            delattr(cls, name)


@meddling("tree")
def add_to_a_class(w, rng):
    cls = rng.choice(w.classes)
    if rng.random() < 0.5:
        name = rng.choice(OVERRIDES)
        setattr(cls, name, overriding(name, [cls]))
    else:
        made = rng.choice((triggers.Descriptor, triggers.Getter, triggers.Dying))()
        setattr(cls, rng.choice((w.focus, *NAMES, *INTERNAL, *OVERRIDES)), made)


@meddling("tree")
def change_the_class_of_an_instance(w, rng):
    m = w.module(rng)
    m.__class__ = rng.choice((*w.classes, nn.Module, nn.Sequential, w.new_class()))


@meddling("tree")
def change_bases(w, rng):
    cls = rng.choice(w.classes)
    cls.__bases__ = (rng.choice((nn.Module, nn.Sequential, nn.Linear)),)


@meddling("tree")
def forget_classes(w, rng):
    for m in w.modules:
        with contextlib.suppress(Exception):
            object.__setattr__(m, "__class__", nn.Module)
    w.classes[:] = [w.new_class()]
    gc.collect()


@meddling("tree")
def fill_the_caches(w, rng):
    """New classes take the slots of remembered facts."""
    for _ in range(20):
        cls = type("Filler", (nn.Module,), {"forward": lambda self, x: x})
        m = cls()
        m.train(), list(m.named_modules()), setattr(m, "training", True)
        w.kept.append(cls)
    _C._forget_families()


# -- hooks -----------------------------------------------------------------------------------------


@meddling("tree")
def change_a_hook_table(w, rng):
    table = getattr(w.module(rng), rng.choice(TABLES))
    rng.choice((table.clear, lambda: table.popitem(), lambda: table.update({99: fire_hook})))()


@meddling("tree")
def replace_a_hook_table(w, rng):
    entries = rng.choice(({}, {1: fire_hook}, {1: triggers.Dying()}))
    setattr(w.module(rng), rng.choice(TABLES), w.mapping(rng, entries))


@meddling("tree")
def remove_handles(w, rng):
    for handle in w.handles:
        handle.remove()


@meddling("tree")
def change_global_hooks(w, rng):
    table = getattr(_C, rng.choice(GLOBAL_TABLES))
    rng.choice((table.clear, lambda: table.update({99: fire_hook})))()


def fire_hook(*args: Any, **kwargs: Any) -> None:
    fire("hook")


# -- arguments -------------------------------------------------------------------------------------


@meddling("tensors")
def change_a_list(w, rng):
    for items in w.lists[-3:]:
        what = rng.randrange(5)
        if what == 0:
            items.clear()
        elif what == 1:
            items.extend([w.tensor(rng)] * rng.choice((1, 5, 200)))
        elif what == 2:
            items[:] = [3, None, triggers.Dying()]
        elif what == 3 and items:
            items[rng.randrange(len(items))] = w.new_tensor()
        elif items:
            items.pop()


@meddling("tree")
def change_a_state_dict(w, rng):
    for entries in w.dicts[-3:]:
        change_mapping(w, rng, entries)


# -- tensors and graphs ----------------------------------------------------------------------------


@meddling("tensors")
def change_a_tensor(w, rng):
    t = w.tensor(rng)
    other = w.tensor(rng)
    rng.choice(
        (
            lambda: setattr(t, "data", other),
            lambda: setattr(t, "data", modtree.ones(3, 3)),
            lambda: setattr(t, "grad", None),
            lambda: setattr(t, "grad", other),
            lambda: setattr(t, "requires_grad", rng.random() < 0.5),
            t.detach_,
            t.zero_,
            lambda: t.add_(1),
            lambda: t.copy_(other),
            lambda: _C.swap_contents(t, other),
            lambda: t.__dict__.clear(),
            lambda: setattr(t, "__class__", rng.choice((modtree.Tensor, nn.Parameter))),
            lambda: t.resize_(rng.randrange(4)),
            lambda: t.set_(other),
            lambda: t._array.setflags(write=False),
            lambda: t.requires_grad_(),
            t.retain_grad,
            lambda: setattr(t, "tag", triggers.Dying()),
            lambda: t.squeeze_().unsqueeze_(0),
        )
    )()


@meddling("tensors")
def change_a_node(w, rng):
    node = w.tensor(rng).grad_fn
    if node is None:
        return
    rng.choice(
        (
            node._pre_hooks.clear,
            node._post_hooks.clear,
            lambda: node.register_hook(fire_hook),
            lambda: node.register_prehook(fire_hook),
            lambda: node.metadata.update(x=triggers.Dying()),
            node.metadata.clear,
            lambda: [n for n, _ in node.next_functions],
            lambda: node.variable,
        )
    )()


@meddling("tensors")
def change_tensor_hooks(w, rng):
    t = w.tensor(rng)
    rng.choice(
        (
            lambda: t._hook_table().clear(),
            lambda: t._post_accumulate_table().clear(),
            lambda: t.register_hook(fire_hook),
            lambda: t.register_post_accumulate_grad_hook(fire_hook),
        )
    )()


@meddling("tensors")
def go_back(w, rng):
    w.tensor(rng).sum().backward(retain_graph=rng.random() < 0.5)


@meddling("tensors")
def switch_gradients(w, rng):
    modtree._C._set_grad_enabled(rng.random() < 0.5)


# -- plants ----------------------------------------------------------------------------------------


def hostile_key(w: World, rng: random.Random, texts: Any) -> Any:
    text = w.focus if w.focus in texts and rng.random() < 0.6 else rng.choice(texts)
    if isinstance(text, str) and rng.random() < 0.3:
        return triggers.Text(text)
    return triggers.Key(text, rng.choice((False, False, False, True, "text")))


@plant
def key_in_a_registry(w, rng):
    entries = getattr(w.module(rng), rng.choice(REGISTRIES))
    entries[hostile_key(w, rng, NAMES)] = w.value(rng)


@plant
def key_in_front_of_a_registry(w, rng):
    m, name = w.module(rng), rng.choice(REGISTRIES)
    setattr(m, name, {hostile_key(w, rng, NAMES): w.value(rng), **getattr(m, name)})


@plant
def key_in_an_instance_dict(w, rng):
    m = w.module(rng)
    key = hostile_key(w, rng, (*NAMES, *INTERNAL, *OVERRIDES))
    m.__dict__ = {**{k: v for k, v in m.__dict__.items() if rng.random() < 0.9}, key: 1}


@plant
def key_in_front_of_an_instance_dict(w, rng):
    m = w.module(rng)
    m.__dict__ = {hostile_key(w, rng, (*NAMES, *INTERNAL)): w.value(rng), **m.__dict__}


@plant
def key_in_a_hook_table(w, rng):
    m = w.module(rng)
    m.register_forward_hook(fire_hook, with_kwargs=rng.random() < 0.5)
    numbers = list(m._forward_hooks)
    table = getattr(m, rng.choice(TABLES))
    value = table.pop(numbers[0], fire_hook)
    table[hostile_key(w, rng, numbers)] = value


@plant
def key_in_the_set_of_names(w, rng):
    m = w.module(rng)
    names = m._non_persistent_buffers_set
    names.add(hostile_key(w, rng, NAMES))
    if rng.random() < 0.3:
        m._non_persistent_buffers_set = triggers.FireSet(names)


@plant
def key_in_a_tensor(w, rng):
    names = ("tag", "grad", "data", "_is_param", "_is_buffer", "requires_grad", "_backward_hooks")
    w.tensor(rng).__dict__[hostile_key(w, rng, names)] = 1


@plant
def mapping_for_a_registry(w, rng):
    m, name = w.module(rng), rng.choice(REGISTRIES)
    entries = getattr(m, name)
    kind = rng.choice((triggers.FireDict, triggers.FireOrderedDict, triggers.OwnMapping))
    setattr(m, name, kind(entries))


@plant
def mapping_for_a_hook_table(w, rng):
    kind = rng.choice((triggers.FireDict, triggers.FireOrderedDict, triggers.OwnMapping))
    setattr(w.module(rng), rng.choice(TABLES), kind({1: fire_hook}))


@plant
def dying_value(w, rng):
    m = w.module(rng)
    what = rng.randrange(4)
    if what == 0:
        setattr(m, w.name(rng), triggers.Dying())
    elif what == 1:
        setattr(m, w.name(rng), triggers.DyingParameter(modtree.ones(2)))
    elif what == 2:
        child = nn.Module()
        child.late = triggers.Dying()
        m.add_module(w.name(rng), child)
    else:
        w.tensor(rng).tag = triggers.Dying()


@plant
def weak_references(w, rng):
    for value in (*w.modules, *w.params, *w.tensors):
        if rng.random() < 0.3:
            w.kept.append(triggers.watch(value))


@plant
def override_in_an_instance(w, rng):
    m, name = w.module(rng), rng.choice(OVERRIDES)
    bound = getattr(m, name, None)

    def method(*args, **kwargs):
        fire(f"instance {name}")
        return bound(*args, **kwargs) if bound else None

    m.__dict__[name] = method


@plant
def module_hooks(w, rng):
    for _ in range(rng.randrange(1, 4)):
        m = w.module(rng)
        name = rng.choice(
            (
                "register_forward_pre_hook",
                "register_forward_hook",
                "register_full_backward_hook",
                "register_full_backward_pre_hook",
                "register_backward_hook",
                "register_state_dict_pre_hook",
                "_register_state_dict_hook",
                "register_state_dict_post_hook",
                "register_load_state_dict_pre_hook",
                "_register_load_state_dict_pre_hook",
                "register_load_state_dict_post_hook",
            )
        )
        keywords: dict[str, Any] = {}
        if "forward" in name and rng.random() < 0.4:
            keywords = {"with_kwargs": True, "prepend": rng.random() < 0.5}
        hook = rng.choice((fire_hook, fire_hook, triggers.Dying()))
        w.handles.append(getattr(m, name)(hook, **keywords))


@plant
def global_hooks(w, rng):
    from modtree.core import module

    names = [n for n in dir(module) if n.startswith("register_module_")]
    w.handles.append(getattr(module, rng.choice(names))(fire_hook))


@plant
def tensor_hooks(w, rng):
    for _ in range(3):
        t = w.tensor(rng)
        hook = rng.choice(
            (fire_hook, lambda g: (fire("tensor hook"), g)[1], lambda g: (fire("hook"), g * 2)[1])
        )
        if not t.requires_grad:
            continue
        w.handles.append(t.register_hook(hook))
        if t.is_leaf:
            w.handles.append(t.register_post_accumulate_grad_hook(fire_hook))
        elif t.grad_fn is not None:
            w.handles.append(t.grad_fn.register_hook(fire_hook))
            w.handles.append(t.grad_fn.register_prehook(fire_hook))


@plant
def a_walk_that_has_begun(w, rng):
    name = rng.choice(("modules", "named_parameters", "named_modules", "buffers", "children"))
    walk = getattr(w.module(rng), name)()
    next(walk, None)
    w.walks.append(walk)


@plant
def a_function_of_ones_own(w, rng):
    class Own(modtree.autograd.Function):
        @staticmethod
        def forward(ctx, x, items):
            fire("function forward")
            ctx.save_for_backward(x)
            ctx.items = items
            return x * 2

        @staticmethod
        def backward(ctx, g):
            fire("function backward")
            (x,) = ctx.saved_tensors
            fire("function backward after")
            return g * x, None

    w.graph.append(Own.apply(w.tensor(rng), w.lists[0]))


@plant
def a_cycle(w, rng):
    m = w.module(rng)
    ref = weakref.ref(m)
    m.me = [m, triggers.Dying(), lambda: ref]
