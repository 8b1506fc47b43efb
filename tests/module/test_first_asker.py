# SPDX-License-Identifier: BSD-3-Clause
"""What is remembered of classes and names answers several questions, and is learned by whoever asks
first (docs/lifetime.md has the list): the answers do not depend on who that was.
"""

from __future__ import annotations

import copy
import pickle

import pytest
from helpers.util import param, tensor

LOG: list[str] = []


class Writes:
    def __setattr__(self, name, value):
        LOG.append(f"set {name}")
        super().__setattr__(name, value)

    def __delattr__(self, name):
        LOG.append(f"del {name}")
        super().__delattr__(name)


class Reads:
    def __getattribute__(self, name):
        if name in ("x", "child"):
            LOG.append(f"get {name}")
        return super().__getattribute__(name)


class Reduced:
    def __reduce_ex__(self, protocol):
        return int, (protocol,)


class Equal:
    def __eq__(self, other):
        return isinstance(other, Equal)

    def __hash__(self):
        return 1


def train(self, mode=True):
    LOG.append("train")
    return self


def fallback(self, name):
    if name == "x":
        return "fallback"
    raise AttributeError(name)


#: Classes in front of Module, behind it, and members.
CLASSES = {
    "plain": ((), (), {}),
    "writes behind": ((), (Writes,), {}),
    "reads behind": ((), (Reads,), {}),
    "all behind": ((), (Writes, Reads, Reduced), {}),
    "all in front": ((Writes, Reads, Reduced), (), {}),
    "equal": ((Equal,), (), {}),
    "train": ((), (), {"train": train}),
    "forward": ((), (), {"forward": lambda self, x: x}),
    "x": ((), (), {"x": property(lambda self: "class")}),
    "x and writes behind": ((), (Writes,), {"x": 5}),
    "slot": ((), (), {"__slots__": ("training",)}),
    "extra state": ((), (), {"get_extra_state": lambda self: 1}),
}


def attempt(function, *args):
    LOG.clear()
    try:
        result = function(*args)
    except Exception as error:
        result = type(error).__name__
    return result, list(LOG)


def write(impl, m, value):
    m.x = value
    m.x = value
    m.x = None
    return sorted(k for k in m._parameters), sorted(m._buffers), "x" in m.__dict__


def write_plain(impl, m, value):
    m.x = 1
    m.x += 1
    m.x += 1
    return m.__dict__.get("x")


def delete(impl, m, value):
    m.x = 1
    del m.x
    return hasattr(m, "x")


def twice(impl, m, value):
    """Tensors that are equal count once where their class says so."""
    m._parameters.update(a=value, b=copy.copy(value))
    return len(list(m.parameters()))


def below(impl, m, value):
    other = type(m)()
    m.child = other
    root = impl.nn.Sequential(m, other)
    return [name for name, _ in root.eval().named_modules()], m.training


def copied(impl, m, value):
    m._parameters["p"] = value
    made = copy.deepcopy(m)
    return made if isinstance(made, int) else type(made._parameters["p"]) is type(value)


def reduced(impl, m, value):
    made = m.__reduce_ex__(pickle.HIGHEST_PROTOCOL)
    return made if made[0] is int else len(made)


OPERATIONS = {
    "read": lambda impl, m, value: str(m.x),
    "has": lambda impl, m, value: (hasattr(m, "x"), hasattr(m, "child")),
    "write": write,
    "write_plain": write_plain,
    "delete": delete,
    "child": lambda impl, m, value: setattr(m, "x", type(m)()),
    "register": lambda impl, m, value: m.register_buffer("x", value) or list(m._buffers),
    "register_parameter": lambda impl, m, value: m.register_parameter("x", value),
    "twice": twice,
    "below": below,
    "call": lambda impl, m, value: m(3),
    "state": lambda impl, m, value: [m._buffers.update(b=value), list(m.state_dict())][1],
    "copied": copied,
    "reduced": reduced,
    "zero_grad": lambda impl, m, value: [m._parameters.update(p=value), m.zero_grad()][1],
}


def module_class(impl, kind):
    front, behind, members = CLASSES[kind]
    members = {**members, "__module__": __name__}
    return type("M", (*front, impl.nn.Module, *behind), members)


def plain_value(impl):
    return param(impl)


def value_of_a_class(*bases):
    def make(impl):
        cls = type("T", (*bases, type(tensor(impl))), {})
        return tensor(impl).as_subclass(cls)

    return make


class Says:
    def __init__(self, other):
        self.__dict__["other"] = other

    __class__ = property(lambda self: type(self.other))

    def __getattr__(self, name):
        return getattr(self.other, name)


def value_that_says_so(impl):
    return type("S", (Says,), {})(param(impl))


VALUES = {
    "parameter": plain_value,
    "tensor": tensor,
    "tensor class": value_of_a_class(),
    "equal tensors": value_of_a_class(Equal),
    "says so": value_that_says_so,
    "number": lambda impl: 3,
}


@pytest.mark.parametrize("kind", CLASSES)
def test_facts_about_classes_of_modules(impl, kind):
    expected = {
        name: attempt(operation, impl, module_class(impl, kind)(), param(impl))
        for name, operation in OPERATIONS.items()
    }
    for first, learner in OPERATIONS.items():
        cls = module_class(impl, kind)
        attempt(learner, impl, cls(), param(impl))
        for name, operation in OPERATIONS.items():
            found = attempt(operation, impl, cls(), param(impl))
            assert found == expected[name], (first, name)


@pytest.mark.parametrize("kind", VALUES)
def test_facts_about_classes_of_values(impl, kind):
    if impl.leaves == "jax" and kind in ("tensor class", "equal tensors", "says so"):
        pytest.skip("arrays have no classes of users")
    names = ("write", "register", "register_parameter", "twice", "state", "copied", "zero_grad")
    expected = {
        name: attempt(OPERATIONS[name], impl, impl.nn.Module(), VALUES[kind](impl))
        for name in names
    }
    for first in names:
        value = VALUES[kind](impl)
        attempt(OPERATIONS[first], impl, impl.nn.Module(), value)
        for name in names:
            again = attempt(OPERATIONS[name], impl, impl.nn.Module(), value)
            assert again == expected[name], (first, name)
