# SPDX-License-Identifier: BSD-3-Clause
"""Sections 7 and 8 of docs/behaviour.md: state dicts and loading."""

from __future__ import annotations

import copy
import pickle
import types
from collections import OrderedDict

import pytest
from helpers.statements import (
    Statements,
    module,
    parameter,
    said,
    warned,
)

pytest.importorskip("torch")

statement = Statements()


def model(t):
    m = module(t, c=module(t, w=parameter(t, 2)), b=t.nn.Buffer(t.lib.zeros(3)), w=parameter(t))
    m.c.register_buffer("hidden", t.lib.ones(1), persistent=False)
    m.c.register_buffer("none", None)
    m.again = m.c
    return m


def extra(t, getter=True, setter=True):
    class Extra(t.nn.Module):
        def __init__(self):
            super().__init__()
            self.got = "nothing"

        if getter:

            def get_extra_state(self):
                return "extra"

        if setter:

            def set_extra_state(self, state):
                self.got = state

    return Extra()


# -- 7 ---------------------------------------------------------------------------------------------


@statement("7.1")
def _(t):
    m, given = model(t), {}
    seen = warned(lambda: m.state_dict(given, "p.", True), "Positional args are being deprecated")
    return seen, list(given), given["p.w"] is m.w


@statement("7.2")
def _(t):
    m, given = model(t), {}
    made = m.state_dict()
    return (
        isinstance(made, OrderedDict),
        isinstance(made._metadata, OrderedDict),
        m.state_dict(destination=given) is given,
        hasattr(given, "_metadata"),
    )


@statement("7.3")
def _(t):
    m = model(t)
    m.c._version = 7
    metadata = m.state_dict(prefix="mod")._metadata
    return dict(metadata), dict(m.state_dict()._metadata)


@statement("7.4")
def _(t):
    log = []

    class Kind(t.nn.Module):
        def _save_to_state_dict(self, *args, **kwargs):
            log.append(("save", len(args), sorted(kwargs)))
            super()._save_to_state_dict(*args, **kwargs)

        def state_dict(self, *args, **kwargs):
            log.append(("state", len(args), sorted(kwargs)))
            super().state_dict(*args, **kwargs)
            return "ignored"

    m = module(t, k=Kind())
    m.k.w = parameter(t)
    m.register_state_dict_pre_hook(lambda *a: log.append(("pre", a[1:])))
    m._register_state_dict_hook(lambda *a: log.append(("post", a[2:])))
    return list(m.state_dict(prefix="p.")), log


@statement("7.5")
def _(t):
    m = extra(t)
    m.register_buffer("b", t.lib.ones(1))
    m.c = module(t, w=parameter(t))
    m.w = parameter(t)
    return list(m.state_dict())


@statement("7.6")
def _(t):
    m = model(t)
    state = m.state_dict()
    with t.lib.no_grad():
        m.w.fill_(5)
    return state["w"].tolist(), state["w"].requires_grad, m.state_dict(keep_vars=True)["w"] is m.w


@statement("7.7")
def _(t):
    state = model(t).state_dict()
    return list(state), state["c.w"] is state["again.w"]


@statement("7.8")
def _(t):
    m = module(t, e=extra(t), plain=t.nn.Module())
    m.plain.get_extra_state = lambda: 1
    m.e.register_buffer("_extra_state", t.lib.ones(1))
    state = m.state_dict()
    return list(state), state["e._extra_state"]


@statement("7.9")
def _(t):
    def public(m, state, prefix, metadata):
        log.append(("public", prefix))

    log = []
    m = model(t)
    m.register_state_dict_post_hook(public)
    m.c.register_state_dict_post_hook(lambda *a: log.append(("child", a[2])))
    m.register_state_dict_pre_hook(lambda *a: log.append(("pre", a[1])))
    m.c.register_state_dict_pre_hook(lambda *a: log.append(("child pre", a[1])))
    m._register_state_dict_hook(lambda *a: OrderedDict(replaced=1))
    m.c._register_state_dict_hook(lambda *a: OrderedDict(ignored=1))
    n = t.nn.Module()
    n.register_state_dict_post_hook(lambda *a: 5)
    return (
        list(m.state_dict()),
        log,
        public._from_public_api,
        said(n.state_dict, "state_dict post-hook must return None"),
        said(lambda: n._register_state_dict_hook(public), "previously registered via"),
    )


