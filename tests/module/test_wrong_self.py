# SPDX-License-Identifier: BSD-3-Clause
"""Every public method called with a wrong ``self``, on a bare instance, and with junk arguments:
Python errors, never a crash.
"""

from __future__ import annotations

import inspect
import sys
import warnings

import pytest
from helpers.util import param, small_tree, tensor

BINDERS = {"__init__", "__new__", "__class__", "__init_subclass__", "__subclasshook__", "__dict__"}
SKIPPED = {"cuda", "xpu", "ipu", "mtia"}  # other devices


def methods(cls):
    """Every callable of the class and of its bases below object, dunders included."""
    found = {}
    for base in reversed(cls.__mro__[:-1]):
        found |= {k: v for k, v in vars(base).items() if callable(v)}
    return {
        k: v for k, v in found.items() if k not in BINDERS | SKIPPED and not isinstance(v, type)
    }


def attempts(function):
    """Argument lists of every length that the method may take."""
    fillers = [None, 3, "x", object(), [], lambda *a, **k: None]
    for count in range(5):
        for filler in fillers:
            yield (filler,) * count


WRONG = {
    "int": lambda impl: 3,
    "none": lambda impl: None,
    "str": lambda impl: "self",
    "dict": lambda impl: {},
    "object": lambda impl: object(),
    "tensor": tensor,
    "parameter": param,
    "class": lambda impl: impl.nn.Module,
    "list": lambda impl: [impl.nn.Module()],
}


