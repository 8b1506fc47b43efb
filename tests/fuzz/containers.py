# SPDX-License-Identifier: BSD-3-Clause
"""Operations on Sequential, ModuleList, ModuleDict, ParameterList and ParameterDict."""

from __future__ import annotations

import copy
from collections import OrderedDict

from .kinds import (
    ANY_MODULE,
    CHILD,
    MODULE_SLOT,
    VALUE,
    Choice,
    Container,
    Name,
    Number,
    Part,
    Position,
    Several,
)
from .mending import no_dangling_keys, nothing_changed, same_registry
from .program import operation

ROWS = ("Sequential", "ModuleList")
KEYS = Name(held=0.6, odd=0.1)
SEVERAL, VALUES = Several(ANY_MODULE), Several(VALUE)
NAMED = Choice(("a", "b"), ("0", "1"), ("1", "0"), ("0",), ("x", "1", "2"), ("", "a.b"))


@operation("containers", 6)
def new_container(
    w,
    slot=MODULE_SLOT,
    kind=Choice("plain", "named", "dict", "list", "parameters", "table"),
    modules=SEVERAL,
    values=VALUES,
    names=NAMED,
):
    nn = w.impl.nn
    named = OrderedDict(zip(names, modules, strict=False))
    made = {
        "plain": lambda: nn.Sequential(*modules),
        "named": lambda: nn.Sequential(named),
        "dict": lambda: nn.ModuleDict(named),
        "list": lambda: nn.ModuleList(modules),
        "parameters": lambda: nn.ParameterList(values),
        "table": lambda: nn.ParameterDict(dict(zip(names, values, strict=False))),
    }
    return w.keep(made[kind](), slot)


@operation("containers", 1)
def new_container_wrongly(
    w,
    kind=Choice(*ROWS, "ModuleDict", "ParameterList", "ParameterDict"),
    args=Choice((3,), ("ab",), ({"a": 1},), ([3],), ([(1, 2, 3)],), (1, 2)),
):
    return getattr(w.impl.nn, kind)(*args)


# -- Sequential and ModuleList ---------------------------------------------------------------------


@operation("containers", 3)
def get_item(w, m=Container(*ROWS), index=Position()):
    return m[index]


@operation("containers", 3)
def get_slice(w, m=Container(*ROWS), part=Part(), slot=MODULE_SLOT):
    return w.keep(m[part], slot)


@operation("containers", 3)
def set_item(w, m=Container(*ROWS), index=Position(), value=CHILD):
    with nothing_changed(w):
        m[index] = value


@operation("containers", 3)
def delete_item(w, m=Container(*ROWS), index=Position()):
    with same_registry(w, m):
        del m[index]


@operation("containers", 2)
def delete_slice(w, m=Container(*ROWS), part=Part()):
    with same_registry(w, m):
        del m[part]


@operation("containers", 3)
def pop_item(w, m=Container(*ROWS), index=Position()):
    with same_registry(w, m):
        return m.pop(index)


@operation("containers", 1)
def pop_slice(w, m=Container(*ROWS), part=Part()):
    with same_registry(w, m):
        return m.pop(part)


@operation("containers", 4)
def append(w, m=Container(*ROWS), value=CHILD):
    with nothing_changed(w):
        return m.append(value)


@operation("containers", 3)
def extend(
    w, m=Container(*ROWS), modules=SEVERAL, how=Choice("extend", "+=", "tuple", "wrong", "dict")
):
    with nothing_changed(w):
        return extend_row(w, m, modules, how)


def extend_row(w, m, modules, how):
    if how == "extend":
        return m.extend(modules)
    if how == "+=":
        m += w.impl.nn.Sequential(*modules) if isinstance(m, w.impl.nn.Sequential) else modules
        return m
    if how == "wrong":
        return m.extend(3)
    return m.extend(tuple(modules) if how == "tuple" else dict.fromkeys("a", None))


@operation("containers", 3)
def insert(w, m=Container(*ROWS), index=Position(), value=CHILD):
    return m.insert(index, value)


@operation("containers", 2)
def add(w, m=Container(*ROWS), modules=SEVERAL, slot=MODULE_SLOT, wrong=Number(0, 9)):
    other = w.impl.nn.Sequential(*modules) if isinstance(m, w.impl.nn.Sequential) else modules
    return w.keep(m + (3 if wrong == 0 and not any(w.global_tables()) else other), slot)


