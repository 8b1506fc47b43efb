# SPDX-License-Identifier: BSD-3-Clause
"""Operations on one module: attributes, registration, paths, registries and ``__dict__``."""

from __future__ import annotations

from collections import Counter, OrderedDict
from typing import Any

from .kinds import (
    ANY_MODULE,
    BOOL,
    BUFFER_VALUE,
    CHILD,
    MODULE,
    MODULE_SLOT,
    NAME,
    NAMES,
    ODD_NAMES,
    PARAM,
    PARAM_SLOT,
    PARAM_VALUE,
    PATH,
    REGISTRY,
    TENSOR_SLOT,
    VALUE,
    Choice,
    Name,
    Number,
    Options,
    Value,
    held_names,
)
from .mending import nothing_changed
from .observe import HOOK_TABLES, INTERNAL, REGISTRIES
from .program import operation

LEAF = Value(params=6, tensors=6, none=3, odd=2)
TABLE = Choice(*INTERNAL)
DELETED = Choice(*REGISTRIES, "training", "_non_persistent_buffers_set")


# -- attributes ------------------------------------------------------------------------------------


@operation("tree", 16)
def set_attribute(w, m=MODULE, name=NAME, value=VALUE):
    with nothing_changed(w):
        setattr(m, name, value)


@operation("tree", 5)
def delete_attribute(w, m=MODULE, name=NAME):
    delattr(m, name)


@operation("tree", 2)
def use_methods_of_object(
    w, m=MODULE, name=NAME, value=VALUE, what=Choice("set", "set", "delete", "get")
):
    """What keeps a module out of the registries."""
    if what == "set":
        object.__setattr__(m, name, value)
    elif what == "delete":
        object.__delattr__(m, name)
    else:
        return object.__getattribute__(m, name)


@operation("tree", 3)
def get_attribute(w, m=MODULE, name=NAME):
    return [getattr(m, name), hasattr(m, name)]


@operation("tree", 2)
def get_all_attributes(w, m=MODULE):
    return {
        name: getattr(m, name, "missing")
        for name in (*NAMES, *ODD_NAMES, *held_names(m))
        if name != "__dict__"
    }


@operation("tree", 2)
def move_attribute(w, m=MODULE, name=NAME, other=MODULE):
    value = getattr(m, name)
    if w.cycles or not w.reaches(value, other):
        with nothing_changed(w):
            setattr(other, name, value)
    delattr(m, name)


@operation("tree", 2)
def list_names(w, m=MODULE):
    names = Counter(dir(m))
    names -= Counter(dir(type(m)))
    return sorted(names.elements())


@operation("tree", 1)
def new_parameter(
    w,
    slot=PARAM_SLOT,
    shape=Choice((), (1,), (2,), (1, 2), (0,)),
    options=Options(requires_grad=(True, False)),
):
    w.params[slot] = w.impl.nn.Parameter(w.impl.lib.full(shape, float(slot + 21)), **options)


@operation("tree", 1)
def new_tensor(
    w,
    slot=TENSOR_SLOT,
    shape=Choice((), (1,), (2,), (1, 2), (0,)),
    kind=Choice("plain", "int", "float64", "buffer", "temporary", "meta", "grad"),
):
    lib, value = w.impl.lib, float(slot + 31)
    if kind in ("buffer", "temporary"):
        new = w.impl.nn.Buffer(lib.full(shape, value), persistent=kind == "buffer")
    elif kind == "meta":
        new = lib.empty(shape, device="meta")
    else:
        dtype = {"int": lib.int64, "float64": lib.float64}.get(kind, lib.float32)
        new = lib.full(shape, int(value) if kind == "int" else value, dtype=dtype)
        new.requires_grad_(kind == "grad")
    w.tensors[slot] = new


@operation("tree", 1)
def mark_tensor(w, p=PARAM, value=Number(0, 3)):
    """Python attributes and gradients of parameters, which copies and conversions treat in their
    own ways.
    """
    if value == 0:
        p.grad = None
    elif value == 1:
        p.grad = w.impl.lib.full(p.shape, 2.0, dtype=p.dtype)
    elif value == 2:
        p.requires_grad_(not p.requires_grad)
    else:
        p.mark = "mark"


# -- registration ----------------------------------------------------------------------------------


@operation("tree", 4)
def register_parameter(w, m=MODULE, name=NAME, value=PARAM_VALUE):
    return m.register_parameter(name, value)


@operation("tree", 5)
def register_buffer(
    w, m=MODULE, name=NAME, value=BUFFER_VALUE, options=Options(persistent=(True, False))
):
    return m.register_buffer(name, value, **options)


@operation("tree", 8)
def add_module(w, m=MODULE, name=NAME, value=CHILD, how=Choice("add_module", "register_module")):
    return getattr(m, how)(name, value)


@operation("tree", 1)
def register_under_odd_names(w, m=MODULE, name=Choice(3, None, ("a",), b"a"), what=Number(0, 2)):
    method = (m.register_parameter, m.register_buffer, m.add_module)[what]
    return method(name, None)


@operation("rare", 1)
def register_with_wrong_arguments(
    w,
    m=MODULE,
    method=Choice(
        "register_parameter", "register_buffer", "add_module", "get_submodule", "train", "apply"
    ),
    args=Choice((), ("a",), ("a", None, True, 4), (1, 2, 3)),
    options=Options(bogus=(1,), name=("a",)),
):
    return getattr(m, method)(*args, **options)


# -- paths -----------------------------------------------------------------------------------------


@operation("paths", 4)
def get_by_path(
    w, m=MODULE, path=PATH, method=Choice("get_submodule", "get_parameter", "get_buffer")
):
    return getattr(m, method)(path)


