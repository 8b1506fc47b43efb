# SPDX-License-Identifier: BSD-3-Clause
"""Sections 4 to 6 and 13 of docs/behaviour.md: walks, whole trees, calls and hooks."""

from __future__ import annotations

import copy
import pickle
from collections import namedtuple

import pytest
from helpers.statements import Statements, said, warned

statement = Statements()
Pair = namedtuple("Pair", ["a", "b"])


def parameter(t, *shape):
    return t.nn.Parameter(t.lib.ones(*shape or (1,)))


def module(t, **parts):
    m = t.nn.Module()
    for name, value in parts.items():
        setattr(m, name, value)
    return m


def tree(t):
    """Shared modules, shared parameters, empty places, buffers."""
    shared = module(t, w=parameter(t))
    m = module(t, a=module(t, s=shared, own=parameter(t)), b=shared, w=shared.w)
    m.none = t.nn.Module()
    m.none = None
    m.register_buffer("buf", t.lib.ones(1))
    m.a.register_buffer("buf", m.buf)
    return m


class Plain:
    """What classes of all implementations share: a forward that returns its input."""

    def forward(self, x, **kwargs):
        return x


def identity(t):
    return type("Identity", (Plain, t.nn.Module), {})()


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


@statement("6.9")
def _(t):
    m, log = identity(t), []
    m.register_forward_hook(lambda m, args, out: 0)
    m.register_forward_hook(lambda m, args, kwargs, out: log.append((args, kwargs, out)), with_kwargs=True)
    return m(1, k=2), log


@statement("6.10")
def _(t):
    m = identity(t)
    m.register_full_backward_hook(lambda *a: None)
    return warned(lambda: m({}), "output should be a Tensor or a tuple of Tensors but received")


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


def scaled(t):
    class Scaled(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = t.nn.Parameter(t.lib.full((2,), 3.0))

        def forward(self, *xs, **kwargs):
            return tuple(x * self.w if isinstance(x, t.lib.Tensor) else x for x in xs)

    return Scaled()


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
    m.register_full_backward_pre_hook(lambda m, go: tuple(g and g * 0 + 5 if g is None else g * 5 for g in go))
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
    return seen, log, said(
        lambda: n(t.lib.ones(2))[0].sum().backward(), "return None or None for all gradients"
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
    import importlib

    future = importlib.import_module("torch" if t.is_torch else "modtree").__future__
    names = ("overwrite_module_params_on_conversion", "swap_module_params_on_conversion")
    return [getattr(future, f"get_{n}")() for n in names], isinstance(t.hooks.RemovableHandle.next_id, int)


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