@operation("containers", 2)
def multiply(
    w,
    m=Container("Sequential"),
    factor=Choice(-1, 0, 1, 2, 3, True, 1.5, "2"),
    how=Choice("*", "r*", "*="),
    slot=MODULE_SLOT,
):
    if len(m) > 8:
        return None
    if how == "*":
        return w.keep(m * factor, slot)
    if how == "r*":
        return w.keep(factor * m, slot)
    m *= factor
    return m


@operation("containers", 3)
def iterate(w, m=Container(*ROWS), value=ANY_MODULE):
    return [list(m), list(reversed(m)), value in m, len(m), bool(m)]


# -- ModuleDict and ParameterDict ------------------------------------------------------------------

TABLES = Container("ModuleDict", "ParameterDict")
DICT = Container("ParameterDict")


def entry_for(w, m, value):
    """A value that the container may hold: modules alone in a ModuleDict, no modules that would
    make a cycle.
    """
    is_module = value is None or isinstance(value, w.impl.nn.Module)
    return value if is_module == isinstance(m, w.impl.nn.ModuleDict) else None


@operation("containers", 5)
def set_key(w, m=TABLES, name=KEYS, value=VALUE):
    with nothing_changed(w):
        m[name] = value


@operation("containers", 2)
def get_key(w, m=TABLES, name=KEYS):
    return [name in m, m[name]]


@operation("containers", 2)
def delete_key(w, m=TABLES, name=KEYS):
    del m[name]


@operation("containers", 2)
def pop_key(w, m=TABLES, name=KEYS):
    return m.pop(name)


@operation("containers", 3)
def update(
    w,
    m=TABLES,
    names=NAMED,
    values=VALUES,
    how=Choice("dict", "ordered", "pairs", "self", "wrong"),
    wrong=Choice(3, [3], [(1, 2, 3)], ["a"], None),
):
    pairs = list(zip(names, (entry_for(w, m, v) for v in values), strict=False))
    given = {
        "dict": dict(pairs),
        "ordered": OrderedDict(pairs),
        "pairs": [list(p) for p in pairs],
        "self": m,
        "wrong": wrong,
    }[how]
    with no_dangling_keys(w, m):
        m.update(given)
    return len(m)


@operation("containers", 2)
def views(w, m=TABLES):
    return [list(m.keys()), list(m.items()), list(m.values()), list(m), len(m), bool(m)]


@operation("containers", 1)
def clear(w, m=TABLES):
    m.clear()


@operation("containers", 3)
def use_dict(
    w,
    m=DICT,
    name=KEYS,
    value=VALUE,
    names=NAMED,
    values=VALUES,
    slot=MODULE_SLOT,
    what=Choice("popitem", "setdefault", "get", "or", "ror", "ior", "fromkeys", "copy", "reversed"),
):
    made = dict(zip(names, values, strict=False))
    if what == "popitem":
        return m.popitem()
    if what == "setdefault":
        with nothing_changed(w):
            return m.setdefault(name, value)
    if what == "get":
        return [m.get(name), m.get(name, 5)]
    if what == "or":
        return w.keep(m | made, slot)
    if what == "ror":
        return list((made | m).items())
    if what == "ior":
        with no_dangling_keys(w, m):
            m |= made
        return m
    if what == "fromkeys":
        return w.keep(m.fromkeys(names, value), slot)
    return w.keep(m.copy(), slot) if what == "copy" else list(reversed(m))


# -- ParameterList ---------------------------------------------------------------------------------

LIST = Container("ParameterList")


@operation("containers", 2)
def get_entry(w, m=LIST, index=Position()):
    return m[index]


@operation("containers", 2)
def get_entries(w, m=LIST, part=Part(), slot=MODULE_SLOT):
    return w.keep(m[part], slot)


@operation("containers", 3)
def set_entry(w, m=LIST, index=Position(), value=VALUE):
    with nothing_changed(w):
        m[index] = value


@operation("containers", 3)
def append_entry(w, m=LIST, value=VALUE):
    with nothing_changed(w):
        return m.append(value)


@operation("containers", 3)
def extend_entries(
    w,
    m=LIST,
    values=VALUES,
    how=Choice("extend", "+=", "self", "wrong"),
    wrong=Choice(3, None, "ab"),
):
    with nothing_changed(w):
        return extend_list(m, values, how, wrong)


def extend_list(m, values, how, wrong):
    if how == "extend":
        return m.extend(values)
    if how == "self":
        return m.extend(m[:2])
    if how == "wrong":
        return m.extend(wrong)
    m += values
    return m


@operation("containers", 2)
def iterate_entries(w, m=LIST):
    return [list(m), len(m), bool(m), list(copy.copy(m))]
