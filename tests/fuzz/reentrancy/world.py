# SPDX-License-Identifier: BSD-3-Clause
"""What a round plays with: classes made for it, a tree, tensors with a graph, lists and dicts that
serve as arguments.
"""

from __future__ import annotations

import random
from collections import OrderedDict
from typing import Any

import numpy as np
import triggers
from triggers import fire

import modtree
from modtree import nn

NAMES = ("a", "b", "c", "p", "q", "x", "training", "forward", "weight", "bias", "0", "1")
REGISTRIES = ("_parameters", "_buffers", "_modules")
TABLES = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
    "_backward_hooks",
    "_backward_pre_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
    "_load_state_dict_post_hooks",
)
INTERNAL = (
    "training",
    "_non_persistent_buffers_set",
    "_is_full_backward_hook",
    *REGISTRIES,
    *TABLES,
)
GLOBAL_TABLES = tuple(n for n in vars(modtree._C) if n.startswith("_global_"))
OVERRIDES = (
    "forward",
    "train",
    "eval",
    "apply",
    "_apply",
    "parameters",
    "named_parameters",
    "_named_members",
    "named_modules",
    "modules",
    "children",
    "named_children",
    "buffers",
    "named_buffers",
    "state_dict",
    "_save_to_state_dict",
    "load_state_dict",
    "_load_from_state_dict",
    "get_extra_state",
    "set_extra_state",
    "register_buffer",
    "register_parameter",
    "add_module",
    "register_module",
    "requires_grad_",
    "zero_grad",
    "extra_repr",
    "_get_name",
    "__repr__",
    "__setattr__",
    "__delattr__",
    "__getattr__",
    "__getattribute__",
    "__dir__",
    "__call__",
    "_call_impl",
    "__getstate__",
    "__setstate__",
    "__deepcopy__",
    "__reduce_ex__",
)
SHAPES = ((2,), (2, 2), (1, 2), (), (3, 2), (0,), (2, 1, 2), (2, 2, 2, 2))


def overriding(name: str, owner: list[type]) -> Any:
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        fire(name)
        result = getattr(super(owner[0], self), name)(*args, **kwargs)
        fire(f"{name} after")
        return result

    if name in ("forward", "_call_impl"):

        def method(self: Any, *args: Any, **kwargs: Any) -> Any:  # noqa: F811
            fire(name)
            for child in list(self.children()):
                args = (child(*args), *args[1:]) if args else args
            fire(f"{name} after")
            return args[0] * 2 if args else None

    if name == "get_extra_state":

        def method(self: Any) -> Any:  # noqa: F811
            fire(name)
            return {"extra": 1}

    if name in ("set_extra_state", "__setstate__"):

        def method(self: Any, state: Any) -> None:  # noqa: F811
            fire(name)
            if name == "__setstate__":
                super(owner[0], self).__setstate__(state)

    if name == "__deepcopy__":

        def method(self: Any, memo: Any) -> Any:  # noqa: F811
            fire(name)
            return self

    return method