@statement("7.9", better=True)
def _(t):
    return said(lambda: t.nn.Module().register_state_dict_post_hook([].append))


@statement("7.10", better=True)
def _(t):
    return hasattr(model(t).state_dict().copy(), "_metadata")


@statement("7.10")
def _(t):
    state = model(t).state_dict()
    copies = copy.copy(state), copy.deepcopy(state), pickle.loads(pickle.dumps(state))
    return [list(c._metadata) for c in copies]


@statement("7.11")
def _(t):
    class Old(t.nn.Module):
        def state_dict(self, destination=None, prefix="", keep_vars=False):
            destination[prefix + "old"] = keep_vars
            return destination

    return dict(module(t, o=Old()).state_dict())


# -- 8 ---------------------------------------------------------------------------------------------


@statement("8.1")
def _(t):
    m = model(t)
    state = m.state_dict()
    before = dict(state)
    proxy = types.MappingProxyType(dict(state))
    return (
        said(lambda: m.load_state_dict([1]), "Expected state_dict to be dict-like, got"),
        str(m.load_state_dict(proxy)),
        str(m.load_state_dict(state)),
        dict(state) == before or list(state) == list(before),
    )


@statement("8.2")
def _(t):
    log = []

    class Kind(t.nn.Module):
        def _load_from_state_dict(self, *args):
            log.append((args[1], dict(args[2]), args[3], args[4:]))

    m = module(t, a=Kind(), b=module(t, c=Kind()))
    m.again = m.a
    m.load_state_dict({}, strict=False)
    m.load_state_dict(m.state_dict(), strict=False, assign=True)
    return log


@statement("8.3")
def _(t):
    class Kind(t.nn.Module):
        def load_state_dict(self, *args):
            raise KeyError("never called")

    return str(module(t, k=Kind()).load_state_dict({}))


@statement("8.4")
def _(t):
    log = []

    class Kind(t.nn.Module):
        def _load_from_state_dict(self, state, prefix, *rest):
            log.append((type(state).__name__, list(state), hasattr(state, "_metadata")))
            for key in list(state):
                state[key + ".more"] = state.pop(key)

    m = module(t, a=Kind(), b=Kind())
    m.a.c = Kind()
    m._register_load_state_dict_pre_hook(lambda s, *a: s.update({"a.c.new": 1}))
    state = OrderedDict({"a.c.x": 1, "a.y": 2, "b.z": 3, "ab": 4})
    m.load_state_dict(state, strict=False)
    return log, list(state)


@statement("8.5")
def _(t):
    lib = t.lib
    m = module(t, w=parameter(t, 2), s=t.nn.Parameter(lib.ones(())), m=parameter(t, 2))
    m.m = t.nn.Parameter(lib.ones(2, device="meta"))
    w = m.w
    state = {"w": lib.tensor([3, 4]), "s": lib.full((1,), 7.0), "m": lib.ones(2)}
    seen = warned(lambda: m.load_state_dict(state), "which is a no-op", "assign=True", "m")
    return (
        seen,
        m.w is w,
        m.w.tolist(),
        m.s.item(),
        said(
            lambda: m.load_state_dict({"w": 5, "s": lib.ones(2), "m": lib.ones(3)}),
            'While copying the parameter named "w", expected torch.Tensor or Tensor-like',
            "size mismatch for s: copying a param with shape",
            "size mismatch for m",
        ),
        said(lambda: module(t, w=parameter(t)).load_state_dict({"w": lib.ones(())}), "size mis"),
    )


@statement("8.6")
def _(t):
    m = model(t)
    m.none = t.nn.Module()
    m.none = None
    state = m.state_dict()
    for key in ("c", "none.x", "c.none", "c.hidden", "w.x", "other.y", "zzz", "c.w.deep"):
        state[key] = t.lib.ones(1)
    return m.load_state_dict(state, strict=False).unexpected_keys


