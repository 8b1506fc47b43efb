# SPDX-License-Identifier: BSD-3-Clause
"""Sections 1 to 3 of docs/behaviour.md: construction, attributes, registration, paths."""

from __future__ import annotations

import abc
import copy
import pickle
import weakref
from collections import OrderedDict
from typing import Generic, TypeVar

import pytest
from helpers.statements import Statements, said

statement = Statements()


def named(cls):
    """The class under a name where pickle finds it."""
    cls.__qualname__ = cls.__name__
    globals()[cls.__name__] = cls
    return cls


def module(t, **parts):
    m = t.nn.Module()
    for name, value in parts.items():
        setattr(m, name, value)
    return m


def parameter(t, *shape):
    return t.nn.Parameter(t.lib.ones(*shape or (1,)))


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


@statement("2.1")
def _(t):
    m = module(t, w=parameter(t))
    m.register_buffer("w2", None)
    return m.w2, said(lambda: m.nothing, "'Module' object has no attribute 'nothing'")


@statement("2.2", better=True)
def _(t):
    class Kind(t.nn.Module):
        weight = "class"

        @property
        def broken(self):
            raise AttributeError("inner")

    m = Kind()
    m._parameters["weight"] = parameter(t)
    m.__dict__["x"] = 1
    m._parameters["x"] = 2
    return m.weight, m.x, said(lambda: m.broken, "inner", "has no attribute 'broken'")


@statement("2.2")
def _(t):
    class Kind(t.nn.Module):
        @property
        def broken(self):
            raise AttributeError("inner")

        @property
        def other(self):
            raise KeyError("inner")

    m = Kind()
    m._parameters["broken"] = 3
    return m.broken, said(lambda: m.other, "inner"), said(lambda: hasattr(m, "other"))


def values_of(t):
    return {
        "parameter": lambda: parameter(t),
        "module": t.nn.Module,
        "buffer": lambda: t.nn.Buffer(t.lib.ones(1)),
        "hidden": lambda: t.nn.Buffer(t.lib.ones(1), persistent=False),
        "tensor": lambda: t.lib.ones(1),
        "none": lambda: None,
        "other": lambda: 5,
    }


@statement("2.3")
def _(t):
    class Kind(t.nn.Module):
        log = []

        def register_parameter(self, name, param):
            self.log.append((name, param is None))
            super().register_parameter(name, param)

        def register_buffer(self, name, tensor):
            self.log.append(name)
            super().register_buffer(name, tensor)

    m = Kind()
    m.p = parameter(t)
    m.p = None
    m.b = t.nn.Buffer(t.lib.ones(1))
    marked = t.lib.ones(1)
    marked._is_param = marked._is_buffer = True
    m.marked = marked
    return (
        m.log,
        list(m._parameters),
        said(
            lambda: setattr(m, "h", t.nn.Buffer(t.lib.ones(1), persistent=False)),
            "Registering a non-persistent buffer on a Module subclass",
        ),
        said(lambda: setattr(m, "p", 1), "as parameter 'p' (torch.nn.Parameter or None expected)"),
        said(lambda: setattr(m, "b", 1), "as buffer 'b' (torch.nn.Buffer, torch.Tensor or None"),
    )


@statement("2.4")
def _(t):
    class Kind(t.nn.Module):
        in_class = 1

        @property
        def fixed(self):
            return 1

        @property
        def settable(self):
            return self.__dict__.get("_s")

        @settable.setter
        def settable(self, value):
            self.__dict__["_s"] = value

    names = ("absent", "p", "m", "b", "h", "d", "in_class", "fixed", "settable")
    result = {}
    for name in names:
        for kind, make in values_of(t).items():
            m = Kind()
            m.p, m.m = parameter(t), t.nn.Module()
            m.register_buffer("b", t.lib.ones(1))
            m.register_buffer("h", t.lib.ones(1), persistent=False)
            m.d = 1
            end = said(lambda m=m, n=name, make=make: setattr(m, n, make()))
            places = ("_parameters", "_modules", "_buffers", "_non_persistent_buffers_set")
            held = [name in getattr(m, place) for place in places] + [name in m.__dict__]
            # What a refused assignment removes stays here (docs/compat.md).
            result[name, kind] = (end, held if end == "returned" else None)
    return result


