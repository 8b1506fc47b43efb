# SPDX-License-Identifier: BSD-3-Clause
"""Models that were trained for a few steps, and the states of their optimizers."""

from __future__ import annotations

import numpy as np


def make(lib, *names, size=3, head=2):
    """Linear layers of one size, and a head."""
    layers = {name: lib.nn.Linear(size, size) for name in names or ("a", "b", "c")}
    return lib.nn.ModuleDict({**layers, "head": lib.nn.Linear(size, head)})


def run(model, x):
    for name in sorted(name for name in model if name != "head"):
        x = model[name](x).tanh()
    return model["head"](x)


def train(lib, model, optimizer, steps=3, scheduler=None):
    for i in range(steps):
        x = lib.ones(4, 3) * (i % 3 + 1) / 7

        def closure(x=x):
            optimizer.zero_grad()
            loss = (run(model, x) ** 2).mean()
            loss.backward()
            return loss

        optimizer.step(closure)
        if scheduler is not None:
            scheduler.step()


def array(value):
    return np.array(value.detach().tolist()) if hasattr(value, "detach") else value


def state_of(optimizer, tensor):
    return {key: array(value) for key, value in optimizer.state.get(tensor, {}).items()}


def states(optimizer, model):
    return {name: state_of(optimizer, p) for name, p in model.named_parameters()}


def assert_same(some, others):
    assert some.keys() == others.keys()
    for key, value in some.items():
        if isinstance(value, dict):
            assert_same(value, others[key])
        else:
            np.testing.assert_array_equal(value, others[key], err_msg=str(key))


def trained(lib, *names, kind="Adam", named=True, **options):
    model = make(lib, *names)
    params = model.named_parameters() if named else model.parameters()
    optimizer = getattr(lib.optim, kind)(params, **options)
    train(lib, model, optimizer)
    return model, optimizer


def adam(lib, model, **options):
    return lib.optim.Adam(model.named_parameters(), **options)