def survive(function, *args, **kwargs):
    """Calls, consumes a result that is an iterator; any ordinary exception is fine."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            result = function(*args, **kwargs)
            if hasattr(result, "__next__"):
                for _, _ in zip(range(20), result, strict=False):
                    pass
        except Exception as error:
            repr(error)
            return error
    return None


@pytest.mark.parametrize("wrong", WRONG)
def test_wrong_self(ours, wrong):
    if wrong == "class" and sys.version_info[:3] == (3, 13, 0):
        pytest.skip("CPython 3.13.0 crashes at a specialized call of a method without self")
    assert methods(ours.nn.Module)
    for name, function in methods(ours.nn.Module).items():
        value = WRONG[wrong](ours)
        for args in attempts(function):
            survive(function, value, *args)
        assert isinstance(survive(function), TypeError), name


NATIVE = (
    "parameters",
    "named_parameters",
    "buffers",
    "named_buffers",
    "children",
    "named_children",
    "modules",
    "named_modules",
    "train",
    "state_dict",
    "apply",
    "register_buffer",
    "__setattr__",
    "__delattr__",
    "__getattr__",
    "__call__",
)


@pytest.mark.parametrize("name", NATIVE)
def test_wrong_self_is_a_type_error(ours, name):
    function = getattr(ours.nn.Module, name)
    for value in (3, None, object(), tensor(ours)):
        for count in range(4):
            error = survive(function, value, *[None] * count)
            if not inspect.isfunction(function):
                assert isinstance(error, TypeError), (name, count, error)


@pytest.mark.parametrize("how", ["new", "forgotten", "emptied", "stripped"])
def test_every_method_of_a_bare_instance(ours, how):
    class Bare(ours.nn.Module):
        def __init__(self):
            pass

        def forward(self, *args, **kwargs):
            return args

    def make():
        if how == "new":
            return Bare.__new__(Bare)
        if how == "forgotten":
            return Bare()
        m = small_tree(ours)
        if how == "emptied":
            m.__dict__ = {}
        else:
            m.__dict__.clear()
        return m

    for function in methods(Bare).values():
        for args in attempts(function):
            survive(function, make(), *args)
    m = make()
    survive(repr, m), survive(dir, m), survive(hash, m), survive(len, m), survive(m)
    ours.nn.Module.__init__(m)
    m.p = param(ours)
    assert [n for n, _ in m.named_parameters()] == ["p"]


JUNK = {
    "int": lambda impl: 3,
    "none": lambda impl: None,
    "list": lambda impl: [impl.nn.Module()],
    "str": lambda impl: "abc",
    "dict of junk": lambda impl: {"a": 3, 4: None, None: "x"},
    "set": lambda impl: {1, "a"},
    "module": lambda impl: impl.nn.Module(),
    "type": lambda impl: dict,
    "tensor": tensor,
}
STATE = (
    "training",
    "_parameters",
    "_buffers",
    "_modules",
    "_non_persistent_buffers_set",
    "_forward_hooks",
    "_forward_pre_hooks",
    "_forward_hooks_with_kwargs",
    "_backward_hooks",
    "_state_dict_hooks",
    "_state_dict_pre_hooks",
    "_load_state_dict_pre_hooks",
)


@pytest.mark.parametrize("via", ["setattr", "dict"])
@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize("key", STATE)
def test_junk_in_an_internal_attribute(ours, key, junk, via):
    """Anything may be stored there; every operation afterwards ends in a result or a Python
    error.
    """

    class M(ours.nn.Module):
        def forward(self, x):
            return x

    def make():
        root, m = M(), M()
        m.p, m.child = param(ours), M()
        m.register_buffer("b", tensor(ours), persistent=False)
        root.m = m
        value = JUNK[junk](ours)
        if via == "dict":
            m.__dict__[key] = value
        else:
            survive(setattr, m, key, value)
        return root, m

    operations = [
        lambda m: list(m.named_parameters()),
        lambda m: list(m.named_buffers(remove_duplicate=False)),
        lambda m: list(m.named_modules()),
        lambda m: list(m.named_children()),
        lambda m: m.train(),
        lambda m: m.apply(lambda x: None),
        lambda m: m.double(),
        lambda m: m.state_dict(),
        lambda m: m.load_state_dict({}, strict=False),
        lambda m: m.load_state_dict({"m.p": tensor(ours), "p": tensor(ours)}, strict=False),
        lambda m: repr(m),
        lambda m: dir(m),
        lambda m: m(1),
        lambda m: m.zero_grad(),
        lambda m: m.requires_grad_(),
        lambda m: m.p,
        lambda m: m.nope,
        lambda m: setattr(m, "p", param(ours)),
        lambda m: setattr(m, "b", tensor(ours)),
        lambda m: setattr(m, "q", M()),
        lambda m: delattr(m, "p"),
        lambda m: delattr(m, "b"),
        lambda m: m.register_buffer("c", None),
        lambda m: m.add_module("d", M()),
        lambda m: m.register_forward_hook(print, with_kwargs=True),
        lambda m: m.__getstate__(),
        lambda m: m.__init__(),
    ]
    for operation in operations:
        root, m = make()
        survive(operation, m)
        survive(operation, root)


@pytest.mark.parametrize("key", [3, None, (1,), b"x", 2.5])
@pytest.mark.parametrize("registry", ["_parameters", "_buffers", "_modules"])
def test_keys_that_are_no_strings(ours, registry, key):
    for operation in (
        lambda m: list(m.named_parameters()),
        lambda m: list(m.named_buffers("p")),
        lambda m: list(m.named_modules()),
        lambda m: list(m.parameters()),
        lambda m: list(m.modules()),
        lambda m: m.train(),
        lambda m: m.double(),
        lambda m: m.state_dict(),
        lambda m: m.load_state_dict({}, strict=False),
        lambda m: repr(m),
        lambda m: dir(m),
    ):
        m = small_tree(ours)
        values = {
            "_parameters": param(ours),
            "_buffers": tensor(ours),
            "_modules": ours.nn.Module(),
        }
        getattr(m, registry)[key] = values[registry]
        survive(operation, m)
        m._parameters.pop(key, None), m._buffers.pop(key, None), m._modules.pop(key, None)
        assert len(list(m.modules())) == 3


def test_a_keyword_for_every_parameter(ours):
    """Unknown and doubled keywords are TypeErrors of the method, named in the text."""
    m = small_tree(ours)
    for name in (
        "named_parameters",
        "named_buffers",
        "named_modules",
        "modules",
        "parameters",
        "train",
    ):
        error = survive(getattr(m, name), wrong_keyword=1)
        assert isinstance(error, TypeError) and "wrong_keyword" in str(error)


def test_iterators_cannot_be_made_by_hand(ours):
    for walk in (ours.nn.Module().modules(), ours.nn.Module().named_parameters()):
        kind = type(walk)
        error = survive(kind)
        assert isinstance(error, TypeError)
        made = survive(lambda kind=kind: next(kind.__new__(kind)))
        assert isinstance(made, (TypeError, StopIteration))
        assert isinstance(survive(kind.__next__, 3), TypeError)
        assert isinstance(survive(kind.close, 3), TypeError)


def test_the_base_type_alone(ours):
    """The native base class is usable or refuses; both are fine, a crash is not."""
    base = ours.nn.Module.__mro__[1]
    if base is object:
        pytest.skip("no native base")
    made = survive(lambda: base().x)
    assert isinstance(made, (AttributeError, TypeError))
    for function in methods(base).values():
        for args in attempts(function):
            survive(function, 3, *args)
            bare = ours.nn.Module.__new__(ours.nn.Module)
            survive(function, bare, *args)
