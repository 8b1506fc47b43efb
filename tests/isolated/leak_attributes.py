# SPDX-License-Identifier: BSD-3-Clause
"""Construction, attribute reads and writes, registration, their errors."""

from leak_common import implementation_asked_for, no_leak, raising

impl = implementation_asked_for()
Module = impl.nn.Module


class Own(Module):
    klass = 1

    @property
    def bad(self):
        raise AttributeError("bad")


p, t, child, value = (
    impl.nn.Parameter(impl.lib.tensor([1.0])),
    impl.lib.tensor([1.0]),
    Module(),
    object(),
)
name = "name_of_an_attribute"
kept = Own()
kept.p, kept.child, kept.plain = p, child, value
kept.register_buffer("b", t)


def construct():
    m = Own()
    m.p, m.c, m.x = p, child, value
    m.register_buffer("b", t, persistent=False)
    m.b = t
    m.c = None
    m.x = m
    m.__dict__["y"] = m


def exposed():
    m = Own()
    assert m.__dict__
    m.p, m.c, m.x = p, child, value
    del m.p, m.c, m.x
    m._parameters = {"p": p}
    del m._modules


def move():
    for v in (p, child, p, impl.nn.Buffer(t), None, child, None):
        try:
            setattr(kept, name, v)
        except (KeyError, TypeError):
            pass
    delattr(kept, name)


def read():
    assert kept.p is p and kept.child is child and kept.b is t and kept.plain is value
    assert kept.klass == 1 and kept.training is True
    assert all(x is not None for x in (kept._parameters, kept._modules, kept._forward_hooks))
    dir(kept)


def init_again():
    m = Own()
    m.p, m.c = p, child
    m.__init__()
    m.__dict__ = {}
    m.__init__()


no_leak("construct", construct, Own, Module, p, t, child, value)
no_leak("exposed", exposed, Own, p, child, value)
no_leak("move", move, p, child, t, name)
no_leak("read", read, p, t, child, value)
no_leak("init again", init_again, Own, p, child)
no_leak("bare", lambda: Own.__new__(Own), Own)
no_leak("missing", raising(lambda: kept.missing, AttributeError), kept, Own)
no_leak("bad property", raising(lambda: kept.bad, AttributeError), kept, Own)
no_leak("del missing", raising(lambda: delattr(kept, "missing"), AttributeError), kept)
no_leak("dotted", raising(lambda: setattr(kept, "a.b", p), KeyError), kept, p)
no_leak("class name", raising(lambda: setattr(kept, "klass", p), KeyError), kept, p)
no_leak("wrong type", raising(lambda: setattr(kept, "p", 3), TypeError), kept, p)
no_leak("wrong child", raising(lambda: setattr(kept, "child", 3), TypeError), kept, child)
no_leak("wrong buffer", raising(lambda: setattr(kept, "b", 3), TypeError), kept, t)
no_leak("taken", raising(lambda: kept.register_buffer("p", t), KeyError), kept, t)
no_leak("extra argument", raising(lambda: Own(3), TypeError), Own)
no_leak("extra keyword", raising(lambda: Own(wrong=value), TypeError), Own, value)
no_leak("no submodule", raising(lambda: kept.get_submodule("child.x"), AttributeError), kept, child)
no_leak("submodule", lambda: kept.get_submodule("child"), kept, child)
no_leak("set_submodule", lambda: kept.set_submodule("child", child), kept, child)
no_leak("get_parameter", lambda: kept.get_parameter("p"), p)
no_leak("get_buffer", lambda: kept.get_buffer("b"), t)
no_leak(
    "classes",
    lambda: type("Short", (Own,), {"named_modules": lambda self: iter(())})().modules(),
    Own,
)