@statement("2.5")
def _(t):
    m = module(t, x=None, y=None)
    m.register_parameter("slot", None)
    m.y = parameter(t)
    return (
        said(lambda: setattr(m, "x", t.nn.Buffer(t.lib.ones(1))), "attribute 'x' already exists"),
        said(lambda: setattr(m, "slot", t.lib.ones(1))),
        list(m._parameters),
    )


@statement("2.6", better=True)
def _(t):
    m = module(t, child=t.nn.Module())
    type_ = type("Kind", (t.nn.Module,), {"name": 1})
    m = type_()
    m.__dict__["name"] = 2
    end = said(lambda: setattr(m, "name", parameter(t)))
    return end, m.__dict__.get("name")


@statement("2.7")
def _(t):
    m = t.nn.Module()
    for name in ("a.b", "", "0", "a b"):
        setattr(m, name, t.nn.Module())
    return (
        list(m._modules),
        said(lambda: setattr(m, "x.y", parameter(t)), 'parameter name can\'t contain "."'),
        said(lambda: setattr(m, "", t.nn.Buffer(t.lib.ones(1))), "can't be empty string"),
        said(lambda: dir(m))[0],
    )


@statement("2.8")
def _(t):
    m = module(t, a=parameter(t), b=parameter(t), c=parameter(t))
    m.a = None
    m.a = parameter(t)
    del m.b
    m.b = parameter(t)
    return list(m._parameters)


@statement("2.9")
def _(t):
    m = module(t, w=parameter(t), c=t.nn.Module(), plain=1)
    m.register_buffer("b", t.lib.ones(1), persistent=False)
    m.__dict__["w"] = 7
    del m.w
    first = m.w
    for name in ("w", "c", "plain", "b"):
        delattr(m, name)
    return (
        first,
        m._non_persistent_buffers_set,
        said(lambda: delattr(m, "no"), "'Module' object has no attribute 'no'"),
    )


@statement("2.10")
def _(t):
    m = module(t, w=parameter(t))
    m.add_module("0", t.nn.Module())
    m.forward = print
    found = dir(m)
    return found == sorted(found), "0" in found, found.count("forward"), "_parameters" in found


@statement("2.11")
def _(t):
    m = module(t, items=[parameter(t), t.nn.Module()])
    return list(m.parameters()), len(list(m.modules()))


@statement("2.12")
def _(t):
    log = []
    register = [
        t.module.register_module_parameter_registration_hook,
        t.module.register_module_buffer_registration_hook,
        t.module.register_module_module_registration_hook,
    ]
    for number, add in enumerate(register):
        add(lambda m, name, value, n=number: log.append((n, name, hasattr(m, name))))
    m = module(t, p=parameter(t), c=t.nn.Module(), b=t.nn.Buffer(t.lib.ones(1)))
    m.p = None
    m.b = None
    m.c = None
    m.add_module("d", None)
    m.b = t.lib.ones(1)
    names = t.nn.ModuleList([t.nn.Module()])
    log.append("list")
    names.insert(0, t.nn.Module())
    m.double()
    copy.deepcopy(m)
    return log


