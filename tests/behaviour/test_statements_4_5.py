# SPDX-License-Identifier: BSD-3-Clause
"""Sections 4 and 5 of docs/behaviour.md: walks, operations on whole trees."""

from __future__ import annotations

import copy

import pytest
from helpers.statements import (
    Statements,
    identity,
    module,
    parameter,
    said,
    tree,
    warned,
)

pytest.importorskip("torch")

statement = Statements()


# -- 4 ---------------------------------------------------------------------------------------------


@statement("4.1")
def _(t):
    m = tree(t)
    walks = [m.parameters(), m.named_parameters(), m.buffers(), m.named_buffers(), m.children()]
    walks += [m.named_children(), m.modules(), m.named_modules()]
    m.late = parameter(t)
    return [len(list(w)) for w in walks], [hasattr(w, "send") for w in walks]


@statement("4.2")
def _(t):
    m = tree(t)
    return (
        [k for k, _ in m.named_parameters("p", False, False)],
        [k for k, _ in m.named_buffers("p", True, False)],
        [k for k, _ in m.named_modules(None, "p", False)],
        [k for k, _ in m._named_members(lambda m: m._buffers.items(), "p", True, True)],
        len(list(m.parameters(False))),
        len(list(m.modules(False))),
    )


@statement("4.3")
def _(t):
    m, log = tree(t), []

    class Kind(t.nn.Module):
        def named_modules(self, *args, **kwargs):
            log.append((len(args), sorted(kwargs)))
            return super().named_modules(*args, **kwargs)

    m.kind = Kind()
    memo = {m.a}
    seen = [k for k, _ in m.named_modules(memo)]
    return seen, len(memo), [k for k, _ in m.named_modules({m.b}, "x", False)], log


@statement("4.4")
def _(t):
    m = tree(t)
    return [k for k, _ in m._named_members(lambda m: [("x", 1), ("y", None), ("z", 1)])]


@statement("4.5")
def _(t):
    log = []

    def noting(name):
        def method(self, *args, **kwargs):
            log.append((name, len(args), sorted(kwargs)))
            return getattr(super(Kind, self), name)(*args, **kwargs)

        return method

    names = ("named_parameters", "_named_members", "named_buffers", "named_modules")
    names += ("named_children", "children", "parameters")
    Kind = type("Kind", (t.nn.Module,), {n: noting(n) for n in names})  # noqa: N806
    m = Kind()
    for act in (
        lambda: list(m.parameters()),
        lambda: list(m.buffers()),
        lambda: list(m.modules()),
        lambda: list(m.children()),
        m.zero_grad,
        m.eval,
        lambda: m.apply(id),
        m.state_dict,
    ):
        act()
        log.append("next")
    return log


@statement("4.6")
def _(t):
    class NoParameters(t.nn.Module):
        def named_parameters(self, *args, **kwargs):
            return iter(())

    class NoModules(t.nn.Module):
        def named_modules(self, *args, **kwargs):
            return iter(())

    class Old(t.nn.Module):
        def named_modules(self, memo=None, prefix=""):
            return iter(())

    m = module(t, a=NoParameters(), b=NoModules())
    m.a.w, m.b.w = parameter(t), parameter(t)
    return [k for k, _ in m.named_parameters()], said(lambda: list(module(t, o=Old()).modules()))


@statement("4.7")
def _(t):
    class Equal(t.nn.Module):
        def __eq__(self, other):
            return isinstance(other, Equal)

        def __hash__(self):
            return 1

    class Unhashable(t.nn.Module):
        def __eq__(self, other):
            return self is other

    m = module(t, a=Equal(), b=Equal())
    w = t.lib.ones(1)
    two = module(t, a=t.nn.Parameter(w), b=t.nn.Parameter(w))
    u = module(t, a=Unhashable())
    return (
        [k for k, _ in m.named_modules()],
        len(list(two.parameters())),
        [
            said(f, "unhashable type")
            for f in (
                lambda: list(u.modules(False)),
                lambda: list(u.parameters()),
                u.train,
                lambda: u.apply(id),
                u.state_dict,
            )
        ],
    )


@statement("4.8")
def _(t):
    one = t.nn.Module()
    m = module(t, a=one, b=one, c=t.nn.Module())
    m.register_module("d", None)
    return [k for k, _ in m.named_children()]


@statement("4.9")
def _(t):
    m = tree(t)
    return (
        [k for k, _ in m.named_parameters()],
        [k for k, _ in m.named_parameters(remove_duplicate=False)],
        [k for k, _ in m.named_modules(remove_duplicate=False)],
    )


@statement("4.10")
def _(t):
    m = module(t, c=module(t, w=parameter(t)), z=parameter(t), a=parameter(t))
    return [k for k, _ in m.named_parameters()]


@statement("4.11")
def _(t):
    def during(walk, act, m):
        for i, _ in enumerate(walk):
            if i == 0:
                act()
        return i

    m = tree(t)
    adding = said(
        lambda: during(m.named_parameters(), lambda: setattr(m, "x", parameter(t)), m),
        "changed size during iteration",
    )
    m = tree(t)
    replacing = said(lambda: during(m.children(), lambda: setattr(m, "a", t.nn.Module()), m))
    m = t.nn.Module()
    walk = m.modules()
    next(walk)
    m.child = t.nn.Module()
    return adding, replacing, len(list(walk))


@statement("4.12")
def _(t):
    m = module(t, w=parameter(t))
    m.me = m
    return (
        len(list(m.modules())),
        len(list(m.parameters())),
        said(m.zero_grad),
        copy.deepcopy(m).me is not m,
        [
            said(f)[0]
            for f in (m.eval, m.double, m.state_dict, lambda: m.apply(id), lambda: repr(m))
        ],
        said(lambda: list(m.modules(remove_duplicate=False)))[0],
        said(lambda: m.load_state_dict({}, strict=False))[0],
    )


