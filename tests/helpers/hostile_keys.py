# SPDX-License-Identifier: BSD-3-Clause
"""Keys that run code when they are compared, and what may be left of a module after it."""

from __future__ import annotations

from helpers.util import names, param

FAILURES = (AttributeError, KeyError, RuntimeError, TypeError, ValueError)


class Key:
    """Equal to nothing; compared with ``text``, it runs ``action`` first."""

    def __init__(self, text, action):
        self.hash = hash(text)
        self.action = action

    def __hash__(self):
        return self.hash

    def __eq__(self, other):
        self.action()
        return False


def assert_usable(impl, m):
    m.__dict__.clear()
    m.__init__()
    m.p, m.c = param(impl), impl.nn.Module()
    assert names(m.named_parameters()) == ["p"] and names(m.named_modules()) == ["", "c"]