@operation("paths", 4)
def set_submodule(w, m=MODULE, path=PATH, value=CHILD, options=Options(strict=(True, False))):
    parent = w.parent_at(m, path)
    if not w.cycles and parent is not None and w.reaches(value, parent):
        value = None
    with nothing_changed(w):
        return m.set_submodule(path, value, **options)


@operation("paths", 1)
def get_all_paths(w, m=MODULE):
    names = [name for name, _ in m.named_modules(remove_duplicate=True)][:10]
    return [m.get_submodule(name) for name in names if ".." not in name]


# -- registries and __dict__ -----------------------------------------------------------------------


@operation("registries", 5)
def edit_registry(w, m=MODULE, registry=REGISTRY, name=Name(odd=0), which=Number(0, 5)):
    pool = {"_parameters": w.params, "_buffers": w.tensors, "_modules": w.modules}[registry]
    value = pool[which]
    if registry == "_modules" and not w.cycles and w.reaches(value, m):
        value = None
    if not held_elsewhere(m, registry, name):
        getattr(m, registry)[name] = value


def held_elsewhere(m, registry, name):
    """A name in two registries at once, or one that registration refuses: what an assignment does
    then is an accident.
    """
    return (
        name == ""
        or "." in name
        or any(name in getattr(m, other) for other in REGISTRIES if other != registry)
    )


@operation("registries", 1)
def edit_registry_oddly(
    w, m=MODULE, registry=Choice("_parameters", "_buffers"), name=Name(odd=0), value=LEAF
):
    if not held_elsewhere(m, registry, name):
        getattr(m, registry)[name] = value


@operation("registries", 2)
def delete_in_registry(w, m=MODULE, registry=REGISTRY, name=NAME):
    del getattr(m, registry)[name]


@operation("registries", 2)
def reorder_registry(w, m=MODULE, registry=REGISTRY, how=Number(0, 4)):
    old = getattr(m, registry)
    items = list(old.items())
    if how == 0:
        setattr(m, registry, OrderedDict(items))
    elif how == 1:
        setattr(m, registry, dict(reversed(items)))
    elif how == 2 and items:
        old[items[0][0]] = old.pop(items[0][0])
    elif how == 3 and isinstance(old, OrderedDict) and items:
        old.move_to_end(items[-1][0], last=False)
    elif how == 4:
        old.clear()


@operation("registries", 2)
def edit_persistence(w, m=MODULE, name=NAME, persistent=BOOL):
    flags = m._non_persistent_buffers_set
    (flags.discard if persistent else flags.add)(name)


@operation("registries", 1)
def share_registry(w, m=MODULE, registry=REGISTRY, other=MODULE):
    """Two modules with one registry, as after ``copy.copy``."""
    if registry == "_modules" and not w.cycles:
        children = getattr(other, registry).values()
        if any(w.reaches(child, m) for child in children):
            return
    setattr(m, registry, getattr(other, registry))


@operation("registries", 2)
def read_internals(w, m=MODULE, name=TABLE):
    return getattr(m, name)


@operation("dict", 3)
def set_in_dict(w, m=MODULE, name=NAME, value=VALUE):
    m.__dict__[name] = value


@operation("dict", 2)
def delete_in_dict(w, m=MODULE, name=NAME):
    del m.__dict__[name]


@operation("dict", 1)
def look_at_dict(w, m=MODULE):
    entries = m.__dict__
    return [
        [k for k in entries if k not in INTERNAL],
        [(k, entries[k]) for k in INTERNAL if k in entries],
    ]


@operation("dict", 1)
def replace_dict(w, m=MODULE, how=Number(0, 2)):
    if how == 0:
        m.__dict__ = dict(m.__dict__)
    elif how == 1:
        m.__dict__ = {**m.__dict__, "plain": 1}
    else:
        m.__dict__.update(plain=2, training=False)


@operation("rare internals", 1)
def set_internal(
    w, m=MODULE, name=Choice(*REGISTRIES, *HOOK_TABLES), value=Choice("dict", "ordered")
):
    setattr(m, name, {"dict": dict, "ordered": OrderedDict}[value]())


@operation("rare internals", 1)
def delete_internal(w, m=MODULE, name=DELETED):
    delattr(m, name)


@operation("rare internals", 1)
def delete_internal_in_dict(w, m=MODULE, name=DELETED):
    del m.__dict__[name]


@operation("rare internals", 2)
def initialize_again(w, m=MODULE, options=Options(0.1, bogus=(1,))):
    if "_load_hook" in m.__dict__:
        return  # torch cannot copy the handle of a lazy module whose tables are gone
    w.impl.nn.Module.__init__(m, **options)


@operation("rare internals", 1)
def module_without_init(w, slot=MODULE_SLOT, name=NAME, value=VALUE):
    m = w.modules[slot] = w.impl.nn.Module.__new__(w.impl.nn.Module)
    setattr(m, name, value)


@operation("tree", 2)
def new_module(w, slot=MODULE_SLOT):
    w.modules[slot] = w.impl.nn.Module()


@operation("tree", 3)
def grow(
    w, m=MODULE, value=ANY_MODULE, name=Choice("left", "right", "body"), p=PARAM, kind=Number(0, 2)
):
    """Ordinary code: a child with a parameter or a buffer of its own."""
    child: Any = value if value is not None else w.impl.nn.Module()
    if kind == 0:
        child.register_parameter("w", p)
    elif kind == 1:
        child.register_buffer("h", w.tensors[0], persistent=False)
    with nothing_changed(w):
        setattr(m, name, child)