@statement("4.13")
def _(t):
    m, log = tree(t), []
    m.a.again = m.a.s
    m.apply(lambda m: log.append(len(m._parameters)))
    return log


# -- 5 ---------------------------------------------------------------------------------------------


@statement("5.1")
def _(t):
    m, log = tree(t), []
    names = {v: k for k, v in m.named_modules()}
    return m.apply(lambda x: log.append(names[x])) is m, log


@statement("5.2")
def _(t):
    log = []

    class Kind(t.nn.Module):
        def train(self, *args, **kwargs):
            log.append((args, sorted(kwargs)))
            return super().train(*args, **kwargs)

    m = module(t, a=Kind())
    bad = [said(lambda v=v: m.train(v), "boolean") for v in (1, None, t.lib.tensor(True))]
    return m.eval() is m, m.a.training, log, bad


@statement("5.3")
def _(t):
    m = tree(t)
    whole = module(t, i=t.nn.Parameter(t.lib.tensor([1]), requires_grad=False))
    return (
        m.requires_grad_(False) is m,
        [p.requires_grad for p in m.parameters()],
        said(lambda: whole.requires_grad_(), "floating point"),
        said(lambda: m.requires_grad_("x"))[0],
    )


@statement("5.4")
def _(t):
    m = module(t, w=parameter(t), v=parameter(t))
    (m.w * 2).sum().backward()
    grad = m.w.grad
    m.zero_grad(set_to_none=False)
    kept = m.w.grad is grad, grad.tolist()
    m._is_replica = True
    return kept, warned(m.zero_grad, "from a module created with nn.DataParallel()"), m.w.grad


@statement("5.5")
def _(t):
    log = []

    class Kind(t.nn.Module):
        def _apply(self, *args, **kwargs):
            log.append((len(args), sorted(kwargs)))
            return super()._apply(*args, **kwargs)

    m = module(t, a=Kind(), w=parameter(t))
    m.register_buffer("b", t.lib.ones(1))
    m.w.note = 1
    (m.w * 2).sum().backward()
    w, grad, b = m.w, m.w.grad, m.b
    m.double()
    same = m.w is w, m.w.grad is grad, m.b is b, hasattr(m.w, "note"), str(m.w.grad.dtype)[-7:]
    m.to("meta")
    return same, m.w is w, hasattr(m.w, "note"), m.w.grad.is_meta, w.grad is grad, log


@statement("5.6")
def _(t):
    m = module(t, a=parameter(t), c=t.nn.Module())
    m.b = m.c.a = m.a
    m._apply(lambda x: x * 2)
    tied = m.a is m.b is m.c.a, m.a.item()
    m.to("meta")
    return tied, m.a is m.b


@statement("5.7")
def _(t):
    m = module(t, a=parameter(t), b=parameter(t, 2))

    def double(x):
        if len(x) == 2:
            raise KeyError("stop")
        return x * 2

    return said(lambda: m._apply(double)), m.a.item()


@statement("5.8")
def _(t):
    m = module(t, w=parameter(t))
    m.register_buffer("i", t.lib.tensor([1]))
    m.register_buffer("c", t.lib.tensor([1j]))

    def kinds():
        return [str(x.dtype).rpartition(".")[2] for x in (m.w, m.i, m.c)]

    seen = []
    for act in (m.half, m.double, m.float, m.cpu, lambda: m.type(t.lib.float64), m.share_memory):
        seen.append((act() is m, kinds()))
    return seen, said(lambda: m.to_empty("cpu")), m.to_empty(device="cpu") is m


@statement("5.9")
def _(t):
    m = module(t, w=parameter(t))
    lib = t.lib
    forms = [
        lambda: m.to(),
        lambda: m.to(None),
        lambda: m.to("cpu", lib.float64),
        lambda: m.to(lib.float32, True),
        lambda: m.to(lib.ones(1).double()),
        lambda: m.to(tensor=lib.ones(1)),
        lambda: m.to(dtype=lib.float64, device="cpu", non_blocking=True),
    ]
    seen = []
    for form in forms:
        form()
        seen.append(str(m.w.dtype).rpartition(".")[2])
    m.to("meta")
    return (
        seen,
        said(lambda: m.to("cpu", copy=True), "does not accept copy argument"),
        said(lambda: m.to(lib.int64), "only accepts floating point or complex dtypes"),
        said(lambda: m.to("cpu"), "Cannot copy out of meta tensor", "to_empty()"),
        said(lambda: m.cpu(), "Cannot copy out of meta tensor", "to_empty()"),
        warned(lambda: m.to(lib.complex64), "Complex modules are a new feature")[0][:1],
    )


@statement("5.10")
def _(t):
    m = module(t, plain=t.lib.ones(1), items=[t.lib.ones(1)])
    m.double()
    return m.plain.dtype == t.lib.float32, m.items[0].dtype == t.lib.float32


@statement("5.11")
def _(t):
    m = identity(t)
    m._compiled_call_impl = lambda *args: ("compiled", args)
    return m(1), "_compiled_call_impl" in m.__getstate__(), copy.copy(m)(1)


@statement("5.12")
def _(t):
    m = tree(t)
    m.register_forward_hook(lambda *a: None)
    r = m._replicate_for_data_parallel()
    return (
        list(r._parameters),
        list(r._buffers),
        r._buffers is m._buffers,
        r._modules is m._modules,
        r.a is m.a,
        r._forward_hooks is m._forward_hooks,
        r._is_replica,
    )


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
