# SPDX-License-Identifier: BSD-3-Clause
"""Random programs on modules with NumPy leaves and with jax leaves, which must show the same."""

from __future__ import annotations

import copy
import pickle
import random
import re

import numpy as np
import pytest
from helpers.support import array, same_shapes

import modtree as mt
from modtree import nn

jax = pytest.importorskip("jax")
jnp = jax.numpy

_STEPS = 40
_NAMES = "abcd"


class World:
    """A tree of modules, changed by the numbers of a random source."""

    def __init__(self, make):
        self.make = make
        self.root = nn.Module()

    def module(self, source):
        return source.choice(list(self.root.modules()))

    def values(self, source, shape=(2,)):
        return self.make(np.asarray([source.randrange(9) for _ in range(int(np.prod(shape)))]))

    def leaves(self):
        named = self.root.named_parameters(remove_duplicate=False)
        return [*named, *self.root.named_buffers(remove_duplicate=False)]

    # -- steps: each takes the random source, and does the same in all worlds ----------------------

    def add_child(self, source):
        setattr(self.module(source), source.choice("xyz"), nn.Module())

    def share_child(self, source):
        parent, child = self.module(source), self.module(source)
        if parent not in set(child.modules()):
            parent.add_module("shared", child)

    def add_cycle(self, source):
        module = self.module(source)
        module.loop = self.root
        names = [name for name, _ in self.root.named_parameters()]
        del module.loop
        return names

    def add_parameter(self, source):
        needs = source.random() < 0.7
        setattr(
            self.module(source), source.choice(_NAMES), nn.Parameter(self.values(source), needs)
        )

    def add_buffer(self, source):
        buffer = nn.Buffer(self.values(source), persistent=source.random() < 0.7)
        setattr(self.module(source), source.choice(_NAMES), buffer)

    def add_none(self, source):
        self.module(source).register_parameter("none", None)

    def tie(self, source):
        found = list(self.root.named_parameters())
        module = self.module(source)
        if found:
            module.register_parameter("tied", None)
            module.tied = source.choice(found)[1]

    def delete(self, source):
        delattr(self.module(source), source.choice(_NAMES + "xyz"))

    def plain(self, source):
        self.module(source).plain = self.values(source)

    def freeze(self, source):
        self.module(source).requires_grad_(source.random() < 0.5)

    def load(self, source):
        """What is tied is loaded from equal values."""
        known = {}
        state = self.root.state_dict(keep_vars=True)
        numbers = {
            key: known.setdefault(id(tensor), float(source.randrange(9)))
            for key, tensor in state.items()
        }
        given = {key: mt.full((2,), number) for key, number in numbers.items()}
        if source.random() < 0.3:
            given["more"] = mt.ones(2)
        return str(self.root.load_state_dict(given, strict=False))

    def load_badly(self, source):
        self.root.load_state_dict({key: mt.ones(3) for key in self.root.state_dict()})

    def convert(self, source):
        self.root.to(dtype=source.choice([mt.float16, mt.float32]))

    def copy(self, source):
        self.root = copy.deepcopy(self.root)

    def pickle(self, source):
        self.root = pickle.loads(pickle.dumps(self.root))

    def train(self, source):
        self.module(source).train(source.random() < 0.5)

    # -- what is compared --------------------------------------------------------------------------

    def shown(self, looks):
        ids = {}
        leaves = [
            (name, ids.setdefault(id(t), len(ids)), str(t.dtype).rpartition(".")[2], array(t))
            for name, t in self.leaves()
        ]
        frozen = {n: p.requires_grad for n, p in self.root.named_parameters()}
        modules = [(name, m.training) for name, m in self.root.named_modules()]
        # Looking at a __dict__ takes a module out of its compact form.
        plain = [sorted(vars(m)) for m in self.root.modules()] if looks else None
        state = [(key, array(value).tolist()) for key, value in self.root.state_dict().items()]
        return [(*leaf[:3], leaf[3].tolist()) for leaf in leaves], frozen, modules, plain, state


STEPS = [
    getattr(World, name)
    for name in (
        "add_child add_child share_child add_cycle add_parameter add_parameter add_buffer add_none "
        "tie delete plain freeze load load load_badly convert copy pickle train"
    ).split()
]


def outcome(step, world, source):
    try:
        return step(world, source)
    except (AttributeError, KeyError, RuntimeError, TypeError) as error:
        text = same_shapes(str(error.args[0]) if error.args else "")
        return type(error), re.sub(r"modtree\.\w+Tensor|jax\.Array \(\w+\)", "a tensor", text)


@pytest.mark.parametrize("seed", range(60))
def test_random_programs_show_the_same(seed):
    """Cycles, shared modules, ties and entries that are None among them."""
    worlds = [
        World(lambda values: mt.tensor(values.tolist(), dtype=mt.float32)),
        World(lambda values: jnp.asarray(values, jnp.float32)),
    ]
    order = random.Random(seed)
    for number in range(_STEPS):
        step, start = order.choice(STEPS), order.random()
        results = [outcome(step, world, random.Random(start)) for world in worlds]
        assert results[0] == results[1], (seed, number, step.__name__)
        shown = [world.shown(seed % 2) for world in worlds]
        assert shown[0] == shown[1], (seed, number, step.__name__)
