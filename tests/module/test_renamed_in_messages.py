# SPDX-License-Identifier: BSD-3-Clause
"""A message has the name that a class had, also where the repr of something else in the same
message gives the class another name.
"""

from __future__ import annotations

import pytest
from helpers.util import param, tensor

OLD = "Named" + "o" * 60


class Text(str):
    """A key whose repr calls its action."""

    action = None

    def __repr__(self):
        Text.action()
        return str.__repr__(self)


class Acting:
    """Its repr calls its action."""

    def __init__(self, action):
        self.action = action

    def __call__(self, *args):
        return self.result

    def __repr__(self):
        self.action()
        return "acting"


def renaming(cls):
    """Gives a class another name that begins as the old one, whose memory it fills."""
    kept = []

    def rename():
        cls.__name__ = cls.__qualname__ = "".join(["Named", "o" * 60, str(len(kept))])
        kept.append([chr(65 + i % 26) * size for i in range(2000) for size in (65, 66)])

    return rename


def named(base=object):
    # Not the constant itself, which would keep the text alive.
    return type("".join(["Named", "o" * 60]), (base,), {})


@pytest.fixture(autouse=True)
def _no_action():
    yield
    Text.action = None


def test_mode_of_train(ours):
    mode = named()()
    type(mode).__repr__ = lambda self: [renaming(type(self))()] and "mode"
    with pytest.raises(ValueError, match=OLD):
        ours.nn.Module().train(mode)


@pytest.mark.parametrize("kind", ["no tensor", "no result", "bad grad"])
def test_conversions(ours, kind):
    m = named(ours.nn.Module)()
    value = 3 if kind == "no tensor" else param(ours)
    m._parameters[Text("w")] = value
    if kind == "bad grad":
        value.grad = tensor(ours)
    Text.action = renaming(type(m))
    convert = {
        "no result": lambda t: 3,
        "bad grad": lambda t: 3 if t is value.grad else t.detach().to(ours.lib.float16),
    }.get(kind, lambda t: t.detach().to(ours.lib.float16))
    with pytest.raises((TypeError, AttributeError), match=OLD):
        m._apply(convert)


def test_a_hook_that_returns_something(ours):
    m, answer = ours.nn.Module(), named()()
    hook = Acting(renaming(type(answer)))
    hook.result = answer
    m.register_load_state_dict_post_hook(hook)
    with pytest.raises(AssertionError, match=OLD):
        m.load_state_dict({})


def test_a_cycle(ours):
    root = named(ours.nn.Module)()
    root.add_module(key := Text("c"), ours.nn.Module())
    root.c.add_module(key, root)
    Text.action = renaming(type(root))
    with pytest.raises(RecursionError, match=OLD):
        root.state_dict()


def test_an_odd_name_of_a_child(ours):
    m = named(ours.nn.Module)()
    Text.action = renaming(type(m))
    with pytest.warns(UserWarning, match=OLD):
        setattr(m, Text("a.b"), ours.nn.Module())
