# SPDX-License-Identifier: BSD-3-Clause
"""Modules whose classes pickle finds, and trees of them."""

from __future__ import annotations

import sys

from helpers.util import small_tree

_CLASSES: dict[tuple[str, str], type] = {}


def importable(impl, make):
    """The class that ``make(Module)`` gives, one per implementation, put where pickle finds it."""
    key = (make.__name__, impl.nn.Module.__module__)
    if key not in _CLASSES:
        cls = make(impl.nn.Module)
        cls.__qualname__ = cls.__name__ = (
            f"{make.__name__}_{impl.nn.Module.__module__.split('.')[0]}"
        )
        cls.__module__ = __name__
        setattr(sys.modules[__name__], cls.__name__, cls)
        _CLASSES[key] = cls
    return _CLASSES[key]


def Net(Module):
    class Net(Module):
        made = 0

        def __init__(self):
            super().__init__()
            type(self).made += 1
            self.log = []

        def forward(self, x):
            self.log.append("forward")
            return x

        def hook(self, module, args):
            self.log.append("hook")

    return Net


def plain_hook(module, args, output):
    module.seen = True


def full(impl):
    """A tree with ties, None entries, both kinds of buffers, hooks, plain attributes."""
    net = importable(impl, Net)()
    net.body = small_tree(impl)
    net.tied = net.body.scale
    net.again = net.body.left
    net.listed = [net.body.scale, net.body.left]
    net.plain = {"a": 1}
    net.eval()
    return net
