# SPDX-License-Identifier: BSD-3-Clause
"""Section 1 of docs/behaviour.md: construction and internal attributes."""

from __future__ import annotations

import abc
import copy
import pickle
import weakref
from collections import OrderedDict
from typing import Generic, TypeVar

import pytest
from helpers.statements import (
    Statements,
    module,
    parameter,
    said,
)

pytest.importorskip("torch")

statement = Statements()


def named(cls):
    """The class under a name where pickle finds it."""
    cls.__qualname__ = cls.__name__
    globals()[cls.__name__] = cls
    return cls


@statement("1.1")
def _(t):
    m = t.nn.Module()

    class Kind(t.nn.Module, Generic[TypeVar("T")]):
        pass

    class Abstract(t.nn.Module, abc.ABC):
        @abc.abstractmethod
        def forward(self): ...

    empty = [t.nn.ModuleList(), t.nn.Sequential(), t.nn.ModuleDict(), t.nn.ParameterList()]
    return (
        type(t.nn.Module) is type,
        t.nn.Module.__mro__[-1] is object,
        weakref.ref(m)() is m,
        [n in vars(t.nn.Module) for n in ("__eq__", "__hash__", "__len__", "__bool__")],
        m == t.nn.Module(),
        bool(m),
        [bool(c) for c in empty],
        bool(t.nn.ParameterDict()),
        isinstance(Kind[int](), t.nn.Module),
        said(Abstract, "abstract"),
    )


@statement("1.2")
def _(t):
    return [(k, type(v).__name__, not v) for k, v in t.nn.Module().__dict__.items()]


@statement("1.3")
def _(t):
    m = t.nn.Module()
    m._forward_hooks = {}
    return said(lambda: m.register_forward_hook(print), "cannot create weak reference to 'dict'")


@statement("1.4")
def _(t):
    c = t.nn.Module
    return (
        [c.dump_patches, c._version, c.call_super_init, c._compiled_call_impl],
        c.forward.__name__,
        c.__call__ is c._wrapped_call_impl,
        hasattr(c, "T_destination"),
        said(lambda: c.training),
        "training" in c.__annotations__,
    )


@statement("1.5")
def _(t):
    m = module(t, w=parameter(t), c=t.nn.Module())
    m._parameters["x"] = 5
    m._parameters["y"] = t.lib.ones(1)
    m._modules = OrderedDict(d=t.nn.Module())
    seen = [k for k, _ in m.named_parameters()], m.x, [k for k, _ in m.named_modules()]
    m._forward_pre_hooks["key"] = lambda m, args: (args[0] + 1,)
    m.forward = lambda x: x
    m._parameters = {}
    return seen, m(1), list(m.parameters()), said(lambda: m.w)


@statement("1.6")
def _(t):
    class Cooperative(t.nn.Module):
        call_super_init = True

    class Mixin:
        def __init__(self, a=None):
            self.a = a

    class Both(Cooperative, Mixin):
        pass

    class Not(t.nn.Module, Mixin):
        pass

    return (
        said(lambda: t.nn.Module(1, a=2), "Module.__init__() got an unexpected keyword", "'a'"),
        said(lambda: t.nn.Module(1), "takes 1 positional argument but 2 were given"),
        said(lambda: Cooperative(1)),
        Both(3).a,
        hasattr(Not(), "a"),
    )


@statement("1.7")
def _(t):
    class Bare(t.nn.Module):
        def __init__(self):
            pass

    def assign(value):
        Bare().x = value

    before = "before Module.__init__() call"
    return (
        said(lambda: assign(parameter(t)), f"cannot assign parameters {before}"),
        said(lambda: Bare().register_parameter("x", None), f"cannot assign parameter {before}"),
        said(lambda: assign(t.nn.Module()), f"cannot assign module {before}"),
        said(lambda: assign(t.nn.Buffer(t.lib.ones(1))), f"cannot assign buffer {before}"),
        said(lambda: Bare().register_buffer("x", None), f"cannot assign buffer {before}"),
        said(lambda: Bare().add_module("x", t.nn.Module()), "has no attribute '_modules'"),
        [said(lambda v=v: assign(v)) for v in (t.lib.ones(1), 1, None)],
        said(lambda: dir(Bare()), "'_parameters'"),
        said(lambda: list(Bare().parameters()), "'_parameters'", "'_modules'")[0],
        [
            said(f, "'_modules'")
            for f in (
                lambda: repr(Bare()),
                lambda: Bare().apply(print),
                lambda: list(Bare().named_modules()),
            )
        ],
        said(lambda: Bare()(1), "'_backward_hooks'"),
        said(lambda: Bare().state_dict(), "'_state_dict_pre_hooks'"),
        said(lambda: Bare().training),
        Bare()._version,
    )


@statement("1.8")
def _(t):
    class Early(t.nn.Module):
        def __init__(self):
            self.early = 1
            super().__init__()

    m = Early()
    m.w = parameter(t)
    t.nn.Module.__init__(m)
    return m.early, list(m._parameters), m.training


@statement("1.9")
def _(t):
    m = t.nn.Module()
    m.training = "yes"
    first = m.training
    m.training = parameter(t)
    return first, list(m._parameters), said(m.train)


@statement("1.10")
def _(t):
    m = module(t, w=parameter(t), a=1)
    state = m.__getstate__()
    return (
        list(state) == list(m.__dict__),
        state["_parameters"] is m._parameters,
        m.__reduce_ex__(2)[0].__name__,
    )


@statement("1.11")
def _(t):
    m = t.nn.Module.__new__(t.nn.Module)
    m.__setstate__({"a": 1})
    return {k: type(v).__name__ for k, v in m.__dict__.items()}


@statement("1.12")
def _(t):
    m = module(t, a=1)
    other = copy.copy(m)
    other.w = parameter(t)
    other.b = 2
    return list(m._parameters), hasattr(m, "b"), type(other) is type(m)


@statement("1.13")
def _(t):
    class Kind(t.nn.Module):
        def hook(self, *args):
            return id(self)

        def forward(self, x):
            return x

    m = Kind()
    m.w = m.again = parameter(t)
    m.list = [m.w]
    m.me = [m]
    m.handle = m.register_forward_hook(m.hook)
    other = copy.deepcopy(m)
    seen = [
        other.w is other.again,
        other.list[0] is other.w,
        other.me[0] is other,
        other(1) == id(other),
        list(other._forward_hooks) == list(m._forward_hooks),
    ]
    other.handle.remove()
    m.view = m.w * 2
    return seen, len(other._forward_hooks), len(m._forward_hooks), said(lambda: copy.deepcopy(m))[0]


@statement("1.14")
def _(t):
    Kind = named(type("Kind", (t.nn.Module,), {"__module__": __name__}))  # noqa: N806
    m = Kind()
    m.w = m.again = parameter(t)
    m.w.note = "kept"
    other = pickle.loads(pickle.dumps(m))
    m.register_forward_hook(lambda *a: None)
    return other.w is other.again, other.w.note, other.w.grad, said(lambda: pickle.dumps(m))[0]


@statement("1.15")
def _(t):
    class Kind(t.nn.Module):
        pass

    return said(lambda: Kind()(1), 'Module [Kind] is missing the required "forward" function')


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
