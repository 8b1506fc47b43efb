# SPDX-License-Identifier: BSD-3-Clause
"""Sections 6 and 13 of docs/behaviour.md: calls, hooks, state of the process."""

from __future__ import annotations

import copy
import importlib
import pickle
from collections import namedtuple

import pytest
from helpers.statements import (
    Statements,
    identity,
    said,
    warned,
)

pytest.importorskip("torch")

statement = Statements()


Pair = namedtuple("Pair", ["a", "b"])


def scaled(t):
    class Scaled(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = t.nn.Parameter(t.lib.full((2,), 3.0))

        def forward(self, *xs, **kwargs):
            return tuple(x * self.w if isinstance(x, t.lib.Tensor) else x for x in xs)

    return Scaled()


class Plain:
    """What classes of all implementations share: a forward that returns its input."""

    def forward(self, x, **kwargs):
        return x


# -- 6 ---------------------------------------------------------------------------------------------


@statement("6.1")
def _(t):
    class Kind(Plain, t.nn.Module):
        def _call_impl(self, *args):
            return "own", super()._call_impl(*args)

        def _wrapped_call_impl(self, *args):
            return "ignored"

    m = identity(t)
    m.__call__ = lambda x: "ignored"
    return Kind()(1), m(1)


@statement("6.2")
def _(t):
    class Other(t.nn.Module):
        def forward(self, x):
            return "other"

    class Static(t.nn.Module):
        @staticmethod
        def forward(x):
            return x, "static"

    m = identity(t)

    def change(module, args):
        module.forward = lambda x: "new"

    m.register_forward_pre_hook(change)
    n = type("Kind", (t.nn.Module,), {"forward": lambda self, x: "old"})()
    n.register_forward_pre_hook(lambda m, args: setattr(m, "__class__", Other))
    return m(1), m(1), n(1), n(1), Static()(1)


@statement("6.3")
def _(t):
    class Kind(t.nn.Module):
        def forward(self, x):
            self.register_forward_hook(lambda *a: x.append("late"))
            return x

    fast, slow = Kind(), Kind()
    slow.register_forward_hook(lambda *a: None)
    return fast([]), slow([])


@statement("6.4")
def _(t):
    m = identity(t)
    return (
        said(lambda: m.register_forward_hook(print, True))[0],
        said(lambda: m.register_forward_pre_hook(print, True))[0],
        said(lambda: m.register_full_backward_hook(print, True)),
        said(lambda: t.module.register_module_forward_hook(print, prepend=True))[0],
    )


@statement("6.5")
def _(t):
    m, log = scaled(t), []

    def late(m, args):
        m.register_full_backward_hook(lambda *a: log.append("late"))

    m.register_forward_pre_hook(late)
    m(t.lib.ones(2, requires_grad=True))[0].sum().backward()
    first = list(log)
    m(t.lib.ones(2, requires_grad=True))[0].sum().backward()
    return first, len(log)


@statement("6.6")
def _(t):
    def run(result, with_kwargs=False):
        m = type("Kind", (t.nn.Module,), {"forward": lambda self, *a, **k: (a, k)})()
        m.register_forward_pre_hook(lambda *args: result, with_kwargs=with_kwargs)
        return m(1, x=2)

    plain = [run(v) for v in (None, (5, 6), [5], False, 0, ())]
    both = [said(lambda v=v: run(v, True), "new_args, new_kwargs") for v in ((1,), [(), {}], 5)]
    m, log = identity(t), []
    for i in range(3):
        m.register_forward_pre_hook(lambda *a, i=i: log.append(i), prepend=i > 0)
    t.module.register_module_forward_pre_hook(lambda *a: log.append("global"))
    m(1)
    return plain, run(((7,), {"y": 8}), True), run(None, True), both, log


@statement("6.7")
def _(t):
    m = identity(t)
    m.register_full_backward_hook(lambda *a: None)
    x, y = t.lib.ones(1, requires_grad=True), t.lib.ones(1)
    with t.lib.no_grad():
        off = m(x) is x
    return m(x) is x, m(y) is y, off


@statement("6.8")
def _(t):
    def forward(self, *args, **kwargs):
        return args, kwargs

    m = type("Kind", (t.nn.Module,), {"forward": forward})()
    m.register_forward_pre_hook(lambda m, args, kwargs: (args[::-1], {}), with_kwargs=True)
    return m(1, 2, k=3)


@statement("6.9")
def _(t):
    m, log = identity(t), []
    m.register_forward_hook(lambda m, args, out: 0)
    m.register_forward_hook(
        lambda m, args, kwargs, out: log.append((args, kwargs, out)), with_kwargs=True
    )
    return m(1, k=2), log


@statement("6.10")
def _(t):
    m = identity(t)
    m.register_full_backward_hook(lambda *a: None)
    return warned(lambda: m({}), "output should be a Tensor or a tuple of Tensors but received")


@statement("6.11")
def _(t):
    m, log = scaled(t), []
    m.register_backward_hook(lambda *a: log.append("backward"))
    m.register_forward_hook(lambda m, args, out: (out[0] * 2,))
    out = m(t.lib.ones(2, requires_grad=True))[0]
    out.sum().backward()
    return out.tolist(), log


@statement("6.12")
def _(t):
    log = []
    t.module.register_module_forward_pre_hook(lambda m, a: log.append(("pre", len(m._modules))))
    t.module.register_module_forward_hook(lambda m, a, o: log.append(("post", len(m._modules))))
    t.nn.Sequential(identity(t))(1)
    return log


@statement("6.13")
def _(t):
    def forward(self, x):
        raise x

    log = []
    for error in (ValueError("x"), KeyboardInterrupt()):
        m = type("Kind", (t.nn.Module,), {"forward": forward})()
        m.register_forward_hook(lambda *a: log.append("normal"))
        m.register_forward_hook(lambda m, a, o: log.append(("always", o)), always_call=True)
        m.register_forward_hook(lambda m, a, o: (log.append(("next", o)), 5)[1], always_call=True)
        m.register_forward_hook(lambda m, a, o: log.append(("last", o)), always_call=True)
        log.append(said(lambda m=m, error=error: m(error)))
    return log


@statement("6.14")
def _(t):
    m, log = identity(t), []

    def fail(m, a, o):
        log.append("fail")
        raise KeyError("hook")

    m.register_forward_hook(fail, always_call=True)
    m.register_forward_hook(lambda m, a, o: log.append(o), always_call=True)
    return said(lambda: m(1), "hook"), log


@statement("6.15")
def _(t):
    def forward(self, x):
        raise ValueError("first")

    def fail(m, a, o):
        raise KeyError("hook")

    m = type("Kind", (t.nn.Module,), {"forward": forward})()
    m.register_forward_hook(fail, always_call=True)
    return warned(lambda: said(lambda: m(1)), "raised an exception that was silenced", "module")


@statement("6.16", better=True)
def _(t):
    def forward(self, x):
        raise ValueError("first")

    log = []
    m = type("Kind", (t.nn.Module,), {"forward": forward})()
    t.module.register_module_forward_hook(
        lambda m, a, k, o: log.append(k), with_kwargs=True, always_call=True
    )
    handle = m.register_forward_hook(lambda *a: handle.remove(), always_call=True)
    m.register_forward_hook(lambda *a: None, always_call=True)
    return said(lambda: m(1)), log


@statement("6.17")
def _(t):
    m, log = identity(t), []
    m.register_forward_hook(lambda *a: log.append("first"))
    m.register_forward_hook(lambda *a: log.append("always"), always_call=True)
    m.register_forward_hook(lambda *a: log.append("last"))
    m(1)
    return log


@statement("6.18", better=True)
def _(t):
    m, log = identity(t), []
    m.register_forward_hook(lambda *a: later.remove())
    later = m.register_forward_hook(lambda *a: log.append(len(a)), with_kwargs=True)
    m(1)
    return log


@statement("6.18")
def _(t):
    m, log = identity(t), []

    def pre(m, args):
        m.register_forward_pre_hook(lambda *a: log.append("pre"))
        m.register_forward_hook(lambda *a: log.append("post"))

    m.register_forward_pre_hook(pre)
    m(1)
    return log


@statement("6.19")
def _(t):
    m = identity(t)
    first = m.register_forward_hook(print)
    second = m.register_forward_pre_hook(print)
    with m.register_forward_hook(print) as third:
        inside = len(m._forward_hooks)
    first.remove()
    first.remove()
    alone = pickle.loads(pickle.dumps(second))
    hooks_dict, number, extra = second.__getstate__()
    both = copy.deepcopy({"m": m, "h": second})
    both["h"].remove()
    alone.remove()
    return (
        second.id - first.id,
        third.id - second.id,
        inside,
        len(m._forward_hooks),
        hooks_dict is m._forward_pre_hooks,
        number == second.id,
        type(extra).__name__,
        len(both["m"]._forward_pre_hooks),
        len(m._forward_pre_hooks),
    )


@statement("6.20")
def _(t):
    class Named(t.nn.Module):
        def forward(self, x):
            return Pair(x * 2, x * 3)

    m, log = Named(), []
    m.register_full_backward_hook(lambda m, gi, go: log.append((len(gi), len(go))))
    out = m(t.lib.ones(1, requires_grad=True))
    out.a.sum().backward()
    return type(out).__name__, log


@statement("6.21")
def _(t):
    m, log = scaled(t), []
    m.register_full_backward_pre_hook(
        lambda m, go: tuple(g and g * 0 + 5 if g is None else g * 5 for g in go)
    )
    m.register_full_backward_hook(
        lambda m, gi, go: log.append([g if g is None else g.tolist() for g in (*gi, *go)])
    )
    m.register_full_backward_hook(lambda m, gi, go: tuple(g if g is None else g * 7 for g in gi))
    x = t.lib.ones(2, requires_grad=True)
    m(x, 5)[0].sum().backward()

    def ending(register, result):
        n = scaled(t)
        getattr(n, register)(lambda *a: result)
        return said(
            lambda: n(t.lib.ones(2, requires_grad=True))[0].sum().backward(),
            "invalid number of grad_output",
            "invalid number of grad_input",
        )

    return (
        log,
        x.grad.tolist(),
        m.w.grad.tolist(),
        ending("register_full_backward_pre_hook", (None, None)),
        ending("register_full_backward_hook", (None, None)),
    )


@statement("6.22")
def _(t):
    m, log = scaled(t), []
    m.register_full_backward_hook(lambda m, gi, go: log.append((gi, len(go))))
    seen = warned(
        lambda: m(t.lib.ones(2), t.lib.ones(2))[0].sum().backward(),
        "Full backward hook is firing when gradients are computed with respect to module outputs",
    )
    n = scaled(t)
    n.register_full_backward_hook(lambda *a: (1,))
    return (
        seen,
        log,
        said(lambda: n(t.lib.ones(2))[0].sum().backward(), "return None or None for all gradients"),
    )


@statement("6.23")
def _(t):
    class InPlace(t.nn.Module):
        def forward(self, x):
            return x.add_(1)

    m = InPlace()
    m.register_full_backward_hook(lambda *a: None)
    x = t.lib.ones(1, requires_grad=True) * 2
    return said(lambda: m(x), "is a view and is being modified inplace")


@statement("6.24")
def _(t):
    m, n = identity(t), identity(t)
    m.register_full_backward_hook(print)
    n.register_backward_hook(print)
    t.module.register_module_full_backward_hook(print)
    both = "Cannot use both regular backward hooks and full backward hooks"
    return (
        said(lambda: m.register_backward_hook(print), both, "on a single Module"),
        said(lambda: n.register_full_backward_hook(print), both, "on a single Module"),
        said(lambda: t.module.register_module_backward_hook(print), both, "global Module hook"),
    )


@statement("6.25")
def _(t):
    m, log = scaled(t), []
    m.register_backward_hook(lambda m, gi, go: log.append(([g.tolist() for g in gi], len(go))))
    x = t.lib.ones(2, requires_grad=True)
    m(x)[0].sum().backward()
    n = type("Kind", (t.nn.Module,), {"forward": lambda self, x: [x * 2, x + 1]})()
    n.register_backward_hook(lambda *a: None)
    return log, warned(lambda: n(x), "non-full backward hook")[0]


# -- 13 --------------------------------------------------------------------------------------------


@statement("13.1")
def _(t):
    names = [n for n in vars(t.module) if n.startswith("_global_") and "hook" in n]
    return {n: type(getattr(t.module, n)).__name__ for n in names}


@statement("13.2")
def _(t):
    handle = t.module.register_module_forward_hook(print)
    found = bool(t.module._has_any_global_hook())
    handle.remove()
    return found, bool(t.module._has_any_global_hook()), t.module._EXTRA_STATE_KEY_SUFFIX


@statement("13.3")
def _(t):

    future = importlib.import_module("torch" if t.is_torch else "modtree").__future__
    names = ("overwrite_module_params_on_conversion", "swap_module_params_on_conversion")
    return [getattr(future, f"get_{n}")() for n in names], isinstance(
        t.hooks.RemovableHandle.next_id, int
    )


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