@statement("8.7")
def _(t):
    m = module(t, c=extra(t), w=parameter(t))
    m.c.register_buffer("b", t.lib.ones(1))
    m.c.w = parameter(t)
    return m.load_state_dict({}, strict=False).missing_keys


@statement("8.8")
def _(t):
    m = module(t, both=extra(t), get=extra(t, setter=False), set=extra(t, getter=False))
    keys = m.load_state_dict(m.state_dict(), strict=False)
    return tuple(keys), m.both.got, m.set.got


@statement("8.9")
def _(t):
    lib = t.lib
    m = module(t, w=parameter(t, 2), p=t.nn.Parameter(lib.ones(2), requires_grad=False))
    m.register_buffer("b", lib.ones(2))
    state = {"w": lib.ones(2).double(), "p": parameter(t, 2), "b": lib.zeros(2)}
    m.load_state_dict(state, assign=True)
    seen = (
        m.w.data_ptr() == state["w"].data_ptr(),
        isinstance(m.w, t.nn.Parameter) and m.w.requires_grad,
        m.p is state["p"] and m.p.requires_grad,
        m.b is state["b"],
    )
    bad = said(lambda: m.load_state_dict({**state, "w": lib.tensor([1, 2])}, assign=True))[0]
    m.load_state_dict({**state, "b": parameter(t, 2)}, assign=True)
    return seen, bad, list(m._parameters), list(m._buffers)


@statement("8.10")
def _(t):
    keys = module(t, w=parameter(t)).load_state_dict({"x": 1}, strict=False)
    return repr(keys), str(keys), keys._fields, isinstance(keys, tuple)


@statement("8.11")
def _(t):
    m, log = model(t), []
    m.c.register_load_state_dict_post_hook(lambda m, keys: log.append(len(keys.missing_keys)))
    m.register_load_state_dict_post_hook(lambda m, keys: keys.missing_keys.clear())
    result = m.load_state_dict({})
    n = t.nn.Module()
    n.register_load_state_dict_post_hook(lambda *a: 5)
    return log, tuple(result), said(lambda: n.load_state_dict({}), "should be done inplace")


@statement("8.12")
def _(t):
    class Root(t.nn.Module):
        pass

    m = Root()
    m.w = parameter(t)

    def text(state):
        try:
            m.load_state_dict(state)
        except RuntimeError as error:
            return str(error)

    return text({"a": t.lib.ones(1), "b": t.lib.ones(1)})


@statement("8.12", better=True)
def _(t):
    m = module(t, a=parameter(t), b=parameter(t))
    state = {"a": t.lib.zeros(1), "b": t.lib.ones(5)}
    return said(lambda: m.load_state_dict(state, strict=False), "size mismatch"), m.a.item()


@statement("8.13", better=True)
def _(t):
    m, n = model(t), model(t)
    state = m.state_dict()
    n.load_state_dict(state, assign=True)
    w = n.w
    n.load_state_dict(state)
    return n.w is w


@statement("8.14")
def _(t):
    class Silent(t.nn.Module):
        def _load_from_state_dict(self, state, prefix, metadata, *rest):
            log.append(metadata.get("version"))

    log = []
    m = module(t, s=Silent())
    m.s.w = parameter(t)
    m.load_state_dict({"s.x": 1})
    m.load_state_dict(m.state_dict())
    return log


@statement("8.15")
def _(t):
    def hook(*args):
        log.append(len(args))

    hook.note = 1
    log, m = [], t.nn.Module()
    m._register_load_state_dict_pre_hook(hook)
    m._register_load_state_dict_pre_hook(hook, with_module=True)
    m.register_load_state_dict_pre_hook(hook)
    m.load_state_dict({})
    stored = next(iter(m._load_state_dict_pre_hooks.values()))
    return log, stored.__name__, stored.note, stored.__wrapped__ is hook, stored is hook


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