class World:
    """The pools of one round."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        # The name that keys, class attributes and accesses of this round mostly share: otherwise
        # they would seldom meet.
        self.focus: str = rng.choice((*NAMES, *OVERRIDES))
        self.classes: list[Any] = [self.new_class() for _ in range(rng.randrange(1, 4))]
        self.tensors: list[Any] = [self.new_tensor() for _ in range(5)]
        self.params: list[Any] = [self.new_parameter() for _ in range(4)]
        self.modules: list[Any] = []
        self.lists: list[list[Any]] = [list(self.tensors[:3]), []]
        self.dicts: list[Any] = []
        self.graph: list[Any] = []
        self.handles: list[Any] = []
        self.walks: list[Any] = []
        self.kept: list[Any] = []
        self.grow()
        self.link()

    # -- new things --------------------------------------------------------------------------------

    def new_class(self) -> Any:
        rng, owner = self.rng, []
        base = rng.choice(
            (nn.Module, nn.Module, nn.Module, nn.Sequential, nn.ModuleList, nn.ModuleDict)
        )
        body: dict[Any, Any] = {}
        chosen = rng.sample(OVERRIDES, rng.choice((0, 0, 1, 2, 4)))
        if rng.random() < 0.7 and base is not nn.Sequential:
            chosen.append("forward")
        for name in chosen:
            body[name] = overriding(name, owner)
        chance = rng.random()
        if chance < 0.15:
            body["__eq__"] = lambda self, other: (fire("module eq"), self is other)[1]
            body["__hash__"] = lambda self: (fire("module hash"), 1)[1]
        elif chance < 0.25:
            body["__del__"] = lambda self: fire("module del")
        elif chance < 0.35:
            body[rng.choice(NAMES)] = rng.choice((triggers.Descriptor, triggers.Getter))()
        elif chance < 0.45:
            name = rng.choice(NAMES)
            body[name] = property(
                lambda self: (fire("property"), self._buffers)[1],
                lambda self, value: fire("property set"),
                lambda self: fire("property delete"),
            )
        elif chance < 0.55:
            body[triggers.Key(rng.choice((*NAMES, *OVERRIDES[:20])))] = 1
        elif chance < 0.58:
            body["__slots__"] = ("x", "slot")
        elif chance < 0.65:
            body["_version"] = rng.choice((2, triggers.Number(2), None))
        if self.focus not in body and "__slots__" not in body and rng.random() < 0.4:
            body[self.focus] = rng.choice(
                (
                    triggers.Dying,
                    triggers.Getter,
                    triggers.Descriptor,
                    lambda: overriding(self.focus, owner),
                )
            )()
        kind = triggers.Meta if rng.random() < 0.2 else type
        made = kind(f"M{rng.randrange(100)}", (base,), body)
        owner.append(made)
        return made

    def new_module(self) -> Any:
        rng = self.rng
        if rng.random() < 0.55:
            return rng.choice(self.classes)()
        return rng.choice(
            (
                nn.Module,
                lambda: nn.Linear(2, 2),
                lambda: nn.BatchNorm1d(2),
                nn.ReLU,
                lambda: nn.LayerNorm(2),
                lambda: nn.Sequential(nn.Linear(2, 2), nn.Tanh()),
                lambda: nn.ModuleList([nn.Identity()]),
                lambda: nn.ModuleDict({"a": nn.Identity()}),
                lambda: nn.ParameterList([self.new_parameter()]),
                lambda: nn.ParameterDict({"a": self.new_parameter()}),
                lambda: nn.Dropout(0.5),
            )
        )()

    def new_tensor(self) -> Any:
        rng = self.rng
        shape = rng.choice(SHAPES[:2] if rng.random() < 0.6 else SHAPES)
        dtype = rng.choice((np.float32, np.float32, np.float32, np.float64, np.int64, np.bool_))
        array = np.arange(1, 1 + int(np.prod(shape)), dtype=np.int64).astype(dtype).reshape(shape)
        if rng.random() < 0.05:
            array = array.view(triggers.FireArray)
        floating = array.dtype.kind == "f"
        tensor = modtree.from_numpy(array)
        if rng.random() < 0.15:
            tensor = tensor.as_subclass(rng.choice((triggers.DyingTensor, triggers.FunctionTensor)))
        if floating and rng.random() < 0.4:
            tensor.requires_grad_()
        if rng.random() < 0.1:
            tensor.tag = triggers.Dying()
        return tensor

    def new_parameter(self) -> Any:
        rng = self.rng
        data = modtree.ones(rng.choice(((2,), (2, 2), (1,))))
        made = (triggers.DyingParameter if rng.random() < 0.2 else nn.Parameter)(data)
        if rng.random() < 0.2:
            made.tag = triggers.Dying()
        return made

    def grow(self) -> None:
        """A tree, mostly without cycles."""
        rng = self.rng
        for i in range(rng.randrange(2, 7)):
            module = self.new_module()
            self.modules.append(module)
            for _ in range(rng.randrange(3)):
                self.attempt(setattr, module, self.name(rng), rng.choice(self.params))
            if rng.random() < 0.4:
                self.attempt(
                    nn.Module.register_buffer,
                    module,
                    rng.choice(NAMES[:6]),
                    rng.choice((None, *self.tensors)),
                    persistent=rng.random() < 0.7,
                )
            if i:
                parent = self.modules[rng.randrange(i)]
                self.attempt(nn.Module.add_module, parent, self.name(rng), module)
        if rng.random() < 0.1:
            self.attempt(setattr, self.modules[-1], "up", self.modules[0])

    def link(self) -> None:
        """A small graph of the tensors that want gradients."""
        leaves = [t for t in (*self.tensors, *self.params) if t.requires_grad]
        for leaf in leaves[:3]:
            self.graph.append((leaf * 2).exp())
        # Classes that know nothing of each other do not meet in one operation.
        plain = [leaf for leaf in leaves if type(leaf) in (modtree.Tensor, nn.Parameter)]
        if len(plain) > 1:
            self.graph.append((plain[0].sum() + plain[1].sum()) * plain[0].sum())

    # -- choices -----------------------------------------------------------------------------------

    def attempt(self, function: Any, *args: Any, **kwargs: Any) -> Any:
        """Building goes on whatever an override answers."""
        try:
            return function(*args, **kwargs)
        except (AttributeError, KeyError, TypeError, RuntimeError, ValueError):
            return None

    def module(self, rng: random.Random) -> Any:
        if not self.modules:
            self.modules.append(nn.Module())
        return self.modules[0] if rng.random() < 0.5 else rng.choice(self.modules)

    def tensor(self, rng: random.Random) -> Any:
        pools = [pool for pool in (self.tensors, self.params, self.graph) if pool]
        return rng.choice(rng.choice(pools)) if pools else modtree.ones(2)

    def name(self, rng: random.Random) -> str:
        name = self.focus if rng.random() < 0.5 else rng.choice(NAMES)
        return triggers.Text(name) if rng.random() < 0.15 else name

    def value(self, rng: random.Random) -> Any:
        """Anything that an attribute or registry may be given."""
        return rng.choice(
            (
                lambda: rng.choice(self.params or [None]),
                lambda: triggers.DyingParameter(modtree.ones(2)),
                lambda: self.tensor(rng),
                lambda: self.module(rng),
                nn.Module,
                lambda: nn.Linear(2, 2),
                lambda: None,
                lambda: 3,
                list,
                triggers.Dying,
                lambda: nn.Buffer(modtree.ones(2)),
                lambda: rng.choice(self.classes)() if self.classes else None,
            )
        )()

    def mapping(self, rng: random.Random, entries: Any = ()) -> Any:
        kind = rng.choice(
            (dict, OrderedDict, triggers.FireDict, triggers.FireOrderedDict, triggers.OwnMapping)
        )
        return kind(entries)

    def a_list(self, rng: random.Random) -> list[Any]:
        """A list that stands in the pool, so that it can be changed while it is an argument."""
        kind = triggers.FireList if rng.random() < 0.2 else list
        made = kind(self.tensor(rng) for _ in range(rng.randrange(1, 4)))
        self.lists.append(made)
        return made