@statement("3.1")
def _(t):
    m = module(t, plain=1, p=parameter(t))
    grown = parameter(t) * 2

    def ends(register, good, bad):
        return [
            said(lambda: register(5, good), "should be a string. Got int"),
            said(lambda: register("a.b", good), 'can\'t contain "."'),
            said(lambda: register("", good), "can't be empty string"),
            said(lambda: register("plain", good), "attribute 'plain' already exists"),
            said(lambda: register("plain", bad), "attribute 'plain' already exists"),
            said(lambda: register("new", bad), "cannot assign", "or None required"),
            said(lambda: register("new", good)),
        ]

    return (
        ends(m.register_parameter, None, 5),
        ends(m.register_buffer, None, 5),
        ends(m.add_module, t.nn.Module(), 5)[:-1],
        said(lambda: m.add_module("q", 5), "int is not a Module subclass"),
        said(lambda: m.register_parameter("q", t.lib.ones(1)), "torch.nn.Parameter or None"),
        said(lambda: m.register_parameter("q", _marked(grown)), "Cannot assign non-leaf Tensor"),
    )


def _marked(tensor):
    tensor._is_param = True
    return tensor


@statement("3.2")
def _(t):
    m = module(t, p=parameter(t))
    m.register_parameter("q", None)
    m.register_parameter("p", parameter(t))
    m.register_parameter("q", parameter(t))

    class Any(t.nn.Module):
        def __getattr__(self, name):
            return 1

    return list(m._parameters), said(lambda: Any().register_buffer("x", None), "already exists")


@statement("3.3")
def _(t):
    m = t.nn.Module()
    m.register_buffer("p", parameter(t))
    m.register_buffer("b", t.nn.Buffer(t.lib.ones(1), persistent=False))
    m.register_buffer("z", t.lib.ones(1), persistent=0)
    m.register_buffer("n", parameter(t) * 2)
    return list(m.parameters()), list(m._buffers), sorted(m._non_persistent_buffers_set)


@statement("3.4")
def _(t):
    log = []

    class Kind(t.nn.Module):
        def add_module(self, name, module):
            log.append(name)
            super().add_module(name, module)

    m = Kind()
    return m.register_module("a", t.nn.Module()), log, list(m._modules)


@statement("3.5")
def _(t):
    m = module(t, c=module(t, d=t.nn.Module()), plain=1)
    m.none = t.nn.Module()
    m.none = None
    m.hidden = [t.nn.Module()]
    bad = ("x", "plain", "none", "c..d", ".c", "c.", "c.d.e")
    return (
        m.get_submodule("") is m,
        m.get_submodule("c.d") is m.c.d,
        [said(lambda n=n: m.get_submodule(n), "has no attribute `", "is not an nn.Module") for n in bad],
        said(lambda: m.get_submodule(5))[0],
    )


@statement("3.6")
def _(t):
    m = module(t, c=t.nn.Module(), p=parameter(t))
    new = t.nn.Module()
    return (
        said(lambda: m.set_submodule("", new), "without a target name"),
        said(lambda: m.set_submodule("c", 5), "`module` is not an nn.Module"),
        said(lambda: m.set_submodule("c.x", new, strict=True), "has no attribute `x`"),
        said(lambda: m.set_submodule("p", new), "is not an nn.Module"),
        m.set_submodule("c.x", new),
        m.c.x is new,
        said(lambda: m.set_submodule("a.b", new)),
    )


@statement("3.7")
def _(t):
    m = module(t, c=module(t, p=parameter(t)))
    m.c.register_parameter("none", None)
    return (
        m.get_parameter("c.p") is m.c.p,
        said(lambda: m.get_parameter("c.q"), "has no attribute `q`"),
        said(lambda: m.get_parameter("c.none"), "`none` is not an nn.Parameter"),
        said(lambda: m.get_parameter("c"), "`c` is not an nn.Parameter"),
    )


@statement("3.8")
def _(t):
    m = module(t, p=parameter(t))
    m.register_buffer("none", None)
    return (
        m.get_buffer("none"),
        said(lambda: m.get_buffer("p"), "`p` is not a buffer"),
        said(lambda: m.get_buffer("q"), "has no attribute `q`"),
    )


@statement("3.9")
def _(t):
    m = t.nn.Module()
    return (
        said(m.get_extra_state, "should never be called"),
        said(lambda: m.set_extra_state(1), "should never be called"),
    )


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
