# SPDX-License-Identifier: BSD-3-Clause
"""Section 9 of docs/behaviour.md: text and containers."""

from __future__ import annotations

from collections import OrderedDict

import pytest
from helpers.statements import (
    Statements,
    said,
    warned,
)

pytest.importorskip("torch")

statement = Statements()


def named(t, name, text=""):
    return type(name, (t.nn.Module,), {"extra_repr": lambda self: text})()


def entry(t, name="E"):
    return type(name, (t.nn.Module,), {"forward": lambda self, input: [*input, name]})()


# -- 9 ---------------------------------------------------------------------------------------------


@statement("9.1")
def _(t):
    return t.nn.Module()._get_name(), t.nn.Module().extra_repr(), named(t, "Kind")._get_name()


@statement("9.2")
def _(t):
    m = named(t, "Root", "two\nlines")
    m.a = named(t, "A", "one")
    m.b = named(t, "B", "x\n\ny")
    m.c = t.nn.Module()
    m.c = None
    m.a.d = named(t, "D")
    none = type("N", (t.nn.Module,), {"extra_repr": lambda self: None})()
    return repr(m), str(m) == repr(m), repr(none), repr(named(t, "One", "x"))


@statement("9.3")
def _(t):
    parts = [named(t, "A"), named(t, "A"), named(t, "B", "x\ny"), named(t, "A")]
    return repr(t.nn.ModuleList(parts)), repr(t.nn.ModuleList()), repr(t.nn.Sequential(*parts[:2]))


@statement("9.4")
def _(t):
    items = [t.lib.ones(2, 3), t.lib.ones(()), "text"]
    texts = repr(t.nn.ParameterList(items)), repr(t.nn.ParameterList(items[:1]))
    texts += (repr(t.nn.ParameterDict({"a": items[0]})),)
    return [text.replace("modtree.", "torch.") for text in texts]


@statement("9.5")
def _(t):
    S = t.nn.Sequential  # noqa: N806
    s = S(*(entry(t, n) for n in "abc"))
    d = S(OrderedDict(x=entry(t, "x"), y=entry(t, "y")))
    e = entry(t, "e")
    seen = [
        list(s[1:]._modules),
        s[True]._get_name(),
        s[-1]._get_name(),
        said(lambda: s[5], "index 5 is out of range"),
        said(lambda: s["a"])[0],
        said(lambda: S({"a": e}), "dict is not a Module subclass"),
        s.append(e) is s,
        s.extend([entry(t, "f")]) is s,
        s.insert(0, entry(t, "g")) is s,
        [m._get_name() for m in s],
        said(lambda: s.insert(9, e), "Index out of range"),
        s.pop(0)._get_name(),
        list((s + d)._modules),
        said(lambda: s + [1], "Sequential"),
        list((d * 2)._modules),
        said(lambda: d * 0, "Non-positive multiplication factor"),
        said(lambda: d * "x")[0],
        [n for n in dir(s) if n.isdigit()],
        s([]),
        s(input=[]),
        S()(5),
        e in s,
        [m._get_name() for m in reversed(d)],
    ]
    del s[0]
    s[0] = entry(t, "z")
    return seen, list(s._modules), s([])


@statement("9.6")
def _(t):
    L = t.nn.ModuleList  # noqa: N806
    items = L([entry(t, n) for n in "abc"])
    names = ("__contains__", "__reversed__", "index", "remove", "count", "clear", "__mul__")
    seen = [
        [hasattr(items, n) for n in names],
        items[0] in items,
        said(lambda: items(1), "ModuleList"),
        said(lambda: items[7], "index 7 is out of range"),
        [m._get_name() for m in items[1:]],
        list(items[1:]._modules),
        items.append(entry(t)) is items,
        said(lambda: items.extend(5), "should be called with an iterable, but got"),
        items.insert(1, entry(t, "i")),
        items.pop(0)._get_name(),
        type(items + [entry(t)]).__name__,
        said(lambda: [entry(t)] + items)[0],
        said(lambda: L({"a": entry(t)}))[0],
    ]
    del items[1]
    return seen, [m._get_name() for m in items], list(items._modules)


@statement("9.7")
def _(t):
    d = t.nn.ModuleDict({"b": entry(t), "a": entry(t)})
    bad = ("keys", "pop", "type", "training", "a.b", "")
    names = ("get", "setdefault", "popitem", "copy", "__or__")
    seen = [
        list(d),
        [said(lambda k=k: d.__setitem__(k, entry(t)))[0] for k in bad],
        said(lambda: d.__setitem__(5, entry(t)))[0],
        said(lambda: d["no"]),
        said(lambda: d.pop("no"))[0],
        [hasattr(d, n) for n in names],
        said(lambda: reversed(d).__next__())[0],
        type(d.keys()).__name__,
        "a" in d,
        len(d),
    ]
    d.c = entry(t)
    del d["b"]
    return seen, list(d.items())[-1][0], d.clear(), len(d)


@statement("9.8")
def _(t):
    d = t.nn.ModuleDict()
    return (
        said(lambda: d.update(5), "should be called with an iterable of key/value pairs, but got"),
        said(lambda: d.update([5]), "update sequence element #0 should be Iterable; is"),
        said(lambda: d.update([(1, 2, 3)]), "#0 has length 3; 2 is required"),
        said(lambda: d.update([("a", entry(t)), (5, entry(t))]))[0],
        list(d),
        said(lambda: d.update(a=entry(t)))[0],
    )


@statement("9.9")
def _(t):
    p = t.nn.ParameterList([t.lib.ones(1), "x", t.nn.Buffer(t.lib.ones(1))])
    names = ("__delitem__", "pop", "insert", "__add__")
    return (
        [type(v).__name__ for v in p],
        len(p),
        list(p._parameters),
        list(p.state_dict()),
        [hasattr(p, n) for n in names],
        type(p[:1]).__name__,
        p[:1][0] is p[0],
        p.append(t.lib.ones(2)) is p,
        said(lambda: p.extend(t.lib.ones(2)), "should be called with an iterable, but got"),
        said(lambda: p.__setitem__(0, 5))[0],
        said(lambda: p(1), "ParameterList should not be called."),
        said(lambda: p[9], "index 9 is out of range"),
    )


@statement("9.10")
def _(t):
    D = t.nn.ParameterDict  # noqa: N806
    d = D({"b": t.lib.ones(1), "a": t.lib.ones(1)})
    o = D(OrderedDict(b=t.lib.ones(1), a_="x"))
    return (
        list(d),
        list(o),
        d.get("no", 5),
        d.setdefault("c", t.lib.ones(1)).tolist(),
        list((d | o).keys()),
        list(({"z": 1} | d).keys()),
        list(d.fromkeys(["q"], 3).items()),
        d.popitem()[0],
        list(reversed(d)),
        said(lambda: D().__setitem__(5, 1), "cannot be used as a key as it is not a string"),
        said(lambda: D().popitem())[0],
        said(lambda: d.__delitem__("no"))[0],
        said(lambda: d(1), "ParameterDict should not be called."),
        d["training"],
        list(d.copy()) == list(d),
    )


@statement("9.10", better=True)
def _(t):
    return said(lambda: t.nn.ParameterDict()["no"])


@statement("9.11")
def _(t):
    return warned(lambda: t.nn.Container(a=entry(t)))[0]


@pytest.mark.parametrize("kind", ["modtree", "modtree-torch"])
@pytest.mark.parametrize("number", statement.programs)
def test_statements(number, kind):
    statement.compare(number, kind)
