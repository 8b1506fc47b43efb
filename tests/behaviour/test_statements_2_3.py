# SPDX-License-Identifier: BSD-3-Clause
"""Sections 2 and 3 of docs/behaviour.md: attributes, registration, paths."""

from __future__ import annotations

import copy

import pytest
from helpers.statements import (
    Statements,
    module,
    parameter,
    said,
)
from helpers.support import nothing_to_delete

pytest.importorskip("torch")

statement = Statements()


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


def _marked(tensor):
    tensor._is_param = True
    return tensor


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
        said(lambda: delattr(m, "no"), nothing_to_delete(t, "Module", "no")),
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
        [
            said(lambda n=n: m.get_submodule(n), "has no attribute `", "is not an nn.Module")
            for n in bad
        ],
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
